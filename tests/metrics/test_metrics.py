"""Metrics: a real run and real workers are scraped; names in docs, dashboard and alerts are those of the code."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from stayfast.cli.main import main
from stayfast.model.queue_age import Backlog
from stayfast.settings import Settings, read_settings
from stayfast.telemetry.metric_table import METRICS
from stayfast.telemetry.metrics_server import start_metrics_server
from stayfast.telemetry.prometheus import PrometheusText

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')
NAMES = {metric.name for metric in METRICS}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scrape(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


def parse(text: str) -> dict[str, dict[str, float]]:
    """Strict: every line is a comment or a sample, every sample follows its TYPE, no series stands twice."""
    found: dict[str, dict[str, float]] = {}
    typed = ""
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("# TYPE "):
            typed = line.split()[2]
            assert typed in NAMES
            continue
        if line.startswith("# HELP "):
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] in (typed, f"{typed}_sum", f"{typed}_count")
        series = found.setdefault(match[1], {})
        assert (match[2] or "") not in series, line
        series[match[2] or ""] = float(match[3])
    return found


def eventually(look, seconds: float = 30.0):
    end = time.monotonic() + seconds
    while True:
        try:
            found = look()
            if found:
                return found
        except (OSError, urllib.error.URLError):
            pass
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


TRAINER = """
import sys, time, stayfast
with stayfast.run(sys.argv[1], total_steps=100000) as run:
    run.track(x=(lambda: {"data": list(range(100))}, lambda state: None))
    for step in run.steps():
        time.sleep(0.002)
        if step % 20 == 19:
            run.save()
"""


def start(program: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    base = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "STAYFAST_METADATA": "off", **environment}
    return subprocess.Popen([sys.executable, "-c", program, *arguments], env=base, stderr=subprocess.DEVNULL)


def test_a_run_is_scraped_over_a_kill_and_a_notice(tmp_path: Path) -> None:
    port = free_port()
    more = {
        "STAYFAST_METRICS_PORT": str(port),
        "STAYFAST_METRICS_ADDRESS": "127.0.0.1",
        "STAYFAST_USD_PER_HOUR": "3.6",
        "STAYFAST_ZONE": 'a"b\\c\nd',
    }
    url = f"file://{tmp_path}/run"
    label = f'run="{url}"'
    for number, how in ((1, signal.SIGKILL), (2, signal.SIGTERM), (3, None)):
        process = start(TRAINER, url, **more)
        try:
            found = eventually(
                lambda: (seen := parse(scrape(port))).get("stayfast_checkpoint_bytes_total", {}) and seen
            )
            found = eventually(
                lambda: (seen := parse(scrape(port)))["stayfast_checkpoint_bytes_total"][label] > 0 and seen
            )
            assert found["stayfast_attempts_total"][label] == number
            assert found["stayfast_step"][label] >= found["stayfast_saved_step"][label] >= 0
            assert found["stayfast_checkpoints_total"][label] >= 1
            assert found["stayfast_step_seconds"][f'{label},quantile="0.5"'] > 0.001
            assert found["stayfast_total_steps"][label] == 100000
            if how is None:
                assert found["stayfast_interruptions_total"] == {
                    f'{label},cause="killed"': 1,
                    f'{label},cause="unknown"': 1,
                }
                assert found["stayfast_safe_seconds_count"][label] == 1
                assert 0 <= found["stayfast_safe_seconds_sum"][label] < 30
                assert found["stayfast_unaccounted_seconds_total"][label] > 0
                assert found["stayfast_cost_usd_total"][label] > 0
                assert 0 < found["stayfast_goodput_ratio"][label] <= 1
                assert any('a\\"b\\\\c\\nd' in labels for labels in found["stayfast_run_info"])
            process.send_signal(how or signal.SIGKILL)
            assert process.wait(60) == {signal.SIGKILL: -9, signal.SIGTERM: 75, None: -9}[how]
        finally:
            process.kill()
            process.wait()


def test_a_port_that_is_taken_does_not_hurt_the_run(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        program = "import stayfast\nwith stayfast.run(None, total_steps=3) as run:\n    for step in run.steps(): pass"
        port = str(taken.getsockname()[1])
        process = start(program, STAYFAST_METRICS_PORT=port, STAYFAST_METRICS_ADDRESS="127.0.0.1")
        assert process.wait(60) == 0


def test_workers_tell_their_items_and_their_queue(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "import time, stayfast\n"
        "@stayfast.task(key=lambda item: item['id'], each=True)\n"
        "def job(item):\n"
        "    time.sleep(0.02)\n"
        "    if item['id'].startswith('bad'):\n"
        "        raise ValueError('no')\n"
        "    return 1\n"
    )
    base = f"sqlite://{tmp_path}/work.db"
    items = tmp_path / "items.jsonl"
    items.write_text("".join(json.dumps({"id": f"bad-{n}" if n < 3 else f"k{n}"}) + "\n" for n in range(400)))
    assert main(["enqueue", "--queue", f"{base}?queue=images", "--key", "id", str(items)]) == 0
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}", "STAYFAST_METADATA": "off"}
    environment |= {"STAYFAST_METRICS_PORT": str(port), "STAYFAST_METRICS_ADDRESS": "127.0.0.1"}
    command = [
        sys.executable,
        "-m",
        "stayfast",
        "work",
        "jobs:job",
        "--queue",
        f"{base}?queue=images",
        "--workers",
        "2",
    ]
    command += ["--sink", f"{base}?table=r", "--max-failures", "1", "--chunk", "10"]
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        found = eventually(
            lambda: (
                (seen := parse(scrape(port)))["stayfast_items_total"]['outcome="done"'] > 5
                and seen["stayfast_items_total"]['outcome="dead"'] > 0
                and seen
            )
        )
        assert found["stayfast_workers"][""] == 2
        states = found["stayfast_queue_items"]
        assert sum(states.values()) == 400
        assert set(states) == {
            f'queue="images",state="{name}"' for name in ("ready", "delayed", "leased", "done", "dead")
        }
        assert found["stayfast_queue_oldest_seconds"]['queue="images"'] >= 0
        assert found["stayfast_queue_up"] == {'queue="images"': 1}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75
    finally:
        process.kill()
        process.wait()


def test_clients_that_hang_lie_or_leave() -> None:
    out = PrometheusText(METRICS)
    out.add_sample("stayfast_workers", 3)
    port = free_port()
    end = start_metrics_server(Settings(metrics_port=port, metrics_address="127.0.0.1"), lambda: out)
    try:
        for data in (b"", b"\x00" * 9000, b"GET /metrics", b"POST /metrics HTTP/1.1\r\n\r\n"):
            client = socket.create_connection(("127.0.0.1", port), timeout=10)
            with client, contextlib.suppress(OSError):  # it may have been answered and closed already
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
        assert parse(scrape(port)) == {"stayfast_workers": {"": 3}}
        for path in ("/", "/metrics/", "/../metrics"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                scrape(port, path)
            assert refused.value.code == 404
    finally:
        end()
    assert eventually(lambda: "stayfast-metrics" not in {thread.name for thread in threading.enumerate()})


def test_a_client_that_sends_byte_by_byte_has_it_for_a_moment() -> None:
    port = free_port()
    end = start_metrics_server(
        Settings(metrics_port=port, metrics_address="127.0.0.1"), lambda: PrometheusText(METRICS)
    )
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as slow, contextlib.suppress(OSError):
            began = time.monotonic()
            while time.monotonic() - began < 60:
                slow.sendall(b"G")
                time.sleep(0.1)
        assert time.monotonic() - began < 30
        assert scrape(port) == "\n"
    finally:
        end()


def test_a_reading_that_fails_is_an_answer_not_an_end() -> None:
    calls = []

    def read() -> PrometheusText:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("torn")
        return PrometheusText(METRICS)

    port = free_port()
    end = start_metrics_server(Settings(metrics_port=port, metrics_address="127.0.0.1"), read)
    try:
        with pytest.raises(urllib.error.HTTPError) as failed:
            scrape(port)
        assert failed.value.code == 500
        assert scrape(port) == "\n"
    finally:
        end()


def test_settings() -> None:
    assert read_settings({}).metrics_port == 0
    assert read_settings({"STAYFAST_METRICS_PORT": "9464"}).metrics_port == 9464
    with pytest.raises(Exception, match="STAYFAST_METRICS_PORT"):
        read_settings({"STAYFAST_METRICS_PORT": "99999"})


def test_nothing_is_imported_or_opened_unless_asked() -> None:
    program = (
        "import sys, stayfast\nwith stayfast.run(None, total_steps=2) as run:\n    for step in run.steps(): pass\n"
        "assert 'stayfast.telemetry.metric_table' not in sys.modules and 'http.server' not in sys.modules"
    )
    assert start(program).wait(60) == 0


def test_an_unknown_name_or_label_is_our_mistake() -> None:
    with pytest.raises(KeyError):
        PrometheusText(METRICS).add_sample("stayfast_nothing", 1)
    with pytest.raises(AssertionError):
        PrometheusText(METRICS).add_sample("stayfast_workers", 1, who="me")


def test_the_age_of_the_oldest_open_item() -> None:
    backlog = Backlog()
    assert backlog.oldest_seconds(5) == 0
    backlog.add(10, arrived=100, settled=0)
    assert backlog.oldest_seconds(15) == 5
    backlog.add(20, arrived=200, settled=50)
    assert backlog.oldest_seconds(25) == 15  # item 51 was there at 10
    backlog.add(30, arrived=200, settled=100)
    assert backlog.oldest_seconds(35) == 15  # item 101 came at 20
    backlog.add(40, arrived=200, settled=200)
    assert backlog.oldest_seconds(45) == 0
    backlog.add(50, arrived=5, settled=0)  # another queue under the same name
    assert backlog.oldest_seconds(51) == 1


# -- what comes with the documentation


def test_the_page_lists_every_metric_and_no_other() -> None:
    text = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(stayfast_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", text, re.MULTILINE)
    assert [row[0] for row in rows] == [metric.name for metric in METRICS]
    for (name, kind, labels, meaning), metric in zip(rows, METRICS, strict=True):
        assert kind == metric.kind, name
        assert tuple(re.findall(r"`(\w+)`", labels)) == metric.labels, name
        assert meaning == metric.meaning, name


def names_in(expression: str) -> set[str]:
    found = set()
    for name in re.findall(r"\bstayfast_[a-z_]+", expression):
        found.add(re.sub(r"_(sum|count)$", "", name) if name not in NAMES else name)
    return found


def labels_in(expression: str) -> set[str]:
    inside = "".join(re.findall(r"\{([^}]*)\}", expression))
    return set(re.findall(r"([a-z]+)\s*=~?", inside)) | {
        word.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for word in group.split(",")
    }


def check_expression(expression: str) -> None:
    names = names_in(expression)
    assert names, expression
    assert names <= NAMES, expression
    known = {label for metric in METRICS if metric.name in names for label in metric.labels}
    assert labels_in(expression) <= known, expression
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing), expression
    for metric in METRICS:  # a rate of a gauge is a usual mistake
        if metric.kind != "counter":
            assert not re.search(rf"(rate|increase)\({metric.name}\b", expression), expression


def test_the_grafana_dashboard_asks_for_what_exists() -> None:
    board = json.loads((ROOT / "docs/monitoring/grafana.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    used = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for target in panel["targets"]:
            check_expression(target["expr"])
            used |= names_in(target["expr"])
    variables = {item["name"] for item in board["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) <= variables
    assert len(panels) >= 12
    assert {"stayfast_goodput_ratio", "stayfast_queue_items", "stayfast_interruptions_total"} <= used


def test_the_alerts_ask_for_what_exists() -> None:
    document = _yaml("alerts.yaml")
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 8
    for rule in rules:
        check_expression(rule["expr"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            names = names_in(rule["expr"])
            assert any(label in metric.labels for metric in METRICS if metric.name in names)
        assert rule["annotations"]["description"]


def test_the_pod_monitoring_is_one() -> None:
    document = _yaml("pod-monitoring.yaml")
    assert document["kind"] == "PodMonitoring"
    assert document["spec"]["endpoints"][0]["path"] == "/metrics"


def _yaml(name: str):
    import yaml

    return yaml.safe_load((ROOT / "docs/monitoring" / name).read_text())
