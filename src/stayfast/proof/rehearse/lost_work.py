"""Was the work done again after an interruption? By files and writes that grow with the work, else by the clock."""

from __future__ import annotations

from collections.abc import Sequence

from stayfast.model.exit_codes import FINISHED
from stayfast.proof.rehearse.facts import AttemptObservation, BaselineObservation, TrialObservation
from stayfast.proof.rehearse.schedule import InterruptionKind, Kill

# Every number that was tuned with the programs of the zoo. All are shares of the baseline where no unit is named.
_HALF, _NEARLY_ALL = 0.5, 0.9  # done before the interruption; done again after it
_WALL_WHEN_COUNTED = 0.75  # of the clock, where the writes themselves say that everything was done again
_WALL_WHEN_RECURRING = 0.55  # where files come again and again as it works; a busy machine halves and doubles times
_LEAST_WORK = 0.25  # of the baseline: less of it after the start is too short to be measured
_COUNTED_FROM = 2  # files opened: with fewer, later attempts cannot be told apart
_RECURRING_FROM = 3  # files of a family that comes again and again, such as checkpoints
_LATE_AGAIN = 0.75  # of what it writes late; a single checkpoint beside the result is half of it
_CPU_BOUND = 0.5  # of one core: from here on its time on a core counts as work
_SLOW_BASELINE = 2.0  # times the clock: no more than this was done, whatever was written
_CLOSE = 0.75  # of its time: what the baseline may have needed on a quiet machine
_CLOSE_WHEN_COUNTED = 0.4  # the same, where files and writes say that all was done again
_SUSPICIOUS_SHARE = 0.8  # of the files, written again by all later attempts together
_WORTH_KEEPING_SECONDS = 0.5  # below this a program is little more than the start of its interpreter

_NOTHING = AttemptObservation(0, 0.0, 0.0, 0.0, 0)


def lost_everything(baseline: BaselineObservation, trial: TrialObservation) -> str:
    """Whether the attempt that finished had to do everything again although much had been done; says how we know."""
    return _did_all_again(baseline, trial) if baseline.seconds >= _WORTH_KEEPING_SECONDS else ""


def is_known_by_time_alone(baseline: BaselineObservation) -> bool:
    """Whether lost work shows in nothing but time: no file or write grows with the work."""
    return not _exact_shares(baseline, _NOTHING)


def _did_all_again(baseline: BaselineObservation, trial: TrialObservation) -> str:
    *earlier, last = (attempt.on_its_own_clock() for attempt in trial.attempts)
    longest = max((_done_share(baseline, attempt) for attempt in earlier), default=0.0)
    if longest < _HALF or last.code != 0:
        return ""
    wall = last.seconds / max(baseline.seconds, 1e-9)
    counted = _counted_share(baseline, last)
    if counted is None and _start_is_nearly_all(baseline):
        return ""
    working = wall if counted is None and baseline.idle is None else _working_share(baseline, last)
    recurring = any(count >= _RECURRING_FROM for count in baseline.families.values())
    least = _NEARLY_ALL if counted is None else _WALL_WHEN_RECURRING if recurring else _WALL_WHEN_COUNTED
    if working < least or (counted is not None and counted < _NEARLY_ALL):
        return ""
    return f"an attempt had done {min(1.0, longest):.0%} of it, and the last one still needed {wall:.0%} of the time"


def with_idle_run(baseline: BaselineObservation, idle: TrialObservation) -> BaselineObservation:
    """The baseline beside a start in the directory that it has left.

    Who does there again what grows with the work has not seen that all is done, and tells nothing; where nothing does,
    one who takes as long and writes as much of it late may not have seen it: what is saved of the work comes after a
    long start, and what is prepared and kept comes before a long work.
    """
    run = idle.attempts[-1].on_its_own_clock()
    shares = _exact_shares(baseline._replace(idle=None), run)
    if shares:
        again = min(shares) >= _NEARLY_ALL
    else:
        wrote = all(now >= _LATE_AGAIN * then for now, then in zip(run.late, baseline.late, strict=True))
        took = run.cpu_seconds / baseline.cpu_seconds if _is_cpu_bound(baseline) else run.seconds / baseline.seconds
        again = wrote and took >= 1 - _LEAST_WORK
    if again or run.code != FINISHED:
        return baseline._replace(idle=None)
    return baseline._replace(  # what is there as often with nothing left to do does not grow with the work
        families={key: count for key, count in baseline.families.items() if run.families.get(key, 0) < _HALF * count},
        steady_opens=baseline.steady_opens and run.opens < _HALF * baseline.opens,
        steady_writes=baseline.steady_writes and run.write_calls < _HALF * baseline.write_calls,
        idle=run,
    )


def with_control_run(baseline: BaselineObservation, control: TrialObservation) -> BaselineObservation:
    """The baseline as it would be now: an uninterrupted run beside a suspicious one has met the same busy machine.

    Where nothing can be counted its time alone is right, be it shorter: the first one may have been the slow one. And
    where files are known to be the work, the clock need not be asked twice.
    """
    run = control.attempts[-1].on_its_own_clock()
    seconds = max(baseline.seconds, run.seconds) if _is_countable(baseline) else run.seconds
    if baseline.idle is not None and _exact_shares(baseline, run):
        seconds = min(baseline.seconds, run.seconds)
    return baseline._replace(
        seconds=seconds,
        first_write_seconds=max(baseline.first_write_seconds, run.first_write_seconds or 0.0),
        cpu_seconds=max(baseline.cpu_seconds, run.cpu_seconds),
        write_calls=max(baseline.write_calls, run.write_calls),
        opens=max(baseline.opens, run.opens),
        families={key: count for key, count in baseline.families.items() if run.families.get(key) == count},
    )


def was_stalled(baseline: BaselineObservation, trials: Sequence[TrialObservation]) -> bool:
    """Whether the machine stood still while the baseline ran, so that all moments and shares are wrong.

    Interrupted as often as it may be, a trial that does all of the work takes no less time than one run of it.
    """
    whole = (trial for trial in trials if trial.finished and not trial.differences)
    took = [sum(attempt.on_its_own_clock().seconds for attempt in trial.attempts) for trial in whole]
    return min(took, default=baseline.seconds) < _CLOSE * baseline.seconds


def went_on_after_sigterm(baseline: BaselineObservation, trial: TrialObservation) -> Kill | None:
    """A SIGTERM after which the program went on to its end: with more left to do it might have overrun its grace.

    Whatever it says then: one whose first thread leaves with 75 and waits for the others has done all of the work.
    """
    attempts = (item.on_its_own_clock() for item in trial.attempts)
    told = (
        item for item in attempts if item.kind in (InterruptionKind.TERM, InterruptionKind.OVERLAP) and not item.overran
    )
    done = (item for item in told if item.code == FINISHED or item.seconds >= _NEARLY_ALL * baseline.seconds)
    return next((item.kill for item in done), None)


def may_hide_lost_work(baseline: BaselineObservation, trial: TrialObservation) -> bool:
    """Whether the first kill may have lost everything, and small gains between later kills have hidden it.

    Only a trial with that kill alone can tell.
    """
    first, *later = (attempt.on_its_own_clock() for attempt in trial.attempts)
    if not trial.finished or len(later) < 2 or baseline.opens < _COUNTED_FROM or _done_share(baseline, first) < _HALF:
        return False
    whole = baseline.opens - sum(baseline.prepared.values())
    return sum(_working_opens(baseline, attempt) for attempt in later) >= _SUSPICIOUS_SHARE * whole


def may_be_slow_baseline(baseline: BaselineObservation, trial: TrialObservation) -> bool:
    """Whether a slow baseline may be all that hides lost work: only a run beside an uninterrupted one can tell.

    Where everything that can be counted was done again, the baseline may have been much too slow.
    """
    if not trial.finished or baseline.seconds < _WORTH_KEEPING_SECONDS:
        return False
    share = _CLOSE_WHEN_COUNTED if _is_countable(baseline) else _CLOSE
    return bool(_did_all_again(baseline._replace(seconds=share * baseline.seconds), trial))


def _is_cpu_bound(baseline: BaselineObservation) -> bool:
    return baseline.cpu_seconds >= _CPU_BOUND * baseline.seconds > 0


def _is_countable(baseline: BaselineObservation) -> bool:
    return _counted_share(baseline, AttemptObservation(1, 0.0, 1.0, 1.0, 0)) is not None


def _share(value: float, whole: float, idle: float) -> float:
    """Of the work itself: without what every start costs, be it of an attempt that has nothing left to do."""
    return max(0.0, value - idle) / max(whole - idle, 1e-9)


def _start_is_nearly_all(baseline: BaselineObservation) -> bool:
    """Whether the work takes so little of the time that the clock cannot tell whether it was done again."""
    idle = baseline.idle
    return idle is not None and baseline.seconds - idle.seconds < _LEAST_WORK * baseline.seconds


def _done_share(baseline: BaselineObservation, attempt: AttemptObservation) -> float:
    """How much an attempt had done when it was interrupted: by what it wrote where that tells, else by the clock."""
    ran = _on_its_clock(baseline, attempt)
    by_clock = ran / max(baseline.seconds, 1e-9)
    # Two writers: what it did beside its replacement is not lost work.
    opens, write_calls = attempt.until_replaced or (attempt.opens, attempt.write_calls)
    if baseline.steady_opens:
        share = min(opens / baseline.opens, _grown_share(baseline, attempt))
    elif baseline.steady_writes and baseline.write_calls:
        share = write_calls / baseline.write_calls
    elif baseline.idle is not None and not _start_is_nearly_all(baseline):
        share = _share(ran, baseline.seconds, baseline.idle.seconds)
    else:
        share = by_clock
    # What is set up at the start may be half of the writes and none of the work; a busy machine halves times.
    return min(share, _SLOW_BASELINE * by_clock)


def _on_its_clock(baseline: BaselineObservation, attempt: AttemptObservation) -> float:
    """How long an attempt ran, with a start no slower than the baseline's: a slow start is no work."""
    start = attempt.ran_seconds if attempt.first_write_seconds is None else attempt.first_write_seconds
    start = min(start, attempt.ran_seconds)
    return min(start, baseline.first_write_seconds) + attempt.ran_seconds - start


def _grown_share(baseline: BaselineObservation, attempt: AttemptObservation) -> float:
    """Of the files that come as it works, where there are such."""
    whole = sum(baseline.families.values())
    return sum(attempt.families.get(key, 0) for key in baseline.families) / whole if whole else 1.0


def _working_share(baseline: BaselineObservation, last: AttemptObservation) -> float:
    """The share of the clock without the start, where the start is not nearly all: every attempt pays for that."""
    start = min(baseline.first_write_seconds, last.first_write_seconds or 0.0)
    if baseline.idle is not None and not _exact_shares(baseline, last):  # a slow moment of that one must not matter
        start = max(start, baseline.idle.seconds)
    if baseline.seconds - start < _LEAST_WORK * baseline.seconds:
        start = 0.0
    return _share(last.seconds, baseline.seconds, start)


def _counted_share(baseline: BaselineObservation, last: AttemptObservation) -> float | None:
    """The share of the work done in the last attempt by what can be counted; a loaded machine does not change it."""
    shares = _exact_shares(baseline, last)
    idle = baseline.idle or _NOTHING
    working = baseline.cpu_seconds - idle.cpu_seconds
    if _is_cpu_bound(baseline) and working >= _LEAST_WORK * baseline.cpu_seconds:
        shares.append(_share(last.cpu_seconds, baseline.cpu_seconds, idle.cpu_seconds))
    return min(shares) if shares else None


def _exact_shares(baseline: BaselineObservation, last: AttemptObservation) -> list[float]:
    """By files and writes, and only such as grow with the work.

    What is written to set things up is not written again by who has lost all the rest.
    """
    idle = baseline.idle or _NOTHING
    shares = [
        _share(last.families.get(key, 0), count, idle.families.get(key, 0))
        for key, count in baseline.families.items()
        if count - idle.families.get(key, 0) >= _RECURRING_FROM
    ]
    if baseline.steady_opens:
        whole = baseline.opens - sum(baseline.prepared.values())
        shares.append(_share(_working_opens(baseline, last), whole, _working_opens(baseline, idle)))
    if baseline.steady_writes and baseline.write_calls:
        shares.append(_share(last.write_calls, baseline.write_calls - baseline.prepared_calls, idle.write_calls))
    return shares


def _working_opens(baseline: BaselineObservation, run: AttemptObservation) -> int:
    """Without the files that are there before the work begins: who keeps those may have lost all the rest."""
    return run.opens - sum(run.families.get(key, 0) for key in baseline.prepared)
