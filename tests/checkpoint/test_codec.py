"""The encoding of state: what goes in comes out, bit for bit and type for type; nothing else goes in."""

from __future__ import annotations

import collections
import enum
import json
import math
import random
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stayfast.errors import CheckpointError, CorruptError, EncodingError, FormatError
from stayfast.runtime.state import decoding, encoding
from stayfast.runtime.state.frameworks import build_leaf
from stayfast.runtime.state.leaf import Leaf


def round_trip(value: Any) -> Any:
    encoded = encoding.encode({"x": value})
    memory = [bytearray(_bytes_of(item)) for item in encoded.leaves]

    def fetch(number: int) -> Any:
        found = encoded.leaves[number]
        return build_leaf(found.dtype, found.shape, memoryview(memory[number]))

    return decoding.decode(encoded.tree, fetch)["x"]


def _bytes_of(item: Leaf) -> bytes:
    import ctypes

    return ctypes.string_at(item.address, item.length) if item.length else b""


def same(left: Any, right: Any) -> bool:
    """Equal in type and content, NaN payloads included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, dict):
        rows = zip(left.items(), right.items(), strict=True)
        return len(left) == len(right) and all(same(a, b) and same(x, y) for (a, x), (b, y) in rows)
    if isinstance(left, (list, tuple, collections.deque)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


hashable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None))
    | st.binary(max_size=20),
    lambda inner: st.tuples(inner) | st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
nested = st.recursive(
    hashable | st.floats() | st.complex_numbers() | st.integers(-(1 << 200), 1 << 200),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(hashable, inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.builds(collections.OrderedDict, st.dictionaries(hashable, inner, max_size=3))
        | st.builds(lambda items: collections.deque(items, 5), st.lists(inner, max_size=5))
        | st.builds(lambda items: collections.defaultdict(list, items), st.dictionaries(hashable, inner, max_size=3))
    ),
    max_leaves=12,
)


@given(nested)
@settings(max_examples=300, deadline=None)
def test_nested_values_round_trip(value: Any) -> None:
    assert same(round_trip(value), value)


@pytest.mark.parametrize(
    "value",
    [
        -0.0,
        math.inf,
        struct.unpack(">d", bytes.fromhex("7ff8000000000123"))[0],
        1 << 128,
        -(1 << 63),
        (1 << 63) - 1,
        7**7000,
        "\ud800 lone",
        b"",
        bytes(range(256)) * 100,
        bytearray(b"abc"),
        {1: "int", "1": "str", (1, 2): "tuple", None: 0, 2.5: True},
        {frozenset({1}): {1, 2}},
        collections.Counter({30: 1, 80: 2}),
        collections.defaultdict(None, {1: 2}),
        collections.deque([1, 2], maxlen=2),
        [[[]], {}, (), set()],
        list(range(10_000)),
        torch.Size([2, 3]),
        torch.bfloat16,
        torch.device("cuda:1"),
        np.float32(1.5),
        np.int64(-3),
        np.datetime64("2026-11-15"),
        np.str_("abc"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_particular_values(value: Any) -> None:
    back = round_trip(value)
    assert same(back, value)


def test_generator_states_restore_their_sequence() -> None:
    generator, bits = random.Random(3), np.random.default_rng(5)
    generator.gauss(0, 1)
    bits.random(7)
    state, inner = round_trip(generator.getstate()), round_trip(bits.bit_generator.state)
    expected = [generator.random() for _ in range(5)], bits.random(5).tolist()
    generator.setstate(state)
    bits.bit_generator.state = inner
    assert ([generator.random() for _ in range(5)], bits.random(5).tolist()) == expected


NUMPY = ["?", "i1", "<u2", ">i4", "<f2", "<f8", ">f8", "<c16", "<M8[ns]", "m8[s]", "S5", "<U3", "V7"]


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_numpy_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    raw = np.random.default_rng(1).integers(0, 2, math.prod(shape) * np.dtype(dtype).itemsize, dtype=np.uint8)
    array = raw.view(dtype).reshape(shape) if raw.size else np.zeros(shape, dtype)
    back = round_trip(array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


def test_structured_arrays_and_views() -> None:
    array = np.zeros(4, dtype=[("a", "<f4"), ("b", "<i8", (2,))])
    array["a"] = [1, 2, 3, 4]
    assert round_trip(array).tobytes() == array.tobytes()
    whole = np.arange(24).reshape(4, 6)
    for view in (whole[::2, 1::2], whole.T, whole[::-1], np.asfortranarray(whole)):
        assert np.array_equal(round_trip(view), view)


TORCH = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TORCH, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)])
def test_tensors(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    raw = torch.randint(0, 2, (math.prod(shape) * dtype.itemsize,), dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(shape) if raw.numel() else torch.empty(shape, dtype=dtype)
    back = round_trip(tensor)
    assert back.dtype is dtype
    assert back.shape == tensor.shape
    if back.numel():
        assert torch.equal(back.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


def test_tensor_views_conjugates_and_parameters() -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    for view in (whole[::2, 1::2], whole.T, whole.expand(2, 4, 6), whole.to_sparse().to_dense()):
        assert torch.equal(round_trip(view), view)
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(round_trip(numbers.conj()), numbers.conj())
    assert torch.equal(round_trip(numbers.conj().imag), numbers.conj().imag)
    parameter = torch.nn.Parameter(whole.clone())
    back = round_trip(parameter)
    assert type(back) is torch.nn.Parameter
    assert back.requires_grad
    assert torch.equal(back, parameter)
    assert not round_trip(torch.nn.Parameter(whole.clone(), requires_grad=False)).requires_grad


def test_tied_weights_are_stored_once_and_come_back_tied() -> None:
    shared = torch.randn(10, 10)
    value = {"a": shared, "b": shared, "c": shared.T, "d": shared[:5]}
    assert len(encoding.encode(value).leaves) == 3
    back = round_trip(value)
    assert back["a"].data_ptr() == back["b"].data_ptr()
    assert torch.equal(back["c"], shared.T)
    assert torch.equal(back["d"], shared[:5])


def test_module_metadata_survives() -> None:
    state = torch.nn.BatchNorm1d(3).state_dict()
    assert round_trip(state)._metadata == state._metadata


class Colour(enum.IntEnum):
    RED = 1


class Named(collections.namedtuple("Named", "a")):
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "object"),
        (lambda: 0, "function"),
        (Colour.RED, "Colour"),
        (Named(1), "Named"),
        (np.array([object()]), "Python objects"),
        (np.ma.masked_array([1]), "MaskedArray"),
        (torch.eye(3).to_sparse(), "sparse"),
        (torch.empty(3, device="meta"), "meta"),
        (collections.defaultdict(lambda: 0), "factory"),
        (memoryview(b"x"), "memoryview"),
    ],
)
def test_unknown_types_are_refused_with_their_path(value: Any, words: str) -> None:
    with pytest.raises(EncodingError) as caught:
        encoding.encode({"optimizer": {"state": {3: {"foo": value}}}})
    assert str(caught.value).startswith("optimizer.state[3].foo: ")
    assert words in str(caught.value)
    assert "; " in str(caught.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(EncodingError, match="contains itself"):
        encoding.encode({"x": loop})


def test_names_hold_no_separators_and_are_unique() -> None:
    value = {
        "a/b\\c": np.ones(1),
        "a": {"b": np.ones(2)},
        "a.b": np.ones(3),
        7: {"../../etc": np.ones(4)},
        "": np.ones(5),
    }
    leaves = encoding.encode({"x": value, "y" * 1000: np.ones(6)}).leaves
    encoding.name_leaves(leaves)
    names = [item.name for item in leaves]
    assert len(set(names)) == len(names) == 6
    assert all(len(name) <= 512 and not set(name) & set("/\\\0") for name in names)


def _no_leaf(number: int) -> Any:
    raise CorruptError(f"there is no leaf {number}")


BAD_TREES = [
    b"", b"{", b"[1]", b"{}", b'{"map":1}', b'{"map":{},"x":1}', b'{"zip":1}', b'{"map":{"a":{"tensor":"x"}}}',
    b'{"map":{"a":NaN}}', b'{"map":{"a":{"set":[[1]]}}}', b'{"map":{"a":1,"a":2}}', b'{"map":{"a":{"int":"zz"}}}',
    b'{"map":{"a":{"dict":[[1]]}}}', b'{"map":{"a":{"default":{"factory":"eval","pairs":[]}}}}', b"[" * 100_000,
    b'{"map":{"a":' * 500 + b"1" + b"}}" * 500, b'{"map":{"a":{"dtype":"nn"}}}', b'{"map":{"a":{"device":"x y"}}}',
    b'{"map":{"a":{"scalar":["|O","00"]}}}', b'{"map":{"a":{"scalar":["<f8","00"]}}}', b'{"map":{"a":{"bytes":"%"}}}',
    b'{"map":{"a":{"float":"00"}}}', b'{"map":{"a":{"deque":{"maxlen":-1,"items":[]}}}}', b"\xff\xfe",
    b'{"map":{"a":{"int":7}}}',
    b'{"map":{"a":{"size":["x"]}}}', b'{"map":{"a":{"tensor":0}}}', b'{"map":{"a":{"bytes":{"leaf":0}}}}',
    b'{"map":{"a":{"scalar":["[(\'a\', \'|O\')]","00"]}}}',
]  # fmt: skip


@pytest.mark.parametrize("data", BAD_TREES, ids=lambda data: repr(data[:40]))
def test_bad_trees_give_only_our_errors(data: bytes) -> None:
    with pytest.raises((CorruptError, FormatError)):
        decoding.decode(data, _no_leaf)


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_random_bytes_give_only_our_errors(data: bytes) -> None:
    with pytest.raises((CorruptError, FormatError)):
        decoding.decode(data, _no_leaf)


def test_mutated_trees_give_only_our_errors() -> None:
    value = {"a": [1, 2.5, None, (1,), {2: b"x"}], "b": {"c": {1, 2}, "d": collections.deque([1], 3), "e": 1 << 90}}
    original = encoding.encode(value).tree
    generator = random.Random(11)
    for _ in range(3000):
        data = bytearray(original)
        for _ in range(generator.randint(1, 4)):
            data[generator.randrange(len(data))] = generator.choice(b'{}[]",:0a\xff\x00tn-')
        try:
            decoding.decode(bytes(data), _no_leaf)
        except CheckpointError:
            pass


@pytest.mark.parametrize(
    ("dtype", "shape", "length"),
    [
        ("numpy:<f4", (3,), 11),
        ("numpy:|O", (1,), 8),
        ("numpy:O", (1,), 8),
        ("torch:float32", (2, 2), 15),
        ("torch:nn", (1,), 4),
        ("torch:__class__", (1,), 4),
        ("pickle", (1,), 4),
        ("numpy:[('a', '|O')]", (1,), 8),
        ("numpy:" + "[" * 5000, (1,), 8),
        ("torch:float32", (1,) * 70, 4),
        ("torch:float32", (1 << 60, 1 << 60), 4),
    ],
)
def test_leaves_of_the_wrong_form_give_only_our_errors(dtype: str, shape: tuple[int, ...], length: int) -> None:
    with pytest.raises((CorruptError, FormatError)):
        build_leaf(dtype, shape, memoryview(bytearray(length)))


def test_the_tree_is_plain_json() -> None:
    body = json.loads(encoding.encode({"a": {"lr": 0.1, 3: (1, 2)}}).tree)
    assert body == {"map": {"a": {"dict": [["lr", 0.1], [3, {"tuple": [1, 2]}]]}}}
