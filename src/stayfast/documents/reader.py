"""YAML text to positioned values, in one pass over parser events, with every dimension bounded.

PyYAML's own composer recurses: 50 kB of ``- `` ends the process with SIGSEGV, and half a kilobyte of merge keys hangs
it. Events do not recurse, so the tree is built here from events, and the limits are checked while it grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stayfast.documents.positions import Document, Mapping, Path, Sequence
from stayfast.documents.scalars import key_text, resolve, tagged
from stayfast.errors import DocumentError

_STRING_TAG = "tag:yaml.org,2002:str"


class Limits(NamedTuple):
    """How much YAML one file may hold."""

    characters: int = 3_000_000
    depth: int = 100
    aliases: int = 100
    nodes: int = 1_000_000  # after aliases are expanded
    documents: int = 10_000
    directives: int = 100  # libyaml compares each %TAG with all others


class SyntaxProblem(NamedTuple):
    """Something wrong with the text itself; ``fatal`` when nothing after it could be read."""

    message: str
    line: int
    column: int
    fatal: bool
    document: int = 0
    path: Path = ()
    kind: str = "syntax"


_REMEDIES = {
    "syntax": "mend the text there; indent with spaces alone",
    "limit": "make it smaller, or split it",
    "alias": "write the value out, or name its anchor",
    "duplicate": "keep one of the two",
    "key": "write a text there",
    "merge": "write the fields out",
}


class Parsed(NamedTuple):
    """What could be read, and what could not."""

    documents: list[Document]
    problems: list[SyntaxProblem]


def load_documents(text: str, where: str, *, limits: Limits | None = None) -> list[Document]:
    """Every document of ``text``; the first problem raises ``DocumentError`` with file, line and column."""
    parsed = parse_documents(text, limits=limits)
    for problem in parsed.problems:
        told = f"{where}:{problem.line}:{problem.column}: {problem.message}"
        raise DocumentError(told, line=problem.line, column=problem.column, help=_REMEDIES[problem.kind])
    return parsed.documents


def parse_documents(text: str, *, limits: Limits | None = None) -> Parsed:
    """Like ``load_documents``, but problems are returned beside whatever could be read."""
    limits = limits or Limits()
    if len(text) > limits.characters:
        return _limit_exceeded(f"the file is larger than {limits.characters:,} characters")
    if text.count("%") > limits.directives and text.count("\n%") > limits.directives:
        return _limit_exceeded(f"there are more than {limits.directives} lines that begin with %")
    composer = _Composer(text, limits)
    try:
        composer.run()
    except _StopReading as stop:
        composer.problems.append(stop.problem)
    return Parsed(composer.documents, composer.problems)


def _limit_exceeded(message: str) -> Parsed:
    return Parsed([], [SyntaxProblem(message, 1, 1, fatal=True, kind="limit")])


class _StopReading(Exception):
    def __init__(self, problem: SyntaxProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class _Frame:
    """An open collection."""

    __slots__ = ("anchor", "container", "key", "key_event", "merges", "nodes_before")

    def __init__(self, container: Mapping | Sequence, anchor: str | None, nodes_before: int) -> None:
        self.container = container
        self.anchor = anchor
        self.nodes_before = nodes_before
        self.key: str | None = None
        self.key_event: Any = None
        self.merges: list[tuple[Any, Any, Any]] | None = None


def _events(text: str) -> Iterator[Any]:
    """Parser events, with every way the parser can complain turned into one."""
    import yaml

    # PyYAML built without libyaml has no CSafeLoader: the same events, thirty times slower.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        parser = loader(text)
        while True:
            event = parser.get_event()
            if event is None:
                return
            yield event
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(str(part) for part in (error.context, error.problem) if part)
        last = text.count("\n") + 1  # libyaml puts the end of a text without a last newline one line too far
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        if line > last:
            line, column = last, len(text) - text.rfind("\n")
        raise _StopReading(SyntaxProblem(f"not YAML: {message}", line, column, fatal=True)) from None
    except (yaml.YAMLError, UnicodeError, ValueError) as error:
        line, column, sentence = _unreadable(text, error)
        raise _StopReading(SyntaxProblem(f"not YAML: {sentence}", line, column, fatal=True)) from None
    except RecursionError:  # only the pure-Python parser, on thousands of nested brackets
        raise _StopReading(SyntaxProblem("nested too deeply to be read", 1, 1, fatal=True, kind="limit")) from None


def _unreadable(text: str, error: Exception) -> tuple[int, int, str]:
    found: Any = getattr(error, "position", None)
    position: int = found if isinstance(found, int) else getattr(error, "start", 0)
    position = min(max(position, 0), len(text))
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    reason = getattr(error, "reason", None) or "characters that YAML does not allow"
    return line, column, str(reason)


class _Composer:
    def __init__(self, text: str, limits: Limits) -> None:
        self.text = text
        self.limits = limits
        self.documents: list[Document] = []
        self.problems: list[SyntaxProblem] = []
        self.stack: list[_Frame] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.open_anchors: set[str] = set()
        self.nodes = 0
        self.aliases = 0
        self.root: tuple[Any, Any] | None = None

    def run(self) -> None:
        import yaml

        scalar_event, alias_event = yaml.ScalarEvent, yaml.AliasEvent
        mapping_start, sequence_start = yaml.MappingStartEvent, yaml.SequenceStartEvent
        mapping_end, sequence_end = yaml.MappingEndEvent, yaml.SequenceEndEvent
        document_start, document_end = yaml.DocumentStartEvent, yaml.DocumentEndEvent
        for event in _events(self.text):
            kind = type(event)
            if kind is scalar_event:
                self._scalar(event)
            elif kind is mapping_start:
                self._open(Mapping(event), event)
            elif kind is sequence_start:
                self._open(Sequence(event), event)
            elif kind is mapping_end or kind is sequence_end:
                self._close(event)
            elif kind is alias_event:
                self._alias(event)
            elif kind is document_start:
                self._begin(event)
            elif kind is document_end:
                self._finish(event)

    def _begin(self, event: Any) -> None:
        if len(self.documents) >= self.limits.documents:
            self._stop(f"more than {self.limits.documents:,} documents in one file", event)
        self.anchors.clear()
        self.open_anchors.clear()
        self.root = None

    def _finish(self, event: Any) -> None:
        value, root_event = self.root or (None, event)
        self.documents.append(Document(len(self.documents), value, root_event))

    def _scalar(self, event: Any) -> None:
        text = event.value
        tag = event.tag
        value: Any
        if event.implicit[0] and tag is None:
            value = resolve(text)
        elif tag is None:
            value = text
        else:
            value = tagged(tag, text)
        self.nodes += 1
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1)
        self._attach(value, event)

    def _alias(self, event: Any) -> None:
        self.aliases += 1
        if self.aliases > self.limits.aliases:
            self._stop(f"more than {self.limits.aliases} aliases", event)
        if event.anchor in self.open_anchors:
            self._stop(f"the alias *{event.anchor} refers to the collection it stands in", event, "alias")
        if event.anchor not in self.anchors:
            self._stop(f"the alias *{event.anchor} refers to no anchor", event, "alias")
        value, size = self.anchors[event.anchor]
        self.nodes += size
        if self.nodes > self.limits.nodes:
            self._stop(f"more than {self.limits.nodes:,} values once aliases are expanded", event)
        self._attach(value, event)

    def _open(self, container: Mapping | Sequence, event: Any) -> None:
        if len(self.stack) >= self.limits.depth:
            self._stop(f"nested more than {self.limits.depth} levels deep", event)
        if event.anchor is not None:
            self.open_anchors.add(event.anchor)
        self._attach(container, event)
        self.stack.append(_Frame(container, event.anchor, self.nodes))
        self.nodes += 1

    def _close(self, event: Any) -> None:
        frame = self.stack.pop()
        frame.container.end = event
        if frame.merges is not None and isinstance(frame.container, Mapping):
            self._merge(frame.container, frame.merges)
        if frame.anchor is not None:
            self.open_anchors.discard(frame.anchor)
            self.anchors[frame.anchor] = (frame.container, self.nodes - frame.nodes_before)

    def _attach(self, value: Any, event: Any) -> None:
        """Put a value where the parser stands: root, list element, key, or value of the pending key."""
        if not self.stack:
            self.root = (value, event)
            return
        frame = self.stack[-1]
        container = frame.container
        if type(container) is Sequence:
            container.append(value)
            container.value_events.append(event)
            return
        key_event = frame.key_event
        if key_event is None:
            self._key(frame, value, event)
            return
        frame.key_event = None
        key = frame.key
        if key is None:
            return
        if key == "<<" and key_event.value == "<<" and key_event.implicit[0]:
            frame.merges = frame.merges or []
            frame.merges.append((value, key_event, event))
            return
        assert type(container) is Mapping
        container[key] = value
        container.key_events[key] = key_event
        container.value_events[key] = event

    def _key(self, frame: _Frame, value: Any, event: Any) -> None:
        frame.key_event = event
        if type(value) is str:
            frame.key = value
        else:
            frame.key = None if isinstance(value, Mapping | Sequence) else key_text(value)
        if frame.key is None:
            what = "a list or mapping" if isinstance(value, Mapping | Sequence) else "empty"
            self._add_problem(f"a key that is {what} is not possible in JSON or Kubernetes", event, "key")
        elif frame.key in frame.container:
            container = frame.container
            first = container.key_events[frame.key].start_mark.line + 1 if isinstance(container, Mapping) else 0
            self._add_problem(f'duplicate key "{frame.key}", first written on line {first}', event, "duplicate")

    def _merge(self, container: Mapping, merges: list[tuple[Any, Any, Any]]) -> None:
        for value, key_event, value_event in merges:
            for source in value if isinstance(value, Sequence) else [value]:
                if not isinstance(source, Mapping):
                    self._add_problem("<< merges a mapping or a list of mappings", value_event, "merge")
                    continue
                self.nodes += len(source)
                for key, merged in source.items():
                    if key not in container:
                        container[key] = merged
                        container.key_events[key] = key_event
                        container.value_events[key] = value_event

    def _add_problem(self, message: str, event: Any, kind: str) -> None:
        if len(self.problems) >= 100:
            self._stop("too many problems in one file", event)
        mark = event.start_mark
        path = self._path()
        self.problems.append(
            SyntaxProblem(message, mark.line + 1, mark.column + 1, False, len(self.documents), path, kind)
        )

    def _path(self) -> Path:
        parts: list[str | int] = []
        for frame in self.stack:
            if isinstance(frame.container, Sequence):
                parts.append(max(len(frame.container) - 1, 0))
            elif frame.key is not None:
                parts.append(frame.key)
        return tuple(parts)

    def _stop(self, message: str, event: Any, kind: str = "limit") -> None:
        mark = event.start_mark
        problem = SyntaxProblem(message, mark.line + 1, mark.column + 1, True, len(self.documents), kind=kind)
        raise _StopReading(problem)
