"""``stayfast rehearse``: take the machine away from a program here, before the cloud does, and compare the result."""

from __future__ import annotations

import argparse
import json
import math
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from stayfast.cli.main import FINDINGS, OK, add_output
from stayfast.errors import UsageError
from stayfast.proof.rehearse.differences import Comparison
from stayfast.proof.rehearse.rehearsal import RehearsalOptions, RehearsalResult, rehearse
from stayfast.proof.rehearse.schedule import DEFAULT_KINDS, InterruptionKind
from stayfast.proof.rehearse.trial import RehearsalStoppedError
from stayfast.text.files import check_writable, write_text

_DEFAULTS = RehearsalOptions(command=())
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "stayfast rehearse [options] -- CMD..."
    parser.epilog = """\
examples:
  stayfast rehearse --compare result.json -- python train.py
  stayfast rehearse --records out.jsonl --key id --grace 5 -- ./batch.sh
  stayfast rehearse --check 'test $(wc -l < out.txt) = 200' --kinds term,kill,freeze -- node work.js

CMD runs in copies of the current directory: twice uninterrupted, then in trials in which it is interrupted and started
again as a Job would. Exit 0 when it survives, 1 with reasons when it does not, 2 when it cannot be rehearsed."""
    _what(parser)
    _how(parser)
    add_output(parser)
    parser.add_argument("--html", metavar="FILE", help="also write the timeline of all attempts as a page")
    parser.add_argument("--junit", metavar="FILE", help="also write the trials as JUnit XML, for CI")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD...", help="the program, unchanged")


def _what(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what has to be the same as in the uninterrupted run")
    group.add_argument("--compare", action="append", default=[], metavar="GLOB", help="files, bit by bit")
    group.add_argument("--compare-json", action="append", default=[], metavar="FILE", help="values of a JSON file")
    group.add_argument(
        "--tolerance", type=float, default=1e-6, metavar="T", help="of numbers in --compare-json (default: %(default)s)"
    )
    group.add_argument(
        "--records", action="append", default=[], metavar="PATH",
        help="records by key: JSON lines, .csv, .tsv, or SQLite as FILE?table=NAME",
    )  # fmt: skip
    group.add_argument("--key", metavar="FIELD", help="what identifies a record; several with commas")
    group.add_argument(
        "--check", default="", metavar="CMD", help="a shell command that exits 0 when the result is right"
    )


def _how(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it is interrupted")
    _add_number(group, "kills", _DEFAULTS.kills, "per trial (default: %(default)s)")
    _add_number(group, "trials", _DEFAULTS.trials, "how many (default: %(default)s)")
    group.add_argument("--seed", type=int, default=0, metavar="S", help="of the schedule (default: %(default)s)")
    _add_number(group, "parallel", 0, "trials at a time (default: one per core)")
    group.add_argument(
        "--grace", type=float, default=15.0, metavar="S", help="from SIGTERM to SIGKILL, in real seconds (default: 15)"
    )
    group.add_argument(
        "--kinds", default=",".join(DEFAULT_KINDS), metavar="K,K",
        help=f"of {', '.join(InterruptionKind)} (default: %(default)s); the last two need fencing to be survived",
    )  # fmt: skip
    group.add_argument("--only-kill", default="", metavar="K[,K]", help="only these kills of the seed's schedule")
    group.add_argument(
        "--ephemeral", action="append", default=[], metavar="DIR", help="emptied between attempts: the node's own disk"
    )
    _add_number(group, "backoff-limit", _DEFAULTS.backoff_limit, "failures that the Job allows (default: %(default)s)")
    group.add_argument(
        "--disk-limit", default="", metavar="SIZE",
        help="free space in the directory, like 500K, 20M or 1G: what does not fit fails with ENOSPC",
    )  # fmt: skip
    group.add_argument(
        "--writable", action="append", default=[], metavar="DIR", help="may be written to although outside"
    )
    group.add_argument("--no-namespace", action="store_true", help="do not ask for a PID namespace")


def _add_number(group: argparse._ArgumentGroup, name: str, default: int, told: str) -> None:
    group.add_argument(f"--{name}", type=int, default=default, metavar="N", help=told)


def run(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    for name in filter(None, (arguments.html, arguments.junit)):
        check_writable(name)  # now, and not after half an hour
    stop = threading.Event()
    got: list[int] = []

    def on_signal(number: int, _: object) -> None:
        got.append(number)
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = rehearse(options, stop=stop, progress=_progress(), report=_report_baseline)
    except RehearsalStoppedError:
        print("stayfast: stopped, nothing is left behind", file=sys.stderr)
        return 128 + got[0] if got else FINDINGS
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    _report(result, arguments)
    return OK if result.survives else FINDINGS


def _report(result: RehearsalResult, arguments: argparse.Namespace) -> None:
    flags = list(_flags(arguments))
    if arguments.output == "json":
        from stayfast.proof.rehearse.report import as_json

        print(json.dumps(as_json(result, flags), indent=2))
    else:
        from stayfast.proof.rehearse.report import as_text

        print(as_text(result, flags))
    if arguments.html:
        from stayfast.proof.rehearse.report_html import as_html

        write_text(arguments.html, as_html(result, flags))
    if arguments.junit:
        from stayfast.proof.rehearse.report import as_junit

        write_text(arguments.junit, as_junit(result, flags))


def _options(arguments: argparse.Namespace) -> RehearsalOptions:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise UsageError("there is no command to rehearse", help="write: stayfast rehearse -- python train.py")
    for name, lowest in (("kills", 1), ("trials", 1), ("parallel", 0), ("backoff_limit", 0)):
        if getattr(arguments, name) < lowest:
            raise UsageError(
                f"--{name.replace('_', '-')} {getattr(arguments, name)} is too small", help=f"use {lowest}"
            )
    for name in ("grace", "tolerance"):
        if not math.isfinite(getattr(arguments, name)) or getattr(arguments, name) < 0:
            raise UsageError(f"--{name} {getattr(arguments, name)} is no length", help="write it like 15 or 1e-6")
    if bool(arguments.records) != bool(arguments.key):
        raise UsageError("--records and --key belong together", help="write: --records out.jsonl --key id")
    return RehearsalOptions(
        command=command,
        comparison=Comparison(
            globs=tuple(arguments.compare),
            json_files=tuple(arguments.compare_json),
            tolerance=arguments.tolerance,
            records=tuple(arguments.records),
            key=tuple((arguments.key or "").split(",")),
            check=arguments.check,
        ),
        kinds=_kinds(arguments.kinds),
        kills=arguments.kills,
        trials=arguments.trials,
        seed=arguments.seed,
        grace_seconds=arguments.grace,
        parallel=arguments.parallel,
        ephemeral=tuple(arguments.ephemeral),
        backoff_limit=arguments.backoff_limit,
        writable=tuple(arguments.writable),
        only_kills=_numbers(arguments.only_kill),
        disk_limit_bytes=_size(arguments.disk_limit),
        namespace=not arguments.no_namespace,
    )


def _kinds(text: str) -> tuple[InterruptionKind, ...]:
    known = {str(kind): kind for kind in InterruptionKind}
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known and name != "all":
            raise UsageError(f"--kinds {name} is not known", help=f"use {', '.join(known)} or all")
    if not names:
        raise UsageError("--kinds is empty", help=f"use {', '.join(known)} or all")
    return tuple(InterruptionKind) if "all" in names else tuple(dict.fromkeys(known[name] for name in names))


def _size(text: str) -> int | None:
    if not text:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--disk-limit {text} is no size", help="write it like 500K, 20M or 1G")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


def _numbers(text: str) -> frozenset[int]:
    try:
        return frozenset(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise UsageError(f"--only-kill {text} is no list of numbers", help="write it like 4 or 4,5") from None


def _flags(arguments: argparse.Namespace) -> Iterator[str]:
    """The options that decide what happens, as they were typed."""
    for name in (
        "kills", "trials", "grace", "kinds", "backoff_limit", "disk_limit", "tolerance",
        "check", "key",
    ):  # fmt: skip
        value, default = getattr(arguments, name), _TYPED.get(name)
        if value != default and value is not None:
            whole = isinstance(value, float) and value.is_integer()
            yield from (f"--{name.replace('_', '-')}", str(int(value) if whole else value))
    for name in ("compare", "compare_json", "records", "ephemeral", "writable"):
        for value in getattr(arguments, name):
            yield from (f"--{name.replace('_', '-')}", value)
    if arguments.no_namespace:
        yield "--no-namespace"


_TYPED: dict[str, object] = {
    "kills": _DEFAULTS.kills,
    "trials": _DEFAULTS.trials,
    "grace": 15.0,
    "kinds": ",".join(DEFAULT_KINDS),
    "backoff_limit": _DEFAULTS.backoff_limit,
    "disk_limit": "",
    "tolerance": 1e-6,
    "check": "",
}


def _report_baseline(line: str) -> None:
    """A line that stays."""
    start = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{start}stayfast: {line}", file=sys.stderr, flush=True)


def _progress() -> Callable[[str], None]:
    """One changing line on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda _: None

    def show(line: str) -> None:
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    return show
