"""Every label and annotation of ours, on Kubernetes objects; what is written under one name is read under the same."""

from __future__ import annotations

import re

from stayfast.errors import UsageError

RUN_LABEL = "stayfast.dev/run"
COUPLED = "stayfast.dev/coupled"
"""A label of pods; ``"false"`` where none of them waits for another."""
PART_LABEL, CLASSES, CLASSES_KEY = "stayfast.dev/part", "classes", "classes.json"
"""Marks the ConfigMap that holds the later classes of a run's plan; the settings carry no such label."""

SPEC_DIGEST = "stayfast.dev/spec-sha256"
IGNORE = "stayfast.dev/ignore"
LEASE_ENDS_AT = "stayfast.dev/lease-ends-at"
CLASS_NUMBER = "stayfast.dev/class"
CAPACITY, USD_PER_HOUR = "stayfast.dev/capacity", "stayfast.dev/usd-per-hour"

SPLIT_AT = "stayfast.dev/split-at"
REQUEUED_LEASE = "stayfast.dev/requeued-lease"
FALLING_BACK = "stayfast.dev/falling-back-to"
REACTIVATED_AT, REACTIVATIONS = "stayfast.dev/reactivated-at", "stayfast.dev/reactivations"


def run_selector(name: str) -> str:
    """The label selector for a run's objects; a text that cannot be a label value cannot be a run."""
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", name):
        raise UsageError(f"{name!r} is no name of a run", help="run: stayfast status -A")
    return f"{RUN_LABEL}={name}"
