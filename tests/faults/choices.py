"""Every sequence of choices, once each: ``pick`` replays a prefix, then takes new ground; ``advance`` moves on."""

from __future__ import annotations


class Choices:
    """Use as ``while choices.advance(): run(choices)``; each run calls ``pick`` wherever the world may differ."""

    def __init__(self) -> None:
        self._taken: list[list[int]] = []  # [value, bound]
        self._position = 0
        self._started = False

    def pick(self, bound: int) -> int:
        """A number below ``bound``."""
        assert bound > 0
        if self._position == len(self._taken):
            self._taken.append([0, bound])
        value, known = self._taken[self._position]
        assert known == bound, "the run is not deterministic"
        self._position += 1
        return value

    def advance(self) -> bool:
        """Prepare the next run; false when all were taken."""
        self._position = 0
        if not self._started:
            self._started = True
            return True
        while self._taken:
            self._taken[-1][0] += 1
            if self._taken[-1][0] < self._taken[-1][1]:
                return True
            self._taken.pop()
        return False

    def __str__(self) -> str:
        return ".".join(str(value) for value, _ in self._taken)
