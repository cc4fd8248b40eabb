"""Run the fault suites at the count of a tier, in shards side by side, and merge what they injected into one report.

    PYTHONPATH=src python3 tools/night.py run --suites A,F,G --jobs 16 --minutes 9 --into night
    PYTHONPATH=src python3 tools/night.py merge night another-machine/night --to benchmarks/results/night.json

A shard is a run of its own with its own seed and its share of the count; a finished one leaves ``SUITE-NUMBER.json``
and is not run again, so a long tier can be done in pieces and on several machines (give each the shards of its own with
``--first`` and ``--last``). No shard is started after ``--minutes``; those that run are waited for. Needs pytest and
hypothesis; suites whose servers or tools are absent say so and count nothing.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from faults.planted import BUGS  # noqa: E402
from faults.tiers import GOALS, WHAT  # noqa: E402

# A suite's tests, and into how many shards its night is cut (a release has ten times as many).
SUITES: dict[str, tuple[int, tuple[str, ...]]] = {
    "A": (32, ("tests/faults/test_crash_states.py",)),
    "B": (20, ("tests/faults/test_power_cuts.py", "tests/queue/test_sqlite_power_cuts.py")),
    "C": (12, ("tests/faults/test_syscall_faults.py",)),
    "D": (20, ("tests/faults/test_kills.py",)),
    "D-workers": (20, ("tests/queue/test_worker_kills.py",)),
    "E": (10, ("tests/runtime/test_signal_storm.py",)),
    "F": (16, ("tests/faults/test_store_faults_random.py",)),
    "F-schedules": (1, ("tests/faults/test_store_faults_schedules.py", "tests/faults/test_store_faults_runs.py")),
    "G": (20, ("tests/faults/test_overlaps.py",)),
    "G-simulated": (32, ("tests/faults/test_attempts_sim.py",)),
    "H": (16, ("tests/queue/test_queue_machine.py::test_sqlite_queue_machine",)),
    "H-postgres": (16, ("tests/queue/test_queue_machine.py::test_postgres_queue_machine",)),
    "H-pubsub": (16, ("tests/queue/test_pubsub_machine.py",)),
    "H-runs": (30, ("tests/faults/test_run_machines.py",)),
    "I": (32, ("tests/faults/test_simulation.py::test_safe_while_everything_fails_and_at_rest_when_it_stops",)),
    "J": (8, ("tests/checkpoint/test_damage.py",)),
    "K": (8, ("tests/fuzz/test_fuzz.py",)),
    "L": (1, ("tests/inputs/test_bad_inputs.py",)),
    "M": (5, ("tests/queue/test_chaos_acceptance.py",)),
    "N": (1, ("tests/dashboard/test_dashboard_requests.py",)),
    "O": (1, ("tests/cluster/test_watch_command.py",)),
    "P": (8, ("tests/faults/test_planted_bugs.py",)),
}
TENTHS = {"night": 1, "release": 10, "pr": 0}


def shards_of(suite: str, tier: str) -> int:
    """How many parts this tier of the suite has."""
    parts = SUITES[suite][0]
    return 1 if tier == "pr" or parts == 1 else parts if suite == "P" else parts * TENTHS[tier]


def run_shard(suite: str, number: int, parts: int, tier: str, into: Path) -> tuple[str, str]:
    """One shard in a pytest of its own; ``done``, ``skipped``, ``FAILED``, and how long it took."""
    absent = [path for path in SUITES[suite][1] if not (ROOT / path.partition("::")[0]).exists()]
    if absent:
        return "skipped", f"0 s: there is no {absent[0]}"
    name = f"{suite}-{number}of{parts}"
    target, fresh, log = into / f"{name}.json", into / f"{name}.part", into / f"{name}.log"
    for path in (fresh, fresh.with_suffix(".planted.json")):
        path.unlink(missing_ok=True)
    environment = os.environ | {
        "STAYFAST_TIER": tier,
        "STAYFAST_SHARD": f"{number}/{parts}",
        "STAYFAST_COUNTS_FILE": str(fresh),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    }
    command = [sys.executable, "-m", "pytest", "-c", "tools/night.ini", "--rootdir", ".", *SUITES[suite][1]]
    began = time.monotonic()
    with open(log, "w") as output:
        code = subprocess.run(command, check=False, cwd=ROOT, env=environment, stdout=output, stderr=output).returncode
    took = f"{time.monotonic() - began:.0f} s"
    if code or not fresh.exists():
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        return ("skipped" if code == 0 else "FAILED"), f"{took}, see {log} ({' '.join(last)})"
    os.replace(fresh, target)
    return "done", took


def run(options: argparse.Namespace) -> int:
    """Start shards until the time is over; 1 if any failed."""
    into = options.into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    names = options.suites.split(",") if options.suites else list(SUITES)
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        raise SystemExit(f"there is no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    todo = []
    for suite in names:
        parts = options.parts or shards_of(suite, options.tier)
        last = parts if options.last is None else min(parts, options.last)
        todo += [(suite, number, parts) for number in range(options.first, last)]
    todo = [row for row in todo if not (into / f"{row[0]}-{row[1]}of{row[2]}.json").exists()]
    until = time.monotonic() + 60 * options.minutes
    failed = left = 0

    def work(row: tuple[str, int, int]) -> tuple[str, str] | None:
        return None if time.monotonic() > until else run_shard(*row, options.tier, into)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(work, row): row for row in todo}
        for future in concurrent.futures.as_completed(futures):
            suite, number, parts = futures[future]
            answer = future.result()
            if answer is None:
                left += 1
                continue
            failed += answer[0] == "FAILED"
            print(f"{suite} {number + 1} of {parts}: {answer[0]} in {answer[1]}", flush=True)
    print(f"{len(todo) - left} shards run, {failed} failed, {left} left for the next time")
    return int(failed > 0)


def files_of(places: list[Path], ending: str) -> list[Path]:
    """Files as given, and those in folders."""
    found = []
    for place in places:
        found += sorted(place.glob(f"*{ending}")) if place.is_dir() else [place]
    return [path for path in found if path.name.endswith(ending)]


def merge(options: argparse.Namespace) -> int:
    """Sums over all shards; 1 if a suite is below its goal or a count was given twice."""
    report: dict[str, Any] = {"tier": "", "dates": [], "machines": [], "suites": {}}
    suites = report["suites"]
    for path in files_of(options.places, ".json"):
        if path.name.endswith(".planted.json"):
            continue
        part = json.loads(path.read_text())
        if report["tier"] not in ("", part["tier"]):
            raise SystemExit(f"{path} is of tier {part['tier']}, the others of {report['tier']}")
        report["tier"] = part["tier"]
        for name, value in (("dates", part["date"]), ("machines", part["machine"])):
            if value not in report[name]:
                report[name].append(value)
        for suite, row in part["suites"].items():
            add(suites.setdefault(suite, {"runs": 0, "machines": []}), row, report["machines"].index(part["machine"]))
    report["dates"].sort()
    planted = merge_planted(options.places)
    if planted:
        report["planted"] = planted
        row = suites.setdefault("P", {"runs": 0, "machines": []})
        # A bug counts once, however often it was found.
        row["injected"] = sum(name in BUGS for name in planted["found"])
    below = judge(report)
    text = json.dumps(report, indent=1, sort_keys=True) + "\n"
    if options.to:
        options.to.write_text(text)
    show(report)
    for line in below:
        print(line)
    return int(bool(below) and not options.partial)


def add(row: dict[str, Any], more: dict[str, Any], machine: int) -> None:
    """One shard's row into the sums."""
    row["runs"] += 1
    if machine not in row["machines"]:
        row["machines"].append(machine)
    for name, value in more.items():
        row[name] = row.get(name, [] if name == "seeds" else 0) + value


def judge(report: dict[str, Any]) -> list[str]:
    """What each suite should have reached; H counts for each machine alone."""
    below = []
    for suite, goals in GOALS.items():
        rows = {name: row for name, row in report["suites"].items() if name.split()[0] == suite and "injected" in row}
        for name, row in rows.items():
            if name == suite or suite == "H":
                row["goal"] = goals[report["tier"]]
                row["void"] = row["injected"] < row["goal"]
                below += [f"void: suite {name} injected {row['injected']:,} of {row['goal']:,}"] if row["void"] else []
        if not rows:
            below.append(f"void: suite {suite} was not run")
    return below


def merge_planted(places: list[Path]) -> dict[str, Any]:
    """All bugs that were found and all controls in which nothing was; empty when no shard looked."""
    merged: dict[str, Any] = {"found": {}, "controls": {}}
    for path in files_of(places, ".planted.json"):
        part = json.loads(path.read_text())
        merged["found"] |= part["found"]
        merged["controls"] |= part["controls"]
    return merged if merged["found"] else {}


def show(report: dict[str, Any]) -> None:
    """The table, with what a night of each suite costs on one core."""
    print(f"{'suite':20} {'injected':>12} {'goal':>12} {'runs':>5} {'core-min':>9}  what")
    for name, row in sorted(report["suites"].items()):
        if "injected" in row:
            minutes = row.get("cpu_milliseconds", 0) / 60_000
            what = WHAT.get(name.split()[0], "")
            print(f"{name:20} {row['injected']:12,} {row.get('goal', 0):12,} {row['runs']:5} {minutes:9.1f}  {what}")


def main() -> int:
    """Run or merge."""
    parser = argparse.ArgumentParser(description="the fault suites at the count of a tier")
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run shards until the time is over")
    runs.add_argument("--tier", choices=("pr", "night", "release"), default="night")
    runs.add_argument("--suites", default="", help=f"comma-separated, of {','.join(SUITES)}; all by default")
    runs.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many shards run at once")
    runs.add_argument("--minutes", type=float, default=10_000.0, help="start no shard after this")
    runs.add_argument("--parts", type=int, help="cut every suite into so many shards, instead of its own number")
    runs.add_argument("--first", type=int, default=0, help="the first shard of each suite, from 0")
    runs.add_argument("--last", type=int, default=None, help="the shard after the last")
    runs.add_argument("--into", type=Path, default=ROOT / "tests/.counts/night", help="one JSON and one log per shard")
    merges = commands.add_parser("merge", help="sum up the files of several runs and machines")
    merges.add_argument("places", nargs="+", type=Path, help="files, or folders of them")
    merges.add_argument("--to", type=Path, help="write the report there")
    merges.add_argument("--partial", action="store_true", help="suites below their goal are told, but no failure")
    options = parser.parse_args()
    return run(options) if options.command == "run" else merge(options)


if __name__ == "__main__":
    sys.exit(main())
