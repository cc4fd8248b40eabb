"""One suite over every sink: first recorded wins, higher generation replaces on request, keys come sorted."""

from __future__ import annotations

import json
import sqlite3
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stayfast.batch.sink.encoding import encode_result, encode_results
from stayfast.batch.sink.objects import ObjectSink, object_name
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.sink.protocol import Result
from stayfast.errors import (
    AccessDeniedError,
    ConflictError,
    OutcomeUnknownError,
    SinkError,
    SinkUnavailableError,
    StoreUnavailableError,
    UsageError,
)
from stayfast.storage.stores.memory import MemoryStore

AWKWARD = [
    "plain",
    "a/b",
    "../up",
    ".hidden",
    "ä ö",
    "\U0001f600",
    "a=b",
    "x" * 500,
    "=41",
    "A",
    "CON",
    "a\nb",
    "%2F",
    "ﬀ",
]


@pytest.fixture(params=["sqlite", "postgres", "file", "memory"])
def url(request, make_place, tmp_path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/results"
    if request.param == "memory":
        return f"memory://{tmp_path.name}"
    return make_place(request.param).sink


@pytest.fixture
def sink(url):
    opened = open_sink(url)
    yield opened
    opened.close()


def test_the_first_recorded_result_stands(sink):
    assert sink.record("k", '{"a":1}', 5) == ("k", 5, True)
    assert sink.record("k", '{"a":2}', 9) == ("k", 5, False)
    assert sink.get("k") == '{"a":1}'
    sink.record_all([Result("k", '"late"', 99), Result("new", '"x"', 1)])
    assert sink.get("k") == '{"a":1}'
    assert sink.get("new") == '"x"'


def test_with_replace_only_a_higher_generation_changes_anything(sink):
    sink.record("k", "1", 5)
    assert sink.record("k", "2", 4, replace=True).written is False
    assert sink.record("k", "3", 5, replace=True).written is False
    assert sink.get("k") == "1"
    assert sink.record("k", "4", 6, replace=True) == ("k", 6, True)
    sink.record_all([Result("k", "5", 8), Result("k", "6", 7)], replace=True)
    assert sink.get("k") == "5"


def test_missing_answers_for_a_whole_chunk_in_order(sink):
    sink.record_all([Result(f"k{n}", "1", 0) for n in range(0, 300, 3)])
    keys = [f"k{n}" for n in range(300)]
    assert sink.missing(keys) == [f"k{n}" for n in range(300) if n % 3]
    assert sink.missing([]) == []


def test_bytes_come_back_as_bytes_and_text_as_text(sink):
    everything = bytes(range(256))
    sink.record_all([Result("b", everything, 0), Result("t", '"\\u0000 \\ud83d"', 0), Result("e", b"", 0)])
    assert sink.get("b") == everything
    assert sink.get("t") == '"\\u0000 \\ud83d"'
    assert sink.get("e") == b""
    assert sink.get("absent") is None


def test_awkward_keys_stay_apart_and_are_listed_in_order(sink):
    for number, key in enumerate(AWKWARD):
        assert sink.record(key, str(number), 0).written, key
    assert list(sink.keys()) == sorted(AWKWARD)
    assert [sink.get(key) for key in AWKWARD] == [str(number) for number in range(len(AWKWARD))]
    assert sink.missing([*AWKWARD, "other"]) == ["other"]


def test_many_results_at_once_are_all_recorded_and_listed_page_by_page(sink, monkeypatch):
    for module in ("sqlite", "postgres"):
        monkeypatch.setattr(f"stayfast.batch.sink.{module}._PAGE", 151)
    payloads = {f"k{number:04d}": json.dumps(number) if number % 3 else b"%d" % number for number in range(453)}
    sink.record_all([Result(key, payload, 1) for key, payload in payloads.items()])
    assert list(sink.keys()) == sorted(payloads)
    assert all(sink.get(key) == payload for key, payload in payloads.items())
    assert sink.missing(["nobody", *payloads]) == ["nobody"]


@pytest.mark.parametrize("order", [1, -1])
def test_of_one_key_twice_in_a_chunk_the_higher_generation_stays(sink, order):
    rows = [Result("k", '"low"', 3), Result("k", b"high", 9), Result("k", '"middle"', 5)]
    sink.record_all(rows[::order], replace=True)
    assert sink.get("k") == b"high"
    assert sink.record("k", '"same"', 9, replace=True) == ("k", 9, False)
    assert sink.get("k") == b"high"


def test_a_chunk_is_recorded_whole_or_not_at_all(make_place):
    sink = open_sink(make_place("sqlite").sink)
    rows = [Result(f"k{number}", "1", 1) for number in range(450)]
    with pytest.raises(SinkError):
        sink.record_all([*rows, Result("odd", object(), 1)])  # type: ignore[arg-type]
    assert list(sink.keys()) == []
    sink.record_all(rows)
    assert len(list(sink.keys())) == 450
    sink.close()


@pytest.mark.parametrize("error", [StoreUnavailableError("down"), AccessDeniedError("no")])
def test_a_store_that_fails_is_neither_a_record_nor_a_gap(error):
    class Down(MemoryStore):
        is_down = True

        def put(self, key, data, *, if_generation=None):
            if self.is_down:
                raise error
            return super().put(key, data, if_generation=if_generation)

        def get(self, key, *, offset=0, length=None):
            if self.is_down:
                raise error
            return super().get(key, offset=offset, length=length)

    store = Down()
    sink = ObjectSink(store)
    with pytest.raises((SinkError, SinkUnavailableError)):
        sink.record_all([Result("a", "1", 1), Result("b", "2", 1)])
    with pytest.raises(SinkUnavailableError):
        sink.missing(["a"])
    store.is_down = False
    assert sink.missing(["a", "b"]) == ["a", "b"]
    sink.close()


def test_eight_writers_of_one_key_leave_one_result(url):
    sinks = [open_sink(url) for _ in range(8)]
    receipts = []
    threads = [
        threading.Thread(target=lambda n=n: receipts.append((n, sinks[n].record("race", str(n), n)))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [n for n, receipt in receipts if receipt.written]
    assert len(winners) == 1
    assert sinks[0].get("race") == str(winners[0])
    for opened in sinks:
        opened.close()


def test_a_table_that_is_not_ours_is_refused(make_place):
    place = make_place("sqlite")
    path = place.sink[len("sqlite://") :].split("?")[0]
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (id INTEGER, name TEXT)")
    with pytest.raises(UsageError, match=r"columns id, name, not key, payload.*\?table="):
        open_sink(f"sqlite://{path}?table=mine")
    for name in ("stayfast_item", 'x"; DROP TABLE mine; --', "1st", "sqlite_master"):
        with pytest.raises(UsageError, match="not a table name"):
            open_sink(f"sqlite://{path}?table={name}".replace(";", "%3B"))


def test_a_postgres_table_that_is_not_ours_is_refused(make_place):
    import psycopg

    place = make_place("postgres")
    base, table = place.sink.split("?table=")
    with psycopg.connect(base) as connection:
        connection.execute(f'CREATE TABLE "{table}" (id int)')
    with pytest.raises(UsageError, match="columns id, not key"):
        open_sink(place.sink)


def test_a_file_that_is_no_database_is_one_sentence(tmp_path):
    path = tmp_path / "garbage.db"
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(UsageError, match="cannot be used as a SQLite database"):
        open_sink(f"sqlite://{path}")


def test_one_lost_answer_of_the_store_is_not_somebody_elses_result():
    """The put was applied and its answer lost: the retry finds a conflict, and the conflict is our own write."""

    class Losing(MemoryStore):
        lose = 1

        def put(self, key, data, *, if_generation=None):
            result = super().put(key, data, if_generation=if_generation)
            if self.lose:
                self.lose -= 1
                raise OutcomeUnknownError("the answer was lost")
            return result

    sink = ObjectSink(Losing())
    receipt = sink.record("k", "1", 3)
    assert receipt == ("k", 3, True)
    sink.close()


def test_a_store_that_always_conflicts_and_never_shows_anything_gives_up_with_a_sentence():
    class Broken(MemoryStore):
        def put(self, key, data, *, if_generation=None):
            raise ConflictError("no")

    sink = ObjectSink(Broken())
    with pytest.raises(SinkError, match="kept failing"):
        sink.record("k", "1", 3)
    sink.close()


def test_damaged_objects_are_named(tmp_path):
    sink = open_sink(f"file://{tmp_path}/r")
    sink.record("k", "1", 0)
    (tmp_path / "r" / object_name("k")).write_bytes(b"{]")
    with pytest.raises(SinkError, match=r"results/k .* is not a result"):
        sink.get("k")
    sink.close()


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object(), [float("inf")]])
def test_results_that_json_cannot_say_are_refused(value):
    with pytest.raises(SinkError, match="JSON"):
        encode_result(value)


def test_results_are_plain_json_or_bytes():
    assert encode_result({"a": [1, None, "ä"]}) == '{"a":[1,null,"\\u00e4"]}'
    assert encode_result(bytearray(b"\x00")) == b"\x00"


def test_numbers_and_arrays_of_numpy_become_json():
    import numpy as np

    values = [np.float32(1.5), {"best": np.int64(3)}, np.arange(4).reshape(2, 2), [np.array(True)], np.bool_(0)]
    texts = ["1.5", '{"best":3}', "[[0,1],[2,3]]", "[true]", "false"]
    assert encode_results(values) == texts
    assert [encode_result(value) for value in values] == texts
    assert encode_result(memoryview(b"ab")) == b"ab"
    assert encode_results([memoryview(b"ab")]) is None
    for bad in (np.float64("nan"), np.array([1j]), np.datetime64("2026-01-01"), {"raw": memoryview(b"ab")}):
        with pytest.raises(SinkError, match="JSON cannot say"):
            encode_result(bad)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner)))
@settings(max_examples=300, deadline=None, database=None)
def test_a_result_is_said_as_the_standard_library_says_it(value):
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    assert encode_result(value) == text
    assert encode_results([value, value, [value]]) == [text, text, f"[{text}]"]


@pytest.mark.parametrize("value", [b"x", float("nan"), object(), ValueError("no")])
def test_a_chunk_with_something_else_than_json_is_looked_at_one_by_one(value):
    assert encode_results([1, value, 2]) is None
    assert encode_results([1, 2]) == ["1", "2"]
    assert encode_results(["a"]) == ['"a"']


def test_a_result_that_cannot_be_said_spoils_nothing_after_it():
    circle: list[object] = []
    circle.append(circle)
    for _ in range(3):
        with pytest.raises(SinkError, match="Circular reference"):
            encode_result([circle])
    assert encode_result([[], []]) == "[[],[]]"


@pytest.mark.parametrize(
    "url", ["redis://x", "sqlite:///", "sqlite:////tmp/x.db?queue=a", "postgresql://h/d?colour=red"]
)
def test_urls_that_nobody_understands(url):
    with pytest.raises(UsageError):
        open_sink(url)
