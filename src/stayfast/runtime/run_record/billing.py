"""What a run has cost, added up from its ledger: hours, dollars, and what nobody measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stayfast.clock import from_rfc3339
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.run_record.record import AttemptRecord, RunRecord


@dataclass(slots=True)
class CostLine:
    """Money and time of one attempt, or of all."""

    attempts: int = 0
    useful_seconds: float = 0.0
    lost_seconds: float = 0.0
    save_seconds: float = 0.0
    other_seconds: float = 0.0
    """Start-up, restore, and whatever nobody measured."""
    usd: float = 0.0
    unpriced_seconds: float = 0.0

    @property
    def paid_seconds(self) -> float:
        return self.useful_seconds + self.lost_seconds + self.save_seconds + self.other_seconds

    def add(self, other: CostLine) -> None:
        for name in ("attempts", "useful_seconds", "lost_seconds", "save_seconds", "other_seconds", "usd"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.unpriced_seconds += other.unpriced_seconds


def bill_run(head: RunRecord, usd_per_hour: float | None) -> dict[str, Any]:
    """The bill as JSON."""
    total = _folded_cost(head, usd_per_hour)
    rows = []
    for row in head.attempts:
        line = bill_attempt(row, usd_per_hour)
        total.add(line)
        rows.append(
            {
                "attempt": row.attempt,
                "outcome": row.outcome.value if row.outcome else None,
                "cause": row.cause,
                "capacity": row.capacity or None,
                "zone": row.zone or None,
                "paid_seconds": line.paid_seconds,
                "useful_seconds": line.useful_seconds,
                "lost_seconds": line.lost_seconds,
                "usd": line.usd if not line.unpriced_seconds else None,
            }
        )
    steps = head.newest.step + 1 if head.newest else 0
    known = total.usd if not total.unpriced_seconds else None
    return {
        "run": head.run,
        "finished": head.finished,
        "steps": steps,
        "attempts": total.attempts,
        "usd": known,
        "usd_priced": total.usd,
        "unpriced_seconds": total.unpriced_seconds,
        "usd_per_step": known / steps if known is not None and steps else None,
        "paid_seconds": total.paid_seconds,
        "useful_seconds": total.useful_seconds,
        "lost_seconds": total.lost_seconds,
        "save_seconds": total.save_seconds,
        "other_seconds": total.other_seconds,
        "goodput": total.useful_seconds / total.paid_seconds if total.paid_seconds else None,
        "rows": rows,
    }


def bill_attempt(row: AttemptRecord, usd_per_hour: float | None) -> CostLine:
    """One attempt: wall time where both ends are known, otherwise what it counted itself."""
    counted = row.useful_seconds + row.lost_seconds + row.save_seconds
    wall = counted
    if row.ended_at is not None:
        try:
            wall = max(counted, from_rfc3339(row.ended_at) - from_rfc3339(row.started_at))
        except ValueError:
            pass  # an unreadable instant: what was counted is what we know
    line = CostLine(1, row.useful_seconds, row.lost_seconds, row.save_seconds, wall - counted)
    price = row.usd_per_hour if row.usd_per_hour is not None else usd_per_hour
    if price is None:
        line.unpriced_seconds = wall
    else:
        line.usd = wall / 3600 * price
    return line


def unaccounted_seconds(row: AttemptRecord, following: AttemptRecord | None) -> float:
    """Of an attempt that was killed without a word: from its last commit to the start of the next attempt.

    That holds its start-up, the work that was lost and the wait for a machine; nobody was there to tell them apart.
    """
    if row.outcome is not Outcome.LOST or following is None:
        return 0.0
    try:
        between = from_rfc3339(following.started_at) - from_rfc3339(row.started_at)
    except ValueError:
        return 0.0
    return max(0.0, between - row.useful_seconds - row.save_seconds)


def _folded_cost(head: RunRecord, usd_per_hour: float | None) -> CostLine:
    """Attempts so old that only their sums are kept."""
    sums = head.folded
    line = CostLine(
        int(sums.get("attempts", 0)),
        sums.get("useful_seconds", 0.0),
        sums.get("lost_seconds", 0.0),
        sums.get("save_seconds", 0.0),
        usd=sums.get("usd", 0.0),
    )
    if line.attempts and "usd" not in sums:
        if usd_per_hour is None:
            line.unpriced_seconds = line.paid_seconds
        else:
            line.usd = line.paid_seconds / 3600 * usd_per_hour
    return line
