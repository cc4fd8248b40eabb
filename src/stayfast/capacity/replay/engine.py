"""The engine: thousands of windows at once, one NumPy row each.

Decisions are taken at tick starts and a tick is billed whole. A preemption is seen at the tick where the count drops
below the gang. A cold start consumes run time of the new machine. On-demand can always be had; Spot only while the
trace says so; flex-start when its queue has let the request through, for one lease at a time. The tests hold a plain
engine beside it, window by window: a rule that changes here changes there.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from stayfast.capacity.policies.policy import FLEX_START, IDLE, ON_DEMAND, SPOT, Policy, PolicyView
from stayfast.capacity.policies.values import EPSILON_SECONDS, Mode, Scenario, floor_ticks
from stayfast.capacity.replay.scenario import Outcome
from stayfast.extras import load_numpy
from stayfast.model.exit_codes import FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS

_DELAYS = (0.0, *(min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0**power) for power in range(17)))
"""What the Job controller adds to a start after that many interruptions."""

_SUMS = ("done", "kept", "phase", "start_left", "cost", "starting", "restoring", "saving", "lost", "waiting", "tail")
_PER_WINDOW = (
    *_SUMS, "mode", "zone", "hours", "interruptions", "attempts", "finish", "active", "flex_wait", "flex_ready_at",
    "lease_ends_at",
)  # fmt: skip
"""Arrays whose last axis is the window."""


@dataclass(slots=True)
class AvailabilityTable:
    """Where each window may find Spot capacity, tick after tick.

    ``zones`` is zones x ticks of 0 and 1, and a window begins at its start; or, with ``own``, windows x ticks, each
    window its own history in a single zone.
    """

    tick_seconds: float
    zones: Any
    starts: Any
    own: bool = False

    @property
    def windows(self) -> int:
        return len(self.starts)

    @property
    def num_zones(self) -> int:
        return 1 if self.own else int(self.zones.shape[0])

    @property
    def last_tick(self) -> Any:
        """Per window, the first tick past the end of its trace."""
        return self.zones.shape[1] - self.starts

    def only(self, rows: Any) -> AvailabilityTable:
        """The same for some of the windows."""
        return AvailabilityTable(
            self.tick_seconds, self.zones[rows] if self.own else self.zones, self.starts[rows], self.own
        )

    def at(self, tick: int) -> Any:
        """Zones x windows: could the gang be had at this tick; past the end of a trace it could not."""
        np = load_numpy()
        place = self.starts + tick
        inside = place < self.zones.shape[1]
        place = np.minimum(place, self.zones.shape[1] - 1)
        if self.own:
            return (self.zones[np.arange(len(place)), place] == 1)[None, :] & inside
        return (self.zones[:, place] == 1) & inside


class Replay:
    """All windows under one policy."""

    def __init__(
        self,
        scenario: Scenario,
        openings: AvailabilityTable,
        policy: Policy,
        *,
        spot_prices: Any = None,
        flex_wait_seconds: Any = None,
    ) -> None:
        np = load_numpy()
        self.np, self.scenario, self.openings, self.policy = np, scenario, openings, policy
        count, zones = openings.windows, openings.num_zones
        prices = np.full(zones, scenario.spot_usd_per_hour) if spot_prices is None else np.asarray(spot_prices)
        self.flex_wait = np.full(count, scenario.flex_wait_seconds) if flex_wait_seconds is None else flex_wait_seconds
        deadline = floor_ticks(scenario.deadline_seconds, openings.tick_seconds)
        self.view = PolicyView(np, scenario, openings.tick_seconds, deadline, prices)
        self.mode, self.zone = np.zeros(count, dtype=np.int8), np.zeros(count, dtype=np.int16)
        for name in _SUMS:
            setattr(self, name, np.zeros(count))
        self.hours = np.zeros((4, count))
        self.interruptions, self.attempts = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self.finish = np.zeros(count, dtype=np.int64)
        self.active = np.full(count, not scenario.is_done)
        self.flex_ready_at = self.flex_wait.copy()
        self.lease_ends_at = np.full(count, np.inf)
        self._rows = np.arange(count)
        self._all: dict[str, Any] = {}
        self._moments: list[tuple[Any, Any]] = []

    # Arrays set by name above, so that their type is said once.
    done: Any
    kept: Any
    phase: Any
    start_left: Any
    cost: Any
    starting: Any
    restoring: Any
    saving: Any
    lost: Any
    waiting: Any
    tail: Any

    def run(self) -> Replay:
        """Replay until every window is finished or hopeless."""
        np, tick = self.np, 0
        while True:
            left = int(np.count_nonzero(self.active))
            if not left:
                self._merge_results()
                return self
            if left < len(self.active) // 2:
                self._drop_finished()
            self._observe(tick)
            mode, zone = self.policy.decide(self.view)
            mode = np.where(self.active, mode, IDLE).astype(np.int8)
            if tick >= self.view.deadline_ticks:
                self.active &= ~((tick >= self.openings.last_tick) & (mode == IDLE))
            self._move(mode, zone, tick)
            if self.openings.windows == 1 and self.active[0]:
                self._moments.append((self.mode[0], self.zone[0]))
            self._work(tick)
            tick += 1

    def _drop_finished(self) -> None:
        """Go on with the windows that are not finished: a few stragglers need not carry all the others along."""
        rows = self.np.flatnonzero(self.active)
        self._merge_results()
        for name in _PER_WINDOW:
            setattr(self, name, self._all[name][..., self._rows[rows]])
        self._rows = self._rows[rows]
        self.openings = self.openings.only(rows)
        select = getattr(self.policy, "select", None)
        if select is not None:
            select(self.view, rows)

    def _merge_results(self) -> None:
        """Put what is known of the present windows beside what is known of the others; show all of them."""
        for name in _PER_WINDOW:
            present = getattr(self, name)
            if name in self._all:
                self._all[name][..., self._rows] = present
            else:
                self._all[name] = present
            setattr(self, name, self._all[name])

    def _observe(self, tick: int) -> None:
        np, view, scenario = self.np, self.view, self.scenario
        view.tick, view.active = tick, self.active
        view.available = self.openings.at(tick)
        here = view.available[0] if len(view.available) == 1 else view.available[self.zone, np.arange(len(self.zone))]
        gone = self.active & (self.mode == SPOT) & ~here
        if scenario.loses_nothing:
            self.kept = np.where(gone, self.done, self.kept)
        else:
            self.lost += np.where(gone, self.done - self.kept, 0.0)
            self.done = np.where(gone, self.kept, self.done)
        self._interrupt(gone)
        if scenario.flex_start_usd_per_hour is not None:
            now = tick * view.tick_seconds
            over = self.active & (self.mode == FLEX_START) & (now >= self.lease_ends_at - EPSILON_SECONDS)
            self.kept = np.where(over, self.done, self.kept)
            self.phase[over] = 0.0
            self._interrupt(over)
            self.flex_ready_at = np.where(over, now + self.flex_wait, self.flex_ready_at)
            view.flex_ready = (self.mode == FLEX_START) | (now >= self.flex_ready_at - EPSILON_SECONDS)
        view.mode, view.zone, view.done_seconds = self.mode, self.zone, self.done
        safe, stretch = self.done, 1.0
        if scenario.saving is not None:
            stretch = scenario.saving.stretch
            if not scenario.saving.notice_saves:
                safe = np.where(self.mode == SPOT, self.kept, self.done)
        view.need_seconds = (scenario.work_seconds - safe) * stretch
        view.start_left_seconds = self.start_left
        view.start_seconds = self._start_seconds()

    def _interrupt(self, which: Any) -> None:
        self.interruptions += which
        self.mode = self.np.where(which, self.np.int8(IDLE), self.mode)
        self.start_left = self.np.where(which, 0.0, self.start_left)

    def _start_seconds(self) -> Any:
        np, scenario = self.np, self.scenario
        seconds = scenario.cold_start_seconds
        if scenario.saving is not None and scenario.saving.restore_seconds:
            seconds = seconds + np.where(self.done > 0, scenario.saving.restore_seconds, 0.0)
        if scenario.job_backoff:
            seconds = seconds + np.array(_DELAYS)[np.minimum(self.interruptions, len(_DELAYS) - 1)]
        return seconds

    def _move(self, mode: Any, zone: Any, tick: int) -> None:
        np, scenario = self.np, self.scenario
        begun = (mode != IDLE) & ((mode != self.mode) | ((mode == SPOT) & (zone != self.zone)))
        settled = begun | ((mode == IDLE) & (self.mode != IDLE))
        self.attempts += begun
        self.start_left = np.where(begun, self.view.start_seconds, np.where(settled, 0.0, self.start_left))
        if scenario.saving is not None:
            self.kept = np.where(settled, self.done, self.kept)
            self.phase = np.where(settled, 0.0, self.phase)
        if scenario.flex_start_usd_per_hour is not None:
            left = self.active & (self.mode == FLEX_START) & (mode != FLEX_START)
            self.flex_ready_at = np.where(left, tick * self.view.tick_seconds + self.flex_wait, self.flex_ready_at)
            fresh = begun & (mode == FLEX_START)
            self.lease_ends_at[fresh] = tick * self.view.tick_seconds + scenario.flex_lease_seconds
        self.mode, self.zone = mode, np.where(mode == SPOT, zone, 0).astype(np.int16)

    def _work(self, tick: int) -> None:
        np, scenario, seconds = self.np, self.scenario, self.view.tick_seconds
        running = self.mode != IDLE
        self.waiting += seconds * (self.active & ~running)
        on_spot, paid = self.mode == SPOT, self.mode == ON_DEMAND
        self.hours[SPOT] += on_spot
        self.hours[ON_DEMAND] += paid
        price = np.where(on_spot, self.view.spot_prices[self.zone], 0.0) + paid * scenario.on_demand_usd_per_hour
        if scenario.flex_start_usd_per_hour is not None:
            flex = self.mode == FLEX_START
            self.hours[FLEX_START] += flex
            price += flex * scenario.flex_start_usd_per_hour
        self.cost += price
        room = seconds * running
        starting = np.minimum(self.start_left, room)
        left = self.start_left - starting
        if scenario.saving is not None and scenario.saving.restore_seconds:
            part = np.minimum(np.where(self.done > 0, scenario.saving.restore_seconds, 0.0), self.start_left) - left
            part = np.minimum(np.maximum(part, 0.0), starting)
            self.restoring += part
            self.starting += starting - part
        else:
            self.starting += starting
        self.start_left = left
        self._progress(room - starting, running)
        ended = self.active & (self.done >= scenario.work_seconds - EPSILON_SECONDS)
        self.finish[ended] = tick + 1
        self.active &= ~ended

    def _progress(self, room: Any, running: Any) -> None:
        np, scenario = self.np, self.scenario
        if scenario.saving is None:
            worked = np.minimum(room, scenario.work_seconds - self.done)
            self.done = self.done + worked
            self.tail += room - worked
            return
        interval, save = scenario.saving.interval_seconds, scenario.saving.save_seconds
        total = scenario.work_seconds - self.kept
        saves = np.maximum(0.0, np.ceil(total / interval - 1e-9) - 1)
        to_finish = total + save * saves - self.phase
        ends = running & (to_finish <= room + EPSILON_SECONDS)
        cycles, phase = np.divmod(self.phase + room, interval + save)
        kept = self.kept + cycles * interval
        done = np.where(ends, scenario.work_seconds, kept + np.minimum(phase, interval))
        done = np.where(running, done, self.done)
        tail = np.where(ends, np.maximum(0.0, room - to_finish), 0.0)
        self.tail += tail
        self.saving += np.where(running, room - tail - (done - self.done), 0.0)
        self.kept = np.where(running, np.where(ends, scenario.work_seconds, kept), self.kept)
        self.phase = np.where(running, phase, self.phase)
        self.done = done

    @property
    def finished(self) -> Any:
        """Per window: is the work done. Only where there was none is it done before the first tick."""
        return (self.finish > 0) | self.scenario.is_done

    @property
    def in_time(self) -> Any:
        """Per window: is it done by the deadline."""
        return self.finished & (self.finish <= self.view.deadline_ticks)

    def outcomes(self, name: str) -> list[Outcome]:
        """What each window cost and how it went."""
        hours, finished, in_time = self.view.tick_seconds / 3600, self.finished, self.in_time
        return [
            Outcome(
                name,
                float(self.cost[row]) * hours,
                float(self.hours[SPOT, row]) * hours,
                float(self.hours[ON_DEMAND, row]) * hours,
                float(self.hours[FLEX_START, row]) * hours,
                float(self.finish[row]) * hours if finished[row] else None,
                bool(in_time[row]),
                int(self.interruptions[row]),
                int(self.attempts[row]),
                float(self.done[row]),
                float(self.starting[row]),
                float(self.restoring[row]),
                float(self.saving[row]),
                float(self.lost[row]),
                float(self.waiting[row]),
                float(self.tail[row]),
            )
            for row in range(len(self.cost))
        ]

    def outcome(self, name: str) -> Outcome:
        """The only window, with its timeline; money and hours are added up tick by tick."""
        (found,) = self.outcomes(name)
        scenario, seconds, hours, found.cost_usd = self.scenario, self.view.tick_seconds, [0.0] * 4, 0.0
        for mode, zone in self._moments:
            prices = (
                0.0,
                self.view.spot_prices[zone],
                scenario.on_demand_usd_per_hour,
                scenario.flex_start_usd_per_hour,
            )
            found.cost_usd += float(prices[mode] or 0.0) * seconds / 3600
            hours[mode] += seconds / 3600
        _, found.spot_hours, found.on_demand_hours, found.flex_start_hours = hours
        if found.finish_hours is not None:
            found.finish_hours = float(self.finish[0]) * seconds / 3600
        spells = itertools.groupby(self._moments)
        found.timeline = [(Mode(int(mode)), int(zone), sum(1 for _ in ticks)) for (mode, zone), ticks in spells]
        return found
