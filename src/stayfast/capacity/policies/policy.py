"""What a policy is, what it may know when it decides, and the policies by name.

Many windows are decided at once, one NumPy row each; a single run is a row by itself. A policy that another package
adds under the entry points ``stayfast.policies`` is found by its name as ours are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from stayfast.capacity.policies.values import EPSILON_SECONDS, Mode, Scenario
from stayfast.errors import SettingError
from stayfast.model.capacity import CapacityClass
from stayfast.registry import Registry
from stayfast.text.suggest import write_or_choose

IDLE, SPOT, ON_DEMAND, FLEX_START = (int(mode) for mode in Mode)


@dataclass(slots=True)
class PolicyView:
    """What a policy may know at a tick: the past and the present, never the future; one entry per window."""

    np: Any
    scenario: Scenario
    tick_seconds: float
    deadline_ticks: int
    spot_prices: Any
    """Per zone."""
    tick: int = 0
    active: Any = None
    """Windows that are neither finished nor hopeless; what is decided for the others counts for nothing."""
    mode: Any = None
    zone: Any = None
    available: Any = None
    flex_ready: Any = False
    done_seconds: Any = None
    need_seconds: Any = None
    start_left_seconds: Any = None
    start_seconds: Any = None
    memory: dict[str, Any] = field(default_factory=dict)
    """Where a policy keeps what it has seen."""

    @property
    def elapsed_seconds(self) -> float:
        return self.tick * self.tick_seconds

    @property
    def remaining_ticks(self) -> int:
        return self.deadline_ticks - self.tick

    def need_ticks(self, starts: int) -> Any:
        """Whole ticks for the rest of the work and this many starts."""
        need = self.need_seconds + starts * self.start_seconds
        return self.np.ceil((need - EPSILON_SECONDS) / self.tick_seconds)


class Policy(Protocol):
    """Where to be during the next tick.

    One object serves one replay and keeps what it has seen in ``view.memory``. A policy that does has a method
    ``select(view, rows)`` too, which forgets all windows but these.
    """

    needs: frozenset[CapacityClass]
    """Classes that must have a price."""

    def decide(self, view: PolicyView) -> tuple[Any, Any]:
        """A mode and a zone per window: Spot only where it is available now, flex-start only when ready or held."""


POLICIES: Registry[Callable[..., Policy]] = Registry(
    "stayfast.policies",
    {
        "on-demand": "stayfast.capacity.policies.baselines:OnDemand",
        "spot-only": "stayfast.capacity.policies.baselines:SpotOnly",
        "greedy": "stayfast.capacity.policies.baselines:Greedy",
        "uniform-progress": "stayfast.capacity.policies.uniform_progress:UniformProgress",
        "flex-start": "stayfast.capacity.policies.baselines:FlexStart",
        "hybrid": "stayfast.capacity.policies.hybrid:Hybrid",
        "stayfast": "stayfast.capacity.policies.adaptive:AdaptivePolicy",
    },
)
OPTIMUM = "optimum"
"""Not a policy: it knows the future."""
NAMES = (OPTIMUM, *POLICIES.names())


def make_policy(name: str, **parameters: float | str) -> Policy:
    """A policy that has seen nothing yet."""
    factory = POLICIES.find(name)
    if factory is None:
        raise SettingError(f"there is no policy {name!r}", help=write_or_choose(name, NAMES))
    return factory(**parameters)


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """A policy as it is written down: what plan replays, and what an executor needs to do the same."""

    name: str
    parameters: Mapping[str, float | str] = field(default_factory=dict)

    def build(self) -> Policy:
        """The policy itself, which has seen nothing yet."""
        return make_policy(self.name, **self.parameters)
