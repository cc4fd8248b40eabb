"""The inventory: what a checkpoint holds, where each byte of it lies, and the checksum of every chunk.

An inventory is one JSON object that carries its own checksum; its sha256 stands in the commit record. A reader checks
everything before it allocates anything: exact cover (entries neither overlap nor leave holes larger than alignment
padding), no name twice, no path in a name, and part keys that this program could have written itself.

It names the checksum of its chunks. ``xxh3_128`` (package ``xxhash``) runs several times faster than memory can be
written and is used when it is installed; ``sha256`` from the standard library otherwise. Both are 128 bits or more, so
that equal checksums of equal lengths may stand for equal bytes when an unchanged part is recognised. Neither is a
signature: who can write the store can also write matching checksums. The commit record's sha256 ties them together.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stayfast.errors import CorruptError, FormatError
from stayfast.extras import load_extra
from stayfast.filesystem import Buffer

FORMAT = 1
KIND = "stayfast-inventory"
ALIGNMENT = 4096
TREE = "(tree)"
MAX_INVENTORY_BYTES = 256 << 20
MAX_PART_BYTES = 1 << 30
MAX_PARTS = 1 << 20
MAX_ENTRIES = 1 << 22
MAX_NAME_CHARACTERS = 512
FOLDER = "checkpoints"
XXH3_128 = "xxh3_128"
SHA256 = "sha256"
DIGEST_CHARACTERS = {XXH3_128: 32, SHA256: 64}

PART_KEY = re.compile(FOLDER + r"/(\d{12})-(\d{6})/(?:rank-\d{5}/)?part-\d{5,7}(\.\d{1,4})?\.bin\Z", re.ASCII)
INVENTORY_KEY = re.compile(FOLDER + r"/(\d{12})-(\d{6})/(?:rank-\d{5}/)?inventory(\.\d{1,4})?\.json\Z", re.ASCII)

Digest = Callable[[Buffer], str]


@dataclass(frozen=True, slots=True)
class Part:
    """One stored object: its key, its length with padding, and one checksum per chunk."""

    key: str
    length: int
    chunks: tuple[str, ...]

    @property
    def content(self) -> tuple[int, tuple[str, ...]]:
        """What two parts with the same bytes have in common."""
        return self.length, self.chunks


@dataclass(frozen=True, slots=True)
class InventoryEntry:
    """One leaf: it starts in ``part`` at ``offset`` and runs on into the following parts when longer than the part."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    part: int
    offset: int
    length: int
    device: str = ""
    """Where a tensor lived, such as ``cuda:0``; empty for host memory."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """All of one checkpoint."""

    step: int
    attempt: int
    algorithm: str
    chunk_bytes: int
    parts: tuple[Part, ...]
    entries: tuple[InventoryEntry, ...]
    """Leaves in the order the tree numbers them; the tree itself is the last."""

    @property
    def size(self) -> int:
        return sum(part.length for part in self.parts)


def encode(inventory: Inventory) -> bytes:
    """Canonical JSON with its own checksum: the same inventory is always the same bytes."""
    body: dict[str, Any] = {
        "kind": KIND,
        "format": FORMAT,
        "step": inventory.step,
        "attempt": inventory.attempt,
        "algorithm": inventory.algorithm,
        "chunk_bytes": inventory.chunk_bytes,
        "parts": [[part.key, part.length, list(part.chunks)] for part in inventory.parts],
        "entries": [[e.name, e.dtype, list(e.shape), e.part, e.offset, e.length, e.device] for e in inventory.entries],
    }
    body["checksum"] = _digest(body)
    return _canonical(body)


def decode(data: bytes, *, where: str) -> Inventory:
    """The inventory, or an error that names the file and says why it cannot be one."""
    if len(data) > MAX_INVENTORY_BYTES:
        raise CorruptError(f"{where} is longer than any inventory that is written")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{where} is not readable as JSON ({type(error).__name__})") from None
    if not isinstance(body, dict) or body.get("kind") != KIND or not isinstance(body.get("checksum"), str):
        raise CorruptError(f"{where} is not a stayfast inventory")
    checksum = body.pop("checksum")
    try:
        own = _digest(body)
    except (ValueError, RecursionError):
        own = ""
    if checksum != own:
        raise CorruptError(f"{where} does not match its own checksum")
    if body.get("format") != FORMAT:
        raise FormatError(
            f"{where} has format {str(body.get('format'))[:20]}, this stayfast reads {FORMAT}", help="upgrade stayfast"
        )
    try:
        inventory = _from_body(body)
        check(inventory)
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptError(f"{where} is not a whole inventory: {error}") from None
    return inventory


def check(inventory: Inventory) -> None:
    """Every rule of the format; ``ValueError`` says which one is broken. Asked before writing and after reading."""
    if inventory.algorithm not in DIGEST_CHARACTERS:
        raise FormatError(f"the checksum algorithm {inventory.algorithm[:40]!r} is not known", help="upgrade stayfast")
    if len(inventory.parts) > MAX_PARTS or len(inventory.entries) > MAX_ENTRIES:
        raise ValueError("more parts or entries than any that is written")
    if inventory.chunk_bytes < ALIGNMENT or inventory.chunk_bytes % ALIGNMENT:
        raise ValueError(f"chunks of {inventory.chunk_bytes} bytes")
    for part in inventory.parts:
        _check_part(part, inventory)
    names = set()
    for entry in inventory.entries:
        if not entry.name or len(entry.name) > MAX_NAME_CHARACTERS or any(sign in entry.name for sign in "/\\\0"):
            raise ValueError(f"the name {entry.name[:60]!r} is not allowed")
        if entry.name in names:
            raise ValueError(f"the name {entry.name[:60]!r} stands twice")
        names.add(entry.name)
        if entry.length < 0 or any(size < 0 for size in entry.shape):
            raise ValueError(f"{entry.name[:60]!r} has a negative length or shape")
    if not inventory.entries or inventory.entries[-1].name != TREE:
        raise ValueError("there is no tree")
    _check_cover(inventory)


def _check_part(part: Part, inventory: Inventory) -> None:
    if not PART_KEY.match(part.key):
        raise ValueError(f"the part key {part.key[:80]!r} is not allowed")
    if not 0 < part.length <= MAX_PART_BYTES or part.length % ALIGNMENT:
        raise ValueError(f"{part.key} cannot be {part.length} bytes long")
    if len(part.chunks) != -(-part.length // inventory.chunk_bytes):
        raise ValueError(f"{part.key} has {len(part.chunks)} checksums for {part.length} bytes")
    width = DIGEST_CHARACTERS[inventory.algorithm]
    if any(type(chunk) is not str or len(chunk) != width for chunk in part.chunks):
        raise ValueError(f"{part.key} has a checksum of the wrong length")


def _check_cover(inventory: Inventory) -> None:
    """Entries in order of place must fill the parts with no overlap and no hole but padding."""
    part, position = 0, 0
    for entry in sorted(inventory.entries, key=lambda item: (item.part, item.offset)):
        if not entry.length:
            continue
        if not 0 <= entry.part < len(inventory.parts) or entry.offset < 0:
            raise ValueError(f"{entry.name[:60]!r} lies outside the parts")
        if entry.part != part:
            if entry.part != part + 1 or inventory.parts[part].length - position >= ALIGNMENT:
                raise ValueError(f"there is a hole before {entry.name[:60]!r}")
            part, position = entry.part, 0
        if not 0 <= entry.offset - position < ALIGNMENT:
            raise ValueError(f"{entry.name[:60]!r} overlaps or leaves a hole")
        position = entry.offset + entry.length
        while position > inventory.parts[part].length:
            position -= inventory.parts[part].length
            part += 1
            if part >= len(inventory.parts):
                raise ValueError(f"{entry.name[:60]!r} is longer than the parts")
    if part != len(inventory.parts) - 1 or not 0 <= inventory.parts[part].length - position < ALIGNMENT:
        raise ValueError("the parts are longer than what lies in them")


def _from_body(body: dict[str, Any]) -> Inventory:
    parts = tuple(Part(str(key), _int(length), tuple(chunks)) for key, length, chunks in body["parts"])
    entries = tuple(
        InventoryEntry(
            str(name), str(dtype), tuple(map(_int, shape)), _int(part), _int(offset), _int(length), str(device)
        )
        for name, dtype, shape, part, offset, length, device in body["entries"]
    )
    numbers = {name: _int(body[name]) for name in ("step", "attempt", "chunk_bytes")}
    return Inventory(algorithm=str(body["algorithm"]), parts=parts, entries=entries, **numbers)


def _int(value: Any) -> int:
    if type(value) is not int or abs(value) >= 1 << 62:
        raise ValueError(f"{str(value)[:40]!r} stands where a number belongs")
    return value


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(body)).hexdigest()


def default_algorithm() -> str:
    """The fastest algorithm that is installed."""
    try:
        importlib.import_module("xxhash")
    except ImportError:
        return SHA256
    return XXH3_128


def digest_named(name: str) -> Digest:
    """The function behind a name that an inventory gives."""
    if name == SHA256:
        return _sha256
    if name != XXH3_128:
        raise FormatError(f"the checksum algorithm {name!r} is not known here", help="upgrade stayfast")
    needs = f"this checkpoint was written with {XXH3_128} checksums and xxhash is not installed"
    function: Digest = load_extra("xxhash", needs, get="run: pip install xxhash").xxh3_128_hexdigest
    return function


def _sha256(data: Buffer) -> str:
    return hashlib.sha256(data).hexdigest()
