"""Write ``docs/reference/cli.md`` and ``errors.md`` from the code; ``--check`` says whether they are up to date."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

for name in ("STAYFAST_QUEUE", "STAYFAST_SINK"):
    os.environ.pop(name, None)  # they would show up as defaults

from stayfast import errors  # noqa: E402
from stayfast.cli.commands import COMMANDS, Command  # noqa: E402
from stayfast.cli.completion import describe  # noqa: E402
from stayfast.cli.main import build_parser, exit_code  # noqa: E402

REFERENCE = Path(__file__).parent.parent / "docs/reference"
MADE = "Made by `python tools/make_cli_reference.py` from the code.\n"


def main(arguments: list[str]) -> int:
    """Write or check."""
    pages = {REFERENCE / "cli.md": commands_page(), REFERENCE / "errors.md": errors_page()}
    if "--check" in arguments:
        return int(any(not path.exists() or path.read_text(encoding="utf-8") != text for path, text in pages.items()))
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    return 0


def commands_page() -> str:
    """Every command with its arguments, options and examples."""
    head = (
        f"# Commands\n\n{MADE}\nJSON goes to stdout alone, messages to stderr, progress is shown on a terminal only."
        " `NO_COLOR` is respected. [Exit codes](exit-codes.md): 0 fine, 1 findings or a failed check, 2 usage or bad"
        " input, 3 cluster or service unreachable, 4 plan infeasible.\n"
    )
    return head + "".join(command_section(command) for command in COMMANDS)


def command_section(command: Command) -> str:
    """One command."""
    parser = build_parser(command)
    importlib.import_module(command.module).configure(parser)
    lines = [f"\n## stayfast {command.name}\n", f"{command.summary[0].upper()}{command.summary[1:]}.\n"]
    rows = []
    for action in parser._actions:
        if action.option_strings:
            continue
        name = action.metavar if isinstance(action.metavar, str) else action.dest
        values = ": " + ", ".join(f"`{word}`" for word in action.choices) if action.choices else ""
        rows.append((f"`{name}`", (action.help or "") + values))
    for option in describe(command).options:
        if "--help" in option.names:
            continue
        values = ": " + ", ".join(f"`{value}`" for value in option.values) if option.values else ""
        rows.append((", ".join(f"`{name}`" for name in option.names), option.help + values))
    if rows:
        lines.append("| Argument | Meaning |\n|---|---|")
        lines += [f"| {cell(left)} | {cell(right)} |" for left, right in rows]
    if parser.epilog:
        lines.append(f"\n```text\n{parser.epilog.rstrip()}\n```")
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Safe inside a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def errors_page() -> str:
    """Every error with its meaning and the exit code of the command line."""
    lines = [f"# Errors\n\n{MADE}", "`str(error)` is one sentence: what, where, what to do.\n"]
    lines += ["| Error | Is a | Meaning | Exit code of the command line |", "|---|---|---|---|"]
    todo: list[type[errors.StayfastError]] = [errors.StayfastError]
    while todo:
        kind = todo.pop(0)
        todo = sorted(kind.__subclasses__(), key=lambda item: item.__name__) + todo
        if kind.__module__ != errors.__name__:
            continue
        meaning = (kind.__doc__ or "").splitlines()[0]
        lines.append(f"| `{kind.__name__}` | `{kind.__base__.__name__}` | {cell(meaning)} | {exit_code(kind('x'))} |")
    meaning = (errors.Interrupted.__doc__ or "").splitlines()[0]
    lines.append(f"| `Interrupted` | `SystemExit` | {cell(meaning)} | 75 |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
