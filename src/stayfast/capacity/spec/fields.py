"""The fields of ``stayfast.yaml``, each written down once."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Form(enum.StrEnum):
    """What a value looks like."""

    TEXT = "text"
    NUMBER = "number"
    WHOLE = "whole number"
    FLAG = "true or false"
    DURATION = "duration"
    SIZE = "size"
    TEXTS = "list of texts"
    SECTION = "section"


@dataclass(frozen=True, slots=True)
class Field:
    """One key: what it means and what it may hold."""

    name: str
    form: Form
    about: str
    required: bool = False
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    example: str = ""
    low: float | None = None
    """Whole numbers start here; other numbers, and durations that have a bound, lie above it."""
    fields: tuple[Field, ...] = ()


REGION = r"[a-z]+-[a-z]+[0-9]+"
NAME = r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?"
STORE_URL = r"(gs|s3)://[^/\s]+(/\S*)?|file:///\S+|memory://\S*"
DURATION = r"[0-9]{1,9}(\.[0-9]{1,9})?\s*(s|m|h|d)"
BUCKET = r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"
SIZE = r"[0-9]{1,12}(\.[0-9]{1,9})?\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)"
LARGEST = 1e15
"""Numbers stay below this: more is a slip of the keyboard, and sums of it would lose their last digits."""

_WORK = (
    Field("hours", Form.NUMBER, "machine time of the whole gang without interruptions", low=0, example="48"),
    Field("steps", Form.WHOLE, "optimizer steps; needs seconds_per_step", low=1, example="100000"),
    Field("seconds_per_step", Form.NUMBER, "measured on the accelerator below", low=0, example="1.7"),
    Field("items", Form.WHOLE, "items or trials; needs seconds_per_item", low=1, example="1000000"),
    Field("seconds_per_item", Form.NUMBER, "of one worker", low=0, example="0.4"),
)
_TOLERANCE = (
    Field("interruptible", Form.FLAG, "may be interrupted and resumed (default: true)"),
    Field("longest_wait", Form.DURATION, "how long it may wait for capacity", pattern=DURATION, example="10m"),
    Field("latency_critical", Form.FLAG, "answers users who wait (default: false)"),
)

FIELDS: tuple[Field, ...] = (
    Field("name", Form.TEXT, "of the workload and its objects", True, pattern=NAME, example="llm-7"),
    Field("kind", Form.TEXT, "what sort of work it is", True, ("train", "batch", "sweep", "serve")),
    Field("image", Form.TEXT, "container image", True, pattern=r"\S+", example="us-docker.pkg.dev/p/repo/trainer:v1"),
    Field("command", Form.TEXTS, "the program and its arguments; no shell", True, example='["python", "train.py"]'),
    Field(
        "accelerator",
        Form.SECTION,
        "what it runs on",
        True,
        fields=(
            Field("type", Form.TEXT, "by its name in the catalogue", True, example="h100"),
            Field("count", Form.WHOLE, "per node", True, low=1, example="8"),
        ),
    ),
    Field("nodes", Form.WHOLE, "gang size: nodes that must run together (default: 1)", low=1, example="2"),
    Field("work", Form.SECTION, "how much there is to do: hours, or steps or items with seconds each", fields=_WORK),
    Field("deadline", Form.DURATION, "from submission to done", pattern=DURATION, example="72h", low=0),
    Field("tolerance", Form.SECTION, "what it can bear", fields=_TOLERANCE),
    Field(
        "state",
        Form.SECTION,
        "what must survive",
        fields=(
            Field("size", Form.SIZE, "of one checkpoint, all ranks together", pattern=SIZE, example="14GB"),
            Field("checkpoints", Form.TEXT, "URL of the run", pattern=STORE_URL, example="gs://bucket/runs/llm-7"),
            Field("region", Form.TEXT, "where that bucket is; transfer out of the region is priced", pattern=REGION),
        ),
    ),
    Field(
        "volume",
        Form.SECTION,
        "a mounted place for checkpoints, for programs that know only directories",
        fields=(
            Field("kind", Form.TEXT, "what it is", True, ("filestore", "gcsfuse", "regional-disk")),
            Field("path", Form.TEXT, "where it is mounted (default: /checkpoints)", pattern=r"/[\w./-]+"),
            Field("size", Form.SIZE, "of a Filestore or disk", pattern=SIZE, example="1TiB"),
            Field("bucket", Form.TEXT, "for gcsfuse", pattern=BUCKET, example="my-bucket"),
        ),
    ),
    Field(
        "service_account",
        Form.TEXT,
        "Google service account to act as (default: the Kubernetes one itself)",
        pattern=r"[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com",
    ),
    Field("queue", Form.TEXT, "URL of the work queue", pattern=r"(sqlite|postgresql|pubsub)://\S+"),
    Field("sink", Form.TEXT, "URL of the results", pattern=rf"(sqlite|postgresql)://\S+|{STORE_URL}"),
    Field(
        "location",
        Form.SECTION,
        "where it may run",
        fields=(
            Field("region", Form.TEXT, "of the cluster", pattern=REGION, example="us-central1"),
            Field("zones", Form.TEXTS, "zones to choose from", pattern=r"[a-z]+-[a-z]+[0-9]+-[a-z]"),
        ),
    ),
    Field(
        "cluster",
        Form.SECTION,
        "the cluster that is there",
        fields=(
            Field("mode", Form.TEXT, "default: standard", choices=("autopilot", "standard")),
            Field("version", Form.TEXT, "of the control plane", pattern=r"1\.[0-9]+(\.[0-9]+(-gke\.[0-9]+)?)?"),
            Field("pools", Form.TEXTS, "node pools that exist"),
        ),
    ),
    Field("namespace", Form.TEXT, "Kubernetes namespace (default: default)", pattern=NAME),
    Field("budget", Form.NUMBER, "US dollars that it may cost", low=0, example="500"),
    Field(
        "monitoring",
        Form.TEXT,
        "metrics port, and a PodMonitoring for Google's managed Prometheus (default: managed)",
        choices=("managed", "none"),
    ),
    Field("capacity", Form.TEXT, "default: auto", choices=("auto", "spot", "flex-start", "on-demand", "hybrid")),
)
