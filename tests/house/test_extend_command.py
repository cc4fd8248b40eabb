"""A package outside ours adds a command: one module with a summary, options and a function that returns the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_package import install

from stayfast.cli.main import main

TOY = """
from stayfast.errors import UsageError

SUMMARY = "say hello"

def configure(parser):
    parser.add_argument("--name", help="to whom")

def run(args):
    if not args.name:
        raise UsageError("hello to whom", help="add --name")
    print(f"hello {args.name}")
    return 0
"""


@pytest.fixture
def toy_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = "hello = toy_command\nlint = toy_command"
    install(tmp_path, monkeypatch, "toy_command", TOY, "stayfast.commands", entries)


def test_it_runs_and_has_the_manners_of_ours(toy_command: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hello", "--name", "world"]) == 0
    assert capsys.readouterr().out == "hello world\n"
    assert main(["hello"]) == 2
    assert capsys.readouterr().err == "stayfast: hello to whom; add --name\n"
    with pytest.raises(SystemExit) as left:
        main(["hello", "--nmae", "world"])
    assert left.value.code == 2
    assert "there is no option --nmae; type --name" in capsys.readouterr().err


def test_it_explains_itself(toy_command: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["help", "hello"])
    assert left.value.code == 0
    assert "Say hello." in capsys.readouterr().out


def test_it_takes_the_place_of_none(toy_command: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["lint", "--help"])
    assert "say hello" not in capsys.readouterr().out.lower()
