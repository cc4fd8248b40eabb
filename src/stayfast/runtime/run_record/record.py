"""``HEAD.json``: the one object that says what a run is, who owns it, and which checkpoints exist.

A checkpoint is listed here or it does not exist. The record carries its own checksum, because more than a third of
single-bit flips in a JSON record pass every type check. It is also the run's ledger: each attempt leaves one row that
says what took it away and what it cost.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from stayfast.errors import CorruptError, FormatError
from stayfast.model.exit_codes import Outcome

RECORD_KEY = "HEAD.json"
FORMAT = 1
MAX_HEAD_BYTES = 4 << 20
MAX_ATTEMPT_RECORDS = 200
_HELP = "nothing was deleted: bring back an older version of the object, or start under another URL"


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One checkpoint that exists: its last finished step and, unless only the counter was saved, its inventory."""

    step: int
    attempt: int
    committed_at: str
    size: int = 0
    inventory_sha256: str | None = None
    """None when nothing was tracked: only the step counter resumes."""
    others: tuple[tuple[str, int], ...] = ()
    """The inventories of ranks 1, 2, …: sha256 and size; empty when one process saved it all."""
    rank: int = 0
    """Whose part this row describes; always 0 in the record itself."""

    @property
    def name(self) -> str:
        """The folder under ``checkpoints/``; attempt in every key, so that attempts never share a name."""
        return f"{self.step:012d}-{self.attempt:06d}"

    @property
    def folder(self) -> str:
        """Where this rank's objects are, under ``checkpoints/``."""
        return self.name if self.rank == 0 else f"{self.name}/rank-{self.rank:05d}"

    @property
    def ranks(self) -> tuple[CheckpointRecord, ...]:
        """One row for every rank that took part."""
        rows = [self]
        for rank, (sha256, size) in enumerate(self.others, start=1):
            rows.append(replace(self, inventory_sha256=sha256, size=size, rank=rank))
        return tuple(rows)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """Who paid for what: one process life of the run."""

    attempt: int
    started_at: str
    first_step: int = 0
    last_step: int = -1
    ended_at: str | None = None
    outcome: Outcome | None = None
    cause: str | None = None
    stalled: bool = False
    """It outlived two checkpoint intervals without a commit: it counts as an attempt without progress."""
    useful_seconds: float = 0.0
    lost_seconds: float = 0.0
    save_seconds: float = 0.0
    safe_seconds: float | None = None
    """Of an interruption that was saved: from the notice until the state was durable, the commit itself still to do."""
    machine: str = ""
    zone: str = ""
    capacity: str = ""
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The run's state, as of one generation of ``HEAD.json``."""

    run: str
    attempt: int
    token: str
    checkpoints: tuple[CheckpointRecord, ...] = ()
    """Newest first; the first is where the run resumes."""
    attempts: tuple[AttemptRecord, ...] = ()
    """Oldest first; beyond ``LEDGER_ROWS`` the oldest are folded into ``folded``."""
    folded: dict[str, float] = field(default_factory=dict)
    finished: bool = False
    total_steps: int | None = None

    @property
    def newest(self) -> CheckpointRecord | None:
        return self.checkpoints[0] if self.checkpoints else None

    @property
    def next_step(self) -> int:
        """The first step that is not in a committed checkpoint."""
        return self.checkpoints[0].step + 1 if self.checkpoints else 0

    @property
    def current_attempt(self) -> AttemptRecord:
        """The row of the attempt that owns the run."""
        return self.attempts[-1]

    def with_attempt(self, **changes: Any) -> RunRecord:
        """The same head with the owner's ledger row changed."""
        return replace(self, attempts=(*self.attempts[:-1], replace(self.current_attempt, **changes)))


def encode(head: RunRecord) -> bytes:
    """Canonical JSON with its own checksum."""
    head = _fold_old_attempts(head)
    body: dict[str, Any] = {"format": FORMAT, **asdict(head)}
    body["checksum"] = _digest(body)
    return json.dumps(body, sort_keys=True, indent=1).encode()


def decode(data: bytes, *, where: str = RECORD_KEY) -> RunRecord:
    """The record, or an error that says why it cannot be one."""
    if len(data) > MAX_HEAD_BYTES:
        raise CorruptError(f"{where} is {len(data)} bytes long, more than a record can be", help=_HELP)
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{where} is not readable as JSON ({type(error).__name__})", help=_HELP) from error
    if not isinstance(body, dict) or "checksum" not in body:
        raise CorruptError(f"{where} is not a stayfast record", help=_HELP)
    checksum = body.pop("checksum")
    if checksum != _digest(body):
        raise CorruptError(f"{where} does not match its own checksum", help=_HELP)
    version = body.pop("format", None)
    if version != FORMAT:
        raise FormatError(f"{where} has format {version}, this stayfast reads {FORMAT}", help="upgrade stayfast")
    try:
        body["checkpoints"] = tuple(_committed(row) for row in body["checkpoints"])
        body["attempts"] = tuple(_make(AttemptRecord, row) for row in body["attempts"])
        head: RunRecord = _make(RunRecord, body)
        _check(head)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise CorruptError(f"{where} has the wrong fields ({error})", help=_HELP) from error
    return head


def _committed(row: dict[str, Any]) -> CheckpointRecord:
    others = tuple((str(sha256), int(size)) for sha256, size in row.get("others", ()))
    made: CheckpointRecord = _make(CheckpointRecord, {**row, "others": others})
    return made


def _check(head: RunRecord) -> None:
    """What everything else relies on; the rest of the ledger is only ever shown."""
    if not isinstance(head.token, str) or not isinstance(head.run, str) or not isinstance(head.finished, bool):
        raise TypeError("run, token or finished")
    if type(head.attempt) is not int or head.attempt < 1:
        raise TypeError("attempt")
    if head.total_steps is not None and type(head.total_steps) is not int:
        raise TypeError("total_steps")
    for row in head.checkpoints:
        if type(row.step) is not int or type(row.attempt) is not int or row.step < 0 or row.attempt < 0:
            raise TypeError("the step or attempt of a checkpoint")
    for attempt in head.attempts:
        if type(attempt.attempt) is not int:
            raise TypeError("the number of an attempt")


def _make(kind: Any, row: dict[str, Any]) -> Any:
    """Ignore fields that a newer minor version may have added; the checksum has covered them already."""
    known = {item.name for item in fields(kind)}
    values = {key: value for key, value in row.items() if key in known}
    if kind is AttemptRecord and values.get("outcome") is not None:
        values["outcome"] = Outcome(values["outcome"])
    return kind(**values)


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _fold_old_attempts(head: RunRecord) -> RunRecord:
    """Keep the record small for runs with thousands of attempts: sums stay exact, old rows go."""
    extra = len(head.attempts) - MAX_ATTEMPT_RECORDS
    if extra <= 0:
        return head
    folded = dict(head.folded)
    for row in head.attempts[:extra]:
        folded["attempts"] = folded.get("attempts", 0) + 1
        for name in ("useful_seconds", "lost_seconds", "save_seconds"):
            folded[name] = folded.get(name, 0.0) + getattr(row, name)
        if row.usd_per_hour is not None:
            hours = (row.useful_seconds + row.lost_seconds + row.save_seconds) / 3600
            folded["usd"] = folded.get("usd", 0.0) + hours * row.usd_per_hour
    return replace(head, attempts=head.attempts[extra:], folded=folded)
