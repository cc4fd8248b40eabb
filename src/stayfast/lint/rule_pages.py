"""The page of each rule: what, why, example, use instead, source; for ``--explain`` and for the documentation."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

from stayfast.errors import UsageError
from stayfast.lint.rules import load_rules

_FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


class Page(NamedTuple):
    """One rule page, as written."""

    code: str
    name: str
    text: str

    def section(self, title: str) -> str:
        """The text under a heading."""
        match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", self.text, re.DOTALL | re.MULTILINE)
        return match.group(1).strip() if match else ""

    @property
    def summary(self) -> str:
        """The first sentence of what it does."""
        return self.section("What it does").partition("\n\n")[0].replace("\n", " ")

    def code_blocks(self, title: str) -> list[tuple[str, str]]:
        """``(language, content)`` of the fenced blocks under a heading."""
        return _FENCE.findall(self.section(title))


def page(code: str) -> Page:
    """The page of a rule; of one that another package adds, what its function says."""
    name = code.upper()
    source = files("stayfast.lint").joinpath("pages", f"{name}.md")
    if re.fullmatch(r"SF[0-9]{3}", name) and source.is_file():
        text = source.read_text(encoding="utf-8")
    elif added := next((rule for rule in load_rules() if rule.code == name), None):
        text = f"# {added.code}: {added.name}\n\n## What it does\n{added.check.__doc__ or added.name}\n"
    else:
        raise UsageError(f"there is no rule {code}", help="stayfast lint --rules lists them")
    heading = text.partition("\n")[0]
    return Page(name, heading.partition(": ")[2], text)


def codes() -> list[str]:
    """Every rule, in order."""
    pages = {
        entry.name[:-3] for entry in files("stayfast.lint").joinpath("pages").iterdir() if entry.name[-3:] == ".md"
    }
    return sorted(pages | {rule.code for rule in load_rules()})


def reference() -> str:
    """All pages as one document, with a table at the top."""
    every = [page(code) for code in codes()]
    lines = [
        "# Lint rules\n",
        "Made by `python tools/make_rule_reference.py` from the pages that `stayfast lint --explain` prints.\n",
        "| Code | Name | What it finds |\n|---|---|---|",
    ]
    lines += [
        f"| [{entry.code}](#{entry.code.lower()}-{entry.name}) | {entry.name} | {entry.summary} |" for entry in every
    ]
    for entry in every:
        body = entry.text.partition("\n")[2].replace("\n## ", "\n### ")
        lines.append(f"\n## {entry.code}: {entry.name}\n{body.rstrip()}")
    return "\n".join(lines) + "\n"
