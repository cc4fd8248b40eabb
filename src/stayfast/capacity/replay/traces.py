"""Capacity traces: how many instances could be had at each tick, and readers for the two formats people have.

JSONL: one object per line with ``id``, ``gap_s`` (or ``tick_seconds``), and either ``rle`` (pairs of available count
and ticks) or ``counts`` (one number per tick); ``zone``, ``nodes``, ``source`` are kept when there.
CSV: a header ``seconds,available`` (times on a regular grid) or ``available`` alone with the tick given by the caller;
a column ``zone`` splits one file into several traces.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stayfast.errors import UsageError

MAX_TICKS = 5_000_000
DEFAULT_TICK_SECONDS = 600.0
_EXAMPLE = 'write it like: {"id": "a", "gap_s": 600, "rle": [[4, 100], [0, 20]]}'
SHORTEST_TICK_SECONDS, LONGEST_TICK_SECONDS = 1.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded or synthetic capacity history, as run-length pairs of available count and ticks."""

    id: str
    tick_seconds: float
    runs: tuple[tuple[int, int], ...]
    zone: str = ""
    nodes: int = 1
    source: str = ""
    _cache: dict[int, bytes] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ticks(self) -> int:
        return sum(length for _, length in self.runs)

    @property
    def hours(self) -> float:
        return self.ticks * self.tick_seconds / 3600

    def available(self, nodes: int) -> bytes:
        """One byte per tick: 1 where the whole gang could be had. Part of a gang is no capacity at all."""
        known = self._cache.get(nodes)
        if known is None:
            known = b"".join((b"\1" if count >= nodes else b"\0") * length for count, length in self.runs)
            self._cache[nodes] = known
        return known


def from_counts(
    identity: str, counts: Iterable[int], *, tick_seconds: float, zone: str = "", nodes: int = 1, source: str = ""
) -> Trace:
    """A trace from one count per tick."""
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return Trace(identity, tick_seconds, tuple((count, length) for count, length in runs), zone, nodes, source)


def read_traces(text: str, where: str, *, tick_seconds: float | None = None) -> list[Trace]:
    """All traces of a file; every complaint names the line. ``tick_seconds`` is for a CSV without times."""
    if tick_seconds is not None and not _is_tick(tick_seconds):
        raise UsageError(f"a tick of {tick_seconds:g} s is not one of 1 to 86400 s", help="check the unit")
    start = text.lstrip("\ufeff \t\r\n")[:1]
    traces = _read_jsonl(text, where) if start == "{" else _read_csv(text, where, tick_seconds)
    if not traces:
        raise UsageError(f"{where} holds no trace", help="give JSONL with id, gap_s and rle, or CSV with a header")
    seen: set[str] = set()
    for trace in traces:
        if trace.id in seen:
            raise UsageError(f"{where} holds the trace {trace.id!r} twice", help="give each trace its own id")
        seen.add(trace.id)
    return traces


def _read_jsonl(text: str, where: str) -> list[Trace]:
    traces = []
    for number, line in enumerate(text.lstrip("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            detail = getattr(error, "msg", type(error).__name__)
            raise UsageError(f"{where}:{number}: not JSON ({detail})", help="write one JSON object per line") from error
        traces.append(_from_row(row, f"{where}:{number}"))
    return traces


def _from_row(row: Any, at: str) -> Trace:
    if not isinstance(row, dict) or not isinstance(row.get("id"), str) or not row["id"]:
        raise UsageError(f"{at}: a trace needs an 'id' that is text", help=_EXAMPLE)
    tick = row.get("gap_s", row.get("tick_seconds"))
    if not isinstance(tick, int | float) or isinstance(tick, bool) or not _is_tick(tick):
        raise UsageError(
            f"{at}: trace {row['id']!r} needs 'gap_s', seconds between ticks from 1 to 86400, not {tick!r:.60}",
            help=_EXAMPLE,
        )
    nodes = row.get("nodes", 1)
    if not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 1:
        raise UsageError(
            f"{at}: 'nodes' of trace {row['id']!r} must be a whole number from 1, not {nodes!r:.60}",
            help="write 1 or leave it out",
        )
    texts = {"zone": str(row.get("zone") or ""), "source": str(row.get("source") or "")}
    if isinstance(row.get("rle"), list):
        runs = tuple(_run(pair, row["id"], at) for pair in row["rle"])
        if sum(length for _, length in runs) > MAX_TICKS:
            raise UsageError(f"{at}: trace {row['id']!r} is longer than {MAX_TICKS} ticks", help="cut it, or check it")
        trace = Trace(row["id"], float(tick), runs, texts["zone"], nodes, texts["source"])
    elif isinstance(row.get("counts"), list):
        for count in row["counts"]:
            _run([count, 1], row["id"], at)
        trace = from_counts(row["id"], row["counts"], tick_seconds=float(tick), nodes=nodes, **texts)
    else:
        raise UsageError(f"{at}: trace {row['id']!r} needs 'rle' (pairs of count and ticks) or 'counts'", help=_EXAMPLE)
    if not trace.ticks:
        raise UsageError(f"{at}: trace {row['id']!r} is empty", help="remove it")
    return trace


def _is_tick(seconds: float) -> bool:
    return SHORTEST_TICK_SECONDS <= seconds <= LONGEST_TICK_SECONDS


def _run(pair: Any, identity: str, at: str) -> tuple[int, int]:
    if (
        not isinstance(pair, list)
        or len(pair) != 2
        or not all(isinstance(item, int) and not isinstance(item, bool) for item in pair)
        or pair[0] < 0
        or pair[1] < 1
    ):
        raise UsageError(
            f"{at}: trace {identity!r} has the pair {pair!r:.60}; a pair is a count from 0 and ticks from 1"
        )
    return pair[0], pair[1]


def _read_csv(text: str, where: str, tick_seconds: float | None) -> list[Trace]:
    reader = csv.reader(io.StringIO(text.lstrip("\ufeff"), newline=None), strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        if "available" not in header:
            raise UsageError(
                f"{where}:1: the CSV header has no column 'available'", help="start with: seconds,available"
            )
        columns = {name: header.index(name) for name in ("seconds", "available", "zone") if name in header}
        zones: dict[str, list[tuple[int, float | None, int]]] = {}
        for row in reader:
            if not row:
                continue
            number = reader.line_num
            count = _cell(row, columns["available"], where, number)
            if count != int(count):
                raise UsageError(f"{where}:{number}: available is {count}, not a whole number", help="mend the row")
            moment = _cell(row, columns["seconds"], where, number) if "seconds" in columns else None
            zone = row[columns["zone"]].strip() if "zone" in columns and len(row) > columns["zone"] else ""
            zones.setdefault(zone, []).append((number, moment, int(count)))
    except csv.Error as error:
        raise UsageError(f"{where}:{reader.line_num}: not readable as CSV ({error})", help="mend the row") from error
    return [_from_rows(zone, rows, where, tick_seconds) for zone, rows in zones.items()]


def _cell(row: list[str], column: int, where: str, number: int) -> float:
    text = row[column].strip() if column < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{where}:{number}: {text!r:.60} is not a number from 0", help="mend the row")
    return value


def _from_rows(zone: str, rows: list[tuple[int, float | None, int]], where: str, tick_seconds: float | None) -> Trace:
    moments = [moment for _, moment, _ in rows if moment is not None]
    tick = tick_seconds
    if len(moments) > 1:
        tick = moments[1] - moments[0]
        if not _is_tick(tick):
            raise UsageError(
                f"{where}:{rows[1][0]}: {moments[0]:g} s to {moments[1]:g} s is not a tick of 1 to 86400 s",
                help="write times in seconds, in rising order",
            )
        for (number, _, _), before, after in zip(rows[1:], moments, moments[1:], strict=False):
            if abs(after - before - tick) > 1e-6 * tick:
                raise UsageError(
                    f"{where}:{number}: the step from {before:g} s to {after:g} s is not the first step of {tick:g} s",
                    help="resample the trace to a regular grid",
                )
    return from_counts(
        zone or where, (count for _, _, count in rows), tick_seconds=tick or DEFAULT_TICK_SECONDS, zone=zone
    )
