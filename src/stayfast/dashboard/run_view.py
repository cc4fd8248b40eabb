"""A run as the pages show it: plain JSON from its ledger, with nothing believed that the ledger only claims.

Whoever can write the bucket can write a ledger with any text and any type in it; everything passes ``_text`` or
``_number`` here, and the pages put text into the document as text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from stayfast.clock import from_rfc3339
from stayfast.runtime.run_record.billing import bill_attempt, bill_run, unaccounted_seconds
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord, RunRecord

_LONGEST_TEXT = 300
STRIP_ATTEMPTS = 60
PAGE = 100


class RunPricing(NamedTuple):
    """What an hour of all machines costs where the ledger does not say, and what it would cost on demand."""

    usd_per_hour: float | None = None
    on_demand_usd_per_hour: float | None = None
    by_capacity: Mapping[str, float] = {}
    """List prices, for attempts that know their capacity class but not their price."""
    because: str = ""
    """Where the list prices come from."""

    def fallback(self, capacity: str) -> float | None:
        """For an attempt that did not know its price."""
        return self.usd_per_hour if self.usd_per_hour is not None else self.by_capacity.get(capacity)


class Sample(NamedTuple):
    """What we have seen go by: a step that was committed, and when."""

    at: float
    step: int
    attempt: int


def identify(url: str) -> str:
    """A name for addresses; URLs may hold anything."""
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def sanitize(head: RunRecord) -> RunRecord:
    """The same head with every field of its ledger of the type that it should be."""
    attempts = tuple(
        AttemptRecord(
            attempt=row.attempt,
            started_at=_text(row.started_at),
            first_step=int(_number(row.first_step)),
            last_step=int(_number(row.last_step, -1)),
            ended_at=None if row.ended_at is None else _text(row.ended_at),
            outcome=row.outcome,
            cause=None if row.cause is None else _text(row.cause),
            stalled=row.stalled is True,
            useful_seconds=_positive(row.useful_seconds),
            lost_seconds=_positive(row.lost_seconds),
            save_seconds=_positive(row.save_seconds),
            safe_seconds=None if row.safe_seconds is None else _positive(row.safe_seconds),
            machine=_text(row.machine),
            zone=_text(row.zone),
            capacity=_text(row.capacity),
            usd_per_hour=None if row.usd_per_hour is None else _positive(row.usd_per_hour),
        )
        for row in head.attempts
    )
    checkpoints = tuple(
        replace(row, committed_at=_text(row.committed_at), size=int(_positive(row.size))) for row in head.checkpoints
    )
    sums = head.folded if isinstance(head.folded, dict) else {}
    folded = {_text(name): _positive(value) for name, value in sums.items()}
    return replace(head, run=_text(head.run), attempts=attempts, checkpoints=checkpoints, folded=folded)


def summary(url: str, head: RunRecord, prices: RunPricing) -> dict[str, Any]:
    """One row of the overview; ``head`` has been cleaned."""
    newest = head.newest
    last = head.attempts[-1] if head.attempts else None
    bill = bill_run(head, prices.fallback(last.capacity if last else ""))
    gone = [row for row in head.attempts if row.outcome in ("interrupted", "lost")]
    return {
        "id": identify(url),
        "url": _text(url),
        "name": _text(url.rstrip("/").rpartition("/")[2] or url),
        "state": _state(head),
        "attempt": head.attempt,
        "step": head.next_step - 1,
        "total_steps": head.total_steps,
        "saved_at": _instant(newest.committed_at) if newest else None,
        "interruptions": len(gone),
        "killed": sum(row.outcome == "lost" for row in gone),
        "last_cause": _cause(gone[-1]) if gone else None,
        "where": ", ".join(filter(None, (last.capacity, last.zone))) if last else "",
        "checkpoints": len(head.checkpoints),
        "checkpoint_bytes": sum(_bytes(row) for row in head.checkpoints),
        "money": _money(bill, head, prices),
        "strip": [
            [_instant(row.started_at), _end(head.attempts, number), row.outcome or "running"]
            for number, row in list(enumerate(head.attempts))[-STRIP_ATTEMPTS:]
        ],
    }


def detail(url: str, head: RunRecord, prices: RunPricing, samples: Sequence[Sample]) -> dict[str, Any]:
    """Everything about one run but its checkpoints, which come in pages."""
    return {
        **summary(url, head, prices),
        "attempts": [_attempt(head, number, prices) for number in range(len(head.attempts))],
        "folded": head.folded,
        "pace": pace(head.checkpoints, samples),
    }


def checkpoint_page(head: RunRecord, offset: int, states: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A page of the list, newest first, with what is known about each one's bytes."""
    rows = []
    for committed in head.checkpoints[offset : offset + PAGE]:
        known = states.get(committed.name) or {"verdict": "unknown"}
        rows.append(
            {
                "name": committed.name,
                "step": committed.step,
                "attempt": committed.attempt,
                "bytes": _bytes(committed),
                "ranks": 1 + len(committed.others),
                "committed_at": _instant(committed.committed_at),
                "counter_only": committed.inventory_sha256 is None,
                **known,
            }
        )
    return {"offset": offset, "page": PAGE, "total": len(head.checkpoints), "rows": rows}


def pace(checkpoints: Iterable[CheckpointRecord], samples: Iterable[Sample]) -> list[list[float]]:
    """``[instant, seconds per step]`` between commits of one attempt: those listed, and those we saw go by."""
    points = {(item.attempt, item.step): item.at for item in samples}
    for row in checkpoints:
        at = _instant(row.committed_at)
        if at is not None:
            points[(row.attempt, row.step)] = at
    ordered = sorted((attempt, step, at) for (attempt, step), at in points.items())
    found = []
    for (attempt, step, at), (following, further, later) in pairwise(ordered):
        if attempt == following and later > at:
            found.append([later, (later - at) / (further - step)])
    return sorted(found)


def committed_at(row: CheckpointRecord) -> float | None:
    """When it was committed, if that can be read."""
    return _instant(row.committed_at)


def _attempt(head: RunRecord, number: int, prices: RunPricing) -> dict[str, Any]:
    row = head.attempts[number]
    following = head.attempts[number + 1] if number + 1 < len(head.attempts) else None
    line = bill_attempt(row, prices.fallback(row.capacity))
    steps = row.last_step - row.first_step + 1
    spent = row.useful_seconds + row.save_seconds
    return {
        "attempt": row.attempt,
        "started_at": _instant(row.started_at),
        "ended_at": _end(head.attempts, number),
        "end_known": row.ended_at is not None or row.outcome is None,
        "outcome": row.outcome or "running",
        "cause": _cause(row),
        "first_step": row.first_step,
        "last_step": row.last_step,
        "steps": max(0, steps),
        "step_seconds": row.useful_seconds / steps if steps > 0 and row.useful_seconds else None,
        "useful_seconds": row.useful_seconds,
        "save_seconds": row.save_seconds,
        "save_share": row.save_seconds / spent if spent else None,
        "lost_seconds": row.lost_seconds,
        "unaccounted_seconds": unaccounted_seconds(row, following),
        "safe_seconds": row.safe_seconds,
        "stalled": row.stalled,
        "machine": row.machine,
        "zone": row.zone,
        "capacity": row.capacity,
        "usd": line.usd if not line.unpriced_seconds else None,
    }


def _money(bill: dict[str, Any], head: RunRecord, prices: RunPricing) -> dict[str, Any]:
    """Spent, lost, and what the same useful hours would have cost on demand, with no interruption at all."""
    killed = sum(unaccounted_seconds(row, after) for row, after in pairwise(head.attempts))
    paid = bill["paid_seconds"]
    rate = bill["usd_priced"] / paid if paid else 0.0
    instead = None
    if prices.on_demand_usd_per_hour is not None:
        instead = (bill["useful_seconds"] + bill["save_seconds"]) / 3600 * prices.on_demand_usd_per_hour
    spent = bill["usd"]
    return {
        "spent_usd": spent,
        "unpriced_seconds": bill["unpriced_seconds"],
        "on_demand_usd": instead,
        "on_demand_usd_per_hour": prices.on_demand_usd_per_hour,
        "because": prices.because,
        "saved_usd": instead - spent if instead is not None and spent is not None else None,
        "lost_usd": (bill["lost_seconds"] + bill["other_seconds"]) * rate if spent is not None else None,
        "paid_seconds": paid,
        "useful_seconds": bill["useful_seconds"],
        "save_seconds": bill["save_seconds"],
        "lost_seconds": bill["lost_seconds"],
        "other_seconds": bill["other_seconds"],
        "unaccounted_seconds": killed,
        "goodput": bill["goodput"],
        "usd_per_step": bill["usd_per_step"],
    }


def _state(head: RunRecord) -> str:
    if head.finished:
        return "finished"
    if not head.attempts:
        return "waiting"
    last = head.attempts[-1].outcome
    return "running" if last is None else "interrupted" if last == "lost" else str(last)


def _cause(row: AttemptRecord) -> str | None:
    if row.outcome == "lost":
        return "killed without warning" if row.cause in (None, "unknown") else f"killed ({row.cause})"
    return "a signal, cause unknown" if row.cause == "unknown" else row.cause


def _end(attempts: tuple[AttemptRecord, ...], number: int) -> float | None:
    """When it ended; of one that was killed, when the next one began, which is the first anybody knew of it."""
    row = attempts[number]
    if row.ended_at is not None:
        return _instant(row.ended_at)
    if row.outcome is not None and number + 1 < len(attempts):
        return _instant(attempts[number + 1].started_at)
    return None


def _bytes(row: CheckpointRecord) -> int:
    return row.size + sum(int(_positive(size)) for _, size in row.others)


def _instant(text: str) -> float | None:
    try:
        return round(from_rfc3339(text), 3)
    except (ValueError, OverflowError):
        return None


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)[:_LONGEST_TEXT]
    text = text.encode("utf-8", "replace").decode()  # lone surrogates cannot be sent
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _number(value: Any, default: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    return value if abs(value) < 1e15 else default


def _positive(value: Any) -> float:
    return max(0.0, _number(value))
