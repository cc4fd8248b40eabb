"""``stayfast submit``: plan, render, lint, check against the cluster, apply; a second time changes nothing."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

from stayfast.capacity.plan.planner import Plan, make_plan
from stayfast.capacity.spec import read_spec
from stayfast.cli.arguments import add_cluster, connect, warn
from stayfast.cli.explain import observe
from stayfast.cli.main import FINDINGS, INFEASIBLE, OK, add_output
from stayfast.cli.prices import current_price_list
from stayfast.cli.simulate import positive_number
from stayfast.clock import SystemClock
from stayfast.cluster.diagnosis.diagnose import diagnose, find_root
from stayfast.cluster.diagnosis.diagnosis import Verdict
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.resources import NAMESPACES, identity
from stayfast.cluster.observed.bucket_location import check_region
from stayfast.cluster.observed.problem import Problem, ProblemSeverity
from stayfast.cluster.submission.apply import Action, Decision, apply_all, check_update, decide
from stayfast.cluster.submission.preflight import (
    TargetedObject,
    check_dependencies,
    dry_run_objects,
    missing_namespaces,
    resolve_resources,
)
from stayfast.cluster.submission.prepare import findings
from stayfast.cluster.watch.actions.classes import fallback_classes
from stayfast.errors import ObjectRefusedError, SettingError, StayfastError, UsageError, one_line
from stayfast.render.bundle import Bundle, render
from stayfast.render.context import Controller
from stayfast.text.files import MAX_SPEC_BYTES, read_text
from stayfast.text.safe import printable
from stayfast.text.units import duration

POLL_SECONDS = 5.0
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
    plan, bundle = prepare(args)
    if bundle is None:
        return INFEASIBLE
    result = _outline(plan, bundle)
    _say(args, _sentence(plan, bundle))
    if args.fall_back:
        bundle = _with_classes(args, plan, bundle)
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
            code = wait(client, bundle.outline.name, bundle.outline.namespace, args.timeout_seconds, result)
    return _finish(args, result, code)


def prepare(args: argparse.Namespace) -> tuple[Plan, Bundle | None]:
    """Plan, render and lint; errors of the linter stop here."""
    catalogue = current_price_list(args.catalogue)
    spec = read_spec(read_text(args.file, most_bytes=MAX_SPEC_BYTES), args.file, accelerators=catalogue.accelerators)
    if args.namespace and args.namespace != spec.namespace:
        raise SettingError(
            f"{args.file} says namespace {spec.namespace}", help="change the file, or leave out --namespace"
        )
    plan = make_plan(spec, catalogue)
    if plan.choice is None:
        print(f"stayfast: nothing fits {spec.name}: {'; '.join(plan.because)}", file=sys.stderr)
        return plan, None
    bundle = render(spec, plan, form=Controller(args.form) if args.form else None)
    bad = [finding for finding in findings(bundle) if finding.severity == "error"]
    if bad:
        lines = [one_line(f"  {item.rule} {item.object}{item.pointer}: {item.message}") for item in bad]
        told = "\n".join(["the linter stops it:", *lines])
        raise ObjectRefusedError(told, help="run: stayfast lint --explain CODE").listed()
    return plan, bundle


def _with_classes(args: argparse.Namespace, plan: Plan, bundle: Bundle) -> Bundle:
    """The later classes of the plan go into the cluster before the workload that may need them."""
    config_map, left_out = fallback_classes(bundle, plan)
    for reason in left_out:
        _say(args, f"not kept for falling back: {reason}")
    if config_map is None:
        _say(args, "there is no class to fall back to")
        return bundle
    at = bundle.objects.index(bundle.workload)
    return replace(bundle, objects=[*bundle.objects[:at], config_map, *bundle.objects[at:]])


def _submit(args: argparse.Namespace, client: Client, bundle: Bundle, result: dict[str, Any]) -> int:
    namespace = bundle.outline.namespace
    placed, problems = resolve_resources(client, bundle.objects, namespace)
    workload = next((item for item in placed if item.value is bundle.workload), None)
    absent = missing_namespaces(client, placed)
    decision = Decision(Action.CREATE, "it is new")
    if workload is not None and namespace not in absent:
        decision = decide(client, workload, replace=args.replace)
        check_update(client, workload, decision, force=args.force_conflicts)
    result |= {"action": decision.action.value, "because": decision.because}
    problems += _preflight(args, client, bundle, placed, workload, decision, absent)
    result["problems"] = [{**problem._asdict(), "weight": problem.weight.value} for problem in problems]
    for problem in problems:
        fix = f"; {problem.fix}" if problem.fix else ""
        _say(args, f"{problem.weight.value}: {problem.object}: {problem.sentence}{fix}")
    if any(problem.weight is ProblemSeverity.ERROR for problem in problems):
        raise ObjectRefusedError("nothing was applied: the cluster would not run it", help="mend the errors above")
    if args.dry_run:
        result["objects"] = [{"object": identity(item.value), "result": "tried"} for item in placed]
        return OK
    assert workload is not None
    if not _confirm(args, client, decision, len(placed)):
        result["action"] = "none"
        return FINDINGS
    done = _apply(args, client, bundle, placed, workload, decision, absent)
    done += _watch(args, client, bundle, workload, decision)
    result["objects"] = [{"object": name, "result": what} for name, what in done]
    return OK


def _preflight(
    args: argparse.Namespace,
    client: Client,
    bundle: Bundle,
    placed: list[TargetedObject],
    workload: TargetedObject | None,
    decision: Decision,
    absent: set[str],
) -> list[Problem]:
    tried = placed
    if decision.action in (Action.REPLACE, Action.NOTHING):  # the one that is there would be in the way of the dry run
        tried = [item for item in placed if item is not workload]
    problems = dry_run_objects(client, tried, force=args.force_conflicts, absent=absent)
    if workload is not None and bundle.outline.namespace not in absent and decision.action is not Action.NOTHING:
        problems += check_dependencies(client, placed, workload.value, bundle.outline.namespace)
    spec = bundle.outline.spec
    return problems + check_region(client, [spec.checkpoint_url, spec.sink_url], spec.bucket_region)


def _apply(
    args: argparse.Namespace, client: Client, bundle: Bundle, placed: list[TargetedObject], workload: TargetedObject,
    decision: Decision, absent: set[str],
) -> list[tuple[str, str]]:  # fmt: skip
    """A namespace that is new comes first, so that the rest can be tried in it before it is applied."""
    done: list[tuple[str, str]] = []
    force, clock = args.force_conflicts, SystemClock()
    if absent:
        first = [item for item in placed if item.resource == NAMESPACES]
        done += apply_all(client, first, workload, decision, clock=clock, force=force)
        placed = [item for item in placed if item.resource != NAMESPACES]
        problems = dry_run_objects(client, placed, force=force, absent=set())
        problems += check_dependencies(client, placed, workload.value, bundle.outline.namespace)
        bad = [problem for problem in problems if problem.weight is ProblemSeverity.ERROR]
        if bad:
            names = "; ".join(f"{problem.object}: {problem.sentence}" for problem in bad)
            raise ObjectRefusedError(f"only the namespace was made, the cluster would not run the rest: {names}")
    return done + apply_all(client, placed, workload, decision, clock=clock, force=force)


def _watch(
    args: argparse.Namespace, client: Client, bundle: Bundle, workload: TargetedObject, decision: Decision
) -> list[tuple[str, str]]:
    """Have its metrics collected, where the cluster knows how; the run does not depend on it."""
    wanted = [item for item in bundle.optional if item["kind"] == "PodMonitoring"]
    try:
        placed, _ = resolve_resources(client, wanted, bundle.outline.namespace)
        return apply_all(client, placed, workload, decision, clock=SystemClock(), force=args.force_conflicts)
    except StayfastError as error:
        _say(args, f"warning: its metrics will not be collected: {error}")
        return []


def _confirm(args: argparse.Namespace, client: Client, decision: Decision, count: int) -> bool:
    """One question, on a terminal only."""
    if args.yes or args.output == "json" or sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        return True
    print(f"stayfast: {decision.action.value} ({decision.because}): apply {count} objects to "
          f"{client.access.context or client.access.server}? [Y/n] ", end="", file=sys.stderr, flush=True)  # fmt: skip
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def wait(client: Client, name: str, namespace: str, limit_seconds: float, result: dict[str, Any]) -> int:
    """Until it runs; every change of the reason is one line."""
    clock = SystemClock()
    deadline = clock.monotonic() + limit_seconds
    last = ""
    while True:
        observed = observe(client, namespace)
        root = find_root(observed, name, namespace)
        if root is None:
            raise UsageError(f"the run {name} was deleted while we waited for it")
        found = diagnose(observed, root)
        if found.code != last:
            print(f"stayfast: {found.cause}  [{found.code}]", file=sys.stderr)
            last = found.code
        result["explanation"] = found.to_json()
        if found.verdict is not Verdict.WAIT:
            return OK if found.verdict is Verdict.FINE else FINDINGS
        if clock.monotonic() >= deadline:
            print(f"stayfast: it still waits after {duration(limit_seconds)}", file=sys.stderr)
            return FINDINGS
        clock.sleep(POLL_SECONDS)


def _outline(plan: Plan, bundle: Bundle) -> dict[str, Any]:
    option = plan.option(plan.choice) if plan.choice else None
    cost = option.cost_usd if option else None
    outline = bundle.outline
    return {
        "run": outline.name,
        "namespace": outline.namespace,
        "workload": identity(bundle.workload),
        "capacity": outline.capacity.value,
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
    return f"{bundle.outline.name}: {bundle.outline.capacity.value}, {plan.spec.nodes} × {plan.machine.name}{money}"


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
