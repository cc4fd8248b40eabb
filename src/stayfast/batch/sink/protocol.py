"""The protocol every sink speaks.

The first recorded result stands: a late duplicate, from a worker that lost its lease or a message that came twice,
changes nothing. With ``replace`` the higher generation wins instead, and a lower or equal one still changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from stayfast.errors import SinkError

Payload = str | bytes
"""JSON text, or bytes as they are."""

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


class Result(NamedTuple):
    """One outcome to record."""

    key: str
    payload: Payload
    generation: int


class Receipt(NamedTuple):
    """Proof that a key is recorded."""

    key: str
    generation: int  # of the result that stands
    written: bool  # false: another result was there first and stays


class Sink(Protocol):
    """A place for results, one per key; safe to call from many threads and processes."""

    url: str
    database: str | None
    """Which database this is; a queue with the same value can record and complete in one transaction."""

    def record(self, key: str, payload: Payload, generation: int = 0, *, replace: bool = False) -> Receipt:
        """Record one result durably; returns when it would survive a power cut."""

    def record_all(self, results: Sequence[Result], *, replace: bool = False, transaction: Any = None) -> None:
        """Record many in one go; inside ``transaction``, when given, they become durable with its commit."""

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys that are not recorded, in one look-up."""

    def get(self, key: str) -> Payload | None:
        """What is recorded under the key."""

    def keys(self) -> Iterator[str]:
        """Every recorded key in order (by code point), streaming."""

    def close(self) -> None:
        """Give back connections."""


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
