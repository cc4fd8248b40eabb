"""Results as they are recorded: bytes as they are, everything else as JSON text, one by one or a chunk at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from stayfast.batch.sink.protocol import Payload
from stayfast.errors import SinkError

_BINARY = (bytes, bytearray, memoryview)


def _encoder() -> Callable[[Any], str]:
    """``_to_json`` makes itself a new encoder for every value; where the interpreter lets us, one serves for all.

    This one does not look for circles: what it cannot say, ``_to_json`` is asked again, and says why.
    """
    try:
        make: Any = getattr(json.encoder, "c_make_encoder", None)
        encode = make(None, _array_to_list, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False)
    except TypeError:  # another interpreter, or another signature
        return _to_json
    return lambda value: "".join(encode(value, 0))


def _array_to_list(value: Any) -> Any:
    """Numbers and arrays of NumPy and torch say what they hold; nothing else is guessed."""
    plain = getattr(value, "tolist", None)
    if plain is None or isinstance(value, _BINARY):
        raise TypeError(f"{type(value).__name__} is not JSON")
    return plain()


_to_json = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_array_to_list).encode
_to_json_quickly = _encoder()
_SEPARATOR = os.urandom(
    16
).hex()  # between results that are said in one breath: nobody knows it, so no result contains it
_BETWEEN = f',"{_SEPARATOR}",'


def encode_results(values: Sequence[Any]) -> list[str] | None:
    """All of a chunk in one go, at a third of the price; None when each has to be looked at: bytes, failures, slips."""
    woven: list[Any] = [_SEPARATOR] * (2 * len(values) - 1)
    woven[::2] = values
    try:
        texts = _to_json_quickly(woven)[1:-1].split(_BETWEEN)
    except Exception:  # noqa: BLE001 - the value is the user's, and so is what it does when it is read
        return None
    return texts if len(texts) == len(values) else None


def encode_result(value: Any) -> Payload:
    """A task's result as it is recorded: bytes stay bytes, everything else becomes JSON text."""
    if isinstance(value, _BINARY):
        return bytes(value)
    try:
        return _to_json_quickly(value)
    except Exception:  # noqa: BLE001 - the value is the user's, and so is what it does when it is read
        return _encode_carefully(value)


def _encode_carefully(value: Any) -> str:
    try:
        return _to_json(value)
    except Exception as error:  # noqa: BLE001 - the value is the user's, and so is what it does when it is read
        raise SinkError(
            f"the result is a {type(value).__name__} that JSON cannot say: {error}",
            help="return plain JSON values or bytes",
        ) from None
