"""What a pod demands of its node: selectors, required affinity, tolerations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from stayfast.capacity.machines.gke_keys import DOMAIN, PREEMPTIBLE, PROVISIONING, SPOT
from stayfast.documents.lookup import dig, items, mapping, text
from stayfast.documents.positions import Path

# Labels that say where a pod runs or on what, but not on which kind of machine.
NO_CHOICE = (
    DOMAIN, "kubernetes.io/", "topology.kubernetes.io/", "topology.gke.io/", "beta.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
)  # fmt: skip
_REQUIRED = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_SPOT_WORDS = re.compile(r"spot|preempt", re.IGNORECASE)


class NodeRequirement(NamedTuple):
    """One node label that the pod requires (or, with ``forbids``, must not have)."""

    key: str
    values: tuple[Any, ...]  # empty: any value will do
    path: Path
    excludes: bool = False


def demands(spec: dict[str, Any], path: Path) -> list[NodeRequirement]:
    """``nodeSelector`` and required node affinity (where all terms agree on what is required), as one list."""
    found = [
        NodeRequirement(key, (value,), (*path, "nodeSelector", key))
        for key, value in mapping(spec.get("nodeSelector")).items()
    ]
    found.extend(_affinity(spec, path))
    return found


def _affinity(spec: dict[str, Any], path: Path) -> Iterator[NodeRequirement]:
    where = _REQUIRED
    terms = items(dig(spec, *where))
    everywhere = _in_all_terms(terms)
    for term_index, term in enumerate(terms):
        for index, expression in enumerate(items(mapping(term).get("matchExpressions"))):
            expression = mapping(expression)
            key, operator = text(expression.get("key")), expression.get("operator")
            forbids = operator in _FORBID
            if len(terms) > 1 and (key, forbids) not in everywhere:
                continue  # terms are alternatives: only what all of them say is required
            here = (*path, *where, term_index, "matchExpressions", index)
            values = tuple(items(expression.get("values")))
            if forbids or operator in _REQUIRE:
                yield NodeRequirement(key, values if operator in ("In", "NotIn") else (), here, forbids)


_REQUIRE, _FORBID = ("In", "Exists"), ("NotIn", "DoesNotExist")


def _in_all_terms(terms: list[Any]) -> set[tuple[str, bool]]:
    """Labels, and whether they are forbidden, that every term speaks of."""
    spoken_of = []
    for term in terms:
        entries = [mapping(entry) for entry in items(mapping(term).get("matchExpressions"))]
        pairs = [(text(entry.get("key")), entry.get("operator")) for entry in entries]
        spoken_of.append({(key, operator in _FORBID) for key, operator in pairs if operator in (*_REQUIRE, *_FORBID)})
    return set.intersection(*spoken_of) if spoken_of else set()


def every_term_is_spot(spec: dict[str, Any]) -> bool:
    """Whether required node affinity leaves only a choice among kinds of Spot nodes."""
    terms = items(dig(spec, *_REQUIRED))
    return len(terms) > 1 and all(
        any(_names_spot(mapping(entry)) for entry in items(mapping(term).get("matchExpressions"))) for term in terms
    )


def _names_spot(expression: dict[str, Any]) -> bool:
    key, values = expression.get("key"), items(expression.get("values"))
    if expression.get("operator") == "Exists":
        return key in (SPOT, PREEMPTIBLE)
    wanted = {SPOT: {"true"}, PREEMPTIBLE: {"true"}, PROVISIONING: {"spot", "preemptible"}}.get(text(key), set())
    return expression.get("operator") == "In" and bool(values) and all(value in wanted for value in values)


def prefers(spec: dict[str, Any], *keys: str) -> bool:
    """Whether preferred (soft) node affinity names one of these labels."""
    where = ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
    for entry in items(dig(spec, *where)):
        for expression in items(dig(entry, "preference", "matchExpressions")):
            if text(mapping(expression).get("key")) in keys and mapping(expression).get("operator") in ("In", "Exists"):
                return True
    return False


def preferred_keys(spec: dict[str, Any], path: Path) -> Iterator[tuple[str, Path]]:
    """Labels that preferred (soft) node affinity names, and where."""
    where = ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
    for index, entry in enumerate(items(dig(spec, *where))):
        for number, expression in enumerate(items(dig(entry, "preference", "matchExpressions"))):
            here = (*path, *where, index, "preference", "matchExpressions", number)
            yield text(mapping(expression).get("key")), here


class Toleration(NamedTuple):
    """One toleration."""

    key: str
    operator: str
    value: Any
    effect: str
    path: Path

    @property
    def is_for_everything(self) -> bool:
        """Tolerates any taint."""
        return not self.key and self.operator == "Exists"

    @property
    def is_spotlike(self) -> bool:
        """For a Spot taint: GKE's own, or a custom one that says so in its key or value."""
        if self.key in (SPOT, PREEMPTIBLE):
            return True
        if self.key == PROVISIONING:
            return self.value in ("spot", "preemptible")
        if self.key.startswith(DOMAIN) or not self.key:
            return False
        return bool(_SPOT_WORDS.search(self.key) or _SPOT_WORDS.search(text(self.value)))


def tolerations(spec: dict[str, Any], path: Path) -> list[Toleration]:
    """All tolerations of a pod spec."""
    found = []
    for index, entry in enumerate(items(spec.get("tolerations"))):
        entry = mapping(entry)
        operator = text(entry.get("operator")) or "Equal"
        effect = text(entry.get("effect"))
        found.append(
            Toleration(text(entry.get("key")), operator, entry.get("value"), effect, (*path, "tolerations", index))
        )
    return found
