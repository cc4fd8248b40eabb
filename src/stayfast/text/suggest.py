"""Did you mean: the nearest of the known words, and the sentence about it."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def similar(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The word that looks most like it, by the share of letters in common."""
    import difflib  # only a typing mistake needs it

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def write_or_choose(word: str, known: Collection[str], cutoff: float = 0.6) -> str:
    """What to type instead: the similar word, or all of them."""
    near = similar(word, known, cutoff)
    return f"write {near}" if near else f"choose from {', '.join(known)}"


def did_you_mean(word: str | None) -> str:
    """The end of a sentence that says what is wrong; empty where nothing is near."""
    return f"; did you mean {word}?" if word else ""


def distance(left: str, right: str, limit: int) -> int:
    """Edits (insert, delete, replace, swap neighbours) between two words; ``limit + 1`` stands for more than that."""
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    before: list[int] = []
    previous = list(range(len(right) + 1))
    for row, character in enumerate(left, start=1):
        current = [row]
        for column, other in enumerate(right, start=1):
            cost = min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (character != other))
            if row > 1 and column > 1 and character == right[column - 2] and left[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        if min(current) > limit:
            return limit + 1
        before, previous = previous, current
    return previous[-1]


def closest(word: str, candidates: Iterable[str], limit: int = 2) -> str | None:
    """The nearest candidate within ``limit`` edits, upper and lower case being the same."""
    best, best_distance = None, limit + 1
    lowered = word.lower()
    for candidate in sorted(candidates):
        found = distance(lowered, candidate.lower(), limit)
        if found < best_distance:
            best, best_distance = candidate, found
    return best


def field_like(word: str, candidates: Iterable[str]) -> str | None:
    """The field that was probably meant: a near spelling, or one inside the word (maxParallelism: parallelism)."""
    candidates = list(candidates)
    near = closest(word, candidates, 1 if len(word) < 5 else 2 if len(word) < 10 else 3)
    if near is not None:
        return near
    lowered = word.lower()
    inside = [name for name in candidates if len(name) >= 5 and (name.lower() in lowered or lowered in name.lower())]
    return max(inside, key=len, default=None) if len(lowered) >= 4 else None
