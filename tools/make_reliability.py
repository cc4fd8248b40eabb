"""Write the tables of ``docs/reliability.md`` from ``benchmarks/results/night.json``; ``--check`` only compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from faults.planted import BUGS, MORE  # noqa: E402
from faults.tiers import GOALS, WHAT  # noqa: E402

PAGE = ROOT / "docs/reliability.md"
REPORT = ROOT / "benchmarks/results/night.json"


def counts_table(report: dict[str, Any]) -> str:
    """Every suite with its goal and what was reached; what was not run says so."""
    lines = [f"Tier {report['tier']}, {' and '.join(report['dates'])}, on"]
    for number, item in enumerate(report["machines"], start=1):
        lines.append(
            f"machine {number}: {item['cpus']} CPUs ({item['architecture']}), Linux {item['kernel']}, "
            f"Python {item['python']}{'.' if number == len(report['machines']) else ';'}"
        )
    lines += ["", "| Suite | Injected | Goal | Core-minutes | What |", "|---|---:|---:|---:|---|"]
    for suite in GOALS:
        rows = [(name, row) for name, row in sorted(report["suites"].items()) if name.split()[0] == suite]
        rows = [(name, row) for name, row in rows if "injected" in row]
        for name, row in rows:
            minutes = row.get("cpu_milliseconds", 0) / 60_000
            goal = f"{row['goal']:,}" if "goal" in row else "with it"  # a part of the row above
            lines.append(f"| {name} | {row['injected']:,} | {goal} | {minutes:,.1f} | {WHAT[suite]} |")
        if not rows:
            lines.append(f"| {suite} | not in this run | {GOALS[suite][report['tier']]:,} | | {WHAT[suite]} |")
    return "\n".join(lines)


def planted_table(report: dict[str, Any]) -> str:
    """The forty in their order, then our own, then what the controls tried."""
    found, controls = report["planted"]["found"], report["planted"]["controls"]
    lines = ["| Bug | Wrong lines | Suite | Seconds to find | Of one core |", "|---|---:|---|---:|---:|"]
    for name in BUGS:
        lines.append(_row(name, found))
    lines += [
        "",
        "And of our own:",
        "",
        "| Bug | Wrong lines | Suite | Seconds to find | Of one core |",
        "|---|---:|---|---:|---:|",
    ]
    lines += [_row(name, found) for name in MORE]
    tried = ", ".join(f"{name} {row['tried']:,}" for name, row in sorted(controls.items()))
    lines += ["", f"Without a bug the same searches found nothing (what they tried in 10 seconds each: {tried})."]
    return "\n".join(lines)


def _row(name: str, found: dict[str, Any]) -> str:
    row = found.get(name)
    if row is None:
        return f"| {name} | {(BUGS.get(name) or MORE[name]).lines} | **not found** | | |"
    suite = row["hunter"].replace(":", ": ")
    return f"| {name} | {row['lines']} | {suite} | {row['seconds']:.1f} | {row['core_seconds']:.1f} |"


def put(text: str, mark: str, end: str, table: str) -> str:
    """The text with everything between two marks replaced."""
    start = text.index("-->", text.index(f"<!-- {mark}")) + 3
    return f"{text[:start]}\n\n{table}\n\n{text[text.index(f'<!-- {end} -->') :]}"


def main(arguments: list[str]) -> int:
    """Write or check."""
    report = json.loads(REPORT.read_text())
    text = PAGE.read_text(encoding="utf-8")
    fresh = put(text, "counts:", "end of counts", counts_table(report))
    fresh = put(fresh, "planted bugs:", "end of planted bugs", planted_table(report))
    if "--check" in arguments:
        return int(fresh != text)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
