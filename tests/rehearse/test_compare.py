"""Is the result the same? And if not: what, where, in one sentence."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from stayfast.errors import UsageError
from stayfast.proof.rehearse.differences import Comparison, Difference, first_divergence, left_over, read_steps


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    return one, other


def compare(two: tuple[Path, Path], **what: object) -> list[Difference]:
    return Comparison(**what).differences(str(two[0]), str(two[1]), {"PATH": "/usr/bin:/bin"})


def write(two: tuple[Path, Path], name: str, first: str | bytes | None, second: str | bytes | None) -> None:
    for root, content in zip(two, (first, second), strict=True):
        if content is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content.encode() if isinstance(content, str) else content)


def test_bytes(two) -> None:
    write(two, "a", "same", "same")
    write(two, "b", "abcdef", "abcXef")
    write(two, "c", "abc", "abcdef")
    write(two, "d", "abc", None)
    write(two, "e", None, "new")
    write(two, "f.tmp", None, "left of a broken-off write")
    found = {row.path: row.detail for row in compare(two, globs=("*",))}
    assert found.keys() == {"b", "c", "d", "e"}
    assert "byte 3" in found["b"]
    assert "byte 3 (6 bytes, the baseline has 3)" in found["c"]
    assert found["d"] == "is missing"
    assert "baseline has no such file" in found["e"]


def test_a_difference_far_inside_and_in_folders(two) -> None:
    big = bytes(3 << 20)
    write(two, "out/deep/big", big + b"1", big + b"2")
    (row,) = compare(two, globs=("out/",))
    assert row.path == "out/deep/big"
    assert f"byte {3 << 20}" in row.detail
    assert compare(two, globs=("out",)) == [row]
    assert compare(two, globs=("**/big",)) == [row]


@pytest.mark.parametrize(
    ("want", "got", "detail"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-9}, None),
        ({"a": 1.0}, {"a": 1.1}, "/a is 1.1, the baseline has 1.0"),
        ({"a": [1, 2]}, {"a": [1]}, "/a has 1 entries, the baseline 2"),
        ({"a": {"b": 1}}, {"a": {}}, "/a/b is missing"),
        ({}, {"x": 1}, "/x is extra"),
        ({"a": True}, {"a": 1}, "/a is 1, the baseline has True"),
        ({"a": "x"}, {"a": "y"}, "/a is 'y', the baseline has 'x'"),
        ([float("nan")], [float("nan")], "/0 is nan, the baseline has nan"),
    ],
)
def test_json_with_a_tolerance(two, want: object, got: object, detail: str | None) -> None:
    write(two, "m.json", json.dumps(want), json.dumps(got))
    found = [row.detail for row in compare(two, json_files=("m.json",))]
    assert found == ([] if detail is None else [detail])


def test_json_that_is_none(two) -> None:
    write(two, "m.json", "{}", "{")
    assert "is not JSON" in compare(two, json_files=("m.json",))[0].detail
    (two[1] / "m.json").unlink()
    assert compare(two, json_files=("m.json",))[0].detail == "is missing"


LINES = "".join(f'{{"id": {number}, "v": {number * 2}}}\n' for number in range(5))


@pytest.mark.parametrize(
    ("got", "code", "detail"),
    [
        (LINES, None, ""),
        ("".join(reversed(LINES.splitlines(keepends=True))), None, ""),
        (LINES + '{"id": 3, "v": 6}\n', "duplicate-records", "1 record too many, first 3"),
        (LINES.replace('{"id": 2, "v": 4}\n', ""), "missing-records", "1 record missing, first 2"),
        (LINES + '{"id": 9, "v": 6}\n', "duplicate-records", "first 9, which the baseline does not have"),
        (LINES.replace('"v": 4', '"v": 5'), "result-differs", "record 2 says something else"),
        (LINES + '{"id": 3, "v"', "result-differs", "line 6 is not JSON"),
        (LINES.replace(' "v": 4}\n', " "), "missing-records", "2 records missing, first 2; line 3 is not JSON"),
        (LINES.replace('{"id": 2, "v": 4}', "[2, 4]"), "missing-records", "first 2; line 3 is no object"),
        (None, "missing-records", "there is no such file, the baseline has 5 records"),
    ],
)
def test_json_lines_by_key(two, got: str | None, code: str | None, detail: str) -> None:
    write(two, "out.jsonl", LINES, got)
    found = compare(two, records=("out.jsonl",), key=("id",), globs=())
    assert [row.code for row in found] == ([] if code is None else [code])
    assert all(detail in row.detail for row in found)


def test_the_special_reason_replaces_the_general_one(two) -> None:
    write(two, "out.jsonl", LINES, LINES + '{"id": 3, "v": 6}\n')
    found = compare(two, records=("out.jsonl",), key=("id",), globs=("*.jsonl",))
    assert [row.code for row in found] == ["duplicate-records"]


def test_csv_and_two_keys(two) -> None:
    write(two, "o.csv", "a,b,c\n1,2,3\n1,3,3\n", "a,b,c\n1,2,3\n1,2,3\n")
    found = compare(two, records=("o.csv",), key=("a", "b"))
    assert [(row.code, row.detail) for row in found] == [
        ("duplicate-records", "1 record too many, first 1,2"),
        ("missing-records", "1 record missing, first 1,3"),
    ]
    write(two, "o.csv", "a,b\n1,2\n", "a,b\n1,2\n3")
    assert "line 3 has 1 fields" in compare(two, records=("o.csv",), key=("a",))[0].detail
    write(two, "o.csv", "a,b\n1,2\n3,4\n5,6\n", "a,b\n1,2\n3,43,4\n5,6\n")
    found = compare(two, records=("o.csv",), key=("a",))
    assert [row.code for row in found] == ["missing-records"]
    assert "first 3; line 3 has 3 fields" in found[0].detail


def test_a_csv_field_as_long_as_an_embedding(two) -> None:
    long = "7," * 200_000
    write(two, "o.csv", f'id,v\na,"{long}"\n', f'id,v\na,"{long}8"\n')
    assert [row.code for row in compare(two, records=("o.csv",), key=("id",))] == ["result-differs"]
    write(two, "o.csv", "id,v\na,1\n", "id,v\na,1\r2\0\n")
    assert compare(two, records=("o.csv",), key=("id",))


def table(path: Path, rows: list[tuple[object, ...]], columns: str = "id, v") -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE t ({columns})")
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)
    connection.close()


def test_sqlite_by_key(two) -> None:
    table(two[0] / "o.db", [(1, "a"), (2, "b")])
    table(two[1] / "o.db", [(1, "a"), (1, "a")])
    found = compare(two, records=("o.db?table=t",), key=("id",))
    assert [row.code for row in found] == ["duplicate-records", "missing-records"]
    assert compare(two, records=("o.db",), key=("id",)) == found, "one table needs no name"


def test_the_bookkeeping_of_our_sinks_may_differ(two) -> None:
    columns = "key, payload, generation, recorded_at"
    table(two[0] / "o.db", [("k", "1", 1, 10.0)], columns)
    table(two[1] / "o.db", [("k", "1", 7, 99.0)], columns)
    assert compare(two, records=("o.db",), key=("key",)) == []
    (two[1] / "o.db").unlink()
    table(two[1] / "o.db", [("k", "2", 1, 10.0)], columns)
    assert [row.code for row in compare(two, records=("o.db",), key=("key",))] == ["result-differs"]


def test_fields_that_differ_by_themselves_are_left_out(two) -> None:
    write(two, "o.jsonl", '{"id": 1, "v": 2, "at": 10}\n', '{"id": 1, "v": 2, "at": 11}\n')
    asked = Comparison(records=("o.jsonl",), key=("id",))
    known = asked.learn(str(two[0]), str(two[1]))
    assert known.unstable == {"at"}
    assert known.differences(str(two[0]), str(two[1]), {}) == []
    write(two, "o.jsonl", '{"id": 1, "v": 2, "at": 10}\n', '{"id": 1, "v": 3, "at": 12}\n')
    assert [row.code for row in known.differences(str(two[0]), str(two[1]), {})] == ["result-differs"]


def test_what_is_not_the_same_twice_cannot_be_compared(two) -> None:
    write(two, "o", "1", "2")
    with pytest.raises(UsageError, match="between two uninterrupted runs"):
        Comparison(globs=("o",)).learn(str(two[0]), str(two[1]))


def test_a_check_of_the_users_own(two) -> None:
    write(two, "o", "1", "2")
    assert compare(two, check="grep -q 2 o") == []
    (row,) = compare(two, check="echo looking; echo not there >&2; exit 4")
    assert row.detail.endswith("left with 4: not there")


def test_without_anything_named_what_is_missing_still_shows(two) -> None:
    write(two, "state", "10", "9")
    write(two, "result", "x", None)
    write(two, "x.tmp", "x", None)
    assert [(row.path, row.detail) for row in left_over(str(two[0]), str(two[1]))] == [
        ("result", "is missing"),
        ("state", "has another size"),
    ]


def steps(**parts: list[str]) -> dict[tuple[int, int], dict[str, str]]:
    count = len(next(iter(parts.values())))
    return {(step, 1): {name: values[step] for name, values in parts.items()} for step in range(count)}


def test_the_first_divergence_names_step_part_and_rank() -> None:
    want = steps(model=["a", "b", "c"], loader=["1", "2", "3"])
    assert first_divergence(want, want) == ""
    got = steps(model=["a", "b", "x"], loader=["1", "9", "9"])
    assert first_divergence(want, got) == "differs first at step 1: loader position, rank 1"
    both = steps(model=["a", "x", "x"], loader=["1", "9", "9"])
    assert first_divergence(want, both) == "differs first at step 1: loader position, model, rank 1"
    unseeded = {place: {**parts, "~rng": str(place)} for place, parts in got.items()}
    assert first_divergence({place: {**parts, "~rng": "s"} for place, parts in want.items()}, unseeded) == (
        "differs first at step 1: loader position, rank 1"
    )
    assert first_divergence(want, {(0, 1): want[0, 1]}) == "step 1 was never run by rank 1"


def test_torn_fingerprints_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text('{"step": 0, "rank": 0, "parts": {"m": "a"}}\n{"step": 0, "rank": 0, "parts": {"m": "b"}}\n{"st')
    assert read_steps(str(path)) == {(0, 0): {"m": "b"}}
    assert read_steps(str(tmp_path / "none")) == {}
