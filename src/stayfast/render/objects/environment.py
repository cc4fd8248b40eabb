"""The environment of the pod and the container's command.

The environment is stayfast's own contract, the names that documents use, and what launchers read. The command is
always a list, never a shell in front, and an exit code behind launchers stays truthful.
"""

from __future__ import annotations

import itertools
import math
import os.path
import re
from typing import Any

from stayfast.capacity.spec.workload import WorkloadKind
from stayfast.model import variables
from stayfast.model.capacity import CapacityClass
from stayfast.render.context import Controller, RenderContext
from stayfast.render.naming import REPLICATED_JOB, has_secret
from stayfast.render.objects.monitoring import METRICS_PORT, is_watched
from stayfast.storage.stores.open_store import find_bucket

LEASE_DIRECTORY, LEASE_FILE = "/etc/stayfast", "lease-ends-at"
MASTER_PORT = "29500"
_BACKENDS = {"gs": "gcs"}  # the others are called as their URLs are


def container_variables(outline: RenderContext) -> list[dict[str, Any]]:
    """``env``: what must agree with the pod itself, then what programs look for."""
    window = outline.window
    found = [
        _plain(variables.TERMINATION_GRACE_SECONDS, str(window.pod_seconds)),
        _plain(variables.SHUTDOWN_GRACE_SECONDS, str(window.shutdown_seconds)),
        _plain(variables.SHUTDOWN_GRACE_CRITICAL_SECONDS, str(window.critical_seconds)),
        _from_field(variables.MACHINE, "spec.nodeName"),
    ]
    if outline.has_lease:
        found += [
            _plain(variables.LEASE_FILE, f"{LEASE_DIRECTORY}/{LEASE_FILE}"),
            _plain(variables.LEASE_LEAD_SECONDS, str(lease_lead_seconds(outline))),
        ]
    if is_watched(outline):
        found.append(_plain(variables.METRICS_PORT, str(METRICS_PORT)))
    found += [_secret(outline, name) for name in secret_variables(outline)]
    found += _documents(outline)
    if outline.is_gang:
        found += _ranks(outline)
    if is_torchrun(outline.spec.command):
        found.append(_plain("PET_NPROC_PER_NODE", str(outline.machine.count)))  # torchrun's default is one process
    found.append(_plain("HOME", "/tmp"))  # the root file system is read-only
    return found


def lease_lead_seconds(outline: RenderContext) -> int:
    """Long enough for the save; the runtime's own default is 120 s."""
    return max(120, math.ceil(outline.plan.grace.needed_seconds * 1.5))


def shared_variables(outline: RenderContext) -> dict[str, str]:
    """What the ConfigMap holds: may be changed without making the Job anew."""
    spec, prices = outline.spec, outline.plan.prices
    found: dict[str, str] = {}
    if spec.checkpoint_url:
        found[variables.RUN_URL] = spec.checkpoint_url
    found |= {name: url for name, url in _urls(outline).items() if url is not None and not has_secret(url)}
    price = {
        CapacityClass.SPOT: prices.spot,
        CapacityClass.FLEX_START: prices.flex_start,
        CapacityClass.ON_DEMAND: prices.on_demand,
    }.get(outline.capacity)
    if outline.capacity != CapacityClass.HYBRID:  # a hybrid pod cannot know which machine it got
        found[variables.CAPACITY] = outline.capacity.value
    if price is not None:
        found[variables.USD_PER_HOUR] = f"{price:g}"
    if len(spec.zones) == 1:
        found[variables.ZONE] = spec.zones[0]
    return found


def secret_variables(outline: RenderContext) -> list[str]:
    """Variables whose values carry a password and therefore come from a Secret that the user makes."""
    return [name for name, url in _urls(outline).items() if has_secret(url)]


def secret_name(outline: RenderContext) -> str:
    """Of the Secret with those values."""
    return f"{outline.name}-urls"


def needs_credentials(outline: RenderContext) -> bool:
    """Workload Identity opens Cloud Storage; buckets of other clouds need keys."""
    buckets = map(find_bucket, (outline.spec.checkpoint_url, outline.spec.sink_url))
    return any(bucket is not None and bucket.needs_keys for bucket in buckets)


def credentials_name(outline: RenderContext) -> str:
    """Of the Secret with those keys."""
    return f"{outline.name}-credentials"


def _urls(outline: RenderContext) -> dict[str, str | None]:
    return {variables.QUEUE: outline.spec.queue_url, variables.SINK: outline.spec.sink_url}


def _documents(outline: RenderContext) -> list[dict[str, Any]]:
    spec = outline.spec
    directory = spec.volume_path if spec.volume_kind else spec.checkpoint_url
    if directory is None:
        return []
    scheme = "file" if spec.volume_kind else directory.partition(":")[0]
    found = [
        _plain("CHECKPOINT_DIR", re.sub(r"^file://", "", directory)),
        _plain("STORAGE_BACKEND", _BACKENDS.get(scheme, scheme)),
    ]
    steps = interval_steps(outline)
    if steps is not None:
        found.insert(1, _plain("CHECKPOINT_INTERVAL", str(steps)))
    return found


def interval_steps(outline: RenderContext) -> int | None:
    """The plan's interval in steps, as the programs that read it expect; None where no step time is known."""
    spec, seconds = outline.spec, outline.plan.interval.interval_seconds
    if spec.kind != WorkloadKind.TRAIN or not spec.unit_seconds or not math.isfinite(seconds):
        return None
    steps = max(1, round(seconds / spec.unit_seconds))
    unit = int(10 ** max(0, len(str(steps)) - 2))
    return round(steps / unit) * unit  # two digits: the plan knows no more, and a diff should mean something


def _ranks(outline: RenderContext) -> list[dict[str, Any]]:
    """Where rank 0 is and who we are; ``$(NODE_RANK)`` may stand in the command."""
    values = {"MASTER_ADDR": master_address(outline), "MASTER_PORT": MASTER_PORT, "NNODES": str(outline.spec.nodes)}
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    found = [_plain(name, value) for name, value in values.items()]
    found.append(_from_field("NODE_RANK", index))
    if is_torchrun(outline.spec.command):
        # torchrun takes its defaults from these, so that `torchrun train.py` needs no arguments.
        found += [_plain(f"PET_{name}", value) for name, value in values.items()]
        found.append(_from_field("PET_NODE_RANK", index))
    return found


def master_address(outline: RenderContext) -> str:
    """The stable name of the first pod."""
    pod = f"{outline.name}-0" if outline.form == Controller.JOB else f"{outline.name}-{REPLICATED_JOB}-0-0"
    return f"{pod}.{outline.name}"


def _plain(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value}


def _from_field(name: str, field: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _secret(outline: RenderContext, name: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret_name(outline), "key": name}}}


LAUNCHERS = frozenset(
    ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun", "srun", "composer", "colossalai")
)
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ash", "busybox"))
_LAUNCHER_MODULES = re.compile(r"torch\.distributed\.(run|launch)|accelerate\.commands\.launch|deepspeed\.launcher.*")
_TASK = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def container_command(command: tuple[str, ...]) -> list[str]:
    """What the container runs; launchers and shells rewrite exit codes and keep signals, so exec stands outside."""
    program = os.path.basename(command[0])
    if program == "stayfast":
        return list(command)
    if len(command) == 1 and _TASK.fullmatch(command[0]):
        return ["stayfast", "work", *command]
    if program in LAUNCHERS or program in SHELLS or _module(command):
        return ["stayfast", "exec", "--", *command]
    return list(command)


def is_torchrun(command: tuple[str, ...]) -> bool:
    """Whether the launcher is torch's own, under either of its names."""
    words = command[3:] if command[:3] == ("stayfast", "exec", "--") else command
    return bool(words) and (os.path.basename(words[0]) == "torchrun" or "torch.distributed" in _module(words))


def _module(command: tuple[str, ...]) -> str:
    """The launcher module of ``python -m``, or nothing."""
    if not os.path.basename(command[0]).startswith("python"):
        return ""
    for word, following in itertools.pairwise(command):
        if word == "-m":
            return following if _LAUNCHER_MODULES.fullmatch(following) else ""
    return ""
