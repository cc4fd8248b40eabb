"""Which checksum guards stored bytes, by name, so that every inventory says how it was made.

``xxh3_128`` (package ``xxhash``) runs several times faster than memory can be written and is used when it is
installed; ``sha256`` from the standard library otherwise. Both are 128 bits or more, so that equal checksums of equal
lengths may stand for equal bytes when an unchanged part is recognised. Neither is a signature: whoever can write the
store can also write matching checksums. The commit record's sha256 of the inventory is what ties them together.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable

from stayfast.errors import FormatError, MissingExtraError
from stayfast.filesystem import Buffer

Digest = Callable[[Buffer], str]

XXH3_128 = "xxh3_128"
SHA256 = "sha256"
DIGEST_CHARACTERS = {XXH3_128: 32, SHA256: 64}


def _sha256(data: Buffer) -> str:
    return hashlib.sha256(data).hexdigest()


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
    try:
        function: Digest = importlib.import_module("xxhash").xxh3_128_hexdigest
    except ImportError as error:
        raise MissingExtraError(
            f"this checkpoint was written with {XXH3_128} checksums and xxhash is not installed",
            help="run: pip install xxhash",
        ) from error
    return function
