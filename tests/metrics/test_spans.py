"""Spans: a real run and a real worker tell what they did, to a real receiver; and nothing of it can hurt them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import stayfast
from stayfast.errors import Interrupted
from stayfast.settings import Settings
from stayfast.telemetry import spans

ROOT = Path(__file__).resolve().parents[2]
TRAINER = """
import sys, time, stayfast
with stayfast.run(sys.argv[1], total_steps=100000) as run:
    state = {"w": [1.0] * 100}
    run.track(state=(lambda: state, state.update))
    for step in run.steps():
        if step % 5 == 4:
            run.save()
        print(step, flush=True)
        time.sleep(0.01)
"""
TASK = """
import stayfast
@stayfast.task(key=lambda item: item["k"])
def double(batch):
    return [item["k"] * 2 for item in batch]
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "STAYFAST_METADATA": "off", **more}


# -- the program's own provider


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An exporter that keeps what it gets."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(spans, "find_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def settings() -> Settings:
    return Settings(spans="on", metadata="off", capacity="spot", termination_log="", outcome_file=os.devnull)


def train(url: str, steps: int, *, stop_after: int | None = None) -> None:
    with stayfast.run(url, total_steps=steps, settings=settings()) as run:
        for step in run.steps():
            if step % 4 == 3:
                run.save(now=True)
            if step == stop_after:
                run.interrupt("enough")


def by_name(exporter: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def test_an_attempt_its_steps_saves_and_its_end(memory: Any, tmp_path: Path) -> None:
    train(f"file://{tmp_path}/run", 10)
    found = by_name(memory)
    assert set(found) == {"stayfast.attempt", "stayfast.steps", "stayfast.snapshot", "stayfast.save"}
    (attempt,) = found["stayfast.attempt"]
    about = dict(attempt.attributes)
    assert (about["stayfast.run"], about["stayfast.attempt"]) == (f"file://{tmp_path}/run", 1)
    assert (about["stayfast.outcome"], about["stayfast.saved_step"]) == ("finished", 9)
    assert about["stayfast.capacity"] == "spot"
    groups = [
        (s.attributes["stayfast.first_step"], s.attributes["stayfast.last_step"]) for s in found["stayfast.steps"]
    ]
    assert groups == [(0, 3), (4, 7), (8, 9)]  # every step once
    assert [span.attributes["stayfast.step"] for span in found["stayfast.save"]] == [3, 7, 9]
    for name, each in found.items():
        for span in each:
            assert span.start_time <= span.end_time
            assert span.context.trace_id == attempt.context.trace_id
            if name != "stayfast.attempt":
                assert span.parent.span_id == attempt.context.span_id
                assert attempt.start_time - 10**7 <= span.start_time <= span.end_time <= attempt.end_time + 10**7


def test_a_notice_is_a_span_until_the_state_was_safe_and_the_next_attempt_restores(memory: Any, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/run"
    with pytest.raises(Interrupted):
        train(url, 20, stop_after=5)
    found = by_name(memory)
    (notice,) = found["stayfast.notice"]
    assert dict(notice.attributes) == {"stayfast.cause": "request", "stayfast.safe": True}
    assert dict(found["stayfast.attempt"][0].attributes)["stayfast.outcome"] == "interrupted"
    memory.clear()
    train(url, 20)
    found = by_name(memory)
    (restore,) = found["stayfast.restore"]
    assert restore.attributes["stayfast.step"] == 5
    assert found["stayfast.steps"][0].attributes["stayfast.first_step"] == 6
    assert found["stayfast.attempt"][0].attributes["stayfast.attempt"] == 2


def test_a_failure_is_an_error(memory: Any, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), stayfast.run(f"file://{tmp_path}/r", 5, settings=settings()) as run:
        for _ in run.steps():
            raise ZeroDivisionError
    (attempt,) = by_name(memory)["stayfast.attempt"]
    assert not attempt.status.is_ok
    assert attempt.attributes["stayfast.outcome"] == "failed"


def test_spans_that_fail_are_not_the_works_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry")

    class Span:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("the tracer is broken")

    class Provider:
        made = 0

        def get_tracer(self, *_: Any) -> Any:
            return self

        def start_span(self, name: str, **_: Any) -> Any:
            self.made += 1
            if name != spans.ATTEMPT:
                raise RuntimeError("no")
            from opentelemetry import trace

            return trace.INVALID_SPAN

        def force_flush(self) -> None:
            raise RuntimeError("nor this")

    provider = Provider()
    monkeypatch.setattr(spans, "find_provider", lambda: provider)
    train(f"file://{tmp_path}/run", 10)
    assert provider.made > 3


# -- over the wire


class Receiver(ThreadingHTTPServer):
    """What an OpenTelemetry collector is to us: POST /v1/traces, protobuf."""

    daemon_threads = True

    def __init__(self, *, stall: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stall = threading.Event()
        if not stall:
            self.stall.set()
        self.spans: list[tuple[str, dict[str, Any], str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def named(self, name: str) -> list[dict[str, Any]]:
        return [about for found, about, _ in self.spans if found == name]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.stall.wait(60)
        if self.headers.get("content-encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        for each in request.resource_spans:
            service = next((a.value.string_value for a in each.resource.attributes if a.key == "service.name"), "")
            for scope in each.scope_spans:
                for span in scope.spans:
                    about = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}
                    self.server.spans.append((span.name, about, service))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def receiver(*, stall: bool = False) -> Iterator[Receiver]:
    if importlib.util.find_spec("opentelemetry.exporter") is None and not os.environ.get("CI"):
        pytest.skip('pip install "stayfast[otel]"')
    server = Receiver(stall=stall)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.stall.set()
        server.shutdown()
        server.server_close()


def start(tmp_path: Path, url: str, **more: str) -> subprocess.Popen[str]:
    given = {"STAYFAST_SPANS": "on", "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_SERVICE_NAME": "trainer", **more}
    command = [sys.executable, "-c", TRAINER, f"file://{tmp_path}/run"]
    process = subprocess.Popen(
        command, env=environment(**given), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(12):
        assert process.stdout.readline(), process.communicate()[1]
    return process


def test_a_run_reaches_a_receiver_before_it_leaves(tmp_path: Path) -> None:
    with receiver() as server:
        process = start(tmp_path, server.url)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 75, errors
        assert {name for name, _, _ in server.spans} >= {
            "stayfast.attempt", "stayfast.steps", "stayfast.snapshot", "stayfast.save", "stayfast.notice",
        }  # fmt: skip
        assert {service for _, _, service in server.spans} == {"trainer"}
        (attempt,) = server.named("stayfast.attempt")
        assert (attempt["stayfast.outcome"], attempt["stayfast.cause"]) == ("interrupted", "unknown")
        assert server.named("stayfast.notice")[0]["stayfast.safe"] is True


@pytest.mark.parametrize("kind", ["silent", "nonsense"])
def test_a_receiver_that_is_away_costs_a_moment_at_most(tmp_path: Path, kind: str) -> None:
    with receiver(stall=True) as server:
        url = {"silent": server.url, "nonsense": "ht!tp:/nowhere"}[kind]
        process = start(tmp_path, url, STAYFAST_GRACE_SECONDS="20", STAYFAST_MARGIN_SECONDS="1")
        told = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 75, errors
        assert time.monotonic() - told < 15
        report = json.loads(next(line for line in errors.splitlines() if line.startswith("{")))
        assert report["saved"].startswith("step")


def test_a_worker_tells_claims_computations_and_records(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(TASK)
    items = "".join(json.dumps({"k": str(number)}) + "\n" for number in range(50))
    queue, sink = f"sqlite:///{tmp_path}/work.db?queue=q", f"sqlite:///{tmp_path}/work.db?table=t"
    with receiver() as server:
        given = environment(STAYFAST_SPANS="on", OTEL_EXPORTER_OTLP_ENDPOINT=server.url)
        command = [sys.executable, "-m", "stayfast"]
        subprocess.run(
            [*command, "enqueue", "--queue", queue, "--key", "k"],
            input=items,
            text=True,
            env=given,
            check=True,
            timeout=60,
        )
        subprocess.run(
            [*command, "work", "jobs:double", "--queue", queue, "--sink", sink, "--chunk", "10"],
            env=given, cwd=tmp_path, check=True, timeout=120,
        )  # fmt: skip
        assert sum(about["stayfast.items"] for about in server.named("stayfast.compute")) == 50
        assert sum(about["stayfast.recorded"] for about in server.named("stayfast.record")) == 50
        claims = server.named("stayfast.claim") + server.named("stayfast.record")
        assert sum(about["stayfast.claimed"] for about in claims) == 50
        assert server.named("stayfast.worker")[0]["stayfast.task"] == "jobs:double"


# -- off, and not installed


def child(code: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment(**more), capture_output=True, text=True, timeout=60
    )


PROGRAM = """
import sys, stayfast
with stayfast.run("memory://x", 3) as run:
    for step in run.steps():
        pass
print(sorted(name for name in sys.modules if name.startswith("opentelemetry") or name.endswith("runtime.spans")))
"""


def test_off_nothing_is_imported() -> None:
    assert child(PROGRAM).stdout.strip() == "[]"
    assert child(PROGRAM, STAYFAST_SPANS="off", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9").stdout.strip() == "[]"


def test_not_installed_is_a_line_in_the_log() -> None:
    found = child("import sys; sys.modules['opentelemetry'] = None\n" + PROGRAM, STAYFAST_SPANS="on")
    assert found.returncode == 0
    assert "no spans" in found.stderr
    assert 'pip install "stayfast[otel]"' in found.stderr


def test_every_span_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for name in (*spans.NAMES.values(), spans.ATTEMPT, spans.STEPS, spans.NOTICE, spans.WORKER):
        assert f"`{name}`" in text, name
