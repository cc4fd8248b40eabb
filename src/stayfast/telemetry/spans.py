"""OpenTelemetry spans made of durations that are measured anyway.

Nothing here runs, and nothing is imported, unless ``STAYFAST_SPANS=on``. Spans go to the tracer provider of the program
where it has one; otherwise to one of our own, which exports over OTLP as the ``OTEL_`` variables say. Whatever goes
wrong with them is a line in the log: telemetry never costs an attempt, nor more than a moment of its grace.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from stayfast.clock import Clock
from stayfast.randomness import keep_apart, own
from stayfast.version import __version__

log = logging.getLogger("stayfast")

NAMES = {
    "snapshot": "stayfast.snapshot",
    "persist": "stayfast.save",
    "restore": "stayfast.restore",
    "claim": "stayfast.claim",
    "compute": "stayfast.compute",
    "record": "stayfast.record",
}
"""Kinds of measurements, and what their spans are called; other kinds have none."""
ATTEMPT, STEPS, NOTICE, WORKER = "stayfast.attempt", "stayfast.steps", "stayfast.notice", "stayfast.worker"
_FLUSH_SECONDS = 2.0


class OwnIds:
    """An OpenTelemetry ``IdGenerator`` that draws nothing from the program, whose seed would repeat ids per attempt."""

    def generate_span_id(self) -> int:
        """64 bits; 0 would mean that there is none."""
        return own.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        """128 bits."""
        return own.getrandbits(128) or 1

    def is_trace_id_random(self) -> bool:
        """Asked for by newer versions, for samplers that use the bits."""
        return True


class SpanRecorder:
    """One root span for the life of this process, and children for what was measured in it."""

    def __init__(self, provider: Any, clock: Clock, root: str, about: Mapping[str, Any]) -> None:
        from opentelemetry import trace

        self._provider, self._clock = provider, clock
        self._tracer = provider.get_tracer("stayfast", __version__)
        self._root = self._tracer.start_span(root, start_time=_nanoseconds(clock.wall()), attributes=_prefixed(about))
        self._context = trace.set_span_in_context(self._root)

    def on_measurement(self, kind: str, seconds: float, about: Mapping[str, Any]) -> None:
        """The listener of ``Durations``; called at the end of what was measured, from any thread."""
        if kind in NAMES:
            end = self._clock.wall()
            self.add(NAMES[kind], end - seconds, end, about)

    def add(self, name: str, start: float, end: float, about: Mapping[str, Any]) -> None:
        """A child that is over; wall-clock seconds."""
        try:
            span = self._tracer.start_span(
                name, context=self._context, start_time=_nanoseconds(start), attributes=_prefixed(about)
            )
            span.end(end_time=_nanoseconds(max(start, end)))
        except Exception as error:
            log.debug("a span was lost: %s", error, exc_info=True)

    def end(self, about: Mapping[str, Any], *, failed: bool, seconds: float) -> None:
        """The root is over too; what is not sent yet gets a moment, and no more."""
        from opentelemetry.trace import StatusCode

        try:
            self._root.set_attributes(_prefixed(about))
            if failed:
                self._root.set_status(StatusCode.ERROR)
            self._root.end(end_time=_nanoseconds(self._clock.wall()))
        except Exception as error:
            log.debug("a span was lost: %s", error, exc_info=True)
        flush = getattr(self._provider, "force_flush", None)
        if flush is not None:
            # On a thread: an exporter waits for its receiver as long as it likes, whatever time-out it is given.
            sending = threading.Thread(target=_log_failure, args=(flush,), name="stayfast-spans", daemon=True)
            sending.start()
            sending.join(max(0.0, min(_FLUSH_SECONDS, seconds)))


def find_provider() -> Any | None:
    """The program's own, or one that sends over OTLP; None, with a line in the log, where neither can be had."""
    try:
        from opentelemetry import trace

        found = trace.get_tracer_provider()
        if not isinstance(found, trace.ProxyTracerProvider):
            if _draws_from_random(found):
                _warn_of_shared_ids()
            return found
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.warning('no spans: %s; pip install "stayfast[otel]"', error, extra={"action": "spans_failed"})
        return None
    try:
        # It would wait at exit for a receiver that does not answer.
        provider = TracerProvider(shutdown_on_exit=False, id_generator=OwnIds())
        exporter = OTLPSpanExporter()
        keep_apart("opentelemetry.exporter")  # it draws a pause for every request
        provider.add_span_processor(BatchSpanProcessor(exporter))
    except Exception as error:  # noqa: BLE001 - an address or header that means nothing must not end the work
        log.warning("no spans: %s", error, extra={"action": "spans_failed"})
        return None
    return provider


def _draws_from_random(provider: Any) -> bool:
    """OpenTelemetry's default ids come from ``random``: each span changes what a seeded program draws next."""
    kind = type(getattr(provider, "id_generator", None))
    return (kind.__module__, kind.__name__) == ("opentelemetry.sdk.trace.id_generator", "RandomIdGenerator")


@functools.cache
def _warn_of_shared_ids() -> None:
    """Once in a process, however many runs it has: it can set its provider only once."""
    log.warning(
        "the program's TracerProvider draws the ids of spans from the global random generator: with "
        "STAYFAST_SPANS=on a seeded program draws other numbers; give it an id_generator= that uses "
        "random.SystemRandom, or turn the spans off",
        extra={"action": "spans_share_random"},
    )


def _log_failure(action: Callable[[], object]) -> None:
    try:
        action()
    except Exception as error:
        log.debug("spans could not be sent: %s", error, exc_info=True)


def _prefixed(about: Mapping[str, Any]) -> dict[str, Any]:
    return {f"stayfast.{name}": value for name, value in about.items() if value != ""}


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
