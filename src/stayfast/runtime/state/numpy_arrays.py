"""NumPy arrays and scalars as leaves, and NumPy's generators.

Nothing here imports NumPy before something of NumPy's is restored.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stayfast.errors import EncodingError, FormatError
from stayfast.runtime.state.frameworks import EncodedLeaf, LeafSource
from stayfast.runtime.state.leaf import Leaf, check_size

if TYPE_CHECKING:
    from stayfast.runtime.state.tracked_state import TrackedObject

_KINDS = "biufcmMSUV"


def numpy_leaf(numpy: Any, array: Any) -> EncodedLeaf:
    """A NumPy array: how the tree refers to it, the leaf, and what identifies its memory."""
    if type(array) is not numpy.ndarray:
        raise EncodingError(f"cannot store a {type(array).__name__}", help="store numpy.asarray(value)")
    text = _numpy_dtype(numpy, array.dtype)
    flat = numpy.ascontiguousarray(array)  # the array itself unless it has gaps
    address = flat.__array_interface__["data"][0]
    leaf = Leaf(f"numpy:{text}", tuple(array.shape), flat.nbytes, flat, address)
    identity = (
        ("numpy", array.__array_interface__["data"][0], text, array.shape, array.strides) if array.nbytes else None
    )
    return "array", leaf, identity


def _numpy_dtype(numpy: Any, dtype: Any) -> str:
    if dtype.hasobject:
        raise EncodingError(f"cannot store an array of Python objects (dtype {dtype})", help="use a numeric dtype")
    text = str(dtype.str) if dtype.fields is None else repr(dtype.descr)
    try:
        same = _parse_numpy(numpy, text) == dtype
    except (FormatError, TypeError, ValueError):
        same = False
    if not same or dtype.subdtype is not None:
        raise EncodingError(f"cannot store an array of dtype {dtype}", help="use one of NumPy's own dtypes")
    return text


def numpy_scalar(numpy: Any, value: Any) -> list[str]:
    """A NumPy scalar as its dtype and its bytes."""
    return [_numpy_dtype(numpy, value.dtype), value.tobytes().hex()]


def build_scalar(row: Any, _source: LeafSource | None = None) -> Any:
    """The inverse of :func:`numpy_scalar`."""
    import numpy

    name, text = row
    dtype = _parse_numpy(numpy, name)
    data = bytes.fromhex(text)
    check_size((), dtype.itemsize, len(data))
    return numpy.frombuffer(data, dtype)[0] if data else numpy.zeros((), dtype)[()]


def _parse_numpy(numpy: Any, text: str) -> Any:
    """A dtype from its own spelling; a structured one from its list of fields. Nothing is evaluated."""
    import ast

    try:
        spec = ast.literal_eval(text) if text.startswith("[") and len(text) < 65536 else text
        if any(kind not in _KINDS for kind in _field_kinds(spec)):
            raise ValueError("not a plain type")
        return numpy.dtype(spec)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise FormatError(f"the NumPy dtype {text[:60]!r} is not known here ({type(error).__name__})") from None


def _field_kinds(spec: Any) -> Iterator[str]:
    """The kind letters of a dtype string, or of each field of a structured one."""
    if isinstance(spec, str):
        if not spec or spec[0] not in "<>|=" or len(spec) < 3:
            raise ValueError("not a dtype string")
        yield spec[1]
        return
    for row in spec:
        yield from _field_kinds(row[1])


class NumpyArrays:
    """The adapter; see ``ArrayFramework``."""

    tags: Mapping[str, Callable[[Any, LeafSource], Any]] = {"scalar": build_scalar}

    def exact_types(self) -> Mapping[type, Callable[[Any], EncodedLeaf]]:
        numpy = sys.modules["numpy"]
        return {numpy.ndarray: functools.partial(numpy_leaf, numpy)} if hasattr(numpy, "ndarray") else {}

    def encode(self, value: Any) -> EncodedLeaf | dict[str, Any] | None:
        numpy: Any = sys.modules["numpy"]
        if isinstance(value, numpy.ndarray):
            return numpy_leaf(numpy, value)
        return {"scalar": numpy_scalar(numpy, value)} if isinstance(value, numpy.generic) else None

    def build(self, dtype: str, shape: tuple[int, ...], memory: memoryview) -> Any:
        import numpy

        parsed = _parse_numpy(numpy, dtype)
        check_size(shape, parsed.itemsize, len(memory))
        if not len(memory):
            return numpy.empty(shape, parsed)
        return numpy.frombuffer(memory, parsed).reshape(shape)

    def track(self, name: str, thing: Any) -> TrackedObject | None:
        from stayfast.runtime.state.tracked_state import TrackedObject

        if not isinstance(thing, sys.modules["numpy"].random.Generator):
            return None
        bits = thing.bit_generator
        return TrackedObject(name, lambda: bits.state, lambda saved: setattr(bits, "state", saved), thing)

    def random_state(self) -> dict[str, Any]:
        numpy: Any = sys.modules["numpy"]
        if not hasattr(numpy, "random"):
            return {}
        found = numpy.random.get_state(legacy=False)
        inner = dict(found["state"])
        inner["key"] = inner["key"].tobytes() if "key" in inner else None
        return {"numpy": {**found, "state": inner}}

    def set_random_state(self, state: Mapping[str, Any]) -> None:
        numpy, saved = importlib.import_module("numpy"), state["numpy"]
        inner = dict(saved["state"])
        if inner.get("key") is not None:
            inner["key"] = numpy.frombuffer(inner["key"], dtype=numpy.uint32).copy()
        numpy.random.set_state({**saved, "state": inner})


FRAMEWORK = NumpyArrays()
