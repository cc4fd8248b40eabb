"""Leaves: the arrays, tensors and long byte strings of a state, described and found in memory.

Nothing here imports NumPy or torch by itself; the modules are handed in by callers that found them loaded or need them.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stayfast.errors import CorruptError, EncodingError, FormatError

BYTES = "bytes"
MAX_DIMENSIONS = 64
_KINDS = "biufcmMSUV"


@dataclass(slots=True)
class Leaf:
    """One piece of raw memory to store.

    ``value`` keeps the memory alive. ``address`` is where its bytes lie, contiguous, in host memory; it is None for a
    tensor on a device, which the device's own copy takes from ``value``.
    """

    dtype: str
    shape: tuple[int, ...]
    length: int
    value: Any
    address: int | None
    name: str = ""
    path: Any = None
    """Where it stands in the state, until it has a name: names are made off the training loop's time."""
    group: str = ""
    device: str = ""
    """Where a tensor lived, such as ``cuda:0``; empty for host memory."""


# -- taking apart


def bytes_leaf(data: bytes) -> Leaf:
    """A long byte string."""
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    return Leaf(BYTES, (len(data),), len(data), data, address)


def numpy_leaf(numpy: Any, array: Any) -> tuple[Leaf, Any]:
    """A NumPy array and what identifies its memory."""
    if type(array) is not numpy.ndarray:
        raise EncodingError(f"cannot store a {type(array).__name__}", help="store numpy.asarray(value)")
    text = _numpy_dtype(numpy, array.dtype)
    flat = numpy.ascontiguousarray(array)  # the array itself unless it has gaps
    address = flat.__array_interface__["data"][0]
    leaf = Leaf(f"numpy:{text}", tuple(array.shape), flat.nbytes, flat, address)
    identity = (
        ("numpy", array.__array_interface__["data"][0], text, array.shape, array.strides) if array.nbytes else None
    )
    return leaf, identity


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


def torch_leaf(torch: Any, tensor: Any) -> tuple[str, Leaf, Any]:
    """A tensor: how the tree refers to it, the leaf, and what identifies its memory.

    Called for every tensor of every save while the training loop waits: no attribute is asked for twice.
    """
    kind = type(tensor)
    if kind is torch.Tensor:
        tag = "tensor"
    elif kind is torch.nn.Parameter:
        tag = "parameter" if tensor.requires_grad else "parameter_fixed"
    else:
        raise EncodingError(
            f"cannot store a {kind.__module__}.{kind.__qualname__}",
            help="for sharded tensors use stayfast.integrations.dcp; otherwise store a plain tensor",
        )
    device = tensor.device
    where = device.type
    name, plain = _torch_dtype_facts(tensor.dtype)
    if tensor.layout is not torch.strided or where == "meta" or tensor.is_quantized:
        raise EncodingError(
            f"cannot store a tensor with layout {tensor.layout}, dtype {tensor.dtype} on {tensor.device}",
            help="store a dense one (to_dense, dequantize) on a real device",
        )
    flat = tensor
    if not plain or tensor.is_neg():
        flat = tensor.detach().resolve_conj().resolve_neg()
    address = tensor.data_ptr()
    shape = tuple(tensor.shape)
    length = tensor.nbytes
    identity = (address, name, tag, shape, tensor.stride(), flat is tensor) if length else None
    if where != "cpu":
        return tag, Leaf(name, shape, length, flat, None, device=str(device)), identity
    if flat is not tensor or not flat.is_contiguous():
        flat = flat.detach().contiguous()
        address = flat.data_ptr()
    return tag, Leaf(name, shape, length, flat, address), identity


@functools.cache
def _torch_dtype_facts(dtype: Any) -> tuple[str, bool]:
    """How the inventory spells it, and that its tensors never stand for a conjugate."""
    return f"torch:{str(dtype).removeprefix('torch.')}", not dtype.is_complex


def torch_value(torch: Any, value: Any) -> dict[str, Any] | None:
    """Small torch values that are no tensors."""
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    return None


# -- putting together


def build_leaf(dtype: str, shape: tuple[int, ...], memory: memoryview) -> Any:
    """The array, tensor or bytes over this very memory, without copying."""
    kind, _, name = dtype.partition(":")
    if dtype == BYTES:
        return bytes(memory)
    if kind == "numpy":
        import numpy

        parsed = _parse_numpy(numpy, name)
        check_size(shape, parsed.itemsize, len(memory))
        if not len(memory):
            return numpy.empty(shape, parsed)
        return numpy.frombuffer(memory, parsed).reshape(shape)
    if kind == "torch":
        import torch

        parsed = torch_dtype(torch, name)
        check_size(shape, parsed.itemsize, len(memory))
        if not len(memory):
            return torch.empty(shape, dtype=parsed)
        return torch.frombuffer(memory, dtype=torch.uint8).view(parsed).reshape(shape)
    raise FormatError(f"the leaf type {dtype[:60]!r} is not known here", help="upgrade stayfast")


def build_scalar(row: Any) -> Any:
    """The inverse of :func:`numpy_scalar`."""
    import numpy

    name, text = row
    dtype = _parse_numpy(numpy, name)
    data = bytes.fromhex(text)
    check_size((), dtype.itemsize, len(data))
    return numpy.frombuffer(data, dtype)[0] if data else numpy.zeros((), dtype)[()]


def check_size(shape: tuple[int, ...], itemsize: int, length: int) -> None:
    """Shape and length must agree before anything is allocated by either."""
    if len(shape) > MAX_DIMENSIONS or math.prod(shape) * itemsize != length:
        raise CorruptError(f"a leaf of shape {list(shape)[:8]} and {itemsize} bytes per item is {length} bytes long")


def torch_dtype(torch: Any, name: str) -> Any:
    """A torch dtype by name; nothing else that lives in torch's namespace."""
    found = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(found, torch.dtype):
        raise FormatError(f"the torch dtype {name[:40]!r} is not known here", help="upgrade torch")
    return found


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
