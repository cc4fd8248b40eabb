"""The YAML gate: hostile text never hangs, crashes or grows; positions and values are those Kubernetes sees."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stayfast.documents import Limits, load_documents, parse_documents
from stayfast.documents.positions import pointer
from stayfast.errors import DocumentError, UsageError


def one(text: str):
    documents = load_documents(text, "test.yaml")
    assert len(documents) == 1
    return documents[0]


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


HOSTILE = {
    "deep dashes": "- " * 25_000,
    "deep brackets": "[" * 100_000,
    "deep braces": "{a: " * 50_000,
    "deep keys": "".join(f"{' ' * n}a:\n" for n in range(3_000)),
    "alias bomb": bomb(12),
    "merge bomb": "\n".join(
        ["a0: &a0 {k: v}"] + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 20)]
    ),
    "many aliases": "a: &a 1\nb: [" + ", ".join(["*a"] * 101) + "]",
    "many documents": "--- 1\n" * 10_001,
    "tag directives": "".join(f"%TAG !t{n}! x\n" for n in range(100_000)) + "--- a",
    "too large": "a: " + "x" * 3_000_000,
    "self reference": "a: &a [*a]",
    "no anchor": "a: *b",
    "control character": "a: \x00",
    "surrogate": "a: \ud800",
    "tab": "a:\n\t- b",
    "unclosed": "a: [1, 2",
    "list as key": "? [a]\n: b",
    "null key": "~: b",
    "duplicate": "a: 1\na: 2",
    "bad merge": "<<: 5\na: 1",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_quickly_with_a_place(name):
    started = time.process_time()
    with pytest.raises(DocumentError) as caught:
        load_documents(HOSTILE[name], "bad.yaml")
    assert time.process_time() - started < 3
    assert isinstance(caught.value, UsageError)
    assert str(caught.value).startswith(f"bad.yaml:{caught.value.line}:{caught.value.column}: ")
    assert "\n" not in str(caught.value)


def test_hostile_text_in_a_small_process_neither_dies_nor_grows():
    """The case that kills PyYAML: 50 kB of dashes, here under 1 GB and 5 s of CPU."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30));"
        "resource.setrlimit(resource.RLIMIT_CPU, (5, 5));"
        "from stayfast.documents import parse_documents;"
        "print(parse_documents('- ' * 25000).problems[0].message);"
        "print(parse_documents('[' * 1000000).problems[0].message)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("nested more than 100 levels") == 2


def test_what_could_be_read_before_the_fault_is_kept():
    parsed = parse_documents("a: 1\n---\nb: 2\n---\nc: [")
    assert [document.value for document in parsed.documents] == [{"a": 1}, {"b": 2}]
    assert parsed.problems[0].fatal
    assert parsed.problems[0].line >= 5


def test_duplicate_keys_name_both_places_and_the_last_wins():
    parsed = parse_documents("spec:\n  a: 1\n  b: 2\n  a: 3\n")
    assert parsed.documents[0].value == {"spec": {"a": 3, "b": 2}}
    problem = parsed.problems[0]
    assert (problem.line, problem.column, problem.path) == (4, 3, ("spec", "a"))
    assert "first written on line 2" in problem.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", False), ("Yes", True), ("on", True), ("y", True), ("yES", "yES"), ("~", None), ("", None),
        ("null", None),
        ("1:30", "1:30"), ("2026-01-02", "2026-01-02"), ("2026-13-45", "2026-13-45"),
        ("017", 15), ("0o17", 15), ("0x1F", 31), ("0b11", 3), ("08", 8.0), ("1_000", 1000), ("-5", -5), ("+5", 5),
        ("1e3", 1000.0), (".5", 0.5), ("1.", 1.0), ("1e999", "1e999"), ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 1.8446744073709552e19), ("'5'", "5"), ('"no"', "no"), ("!!str 5", "5"),
        ("1.2.3", "1.2.3"), ("-", ["x"]), ("0.1m", "0.1m"), (".", "."), ("+", "+"), ("9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_scalars_are_resolved_as_kubernetes_does(text, value):
    written = "a:\n- x" if text == "-" else f"a: {text}"
    assert one(written).value == {"a": value}


def test_keys_become_text_as_in_json():
    assert one("on: 1\n5: 2\n1.5: 3\n").value == {"true": 1, "5": 2, "1.5": 3}


def test_merge_keys_do_not_override_and_are_found_at_the_merge():
    document = one("x: &x {a: 1, b: 2}\nz:\n  <<: *x\n  b: 3\n")
    assert document.value["z"] == {"b": 3, "a": 1}
    assert document.locate(("z", "a")).line == 3


def test_aliases_share_and_are_located_where_they_stand():
    document = one("a: &a {k: 1}\nb: *a\n")
    assert document.value["b"] == {"k": 1}
    assert document.locate(("b",), value=True)[:2] == (2, 4)


def test_locate_finds_keys_values_elements_and_the_place_of_the_missing():
    document = one("spec:\n  items:\n  - name: ä\n    value: 1\n  - name: b\n")
    assert document.locate(("spec",))[:2] == (1, 1)
    assert document.locate(("spec", "items", 1))[:2] == (5, 5)
    assert document.locate(("spec", "items", 0, "value"))[:2] == (4, 5)
    assert document.locate(("spec", "items", 0, "value"), value=True)[:2] == (4, 12)
    assert document.locate(("spec", "items", 0, "missing", "more"))[:2] == (3, 5)
    assert document.locate(("nothing",))[:2] == (1, 1)


def test_pointer_escapes():
    assert pointer(("a/b", "c~d", 0)) == "/a~1b/c~0d/0"


def test_limits_are_adjustable():
    assert parse_documents("[[[1]]]", limits=Limits(depth=2)).problems[0].fatal
    assert not parse_documents("[[[1]]]", limits=Limits(depth=3)).problems


def test_an_empty_text_has_no_documents():
    assert load_documents("", "x") == []
    assert load_documents("# only a comment\n", "x") == []


_LETTERS = st.text(alphabet="ab:-{}[]&*!|>'\"#%@ \n\t,?<~0x1.e", max_size=200)


@settings(max_examples=400, deadline=None)
@given(_LETTERS)
def test_random_yaml_like_text_never_raises_anything_else(text):
    parsed = parse_documents(text)
    for problem in parsed.problems:
        assert problem.line >= 1
        assert problem.column >= 1


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=100))
def test_random_text_never_raises_anything_else(text):
    with contextlib.suppress(DocumentError):
        load_documents(text, "any")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text("abc -:#\"'\\é", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abz", min_size=1, max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(_VALUES)
def test_what_json_writes_is_read_back(value):
    import json

    assert one(json.dumps(value)).value == value
