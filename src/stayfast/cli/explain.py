"""``stayfast explain``: why a workload does not run, what that rests on, what to do, how long is normal."""

from __future__ import annotations

import argparse
import json

from stayfast.cli.arguments import add_cluster, chosen_namespace, connect
from stayfast.cli.main import FINDINGS, OK, add_output
from stayfast.clock import SystemClock
from stayfast.cluster.diagnosis.diagnose import diagnose, find_root
from stayfast.cluster.diagnosis.diagnosis import Diagnosis, Verdict
from stayfast.cluster.observed.objects import title
from stayfast.cluster.observed.snapshot import take_snapshot_to_explain
from stayfast.errors import UsageError
from stayfast.text.safe import line, printable

_EPILOG = """\
examples:
  stayfast explain llm-7                    a run, Job, JobSet, Deployment or pod by its name
  stayfast explain workload/job-llm-7-3f1   KIND/NAME, also workload and provisioningrequest
  stayfast explain llm-7 -n ml --json
It reads, and changes nothing. Exit code 1: somebody has to do something; 0: it runs, is done, or waits as usual.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("workload", metavar="WORKLOAD", help="a run's name, or [KIND/]NAME of an object")
    add_cluster(parser, all_namespaces=True)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Look, think, say."""
    name = args.workload
    with connect(args) as client:
        namespace = chosen_namespace(args, client)
        observed = take_snapshot_to_explain(client, namespace, now=SystemClock().wall())
    root = find_root(observed, name, namespace)
    if root is None:
        place = f"namespace {namespace}" if namespace else "any namespace"
        hidden = "".join(f"; {why}" for why in list(observed.unseen.values())[:1]) if not observed.tables else ""
        what = f"there is no run, Job, JobSet, Deployment or pod {line(name)} in {place}{hidden}"
        raise UsageError(what, help="run: stayfast status -A")
    found = diagnose(observed, root)
    if args.output == "json":
        print(json.dumps({"workload": title(root), "namespace": root["metadata"].get("namespace"), **found.to_json()}))
    else:
        print(text(title(root), found), end="")
    return FINDINGS if found.verdict is Verdict.ACT else OK


def text(name: str, found: Diagnosis) -> str:
    """For a person."""
    lines = [printable(f"{name}: {found.cause}  [{found.code}]")]
    lines += [f"  | {line}" for line in found.evidence]
    if found.fix and found.verdict is not Verdict.FINE:
        lines.append(f"  do:    {printable(found.fix)}")
    if found.usual_wait:
        lines.append(f"  usual: {found.usual_wait}")
    lines += [f"  also:  {printable(note)}" for note in found.also]
    return "\n".join(lines) + "\n"
