"""Write every measured number of README and docs from ``benchmarks/results``; ``--check`` only compares.

A page holds blocks between ``<!-- figures NAME: written by tools/make_figures.py -->`` and ``<!-- end of figures -->``.
What stands between them is made here, with the machine and the date that the result names.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from goals import GOALS, Goal, Report  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(
    r"(<!-- figures ([a-z_ ]+): written by tools/make_figures\.py -->\n).*?(<!-- end of figures -->)", re.S
)


def load(name: str) -> Report:
    """A recorded result."""
    found: Report = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def machine(report: Report) -> str:
    """On what it was measured, as far as the result says."""
    cores = report.get("cpus") or report.get("cores")
    if "gpu" in report:
        return f"one {report['gpu']}, {cores} CPU cores"
    if "machine" in report:
        return str(report["machine"])
    if cores is None:
        return "a machine that the result does not name"
    return f"{cores} CPU cores" + (f" ({report['cpu']})" if "cpu" in report else "")


def date(report: Report) -> str:
    """The day of the measurement."""
    return str(report.get("date") or report.get("measured_at") or "on a day that the result does not name")[:10]


def wrapped(text: str) -> str:
    """A paragraph of the pages' width; code and links stay on one line."""
    whole = re.sub(r"`[^`]+`|\[[^]]+\]\([^)]+\)", lambda found: found[0].replace(" ", "\0"), " ".join(text.split()))
    lines = textwrap.wrap(whole, 118, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["".join(f"| {cell} " if cell else "| " for cell in row) + "|" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def number(goal: Goal) -> str:
    """Three digits, or all that stand before the point; a fourth where three would hide on which side of the bound."""
    value = goal.value
    digits = f"{value:,.0f}" if abs(value) >= 100 or value == 0 else f"{value:#.3g}"
    if not goal.met and float(digits.replace(",", "")) == goal.bound:
        digits = f"{value:#.4g}"
    return f"{digits} {goal.unit}".rstrip()


def bound(goal: Goal) -> str:
    """``≤ 1.15``."""
    return f"{goal.sign} {goal.bound:,g} {goal.unit}".rstrip()


# -- checkpoints


def checkpoint_gpu() -> str:
    report = load("checkpoint_gpu")
    peers, ours, raw = report["peers"], report["stayfast"], report["floors"]
    titles = {
        "torch.save": ("torch.save", " (mmap)"),
        "safetensors": ("safetensors", ""),
        "torch DCP, 8 threads": ("dcp", ""),
        "torch DCP async, thread": ("dcp async thread", ""),
        "torch DCP async, process, cached staging": ("dcp async process", ""),
    }
    rows = [["raw copy, write and read, nothing checked", *_seconds(*(raw[key] for key in raw))]]
    for title, (name, note) in titles.items():
        peer = peers[name]
        cells = _seconds(peer["stall_seconds"], peer["durable_seconds"], peer.get("restore_warm_seconds"))
        rows.append([title, *cells[:2], cells[2] + note if cells[2] else ""])
    overlapped = f"**{ours['overlapped']['added_seconds']:.3f} s** overlapped, {ours['stall_seconds']:.2f} s not"
    restore = f"**{ours['restore_warm_seconds']:.2f} s**, every byte verified"
    rows.append(["**stayfast**, checksummed, committed", overlapped, f"**{ours['durable_seconds']:.1f} s**", restore])
    first = _seconds(ours["first_stall_seconds"], ours["first_durable_seconds"], None)
    rows.append(["**stayfast**, the first save of a process", *first])
    intro = f"""Checkpoints: {report["state_bytes"] / 1e9:.1f} GB of training state, {report["tensors"]} tensors, on
        {machine(report)} and a local disk, all in one run on {date(report)}
        (`python benchmarks/checkpoint_gpu.py --dir DIR`). Ratios carry over to machines like it, seconds do not."""
    head = ["", "stall of the training loop", "durable after", "restore, warm cache"]
    return f"{wrapped(intro)}\n\n{table(head, rows)}"


def _seconds(*values: float | None) -> list[str]:
    return ["" if value is None else f"{value:.2f} s" if value < 2.5 else f"{value:.1f} s" for value in values]


def checkpoint_cpu() -> str:
    report = load("checkpoint_cpu")
    took = report["seconds"]
    names = {
        "raw write+fsync": "raw write of one file, direct, with fsync",
        "stayfast durable": "**stayfast**, durable and committed",
        "stayfast durable, 1 % changed": "**stayfast**, durable, 1 % changed",
        "safetensors+fsync": "safetensors with fsync",
        "torch.save+fsync": "torch.save with fsync",
        "stayfast stall": "**stayfast**, stall of the training loop",
        "memcpy": "memcpy of the same bytes",
        "memcpy, one block": "memcpy of the same bytes, one block",
        "memcpy, each tensor": "memcpy of the same bytes, each tensor",
        "stayfast restore, verified": "**stayfast**, restore, every byte verified",
        "torch.load(mmap) and copy": "torch.load(mmap) and copy, nothing verified",
    }
    rows = [[title, f"{took[name]:.2f}"] for name, title in names.items() if name in took]
    rows.append(["**stayfast**, the first save of a process", f"{report['first_save_seconds']:.2f}"])
    slower = took["stayfast restore, verified"] / took["torch.load(mmap) and copy"]
    intro = f"""{report["state_bytes"] / 1e9:.1f} GB of state on {machine(report)} without a GPU and a local disk, on
        {date(report)}, medians of {report["rounds"]} rounds (`python benchmarks/checkpoint_cpu.py --dir DIR`). Here
        torch.load(mmap) restores faster: ours takes {slower:.1f} times as long, and verifies what it reads."""
    return f"{wrapped(intro)}\n\n{table(['', 'seconds'], rows)}"


# -- goals


def goals() -> str:
    parts = []
    for name in GOALS:
        report = load(name)
        rows = [
            [goal.what, number(goal), bound(goal), "met" if goal.met else "**missed**"] for goal in GOALS[name](report)
        ]
        where = f"`benchmarks/{SCRIPTS.get(name, name)}.py`, {date(report)}, {machine(report)}."
        parts.append(f"{wrapped(where)}\n\n{table(['', 'measured', 'goal', ''], rows)}")
    return "\n\n".join(parts)


SCRIPTS = {"policy": "bench_policy", "replay_speed": "bench_replay"}


def beside_its_goal(goal: Goal) -> str:
    """What was measured, and what was asked for."""
    return f"{goal.what} {number(goal)} (goal {bound(goal)})"


def missed() -> Iterator[tuple[Report, list[Goal]]]:
    """Results with goals that were missed."""
    for name, judge in GOALS.items():
        report = load(name)
        found = [goal for goal in judge(report) if not goal.met]
        if found:
            yield report, found


def missed_goals() -> str:
    total = sum(len(judge(load(name))) for name, judge in GOALS.items())
    by_machine: dict[str, list[str]] = {}
    for report, found in missed():
        on = by_machine.setdefault(machine(report), [])
        on += map(beside_its_goal, found)
    count = sum(map(len, by_machine.values()))
    gpu, cpu = load("checkpoint_gpu"), load("checkpoint_cpu")["seconds"]
    ratio = gpu["stayfast"]["durable_seconds"] / gpu["stayfast"]["lora_durable_seconds"]
    slow, fast = cpu["stayfast restore, verified"], cpu["torch.load(mmap) and copy"]
    ratios = wrapped(
        f"""On the H200 a state of which 1 % changed is durable {ratio:.1f} times faster than a full one. On
        {machine(load("checkpoint_cpu"))} without a GPU torch.load(mmap) restores faster ({fast:.2f} s, ours {slow:.2f}
        s, verified). {count} of {total} goals were missed ([all of them](docs/benchmarks/goals.md)):"""
    )
    where = (wrapped(f"{on}: {'; '.join(items)}.") for on, items in by_machine.items())
    return "\n".join([ratios, "", *("- " + text.replace("\n", "\n  ") for text in where)])


# -- queues


def queue_speed() -> str:
    report = load("queue_speed")
    names = {
        ("sqlite", "plain loop"): "plain loop, SQLite, one durable commit per chunk",
        ("sqlite", "stayfast"): "**stayfast**, SQLite",
        ("peer", "huey"): "huey, SQLite",
        ("peer", "celery"): "celery, Redis",
        ("peer", "dramatiq"): "dramatiq, Redis",
        ("postgresql", "plain loop"): "plain loop, PostgreSQL",
        ("postgresql", "stayfast"): "**stayfast**, PostgreSQL",
        ("postgresql", "pgqueuer, batch 100"): "pgqueuer, PostgreSQL, batches of 100",
        ("pub/sub emulator", "plain loop"): "plain pull loop, Pub/Sub emulator",
        ("pub/sub emulator", "stayfast"): "**stayfast**, Pub/Sub emulator",
        ("pub/sub emulator", "official streaming client"): "Pub/Sub's streaming client, emulator",
    }
    chunks = {(row["setting"].partition(",")[0], row["who"]): row for row in report["rows"] if _chunk(row) != 1}
    single = {row["who"]: row["items_per_second"] for row in report["rows"] if _chunk(row) == 1}
    rows = [
        [title, f"{chunks[key]['items_per_second']:,.0f}", f"{chunks[key]['cpu_us_per_item']:,.0f}"]
        for key, title in names.items()
    ]
    intro = f"""Queues: items per second of one worker that does nothing but one UPSERT per item, chunks of 100, on
        {machine(report)}, all in one run on {date(report)} (`python benchmarks/queue_speed.py --peers PYTHON`, medians
        of {report["repeats"]}, interleaved; the peers with the settings that lose nothing when a worker is killed,
        their commits one per item). The plain loop is the shortest synchronous loop with the same durability on the
        same database. It is not a bound."""
    end = f"""Chunks of one item: {single["stayfast"]:,.0f} items/s on SQLite, because short calls share a commit; with
        a commit for each item (`--prefetch 0`) {single["stayfast, nothing ahead"]:,.0f}, where the plain loop makes
        {single["plain loop"]:,.0f}."""
    return f"{wrapped(intro)}\n\n{table(['', 'items/s', 'CPU µs per item'], rows)}\n\n{wrapped(end)}"


def _chunk(row: dict[str, Any]) -> int:
    return 1 if row["setting"].endswith("chunk 1") else 100


# -- plans


def policy() -> str:
    report = load("policy")
    lines = []
    for row in report["rows"]:
        before, ours = row["uniform-progress"], row["stayfast"]
        ratio = ours / before if before > 1e-6 else float("nan")
        trace = row["trace"] if "free" in row["kind"] else "/".join(row["trace"].split("/")[-2:])
        lines.append(
            f"{row['job']:<14}{trace:<40}{row['nodes']:>3}  optimum {row['optimum']:.3f}  greedy +{row['greedy']:.4f}  "
            f"uniform +{before:.4f}  stayfast +{ours:.4f}  ratio {ratio:.2f}  missed {row['missed']}"
        )
    for row in report["summary"]:
        job = "all jobs" if row["job"] == "all" else row["job"]
        lines.append(
            f"{row['kind']:<7}{job:<14} uniform +{row['uniform-progress']:.4f}  stayfast +{row['stayfast']:.4f}  "
            f"ratio {row['ratio']:.3f}  goal {row['goal']}"
        )
    intro = f"""`python benchmarks/bench_policy.py TRACES --windows {report["windows"]} --seed {report["seed"]}`,
        {date(report)}, {machine(report)}. Mean gap to the optimum in hindsight, as a share of what the work costs on
        on-demand; regimes fitted without the replayed trace (free choice: without any GCP trace). `missed`: deadlines
        that greedy met and ours did not."""
    return f"{wrapped(intro)}\n\n```\n{chr(10).join(lines)}\n```"


def replay_speed() -> str:
    report = load("replay_speed")
    by_policy: dict[str, dict[str, dict[str, float]]] = {}
    for row in report["rows"]:
        by_policy.setdefault(row["policy"], {})[row["trace"].split("/")[-1]] = row
    traces = list(next(iter(by_policy.values())))
    rows = []
    for name, found in by_policy.items():
        plain = [row["plain_engine"] for row in found.values()]
        fast = [f"{found[trace]['windows_per_cpu_second']:,.0f}" for trace in traces]
        rows.append([name, *fast, f"{min(plain):,.0f} to {max(plain):,.0f}"])
    slowest = max(row["once_per_scenario_seconds"] for row in by_policy["stayfast"].values())
    intro = f"""`python benchmarks/bench_replay.py --traces TRACES`, {date(report)}, {machine(report)}. Windows of 60 h
        in 10-minute ticks (48 h of work), {report["windows"]:,} at once, per CPU second of one core; medians of 5. The
        goal of {report["goal"]:,} is for policies. The optimum is not a policy: it solves a program for every window.
        What stayfast looks up is solved once per scenario, in {slowest:.2f} s at most, before the clock of the
        benchmark runs."""
    return f"{wrapped(intro)}\n\n{table(['policy', *traces, 'plain engine'], rows)}"


def plan_speed() -> str:
    report = load("plan_speed")
    wall_goal, memory_goal = GOALS["plan_speed"](report)

    def span(key: str) -> str:
        values = [row[key] for row in report["rows"]]
        return f"{min(values):.1f} to {max(values):.1f}"

    return wrapped(
        f"""`stayfast plan` with {report["replays"]:,} replays, the whole command (`python benchmarks/plan_speed.py`,
        {date(report)}, {machine(report)}): {span("wall_seconds")} s of wall time (goal {bound(wall_goal)}),
        {span("cpu_seconds")} CPU seconds and {memory_goal.value:.0f} MB (goal {bound(memory_goal)}), from one L4 to 16
        x 8 H100, with and without the page."""
    )


# -- the command line, the cluster and the stores


def lint_speed() -> str:
    found = load("lint_speed")
    names = {
        "compose only, no rules": "parsing alone: PyYAML's CSafeLoader composes the files, no rules",
        "stayfast lint": "`stayfast lint`",
        "checkov": "checkov 3.3.30, Kubernetes checks only",
        "kubernetes-validate": "kubernetes-validate 1.37.0, strict",
    }
    cpu = {name: found["results"][name]["cpu_seconds"] for name in names}
    base = cpu["compose only, no rules"]
    rows = [[title, f"{cpu[name]:.2f}", f"{cpu[name] / base:.1f}"] for name, title in names.items()]
    head = wrapped(
        f"""Whole commands with start-up, `benchmarks/lint_speed.py` on that corpus ({found["files"]} files,
        {found["bytes"] / 1e6:.1f} MB), {date(found)}, {machine(found)} at a load average of
        {found["load_average"][0]:g}:"""
    )
    return f"{head}\n\n{table(['', 'CPU s', 'times parsing alone'], rows)}"


def dashboard() -> str:
    report = load("dashboard")
    found = {row["what"]: row for row in report["rows"]}

    def figure(what: str, digits: int) -> str:
        row = found[what]
        goal = "" if row["goal"] == "-" else f" (goal {row['goal']:g} {row['unit']})"
        return f"{row['value']:.{digits}f} {row['unit']}{goal}"

    return wrapped(
        f"""{report["runs"]} runs with {report["runs"] * report["checkpoints"]:,} checkpoints, on {machine(report)}
        that other programs kept busy, {date(report)}: the overview stood on the screen after
        {figure("overview on the screen", 1)}; the server used {figure("CPU, nobody watching", 1)} of a core with no
        viewer and {figure("CPU, 50 viewers, nothing new", 1)} with {report["viewers"]}; a commit reached all of them
        in {figure("from commit to 50 viewers, median", 1)} ([all numbers](../../benchmarks/results/dashboard.json),
        `python benchmarks/dashboard.py`)."""
    )


def sync_overhead() -> str:
    report = load("sync_overhead")
    rows = {row["case"]: row for row in report["rows"]}
    rare = [rows[name]["cpu_percent"] for name in rows if "asleep" in name or "1 MB" in name]
    often, big = rows["sync, 100 kB replaced every 0.5 s"], rows["sync, 50 MB replaced every 5 s"]
    return wrapped(
        f"""Measured on {machine(report)} that other programs kept busy, {date(report)}, against a local store
        (`python benchmarks/sync_overhead.py`): {max(rare):.2f} % of a core at most beside a program that sleeps or
        saves 1 MB every 5 s, {often["cpu_percent"]:.1f} % beside one that replaces a file every 0.5 s (goal
        {report["goal_cpu_percent"]} %), {often["peak_mb"]:.0f} MB of memory ({big["peak_mb"]:.0f} MB while 50 MB are
        uploaded). `exec` without `--sync` loads nothing of it."""
    )


def bucket_upload() -> str:
    report = load("bucket_upload")
    how = report["options"]
    rows = [(name, row["of_raw"]) for name, row in report["rows"].items() if name != "raw PUT"]
    ratios = " and ".join(f"`{name}` {ratio:.2f} x raw" for name, ratio in rows)
    return wrapped(
        f"""Against raw parallel PUTs (`benchmarks/bucket_upload.py`, {how["parts"]} parts of {how["part_mib"]} MiB,
        {how["threads"]} threads, median of {how["repeats"]}, {date(report)}, {machine(report)}, while other programs
        used it): {ratios} (goal {bound(GOALS["bucket_upload"](report)[0])}). The server is Python and takes most of
        the time; the ratios mean something, the rates do not."""
    )


def status_speed() -> str:
    report = load("status_speed")
    row = next(row for row in report["rows"] if row["what"].startswith("stayfast status"))
    return wrapped(
        f"""`status` on {row["pods"]:,} pods: {row["wall_seconds"]:.1f} s and {row["megabytes"]:.0f} MB
        (`benchmarks/status_speed.py`, {date(report)}, {machine(report)}, against a local API server)."""
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "checkpoint gpu": checkpoint_gpu,
    "checkpoint cpu": checkpoint_cpu,
    "goals": goals,
    "readme": lambda: f"{checkpoint_gpu()}\n\n{missed_goals()}",
    "queue speed": queue_speed,
    "policy": policy,
    "replay speed": replay_speed,
    "plan speed": plan_speed,
    "lint speed": lint_speed,
    "dashboard": dashboard,
    "sync overhead": sync_overhead,
    "bucket upload": bucket_upload,
    "status speed": status_speed,
}
"""By the name in the marker: that of a result, or of a summary."""


def block(name: str) -> str:
    """What stands between the markers: the figures of a result, then the goals that it missed."""
    result = name.replace(" ", "_")
    found = [goal for goal in GOALS[result](load(result)) if not goal.met] if result in GOALS else []
    missing = "; ".join(map(beside_its_goal, found))
    return BLOCKS[name]() + (f"\n\n{wrapped(f'Missed goals: {missing}.')}" if found else "")


def pages() -> list[Path]:
    """All that may hold figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main(arguments: list[str]) -> int:
    """Write or check; 1 when a page differs from the results, or a block is on no page."""
    used, stale = set(), []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        used |= {name for _, name, _ in BLOCK.findall(text)}
        fresh = BLOCK.sub(lambda found: f"{found[1]}\n{block(found[2])}\n\n{found[3]}", text)
        if fresh != text:
            stale.append(str(page.relative_to(ROOT)))
            if "--check" not in arguments:
                page.write_text(fresh, encoding="utf-8")
    for name in BLOCKS.keys() - used:
        print(f"no page shows the figures {name!r}", file=sys.stderr)
    for name in stale if "--check" in arguments else ():
        print(f"{name} differs from benchmarks/results; run: python tools/make_figures.py", file=sys.stderr)
    return int(bool(BLOCKS.keys() - used) or ("--check" in arguments and bool(stale)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
