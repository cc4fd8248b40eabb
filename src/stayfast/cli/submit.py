"""``stayfast submit``: plan, render, lint, check against the cluster, apply; a second time changes nothing."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import Any

from stayfast.capacity.machines.price_file import current_price_list
from stayfast.capacity.plan.planner import Plan
from stayfast.cli.arguments import add_cluster, connect, warn
from stayfast.cli.main import FINDINGS, INFEASIBLE, OK, add_output
from stayfast.cli.simulate import positive_number
from stayfast.clock import SystemClock
from stayfast.cluster.diagnosis.diagnosis import Verdict
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.submission.apply import Decision
from stayfast.cluster.submission.prepare import prepare
from stayfast.cluster.submission.submit import SubmitOptions, submit, wait_until_running, with_fallback_classes
from stayfast.errors import ObjectRefusedError, SettingError
from stayfast.model.kubernetes_objects import identity
from stayfast.render.bundle import Bundle
from stayfast.render.context import Controller
from stayfast.text.files import MAX_SPEC_BYTES, read_text
from stayfast.text.safe import printable
from stayfast.text.units import duration

_EPILOG = """\
examples:
  stayfast submit -f stayfast.yaml --dry-run=server    everything but the last step
  stayfast submit -f stayfast.yaml
  stayfast submit -f stayfast.yaml --wait              until it runs
  stayfast submit -f stayfast.yaml --fall-back         and let the watch move it when its class does not come
  stayfast submit -f stayfast.yaml --replace           end the one that runs; the new one resumes from its checkpoint
The same file twice changes nothing. On a terminal it asks once before it applies; --yes does not ask.
Exit codes: 1 the linter or the cluster objects, 2 bad input, 3 cluster unreachable, 4 no capacity class fits.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("-f", "--file", metavar="FILE", help="the workload, usually stayfast.yaml")
    parser.add_argument("--form", choices=tuple(form.value for form in Controller), help="who restarts training")
    parser.add_argument(
        "--dry-run",
        nargs="?",
        const="client",
        choices=("server", "client"),
        help="client, also without a word: no cluster is asked; server: nothing is kept",
    )
    parser.add_argument("--replace", action="store_true", help="end the run that is there and start this one")
    parser.add_argument("--force-conflicts", action="store_true", help="take over fields that others manage")
    parser.add_argument("--wait", action="store_true", help="until it runs, has finished, or somebody has to act")
    parser.add_argument(
        "--timeout-seconds", type=positive_number, default=3600.0, metavar="S", help="of --wait (default: 3600)"
    )
    parser.add_argument(
        "--fall-back",
        action="store_true",
        help="keep the plan's next classes, for: stayfast watch --act fall-back",
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--catalogue", metavar="FILE", help="a price catalogue, instead of the current one")
    add_cluster(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """The whole way."""
    if not args.file:
        raise SettingError("no workload is named", help="add -f stayfast.yaml, or run: stayfast init train DIR")
    catalogue = current_price_list(args.catalogue)
    form = Controller(args.form) if args.form else None
    text = read_text(args.file, most_bytes=MAX_SPEC_BYTES)
    prepared = prepare(text, args.file, catalogue, form=form, namespace=args.namespace)
    plan, bundle = prepared.plan, prepared.bundle
    if bundle is None:
        print(f"stayfast: nothing fits {plan.spec.name}: {'; '.join(plan.because)}", file=sys.stderr)
        return INFEASIBLE
    if prepared.errors:
        told = "\n".join(["the linter stops it:", *(f"  {error}" for error in prepared.errors)])
        raise ObjectRefusedError(told, help="run: stayfast lint --explain CODE").listed()
    result = _outline(plan, bundle)
    say = partial(_say, args)
    say(_sentence(plan, bundle))
    if args.fall_back:
        bundle = with_fallback_classes(bundle, plan, say)
    if args.dry_run == "client":
        result |= {
            "action": "none",
            "objects": [{"object": identity(item), "result": "not applied"} for item in bundle.objects],
        }
        return _finish(args, result, OK)
    with connect(args) as client:
        code = _submit(args, client, bundle, result)
        warn(client)
        if code == OK and args.wait and not args.dry_run:
            code = _wait(args, client, bundle, result)
    return _finish(args, result, code)


def _submit(args: argparse.Namespace, client: Client, bundle: Bundle, result: dict[str, Any]) -> int:
    options = SubmitOptions(args.replace, args.force_conflicts, dry_run=bool(args.dry_run))
    confirm, say = partial(_confirm, args, client), partial(_say, args)
    found = submit(client, bundle, options, clock=SystemClock(), confirm=confirm, say=say)
    result |= {
        "action": found.decision.action.value if found.is_confirmed else "none",
        "because": found.decision.because,
        "problems": [{**problem._asdict(), "weight": problem.weight.value} for problem in found.problems],
        "objects": [{"object": name, "result": what} for name, what in found.objects],
    }
    return OK if found.is_confirmed else FINDINGS


def _confirm(args: argparse.Namespace, client: Client, decision: Decision, count: int) -> bool:
    """One question, on a terminal only."""
    if args.yes or args.output == "json" or sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        return True
    print(f"stayfast: {decision.action.value} ({decision.because}): apply {count} objects to "
          f"{client.access.context or client.access.server}? [Y/n] ", end="", file=sys.stderr, flush=True)  # fmt: skip
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def _wait(args: argparse.Namespace, client: Client, bundle: Bundle, result: dict[str, Any]) -> int:
    """Until it runs; every change of the reason is one line."""
    found = wait_until_running(
        client, bundle.outline.name, bundle.outline.namespace, limit_seconds=args.timeout_seconds, clock=SystemClock(),
        on_change=lambda found: print(f"stayfast: {found.cause}  [{found.code}]", file=sys.stderr),
    )  # fmt: skip
    result["explanation"] = found.to_json()
    if found.verdict is Verdict.WAIT:
        print(f"stayfast: it still waits after {duration(args.timeout_seconds)}", file=sys.stderr)
    return OK if found.verdict is Verdict.FINE else FINDINGS


def _outline(plan: Plan, bundle: Bundle) -> dict[str, Any]:
    option = plan.option(plan.choice) if plan.choice else None
    cost = option.cost_usd if option else None
    outline = bundle.outline
    return {
        "run": outline.name,
        "namespace": outline.namespace,
        "workload": identity(bundle.workload),
        "capacity": outline.capacity_text,
        "usd_per_hour": option.usd_per_hour if option else None,
        "cost_usd": {"p50": cost.p50, "p95": cost.p95} if cost else None,
        "problems": [],
        "objects": [],
    }


def _sentence(plan: Plan, bundle: Bundle) -> str:
    option = plan.option(plan.choice) if plan.choice else None
    money = (
        f", about ${option.cost_usd.p50:,.2f} (p95 ${option.cost_usd.p95:,.2f})" if option and option.cost_usd else ""
    )
    return f"{bundle.outline.name}: {bundle.outline.capacity_text}, {plan.spec.nodes} × {plan.machine.name}{money}"


def _say(args: argparse.Namespace, sentence: str) -> None:
    if args.output == "text":
        print(f"stayfast: {printable(sentence)}", file=sys.stderr)


def _finish(args: argparse.Namespace, result: dict[str, Any], code: int) -> int:
    if args.output == "json":
        print(json.dumps(result))
        return code
    for row in result["objects"]:
        print(f"{row['result']:<12}{row['object']}")
    if not args.dry_run and result["objects"]:
        name, place_of = result["run"], result["namespace"]
        print(f"next: stayfast explain {name} -n {place_of}", f"stayfast logs {name} -n {place_of} -f",
              f"stayfast cancel {name} -n {place_of}", sep="\n      ")  # fmt: skip
    return code
