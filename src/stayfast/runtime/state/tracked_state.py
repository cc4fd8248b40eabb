"""What a run keeps: named things that can give their state and take it back, and the global random generators."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stayfast.errors import StateMismatchError, UsageError
from stayfast.runtime.state.torch_tensors import StatefulLoaderState, check_data

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


def make_tracked(name: str, thing: Any) -> TrackedObject:
    """Anything with ``state_dict`` and ``load_state_dict``, a random generator, or a pair of functions (get, set)."""
    if isinstance(thing, tuple) and len(thing) == 2 and all(map(callable, thing)):
        return TrackedObject(name, *thing)
    data = sys.modules.get("torch.utils.data")
    if data is not None and isinstance(thing, data.DataLoader) and hasattr(thing, "base_dataloader"):
        raise UsageError(
            f"{name}: the position of a loader that accelerate has prepared cannot be restored",
            help="give the DataLoader a stayfast.integrations.torch.ResumableSampler before it is prepared, track "
            "that, and iterate sampler.batches(loader)",
        )
    stateful = sys.modules.get("torchdata.stateful_dataloader")
    if stateful is not None and isinstance(thing, stateful.StatefulDataLoader):
        check_data(thing)
        wrapped = StatefulLoaderState(thing)
        return TrackedObject(name, wrapped.state_dict, wrapped.load_state_dict, thing)
    get, put = getattr(thing, "state_dict", None), getattr(thing, "load_state_dict", None)
    if callable(get) and callable(put) and not isinstance(thing, type):
        return TrackedObject(name, get, put, thing)
    if data is not None and isinstance(thing, data.DataLoader):
        raise UsageError(
            f"{name}: a plain DataLoader cannot say where it is",
            help="track a torchdata.stateful_dataloader.StatefulDataLoader, or give the DataLoader a "
            "stayfast.integrations.torch.ResumableSampler, track that, and iterate sampler.batches(loader)",
        )
    pair = _generator(thing)
    if pair is not None:
        return TrackedObject(name, *pair, thing)
    raise UsageError(
        f"{name}: {_with_article(type(thing).__name__)} has no state_dict and load_state_dict",
        help=f"track an object that has both, or a pair of functions (get, set){_pair_example(name, thing)}",
    )


def _generator(thing: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """The state of a random generator of the program's own, of Python, NumPy or torch."""
    if isinstance(thing, random.Random):
        return thing.getstate, thing.setstate
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(thing, numpy.random.Generator):
        bits = thing.bit_generator
        return (lambda: bits.state), (lambda saved: setattr(bits, "state", saved))
    if torch is not None and isinstance(thing, torch.Generator):
        return thing.get_state, thing.set_state
    return None


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
        problems += find_differences(tracked[name], state[name], strict=strict)
    raise_mismatches(problems)
    for name in both:
        try:
            _set(tracked[name], state[name], strict)
        except (KeyError, ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
            problems.append(f"{name}: its load_state_dict refused ({type(error).__name__}: {error})")
    raise_mismatches(problems)


def _set(item: TrackedObject, saved: Any, strict: bool) -> None:
    torch = sys.modules.get("torch")
    if not strict and torch is not None and isinstance(item.thing, torch.nn.Module):
        item.thing.load_state_dict(saved, strict=False)
    else:
        item.set(saved)


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


def find_differences(item: TrackedObject, saved: Any, *, strict: bool) -> Iterator[str]:
    """Every difference between what was saved and what is there, where both can be known before loading."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(item.thing, torch.nn.Module) and isinstance(saved, Mapping):
        yield from _compare_tensors(torch, item.name, saved, item.get(), strict)
    elif torch is not None and isinstance(item.thing, torch.optim.Optimizer) and isinstance(saved, Mapping):
        yield from _compare_optimizer(item, saved)


def _compare_tensors(
    torch: Any, name: str, saved: Mapping[str, Any], now: Mapping[str, Any], strict: bool
) -> Iterator[str]:
    if strict:
        for key in now:
            if key not in saved:
                yield f"{name}.{key}: missing in the checkpoint"
        for key in saved:
            if key not in now:
                yield f"{name}.{key}: in the checkpoint only"
    for key, value in now.items():
        old = saved.get(key)
        if not isinstance(value, torch.Tensor) or not isinstance(old, torch.Tensor):
            continue
        if old.shape != value.shape:
            yield f"{name}.{key}: shape {list(old.shape)} in the checkpoint, {list(value.shape)} here"
        elif old.dtype != value.dtype:
            yield f"{name}.{key}: dtype {old.dtype} in the checkpoint, {value.dtype} here"


def _compare_optimizer(item: TrackedObject, saved: Mapping[str, Any]) -> Iterator[str]:
    groups = item.thing.param_groups
    old_groups = saved.get("param_groups", [])
    if len(old_groups) != len(groups):
        yield f"{item.name}: {len(old_groups)} parameter groups in the checkpoint, {len(groups)} here"
        return
    for number, (old, new) in enumerate(zip(old_groups, groups, strict=True)):
        if len(old["params"]) != len(new["params"]):
            yield (
                f"{item.name}.param_groups[{number}]: {len(old['params'])} parameters in the checkpoint, "
                f"{len(new['params'])} here"
            )
            continue
        for index, parameter in zip(old["params"], new["params"], strict=True):
            for key, value in saved.get("state", {}).get(index, {}).items():
                shape = list(getattr(value, "shape", []))
                if shape and key.startswith("exp_avg") and shape != list(parameter.shape):
                    yield f"{item.name}.state[{index}].{key}: shape {shape}, parameter {list(parameter.shape)}"


class GlobalRandomState:
    """``state_dict``/``load_state_dict`` over every global generator in use: ``random``, NumPy, torch and CUDA.

    A library that the program never loaded has no state worth keeping, and is not loaded by asking. On restore a
    library is loaded when its state was saved: the interrupted program had it.
    """

    def state_dict(self) -> dict[str, Any]:
        """The state of each, as plain values."""
        state: dict[str, Any] = {"python": random.getstate()}
        numpy = sys.modules.get("numpy")
        if numpy is not None and hasattr(numpy, "random"):
            found = numpy.random.get_state(legacy=False)
            inner = dict(found["state"])
            inner["key"] = inner["key"].tobytes() if "key" in inner else None
            state["numpy"] = {**found, "state": inner}
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "get_rng_state"):
            state["torch"] = torch.get_rng_state().numpy().tobytes()
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                state["cuda"] = [item.numpy().tobytes() for item in torch.cuda.get_rng_state_all()]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put every generator back; a machine with fewer GPUs takes as many states as it has."""
        random.setstate(state["python"])
        if "numpy" in state:
            _load_numpy(state["numpy"])
        if "torch" in state:
            torch = importlib.import_module("torch")
            torch.set_rng_state(_byte_tensor(torch, state["torch"]))
            if "cuda" in state and torch.cuda.is_available():
                for device, saved in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
                    torch.cuda.set_rng_state(_byte_tensor(torch, saved), device)


def _load_numpy(saved: dict[str, Any]) -> None:
    numpy = importlib.import_module("numpy")
    inner = dict(saved["state"])
    if inner.get("key") is not None:
        inner["key"] = numpy.frombuffer(inner["key"], dtype=numpy.uint32).copy()
    numpy.random.set_state({**saved, "state": inner})


def _byte_tensor(torch: Any, data: bytes) -> Any:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
