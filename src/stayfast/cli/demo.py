"""``stayfast demo``: the whole story on this machine, in under a minute."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from stayfast.cli.main import FINDINGS, OK, add_output
from stayfast.errors import UsageError
from stayfast.proof.demo.storm import DemoSettings, StormDemo


def configure(parser: argparse.ArgumentParser) -> None:
    defaults = DemoSettings()
    parser.epilog = """\
examples:
  stayfast demo --kills 30 --seed 7
  stayfast demo --keep storm && stayfast dashboard storm

A batch of image features and a training run work while their processes get SIGTERM and SIGKILL at random; both are
started again as Kubernetes would. At the end everything is counted: no item lost, none recorded twice, and weights
that equal those of an uninterrupted run to the last bit. Exit 0 if so, 1 if not."""
    parser.add_argument("--items", type=int, default=defaults.items, metavar="N", help="images (default: %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=defaults.workers, metavar="N", help="workers (default: %(default)s)"
    )
    parser.add_argument(
        "--kills", type=int, default=defaults.kills, metavar="N", help="interruptions (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=int, default=defaults.steps, metavar="N", help="training steps (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=defaults.seed, metavar="S", help="of the storm (default: %(default)s)"
    )
    parser.add_argument("--keep", metavar="DIR", help="leave runs, queue and logs there, for `stayfast dashboard DIR`")
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    for name, lowest in (("items", 1), ("workers", 1), ("kills", 0), ("steps", 1)):
        if getattr(arguments, name) < lowest:
            raise UsageError(f"--{name} {getattr(arguments, name)} is too small", help=f"use at least {lowest}")
    settings = DemoSettings(arguments.items, arguments.workers, arguments.kills, arguments.seed, arguments.steps)
    with _place(arguments.keep) as folder:
        story = StormDemo(settings, Path(folder))
        for number in (signal.SIGTERM, signal.SIGINT):  # looked at between starts, so that no process is left running
            signal.signal(number, lambda got, _: story.stop(got))
        result = _watched(story) if sys.stderr.isatty() else story.run(_lines())
    proved = result["lost"] == 0 and result["duplicates"] == 0 and result["bit_identical"]
    if arguments.output == "json":
        print(json.dumps(result, indent=2))
    else:
        print(_ending(result, proved, arguments.keep))
    return OK if proved else FINDINGS


def _place(keep: str | None) -> AbstractContextManager[str]:
    """A folder that goes away, or the one to keep, which must be new: runs of two demos under one name would mix."""
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="stayfast-demo-")
    folder = os.path.abspath(keep)
    try:
        os.makedirs(folder, exist_ok=True)
        if os.listdir(folder):
            raise UsageError(f"{keep} is not empty", help="name a new directory")
    except OSError as error:
        raise UsageError(
            f"{keep} cannot be used: {error.strerror or error}", help="name a directory that can be made"
        ) from error
    return contextlib.nullcontext(folder)


def _lines() -> Callable[[StormDemo], None]:
    """Off a terminal: one line every few seconds."""
    last = 0.0

    def show(story: StormDemo) -> None:
        nonlocal last
        if time.monotonic() - last >= 3.0:
            last = time.monotonic()
            print(
                f"{story.seconds:5.1f} s  {story.recorded()} of {story.settings.items} images recorded, "
                f"step {story.step} of {story.settings.steps}, {len(story.kills)} interruptions",
                file=sys.stderr,
                flush=True,
            )

    return show


def _watched(story: StormDemo) -> dict[str, Any]:
    """On a terminal: a live picture."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    def picture() -> Group:
        table = Table.grid(padding=(0, 2))
        done, steps = story.recorded(), story.step
        table.add_row("images", ProgressBar(story.settings.items, done, width=40), f"{done} of {story.settings.items}")
        table.add_row("training", ProgressBar(story.settings.steps, steps, width=40), f"step {steps}")
        pods = Text("  ".join(f"{pod.name} #{pod.starts}{' ✓' if pod.finished else ''}" for pod in story.pods))
        storm = [Text(f"{at:6.1f} s  {name} → {who}", style="red") for at, who, name in story.kills[-5:]]
        return Group(table, pods, *storm)

    with Live(console=Console(stderr=True), refresh_per_second=8, transient=True) as live:
        return story.run(lambda _: live.update(picture()))


def _ending(result: dict[str, Any], proved: bool, kept: str | None) -> str:
    verdict = "nothing lost, nothing doubled, the same weights" if proved else "THE PROOF FAILED: please report this"
    again = f"{result['computed_again']} were computed again after a kill, none written twice"
    weights = "bit-identical to an uninterrupted run" if result["bit_identical"] else "DIFFERENT"
    money = f"${result['training_lost_usd']:.4f} at ${result['usd_per_hour']}/h"
    return f"""\
{result["kills"]} interruptions ({result["sigterm"]} SIGTERM, {result["sigkill"]} SIGKILL) \
in {result["seconds"]:.0f} s, {result["attempts"]} process starts

  images recorded     {result["recorded"]} of {result["items"]}
  items lost          {result["lost"]}
  recorded twice      {result["duplicates"]}   ({again})
  weights             {weights} ({result["weights"]}…)
  steps run again     {result["steps_repeated"]} of {result["steps"]}
  time lost           {result["training_lost_seconds"]:.1f} s of training, {money}

{verdict}

next: {_next(kept)}"""


def _next(kept: str | None) -> str:
    if kept is not None:
        return f"stayfast dashboard {shlex.quote(kept)}     what happened, attempt by attempt, in a browser"
    return """stayfast init train my-run              a project to kill and to start again
      stayfast rehearse -- python train.py    the same storm for a program of your own, and a verdict"""
