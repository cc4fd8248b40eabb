"""``stayfast.run``: one attempt of a run, from claiming it to leaving by the exit contract.

The loop's own price is a clock reading per step. Everything slow happens beside it (notices, saving) or at a step
boundary when there is a reason to stop there: a notice, a checkpoint that is due or asked for, a newer attempt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn

from stayfast.errors import Interrupted, RunError
from stayfast.model.notice import Cause, Notice
from stayfast.runtime.interruption.guard import Guard, active_guard
from stayfast.runtime.interruption.notice_board import GraceBudget
from stayfast.runtime.runs.final_save import FinalSave, Place
from stayfast.runtime.runs.opening import OpenRun, fill_in_index, free_process, open_run, take_process
from stayfast.runtime.runs.options import RunOptions, parse_total_steps
from stayfast.runtime.runs.restoring import open_step_digests, restore_run
from stayfast.runtime.runs.saving import CheckpointSaver
from stayfast.runtime.state.tracked_state import TrackedState

_NEVER, _NOW = float("inf"), float("-inf")


class Run:
    """One attempt of a run; use it as a context manager."""

    def __init__(self, url: str | None, total_steps: int | None, options: RunOptions) -> None:
        self._total = parse_total_steps(total_steps)
        shared = active_guard()
        self._owns_guard = shared is None
        self._guard = shared or Guard(chain=options.chain, settings=options.settings)
        self._options = options
        self._tracked = TrackedState()
        self._use(OpenRun(fill_in_index(url, self._guard.settings.completion_index)))
        self._prints = open_step_digests(self._guard.settings, self._tracked)
        self._step = -1  # the step in progress, or the last one finished
        self._reached = 0  # the step that the loop is in or would enter next
        self._completed = -1
        self._started = False
        self._allocated = False
        self._restored = False
        self._ended = False
        self._foreign_loop: bool | None = None  # whether should_stop(step) counts the steps, not steps()
        self._due = _NEVER  # monotonic seconds at which the next boundary has to be looked at
        self._due_step = _NEVER  # the step at whose end it has to be looked at
        self._finish = ""  # why the work is complete, if the program said so
        self._interruption: Interrupted | None = None
        self._owner = os.getpid()
        self._closing: ExitStack | None = None

    def _use(self, opened: OpenRun) -> None:
        self._opened = opened
        self._saver = CheckpointSaver(opened, self._tracked, self._options, self._guard)
        self._final_save = FinalSave(self._guard, opened, self._saver)

    @property
    def url(self) -> str | None:
        """Where this run lives, with ``{index}`` filled in; None for a run that leaves no trace."""
        return self._opened.url

    @property
    def attempt(self) -> int:
        """Which life of the run this is; the first is 1."""
        return self._opened.attempt

    @property
    def notice(self) -> Notice | None:
        """The notice, or None while nothing threatens."""
        return self._guard.notice

    @property
    def overhead(self) -> float:
        """The share of the loop's time that checkpoints have cost it so far."""
        return self._saver.loop_time.overhead

    @property
    def budget(self) -> GraceBudget:
        """How much time is left once there is a notice."""
        return self._guard.budget

    @property
    def step(self) -> int:
        """The step in progress."""
        return self._step

    def on_drain(self, action: Callable[[], object], *, name: str = "", estimate_seconds: float = 0.0) -> None:
        """Do this after the state was saved and before leaving, if the estimate still fits."""
        self._guard.on_drain(action, name=name, estimate_seconds=estimate_seconds)

    def interrupt(self, detail: str = "", *, grace_seconds: float = float("inf")) -> None:
        """A notice from the program itself: save at the end of this step and leave with 75."""
        self._guard.interrupt(detail or "asked by the program", grace_seconds=grace_seconds)

    def fingerprint(self, **values: Any) -> None:
        """Add to this step's fingerprint, such as its sample ids; does nothing without ``STAYFAST_FINGERPRINTS``."""
        if self._prints is not None:
            self._prints.add(values)

    def track(self, **things: Any) -> None:
        """Keep these: anything with ``state_dict`` and ``load_state_dict``, a generator, or a pair (get, set).

        A generator is a ``random.Random``, ``numpy.random.Generator`` or ``torch.Generator``. A pair of functions is
        for all else: ``run.track(w=(lambda: w, lambda saved: np.copyto(w, saved)))``.

        Track before the first step; what was saved under these names is loaded there.
        """
        self._check_open()
        if self._restored:
            raise RunError(
                "track() comes after the state was restored", help="call it before the first step or restore()"
            )
        self._tracked.track(things)

    def restore(self) -> int:
        """Load what the last attempt committed, once; returns the first step to run."""
        self._check_open()
        if not self._restored:
            self._restored = True
            self._completed = self._step = restore_run(self._opened, self._tracked, self._options, self._guard) - 1
        return self._completed + 1

    def steps(self) -> Iterator[int]:
        """The steps still to do, from 0; at a notice the boundary saves and raises ``stayfast.Interrupted``.

        Called again in the same block, it begins with the step that was left: by an exception, ``break`` or ``zip``.
        """
        step = self.restore()
        self._foreign_loop = self._foreign_loop or False  # also in a finished run, which has no step left
        if self._interruption is not None:
            raise self._interruption  # the program swallowed it and came back: it stands all the same
        if self._opened.is_finished(self._total) or self._finish:
            return
        self._begin()
        if (notice := self._guard.notice) is not None and self._opened.coordination.size == 1:
            self._interrupt(step - 1, notice)  # there may be no time left to finish another step
        total = _NEVER if self._total is None else self._total
        add = self._guard.durations.series("step").append
        record = None if self._prints is None else self._prints.record
        last = monotonic()
        while step < total:
            self._step = step
            yield step
            self._completed = step  # at once: what is raised from here on finds the state at a boundary
            self._reached = step + 1  # before the look at what is due: see _stop_at_next_boundary
            if record is not None:
                record(step)
            now = monotonic()
            add(now - last)
            last = now
            if now >= self._due or step >= self._due_step:
                if self._boundary(step):
                    return
                last = monotonic()
            step += 1

    def should_stop(self, step: int | None = None) -> bool:
        """For loops we do not own: call it at the end of every step, leave the loop when it says so.

        With ``step`` given it counts as that step's boundary: the counter moves on and due checkpoints are saved.
        Without, it only asks: inside ``steps()``, or before the first step. After a yes, the end of the ``with`` block
        saves, drains and raises ``stayfast.Interrupted``. Leave such a loop after this call and save there: what was
        done since the last one belongs to no step yet, and would be saved under the step before.
        """
        self._check_open()
        self.restore()
        if step is None and self._started and self._tracked:  # before the first step it may be asked
            self._opened.check_step_known(self._foreign_loop is not None, "should_stop() without a step")
        self._begin()
        if step is not None:
            self._foreign_loop = True
            self._step = self._completed = step
            self._reached = step + 1  # before the look at the notice: see _stop_at_next_boundary
        self._leave_if_superseded()
        if self._guard.notice is not None and (step is None or self._stops_after(step)):
            return self._guard.should_stop()
        if step is not None and (monotonic() >= self._due or step >= self._due_step):
            self._save_if_due(step)
        return False

    def _passes(self, step: int) -> bool:
        """The end of a step at which only a notice is obeyed, and nothing is saved; true when there is no notice."""
        self._reached = step + 1  # before the look at the notice: the other ranks stop no earlier
        return self._guard.notice is None

    def save(self, *, now: bool = False) -> None:
        """Ask for a checkpoint at the end of this step and return at once; ``now=True`` treats this line as that end.

        With ``now=True`` the call returns when the checkpoint is committed, and raises when it cannot be.
        """
        self._check_open()
        if now:
            self._opened.check_step_known(self._foreign_loop is not None, "save(now=True) before the first step")
            self._completed = max(self._completed, self._step)
            self._saver.wait()
            self._saver.save_now(self._completed)
        else:
            self._saver.request()
            self._due = _NOW

    def finish(self, why: str = "") -> None:
        """The work is complete before ``total_steps``, as in early stopping: the loop ends after this step.

        The run is then finished; only a larger ``total_steps`` continues it. All ranks must call it in the same step.
        """
        self._check_open()
        self._finish = why or "the program called run.finish()"
        self._due = _NOW

    def _begin(self) -> None:
        if self._started:
            return
        self._started = True
        self._saver.begin(self._completed + 1, self._total)
        self._due, self._due_step = self._saver.next_check(self._completed)
        self._due_step = min(self._due_step, self._completed + 1)  # after one step the state has its full size
        self._reached = self._completed + 1
        self._guard.board.on_notice(self._stop_at_next_boundary)
        self._opened.coordination.watch(self._stop_at_next_boundary)

    def _stop_at_next_boundary(self) -> int:
        """Stop at the next boundary; the answer is the furthest step the loop can be in by then.

        The loop writes ``_reached`` before it looks at ``_due``, this writes before it reads: one of the two sees the
        other, so that the loop never enters a step beyond the one that is returned here.
        """
        self._due = _NOW
        return self._reached

    def _boundary(self, step: int) -> bool:
        """There is a reason to stop here; find out which. True when the program said that the work is complete."""
        self._leave_if_superseded()
        if self._finish:
            return True  # the end of the block commits, also after a notice
        if (notice := self._guard.notice) is not None and self._stops_after(step):
            self._interrupt(step, notice)
        if not self._allocated:
            self._allocated = True
            self._saver.preallocate()
        self._save_if_due(step)
        return False

    def _stops_after(self, step: int) -> bool:
        """With a notice: whether this is the boundary at which to leave; the ranks agree on one."""
        last = self._opened.coordination.last_step(step, self._reached)
        if last is None:  # a rank is gone: nothing can be committed any more
            self._raise_interrupted(Cause.PEER_LOST, "a rank stayed silent until the deadline")
        return step >= last

    def _save_if_due(self, step: int) -> None:
        look = self._saver.save_if_due(step)
        if look is None:
            self._leave_if_superseded()
            self._raise_interrupted(Cause.PEER_LOST, "rank 0 stayed silent until the deadline")
        self._due, self._due_step = look
        if self._guard.notice is not None or self._saver.superseded is not None:
            self._due = _NOW  # it arrived while we were busy here

    def _leave_if_superseded(self) -> None:
        if self._saver.superseded is not None:
            self._raise_interrupted(Cause.SUPERSEDED, str(self._saver.superseded))

    def _interrupt(self, step: int, notice: Notice) -> NoReturn:
        self._guard.hold_signals()
        self._final_save.drain(step, notice.cause)
        self._raise_interrupted(notice.cause, notice.detail)

    def _raise_interrupted(self, cause: Cause, detail: str) -> NoReturn:
        """Out, without another word to the store."""
        self._interruption = Interrupted(self._guard.settings.interrupted_code, cause=cause, detail=detail)
        raise self._interruption

    def _progress(self) -> tuple[int, int | None]:
        return self._completed, self._total

    def _describe(self) -> dict[str, object]:
        saved = f"step {self._opened.next_step - 1}" if self._opened.next_step else "nothing"
        return {"run": self.url or "", "attempt": self.attempt, "step": self._completed, "saved": saved}

    def __enter__(self) -> Run:
        take_process(self.url)
        with ExitStack() as closing:
            closing.callback(free_process)
            if self._owns_guard:
                self._guard.start()
            try:
                self._use(open_run(self.url, self._guard))
                closing.callback(self._saver.close)
                closing.callback(self._opened.close)
                self._guard.describe(self._describe)
                if self._owns_guard and (self._guard.settings.metrics_port or self._guard.settings.spans == "on"):
                    from stayfast.runtime.runs.run_metrics import start_telemetry  # its imports cost every other start

                    closing.callback(start_telemetry(self._guard, self._opened, self._saver, self._progress))
            except BaseException as error:
                if self._owns_guard:
                    self._guard.end(error)
                raise
            self._closing = closing.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._owner:
            return  # a forked child unwinds its copy of the block: the run is its parent's, so is its end
        self._guard.hold_signals()
        try:
            self._ended = True
            ending = self._final_save.conclude(error, self._place(error))
            self._final_save.write_down(ending)
            if self._owns_guard:
                self._guard.end(ending, self._final_save.outcome)
            if ending is not None and ending is not error:
                raise ending
        finally:
            if self._closing is not None:
                self._closing.close()
            self._interruption = ending = None
            del error, trace  # the watchdog sees that the interruption was caught by its going away
            self._guard.release_signals()

    def _place(self, error: BaseException | None) -> Place:
        if error is not None:
            self._guard.await_notice(error)
        at_boundary = not self._foreign_loop and self._completed >= self._step
        wished = self._guard.notice is None or self._guard.stop_was_reported or self._finish
        if error is None or (wished and self._guard.is_exit_of_program(error)):
            self._completed, at_boundary = max(self._completed, self._step), True  # leaving the loop ends its step
        where = (self._completed, self._reached, at_boundary)
        return Place(*where, self._started, self._interruption, self._total, self._finish)

    def _check_open(self) -> None:
        if self._ended or self._closing is None:
            raise RunError("this run is not open", help="use it inside its `with` block")


def run(url: str | None = None, total_steps: int | None = None, *, chain: bool = False, **options: Any) -> Run:
    """Open a run: ``with stayfast.run("gs://bucket/runs/llm-7", total_steps=100_000) as run``.

    ``url`` names the run and is where its state lives; the next process with the same URL is its next attempt. Without
    a URL nothing is kept and only the notice and the exit contract remain. ``chain=True`` calls the signal handlers
    that were there before, after the drain.
    """
    return Run(url, total_steps, RunOptions(chain=chain, **options))
