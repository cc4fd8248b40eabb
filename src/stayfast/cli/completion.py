"""``stayfast completion SHELL``: a script for the Tab key, made from the parsers that read the command line.

The script holds all words, so that a Tab never starts Python. Everything that comes from outside is quoted
for its shell.
"""

from __future__ import annotations

import argparse
import importlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from stayfast.cli.commands import COMMANDS, Command
from stayfast.cli.main import OK, build_parser


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


_BASH = """\
# stayfast completion bash: source it, or keep it among bash's completions
_stayfast() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} i options='' words=''
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=( $(compgen -W {commands} -- "$cur") )
    return
  fi
  for (( i = 2; i < COMP_CWORD; i++ )); do
    if [[ ${{COMP_WORDS[i]}} == -- ]]; then  # from here on it is another program
      (( i == COMP_CWORD - 1 )) && COMPREPLY=( $(compgen -c -- "$cur") )
      return
    fi
  done
  case "${{COMP_WORDS[1]}} $prev" in
{values}
  esac
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=( $(compgen -W "$options" -- "$cur") )
  elif (( COMP_CWORD == 2 )); then
    COMPREPLY=( $(compgen -W "$words" -- "$cur") )
  fi
}}
complete -o bashdefault -o default -F _stayfast stayfast
"""


def bash(commands: Sequence[Described]) -> str:
    """For bash 4 and newer; where nothing is offered, readline offers files."""
    values, cases = [], []
    for command in commands:
        names = [name for option in command.options for name in option.names]
        cases.append(
            f"    {command.name}) options={shlex.quote(' '.join(names))} words={shlex.quote(' '.join(command.words))};;"
        )
        for option in command.options:
            if not option.takes_value:
                continue
            pattern = "|".join(shlex.quote(f"{command.name} {name}") for name in option.names)
            chosen = shlex.quote(" ".join(option.values))
            offer = f'COMPREPLY=( $(compgen -W {chosen} -- "$cur") ); ' if option.values else ""
            values.append(f"    {pattern}) {offer}return;;")
    every = shlex.quote(" ".join([command.name for command in commands] + ["help", "--help", "--version"]))
    return _BASH.format(commands=every, values="\n".join(values), cases="\n".join(cases))


def zsh(commands: Sequence[Described]) -> str:
    """For zsh's own completion system."""
    lines = ["#compdef stayfast", "_stayfast() {", "  local -a commands", "  commands=("]
    lines += [f"    {shlex.quote(f'{command.name}:{command.summary}')}" for command in commands]
    lines += [
        "  )",
        "  if (( CURRENT == 2 )); then _describe command commands; return; fi",
        "  local command=$words[2]",
        "  shift words; (( CURRENT-- ))",
        "  case $command in",
    ]
    for command in commands:
        specs = [spec for option in command.options for spec in _zsh_option(option)]
        specs.append(f"1:argument:({' '.join(command.words)})" if command.words else "*:argument:_files")
        lines.append(f"    {command.name}) _arguments {' '.join(shlex.quote(spec) for spec in specs)};;")
    lines += [
        "  esac",
        "}",
        'if [[ $funcstack[1] == _stayfast ]]; then _stayfast "$@"; else compdef _stayfast stayfast; fi',
    ]
    return "\n".join(lines) + "\n"


def _zsh_option(option: Option) -> list[str]:
    text = option.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    value = ""
    if option.takes_value:
        value = f":value:({' '.join(option.values)})" if option.values else ":value:_files"
    return [f"{name}[{text}]{value}" for name in option.names]


def fish(commands: Sequence[Described]) -> str:
    """For fish: one line per word."""
    lines = ["# stayfast completion fish"]
    for command in commands:
        lines.append(
            f"complete -c stayfast -n __fish_use_subcommand -f -a {command.name} -d {_fish_quote(command.summary)}"
        )
    for command in commands:
        seen = f"complete -c stayfast -n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            lines.append(f"{seen} -f -a {_fish_quote(' '.join(command.words))}")
        for option in command.options:
            names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
            value = f" -x -a {_fish_quote(' '.join(option.values))}" if option.values else " -r"
            text = f" -d {_fish_quote(option.help)}" if option.help else ""
            lines.append(f"{seen} {' '.join(names)}{value if option.takes_value else ''}{text}")
    return "\n".join(lines) + "\n"


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
