"""How ``stayfast exec`` ends: from the ranks' outcomes, the program and the copies to outcome, code and cause. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from stayfast.model.exit_codes import FAILED, FINISHED, Outcome
from stayfast.runtime.exec.child import SupervisedChild


class ExitDecision(NamedTuple):
    """What the report says and the process exits with."""

    outcome: Outcome
    code: int
    cause: str | None
    detail: str
    deciding: dict[str, Any]
    """The rank whose outcome speaks for all; empty where no rank has left one."""


def decide_exit(
    child: SupervisedChild,
    *,
    interrupted_code: int,
    unsafe: Callable[[], tuple[Outcome, int, str] | None] = lambda: None,
    is_done: Callable[[], bool] = lambda: False,
) -> ExitDecision:
    """The first row that fits.

    ``unsafe`` is asked only when the program says 0: what that comes to while its last copy is not in the store.
    ``is_done`` is asked only when an interrupted program says 0 and no rank vouches for it.
    """
    failed, interrupted, stopped = (
        [item for item in child.outcomes if item.get("outcome") == outcome]
        for outcome in (Outcome.FAILED, Outcome.INTERRUPTED, Outcome.STOPPED)
    )
    own = next((item["code"] for item in stopped if item.get("code")), None)
    cause, detail = None, f"the program left with {child.code}"
    if failed:
        outcome, code = Outcome.FAILED, child.code or FAILED
        detail = f"rank {failed[0].get('rank', 0)} failed: {failed[0].get('detail', '')}"
    elif own is not None and child.code in (own, FAILED) and child.notice_at is None:
        outcome, code = Outcome.STOPPED, own  # torchrun turns every code into 1
    elif interrupted:
        outcome, code = Outcome.INTERRUPTED, interrupted_code
        cause = str(interrupted[0].get("cause") or "unknown")
    elif child.notice_at is not None and not _is_believed_finished(child, is_done):
        outcome, code = Outcome.INTERRUPTED, interrupted_code
        cause = child.cause or ("cancellation" if child.notice_signal == "SIGINT" else "unknown")
    elif child.code == FINISHED and (end := unsafe()) is not None:
        outcome, code, detail = end
    else:
        outcome, code = Outcome.FINISHED if child.code == FINISHED else Outcome.FAILED, child.code
        if any(item.get("code") == code for item in stopped):
            outcome = Outcome.STOPPED
    detail = (f"killed at the deadline; {detail}" if child.killed else detail)[:300]
    return ExitDecision(outcome, code, cause, detail, (interrupted or failed or stopped or [{}])[0])


def _is_believed_finished(child: SupervisedChild, is_done: Callable[[], bool]) -> bool:
    """An interrupted program that says 0 is believed only when something vouches for it."""
    if child.code != FINISHED:
        return False
    if child.notice_at is not None and child.notice_at > child.ended_at:
        return True  # it had finished when the notice came: only its last copy was still under way
    return any(item.get("outcome") == Outcome.FINISHED for item in child.outcomes) or is_done()
