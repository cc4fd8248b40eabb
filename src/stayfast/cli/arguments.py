"""What all commands that talk to a cluster share: which cluster, which namespace, and a client for it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

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
