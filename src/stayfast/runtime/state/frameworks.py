"""Array libraries: what is stored of NumPy and torch, and how another library is added.

An adapter is one module and one line in ``FRAMEWORKS``, under the name of the library's module. It is used only when
the program has loaded the library, and imports the library itself only to restore what was saved with it. Another
package adds an adapter through the entry points of the group ``stayfast.frameworks``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from stayfast.errors import FormatError
from stayfast.registry import Registry
from stayfast.runtime.state.leaf import BYTES, Leaf

if TYPE_CHECKING:
    from stayfast.runtime.state.tracked_state import TrackedObject

EncodedLeaf = tuple[str, Leaf, Any]
"""The tag in the tree, the leaf, and what identifies its memory: tied values are stored once."""


class LeafSource(Protocol):
    """Where a decoder's leaves come from."""

    made: dict[int, Any]
    """Objects made from a leaf, by its number: what was tied comes back tied."""

    def leaf(self, number: Any) -> Any:
        """The array, tensor or bytes of this number."""


class ArrayFramework(Protocol):
    """One array library. ``EncodingError`` says which of its values cannot be stored."""

    tags: Mapping[str, Callable[[Any, LeafSource], Any]]
    """How the tree's values under tags of its own are read; ``array`` and ``tensor`` are leaves for everybody."""

    def exact_types(self) -> Mapping[type, Callable[[Any], EncodedLeaf]]:
        """The types that are encoded without asking further: the save of a training state is fast through them."""

    def encode(self, value: Any) -> EncodedLeaf | dict[str, Any] | None:
        """A value of the library as a leaf, or as it stands in the tree; None for any other value."""

    def build(self, dtype: str, shape: tuple[int, ...], memory: memoryview) -> Any:
        """The array over this very memory, without copying; ``dtype`` is written after the library's name."""

    def track(self, name: str, thing: Any) -> TrackedObject | None:
        """What a run keeps of a thing of the library that needs more than ``state_dict``; None for any other."""

    def random_state(self) -> dict[str, Any]:
        """The global generators, the library's name first."""

    def set_random_state(self, state: Mapping[str, Any]) -> None:
        """Put the global generators back."""


FRAMEWORKS: Registry[ArrayFramework] = Registry(
    "stayfast.frameworks",
    {
        "numpy": "stayfast.runtime.state.numpy_arrays:FRAMEWORK",
        "torch": "stayfast.runtime.state.torch_tensors:FRAMEWORK",
    },
)


@functools.cache
def framework_names() -> tuple[str, ...]:
    """The libraries that have an adapter; installed packages are asked once."""
    return FRAMEWORKS.installed_names()


def loaded_frameworks() -> Iterator[ArrayFramework]:
    """The adapters of the libraries that the program has loaded."""
    for name in framework_names():
        if sys.modules.get(name) is not None:
            yield _framework(name)


def _framework(name: str) -> ArrayFramework:
    found = FRAMEWORKS.find(name)
    assert found is not None, "the name comes from the table"
    return found


@functools.cache
def framework_tags() -> Mapping[str, Callable[[Any, LeafSource], Any]]:
    """How the tags of all libraries are read."""
    return {tag: read for name in framework_names() for tag, read in _framework(name).tags.items()}


def build_leaf(dtype: str, shape: tuple[int, ...], memory: memoryview) -> Any:
    """The array, tensor or bytes over this very memory, without copying."""
    kind, _, name = dtype.partition(":")
    if dtype == BYTES:
        return bytes(memory)
    if kind in framework_names():
        return _framework(kind).build(name, shape, memory)
    raise FormatError(f"the leaf type {dtype[:60]!r} is not known here", help="upgrade stayfast")


def random_states() -> dict[str, Any]:
    """The global generators of every library that is loaded; one that was never loaded has no state worth keeping."""
    state: dict[str, Any] = {}
    for framework in loaded_frameworks():
        state |= framework.random_state()
    return state


def set_random_states(state: Mapping[str, Any]) -> None:
    """Put them back. A library is loaded when its state was saved: the interrupted program had it."""
    for name in framework_names():
        if name in state:
            _framework(name).set_random_state(state)
