"""How ``stayfast exec`` ends, as a table: outcomes, program and copies in; outcome, code, cause and detail out."""

from __future__ import annotations

from typing import Any

import pytest

from stayfast.model.exit_codes import Outcome
from stayfast.runtime.exec.child import SupervisedChild
from stayfast.runtime.exec.exit_decision import decide_exit
from stayfast.settings import Settings

FAILED, INTERRUPTED, FINISHED, STOPPED = "failed", "interrupted", "finished", "stopped"
PREEMPTED = {"outcome": INTERRUPTED, "code": 75, "cause": "preemption"}
LEFT_7 = {"outcome": STOPPED, "code": 7}


def child(code: int, outcomes: list[Any], notice: str) -> SupervisedChild:
    """``notice`` is a signal's name, a cause, ``late`` for one that came when the program had ended, or empty."""
    one = SupervisedChild(1, Settings())
    one.status, one.ended_at, one.outcomes = code << 8, 10.0, outcomes
    if notice:
        one.give_notice(notice if notice.startswith("SIG") else "SIGTERM", None if "SIG" in notice else notice)
        one.notice_at = 11.0 if notice == "late" else 5.0
    return one


@pytest.mark.parametrize(
    ("code", "outcomes", "notice", "expected"),
    [
        # no notice, nothing said: the program's own code
        (0, [], "", (FINISHED, 0, None)),
        (3, [], "", (FAILED, 3, None)),
        # a failed rank outweighs everything, and 0 cannot hide it
        (1, [{"outcome": FAILED, "rank": 2, "detail": "x"}, PREEMPTED], "SIGTERM", (FAILED, 1, None)),
        (0, [{"outcome": FAILED}], "", (FAILED, 1, None)),
        # a code of the program's own, which a launcher has turned into 1
        (1, [LEFT_7], "", (STOPPED, 7, None)),
        (7, [LEFT_7], "", (STOPPED, 7, None)),
        (0, [{"outcome": STOPPED, "code": 0}], "", (STOPPED, 0, None)),
        (3, [LEFT_7], "", (FAILED, 3, None)),
        (1, [LEFT_7], "SIGTERM", (INTERRUPTED, 75, "unknown")),
        # an interrupted rank: its cause, whatever the launcher says
        (1, [PREEMPTED], "", (INTERRUPTED, 75, "preemption")),
        (0, [{"outcome": INTERRUPTED}], "SIGTERM", (INTERRUPTED, 75, "unknown")),
        # a notice: interrupted, unless something vouches for the end
        (0, [], "SIGTERM", (INTERRUPTED, 75, "unknown")),
        (5, [], "SIGTERM", (INTERRUPTED, 75, "unknown")),
        (0, [], "SIGINT", (INTERRUPTED, 75, "cancellation")),
        (0, [], "run-limit", (INTERRUPTED, 75, "run-limit")),
        (0, [{"outcome": FINISHED}], "SIGTERM", (FINISHED, 0, None)),
        (0, [], "late", (FINISHED, 0, None)),
        # what other programs leave there says nothing
        (0, [{"outcome": ["failed"]}, {}], "", (FINISHED, 0, None)),
    ],
)
def test_the_first_row_that_fits(code: int, outcomes: list[Any], notice: str, expected: tuple[object, ...]) -> None:
    end = decide_exit(child(code, outcomes, notice), interrupted_code=75)
    assert (str(end.outcome), end.code, end.cause) == expected


def test_who_vouches_for_an_interrupted_program_that_says_0() -> None:
    asked = []

    def is_done() -> bool:
        asked.append(True)
        return True

    assert decide_exit(child(0, [], "SIGTERM"), interrupted_code=75, is_done=is_done).outcome is Outcome.FINISHED
    assert asked == [True]
    for quiet in (child(0, [], ""), child(5, [], "SIGTERM"), child(0, [PREEMPTED], "SIGTERM")):
        decide_exit(quiet, interrupted_code=75, is_done=is_done)
    assert asked == [True], "asked only where its answer counts"


def test_a_last_copy_that_is_not_in_the_store() -> None:
    unsafe = (Outcome.INTERRUPTED, 75, "the last copy is not in the store")
    end = decide_exit(child(0, [], ""), interrupted_code=75, unsafe=lambda: unsafe)
    assert (end.outcome, end.code, end.cause, end.detail) == (Outcome.INTERRUPTED, 75, None, unsafe[2])
    assert decide_exit(child(4, [], ""), interrupted_code=75, unsafe=lambda: unsafe).code == 4


def test_the_detail_and_the_rank_that_speaks() -> None:
    one = child(1, [{"outcome": FAILED, "rank": 2, "detail": "x" * 400, "step": 5}, PREEMPTED], "SIGTERM")
    one.killed = True
    end = decide_exit(one, interrupted_code=75)
    assert end.detail.startswith("killed at the deadline; rank 2 failed: xxx")
    assert len(end.detail) == 300
    assert end.deciding == PREEMPTED
