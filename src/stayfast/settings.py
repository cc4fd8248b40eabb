"""The environment, read once: every variable that stayfast looks at, with its meaning, in one table.

Argument beats environment beats default. A value that cannot be used is one sentence that names the variable and the
value; nothing is guessed.
"""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stayfast.errors import SettingError
from stayfast.model import variables
from stayfast.model.exit_codes import INTERRUPTED

GKE_SHUTDOWN_SECONDS = 30.0
GKE_CRITICAL_SECONDS = 15.0


Parser = Callable[[str, str], Any]
"""From a variable's name and text to its value, or a ``SettingError`` that names both."""


class Variable(NamedTuple):
    """One documented variable."""

    name: str
    field: str
    """Of ``Settings``; empty where the variable is read by the one command that uses it."""
    parse: Parser | None
    default: str
    meaning: str


def _text(_: str, text: str) -> str:
    return text


def _names(_: str, text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise SettingError(f"{name}={text!r} is not a number", help="write it like 15 or 2.5") from None
    if not math.isfinite(value) or value < 0:
        raise SettingError(f"{name}={text!r} must be zero or more", help="write it like 15 or 2.5")
    return value


def _integer(lowest: int, highest: int | None = None, *, like: int) -> Parser:
    def parse(name: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise SettingError(f"{name}={text!r} is not a whole number", help=f"write it like {like}") from None
        if value < lowest or (highest is not None and value > highest):
            bounds = f"at least {lowest}" if highest is None else f"between {lowest} and {highest}"
            raise SettingError(f"{name}={text!r} must be {bounds}", help=f"write it like {like}")
        return value

    return parse


def _choice(*allowed: str) -> Parser:
    def parse(name: str, text: str) -> str:
        if text not in allowed:
            raise SettingError(
                f"{name}={text!r} is not one of {', '.join(allowed)}", help="use one of these or unset it"
            )
        return text

    return parse


def _plain_count(_: str, text: str) -> int | None:
    """Other programs' variables: what is no plain number (torchrun takes ``1:4``) is ignored."""
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 10**6 else None


def _index(name: str, text: str) -> str:
    if not (text.isascii() and text.isdigit()):
        raise SettingError(f"{name}={text!r} is not a completion index", help="write it like 0")
    return text


def _host(name: str, text: str) -> str:
    match = re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?", text)
    if match is None or int(match[2] or 0) > 65535:
        raise SettingError(
            f"{name}={text!r} is not a host", help="write it like metadata.google.internal or 127.0.0.1:8080"
        )
    return text


def _signal(name: str, text: str) -> int:
    full = text.upper() if text.upper().startswith("SIG") else "SIG" + text.upper()
    number = getattr(signal, full, None)
    if not isinstance(number, signal.Signals) or number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
        raise SettingError(f"{name}={text!r} is not a signal that can be caught", help="write it like SIGUSR1")
    return int(number)


def _instant(name: str, text: str) -> float:
    from stayfast.clock import from_rfc3339  # dates are slow to import, and few pods have a lease

    try:
        return from_rfc3339(text)
    except (ValueError, OverflowError):
        raise SettingError(
            f"{name}={text!r} is not an RFC 3339 instant", help="write it like 2026-11-15T20:03:37Z"
        ) from None


# fmt: off
VARIABLES = (
    Variable("STAYFAST_GRACE_SECONDS", "grace_seconds", _seconds, "none",
             "upper bound of the grace window, whatever else is known"),
    Variable(variables.TERMINATION_GRACE_SECONDS, "termination_grace_seconds", _seconds, "none",
             "the pod's terminationGracePeriodSeconds; rendered manifests set it"),
    Variable(variables.SHUTDOWN_GRACE_SECONDS, "shutdown_grace_seconds", _seconds, "30",
             "the node pool's shutdownGracePeriodSeconds (GKE: 30, or 120)"),
    Variable(variables.SHUTDOWN_GRACE_CRITICAL_SECONDS, "shutdown_grace_critical_seconds", _seconds, "15",
             "the share of it that GKE keeps for critical pods; the rest is ours"),
    Variable("STAYFAST_MARGIN_SECONDS", "margin_seconds", _seconds, "1",
             "seconds kept back from every window, so that we leave before the kill"),
    Variable("STAYFAST_INTERRUPTED_CODE", "interrupted_code", _integer(0, 255, like=INTERRUPTED), "75",
             "exit code for interrupted; 0 only under a Deployment, which always restarts"),
    Variable("STAYFAST_EXTRA_SIGNAL", "extra_signal", _signal, "none",
             "one more signal that means a notice, such as SIGUSR1"),
    Variable("STAYFAST_LEASE_ENDS_AT", "lease_ends_at", _instant, "none",
             "RFC 3339 instant at which the machine's lease ends (flex-start)"),
    Variable(variables.LEASE_FILE, "lease_file", _text, "none",
             "file that holds such an instant and may change: a downward-API volume of the pod annotation"),
    Variable(variables.LEASE_LEAD_SECONDS, "lease_lead_seconds", _seconds, "120",
             "how long before the lease end the run saves and leaves"),
    Variable("STAYFAST_NOTICE_FILE", "notice_file", _text, "none",
             "a file whose appearance is a notice; its first line is the detail"),
    Variable("STAYFAST_NOTICE_SOURCES", "notice_sources", _names, "none",
             "further notice sources, with commas: names that installed packages give to theirs"),
    Variable(variables.METADATA, "metadata", _choice("auto", "on", "off"), "auto",
             "auto, on or off: watch the GCE metadata server (auto: only on GCE)"),
    Variable("GCE_METADATA_HOST", "metadata_host", _host, "metadata.google.internal",
             "host[:port] of the metadata server; setting it implies being on GCE"),
    Variable(variables.OUTCOME_DIR, "outcome_dir", _text, "none",
             "directory where each rank leaves its outcome for `stayfast exec`"),
    Variable(variables.OUTCOME_FILE, "outcome_file", _text, "stderr",
             "file to which the outcome's JSON line is appended"),
    Variable(variables.TERMINATION_LOG, "termination_log", _text, "/dev/termination-log",
             "written when it exists: `kubectl describe` shows it"),
    Variable("STAYFAST_MAX_STALLED_ATTEMPTS", "max_stalled_attempts", _integer(1, like=5), "5",
             "attempts in a row without progress after which the run fails instead of burning money"),
    Variable(variables.FINGERPRINTS, "fingerprints", _text, "none",
             "file to which every step appends digests of state and generators; `rehearse` compares them"),
    Variable("STAYFAST_CHECKPOINT_SECONDS", "checkpoint_seconds", _seconds, "automatic",
             "seconds between checkpoints instead of the measured optimum"),
    Variable(variables.MACHINE, "machine", _text, "host name",
             "the machine's name in the run's ledger"),
    Variable(variables.ZONE, "zone", _text, "none",
             "the machine's zone in the run's ledger"),
    Variable(variables.CAPACITY, "capacity", _choice("spot", "flex-start", "on-demand", "reservation"), "none",
             "spot, flex-start, on-demand or reservation, for the run's ledger"),
    Variable(variables.USD_PER_HOUR, "usd_per_hour", _seconds, "none",
             "what the machine costs, for the run's ledger and `stayfast bill`"),
    Variable(variables.QUEUE, "", None, "none",
             "URL of the work queue, where `--queue` is not given"),
    Variable(variables.SINK, "", None, "none",
             "URL of the sink, where `--sink` is not given"),
    Variable(variables.METRICS_PORT, "metrics_port", _integer(0, 65535, like=0), "none",
             "serve Prometheus metrics of the run or the workers on this port"),
    Variable("STAYFAST_METRICS_ADDRESS", "metrics_address", _text, "0.0.0.0",
             "the address on which they are served"),
    Variable("STAYFAST_SPANS", "spans", _choice("off", "on"), "off",
             "on: OpenTelemetry spans of attempts, saves, restores, notices and chunks; `OTEL_…` says where they go"),
    Variable(variables.CATALOGUE, "", None, "the bundled one",
             "price catalogue for `stayfast plan` and `stayfast prices`"),
    Variable(variables.BILLING_API_KEY, "", None, "none",
             "key for the Cloud Billing Catalog API, for `stayfast prices refresh`"),
    Variable(variables.BILLING_ENDPOINT, "", None, "Google's",
             "another address of that API"),
    Variable(variables.WEBHOOK_URL, "", None, "none",
             "where `stayfast watch` sends alerts, in Slack's form; a secret"),
    Variable("JOB_COMPLETION_INDEX", "completion_index", _index, "none",
             "replaces {index} in the run's URL; Kubernetes sets it for Indexed Jobs"),
    Variable("RANK", "rank", _integer(0, like=0), "0",
             "this process's rank; torchrun sets it"),
    Variable("WORLD_SIZE", "world_size", _integer(1, like=1), "1",
             "how many ranks there are; torchrun sets it"),
    Variable("GROUP_WORLD_SIZE", "machines", _plain_count, "NNODES",
             "how many machines they stand on; torchrun sets it; the ledger prices all"),
    Variable("NNODES", "machines", _plain_count, "1",
             "the same, where no launcher says it; rendered for gangs"),
)
# fmt: on


class Settings(NamedTuple):
    """What the environment says, parsed; a tuple, since `dataclasses` would cost `exec` a tenth of its start-up."""

    grace_seconds: float | None = None
    termination_grace_seconds: float | None = None
    shutdown_grace_seconds: float = GKE_SHUTDOWN_SECONDS
    shutdown_grace_critical_seconds: float = GKE_CRITICAL_SECONDS
    margin_seconds: float = 1.0
    interrupted_code: int = INTERRUPTED
    extra_signal: int | None = None
    lease_ends_at: float | None = None
    lease_file: str | None = None
    lease_lead_seconds: float = 120.0
    notice_file: str | None = None
    notice_sources: tuple[str, ...] = ()
    metadata: str = "auto"
    metadata_host: str | None = None
    outcome_dir: str | None = None
    outcome_file: str | None = None
    termination_log: str = "/dev/termination-log"
    max_stalled_attempts: int = 5
    checkpoint_seconds: float | None = None
    fingerprints: str | None = None
    machine: str = ""
    zone: str = ""
    capacity: str = ""
    usd_per_hour: float | None = None
    completion_index: str | None = None
    rank: int = 0
    world_size: int = 1
    metrics_port: int = 0
    metrics_address: str = "0.0.0.0"
    spans: str = "off"
    machines: int = 1

    @property
    def run_usd_per_hour(self) -> float | None:
        """Of all machines together: one rank keeps the books of the whole gang."""
        return None if self.usd_per_hour is None else self.usd_per_hour * self.machines

    @property
    def window_seconds(self) -> float:
        """The longest time between SIGTERM and SIGKILL that a pod really gets, margin not yet taken off."""
        window = self.shutdown_grace_seconds - self.shutdown_grace_critical_seconds
        for cap in (self.termination_grace_seconds, self.grace_seconds):
            if cap is not None:
                window = min(window, cap)
        return window


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """All variables at once; the first unusable one is named. An empty value is an unset one."""
    env = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for variable in VARIABLES:
        text = env.get(variable.name, "").strip()
        if text and variable.parse is not None and values.get(variable.field) is None:
            values[variable.field] = variable.parse(variable.name, text)
    values["machine"] = values.get("machine") or env.get("HOSTNAME", "").strip()
    if values.get("machines") is None or values.get("world_size", 1) == 1:
        values["machines"] = 1
    if variables.TERMINATION_LOG in env:  # an empty one means that none is to be written
        values["termination_log"] = env[variables.TERMINATION_LOG]
    settings = Settings(**values)
    if settings.shutdown_grace_critical_seconds > settings.shutdown_grace_seconds:
        raise SettingError(
            f"STAYFAST_SHUTDOWN_GRACE_CRITICAL_SECONDS={settings.shutdown_grace_critical_seconds:g} is more than "
            f"STAYFAST_SHUTDOWN_GRACE_SECONDS={settings.shutdown_grace_seconds:g}",
            help="the critical share is a part of the total",
        )
    if settings.rank >= settings.world_size:
        raise SettingError(
            f"RANK={settings.rank} is not below WORLD_SIZE={settings.world_size}", help="unset both, or set both"
        )
    return settings
