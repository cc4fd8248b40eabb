"""Completion: made from the parsers, tried in a real bash, zsh and fish, light to make."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stayfast.cli.commands import COMMANDS
from stayfast.cli.completion import Described, Option, bash, describe, fish, zsh
from stayfast.cli.main import main

SOURCE = Path(__file__).resolve().parents[2] / "src"
HEAVY = {"numpy", "torch", "xxhash", "obstore", "psycopg", "google", "httpx", "starlette", "uvicorn", "rich"}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "stayfast.bash"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "stayfast", "completion", "bash"]
    path.write_bytes(subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=60, check=True).stdout)
    return path


def offered(script: Path, *words: str, folder: Path | None = None) -> list[str]:
    """What bash offers when Tab is pressed behind the last word."""
    program = """
source "$1"; shift
COMP_WORDS=(stayfast "$@"); COMP_CWORD=$#
$(complete -p stayfast | sed -n 's/.*-F \\([^ ]*\\).*/\\1/p')
printf '%s\\n' "${COMPREPLY[@]}"
"""
    # Called in the same shell, not in a substitution, so that COMPREPLY stays.
    program = program.replace("$(complete -p", "function_name=$(complete -p").replace(
        "\nprintf", '\n"$function_name"\nprintf'
    )
    command = ["bash", "--norc", "-c", program, "bash", str(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, cwd=folder)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def test_commands(script: Path) -> None:
    assert set(offered(script, "")) >= {command.name for command in COMMANDS} | {"help", "--version"}
    assert offered(script, "checkp") == ["checkpoints"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_option_of_every_command(script: Path, command: object) -> None:
    wanted = {name for option in describe(command).options for name in option.names if name.startswith("--")}  # type: ignore[arg-type]
    assert "--help" in wanted
    assert set(offered(script, command.name, "--")) == wanted  # type: ignore[attr-defined]


def test_values_and_actions(script: Path) -> None:
    assert offered(script, "checkpoints", "") == ["ls", "verify", "prune"]
    assert offered(script, "lint", "--format", "s") == ["sarif"]
    assert offered(script, "plan", "-o", "") == ["text", "json"]
    assert offered(script, "plan", "--file", "") == [], "readline offers files where we offer nothing"
    assert offered(script, "init", "train", "") == []


def test_behind_two_dashes_stands_another_program(script: Path) -> None:
    assert "bash" in offered(script, "exec", "--", "bas")
    assert offered(script, "exec", "--", "bash", "--no") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_its_shell_can_read(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for command in COMMANDS:
        assert command.name in text
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed; its script was made, not read")
    read = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, timeout=30)
    assert (read.returncode, read.stderr) == (0, "")


def typed_in_zsh(folder: Path, keys: str) -> str:
    """What a real zsh makes of these keys, on a terminal of its own."""
    start = f"fpath=({folder} $fpath)\nautoload -Uz compinit\ncompinit -u -d {folder}/dump\nPS1='ready> '\n"
    (folder / ".zshrc").write_text(start)
    with (folder / "_stayfast").open("w") as file, contextlib.redirect_stdout(file):
        main(["completion", "zsh"])
    ours, theirs = pty.openpty()
    environment = {**os.environ, "ZDOTDIR": str(folder), "TERM": "dumb", "COLUMNS": "200"}
    shell = subprocess.Popen(
        ["zsh", "-i"], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    try:
        seen += read_until(ours, b"ready> ") + read_until(ours, b"")  # the editor starts after the prompt
        for send in (keys, "\t", "\x01echo \n"):
            os.write(ours, send.encode())
            seen += read_until(ours, b"")
        return seen.decode(errors="replace")
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)


def read_until(terminal: int, mark: bytes) -> bytes:
    """Up to the mark; without one, until the terminal has been quiet for a while."""
    seen = b""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (mark and mark in seen):
        if not select.select([terminal], [], [], 30 if mark else 1.5)[0]:
            break
        try:
            seen += os.read(terminal, 65536)
        except OSError:  # the shell has left
            break
    return seen


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("keys", "line"),
    [("stayfast lin", "stayfast lint"), ("stayfast checkpoints ver", "stayfast checkpoints verify")],
)
def test_the_tab_key_in_a_real_zsh(keys: str, line: str, tmp_path: Path) -> None:
    seen = typed_in_zsh(tmp_path, keys)
    assert re.search(rf"^{line}\s*$", seen.replace("\r", ""), re.MULTILINE), seen


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("stayfast lin", ["lint"]),
        ("stayfast lint --form", ["--format"]),
        ("stayfast lint --format s", ["sarif"]),
        ("stayfast checkpoints ", ["ls", "prune", "verify"]),
    ],
)
def test_the_tab_key_in_a_real_fish(
    line: str, wanted: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["completion", "fish"])
    (tmp_path / "stayfast.fish").write_text(capsys.readouterr().out)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source stayfast.fish; complete -C {line!r}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(row.split("\t")[0] for row in done.stdout.splitlines()) == wanted


def test_hostile_words_are_quoted(tmp_path: Path) -> None:
    text = "it's $(touch owned) `touch owned` [a]: \\ \""
    option = Option(("--odd",), text, True, ("$(touch owned)",))
    script = tmp_path / "script"
    script.write_text(bash([Described("odd", text, (option,), ("`touch owned`",))]))
    offered(script, "odd", "--", folder=tmp_path)
    assert not (tmp_path / "owned").exists()
    for made in (zsh, fish):
        lines = made([Described("odd", text, (option,))])
        assert "it\\'s" in lines or "'\"'\"'" in lines


def test_no_heavy_module_is_loaded() -> None:
    program = (
        "import sys, json, io, contextlib\nfrom stayfast.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n    main(['completion', 'bash'])\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert loaded & HEAVY == set()


def test_no_shell_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["completion", "tcsh"])
    assert left.value.code == 2
    assert "stayfast completion --help" in capsys.readouterr().err
