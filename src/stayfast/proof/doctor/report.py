"""The doctor's report for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from stayfast.proof.doctor.verdict import EXIT_ZERO, ORPHANS

_VERDICTS = {
    "resumes": "the Job replaces the pod and the work goes on (with the rendered podFailurePolicy)",
    "complete": "the Job is Complete: whatever was left to do never runs",
    "failed": "the Job counts a failure against backoffLimit",
    "unknown": "not known, because the signal was not sent",
}
_FINISHED = "the Job is Complete: the program finished by itself"


def render_text(result: dict[str, Any]) -> str:
    """What happened, what it means, what to do."""
    if "containers" in result:
        parts = [f"{row['container']}\n{_one(row)}" for row in result["containers"]]
        return "\n\n".join(parts)
    return _one(result)


def _one(result: dict[str, Any]) -> str:
    lines = [] if "by_text" not in result else [f"by its text: {result['by_text']}"]
    if result["exit_code"] is not None or result["still_starting"]:
        lines += _seen(result)
    lines.append(f"Kubernetes: {_verdict(result)}")
    if advice := result.get("advice"):
        lines.append(f"advice: {advice}")
    elif not result["problems"]:
        lines.append("no problem found")
    for code in result["problems"]:
        lines += [f"problem: {code}", f"  {result['cures'][code]}"]
    return "\n".join(lines)


def _verdict(result: dict[str, Any]) -> str:
    cut_off = {EXIT_ZERO, ORPHANS} & set(result["problems"])
    if result["job_verdict"] == "complete" and not cut_off and result["exit_code"] is not None:
        return _FINISHED
    return _VERDICTS[result["job_verdict"]]


def _seen(result: dict[str, Any]) -> list[str]:
    lines = []
    if not result["pid_namespace"]:
        lines.append(
            f"not as PID 1 of a namespace ({result['why_no_namespace']}): PID 1's rules were kept from outside"
        )
    if not result["traced"]:
        lines.append(f"not traced ({result['why_not_traced']}): who else received the signal is not known for certain")
    if result["ended_before_signal"]:
        sooner = "" if result["problems"] else "; --after sends it sooner"
        lines.append(f"it ended by itself with {result['exit_code']} before the signal{sooner}")
        return lines
    if result["still_starting"]:
        lines.append("still starting: PID 1 did not handle SIGTERM within 60 s of its start")
        return lines
    lines.append(f"SIGTERM to PID 1, {result['sent_after_seconds']:.1f} s after the start")
    lines += _processes(result["processes"])
    how = "needed SIGKILL" if result["ended_by"] == "sigkill" else "ended"
    lines.append(f"{how} after {result['seconds']:.2f} s, exit code {result['exit_code']}")
    return lines


def _processes(rows: list[dict[str, Any]]) -> Iterator[str]:
    """One line each; those of one command that never received the signal share a line."""
    missed = Counter(row["cmd"] for row in rows if row["received_after_seconds"] is None)
    for row in rows:
        heard, ended = row["received_after_seconds"], row["ended_after_seconds"]
        count = missed.pop(row["cmd"], 0) if heard is None else 1
        if not count:
            continue
        how = "never received it" if heard is None else f"received it after {heard:.2f} s, {row['sigterm']}"
        end = "killed at the end" if ended is None else f"ended after {ended:.2f} s"
        number = row["pid"] if count == 1 else f"{count} x"
        yield f"  {number:>6}  {row['cmd'][:60]:<60}  {how}" + (f"; {end}" if count == 1 else "")
