"""One run, many ranks: rank 0 claims and commits, every rank saves its own part, all stop after the same step.

When to save: rank 0 decides at the end of a step whether all ranks save there, and names the step at which it decides
next. The other ranks read the decision at the end of that same step, and wait for it if they come first. Nothing is
announced ahead of time, so no rank can miss it, however short or uneven the steps are. A checkpoint is committed by one
replace of ``HEAD.json``, after every rank has reported that its part is durable.

Where to stop: a rank that learns of a notice publishes the step its loop has *reached*, and from then on holds its loop
at the next boundary. The last step is the largest that any rank has published; a rank behind it continues to that step.
No rank waits in a collective for a rank that holds, because a rank that holds has finished every step before the one it
published, and will run that one too if any other rank has entered it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from stayfast.errors import RunError, StayfastError, SupersededError
from stayfast.model.notice import Cause, Notice
from stayfast.runtime.interruption.notice_board import NoticeBoard
from stayfast.runtime.run_record.commit_protocol import OwnedRecord
from stayfast.runtime.run_record.owner import RecordOwner, RetentionFilter
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord, RunRecord, decode, encode
from stayfast.runtime.runs.coordination import SaveWish
from stayfast.runtime.runs.rank_messages import LONGEST_POLL_SECONDS, RankMessages

log = logging.getLogger("stayfast")

PATIENCE_SECONDS = 600.0
"""How long a rank waits for the others while there is no notice; with one, its deadline counts."""
LEAVING_SECONDS = 30.0
"""How long a rank that leaves its loop early waits for the others to leave at the same step."""
KEPT_DECISIONS = 4096
"""The store holds so many decisions of rank 0; then their keys are used again, so that it does not grow."""
LONGEST_UNASKED_SECONDS = 10.0
"""Ranks whose cadence depends on time decide at least this often, by the pace of their steps."""
RETRIES_PER_PAUSE = 10


class RankGroup:
    """This rank among the others of one attempt: a ``Coordination``."""

    def __init__(self, messages: RankMessages, board: NoticeBoard) -> None:
        self.rank = messages.rank
        self.size = messages.size
        self.next_decision: float | None = 0
        self._messages = messages
        self._board = board
        self._decisions = 0
        self._published = False
        self._last: int | None = None
        self._superseded = False
        self._watcher: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def is_leader(self) -> bool:
        """Rank 0 claims and commits."""
        return self.rank == 0

    # -- beginning

    def claim(self, owner: RecordOwner, row: AttemptRecord, check: Callable[[RunRecord], None]) -> None:
        """Rank 0 claims and passes the generation on; the others take it over or fail with it."""
        if self.is_leader:
            try:
                check(owner.claim(row))
            except StayfastError as error:
                self._messages.set("claim", {"error": str(error)})
                raise
            self._messages.set("claim", _owned_message(owner))
        else:
            word = self._messages.wait_for("claim", self._deadline_function())
            if word is None:
                raise RunError("rank 0 has not claimed the run", help="look at the log of rank 0")
            if "error" in word:
                raise RunError(f"rank 0 could not claim the run: {word['error']}")
            _adopt(owner, word)
        self._messages.use_attempt(owner.head.attempt)

    def reread(self, owner: RecordOwner) -> RunRecord | None:  # noqa: ARG002
        """Ranks that read at different moments could disagree on which checkpoints there are."""
        return None

    def agree_on_restore(self, checkpoint: CheckpointRecord, problem: str | None) -> str | None:
        """Every rank calls this for the same checkpoints in the same order."""
        self._messages.set(f"restored/{checkpoint.name}/{self.rank}", {"problem": problem})
        words = self._messages.wait_for_all(f"restored/{checkpoint.name}", self._deadline_function())
        if words is None:
            raise RunError(f"not every rank has answered whether it can restore {checkpoint.name}")
        bad = [f"rank {rank}: {word['problem']}" for rank, word in enumerate(words) if word["problem"]]
        return bad[0] if bad else None

    # -- stopping together

    def watch(self, stop_at_next_boundary: Callable[[], int]) -> None:
        """Spread our notice and take over that of another rank, in a thread."""

        def look() -> None:
            while not self._messages.closed.is_set():
                try:
                    if self._look(stop_at_next_boundary):
                        return
                except Exception as error:  # noqa: BLE001 - the store goes away when its host does
                    log.debug("world: %s", error)
                    if self._board.notice is not None:
                        return  # no rank is left to talk to; the deadline does the rest
                self._board.clock.wait(self._board.arrived, self._messages.poll_seconds)

        self._watcher = threading.Thread(target=look, name="stayfast-world", daemon=True)
        self._watcher.start()

    def _look(self, stop_at_next_boundary: Callable[[], int]) -> bool:
        board, notice = self._board, self._board.notice
        now = board.clock.monotonic()
        if notice is not None:
            self._messages.set("stop", {"cause": notice.cause, "detail": notice.detail, "left": board.deadline - now})
        else:
            word = self._messages.get("stop")
            if word is None:
                return False
            left = max(0.0, float(word["left"])) + board.settings.margin_seconds
            board.post(Notice(Cause(word["cause"]), now, left, f"another rank: {word['detail']}"))
        self._publish_reached(stop_at_next_boundary())
        return True

    def _publish_reached(self, reached: int) -> None:
        """Announce, once, the furthest step this rank may be in."""
        with self._lock:
            if not self._published:
                self._published = True
                self._messages.set(f"reached/{self.rank}", reached)

    def last_step(self, completed: int, reached: int, within_seconds: float = PATIENCE_SECONDS) -> int | None:  # noqa: ARG002
        """The largest step that any rank has reached; None when one stays silent until the deadline."""
        if self._last is None:
            self._publish_reached(reached)
            words = self._messages.wait_for_all("reached", self._deadline_function(within_seconds))
            self._last = None if words is None else max(int(word) for word in words)
        return self._last

    def leave_together(self, step: int) -> bool:
        """A rank that leaves alone has no others to save with."""
        self._messages.set(f"left/{self.rank}", step)
        words = self._messages.wait_for_all("left", self._deadline_function(LEAVING_SECONDS))
        return words is not None and all(word == step for word in words)

    # -- saving

    def decides_after(self, step: int) -> bool:
        """Rank 0 decides, at the steps that it has named itself."""
        return self.is_leader and self.next_decision is not None and step >= self.next_decision

    def decide_save(self, step: int, wish: SaveWish) -> bool | None:
        """All ranks save at the same step: one they all asked for, or one that rank 0 has decided on.

        Every rank calls this for the same steps in the same order. A rank that knows of a newer attempt does not wait.
        """
        if self.next_decision is not None and step < self.next_decision:
            return wish.requested
        number = self._decisions
        self._decisions += 1
        key = f"decision/{number % KEPT_DECISIONS}"
        if self.is_leader:
            decision = [number, wish.due and wish.idle, step + self._steps_until_next(wish)]
            self._messages.set(key, decision)
        else:
            decision = self._messages.wait_for(
                key,
                lambda: float("-inf") if self._superseded else self._board.deadline,
                lambda found: found[0] >= number,
            )
            if decision is None:
                return None
            if decision[0] != number:
                raise RunError(f"rank {self.rank} is more than {KEPT_DECISIONS} decisions behind rank 0")
        self.next_decision = int(decision[2])
        return wish.requested or bool(decision[1])

    def _steps_until_next(self, wish: SaveWish) -> int:
        """A save that is due while another is in flight begins when that one is over: the loop does not wait for it."""
        pace, pause = max(1e-6, wish.step_seconds), self._messages.poll_seconds
        if wish.due and not wish.requested and not wish.idle:
            return max(1, int(pause / RETRIES_PER_PAUSE / pace))
        seconds, steps = wish.next_check
        if seconds < float("inf") or steps == float("inf"):
            steps = min(steps, max(pause, min(seconds, LONGEST_UNASKED_SECONDS)) / pace)
        return max(1, int(steps))

    def commit(
        self, owner: RecordOwner, mine: CheckpointRecord, *, keep: RetentionFilter, finished: bool, **row: Any
    ) -> RunRecord:
        """Called by every rank when its own part is durable; returns when the commit of all parts exists."""
        self._messages.set(f"saved/{mine.step}/{self.rank}", {"sha256": mine.inventory_sha256, "size": mine.size})
        if not self.is_leader:
            return self._await_commit(owner, mine.step)
        try:
            others = self._gather(mine.step)
            whole = CheckpointRecord(
                mine.step, mine.attempt, mine.committed_at, mine.size, mine.inventory_sha256, others
            )
            head = owner.commit(whole, keep=keep, finished=finished, **row)
        except StayfastError as error:
            word = {"error": str(error), "superseded": isinstance(error, SupersededError)}
            self._messages.set(f"committed/{mine.step}", word)
            raise
        self._messages.set(f"committed/{mine.step}", _owned_message(owner))
        return head

    def report_failed_save(self, step: int, reason: str) -> None:
        """Our part could not be saved: the others do not have to wait for it."""
        self._messages.set(f"saved/{step}/{self.rank}", {"error": reason})
        if self.is_leader:
            self._messages.set(f"committed/{step}", {"error": reason, "superseded": False})

    def check_owner(self, owner: RecordOwner) -> None:
        """Once a newer attempt owns the run, rank 0 decides nothing any more."""
        try:
            owner.check_owner()
        except SupersededError:
            self._superseded = True
            raise

    def _gather(self, step: int) -> tuple[tuple[str, int], ...]:
        words = self._messages.wait_for_all(f"saved/{step}", self._deadline_function())
        if words is None:
            raise RunError(f"not every rank has saved step {step} in time")
        for rank, word in enumerate(words):
            if "error" in word:
                raise RunError(f"rank {rank} could not save step {step}: {word['error']}")
        return tuple((word["sha256"], word["size"]) for word in words[1:] if word["sha256"] is not None)

    def _await_commit(self, owner: RecordOwner, step: int) -> RunRecord:
        word = self._messages.wait_for(f"committed/{step}", self._deadline_function())
        if word is None:
            raise RunError(f"rank 0 has not committed step {step} in time")
        if "error" in word:
            self._superseded = self._superseded or word["superseded"]
            kind = SupersededError if word["superseded"] else RunError
            raise kind(f"rank 0 could not commit step {step}: {word['error']}")
        _adopt(owner, word)
        return owner.head

    def _deadline_function(self, within_seconds: float = PATIENCE_SECONDS) -> Callable[[], float]:
        """The instant to wait for the others, which a notice brings closer."""
        until = self._board.clock.monotonic() + within_seconds
        return lambda: min(until, self._board.deadline)

    def close(self) -> None:
        """Listen no more; a thread inside the store's C++ code while the interpreter goes down aborts the process."""
        self._messages.close()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(LONGEST_POLL_SECONDS + 1.0)


def _owned_message(owner: RecordOwner) -> dict[str, str]:
    held = owner.owned
    assert held is not None
    return {"head": encode(held.head).decode(), "generation": held.generation}


def _adopt(owner: RecordOwner, word: dict[str, str]) -> None:
    owner.adopt(OwnedRecord(decode(word["head"].encode()), word["generation"]))
