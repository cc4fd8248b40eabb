"""What a plan promises: where the run is to be, what comes next when it cannot be there, and by when it is done.

Render builds exactly this, and a replay prices exactly this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stayfast.capacity.plan.options import POLICY, Option, ranking_key
from stayfast.capacity.policies.policy import PolicyDocument
from stayfast.capacity.spec.workload import WorkloadKind, WorkloadSpec
from stayfast.model.capacity import CapacityClass


@dataclass(frozen=True, slots=True)
class Promise:
    """Classes in the order in which they are tried, and the policy that was replayed for them."""

    classes: tuple[CapacityClass, ...]
    policy: PolicyDocument
    deadline_seconds: float | None

    @property
    def later_classes(self) -> tuple[CapacityClass, ...]:
        """What may stand in for the first one."""
        return self.classes[1:]


def make_promise(spec: WorkloadSpec, choice: CapacityClass, options: Sequence[Option]) -> Promise:
    """What choosing this class obliges render and the watch to do."""
    classes = _blend(spec) if choice == CapacityClass.HYBRID else (choice, *_after(choice, options))
    return Promise(classes, POLICY[choice], spec.deadline_seconds)


def _blend(spec: WorkloadSpec) -> tuple[CapacityClass, ...]:
    """Flex-start hands out nodes one by one: half a gang would wait, and be paid for."""
    if spec.kind == WorkloadKind.TRAIN and spec.nodes > 1:
        return CapacityClass.SPOT, CapacityClass.ON_DEMAND
    return CapacityClass.SPOT, CapacityClass.FLEX_START, CapacityClass.ON_DEMAND


def _after(choice: CapacityClass, options: Sequence[Option]) -> list[CapacityClass]:
    """By what the planner compares classes by; those that cannot keep the promise are none to fall back to."""
    costs = {option.kind: option.cost_usd.p50 for option in options if option.feasible and option.cost_usd is not None}
    costs.pop(CapacityClass.HYBRID, None)
    kinds = sorted(costs, key=lambda kind: ranking_key(kind, costs[kind]))
    return kinds[kinds.index(choice) + 1 :] if choice in kinds else []
