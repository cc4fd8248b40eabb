"""Texts in, findings out: parse, profile, run the rules, locate what they report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from stayfast.documents import Document, SyntaxProblem, parse_documents
from stayfast.documents.positions import pointer
from stayfast.lint.finding import ADVICE, ERROR, Finding, Hit
from stayfast.lint.objects.bundle import Bundle, LintSettings
from stayfast.lint.objects.objects import ManifestObject, unpack
from stayfast.lint.objects.pools import NodePool
from stayfast.lint.readers.gcloud import pools_in_objects, pools_in_texts
from stayfast.lint.rule import BUNDLE, OBJECT, POD, Rule
from stayfast.lint.rules import load_rules
from stayfast.lint.sources import MANIFESTS, POOLS, PYTHON, Source
from stayfast.lint.suppressions import Suppressions


class Report(NamedTuple):
    """What a run found, and how much it looked at."""

    findings: list[Finding]
    files: int
    objects: int


def lint_bundle(sources: Sequence[Source], settings: LintSettings, extra_pools: Iterable[NodePool] = ()) -> Report:
    """Lint texts that belong together."""
    findings: list[Finding] = []
    objects: list[ManifestObject] = []
    pools = list(extra_pools)
    suppressions = Suppressions()
    for source in sources:
        if source.problem:
            findings.append(_broken(source.name, SyntaxProblem(source.problem, 1, 1, fatal=True)))
        elif source.name.endswith(PYTHON):
            findings += _python(source)
        elif source.name.endswith(POOLS):
            pass  # read together below: Terraform files share their values
        else:
            found, problems = _manifest(source)
            objects += found
            findings += problems
        suppressions.read(source)
    pools += pools_in_texts([source for source in sources if source.name.endswith(POOLS) and not source.problem])
    pools += pools_in_objects(objects)
    bundle = Bundle(objects, pools, settings)
    findings += _run(bundle)
    for item in objects:
        suppressions.annotate(item)
    kept = suppressions.apply(findings)
    return Report(sorted(kept, key=_order), len(sources), len(objects))


def _order(finding: Finding) -> tuple[str, int, int, str, str]:
    return (finding.file, finding.line, finding.column, finding.rule, finding.message)


def _manifest(source: Source) -> tuple[list[ManifestObject], list[Finding]]:
    is_template = "{{" in source.text
    if source.name.endswith(".json") and '"apiVersion"' not in source.text:
        return [], []
    parsed = parse_documents(source.text)
    objects = [item for document in parsed.documents for item in unpack(source.name, document)]
    findings = [_broken(source.name, problem, parsed.documents) for problem in parsed.problems]
    if is_template and parsed.problems and parsed.problems[-1].fatal:
        message = "a template, not YAML: render it first (helm template . | stayfast lint -)"
        findings = [findings[-1]._replace(severity=ADVICE, message=message)]
    return objects, findings


def _broken(file: str, problem: SyntaxProblem, documents: list[Document] | None = None) -> Finding:
    title = ""
    if documents and problem.document < len(documents):
        inside = unpack(file, documents[problem.document])
        title = inside[0].title if inside else ""
    return Finding(
        "SF601", "invalid-object", ERROR, problem.message, file, problem.line, problem.column, pointer(problem.path),
        title, "no", None, problem.document,
    )  # fmt: skip


def _python(source: Source) -> list[Finding]:
    from stayfast.lint.readers.python_source import zero_exits

    exits = zero_exits(source.text)
    if exits is None:
        return [_broken(source.name, SyntaxProblem("not Python: it cannot be parsed", 1, 1, fatal=True))]
    return [
        Finding(
            "SF103", "exit-zero-on-sigterm", ERROR,
            f"the SIGTERM handler {found.handler} ends in exit 0: the Job counts as finished and the rest of "
            "the work never "
            "runs; save, then exit 75 (or 143)",
            source.name, found.line, found.column, "", "", "no",
        )
        for found in exits
    ]  # fmt: skip


def _run(bundle: Bundle) -> list[Finding]:
    findings: list[Finding] = []
    by_scope: dict[str, list[Rule]] = {POD: [], OBJECT: [], BUNDLE: []}
    for entry in load_rules():
        by_scope[entry.scope].append(entry)
    for pod in bundle.pods:
        for entry in by_scope[POD]:
            findings += [_finding(entry, hit, pod.item) for hit in entry.check(pod, bundle)]
    for item in bundle.objects:
        for entry in by_scope[OBJECT]:
            if not entry.kinds or item.kind in entry.kinds:
                findings += [_finding(entry, hit, item) for hit in entry.check(item, bundle)]
    for entry in by_scope[BUNDLE]:
        findings += [_finding(entry, hit, None) for hit in entry.check(bundle, bundle)]
    return _unique(findings)


def _unique(findings: list[Finding]) -> list[Finding]:
    """One template mounted twice, or an object seen through two paths, is still one finding."""
    seen: dict[tuple[Any, ...], Finding] = {}
    for finding in findings:
        key = (finding.rule, finding.file, finding.document, finding.pointer, finding.message)
        seen.setdefault(key, finding)
    return list(seen.values())


def _finding(entry: Rule, hit: Hit, item: ManifestObject | None) -> Finding:
    target = hit.item if hit.item is not None else item
    if isinstance(target, NodePool):
        return Finding(
            entry.code,
            entry.name,
            hit.severity,
            hit.message,
            target.file,
            target.line,
            1,
            "",
            f"NodePool/{target.name}",
            "no",
        )
    assert isinstance(target, ManifestObject)
    path = (*target.prefix, *hit.path)
    where = target.document.locate(path)
    fixable = "no" if hit.fix is None else "safe" if hit.fix.safe else "unsafe"
    return Finding(
        entry.code, entry.name, hit.severity, hit.message, target.file, where.line, where.column, pointer(path),
        target.title, fixable, _with_prefix(hit, target), target.document.index,
    )  # fmt: skip


def _with_prefix(hit: Hit, target: ManifestObject) -> Any:
    if hit.fix is None or not target.prefix:
        return hit.fix
    edits = tuple(edit._replace(path=(*target.prefix, *edit.path)) for edit in hit.fix.edits)
    return hit.fix._replace(edits=edits)


def is_manifest(name: str) -> bool:
    """Whether a file is read as YAML or JSON objects."""
    return name.endswith(MANIFESTS) or not name.endswith(POOLS + PYTHON)
