"""``stayfast.run`` in one process: the counter, the ends, and what is written down."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest

import stayfast
from stayfast.clock import SystemClock
from stayfast.errors import (
    AccessDeniedError,
    NoProgressError,
    RunError,
    StoreError,
    StoreUnavailableError,
    UrlError,
    UsageError,
)
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.checkpoint.policies import EverySteps
from stayfast.runtime.run_record.owner import RecordOwner
from stayfast.runtime.run_record.record import AttemptRecord, RunRecord, decode
from stayfast.runtime.runs import opening
from stayfast.settings import Settings
from stayfast.storage.stores.file import FileStore
from stayfast.storage.stores.memory import MemoryStore

WATCHED = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/run"


@pytest.fixture(autouse=True)
def _everything_is_put_back() -> Any:
    """Previous handlers, the wake-up descriptor and the guard's place are restored on every path."""
    before = [signal.getsignal(number) for number in WATCHED], signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before[1])
    yield
    after = [signal.getsignal(number) for number in WATCHED], signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(after[1])
    assert after == before
    from stayfast.runtime.interruption.guard import active_guard

    assert active_guard() is None


def head(url: str) -> RunRecord:
    return decode(Path(url.removeprefix("file://"), "HEAD.json").read_bytes())


def attempt(url: str | None, total: int | None = None, *, stop_at: int | None = None, **options: Any) -> list[int]:
    done = []
    with stayfast.run(url, total, **options) as run:
        for step in run.steps():
            done.append(step)
            if step == stop_at:
                run.interrupt("enough")
    return done


def test_a_run_counts_resumes_and_finishes(url: str) -> None:
    with pytest.raises(stayfast.Interrupted) as left:
        attempt(url, 10, stop_at=3)
    assert left.value.code == 75
    assert left.value.cause == "request"
    assert head(url).next_step == 4
    assert head(url).current_attempt.outcome is Outcome.INTERRUPTED
    assert attempt(url, 10) == [4, 5, 6, 7, 8, 9]
    assert head(url).finished
    assert head(url).attempt == 2
    assert [row.outcome for row in head(url).attempts] == [Outcome.INTERRUPTED, Outcome.FINISHED]


def test_a_finished_run_yields_nothing_and_a_larger_total_continues(url: str) -> None:
    assert attempt(url, 3) == [0, 1, 2]
    assert attempt(url, 3) == []
    assert head(url).finished
    assert attempt(url, 5) == [3, 4]
    assert attempt(url, 4) == []
    assert head(url).finished
    assert head(url).next_step == 5


def test_a_larger_total_that_is_interrupted_is_not_finished(url: str) -> None:
    attempt(url, 2)
    with pytest.raises(stayfast.Interrupted):
        attempt(url, 9, stop_at=4)
    assert not head(url).finished
    assert attempt(url, 9) == [5, 6, 7, 8]


def test_a_larger_total_that_fails_at_once_is_not_finished(url: str) -> None:
    """Nothing was committed since: the record must not go on saying that all is done."""
    attempt(url, 3)
    with pytest.raises(ZeroDivisionError), stayfast.run(url, 5) as run:
        for _ in run.steps():
            raise ZeroDivisionError
    assert not head(url).finished
    assert attempt(url, 5) == [3, 4]


def test_a_step_that_was_left_is_done_again_in_the_same_block(url: str) -> None:
    done = []
    with stayfast.run(url, 4) as run:
        for attempts in range(2):
            with contextlib.suppress(ZeroDivisionError):
                for step in run.steps():
                    if step == 2 and attempts == 0:
                        raise ZeroDivisionError
                    done.append(step)
    assert done == [0, 1, 2, 3]


def leave_at(url: str, step_to_leave: int, how: str, total: int | None = 10) -> list[int]:
    """Run until this step and leave the loop there in one of the ways that programs use."""
    done = []

    def loop(run: stayfast.Run) -> None:
        for step in run.steps():
            done.append(step)
            if step != step_to_leave:
                continue
            if how == "break":
                break
            if how == "return":
                return
            if how.startswith("exit"):
                raise SystemExit(int(how[4:]))
            run.finish(how)

    with stayfast.run(url, total) as run:
        loop(run)
    return done


@pytest.mark.parametrize(("how", "code"), [("break", None), ("return", None), ("exit0", 0), ("exit4", 4)])
def test_leaving_the_block_early_is_stopped_and_resumes(
    url: str, how: str, code: int | None, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    if code is None:
        leave_at(url, 3, how)
    else:
        with pytest.raises(SystemExit) as left:
            leave_at(url, 3, how)
        assert left.value.code == code
        assert not isinstance(left.value, stayfast.Interrupted)
    report = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert (report["outcome"], report["code"], report["saved"]) == ("stopped", code or 0, "step 3")
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "after step 3" in line
    assert "run.finish()" in line
    assert head(url).current_attempt.outcome is Outcome.STOPPED
    assert (head(url).finished, head(url).next_step, head(url).current_attempt.lost_seconds) == (False, 4, 0)
    assert attempt(url, 10) == [4, 5, 6, 7, 8, 9]
    assert head(url).finished


def test_finish_says_that_the_work_is_complete(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert leave_at(url, 3, "the loss no longer falls") == [0, 1, 2, 3], "the loop ends after this step"
    assert json.loads(capfd.readouterr().err.splitlines()[-1])["outcome"] == "finished"
    assert (head(url).finished, head(url).next_step) == (True, 4)
    assert attempt(url, 10) == []
    assert attempt(url, 12) == list(range(4, 12)), "a larger total continues a finished run"


def test_finish_stands_when_a_notice_comes_in_the_same_step(url: str) -> None:
    with stayfast.run(url, 10) as run:
        for step in run.steps():
            if step == 2:
                run.finish()
                run.interrupt()
    assert head(url).finished
    assert attempt(url, 10) == []


def test_a_run_that_finished_and_is_left_early_again_stays_finished(url: str) -> None:
    assert attempt(url, 2) == [0, 1]
    with stayfast.run(url, 2) as run:
        assert run.restore() == 2
    assert head(url).finished


def test_leaving_early_after_a_notice_is_an_interruption(url: str) -> None:
    with pytest.raises(stayfast.Interrupted), stayfast.run(url, 10) as run:
        for step in run.steps():
            if step == 2:
                run.interrupt()
                break
    assert (head(url).finished, head(url).next_step, head(url).current_attempt.outcome) == (
        False,
        3,
        Outcome.INTERRUPTED,
    )


def test_without_total_steps_the_end_of_the_block_is_the_end(url: str) -> None:
    assert leave_at(url, 2, "break", None) == [0, 1, 2]
    assert head(url).finished
    other = url + "-2"
    with pytest.raises(SystemExit):
        leave_at(other, 2, "exit0", None)
    assert head(other).finished
    third = url + "-3"
    with pytest.raises(SystemExit):
        leave_at(third, 2, "exit4", None)
    assert (head(third).finished, head(third).current_attempt.outcome) == (False, Outcome.FAILED)


@pytest.mark.parametrize(
    ("code", "total", "outcome"),
    [(0, 6, "stopped"), (0, None, "stopped"), (3, 6, "stopped"), (3, None, "failed"), (75, 6, "interrupted")],
)
def test_an_exit_in_a_signal_handler_cuts_the_step_short_and_is_not_saved_as_its_end(
    url: str, code: int, total: int | None, outcome: str
) -> None:
    done = [0.0]

    def loop(cut: int | None) -> None:
        with stayfast.run(url, total) as run:
            run.track(done=(lambda: list(done), lambda saved: done.__setitem__(slice(None), saved)))
            for step in run.steps():
                assert done == [step]
                done[0] += 0.5  # what is tracked is now the state of no boundary
                if step == cut:
                    signal.raise_signal(signal.SIGUSR1)
                done[0] += 0.5
                if step == 2:
                    run.save(now=True)
                if step == 5:
                    break

    previous = signal.signal(signal.SIGUSR1, lambda *_: sys.exit(code))
    try:
        with pytest.raises(SystemExit) as left:
            loop(cut=4)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert left.value.code == code
    assert (head(url).finished, head(url).next_step, head(url).current_attempt.outcome) == (False, 3, outcome)
    loop(cut=None)
    assert done == [6.0]


def test_sys_exit_75_means_interrupted(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left, stayfast.run(url, total_steps=9) as run:
        for _ in run.steps():
            raise SystemExit(75)
    assert left.value.code == 75
    assert not head(url).finished
    assert json.loads(capfd.readouterr().err.splitlines()[-1])["outcome"] == "interrupted"


@pytest.mark.parametrize("error", [ValueError("my bug"), KeyboardInterrupt()])
def test_an_exception_is_a_failure_that_is_written_down(
    url: str, error: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    drained = []
    with pytest.raises(type(error)), stayfast.run(url, total_steps=9) as run:
        run.on_drain(lambda: drained.append("released"))
        for step in run.steps():
            if step == 2:
                raise error
    assert drained == ["released"]
    assert head(url).current_attempt.outcome is Outcome.FAILED
    assert head(url).current_attempt.cause == type(error).__name__
    assert head(url).next_step == 0, "the step was cut short: nothing new is saved"
    report = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert report["outcome"] == "failed"
    assert report["code"] == 1
    assert type(error).__name__ in report["detail"]


def test_an_exception_in_a_drain_step_still_releases_and_reports(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    def breaks() -> None:
        raise OSError("no network any more")

    released = []
    with pytest.raises(stayfast.Interrupted), stayfast.run(url) as run:
        run.on_drain(breaks, name="upload")
        run.on_drain(lambda: released.append(1), name="release")
        for step in run.steps():
            run.interrupt()
    assert released == [1]
    report = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert [(step["name"], step["outcome"]) for step in report["drain"]] == [
        ("save", "done"),
        ("upload", "failed"),
        ("release", "done"),
    ]
    assert report["saved"] == "step 0"


def test_an_exception_of_the_program_after_a_notice_still_releases_and_reports(
    url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    released = []
    with pytest.raises(stayfast.Interrupted), stayfast.run(url) as run:
        run.on_drain(lambda: released.append(1))
        for _ in run.steps():
            run.interrupt()
            raise ValueError("late")
    assert released == [1]
    assert json.loads(capfd.readouterr().err.splitlines()[-1])["outcome"] == "interrupted"
    assert head(url).current_attempt.outcome is Outcome.INTERRUPTED
    assert head(url).checkpoints == (), "the step was cut short"


def test_save_now_returns_when_committed(url: str) -> None:
    with stayfast.run(url, total_steps=3) as run:
        for step in run.steps():
            run.save(now=True)
            assert head(url).newest is not None
            assert head(url).newest.step == step


def test_save_asks_for_a_checkpoint_at_the_end_of_the_step(url: str) -> None:
    with stayfast.run(url, total_steps=3) as run:
        for step in run.steps():
            if step == 0:
                run.save()
                assert head(url).newest is None
            elif step == 1:
                assert run._saver.wait(5)
                assert head(url).newest is not None
                assert head(url).newest.step == 0


def counted(url: str, *, stop_at: int, save_at: int | None = None) -> list[int]:
    """A run with state: how many steps it has done in all its lives."""
    state, done = {"steps": 0}, []
    with stayfast.run(url, 100) as run:
        run.track(state=(lambda: dict(state), state.update))
        for step in run.steps():
            assert state["steps"] == step
            state["steps"] += 1
            done.append(step)
            if step == save_at:
                run.save(now=True)
                assert run._opened.checkpointer is not None
                assert not run._opened.checkpointer.unfinished_folders, (
                    "it is listed: the next save may refer to it, and prune around it"
                )
            if step == stop_at:
                run.interrupt("enough")
    return done


def test_a_run_that_fell_back_keeps_what_it_does_again(url: str) -> None:
    """The newest checkpoint is damaged and the one before it is used: the steps between are not safe any more."""
    with pytest.raises(stayfast.Interrupted):
        counted(url, save_at=3, stop_at=7)
    assert [item.step for item in head(url).checkpoints] == [7, 3]
    for part in Path(url.removeprefix("file://")).glob("checkpoints/000000000007-*/part-*"):
        part.write_bytes(bytes(part.stat().st_size))
    with pytest.raises(stayfast.Interrupted):
        counted(url, stop_at=5)
    assert head(url).next_step == 6
    with pytest.raises(stayfast.Interrupted):
        counted(url, stop_at=6)
    assert (head(url).next_step, head(url).current_attempt.first_step) == (7, 6)


def test_only_so_many_checkpoints_are_kept_and_none_of_them_is_harmed(url: str) -> None:
    place = Path(url.removeprefix("file://"), "checkpoints")
    for stop in (3, 5, 7, 9):
        with pytest.raises(stayfast.Interrupted):
            counted(url, save_at=stop - 1, stop_at=stop)
    names = {item.name for item in head(url).checkpoints}
    assert len(names) == 2
    assert names <= {folder.name for folder in place.iterdir()}
    assert len(list(place.iterdir())) <= 3, "the last save of an attempt leaves pruning to the next"
    with pytest.raises(stayfast.Interrupted):
        counted(url, stop_at=10)


def test_the_cadence_counts_from_the_last_save(url: str) -> None:
    with stayfast.run(url, 20, cadence=EverySteps(5)) as run:
        for _ in run.steps():
            run._saver.wait()
    assert run._saver.loop_time.saves in (4, 5), "every fifth step, and the end"


def test_pruning_is_told_what_may_be_under_way(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of unknown outcome may list parts that the head we know does not."""
    from stayfast.runtime.checkpoint import cleanup

    spared: list[frozenset[str]] = []

    def spy(attempt: int | None, in_flight: Any = frozenset(), **options: Any) -> Any:
        spared.append(frozenset(in_flight))
        return collect(attempt, in_flight, **options)

    collect = cleanup.delete_unreferenced
    monkeypatch.setattr(cleanup, "delete_unreferenced", spy)
    monkeypatch.setattr(
        "stayfast.runtime.checkpoint.checkpointer.Checkpointer.unfinished_folders", frozenset({"checkpoints/unsure"})
    )
    with pytest.raises(stayfast.Interrupted), stayfast.run(url, 9) as run:
        run.track(state=(dict, lambda saved: None))
        for step in run.steps():
            if step == 3:
                run.save(now=True)
                run.interrupt("enough")
    assert set(spared) == {frozenset({"checkpoints/unsure"})}


def test_pruning_that_fails_fails_no_save(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_listing(self: FileStore, prefix: str = "") -> Any:
        raise StoreUnavailableError("the listing is down")

    monkeypatch.setattr(FileStore, "keys", no_listing)
    with pytest.raises(stayfast.Interrupted):
        counted(url, save_at=3, stop_at=4)
    assert [item.step for item in head(url).checkpoints] == [4, 3]


def test_an_attempt_that_was_overtaken_leaves_its_loop(url: str) -> None:
    """At the next look, and not at the end of all its work."""
    place = FileStore(url.removeprefix("file://"))
    with pytest.raises(stayfast.Interrupted) as left, stayfast.run(url, 10_000, cadence=EverySteps(3)) as run:
        for step in run.steps():
            if step == 2:
                RecordOwner(place, url, clock=SystemClock()).claim(AttemptRecord(0, "2026-11-16T10:00:00.000Z"))
                run.save()
            if step > 2:
                run._saver.wait()
            assert step < 8
    assert left.value.cause == "superseded"
    assert head(url).attempt == 2


def test_a_save_that_fails_because_the_run_was_taken_over_is_no_failure(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer attempt may have pruned what this one was writing: that must not look like a broken disk."""
    monkeypatch.setattr("stayfast.runtime.checkpoint.writer.FIRST_PAUSE_SECONDS", 0.001)
    place, put = FileStore(url.removeprefix("file://")), FileStore.put

    def vanishing(self: FileStore, key: str, *rest: Any, **options: Any) -> str:
        if key.startswith("checkpoints/"):
            raise StoreUnavailableError("its directory keeps disappearing")
        return put(self, key, *rest, **options)

    with (
        pytest.raises(stayfast.Interrupted) as left,
        stayfast.run(url, 10_000, cadence=EverySteps(3)) as run,
    ):
        run.track(state=(dict, lambda saved: None))
        for step in run.steps():
            if step == 2:
                RecordOwner(place, url, clock=SystemClock()).claim(AttemptRecord(0, "2026-11-16T10:00:00.000Z"))
                monkeypatch.setattr(FileStore, "put", vanishing)
                run.save()
            if step > 2:
                run._saver.wait()
            assert step < 8
    assert left.value.cause == "superseded"


def test_a_notice_that_comes_while_a_save_is_handed_over_is_seen_at_the_next_step(url: str) -> None:
    with pytest.raises(stayfast.Interrupted), stayfast.run(url, 10_000, cadence=EverySteps(10**6)) as run:
        look = run._saver.next_check

        def interrupted(step: int) -> tuple[float, float]:
            run.interrupt("just now")
            return look(step)

        for step in run.steps():
            if step == 1:
                run._saver.next_check = interrupted  # type: ignore[method-assign]
                run.save()
            assert step < 4
    assert head(url).next_step == 3


def test_a_save_that_is_asked_for_during_another_is_not_forgotten(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, put = threading.Event(), FileStore.put

    def slow(self: FileStore, key: str, *rest: Any, **options: Any) -> str:
        first.wait(20)
        return put(self, key, *rest, **options)

    committed = []
    with stayfast.run(url, 8, cadence=EverySteps(10**6)) as run:
        for step in run.steps():
            if step == 1:
                monkeypatch.setattr(FileStore, "put", slow)
            if step in (1, 2):
                run.save()
            if step == 3:
                first.set()
            if step >= 3:
                run._saver.wait()
                committed.append(run._opened.next_step)
    assert committed[-1] > 2, "only the end would have saved it"


@pytest.mark.parametrize("ending", ["exit", "error", "finish"])
def test_what_fails_after_the_steps_costs_no_step(url: str, ending: str) -> None:
    failure = ZeroDivisionError("the evaluation") if ending == "error" else SystemExit(3)
    state = [0]
    with pytest.raises(type(failure)), stayfast.run(url, total_steps=5) as run:
        run.track(state=(lambda: state, lambda saved: state.__setitem__(slice(None), saved)))
        for step in run.steps():
            state[0] += step
            if ending == "finish" and step == 2:
                run.finish("good enough")
        raise failure
    record, last = head(url), 2 if ending == "finish" else 4
    assert (record.next_step, record.finished, record.current_attempt.outcome) == (last + 1, False, Outcome.FAILED)
    state[0] = -1
    with stayfast.run(url, total_steps=last + 1) as run:
        run.track(state=(lambda: state, lambda saved: state.__setitem__(slice(None), saved)))
        assert list(run.steps()) == []
        assert state == [sum(range(last + 1))]
    assert head(url).finished


def test_a_save_before_the_first_step_is_refused_and_the_run_stays_whole(url: str) -> None:
    for attempt_number in range(2):
        with pytest.raises(RunError, match="cannot know which step"), stayfast.run(url, 3) as run:
            run.track(state=(dict, lambda saved: None))
            if attempt_number:
                run.restore()
            run.save(now=True)
        assert head(url).checkpoints == ()
    with stayfast.run(url, 3) as run:
        run.track(state=(dict, lambda saved: None))
        for step in run.steps():
            run.save(now=step == 1)
    with pytest.raises(RunError, match="cannot know which step"), stayfast.run(url, 5) as run:
        run.track(state=(dict, lambda saved: None))
        run.save(now=True)
    assert (head(url).next_step, head(url).finished) == (3, True)
    with stayfast.run(url, 5) as run:
        run.track(state=(dict, lambda saved: None))
        assert list(run.steps()) == [3, 4]


def test_a_state_that_cannot_be_read_does_not_hide_what_failed_after_the_steps(url: str) -> None:
    closed = []

    def state() -> dict[str, int]:
        if closed:
            raise ValueError("the state is closed")
        return {}

    with pytest.raises(ZeroDivisionError), stayfast.run(url, 2) as run:
        run.track(state=(state, lambda saved: None))
        list(run.steps())
        closed.append(True)
        raise ZeroDivisionError
    assert head(url).current_attempt.cause == "ZeroDivisionError"


def test_a_finished_run_may_save_behind_its_loop_again(url: str) -> None:
    for _ in range(2):
        with stayfast.run(url, 3) as run:
            run.track(state=(dict, lambda saved: None))
            list(run.steps())
            run.save(now=True)
        assert (head(url).next_step, head(url).finished) == (3, True)


def test_a_loop_that_never_says_its_step_is_refused_before_it_loses_work(url: str) -> None:
    with pytest.raises(RunError, match=r"should_stop\(\) without a step"), stayfast.run(url, 20) as run:
        run.track(state=(dict, lambda saved: None))
        for _step in range(run.restore(), 20):
            if run.should_stop():
                break
    with stayfast.run(url, 4) as run:
        run.track(state=(dict, lambda saved: None))
        for step in run.steps():
            assert not run.should_stop(), f"inside step {step} it may be asked"


def test_loops_we_do_not_own(url: str) -> None:
    with pytest.raises(stayfast.Interrupted), stayfast.run(url) as run:
        step = run.restore()
        while not run.should_stop(step):
            step += 1
            if step == 5:
                run.interrupt()
    assert head(url).next_step == 6
    with stayfast.run(url) as run:
        assert run.restore() == 6
        assert not run.should_stop()
    assert head(url).finished


def test_a_notice_before_the_first_step_of_a_foreign_loop_commits_nothing_odd(url: str) -> None:
    with pytest.raises(stayfast.Interrupted), stayfast.run(url) as run:
        run.interrupt()
        assert run.should_stop()
    assert head(url).checkpoints == ()
    assert head(url).current_attempt.outcome is Outcome.INTERRUPTED
    assert attempt(url, 2) == [0, 1]


def test_once_told_to_stop_the_end_of_the_block_is_no_finish(url: str) -> None:
    with pytest.raises(stayfast.Interrupted), stayfast.run(url, total_steps=5) as run:
        run.interrupt()
        for step in range(5):
            if run.should_stop(step):
                break
    assert not head(url).finished


def test_a_run_without_a_url_keeps_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert attempt(None, 3) == [0, 1, 2]
    assert attempt(None, 3) == [0, 1, 2]
    with pytest.raises(stayfast.Interrupted):
        attempt(None, 3, stop_at=1)
    report = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert report["saved"] == "nothing"
    assert report["attempt"] == 1


def test_two_runs_at_once_are_one_sentence_and_one_after_another_is_fine(url: str) -> None:
    with stayfast.run(url, total_steps=1) as run:
        sentence = r"a run is open already in this process \(file://.*\); end it before"
        with pytest.raises(RunError, match=sentence), stayfast.run(url + "-2"):
            pass
        with pytest.raises(RunError, match="already"):
            stayfast.guard().start()
        for _ in run.steps():
            pass
    assert not Path((url + "-2").removeprefix("file://")).exists()
    assert attempt(url + "-2", 1) == [0]


def test_a_run_is_of_no_use_outside_its_block(url: str) -> None:
    run = stayfast.run(url, total_steps=1)
    with pytest.raises(RunError, match="this run is not open; use it inside its `with` block"):
        run.restore()
    with run:
        pass
    with pytest.raises(RunError):
        next(iter(run.steps()))


@pytest.mark.parametrize("bad", ["no-scheme", "ftp://host/x", "file://host/path", "file:relative", "", "file:///x?y=1"])
def test_bad_urls_are_one_sentence(bad: str) -> None:
    with pytest.raises(UrlError) as caught, stayfast.run(bad):
        pass
    assert "\n" not in str(caught.value)
    assert ";" in str(caught.value)


def test_negative_total_steps() -> None:
    with pytest.raises(UsageError, match="total_steps=-1 is negative"):
        stayfast.run(total_steps=-1)


@pytest.mark.parametrize("total", [2.5, float("nan"), float("inf"), "7", [3]])
def test_total_steps_that_are_no_number_of_steps(total: Any) -> None:
    """NaN would end the run before its first step and call it finished."""
    with pytest.raises(UsageError, match=r"total_steps=.* is not a whole number; give the number of steps"):
        stayfast.run(total_steps=total)


def test_total_steps_as_people_write_them() -> None:
    with stayfast.run(total_steps=cast(int, 3e0)) as run:
        assert list(run.steps()) == [0, 1, 2]


def test_index_in_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"file://{tmp_path}/run-{{index}}"
    with pytest.raises(UrlError, match="JOB_COMPLETION_INDEX is not set"):
        stayfast.run(url)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "7")
    assert attempt(url, 1) == [0]
    assert (tmp_path / "run-7" / "HEAD.json").exists()


@pytest.mark.parametrize("name", ["with space", "per%cent", "ünï", "a'b\"c", "x" * 200, "--flag", "{braces}"])
def test_odd_characters_in_the_url(tmp_path: Path, name: str) -> None:
    from urllib.parse import quote

    url = f"file://{tmp_path}/{quote(name)}"
    assert attempt(url, 2) == [0, 1]
    assert (tmp_path / name / "HEAD.json").exists()


def test_an_unwritable_run_directory_is_one_sentence_and_nothing_is_left(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError) as caught, stayfast.run(f"file://{tmp_path}/file/run"):
        pass
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
    if os.geteuid() != 0:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        with pytest.raises(AccessDeniedError), stayfast.run(f"file://{closed}/run"):
            pass


def test_attempts_that_keep_failing_stop_the_run(url: str) -> None:
    def fails() -> None:
        with stayfast.run(url, total_steps=9) as run:
            for _ in run.steps():
                raise ValueError("always")

    for _ in range(5):
        with pytest.raises(ValueError, match="always"):
            fails()
    with pytest.raises(NoProgressError) as caught:
        fails()
    assert "the last 5 attempts of file://" in str(caught.value)
    assert "STAYFAST_MAX_STALLED_ATTEMPTS" in str(caught.value)
    with pytest.raises(NoProgressError):
        fails()
    assert attempt(url, 1, settings=Settings(max_stalled_attempts=99, metadata="off")) == [0]


def test_progress_in_between_resets_the_count(url: str) -> None:
    for number in range(12):
        with pytest.raises(ValueError, match="unlucky"), stayfast.run(url) as run:
            for _ in run.steps():
                if number % 4 == 3:
                    run.save(now=True)
                raise ValueError("unlucky")
    assert head(url).attempt == 12


class Slow(MemoryStore):
    """A store whose writes take as long as the test says."""

    pause = 0.0
    broken = False
    gate = threading.Event()

    def put(self, key: str, data: Any, *, if_generation: str | None = None) -> str:
        if self.broken:
            raise StoreUnavailableError("the bucket is gone")
        if self.pause:
            self.gate.wait(self.pause)
        return super().put(key, data, if_generation=if_generation)


@pytest.mark.parametrize(
    ("grace", "in_flight", "saving", "saved_step"),
    [
        (5.0, False, "full save", 3),
        (1.45, True, "last snapshot", 2),
        (1.2, False, "last committed checkpoint", 1),
    ],
)
def test_all_three_savings_end_to_end_in_numbers(
    grace: float,
    in_flight: bool,
    saving: str,
    saved_step: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A commit takes 0.3 s on this store; what the window still allows decides, and the log says it in numbers."""
    store = Slow(f"memory://three-{grace}")
    monkeypatch.setattr(opening, "open_store", lambda _url: store)
    settings = Settings(grace_seconds=grace, margin_seconds=1.0, metadata="off", checkpoint_seconds=1000.0)
    with (
        caplog.at_level(logging.WARNING, "stayfast"),
        pytest.raises(stayfast.Interrupted),
        stayfast.run("memory://three", settings=settings) as run,
    ):
        store.pause = 0.3
        for step in run.steps():
            if step == 1:
                run.save(now=True)
            if step == 2 and in_flight:
                run.save()
            if step == 3:
                run.interrupt(grace_seconds=grace)
    line = next(record.getMessage() for record in caplog.records if "needed" in record.getMessage())
    assert line.endswith(saving), line
    needed, had = (float(word.split()[0]) for word in line.removeprefix("drain: needed ").split(" s, had "))
    assert (needed <= had) == (saving == "full save")
    found = decode(store.get("HEAD.json").data)
    assert found.newest is not None
    assert found.newest.step == saved_step


def test_a_store_that_breaks_during_the_drain_leaves_the_last_checkpoint_and_75(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Slow("memory://breaks")
    monkeypatch.setattr(opening, "open_store", lambda _url: store)
    monkeypatch.setattr("stayfast.runtime.run_record.commit_protocol.FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("stayfast.runtime.run_record.commit_protocol.LONGEST_PAUSE_SECONDS", 0.001)
    with pytest.raises(stayfast.Interrupted), stayfast.run("memory://breaks") as run:
        for step in run.steps():
            if step == 1:
                run.save(now=True)
                store.broken = True
                run.interrupt()
    report = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert report["outcome"] == "interrupted"
    assert report["saved"] == "step 1"
    store.broken = False
    assert decode(store.get("HEAD.json").data).next_step == 2


def test_guard_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with stayfast.guard() as guard:
        assert not guard.should_stop()
        assert guard.notice is None
        assert guard.wait(0.001) is False
    drained = []
    with pytest.raises(stayfast.Interrupted), stayfast.guard() as guard:
        guard.on_drain(lambda: drained.append(guard.budget.remaining_seconds))
        guard.interrupt("by hand")
        assert guard.wait(1) is True
        assert guard.should_stop()
    assert 0 < drained[0] <= 14
    report = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert report["cause"] == "request"
    assert report["detail"] == "by hand"


def test_a_run_inside_a_guard_shares_its_notice(url: str) -> None:
    with pytest.raises(stayfast.Interrupted), stayfast.guard() as guard, stayfast.run(url) as run:
        for step in run.steps():
            if step == 2:
                guard.interrupt()
    assert head(url).next_step == 3


def test_notice_seen_but_work_finished_is_finished(url: str) -> None:
    """Nobody asked should_stop, and the last step was done: the truth is 0."""
    with stayfast.run(url, total_steps=2) as run:
        for step in run.steps():
            if step == 1:
                break
        run.interrupt()
    assert head(url).finished
