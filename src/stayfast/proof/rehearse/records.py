"""Records by key: which came twice, which are missing, which say something else. JSON lines, CSV and SQLite tables."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from stayfast.errors import UsageError

Row = tuple[str, str, str]  # code, path, detail
Records = list[tuple[str, dict[str, Any]]]
# Which attempt recorded a row, and when, is our sinks' own bookkeeping: right whatever it says.
_SINK_COLUMNS = {"key", "payload", "generation", "recorded_at"}
_SQLITE = b"SQLite format 3\0"
_LONGEST_FIELD = 1 << 30  # of a CSV file; an embedding written as text outgrows Python's 128 KiB


class BrokenRecordError(Exception):
    """Something in the file is no record."""


def compare_records(
    baseline: str, found: str, path: str, key: Sequence[str], unstable: frozenset[str] = frozenset()
) -> list[Row]:
    """How the records of a file differ from the baseline's, whatever their order; unstable fields say nothing."""
    name, table = split(path)
    wanted = _wanted(baseline, path, key)
    broken: list[str] = []
    try:
        got = _read(os.path.join(found, name), table, key, broken)
    except FileNotFoundError:
        return [("missing-records", name, f"there is no such file, the baseline has {len(wanted)} records")]
    except (BrokenRecordError, OSError) as error:
        return [("result-differs", name, str(error))]
    rows = list(_rows(name, _frozen(wanted, unstable), _frozen(got, unstable)))
    if not broken:
        return rows
    if not rows:
        return [("result-differs", name, broken[0])]
    return [(code, name, f"{detail}; {broken[0]}") for code, _, detail in rows]


def unstable_fields(baseline: str, again: str, path: str, key: Sequence[str]) -> frozenset[str]:
    """Fields that differ between two uninterrupted runs: times, host names, random identities."""
    first, second = (dict(_wanted(folder, path, key)) for folder in (baseline, again))
    both = ((first[name], second[name]) for name in first.keys() & second.keys())
    return frozenset(field for one, other in both for field in one if one[field] != other.get(field))


def split(path: str) -> tuple[str, str]:
    """The file and the table, if one was named."""
    name, _, table = path.partition("?table=")
    return os.path.normpath(name), table


def _wanted(baseline: str, path: str, key: Sequence[str]) -> Records:
    name, table = split(path)
    broken: list[str] = []
    try:
        wanted = _read(os.path.join(baseline, name), table, key, broken)
        if broken:
            raise BrokenRecordError(broken[0])
    except (BrokenRecordError, OSError) as error:
        raise UsageError(f"--records {path}: {error}", help="the uninterrupted run has to leave them") from None
    if not wanted:
        raise UsageError(f"--records {path}: the uninterrupted run has left no record there")
    return wanted


def _frozen(records: Records, unstable: frozenset[str]) -> list[tuple[str, str]]:
    return [
        (key, repr(sorted((field, value) for field, value in record.items() if field not in unstable)))
        for key, record in records
    ]


def _rows(name: str, wanted: list[tuple[str, str]], got: list[tuple[str, str]]) -> Iterator[Row]:
    want, have = Counter(key for key, _ in wanted), Counter(key for key, _ in got)
    twice, missing = have - want, want - have
    if twice:
        first = next(key for key, _ in got if key in twice)
        unknown = "" if first in want else ", which the baseline does not have"
        yield "duplicate-records", name, f"{_count(twice)} too many, first {first}{unknown}"
    if missing:
        first = next(key for key, _ in wanted if key in missing)
        yield "missing-records", name, f"{_count(missing)} missing, first {first}"
    if not twice and not missing:
        contents = Counter(got)
        for pair, number in Counter(wanted).items():
            if contents[pair] != number:
                yield "result-differs", name, f"record {pair[0]} says something else than in the baseline"
                return


def _count(keys: Counter[str]) -> str:
    number = keys.total()
    return f"{number} record" if number == 1 else f"{number} records"


def _read(path: str, table: str, key: Sequence[str], broken: list[str]) -> Records:
    """Pairs of key and record; a line that is none is told in ``broken``, and those after it are read all the same."""
    with open(path, "rb") as file:
        start = file.read(16)
    if start == _SQLITE:
        return list(_sqlite(path, table, key))
    if path.lower().endswith((".csv", ".tsv")):
        return list(_csv(path, key, broken))
    return list(_json_lines(path, key, broken))


def _json_lines(path: str, key: Sequence[str], broken: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError:
                broken.append(f"line {number} is not JSON: {line[:60]!r}")
                continue
            if not isinstance(record, dict):
                broken.append(f"line {number} is no object: {line[:60]!r}")
                continue
            yield _key(record, key, f"line {number}"), record


def _csv(path: str, key: Sequence[str], broken: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, delimiter="\t" if path.lower().endswith(".tsv") else ",")
        try:
            names = next(reader, None)
            for row in reader:
                if not row:
                    continue
                where = f"line {reader.line_num}"
                if names is None or len(row) != len(names):
                    broken.append(f"{where} has {len(row)} fields, the first has {len(names or ())}")
                    continue
                record = dict(zip(names, row, strict=True))
                yield _key(record, key, where), record
        except csv.Error as error:
            raise BrokenRecordError(f"line {reader.line_num} is not CSV: {error}") from None


def _sqlite(path: str, table: str, key: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            names = [name for name in names if not name.startswith("sqlite_")]
            if not table and len(names) != 1:
                raise BrokenRecordError(f"has the tables {', '.join(names) or 'none'}; name one: FILE?table=NAME")
            chosen = (table or names[0]).replace('"', '""')
            cursor = connection.execute(f'SELECT * FROM "{chosen}"')
            columns = [column[0] for column in cursor.description]
            columns_are_a_sinks = set(columns) == _SINK_COLUMNS
            for number, row in enumerate(cursor, 1):
                record = dict(zip(columns, row, strict=True))
                if columns_are_a_sinks:
                    record = {name: record[name] for name in ("key", "payload")}
                yield _key(record, key, f"row {number}"), record
        except sqlite3.Error as error:
            raise BrokenRecordError(f"is not a readable database ({error})") from None


def _key(record: dict[str, Any], key: Sequence[str], where: str) -> str:
    missing = [field for field in key if field not in record]
    if missing:
        raise BrokenRecordError(f"{where} has no field {missing[0]!r}")
    return ",".join(str(record[field]) for field in key)
