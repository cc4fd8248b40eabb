"""``stayfast logs``: what the pods of a run have printed."""

from __future__ import annotations

import argparse
import json
import sys
import threading

from stayfast.cli.arguments import add_cluster, chosen_namespace, connect
from stayfast.cli.main import OK, add_output
from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.resources import PODS
from stayfast.cluster.observed.objects import meta, spec_of, status_of
from stayfast.errors import ClusterError, ClusterUnreachableError, UsageError
from stayfast.model.labels import run_selector
from stayfast.storage.network.transport import ResponseLostError
from stayfast.text.safe import printable

_EPILOG = """\
examples:
  stayfast logs llm-7                  the newest pod of the run
  stayfast logs llm-7 --all --tail 20  every pod that still exists, each line with its pod
  stayfast logs llm-7 -f               as it is written
  stayfast logs llm-7 --previous       the container before its last restart
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("run", metavar="RUN", help="name of the run")
    parser.add_argument("--all", action="store_true", help="all its pods, oldest first")
    parser.add_argument("--tail", type=_count, metavar="N", help="only the last lines of each pod")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the pod ends")
    parser.add_argument("--previous", action="store_true", help="of the container before the last restart")
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="default: the pod's first")
    add_cluster(parser)
    add_output(parser)


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Find the pods, print their logs."""
    with connect(args) as client:
        namespace = chosen_namespace(args, client) or "default"
        pods = client.list(PODS, namespace, labels=run_selector(args.run))
        if not pods:
            raise UsageError(
                f"the run {args.run} has no pods in namespace {namespace}", help=f"run: stayfast explain {args.run}"
            )
        pods.sort(key=lambda pod: str(meta(pod).get("creationTimestamp", "")))
        chosen = pods if args.all else [_newest(pods)]
        printer = _Printer(args, many=len(chosen) > 1)
        if args.follow and len(chosen) > 1:
            _follow_all(client, chosen, args, printer)
        else:
            for pod in chosen:
                _print_one(client, pod, args, printer)
    return OK


def _newest(pods: list[Object]) -> Object:
    """A pod that has something to say, if there is one."""
    spoken = [pod for pod in pods if status_of(pod).get("phase") != "Pending"]
    return (spoken or pods)[-1]


class _Printer:
    """Whole lines, one at a time, whoever prints."""

    def __init__(self, args: argparse.Namespace, *, many: bool) -> None:
        self._json, self._many = args.output == "json", many
        self._lock = threading.Lock()

    def line(self, pod: str, data: bytes) -> None:
        text = data if data.endswith(b"\n") else data + b"\n"
        if self._json:
            text = json.dumps({"pod": pod, "line": data.decode("utf-8", "replace").rstrip("\n")}).encode() + b"\n"
        elif self._many:
            text = f"[{printable(pod)}] ".encode() + text
        with self._lock:
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()


def _print_one(client: Client, pod: Object, args: argparse.Namespace, printer: _Printer) -> None:
    name, namespace = str(meta(pod)["name"]), str(meta(pod)["namespace"])
    containers = [row for row in spec_of(pod).get("containers") or [] if isinstance(row, dict)]
    container = args.container or (str(containers[0].get("name", "")) if containers else "")
    try:
        for line in client.log(
            namespace, name, container=container, tail=args.tail, follow=args.follow, previous=args.previous
        ):
            printer.line(name, line)
    except ResponseLostError as error:
        raise ClusterUnreachableError(f"the log of pod {name} stopped in the middle ({error})") from error


def _follow_all(client: Client, pods: list[Object], args: argparse.Namespace, printer: _Printer) -> None:
    troubles: list[ClusterError] = []

    def follow(pod: Object) -> None:
        try:
            _print_one(client, pod, args, printer)
        except ClusterError as error:
            troubles.append(error)
        except BrokenPipeError:
            pass

    threads = [threading.Thread(target=follow, args=(pod,), daemon=True) for pod in pods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if troubles:
        raise troubles[0]
