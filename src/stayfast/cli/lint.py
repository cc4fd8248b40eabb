"""``stayfast lint``: what Spot and flex-start would do to these manifests."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from functools import cache

from stayfast.cli.arguments import add_cluster
from stayfast.cli.lint_sources import gather, read, read_text, write
from stayfast.cli.main import FINDINGS, OK
from stayfast.errors import UsageError
from stayfast.lint.configuration import DEFAULT_NAMES, Configuration, codes, read_configuration
from stayfast.lint.engine import Report, lint_bundle
from stayfast.lint.finding import Finding, Severity
from stayfast.lint.sources import Source
from stayfast.text.files import write_text
from stayfast.text.progress import with_elapsed

_EXAMPLES = """\
examples:
  stayfast lint k8s/                           each folder is one bundle
  stayfast lint job.yaml pdb.yaml pools.tf     these belong together
  helm template . | stayfast lint -            rendered by another tool
  stayfast lint --fix --diff k8s/              show what would be fixed
  stayfast lint --cluster -n ml                what is in the cluster now
  stayfast lint --cluster job.yaml             this file, as if applied there
  stayfast lint --explain SF104                what, why, example, use instead

exit codes: 0 no errors, 1 errors (with --strict: warnings too), 2 a missing path, a bad option or configuration
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EXAMPLES
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files, folders, or - for standard input")
    formats = ("text", "json", "sarif", "github", "junit")
    parser.add_argument("--format", choices=formats, default="text", help="for people, programs or CI (default: text)")
    parser.add_argument("--select", default="", metavar="CODES", help="only these, e.g. SF1,SF503")
    parser.add_argument("--ignore", default="", metavar="CODES", help="all but these")
    parser.add_argument("--strict", action="store_true", help="warnings fail the command too")
    parser.add_argument("--config", metavar="FILE", help=f"default: {DEFAULT_NAMES[0]} in the current folder")
    parser.add_argument("--baseline", metavar="FILE", help="hide the findings that this file accepts")
    parser.add_argument("--write-baseline", metavar="FILE", help="accept all current findings into this file")
    parser.add_argument("--kubernetes", metavar="VERSION", help="schemas of this version, e.g. 1.36")
    parser.add_argument("--fix", action="store_true", help="apply the safe fixes")
    parser.add_argument("--unsafe-fixes", action="store_true", help="apply the others too (implies --fix)")
    parser.add_argument("--diff", action="store_true", help="show what would be fixed, change nothing")
    parser.add_argument(
        "--cluster", action="store_true", help="judge against the live objects; without PATH judge those"
    )
    add_cluster(parser, all_namespaces=True)
    parser.add_argument("--explain", metavar="CODE", help="print the page of a rule")
    parser.add_argument("--rules", action="store_true", help="list the rules")


def run(args: argparse.Namespace) -> int:
    """Lint, and report in the form that was asked for."""
    if args.explain or args.rules:
        return _explain(args)
    if not args.paths and not args.cluster:
        raise UsageError("nothing to lint", help="name files or folders, or - for standard input")
    gc.disable()  # one short run that keeps all it reads: collecting costs a third of the time and frees nothing
    configuration = _configuration(args)
    if args.cluster:
        return _against_cluster(args, configuration)
    named = set(args.paths)
    with with_elapsed("reading"):
        bundles = [[read(name, named=name in named) for name in names] for names in gather(args.paths)]
    if args.fix or args.unsafe_fixes or args.diff:
        bundles, changed = _repair(bundles, configuration, args)
        if args.diff:
            return FINDINGS if changed else OK
    with with_elapsed(f"judging {sum(map(len, bundles))} files"):
        report = _lint(bundles, configuration)
    if args.write_baseline:
        return _write_baseline(args.write_baseline, report.findings)
    if args.baseline:
        from stayfast.lint.baseline import new_findings

        text = read_text(args.baseline, "baseline")
        report = report._replace(findings=new_findings(text, args.baseline, report.findings))
    _print(report, bundles, args.format)
    failing = (Severity.ERROR, Severity.WARNING) if args.strict else (Severity.ERROR,)
    return FINDINGS if any(finding.severity in failing for finding in report.findings) else OK


def _against_cluster(args: argparse.Namespace, configuration: Configuration) -> int:
    """Files as if applied now: live objects fill the bundle, and only the files' own findings are told."""
    from stayfast.cli.lint_cluster import read_live, written

    if args.fix or args.unsafe_fixes or args.diff or args.baseline or args.write_baseline:
        raise UsageError("--cluster only looks", help="leave out --fix, --diff and baselines")
    live = read_live(args)
    configuration = configuration._replace(
        settings=configuration.settings._replace(is_cluster_snapshot=live.is_complete)
    )
    named = set(args.paths)
    files = [[read(name, named=name in named) for name in names] for names in gather(args.paths)] if named else []
    if files:
        bundles = [[*sources, *live.sources(without=written(sources))] for sources in files]
    else:
        bundles = [live.sources()]
    report = _lint(bundles, configuration)
    if files:
        own = {source.name for sources in files for source in sources}
        report = report._replace(findings=[finding for finding in report.findings if finding.file in own])
    _print(report, bundles, args.format)
    failing = (Severity.ERROR, Severity.WARNING) if args.strict else (Severity.ERROR,)
    return FINDINGS if any(finding.severity in failing for finding in report.findings) else OK


def _configuration(args: argparse.Namespace) -> Configuration:
    path = args.config or next((name for name in DEFAULT_NAMES if os.path.isfile(name)), None)
    found = read_configuration(read_text(path, "configuration"), path) if path else Configuration()
    if args.kubernetes:
        from stayfast.lint.schema.validator import versions

        if args.kubernetes not in versions():
            raise UsageError(f"no schemas for Kubernetes {args.kubernetes}", help=f"there are {', '.join(versions())}")
        found = found._replace(settings=found.settings._replace(kubernetes=args.kubernetes))
    select, ignore = codes(args.select, "--select"), codes(args.ignore, "--ignore")
    return found._replace(select=select or found.select, ignore=found.ignore + ignore)


def _lint(bundles: list[list[Source]], configuration: Configuration) -> Report:
    findings: list[Finding] = []
    files = objects = 0
    for sources in bundles:
        report = lint_bundle(sources, configuration.settings, configuration.pools)
        findings += [finding for finding in report.findings if configuration.keeps(finding)]
        files += report.files
        objects += report.objects
    return Report(findings, files, objects)


def _repair(
    bundles: list[list[Source]], configuration: Configuration, args: argparse.Namespace
) -> tuple[list[list[Source]], int]:
    from stayfast.lint.fixes import fix_sources

    changed = 0
    result = []
    for sources in bundles:
        fixed, _ = fix_sources(
            sources, lambda texts: _lint([list(texts)], configuration).findings, unsafe=args.unsafe_fixes
        )
        result.append(fixed)
        for before, after in zip(sources, fixed, strict=True):
            if before.text == after.text:
                continue
            changed += 1
            if args.diff:
                _show_difference(before, after)
            elif before.name == "<stdin>":
                raise UsageError("standard input cannot be fixed in place", help="use --diff, or name the file")
            else:
                write(before.name, after.text)
    if changed and not args.diff:
        print(f"stayfast: fixed {changed} file{'s' * (changed != 1)}", file=sys.stderr)
    return result, changed


def _show_difference(before: Source, after: Source) -> None:
    import difflib

    lines = difflib.unified_diff(
        before.text.splitlines(keepends=True), after.text.splitlines(keepends=True), before.name, after.name
    )
    for line in lines:
        sys.stdout.write(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")


def _write_baseline(path: str, findings: list[Finding]) -> int:
    from stayfast.lint.baseline import to_baseline

    write_text(path, to_baseline(findings))
    print(f"stayfast: accepted {len(findings)} findings into {path}", file=sys.stderr)
    return OK


def _print(report: Report, bundles: list[list[Source]], form: str) -> None:
    if form == "text":
        from stayfast.lint.formats.text import to_text

        texts = {source.name: source.text for sources in bundles for source in sources}
        colour = sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        out = to_text(report, cache(lambda file: texts.get(file, "").split("\n")), colour=colour)
    else:
        from stayfast.lint.formats import machine

        if form == "json":
            out = machine.to_json(report)
        elif form == "sarif":
            out = machine.to_sarif(report, _descriptions(report))
        elif form == "github":
            out = machine.to_github(report.findings)
        else:
            out = machine.to_junit(report)
    if sys.stdout is not None:  # closed: the exit code still tells
        sys.stdout.buffer.write(out.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()


def _descriptions(report: Report) -> dict[str, tuple[str, str]]:
    from stayfast.lint.rule_pages import page

    found = {code: page(code) for code in {finding.rule for finding in report.findings}}
    return {code: (entry.name, entry.summary) for code, entry in found.items()}


def _explain(args: argparse.Namespace) -> int:
    from stayfast.lint import rule_pages

    if args.explain:
        print(rule_pages.page(args.explain).text, end="")
    else:
        for code in rule_pages.codes():
            entry = rule_pages.page(code)
            print(f"{code}  {entry.name:<32} {entry.summary}")
    return OK
