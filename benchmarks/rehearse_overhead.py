"""What ``stayfast rehearse`` itself costs beside the program: processor seconds, not the clock's.

Goal: supervision under 2 % of one core per second of a running program. Ours are the supervisor's own seconds and those
of the keepers (all children's, less what the programs used). What is done once per attempt (copying, starting,
comparing) is told apart from what is paid per second: two programs that differ in nothing but their length.

    python benchmarks/rehearse_overhead.py [--trials 6]
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from reporting import SOURCE, parse, publish

sys.path.insert(0, str(SOURCE))

from stayfast.proof.rehearse.differences import Comparison
from stayfast.proof.rehearse.rehearsal import RehearsalOptions, rehearse

PROGRAM = """
import json, os, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
state = json.load(open("state.json")) if os.path.exists("state.json") else {"step": 0}
while state["step"] < STEPS:
    WORK
    state["step"] += 1
    with open("state.tmp", "w") as file:
        json.dump(state, file)
    os.replace("state.tmp", "state.json")
    if told:
        sys.exit(75)
open("result.txt", "w").write("done")
"""
ASLEEP = "time.sleep(0.1)"
BUSY = "until = time.process_time() + 0.1\n    while time.process_time() < until: pass"


def children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(name: str, work: str, steps: int, trials: int) -> dict[str, float | str]:
    """One rehearsal; nothing of it is counted by the clock but the seconds that programs ran."""
    text = PROGRAM.replace("STEPS", str(steps)).replace("WORK", work)
    with tempfile.TemporaryDirectory(prefix="stayfast-bench-") as folder:
        Path(folder, "program.py").write_text(text)
        own, children, began = time.process_time(), children_seconds(), time.monotonic()
        command = [sys.executable, "program.py"]
        options = RehearsalOptions(
            command=command, comparison=Comparison(globs=("result.txt",)), trials=trials, kills=2
        )
        result = rehearse(options._replace(directory=folder))
        own, children = time.process_time() - own, children_seconds() - children
    assert result.survives, result.reasons
    attempts = [attempt for trial in result.trials for attempt in trial.attempts]
    # The two baselines are not among the attempts, and each of them is about as long as the one that is told.
    ran = sum(attempt.seconds for attempt in attempts) + 2 * result.baseline.seconds
    used = sum(attempt.cpu_seconds for attempt in attempts) + 2 * result.baseline.cpu_seconds
    return {
        "program": name,
        "attempts": len(attempts) + 2,
        "program_s": ran,
        "program_cpu_s": used,
        "supervisor_cpu_s": own,
        "keepers_cpu_s": max(0.0, children - used),
        "wall_s": time.monotonic() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=6)
    given = parse(parser)
    trials = given.trials
    rows = []
    for name, work in (("asleep", ASLEEP), ("busy", BUSY)):
        pair = [run(f"{name}, {steps / 10:g} s", work, steps, trials) for steps in (10, 60)]
        short, long = pair
        seconds = float(long["program_s"]) - float(short["program_s"])
        more = [float(long[column]) - float(short[column]) for column in ("supervisor_cpu_s", "keepers_cpu_s")]
        for row in pair:
            row["cpu_percent_while_running"] = round(100 * sum(more) / seconds, 2)
            ours = float(row["supervisor_cpu_s"]) + float(row["keepers_cpu_s"])
            row["cpu_ms_per_attempt"] = round(1000 * ours / int(row["attempts"]), 1)
            rows.append({key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()})
    publish("rehearse_overhead", rows, record=given.record, goal_cpu_percent=2, trials=trials)


if __name__ == "__main__":
    main()
