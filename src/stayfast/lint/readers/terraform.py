"""Node pools in Terraform: enough of HCL to read ``google_container_node_pool``, and to know what we cannot read.

Variables with a default and locals that are plain values are put in; any other expression makes its field unknown, so
that nothing is held against a pool which only a plan could tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stayfast.lint.objects.pools import AUTOMATIC, NodePool, Taint

EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
_RESOURCE = re.compile(r'resource\s+"google_container_node_pool"\s+"([^"]+)"\s*\{')
_CLUSTER = re.compile(r'resource\s+"google_container_cluster"\s+"[^"]+"\s*\{')
_MODULE = re.compile(r'(?m)^[ \t]*module\s+"[^"]+"\s*\{')
_VARIABLE = re.compile(r'(?m)^[ \t]*variable\s+"([^"]+)"\s*\{')
_LOCALS = re.compile(r"(?m)^[ \t]*locals\s*\{")
_PLAIN = re.compile(r'(?m)^[ \t]*([\w-]+)[ \t]*=[ \t]*("[^"\n]*"|[\w.-]+)[ \t]*$')
_COMMENTS = re.compile(r'("(?:[^"\\\n]|\\.)*")|/\*(?:.*?\*/|.*)|(?:#|//)[^\n]*', re.DOTALL)
_BRACES = re.compile(r'[{}"]|\\.')
_REFERENCE = re.compile(r"^(?:\$\{)?\s*(var|local)\.([\w-]+)\s*\}?$")


class Value(NamedTuple):
    """An attribute as written; ``known`` when it is a plain value."""

    text: str
    known: bool


def values_in(source: str) -> dict[str, str]:
    """``var.x`` and ``local.x`` that are plain values in this text."""
    source = without_comments(source)
    found = {}
    for match, body, _ in blocks(source, _VARIABLE):
        default = re.search(r'(?m)^[ \t]*default[ \t]*=[ \t]*("[^"\n]*"|[\w.-]+)[ \t]*$', body)
        if default:
            found[f"var.{match.group(1)}"] = default.group(1).strip('"')
    for _, body, _ in blocks(source, _LOCALS):
        for name, value in _PLAIN.findall(body):
            found[f"local.{name}"] = value.strip('"')
    return found


def without_comments(source: str) -> str:
    """The text with comments blanked out; line numbers stay as they are."""
    return _COMMENTS.sub(lambda match: match.group(1) or re.sub(r"[^\n]", " ", match.group(0)), source)


def pools_in(source: str, file: str, values: Mapping[str, str]) -> Iterator[NodePool]:
    """The pools of one file, and one that stands for auto-provisioning where a cluster has it."""
    source = without_comments(source)
    for match, body, line in blocks(source, _RESOURCE):
        yield _Reader(values).pool(match.group(1), body, file, line)
    for _, body, line in blocks(source, _MODULE):
        if "kubernetes-engine" in attribute_of(body, "source"):
            yield from _module_pools(body, file, line, values)
    for _, body, line in blocks(source, _CLUSTER):
        automatic = _first(body, "cluster_autoscaling")
        autopilot = re.search(r"(?m)^[ \t]*enable_autopilot[ \t]*=[ \t]*true", body)
        if autopilot or re.search(r"\benabled[ \t]*=[ \t]*true", automatic):
            yield NodePool(AUTOMATIC, file=file, line=line)


def _module_pools(body: str, file: str, offset: int, values: Mapping[str, str]) -> Iterator[NodePool]:
    """``node_pools`` of the terraform-google-kubernetes-engine module; labels and taints it keeps elsewhere."""
    start = re.search(r"(?m)^[ \t]*node_pools[ \t]*=[ \t]*\[", body)
    index = start.end() if start else len(body)
    while index < len(body) and body[index] != "]":
        if body[index] == "{":
            inner, index = block(body, index)
            reader = _Reader(values)
            count = reader.text(inner, "accelerator_count", "accelerator_count")
            yield NodePool(
                reader.text(inner, "name", "name"),
                machine_type=reader.text(inner, "machine_type", "machine_type"),
                accelerator=reader.text(inner, "accelerator_type", "accelerator"),
                accelerator_count=int(count) if count.isdigit() else 0,
                spot=reader.text(inner, "spot", "spot") == "true",
                preemptible=reader.text(inner, "preemptible", "preemptible") == "true",
                flex_start=reader.text(inner, "flex_start", "flex_start") == "true",
                queued=reader.text(inner, "queued_provisioning", "queued") == "true",
                file=file,
                line=offset + body.count("\n", 0, index - len(inner)),
                unknown=frozenset({"labels", "taints", *reader.unknown}),
            )
        index += 1


class _Reader:
    """Reads one pool, and keeps note of the fields that cannot be worked out."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.unknown: set[str] = set()

    def pool(self, label: str, body: str, file: str, line: int) -> NodePool:
        config = _first(body, "node_config")
        accelerator = _first(config, "guest_accelerator")
        kubelet = _first(config, "kubelet_config")
        count = self.text(accelerator, "count", "accelerator_count")
        if re.search(r'dynamic\s+"(?:guest_accelerator|node_config)"', body):
            self.unknown |= {"accelerator", "accelerator_count"}
        name = self.text(body, "name", "name")
        return NodePool(
            name or label,
            machine_type=self.text(config, "machine_type", "machine_type"),
            accelerator=self.text(accelerator, "type", "accelerator"),
            accelerator_count=int(count) if count.isdigit() else int(bool(accelerator)),
            spot=self.text(config, "spot", "spot") == "true",
            preemptible=self.text(config, "preemptible", "preemptible") == "true",
            flex_start=self.text(config, "flex_start", "flex_start") == "true",
            queued=self.text(_first(body, "queued_provisioning"), "enabled", "queued") == "true",
            labels=self._labels(config),
            taints=self._taints(config),
            shutdown_grace_seconds=self._whole(kubelet, "shutdown_grace_period_seconds"),
            critical_grace_seconds=self._whole(kubelet, "shutdown_grace_period_critical_pods_seconds"),
            max_run_seconds=self._whole(config, "max_run_duration"),
            file=file,
            line=line,
            unknown=frozenset(self.unknown),
        )

    def text(self, body: str, attribute: str, field: str) -> str:
        """A plain value, or an empty text and a note that it is not known."""
        found = self.resolve(attribute_of(body, attribute))
        if found.known:
            return found.text
        self.unknown.add(field)
        return ""

    def resolve(self, written: str) -> Value:
        if not written or re.fullmatch(r'"[^"$]*"|true|false|[0-9.]+', written):
            return Value(written.strip('"'), known=True)
        reference = _REFERENCE.match(written.strip('"'))
        if reference:
            value = self.values.get(f"{reference.group(1)}.{reference.group(2)}")
            if value is not None:
                return Value(value, known=True)
        return Value("", known=False)

    def _whole(self, body: str, attribute: str) -> int | None:
        written = self.resolve(attribute_of(body, attribute)).text.removesuffix("s")
        return int(written) if written.isascii() and written.isdigit() else None

    def _labels(self, config: str) -> tuple[tuple[str, str], ...]:
        body = _first(config, "labels")
        pairs = re.findall(r'(?:^|[\n,{])[ \t]*"?([\w./-]+)"?[ \t]*[=:][ \t]*("[^"\n]*"|[^\s,]+)', body)
        found = [(key, self.resolve(value)) for key, value in pairs]
        if (attribute_of(config, "labels") and not body) or not all(value.known for _, value in found):
            self.unknown.add("labels")
        return tuple((key, value.text) for key, value in found if value.known)

    def _taints(self, config: str) -> tuple[Taint, ...]:
        if re.search(r'dynamic\s+"taint"|(?m:^)[ \t]*taint[ \t]*=[ \t]*[a-z]', config):
            self.unknown.add("taints")
        found = []
        for part in _every(config, "taint"):
            words = [self.resolve(attribute_of(part, name)) for name in ("key", "value", "effect")]
            if not all(word.known for word in words):
                self.unknown.add("taints")
            found.append(Taint(words[0].text, words[1].text, EFFECTS.get(words[2].text, "NoSchedule")))
        return tuple(found)


def blocks(source: str, opening: re.Pattern[str]) -> Iterator[tuple[re.Match[str], str, int]]:
    """Each block that ``opening`` begins: the match, what is inside, and its line; none inside another.

    A block that is never closed is the last one, so that broken files take no longer than others.
    """
    place, line, counted = 0, 1, 0
    while (match := opening.search(source, place)) is not None:
        line += source.count("\n", counted, match.start())
        counted = match.start()
        body, place = block(source, match.end() - 1)
        yield match, body, line
        if place >= len(source):
            return


def block(source: str, opening: int) -> tuple[str, int]:
    """What stands between the brace at ``opening`` and its partner, and where that is; quoted braces do not count."""
    depth, quoted = 0, False
    for token in _BRACES.finditer(source, opening):
        if token.group() == '"':
            quoted = not quoted
        elif not quoted and token.group() in "{}":
            depth += 1 if token.group() == "{" else -1
            if depth == 0:
                return source[opening + 1 : token.start()], token.start()
    return source[opening + 1 :], len(source)


def _every(body: str, name: str) -> list[str]:
    opening = re.compile(rf"(?m)^[ \t]*{name}[ \t]*=?[ \t]*\[?\s*\{{")
    return [inner for _, inner, _ in blocks(body, opening)]


def _first(body: str, name: str) -> str:
    match = re.search(rf"(?m)^[ \t]*{name}[ \t]*=?[ \t]*\[?\s*\{{", body)
    return block(body, match.end() - 1)[0] if match else ""


def attribute_of(body: str, name: str) -> str:
    """The expression after ``name =``, as written; empty where there is none."""
    pattern = rf'(?:^|[{{,\n])[ \t]*"?{name}"?[ \t]*=[ \t]*("[^"\n]*"|[^\n,}}]+)'
    match = re.search(pattern, body)
    return match.group(1).strip() if match else ""
