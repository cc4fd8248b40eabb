"""Is the result the same? Files bit by bit, JSON with a tolerance, records by key, or a command of the user's own.

And where two runs part that should be the same: the first step whose fingerprint differs, and in what.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stayfast.errors import UsageError
from stayfast.proof.rehearse.records import compare_records, split, unstable_fields
from stayfast.proof.rehearse.workspace import files_below

_EXCERPT_BYTES = 20
_BLOCK = 1 << 20
_TEMPORARY = re.compile(r"(^|/)(\.|tmp|temp)[^/]*$|(\.|-|_)(tmp|temp|part|partial|swp|lock)([.\-_][^/]*)?$|~$", re.I)
_CHECK_SECONDS = 600.0
RNG = "~rng"

Steps = Mapping[tuple[int, int], Mapping[str, str]]
"""Digests by step and rank."""


class Difference(NamedTuple):
    """One way in which a result is not the baseline's."""

    code: str
    path: str
    detail: str


class Comparison(NamedTuple):
    """What to look at."""

    globs: tuple[str, ...] = ()
    json_files: tuple[str, ...] = ()
    tolerance: float = 1e-6
    records: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    check: str = ""
    unstable: frozenset[str] = frozenset()
    """Fields of records that differ between uninterrupted runs."""

    @property
    def is_empty(self) -> bool:
        """Nothing was named: only what exists can be looked at."""
        return not (self.globs or self.json_files or self.records or self.check)

    def differences(self, baseline: str, found: str, environment: Mapping[str, str]) -> list[Difference]:
        """Everything that is not as in the baseline."""
        rows = [row for path in self.records for row in compare_records(baseline, found, path, self.key, self.unstable)]
        differences = [Difference(*row) for row in rows]
        told = {split(path)[0] for path in self.records if rows}
        for path, detail in self._named_files_differ(baseline, found):
            if path not in told:
                differences.append(Difference("result-differs", path, detail))
        if self.check and not differences:
            said = _check_fails(self.check, found, environment)
            differences += [] if said is None else [Difference("result-differs", "--check", said)]
        return differences

    def learn(self, baseline: str, again: str) -> Comparison:
        """Leave out what two uninterrupted runs do not agree on; files and JSON that differ cannot be compared."""
        unstable = [unstable_fields(baseline, again, path, self.key) for path in self.records]
        known = self._replace(unstable=frozenset().union(*unstable))
        for path, detail in known._named_files_differ(baseline, again):
            raise UsageError(
                f"{path} {detail} between two uninterrupted runs: no interruption is needed to change it",
                help="compare what is the same every time, use --compare-json with --tolerance, --records or --check",
            )
        return known

    def _named_files_differ(self, baseline: str, found: str) -> Iterator[tuple[str, str]]:
        for path in _matching(self.globs, baseline, found):
            if detail := _bytes_differ(baseline, found, path):
                yield path, detail
        for path in self.json_files:
            if detail := _json_differs(baseline, found, path, self.tolerance):
                yield path, detail

    def was_there(self, before: str, baseline: str) -> list[str]:
        """The files named by globs, where every one was there before the program ran and is the same afterwards."""
        files = list(_matching(self.globs, baseline, baseline))
        return [] if any(_bytes_differ(before, baseline, path) for path in files) else files

    def check_baseline(self, baseline: str, environment: Mapping[str, str]) -> None:
        """Whatever was named has to be there when nothing is interrupted."""
        for glob in self.globs:
            if not any(_matching((glob,), baseline, baseline)):
                raise UsageError(
                    f"--compare {glob!r} matches nothing that the uninterrupted run has left",
                    help="paths are relative to the current directory",
                )
        if found := self.differences(baseline, baseline, environment):
            raise UsageError(
                f"the uninterrupted run does not pass itself: {found[0].path}: {found[0].detail}",
                help="correct the option before rehearsing",
            )


def left_over(baseline: str, found: str) -> list[Difference]:
    """Without anything named: what the baseline has left and this run has not, or not in the same size."""
    differences = []
    for path in files_below(baseline):
        if _TEMPORARY.search(path):
            continue
        other = os.path.join(found, path)
        if not os.path.exists(other):
            differences.append(Difference("result-differs", path, "is missing"))
        elif os.path.getsize(other) != os.path.getsize(os.path.join(baseline, path)):
            differences.append(Difference("result-differs", path, "has another size"))
    return differences


def _matching(globs: Sequence[str], baseline: str, found: str) -> Iterator[str]:
    """What the globs name in the baseline, and in the other directory unless it is left of a broken-off write."""
    names: dict[str, None] = {}
    for glob in globs:
        if os.path.isabs(glob) or ".." in glob.split("/"):
            raise UsageError(f"--compare {glob!r} leads out of the directory", help="use a path inside it")
        pattern = glob + "**/*" if glob.endswith("/") else glob
        for root in (baseline, found):
            for path in sorted(Path(root).glob(pattern)):
                relative = os.path.relpath(path, root)
                if path.is_file() and (root == baseline or not _TEMPORARY.search(relative)):
                    names[relative] = None
                elif path.is_dir():
                    names |= dict.fromkeys(
                        os.path.join(relative, inner)
                        for inner in files_below(str(path))
                        if not _TEMPORARY.search(inner)
                    )
    return iter(names)


def _bytes_differ(baseline: str, found: str, path: str) -> str | None:
    first, second = os.path.join(baseline, path), os.path.join(found, path)
    if not os.path.exists(second):
        return "is missing"
    if not os.path.exists(first):
        return "is there, and the baseline has no such file"
    sizes = os.path.getsize(first), os.path.getsize(second)
    offset = 0
    with open(first, "rb") as one, open(second, "rb") as other:
        while True:
            left, right = one.read(_BLOCK), other.read(_BLOCK)
            if left != right:
                place = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
                begin = min(len(left), len(right)) if place is None else place
                return (
                    f"differs first at byte {offset + begin} ({sizes[1]} bytes, the baseline has {sizes[0]}): "
                    f"{_excerpt(right, begin)} instead of {_excerpt(left, begin)}"
                )
            if not left:
                return None
            offset += len(left)


def _excerpt(block: bytes, begin: int) -> str:
    text = block[begin : begin + _EXCERPT_BYTES].decode("utf-8", "backslashreplace")
    return repr(text) if text else "nothing"


def _json_differs(baseline: str, found: str, path: str, tolerance: float) -> str | None:
    try:
        want = json.loads(Path(baseline, path).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"--compare-json {path}: the uninterrupted run has left no such JSON ({error})") from None
    try:
        got = json.loads(Path(found, path).read_text())
    except OSError:
        return "is missing"
    except ValueError as error:
        return f"is not JSON ({error})"
    return next(_values_differ(want, got, tolerance, ""), None)


def _values_differ(want: Any, got: Any, tolerance: float, where: str) -> Iterator[str]:
    place = where or "the whole"
    if isinstance(want, dict) and isinstance(got, dict):
        for name in sorted(want.keys() ^ got.keys()):
            yield f"{where}/{name} is {'missing' if name in want else 'extra'}"
        for name in want:
            if name in got:
                yield from _values_differ(want[name], got[name], tolerance, f"{where}/{name}")
    elif isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            yield f"{place} has {len(got)} entries, the baseline {len(want)}"
        for index, (one, other) in enumerate(zip(want, got, strict=False)):
            yield from _values_differ(one, other, tolerance, f"{where}/{index}")
    elif _is_number(want) and _is_number(got):
        if not math.isclose(want, got, rel_tol=tolerance, abs_tol=tolerance) and want != got:
            yield f"{place} is {got!r}, the baseline has {want!r}"
    elif want != got or type(want) is not type(got):
        yield f"{place} is {got!r}, the baseline has {want!r}"[:300]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_fails(command: str, directory: str, environment: Mapping[str, str]) -> str | None:
    try:
        ended = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=directory, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=_CHECK_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{command!r} did not answer within {_CHECK_SECONDS:.0f} s"
    if ended.returncode == 0:
        return None
    lines = ended.stdout.decode("utf-8", "replace").strip().splitlines()
    said = f": {lines[-1][:200]}" if lines else ""
    return f"{command!r} left with {ended.returncode}{said}"


def read_steps(path: str) -> Steps:
    """What the attempts of a trial have left; a step that ran again counts as it was at last."""
    steps: dict[tuple[int, int], dict[str, str]] = {}
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    row = json.loads(line)
                    steps[int(row["step"]), int(row["rank"])] = dict(row["parts"])
                except (ValueError, KeyError, TypeError):
                    continue  # killed while writing it
    except OSError:
        pass
    return steps


def first_divergence(baseline: Steps, found: Steps) -> str:
    """Such as ``differs first at step 1312: loader position, rank 1``; empty when nothing is known to differ."""
    common = sorted(baseline.keys() & found.keys())
    # What differs from the very start differs without our help: a generator that nobody seeded.
    unstable = {name for place in common[:1] for name in _differing(baseline[place], found[place])}
    for step, rank in common:
        names = _differing(baseline[step, rank], found[step, rank]) - unstable
        if names:
            told = ", ".join(_spoken(name) for name in sorted(names, key=_by_cause))
            return f"differs first at step {step}: {told}, rank {rank}"
    missing = sorted(baseline.keys() - found.keys())
    return f"step {missing[0][0]} was never run by rank {missing[0][1]}" if missing and found else ""


def _differing(want: Mapping[str, str], got: Mapping[str, str]) -> set[str]:
    return {name for name in want.keys() | got.keys() if want.get(name) != got.get(name)}


def _by_cause(name: str) -> tuple[int, str]:
    """What data came, then which numbers were drawn, then what they did to the state."""
    return (0 if _is_position(name) else 1 if name == RNG else 2), name


def _is_position(name: str) -> bool:
    return any(word in name.lower() for word in ("loader", "sampler", "sample", "data", "shuffle", "position"))


def _spoken(name: str) -> str:
    if name == RNG:
        return "random numbers"
    return f"{name} position" if "loader" in name.lower() or "sampler" in name.lower() else name
