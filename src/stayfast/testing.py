"""For tests of programs that have to survive: rehearse a command, or interrupt a loop at an exact step.

With pytest, add ``pytest_plugins = ["stayfast.testing"]`` to ``conftest.py`` and use the fixtures::

    def test_survives(rehearse):
        rehearse([sys.executable, "train.py"], compare=["result.json"], directory="src").assert_survives()

    def test_resumes(tmp_path, interrupt_at):
        with pytest.raises(stayfast.Interrupted), interrupt_at(step=7):
            train(tmp_path)          # any code that opens a stayfast.run
        train(tmp_path)              # goes on at step 8
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stayfast.proof.rehearse.differences import Comparison
from stayfast.proof.rehearse.rehearsal import RehearsalOptions, RehearsalResult
from stayfast.proof.rehearse.rehearsal import rehearse as _rehearse
from stayfast.proof.rehearse.report import as_text
from stayfast.proof.rehearse.schedule import DEFAULT_KINDS, InterruptionKind

if TYPE_CHECKING:
    from stayfast.runtime.runs.run import Run

__all__ = ["Rehearsal", "interrupt_at", "rehearse"]


class Rehearsal:
    """What a rehearsal has found."""

    def __init__(self, result: RehearsalResult) -> None:
        self.result = result

    @property
    def survives(self) -> bool:
        """Whether the program finished every trial with the right result."""
        return self.result.survives

    @property
    def codes(self) -> set[str]:
        """The codes of all reasons; empty when it survives."""
        return {reason.code for reason in self.result.reasons}

    def assert_survives(self) -> None:
        """Fail the test with the whole report when it does not."""
        if not self.survives:
            raise AssertionError(as_text(self.result, ()))


def rehearse(
    command: Sequence[str],
    *,
    compare: Sequence[str] = (),
    records: Sequence[str] = (),
    key: Sequence[str] | str = (),
    directory: str | os.PathLike[str] = ".",
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> Rehearsal:
    """``stayfast rehearse`` from Python.

    ``options`` are those of :class:`stayfast.proof.rehearse.rehearsal.RehearsalOptions`.

    ``kinds`` may be plain words; ``check``, ``json_files`` and ``tolerance`` say what else has to be the same.
    """
    comparison = Comparison(
        globs=tuple(compare),
        records=tuple(records),
        key=(key,) if isinstance(key, str) else tuple(key),
        json_files=tuple(options.pop("json_files", ())),
        tolerance=options.pop("tolerance", 1e-6),
        check=options.pop("check", ""),
    )
    kinds = tuple(InterruptionKind(kind) for kind in options.pop("kinds", DEFAULT_KINDS))
    asked = RehearsalOptions(
        command=list(command), comparison=comparison, kinds=kinds, directory=os.fspath(directory), **options
    )
    return Rehearsal(_rehearse(asked, environment))


@contextlib.contextmanager
def interrupt_at(*, step: int) -> Iterator[None]:
    """Give a notice to the run that is opened inside, while it works on this step.

    The run saves at the end of the step and raises ``stayfast.Interrupted``, as after a real SIGTERM; a run that does
    not get that far is not interrupted.
    """
    from stayfast.runtime.runs.run import Run

    before = Run.steps

    def steps(self: Run) -> Iterator[int]:
        for number in before(self):
            if number == step:
                self.interrupt(f"interrupt_at(step={step})")
            yield number

    Run.steps = steps  # type: ignore[method-assign]
    try:
        yield
    finally:
        Run.steps = before  # type: ignore[method-assign]


def _fixtures() -> None:
    """Register the fixtures when pytest loads this module as a plugin."""
    try:
        import pytest
    except ImportError:
        return

    def give_rehearse() -> Callable[..., Rehearsal]:
        """:func:`rehearse`, as a fixture."""
        return rehearse

    def give_interrupt_at() -> Callable[..., contextlib.AbstractContextManager[None]]:
        """:func:`interrupt_at`, as a fixture."""
        return interrupt_at

    globals()["_rehearse_fixture"] = pytest.fixture(name="rehearse")(give_rehearse)
    globals()["_interrupt_at_fixture"] = pytest.fixture(name="interrupt_at")(give_interrupt_at)


_fixtures()
