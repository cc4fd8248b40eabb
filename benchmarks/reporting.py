"""How a benchmark tells its results: a table on the screen, and JSON with date, machine and versions."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"


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


def publish(name: str, rows: list[dict[str, Any]], **more: Any) -> None:
    """Print the rows as a table and keep them in ``results/NAME.json``."""
    columns = list(rows[0])
    cells = [columns] + [[_text(row[column]) for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for number, line in enumerate(cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))
    path = HERE / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"benchmark": name, **machine(), **more, "rows": rows}, indent=1) + "\n")
    print(f"\nwritten to {path.relative_to(HERE.parent)}")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
