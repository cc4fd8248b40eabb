"""The environment, read once: every variable that stayfast looks at, with its meaning, in one table.

Argument beats environment beats default. A value that cannot be used is one sentence that names the variable and the
value; nothing is guessed.
"""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Mapping
from typing import NamedTuple

from stayfast.errors import SettingError
from stayfast.model import variables
from stayfast.model.exit_codes import INTERRUPTED

GKE_SHUTDOWN_SECONDS = 30.0
GKE_CRITICAL_SECONDS = 15.0


class Variable(NamedTuple):
    """One documented variable."""

    name: str
    default: str
    meaning: str


VARIABLES = (
    Variable("STAYFAST_GRACE_SECONDS", "none", "upper bound of the grace window, whatever else is known"),
    Variable(
        variables.TERMINATION_GRACE_SECONDS,
        "none",
        "the pod's terminationGracePeriodSeconds; rendered manifests set it",
    ),
    Variable(variables.SHUTDOWN_GRACE_SECONDS, "30", "the node pool's shutdownGracePeriodSeconds (GKE: 30, or 120)"),
    Variable(
        variables.SHUTDOWN_GRACE_CRITICAL_SECONDS,
        "15",
        "the share of it that GKE keeps for critical pods; the rest is ours",
    ),
    Variable("STAYFAST_MARGIN_SECONDS", "1", "seconds kept back from every window, so that we leave before the kill"),
    Variable(
        "STAYFAST_INTERRUPTED_CODE", "75", "exit code for interrupted; 0 only under a Deployment, which always restarts"
    ),
    Variable("STAYFAST_EXTRA_SIGNAL", "none", "one more signal that means a notice, such as SIGUSR1"),
    Variable("STAYFAST_LEASE_ENDS_AT", "none", "RFC 3339 instant at which the machine's lease ends (flex-start)"),
    Variable(
        variables.LEASE_FILE,
        "none",
        "file that holds such an instant and may change: a downward-API volume of the pod annotation",
    ),
    Variable(variables.LEASE_LEAD_SECONDS, "120", "how long before the lease end the run saves and leaves"),
    Variable("STAYFAST_NOTICE_FILE", "none", "a file whose appearance is a notice; its first line is the detail"),
    Variable(variables.METADATA, "auto", "auto, on or off: watch the GCE metadata server (auto: only on GCE)"),
    Variable(
        "GCE_METADATA_HOST",
        "metadata.google.internal",
        "host[:port] of the metadata server; setting it implies being on GCE",
    ),
    Variable(variables.OUTCOME_DIR, "none", "directory where each rank leaves its outcome for `stayfast exec`"),
    Variable(variables.OUTCOME_FILE, "stderr", "file to which the outcome's JSON line is appended"),
    Variable(variables.TERMINATION_LOG, "/dev/termination-log", "written when it exists: `kubectl describe` shows it"),
    Variable(
        "STAYFAST_MAX_STALLED_ATTEMPTS",
        "5",
        "attempts in a row without progress after which the run fails instead of burning money",
    ),
    Variable(
        variables.FINGERPRINTS,
        "none",
        "file to which every step appends digests of state and generators; `rehearse` compares them",
    ),
    Variable("STAYFAST_CHECKPOINT_SECONDS", "automatic", "seconds between checkpoints instead of the measured optimum"),
    Variable(variables.MACHINE, "host name", "the machine's name in the run's ledger"),
    Variable(variables.ZONE, "none", "the machine's zone in the run's ledger"),
    Variable(variables.CAPACITY, "none", "spot, flex-start, on-demand or reservation, for the run's ledger"),
    Variable(variables.USD_PER_HOUR, "none", "what the machine costs, for the run's ledger and `stayfast bill`"),
    Variable(variables.QUEUE, "none", "URL of the work queue, where `--queue` is not given"),
    Variable(variables.SINK, "none", "URL of the sink, where `--sink` is not given"),
    Variable(variables.METRICS_PORT, "none", "serve Prometheus metrics of the run or the workers on this port"),
    Variable("STAYFAST_METRICS_ADDRESS", "0.0.0.0", "the address on which they are served"),
    Variable(
        "STAYFAST_SPANS",
        "off",
        "on: OpenTelemetry spans of attempts, saves, restores, notices and chunks; `OTEL_…` says where they go",
    ),
    Variable(variables.CATALOGUE, "the bundled one", "price catalogue for `stayfast plan` and `stayfast prices`"),
    Variable(variables.BILLING_API_KEY, "none", "key for the Cloud Billing Catalog API, for `stayfast prices refresh`"),
    Variable(variables.BILLING_ENDPOINT, "Google's", "another address of that API"),
    Variable(variables.WEBHOOK_URL, "none", "where `stayfast watch` sends alerts, in Slack's form; a secret"),
    Variable("JOB_COMPLETION_INDEX", "none", "replaces {index} in the run's URL; Kubernetes sets it for Indexed Jobs"),
    Variable("RANK", "0", "this process's rank; torchrun sets it"),
    Variable("WORLD_SIZE", "1", "how many ranks there are; torchrun sets it"),
    Variable("GROUP_WORLD_SIZE", "NNODES", "how many machines they stand on; torchrun sets it; the ledger prices all"),
    Variable("NNODES", "1", "the same, where no launcher says it; rendered for gangs"),
)


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

    @property
    def has_external_notice_source(self) -> bool:
        """Whether ``stayfast exec`` is told of notices beyond signals; being on GCE alone does not count."""
        told = (self.lease_ends_at, self.lease_file, self.notice_file)
        metadata = self.metadata == "on" or (self.metadata == "auto" and self.metadata_host is not None)
        return metadata or any(one is not None for one in told)


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """All variables at once; the first unusable one is named."""
    env = _EnvironmentReader(os.environ if environ is None else environ)
    settings = Settings(
        grace_seconds=env.seconds("STAYFAST_GRACE_SECONDS"),
        termination_grace_seconds=env.seconds(variables.TERMINATION_GRACE_SECONDS),
        shutdown_grace_seconds=env.seconds(variables.SHUTDOWN_GRACE_SECONDS, GKE_SHUTDOWN_SECONDS),
        shutdown_grace_critical_seconds=env.seconds(variables.SHUTDOWN_GRACE_CRITICAL_SECONDS, GKE_CRITICAL_SECONDS),
        margin_seconds=env.seconds("STAYFAST_MARGIN_SECONDS", 1.0),
        interrupted_code=env.integer("STAYFAST_INTERRUPTED_CODE", INTERRUPTED, lowest=0, highest=255),
        extra_signal=env.signal("STAYFAST_EXTRA_SIGNAL"),
        lease_ends_at=env.instant("STAYFAST_LEASE_ENDS_AT"),
        lease_file=env.text(variables.LEASE_FILE),
        lease_lead_seconds=env.seconds(variables.LEASE_LEAD_SECONDS, 120.0),
        notice_file=env.text("STAYFAST_NOTICE_FILE"),
        metadata=env.choice(variables.METADATA, ("auto", "on", "off")),
        metadata_host=env.host("GCE_METADATA_HOST"),
        outcome_dir=env.text(variables.OUTCOME_DIR),
        outcome_file=env.text(variables.OUTCOME_FILE),
        termination_log=env.values.get(variables.TERMINATION_LOG, "/dev/termination-log"),
        max_stalled_attempts=env.integer("STAYFAST_MAX_STALLED_ATTEMPTS", 5, lowest=1),
        checkpoint_seconds=env.seconds("STAYFAST_CHECKPOINT_SECONDS"),
        fingerprints=env.text(variables.FINGERPRINTS),
        machine=env.text(variables.MACHINE) or env.text("HOSTNAME") or "",
        zone=env.text(variables.ZONE) or "",
        capacity=env.choice(variables.CAPACITY, ("", "spot", "flex-start", "on-demand", "reservation")),
        usd_per_hour=env.seconds(variables.USD_PER_HOUR),
        completion_index=env.index("JOB_COMPLETION_INDEX"),
        rank=env.integer("RANK", 0, lowest=0),
        world_size=env.integer("WORLD_SIZE", 1, lowest=1),
        metrics_port=env.integer(variables.METRICS_PORT, 0, lowest=0, highest=65535),
        metrics_address=env.text("STAYFAST_METRICS_ADDRESS") or "0.0.0.0",
        spans=env.choice("STAYFAST_SPANS", ("off", "on")),
        machines=env.machines(),
    )
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


class _EnvironmentReader:
    """Parses values and names the variable when it cannot; an empty value is an unset one."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values

    def text(self, name: str) -> str | None:
        return self.values.get(name, "").strip() or None

    def seconds(self, name: str, default: float | None = None) -> float:
        text = self.text(name)
        if text is None:
            return default  # type: ignore[return-value]  # None only where the field allows it
        try:
            value = float(text)
        except ValueError:
            raise SettingError(f"{name}={text!r} is not a number", help="write it like 15 or 2.5") from None
        if not math.isfinite(value) or value < 0:
            raise SettingError(f"{name}={text!r} must be zero or more", help="write it like 15 or 2.5")
        return value

    def integer(self, name: str, default: int, *, lowest: int, highest: int | None = None) -> int:
        text = self.text(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise SettingError(f"{name}={text!r} is not a whole number", help=f"write it like {default}") from None
        if value < lowest or (highest is not None and value > highest):
            bounds = f"at least {lowest}" if highest is None else f"between {lowest} and {highest}"
            raise SettingError(f"{name}={text!r} must be {bounds}", help=f"write it like {default}")
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        text = self.text(name) or allowed[0]
        if text not in allowed:
            known = ", ".join(item for item in allowed if item)
            raise SettingError(f"{name}={text!r} is not one of {known}", help="use one of these or unset it")
        return text

    def machines(self) -> int:
        """Other programs' variables: what is no plain number (torchrun takes ``1:4``) tells us nothing."""
        if self.text("WORLD_SIZE") in (None, "1"):
            return 1
        told = [text for name in ("GROUP_WORLD_SIZE", "NNODES") if (text := self.text(name)) is not None]
        return next((int(text) for text in told if text.isascii() and text.isdigit() and 0 < int(text) < 10**6), 1)

    def index(self, name: str) -> str | None:
        text = self.text(name)
        if text is not None and not (text.isascii() and text.isdigit()):
            raise SettingError(f"{name}={text!r} is not a completion index", help="write it like 0")
        return text

    def host(self, name: str) -> str | None:
        text = self.text(name)
        if text is None:
            return None
        match = re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?", text)
        if match is None or int(match[2] or 0) > 65535:
            raise SettingError(
                f"{name}={text!r} is not a host", help="write it like metadata.google.internal or 127.0.0.1:8080"
            )
        return text

    def signal(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        full = text.upper() if text.upper().startswith("SIG") else "SIG" + text.upper()
        number = getattr(signal, full, None)
        if not isinstance(number, signal.Signals) or number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
            raise SettingError(f"{name}={text!r} is not a signal that can be caught", help="write it like SIGUSR1")
        return int(number)

    def instant(self, name: str) -> float | None:
        text = self.text(name)
        if text is None:
            return None
        from stayfast.clock import from_rfc3339  # dates are slow to import, and few pods have a lease

        try:
            return from_rfc3339(text)
        except (ValueError, OverflowError):
            raise SettingError(
                f"{name}={text!r} is not an RFC 3339 instant", help="write it like 2026-11-15T20:03:37Z"
            ) from None
