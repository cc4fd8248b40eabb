"""The fields of ``stayfast.yaml``, each written down once."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from stayfast.batch.queue.open_queue import QUEUES
from stayfast.batch.sink.open_sink import SINKS
from stayfast.storage.stores.open_store import STORES


class FieldType(enum.StrEnum):
    """What a value looks like."""

    STRING = "text"
    NUMBER = "number"
    INTEGER = "whole number"
    BOOLEAN = "true or false"
    DURATION = "duration"
    SIZE = "size"
    STRING_LIST = "list of texts"
    SECTION = "section"


@dataclass(frozen=True, slots=True)
class Field:
    """One key: what it means and what it may hold."""

    name: str
    form: FieldType
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
_BUCKETS = "|".join(name for name in STORES.names() if name not in ("file", "memory"))
STORE_URL = rf"({_BUCKETS})://[^/\s]+(/\S*)?|file:///\S+|memory://\S*"
DURATION = r"[0-9]{1,9}(\.[0-9]{1,9})?\s*(s|m|h|d)"
BUCKET = r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"
SIZE = r"[0-9]{1,12}(\.[0-9]{1,9})?\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)"
LARGEST = 1e15
"""Numbers stay below this: more is a slip of the keyboard, and sums of it would lose their last digits."""

_WORK = (
    Field("hours", FieldType.NUMBER, "machine time of the whole gang without interruptions", low=0, example="48"),
    Field("steps", FieldType.INTEGER, "optimizer steps; needs seconds_per_step", low=1, example="100000"),
    Field("seconds_per_step", FieldType.NUMBER, "measured on the accelerator below", low=0, example="1.7"),
    Field("items", FieldType.INTEGER, "items or trials; needs seconds_per_item", low=1, example="1000000"),
    Field("seconds_per_item", FieldType.NUMBER, "of one worker", low=0, example="0.4"),
)
_TOLERANCE = (
    Field("interruptible", FieldType.BOOLEAN, "may be interrupted and resumed (default: true)"),
    Field("longest_wait", FieldType.DURATION, "how long it may wait for capacity", pattern=DURATION, example="10m"),
    Field("latency_critical", FieldType.BOOLEAN, "answers users who wait (default: false)"),
)

FIELDS: tuple[Field, ...] = (
    Field("name", FieldType.STRING, "of the workload and its objects", True, pattern=NAME, example="llm-7"),
    Field("kind", FieldType.STRING, "what sort of work it is", True, ("train", "batch", "sweep", "serve")),
    Field(
        "image",
        FieldType.STRING,
        "container image",
        True,
        pattern=r"\S+",
        example="us-docker.pkg.dev/p/repo/trainer:v1",
    ),
    Field(
        "command",
        FieldType.STRING_LIST,
        "the program and its arguments; no shell",
        True,
        example='["python", "train.py"]',
    ),
    Field(
        "accelerator",
        FieldType.SECTION,
        "what it runs on",
        True,
        fields=(
            Field("type", FieldType.STRING, "by its name in the catalogue", True, example="h100"),
            Field("count", FieldType.INTEGER, "per node", True, low=1, example="8"),
        ),
    ),
    Field("nodes", FieldType.INTEGER, "gang size: nodes that must run together (default: 1)", low=1, example="2"),
    Field(
        "work", FieldType.SECTION, "how much there is to do: hours, or steps or items with seconds each", fields=_WORK
    ),
    Field("deadline", FieldType.DURATION, "from submission to done", pattern=DURATION, example="72h", low=0),
    Field("tolerance", FieldType.SECTION, "what it can bear", fields=_TOLERANCE),
    Field(
        "state",
        FieldType.SECTION,
        "what must survive",
        fields=(
            Field("size", FieldType.SIZE, "of one checkpoint, all ranks together", pattern=SIZE, example="14GB"),
            Field(
                "checkpoints", FieldType.STRING, "URL of the run", pattern=STORE_URL, example="gs://bucket/runs/llm-7"
            ),
            Field(
                "region", FieldType.STRING, "where that bucket is; transfer out of the region is priced", pattern=REGION
            ),
        ),
    ),
    Field(
        "volume",
        FieldType.SECTION,
        "a mounted place for checkpoints, for programs that know only directories",
        fields=(
            Field("kind", FieldType.STRING, "what it is", True, ("filestore", "gcsfuse", "regional-disk")),
            Field("path", FieldType.STRING, "where it is mounted (default: /checkpoints)", pattern=r"/[\w./-]+"),
            Field("size", FieldType.SIZE, "of a Filestore or disk", pattern=SIZE, example="1TiB"),
            Field("bucket", FieldType.STRING, "for gcsfuse", pattern=BUCKET, example="my-bucket"),
        ),
    ),
    Field(
        "service_account",
        FieldType.STRING,
        "Google service account to act as (default: the Kubernetes one itself)",
        pattern=r"[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com",
    ),
    Field("queue", FieldType.STRING, "URL of the work queue", pattern=rf"({'|'.join(QUEUES.names())})://\S+"),
    Field("sink", FieldType.STRING, "URL of the results", pattern=rf"({'|'.join(SINKS.names())})://\S+|{STORE_URL}"),
    Field(
        "location",
        FieldType.SECTION,
        "where it may run",
        fields=(
            Field("region", FieldType.STRING, "of the cluster", pattern=REGION, example="us-central1"),
            Field("zones", FieldType.STRING_LIST, "zones to choose from", pattern=r"[a-z]+-[a-z]+[0-9]+-[a-z]"),
        ),
    ),
    Field(
        "cluster",
        FieldType.SECTION,
        "the cluster that is there",
        fields=(
            Field("mode", FieldType.STRING, "default: standard", choices=("autopilot", "standard")),
            Field("version", FieldType.STRING, "of the control plane", pattern=r"1\.[0-9]+(\.[0-9]+(-gke\.[0-9]+)?)?"),
            Field("pools", FieldType.STRING_LIST, "node pools that exist"),
        ),
    ),
    Field("namespace", FieldType.STRING, "Kubernetes namespace (default: default)", pattern=NAME),
    Field("budget", FieldType.NUMBER, "US dollars that it may cost", low=0, example="500"),
    Field(
        "monitoring",
        FieldType.STRING,
        "metrics port, and a PodMonitoring for Google's managed Prometheus (default: managed)",
        choices=("managed", "none"),
    ),
    Field("capacity", FieldType.STRING, "default: auto", choices=("auto", "spot", "flex-start", "on-demand", "hybrid")),
)
