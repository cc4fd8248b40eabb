"""What a run keeps: named things that can give their state and take it back, and the global random generators."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stayfast.errors import StateMismatchError, UsageError
from stayfast.runtime.state.frameworks import loaded_frameworks, random_states, set_random_states

SHOWN = 40
RNG = "~rng"
"""The name of the global generators; no keyword argument can be spelt like that."""


@dataclass(frozen=True, slots=True)
class TrackedObject:
    """One thing, as two functions; ``thing`` is the object itself when there is one."""

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], Any]
    thing: Any = None

    def differences(self, saved: Any, *, strict: bool) -> Iterator[str]:  # noqa: ARG002 - nothing is known of it
        """Every difference between what was saved and what is there, where both can be known before loading."""
        return iter(())

    def load(self, saved: Any, *, strict: bool) -> None:  # noqa: ARG002 - it decides for itself
        """Take the state back; without ``strict`` names that stand on one side only are passed over."""
        self.set(saved)


def make_tracked(name: str, thing: Any) -> TrackedObject:
    """Anything with ``state_dict`` and ``load_state_dict``, a random generator, or a pair of functions (get, set)."""
    if isinstance(thing, tuple) and len(thing) == 2 and all(map(callable, thing)):
        return TrackedObject(name, *thing)
    for framework in loaded_frameworks():
        tracked = framework.track(name, thing)
        if tracked is not None:
            return tracked
    get, put = getattr(thing, "state_dict", None), getattr(thing, "load_state_dict", None)
    if callable(get) and callable(put) and not isinstance(thing, type):
        return TrackedObject(name, get, put, thing)
    if isinstance(thing, random.Random):
        return TrackedObject(name, thing.getstate, thing.setstate, thing)
    raise UsageError(
        f"{name}: {_with_article(type(thing).__name__)} has no state_dict and load_state_dict",
        help=f"track an object that has both, or a pair of functions (get, set){_pair_example(name, thing)}",
    )


def _pair_example(name: str, thing: Any) -> str:
    """The pair to write for what cannot be tracked itself: a program may bind the name to another object any time."""
    if isinstance(thing, dict):
        put = f"{name}.update"
    elif isinstance(thing, list):
        put = f"lambda saved: {name}.__setitem__(slice(None), saved)"
    elif type(thing).__module__ == "numpy" and hasattr(thing, "shape"):
        put = f"lambda saved: np.copyto({name}, saved)"
    else:
        return ""
    return f", here run.track({name}=(lambda: {name}, {put}))"


def _with_article(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' or word == 'ndarray' else 'a'} {word}"


class TrackedState:
    """The tracked things of one run by name; once the run is restored, the global generators are one of them."""

    def __init__(self) -> None:
        self._objects: dict[str, TrackedObject] = {}

    def __bool__(self) -> bool:
        """Whether anything is tracked."""
        return bool(self._objects)

    def track(self, things: Mapping[str, Any]) -> None:
        """Add things by name; a name is used once."""
        fresh = {name: make_tracked(name, thing) for name, thing in things.items()}
        for name in fresh:
            if name in self._objects:
                raise UsageError(f"{name} is tracked already", help="give each thing a name of its own")
        self._objects |= fresh

    def add_generators(self) -> None:
        """Track the global random generators as well."""
        self._objects[RNG] = make_tracked(RNG, GlobalRandomState())

    @property
    def things(self) -> list[Any]:
        """The tracked objects themselves; None in place of a pair of functions."""
        return [item.thing for item in self._objects.values()]

    @property
    def sharded(self) -> dict[str, Any]:
        """The things that load themselves from what all ranks have saved."""
        return {name: item.thing for name, item in self._objects.items() if hasattr(item.thing, "load_ranks")}

    def collect(self) -> dict[str, Any]:
        """The state of all of them."""
        return collect_states(self._objects)

    def values(self) -> dict[str, Any]:
        """The state of all of them, without the generators."""
        return collect_states({name: item for name, item in self._objects.items() if name != RNG})

    def present(self) -> dict[str, Any] | None:
        """What is there now: tensors are filled in place where they fit, without a second copy on the way.

        Pairs of functions are not asked: they may have nothing to give before they were given a state.
        """
        if "torch" not in sys.modules:
            return None
        return collect_states({name: item for name, item in self._objects.items() if item.thing is not None})

    def load(self, state: dict[str, Any], *, strict: bool) -> None:
        """Give every thing its state, except those that have loaded themselves."""
        sharded = self.sharded
        wanted = {name: item for name, item in self._objects.items() if name not in sharded}
        if RNG not in state or RNG not in wanted:  # an older checkpoint, or asked to leave the generators alone
            state.pop(RNG, None)
            wanted.pop(RNG, None)
        load_states(wanted, state, strict=strict)


def collect_states(tracked: Mapping[str, TrackedObject]) -> dict[str, Any]:
    """The state of all of them."""
    return {name: item.get() for name, item in tracked.items()}


def load_states(tracked: Mapping[str, TrackedObject], state: Mapping[str, Any], *, strict: bool = True) -> None:
    """Give every tracked thing its state; what does not fit is listed all at once, and then nothing is loaded.

    With ``strict=False`` names that stand on one side only are passed over; shapes and dtypes must fit all the same.
    """
    problems = []
    if strict:
        problems += [f"{name}: tracked, but not in the checkpoint" for name in tracked if name not in state]
        problems += [f"{name}: in the checkpoint, but not tracked" for name in state if name not in tracked]
    both = [name for name in tracked if name in state]
    for name in both:
        problems += tracked[name].differences(state[name], strict=strict)
    raise_mismatches(problems)
    for name in both:
        try:
            tracked[name].load(state[name], strict=strict)
        except (KeyError, ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
            problems.append(f"{name}: its load_state_dict refused ({type(error).__name__}: {error})")
    raise_mismatches(problems)


def raise_mismatches(problems: list[str]) -> None:
    """One error for all differences; none is no error."""
    if not problems:
        return
    shown = "".join(f"\n  {line}" for line in problems[:SHOWN])
    more = f"\n  … and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    count = "1 difference" if len(problems) == 1 else f"{len(problems)} differences"
    raise StateMismatchError(
        f"the checkpoint does not fit what is tracked, {count}:{shown}{more}\n",
        help="restore into the model it was saved from, use strict=False for names, or start over under another URL",
    )


class GlobalRandomState:
    """``state_dict``/``load_state_dict`` over every global generator in use: Python's and each array library's."""

    def state_dict(self) -> dict[str, Any]:
        """The state of each, as plain values."""
        return {"python": random.getstate(), **random_states()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put every generator back."""
        random.setstate(state["python"])
        set_random_states(state)
