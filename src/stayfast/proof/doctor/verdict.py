"""From what was seen to what it means: stable codes, what a Job concludes, and the cure in words."""

from __future__ import annotations

from typing import Any

from stayfast.model.exit_codes import FINISHED, NOT_COUNTED
from stayfast.proof.doctor.observer import Observation, Process
from stayfast.proof.doctor.readiness import HELPERS, SHELLS

NOT_DELIVERED, LATE, IGNORED = "signal-not-delivered", "signal-late", "ignored"
EXIT_ZERO, OVERRUN, ORPHANS = "exit-zero", "grace-overrun", "orphans"
CODES = (NOT_DELIVERED, LATE, IGNORED, EXIT_ZERO, OVERRUN, ORPHANS)
"""In the order in which they are told."""

LATE_SECONDS = 1.0

REMEDIES = {
    NOT_DELIVERED: "let the program itself be PID 1, with a handler: the exec form in the manifest (command: [python, "
    "train.py]), `exec` before the last command of a shell script, or an init that forwards (tini, stayfast exec)",
    LATE: "a shell runs its trap only after the command in the foreground has ended: start the program with & and "
    '`wait`, forward with `trap "kill -TERM $pid" TERM`, or `exec` it; for torchrun see its own time-outs',
    IGNORED: "remove the SIG_IGN or `trap '' TERM`, and install a handler that saves and leaves with 75",
    EXIT_ZERO: "leave with 75 when interrupted (exit 0 tells the Job that the work is finished), or put "
    "`stayfast exec` in front of the command",
    OVERRUN: "save less or sooner: checkpoint while running, stop at a step boundary, keep the last save within the "
    "grace; torchrun's own time-out before SIGKILL is 30 s; a longer grace needs the node pool's 120 s",
    ORPHANS: "wait for the children before leaving, or let `stayfast exec` end them in order; with PID 1 the kernel "
    "kills everything else at once",
}

FAILS_ADVICE = (
    "each interruption counts as a failure of the program: leave with 75 when interrupted, or put `stayfast exec` in "
    "front, outside of launchers such as torchrun, which turn every code of their workers into 1"
)
"""For a program that ends in time, but with a code that means failure."""

STARTING_ADVICE = (
    "PID 1 got its handler only after the signal: the program was still starting, which a pod can be too; leave out "
    "--after, or send the signal later, to see what the handler does"
)
"""For a program that was not ready yet when --after was over."""

STILL_STARTING_ADVICE = (
    "the program was still starting, and nothing is known about its handler: run doctor again with a larger --after, "
    "or install the handler before the slow imports"
)
"""For a program that was not ready in time."""

BACKGROUND_ADVICE = (
    "PID 1 has left while what it had started in the background was running, and the pod ends with it: start the "
    "program with `exec` instead of &, nohup or setsid, or `wait` for it with a trap that forwards SIGTERM"
)
"""For an entrypoint that puts the program into the background, as on a machine of one's own."""


def problems(seen: Observation) -> list[str]:
    """The codes that apply."""
    if seen.still_starting:
        return []
    left = any(not _is_helper(seen.processes[pid]) for pid in seen.left_running)
    if seen.ended_before:
        return [ORPHANS] if left else []
    found = set()
    first = seen.processes.get(seen.first)
    everybody = list(seen.processes.values())
    received = [one for one in everybody if one.received_seconds is not None]
    if any(one.action == "ignored" for one in received) or (first is not None and first.action == "ignored"):
        found.add(IGNORED)
    elif not seen.delivered or any(_never_received(one, seen) for one in everybody):
        found.add(NOT_DELIVERED)
    if any(_is_late(one, seen) for one in received):
        found.add(LATE)
    if seen.ended_by == "sigkill":
        found.add(OVERRUN)
    elif seen.exit_code == FINISHED and (seen.delivered or received):  # else it had all done by itself
        found.add(EXIT_ZERO)
    if left:
        found.add(ORPHANS)
    return [code for code in CODES if code in found]


def _never_received(one: Process, seen: Observation) -> bool:
    """It would have handled the signal, never got it, and was cut off; a look cannot tell, only a trace can."""
    if not seen.traced or not one.at_signal or one.action != "handler" or one.received_seconds is not None:
        return False
    return one.host_pid in seen.left_running or seen.ended_by == "sigkill"


def _is_helper(one: Process) -> bool:
    return any(name in one.command for name in HELPERS)


def _is_late(one: Process, seen: Observation) -> bool:
    if one.received_seconds is None or one.action != "handler":
        return False
    if one.received_seconds > LATE_SECONDS:
        return True
    if one.command.split(" ")[0].rpartition("/")[2].lstrip("-") not in SHELLS:
        return False
    # A shell with a trap that waits for the command in the foreground: nothing happens until that ends by itself.
    waited_for = [
        other
        for other in seen.processes.values()
        if other.parent == one.host_pid and other.at_signal and other.received_seconds is None
    ]
    acted = min([*one.children_seconds, one.ended_seconds if one.ended_seconds is not None else seen.seconds])
    helped = any(
        other.received_seconds is not None and other.parent == one.host_pid for other in seen.processes.values()
    )
    return bool(waited_for) and not helped and acted > LATE_SECONDS


def job_verdict(seen: Observation) -> str:
    """What the Job controller makes of the exit code, with the policy that stayfast renders."""
    if seen.still_starting:
        return "unknown"
    if seen.exit_code == FINISHED:
        return "complete"
    return "resumes" if seen.exit_code in NOT_COUNTED else "failed"


def report(seen: Observation) -> dict[str, Any]:
    """The documented JSON."""
    codes = problems(seen)
    received = [one for one in seen.processes.values() if one.received_seconds is not None]
    return {
        "received": [
            {
                "pid": one.pid,
                "cmd": one.command,
                "after_seconds": one.received_seconds,
                "handler": one.action in ("handler", "blocked"),
            }
            for one in sorted(received, key=lambda one: one.received_seconds or 0.0)
        ],
        "exit_code": None if seen.still_starting else seen.exit_code,
        "ended_by": seen.ended_by,
        "seconds": None if seen.still_starting else seen.seconds,
        "job_verdict": job_verdict(seen),
        "problems": codes,
        "cures": {code: REMEDIES[code] for code in codes},
        "advice": _advice(seen, codes),
        "processes": [_row(one) for one in seen.processes.values()],
        "sent_after_seconds": seen.sent_after_seconds,
        "still_starting": seen.still_starting,
        "ended_before_signal": seen.ended_before,
        "pid_namespace": seen.namespace,
        "why_no_namespace": seen.why_no_namespace,
        "traced": seen.traced,
        "why_not_traced": seen.why_not_traced,
        "command": seen.command,
    }


def _advice(seen: Observation, codes: list[str]) -> str | None:
    if seen.still_starting:
        return STILL_STARTING_ADVICE
    if seen.ended_before:
        return BACKGROUND_ADVICE if ORPHANS in codes else None
    first = seen.processes.get(seen.first)
    if NOT_DELIVERED in codes and not seen.delivered and first is not None and first.action == "handler":
        return STARTING_ADVICE
    return FAILS_ADVICE if job_verdict(seen) == "failed" else None


def _row(one: Process) -> dict[str, Any]:
    return {
        "pid": one.pid,
        "cmd": one.command,
        "sigterm": one.action,
        "received_after_seconds": one.received_seconds,
        "ended_after_seconds": one.ended_seconds,
        "started_after_signal": not one.at_signal,
    }
