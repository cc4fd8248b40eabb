"""The plain engine: one window, one policy, tick by tick; short on purpose, and what the fast one is held against.

Decisions are taken at tick starts and a tick is billed whole. A preemption is seen at the tick where the count drops
below the gang. A cold start consumes run time of the new machine. On-demand can always be had; Spot only while the
trace says so; flex-start when its queue has let the request through, for one lease at a time.
"""

from __future__ import annotations

import math

from plain_policies import IDLE, Placement, Policy, View

from stayfast.capacity.policies.values import EPSILON_SECONDS, Mode, Saving, Scenario, floor_ticks
from stayfast.capacity.replay.scenario import Outcome, TraceWindow
from stayfast.model.exit_codes import FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS


class Progress:
    """Work done and work kept; time goes to the cold start first, then to work and to saving in turns."""

    def __init__(self, scenario: Scenario) -> None:
        self.work = scenario.work_seconds
        self.saving = scenario.saving
        self.done = 0.0
        self.kept = 0.0
        self.start_left = 0.0
        self.phase = 0.0
        """Time since the last checkpoint began to age: work up to the interval, then the save."""

    @property
    def finished(self) -> bool:
        return self.done >= self.work - EPSILON_SECONDS

    def begin(self, start_seconds: float) -> None:
        """A new machine: its start is ahead of it, and what was done so far is safe."""
        self.kept = self.done
        self.phase = 0.0
        self.start_left = start_seconds

    def lose(self) -> float:
        """The machine is gone; returns the work gone with it."""
        kept = self.done if self.saving is None or self.saving.notice_saves else self.kept
        lost = self.done - kept
        self.done = self.kept = kept
        self.start_left = 0.0
        return lost

    def run(self, seconds: float) -> tuple[float, float, float]:
        """Let the machine run; returns the time it spent starting, saving, and idle after the end."""
        starting = min(self.start_left, seconds)
        self.start_left -= starting
        seconds -= starting
        if self.saving is None:
            worked = min(seconds, self.work - self.done)
            self.done += worked
            self.kept = self.done
            return starting, 0.0, seconds - worked
        before = self.done
        tail = self._run_saving(self.saving, seconds)
        return starting, seconds - tail - (self.done - before), tail

    def _run_saving(self, saving: Saving, seconds: float) -> float:
        interval, cycle = saving.interval_seconds, saving.interval_seconds + saving.save_seconds
        total = self.work - self.kept
        # The last stretch needs no save of its own: finishing is what it was for.
        to_finish = total + saving.save_seconds * max(0, math.ceil(total / interval - 1e-9) - 1) - self.phase
        if to_finish <= seconds + EPSILON_SECONDS:
            self.done = self.kept = self.work
            return max(0.0, seconds - to_finish)
        cycles, self.phase = divmod(self.phase + seconds, cycle)
        self.kept += cycles * interval
        self.done = self.kept + min(self.phase, interval)
        return 0.0


class Replay:
    """One window under one policy."""

    def __init__(self, scenario: Scenario, window: TraceWindow, policy: Policy, name: str) -> None:
        self.scenario, self.window, self.policy = scenario, window, policy
        self.outcome = Outcome(name)
        self.progress = Progress(scenario)
        self.place = IDLE
        self.flex_ready_at = scenario.flex_wait_seconds
        self.lease_ends_at = math.inf
        self.view = View(scenario, window.tick_seconds, floor_ticks(scenario.deadline_seconds, window.tick_seconds))
        self._hours = [0.0, 0.0, 0.0, 0.0]

    def run(self) -> Outcome:
        """Replay until the work is done, or nothing can change any more."""
        tick = 0
        while not self.progress.finished:
            self._observe(tick)
            target = self.policy.decide(self.view)
            if target.mode == Mode.IDLE and self._over(tick):
                break
            if self.place.mode == Mode.FLEX_START and target.mode != Mode.FLEX_START:
                # A lease that is given up is gone: the next one has to queue again.
                self.flex_ready_at = tick * self.window.tick_seconds + self.scenario.flex_wait_seconds
            if target.mode != Mode.IDLE and target != self.place:
                self._start(target, tick)
            elif target.mode == Mode.IDLE and self.place.mode != Mode.IDLE:
                self.progress.begin(0.0)  # left by choice: saved before leaving
            self.place = target
            self._bill(tick)
            tick += 1
        return self._close(tick)

    def _over(self, tick: int) -> bool:
        """Past the end of the trace and of the deadline: who waits now waits for nothing."""
        return tick >= self.window.ticks and tick >= self.view.deadline_ticks

    def _observe(self, tick: int) -> None:
        view, window, scenario = self.view, self.window, self.scenario
        inside = tick < window.ticks
        view.tick = tick
        view.available = tuple(inside and zone[tick] == 1 for zone in window.zones)
        view.spot_usd_per_hour = tuple(self._spot_price(zone, tick) for zone in range(len(window.zones)))
        now = tick * window.tick_seconds
        if self.place.mode == Mode.SPOT and not view.available[self.place.zone]:
            self._interrupt(self.progress.lose())
        elif self.place.mode == Mode.FLEX_START and now >= self.lease_ends_at - EPSILON_SECONDS:
            self.progress.begin(0.0)  # the end of a lease is known days ahead: everything is saved by then
            self._interrupt(0.0)
            self.flex_ready_at = now + scenario.flex_wait_seconds
        view.flex_ready = scenario.flex_start_usd_per_hour is not None and (
            self.place.mode == Mode.FLEX_START or now >= self.flex_ready_at - EPSILON_SECONDS
        )
        progress = self.progress
        view.placement = self.place
        view.done_seconds = progress.done
        safe = progress.done
        if self.place.mode == Mode.SPOT and scenario.saving is not None and not scenario.saving.notice_saves:
            safe = progress.kept
        view.need_seconds = (scenario.work_seconds - safe) * (scenario.saving.stretch if scenario.saving else 1.0)
        view.start_left_seconds = progress.start_left
        view.start_seconds = self._start_seconds()

    def _interrupt(self, lost: float) -> None:
        self.outcome.interruptions += 1
        self.outcome.lost_seconds += lost
        self.outcome.useful_seconds -= lost
        self.place = IDLE

    def _start_seconds(self) -> float:
        seconds = self.scenario.cold_start_seconds
        if self.scenario.saving is not None and self.progress.done > 0:
            seconds += self.scenario.saving.restore_seconds
        if self.scenario.job_backoff and self.outcome.interruptions:
            doublings = min(self.outcome.interruptions - 1, 16)
            seconds += min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**doublings)
        return seconds

    def _start(self, target: Placement, tick: int) -> None:
        self.outcome.attempts += 1
        self.progress.begin(self._start_seconds())
        if target.mode == Mode.FLEX_START:
            self.lease_ends_at = tick * self.window.tick_seconds + self.scenario.flex_lease_seconds
        elif target.mode == Mode.SPOT and not self.view.available[target.zone]:
            raise AssertionError(f"the policy {self.outcome.policy} asked for Spot where there is none")

    def _spot_price(self, zone: int, tick: int) -> float:
        if self.window.spot_price_by_tick is not None:
            prices = self.window.spot_price_by_tick[zone]
            return prices[min(tick, len(prices) - 1)]
        if self.window.spot_usd_per_hour is not None:
            return self.window.spot_usd_per_hour[zone]
        return self.scenario.spot_usd_per_hour

    def _bill(self, tick: int) -> None:
        outcome, mode, seconds = self.outcome, self.place.mode, self.window.tick_seconds
        timeline = outcome.timeline
        if timeline and timeline[-1][:2] == (mode, self.place.zone):
            timeline[-1] = (mode, self.place.zone, timeline[-1][2] + 1)
        else:
            timeline.append((mode, self.place.zone, 1))
        if mode == Mode.IDLE:
            outcome.waiting_seconds += seconds
            return
        self._hours[mode] += seconds / 3600
        price = self._price(mode, tick)
        outcome.cost_usd += price * seconds / 3600
        restoring = self.scenario.saving.restore_seconds if self.scenario.saving and self.progress.done > 0 else 0.0
        before, left = self.progress.done, self.progress.start_left
        starting, saving, tail = self.progress.run(seconds)
        # The restore is the last part of a start.
        restored = max(0.0, min(restoring, left) - self.progress.start_left) if restoring else 0.0
        restored = min(restored, starting)
        outcome.restore_seconds += restored
        outcome.start_seconds += starting - restored
        outcome.save_seconds += saving
        outcome.tail_seconds += tail
        outcome.useful_seconds += self.progress.done - before

    def _price(self, mode: Mode, tick: int) -> float:
        if mode == Mode.SPOT:
            return self._spot_price(self.place.zone, tick)
        if mode == Mode.ON_DEMAND:
            return self.scenario.on_demand_usd_per_hour
        return self.scenario.flex_start_usd_per_hour or 0.0

    def _close(self, ticks: int) -> Outcome:
        outcome = self.outcome
        outcome.spot_hours = self._hours[Mode.SPOT]
        outcome.on_demand_hours = self._hours[Mode.ON_DEMAND]
        outcome.flex_start_hours = self._hours[Mode.FLEX_START]
        if self.progress.finished:
            outcome.finish_hours = ticks * self.window.tick_seconds / 3600
            outcome.met_deadline = ticks <= self.view.deadline_ticks
        return outcome


def replay(scenario: Scenario, window: TraceWindow, policy: Policy, name: str = "") -> Outcome:
    """Replay one window through a policy that has seen nothing yet."""
    return Replay(scenario, window, policy, name or type(policy).__name__).run()
