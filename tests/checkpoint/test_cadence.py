"""When to save."""

from __future__ import annotations

import math

import pytest

from stayfast.runtime.checkpoint.policies import CadenceInput, EverySeconds, EverySteps, HazardRule, YoungDaly


def at(steps: int = 0, seconds: float = 0.0, **more: float) -> CadenceInput:
    return CadenceInput(step=steps, steps_since_save=steps, seconds_since_save=seconds, **more)  # type: ignore[arg-type]


def test_steps_and_seconds_and_either() -> None:
    assert not EverySteps(10).is_due(at(9))
    assert EverySteps(10).is_due(at(10))
    assert not EverySeconds(5).is_due(at(seconds=4.9))
    assert EverySeconds(5).is_due(at(seconds=5))
    either = EverySteps(10) | EverySeconds(5) | EverySteps(3)
    assert not either.is_due(at(2, 4))
    assert either.is_due(at(3, 0))
    assert either.is_due(at(0, 6))


@pytest.mark.parametrize("make", [lambda: EverySteps(0), lambda: EverySeconds(0), lambda: EverySeconds(float("nan"))])
def test_nonsense_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        make()  # type: ignore[operator]


def test_young_daly_is_the_square_root_rule_within_limits() -> None:
    rule = YoungDaly(assumed_mean_seconds=8 * 3600)
    assert rule.interval_seconds(at(save_seconds=2.0)) == pytest.approx(math.sqrt(2 * 2 * 8 * 3600))
    assert rule.interval_seconds(at(save_seconds=0.0)) == 30.0
    assert rule.interval_seconds(at(save_seconds=1e6)) == 1800.0
    assert rule.interval_seconds(at(save_seconds=0.001, persist_seconds=90.0)) == 90.0


def test_young_daly_learns_from_interruptions() -> None:
    rule = YoungDaly()
    calm = rule.interval_seconds(at(save_seconds=1.0, run_seconds=36_000.0))
    stormy = rule.interval_seconds(at(save_seconds=1.0, run_seconds=36_000.0, interruptions=20))
    assert stormy < calm / 4
    mean = (rule.assumed_mean_seconds + 36_000) / 21
    assert stormy == pytest.approx(math.sqrt(2 * mean))
    assert rule.is_due(at(save_seconds=1.0, seconds=stormy + 1, run_seconds=36_000.0, interruptions=20))


def test_the_hazard_rule_saves_often_while_the_machine_is_young() -> None:
    rule = HazardRule(lambda age: 0.39 / 3600 if age < 3600 else 0.01 / 3600, longest_seconds=math.inf)
    young = rule.interval_seconds(at(save_seconds=3.0, age_seconds=60.0))
    old = rule.interval_seconds(at(save_seconds=3.0, age_seconds=40_000.0))
    assert young == pytest.approx(math.sqrt(2 * 3 * 3600 / 0.39))
    assert old / young == pytest.approx(math.sqrt(39))
    assert HazardRule(lambda _: 0.0).interval_seconds(at(save_seconds=3.0)) == 1800.0


@pytest.mark.parametrize(
    "policy",
    [EverySteps(7), EverySeconds(11), YoungDaly(), EverySteps(50) | EverySeconds(20)],
    ids=["steps", "seconds", "young-daly", "any-of"],
)
def test_is_due_is_never_true_before_the_next_look(policy: EverySteps) -> None:
    for steps in range(0, 60, 5):
        for seconds in range(0, 40, 3):
            pause, count = policy.next_check(at(steps, float(seconds)))
            if pause <= 0 or count <= 0:
                continue
            just_before = at(steps + int(min(count, 1e6)) - 1, seconds + min(pause, 1e6) * 0.999)
            assert not policy.is_due(just_before)
