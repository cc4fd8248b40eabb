"""``stayfast dashboard``: runs, checkpoints, queues and money in a browser."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from typing import TYPE_CHECKING

from stayfast.cli.arguments import add_cluster, chosen_namespace
from stayfast.cli.main import OK, add_output
from stayfast.cli.simulate import non_negative_number
from stayfast.errors import SettingError, UsageError
from stayfast.extras import check_dashboard
from stayfast.model import variables

if TYPE_CHECKING:
    from stayfast.dashboard.fleet_cache import Fleet
    from stayfast.dashboard.run_cache import Sources
    from stayfast.dashboard.run_view import RunPricing
    from stayfast.dashboard.sources import WorkloadSources

_EPILOG = """\
examples:
  stayfast dashboard /data/runs
  stayfast dashboard gs://bucket/runs --queue 'postgresql://…?queue=images' --on-demand-usd-per-hour 11.06
  stayfast dashboard -f stayfast.yaml                    (its run and queue, at the list prices of its machines)
  stayfast dashboard gs://bucket/runs --cluster -n ml     (what kubeconfig points to: phases, why it waits, lease ends)
  stayfast dashboard /data/runs --allow-actions          (retry and verify; asks for the token it prints)

It reads what is there: run folders and buckets, queue databases, the cluster. It listens on this machine alone and
changes nothing unless told otherwise. From elsewhere: ssh -L 8765:localhost:8765 HOST
"""


_SILENCE_SECONDS = 10.0  # a page is waiting: shorter than what a command in a terminal allows the cluster


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("urls", nargs="*", metavar="URL", help="a run, or a folder or bucket prefix with runs under it")
    parser.add_argument(
        "-f", "--file", action="append", default=[], metavar="FILE", help="a workload file: its run, queue and prices"
    )
    parser.add_argument("--queue", action="append", default=[], metavar="URL", help="a work queue; may be given often")
    parser.add_argument("--sink", metavar="URL", help="where results go; pubsub:// keeps its ledger there")
    parser.add_argument("--port", type=int, default=8765, metavar="P", help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--bind", default="127.0.0.1", metavar="ADDRESS", help="to listen on (default: %(default)s)")
    parser.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help="answer under this name too; may be given often",
    )
    parser.add_argument("--allow-actions", action="store_true", help="allow retrying and verifying, with a token")
    parser.add_argument("--token-file", metavar="FILE", help="write the token there, instead of to the terminal")
    parser.add_argument(
        "--usd-per-hour", type=non_negative_number, metavar="USD", help="for attempts that did not know their price"
    )
    parser.add_argument(
        "--on-demand-usd-per-hour",
        type=non_negative_number,
        metavar="USD",
        help="what the machine costs on demand, to compare with",
    )
    parser.add_argument(
        "--cluster", action="store_true", help="show the runs of the cluster too; implied by the options below"
    )
    add_cluster(parser, all_namespaces=True)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Check, listen, say where, serve."""
    check_dashboard()  # before anything is opened
    from stayfast.dashboard import server
    from stayfast.dashboard.access_policy import AccessPolicy
    from stayfast.storage.stores.open_store import open_store

    if not 0 <= args.port <= 65535:
        raise SettingError(f"--port {args.port} is not a port", help="use 0 to 65535")
    sources = _sources(args)
    fleet = _fleet(args)
    if not sources.urls and not sources.queues and fleet is None:
        raise UsageError("there is nothing to show", help="name a folder or bucket with runs, --queue URL or --cluster")
    for url in sources.urls:
        open_store(url).close()  # a URL that cannot be one is said now, not on the page
    door = AccessPolicy(server.hosts_for(args.bind, tuple(args.host_name)), _token(args))
    logging.basicConfig(format="stayfast: %(message)s", level=logging.WARNING)
    listener = server.listen(args.bind, args.port)
    name = f"[{args.bind}]" if ":" in args.bind else args.bind
    place = f"http://{name}:{listener.getsockname()[1]}/"

    def ready() -> None:
        if args.output == "json":
            print(json.dumps({"url": place, "actions": door.token is not None}), flush=True)
        print(f"stayfast: the dashboard is at {place} (Ctrl-C ends it)", file=sys.stderr, flush=True)
        if not server.is_loopback(args.bind):
            print("stayfast: whoever can reach this address can read it", file=sys.stderr, flush=True)
        if door.token is not None and args.token_file is None:
            print(f"stayfast: token for retry and verify: {door.token}", file=sys.stderr, flush=True)

    server.serve(sources, door, listener, ready, fleet=fleet)
    return OK


def _sources(args: argparse.Namespace) -> Sources:
    """Runs and queues that were named, those of workload files, and queues that lie beside runs."""
    from stayfast.dashboard.run_cache import Sources
    from stayfast.dashboard.run_view import RunPricing
    from stayfast.dashboard.sources import as_url, find_queues

    queues = [*args.queue] or [url for url in (os.environ.get(variables.QUEUE),) if url]
    prices = RunPricing(args.usd_per_hour, args.on_demand_usd_per_hour)
    told = [_read_file(name, prices) for name in args.file]
    urls = tuple(dict.fromkeys(as_url(url) for url in [*args.urls, *(item.run_url for item in told if item.run_url)]))
    queues += [item.queue_url for item in told if item.queue_url and item.queue_url not in queues]
    queues += [queue for url in urls for queue in find_queues(url) if queue not in queues]
    sink = args.sink or next((item.sink_url for item in told if item.sink_url), None)
    listed = {item.run_url: item.prices for item in told if item.run_url}
    return Sources(urls, tuple(queues), sink, prices, listed)


def _token(args: argparse.Namespace) -> str | None:
    """A token is shown to a person, or kept in a file; it never goes to a log."""
    from stayfast.dashboard import server

    if not args.allow_actions:
        if args.token_file:
            raise UsageError("--token-file means nothing without --allow-actions", help="add it, or leave both")
        return None
    token = server.new_token()
    if args.token_file:
        server.write_token(args.token_file, token)
    elif not sys.stderr.isatty():
        raise UsageError("standard error is no terminal, and a token does not belong in a log", help="add --token-file")
    return token


def _read_file(name: str, prices: RunPricing) -> WorkloadSources:
    from stayfast.capacity.machines.price_file import current_price_list
    from stayfast.capacity.spec import read_spec
    from stayfast.dashboard.sources import from_spec
    from stayfast.text.files import read_text

    catalogue = current_price_list()
    return from_spec(read_spec(read_text(name), name, accelerators=catalogue.accelerators), catalogue, prices)


def _fleet(args: argparse.Namespace) -> Fleet | None:
    """The cluster, if one was asked for; nothing is sent before somebody looks at its page."""
    if not (args.cluster or args.kubeconfig or args.context or args.namespace or args.all_namespaces):
        return None
    from stayfast.cluster.kubernetes.client import Client
    from stayfast.cluster.kubernetes.kubeconfig import find_endpoint
    from stayfast.dashboard.fleet_view import ClusterFleet

    client = Client(find_endpoint(kubeconfig=args.kubeconfig, context=args.context), silence_seconds=_SILENCE_SECONDS)
    return ClusterFleet(client, chosen_namespace(args, client))
