"""Which disks a power cut may leave behind, given the operations so far.

Content counts as durable once a later fsync of that file succeeded, a name once a later fsync of its directory did.
Of the rest any subset may have reached the disk: names in order or in any order, writes whole, not at all, torn at a
sector, or as a hole of the right length. What a *failed* fsync covered may be lost for ever: the kernel marks such
pages clean, so a second fsync that succeeds says nothing about them.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from faults.memory_fs import MemoryFS, Node, Op

SECTOR = 512
TEMPORARY = "/.tmp-"
NAMES = ("create", "link", "replace", "unlink", "mkdir", "rmdir")
CONTENT = ("write", "truncate", "mtime")
FULL, NOTHING, HOLE = -1, 0, -2  # choices for one write; a positive number keeps that many bytes

Choice = tuple[int, ...]


@dataclass
class Cut:
    """Everything that one prefix of the log leaves open."""

    ops: list[Op]
    pending_names: list[int] = field(default_factory=list)
    pending_content: list[int] = field(default_factory=list)
    options: list[tuple[int, ...]] = field(default_factory=list)
    names: dict[str, Node] = field(default_factory=dict)
    """What is certain: names whose directory was synced, over files as they are before anything pending lands."""
    nodes: dict[int, Node] = field(default_factory=dict)
    unsure: dict[int, list[int]] = field(default_factory=dict)
    """All operations on the content of files that have something pending."""

    @property
    def num_states(self) -> int:
        return math.prod((len(option) for option in self.options), start=1) * (2 ** len(self.pending_names))


def cut_at(log: list[Op], length: int) -> Cut:
    """What is pending when the power goes after the first ``length`` operations."""
    cut = Cut(log[:length])
    synced_file: dict[int, int] = {}
    synced_dir: dict[str, int] = {}
    poisoned: set[int] = set()
    open_content: dict[int, list[int]] = {}
    for index, op in enumerate(cut.ops):
        match op.kind:
            case "write" | "truncate" | "mtime":
                open_content.setdefault(op.number, []).append(index)
            case "fsync":
                synced_file[op.number] = index
                open_content.pop(op.number, None)
            case "bad_fsync":
                poisoned.update(open_content.pop(op.number, ()))
            case "fsync_dir":
                synced_dir[op.path] = index
    for index, op in enumerate(cut.ops):
        if op.kind in NAMES:
            if synced_dir.get(os.path.dirname(op.target or op.path), -1) < index:
                cut.pending_names.append(index)
        elif op.kind in CONTENT and (index in poisoned or synced_file.get(op.number, -1) < index):
            cut.pending_content.append(index)
            cut.options.append(_write_options(op))
    _settle(cut)
    return cut


def _write_options(op: Op) -> tuple[int, ...]:
    if op.kind != "write" or not op.data:
        return (FULL, NOTHING)
    first = SECTOR - op.offset % SECTOR
    return (FULL, NOTHING, HOLE, *range(first, len(op.data), SECTOR))


def states(cut: Cut, limit: int, rng: random.Random) -> Iterator[MemoryFS]:
    """All states of a cut, or a seeded sample when there are more than ``limit``; the two extremes always."""
    names = cut.pending_names
    if cut.num_states <= limit:
        subsets = [frozenset(s) for n in range(len(names) + 1) for s in itertools.combinations(names, n)]
        for chosen in subsets:
            for content in itertools.product(*cut.options):
                yield materialise(cut, chosen, content)
        return
    everything, nothing = frozenset(names), frozenset[int]()
    yield materialise(cut, everything, tuple(FULL for _ in cut.options))
    yield materialise(cut, everything, tuple(NOTHING for _ in cut.options))
    yield materialise(cut, nothing, tuple(FULL for _ in cut.options))
    for turn in range(limit - 3):
        if turn % 2:  # in order: a journal that was written up to some point
            chosen = frozenset(names[: rng.randint(0, len(names))])
        else:
            chosen = frozenset(index for index in names if rng.random() < 0.5)
        yield materialise(cut, chosen, tuple(rng.choice(options) for options in cut.options))


def materialise(cut: Cut, chosen_names: frozenset[int], content: Choice) -> MemoryFS:
    """The disk as it is found after the cut; its nodes are shared with other states: ``copy`` it before writing."""
    choice = dict(zip(cut.pending_content, content, strict=True))
    nodes = dict(cut.nodes)
    for number, indices in cut.unsure.items():
        del nodes[number]
        for index in indices:
            _apply_content(nodes, cut.ops[index], choice.get(index, FULL))
        _node(nodes, number).version = tuple(choice.get(index, FULL) for index in indices)
    names = {path: nodes.get(node.number, node) for path, node in cut.names.items()}
    for index in cut.pending_names:
        if index in chosen_names:
            _apply_name(names, nodes, cut.ops[index])
    for path in sorted(names):  # what hangs under a name that was lost cannot be found
        if path != "/" and os.path.dirname(path) not in names:
            del names[path]
    return MemoryFS(names)


def _settle(cut: Cut) -> None:
    """Apply what is certain, once per cut."""
    pending = {*cut.pending_names}
    open_numbers = {cut.ops[index].number for index in cut.pending_content}
    cut.names["/"] = Node(None)
    for index, op in enumerate(cut.ops):
        if op.kind in CONTENT:
            if op.number in open_numbers:
                cut.unsure.setdefault(op.number, []).append(index)
                _node(cut.nodes, op.number)
            else:
                _apply_content(cut.nodes, op, FULL)
                cut.nodes[op.number].version = index
        elif op.kind in NAMES and index not in pending:
            _apply_name(cut.names, cut.nodes, op)


def _node(nodes: dict[int, Node], number: int) -> Node:
    node = nodes.get(number)
    if node is None:
        node = nodes[number] = Node(bytearray(), 0, number)
    return node


def _apply_content(nodes: dict[int, Node], op: Op, choice: int) -> None:
    if choice == NOTHING:
        return
    node = _node(nodes, op.number)
    assert node.data is not None
    if op.kind == "mtime":
        node.mtime_ns = op.offset
    elif op.kind == "truncate":
        del node.data[op.offset :]
        node.data.extend(bytes(op.offset - len(node.data)))
    else:
        data = op.data if choice == FULL else bytes(len(op.data)) if choice == HOLE else op.data[:choice]
        if len(node.data) < op.offset:
            node.data.extend(bytes(op.offset - len(node.data)))
        node.data[op.offset : op.offset + len(data)] = data


def _apply_name(names: dict[str, Node], nodes: dict[int, Node], op: Op) -> None:
    if op.kind == "mkdir":
        names[op.path] = Node(None)
    elif op.kind == "create":
        names[op.path] = _node(nodes, op.number)
    elif op.kind in ("unlink", "rmdir"):
        names.pop(op.path, None)
    else:
        if op.kind == "replace":
            names.pop(op.path, None)
        names[op.target] = _node(nodes, op.number)


def fingerprint(fs: MemoryFS) -> frozenset[tuple[str, int, object]]:
    """Two states of one trace with the same fingerprint are the same; names that no reader looks at are left out."""
    return frozenset((path, node.number, node.version) for path, node in fs.names.items() if TEMPORARY not in path)
