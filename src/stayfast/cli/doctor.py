"""``stayfast doctor -- CMD...``: does SIGTERM reach the program, and what will Kubernetes make of its answer?"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from typing import Any

from stayfast.cli.main import FINDINGS, OK, add_output
from stayfast.errors import UsageError

_EXAMPLES = """\
examples:
  stayfast doctor -- python train.py
  stayfast doctor --grace 30 --after 20 -- torchrun --nproc_per_node=2 train.py
  stayfast doctor --image-entrypoint 'sh -c "python train.py | tee log"'
  stayfast doctor -f k8s/job.yaml

CMD runs in the current directory, as PID 1 of a PID namespace where the kernel allows it. It gets SIGTERM once it is
ready (at most 60 s after the start, or after --after seconds), and SIGKILL when the grace is over. Its output goes to
stderr. --image-entrypoint is judged by its text, and run if the program is here; -f is judged by its text alone, unless
--run is given. Exit 0: it would be resumed in good order; 1: there are problems, each with its cure,
or it was still starting.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "stayfast doctor [--grace S] [--after S] (-- CMD... | --image-entrypoint TEXT | -f FILE)"
    parser.epilog = _EXAMPLES
    parser.add_argument("--grace", type=_seconds, default=15.0, metavar="S", help="until SIGKILL (default: 15)")
    parser.add_argument("--after", type=_seconds, metavar="S", help="send SIGTERM this long after the start")
    parser.add_argument("--image-entrypoint", metavar="TEXT", help="a container's command as one line")
    parser.add_argument("-f", "--file", metavar="FILE", help="take the commands from a manifest; - is stdin")
    parser.add_argument("--run", action="store_true", help="with -f: also run the commands that can be run here")
    parser.add_argument("--no-namespace", action="store_true", help="do not try to be PID 1 of a namespace")
    add_output(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD...", help="the program")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 86400:
        raise ValueError(text)
    return value


def run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    chosen = [bool(command), args.image_entrypoint is not None, args.file is not None]
    if sum(chosen) != 1:
        raise UsageError(
            "give one of: a command, --image-entrypoint, -f", help="write: stayfast doctor -- python train.py"
        )
    if args.file is not None:
        result = _from_manifest(args)
    elif args.image_entrypoint is not None:
        result = _from_text(args.image_entrypoint, args)
    else:
        result = _examine(command, args)
    if args.output == "json":
        print(json.dumps(result))
    else:
        from stayfast.proof.doctor.report import render_text

        print(render_text(result))
    return FINDINGS if result["problems"] or result["still_starting"] else OK


def _examine(command: list[str], args: argparse.Namespace) -> dict[str, Any]:
    from stayfast.proof.doctor.observer import observe
    from stayfast.proof.doctor.verdict import report

    seen = observe(
        command,
        grace_seconds=args.grace,
        after_seconds=args.after,
        namespace=not args.no_namespace,
        progress=lambda line: print(f"stayfast: {line}", file=sys.stderr, flush=True),
    )
    return report(seen)


def _from_text(text: str, args: argparse.Namespace) -> dict[str, Any]:
    from stayfast.proof.doctor.static_check import judge_command

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--image-entrypoint {text!r} is not a command: {error}", help="close the quotes") from None
    if not words:
        raise UsageError("--image-entrypoint is empty", help="write it like 'sh -c \"python train.py\"'")
    if shutil.which(words[0]) is None:
        print(f"stayfast: {words[0]} is not here: judged by its text alone", file=sys.stderr)
        return judge_command(words)
    return _run_and_read(words, args)


def _run_and_read(words: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """What is seen counts; where it ended too soon to be interrupted, as without its files, only the text can tell."""
    from stayfast.proof.doctor.static_check import judge_command

    judged, seen = judge_command(words), _examine(words, args)
    if seen["ended_before_signal"] and not seen["problems"]:
        told = f"{words[0]} ended by itself with {seen['exit_code']} before the signal"
        print(f"stayfast: {told}: judged by its text alone", file=sys.stderr)
        return seen | judged | {"ended_before_signal": True}
    return seen | {"by_text": judged["by_text"]}


def _from_manifest(args: argparse.Namespace) -> dict[str, Any]:
    from stayfast.proof.doctor.static_check import commands_in, judge_command
    from stayfast.proof.doctor.verdict import CODES, REMEDIES

    rows: list[dict[str, Any]] = []
    for where, words in commands_in(args.file):
        runs = args.run and shutil.which(words[0]) is not None
        result = _run_and_read(words, args) if runs else judge_command(words)
        rows.append({"container": where, **result})
    if not rows:
        raise UsageError(f"{args.file} holds no container with a command", help="give a manifest of a Job or a Pod")
    codes = [code for code in CODES if any(code in row["problems"] for row in rows)]
    worst = next((row for row in rows if row["problems"]), rows[0])
    starting = any(row["still_starting"] for row in rows)
    cures = {code: REMEDIES[code] for code in codes}
    return {**worst, "problems": codes, "cures": cures, "still_starting": starting, "containers": rows}
