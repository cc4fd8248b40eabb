"""Which attempts count as no progress: those that failed, and those that outlived two intervals without a commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stayfast.clock import ManualClock
from stayfast.errors import NoProgressError
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.interruption.guard import Guard
from stayfast.runtime.run_record.owner import check_progress
from stayfast.runtime.run_record.record import AttemptRecord, RunRecord, decode
from stayfast.runtime.runs.opening import open_run
from stayfast.runtime.runs.options import RunOptions
from stayfast.runtime.runs.saving import CheckpointSaver
from stayfast.runtime.state.tracked_state import TrackedState
from stayfast.settings import Settings

QUIET = Settings(metadata="off", checkpoint_seconds=60.0)


def row(kind: str) -> AttemptRecord:
    start = AttemptRecord(attempt=1, started_at="2026-11-15T00:00:00Z", first_step=5, last_step=4)
    changes = {
        "failed": {"outcome": Outcome.FAILED},
        "stalled": {"outcome": Outcome.LOST, "stalled": True},
        "quick": {"outcome": Outcome.LOST},
        "interrupted": {"outcome": Outcome.INTERRUPTED},
        "progress": {"outcome": Outcome.FAILED, "last_step": 9, "stalled": True},
    }[kind]
    import dataclasses

    return dataclasses.replace(start, **changes)


@given(
    st.lists(st.sampled_from(["failed", "stalled", "quick", "interrupted", "progress"]), max_size=40), st.integers(1, 8)
)
def test_only_failed_and_stalled_attempts_since_the_last_progress_count(kinds: list[str], most: int) -> None:
    rows = tuple(row(kind) for kind in [*kinds, "quick"])  # the last is the attempt that asks
    head = RunRecord(run="memory://x", attempt=len(rows), token="t", attempts=rows)
    since = kinds[len(kinds) - kinds[::-1].index("progress") :] if "progress" in kinds else kinds
    stuck = sum(kind in ("failed", "stalled") for kind in since)
    if stuck >= most:
        with pytest.raises(NoProgressError, match=f"the last {stuck} attempts"):
            check_progress(head, most)
    else:
        check_progress(head, most)


def test_an_attempt_that_outlives_two_intervals_without_a_commit_is_written_down_as_stalled(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/run"
    clock = ManualClock()
    guard = Guard(settings=QUIET, clock=clock)
    opened = open_run(url, guard)
    saver = CheckpointSaver(opened, TrackedState(), RunOptions(settings=QUIET), guard)
    started = clock.monotonic()
    saver.begin(0, None)  # its watch waits on the manual clock: two intervals pass at once
    for _ in range(500):
        head = decode((tmp_path / "run" / "HEAD.json").read_bytes())
        if head.current_attempt.stalled:
            break
        import time

        time.sleep(0.01)
    assert head.current_attempt.stalled
    assert clock.monotonic() - started >= 120
    opened.close()
    saver.close()
    for _ in range(4):
        again = open_run(url, Guard(settings=QUIET, clock=ManualClock()))
        assert again.owner is not None
        again.owner.update_attempt(stalled=True)
        again.close()
    with pytest.raises(NoProgressError, match="the last 5 attempts"):
        open_run(url, Guard(settings=QUIET, clock=ManualClock()))
    refused = decode((tmp_path / "run" / "HEAD.json").read_bytes()).current_attempt
    assert (refused.outcome, refused.cause) == (Outcome.FAILED, "NoProgressError")
