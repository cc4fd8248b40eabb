"""Checkpoint intervals: the closed forms against the model they minimise, the program against measured lifetimes."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import interval_forms
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifetimes import Bathtub, Empirical, Exponential, Schedules, Timing, Weibull

from stayfast.capacity.plan import interval
from stayfast.errors import UsageError

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
HOUR = 3600.0


@pytest.fixture(scope="module")
def measured():
    path = DATA / "gcp_lifetimes_2019.csv"
    if not path.exists():
        pytest.skip("the measured lifetimes are not beside the repository (../shared/data/gcp_lifetimes_2019.csv)")
    with path.open() as rows:
        return Empirical([float(row["lifetime_s"]) for row in csv.DictReader(rows)])


def test_the_program_agrees_with_the_reference_on_real_lifetimes(measured):
    cases = json.loads((DATA / "interval_reference.json").read_text())
    assert cases
    for case in cases:
        timing = Timing(case["job_h"] * HOUR, case["ckpt_min"] * 60, case["restart_min"] * 60)
        schedules = Schedules(measured, timing)
        for age, hours in case["dp_h"].items():
            assert schedules.optimal_seconds(float(age) * HOUR) == pytest.approx(hours * HOUR, rel=0.01)
        minutes = [seconds / 60 for seconds in schedules.schedule_seconds()]
        assert minutes == case["dp_schedule_min_from_age0"]
        minutes = [seconds / 60 for seconds in schedules.schedule_seconds(6 * HOUR)]
        assert minutes == case["dp_schedule_min_from_age6h"]
        young = interval_forms.young(case["ckpt_min"] * 60, measured.mean_seconds)
        assert young / 60 == pytest.approx(case["young_daly_min"], rel=0.01)
        for key, fixed in {"yd": young, "fix10": 600, "fix30": 1800, "fix60": 3600, "none": None}.items():
            for age, hours in case[key].items():
                expected = pytest.approx(hours * HOUR, rel=0.01)
                assert schedules.fixed_seconds(fixed, float(age) * HOUR) == expected, (key, age)


def test_textbook_values():
    assert interval_forms.young(120, 8 * HOUR) == pytest.approx(math.sqrt(2 * 120 * 8 * HOUR))
    assert interval_forms.daly_first(120, 8 * HOUR, restart_seconds=600) > interval_forms.young(120, 8 * HOUR)
    assert interval_forms.daly_second(120, 8 * HOUR) == pytest.approx(2549.4, abs=1)
    assert interval_forms.daly_second(3 * HOUR, HOUR) == HOUR


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(0.01, 3000), st.floats(60, 1e6))
def test_the_exact_form_is_the_minimum(save, mean):
    best = interval.exact(save, mean)
    here = interval_forms.expected_seconds(1e6, best, save, mean)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert here <= interval_forms.expected_seconds(1e6, best * factor, save, mean) * (1 + 1e-9)
    assert 0 < best <= mean


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(1e-6, 1e-2), st.floats(60, 1e6))
def test_all_forms_meet_when_saves_are_cheap(share, mean):
    save = share * mean * 0.01
    assert interval_forms.daly_second(save, mean) == pytest.approx(interval.exact(save, mean), rel=1e-3)
    assert interval_forms.young(save, mean) == pytest.approx(interval.exact(save, mean), rel=0.02)


def test_first_order_loss_is_the_expected_time_to_first_order():
    save, mean = 10.0, 100 * HOUR
    tau = interval.exact(save, mean)
    share = interval_forms.lost_share(tau, save, mean, restart_seconds=60)
    full = interval_forms.expected_seconds(HOUR, tau, save, mean, restart_seconds=60)
    assert full / HOUR - 1 == pytest.approx(share, rel=0.02)
    assert interval_forms.expected_seconds(HOUR, 1000 * HOUR, save, HOUR) == math.inf


def test_background_saves_cost_only_what_blocks():
    advice = interval.recommend_interval(blocking_seconds=0.5, persist_seconds=30, mtbi_seconds=8 * HOUR)
    assert advice.interval_seconds == pytest.approx(interval.exact(0.5, 8 * HOUR))
    assert advice.at_risk_seconds == pytest.approx(advice.interval_seconds / 2 + 30)
    slow = interval.recommend_interval(blocking_seconds=0.5, persist_seconds=900, mtbi_seconds=8 * HOUR)
    assert slow.interval_seconds == 900
    assert "persist" in slow.because


def test_a_notice_that_is_long_enough_leaves_one_step_at_risk():
    known = {"blocking_seconds": 1, "persist_seconds": 20, "mtbi_seconds": 4 * HOUR, "step_seconds": 2.0}
    fits = interval.recommend_interval(**known, flush_seconds=12, grace_seconds=15, unannounced_mtbi_seconds=100 * HOUR)
    assert fits.at_risk_seconds == 2.0
    assert fits.interval_seconds == pytest.approx(interval.exact(1, 100 * HOUR))
    tight = interval.recommend_interval(
        **known, flush_seconds=16, grace_seconds=15, unannounced_mtbi_seconds=100 * HOUR
    )
    assert tight.at_risk_seconds > 20
    assert tight.interval_seconds == pytest.approx(interval.exact(1, 4 * HOUR))


def test_the_hazard_rule_lengthens_with_age():
    life = Weibull(8 * HOUR, 0.5)

    def hazard(age):
        return -math.log(life.survival(age + 60) / life.survival(age)) / 60

    schedule = interval_forms.hazard_schedule(4 * HOUR, 120, hazard)
    assert sum(schedule) == pytest.approx(4 * HOUR)
    assert list(schedule[:-1]) == sorted(schedule[:-1])
    assert interval_forms.by_hazard(120, 0) == math.inf
    assert interval_forms.by_hazard(120, 1 / (8 * HOUR)) == pytest.approx(interval_forms.young(120, 8 * HOUR))


def test_without_memory_the_program_finds_the_exact_interval():
    save, mean = 120.0, 5 * HOUR
    schedules = Schedules(Exponential(mean), Timing(8 * HOUR, save, 0.0))
    tau = interval.exact(save, mean)
    assert schedules.optimal_seconds() == pytest.approx(schedules.fixed_seconds(tau), rel=0.005)
    # The last piece needs no save, which the closed form counts.
    closed = interval_forms.expected_seconds(8 * HOUR, tau, save, mean)
    assert schedules.optimal_seconds() == pytest.approx(closed, rel=0.02)
    assert max(schedules.schedule_seconds()) == pytest.approx(tau, rel=0.3)


def test_the_optimal_schedule_is_never_worse_than_a_fixed_one():
    for life in (Weibull(6 * HOUR, 0.56), Bathtub(0.638, 0.96 * HOUR, 1.09 * HOUR, 25.4 * HOUR)):
        schedules = Schedules(life, Timing(3 * HOUR, 120, 240))
        for age in (0.0, 6 * HOUR):
            best = schedules.optimal_seconds(age)
            for fixed in (600, 1800, 3600, None):
                assert best <= schedules.fixed_seconds(fixed, age) + 1e-6


def test_survival_curves_begin_at_one_and_fall():
    curves = (
        Exponential(HOUR),
        Weibull(HOUR, 0.5),
        Bathtub(0.638, 0.96 * HOUR, 1.09 * HOUR, 25.4 * HOUR),
        Empirical([5, HOUR]),
    )
    for curve in curves:
        values = [curve.survival(age * 600.0) for age in range(300)]
        assert values[0] == 1.0
        assert values == sorted(values, reverse=True)
        assert 0 <= values[-1] < 0.01


@pytest.mark.parametrize(("save", "mean"), [(-1, 10), (1, 0), (math.nan, 10), (1, math.inf)])
def test_impossible_figures_are_refused(save, mean):
    for form in (interval_forms.young, interval_forms.daly_first, interval_forms.daly_second, interval.exact):
        with pytest.raises(UsageError):
            form(save, mean)
    with pytest.raises(UsageError):
        Empirical([])
    with pytest.raises(UsageError):
        interval_forms.expected_seconds(10, 0, 1, 10)
