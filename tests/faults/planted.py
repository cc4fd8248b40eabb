"""Bugs to be planted: one to three wrong lines each, written into the product's source while a test process loads it.

The product knows nothing of this. ``planting/sitecustomize.py`` calls ``install`` in processes whose environment names
a bug; a finder then hands the edited text of one module to the compiler. ``BUGS`` are the forty that every trusted
system of this kind has had at some time, ``MORE`` are our own. Which hunter has to find it stands beside each.
"""

from __future__ import annotations

import difflib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

MOST_LINES = 3


@dataclass(frozen=True)
class Edit:
    """In this file, exactly one occurrence of ``old`` becomes ``new``."""

    file: str
    old: str
    new: str

    def apply(self, text: str) -> str:
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} holds {text.count(self.old)} times what a planted bug replaces: {self.old!r}")
        return text.replace(self.old, self.new)

    @property
    def module(self) -> str:
        return "holdfast." + self.file.removesuffix(".py").replace("/", ".")

    @property
    def lines(self) -> int:
        """How many wrong lines there are afterwards, or how many are gone."""
        rows = [row for row in difflib.ndiff(self.old.splitlines(), self.new.splitlines()) if row[:2] in ("+ ", "- ")]
        return max(sum(row[0] == "+" for row in rows), sum(row[0] == "-" for row in rows))


@dataclass(frozen=True)
class Bug:
    """A name's edits, the suite that exists to find it, and the hunter that runs that suite."""

    suite: str
    hunter: str
    edits: tuple[Edit, ...]

    @property
    def lines(self) -> int:
        return sum(edit.lines for edit in self.edits)


def _bug(hunter: str, *edits: tuple[str, str, str]) -> Bug:
    return Bug(hunter.partition(":")[0], hunter, tuple(Edit(*edit) for edit in edits))


FILE = "stores/file.py"
_SYNC = "                self._fs.fsync(fd)\n            finally:\n                self._fs.close(fd)\n        except"
_SYNC_DIR = "            self._fs.fsync_dir(os.path.dirname(path))\n        return str(generation)"


def _sync(new: str) -> tuple[str, str, str]:
    return FILE, _SYNC, _SYNC.replace("self._fs.fsync(fd)", new)


def _sync_dir(condition: str) -> tuple[str, str, str]:
    return FILE, _SYNC_DIR, _SYNC_DIR.replace("self._fs.fsync_dir", f"if {condition}: self._fs.fsync_dir")


PROTOCOL = "checkpoint/protocol.py"
_ANSWER = "        except (ConflictError, OutcomeUnknownError) as error:\n"
GATE = "dashboard/gate.py"
READ = "checkpoint/restore.py"

BUGS: dict[str, Bug] = {
    "no fsync(part)": _bug("A", _sync('if "/checkpoints/" not in temporary: self._fs.fsync(fd)')),
    "no fsync(dir) after parts": _bug("A", _sync_dir('"/checkpoints/" not in path')),
    "no fsync(record)": _bug("A", _sync('if "/checkpoints/" in temporary: self._fs.fsync(fd)')),
    "no fsync(dir) after rename": _bug("A", _sync_dir('"/checkpoints/" in path')),
    "record before parts": _bug(
        "A",
        (
            FILE,
            "        path = self._path(key)\n        view = ",
            '        if "/" in key and if_generation == ABSENT:\n'
            '            return self.__dict__.setdefault("_later", {}).update({key: bytes(data)}) or "0"\n'
            "        path = self._path(key)\n        view = ",
        ),
        (
            FILE,
            "        return str(generation)\n",
            '        while self.__dict__.get("_later"): self.put(*self._later.popitem())\n'
            "        return str(generation)\n",
        ),
    ),
    "overwrite in place": _bug(
        "A",
        (
            FILE,
            "            self._check(key, current, if_generation)\n            try:\n",
            "            self._check(key, current, if_generation)\n"
            "            if current != ABSENT:\n"
            "                self._fs.truncate(fd := self._fs.open(path), 0)\n"
            "                return str(self._write_durably(fd, path, view, current, direct=False))\n"
            "            try:\n",
        ),
    ),
    "remove-then-rename": _bug(
        "A",
        (
            FILE,
            "            self._fs.replace(temporary, path)\n",
            "            if current != ABSENT:\n                self._fs.unlink(path)\n"
            "            self._fs.replace(temporary, path)\n",
        ),
    ),
    "fsync error ignored": _bug("A", _sync("with contextlib.suppress(OSError): self._fs.fsync(fd)")),
    "fsync retried": _bug(
        "A", _sync("try: self._fs.fsync(fd)\n                except OSError: self._fs.fsync(fd)")
    ),
    "412 = conflict": _bug(
        "G:simulated", (PROTOCOL, _ANSWER, "        except ConflictError:\n            return _Another(None)\n" + _ANSWER)
    ),
    "timeout = failure": _bug(
        "G:simulated",
        (
            PROTOCOL,
            _ANSWER,
            "        except OutcomeUnknownError as error:\n"
            '            raise StoreUnavailableError("timed out") from error\n' + _ANSWER,
        ),
    ),
    "timeout = success": _bug(
        "G:simulated",
        (
            PROTOCOL,
            _ANSWER,
            "        except OutcomeUnknownError:\n            return Held(new, generation)\n" + _ANSWER,
        ),
    ),
    "token constant": _bug(
        "G:simulated", ("checkpoint/ledger.py", "    return secrets.token_hex(16)", '    return "0" * 32')
    ),
    "shared part name": _bug(
        "G:simulated",
        ("checkpoint/head.py", '        return f"{self.step:012d}-{self.attempt:06d}"', '        return f"{self.step:012d}-000000"'),
        (
            "checkpoint/persist.py",
            '    return f"{FOLDER}/{step:012d}-{attempt:06d}" + ',
            '    return f"{FOLDER}/{step:012d}-000000" + ',
        ),
        ("checkpoint/persist.py", "            store.put(key, data, if_generation=ABSENT)", "            store.put(key, data)"),
    ),
    "generation not in precondition": _bug(
        "G:simulated", (PROTOCOL, "yield Put(HEAD_KEY, data, generation)", "yield Put(HEAD_KEY, data, None)")
    ),
    "lease by local clock": _bug(
        "G:clocks", ("queue/sqlite.py", "        return self._clock.monotonic()", "        return self._clock.wall()")
    ),
    "release without generation": _bug(
        "H",
        (
            "queue/sqlite_schema.py",
            'RELEASE = "UPDATE holdfast_item SET holder=0, deliveries=deliveries-1" + _MINE',
            'RELEASE = "UPDATE holdfast_item SET holder=0, deliveries=deliveries-1" + _MINE.partition("AND")[0] + "AND ? AND ?"',
        ),
    ),
    "ack before store": _bug(
        "D:queue:two files",
        (
            "runtime/pump.py",
            "        if results and not self._fused:\n",
            "        if results and not self._fused:\n            self._queue.complete(leases)\n",
        ),
    ),
    "store without key": _bug(
        "D:queue:one file",
        (
            "runtime/compute.py",
            "Result(lease.key, payload, lease.generation)",
            'Result(f"{lease.key}/{lease.generation}", payload, lease.generation)',
        ),
    ),
    "heartbeat in the work thread": _bug(
        "G:long items",
        (
            "runtime/worker.py",
            "        while not self._over.wait(self._queue.lease_seconds / 3):\n            renew",
            "        while False:\n            renew",
        ),
        (
            "runtime/worker.py",
            "            self._pump.put(settled, unstarted)\n",
            "            self._pump.put(settled, unstarted)\n            renew(self._queue, self._pump._handles)\n",
        ),
    ),
    "SIGTERM handler logs": _bug(
        "E",
        (
            "runtime/signals.py",
            "            self._missed = number\n            try",
            '            self._missed = number\n            log.warning("received signal %d", number)\n            try',
        ),
    ),
    "prune newest-by-name": _bug(
        "A",
        (
            "checkpoint/garbage.py",
            "    needed: set[str] = set()\n",
            '    newest = max((entry.key.split("/")[1] for entry in entries), default="")\n'
            '    return {entry.key for entry in entries if entry.key.split("/")[1] == newest}\n'
            "    needed: set[str] = set()\n",
        ),
    ),
    "prune while restoring": _bug(
        "J",
        ("checkpoint/engine.py", "                now = reread() if reread is not None else None\n", "                now = None\n"),
    ),
    "latest from memory": _bug(
        "A",
        (
            "checkpoint/ledger.py",
            "            self._held = drive(commit(self._held, change(self._held.head), _token), self.store, self._clock)\n",
            "            try: self._held = drive(commit(self._held, change(self._held.head), _token), self.store, self._clock)\n"
            "            except HoldfastError: self._held = Held(change(self._held.head), self._held.generation)\n",
        ),
    ),
    "checksum of the wrong bytes": _bug(
        "J",
        (READ, "digest_named(inventory.algorithm)(target) !=", "digest_named(inventory.algorithm)(target[:512]) !="),
        (
            "checkpoint/persist.py",
            "tuple(digest(view[at : at + self.chunk_bytes]) for",
            "tuple(digest(view[at : at + 512]) for",
        ),
    ),
    "checksum skipped on warm cache": _bug(
        "J",
        (
            READ,
            "    if digest_named(inventory.algorithm)(target) != part.chunks[number]:\n",
            "    warm = store.__dict__.setdefault('_warm', set())\n"
            "    if (part.key, number) not in warm and digest_named(inventory.algorithm)(target) != part.chunks[number]:\n",
        ),
        (READ, "\n\ndef chunk_length(", "    warm.add((part.key, number))\n\n\ndef chunk_length("),
    ),
    "size not checked": _bug("J", (READ, "    if count != len(target):\n", "    if False:\n")),
    "loader state outside the record": _bug(
        "D:trainers",
        (
            "checkpoint/tracked.py",
            "    return {name: item.get() for name, item in tracked.items()}\n",
            '    if "loader" in tracked: open("loader.txt", "w").write(repr(tracked["loader"].get()))\n'
            "    return {name: item.get() if name != 'loader' else None for name, item in tracked.items()}\n",
        ),
        (
            "checkpoint/tracked.py",
            "    problems = []\n    if strict:\n        problems += [f\"{name}: tracked, but",
            "    state = {**state, 'loader': __import__('ast').literal_eval(open('loader.txt').read())}\n"
            "    problems = []\n    if strict:\n        problems += [f\"{name}: tracked, but",
        ),
    ),
    "rng not saved": _bug("D:trainers", ("runtime/state.py", "        if self._options.rng:\n", "        if False:\n")),
    "exit 0 on interrupt": _bug(
        "E", ("model/exits.py", "INTERRUPTED = 75  # os.EX_TEMPFAIL", "INTERRUPTED = 0  # os.EX_TEMPFAIL")
    ),
    "poison without cap": _bug(
        "H",
        (
            "queue/sqlite.py",
            "                over = final or count >= self._policy.max_failures\n",
            "                over = final\n",
        ),
    ),
    "synchronous=NORMAL": _bug(
        "B:queue",
        ("stores/sqlite.py", 'connection.execute("PRAGMA synchronous=FULL")', 'connection.execute("PRAGMA synchronous=NORMAL")'),
    ),
    "autocommit between UPSERT and ACK": _bug(
        "D:queue:one file",
        (
            "queue/sqlite.py",
            "            if self._settle(sql.COMPLETE, leases) == len(leases):\n",
            "            settled = self._settle(sql.COMPLETE, leases)\n"
            '            self.connection.execute("COMMIT"), self.connection.execute("BEGIN IMMEDIATE")\n'
            "            if settled == len(leases):\n",
        ),
    ),
    "YAML depth unlimited": _bug("L", ("documents/gate.py", "    depth: int = 100\n", "    depth: int = 10**9\n")),
    "duplicate keys allowed": _bug(
        "L", ("documents/gate.py", "        elif frame.key in frame.container:\n", "        elif frame.key is ...:\n")
    ),
    "Host unchecked": _bug(
        "N",
        (GATE, "        if match is None or match[1] not in self._door.hosts or ", "        if match is None or "),
    ),
    "DELETE not in the deny list": _bug(
        "N",
        (
            GATE,
            'next((item for item in fitting if item.method == scope["method"]), None)',
            'next((item for item in fitting if item.method == scope["method"] or scope["method"] == "DELETE"), None)',
        ),
    ),
    "token in URL": _bug(
        "N",
        (
            GATE,
            '        if not rule.query.fullmatch(scope.get("query_string", b"").decode("latin-1")):\n',
            '        if (query := scope.get("query_string", b"").decode("latin-1")).startswith("token="):\n'
            "            headers[TOKEN_HEADER] = [query[6:]]\n"
            "        elif not rule.query.fullmatch(query):\n",
        ),
    ),
    "wildcard verb": _bug("O", ("cluster/watch_manifests.py", '"verbs": sorted(verbs)}', '"verbs": ["*"]}')),
    "pickle fallback": _bug(
        "K",
        (
            "checkpoint/leaf.py",
            "    raise FormatError(f\"the leaf type",
            "    if kind == 'pickle':\n        return __import__('pickle').loads(memory)\n    raise FormatError(f\"the leaf type",
        ),
    ),
}
"""The forty, by the names they have everywhere."""

MORE: dict[str, Bug] = {
    "no fsync at all": _bug("B:store", ("fs.py", "fd: int) -> None:\n        os.fsync(fd)\n", "fd: int) -> None:\n        pass\n")),
    "fsync error passed over": _bug("C", _sync("with contextlib.suppress(OSError): self._fs.fsync(fd)")),
    "leftovers of failed writes": _bug(
        "C",
        (
            FILE,
            "            with contextlib.suppress(OSError):\n                self._fs.unlink(temporary)\n            raise",
            "            raise",
        ),
    ),
    "parents of the root trusted": _bug(
        "A",
        (
            "stores/file_tree.py",
            "                    self._fs.fsync_dir(os.path.dirname(step))\n",
            "                    if missing: self._fs.fsync_dir(os.path.dirname(step))\n",
        ),
    ),
    "acknowledged before commit": _bug(
        "D:trainers",
        (
            "runtime/session.py",
            "            self._ending.commit_now(self._completed)\n",
            "            self._saver.submit(self._books.prepare(self._completed))\n",
        ),
    ),
    "complete without generation": _bug(
        "H",
        (
            "queue/sqlite_schema.py",
            'COMPLETE = "UPDATE holdfast_item SET holder=NULL" + _MINE',
            'COMPLETE = "UPDATE holdfast_item SET holder=NULL" + _MINE.partition("AND")[0] + "AND ? AND ?"',
        ),
    ),
}
"""What we nearly did ourselves, or what shows that a suite with few of the forty sees anything at all."""

SLOW = ("no fsync(part)", "latest from memory", "SIGTERM handler logs", "heartbeat in the work thread", "token constant")
"""Found in seconds where the others take a fraction of one: looked for at night, not for every change."""


def find(name: str) -> Bug:
    """A misspelt bug would be one that nobody finds."""
    if name not in BUGS and name not in MORE:
        raise ValueError(f"no planted bug is called {name!r}")
    return BUGS.get(name) or MORE[name]


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the edited text; nothing of it is ever cached."""

    def __init__(self, name: str, path: str, edits: list[Edit]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        text = Path(self.path).read_text(encoding="utf-8")
        for edit in self._edits:
            text = edit.apply(text)
        return compile(text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, edits: dict[str, list[Edit]]) -> None:
        self._edits = edits

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._edits:
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        spec.loader = _Loader(fullname, spec.origin, self._edits[fullname])
        return spec  # type: ignore[no-any-return]


def install(name: str) -> None:
    """From here on this process has the bug; before anything of the product is imported."""
    edits: dict[str, list[Edit]] = {}
    for edit in find(name).edits:
        edits.setdefault(edit.module, []).append(edit)
    loaded = [module for module in edits if module in sys.modules]
    if loaded:
        raise RuntimeError(f"{', '.join(loaded)} was imported before the bug {name!r} could be planted")
    sys.meta_path.insert(0, _Finder(edits))
