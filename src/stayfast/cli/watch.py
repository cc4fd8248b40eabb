"""``stayfast watch``: a live view of all runs, alerts when waiting stops being normal, and a few named actions."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from typing import Any

from stayfast.cli.arguments import add_cluster, chosen_namespace, connect
from stayfast.cli.main import FINDINGS, OK, add_output
from stayfast.cli.simulate import positive_number, tcp_port
from stayfast.cli.status import table
from stayfast.clock import SystemClock, to_rfc3339
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.observed.live_snapshot import LiveSnapshot
from stayfast.cluster.observed.run_records import CheckpointAges
from stayfast.cluster.observed.snapshot import Snapshot, take_snapshot
from stayfast.cluster.watch.actions.action import ACTIONS, find_actions
from stayfast.cluster.watch.alert_store import AlertState, ConfigMapAlertStorage, FileAlertStorage
from stayfast.cluster.watch.alerts import Thresholds
from stayfast.cluster.watch.manifests import WATCHED, manifests
from stayfast.cluster.watch.metrics import MetricsPages
from stayfast.cluster.watch.watcher import Watcher, WatchOptions, WatchResult
from stayfast.cluster.watch.webhook import Webhook, text
from stayfast.errors import SettingError
from stayfast.model import variables
from stayfast.model.labels import RUN_LABEL
from stayfast.text.safe import printable
from stayfast.text.units import duration

WEBHOOK_VARIABLE = variables.WEBHOOK_URL
_EPILOG = f"""\
examples:
  stayfast watch                                    live, until Ctrl-C
  stayfast watch -A --once                          one look; exit code 1 when an alert holds (for cron)
  stayfast watch -A --state alerts.json --metrics-port 9465 --events
  stayfast watch -A --act copy-lease --dry-run      say what would be done
  stayfast watch --manifests --image IMAGE -n ops | kubectl apply --server-side -f -    inside the cluster
actions for --act (none by default):
{chr(10).join(f"  {action.name:<20}{action.about}" for action in find_actions(set(ACTIONS.names())))}
The webhook (Slack's form) comes from {WEBHOOK_VARIABLE} alone: on a command line its address would show.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("--once", action="store_true", help="look once and leave")
    parser.add_argument(
        "--interval-seconds", type=positive_number, default=5.0, metavar="S", help="between looks (default: 5)"
    )
    parser.add_argument("--state", metavar="FILE", help="remember there what was told")
    parser.add_argument(
        "--state-configmap", metavar="NAME", help="remember it in this ConfigMap of the context's namespace"
    )
    parser.add_argument("--pending-seconds", type=positive_number, metavar="S", help="one limit for all classes")
    parser.add_argument(
        "--lease-seconds", type=positive_number, default=3600.0, metavar="S", help="warn before a lease ends"
    )
    parser.add_argument("--ledgers", action="store_true", help="also read the runs' buckets: no checkpoint is an alert")
    parser.add_argument("--events", action="store_true", help="write alerts as Kubernetes Events")
    parser.add_argument("--act", default="", metavar="NAME[,NAME…]", help=", ".join(ACTIONS.names()))
    parser.add_argument("--dry-run", action="store_true", help="with --act: say, do not do")
    parser.add_argument("--metrics-port", type=tcp_port, metavar="PORT", help="serve /metrics there")
    parser.add_argument("--metrics-host", default="127.0.0.1", metavar="HOST", help="default: 127.0.0.1")
    parser.add_argument("--manifests", action="store_true", help="print what runs this watch in the cluster, and stop")
    parser.add_argument("--image", metavar="IMAGE", help="for --manifests: an image with stayfast in it")
    parser.add_argument("--webhook-secret", default="", metavar="NAME", help="for --manifests: Secret with the key url")
    add_cluster(parser, all_namespaces=True)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Look until told to stop."""
    actions = _actions(args.act)
    if args.manifests:
        return _print_manifests(args, actions)
    duties = _duties(args, actions)
    with connect(args) as client:
        client.field_manager = "stayfast-watch"  # whoever submits anew sees who has changed what
        namespace = chosen_namespace(args, client)
        clock = SystemClock()
        watchman = Watcher(client, _state(args, client), duties, clock=clock)
        screen = Screen(args, client, everywhere=namespace is None)
        if args.once:
            observed = take_snapshot(client, namespace, WATCHED, now=clock.wall(), labels=RUN_LABEL)
            found, _ = watchman.look(observed)
            screen.show(observed, found)
            return FINDINGS if found.alerts else OK
        return _follow(args, client, namespace, watchman, screen)


def _follow(args: argparse.Namespace, client: Client, namespace: str | None, watchman: Watcher, screen: Screen) -> int:
    server = MetricsPages(args.metrics_host, args.metrics_port) if args.metrics_port is not None else None
    if server is not None:
        print(f"stayfast: metrics on http://{args.metrics_host}:{server.port}/metrics", file=sys.stderr, flush=True)
    following = LiveSnapshot(client, namespace, WATCHED, labels=RUN_LABEL)
    stop = threading.Event()
    clock = SystemClock()
    try:
        following.start()
        while True:
            observed = following.snapshot()
            watchman.counters["cluster_events"] = following.events
            found, page = watchman.look(observed)
            screen.show(observed, found)
            if server is not None:
                server.show(page)
            clock.wait(stop, args.interval_seconds)
    finally:
        following.stop()
        if server is not None:
            server.close()


def _actions(listed: str) -> set[str]:
    names = {name for name in listed.split(",") if name}
    for name in sorted(names):
        if ACTIONS.find(name) is None:
            known = ", ".join(ACTIONS.installed_names())
            raise SettingError(f"there is no action {name!r}", help=f"choose from {known}")
    return names


def _duties(args: argparse.Namespace, actions: set[str]) -> WatchOptions:
    thresholds = Thresholds(lease_seconds=args.lease_seconds)
    if args.pending_seconds is not None:
        thresholds = Thresholds(
            pending_seconds={}, pending_other_seconds=args.pending_seconds, lease_seconds=args.lease_seconds
        )
    url = os.environ.get(WEBHOOK_VARIABLE)
    return WatchOptions(
        thresholds,
        actions,
        args.dry_run,
        args.events,
        Webhook(url) if url else None,
        CheckpointAges() if args.ledgers else None,
    )


def _state(args: argparse.Namespace, client: Client) -> AlertState:
    if args.state and args.state_configmap:
        raise SettingError("the state can be kept in one place", help="leave out --state or --state-configmap")
    if args.state:
        return AlertState(FileAlertStorage(args.state))
    if args.state_configmap:
        place = args.namespace or client.access.namespace
        return AlertState(ConfigMapAlertStorage(client, place, args.state_configmap))
    return AlertState()


def _print_manifests(args: argparse.Namespace, actions: set[str]) -> int:
    from stayfast.documents.writer import document

    if not args.image:
        raise SettingError("--manifests needs an image", help="add --image IMAGE")
    objects = manifests(
        args.namespace or "default", args.image, actions, events=args.events, webhook_secret=args.webhook_secret
    )
    if args.output == "json":
        import json

        print(json.dumps(objects))
    else:
        print("---\n".join(document(item) for item in objects), end="")
    return OK


class Screen:
    """A table that is drawn anew on a terminal, one line per change elsewhere, JSON lines when asked."""

    def __init__(self, args: argparse.Namespace, client: Client, *, everywhere: bool) -> None:
        self._client, self._minutes = client, 0.0
        self._json, self._everywhere = args.output == "json", everywhere
        self._live = not args.once and sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not self._json
        self._phases: dict[str, str] = {}
        self._once = args.once
        self._told: set[str] = set()

    def show(self, observed: Snapshot, found: WatchResult) -> None:
        """After each look."""
        if self._json:
            self._show_json(observed, found)
        elif self._live or self._once:
            clear = "\x1b[H\x1b[2J" if self._live else ""
            print(f"{clear}{table(found.rows, everywhere=self._everywhere)}", end="", flush=True)
        else:
            self._show_changes(observed, found)
        for alert in found.alerts if self._live else found.news.begun:
            print(f"ALERT {text(alert)}", file=sys.stderr)
        for deed, result in found.deeds:
            print(printable(f"ACTION {deed.action}: {deed.sentence}: {result}"), file=sys.stderr)
        skew = self._skew()
        for trouble in [*found.troubles, *self._hidden(observed), *skew]:
            print(f"stayfast: {printable(trouble)}", file=sys.stderr)
        sys.stderr.flush()

    def _show_json(self, observed: Snapshot, found: WatchResult) -> None:
        import json

        body: dict[str, Any] = {
            "at": to_rfc3339(observed.now),
            "runs": [row.to_json() for row in found.rows],
            "alerts": [{**alert._asdict(), "key": alert.key} for alert in found.alerts],
            "new": [alert.key for alert in found.news.begun],
            "over": found.news.over,
            "actions": [{"action": deed.action, "object": deed.name, "result": result} for deed, result in found.deeds],
        }
        print(json.dumps(body), flush=True)

    def _show_changes(self, observed: Snapshot, found: WatchResult) -> None:
        present = {row.uid: printable(f"{row.namespace}/{row.run}: {row.phase.value}") for row in found.rows}
        for uid, line in present.items():
            if self._phases.get(uid) != line:
                print(f"{to_rfc3339(observed.now)} {line}", flush=True)
        for uid in self._phases.keys() - present.keys():
            print(f"{to_rfc3339(observed.now)} {self._phases[uid].partition(': ')[0]}: gone", flush=True)
        self._phases = present

    def _skew(self) -> list[str]:
        """Told once, and again when it has gone or grown by a minute."""
        minutes = round(self._client.skew_seconds / 60, 0)
        if minutes == self._minutes:
            return []
        self._minutes = minutes
        if not minutes:
            return ["this machine's clock agrees with the API server's again"]
        how = f"{duration(abs(self._client.skew_seconds))} {'behind' if minutes > 0 else 'ahead of'}"
        return [f"this machine's clock is {how} the API server's: the server's time is used"]

    def _hidden(self, observed: Snapshot) -> list[str]:
        """Kinds that cannot be read, each told once; CRDs that are not installed are no trouble."""
        fresh = [name for name, why in observed.unseen.items() if name not in self._told and "has no group" not in why]
        self._told.update(fresh)
        return [f"{name} cannot be read: {observed.unseen[name]}" for name in fresh]
