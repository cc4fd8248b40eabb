"""What all commands that talk to a cluster share: which cluster, which namespace, and a client for it."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from stayfast.errors import UsageError

if TYPE_CHECKING:  # the linter takes these options too, and must start without HTTP and TLS
    from stayfast.cluster.kubernetes.client import Client


def add_cluster(parser: argparse.ArgumentParser, *, all_namespaces: bool = False) -> None:
    """The options that kubectl has, by the same names."""
    group = parser.add_argument_group("cluster")
    group.add_argument("-n", "--namespace", metavar="NAME", help="default: that of the context")
    if all_namespaces:
        group.add_argument("-A", "--all-namespaces", action="store_true", help="look everywhere")
    group.add_argument("--context", metavar="NAME", help="of the kubeconfig (default: its current one)")
    group.add_argument("--kubeconfig", metavar="FILE", help="instead of KUBECONFIG and ~/.kube/config")


def connect(args: argparse.Namespace) -> Client:
    """A client for the chosen cluster; nothing is sent yet."""
    from stayfast.cluster.kubernetes.client import Client
    from stayfast.cluster.kubernetes.kubeconfig import find_endpoint

    return Client(find_endpoint(kubeconfig=args.kubeconfig, context=args.context))


def chosen_namespace(args: argparse.Namespace, client: Client) -> str | None:
    """The namespace to look in; None for all."""
    if getattr(args, "all_namespaces", False):
        return None
    return str(args.namespace or client.access.namespace)


def warn(client: Client) -> None:
    """What the server accepted but warned about."""
    from stayfast.text.safe import printable

    for text in client.warnings:
        print(f"stayfast: the API server warns: {printable(text)}", file=sys.stderr)


def run_label(name: str) -> str:
    """The selector for a run's objects; what is no label value cannot be a run."""
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", name):
        raise UsageError(f"{name!r} is no name of a run", help="run: stayfast status -A")
    from stayfast.cluster.observed.snapshot import RUN_LABEL

    return f"{RUN_LABEL}={name}"
