"""Manners over all commands: examples in every help, the next command in every mistake, NO_COLOR, the first screen."""

from __future__ import annotations

import importlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stayfast.cli.commands import COMMANDS, Command
from stayfast.cli.main import build_parser, main

SOURCE = Path(__file__).resolve().parents[2] / "src"
COLOUR = re.compile(r"\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7])[0-9;]*m")


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_help_has_an_example_that_can_be_typed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    out = capsys.readouterr().out
    examples = out.partition("example")[2]
    assert re.search(rf"^  .*\bstayfast {command}\b", examples, re.MULTILINE), (
        "give the command an epilog with examples"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_argument_says_what_it_means(command: Command) -> None:
    parser = build_parser(command)
    importlib.import_module(command.module).configure(parser)
    assert [action.dest for action in parser._actions if not action.help] == []


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_a_wrong_option_names_the_next_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--no-such-option"])
    assert left.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("stayfast: ")
    assert f"stayfast {command} --help" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["audit", "--que", "x"], "--queue"),
        (["audit", "--quueue=x", "--sink", "y"], "--queue"),
        (["lint", "--formt", "json", "k8s"], "--format"),
        (["queue", "retry", "--ony", "img-17"], "--only"),
        (["rehearse", "--comapre", "x", "--", "python", "--trails"], "--compare"),
    ],
)
def test_a_mistyped_option_names_the_near_one(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STAYFAST_QUEUE", raising=False)
    wrong = next(word for word in arguments if word.startswith("--")).split("=")[0]
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith(f"stayfast: there is no option {wrong}; type {meant}; ")


def test_the_first_screen_begins_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("Start here:")
    assert start < 4
    assert lines[start + 1].strip().startswith("stayfast demo")
    assert "" in lines[start + 2 : start + 9], "a line of air before the list"


def on_terminal(arguments: list[str], **variables: str) -> str:
    """Everything that a command paints on a terminal."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"PYTHONPATH": str(SOURCE), "TERM": "xterm-256color", "COLUMNS": "100"} | variables
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "stayfast", *arguments], env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    painted = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the terminal has hung up
            break
        if not piece:
            break
        painted += piece
    os.close(ours)
    child.wait(60)
    return painted.decode(errors="replace")


def bad_manifest(tmp_path: Path) -> list[str]:
    path = tmp_path / "job.yaml"
    path.write_text("apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {maxParallelism: 1}\n")
    return ["lint", str(path)]


def finished_run(tmp_path: Path) -> list[str]:
    import stayfast

    url = f"file://{tmp_path}/run"
    with stayfast.run(url, total_steps=2) as run:
        run.track(state=(lambda: {"bytes": b"x" * 100_000}, lambda _: None))
        for _ in run.steps():
            pass
    return ["checkpoints", "verify", url]


@pytest.mark.parametrize("make", [bad_manifest, finished_run], ids=["lint", "checkpoints"])
def test_colours_on_a_terminal_unless_no_color(make: object, tmp_path: Path) -> None:
    arguments = make(tmp_path)  # type: ignore[operator]
    assert COLOUR.search(on_terminal(arguments)), "or this test could not fail"
    assert not COLOUR.search(on_terminal(arguments, NO_COLOR="1"))
    assert COLOUR.search(on_terminal(arguments, NO_COLOR="")), "empty means unset"


def test_every_colour_goes_through_rich_or_asks_no_color() -> None:
    """Colours of our own stand in one module, whose caller asks; moving the cursor (K, H, J) paints nothing."""
    colour = re.compile(r"\\(x1b|033)\[(?![0-9;]*[KHJ])")
    own = [path.name for path in (SOURCE / "stayfast").rglob("*.py") if colour.search(path.read_text())]
    assert own == ["text.py"]
