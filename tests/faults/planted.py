"""Bugs to be planted: one to three wrong lines each, written into the product's source while a test process loads it.

The product knows nothing of this. ``planting/sitecustomize.py`` calls ``install`` in processes whose environment names
a bug; a finder then hands the edited text of one module to the compiler. The bugs stand in ``planted.toml``.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

MOST_LINES = 3


@dataclass(frozen=True)
class Edit:
    """In this file, exactly one occurrence of ``old`` becomes ``new``."""

    file: str
    old: str
    new: str

    def apply(self, text: str) -> str:
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file} holds {text.count(self.old)} times what a planted bug replaces: {self.old!r}"
            )
        return text.replace(self.old, self.new)

    @property
    def module(self) -> str:
        return "stayfast." + self.file.removesuffix(".py").replace("/", ".")

    @property
    def lines(self) -> int:
        """How many wrong lines there are afterwards, or how many are gone."""
        rows = [row for row in difflib.ndiff(self.old.splitlines(), self.new.splitlines()) if row[:2] in ("+ ", "- ")]
        return max(sum(row[0] == "+" for row in rows), sum(row[0] == "-" for row in rows))


@dataclass(frozen=True)
class Bug:
    """A name's edits, the suite that exists to find it, and the hunter that runs that suite."""

    suite: str
    hunter: str
    edits: tuple[Edit, ...]

    @property
    def lines(self) -> int:
        return sum(edit.lines for edit in self.edits)


def _read() -> tuple[dict[str, Bug], dict[str, Bug], tuple[str, ...]]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["bug"]
    forty: dict[str, Bug] = {}
    ours: dict[str, Bug] = {}
    for row in rows:
        edits = tuple(Edit(edit["file"], edit["old"], edit["new"]) for edit in row["edit"])
        bug = Bug(row["hunter"].partition(":")[0], row["hunter"], edits)
        (ours if row.get("ours") else forty)[row["name"]] = bug
    return forty, ours, tuple(row["name"] for row in rows if row.get("slow"))


BUGS, MORE, SLOW = _read()
"""The forty by the names they have everywhere; our own; and those that are looked for at night alone."""


def find(name: str) -> Bug:
    """A misspelt bug would be one that nobody finds."""
    if name not in BUGS and name not in MORE:
        raise ValueError(f"no planted bug is called {name!r}")
    return BUGS.get(name) or MORE[name]


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the edited text; nothing of it is ever cached."""

    def __init__(self, name: str, path: str, edits: list[Edit]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text(encoding="utf-8")
        for edit in self._edits:
            text = edit.apply(text)
        return compile(text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, edits: dict[str, list[Edit]]) -> None:
        self._edits = edits

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._edits:
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        spec.loader = _Loader(fullname, spec.origin, self._edits[fullname])
        return spec  # type: ignore[no-any-return]


def install(name: str) -> None:
    """From here on this process has the bug; before anything of the product is imported."""
    plant(find(name).edits)


def plant(edits: Sequence[Edit]) -> None:
    """The same for a bug that a test brings along."""
    by_module: dict[str, list[Edit]] = {}
    for edit in edits:
        by_module.setdefault(edit.module, []).append(edit)
    loaded = [module for module in by_module if module in sys.modules]
    if loaded:
        raise RuntimeError(f"{', '.join(loaded)} was imported before a bug could be planted in it")
    sys.meta_path.insert(0, _Finder(by_module))


# -- in a process that has the product loaded already


@contextlib.contextmanager
def switched_on(name: str) -> Iterator[None]:
    """The same bug for a while, here: the code of loaded functions and changed constants are exchanged and put back."""
    undo: list[Callable[[], None]] = []
    texts: dict[str, str] = {}
    try:
        for edit in find(name).edits:
            path = Path(importlib.import_module(edit.module).__file__ or "")
            texts[edit.module] = edit.apply(texts.get(edit.module) or path.read_text(encoding="utf-8"))
        for module, text in texts.items():
            loaded = importlib.import_module(module)
            fresh = ModuleType(module)
            fresh.__dict__.update(__file__=loaded.__file__, __package__=loaded.__package__)
            with _standing_in(module, fresh):  # dataclasses look their own module up
                exec(compile(text, module, "exec", dont_inherit=True), fresh.__dict__)
            _exchange(loaded, fresh, undo)
        yield
    finally:
        for step in reversed(undo):
            step()


@contextlib.contextmanager
def _standing_in(name: str, fresh: ModuleType) -> Iterator[None]:
    before, sys.modules[name] = sys.modules[name], fresh
    try:
        yield
    finally:
        sys.modules[name] = before


def _exchange(old: Any, new: Any, undo: list[Callable[[], None]]) -> None:
    for name, value in list(vars(new).items()):
        current = vars(old).get(name)
        before, after = _function(current), _function(value)
        if before is not None and after is not None:
            if before.__module__ == after.__module__ and before.__code__ != after.__code__:
                undo.append(functools.partial(setattr, before, "__code__", before.__code__))
                before.__code__ = after.__code__
        elif isinstance(current, type) and isinstance(value, type):
            if current.__module__ == value.__module__ == getattr(old, "__name__", ""):
                _exchange(current, value, undo)
        elif isinstance(value, str | int) and isinstance(old, ModuleType) and current != value:
            undo.append(functools.partial(setattr, old, name, current))
            setattr(old, name, value)


def _function(value: Any) -> Any:
    """The Python function inside a method, a property or a decorator's wrapper."""
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    value = getattr(value, "__wrapped__", value)
    return value if isinstance(value, FunctionType) else None
