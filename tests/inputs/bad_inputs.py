"""One row of the table of bad inputs, and what must hold for every one of them.

A case is a small world (files, variables, stdin, a clock), a command line, and what the command has to answer: its
exit code and a distinctive part of its one sentence. Whatever the case, there is no traceback, nothing but results on
stdout, no escape sequence for the terminal, and nothing in the world has changed.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import logging
import os
import re
import signal
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
PATIENCE_SECONDS = 60
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
LONGEST_SENTENCE = 2000
WORLD = "{world}"
"""In arguments, variables and files: the absolute path of the case's folder."""


@dataclass(frozen=True)
class Case:
    """One bad input or situation."""

    name: str
    argv: tuple[str, ...]
    says: str
    code: int = 2
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    make: Callable[[Path], None] | None = None
    """What files alone cannot say: links, pipes, modes, databases."""
    stdin: bytes = b""
    now: float | None = None
    shell: str = ""
    """Run by ``sh`` in a process of its own, with "$@" as the command: for streams, limits and mounts."""
    own_process: bool = False
    unprivileged: bool = False
    """Without the powers of root, so that a mode counts."""
    root_only: bool = False
    leaves: tuple[str, ...] = ()
    """Names that may be new or changed afterwards; everything else must not."""
    lines: int = 1
    """The most lines that stderr may have."""
    cure: bool = True
    """Whether the sentence has to say what to do."""
    on_stdout: bool = False
    """A finding: ``says`` is looked for among the results."""


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    code: int
    out: str
    err: str


def build(case: Case, world: Path) -> None:
    """The folder in which the command runs."""
    for name, content in case.files.items():
        path = world / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            content = content.replace(WORLD, str(world)).encode("utf-8", "surrogateescape")
        path.write_bytes(content)
    if case.make is not None:
        case.make(world)


def look(world: Path) -> dict[str, str]:
    """Everything in the folder, by kind, mode and content."""
    found = {}
    for folder, names, files in os.walk(os.fsencode(world)):
        for name in names + files:
            path = os.path.join(folder, name)
            state = os.lstat(path)
            what = f"{stat.filemode(state.st_mode)}"
            if stat.S_ISLNK(state.st_mode):
                what += " " + os.fsdecode(os.readlink(path))
            elif stat.S_ISREG(state.st_mode):
                what += " " + hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest()
            found[os.fsdecode(os.path.relpath(path, os.fsencode(world)))] = what
    return found


def answer(case: Case, world: Path) -> Answer:
    """Run the command in its world."""
    argv = tuple(argument.replace(WORLD, str(world)) for argument in case.argv)
    env = {name: value and value.replace(WORLD, str(world)) for name, value in case.env.items()}
    if case.shell or case.own_process or case.unprivileged:
        return _in_a_process(case, argv, env, world)
    return _here(case, argv, env, world)


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """Nothing of ours, and no cluster or cloud of the person who runs the tests."""
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONHASHSEED")
    values: dict[str, str | None] = {name: os.environ.get(name) for name in kept}
    values |= {"HOME": "/nonexistent", "STAYFAST_METADATA": "off", "NO_COLOR": "1", "TERM": "dumb"} | changes
    return {name: value for name, value in values.items() if value is not None}


def _in_a_process(case: Case, argv: tuple[str, ...], env: Mapping[str, str | None], world: Path) -> Answer:
    command = [sys.executable, "-m", "stayfast", *argv]
    if case.shell:
        command = ["sh", "-c", case.shell, "sh", *command]
    if case.unprivileged and os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    environment = _environment(env) | {"PYTHONPATH": str(SOURCE), "WORLD": str(world)}
    done = subprocess.run(
        command, cwd=world, env=environment, input=case.stdin, capture_output=True, timeout=PATIENCE_SECONDS
    )
    return Answer(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def _here(case: Case, argv: tuple[str, ...], env: Mapping[str, str | None], world: Path) -> Answer:
    """In this process, many times a second; an escaped exception is what a traceback would have been."""
    from stayfast.cli.main import main

    with _borrowed(case, env, world) as (out, err):
        try:
            code = main(argv)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1 if left.code else 0
        except BaseException:
            traceback.print_exc()
            code = 1
        told = [stream.getvalue().decode("utf-8", "replace") for stream in (out, err)]
    return Answer(code, *told)


class Endless(BaseException):
    """The command waits for something that never comes."""


def _enough(*_: object) -> None:
    raise Endless(f"no answer within {PATIENCE_SECONDS} s")


@contextlib.contextmanager
def _borrowed(case: Case, env: Mapping[str, str | None], world: Path) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Streams, variables, folder and clock of the process, given back afterwards."""
    out, err = io.BytesIO(), io.BytesIO()
    before = os.getcwd(), dict(os.environ), sys.stdin, sys.stdout, sys.stderr, list(sys.path), time.time
    handlers = list(logging.getLogger().handlers)
    sys.stdin = io.TextIOWrapper(io.BytesIO(case.stdin), encoding="utf-8", errors="strict")
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", errors="strict", write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", errors="backslashreplace", write_through=True)
    os.environ.clear()
    os.environ.update(_environment(env))
    os.chdir(world)
    if case.now is not None:
        time.time = lambda: case.now  # type: ignore[assignment,return-value]
    waiting = signal.signal(signal.SIGALRM, _enough)
    signal.alarm(PATIENCE_SECONDS)
    try:
        yield out, err
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, waiting)
        folder, variables, sys.stdin, sys.stdout, sys.stderr, sys.path[:], time.time = before
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        logging.getLogger().handlers[:] = handlers
        gc.enable()  # lint switches it off for its one short run


def complaints(case: Case, given: Answer, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What is wrong with an answer; nothing, if it is good."""
    told = given.out if case.on_stdout else given.err
    found = []
    if given.code != case.code:
        found.append(f"left with {given.code}, not {case.code}")
    if "Traceback" in given.err + given.out or re.search(r"^\w*Error\b", given.err, re.MULTILINE):
        found.append("a traceback")
    if case.says not in told:
        found.append(f"does not say {case.says!r}")
    if CONTROL.search(given.err) or (not case.on_stdout and CONTROL.search(given.out)):
        found.append("control characters reach the terminal")
    if case.code and not case.on_stdout:
        found += _sentence(case, given)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    strange = sorted(name for name in changed if not name.startswith(case.leaves or ("\0",)))
    if strange:
        found.append(f"touched {strange}")
    return found


def _sentence(case: Case, given: Answer) -> list[str]:
    found = []
    lines = given.err.splitlines()
    if not re.search(r"^stayfast( exec)?: ", given.err, re.MULTILINE):
        found.append("does not begin with its name")
    if len(lines) > case.lines:
        found.append(f"{len(lines)} lines instead of {case.lines}")
    if case.cure and "; " not in given.err:
        found.append("does not say what to do")
    if any(len(line) > LONGEST_SENTENCE for line in lines):
        found.append("is longer than anybody reads")
    if given.out and case.code == 2:
        found.append("something on stdout")
    return found
