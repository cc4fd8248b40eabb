"""Python sources: does a SIGTERM handler, or the code that acts on its flag, end the process with 0?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

_EXITS = {("sys", "exit"), ("os", "_exit")}
_BARE_EXITS = {"exit", "quit", "SystemExit", "_exit"}


class ZeroExit(NamedTuple):
    """Where the process is told to end as if it had finished."""

    line: int
    column: int
    handler: str


def zero_exits(source: str) -> list[ZeroExit] | None:
    """All exits with 0 that a SIGTERM leads to; ``None`` where the source cannot be parsed."""
    if "SIGTERM" not in source:
        return []
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _zero_exits(tree)


def _zero_exits(tree: ast.Module) -> list[ZeroExit]:
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    zeros = {"EX_OK"} | {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value == 0
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found: list[ZeroExit] = []
    for handler in _handlers(tree):
        name = _name(handler)
        body: ast.AST | None = handler if isinstance(handler, ast.Lambda) else functions.get(name)
        if body is None:
            continue
        found += [_at(call, name or "lambda") for call in _exit_calls(body, zeros)]
        flags = set(_flags(body))
        for node in ast.walk(tree):
            if flags and isinstance(node, ast.If) and _mentions(node.test, flags):
                for statement in node.body:
                    found += [_at(call, name or "lambda") for call in _exit_calls(statement, zeros)]
    return sorted(set(found))


def _at(node: ast.expr | ast.stmt, handler: str) -> ZeroExit:
    return ZeroExit(node.lineno, node.col_offset + 1, handler)


def _handlers(tree: ast.Module) -> Iterator[ast.expr]:
    """The second argument of every call that installs a handler for SIGTERM."""
    loops = {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and _mentions(node.iter, {"SIGTERM"})
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or len(node.args) < 2:
            continue
        if _name(node.func) not in ("signal", "add_signal_handler"):
            continue
        if _mentions(node.args[0], {"SIGTERM"} | loops):
            yield node.args[1]


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return ""


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(_name(inner) in names for inner in ast.walk(node))


def _exit_calls(node: ast.AST, zeros: set[str]) -> Iterator[ast.expr | ast.stmt]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and _is_exit(inner.func):
            if not inner.args or _is_zero(inner.args[0], zeros):
                yield inner
        elif isinstance(inner, ast.Raise) and isinstance(inner.exc, ast.Name) and inner.exc.id == "SystemExit":
            yield inner


def _is_exit(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return (function.value.id, function.attr) in _EXITS
    return isinstance(function, ast.Name) and function.id in _BARE_EXITS


def _is_zero(value: ast.expr, zeros: set[str]) -> bool:
    if isinstance(value, ast.Constant):
        return value.value is None or (value.value == 0 and not isinstance(value.value, str))
    return _name(value) in zeros


def _flags(node: ast.AST) -> Iterator[str]:
    """Names that the handler sets, so that other code can act on them."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Constant) and inner.value.value is True:
            yield from (_name(target) for target in inner.targets)
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "set":
            yield _name(inner.func.value)
