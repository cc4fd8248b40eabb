"""From a workload file to what can be applied: read, planned, rendered, and put under our own linter."""

from __future__ import annotations

from typing import NamedTuple

from stayfast.capacity.machines.prices import PriceList
from stayfast.capacity.plan.planner import Plan, make_plan
from stayfast.capacity.spec import read_spec
from stayfast.capacity.spec.workload import WorkloadSpec
from stayfast.errors import SettingError, one_line
from stayfast.lint.engine import lint_bundle
from stayfast.lint.finding import Finding
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.schema.validator import versions
from stayfast.lint.sources import MANIFESTS, POOLS, Source
from stayfast.render.bundle import Bundle, render
from stayfast.render.context import Controller


class Prepared(NamedTuple):
    """A workload with everything that was decided for it."""

    spec: WorkloadSpec
    plan: Plan
    bundle: Bundle | None
    """None where no capacity class fits: the plan says why."""
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> list[str]:
        """One line for each finding that must stop it."""
        errors = (finding for finding in self.findings if finding.severity == "error")
        return [one_line(f"{item.rule} {item.object}{item.pointer}: {item.message}") for item in errors]


def prepare(
    text: str, where: str, prices: PriceList, *, form: Controller | None = None, namespace: str | None = None
) -> Prepared:
    """The one way from a file to a bundle; ``namespace``, where given, has to be that of the file."""
    spec = read_spec(text, where, accelerators=prices.accelerators)
    if namespace and namespace != spec.namespace:
        raise SettingError(f"{where} says namespace {spec.namespace}", help="change the file, or leave out --namespace")
    plan = make_plan(spec, prices)
    if plan.choice is None:
        return Prepared(spec, plan, None)
    bundle = render(spec, plan, form=form)
    return Prepared(spec, plan, bundle, tuple(findings(bundle)))


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
