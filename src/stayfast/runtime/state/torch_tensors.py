"""Tensors as leaves; torch's modules, optimizers and generators as a run keeps them.

Nothing here imports torch before something of torch's is restored.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stayfast.errors import EncodingError, FormatError
from stayfast.runtime.state.data_loaders import track_loader
from stayfast.runtime.state.frameworks import EncodedLeaf, LeafSource
from stayfast.runtime.state.leaf import Leaf, check_size
from stayfast.runtime.state.tracked_state import TrackedObject


def torch_leaf(torch: Any, tensor: Any) -> EncodedLeaf:
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


def torch_dtype(torch: Any, name: str) -> Any:
    """A torch dtype by name; nothing else that lives in torch's namespace."""
    found = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(found, torch.dtype):
        raise FormatError(f"the torch dtype {name[:40]!r} is not known here", help="upgrade torch")
    return found


def _read_parameter(requires_grad: bool, number: int, source: LeafSource) -> Any:
    torch = importlib.import_module("torch")
    if number not in source.made:
        source.made[number] = torch.nn.Parameter(source.leaf(number), requires_grad=requires_grad)
    return source.made[number]


def _read_device(value: str, _source: LeafSource) -> Any:
    torch = importlib.import_module("torch")
    try:
        return torch.device(value)
    except RuntimeError:
        raise FormatError(f"the torch device {value[:40]!r} is not known here") from None


class TrackedModule(TrackedObject):
    """A module: names, shapes and dtypes are compared before anything is loaded."""

    __slots__ = ()

    def differences(self, saved: Any, *, strict: bool) -> Iterator[str]:
        if isinstance(saved, Mapping):
            yield from _compare_tensors(self.name, saved, self.get(), strict)

    def load(self, saved: Any, *, strict: bool) -> None:
        if strict:
            self.set(saved)
        else:
            self.thing.load_state_dict(saved, strict=False)


class TrackedOptimizer(TrackedObject):
    """An optimizer: groups and shapes are compared before anything is loaded."""

    __slots__ = ()

    def differences(self, saved: Any, *, strict: bool) -> Iterator[str]:  # noqa: ARG002 - names are never compared
        if isinstance(saved, Mapping):
            yield from _compare_optimizer(self, saved)


def _compare_tensors(name: str, saved: Mapping[str, Any], now: Mapping[str, Any], strict: bool) -> Iterator[str]:
    torch: Any = sys.modules["torch"]
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


class TorchTensors:
    """The adapter; see ``ArrayFramework``."""

    tags: Mapping[str, Callable[[Any, LeafSource], Any]] = {
        "parameter": functools.partial(_read_parameter, True),
        "parameter_fixed": functools.partial(_read_parameter, False),
        "size": lambda value, _source: importlib.import_module("torch").Size(value),
        "dtype": lambda value, _source: torch_dtype(importlib.import_module("torch"), value),
        "device": _read_device,
    }

    def exact_types(self) -> Mapping[type, Callable[[Any], EncodedLeaf]]:
        torch: Any = sys.modules["torch"]
        if not hasattr(torch, "nn"):
            return {}  # still being imported
        return dict.fromkeys((torch.Tensor, torch.nn.Parameter), functools.partial(torch_leaf, torch))

    def encode(self, value: Any) -> EncodedLeaf | dict[str, Any] | None:
        torch: Any = sys.modules["torch"]
        return torch_leaf(torch, value) if isinstance(value, torch.Tensor) else torch_value(torch, value)

    def build(self, dtype: str, shape: tuple[int, ...], memory: memoryview) -> Any:
        import torch

        parsed = torch_dtype(torch, dtype)
        check_size(shape, parsed.itemsize, len(memory))
        if not len(memory):
            return torch.empty(shape, dtype=parsed)
        return torch.frombuffer(memory, dtype=torch.uint8).view(parsed).reshape(shape)

    def track(self, name: str, thing: Any) -> TrackedObject | None:
        torch: Any = sys.modules["torch"]
        data = sys.modules.get("torch.utils.data")
        if data is not None and isinstance(thing, data.DataLoader):
            return track_loader(name, thing)
        if isinstance(thing, torch.nn.Module):
            return TrackedModule(name, thing.state_dict, thing.load_state_dict, thing)
        if isinstance(thing, torch.optim.Optimizer):
            return TrackedOptimizer(name, thing.state_dict, thing.load_state_dict, thing)
        if isinstance(thing, torch.Generator):
            return TrackedObject(name, thing.get_state, thing.set_state, thing)
        return None

    def random_state(self) -> dict[str, Any]:
        torch: Any = sys.modules["torch"]
        if not hasattr(torch, "get_rng_state"):
            return {}
        state: dict[str, Any] = {"torch": torch.get_rng_state().numpy().tobytes()}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = [item.numpy().tobytes() for item in torch.cuda.get_rng_state_all()]
        return state

    def set_random_state(self, state: Mapping[str, Any]) -> None:
        """A machine with fewer GPUs takes as many states as it has."""
        torch = importlib.import_module("torch")
        torch.set_rng_state(_byte_tensor(torch, state["torch"]))
        if "cuda" in state and torch.cuda.is_available():
            for device, saved in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
                torch.cuda.set_rng_state(_byte_tensor(torch, saved), device)


def _byte_tensor(torch: Any, data: bytes) -> Any:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


FRAMEWORK = TorchTensors()
