"""Every goal of every benchmark, beside what was measured: the one place where a goal is written down.

A benchmark prints its goals at the end; ``tools/make_figures.py`` writes all of them, met or missed, into the pages.
A goal that is missed stays here. One that was wrong is replaced in a commit that says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Report = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    """A measured value and its bound."""

    what: str
    value: float
    sign: str
    bound: float
    unit: str = ""

    @property
    def met(self) -> bool:
        """Judged by the value as measured, not as it is printed."""
        return self.value <= self.bound if self.sign == "≤" else self.value >= self.bound


def checkpoint_gpu(report: Report) -> list[Goal]:
    us, raw, peers = report["stayfast"], report["floors"], report["peers"]
    goals = [
        Goal("stall added by one overlapped save", us["overlapped"]["added_seconds"], "≤", 0.005, "s"),
        Goal("stall of a save that is not overlapped / raw copy", us["stall_seconds"] / raw["copy_seconds"], "≤", 1.1),
        Goal("durable / raw write", us["durable_seconds"] / raw["write_seconds"], "≤", 1.1),
        Goal("full save / save with 1 % changed", us["durable_seconds"] / us["lora_durable_seconds"], "≥", 20),
        Goal("verified restore, warm cache", us["restore_warm_seconds"], "≤", 0.45, "s"),
        Goal(
            "verified restore, cold / raw read", us["restore_cold_seconds"] / us["floor_cold_read_seconds"], "≤", 1.15
        ),
    ]
    durable = [row["durable_seconds"] for row in peers.values() if "durable_seconds" in row]
    if durable:
        goals.append(Goal("best peer / stayfast, durable", min(durable) / us["durable_seconds"], "≥", 2.5))
    mmap_load = peers.get("torch.save", {}).get("restore_warm_seconds")
    if mmap_load:
        goals.append(Goal("torch.load(mmap) / stayfast, restore", mmap_load / us["restore_warm_seconds"], "≥", 2))
    return goals


def checkpoint_cpu(report: Report) -> list[Goal]:
    """Each ratio is the median of its rounds: what stands in one round was measured within seconds of each other."""
    rounds = report["all"]

    def goal(what: str, over: str, under: str, sign: str, bound: float) -> Goal:
        ratios = [a / b for a, b in zip(rounds[over], rounds[under], strict=True)]
        return Goal(what, statistics.median(ratios), sign, bound)

    copies = [name for name in rounds if name.startswith("memcpy")]  # one row until 2026-11-15, two since
    return [
        goal("durable / raw write", "stayfast durable", "raw write+fsync", "≤", 1.3),
        goal("torch.save with fsync / durable", "torch.save+fsync", "stayfast durable", "≥", 1.5),
        *(goal(f"stall / {name}", "stayfast stall", name, "≤", 1.3) for name in copies),
        goal("full save / save with 1 % changed", "stayfast durable", "stayfast durable, 1 % changed", "≥", 20),
    ]


def queue_speed(report: Report) -> list[Goal]:
    chunks = {(_name(row), row["who"]): row for row in report["rows"] if not row["setting"].endswith("chunk 1")}
    singles = {row["who"]: row for row in report["rows"] if row["setting"].endswith("chunk 1")}
    sqlite = chunks["sqlite", "stayfast"]["items_per_second"]
    goals = [Goal("SQLite, chunks of 100 / plain loop", chunks["sqlite", "stayfast"]["of_plain_loop"], "≥", 0.5)]
    for name, bound in (("huey", 10), ("celery", 20), ("dramatiq", 20)):
        if ("peer", name) in chunks:
            peer = chunks["peer", name]["items_per_second"]
            goals.append(Goal(f"SQLite, chunks of 100 / {name}", sqlite / peer, "≥", bound))
    alone = singles["stayfast, nothing ahead"]["of_plain_loop"]
    goals += [
        Goal("SQLite, chunks of 1 / plain loop", singles["stayfast"]["of_plain_loop"], "≥", 0.6),
        Goal("SQLite, chunks of 1, one commit each / plain loop", alone, "≥", 0.6),
    ]
    others = (("postgresql", "PostgreSQL", 0.5), ("pub/sub emulator", "Pub/Sub emulator", 0.6))
    for key, name, bound in others:
        if (key, "stayfast") in chunks:
            goals.append(Goal(f"{name} / plain loop", chunks[key, "stayfast"]["of_plain_loop"], "≥", bound))
    peers = (
        ("postgresql", "pgqueuer, batch 100", "PostgreSQL / pgqueuer", 2),
        ("pub/sub emulator", "official streaming client", "Pub/Sub emulator / streaming client", 1),
    )
    for key, who, what, bound in peers:
        if (key, who) in chunks:
            rate = chunks[key, "stayfast"]["items_per_second"] / chunks[key, who]["items_per_second"]
            goals.append(Goal(what, rate, "≥", bound))
    for key, name in (("sqlite", "SQLite"), *(other[:2] for other in others)):
        if (key, "stayfast") in chunks:
            cost = chunks[key, "stayfast"]["cpu_us_per_item"]
            goals.append(Goal(f"queue, CPU per item, {name}", cost, "≤", 25, "µs"))
    return goals


def _name(row: Report) -> str:
    return str(row["setting"].partition(",")[0])


def notice_latency(report: Report) -> list[Goal]:
    rows = {row["case"]: row for row in report["rows"]}
    busy = ("main thread busy in Python", "main thread and 4 more busy in Python")
    stamped = rows["C code holds the interpreter (about 0.2 s)"]["stamp_error_max_ms"]
    return [
        *(Goal(f"notice seen, p99, {case}", rows[case]["seen_p99_ms"], "≤", 50, "ms") for case in busy),
        Goal("notice stamped while C code holds the interpreter, worst", stamped, "≤", 5, "ms"),
    ]


def exec_overhead(report: Report) -> list[Goal]:
    rows = {row["command"]: row["median_ms"] for row in report["rows"]}
    bare = rows["bare: python -c pass"]
    return [
        Goal("import stayfast, over a bare Python", rows["python -c 'import stayfast'"] - bare, "≤", 50, "ms"),
        Goal("stayfast --version", rows["stayfast --version"], "≤", 150, "ms"),
        Goal("stayfast --help", rows["stayfast --help"], "≤", 150, "ms"),
        Goal("stayfast exec -- true", rows["stayfast exec -- true"], "≤", 100, "ms"),
        Goal("memory of stayfast exec", report["exec_peak_mb"], "≤", 30, "MB"),
    ]


def steps_overhead(report: Report) -> list[Goal]:
    rows = [row for row in report["rows"] if row["loop"] != "bare range"]
    return [Goal(f"{row['loop']}, over a bare loop, per step", row["over_bare_us"], "≤", 1, "µs") for row in rows]


def bucket_upload(report: Report) -> list[Goal]:
    ours = {name: row for name, row in report["rows"].items() if name != "raw PUT"}
    return [Goal(f"upload to {name} / raw parallel PUTs", row["of_raw"], "≥", 0.8) for name, row in ours.items()]


def policy(report: Report) -> list[Goal]:
    kinds = {"single": "single zone", "free": "free choice"}
    whole = [row for row in report["summary"] if row["job"] == "all"]
    missed = sum(row["missed"] for row in report["rows"])
    return [
        *(
            Goal(f"cost over the optimum / uniform progress, {kinds[r['kind']]}", r["ratio"], "≤", r["goal"])
            for r in whole
        ),
        Goal("deadlines that greedy met and ours did not", missed, "≤", 0),
    ]


def replay_speed(report: Report) -> list[Goal]:
    rows = [row for row in report["rows"] if row["policy"] != "optimum"]  # a bound to compare with, no policy
    slowest = min(rows, key=lambda row: row["windows_per_cpu_second"])
    what = f"windows per CPU second, slowest policy ({slowest['policy']})"
    return [Goal(what, slowest["windows_per_cpu_second"], "≥", report["goal"])]


def plan_speed(report: Report) -> list[Goal]:
    slowest = max(row["wall_seconds"] for row in report["rows"])
    return [
        Goal("stayfast plan, 10,000 replays, slowest workload", slowest, "≤", 3, "s"),
        Goal("memory of stayfast plan", max(row["memory_mb"] for row in report["rows"]), "≤", 500, "MB"),
    ]


def queue_limits(report: Report) -> list[Goal]:
    rows = report["rows"]
    return [
        Goal(row["what"], row["value"], "≥" if row["unit"] == "items/s" else "≤", row["goal"], row["unit"])
        for row in rows
    ]


def dashboard(report: Report) -> list[Goal]:
    rows = [row for row in report["rows"] if row["goal"] != "-"]
    return [Goal(f"dashboard: {row['what']}", row["value"], "≤", row["goal"], row["unit"]) for row in rows]


def rehearse_overhead(report: Report) -> list[Goal]:
    most = max(row["cpu_percent_while_running"] for row in report["rows"])
    return [Goal("CPU of stayfast rehearse beside a program", most, "≤", report["goal_cpu_percent"], "%")]


def sync_overhead(report: Report) -> list[Goal]:
    watching = [row["cpu_percent"] for row in report["rows"]]
    late = [row["worst_s_to_store"] for row in report["rows"] if row["worst_s_to_store"] != "-"]
    return [
        Goal("CPU of exec --sync", max(watching), "≤", report["goal_cpu_percent"], "%"),
        Goal("from a finished file to its copy, worst", max(late), "≤", report["goal_seconds"], "s"),
    ]


def lint_speed(report: Report) -> list[Goal]:
    ours, parsing = report["results"]["stayfast lint"], report["results"]["compose only, no rules"]
    beyond = (ours["cpu_seconds"] - parsing["cpu_seconds"]) / parsing["cpu_seconds"]
    return [
        Goal(f"stayfast lint, {report['files']} files", ours["wall_seconds"], "≤", 1.5, "s"),
        Goal("stayfast lint without parsing / parsing, CPU", beyond, "≤", 3),
    ]


def status_speed(report: Report) -> list[Goal]:
    row = next(row for row in report["rows"] if row["what"].startswith("stayfast status"))
    what = f"stayfast status, {row['pods']:,} pods"
    return [
        Goal(what, row["wall_seconds"], "≤", 2, "s"),
        Goal(f"memory of {what}", row["megabytes"], "≤", 200, "MB"),
    ]


def watch_cpu(report: Report) -> list[Goal]:
    most = max(row["cpu_percent"] for row in report["rows"])
    return [Goal("CPU of stayfast watch at 50 events/s", most, "≤", 2, "%")]


GOALS: dict[str, Callable[[Report], list[Goal]]] = {
    "checkpoint_gpu": checkpoint_gpu,
    "checkpoint_cpu": checkpoint_cpu,
    "queue_speed": queue_speed,
    "queue_limits": queue_limits,
    "bucket_upload": bucket_upload,
    "notice_latency": notice_latency,
    "steps_overhead": steps_overhead,
    "exec_overhead": exec_overhead,
    "sync_overhead": sync_overhead,
    "rehearse_overhead": rehearse_overhead,
    "policy": policy,
    "replay_speed": replay_speed,
    "plan_speed": plan_speed,
    "lint_speed": lint_speed,
    "status_speed": status_speed,
    "watch_cpu": watch_cpu,
    "dashboard": dashboard,
}
"""By the name of the benchmark."""
