"""``stayfast completion SHELL``: a script for the Tab key, made from the parsers that read the command line.

The script holds all words, so that a Tab never starts Python.
"""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass, field

from stayfast.cli.commands import COMMANDS, Command
from stayfast.cli.completion_scripts import bash, fish, zsh
from stayfast.cli.main import OK, build_parser

_SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}


def configure(parser: argparse.ArgumentParser) -> None:
    """The one argument."""
    parser.epilog = """\
examples:
  source <(stayfast completion bash)                                           for this shell
  stayfast completion bash > ~/.local/share/bash-completion/completions/stayfast
  stayfast completion zsh > "${fpath[1]}/_stayfast"
  stayfast completion fish > ~/.config/fish/completions/stayfast.fish"""
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="the one you type into")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(_SCRIPTS[args.shell]([describe(command) for command in COMMANDS]), end="")
    return OK


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command, in all its spellings."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A command as the Tab key sees it."""

    name: str
    summary: str
    options: tuple[Option, ...]
    words: tuple[str, ...] = field(default=())
    """What its first plain argument may be, where that is a list."""


def describe(command: Command) -> Described:
    """Ask the command's own parser."""
    parser = build_parser(command)
    importlib.import_module(command.module).configure(parser)
    options: list[Option] = []
    words: tuple[str, ...] = ()
    for action in parser._actions:
        values = tuple(str(value) for value in action.choices or ())
        if action.option_strings:
            text = (action.help or "") % {**vars(action), "prog": parser.prog} if action.help else ""
            options.append(Option(tuple(action.option_strings), text, action.nargs != 0, values))
        elif values and not words:
            words = values
    return Described(command.name, command.summary, tuple(options), words)
