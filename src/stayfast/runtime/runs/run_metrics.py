"""What a run tells the outside while it lives: metrics to whoever asks, spans to where they are sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stayfast.runtime.interruption.guard import Guard
    from stayfast.runtime.runs.books import Books
    from stayfast.runtime.runs.saving import Saver
    from stayfast.telemetry.metric_table import Exposition

Progress = Callable[[], tuple[int, int | None]]
"""The last step that was finished, and how many there are to do."""


def begin(guard: Guard, books: Books, saver: Saver, progress: Progress) -> Callable[[], None]:
    """Begin with what the settings ask for; the returned function ends it."""
    settings = guard.settings
    ends: list[Callable[[], None]] = []
    if settings.metrics_port and settings.rank == 0:
        from stayfast.batch.worker.pool_metrics import read_run
        from stayfast.telemetry.metrics_server import publish

        def read() -> Exposition:
            step, total = progress()
            return read_run(guard, books, saver, step=step, total=total)

        ends.append(publish(settings, read))
    if settings.spans == "on":
        from stayfast.telemetry.spans import begin_run

        ends.append(begin_run(guard, books, progress))

    def end() -> None:
        for each in ends:
            each()

    return end
