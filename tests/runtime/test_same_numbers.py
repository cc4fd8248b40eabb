"""A seeded program beside every optional feature: its output equals the program's alone, bit for bit.

The program draws from the global generators of ``random``, NumPy and torch, and writes what it drew, its weights, the
state of the generators, and what else could change a result: environment, threads, warnings, locale, precision.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from metadata_server import MetadataServer

from faults.noisy_server import NoisyServer

ROOT = Path(__file__).resolve().parents[2]
STEPS = 30
PROGRAM = """
import decimal, gc, hashlib, json, locale, os, random, signal, sys, time, warnings
import numpy, torch

target, url, stop_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(3)
numpy.random.seed(4)
torch.manual_seed(5)
drawn, weights = [], torch.zeros(64)


def train(step):
    noise = [random.gauss(0, 1), float(numpy.random.normal()), float(torch.randn(()))]
    drawn.append([value.hex() for value in noise])
    weights.add_(torch.randn(64), alpha=noise[0] + random.random())
    time.sleep(0.04)


def surroundings():
    ours = ("STAYFAST_", "OTEL_", "GCE_METADATA", "STORAGE_EMULATOR", "PYTEST_", "HOSTNAME", "TMPDIR")
    ours += ("PWD", "OLDPWD", "SHLVL", "PYTHONUNBUFFERED")  # exec sets the last one
    # Libraries that come with spans add filters for warnings of their own.
    libraries = ("opentelemetry", "urllib3", "requests")
    return {
        "environment": {k: v for k, v in os.environ.items() if not k.startswith(ours) and k != "_"},
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "dtype": str(torch.get_default_dtype()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul": torch.get_float32_matmul_precision(),
        "gradients": torch.is_grad_enabled(),
        "numpy": numpy.geterr(),
        "warnings": [str(each) for each in warnings.filters if not any(name in str(each) for name in libraries)],
        "locale": locale.setlocale(locale.LC_ALL),
        "decimal": str(decimal.getcontext()),
        "garbage": [gc.isenabled(), gc.get_threshold()],
        "recursion": sys.getrecursionlimit(),
        "umask": [os.umask(0o22), os.umask(0o22)],
    }


def generators():
    state = repr(random.getstate()), repr(numpy.random.get_state()), torch.get_rng_state().tolist()
    return [hashlib.sha256(repr(each).encode()).hexdigest() for each in state]


if url:
    import stayfast

    with stayfast.run(url, total_steps=30) as run:
        run.track(drawn=(lambda: list(drawn), lambda saved: drawn.__setitem__(slice(None), saved)))
        run.track(weights=(lambda: weights.clone(), lambda saved: weights.copy_(saved)))
        run.on_drain(lambda: time.sleep(0.01), name="flush")
        for step in run.steps():
            train(step)
            if run.attempt == 1 and step == stop_at:
                os.kill(os.getpid(), signal.SIGTERM)
            if step % 4 == 3:
                run.save()
else:
    for step in range(30):
        train(step)

result = {"drawn": drawn, "weights": [float(w).hex() for w in weights], "generators": generators(), **surroundings()}
with open(target, "w") as file:
    json.dump(result, file, sort_keys=True, indent=1)
"""


class Collector(ThreadingHTTPServer):
    """Receives spans; ``busy`` requests are answered with 503 first. Ids are kept in the order of arrival."""

    daemon_threads = True

    def __init__(self, busy: int) -> None:
        super().__init__(("127.0.0.1", 0), _Collect)
        self.busy, self.requests = busy, 0
        self.traces: set[bytes] = set()
        self.spans: list[bytes] = []


class _Collect(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests += 1
        refused = self.server.requests <= self.server.busy
        if not refused:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    self.server.spans += [span.span_id for span in scope.spans]
                    self.server.traces |= {span.trace_id for span in scope.spans}
        self.send_response(503 if refused else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def collector(busy: int = 0) -> Iterator[tuple[Collector, dict[str, str]]]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    server = Collector(busy)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        # Batches leave while the program runs, as they do in a program of hours.
        yield server, {"STAYFAST_SPANS": "on", "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "40"}
    finally:
        server.shutdown()
        server.server_close()


# -- running the program


class Place:
    """A folder, the program in it, and what it printed last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)
        self.errors = ""

    def start(
        self,
        *prefix: str,
        url: str | None = None,
        stop_at: int = -1,
        beside: Callable[[], None] | None = None,
        command: tuple[str, ...] = (),
        **more: str,
    ) -> int:
        """Run it once, with ``beside`` called again and again while it runs; the exit code."""
        where = f"file://{self.folder}/run" if url is None else url
        program = (sys.executable, str(self.program), str(self.folder / "result.json"), where, str(stop_at))
        command = command or (*prefix, *program)
        given = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "STAYFAST_METADATA": "off", **more}
        with open(self.folder / "errors.txt", "w+") as errors:
            process = subprocess.Popen(command, cwd=self.folder, env=given, stderr=errors, stdout=errors)
            try:
                deadline = time.monotonic() + 240
                while process.poll() is None:
                    assert time.monotonic() < deadline, "the program did not end"
                    if beside is not None:
                        beside()
                    time.sleep(0.02)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            errors.seek(0)
            self.errors = errors.read()
        return process.returncode

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program writes without stayfast."""
    pytest.importorskip("torch")
    pytest.importorskip("numpy")
    place = Place(tmp_path_factory.mktemp("alone"))
    assert place.start(url="") == 0, place.errors
    result = place.result()
    assert len(result["drawn"]) == STEPS
    return result


@pytest.fixture
def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


STAYFAST = (sys.executable, "-m", "stayfast")


def test_a_run(place: Place, alone: dict[str, Any]) -> None:
    assert place.start() == 0, place.errors
    assert place.result() == alone


@pytest.mark.parametrize("busy", [0, 1], ids=["received", "refused at first"])
def test_spans(place: Place, alone: dict[str, Any], busy: int) -> None:
    with collector(busy) as (server, given):
        assert place.start(**given) == 0, place.errors
        assert server.requests > busy  # several batches left while it ran
        assert len(server.spans) > 5
    assert place.result() == alone


def test_spans_of_all_attempts_have_ids_of_their_own(place: Place, alone: dict[str, Any]) -> None:
    with collector() as (server, given):
        for stop_at in (5, 11, -1):
            place.program.write_text(PROGRAM.replace("run.attempt == 1 and ", ""))
            assert place.start(stop_at=stop_at, **given) == (0 if stop_at < 0 else 75), place.errors
        assert len(server.traces) == 3  # one for each attempt
        assert len(server.spans) == len(set(server.spans)) > 10
    assert place.result() == alone


def test_a_notice_a_drain_and_a_resume(place: Place, alone: dict[str, Any]) -> None:
    assert place.start(stop_at=13) == 75, place.errors
    assert place.start() == 0, place.errors
    assert place.result() == alone


def test_metrics_that_are_scraped(place: Place, alone: dict[str, Any], free_port: int) -> None:
    scraped = []

    def scrape() -> None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{free_port}/metrics") as answer:
            scraped.append(answer.read())

    given = {"STAYFAST_METRICS_PORT": str(free_port), "STAYFAST_METRICS_ADDRESS": "127.0.0.1"}
    assert place.start(beside=scrape, **given) == 0, place.errors
    assert len(scraped) > 1
    assert place.result() == alone


def test_fingerprints(place: Place, alone: dict[str, Any]) -> None:
    assert place.start(STAYFAST_FINGERPRINTS=str(place.folder / "prints")) == 0, place.errors
    assert len((place.folder / "prints").read_text().splitlines()) >= STEPS
    assert place.result() == alone


def test_every_notice_source(place: Place, alone: dict[str, Any]) -> None:
    with MetadataServer() as server:
        server.faults["instance/preempted"] += ["503", "503"]
        given = {
            "STAYFAST_METADATA": "on",
            "GCE_METADATA_HOST": server.host,
            "STAYFAST_NOTICE_FILE": str(place.folder / "notice"),
            "STAYFAST_LEASE_FILE": str(place.folder / "lease"),
            "STAYFAST_LEASE_ENDS_AT": "2126-01-01T00:00:00Z",
            "STAYFAST_EXTRA_SIGNAL": "SIGUSR1",
        }
        assert place.start(**given) == 0, place.errors
        assert server.asked("instance/preempted")
    assert place.result() == alone


def test_a_bucket_that_fails_now_and_then(place: Place, alone: dict[str, Any]) -> None:
    with NoisyServer(5, noise=0.3) as server:
        url = "gs://bucket/run"
        assert place.start(url=url, STORAGE_EMULATOR_HOST=server.url) == 0, place.errors
        assert server.injected.total() > 3  # each of them was followed by a pause and another try
    assert place.result() == alone


def test_exec(place: Place, alone: dict[str, Any]) -> None:
    assert place.start(*STAYFAST, "exec", "--") == 0, place.errors
    assert place.result() == alone


KEEPING = """time.sleep(0.04)
    with open(f"kept/{step:02}", "w") as file:
        json.dump(drawn[-1], file)"""


def with_sync(place: Place) -> tuple[str, ...]:
    """What to put before a program that now writes a file into the folder that is copied, at each step."""
    place.program.write_text(PROGRAM.replace("time.sleep(0.04)", KEEPING))
    return (*STAYFAST, "exec", "--sync", f"./kept=file://{place.folder}/copies", "--")


def copied(place: Place) -> list[Any]:
    """What a machine with an empty disk gets back, file after file."""
    back = place.folder / "back"
    back.mkdir()
    restore = [*STAYFAST, "exec", "--sync", f"./kept=file://{place.folder}/copies", "--", "true"]
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "STAYFAST_METADATA": "off"}
    subprocess.run(restore, cwd=back, env=given, check=True, timeout=60)
    paths = sorted((back / "kept").iterdir())
    assert [path.name for path in paths] == [f"{step:02}" for step in range(STEPS)]
    return [json.loads(path.read_text()) for path in paths]


def test_exec_and_sync_beside_the_program_alone(place: Place, alone: dict[str, Any]) -> None:
    assert place.start(*with_sync(place), url="") == 0, place.errors
    assert place.result() == alone
    assert copied(place) == alone["drawn"]


@pytest.mark.slow
def test_rehearse(place: Place, alone: dict[str, Any]) -> None:
    """Attempts run in copies that are removed; each one that ends leaves its result outside, too."""
    kept = place.folder.parent / f"{place.folder.name}-kept"
    kept.mkdir()
    program = PROGRAM.replace("time.sleep(0.04)", "time.sleep(0.1)")
    program += f"open('{kept}/' + os.urandom(4).hex(), 'w').write(open(target).read())\n"
    place.program.write_text(program)
    here = (sys.executable, "program.py", "result.json", "file://./run", "-1")
    how = ("--trials", "1", "--writable", str(kept), "--compare", "result.json")
    code = place.start(command=(*STAYFAST, "rehearse", *how, "--", *here), STAYFAST_CHECKPOINT_SECONDS="0.5")
    assert code == 0, place.errors
    assert "survives" in place.errors
    results = [json.loads(path.read_text()) for path in kept.iterdir()]
    assert len(results) >= 3  # two uninterrupted runs, one trial
    assert all(result == alone for result in results)


def test_everything_at_once(place: Place, alone: dict[str, Any], free_port: int) -> None:
    with collector(1) as (server, given), NoisyServer(8, noise=0.2) as bucket:
        given |= {
            "STORAGE_EMULATOR_HOST": bucket.url,
            "STAYFAST_METRICS_PORT": str(free_port),
            "STAYFAST_METRICS_ADDRESS": "127.0.0.1",
            "STAYFAST_FINGERPRINTS": str(place.folder / "prints"),
            "STAYFAST_NOTICE_FILE": str(place.folder / "notice"),
        }
        prefix = with_sync(place)
        assert place.start(*prefix, url="gs://bucket/run", stop_at=9, **given) == 75, place.errors
        assert place.start(*prefix, url="gs://bucket/run", **given) == 0, place.errors
        assert len(server.spans) == len(set(server.spans)) > 5
    assert place.result() == alone
    assert copied(place) == alone["drawn"]


TASK = """
import json, random, sys
import numpy, torch
import stayfast

random.seed(3)
numpy.random.seed(4)
torch.manual_seed(5)


@stayfast.task(key=lambda item: item["k"])
def draw(batch):
    return [[item["k"], random.random(), float(numpy.random.normal()), float(torch.rand(()))] for item in batch]
"""


@pytest.mark.parametrize("spans", [False, True], ids=["alone", "with spans and metrics"])
def test_a_worker(tmp_path: Path, free_port: int, spans: bool) -> None:
    pytest.importorskip("torch")
    (tmp_path / "jobs.py").write_text(TASK)
    queue, sink = f"sqlite:///{tmp_path}/work.db?queue=q", f"sqlite:///{tmp_path}/work.db?table=t"
    items = "".join(json.dumps({"k": f"{number:03}"}) + "\n" for number in range(60))
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "STAYFAST_METADATA": "off"}
    subprocess.run(
        [*STAYFAST, "enqueue", "--queue", queue, "--key", "k"],
        input=items, text=True, env=given, check=True, timeout=60,
    )  # fmt: skip
    with collector() as (server, more):
        if spans:
            given |= more | {"STAYFAST_METRICS_PORT": str(free_port), "STAYFAST_METRICS_ADDRESS": "127.0.0.1"}
        work = [*STAYFAST, "work", "jobs:draw", "--queue", queue, "--sink", sink, "--chunk", "5", "--workers", "1"]
        subprocess.run(work, cwd=tmp_path, env=given, check=True, timeout=120)
        assert bool(server.spans) == spans
    with contextlib.closing(sqlite3.connect(tmp_path / "work.db")) as db:
        found = sorted(json.loads(payload) for (payload,) in db.execute("SELECT payload FROM t"))
    code = TASK.split("import stayfast")[0] + (
        "random.seed(3); numpy.random.seed(4); torch.manual_seed(5)\n"
        "print(json.dumps([[f'{n:03}', random.random(), float(numpy.random.normal()), float(torch.rand(()))] "
        "for n in range(60)]))"
    )
    expected = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found == json.loads(expected.stdout)


# -- what others draw in our name


def test_a_provider_of_the_program_that_shares_the_generator_is_named_once(place: Place, alone: dict[str, Any]) -> None:
    pytest.importorskip("opentelemetry.sdk")
    provider = (
        "from opentelemetry import trace\nfrom opentelemetry.sdk.trace import TracerProvider\n"
        "import random as r, opentelemetry.sdk.trace.id_generator as g\n"
        "class Apart(g.RandomIdGenerator):\n"
        "    generate_span_id = lambda self: r.SystemRandom().getrandbits(64)\n"
        "    generate_trace_id = lambda self: r.SystemRandom().getrandbits(128)\n"
        "trace.set_tracer_provider(TracerProvider(GENERATOR))\n"
        "import stayfast, sys\n"
        "with stayfast.run(sys.argv[2] + '-before', total_steps=1) as run:\n"
        "    list(run.steps())\n"
    )
    for generator, lines in (("", 1), ("id_generator=Apart()", 0)):
        place.program.write_text(provider.replace("GENERATOR", generator) + PROGRAM)
        url = f"file://{place.folder}/{lines}"
        assert place.start(url=url, STAYFAST_SPANS="on") == 0, place.errors
        assert place.errors.count("draws the ids of spans from the global random generator") == lines
        assert (place.result() == alone) == (lines == 0)


@pytest.mark.parametrize(
    ("packages", "draw"),
    [
        (("google.api_core",), "from google.api_core.retry import exponential_sleep_generator as f\nnext(f(1, 9))"),
        (("google.auth",), "import google.auth._exponential_backoff as e\ne.ExponentialBackoff()._calculate_jitter()"),
        (("psycopg",), "import psycopg._conninfo_attempts as a\na.shuffle([1, 2, 3])"),
        (("opentelemetry.exporter",), "import opentelemetry.exporter.otlp.common.http as h\nh.random.uniform(1, 2)"),
    ],
)  # fmt: skip
def test_the_jitter_of_libraries_is_kept_apart(packages: tuple[str, ...], draw: str) -> None:
    code = (
        f"import random, {packages[0]}\nfrom stayfast.randomness import keep_apart\n"
        f"load, call = {draw.splitlines()[0]!r}, {draw.splitlines()[1]!r}\nexec(load)\n"
        "def draws():\n    before = random.getstate()\n    exec(call)\n    return random.getstate() != before\n"
        f"assert draws(), 'this library draws no more: drop it'\nkeep_apart(*{packages!r})\nassert not draws()\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr


def test_no_module_of_ours_uses_a_global_generator() -> None:
    """``random.Random(seed)`` and generators made for a purpose are fine; the functions of the modules are not."""
    shared = {"random", "np.random", "numpy.random"}
    allowed = {"Random", "SystemRandom", "getstate", "setstate", "default_rng", "Generator", "get_state", "set_state"}
    found = []
    for path in sorted((ROOT / "src" / "stayfast").rglob("*.py")):
        if "demo" in path.parts or path.name == "randomness.py":  # the demo's trainer is a seeded program itself
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in shared and node.attr not in allowed:
                found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
            if isinstance(node, ast.ImportFrom) and node.module in ("random", "numpy.random"):
                found += [f"{path.name}:{node.lineno}: {each.name}" for each in node.names if each.name not in allowed]
    assert not found


def test_a_pubsub_queue_that_is_away_draws_nothing() -> None:
    """Its client tries again for a minute, with a pause drawn each time; it is left alone after some of them."""
    pytest.importorskip("google.cloud.pubsub_v1")
    code = (
        "import os, random, threading, time\n"
        "from google.api_core.retry import retry_base\n"
        "from stayfast.batch.queue.open_queue import open_queue\n"
        "pauses = []\n"
        "real = retry_base.exponential_sleep_generator\n"
        "def counted(*given, **more):\n"
        "    for pause in real(*given, **more):\n"
        "        pauses.append(pause)\n"
        "        yield pause\n"
        "import google.api_core.retry.retry_unary as unary\n"
        "unary.exponential_sleep_generator = counted\n"
        "def try_to_open():\n"
        "    open_queue('pubsub://lab/x', sink='sqlite:///x.db?table=r')\n"
        "random.seed(1)\n"
        "before = random.getstate()\n"
        "threading.Thread(target=try_to_open, daemon=True).start()\n"
        "deadline = time.monotonic() + 60\n"
        "while len(pauses) < 3 and time.monotonic() < deadline: time.sleep(0.05)\n"
        "assert len(pauses) >= 3, pauses\n"
        "assert random.getstate() == before\n"
        "os._exit(0)\n"
    )
    given = {**os.environ, "PUBSUB_EMULATOR_HOST": "127.0.0.1:9", "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
