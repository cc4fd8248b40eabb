"""``stayfast work``: run workers in this pod until the queue is drained or the machine goes away."""

from __future__ import annotations

import argparse
import json
import logging
import math
import signal
import sys
import time
from dataclasses import asdict

from stayfast.batch.queue.protocol import RetryPolicy
from stayfast.batch.worker.pool import PoolOptions, WorkerPool
from stayfast.batch.worker.task import parse_task_name
from stayfast.batch.worker.worker import WorkerOptions
from stayfast.cli.main import add_output
from stayfast.cli.queue import add_queue_option, add_sink_option
from stayfast.errors import Interrupted, SettingError, StayfastError
from stayfast.model.exit_codes import FAILED, FINISHED, Outcome
from stayfast.runtime.interruption.guard import Guard


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of ``stayfast work``."""
    parser.epilog = """\
example:
  stayfast work jobs:infer --queue 'sqlite:////data/work.db?queue=images' --sink 'sqlite:////data/work.db?table=labels'

Exits with code 0 when every item is done or in the dead-letter, 75 when interrupted (start it again), 1 when it
failed."""
    parser.add_argument("task", metavar="MODULE:TASK", help="a function marked with @stayfast.task")
    add_queue_option(parser)
    add_sink_option(parser)
    parser.add_argument("--chunk", type=int, default=100, metavar="N", help="items per call of the task (default: 100)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument(
        "--prefetch",
        type=int,
        default=1,
        metavar="N",
        help="chunks fetched ahead (default: 1), short ones up to 0.1 s of work; 0: none",
    )
    parser.add_argument(
        "--max-failures", type=int, default=RetryPolicy().max_failures, metavar="N", help="then dead-letter"
    )
    parser.add_argument(
        "--max-deliveries",
        type=int,
        default=RetryPolicy().max_deliveries,
        metavar="N",
        help="lost that often: dead-letter",
    )
    parser.add_argument(
        "--backoff", type=float, default=1.0, metavar="S", help="seconds before the second try, doubling"
    )
    parser.add_argument("--replace", action="store_true", help="a later result replaces an earlier one")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Check what can be checked, then run; from then on the code is 0, 75 or 1."""
    for name, lowest in (("chunk", 1), ("workers", 1), ("prefetch", 0), ("max_failures", 1), ("max_deliveries", 1)):
        if getattr(args, name) < lowest:
            option = "--" + name.replace("_", "-")
            raise SettingError(f"{option} is {getattr(args, name)}", help=f"give at least {lowest}")
    if not 0 <= args.backoff < math.inf:
        raise SettingError(f"--backoff is {args.backoff}", help="give zero or more seconds")
    parse_task_name(args.task)
    options = PoolOptions(
        task=args.task,
        queue=args.queue,
        sink=args.sink,
        workers=args.workers,
        json_on_stdout=args.output == "json",
        worker=WorkerOptions(chunk=args.chunk, prefetch=args.prefetch, replace=args.replace),
        policy=RetryPolicy(args.max_failures, args.max_deliveries, args.backoff),
    )
    logging.basicConfig(format="stayfast: %(message)s", level=logging.WARNING)
    return _supervise(options, args.output)


def _supervise(options: PoolOptions, output: str) -> int:
    started = time.monotonic()
    pool: WorkerPool | None = None
    outcome, code = Outcome.FAILED, FAILED
    try:
        with Guard() as guard:
            progress = None
            if sys.stderr.isatty():
                from stayfast.cli.work_view import WorkView

                progress = WorkView(options)
            pool = WorkerPool(options, guard, progress)
            pool.start_metrics()
            outcome = pool.run()
            if guard.notice is not None:  # one more SIGTERM at the very end must not hide the code
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if outcome is Outcome.INTERRUPTED:
                guard.should_stop()  # the end of the block raises Interrupted
            elif outcome is Outcome.FAILED:  # not raised: that counts as interrupted after a notice
                guard.report(Outcome.FAILED, FAILED, detail=pool.fatal or "")
                print(f"stayfast: {pool.fatal}", file=sys.stderr)
        code = FINISHED if outcome is Outcome.FINISHED else FAILED
    except Interrupted as interruption:
        outcome, code = Outcome.INTERRUPTED, interruption.code if isinstance(interruption.code, int) else FAILED
    except StayfastError as error:
        print(f"stayfast: {error}", file=sys.stderr)
        outcome, code = Outcome.FAILED, FAILED
    _report(pool, outcome, code, time.monotonic() - started, output)
    return code


def _report(pool: WorkerPool | None, outcome: Outcome, code: int, seconds: float, output: str) -> None:
    tally = pool.tally().as_json() if pool is not None else {}
    depth = pool.depth if pool is not None else None
    if output == "json":
        ended = {"outcome": outcome, "code": code, "seconds": round(seconds, 3), **tally}
        queue = {"left": None, "queue": None} if depth is None else {"left": depth.left, "queue": asdict(depth)}
        print(json.dumps({**ended, **queue}))
    elif pool is not None:
        line = ", ".join(f"{value} {name}" for name, value in tally.items()) + f" in {seconds:.1f} s"
        if depth is not None:
            line += f"; the queue holds {depth.left} unfinished items, {depth.done} done and {depth.dead} dead"
        print(f"stayfast: {line}", file=sys.stderr)
    if pool is not None and outcome is Outcome.FINISHED and depth is not None and depth.enqueued == 0:
        print(f"stayfast: nothing was ever enqueued in {pool.queue_url}; check --queue", file=sys.stderr)
