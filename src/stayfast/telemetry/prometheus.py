"""Samples in the text format that Prometheus reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SUFFIXES = ("_sum", "_count")


class Metric(NamedTuple):
    """One documented metric."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class PrometheusText:
    """Collects samples and writes them down; a name or label that is not in the table is a mistake of ours."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        """``metrics`` is the table: what may be sampled, in the order in which it is written."""
        self._metrics = {metric.name: metric for metric in metrics}
        self._lines: dict[str, list[str]] = {}

    def declare(self, name: str) -> None:
        """Write its help and type even where it has no sample."""
        self._lines.setdefault(self._metrics[name].name, [])

    def add_sample(self, name: str, value: float | None, **labels: object) -> None:
        """One sample; None is left out."""
        if value is None:
            return
        base = next((name[: -len(end)] for end in _SUFFIXES if name.endswith(end) and name not in self._metrics), name)
        metric = self._metrics[base]
        assert set(labels) <= set(metric.labels), f"{name} has no label {set(labels) - set(metric.labels)}"
        inside = ",".join(f'{label}="{_escape(str(text))}"' for label, text in labels.items())
        self._lines.setdefault(base, []).append(
            f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"
        )

    def render(self) -> bytes:
        """Everything, grouped by metric as the format wants it."""
        lines = []
        for metric in self._metrics.values():
            if metric.name in self._lines:
                lines.append(f"# HELP {metric.name} {metric.meaning}")
                lines.append(f"# TYPE {metric.name} {metric.kind}")
                lines += self._lines[metric.name]
        return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
