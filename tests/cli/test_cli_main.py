"""The command line's manners: help, versions, mistakes, exit codes, pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stayfast import errors
from stayfast.cli.commands import COMMANDS
from stayfast.cli.main import exit_code, main
from stayfast.version import __version__

SOURCE = Path(__file__).resolve().parents[2] / "src"


def held(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)} | dict(options.pop("env", {}))  # type: ignore[call-overload]
    command = [sys.executable, "-m", "stayfast", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(command, env=environment, text=True, timeout=30, **pipes)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command_and_the_exit_codes(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for command in COMMANDS:
        assert re.search(rf"^  {command.name}\s+{re.escape(command.summary)}$", out, re.MULTILINE)
    assert "2 usage or bad input" in out
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize("spelling", ["--version", "-V"])
def test_version(spelling: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([spelling]) == 0
    assert capsys.readouterr().out == f"stayfast {__version__}\n"


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([command, "--help"], ["help", command]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 0
        assert f"stayfast {command}" in capsys.readouterr().out


def test_a_typing_mistake_is_one_sentence_with_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exce"]) == 2
    assert capsys.readouterr().err == "stayfast: there is no command 'exce'; type: stayfast exec\n"
    assert main(["zzz"]) == 2
    assert "stayfast --help lists the commands" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["exec"],
        ["exec", "--"],
        ["exec", "--no-such", "--", "true"],
        ["exec", "--done-file", "a", "--done-check", "b", "--", "c"],
    ],
)
def test_usage_is_2_without_a_traceback(arguments: list[str]) -> None:
    ended = held(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert ended.stderr


def all_errors() -> list[type[errors.StayfastError]]:
    found, todo = [], [errors.StayfastError]
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo += kind.__subclasses__()
    return [kind for kind in found if kind.__module__ == "stayfast.errors"]


def test_one_map_from_errors_to_exit_codes() -> None:
    for kind in all_errors():
        code = exit_code(kind("x"))
        if issubclass(kind, errors.UsageError):
            assert code == 2, kind
        elif issubclass(kind, errors.ObjectRefusedError):
            assert code == 1, kind
        elif issubclass(kind, errors.StoreError | errors.QueueError | errors.SinkError | errors.ClusterError):
            assert code == 3, kind
        else:
            assert code == 1, kind


def test_the_error_tree_in_the_docstring_is_the_real_one() -> None:
    for kind in [*all_errors(), errors.Interrupted]:
        assert re.search(rf"── {kind.__name__}\b", errors.__doc__ or ""), kind


def test_a_reader_that_goes_away_is_not_our_failure() -> None:
    ended = held("--help", stdout=subprocess.DEVNULL)
    assert ended.returncode == 0
    reading, writing = os.pipe()
    os.close(reading)
    ended = held("--help", stdout=writing)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        ended = held("--help", stdout=full)
    assert ended.returncode == 1
    assert ended.stderr == "stayfast: the output could not be written: No space left on device\n"


def test_with_standard_error_closed_nothing_leaks_to_stdout() -> None:
    command = f"{sys.executable} -m stayfast nonsense 2>&-"
    ended = subprocess.run(
        ["sh", "-c", command], env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=30
    )
    assert (ended.returncode, ended.stdout) == (2, "")
