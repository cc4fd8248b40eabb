"""Node pools that were declared somewhere: gcloud commands, Terraform, Config Connector, the configuration file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from holdfast.lint.objects import Item, dig, items, mapping, number, text
from holdfast.lint.pools import Pool, Taint

_CREATE = re.compile(r"\bgcloud\s+(?:beta\s+|alpha\s+)?container\s+node-pools\s+create\s+([^;&|]*)")
_RESOURCE = re.compile(r'resource\s+"google_container_node_pool"\s+"([^"]+)"\s*\{')


def pools_in_text(source: str, file: str) -> list[Pool]:
    """Pools of a shell script or a Terraform file."""
    return list(_terraform(source, file) if file.endswith(".tf") else _gcloud(source, file))


def _gcloud(source: str, file: str) -> Iterator[Pool]:
    joined = source.replace("\\\n", "  ")  # keeps every offset, so that lines stay countable
    for match in _CREATE.finditer(joined):
        if "#" in joined[joined.rfind("\n", 0, match.start()) + 1 : match.start()]:
            continue
        arguments = match.group(1).split("\n")[0]
        try:
            words = shlex.split(arguments, comments=True)
        except ValueError:
            continue
        flags = _flags(words)
        name = flags.get("", "")
        if name:
            yield _pool_from_flags(name, flags, file, source.count("\n", 0, match.start()) + 1)


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
    ("spot", "preemptible", "flex-start", "enable-queued-provisioning", "enable-autoscaling", "quiet")
)


def _pool_from_flags(name: str, flags: dict[str, str], file: str, line: int) -> Pool:
    accelerator = dict(part.partition("=")[::2] for part in flags.get("accelerator", "").split(",") if "=" in part)
    labels = [part.partition("=")[::2] for part in flags.get("node-labels", "").split(",") if "=" in part]
    count = accelerator.get("count", "1" if accelerator else "0")
    return Pool(
        name,
        machine_type=flags.get("machine-type", ""),
        accelerator=accelerator.get("type", ""),
        accelerator_count=int(count) if count.isdigit() else 0,
        spot="spot" in flags or "preemptible" in flags,
        flex_start="flex-start" in flags,
        queued="enable-queued-provisioning" in flags,
        labels=tuple((key, value) for key, value in labels),
        taints=tuple(taint(part) for part in flags.get("node-taints", "").split(",") if part),
        has_config_file="system-config-from-file" in flags,
        max_run_seconds=_whole(flags.get("max-run-duration", "").removesuffix("s")),
        file=file,
        line=line,
    )


def taint(written: str) -> Taint:
    """``key=value:effect`` as a taint."""
    pair, _, effect = written.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key, value, effect)


def _terraform(source: str, file: str) -> Iterator[Pool]:
    for match in _RESOURCE.finditer(source):
        body = _block(source, match.end() - 1)
        config = _inner(body, "node_config")
        accelerator = _inner(config, "guest_accelerator")
        kubelet = _inner(config, "kubelet_config")
        count = _attribute(accelerator, "count")
        yield Pool(
            _attribute(body, "name") or match.group(1),
            machine_type=_attribute(config, "machine_type"),
            accelerator=_attribute(accelerator, "type"),
            accelerator_count=int(count) if count.isdigit() else int(bool(accelerator)),
            spot=_attribute(config, "spot") == "true" or _attribute(config, "preemptible") == "true",
            flex_start=_attribute(config, "flex_start") == "true",
            queued=_attribute(_inner(body, "queued_provisioning"), "enabled") == "true",
            labels=tuple(re.findall(r'"?([\w./-]+)"?\s*[=:]\s*"([^"]*)"', _inner(config, "labels"))),
            taints=tuple(
                Taint(
                    _attribute(part, "key"),
                    _attribute(part, "value"),
                    _EFFECTS.get(_attribute(part, "effect"), "NoSchedule"),
                )
                for part in _every(config, "taint")
            ),
            shutdown_grace_seconds=_whole(_attribute(kubelet, "shutdown_grace_period_seconds")),
            critical_grace_seconds=_whole(_attribute(kubelet, "shutdown_grace_period_critical_pods_seconds")),
            max_run_seconds=_whole(_attribute(config, "max_run_duration").removesuffix("s")),
            file=file,
            line=source.count("\n", 0, match.start()) + 1,
        )


_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}


def _whole(written: str) -> int | None:
    return int(written) if written.isdigit() else None


def _block(source: str, opening: int) -> str:
    depth = 0
    for index in range(opening, len(source)):
        depth += (source[index] == "{") - (source[index] == "}")
        if depth == 0:
            return source[opening + 1 : index]
    return source[opening + 1 :]


def _every(body: str, name: str) -> list[str]:
    return [_block(body, match.end() - 1) for match in re.finditer(rf"(?m)^\s*{name}\s*=?\s*\[?\s*\{{", body)]


def _inner(body: str, name: str) -> str:
    return next(iter(_every(body, name)), "")


def _attribute(body: str, name: str) -> str:
    match = re.search(rf'(?m)^\s*{name}\s*=\s*(?:"([^"]*)"|([\w.]+))', body) or re.search(
        rf'(?:^|[{{,\s]){name}\s*=\s*(?:"([^"]*)"|([\w.]+))', body
    )
    return (match.group(1) or match.group(2) or "") if match else ""


def pools_in_objects(objects: list[Item]) -> list[Pool]:
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


def _pool_from_node(item: Item) -> Pool:
    """A node of a running cluster (``kubectl get nodes -o yaml``) is a pool of one."""
    labels = {str(key): str(value) for key, value in item.labels.items()}
    amount = str(dig(item.value, "status", "allocatable", "nvidia.com/gpu") or "0")
    return Pool(
        labels.get("cloud.google.com/gke-nodepool", item.name),
        machine_type=labels.get("node.kubernetes.io/instance-type", ""),
        accelerator=labels.get("cloud.google.com/gke-accelerator", ""),
        accelerator_count=int(amount) if amount.isdigit() else 0,
        spot=labels.get("cloud.google.com/gke-spot") == "true",
        flex_start=labels.get("cloud.google.com/gke-flex-start") == "true",
        labels=tuple(labels.items()),
        taints=tuple(
            Taint(text(entry.get("key")), str(entry.get("value", "")), text(entry.get("effect")))
            for entry in map(mapping, items(item.spec.get("taints")))
            if not text(entry.get("key")).startswith("node.kubernetes.io/")
        ),
        file=item.file,
        line=item.document.locate(item.prefix).line,
    )


def _pool_from_mapping(name: str, config: dict[str, Any], accelerator: dict[str, Any], file: str, line: int) -> Pool:
    return Pool(
        name,
        machine_type=text(config.get("machineType")),
        accelerator=text(accelerator.get("type")),
        accelerator_count=number(accelerator.get("count"), 0) or 0,
        spot=config.get("spot") is True or config.get("preemptible") is True,
        flex_start=config.get("flexStart") is True,
        labels=tuple((key, str(value)) for key, value in mapping(config.get("labels")).items()),
        taints=tuple(
            Taint(
                text(entry.get("key")),
                str(entry.get("value", "")),
                _EFFECTS.get(text(entry.get("effect")), "NoSchedule"),
            )
            for entry in map(mapping, items(config.get("taint")))
        ),
        shutdown_grace_seconds=number(dig(config, "kubeletConfig", "shutdownGracePeriodSeconds")),
        critical_grace_seconds=number(dig(config, "kubeletConfig", "shutdownGracePeriodCriticalPodsSeconds")),
        file=file,
        line=line,
    )
