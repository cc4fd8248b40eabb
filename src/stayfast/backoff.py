"""How long to wait before the next try: twice as long after every failure, up to a longest pause."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple


class Backoff(NamedTuple):
    """The pauses between tries."""

    first_seconds: float
    longest_seconds: float

    def seconds(self, doublings: int) -> float:
        """The first pause, doubled so often."""
        return min(self.longest_seconds, self.first_seconds * 2.0 ** min(doublings, 30))

    def pauses(self) -> Iterator[float]:
        """The pauses one after the other, without an end."""
        return map(self.seconds, count())
