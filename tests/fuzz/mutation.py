"""Inputs that are almost right: bytes of good files bent, cut and spliced, and their values swapped for odd ones."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

WORDS = [
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r\n", b"\n", b"\t", b"  ", b"---\n", b"...\n", b"- ", b"? ", b": ",
    b"<<: ", b"&a ", b"*a", b"!!python/object:os.system ", b"!!binary ", b"%YAML 9.9\n", b"|\n", b">\n", b"'", b'"', b"\\", b"[" * 200,
    b"{a: " * 200, b"9" * 5000, b"1e999", b"-1", b"NaN", b"Infinity", b".inf", b"true", b"null", b"~", b"0x1f", b"1:30",
    b"2026-13-45", b"\x1b[2J", b"\xe2\x80\xae", b"://", b"?", b"#", b"@", b"[::1", b"%00", b"%ff", b"..", b"/", b",", b";",
    b"${x}", b"$(id)", b"{{ x }}", b"# stayfast: ignore SF101", b"x" * 70_000,
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 1.5, 1e308, float("inf"), float("nan"), "", " ", "x", "0", "-1",
    "1Gi", "5x", "\0", "\n", "\x1b[2J", "\ud800", "\u202e", "a" * 5000, "../../etc", "gs://[", "2026-99-99T00:00:00Z", [], [None],
    [[]], ["a"], {}, {"a": None}, {"": ""}, [1, 2, 3] * 50,
]  # fmt: skip


class Mutator:
    """Everything comes from the dice, so that a seed says it all."""

    def __init__(self, corpus: list[bytes], dice: random.Random) -> None:
        self.pool = list(corpus)
        self._dice = dice

    def next(self) -> bytes:
        """One more input."""
        dice = self._dice
        data = dice.choice(self.pool)
        if dice.random() < 0.4:
            data = self._bend_values(data)
        for _ in range(dice.choice((0, 1, 1, 1, 2, 3, 8))):
            data = self._bend_bytes(data)
        return data[:200_000]

    def keep(self, data: bytes) -> None:
        """An input that got an answer nobody else got: worth bending further."""
        if len(data) < 20_000 and len(self.pool) < 2_000:
            self.pool.append(data)

    def _bend_bytes(self, data: bytes) -> bytes:
        dice = self._dice
        at = dice.randrange(len(data) + 1)
        end = min(len(data), at + dice.choice((1, 1, 2, 4, 16, 200)))
        match dice.randrange(8):
            case 0:
                return data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
            case 1:
                return data[:at] + data[end:]
            case 2:
                return data[:at] + data[at:end] * dice.choice((2, 3, 50)) + data[end:]
            case 3:
                return data[:at] + dice.choice(WORDS) + data[at:]
            case 4:
                return data[:at] + dice.choice(WORDS) + data[end:]
            case 5:
                other = dice.choice(self.pool)
                return data[:at] + other[dice.randrange(len(other) + 1) :]
            case 6:
                return data[:at]
            case _:
                return self._swap_lines(data)

    def _swap_lines(self, data: bytes) -> bytes:
        lines = data.split(b"\n")
        first, second = self._dice.randrange(len(lines)), self._dice.randrange(len(lines))
        lines[first], lines[second] = lines[second], lines[first]
        return b"\n".join(lines)

    def _bend_values(self, data: bytes) -> bytes:
        """As a tree, where it is one: JSON whole, or one of its lines."""
        lines = data.split(b"\n")
        number = self._dice.randrange(len(lines))
        for text, put in ((data, lambda new: new), (lines[number], lambda new: self._in_line(lines, number, new))):
            try:
                tree = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(tree, dict | list):
                spoil(tree, self._dice)
                return put(json.dumps(tree).encode())
        return data

    @staticmethod
    def _in_line(lines: list[bytes], number: int, new: bytes) -> bytes:
        return b"\n".join([*lines[:number], new, *lines[number + 1 :]])


def spoil(value: Any, dice: random.Random) -> None:
    """Replace, drop or double something inside."""
    while isinstance(value, dict | list) and value:
        key = dice.choice(list(value)) if isinstance(value, dict) else dice.randrange(len(value))
        inner = value[key]
        if isinstance(inner, dict | list) and inner and dice.random() < 0.7:
            value = inner
            continue
        match dice.randrange(4):
            case 0:
                del value[key]
            case 1 if isinstance(value, list):
                value.append(copy.deepcopy(inner))
            case _:
                value[key] = copy.deepcopy(dice.choice(VALUES))
        return
