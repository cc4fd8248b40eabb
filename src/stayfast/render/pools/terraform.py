"""Node pools as Terraform, in the layout of ``terraform fmt``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stayfast.capacity.machines.gke_keys import SPOT
from stayfast.render.context import RenderContext
from stayfast.render.pools.pool import NodePool, node_pools

Body = Sequence[tuple[str, Any]]
"""Attributes and inner blocks: a value is a text, a number, a flag, a list of texts, a reference, or a body."""


class Reference(str):
    """An expression, as opposed to a text."""


def terraform(outline: RenderContext) -> str:
    """Variables and a resource per pool."""
    parts = [
        _block("variable", ["cluster"], [("type", Reference("string")), ("description", "name of the cluster")]),
        _block(
            "variable",
            ["location"],
            [
                ("type", Reference("string")),
                ("default", outline.plan.region),
                ("description", "region or zone of the cluster"),
            ],
        ),
    ]
    for pool in node_pools(outline):
        label = pool.name.replace("-", "_")
        parts.append(f"# {pool.why}\n" + _block("resource", ["google_container_node_pool", label], _pool(pool)))
    return "\n".join(parts)


def _pool(pool: NodePool) -> Body:
    body: list[tuple[str, Any]] = [
        ("name", pool.name),
        ("cluster", Reference("var.cluster")),
        ("location", Reference("var.location")),
    ]
    if pool.zones:
        body.append(("node_locations", list(pool.zones)))
    body.append(("initial_node_count", min(1, pool.least_nodes)))
    scaling: list[tuple[str, Any]] = [
        ("total_min_node_count", pool.least_nodes),
        ("total_max_node_count", pool.most_nodes),
    ]
    if pool.has_accelerator:
        scaling.append(("location_policy", "ANY"))
    body.append(("autoscaling", scaling))
    body.append(("management", [("auto_repair", not pool.flex_start), ("auto_upgrade", True)]))
    if pool.queued:
        body.append(("queued_provisioning", [("enabled", True)]))
    body.append(("node_config", _node(pool)))
    return body


def _node(pool: NodePool) -> Body:
    node: list[tuple[str, Any]] = [("machine_type", pool.machine)]
    if pool.spot:
        node.append(("spot", True))
    if pool.flex_start:
        node.append(("flex_start", True))
    if pool.run_seconds:
        node.append(("max_run_duration", f"{pool.run_seconds}s"))
    if pool.gpu:
        driver = [("gpu_driver_version", "LATEST")]
        shape = [("type", pool.gpu), ("count", pool.gpu_count)]
        accelerator: list[tuple[str, Any]] = [*shape, ("gpu_driver_installation_config", driver)]
        node.append(("guest_accelerator", accelerator))
    if pool.spot or pool.flex_start:
        node.append(("reservation_affinity", [("consume_reservation_type", "NO_RESERVATION")]))
    if pool.spot:
        node.append(("taint", [("key", SPOT), ("value", "true"), ("effect", "NO_SCHEDULE")]))
    if pool.shutdown_seconds is not None and pool.critical_seconds is not None:
        grace = [
            ("shutdown_grace_period_seconds", pool.shutdown_seconds),
            ("shutdown_grace_period_critical_pods_seconds", pool.critical_seconds),
        ]
        node.append(("kubelet_config", grace))
    node.append(("workload_metadata_config", [("mode", "GKE_METADATA")]))
    return node


def _block(kind: str, labels: Sequence[str], body: Body) -> str:
    head = " ".join([kind, *(f'"{label}"' for label in labels)])
    return f"{head} {{\n" + "".join(f"  {line}\n" if line else "\n" for line in _lines(body)) + "}\n"


def _lines(body: Body) -> list[str]:
    """Attributes with their equals signs in one column, then the inner blocks, a blank line before each."""
    plain = [(key, value) for key, value in body if not _is_block(value)]
    width = max((len(key) for key, _ in plain), default=0)
    lines = [f"{key:<{width}} = {_value(value)}" for key, value in plain]
    for key, value in body:
        if _is_block(value):
            inner = [f"  {line}" if line else "" for line in _lines(value)]
            lines += ([""] if lines else []) + [f"{key} {{", *inner, "}"]
    return lines


def _is_block(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], tuple)


def _value(value: object) -> str:
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("${", "$${").replace("%{", "%%{")
    return f'"{text}"'
