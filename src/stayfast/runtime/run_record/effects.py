"""Protocols as generators: they yield what they want done and receive what came of it.

Written this way the real driver and the simulator run the very same code: the driver below performs each effect on a
store and a clock; a test can answer any of them with a lost answer, a conflict or a delay, in every order there is.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from stayfast.clock import Clock
from stayfast.errors import StoreError
from stayfast.storage.stores.protocol import Blob, Entry, Store


@dataclass(frozen=True, slots=True)
class Get:
    """Read a whole object; answered with a ``Blob``."""

    key: str


@dataclass(frozen=True, slots=True)
class Put:
    """Write an object; answered with its new generation."""

    key: str
    data: bytes
    if_generation: str | None


@dataclass(frozen=True, slots=True)
class Keys:
    """List; answered with a list of ``Entry``."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove an object; answered with None."""

    key: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait; answered with None."""

    seconds: float


Effect = Get | Put | Keys | Delete | Sleep
EffectResult = Blob | str | list[Entry] | None
T = TypeVar("T")
EffectGenerator = Generator[Effect, Any, T]
"""A protocol yields effects, is sent their answers or thrown their ``StoreError``, and returns a ``T``."""


def perform_effect(effect: Effect, store: Store, clock: Clock) -> EffectResult:
    """Do one effect for real."""
    match effect:
        case Get(key):
            return store.get(key)
        case Put(key, data, if_generation):
            return store.put(key, data, if_generation=if_generation)
        case Keys(prefix):
            return list(store.keys(prefix))
        case Delete(key):
            store.delete(key)
            return None
        case Sleep(seconds):
            clock.sleep(seconds)
            return None


def run_protocol(protocol: EffectGenerator[T], store: Store, clock: Clock) -> T:
    """Run a protocol to its end on a real store."""
    try:
        effect = next(protocol)
        while True:
            try:
                answer = perform_effect(effect, store, clock)
            except StoreError as error:
                effect = protocol.throw(error)
            else:
                effect = protocol.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
