"""What ``run.steps()`` costs per step over a bare ``range`` loop; goal: at most 1 µs.

python benchmarks/steps_overhead.py [--steps 300000] [--repeats 9]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

from reporting import SOURCE, parse, publish

sys.path.insert(0, str(SOURCE))

import stayfast
from stayfast.settings import Settings


def seconds(loop: Iterable[int]) -> float:
    started = time.perf_counter()
    for _ in loop:
        pass
    return time.perf_counter() - started


def through_run(url: str | None, steps: int) -> float:
    with stayfast.run(url, steps, settings=Settings(metadata="off", outcome_file="/dev/null")) as run:
        return seconds(run.steps())


def with_should_stop(steps: int) -> float:
    with stayfast.run(settings=Settings(metadata="off", outcome_file="/dev/null")) as run:
        started = time.perf_counter()
        for step in range(steps):
            if run.should_stop(step):
                break
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=9)
    options = parse(parser)
    steps = options.steps
    with tempfile.TemporaryDirectory() as directory:
        kinds: dict[str, Callable[[int], float]] = {
            "bare range": lambda _: seconds(range(steps)),
            "run.steps(), no URL": lambda _: through_run(None, steps),
            "run.steps(), file URL": lambda number: through_run(f"file://{directory}/run-{number}", steps),
            "run.should_stop(step)": lambda _: with_should_stop(steps),
        }
        took: dict[str, list[float]] = {kind: [] for kind in kinds}
        for number in range(options.repeats):  # interleaved, so that a busy neighbour hurts all alike
            for kind, measure in kinds.items():
                took[kind].append(measure(number) / steps * 1e6)
    bare = statistics.median(took["bare range"])
    rows = []
    for kind, values in took.items():
        middle = statistics.median(values)
        rows.append(
            {
                "loop": kind,
                "us_per_step": round(middle, 4),
                "over_bare_us": round(middle - bare, 4),
                "ratio_to_bare": round(middle / bare, 2),
                "within_1_us": middle - bare <= 1.0 if "steps()" in kind else "no goal",
            }
        )
    publish("steps_overhead", rows, record=options.record, steps=steps, repeats=options.repeats)


if __name__ == "__main__":
    main()
