"""A seed is enough to know every interruption, and every dangerous point is reached."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stayfast.proof.rehearse.schedule import (
    DEFAULT_KINDS,
    AtEvent,
    AtResume,
    AtTime,
    InterruptionKind,
    Profile,
    TrialPlan,
    schedule,
)
from stayfast.proof.syscalls.events import FilePoint

EVENTS = {
    ("state.tmp", FilePoint.OPEN): 10,
    ("state.tmp", FilePoint.FIRST_WRITE): 10,
    ("state", FilePoint.RENAME): 10,
    ("log", FilePoint.WRITE): 50,
    ("result", FilePoint.FIRST_WRITE): 1,
}
PROFILE = Profile(seconds=4.0, first_write_seconds=0.3, handler_seconds=0.1, events=EVENTS)


def make(**options: object) -> list[TrialPlan]:
    asked = {"kinds": DEFAULT_KINDS, "kills": 3, "trials": 9, "seed": 0, **options}
    return schedule(asked.pop("profile", PROFILE), **asked)


@given(
    seed=st.integers(0, 10**9),
    kills=st.integers(1, 6),
    trials=st.integers(1, 30),
    kinds=st.lists(st.sampled_from(list(InterruptionKind)), min_size=1, unique=True),
    with_events=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_a_schedule_is_whole_and_repeatable(
    seed: int, kills: int, trials: int, kinds: list[InterruptionKind], with_events: bool
) -> None:
    profile = PROFILE if with_events else PROFILE._replace(events={})
    plans = make(profile=profile, seed=seed, kills=kills, trials=trials, kinds=kinds)
    assert plans == make(profile=profile, seed=seed, kills=kills, trials=trials, kinds=kinds)
    numbers = [kill.number for plan in plans for kill in plan.kills]
    assert numbers == list(range(1, trials * kills + 1))
    allowed = {*kinds, InterruptionKind.KILL} if InterruptionKind.KILL_DURING_RESUME in kinds else set(kinds)
    for plan in plans:
        assert {kill.kind for kill in plan.kills} <= allowed
        assert plan.kills[0].kind is not InterruptionKind.KILL_DURING_RESUME, "there is nothing to resume yet"
        for kill in plan.kills:
            if isinstance(kill.moment, AtEvent):
                assert 1 <= kill.moment.nth <= profile.events[kill.moment[:2]]
            else:
                assert 0.0 < kill.moment.fraction <= 1.0


def test_seeds_differ() -> None:
    assert make(seed=1) != make(seed=2)


@pytest.mark.parametrize(("seed", "digest"), [(0, "02ac17821cc56e47"), (7, "3eeb0fe8d39b790f")])
def test_a_seed_of_an_old_report_still_means_the_same_kills(seed: int, digest: str) -> None:
    """The string from which the generator starts is frozen, and so is the order of what is drawn from it."""
    rows = [
        [plan.number, kill.number, kill.kind.value, *(getattr(each, "value", each) for each in kill.moment)]
        for plan in make(seed=seed)
        for kill in plan.kills
    ]
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("seed", range(20))
def test_the_default_reaches_every_dangerous_point_with_a_kill(seed: int) -> None:
    first = [plan.kills[0] for plan in make(seed=seed)]
    aimed = {
        kill.moment[:2] for kill in first if kill.kind is InterruptionKind.KILL and isinstance(kill.moment, AtEvent)
    }
    assert aimed >= {("state.tmp", FilePoint.FIRST_WRITE), ("state", FilePoint.RENAME), ("log", FilePoint.WRITE)}
    assert ("result", FilePoint.FIRST_WRITE) in {
        kill.moment[:2] for plan in make(seed=seed) for kill in plan.kills if isinstance(kill.moment, AtEvent)
    }
    late = [kill for kill in first if isinstance(kill.moment, AtTime)]
    assert {kill.kind for kill in late} >= {InterruptionKind.TERM, InterruptionKind.KILL}
    assert all(kill.moment.fraction > 0.5 for kill in late), "starting over has to show"


def test_a_kill_during_resume_follows_a_kill() -> None:
    plans = make(kinds=[InterruptionKind.KILL_DURING_RESUME], kills=2, trials=4)
    for plan in plans:
        assert [kill.kind for kill in plan.kills] == [InterruptionKind.KILL, InterruptionKind.KILL_DURING_RESUME]
        assert isinstance(plan.kills[1].moment, AtResume)


def test_two_writers_meet_where_files_are_replaced() -> None:
    plans = make(kinds=[InterruptionKind.FREEZE], trials=12)
    points = Counter(plan.kills[0].moment[1] for plan in plans if isinstance(plan.kills[0].moment, AtEvent))
    assert points[FilePoint.RENAME] >= 1
    assert points[FilePoint.OPEN] >= 1


def test_earlier_and_only() -> None:
    (plan,) = make(trials=1)
    sooner = plan.earlier(0.5)
    assert [kill.number for kill in sooner.kills] == [1, 2, 3]
    assert sooner.kills[0].moment.fraction == pytest.approx(plan.kills[0].moment.fraction / 2)
    assert [kill.number for kill in plan.only(frozenset({2})).kills] == [2]
    assert "term at" in str(plan.kills[0])


def test_a_slower_machine_moves_what_goes_by_the_clock_alone() -> None:
    plan = make()[0]
    slow = plan.stretched(2.0)
    for before, after in zip(plan.kills, slow.kills, strict=True):
        assert (before.number, before.kind) == (after.number, after.kind)
        if isinstance(before.moment, AtTime):
            assert after.moment == AtTime(2.0 * before.moment.fraction)
        else:
            assert after.moment == before.moment
    assert any(isinstance(kill.moment, AtTime) for kill in plan.kills)


@pytest.mark.parametrize("seed", range(8))
def test_resuming_is_interrupted_before_and_after_its_first_change_of_a_file(seed: int) -> None:
    def touches(profile: Profile) -> set[int]:
        moments = [kill.moment for plan in make(seed=seed, profile=profile) for kill in plan.kills]
        return {moment.touches for moment in moments if isinstance(moment, AtResume)}

    assert touches(PROFILE) == {0, 1}
    assert touches(PROFILE._replace(events={})) == {0}, "one that touches no file would never be met"


@pytest.mark.parametrize("seed", range(4))
def test_a_zombie_is_stopped_in_the_middle_of_its_records(seed: int) -> None:
    records = {
        ("o.jsonl", FilePoint.OPEN): 1,
        ("o.jsonl", FilePoint.FIRST_WRITE): 1,
        ("o.jsonl", FilePoint.LATER_WRITE): 29,
    }
    plans = make(
        seed=seed, profile=PROFILE._replace(events=records), kinds=(InterruptionKind.OVERLAP, InterruptionKind.FREEZE)
    )
    first = [plan.kills[0] for plan in plans]
    assert any(k.kind is InterruptionKind.FREEZE and k.moment[:2] == ("o.jsonl", FilePoint.LATER_WRITE) for k in first)
