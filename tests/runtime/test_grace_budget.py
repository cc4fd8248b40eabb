"""The budget and the board: never negative, never beyond the deadline, and only ever shorter."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stayfast.clock import ManualClock
from stayfast.model.notice import Cause, Notice
from stayfast.runtime.interruption.drain import DrainStep, run_drain
from stayfast.runtime.interruption.notice_board import GraceBudget, NoticeBoard, effective_deadline
from stayfast.runtime.runs.final_save import SaveKind, choose_save
from stayfast.settings import Settings, read_settings
from stayfast.telemetry.durations import Durations

seconds = st.floats(min_value=0, max_value=1e6, allow_nan=False)
graces = st.one_of(seconds, st.just(math.inf), st.floats(min_value=-100, max_value=0))


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    total = draw(seconds)
    return Settings(
        grace_seconds=draw(st.none() | seconds),
        termination_grace_seconds=draw(st.none() | seconds),
        shutdown_grace_seconds=total,
        shutdown_grace_critical_seconds=draw(st.floats(min_value=0, max_value=total)),
        margin_seconds=draw(st.floats(min_value=0, max_value=100)),
    )


notices = st.builds(
    lambda cause, grace, capped: (cause, grace, capped), st.sampled_from(list(Cause)), graces, st.booleans()
)
events = st.lists(st.one_of(st.floats(min_value=0, max_value=1000), notices, st.just("hurry")), max_size=30)


@given(settings(), events, st.lists(seconds, max_size=5))
def test_whatever_happens_the_budget_keeps_its_promises(chosen: Settings, story: list, wishes: list[float]) -> None:
    clock = ManualClock()
    board = NoticeBoard(chosen, clock)
    budget = GraceBudget(board)
    deadline = math.inf
    earliest = math.inf
    for event in story:
        if isinstance(event, float):
            clock.advance(event)
        elif event == "hurry":
            if board.notice is None:
                continue
            board.expire_now()
            earliest = min(earliest, clock.monotonic())
        else:
            cause, grace, capped = event
            notice = Notice(cause, clock.monotonic(), grace, capped=capped)
            earliest = min(earliest, effective_deadline(notice, chosen))
            board.post(notice)
        assert board.deadline <= deadline, "a deadline only ever comes closer"
        deadline = board.deadline
        assert deadline == earliest
        remaining = budget.remaining_seconds
        assert remaining >= 0
        if board.notice is None:
            assert remaining == math.inf
        else:
            assert clock.monotonic() + remaining <= max(deadline, clock.monotonic()) + 1e-6
            if board.notice.capped:
                assert deadline <= board.notice.received_at + chosen.window_seconds + 1e-6
        for wish in wishes:
            allotted = budget.allot(wish)
            assert 0 <= allotted <= min(wish, remaining)
            assert budget.fits(wish) == (wish <= remaining)


@given(settings(), graces)
def test_the_deadline_is_the_smallest_window_less_the_margin(chosen: Settings, grace: float) -> None:
    pool = chosen.shutdown_grace_seconds - chosen.shutdown_grace_critical_seconds
    caps = [cap for cap in (chosen.grace_seconds, chosen.termination_grace_seconds) if cap is not None]
    expected = max(0.0, min([pool, grace, *caps]) - chosen.margin_seconds)
    assert effective_deadline(Notice(Cause.UNKNOWN, 50.0, grace), chosen) == pytest.approx(50.0 + expected)


def test_gke_defaults_leave_14_seconds() -> None:
    board = NoticeBoard(read_settings({}), ManualClock())
    board.post(Notice(Cause.UNKNOWN, 1000.0, math.inf))
    assert GraceBudget(board).remaining_seconds == 14.0


def test_the_first_notice_wins_and_a_later_one_may_name_the_cause() -> None:
    clock = ManualClock()
    board = NoticeBoard(Settings(), clock)
    called = []
    board.on_notice(lambda: called.append("early"))
    board.post(Notice(Cause.UNKNOWN, clock.monotonic(), math.inf, "SIGTERM"))
    board.post(Notice(Cause.PREEMPTION, clock.monotonic(), math.inf, "metadata"))
    board.post(Notice(Cause.MAINTENANCE, clock.monotonic(), math.inf, "later still"))
    board.on_notice(lambda: called.append("late"))
    assert board.notice is not None
    assert board.notice.cause is Cause.PREEMPTION
    assert board.notice.detail == "SIGTERM"
    assert called == ["early", "late"]


def test_a_sigterm_after_the_lease_notice_shortens_the_deadline() -> None:
    clock = ManualClock()
    board = NoticeBoard(Settings(), clock)
    board.post(Notice(Cause.RUN_LIMIT, clock.monotonic(), 120.0, capped=False))
    assert GraceBudget(board).remaining_seconds == 119.0
    clock.advance(10)
    board.post(Notice(Cause.UNKNOWN, clock.monotonic(), math.inf, "SIGTERM"))
    assert GraceBudget(board).remaining_seconds == 14.0
    assert board.notice is not None
    assert board.notice.cause is Cause.RUN_LIMIT


@given(st.lists(st.floats(min_value=0, max_value=1e4), min_size=1, max_size=600))
def test_p95_is_a_measurement_among_the_newest_256(values: list[float]) -> None:
    durations = Durations()
    for value in values:
        durations.add("step", value)
    kept = sorted(values[-256:])
    p95 = durations.p95("step")
    assert p95 in kept
    assert sum(value <= p95 for value in kept) >= 0.95 * len(kept)
    assert durations.p95("flush") is None


def with_left(clock: ManualClock, left: float) -> GraceBudget:
    board = NoticeBoard(Settings(grace_seconds=left, margin_seconds=0.0), clock)
    board.post(Notice(Cause.UNKNOWN, clock.monotonic(), math.inf))
    return GraceBudget(board)


def test_the_drain_skips_what_does_not_fit_and_goes_on() -> None:
    clock = ManualClock()
    budget = with_left(clock, 10.0)
    done = []

    def takes(name: str, cost: float) -> DrainStep:
        return DrainStep(name, lambda: (clock.advance(cost), done.append(name)), cost)

    def fails() -> None:
        raise ValueError("broken pipe of mine")

    steps = [
        takes("upload", 4.0),
        takes("too long", 7.0),
        DrainStep("fails", fails),
        takes("flush", 5.9),
        takes("last", 0.2),
    ]
    results = run_drain(steps, budget, clock)
    assert [(result.name, result.outcome) for result in results] == [
        ("upload", "done"),
        ("too long", "skipped"),
        ("fails", "failed"),
        ("flush", "done"),
        ("last", "skipped"),
    ]
    assert results[1].detail == "needed 7.0 s, had 6.0 s"
    assert results[2].detail == "ValueError: broken pipe of mine"
    assert results[0].seconds == 4.0
    assert done == ["upload", "flush"]


@pytest.mark.parametrize(
    ("left", "full", "flight", "saving", "sentence"),
    [
        (14.6, 9.1, None, SaveKind.FULL, "needed 9.1 s, had 14.6 s: full save"),
        (14.6, None, None, SaveKind.FULL, "needed 0.0 s, had 14.6 s: full save"),
        (9.0, 5.0, 3.0, SaveKind.FULL, "needed 8.0 s, had 9.0 s: full save"),
        (4.0, 5.0, 3.0, SaveKind.SNAPSHOT, "needed 8.0 s, had 4.0 s: last snapshot"),
        (2.0, 5.0, 3.0, SaveKind.COMMITTED, "needed 8.0 s, had 2.0 s: last committed checkpoint"),
        (2.0, 5.0, None, SaveKind.COMMITTED, "needed 5.0 s, had 2.0 s: last committed checkpoint"),
    ],
)
def test_what_fits_is_chosen_and_said_in_numbers(
    left: float, full: float | None, flight: float | None, saving: SaveKind, sentence: str
) -> None:
    choice = choose_save(with_left(ManualClock(), left), full_seconds=full, in_flight_seconds=flight)
    assert choice.saving is saving
    assert str(choice) == sentence


@given(seconds, st.none() | seconds, st.none() | seconds)
def test_the_choice_is_the_best_that_fits(left: float, full: float | None, flight: float | None) -> None:
    choice = choose_save(with_left(ManualClock(), left), full_seconds=full, in_flight_seconds=flight)
    needed = (full or 0.0) + (flight or 0.0)
    if choice.saving is SaveKind.FULL:
        assert needed <= choice.had_seconds
    else:
        assert needed > choice.had_seconds
        assert (choice.saving is SaveKind.SNAPSHOT) == (flight is not None and flight <= choice.had_seconds)
