"""What can be typed after ``stayfast``: name, module, group, and the one line that ``--help`` shows.

A command module has ``configure(parser)`` and ``run(args) -> int``; nothing of it is imported before it is needed. One
that an installed package adds to the entry points ``stayfast.commands`` has its line itself, in ``SUMMARY``.
``--help`` does not list it, since looking for it would cost more than printing the rest.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from stayfast.registry import Registry


class Command(NamedTuple):
    """One row of the table."""

    name: str
    module: str
    group: str
    summary: str


COMMANDS: tuple[Command, ...] = (
    Command("demo", "stayfast.cli.demo", "First", "the whole story on this machine, in under a minute"),
    Command("init", "stayfast.cli.init", "First", "a working project to start from: train or batch"),
    Command("exec", "stayfast.cli.exec", "In the pod", "run any program under the exit contract, as PID 1"),
    Command(
        "rehearse",
        "stayfast.cli.rehearse",
        "Before the cluster",
        "interrupt a program at the worst moments, verify the result",
    ),
    Command("checkpoints", "stayfast.cli.checkpoints", "Runs", "list, verify or prune the checkpoints of a run"),
    Command("bill", "stayfast.cli.bill", "Runs", "what a run has cost, per useful step"),
    Command("dashboard", "stayfast.cli.dashboard", "Runs", "runs, checkpoints, queues and money in a browser"),
    Command("enqueue", "stayfast.cli.enqueue", "Batch", "put items into a queue, once per key"),
    Command("work", "stayfast.cli.work", "Batch", "run workers: lease, compute, record, acknowledge"),
    Command("queue", "stayfast.cli.queue", "Batch", "what is left, what died and why, another try"),
    Command("audit", "stayfast.cli.audit", "Batch", "prove that every item is accounted for"),
    Command("doctor", "stayfast.cli.doctor", "Before the cluster", "does SIGTERM reach the program, and what follows"),
    Command("plan", "stayfast.cli.plan", "Plan", "which capacity for a workload, why, what it costs, when it ends"),
    Command("simulate", "stayfast.cli.simulate", "Plan", "replay recorded capacity through policies"),
    Command("prices", "stayfast.cli.prices", "Plan", "what machines cost; refresh the catalogue"),
    Command("render", "stayfast.cli.render", "Before the cluster", "manifests, node pools and alerts for a workload"),
    Command(
        "check-cluster", "stayfast.cli.check_cluster", "Cluster", "what this cluster can do: Spot, flex-start, grace"
    ),
    Command("submit", "stayfast.cli.submit", "Cluster", "plan, render, lint, check, apply; twice changes nothing"),
    Command("status", "stayfast.cli.status", "Cluster", "runs, attempts, interruptions, checkpoints, money"),
    Command("explain", "stayfast.cli.explain", "Cluster", "why a workload does not run, and what to do"),
    Command("watch", "stayfast.cli.watch", "Cluster", "live view, alerts, metrics, and a few named actions"),
    Command("logs", "stayfast.cli.logs", "Cluster", "what the pods of a run have printed"),
    Command("cancel", "stayfast.cli.cancel", "Cluster", "end a run's pods; its checkpoints stay"),
    Command("lint", "stayfast.cli.lint", "Before the cluster", "what Spot and flex-start would do to these manifests"),
    Command("completion", "stayfast.cli.completion", "Shell", "what the Tab key needs: for bash, zsh or fish"),
)

MODULES: Registry[ModuleType] = Registry("stayfast.commands", {command.name: command.module for command in COMMANDS})


def find_command(name: str) -> Command | None:
    """A row of the table, or the command that an installed package adds under this name."""
    row = next((command for command in COMMANDS if command.name == name), None)
    if row is None and (module := MODULES.find(name)) is not None:
        return Command(name, module.__name__, "Added", module.SUMMARY)
    return row
