"""From a cut to a durable copy: not yet visible, that is the commit's to say.

Every file is opened before the cut is confirmed: a program that replaces files by renaming, or deletes old ones, cannot
take away what is being copied. What it changes in place shows in the time of modification and calls the copy off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from stayfast.clock import Clock
from stayfast.errors import StayfastError
from stayfast.runtime.checkpoint.inventory import ALIGNMENT, Inventory, Part, check, digest_named, encode
from stayfast.runtime.checkpoint.writer import Content, checkpoint_folder, create_once
from stayfast.runtime.directory_sync.change_tracker import CopySet
from stayfast.runtime.directory_sync.copy_format import PART_BYTES, build_inventory, tree_bytes
from stayfast.runtime.directory_sync.file_scan import FILE, FileState, file_state
from stayfast.runtime.directory_sync.parallel import run_parallel
from stayfast.storage.stores.protocol import Store

OPEN_FILES = 256
"""How many are held open at once; more are opened when their turn comes."""
SMALL_BYTES, SMALL_IN_ALL_BYTES = 256 << 10, 32 << 20
"""Files up to this size are read while the program stands still, this much of them at most."""


class FileChangedError(StayfastError):
    """A file changed under the reader: this copy is off, the next look starts another."""


class FileUnreadableError(FileChangedError):
    """A file that we may not open: it is left out, or nothing would ever be copied."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} may not be read")
        self.path = path


@dataclass(frozen=True, slots=True)
class UploadedCopy:
    """Durable, not committed."""

    step: int
    inventory: Inventory
    inventory_sha256: str
    parts: dict[str, tuple[Part, ...]]
    written_bytes: int


class OpenFiles:
    """The files of one cut, held open."""

    def __init__(self, root: str, cut: CopySet, paths: list[str]) -> None:
        self._root = root
        self._cut = cut
        self._fds: dict[str, int] = {}
        self._lock = threading.Lock()
        self._content: dict[str, bytes] = {}
        for path in paths[:OPEN_FILES]:
            self._fds[path] = self._open(path)

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for path in list(self._fds):
            self.close(path)

    def _open(self, path: str) -> int:
        try:
            fd = os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except PermissionError:
            raise FileUnreadableError(path) from None
        except OSError as error:
            raise FileChangedError(f"{path} cannot be opened ({error.strerror})") from None
        try:
            self.check(path, fd)
        except FileChangedError:
            os.close(fd)
            raise
        return fd

    def fd(self, path: str) -> int:
        """Open, as in the cut."""
        with self._lock:
            if path not in self._fds:
                self._fds[path] = self._open(path)
            return self._fds[path]

    def read_small(self) -> None:
        """Take the small ones into memory now: whatever the program does to them afterwards, this is how they were."""
        room = SMALL_IN_ALL_BYTES
        for path, fd in self._fds.items():
            size = self._cut.listing[path].size
            if size <= min(SMALL_BYTES, room):
                buffer = memoryview(bytearray(size))
                _read(fd, 0, buffer, path)
                self._content[path] = bytes(buffer)
                room -= size

    def read(self, path: str, at: int, view: memoryview) -> None:
        """Fill the view from a place in the file."""
        if path in self._content:
            view[:] = self._content[path][at : at + len(view)]
        else:
            _read(self.fd(path), at, view, path)

    def check(self, path: str, fd: int) -> None:
        """Still what the cut says: the same file, not written to since; a growing one may be longer by now."""
        if path in self._content:
            return
        wanted, now = self._cut.listing[path], file_state(os.fstat(fd))
        same = now.inode == wanted.inode
        if path in self._cut.growing:
            same = same and now.size >= wanted.size
        else:  # not ctime: a rename over it, or its deletion, changes that and not a byte of it
            same = same and (now.size, now.mtime_ns) == (wanted.size, wanted.mtime_ns)
        if not same:
            raise FileChangedError(f"{path} changed while it was copied")

    def close(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fds.pop(path))


@dataclass(slots=True)
class Uploader:
    """Writes copies under one attempt; parts of a copy that was called off serve the next try."""

    store: Store
    clock: Clock
    algorithm: str
    known: dict[Content, Part] = field(default_factory=dict)
    """Parts of the newest committed copy, and of the one under way."""
    fresh: dict[Content, Part] = field(default_factory=dict)
    names: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(
        self, files: OpenFiles, cut: CopySet, base: dict[str, tuple[Part, ...]], place: tuple[int, int]
    ) -> UploadedCopy:
        """Parts first, the inventory after the last of them. ``base``: files that the last copy has as they are."""
        step, attempt = place
        folder = checkpoint_folder(step, attempt)
        before = sum(part.length for part in self.fresh.values())
        tree, order = tree_bytes(cut.listing)
        parts = dict(base)
        todo = [path for path in order if path not in base]
        jobs: list[tuple[str, int]] = []
        found: dict[tuple[str, int], Part] = {}
        for path in todo:
            jobs += [(path, at) for at in _starts(cut.listing[path])]
        left = {path: len(_starts(cut.listing[path])) for path in todo}

        def work(job: tuple[str, int], view: memoryview) -> None:
            path, at = job
            length = min(PART_BYTES, cut.listing[path].size - at)
            found[job] = self._part(lambda: files.read(path, at, view[:length]), view, length, folder)
            with self.lock:
                left[path] -= 1
                is_last = not left[path]
            if is_last:
                self._finish(files, cut, path, [found[path, at] for at in _starts(cut.listing[path])])

        run_parallel(jobs, work)
        for path in todo:
            parts[path] = tuple(found[path, at] for at in _starts(cut.listing[path]))
        own = self._bytes(tree, folder)
        rows = [(cut.listing[path], parts[path]) for path in order]
        inventory = build_inventory(step, attempt, self.algorithm, rows, (len(tree), own))
        check(inventory)
        data = encode(inventory)
        create_once(self.store, self.clock, f"{folder}/inventory", ".json", data)
        after = sum(part.length for part in self.fresh.values())
        return UploadedCopy(step, inventory, hashlib.sha256(data).hexdigest(), parts, after - before + len(data))

    def _finish(self, files: OpenFiles, cut: CopySet, path: str, parts: list[Part]) -> None:
        files.check(path, files.fd(path))
        if path in cut.growing:
            self._read_again(files, cut.listing[path], path, parts)
        files.close(path)

    def _read_again(self, files: OpenFiles, seen: FileState, path: str, parts: list[Part]) -> None:
        """A file that is still written to counts as grown only if what was there is there still."""
        buffer = memoryview(bytearray(PART_BYTES))
        for number, part in enumerate(parts):
            at = number * PART_BYTES
            length = min(PART_BYTES, seen.size - at)
            files.read(path, at, buffer[:length])
            buffer[length : part.length] = bytes(part.length - length)
            if digest_named(self.algorithm)(buffer[: part.length]) != part.chunks[0]:
                raise FileChangedError(f"{path} is written to in its middle while it is copied")

    def _part(self, fill: Callable[[], None], view: memoryview, length: int, folder: str) -> Part:
        fill()
        padded = -(-length // ALIGNMENT) * ALIGNMENT
        view[length:padded] = bytes(padded - length)
        content = (padded, (digest_named(self.algorithm)(view[:padded]),))
        part = self.known.get(content) or self.fresh.get(content)
        if part is None:
            with self.lock:
                number, self.names = self.names, self.names + 1
            key = create_once(self.store, self.clock, f"{folder}/part-{number:05d}", ".bin", view[:padded])
            part = self.fresh[content] = Part(key, *content)
        return part

    def _bytes(self, data: bytes, folder: str) -> list[Part]:
        parts = []
        buffer = memoryview(bytearray(PART_BYTES))
        for at in range(0, len(data), PART_BYTES):
            piece = data[at : at + PART_BYTES]
            buffer[: len(piece)] = piece
            parts.append(self._part(lambda: None, buffer, len(piece), folder))
        return parts

    def mark_committed(self, inventory: Inventory) -> None:
        """From now on the parts of this copy may be referred to, and no others."""
        self.set_known_parts(inventory)
        self.fresh.clear()
        self.names = 0

    def set_known_parts(self, inventory: Inventory) -> None:
        """Refer to the parts of this committed copy where content is the same."""
        same = inventory.algorithm == self.algorithm and inventory.chunk_bytes == PART_BYTES
        self.known = {part.content: part for part in inventory.parts} if same else {}


def _starts(seen: FileState) -> range:
    return range(0, seen.size, PART_BYTES)


def _read(fd: int, at: int, view: memoryview, path: str) -> None:
    done = 0
    while done < len(view):
        try:
            count = os.preadv(fd, [view[done:]], at + done)
        except OSError as error:
            raise FileChangedError(f"{path} cannot be read ({error.strerror})") from None
        if not count:
            raise FileChangedError(f"{path} became shorter while it was copied")
        done += count


def changed_files(cut: CopySet, base: dict[str, FileState]) -> list[str]:
    """The files that the last copy does not have just as they are."""
    return [path for path, seen in cut.listing.items() if seen.kind == FILE and base.get(path) != seen]
