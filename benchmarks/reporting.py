"""How a benchmark reports: a table and its goals on the screen, and JSON with date, machine and versions.

The JSON goes to ``build/benchmarks``. ``--record`` writes it to ``benchmarks/results``, which the documents quote
(``python tools/make_figures.py`` brings them up to date).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from goals import GOALS

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
RECORDED = HERE / "results"
SCRATCH = HERE.parent / "build" / "benchmarks"


def parse(parser: argparse.ArgumentParser, arguments: list[str] | None = None) -> argparse.Namespace:
    """The parsed command line of a benchmark, with the option that all of them have."""
    parser.add_argument(
        "--record",
        action="store_true",
        help="write to benchmarks/results, which the documents quote, and not to build/",
    )
    return parser.parse_args(arguments)


def machine() -> dict[str, Any]:
    """Where and with what it was measured; numbers mean nothing without."""
    model = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    sys.path.insert(0, str(SOURCE))
    from stayfast.version import __version__

    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": model,
        "cores": os.cpu_count(),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "stayfast": __version__,
    }


def publish(name: str, rows: list[dict[str, Any]], *, record: bool, **more: Any) -> None:
    """Print the rows as a table, and write them."""
    columns = list(rows[0])
    cells = [columns] + [[_text(row[column]) for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for number, line in enumerate(cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))
    write(name, {"benchmark": name, **machine(), **more, "rows": rows}, record=record)


def write(name: str, report: dict[str, Any], *, record: bool) -> Path:
    """Print the goals, write the report, and say where."""
    try:
        goals = GOALS[name](report) if name in GOALS else []
    except (KeyError, ValueError):  # a part of the rows, after a run of a part
        goals = []
    for goal in goals:
        bound = f"{goal.sign} {goal.bound:g} {goal.unit}".rstrip()
        print(f"{goal.what:<60}{goal.value:>10.4g} {goal.unit:<3} goal {bound:<12} {'met' if goal.met else 'MISSED'}")
    path = (RECORDED if record else SCRATCH) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten to {path.relative_to(HERE.parent)}" + ("" if record else "; --record writes the recorded result"))
    return path


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
