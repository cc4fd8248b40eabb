"""``stayfast exec``: put it in front of any command in a pod."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from stayfast.errors import UsageError
from stayfast.runtime.exec.supervisor import Supervisor, run_done_check
from stayfast.settings import read_settings


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "stayfast exec [--sync DIR=URL]... [--done-file FILE | --done-check CMD] -- CMD..."
    parser.epilog = """\
examples:
  stayfast exec -- python train.py
  stayfast exec -- torchrun --nproc_per_node=8 train.py
  stayfast exec --done-file out/DONE -- ./simulate.sh
  stayfast exec --sync ./ckpt=gs://bucket/run -- ./train.sh

Leaves with 0 when CMD finished, 75 when it was interrupted and can be resumed, and CMD's own code when it failed.
A CMD that says 0 after a notice is believed only if --done-file or --done-check says it is finished.
With --sync the newest good copy of DIR is brought back before CMD starts, finished files are copied while it runs, and
once more at its end, inside the grace window; a copy is complete or invisible."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--done-file", metavar="FILE", help="finished means: this file exists")
    group.add_argument("--done-check", metavar="CMD", help="finished means: this shell command exits 0")
    parser.add_argument(
        "--sync", metavar="DIR=URL", action="append", default=[], help="keep this directory in a store; may be repeated"
    )
    parser.add_argument(
        "--sync-keep", metavar="N", type=int, default=2, help="how many copies to keep of each directory (default: 2)"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD...", help="the program, unchanged")


def run(arguments: argparse.Namespace) -> int:
    command = arguments.command
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise UsageError("there is no command to run", help="write: stayfast exec -- python train.py")
    is_done: Callable[[float], bool] | None = None
    if arguments.done_file:
        is_done = lambda _seconds: os.path.exists(arguments.done_file)  # noqa: E731
    elif arguments.done_check:
        is_done = lambda seconds: run_done_check(arguments.done_check, seconds)  # noqa: E731
    settings = read_settings()
    if not arguments.sync:
        return Supervisor(command, settings, is_done=is_done).run()
    if arguments.sync_keep < 1:
        raise UsageError(f"--sync-keep {arguments.sync_keep} keeps nothing", help="keep at least 1; 2 survive damage")
    from stayfast.runtime.exec.synced_directories import SyncedDirectories

    sync = SyncedDirectories(arguments.sync, settings, keep=arguments.sync_keep)
    code = Supervisor(command, settings, is_done=is_done, sync=sync).run()
    if not sync.is_done:
        os._exit(code)  # an upload is stuck: its threads must not keep us beyond the window
    return code
