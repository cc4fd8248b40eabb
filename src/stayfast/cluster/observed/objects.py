"""Looking into objects that anybody may have written: whatever a field holds, the answer has the type it promises."""

from __future__ import annotations

from typing import Any

from stayfast.clock import seconds_at
from stayfast.cluster.kubernetes.client import Object


def meta(item: Object) -> dict[str, Any]:
    """The metadata, whatever it is."""
    found = item.get("metadata")
    return found if isinstance(found, dict) else {}


def spec_of(item: Object) -> dict[str, Any]:
    """The spec, whatever it is."""
    found = item.get("spec")
    return found if isinstance(found, dict) else {}


def status_of(item: Object) -> dict[str, Any]:
    """The status, whatever it is."""
    found = item.get("status")
    return found if isinstance(found, dict) else {}


def title(item: Object) -> str:
    """``pod/name``, as evidence lines begin."""
    return f"{str(item.get('kind', '')).lower()}/{meta(item).get('name', '')}"


def condition(item: Object, kind: str, status: str | None = "True") -> dict[str, Any] | None:
    """The condition of that type; with ``status`` only if it stands so."""
    for entry in status_of(item).get("conditions") or []:
        if isinstance(entry, dict) and entry.get("type") == kind and status in (None, entry.get("status")):
            return entry
    return None


def owner_uids(item: Object) -> set[str]:
    """Uids of all owners."""
    return {str(ref.get("uid")) for ref in meta(item).get("ownerReferences") or [] if isinstance(ref, dict)}


def age_seconds(item: Object, now: float) -> float:
    """Since it was created."""
    created = seconds_at(meta(item).get("creationTimestamp"))
    return max(0.0, now - created) if created is not None else 0.0


def event_time(event: Object) -> float:
    """When it was last seen; both event APIs."""
    series = event.get("series") if isinstance(event.get("series"), dict) else {}
    assert isinstance(series, dict)
    for value in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"),
                  meta(event).get("creationTimestamp")):  # fmt: skip
        found = seconds_at(value)
        if found is not None:
            return found
    return 0.0
