"""The YAML writer: whatever goes in comes out of every reader, with comments or without."""

from __future__ import annotations

import string

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stayfast.documents import load_documents
from stayfast.documents.writer import document, documents, scalar
from stayfast.render.naming import one_line

TRICKY = [
    "", " ", "yes", "No", "on", "~", "null", "Null", "true", "1", "1.5", "-1", "+1", "0x1f", "0o17", "017", "1e3", ".5",
    "1:30", "12:30:45", "2026-11-15", "2026-11-15T20:00:00Z", "=", "<<", "-", "--", "---", "...", "- a", "a: b", "a:",
    "#x", "a #b", "{a}", "[a]", "a, b", "*a", "&a", "!a", "%a", "@a", "`a`", "'a'", '"a"', "a\\b", "a\nb", "a\tb", "\r",
    "é", "日本", "😀", "\x00", "\x7f", "\x85", "\u2028", "\ufeff", "inf", ".inf", "-.INF", ".nan", "y", "n", "1_000",
    "0b1", "deadbeef", "12345678", "e6e99e", "1734Gi", "us-docker.pkg.dev/p/r/i:v1", "gs://b/r", "$(MASTER_ADDR)", "|",
    ">", "? a", "metadata.annotations['x/y']", "a:b:c", "trailing ", " leading", "\u00a0", "a\u00a0b",
]  # fmt: skip

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(TRICKY)
KEYS = st.text(alphabet=string.ascii_letters + string.digits + "./-_", min_size=1, max_size=12) | st.sampled_from(
    [text for text in TRICKY if text]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def without_nested_lists(value):
    """Kubernetes has no list directly in a list, and the writer none either."""
    if isinstance(value, list):
        return [without_nested_lists(item) if not isinstance(item, list) else None for item in value]
    if isinstance(value, dict):
        return {key: without_nested_lists(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize("text", TRICKY, ids=ascii)
def test_every_tricky_text_stays_a_text(text):
    body = {"key": text, "list": [text, text], "deep": [{"a": text}]}
    assert yaml.safe_load(document(body)) == body
    if "\x00" not in text:
        assert load_documents(document(body), "x.yaml")[0].value == body


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=5))
def test_a_reader_gets_what_was_written(body):
    body = without_nested_lists(body)
    assert yaml.safe_load(document(body)) == body
    assert list(yaml.safe_load(document(body))) == list(body)  # in the same order


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4), st.text(alphabet=string.printable, max_size=200))
def test_comments_change_nothing(body, comment):
    body = without_nested_lists(body)
    text = document(body, lambda _path: comment.strip() or None)
    assert yaml.safe_load(text) == body


def test_long_comments_are_folded_and_stand_above_their_field():
    text = document({"spec": {"items": [{"a": 1, "b": 2}]}}, lambda path: "why " * 60 if path[-1] == "a" else None)
    lines = text.splitlines()
    assert all(len(line) < 120 for line in lines)
    assert lines[2].strip().startswith("# why")
    assert any(line.strip() == "- a: 1" for line in lines)
    assert yaml.safe_load(text) == {"spec": {"items": [{"a": 1, "b": 2}]}}


def test_short_lists_are_flow_and_long_ones_are_not():
    assert document({"command": ["python", "train.py"]}) == 'command: [python, "train.py"]\n'
    long = [f"--option-number-{index}=value" for index in range(20)]
    text = document({"command": long})
    assert text.count("\n") == 21
    assert yaml.safe_load(text) == {"command": long}


def test_several_documents_are_separated():
    text = documents([{"a": 1}, {"b": 2}], lambda _item: lambda _path: None)
    assert list(yaml.safe_load_all(text)) == [{"a": 1}, {"b": 2}]


def test_only_what_belongs_in_a_manifest_is_written():
    with pytest.raises(AssertionError, match="float"):
        scalar(1.5)


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\u2028b", "\x1b[31m", "a" * 500])
def test_a_comment_stays_on_its_line(text):
    assert one_line(text).isprintable()
    assert len(one_line(text).splitlines()) == 1
    assert len(one_line(text)) <= 200
