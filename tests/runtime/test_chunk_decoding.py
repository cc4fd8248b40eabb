"""The payloads of a chunk are read as one text; whatever one of them says, the others are read as they are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stayfast.batch.queue.protocol import Lease
from stayfast.batch.worker.compute import decode_items
from stayfast.batch.worker.task import Task

TASK = Task(lambda items: items, key=None, each=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def leases(*payloads: str) -> list[Lease]:
    return [Lease(number, f"k{number}", payload, 1, 0) for number, payload in enumerate(payloads)]


def read(*payloads: str) -> tuple[dict[str, object], list[str]]:
    work, failures = decode_items(TASK, leases(*payloads))
    return {each.lease.key: each.item for each in work}, [failure.lease.key for failure in failures]


@pytest.mark.parametrize(
    "broken",
    [
        ("[1", "2],3"),  # together they are as many values as there are payloads
        ("1,2", ""),
        ("", "1,2"),
        ("1, 2", "3"),
        ('"a', 'b"'),
        ("[", "]"),
        ("[[1", "2]],[3", "4]"),
        ("", ""),
        ("[" * 100_000, "]"),
    ],
)
def test_brackets_do_not_reach_into_the_next_payload(broken: tuple[str, ...]) -> None:
    found, dead = read('{"v":1}', *broken, " 7 ")
    assert found["k0"] == {"v": 1}
    assert found[f"k{len(broken) + 1}"] == 7
    right = [number for number, text in enumerate(broken, 1) if text == "3"]
    assert dead == [f"k{number}" for number in range(1, len(broken) + 1) if number not in right]


@given(st.lists(JSON, min_size=1, max_size=8))
@settings(max_examples=200, deadline=None, database=None)
def test_every_payload_is_read_as_by_itself(items: list[object]) -> None:
    found, dead = read(*map(json.dumps, items))
    assert list(found.values()) == items
    assert dead == []


@given(st.lists(st.text('[]{},:"\\ 01a', max_size=6), min_size=1, max_size=6))
@settings(max_examples=500, deadline=None, database=None)
def test_garbage_dies_alone(payloads: list[str]) -> None:
    found, dead = read(*payloads)
    for number, text in enumerate(payloads):
        try:
            item = json.loads(text)
        except ValueError:
            assert f"k{number}" in dead
        else:
            assert found[f"k{number}"] == item
