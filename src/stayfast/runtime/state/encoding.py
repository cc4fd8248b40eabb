"""Nested Python state as a JSON tree plus raw arrays, without pickle: loading it can never run code.

What JSON can say exactly is written as it is. Everything else is an object with one key that names its type, such as
``{"tuple": [...]}`` or ``{"int": "-1f"}``. Arrays, tensors and long byte strings are *leaves*: the tree holds
``{"tensor": 3}`` and leaf 3 is stored as raw bytes. ``docs/reference/checkpoint-format.md`` lists every tag.
"""

from __future__ import annotations

import base64
import collections
import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stayfast.errors import EncodingError
from stayfast.runtime.state.frameworks import EncodedLeaf, loaded_frameworks
from stayfast.runtime.state.leaf import Leaf, bytes_leaf

MAX_DEPTH = 100
MAX_TREE_BYTES = 1 << 30
INLINE_BYTES = 4096
INLINE_INT_BITS = 63
MAX_NAME = 480

FACTORIES: dict[str, Any] = {
    "int": int,
    "float": float,
    "list": list,
    "dict": dict,
    "set": set,
    "str": str,
    "none": None,
}
_PLAIN = {int, str, bool, type(None)}
_HELP = "convert it to numbers, strings, bytes, lists, dicts, arrays or tensors in state_dict()"

StatePath = tuple["StatePath | None", Any]


@dataclass(slots=True)
class FlatState:
    """A state taken apart: the tree as JSON text, and the leaves it refers to by number."""

    tree: bytes
    leaves: list[Leaf]


@dataclass(slots=True)
class _Encoder:
    leaves: list[Leaf] = field(default_factory=list)
    seen: dict[Any, int] = field(default_factory=dict)
    group: str = ""
    exact: dict[type, Callable[[Any], EncodedLeaf]] = field(default_factory=dict)

    def encode(self, value: Any, path: StatePath, depth: int) -> Any:
        kind = type(value)
        exact = self.exact.get(kind)
        if exact is not None:  # most of what a training state holds
            try:
                return self.add(*exact(value), path)
            except EncodingError as error:
                raise _with_path(error, path) from None
        handler = _HANDLERS.get(kind)
        if handler is not None:
            if depth > MAX_DEPTH:
                raise EncodingError(f"{render_path(path)[:200]}: nested more than {MAX_DEPTH} deep, or contains itself")
            return handler(self, value, path, depth + 1)
        return self.encode_array(value, path)

    def encode_array(self, value: Any, path: StatePath) -> Any:
        """A value of an array library; none is imported unless the program did."""
        try:
            for framework in loaded_frameworks():
                found = framework.encode(value)
                if found is not None:
                    return self.add(*found, path) if isinstance(found, tuple) else found
        except EncodingError as error:
            raise _with_path(error, path) from None
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        raise EncodingError(f"{render_path(path)}: cannot store a {kind}", help=_HELP)

    def add(self, tag: str, leaf: Leaf, identity: Any, path: StatePath) -> Any:
        """One leaf per piece of memory: tied weights are stored once and come back tied."""
        leaves = self.leaves
        if identity is not None:
            number = self.seen.setdefault(identity, len(leaves))
            if number != len(leaves):
                return {tag: number}
        leaf.path, leaf.group = path, self.group
        leaves.append(leaf)
        return {tag: len(leaves) - 1}

    def int_(self, value: int, _path: StatePath, _depth: int) -> Any:
        return value if value.bit_length() <= INLINE_INT_BITS else {"int": f"{value:x}"}

    def float_(self, value: float, _path: StatePath, _depth: int) -> Any:
        return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}

    def complex_(self, value: complex, _path: StatePath, _depth: int) -> Any:
        return {"complex": struct.pack(">dd", value.real, value.imag).hex()}

    def bytes_(self, value: bytes | bytearray, path: StatePath, _depth: int) -> Any:
        tag = "bytes" if type(value) is bytes else "bytearray"
        if len(value) <= INLINE_BYTES:
            return {tag: base64.b64encode(value).decode()}
        return {tag: self.add("leaf", bytes_leaf(bytes(value)), None, path)}

    def list_(self, value: list[Any], path: StatePath, depth: int) -> Any:
        if set(map(type, value)) <= _PLAIN and _fits_inline(value):  # long index lists pass at C speed
            return list(value)
        return [self.encode(item, (path, index), depth) for index, item in enumerate(value)]

    def tuple_(self, value: tuple[Any, ...], path: StatePath, depth: int) -> Any:
        return {"tuple": self.list_(list(value), path, depth)}

    def set_(self, value: set[Any] | frozenset[Any], path: StatePath, depth: int) -> Any:
        items = [self.encode(item, (path, "{}"), depth) for item in value]
        items.sort(key=lambda item: json.dumps(item, sort_keys=True))  # no order of their own: make saves comparable
        return {"set" if type(value) is set else "frozenset": items}

    def dict_(self, value: Mapping[Any, Any], path: StatePath, depth: int) -> Any:
        if all(type(key) is str for key in value):
            return {"map": {key: self.encode(item, (path, key), depth) for key, item in value.items()}}
        return {"dict": self.pairs(value, path, depth)}

    def pairs(self, value: Mapping[Any, Any], path: StatePath, depth: int) -> list[Any]:
        rows = []
        for key, item in value.items():
            step = (path, key if type(key) in _PLAIN else repr(key)[:60])
            rows.append([self.encode(key, step, depth), self.encode(item, step, depth)])
        return rows

    def ordered(self, value: collections.OrderedDict[Any, Any], path: StatePath, depth: int) -> Any:
        body: dict[str, Any] = {"pairs": self.pairs(value, path, depth)}
        metadata = getattr(value, "_metadata", None)  # torch modules keep their state's version there
        if metadata is not None:
            body["metadata"] = self.encode(metadata, (path, "_metadata"), depth)
        return {"ordered": body}

    def counter(self, value: collections.Counter[Any], path: StatePath, depth: int) -> Any:
        return {"counter": self.pairs(value, path, depth)}

    def default(self, value: collections.defaultdict[Any, Any], path: StatePath, depth: int) -> Any:
        for name, factory in FACTORIES.items():
            if value.default_factory is factory:
                return {"default": {"factory": name, "pairs": self.pairs(value, path, depth)}}
        raise EncodingError(
            f"{render_path(path)}: cannot store a defaultdict whose factory is {value.default_factory!r}",
            help=f"use one of {', '.join(FACTORIES)}, or a plain dict",
        )

    def deque(self, value: collections.deque[Any], path: StatePath, depth: int) -> Any:
        return {"deque": {"maxlen": value.maxlen, "items": self.list_(list(value), path, depth)}}


def _with_path(error: EncodingError, path: StatePath) -> EncodingError:
    return EncodingError(f"{render_path(path)}: {error.message}", help=error.help)


def _unchanged(_encoder: _Encoder, value: Any, _path: StatePath, _depth: int) -> Any:
    return value


Handler = Callable[[_Encoder, Any, StatePath, int], Any]
_HANDLERS: dict[type, Handler] = {
    type(None): _unchanged,
    bool: _unchanged,
    str: _unchanged,
    int: _Encoder.int_,
    float: _Encoder.float_,
    complex: _Encoder.complex_,
    bytes: _Encoder.bytes_,
    bytearray: _Encoder.bytes_,
    list: _Encoder.list_,
    tuple: _Encoder.tuple_,
    set: _Encoder.set_,
    frozenset: _Encoder.set_,
    dict: _Encoder.dict_,
    collections.OrderedDict: _Encoder.ordered,
    collections.Counter: _Encoder.counter,
    collections.defaultdict: _Encoder.default,
    collections.deque: _Encoder.deque,
}


def encode(state: Mapping[str, Any]) -> FlatState:
    """Take a state apart; ``EncodingError`` names the path of the first value that cannot be stored."""
    encoder = _Encoder()
    for framework in loaded_frameworks():
        encoder.exact.update(framework.exact_types())
    body = {}
    for key, value in state.items():
        encoder.group = str(key)
        body[key] = encoder.encode(value, (None, key), 1)
    tree = json.dumps({"map": body}, separators=(",", ":"), allow_nan=False).encode()
    if len(tree) > MAX_TREE_BYTES:
        raise EncodingError(
            f"the state holds {len(tree)} bytes of plain Python values; {MAX_TREE_BYTES} is the limit",
            help="keep bulk data in arrays or tensors",
        )
    return FlatState(tree, encoder.leaves)


def render_path(path: StatePath | None) -> str:
    """A path as people write it: ``optimizer.state[3].exp_avg``; never with a separator of file names in it."""
    keys: list[Any] = []
    while path is not None:
        path, key = path
        keys.append(key)
    text = ""
    for key in reversed(keys):
        if type(key) is str and all(letter.isalnum() or letter in "_.-{}" for letter in key) and key:
            text += ("." if text and key != "{}" else "") + key
        else:
            text += f"[{_printable(ascii(key))}]"
    return text


def _printable(text: str) -> str:
    return text.replace("\\", "%5C").replace("/", "%2F")


def name_leaves(leaves: list[Leaf]) -> None:
    """Give every leaf the name the inventory shows: its path, short enough, and unique."""
    names: set[str] = set()
    for leaf in leaves:
        if leaf.path is not None:
            full = render_path(leaf.path)
            name = full if len(full) <= MAX_NAME else full[:MAX_NAME] + "…"
            leaf.name, count = name, 1
            while leaf.name in names:
                count += 1
                leaf.name = f"{name}#{count}"
            leaf.path = None
        names.add(leaf.name)


def _fits_inline(value: list[Any]) -> bool:
    numbers = [item for item in value if type(item) is int]
    limit = 1 << INLINE_INT_BITS
    return not numbers or (max(numbers) < limit and min(numbers) > -limit)
