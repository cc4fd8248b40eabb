"""How long does it take to lint a folder of manifests? stayfast beside kubernetes-validate and checkov.

    python benchmarks/lint_speed.py FOLDER [--repeats 5] [--record]

Peers that are not on PATH are left out. Runs are interleaved; the table shows the median wall and CPU seconds of whole
commands, start-up included, and the ratio to parsing alone (the same files, PyYAML's CSafeLoader, no rules).
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from reporting import machine, parse, write

PLAIN = """
import sys, yaml
for name in sys.argv[1:]:
    try:
        list(yaml.compose_all(open(name), Loader=yaml.CSafeLoader))
    except yaml.YAMLError:
        pass
"""


def commands(folder: str, files: list[str]) -> dict[str, list[str]]:
    """What is measured, by name."""
    lint = [sys.executable, "-c", "import sys; from stayfast.cli.main import main; sys.exit(main(sys.argv[1:]))"]
    found = {
        "compose only, no rules": [sys.executable, "-c", PLAIN, *files],
        "stayfast lint": [*lint, "lint", "--format", "json", folder],
    }
    if path := shutil.which("kubernetes-validate"):
        found["kubernetes-validate"] = [path, "--strict", *files]
    if path := shutil.which("checkov"):
        found["checkov"] = [path, "--quiet", "--compact", "--framework", "kubernetes", "-d", folder]
    if path := shutil.which("kube-linter"):
        found["kube-linter"] = [path, "lint", folder]
    return found


def measure(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parse(parser)
    files = sorted(str(path) for path in Path(arguments.folder).rglob("*") if path.suffix in (".yaml", ".yml"))
    measured = commands(arguments.folder, files)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
    for _ in range(arguments.repeats):
        for name, command in measured.items():
            times[name].append(measure(command))
    size = sum(Path(name).stat().st_size for name in files)
    rows = {
        name: {
            "wall_seconds": statistics.median(wall for wall, _ in runs),
            "cpu_seconds": statistics.median(cpu for _, cpu in runs),
        }
        for name, runs in times.items()
    }
    parsing = rows["compose only, no rules"]["cpu_seconds"]
    print(f"{len(files)} files, {size / 1e6:.2f} MB, median of {arguments.repeats}")
    print(f"{'':24}{'wall s':>9}{'CPU s':>9}{'CPU / parsing':>13}")
    for name, row in rows.items():
        print(f"{name:24}{row['wall_seconds']:9.2f}{row['cpu_seconds']:9.2f}{row['cpu_seconds'] / parsing:13.1f}")
    write("lint_speed", {**machine(), "files": len(files), "bytes": size, "results": rows}, record=arguments.record)


if __name__ == "__main__":
    main()
