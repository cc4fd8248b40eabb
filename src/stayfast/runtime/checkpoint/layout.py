"""Where each leaf goes: which part, at which offset.

The cut decides two things. Parts are what is written in parallel and what is recognised as unchanged, so leaves that
change together should lie together: each tracked object starts parts of its own, small leaves (norms, biases, LoRA
matrices, counters) are packed apart from large ones, and a leaf of ``OWN_PART_BYTES`` or more shares its part with
nobody. And everything is aligned for direct writes and for tensors built over the bytes as they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stayfast.runtime.checkpoint.inventory import ALIGNMENT
from stayfast.runtime.state.leaf import Leaf

PART_BYTES = 32 << 20
OWN_PART_BYTES = 4 << 20
SMALL_BYTES = 1 << 20
LEAF_ALIGNMENT = 64


@dataclass(slots=True)
class PlannedPart:
    """One part to be: where it starts in the snapshot's buffer, and how long it is with padding."""

    start: int
    length: int = 0


@dataclass(slots=True)
class Layout:
    """Parts lie one after the other in one buffer; ``places[i]`` is leaf i's position in that buffer."""

    parts: list[PlannedPart] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    first_part_of: list[int] = field(default_factory=list)
    padding: list[tuple[int, int]] = field(default_factory=list)
    """Start and length of every gap; they are written and checksummed as zeros."""

    def parts_of(self, number: int, length: int) -> range:
        """The parts that a leaf of this length lies in."""
        first = last = self.first_part_of[number]
        end = self.positions[number] + length
        while self.parts[last].start + self.parts[last].length < end:
            last += 1
        return range(first, last + 1)

    @property
    def total(self) -> int:
        return self.parts[-1].start + self.parts[-1].length if self.parts else 0


class LayoutCache:
    """Remembers the last layout: a training state has the same shape every time."""

    def __init__(self, part_bytes: int = PART_BYTES) -> None:
        self._part_bytes = part_bytes
        self._last: tuple[list[tuple[str, int]], Layout] | None = None

    def plan(self, leaves: Sequence[Leaf]) -> Layout:
        shape = [(leaf.group, leaf.length) for leaf in leaves]
        if self._last is None or self._last[0] != shape:
            self._last = (shape, plan_layout(leaves, part_bytes=self._part_bytes))
        return self._last[1]


def plan_layout(leaves: Sequence[Leaf], *, part_bytes: int = PART_BYTES) -> Layout:
    """The same leaves always give the same layout, so that unchanged parts keep their bytes."""
    layout = Layout(positions=[0] * len(leaves), first_part_of=[0] * len(leaves))
    packer = _Packer(layout, part_bytes)
    for group in _groups(leaves):
        for number in group:
            packer.place(number, leaves[number].length)
        packer.close()
    return layout


def _groups(leaves: Sequence[Leaf]) -> Iterable[list[int]]:
    """Large leaves of each tracked object, then small ones of each; empty leaves need no place."""
    large: dict[str, list[int]] = {}
    small: dict[str, list[int]] = {}
    for number, leaf in enumerate(leaves):
        if leaf.length:
            (large if leaf.length >= SMALL_BYTES else small).setdefault(leaf.group, []).append(number)
    tiny: list[int] = []
    for group in small.values():
        if sum(leaves[number].length for number in group) < SMALL_BYTES:
            tiny += group
        else:
            large.setdefault(f"{leaves[group[0]].group} small", []).extend(group)
    return [*large.values(), *([tiny] if tiny else [])]


class _Packer:
    def __init__(self, layout: Layout, part_bytes: int) -> None:
        self._layout = layout
        self._part_bytes = part_bytes
        self._start = 0
        self._used = 0

    def place(self, number: int, length: int) -> None:
        offset = _round_up(self._used, LEAF_ALIGNMENT)
        if self._used and (length >= OWN_PART_BYTES or offset + length > self._part_bytes):
            self.close()
            offset = 0
        if offset > self._used:
            self._layout.padding.append((self._start + self._used, offset - self._used))
        self._layout.positions[number] = self._start + offset
        self._layout.first_part_of[number] = len(self._layout.parts)
        self._used = offset + length
        while self._used > self._part_bytes:  # longer than a part: runs on into the next
            rest = self._used - self._part_bytes
            self._used = self._part_bytes
            self.close()
            self._used = rest
        if length >= OWN_PART_BYTES:
            self.close()

    def close(self) -> None:
        if self._used:
            length = _round_up(self._used, ALIGNMENT)
            if length > self._used:
                self._layout.padding.append((self._start + self._used, length - self._used))
            self._layout.parts.append(PlannedPart(self._start, length))
            self._start += length
            self._used = 0


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
