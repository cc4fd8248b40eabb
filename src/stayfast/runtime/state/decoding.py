"""The inverse of ``encoding``: a JSON tree and its leaves back to Python values, whatever the bytes may hold.

Only ``CorruptError`` and ``FormatError`` leave this module: sizes and depths are checked before anything is built.
"""

from __future__ import annotations

import base64
import collections
import json
import struct
from collections.abc import Callable
from typing import Any

from stayfast.errors import CheckpointError, CorruptError, FormatError
from stayfast.runtime.state.encoding import FACTORIES, MAX_DEPTH, MAX_TREE_BYTES
from stayfast.runtime.state.frameworks import framework_tags

MAX_INT_CHARACTERS = 1 << 20
LeafReader = Callable[[int], Any]


def decode(tree: bytes | memoryview, fetch: LeafReader) -> dict[str, Any]:
    """The state; ``fetch(number)`` gives the leaf of that number as an array, a tensor or bytes."""
    state = build_value(parse_tree(tree), fetch)
    if type(state) is not dict:
        raise CorruptError("the tree is not a state: its outermost value is no map")
    return state


def parse_tree(tree: bytes | memoryview) -> Any:
    """The tree as plain JSON, still with the tags in it."""
    if len(tree) > MAX_TREE_BYTES:
        raise CorruptError(f"a tree of {len(tree)} bytes is longer than any that is written")
    try:
        return json.loads(bytes(tree), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"the tree is not readable as JSON ({type(error).__name__})") from None


def build_value(body: Any, fetch: LeafReader) -> Any:
    """What a parsed tree, or a branch of one, stands for."""
    try:
        return _Decoder(fetch).decode(body, 0)
    except CheckpointError:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, struct.error) as error:
        raise CorruptError(f"the tree holds a value of the wrong form ({type(error).__name__}: {error})") from None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        raise CorruptError("the tree holds the same key twice")
    return body


def _no_constant(name: str) -> Any:
    raise CorruptError(f"the tree holds a bare {name}")


class _Decoder:
    def __init__(self, fetch: LeafReader) -> None:
        self._fetch = fetch
        self.made: dict[int, Any] = {}

    def decode(self, body: Any, depth: int) -> Any:
        if depth > 2 * MAX_DEPTH:
            raise CorruptError(f"the tree is nested more than {2 * MAX_DEPTH} deep")
        if type(body) is list:
            return [self.decode(item, depth + 1) for item in body]
        if type(body) is not dict:
            return body
        if len(body) != 1:
            raise CorruptError("the tree holds an object that does not name one type")
        ((tag, value),) = body.items()
        method = _TAGS.get(tag)
        if method is not None:
            return method(self, value, depth + 1)
        read = framework_tags().get(tag)
        if read is None:
            raise FormatError(f"the tree holds a {tag[:40]!r}, which is not known here", help="upgrade stayfast")
        return read(value, self)

    def pairs(self, rows: list[Any], depth: int) -> list[tuple[Any, Any]]:
        found = []
        for key, value in rows:
            found.append((self.decode(key, depth), self.decode(value, depth)))
        return found

    def leaf(self, number: Any) -> Any:
        if type(number) is not int:
            raise CorruptError("the tree refers to a leaf without a number")
        return self._fetch(number)

    def integer(self, value: str, _depth: int) -> int:
        if len(value) > MAX_INT_CHARACTERS:
            raise CorruptError("the tree holds an integer longer than any that is written")
        return int(value, 16)

    def map(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        return {key: self.decode(item, depth) for key, item in value.items()}

    def data(self, value: Any, depth: int) -> bytes:
        if type(value) is str:
            return base64.b64decode(value, validate=True)
        raw = self.decode(value, depth)
        if type(raw) is not bytes:
            raise CorruptError("the tree names bytes that are stored as something else")
        return raw

    def ordered(self, value: dict[str, Any], depth: int) -> Any:
        result: Any = collections.OrderedDict(self.pairs(value["pairs"], depth))
        if "metadata" in value:
            result._metadata = self.decode(value["metadata"], depth)
        return result

    def default(self, value: dict[str, Any], depth: int) -> Any:
        return collections.defaultdict(FACTORIES[value["factory"]], self.pairs(value["pairs"], depth))

    def counter(self, value: list[Any], depth: int) -> Any:
        return collections.Counter(dict(self.pairs(value, depth)))

    def deque(self, value: dict[str, Any], depth: int) -> Any:
        return collections.deque((self.decode(item, depth) for item in value["items"]), value["maxlen"])

    def complex_(self, value: str, _depth: int) -> complex:
        return complex(*struct.unpack(">dd", bytes.fromhex(value)))

    def float_(self, value: str, _depth: int) -> float:
        number: float = struct.unpack(">d", bytes.fromhex(value))[0]
        return number


_TAGS: dict[str, Callable[[_Decoder, Any, int], Any]] = {
    "map": _Decoder.map,
    "dict": lambda self, value, depth: dict(self.pairs(value, depth)),
    "tuple": lambda self, value, depth: tuple([self.decode(item, depth) for item in value]),
    "set": lambda self, value, depth: {self.decode(item, depth) for item in value},
    "frozenset": lambda self, value, depth: frozenset(self.decode(item, depth) for item in value),
    "int": _Decoder.integer,
    "float": _Decoder.float_,
    "complex": _Decoder.complex_,
    "bytes": _Decoder.data,
    "bytearray": lambda self, value, depth: bytearray(self.data(value, depth)),
    "leaf": lambda self, value, _depth: self.leaf(value),
    "array": lambda self, value, _depth: self.leaf(value),
    "tensor": lambda self, value, _depth: self.leaf(value),
    "ordered": _Decoder.ordered,
    "counter": _Decoder.counter,
    "default": _Decoder.default,
    "deque": _Decoder.deque,
}
