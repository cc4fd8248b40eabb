"""What a plain scalar means, decided as Kubernetes decides it.

``kubectl`` and the API server read YAML through ``sigs.k8s.io/yaml``, a fork of go-yaml v2: YAML 1.1 booleans (``yes``,
``on``, ``y``), octal ``017``, and no sexagesimal numbers or dates (``1:30`` and ``2026-01-02`` stay text). Reading a
manifest any other way would judge a document that the cluster never sees.
"""

from __future__ import annotations

import re
from functools import lru_cache

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
for _word in ("y", "yes", "true", "on"):
    _WORDS |= {_word: True, _word.capitalize(): True, _word.upper(): True}
for _word in ("n", "no", "false", "off"):
    _WORDS |= {_word: False, _word.capitalize(): False, _word.upper(): False}
for _word in (".inf", ".Inf", ".INF"):
    _WORDS |= {_word: float("inf"), f"+{_word}": float("inf"), f"-{_word}": float("-inf")}
for _word in (".nan", ".NaN", ".NAN"):
    _WORDS[_word] = float("nan")

_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NUMBER_STARTS = frozenset("0123456789+-.")
_LARGEST = 2**64 - 1
_SMALLEST = -(2**63)
_LONGEST_NUMBER = 70  # a 64-bit number in binary with its prefix; anything longer is no integer anyway


@lru_cache(maxsize=4096)  # the same few keys and words make up most of any manifest
def resolve(text: str) -> Scalar:
    """The value of an unquoted scalar."""
    if text[:1] in _NUMBER_STARTS and text:
        number = _number(text)
        if number is not None:
            return number
    return _WORDS.get(text, text)


def _number(text: str) -> int | float | None:
    plain = text.replace("_", "")
    if len(plain) > 400:
        return None
    if len(plain) <= _LONGEST_NUMBER and _INTEGER.match(plain):
        value = _integer(plain)
        if _SMALLEST <= value <= _LARGEST:
            return value
    if _FLOAT.match(plain):
        number = float(plain)
        if number in (float("inf"), float("-inf")):
            return None  # out of range: go-yaml leaves the text alone
        return number
    return None


def _integer(plain: str) -> int:
    digits = plain.lstrip("+-")
    sign = -1 if plain.startswith("-") else 1
    if len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567":
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def key_text(value: Scalar) -> str | None:
    """A mapping key as the JSON object key that the API server will see; ``None`` where there is no such thing."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return None
    return str(value)


def tagged(tag: str, text: str) -> Scalar:
    """The value of a scalar with an explicit tag (``!!str 5``); unknown tags keep the text."""
    if tag in ("tag:yaml.org,2002:str", "!"):
        return text
    if tag == "tag:yaml.org,2002:null":
        return None
    if tag in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
        return resolve(text)
    return text
