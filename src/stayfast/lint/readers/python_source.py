"""Python sources: does a SIGTERM handler, or the code that acts on its flag, end the process with 0?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

_EXITS = {("sys", "exit"), ("os", "_exit")}
_BARE_EXITS = {"exit", "quit", "SystemExit", "_exit"}
_MENTIONS = re.compile(r"SIGTERM|\bsignal\s*\(\s*15\b|_handler\s*\(\s*15\b")
_FINISHED = re.compile(r"done|finish|complete", re.IGNORECASE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


class ZeroExit(NamedTuple):
    """Where the process is told to end as if it had finished."""

    line: int
    column: int
    handler: str


def zero_exits(source: str) -> list[ZeroExit] | None:
    """All exits with 0 that a SIGTERM leads to; ``None`` where the source cannot be parsed."""
    if not _MENTIONS.search(source):
        return []
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    try:
        return _Module(tree).zero_exits()
    except RecursionError:
        return []  # nested deeper than any program


class _Module:
    """One parsed source with its names: functions, constants that are 0, other names of ``sys.exit``."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = list(ast.walk(tree))
        self.functions: dict[str, list[Function]] = {}
        self.zeros = {"EX_OK"}
        self.signals = {"SIGTERM"}
        self.modules = {"sys": "sys", "os": "os"}
        self.exits = set(_BARE_EXITS)
        for node in self.nodes:
            self._note(node)
        for node in self.nodes:  # names for SIGTERM may be used before the loop that walks them
            if isinstance(node, ast.For | ast.comprehension) and self._is_sigterm(node.iter):
                self.signals |= {_name(target) for target in ast.walk(node.target) if _name(target)}

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, Function):
            self.functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {_name(target) for target in targets} - {""}
            if isinstance(node.value, ast.Constant) and node.value.value == 0 and node.value.value is not False:
                self.zeros |= {name for name in names if name.isupper()}
            elif self._is_sigterm(node.value) and not isinstance(node.value, ast.Call):
                self.signals |= names
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in ("sys", "os") and alias.asname:
                    self.modules[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module in ("sys", "os"):
            for alias in node.names:
                if (node.module, alias.name) in _EXITS:
                    self.exits.add(alias.asname or alias.name)

    def _is_sigterm(self, node: ast.AST) -> bool:
        return any(
            _name(inner) in self.signals or (isinstance(inner, ast.Constant) and inner.value in ("SIGTERM",))
            for inner in ast.walk(node)
        )

    def zero_exits(self) -> list[ZeroExit]:
        found: list[ZeroExit] = []
        for handler in self._handlers():
            name = _name(handler) or "lambda"
            bodies: list[ast.AST] = [handler] if isinstance(handler, ast.Lambda) else [*self.functions.get(name, [])]
            for body in bodies:
                for part in (body, *self._called(body)):
                    found += [_at(call, name) for call in self._exit_calls(part)]
                for statement in self._acting_on(set(_flags(body))):
                    found += [_at(call, name) for call in self._exit_calls(statement)]
        return sorted(set(found))

    def _handlers(self) -> Iterator[ast.expr]:
        """What every call that installs a handler for SIGTERM is given."""
        for node in self.nodes:
            if not isinstance(node, ast.Call) or len(node.args) < 2:
                continue
            if _name(node.func) not in ("signal", "add_signal_handler"):
                continue
            which = node.args[0]
            if self._is_sigterm(which) or (isinstance(which, ast.Constant) and which.value == 15):
                yield _unwrapped(node.args[1])

    def _called(self, body: ast.AST) -> list[ast.AST]:
        """Functions of this file that the handler calls, directly or through one another."""
        seen: dict[int, ast.AST] = {}
        todo = [body]
        while todo:
            for node in ast.walk(todo.pop()):
                if not isinstance(node, ast.Call) or not _is_own(node.func):
                    continue
                for function in self.functions.get(_name(node.func), []):
                    if id(function) not in seen and function is not body:
                        seen[id(function)] = function
                        todo.append(function)
        return list(seen.values())

    def _acting_on(self, flags: set[str]) -> Iterator[ast.stmt]:
        """Statements that run because a flag is set: under ``if flag``, or after ``while not flag``."""
        for node in self.nodes if flags else ():
            if isinstance(node, ast.If) and _mentions(node.test, flags):
                yield from node.orelse if _is_negated(node.test) else node.body
            for statements in (getattr(node, "body", None), getattr(node, "orelse", None)):
                if isinstance(statements, list):
                    yield from _after_loop(statements, flags)

    def _exit_calls(self, node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
        """Exits with 0 inside; those under a test that says the work is finished are right."""
        todo = [node]
        while todo:
            inner = todo.pop()
            if isinstance(inner, ast.If) and _says_finished(inner.test):
                todo += inner.orelse
                continue
            if isinstance(inner, ast.Call) and self._is_exit(inner.func):
                if not inner.args or self._is_zero(inner.args[0]):
                    yield inner
            elif isinstance(inner, ast.Raise) and isinstance(inner.exc, ast.Name) and inner.exc.id == "SystemExit":
                yield inner
            todo += ast.iter_child_nodes(inner)

    def _is_exit(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return (self.modules.get(function.value.id, ""), function.attr) in _EXITS
        return isinstance(function, ast.Name) and function.id in self.exits

    def _is_zero(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Constant):
            return value.value is None or (value.value == 0 and not isinstance(value.value, str))
        return _name(value) in self.zeros


def _after_loop(statements: list[ast.stmt], flags: set[str]) -> Iterator[ast.stmt]:
    for index, statement in enumerate(statements):
        if not isinstance(statement, ast.While) or any(isinstance(inner, ast.Break) for inner in ast.walk(statement)):
            continue  # a loop with a break may end because the work is done
        if _is_negated(statement.test) and _mentions(statement.test, flags):
            yield from statements[index + 1 :]


def _at(node: ast.expr | ast.stmt, handler: str) -> ZeroExit:
    return ZeroExit(node.lineno, node.col_offset + 1, handler)


def _unwrapped(handler: ast.expr) -> ast.expr:
    """The function inside ``functools.partial(function, ...)``."""
    if isinstance(handler, ast.Call) and _name(handler.func) == "partial" and handler.args:
        return handler.args[0]
    return handler


def _is_own(function: ast.expr) -> bool:
    """A call of this file's own: ``save()`` or ``self.save()``; ``model.train()`` is somebody else's."""
    if isinstance(function, ast.Attribute):
        return isinstance(function.value, ast.Name) and function.value.id in ("self", "cls")
    return isinstance(function, ast.Name)


def _is_negated(test: ast.expr) -> bool:
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _says_finished(test: ast.expr) -> bool:
    return not _is_negated(test) and any(_FINISHED.search(_name(inner)) for inner in ast.walk(test))


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return ""


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(_name(inner) in names for inner in ast.walk(node))


def _flags(node: ast.AST) -> Iterator[str]:
    """Names that the handler sets, so that other code can act on them."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Constant) and inner.value.value is True:
            yield from (_name(target) for target in inner.targets)
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "set":
            yield _name(inner.func.value)
