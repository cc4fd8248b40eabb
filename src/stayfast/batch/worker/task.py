"""``@stayfast.task``: a function that workers run on items.

::

    @stayfast.task(key=lambda item: item["image_id"])
    def infer(batch):                 # a list of items in, a list of results out, in the same order
        return model(batch)

    @stayfast.task(each=True)
    def shrink(item):                 # one item in, one result out
        return resize(item["path"])
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

from stayfast.batch.queue.protocol import Enqueued
from stayfast.batch.queue.validation import ItemError, check_key, check_size, encode_payload
from stayfast.errors import Interrupted, UsageError


class Failed:
    """A result that says: this item could not be done, for this reason."""

    def __init__(self, reason: str, *, retry: bool = True) -> None:
        self.reason = str(reason)
        self.retry = retry

    def __repr__(self) -> str:
        return f"Failed({self.reason!r})"


class TaskResultError(UsageError):
    """A task that does not give one result per item: it is wrong as a whole, and no item's fault."""


class Task:
    """A function with what a worker needs to know about it; calling it calls the function."""

    def __init__(self, function: Callable[..., Any], *, key: Callable[[Any], str] | None, each: bool) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.key = key
        self.each = each
        self.name = f"{function.__module__}:{getattr(function, '__qualname__', 'task')}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def key_of(self, item: Any, where: str = "an item") -> str:
        """The key of an item that carries none, by the task's own function."""
        if self.key is None:
            raise ItemError(f"{where} has no key and {self.name} has no key function", help="write @task(key=...)")
        try:
            return check_key(self.key(item), where)
        except ItemError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise ItemError(f"the key function of {self.name} failed on {where}: {what}") from error

    def enqueue(self, queue: str, items: Iterable[Any], *, sink: str | None = None, replace: bool = False) -> Enqueued:
        """Put items into the queue behind the URL, with keys from this task's key function."""
        from stayfast.batch.queue.open_queue import open_queue

        opened = open_queue(queue, sink=sink)
        try:
            return opened.enqueue(self._pairs(items), replace=replace)
        finally:
            opened.close()

    def _pairs(self, items: Iterable[Any]) -> Iterable[tuple[str, str]]:
        for number, item in enumerate(items):
            where = f"item {number}"
            yield self.key_of(item, where), check_size(encode_payload(item, where), where)


@overload
def task(function: Callable[..., Any]) -> Task: ...
@overload
def task(*, key: Callable[[Any], str] | None = None, each: bool = False) -> Callable[[Callable[..., Any]], Task]: ...
def task(
    function: Callable[..., Any] | None = None, *, key: Callable[[Any], str] | None = None, each: bool = False
) -> Task | Callable[[Callable[..., Any]], Task]:
    """Mark a function as a task; ``each=True`` when it takes one item instead of a list."""
    if function is not None:
        return Task(function, key=key, each=each)
    return lambda inner: Task(inner, key=key, each=each)


def parse_task_name(spec: str) -> tuple[str, str]:
    """``package.module:task`` in its two halves."""
    module, colon, name = spec.partition(":")
    if not colon or not name or not all(part.isidentifier() for part in (module + "." + name).split(".")):
        raise UsageError(f"{spec!r} does not name a task", help="write MODULE:TASK, such as jobs.infer:infer")
    return module, name


def load_task(spec: str) -> Task:
    """Import a task by name; the current directory is searched first, as ``python -m`` does."""
    module_name, name = parse_task_name(spec)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        module = sys.modules.get(module_name)
        tasks = [found for found, value in vars(module).items() if isinstance(value, Task)] if module else []
        cure = f"its tasks are {', '.join(tasks)}" if tasks else "check the name after the colon"
        raise UsageError(f"{module_name} has no {name!r}: {error}", help=cure) from error
    except (Interrupted, KeyboardInterrupt):
        raise
    except BaseException as error:
        what = f"{type(error).__name__}: {error}"
        file = isinstance(error, ModuleNotFoundError) and module_name.endswith(".py")
        cure = f"write {module_name[:-3]}:{name}" if file else f"try: python -c 'import {module_name}'"
        raise UsageError(f"{module_name} cannot be imported: {what}", help=cure) from error
    if not isinstance(found, Task):
        raise UsageError(f"{spec} is a {type(found).__name__}, not a task", help="put @stayfast.task above it")
    _check_function(found.function, spec)
    return found


def _check_function(function: Callable[..., Any], spec: str) -> None:
    """What would fail for every item is said before the first of them is claimed."""
    for call in (function, getattr(function, "__call__", None)):  # noqa: B004 - objects with an async __call__
        if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
            raise UsageError(f"{spec} is async", help="write a plain function; it may call asyncio.run(...)")
        if inspect.isgeneratorfunction(call):
            raise UsageError(f"{spec} is a generator", help="return the results instead of yielding them")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-ins have none
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise UsageError(
            f"{spec} cannot be called with one argument: {error}",
            help="it gets a list of items; with @stayfast.task(each=True), one item",
        ) from None


def check_result_is_value(value: Any, name: str) -> None:
    """A result that was only promised is no item's fault."""
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise TaskResultError(f"{name} gave a {type(value).__name__} as a result", help="give the value itself")


def check_results(given: Any, expected: int, name: str) -> Sequence[Any]:
    """What a task over a list returned, when it is one result per item."""
    if isinstance(given, str | bytes | dict) or not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
        kind = type(given).__name__
        raise TaskResultError(
            f"{name} returned a {kind} for {expected} items", help="return a list, one result per item"
        )
    if len(given) != expected:
        raise TaskResultError(f"{name} returned {len(given)} results for {expected} items", help="return one per item")
    results = [given[index] for index in range(expected)] if not isinstance(given, list) else given
    if len(results) != expected:
        raise TaskResultError(f"{name} returned a list that changes", help="return one result per item")
    return results
