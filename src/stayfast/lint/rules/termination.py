"""Pitfall 1, silent loss: the notice that never reaches the program, or ends in a false success."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stayfast.capacity.machines.gke_keys import FLEX_START, NODE_POOL
from stayfast.capacity.machines.gke_limits import LONG_SPOT_GRACE_SECONDS, SPOT_GRACE_SECONDS
from stayfast.documents.editor import Edit
from stayfast.documents.lookup import dig, items, mapping, number, text
from stayfast.documents.positions import Path
from stayfast.lint.finding import ERROR, WARNING, Fix, Hit
from stayfast.lint.objects.bundle import Bundle, same_namespace
from stayfast.lint.objects.containers import Container
from stayfast.lint.objects.objects import ManifestObject
from stayfast.lint.objects.pod import PodCapacity, PodProfile
from stayfast.lint.readers.shell import Script, exits_zero_on_term, inline_script, program_without_signal
from stayfast.lint.rule import OBJECT, POD, rule

if TYPE_CHECKING:
    from stayfast.lint.readers.python_source import ZeroExit


@rule("SF101", "grace-outside-budget", POD)
def grace_outside_budget(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """The grace period of an interruptible pod is longer than the machine will give, or no time at all."""
    if not pod.is_interruptible or pod.kind == "PodTemplate":
        return
    grace = number(pod.spec.get("terminationGracePeriodSeconds"))
    path = (*pod.spec_path, "terminationGracePeriodSeconds")
    if grace is not None and grace <= 1:
        yield Hit(path, f"{grace} s of grace is SIGKILL at once: nothing can be saved", ERROR)
        return
    if not pod.is_spot:
        return
    budget = _budget(pod, bundle)
    if grace is not None and grace > budget:
        yield Hit(
            path,
            f"{grace} s of grace, but a Spot node gives normal pods {budget} s: finish inside {budget} s, or raise the "
            "pool's shutdownGracePeriodSeconds to 120 (GKE 1.35.0-gke.1171000 or later)",
            WARNING,
        )
    for container in pod.containers:
        wait = _pre_stop_seconds(container)
        if wait is not None and wait >= budget:
            yield Hit(
                (*container.path, "lifecycle", "preStop"),
                f"the preStop hook takes {wait} s and runs before SIGTERM: nothing of the {budget} s is left",
                WARNING,
            )


def _budget(pod: PodProfile, bundle: Bundle) -> int:
    found = bundle.compute_class(pod)
    if found is not None:
        graces = [_class_grace(row, found) for row in bundle.spot_rows(pod)]
        return min((SPOT_GRACE_SECONDS if grace is None else grace for grace in graces), default=SPOT_GRACE_SECONDS)
    wanted = pod.wanted(NODE_POOL)
    by_name: dict[str, int | None] = {}  # the same pool may stand in a script and in Terraform
    for pool in bundle.pools:
        if pool.spot and (not wanted or pool.name in wanted):
            by_name.setdefault(pool.name, None)
            grace = LONG_SPOT_GRACE_SECONDS if pool.has_config_file else pool.grace_seconds
            if grace is not None:
                by_name[pool.name] = min(grace, by_name[pool.name] or grace)
    declared = [grace for grace in by_name.values() if grace is not None]
    return min(declared) if declared and len(declared) == len(by_name) else SPOT_GRACE_SECONDS


def _class_grace(row: dict[str, Any], compute_class: ManifestObject) -> int | None:
    """What a priority of a ComputeClass gives a normal pod, where it or the defaults say so."""
    for source in (row, mapping(compute_class.spec.get("priorityDefaults"))):
        settings = mapping(dig(source, "nodeSystemConfig", "kubeletConfig"))
        total = number(settings.get("shutdownGracePeriodSeconds"))
        if total is not None:
            return max(0, total - (number(settings.get("shutdownGracePeriodCriticalPodsSeconds"), 15) or 0))
    return None


_SLEEP = re.compile(r"\bsleep[\s(]+([0-9]{1,6})(?:\.[0-9]+)?([smh]?)\b")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def _pre_stop_seconds(container: Container) -> int | None:
    hook = mapping(dig(container.value, "lifecycle", "preStop"))
    seconds = number(dig(hook, "sleep", "seconds"))
    if seconds is not None:
        return seconds
    command = " ".join(str(word) for word in items(dig(hook, "exec", "command")))
    waits = [int(amount) * _UNITS[unit] for amount, unit in _SLEEP.findall(command)]
    return sum(waits) if waits else None


@rule("SF102", "shell-swallows-sigterm", POD)
def shell_swallows_sigterm(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """A shell in front of the program keeps SIGTERM for itself."""
    if pod.kind in ("PodTemplate", "DaemonSet"):
        return
    for container in pod.containers:
        script = inline_script(container.words)
        step = program_without_signal(script) if script else None
        if script is None or step is None:
            continue
        program = " ".join(step.text.split())[:60]
        why = (
            "is piped" if step.piped else "is not the last plain command" if script.shell != "sh" else "stays behind sh"
        )
        yield Hit(
            _script_path(container, script),
            f"SIGTERM goes to {script.shell} (PID 1) and not to `{program}`, which {why}: use the exec form, "
            "`exec` in front of it, or trap and wait",
            WARNING,
            _exec_fix(container, script, step.text),
        )


def _script_path(container: Container, script: Script) -> Path:
    inside_command = script.word < len(container.command)
    field, index = ("command", script.word) if inside_command else ("args", script.word - len(container.command))
    return (*container.path, field, index)


def _exec_fix(container: Container, script: Script, command: str) -> Fix | None:
    """``exec`` in front, where the program is the last thing the script does."""
    stripped = script.text.rstrip()
    if not stripped.endswith(command) or "|" in command or "\n" in command or stripped.count(command) != 1:
        return None
    fixed = script.text.replace(command, f"exec {command}")
    path = _script_path(container, script)
    return Fix((Edit("set", path[:-1], fixed, key=path[-1]),), safe=False)


# Their pods are always restarted, whatever the exit code.
_RESTARTED = frozenset(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController"))


def _mounts_config_map(pod: PodProfile, item: ManifestObject) -> bool:
    names = (dig(volume, "configMap", "name") for volume in items(pod.spec.get("volumes")))
    return same_namespace(pod.item.namespace, item.namespace) and item.name in names


@rule("SF103", "exit-zero-on-sigterm", POD)
def exit_zero_on_sigterm(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """A TERM trap that ends in exit 0: the Job counts as finished."""
    if pod.kind in _RESTARTED:
        return
    for container in pod.containers:
        script = inline_script(container.words)
        if script is None:
            continue
        path = _script_path(container, script)
        if exits_zero_on_term(script.text) is not None:
            fixed = _with_75(script.text)
            yield Hit(path, _ZERO, ERROR, Fix((Edit("set", path[:-1], fixed, key=path[-1]),), safe=False))
        elif "SIGTERM" in script.text and "signal" in script.text and _inline_python_exits(script.text):
            yield Hit(path, _ZERO, ERROR)
    for container in pod.containers:
        words = container.words
        for index, word in enumerate(words):
            if (
                word == "-c"
                and index + 1 < len(words)
                and "python" in " ".join(words[:index])
                and zero_exits(words[index + 1])
            ):
                inside = index + 1 < len(container.command)
                field = "command" if inside else "args"
                yield Hit((*container.path, field, index + 1 - (0 if inside else len(container.command))), _ZERO, ERROR)


_ZERO = (
    "the SIGTERM handler ends in exit 0: the pod counts as Succeeded and the rest of the work never runs; save, then "
    "exit 75 (or 143)"
)


def _with_75(script: str) -> str:
    while (offset := exits_zero_on_term(script)) is not None:
        script = script[:offset] + re.sub(r"exit\s+0", "exit 75", script[offset:], count=1)
    return script


def zero_exits(source: str) -> list[ZeroExit] | None:
    """As in ``python_source``, which is loaded (with ``ast``) only when there is Python that handles signals."""
    if "signal" not in source:
        return []
    from stayfast.lint.readers import python_source

    return python_source.zero_exits(source)


def _inline_python_exits(script: str) -> bool:
    for match in re.finditer(r"<<-?\s*[\"']?(\w+)[\"']?[^\n]*\n(.*?)^\s*\1\s*$", script, re.DOTALL | re.MULTILINE):
        if zero_exits(match.group(2)):
            return True
    return False


@rule("SF103", "exit-zero-on-sigterm", OBJECT, "ConfigMap")
def exit_zero_in_config_map(item: ManifestObject, bundle: Bundle) -> Iterator[Hit]:
    """The same fault in a script that a ConfigMap carries."""
    bodies = {name: text(content) for name, content in mapping(item.value.get("data")).items()}
    bodies = {name: body for name, body in bodies.items() if "TERM" in body or "signal" in body}
    users = [pod for pod in bundle.pods if _mounts_config_map(pod, item)] if bodies else []
    if users and all(pod.kind in _RESTARTED for pod in users):
        return
    for name, body in bodies.items():
        path: Path = ("data", name)
        if name.endswith(".py") or "import signal" in body:
            for exit_call in zero_exits(body) or []:
                yield Hit(path, f"{name}, line {exit_call.line}: {_ZERO}", ERROR)
        elif exits_zero_on_term(body) is not None:
            fix = Fix((Edit("set", ("data",), _with_75(body), key=name),), safe=False)
            yield Hit(path, f"{name}: {_ZERO}", ERROR, fix)


@rule("SF107", "bare-pod-on-interruptible", OBJECT, "Pod")
def bare_pod_on_interruptible(item: ManifestObject, bundle: Bundle) -> Iterator[Hit]:
    """A Pod with no controller on capacity that goes away."""
    if items(item.metadata.get("ownerReferences")):
        return
    for pod in bundle.pods_of(item):
        selected = pod.selects(FLEX_START) is not None  # queued as well, perhaps
        if selected or pod.capacity in (PodCapacity.SPOT, PodCapacity.FLEX_START):
            what = PodCapacity.FLEX_START if selected else pod.capacity
            yield Hit(
                ("kind",),
                f"nothing recreates a bare Pod when its {what} node goes away: wrap it in a Job",
                ERROR,
            )


def describe(value: Any) -> str:
    """A value for a message, short."""
    written = str(value)
    return written if len(written) <= 40 else written[:37] + "..."
