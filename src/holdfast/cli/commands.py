"""What can be typed after ``holdfast``: name, module, group, and the one line that ``--help`` shows.

A command module has ``configure(parser)`` and ``run(args) -> int``; nothing of it is imported before it is needed.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """One row of the table."""

    name: str
    module: str
    group: str
    summary: str


COMMANDS: tuple[Command, ...] = (
    Command("exec", "holdfast.cli.exec", "In the pod", "run any program under the exit contract, as PID 1"),
    Command(
        "simulate", "holdfast.cli.simulate", "Plan", "replay recorded capacity through policies: cost, finish time"
    ),
    Command("lint", "holdfast.cli.lint", "Before the cluster", "what Spot and flex-start would do to these manifests"),
)
