"""The configuration file of the linter, and which findings it keeps.

::

    # stayfast-lint.yaml
    ignore: [SF801]
    paths:
      - match: "examples/**"
        ignore: [SF404, SF803]
    kubernetes: "1.36"
    cluster:
      mode: standard              # autopilot, standard
      max-accelerators: 64
      pools-are-complete: true
      snapshot: false             # true: the linted objects are all there is, so a missing claim or class is an error
      pools:
        - {name: spot-l4, machine-type: g2-standard-24, accelerator: nvidia-l4, count: 2, spot: true,
           taints: ["cloud.google.com/gke-spot=true:NoSchedule"]}
"""

from __future__ import annotations

import fnmatch
import os
import re
from typing import Any, NamedTuple

from stayfast.documents import Document, load_documents
from stayfast.documents.positions import Path
from stayfast.errors import DocumentError, UsageError
from stayfast.lint import rule_pages
from stayfast.lint.finding import Finding
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.objects.pools import NodePool
from stayfast.lint.readers.gcloud import taint
from stayfast.lint.schema.validator import versions

DEFAULT_NAMES = ("stayfast-lint.yaml", ".stayfast-lint.yaml")
_CODE = re.compile(r"SF[0-9]{0,3}\Z")
_TOP = {"select", "ignore", "paths", "kubernetes", "cluster"}
_CLUSTER = {"mode", "max-accelerators", "pools-are-complete", "pools", "snapshot"}
_POOL = {
    "name", "machine-type", "accelerator", "count", "spot", "flex-start", "queued", "labels", "taints",
    "shutdown-grace-seconds", "critical-grace-seconds",
}  # fmt: skip


class Configuration(NamedTuple):
    """Everything that decides what is looked at and what is reported."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    paths: tuple[tuple[str, tuple[str, ...]], ...] = ()
    settings: LintSettings = LintSettings()
    pools: tuple[NodePool, ...] = ()

    def keeps(self, finding: Finding) -> bool:
        """Whether a finding is reported."""
        if self.select and not finding.rule.startswith(self.select):
            return False
        if self.ignore and finding.rule.startswith(self.ignore):
            return False
        for pattern, codes in self.paths:
            if finding.rule.startswith(codes) and fnmatch.fnmatch(os.path.normpath(finding.file), _anywhere(pattern)):
                return False
        return True


def _anywhere(pattern: str) -> str:
    return pattern if pattern.startswith(("/", "*")) else f"*{pattern}" if os.path.isabs(pattern) else pattern


def codes(written: str, option: str) -> tuple[str, ...]:
    """``SF104,SF8`` as a tuple of codes or prefixes."""
    found = tuple(part for part in re.split(r"[,\s]+", written) if part)
    for code in found:
        if not _CODE.match(code):
            raise UsageError(f"{option}: {code} is no rule code", help="codes look like SF104; SF4 means all of SF4xx")
        if not _is_known(code):
            raise UsageError(f"{option}: no rule is called {code}", help="stayfast lint --rules lists them")
    return found


def _is_known(code: str) -> bool:
    """A rule or the beginning of one: a slip of the keyboard must not switch the whole linter off."""
    return any(known.startswith(code) for known in rule_pages.codes())


def read_configuration(text: str, file: str) -> Configuration:
    """The configuration in a text; mistakes are one sentence with their line."""
    documents = load_documents(text, file)
    if not documents or documents[0].value is None:
        return Configuration()
    return _Reader(file, documents[0]).read()


class _Reader:
    """Checks as it reads: every mistake is one sentence with its line."""

    def __init__(self, file: str, document: Document) -> None:
        self.file = file
        self.document = document

    def _wrong(self, path: Path, message: str) -> DocumentError:
        where = self.document.locate(path)
        told = message if "; " in message else f"{message}; docs/reference/lint.md shows all settings"
        return DocumentError(f"{self.file}:{where.line}:{where.column}: {told}", line=where.line, column=where.column)

    def _mapping(self, value: Any, path: Path, known: set[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(path, f"{path[-1] if path else 'the configuration'} must be a mapping")
        for key in value:
            if key not in known:
                raise self._wrong((*path, key), f"unknown setting {key}; there are {', '.join(sorted(known))}")
        return value

    def _list(self, value: Any, path: Path) -> list[Any]:
        if not isinstance(value, list):
            raise self._wrong(path, f"{path[-1]} must be a list")
        return value

    def _codes(self, value: Any, path: Path) -> tuple[str, ...]:
        for index, code in enumerate(self._list(value, path)):
            if not isinstance(code, str) or not _CODE.match(code):
                raise self._wrong((*path, index), f"{code} is no rule code; codes look like SF104")
            if not _is_known(code):
                raise self._wrong((*path, index), f"no rule is called {code}; stayfast lint --rules lists them")
        return tuple(value)

    def read(self) -> Configuration:
        top = self._mapping(self.document.value, (), _TOP)
        paths = []
        for index, entry in enumerate(self._list(top.get("paths", []), ("paths",))):
            here: Path = ("paths", index)
            entry = self._mapping(entry, here, {"match", "ignore"})
            if not isinstance(entry.get("match"), str):
                raise self._wrong(here, "each entry of paths needs a match, a pattern such as examples/**")
            paths.append((entry["match"], self._codes(entry.get("ignore", []), (*here, "ignore"))))
        settings, pools = self._cluster(top)
        return Configuration(
            self._codes(top.get("select", []), ("select",)),
            self._codes(top.get("ignore", []), ("ignore",)),
            tuple(paths),
            settings,
            pools,
        )

    def _cluster(self, top: dict[str, Any]) -> tuple[LintSettings, tuple[NodePool, ...]]:
        version = str(top.get("kubernetes", LintSettings().kubernetes))
        if version not in versions():
            raise self._wrong(
                ("kubernetes",), f"no schemas for Kubernetes {version}; there are {', '.join(versions())}"
            )
        cluster = self._mapping(top.get("cluster", {}), ("cluster",), _CLUSTER)
        mode = cluster.get("mode", "unknown")
        if mode not in ("autopilot", "standard", "unknown"):
            raise self._wrong(("cluster", "mode"), "mode is autopilot or standard")
        cap = cluster.get("max-accelerators")
        if cap is not None and (not isinstance(cap, int) or isinstance(cap, bool) or cap < 0):
            raise self._wrong(("cluster", "max-accelerators"), "max-accelerators is a whole number")
        pools = [
            self._pool(entry, ("cluster", "pools", index))
            for index, entry in enumerate(self._list(cluster.get("pools", []), ("cluster", "pools")))
        ]
        complete = cluster.get("pools-are-complete", False) is True
        return LintSettings(version, mode, complete, cap, cluster.get("snapshot") is True), tuple(pools)

    def _pool(self, entry: Any, path: Path) -> NodePool:
        entry = self._mapping(entry, path, _POOL)
        if not isinstance(entry.get("name"), str):
            raise self._wrong(path, "a pool needs a name")
        for key in ("count", "shutdown-grace-seconds", "critical-grace-seconds"):
            if not isinstance(entry.get(key, 0), int):
                raise self._wrong((*path, key), f"{key} is a whole number")
        labels = self._mapping(entry.get("labels", {}), (*path, "labels"), set(entry.get("labels") or {}))
        return NodePool(
            entry["name"],
            machine_type=str(entry.get("machine-type", "")),
            accelerator=str(entry.get("accelerator", "")),
            accelerator_count=entry.get("count", 0),
            spot=entry.get("spot") is True,
            flex_start=entry.get("flex-start") is True,
            queued=entry.get("queued") is True,
            labels=tuple((key, str(value)) for key, value in labels.items()),
            taints=tuple(taint(str(value)) for value in self._list(entry.get("taints", []), (*path, "taints"))),
            shutdown_grace_seconds=entry.get("shutdown-grace-seconds"),
            critical_grace_seconds=entry.get("critical-grace-seconds"),
            file=self.file,
            line=self.document.locate(path).line,
        )
