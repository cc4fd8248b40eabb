"""Reading ``stayfast.yaml`` strictly: all mistakes at once, each with its place, what was found, and what to write."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from stayfast.capacity.spec.fields import FIELDS, LARGEST, Field, FieldType
from stayfast.capacity.spec.workload import Monitoring, WorkloadKind, WorkloadSpec
from stayfast.documents import Document, load_documents
from stayfast.errors import DocumentError, one_line
from stayfast.model.capacity import CapacityClass
from stayfast.text.suggest import similar, write_or_choose
from stayfast.text.units import parse_duration, parse_size

Path = tuple[str | int, ...]


def read_spec(text: str, where: str, *, accelerators: Sequence[str] = ()) -> WorkloadSpec:
    """The workload; ``accelerators`` are the names that the catalogue knows, if it is to be asked."""
    documents = load_documents(text, where)
    if len(documents) != 1:
        raise DocumentError(
            f"{where}:1:1: one workload is expected, {len(documents)} documents are there",
            help="start with: name: my-run" if not documents else "give each workload a file of its own",
        )
    reader = _Reader(documents[0], where)
    body = documents[0].value
    if not isinstance(body, dict):
        reader.report((), "a workload is a mapping of fields", "start with: name: my-run")
        raise reader.as_error()
    values = reader.section(body, FIELDS, ())
    reader.check_together(values, body, accelerators)
    if reader.complaints:
        raise reader.as_error()
    return _build(values, where)


class _Reader:
    def __init__(self, document: Document, where: str) -> None:
        self.document = document
        self.where = where
        self.complaints: list[tuple[int, int, str]] = []

    def report(self, path: Path, what: str, cure: str, *, value: bool = True) -> None:
        spot = self.document.locate(path, value=value)
        name = ".".join(str(part) for part in path)
        subject = f"{name}: " if name else ""
        line = f"{self.where}:{spot.line}:{spot.column}: {subject}{what}; {cure}"
        self.complaints.append((spot.line, spot.column, line))

    def as_error(self) -> DocumentError:
        ordered = sorted(self.complaints)
        line, column, _ = ordered[0]
        lines = "\n".join(one_line(text) for _, _, text in ordered)
        return DocumentError(lines, line=line, column=column).listed()

    def section(self, body: dict[str, Any], fields: Sequence[Field], path: Path) -> dict[str, Any]:
        known = {field.name: field for field in fields}
        values: dict[str, Any] = {}
        for key, found in body.items():
            if key not in known:
                close = similar(key, known)
                self.report((*path, key), "there is no such field", write_or_choose(key, known), value=False)
                if close:  # its value is judged under the name that was meant, so that one mistake is one complaint
                    known.pop(close)
                continue
            value = self.value(found, known[key], (*path, key))
            if value is not None:
                values[key] = value
        for field in known.values():
            if field.required and field.name not in body:
                example = field.choices[0] if field.choices else field.example
                self.report(path, f"{field.name} is missing ({field.about})", f"add {field.name}: {example or '…'}")
        return values

    def value(self, found: Any, field: Field, path: Path) -> Any:
        if field.form == FieldType.SECTION:
            if not isinstance(found, dict):
                inner = ", ".join(item.name for item in field.fields)
                self.report(path, f"{quote_value(found)} is not a section", f"write the fields under it: {inner}")
                return None
            return self.section(found, field.fields, path)
        if field.form == FieldType.STRING_LIST:
            return self._texts(found, field, path)
        if field.form in (FieldType.NUMBER, FieldType.INTEGER):
            return self._number(found, field, path)
        if field.form == FieldType.BOOLEAN:
            if not isinstance(found, bool):
                self.report(path, f"{quote_value(found)} is neither true nor false", "write true or false")
                return None
            return found
        return self._text(found, field, path)

    def _texts(self, found: Any, field: Field, path: Path) -> tuple[str, ...] | None:
        if not isinstance(found, list) or not found:
            self.report(path, f"{quote_value(found)} is not a list of texts", f"write {field.example or '[…]'}")
            return None
        values = [self._text(item, field, (*path, index)) for index, item in enumerate(found)]
        return tuple(value for value in values if value is not None)

    def _number(self, found: Any, field: Field, path: Path) -> float | int | None:
        whole = field.form == FieldType.INTEGER
        kind = int if whole else int | float
        low = field.low or 0
        fits = isinstance(found, kind) and not isinstance(found, bool) and abs(found) < LARGEST
        if not fits or found < low or (not whole and found == 0):
            bound = f"a whole number from {low:g}" if whole else "a number above 0"
            self.report(
                path, f"{quote_value(found)} is not {bound}", f"write for example {field.example or max(1, low)}"
            )
            return None
        return int(found) if whole else float(found)

    def _text(self, found: Any, field: Field, path: Path) -> Any:
        example = f"write for example {field.example}" if field.example else "write it as text"
        if isinstance(found, str) and field.choices:
            if found in field.choices:
                return found
            allowed = ", ".join(field.choices)
            self.report(path, f"{quote_value(found)} is not one of {allowed}", write_or_choose(found, field.choices))
            return None
        if not isinstance(found, str) or not found.strip() or "\0" in found:
            what = f"one of {', '.join(field.choices)}" if field.choices else _KINDS.get(field.form, "a text")
            self.report(path, f"{quote_value(found)} is not {what}", example)
            return None
        if field.pattern and not re.fullmatch(field.pattern, found):
            self.report(path, f"{quote_value(found)} is not {_KINDS.get(field.form, 'a valid ' + field.name)}", example)
            return None
        if field.form not in _PARSERS:
            return found
        value = _PARSERS[field.form](found)
        if field.low is not None and value <= field.low:
            self.report(path, f"{quote_value(found)} is no time at all", example)
            return None
        return value

    def check_together(self, values: dict[str, Any], body: dict[str, Any], accelerators: Sequence[str]) -> None:
        """Rules that span fields."""
        kind, work = values.get("kind"), body.get("work")
        if kind and kind != "serve" and work is None:
            self.report((), f"work is missing for kind {kind}", "add work: with hours, or steps and seconds_per_step")
        elif isinstance(work, dict):
            self._check_work(work)
        name = values.get("accelerator", {}).get("type")
        if name and accelerators and name not in accelerators:
            cure = write_or_choose(name.lower().removeprefix("nvidia-"), accelerators, cutoff=0.5)
            self.report(("accelerator", "type"), f"{quote_value(name)} is not in the catalogue", cure)
        location = values.get("location", {})
        for index, zone in enumerate(location.get("zones", ())):
            region = location.get("region")
            if region and not zone.startswith(region + "-"):
                at = ("location", "zones", index)
                self.report(at, f"{quote_value(zone)} is not in {region}", f"write {region}-a, or change the region")

    def _check_work(self, work: dict[str, Any]) -> None:
        ways = [set(work) == way for way in ({"hours"}, {"steps", "seconds_per_step"}, {"items", "seconds_per_item"})]
        if not any(ways):
            given = ", ".join(work) or "nothing"
            cure = "give hours, or steps and seconds_per_step, or items and seconds_per_item"
            self.report(("work",), f"{given} does not say how much work there is", cure, value=False)


_KINDS = {FieldType.DURATION: "a duration such as 90m, 48h or 3d", FieldType.SIZE: "a size such as 500MB or 14GiB"}
_PARSERS: dict[FieldType, Callable[[str], float | int]] = {
    FieldType.DURATION: parse_duration,
    FieldType.SIZE: parse_size,
}


def quote_value(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | type(None)) else type(value).__name__.lower()
    return text if len(text) <= 60 else text[:57] + "…'"


def _build(values: dict[str, Any], where: str) -> WorkloadSpec:
    work = values.get("work", {})
    units = work.get("steps") or work.get("items")
    each = work.get("seconds_per_step") or work.get("seconds_per_item")
    seconds = work["hours"] * 3600 if "hours" in work else None
    if units and each:
        # Items are spread over the workers; steps are done by the gang together.
        seconds = units * each / (values.get("nodes", 1) if "items" in work else 1)
    tolerance, state = values.get("tolerance", {}), values.get("state", {})
    location, cluster = values.get("location", {}), values.get("cluster", {})
    volume = values.get("volume", {})
    capacity = values.get("capacity", "auto")
    return WorkloadSpec(
        name=values["name"],
        kind=WorkloadKind(values["kind"]),
        image=values["image"],
        command=values["command"],
        accelerator=values["accelerator"]["type"],
        accelerator_count=values["accelerator"]["count"],
        nodes=values.get("nodes", 1),
        work_seconds=seconds,
        units=units,
        unit_seconds=each,
        deadline_seconds=values.get("deadline"),
        interruptible=tolerance.get("interruptible", True),
        longest_wait_seconds=tolerance.get("longest_wait"),
        latency_critical=tolerance.get("latency_critical", False),
        state_bytes=state.get("size"),
        checkpoint_url=state.get("checkpoints"),
        bucket_region=state.get("region"),
        volume_kind=volume.get("kind"),
        volume_path=volume.get("path", "/checkpoints"),
        volume_bytes=volume.get("size"),
        volume_bucket=volume.get("bucket"),
        service_account=values.get("service_account"),
        queue_url=values.get("queue"),
        sink_url=values.get("sink"),
        region=location.get("region"),
        zones=location.get("zones", ()),
        cluster_mode=cluster.get("mode", "standard"),
        cluster_version=cluster.get("version"),
        pools=cluster.get("pools", ()),
        namespace=values.get("namespace", "default"),
        budget_usd=values.get("budget"),
        capacity=None if capacity == "auto" else CapacityClass(capacity),
        monitoring=Monitoring(values.get("monitoring", "managed")),
        where=where,
    )
