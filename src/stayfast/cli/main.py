"""The entry point: finds the command, runs it, and turns every error into one sentence and an exit code."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from stayfast.cli.commands import COMMANDS, Command, find_command
from stayfast.errors import (
    CheckpointError,
    ClusterError,
    ObjectRefusedError,
    QueueError,
    RunError,
    SinkError,
    StayfastError,
    StoreError,
    UsageError,
    one_line,
)
from stayfast.version import __version__

OK, FINDINGS, USAGE, UNREACHABLE, INFEASIBLE = 0, 1, 2, 3, 4

_EXIT_CODES: tuple[tuple[type[StayfastError], int], ...] = (
    (UsageError, USAGE),
    (StoreError, UNREACHABLE),
    (QueueError, UNREACHABLE),
    (SinkError, UNREACHABLE),
    (ObjectRefusedError, FINDINGS),
    (ClusterError, UNREACHABLE),
    (CheckpointError, FINDINGS),
    (RunError, FINDINGS),
)

_INTRO = """\
Keep AI work alive on capacity that will be taken away.

Start here:
{start}

"""
_START = (
    ("stayfast demo", "the whole story on this machine, in under a minute"),
    ("stayfast init train my-run", "a project that runs as it is, to kill and to start again"),
    ("stayfast rehearse -- python train.py", "take the machine away from your own program, here, and compare"),
    ("stayfast exec -- python train.py", "any program, with exit codes that Kubernetes understands"),
    ("stayfast lint k8s/", "what Spot and flex-start would do to these manifests"),
)


def entry() -> None:
    """The console script."""
    code = main(sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the interpreter takes a while to go down: nothing may hide the code
    sys.exit(code)


def main(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    try:
        code = _dispatch(list(argv))
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a reader that went away is still ours to handle
        return code
    except StayfastError as error:
        return report(error)
    except KeyboardInterrupt:
        _complain("stopped by Ctrl-C")
        return 130
    except BrokenPipeError:
        # The reader went away (| head): not our failure, and nothing more can be said on stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return OK
    except OSError as error:
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            _complain(f"the output could not be written: {os.strerror(error.errno)}")
            return FINDINGS
        return _report_os_error(error)


def report(error: StayfastError) -> int:
    """One sentence to stderr, and the code it stands for."""
    _complain(str(error) if error.has_list else one_line(str(error)))
    return exit_code(error)


def _report_os_error(error: OSError) -> int:
    """What no command expected of the machine: still one sentence."""
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    _complain(one_line(f"{where}{error.strerror or error}; check the folder, its disk and its permissions"))
    return USAGE


def _complain(sentence: str) -> None:
    if sys.stderr is None:  # closed: print() would put it on stdout, where only results belong
        return
    try:
        print(f"stayfast: {sentence}", file=sys.stderr, flush=True)
    except OSError:  # nobody can be told; the code still tells, unless what is left unwritten fails again at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def exit_code(error: StayfastError) -> int:
    """The one map from errors to exit codes."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), FINDINGS)


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        if len(argv) > 1:
            return _dispatch([argv[1], "--help"])
        print(help_text(), end="")
        return OK
    if argv[0] in ("-V", "--version"):
        print(f"stayfast {__version__}")
        return OK
    command = find_command(argv[0])
    if command is None:
        return _unknown(argv[0])
    module = importlib.import_module(command.module)
    parser = build_parser(command)
    module.configure(parser)
    arguments = parser.parse_args(argv[1:])
    result: int = module.run(arguments)
    return result


class _Parser(argparse.ArgumentParser):
    """A mistake is one sentence, as everywhere, with what to type next."""

    _given: tuple[str, ...] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse; keeps the words, so that a mistyped option is named before what is missing without it."""
        self._given = tuple(args or ())
        for word in self._given[: self._given.index("--")] if "--" in self._given else self._given:
            option, _, value = word.partition("=")
            if value == "--" and option in self._option_string_actions:  # argparse would make an empty list of it
                self.error(f"{option} needs a value, and -- is none")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        message = one_line(_mistyped(self, self._given) or message)
        self.exit(USAGE, f"stayfast: {message}; {self.prog} --help shows options and examples\n")


def _mistyped(parser: argparse.ArgumentParser, given: tuple[str, ...]) -> str | None:
    """The first option that does not exist, with the one that was probably meant."""
    from stayfast.text.suggest import similar  # only a typing mistake needs it

    known = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                known |= set(below._option_string_actions)
    for word in given[: given.index("--")] if "--" in given else given:
        option = word.split("=")[0]
        if not option.startswith("--") or option in known:
            continue
        near = similar(option, sorted(known)) or next((name for name in sorted(known) if name.startswith(option)), None)
        if near:
            return f"there is no option {option}; type {near}"
    return None


def build_parser(command: Command) -> argparse.ArgumentParser:
    """A parser with the manners that all commands share."""
    return _Parser(
        prog=f"stayfast {command.name}",
        description=command.summary[0].upper() + command.summary[1:] + ".",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """``--output text|json`` and its short spelling ``--json``, as every command takes them."""
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="json goes to stdout alone (default: text)"
    )
    parser.add_argument("--json", dest="output", action="store_const", const="json", help="the same as --output json")


def _unknown(name: str) -> int:
    from stayfast.text.suggest import similar  # only a typing mistake needs it

    near = similar(name, [item.name for item in COMMANDS])
    cure = f"type: stayfast {near}" if near else "stayfast --help lists the commands"
    _complain(one_line(f"there is no command {name!r}; {cure}"))
    return USAGE


def help_text() -> str:
    """The first screen."""
    known = {item.name for item in COMMANDS}
    start = [(line, why) for line, why in _START if line.split()[1] in known]
    width = max(len(line) for line, _ in start)
    lines = [_INTRO.format(start="\n".join(f"  {line:<{width}}  {why}" for line, why in start))]
    for group in dict.fromkeys(item.group for item in COMMANDS):
        lines.append(f"{group}:\n")
        lines += [f"  {item.name:<14}{item.summary}\n" for item in COMMANDS if item.group == group]
        lines.append("\n")
    lines.append(
        "stayfast COMMAND --help says more. Exit codes: 0 fine, 1 findings or failed check, 2 usage or bad input,\n"
    )
    lines.append("3 cluster or service unreachable, 4 plan infeasible.\n")
    return "".join(lines)


if __name__ == "__main__":
    entry()
