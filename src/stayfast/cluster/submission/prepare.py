"""A bundle under our own linter, with its pools, in the cluster's mode: nothing may be found."""

from __future__ import annotations

from stayfast.capacity.spec.workload import WorkloadSpec
from stayfast.lint.engine import lint_bundle
from stayfast.lint.finding import Finding
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.schema.validator import versions
from stayfast.lint.sources import MANIFESTS, POOLS, Source
from stayfast.render.bundle import Bundle


def settings_for(spec: WorkloadSpec) -> LintSettings:
    """The linter's view of the cluster that the spec describes."""
    known = versions()
    version = ".".join((spec.cluster_version or "").split(".")[:2])
    fallback = LintSettings().kubernetes
    return LintSettings(kubernetes=version if version in known else fallback, cluster_mode=spec.cluster_mode)


def findings(bundle: Bundle, settings: LintSettings | None = None) -> list[Finding]:
    """What ``stayfast lint DIR`` would say, folder by folder; faults of the user's own image or command among them."""
    folders: dict[str, list[Source]] = {}
    for name, text in bundle.files.items():
        if name.endswith(MANIFESTS + POOLS):
            folders.setdefault(name.rpartition("/")[0], []).append(Source(name, text))
    chosen = settings or settings_for(bundle.outline.spec)
    return [finding for sources in folders.values() for finding in lint_bundle(sources, chosen).findings]
