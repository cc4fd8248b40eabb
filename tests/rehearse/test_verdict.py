"""From facts to codes, without a process: what counts, what does not, and what a slow machine must not change."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from stayfast.proof.rehearse.confirmation import confirm_by_clock, shrink
from stayfast.proof.rehearse.differences import Difference
from stayfast.proof.rehearse.facts import AttemptObservation, BaselineObservation, TrialObservation, WriteCounts
from stayfast.proof.rehearse.lost_work import (
    may_be_slow_baseline,
    may_hide_lost_work,
    was_stalled,
    went_on_after_sigterm,
    with_control_run,
    with_idle_run,
)
from stayfast.proof.rehearse.schedule import AtEvent, AtTime, InterruptionKind, Kill, Profile, TrialPlan
from stayfast.proof.rehearse.trial import Trial, TrialSettings, _ReplacedAttempt, surroundings
from stayfast.proof.rehearse.verdict import (
    Reason,
    counted_failures,
    reasons_of,
    reasons_without_signal,
    reproduce,
)
from stayfast.proof.syscalls.events import FilePoint

BASELINE = BaselineObservation(
    seconds=10.0, cpu_seconds=0.2, write_calls=100, first_write_seconds=0.5, steady_writes=True
)
KILL = Kill(1, InterruptionKind.KILL, AtTime(0.7))
TERM = Kill(2, InterruptionKind.TERM, AtTime(0.7))


def attempt(number: int, seconds: float, code: int = 0, kill: Kill | None = None, **more: object) -> AttemptObservation:
    usual = {"ran_seconds": seconds, "write_calls": int(10 * seconds), "first_write_seconds": min(0.5, seconds)}
    return AttemptObservation(
        number, 0.0, seconds, code=code, kill=kill, **{**usual, "delivered": kill is not None, **more}
    )


def trial(*attempts: AttemptObservation, finished: bool = True, **more: object) -> TrialObservation:
    kills = tuple(fact.kill for fact in attempts if fact.kill is not None)
    return TrialObservation(TrialPlan(1, kills), attempts, 20.0, finished, **more)


def codes(fact: TrialObservation, baseline: BaselineObservation = BASELINE) -> list[str]:
    return [reason.code for reason in reasons_of(baseline, fact)]


def test_resuming_is_surviving() -> None:
    assert codes(trial(attempt(1, 7.0, 137, KILL), attempt(2, 4.0))) == []
    assert codes(trial(attempt(1, 7.0, 75, TERM), attempt(2, 3.0))) == []


def test_starting_over_is_no_progress() -> None:
    assert codes(trial(attempt(1, 7.0, 137, KILL), attempt(2, 10.0))) == ["no-progress"]


def test_who_does_all_its_work_after_the_signal_is_asked_again_whatever_it_says() -> None:
    assert went_on_after_sigterm(BASELINE, trial(attempt(1, 9.8, 0, TERM, ran_seconds=7.0))) == TERM
    assert went_on_after_sigterm(BASELINE, trial(attempt(1, 9.8, 75, TERM, ran_seconds=7.0), attempt(2, 0.5))) == TERM
    assert went_on_after_sigterm(BASELINE, trial(attempt(1, 7.2, 75, TERM, ran_seconds=7.0), attempt(2, 3.0))) is None
    assert went_on_after_sigterm(BASELINE, trial(attempt(1, 9.8, 137, KILL), attempt(2, 0.5))) is None


def test_after_one_that_never_ended_the_others_get_less_time() -> None:
    nothing = dict.fromkeys(TrialSettings._fields, None)
    setting = TrialSettings(
        **{**nothing, "command": ["true"], "environment": {}, "base": "/b", "hung": threading.Event()}
    )  # type: ignore[arg-type]
    setting = setting._replace(grace_seconds=5.0)
    profile = Profile(seconds=2.0, first_write_seconds=0.1, handler_seconds=None, events={})
    assert surroundings(setting, "trial", profile, 1, disk=None).limit_seconds == 40.0
    setting.hung.set()
    assert surroundings(setting, "trial", profile, 1, disk=None).limit_seconds == 16.0
    assert surroundings(setting, "trial", None, 1, disk=None).limit_seconds > 3600.0, "a baseline may take its time"


def test_starting_over_after_little_work_is_fine() -> None:
    assert codes(trial(attempt(1, 3.0, 137, KILL), attempt(2, 10.0))) == []


def test_a_slow_machine_is_not_lost_work() -> None:
    slow = attempt(2, 12.0, write_calls=40)  # it had 40 of 100 writes left, and took its time
    assert codes(trial(attempt(1, 7.0, 137, KILL), slow)) == []
    startup = attempt(1, 7.0, 137, KILL, write_calls=2)  # most of its seven seconds went into getting ready
    assert codes(trial(startup, attempt(2, 10.0))) == []


def test_without_writes_the_clock_decides() -> None:
    silent = BASELINE._replace(write_calls=1, steady_writes=False)
    first = attempt(1, 7.0, 137, KILL, write_calls=0)
    assert codes(trial(first, attempt(2, 9.5, write_calls=1)), silent) == ["no-progress"]
    assert codes(trial(first, attempt(2, 8.5, write_calls=1)), silent) == []


def test_files_tell_more_than_calls() -> None:
    wrapped = BASELINE._replace(write_calls=12, opens=12, steady_writes=False, steady_opens=True)
    first = attempt(1, 7.0, 137, KILL, write_calls=11, opens=8)  # most of the calls are the wrapper's own
    assert codes(trial(first, attempt(2, 16.0, write_calls=12, opens=4)), wrapped) == []
    assert codes(trial(first, attempt(2, 10.0, write_calls=12, opens=12)), wrapped) == ["no-progress"]
    assert codes(trial(first._replace(opens=1), attempt(2, 10.0, write_calls=12, opens=12)), wrapped) == []


def test_what_an_old_attempt_does_beside_its_replacement_was_not_lost() -> None:
    frozen = attempt(1, 12.0, 0, Kill(3, InterruptionKind.FREEZE, AtTime(0.02)), ran_seconds=0.2, write_calls=90)
    assert codes(trial(frozen, attempt(2, 10.0))) == []
    late = frozen._replace(ran_seconds=7.0)
    assert codes(trial(late, attempt(2, 10.0))) == ["no-progress"]
    slow_start = late._replace(write_calls=3)
    assert codes(trial(slow_start, attempt(2, 10.0))) == []


def test_one_family_that_was_not_written_again_is_progress() -> None:
    key, other = ("state", FilePoint.RENAME), ("bucket/#", FilePoint.OPEN)
    kept = BASELINE._replace(families={key: 10, other: 4})
    first = attempt(1, 7.0, 137, KILL)
    assert codes(trial(first, attempt(2, 10.0, families={key: 4, other: 9})), kept) == []
    assert codes(trial(first, attempt(2, 10.0, families={key: 10, other: 9})), kept) == ["no-progress"]


def test_small_gains_between_kills_are_worth_a_second_look() -> None:
    steady = BASELINE._replace(opens=10, steady_opens=True)
    lost = trial(attempt(1, 7.0, 137, KILL, opens=7), attempt(2, 1.0, 75, TERM, opens=2), attempt(3, 8.0, opens=8))
    assert codes(lost, steady) == []
    assert may_hide_lost_work(steady, lost)
    kept = trial(attempt(1, 7.0, 137, KILL, opens=7), attempt(2, 1.0, 75, TERM, opens=2), attempt(3, 3.0, opens=3))
    assert not may_hide_lost_work(steady, kept)
    assert not may_hide_lost_work(steady, trial(attempt(1, 7.0, 137, KILL, opens=7), attempt(2, 9.0, opens=9)))


def test_a_busy_program_is_judged_by_its_own_time() -> None:
    busy = BASELINE._replace(write_calls=0, steady_writes=False, cpu_seconds=9.0)
    first = attempt(1, 7.0, 137, KILL, write_calls=0, cpu_seconds=6.0)
    assert codes(trial(first, attempt(2, 11.0, write_calls=0, cpu_seconds=3.0)), busy) == []
    assert codes(trial(first, attempt(2, 8.0, write_calls=0, cpu_seconds=8.9)), busy) == ["no-progress"]


def test_a_program_of_half_a_second_has_nothing_to_keep() -> None:
    short = BASELINE._replace(seconds=0.3, write_calls=1)
    assert codes(trial(attempt(1, 0.25, 137, KILL), attempt(2, 0.3)), short) == []


def test_needing_sigkill_is_an_overrun() -> None:
    fact = trial(attempt(1, 9.0, 137, TERM, overran=True, noticed=False), attempt(2, 4.0))
    (reason,) = reasons_of(BASELINE, fact)
    assert reason.code == "grace-overrun"
    assert reason.kills == (TERM,)
    assert "neither handles nor waits for SIGTERM" in reason.detail


def test_a_zombie_that_outlives_its_grace_is_not_to_blame() -> None:
    frozen = Kill(3, InterruptionKind.FREEZE, AtTime(0.5))
    assert codes(trial(attempt(1, 9.0, 137, frozen, overran=True), attempt(2, 4.0))) == []


def test_zero_before_the_end() -> None:
    missing = (Difference("result-differs", "out", "is missing"),)
    fact = trial(attempt(1, 7.0, 0, TERM), finished=False, unfinished_zero=missing)
    (reason,) = reasons_of(BASELINE, fact)
    assert reason.code == "exit-zero-unfinished"
    assert "out is missing" in reason.detail


@pytest.mark.parametrize("code", ["result-differs", "duplicate-records", "missing-records"])
def test_results_keep_their_code(code: str) -> None:
    difference = (Difference(code, "out", "differs"),)
    assert codes(trial(attempt(1, 7.0, 137, KILL), attempt(2, 4.0), differences=difference)) == [code]


def test_with_two_writers_the_old_one_is_named() -> None:
    freeze = Kill(3, InterruptionKind.FREEZE, AtTime(0.5))
    pair = (attempt(1, 9.0, 0, freeze), attempt(2, 4.0))
    difference = (Difference("duplicate-records", "out", "2 too many"),)
    assert codes(trial(*pair, differences=difference, wrote_after_replaced=True)) == ["stale-writer"]
    assert codes(trial(*pair, differences=difference)) == ["duplicate-records"], "the old one wrote nothing more"
    assert codes(trial(*pair, overwrote=("state",))) == ["stale-writer"]
    assert codes(trial(attempt(1, 7.0, 137, KILL), attempt(2, 4.0), overwrote=("state",))) == []


def test_giving_up() -> None:
    crash = trial(attempt(1, 7.0, 137, KILL), attempt(2, 0.1, 1), finished=False, gave_up="left with 1: boom")
    assert codes(crash) == ["resume-crash"]
    hang = trial(attempt(1, 7.0, 137, KILL), attempt(2, 80.0, 137, timed_out=True), finished=False, gave_up="80 s")
    assert codes(hang) == ["no-progress"]
    loop = trial(attempt(1, 7.0, 137, KILL), attempt(2, 1.0, 75), finished=False, gave_up="5 times")
    assert codes(loop) == ["no-progress"]


def test_a_crash_over_what_two_have_written_is_the_old_ones_doing() -> None:
    zombie = Kill(3, InterruptionKind.FREEZE, AtTime(0.7))
    crash = trial(attempt(1, 7.0, 137, zombie), attempt(2, 0.1, 1), finished=False, gave_up="left with 1: torn")
    assert codes(crash) == ["resume-crash"]
    assert codes(crash._replace(wrote_after_replaced=True)) == ["stale-writer"]
    alone = trial(attempt(1, 7.0, 137, KILL), attempt(2, 0.1, 1), finished=False, gave_up="left with 1: torn")
    assert codes(alone._replace(wrote_after_replaced=True)) == ["resume-crash"]


def test_what_the_old_one_replaces_counts_although_its_replacement_writes_it_again() -> None:
    """A lease is renewed all the time: by the next look the replacement has written it once more."""
    watched = SimpleNamespace(replaced={"lease": 1.0}, overwrote={"lease": 1.0}, last_event_at=0.0)
    old = _ReplacedAttempt(SimpleNamespace(watcher=watched, moment=SimpleNamespace(held_path="lease")))  # type: ignore[arg-type]
    new = SimpleNamespace(watcher=SimpleNamespace(replaced={"lease": 5.0}))
    judged = Trial.__new__(Trial)
    judged._overwrote, judged._wrote_after = [], False
    judged._evidence(old, new)  # type: ignore[arg-type]
    assert judged._overwrote == []
    watched.overwrote["lease"] = 6.0
    new.watcher.replaced["lease"] = 7.0
    judged._evidence(old, new)  # type: ignore[arg-type]
    assert judged._overwrote == ["lease"]


def test_how_to_see_it_again() -> None:
    reason = Reason("resume-crash", (KILL, TERM), 1, "")
    line = reproduce(reason, seed=7, options=["--grace", "2"], command=["python", "a b.py"])
    assert line == "stayfast rehearse --seed 7 --only-kill 1,2 --grace 2 -- python 'a b.py'"


PLAN = TrialPlan(
    4,
    (
        Kill(10, InterruptionKind.KILL, AtTime(0.7)),
        Kill(11, InterruptionKind.TERM, AtTime(0.1)),
        Kill(12, InterruptionKind.KILL, AtTime(0.1)),
    ),
)


class Runs:
    """Trials in which these kills together show this code."""

    def __init__(self, code: str, *needed: int) -> None:
        self.code, self.needed, self.asked = code, set(needed), []

    def __call__(self, plan: TrialPlan, label: str) -> list[Reason]:
        numbers = [kill.number for kill in plan.kills]
        self.asked.append(numbers)
        return [Reason(self.code, plan.kills, 4, "")] if self.needed <= set(numbers) else []


@pytest.mark.parametrize("needed", [(10,), (12,), (10, 12), (10, 11, 12)])
def test_the_smallest_schedule_is_found(needed: tuple[int, ...]) -> None:
    reason = Reason("resume-crash", PLAN.kills, 4, "")
    runs = Runs("resume-crash", *needed)
    (found,) = shrink(reason, PLAN, runs)
    assert tuple(kill.number for kill in found.kills) == needed
    assert [10, 11, 12] not in runs.asked, "what is known need not be run again"


def test_a_reason_by_the_clock_has_to_show_again() -> None:
    reason = Reason("no-progress", PLAN.kills, 4, "")
    assert shrink(reason, PLAN, Runs("no-progress", 99)) == []
    (found,) = shrink(reason, PLAN, Runs("no-progress", 10, 11, 12))
    assert found.numbers == "10,11,12"
    alone = Reason("no-progress", PLAN.kills[:1], 4, "")
    never = Runs("no-progress", 99)
    assert shrink(alone, PLAN, never) == []
    assert never.asked == [[10]] * 3, "one slow moment is not enough to forget it"


def test_of_several_trials_the_one_that_can_be_repeated_is_asked_first_and_another_after_it() -> None:
    by_time = (Reason("no-progress", PLAN.kills, 4, ""), PLAN)
    kills = (
        Kill(1, InterruptionKind.KILL, AtEvent("ck", FilePoint.RENAME, 3)),
        Kill(2, InterruptionKind.KILL, AtEvent("ck", FilePoint.RENAME, 1)),
    )
    aimed = (Reason("no-progress", kills, 1, ""), TrialPlan(1, kills))
    runs = Runs("no-progress", 2)
    (found,) = confirm_by_clock([by_time, aimed], runs)
    assert found.numbers == "2"
    assert runs.asked == [[1], [2]]
    (found,) = confirm_by_clock([by_time, aimed], Runs("no-progress", 10))
    assert found.numbers == "10"
    assert confirm_by_clock([by_time, aimed], Runs("no-progress", 99)) == []


def test_a_busy_machine_is_told_from_lost_work_by_a_run_beside_it() -> None:
    start_up = BASELINE._replace(write_calls=1, steady_writes=False)
    suspect = trial(attempt(1, 7.0, 137, KILL, write_calls=0), attempt(2, 9.5, write_calls=1))
    assert codes(suspect, start_up) == ["no-progress"]
    busy = trial(attempt(1, 20.0, write_calls=1))
    assert codes(suspect, with_control_run(start_up, busy)) == []
    quiet = trial(attempt(1, 9.0, write_calls=1))
    assert codes(suspect, with_control_run(start_up, quiet)) == ["no-progress"]
    key = ("state", FilePoint.RENAME)
    counted = BASELINE._replace(families={key: 10})
    assert with_control_run(counted, trial(attempt(1, 9.0, families={key: 9}))).families == {}


def test_where_files_recur_the_clock_matters_little() -> None:
    key = ("state", FilePoint.RENAME)
    recurring = BASELINE._replace(families={key: 10})
    first, last = attempt(1, 7.0, 137, KILL), attempt(2, 6.5, write_calls=100, families={key: 10})
    assert codes(trial(first, last), recurring) == ["no-progress"], "everything again, on a machine that came to rest"
    assert codes(trial(first, last._replace(seconds=5.0)), recurring) == [], "it only rewrote what it had"
    assert codes(trial(first, last)) == [], "writes alone may be those of every start"


def test_every_attempt_pays_for_its_start() -> None:
    slow = BASELINE._replace(first_write_seconds=6.0, steady_writes=False)  # four seconds of work behind a long start
    first, again = attempt(1, 9.0, 137, KILL), {"write_calls": 100, "first_write_seconds": 6.0}
    assert codes(trial(first, attempt(2, 8.0, **again)), slow) == [], "half of the work, with as many writes"
    assert codes(trial(first, attempt(2, 9.5, **again)), slow) == ["no-progress"]
    late = {**again, "first_write_seconds": 9.0}
    early = BASELINE._replace(steady_writes=False)
    assert codes(trial(first, attempt(2, 9.5, **late)), early) == ["no-progress"], "its folder was there already"


def test_zero_in_a_later_attempt_may_have_another_cause() -> None:
    reason = Reason("exit-zero-unfinished", PLAN.kills[1:2], 4, "")
    (found,) = shrink(reason, PLAN, Runs("result-differs", 10))
    assert found.code == "result-differs"
    (found,) = shrink(reason, PLAN, Runs("exit-zero-unfinished", 11))
    assert found.numbers == "11"
    rows = (Difference("result-differs", "result.txt", "differs first at byte 0"),)
    fact = trial(attempt(1, 7.0, 137, KILL), attempt(2, 3.0, 0, TERM), finished=False, unfinished_zero=rows)
    (found,) = shrink(reason, PLAN, Runs("", 99), instead=reasons_without_signal(fact))
    assert (found.code, found.kills) == ("result-differs", (KILL, TERM)), "it left with 0 because it was done"
    missing = fact._replace(unfinished_zero=(Difference("result-differs", "result.txt", "is missing"),))
    assert shrink(reason, PLAN, Runs("", 99), instead=reasons_without_signal(missing)) == [reason]


def test_a_code_that_counts_as_a_failure_is_told() -> None:
    leaves_one = trial(attempt(1, 7.0, 1, TERM, noticed=True), attempt(2, 3.0))
    assert codes(leaves_one) == []
    told = counted_failures([leaves_one], 6)
    assert "after SIGTERM it leaves with 1," in told
    assert "more than 6 interruptions end it" in told
    right = [attempt(1, 7.0, 75, TERM, noticed=True), attempt(2, 3.0, 143, TERM, noticed=True), attempt(3, 2.0)]
    assert counted_failures([trial(*right)], 6) == ""
    crashed = trial(attempt(1, 7.0, 137, KILL), attempt(2, 3.0, 1), attempt(3, 2.0))
    assert counted_failures([crashed], 6) == ""


def test_files_of_a_queue_are_not_work() -> None:
    """It was killed while it filled its queue: half of all files in a moment, and nothing that could be kept."""
    queue = BASELINE._replace(opens=80, steady_opens=True)
    filling = attempt(1, 0.3, 137, KILL, opens=45)
    assert codes(trial(filling, attempt(2, 10.0, opens=80)), queue) == []
    working = attempt(1, 6.0, 137, KILL, opens=60)
    assert codes(trial(working, attempt(2, 10.0, opens=80)), queue) == ["no-progress"]


def test_shards_that_are_kept_do_not_hide_that_checkpoints_are_never_read() -> None:
    shards, checkpoints = ("shard-#", FilePoint.OPEN), ("ck", FilePoint.RENAME)
    sharded = BASELINE._replace(
        opens=26, steady_opens=True, families={checkpoints: 10}, prepared={shards: 16}, prepared_calls=80
    )
    killed = attempt(1, 7.0, 137, KILL, opens=23, write_calls=94, families={shards: 16, checkpoints: 7})
    again = attempt(2, 9.7, opens=10, write_calls=20, families={checkpoints: 10})
    assert codes(trial(killed, again), sharded) == ["no-progress"]
    assert codes(trial(killed, again), sharded._replace(prepared={})) == []
    resumed = attempt(2, 4.0, opens=3, write_calls=6, families={checkpoints: 3})
    assert codes(trial(killed, resumed), sharded) == []


def test_a_very_slow_baseline_is_measured_again_where_all_that_counts_was_done_again() -> None:
    """It took 10 s on a busy machine, an attempt that starts over 5 s on a quiet one."""
    killed = attempt(1, 5.0, 137, KILL, write_calls=80)
    again = trial(killed, attempt(2, 5.0, write_calls=100))
    assert codes(again) == []
    assert may_be_slow_baseline(BASELINE, again)
    assert not may_be_slow_baseline(BASELINE, trial(killed, attempt(2, 5.0, write_calls=30)))
    short = BASELINE._replace(seconds=0.4, first_write_seconds=0.1)
    assert not may_be_slow_baseline(short, trial(killed, attempt(2, 0.4, write_calls=100))), "too short to be judged"


def test_a_slow_start_is_no_work() -> None:
    """It was killed as it began to write, after a start three times as long as the baseline's."""
    silent = BASELINE._replace(write_calls=1, steady_writes=False, first_write_seconds=2.0)
    late = attempt(1, 6.0, 137, KILL, first_write_seconds=6.0)
    assert codes(trial(late, attempt(2, 10.0, write_calls=1)), silent) == []
    asleep = attempt(1, 6.0, 137, KILL, first_write_seconds=None)
    assert codes(trial(asleep, attempt(2, 10.0, write_calls=1)), silent) == []
    working = attempt(1, 6.0, 137, KILL, first_write_seconds=2.0)
    assert codes(trial(working, attempt(2, 10.0, write_calls=1)), silent) == ["no-progress"]


def test_a_machine_that_stood_still_during_the_baseline_is_found_out() -> None:
    """It took 30 s where trials take 11 s for all of the work, their restarts included."""
    stalled = BASELINE._replace(seconds=30.0)
    kept = trial(attempt(1, 7.0, 137, KILL), attempt(2, 4.5))
    assert was_stalled(stalled, [kept])
    assert not was_stalled(BASELINE, [kept])
    assert was_stalled(stalled, [trial(attempt(1, 10.0))]), "its moments came after the end"
    assert was_stalled(stalled, [trial(attempt(1, 25.0, 137, KILL, waited_seconds=20.0), attempt(2, 6.0))])
    skipped = trial(attempt(1, 7.0, 137, KILL), attempt(2, 0.5), differences=(Difference("result-differs", "r", "x"),))
    assert not was_stalled(stalled, [skipped, kept._replace(finished=False)]), "they have not done all"


def test_other_load_is_no_work() -> None:
    """The last attempt found nearly all done, and stood in line for a core for most of its time."""
    silent = BASELINE._replace(write_calls=1, steady_writes=False)
    killed = attempt(1, 7.0, 137, KILL)
    assert codes(trial(killed, attempt(2, 10.0, write_calls=1, waited_seconds=5.0)), silent) == []
    assert codes(trial(killed, attempt(2, 19.0, write_calls=1, waited_seconds=9.0)), silent) == ["no-progress"]
    waited = attempt(1, 7.0, 137, KILL, waited_seconds=3.0)
    assert codes(trial(waited, attempt(2, 10.0, write_calls=1)), silent) == [], "it had worked for four seconds"
    busy = trial(attempt(1, 18.0, write_calls=1, waited_seconds=9.0))
    assert with_control_run(silent, busy).seconds == 9.0
    assert with_idle_run(silent, trial(attempt(1, 9.0, write_calls=0, waited_seconds=6.75))).idle.seconds == 2.25  # type: ignore[union-attr]
    told = attempt(1, 12.0, 75, TERM, ran_seconds=6.0, waited_seconds=9.0, first_write_seconds=4.0)
    own = told.on_its_own_clock()
    assert (own.seconds, own.ran_seconds, own.first_write_seconds) == (3.0, 1.5, 1.0)
    assert own.on_its_own_clock() == own


def test_where_nothing_but_time_tells_it_most_of_several_runs_have_to() -> None:
    silent = BASELINE._replace(write_calls=1, steady_writes=False)
    lost = trial(attempt(1, 7.0, 137, KILL), attempt(2, 9.5, write_calls=1))
    (reason,) = reasons_of(silent, lost)
    assert reason.by_time
    assert reasons_of(silent._replace(cpu_seconds=9.0), trial(*(x._replace(cpu_seconds=9.0) for x in lost.attempts)))[
        0
    ].by_time
    (counted,) = reasons_of(BASELINE, trial(attempt(1, 7.0, 137, KILL), attempt(2, 9.5)))
    assert not counted.by_time
    plan = TrialPlan(1, (KILL,))
    for answers, told in (("YYY", True), ("YYNY", True), ("YNYY", True), ("YNNYNNYNN", False), ("NYNNNYYY", False)):
        left = [*answers, *("N" * 9)]
        found = shrink(reason, plan, lambda *_: [reason] if left.pop(0) == "Y" else [])
        assert bool(found) == told, answers
    assert shrink(counted, plan, lambda *_: [counted]) == [counted]


def test_a_slow_baseline_is_measured_again_where_nothing_can_be_counted() -> None:
    """It took 10 s, an attempt that starts over 8.6 s, and an uninterrupted run beside that one 8.5 s."""
    silent = BASELINE._replace(write_calls=1, steady_writes=False)
    again = trial(attempt(1, 7.0, 137, KILL), attempt(2, 8.6, write_calls=1))
    assert codes(again, silent) == []
    assert may_be_slow_baseline(silent, again)
    now = with_control_run(silent, trial(attempt(1, 8.5, write_calls=1)))
    assert codes(again, now) == ["no-progress"]
    resumed = trial(attempt(1, 7.0, 137, KILL), attempt(2, 4.0, write_calls=1))
    assert not may_be_slow_baseline(silent, resumed)
    assert not may_be_slow_baseline(BASELINE, again), "what can be counted was not done again"
    assert with_control_run(BASELINE, trial(attempt(1, 8.5))).seconds == BASELINE.seconds


def test_a_start_that_finds_everything_done_is_no_work() -> None:
    """Eight of ten seconds are its start, in processor time too: a last attempt of 8.5 s has kept nearly everything."""
    slow = BASELINE._replace(cpu_seconds=9.0, write_calls=30, opens=4, steady_writes=False, late=WriteCounts(4, 30))
    kept = trial(attempt(1, 9.0, 137, KILL), attempt(2, 9.2, cpu_seconds=8.4, write_calls=12, opens=3))
    assert codes(kept, slow) == ["no-progress"], "what the clock alone would say"
    idle = trial(attempt(1, 8.0, cpu_seconds=8.0, write_calls=10, opens=3, late=WriteCounts(3, 10)))
    assert codes(kept, with_idle_run(slow, idle)) == []
    lost = trial(attempt(1, 9.0, 137, KILL), attempt(2, 10.0, cpu_seconds=9.0, write_calls=30, opens=4))
    assert codes(lost, with_idle_run(slow, idle)) == [], "a fifth of the time is too little to be measured by a clock"
    counted = with_idle_run(slow._replace(steady_writes=True), idle)
    assert codes(lost, counted) == ["no-progress"], "but what it wrote can be counted"
    assert codes(kept, counted) == []


def test_a_queue_that_is_filled_is_no_work_that_is_done() -> None:
    """Half of its files are there once the queue is full, and a busy machine has taken half of the time for that."""
    queue = BASELINE._replace(steady_opens=True, opens=62, families={("busy/#", FilePoint.RENAME): 30})
    filled = attempt(1, 5.0, 137, KILL, opens=31)
    last = attempt(2, 11.0, opens=62, families={("busy/#", FilePoint.RENAME): 30})
    assert codes(trial(filled, last), queue) == []
    worked = filled._replace(opens=50, families={("busy/#", FilePoint.RENAME): 19})
    assert codes(trial(worked, last), queue) == ["no-progress"]


def test_what_is_prepared_once_hides_nothing() -> None:
    """Its preparation is kept, all the rest is done again, in a finished directory too."""
    prepared = BASELINE._replace(write_calls=2, opens=4, steady_writes=False, late=WriteCounts(2, 1))
    idle = trial(attempt(1, 9.9, write_calls=1, opens=2, late=WriteCounts(2, 1)))
    assert with_idle_run(prepared, idle).idle is None
    lost = trial(attempt(1, 7.0, 137, KILL), attempt(2, 9.9, write_calls=1, opens=2))
    assert codes(lost, with_idle_run(prepared, idle)) == ["no-progress"]
    checkpoint = prepared._replace(late=WriteCounts(4, 2))
    assert codes(lost, with_idle_run(checkpoint, idle)) == [], "what it saves comes late: all before it is its start"


def test_half_of_the_work_has_to_be_done_and_not_half_of_the_start() -> None:
    idle = trial(attempt(1, 5.0, cpu_seconds=0.1, write_calls=0))
    known = with_idle_run(BASELINE._replace(write_calls=1, steady_writes=False, late=WriteCounts(0, 1)), idle)
    again = attempt(2, 10.0, write_calls=1)
    assert codes(trial(attempt(1, 7.0, 137, KILL), again), known) == [], "two of five seconds"
    assert codes(trial(attempt(1, 8.0, 137, KILL), again), known) == ["no-progress"], "three of five"
    resumed = attempt(2, 9.2, write_calls=1)
    assert codes(trial(attempt(1, 8.0, 137, KILL), resumed), known) == [], "a fifth of the work was kept"


@pytest.mark.parametrize("more", [{"write_calls": 95, "opens": 10}, {"write_calls": 5, "opens": 1, "code": 1}])
def test_who_starts_over_in_a_finished_directory_too_tells_nothing(more: dict[str, int]) -> None:
    counted = BASELINE._replace(opens=10)
    assert with_idle_run(counted, trial(attempt(1, 9.0, **more))).idle is None


def test_who_writes_as_much_but_is_done_much_sooner_has_seen_that_all_is_done() -> None:
    soon = attempt(1, 6.0, write_calls=100, opens=10)
    steady = BASELINE._replace(opens=10)
    assert with_idle_run(steady, trial(soon)).idle is None, "what grows with the work has grown as far"
    counted = steady._replace(steady_writes=False)
    assert with_idle_run(counted, trial(soon)).idle == soon
    busy = counted._replace(cpu_seconds=9.0)
    assert with_idle_run(busy, trial(soon._replace(cpu_seconds=8.9))).idle is None, (
        "the clock may have met a slow baseline"
    )
    assert with_idle_run(busy, trial(soon._replace(cpu_seconds=5.0))).idle is not None


def test_what_an_old_attempt_does_beside_its_replacement_is_not_lost() -> None:
    """It stood still in its start, and wrote everything once it went on; by then the other one had done it all."""
    freeze = Kill(1, InterruptionKind.FREEZE, AtTime(0.7))
    last = attempt(2, 10.0)
    old = attempt(1, 20.0, 0, freeze, ran_seconds=7.0, write_calls=100, until_replaced=(0, 2))
    assert codes(trial(old, last)) == []
    assert codes(trial(old._replace(until_replaced=(0, 70)), last)) == ["no-progress"]
    opens = BASELINE._replace(steady_opens=True, opens=10)
    assert codes(trial(old._replace(opens=10, until_replaced=(1, 100)), last._replace(opens=10)), opens) == []


def test_what_a_start_with_nothing_left_to_do_opens_too_tells_nothing_of_the_work() -> None:
    """A database with its companions: twelve of sixteen opens before the first item, and sixteen without any item."""
    opens = BASELINE._replace(steady_opens=True, opens=16, families={("work.db", FilePoint.OPEN): 5})
    begun = attempt(1, 7.0, 75, TERM, opens=12, write_calls=10, families={("work.db", FilePoint.OPEN): 5})
    last = attempt(2, 10.0, opens=16, families={("work.db", FilePoint.OPEN): 5})
    assert codes(trial(begun, last), opens) == ["no-progress"], "as long as nobody has looked"
    idle = trial(attempt(1, 2.0, opens=16, families={("work.db", FilePoint.OPEN): 5}))
    known = with_idle_run(opens, idle)
    assert with_control_run(known, trial(attempt(1, 30.0))).seconds == known.seconds, (
        "writes are the work, however slow it was"
    )
    assert with_control_run(opens, trial(attempt(1, 30.0))).seconds == 30.0
    assert codes(trial(begun, last), known) == []
    assert codes(trial(begun._replace(write_calls=70), last), known) == ["no-progress"]
