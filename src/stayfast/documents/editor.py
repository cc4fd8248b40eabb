"""Edits on YAML text by position: everything that is not touched keeps its bytes, comments included.

Each edit is checked by reading the result back: unless it is the old document with exactly that change, nothing
happens.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from stayfast.documents import Document, parse_documents
from stayfast.documents.lookup import dig
from stayfast.documents.positions import Mapping, Path, Sequence
from stayfast.documents.writer import block_fragment, entry_fragment, flow_fragment, scalar_fragment


class Edit(NamedTuple):
    """One change to a document.

    ``operation`` is ``set`` (a key of the mapping or list at ``path``, added or replaced), ``append`` or ``prepend``
    (to the list at ``path``),
    ``remove`` (the key or element at ``path``), ``rename`` (the key at ``path`` to ``value``), ``first`` (move the
    element at ``path`` to the front of its list).
    """

    operation: str
    path: Path
    value: Any = None
    key: str | int = ""


class _NotPossible(Exception):
    """The text cannot be edited in this way; the fix is left to a person."""


def apply_edits(text: str, index: int, edits: tuple[Edit, ...]) -> str | None:
    """The text with the edits made in its ``index``-th document, or ``None`` where that cannot be done safely."""
    for edit in edits:
        parsed = parse_documents(text)
        if index >= len(parsed.documents) or any(problem.fatal for problem in parsed.problems):
            return None
        before = [document.value for document in parsed.documents]
        document = parsed.documents[index]
        try:
            edit = _whole(document, edit)
            expected = _expected(document.value, edit)
            changed = _Editor(text, document).apply(edit)
        except (_NotPossible, KeyError, IndexError, TypeError):
            return None
        after = parse_documents(changed)
        values = [found.value for found in after.documents]
        before[index] = expected
        if values != before or len(after.problems) > len(parsed.problems):
            return None
        text = changed
    return text


def _whole(document: Document, edit: Edit) -> Edit:
    """Removing the last thing of a collection removes the collection."""
    while edit.operation == "remove" and len(edit.path) > 1:
        parent = dig(document.value, *edit.path[:-1])
        if not isinstance(parent, dict | list) or len(parent) > 1:
            break
        edit = edit._replace(path=edit.path[:-1])
    return edit


def _expected(value: Any, edit: Edit) -> Any:
    """The document after the edit, as values."""
    value = copy.deepcopy(_plain(value))
    operation = edit.operation
    if operation in ("set", "append", "prepend"):
        container = dig(value, *edit.path)
        if operation == "set":
            container[edit.key] = _plain(edit.value)
        elif not isinstance(container, list):
            raise _NotPossible
        else:
            container.insert(len(container) if operation == "append" else 0, _plain(edit.value))
        return value
    parent, last = dig(value, *edit.path[:-1]), edit.path[-1]
    if operation == "remove":
        del parent[last]
    elif operation == "rename":
        if edit.value in parent:
            raise _NotPossible
        parent[edit.value] = parent.pop(last)
    elif operation == "first" and isinstance(parent, list) and isinstance(last, int):
        parent.insert(0, parent.pop(last))
    else:
        raise _NotPossible
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value


class _Editor:
    def __init__(self, text: str, document: Document) -> None:
        self.text = text
        self.document = document
        self.newline = "\r\n" if "\r\n" in text else "\n"

    def apply(self, edit: Edit) -> str:
        if edit.operation == "set":
            return self._set(edit)
        if edit.operation in ("append", "prepend"):
            return self._insert(edit)
        if edit.operation == "remove":
            return self._remove(edit.path)
        if edit.operation == "rename":
            return self._rename(edit)
        return self._first(edit.path)

    def _at(self, path: Path) -> Any:
        return dig(self.document.value, *path) if path else self.document.value

    def _set(self, edit: Edit) -> str:
        container = self._at(edit.path)
        if isinstance(container, Mapping) and edit.key in container:
            key = str(edit.key)
            if self._is_merged(container, key):
                raise _NotPossible
            return self._replace(container[key], container.value_events[key], edit.value, container.key_events[key])
        if isinstance(container, Sequence) and isinstance(edit.key, int):
            return self._replace(container[edit.key], container.value_events[edit.key], edit.value, None)
        if isinstance(container, Mapping):
            return self._add_key(container, str(edit.key), edit.value)
        raise _NotPossible

    def _is_merged(self, container: Mapping, key: str) -> bool:
        return bool(container.key_events[key].value == "<<")

    def _replace(self, old: Any, event: Any, new: Any, key_event: Any) -> str:
        if isinstance(old, dict | list) or not hasattr(event, "style"):
            raise _NotPossible  # a collection or an alias
        start, end = event.start_mark.index, event.end_mark.index
        if event.style in ("|", ">"):
            return self.text[:start] + self._literal(start, end, event.style, new) + self.text[end:]
        rendered = flow_fragment(new)
        if start == end and key_event is not None:  # `key:` with nothing behind it
            start = end = self.text.index(":", key_event.end_mark.index) + 1
            rendered = " " + rendered
        elif event.style in ("'", '"') and isinstance(new, str) and rendered[:1] != '"':
            rendered = f"{event.style}{rendered}{event.style}"
        return self.text[:start] + rendered + self.text[end:]

    def _literal(self, start: int, end: int, style: str, new: Any) -> str:
        if style != "|" or not isinstance(new, str):
            raise _NotPossible
        header, _, body = self.text[start:end].partition("\n")
        first = next(line for line in body.split("\n") if line.strip())
        pad = first[: len(first) - len(first.lstrip(" "))]
        lines = new.split("\n")
        if lines and lines[-1] == "":
            lines.pop()
        written = "\n".join(pad + line if line else "" for line in lines)
        blanks = body[len(body.rstrip(" \n")) :] if body.endswith("\n") else ""
        return f"{header}\n{written}{blanks}"

    def _add_key(self, container: Mapping, key: str, value: Any) -> str:
        if container.start.flow_style:
            return self._into_flow(container, f"{scalar_fragment(key)}: {flow_fragment(value)}")
        names = [name for name in container if not self._is_merged(container, name)]
        if not names:
            raise _NotPossible
        indent = container.key_events[names[0]].start_mark.column
        return self._after(self._end_of(container, container.start), entry_fragment(key, value, indent))

    def _into_flow(self, container: Mapping | Sequence, rendered: str) -> str:
        closing = container.end.start_mark.index
        before = self.text[:closing].rstrip()
        comma = "" if not container or before.endswith(",") else ", "
        return before + comma + rendered + self.text[len(before) : closing] + self.text[closing:]

    def _after(self, index: int, lines: list[str]) -> str:
        """New lines after the line that ``index`` is on."""
        end = self.text.find("\n", index)
        added = self.newline.join(lines)
        if end < 0:
            return self.text + self.newline + added + self.newline
        return self.text[: end + 1] + added + self.newline + self.text[end + 1 :]

    def _end_of(self, value: Any, event: Any) -> int:
        """Where the last visible character of a value stands."""
        if isinstance(value, Mapping | Sequence) and type(event).__name__ != "AliasEvent":
            if value.start.flow_style:
                return int(value.end.end_mark.index) - 1
            ends = [self._end_of(inner, inner_event) for inner, inner_event in self._children(value)]
            keys = [found.end_mark.index for found in value.key_events.values()] if isinstance(value, Mapping) else []
            return int(max([*ends, *keys, value.start.start_mark.index]))
        end = int(event.end_mark.index)
        start = int(event.start_mark.index)
        return max(start, start + len(self.text[start:end].rstrip()) - 1)

    def _children(self, value: Mapping | Sequence) -> list[tuple[Any, Any]]:
        if isinstance(value, Mapping):
            return [(inner, value.value_events[key]) for key, inner in value.items()]
        return list(zip(value, value.value_events, strict=True))

    def _insert(self, edit: Edit) -> str:
        container = self._at(edit.path)
        if not isinstance(container, Sequence):
            raise _NotPossible
        if container.start.flow_style:
            if edit.operation == "prepend":
                raise _NotPossible
            return self._into_flow(container, flow_fragment(edit.value))
        indent: int = container.start.start_mark.column
        lines = block_fragment([edit.value], indent)
        if edit.operation == "append":
            return self._after(self._end_of(container, container.start), lines)
        start: int = container.start.start_mark.index
        return (
            self.text[:start] + self.newline.join(lines).lstrip(" ") + self.newline + " " * indent + self.text[start:]
        )

    def _remove(self, path: Path) -> str:
        container, last = self._at(path[:-1]), path[-1]
        if isinstance(container, Mapping) and isinstance(last, str):
            names = list(container)
            starts = [container.key_events[name].start_mark.index for name in names]
            if any(self._is_merged(container, name) for name in names):
                raise _NotPossible
            position = names.index(last)
            end = self._end_of(container[last], container.value_events[last])
            end = max(end, container.key_events[last].end_mark.index)
        elif isinstance(container, Sequence) and isinstance(last, int):
            starts = [event.start_mark.index for event in container.value_events]
            position = last
            end = self._end_of(container[last], container.value_events[last])
        else:
            raise _NotPossible
        if container.start.flow_style:
            return self._remove_from_flow(starts, position, end)
        return self._remove_lines(container, starts, position, end)

    def _remove_from_flow(self, starts: list[int], position: int, end: int) -> str:
        if position + 1 < len(starts):
            return self.text[: starts[position]] + self.text[starts[position + 1] :]
        comma = self.text.rindex(",", 0, starts[position])
        return self.text[:comma] + self.text[end + 1 :]

    def _remove_lines(self, container: Mapping | Sequence, starts: list[int], position: int, end: int) -> str:
        line = self.text.rfind("\n", 0, starts[position]) + 1
        lead = self.text[line : starts[position]]
        following = self.text.find("\n", end)
        following = len(self.text) if following < 0 else following + 1
        if lead.strip(" ") in ("", "-") and (lead.strip(" ") == "-") == isinstance(container, Sequence):
            return self.text[:line] + self.text[following:]
        if isinstance(container, Mapping) and position + 1 < len(starts):
            return self.text[: starts[position]] + self.text[starts[position + 1] :]  # the key after `- `
        raise _NotPossible

    def _rename(self, edit: Edit) -> str:
        container, last = self._at(edit.path[:-1]), edit.path[-1]
        if not isinstance(container, Mapping) or not isinstance(last, str) or self._is_merged(container, last):
            raise _NotPossible
        event = container.key_events[last]
        quote = event.style if event.style in ("'", '"') else ""
        rendered = f"{quote}{edit.value}{quote}" if quote else scalar_fragment(edit.value)
        return self.text[: event.start_mark.index] + rendered + self.text[event.end_mark.index :]

    def _first(self, path: Path) -> str:
        container, position = self._at(path[:-1]), path[-1]
        if not isinstance(container, Sequence) or not isinstance(position, int) or container.start.flow_style:
            raise _NotPossible
        start = self.text.rfind("\n", 0, container.value_events[position].start_mark.index) + 1
        end = self.text.find("\n", self._end_of(container[position], container.value_events[position]))
        end = len(self.text) if end < 0 else end + 1
        moved = self.text[start:end]
        if not moved.endswith("\n"):
            moved += self.newline
        top = self.text.rfind("\n", 0, container.start.start_mark.index) + 1
        return self.text[:top] + moved + self.text[top:start] + self.text[end:]
