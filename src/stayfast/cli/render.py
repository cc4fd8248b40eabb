"""``stayfast render``: the manifests, node pools and alerts of a workload, and the commands to use them."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from stayfast.capacity.machines.price_file import current_price_list
from stayfast.capacity.plan.planner import Plan
from stayfast.cli.main import FINDINGS, INFEASIBLE, OK, add_output
from stayfast.cluster.submission.prepare import Prepared, prepare
from stayfast.errors import SettingError, UsageError
from stayfast.render.bundle import Bundle
from stayfast.render.context import Controller
from stayfast.render.directory import Difference, compare, write
from stayfast.text.files import MAX_SPEC_BYTES, read_text

_EPILOG = """\
examples:
  stayfast render -f stayfast.yaml -d deploy          then read deploy/README.md
  stayfast render -f stayfast.yaml -d deploy --check  in CI: exit 1 when deploy/ is out of date
  stayfast render -f stayfast.yaml | kubectl apply --server-side -f -
Exit code 4: no capacity class can keep what the workload asks for.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("-f", "--file", metavar="FILE", help="the workload, usually stayfast.yaml")
    parser.add_argument("-d", "--directory", metavar="DIR", help="write files there (default: manifests to stdout)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when DIR is out of date")
    parser.add_argument(
        "--form",
        choices=tuple(form.value for form in Controller),
        help="who restarts training: a Job (default for one pod) or a JobSet (default for more)",
    )
    parser.add_argument("--force", action="store_true", help="replace files that were not made by this command")
    parser.add_argument("--catalogue", metavar="FILE", help="a price catalogue, instead of the current one")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, render, lint what was rendered, and only then write."""
    if not args.file:
        raise SettingError("no workload is named", help="add -f stayfast.yaml, or run: stayfast init train DIR")
    if args.check and not args.directory:
        raise SettingError("--check compares with a directory", help="add -d DIR")
    text = read_text(args.file, most_bytes=MAX_SPEC_BYTES)
    form = Controller(args.form) if args.form else None
    prepared = prepare(text, args.file, current_price_list(args.catalogue), form=form)
    bundle = prepared.bundle
    if bundle is None:
        return _infeasible(prepared.plan)
    _judge(prepared)
    if args.directory:
        return _on_disk(args, bundle)
    if args.output == "json":
        print(json.dumps(_summary(bundle) | {"files": bundle.files, "objects": bundle.objects}))
    else:
        print(bundle.manifests, end="")
    return OK


def _infeasible(plan: Plan) -> int:
    print(f"stayfast: nothing fits {plan.spec.name}", file=sys.stderr)
    for reason in plan.because:
        print(f"  - {reason}", file=sys.stderr)
    return INFEASIBLE


def _judge(prepared: Prepared) -> None:
    """Ours is clean, so that whatever is found comes from the spec: errors stop, the rest is said."""
    if prepared.errors:
        told = "\n".join(["the workload would not run:", *prepared.errors])
        raise UsageError(told, help="change the spec; stayfast lint --explain CODE").listed()
    for finding in prepared.findings:
        print(f"stayfast: {finding.rule} {finding.object}: {finding.message}", file=sys.stderr)


def _summary(bundle: Bundle) -> dict[str, Any]:
    outline = bundle.outline
    return {
        "name": outline.name,
        "namespace": outline.namespace,
        "capacity": outline.capacity_text,
        "workload": bundle.workload["kind"],
        "digest": outline.digest,
        "advice": list(bundle.advice),
    }


def _on_disk(args: argparse.Namespace, bundle: Bundle) -> int:
    difference = compare(args.directory, bundle.files)
    if args.check:
        return _report_check(args, difference)
    write(args.directory, bundle.files, difference, force=args.force)
    written = [*difference.missing, *difference.changed, *difference.foreign]
    if args.output == "json":
        changes = {"directory": args.directory, "files": list(bundle.files), "written": written}
        print(json.dumps(_summary(bundle) | changes | {"removed": difference.extra}))
        return OK
    for verb, names in (("wrote", written), ("removed", difference.extra)):
        for name in names:
            print(f"{verb:<8}{args.directory}/{name}")
    if not written and not difference.extra:
        print(f"{args.directory} is up to date")
    for sentence in bundle.advice:
        print(f"note: {sentence}", file=sys.stderr)
    print(f"next: {args.directory}/README.md")
    return OK


def _report_check(args: argparse.Namespace, difference: Difference) -> int:
    if args.output == "json":
        body = {"up_to_date": difference.is_none, "missing": difference.missing, "changed": difference.changed}
        print(json.dumps(body | {"extra": difference.extra, "foreign": difference.foreign}))
        return OK if difference.is_none else FINDINGS
    if difference.is_none:
        print(f"{args.directory} is up to date")
        return OK
    said = (
        ("is missing", difference.missing),
        ("is out of date", difference.changed),
        ("is no longer generated", difference.extra),
        ("was not made by stayfast render", difference.foreign),
    )
    for what, names in said:
        for name in names:
            print(f"stayfast: {args.directory}/{name} {what}", file=sys.stderr)
    print(f"stayfast: run: stayfast render -f {args.file} -d {args.directory}", file=sys.stderr)
    return FINDINGS
