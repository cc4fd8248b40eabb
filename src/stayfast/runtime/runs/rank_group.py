"""One run, many ranks: rank 0 claims and commits, every rank saves its own part, nobody is left behind.

A checkpoint of a gang is committed by one replace of ``HEAD.json``, after every rank has said that its part is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from stayfast.errors import RunError, StayfastError, SupersededError
from stayfast.runtime.interruption.notice_board import NoticeBoard
from stayfast.runtime.run_record.commit_protocol import OwnedRecord
from stayfast.runtime.run_record.owner import RecordOwner, RetentionFilter
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord, RunRecord, decode, encode
from stayfast.runtime.runs.rank_messages import RankGroup

log = logging.getLogger("stayfast")

PATIENCE_SECONDS = 600.0
"""How long a rank waits for the others while there is no notice; with one, its deadline counts."""
LEAVING_SECONDS = 30.0
"""How long a rank that leaves its loop early waits for the others to leave at the same step."""
KEPT_DECISIONS = 4096
"""The board holds so many decisions of rank 0; then their keys are used again, so that it does not grow."""


class DistributedCommit:
    """The choreography of one attempt over all its ranks."""

    def __init__(self, world: RankGroup, ledger: RecordOwner, board: NoticeBoard) -> None:
        self.world = world
        self._ledger = ledger
        self._board = board
        self._decisions = 0

    def deadline_function(self) -> Callable[[], float]:
        """The instant to wait for the others, which a notice brings closer."""
        patience = self._board.clock.monotonic() + PATIENCE_SECONDS
        return lambda: min(patience, self._board.deadline)

    # -- beginning

    def claim(self, row: AttemptRecord, check: Callable[[RunRecord], None]) -> RunRecord:
        """Rank 0 claims and passes the generation on; the others take it over or fail with it."""
        if self.world.is_leader:
            try:
                head = self._ledger.claim(row)
                check(head)
            except StayfastError as error:
                self.world.set("claim", {"error": str(error)})
                raise
            self.world.set("claim", self._owned_message())
        else:
            word = self.world.wait_for("claim", self.deadline_function())
            if word is None:
                raise RunError("rank 0 has not claimed the run", help="look at the log of rank 0")
            if "error" in word:
                raise RunError(f"rank 0 could not claim the run: {word['error']}")
            self._adopt(word)
        self.world.use_attempt(self._ledger.head.attempt)
        return self._ledger.head

    def restore(
        self, candidates: list[CheckpointRecord], try_one: Callable[[CheckpointRecord], str | None]
    ) -> CheckpointRecord | None:
        """The newest checkpoint that every rank can restore; ``try_one`` says what is wrong with ours."""
        for committed in candidates:
            problem = try_one(committed)
            self.world.set(f"restored/{committed.name}/{self.world.rank}", {"problem": problem})
            words = self.world.wait_for_all(f"restored/{committed.name}", self.deadline_function())
            if words is None:
                raise RunError(f"not every rank has answered whether it can restore {committed.name}")
            bad = [(rank, word["problem"]) for rank, word in enumerate(words) if word["problem"]]
            if not bad:
                return committed
            log.warning(
                "checkpoint %s is set aside: rank %d: %s", committed.name, *bad[0], extra={"action": "set_aside"}
            )
        return None

    # -- saving

    def agree(self, decide: Callable[[], tuple[bool, int]], lives: Callable[[], bool]) -> tuple[bool, int] | None:
        """Whether all ranks save here, and the step at which they agree next; None when rank 0 stays silent.

        Rank 0 decides, the others wait for its word as long as ``lives`` says that there will be one. Every rank calls
        this for the same steps in the same order.
        """
        number = self._decisions
        self._decisions += 1
        key = f"decision/{number % KEPT_DECISIONS}"
        if self.world.is_leader:
            save, then = decide()
            self.world.set(key, [number, save, then])
            return save, then
        word = self.world.wait_for(
            key, lambda: self._board.deadline if lives() else float("-inf"), lambda found: found[0] >= number
        )
        if word is None:
            return None
        if word[0] != number:
            raise RunError(f"rank {self.world.rank} is more than {KEPT_DECISIONS} decisions behind rank 0")
        return bool(word[1]), int(word[2])

    def leaves(self, step: int) -> bool:
        """Whether all ranks leave their loops early after this step; one alone has nobody to save with."""
        self.world.set(f"left/{self.world.rank}", step)
        until = self._board.clock.monotonic() + LEAVING_SECONDS
        words = self.world.wait_for_all("left", lambda: min(until, self._board.deadline))
        return words is not None and all(word == step for word in words)

    def commit(self, mine: CheckpointRecord, *, keep: RetentionFilter, finished: bool, **row: Any) -> RunRecord:
        """Called by every rank when its own part is durable; returns when the world's commit exists."""
        key = f"saved/{mine.step}/{self.world.rank}"
        self.world.set(key, {"sha256": mine.inventory_sha256, "size": mine.size})
        if not self.world.is_leader:
            return self._await_commit(mine.step)
        try:
            others = self._gather(mine.step)
            whole = CheckpointRecord(
                mine.step, mine.attempt, mine.committed_at, mine.size, mine.inventory_sha256, others
            )
            head = self._ledger.commit(whole, keep=keep, finished=finished, **row)
        except StayfastError as error:
            word = {"error": str(error), "superseded": isinstance(error, SupersededError)}
            self.world.set(f"committed/{mine.step}", word)
            raise
        self.world.set(f"committed/{mine.step}", self._owned_message())
        return head

    def report_failed_save(self, step: int, error: str) -> None:
        """Our part could not be saved: nobody has to wait for it."""
        self.world.set(f"saved/{step}/{self.world.rank}", {"error": error})
        if self.world.is_leader:
            self.world.set(f"committed/{step}", {"error": error, "superseded": False})

    def _gather(self, step: int) -> tuple[tuple[str, int], ...]:
        words = self.world.wait_for_all(f"saved/{step}", self.deadline_function())
        if words is None:
            raise RunError(f"not every rank has saved step {step} in time")
        for rank, word in enumerate(words):
            if "error" in word:
                raise RunError(f"rank {rank} could not save step {step}: {word['error']}")
        return tuple((word["sha256"], word["size"]) for word in words[1:] if word["sha256"] is not None)

    def _await_commit(self, step: int) -> RunRecord:
        word = self.world.wait_for(f"committed/{step}", self.deadline_function())
        if word is None:
            raise RunError(f"rank 0 has not committed step {step} in time")
        if "error" in word:
            kind = SupersededError if word["superseded"] else RunError
            raise kind(f"rank 0 could not commit step {step}: {word['error']}")
        self._adopt(word)
        return self._ledger.head

    def _owned_message(self) -> dict[str, str]:
        held = self._ledger.owned
        assert held is not None
        return {"head": encode(held.head).decode(), "generation": held.generation}

    def _adopt(self, word: dict[str, str]) -> None:
        self._ledger.adopt(OwnedRecord(decode(word["head"].encode()), word["generation"]))
