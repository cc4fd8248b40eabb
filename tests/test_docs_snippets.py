"""Every snippet of README, docs and the examples' pages is run, or at least read by the parser that would read it.

A fenced block means what its language says; a comment on the line above says what else there is to know:

    <!-- file: train.py -->              write the block to this file, for the blocks below it
    <!-- no-run: needs a cluster -->     check the syntax only, and say why

``python`` blocks run as programs of their own, ``bash`` blocks as scripts; all blocks of one page share one folder, in
their order on the page, and a ``bash`` block starts where the one before it ended, as in a reader's shell.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from stayfast.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")])
RUN_ELSEWHERE = {
    "docs/guides/torch-fsdp2.md": "tests/integrations/test_guides.py",
    "docs/guides/lightning.md": "tests/integrations/test_trainers.py",
    "docs/guides/hugging-face.md": "tests/integrations/test_trainers.py",
}
BLOCK = re.compile(
    r"(?:^<!-- (?P<key>[a-z-]+): (?P<value>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Snippet:
    language: str
    text: str
    line: int
    key: str | None
    value: str


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text()
    return [
        Snippet(
            found["language"], found["text"], text[: found.start("text")].count("\n") + 1, found["key"], found["value"]
        )
        for found in BLOCK.finditer(text)
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def has_snippets(page: Path) -> bool:
    return any(item.language in ("python", "bash", "yaml") for item in snippets(page))


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``stayfast`` and ``python`` as a reader types them: this interpreter, this source."""
    folder = tmp_path_factory.mktemp("bin")
    for name, rest in (("stayfast", "-m stayfast "), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {rest}"$@"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if has_snippets(page)], ids=name_of)
def test_snippets_run(page: Path, tmp_path: Path, tools: Path) -> None:
    if name_of(page).startswith("examples/"):
        leavings = shutil.ignore_patterns("run", "out", "state", "result.json", "*.db*", "items.jsonl", "__pycache__")
        shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=leavings)
    for snippet in snippets(page):
        where = f"{name_of(page)}:{snippet.line}"
        assert snippet.key in (None, "file", "no-run"), f"{where}: unknown directive {snippet.key!r}"
        if snippet.key == "no-run":
            assert snippet.value, f"{where}: say why it is not run"
        text = snippet.text.replace("/tmp/stayfast-", f"{tmp_path}/stayfast-")
        if snippet.key == "file":
            (tmp_path / snippet.value).write_text(text)
        check_syntax(snippet, where)
        if snippet.key is None and name_of(page) not in RUN_ELSEWHERE:
            run_snippet(snippet.language, text, where, tmp_path, tools)


def check_syntax(snippet: Snippet, where: str) -> None:
    if snippet.language == "python":
        compile(snippet.text, where, "exec")
    elif snippet.language == "bash":
        read = subprocess.run(["bash", "-n"], input=snippet.text, capture_output=True, text=True, timeout=30)
        assert read.returncode == 0, f"{where}: {read.stderr}"
    elif snippet.language in ("yaml", "json"):
        import yaml

        list(yaml.safe_load_all(snippet.text)) if snippet.language == "yaml" else json.loads(snippet.text)


def run_snippet(language: str, text: str, where: str, folder: Path, tools: Path) -> None:
    if language not in ("python", "bash"):
        return
    place = folder / ".place"
    if language == "python":
        command = [sys.executable, "-c", text]
    else:
        command = ["bash", "-euo", "pipefail", "-c", f"trap {shlex.quote(f'pwd > {place}')} EXIT\n{text}"]
        folder = Path(place.read_text().strip()) if place.exists() else folder
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STAYFAST_")}
    environment |= {
        "PYTHONPATH": str(ROOT / "src"),
        "PATH": f"{tools}:{os.environ['PATH']}",
        "STAYFAST_METADATA": "off",
        "PAUSE_SECONDS": "0",
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{where} left with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


def commands_in(text: str) -> list[list[str]]:
    """The words behind ``stayfast`` on every line of a fenced block that calls it, up to a pipe or remark."""
    found = []
    for snippet in BLOCK.finditer(text):
        for line in re.sub(r"\s*\\\n\s*", " ", snippet["text"]).splitlines():
            lexer = shlex.shlex(
                re.sub(r"(\S)\s{2,}\S.*$", r"\1", line.strip()), posix=True, punctuation_chars="|&;<>()"
            )
            lexer.whitespace_split = True
            try:
                words = list(lexer)
            except ValueError:
                continue  # prose, or a quotation over several lines: bash -n has read it where it is bash
            while "stayfast" in words:
                words = words[words.index("stayfast") + 1 :]
                end = next((at for at, word in enumerate(words) if set(word) <= set("|&;<>()")), len(words))
                if words[:1] and re.fullmatch("[a-z-]+", words[0]) and is_command_line(line):
                    found.append(words[:end])
    return found


def is_command_line(line: str) -> bool:
    """A line that is typed, not a sentence about stayfast."""
    return re.match(r"\s*(\$ )?(\w+=\S+ )*(stayfast |source |code=|generate |helm )", line) is not None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_are_shown_can_be_typed(page: Path) -> None:
    from stayfast.cli.main import build_parser

    known = {command.name: command for command in COMMANDS}
    for words in commands_in(page.read_text()):
        assert words[0] in {*known, "help"}, f"{name_of(page)}: {words}"
        if "..." in words or "…" in "".join(words) or words[0] == "help":
            continue
        parser = build_parser(known[words[0]])
        __import__(known[words[0]].module, fromlist=["configure"]).configure(parser)
        for action in parser._actions:
            action.required = action.required and bool(action.option_strings) and "STAYFAST_" not in (action.help or "")
        try:
            parser.parse_args(words[1:])
        except SystemExit as left:
            assert left.code == 0, f"{name_of(page)}: {words}"  # noqa: PT017


def test_a_broken_snippet_is_found(tmp_path: Path, tools: Path) -> None:
    with pytest.raises(AssertionError, match="left with 1"):
        run_snippet("python", "assert False", "here", tmp_path, tools)
    with pytest.raises(AssertionError, match="left with 2"):
        run_snippet("bash", "stayfast plan --no-such-option\ntrue", "here", tmp_path, tools)
    with pytest.raises(SyntaxError):
        check_syntax(Snippet("python", "for", 1, None, ""), "here")
    assert commands_in("```bash\nA=b stayfast doctor -- sh -c 'a | b' | cat\nstayfast is a word\n```\n") == [
        ["doctor", "--", "sh", "-c", "a | b"],
        ["is", "a", "word"],
    ]
    page = tmp_path / "page.md"
    page.write_text("<!-- no-run: why -->\n```bash\necho\n```\n\n```python\npass\n```\n")
    assert [(item.language, item.key) for item in snippets(page)] == [("bash", "no-run"), ("python", None)]
