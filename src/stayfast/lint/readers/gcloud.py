"""Node pools that were declared somewhere: gcloud commands, Terraform, Config Connector, the configuration file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from stayfast.capacity.machines import gke_keys as keys
from stayfast.documents.lookup import dig, items, mapping, number, text
from stayfast.lint.objects.objects import ManifestObject
from stayfast.lint.objects.pools import AUTOMATIC, NodePool, Taint
from stayfast.lint.readers import terraform
from stayfast.lint.sources import Source

_CREATE = re.compile(
    r"\bgcloud\s+(?:beta\s+|alpha\s+)?container\s+(node-pools\s+create|clusters\s+(?:create-auto|create|update))\s+"
    r"([^;&|]*)"
)
_ASSIGNMENT = re.compile(
    r"(?m)^\s*(?:export\s+|readonly\s+|local\s+)?([A-Za-z_]\w*)=(\"[^\"\n$`]*\"|'[^'\n]*'|[\w./:,=-]+)"
)
_USE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")


def pools_in_texts(sources: Sequence[Source]) -> list[NodePool]:
    """Pools of shell scripts and Terraform files that belong together."""
    pools: list[NodePool] = []
    values: dict[str, str] = {}
    for source in sources:
        if source.name.endswith(".tf"):
            values |= terraform.values_in(source.text)
    for source in sources:
        is_terraform = source.name.endswith(".tf")
        pools += terraform.pools_in(source.text, source.name, values) if is_terraform else _gcloud(source)
    return pools


def pools_in_text(text: str, file: str) -> list[NodePool]:
    """Pools of one shell script or Terraform file."""
    return pools_in_texts([Source(file, text)])


def _gcloud(source: Source) -> Iterator[NodePool]:
    joined = source.text.replace("\\\n", "  ")  # keeps every offset, so that lines stay countable
    values = {name: value.strip("\"'") for name, value in _ASSIGNMENT.findall(joined)}
    for match in _CREATE.finditer(joined):
        if "#" in joined[joined.rfind("\n", 0, match.start()) + 1 : match.start()]:
            continue
        arguments = match.group(2).split("\n")[0]
        arguments = _USE.sub(lambda use: values.get(use.group(1), use.group(0)), arguments)
        try:
            words = shlex.split(arguments, comments=True)
        except ValueError:
            continue
        flags = _flags(words)
        line = source.text.count("\n", 0, match.start()) + 1
        if match.group(1).startswith("node-pools"):
            if flags.get("", ""):
                yield _pool_from_flags(flags[""], flags, source.name, line)
            continue
        if match.group(1).endswith("create"):
            yield _pool_from_flags("default-pool", flags, source.name, line)
        if match.group(1).endswith("create-auto") or "enable-autoprovisioning" in flags:
            yield NodePool(AUTOMATIC, file=source.name, line=line)


def _flags(words: list[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    index = 0
    while index < len(words):
        word = words[index]
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            if not equals and index + 1 < len(words) and not words[index + 1].startswith("--") and key not in _SWITCHES:
                index += 1
                value = words[index]
            flags[key] = value if equals or value else "true"
        elif "" not in flags:
            flags[""] = word
        index += 1
    return flags


_SWITCHES = frozenset(
    ("spot", "preemptible", "flex-start", "enable-queued-provisioning", "enable-autoscaling", "quiet",
     "enable-autoprovisioning", "no-enable-autorepair", "no-enable-autoupgrade", "enable-image-streaming")
)  # fmt: skip
_FIELDS = {
    "machine-type": "machine_type", "node-labels": "labels", "node-taints": "taints", "accelerator": "accelerator",
}  # fmt: skip


def _pool_from_flags(name: str, flags: dict[str, str], file: str, line: int) -> NodePool:
    unknown = {field for flag, field in _FIELDS.items() if "$" in flags.get(flag, "")}
    if "accelerator" in unknown:
        unknown.add("accelerator_count")
    accelerator = dict(part.partition("=")[::2] for part in flags.get("accelerator", "").split(",") if "=" in part)
    labels = [part.partition("=")[::2] for part in flags.get("node-labels", "").split(",") if "=" in part]
    count = accelerator.get("count", "1" if accelerator else "0")
    return NodePool(
        name,
        machine_type="" if "machine_type" in unknown else flags.get("machine-type", ""),
        accelerator=accelerator.get("type", ""),
        accelerator_count=int(count) if count.isdigit() else 0,
        spot="spot" in flags,
        preemptible="preemptible" in flags,
        flex_start="flex-start" in flags,
        queued="enable-queued-provisioning" in flags,
        labels=tuple((key, value) for key, value in labels if "$" not in key + value),
        taints=tuple(taint(part) for part in flags.get("node-taints", "").split(",") if part),
        has_config_file="system-config-from-file" in flags,
        max_run_seconds=_widen_removal(flags.get("max-run-duration", "").removesuffix("s")),
        file=file,
        line=line,
        unknown=frozenset(unknown | ({"name"} if "$" in name else set())),
    )


def _widen_removal(written: str) -> int | None:
    return int(written) if written.isascii() and written.isdigit() else None


def taint(written: str) -> Taint:
    """``key=value:effect`` as a taint."""
    pair, _, effect = written.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key, value, effect)


def pools_in_objects(objects: list[ManifestObject]) -> list[NodePool]:
    """Config Connector's ContainerNodePool objects."""
    pools = []
    for item in objects:
        if item.kind == "ContainerNodePool":
            config = mapping(item.spec.get("nodeConfig"))
            accelerator = mapping(next(iter(items(config.get("guestAccelerator"))), None))
            line = item.document.locate(item.prefix).line
            pools.append(_pool_from_mapping(item.name, config, accelerator, item.file, line))
        elif item.kind == "Node" and item.api_version == "v1":
            pools.append(_pool_from_node(item))
    return pools


def _pool_from_node(item: ManifestObject) -> NodePool:
    """A node of a running cluster (``kubectl get nodes -o yaml``) is a pool of one."""
    labels = {str(key): str(value) for key, value in item.labels.items()}
    amount = str(dig(item.value, "status", "allocatable", "nvidia.com/gpu") or "0")
    return NodePool(
        labels.get(keys.NODE_POOL, item.name),
        machine_type=labels.get(keys.INSTANCE_TYPE, ""),
        accelerator=labels.get(keys.ACCELERATOR, ""),
        accelerator_count=int(amount) if amount.isdigit() else 0,
        spot=labels.get(keys.SPOT) == "true",
        preemptible=labels.get(keys.PREEMPTIBLE) == "true",
        flex_start=labels.get(keys.FLEX_START) == "true",
        labels=tuple(labels.items()),
        taints=tuple(
            Taint(text(entry.get("key")), str(entry.get("value", "")), text(entry.get("effect")))
            for entry in map(mapping, items(item.spec.get("taints")))
            if not text(entry.get("key")).startswith("node.kubernetes.io/")
        ),
        file=item.file,
        line=item.document.locate(item.prefix).line,
    )


def _pool_from_mapping(
    name: str, config: dict[str, Any], accelerator: dict[str, Any], file: str, line: int
) -> NodePool:
    return NodePool(
        name,
        machine_type=text(config.get("machineType")),
        accelerator=text(accelerator.get("type")),
        accelerator_count=number(accelerator.get("count"), 0) or 0,
        spot=config.get("spot") is True,
        preemptible=config.get("preemptible") is True,
        flex_start=config.get("flexStart") is True,
        labels=tuple((key, str(value)) for key, value in mapping(config.get("labels")).items()),
        taints=tuple(
            Taint(
                text(entry.get("key")),
                str(entry.get("value", "")),
                terraform.EFFECTS.get(text(entry.get("effect")), "NoSchedule"),
            )
            for entry in map(mapping, items(config.get("taint")))
        ),
        shutdown_grace_seconds=number(dig(config, "kubeletConfig", "shutdownGracePeriodSeconds")),
        critical_grace_seconds=number(dig(config, "kubeletConfig", "shutdownGracePeriodCriticalPodsSeconds")),
        file=file,
        line=line,
    )
