"""What lies between the task and the books: items on the shelf, fetched and not begun, and outcomes in the outbox.

The size of a call is the user's; how often the books are opened is not. A chunk that is done in no time would cost a
transaction each, so as many of them as make up a tenth of a second are fetched in one claim and settled in one commit.
Nothing here locks: the pump does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from stayfast.batch.queue.protocol import Failure, Lease
from stayfast.batch.sink.protocol import Result
from stayfast.batch.worker.compute import ChunkResult, LeasedItem


@dataclass(frozen=True, slots=True)
class PrefetchOptions:
    """How much is fetched ahead, and how results are treated."""

    chunk: int = 100
    prefetch: int = 1  # chunks held beside the one being computed; more while they are short, none if zero
    replace: bool = False


class PrefetchBuffer:
    """Chunks that are leased and not begun."""

    def __init__(self, options: PrefetchOptions) -> None:
        self.options = options
        self.ahead = 0
        """How many chunks may lie here, when that is more than was asked for: they are short."""
        self._chunks: deque[list[LeasedItem]] = deque()

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def has_extra_chunks(self) -> bool:
        """Whether more lies here than was asked for, or may."""
        return self.ahead > self.options.prefetch > 0

    @property
    def size(self) -> int:
        """How many items there may be, the chunk in work included."""
        return self.options.chunk * (1 + self._depth())

    def _depth(self) -> int:
        return max(self.options.prefetch, self.ahead) if self.options.prefetch else 0

    def claim_size(self, *, in_work: bool) -> int:
        """How many items to claim: a chunk, or half a deep shelf at once, as soon as there is room for that."""
        depth = self._depth()
        if depth == 0:
            return 0 if in_work or self._chunks else self.options.chunk
        portion = max(1, depth // 2)
        return portion * self.options.chunk if len(self._chunks) + portion <= depth else 0

    def add(self, work: list[LeasedItem]) -> None:
        """Items of one claim, in calls as they were asked for."""
        chunk = self.options.chunk
        self._chunks.extend(work[start : start + chunk] for start in range(0, len(work), chunk))

    def take(self, limit: int) -> list[LeasedItem]:
        """The next chunk, or as much of it as one call may get."""
        chunk = self._chunks.popleft()
        if len(chunk) > limit:
            self._chunks.appendleft(chunk[limit:])
            chunk = chunk[:limit]
        return chunk

    def clear(self) -> list[Lease]:
        """Everything, to be given back or forgotten."""
        leases = self.leases()
        self._chunks.clear()
        return leases

    @property
    def has_surplus(self) -> bool:
        """Whether far more lies here than may by now: the calls have become long."""
        return len(self._chunks) > max(1, 2 * self._depth())

    def take_surplus(self) -> list[Lease]:
        """What lies here beyond that, the last first to go."""
        surplus: list[Lease] = []
        while len(self._chunks) > max(1, self._depth()):
            surplus += [work.lease for work in self._chunks.pop()]
        return surplus

    def leases(self) -> list[Lease]:
        """Of all items here."""
        return [work.lease for chunk in self._chunks for work in chunk]


@dataclass(slots=True)
class ResultBuffer:
    """What is to be told to sink and queue."""

    results: list[Result] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)  # of the results, in the same order
    failures: list[Failure] = field(default_factory=list)
    skipped: list[Lease] = field(default_factory=list)
    returned: list[Lease] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.leases or self.failures or self.skipped or self.returned)

    def add(self, settled: ChunkResult, unstarted: Sequence[LeasedItem]) -> None:
        """What became of a call."""
        self.results += settled.results
        self.leases += settled.leases
        self.failures += settled.failures
        self.returned += [work.lease for work in unstarted]

    def held(self) -> list[Lease]:
        """Everything in here that is still leased to us."""
        return [*self.leases, *self.skipped, *self.returned, *(failure.lease for failure in self.failures)]
