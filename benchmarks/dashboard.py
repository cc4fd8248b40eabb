"""The dashboard with 200 runs and 10,000 checkpoints: first paint, idle CPU, and how soon 50 viewers see a commit.

python benchmarks/dashboard.py [--runs 200] [--checkpoints 50] [--viewers 50] [--seconds 10]

Goals: first paint under 1 s, idle CPU under 1 %, 50 viewers on one process. Paint is measured in headless chromium when
it and selenium are there; load time of the browser itself is in it, so a bare page of the same server stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from reporting import HERE, SOURCE, parse, publish

sys.path.insert(0, str(SOURCE))
sys.path.insert(0, str(HERE.parent / "tests" / "dashboard"))

from dashboard_server import Dashboard, row

from stayfast.clock import to_rfc3339
from stayfast.runtime.run_record.record import RECORD_KEY, CheckpointRecord, RunRecord, encode

TICK = os.sysconf("SC_CLK_TCK")


def write_head(folder: Path, checkpoints: int, newest: int) -> None:
    """As a commit does it: another file, then the name."""
    now = time.time()
    rows = tuple(
        row(number, started_at=to_rfc3339(now - 6000 + 1000 * number), ended_at=to_rfc3339(now - 5000 + 1000 * number))
        for number in range(1, 6)
    )
    listed = tuple(CheckpointRecord(newest - n, 5, to_rfc3339(now - 60 * n), size=7 << 30) for n in range(checkpoints))
    head = RunRecord(f"file://{folder}", 5, "token", listed, rows, total_steps=100_000)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".new").write_bytes(encode(head))
    os.replace(folder / ".new", folder / RECORD_KEY)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def cpu_share(pid: int, seconds: float) -> float:
    before, started = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - started)


def paint(url: str, repeats: int) -> dict[str, float] | None:
    """Median milliseconds to the first content and to the whole overview, each load in an empty cache."""
    try:
        from real_browser import open_browser

        browser = open_browser()
    except BaseException:  # noqa: BLE001 - no browser, no numbers; pytest's skip is a BaseException
        return None
    script = """
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    const mark = performance.getEntriesByName("painted")[0];
    const rows = document.querySelectorAll(".runs li").length;
    return [paint ? paint.startTime : null, mark ? mark.startTime : null, rows]"""
    found: dict[str, list[float]] = {"content": [], "overview": [], "bare": []}
    try:
        for _ in range(repeats):
            browser.execute_cdp_cmd("Network.clearBrowserCache", {})
            browser.get(url + "assets/icon.svg")
            bare = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
            found["bare"].append(browser.execute_script(bare))
            browser.get(url)
            end = time.monotonic() + 20
            while time.monotonic() < end:
                content, overview, rows = browser.execute_script(script)
                if content and overview and rows:
                    found["content"].append(content)
                    found["overview"].append(overview)
                    break
                time.sleep(0.05)
    finally:
        browser.quit()
    return {name: statistics.median(values) for name, values in found.items()}


class Viewers:
    """Many event streams, read by one thread."""

    def __init__(self, port: int, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self.buffers: dict[socket.socket, bytes] = {}
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)
            self.buffers[connection] = b""

    def wait_for(self, step: int, seconds: float) -> list[float]:
        """When each of them was told of this step; monotonic seconds."""
        marker, seen = f'"step":{step},'.encode(), {}
        end = time.monotonic() + seconds
        while len(seen) < len(self.buffers) and time.monotonic() < end:
            for key, _ in self._selector.select(0.1):
                connection: Any = key.fileobj
                data = self.buffers[connection] + connection.recv(1 << 20)
                if marker in data:
                    seen.setdefault(connection, time.monotonic())
                self.buffers[connection] = data[-4096:]
        return list(seen.values())

    def close(self) -> None:
        for connection in self.buffers:
            connection.close()


def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    runs = folder / "runs"
    for number in range(options.runs):
        write_head(runs / f"run-{number:03d}", options.checkpoints, 5000)
    rows: list[dict[str, Any]] = []

    def tell(what: str, value: float, unit: str, goal: float | None = None) -> None:
        rows.append(
            {
                "what": what,
                "value": round(value, 4),
                "unit": unit,
                "goal": goal or "-",
                "met": goal is None or value < goal,
            }
        )

    with Dashboard(folder, str(runs)) as dashboard:
        pid = dashboard.process.pid
        started = time.monotonic()
        size = len(dashboard.ask("GET", "/api/overview").body)
        tell("first overview, as JSON", time.monotonic() - started, "s")
        warm = []
        for _ in range(9):
            started = time.monotonic()
            dashboard.ask("GET", "/api/overview")
            warm.append(time.monotonic() - started)
        tell("overview again", statistics.median(warm), "s")
        tell("its size", size / 1000, "kB")
        painted = paint(dashboard.url, options.repeats)
        if painted is not None:
            tell("first content on the screen", painted["content"] / 1000, "s", 1.0)
            tell("overview on the screen", painted["overview"] / 1000, "s", 1.0)
            tell("an icon of the same server", painted["bare"] / 1000, "s")
        time.sleep(2)
        tell("CPU, nobody watching", 100 * cpu_share(pid, options.seconds), "%", 1.0)
        viewers = Viewers(dashboard.port, 1)
        tell("CPU, one viewer, nothing new", 100 * cpu_share(pid, options.seconds), "%")
        viewers.close()
        viewers = Viewers(dashboard.port, options.viewers)
        time.sleep(2)
        tell(f"CPU, {options.viewers} viewers, nothing new", 100 * cpu_share(pid, options.seconds), "%", 1.0)
        delays: list[float] = []
        before, began = cpu_seconds(pid), time.monotonic()
        for number in range(options.commits):
            write_head(runs / "run-007", options.checkpoints, 6000 + number)
            written = time.monotonic()
            delays += [at - written for at in viewers.wait_for(6000 + number, 20)]
            time.sleep(0.2)
        share = (cpu_seconds(pid) - before) / (time.monotonic() - began)
        viewers.close()
        assert len(delays) == options.commits * options.viewers, "somebody was not told"
        tell(f"from commit to {options.viewers} viewers, median", statistics.median(delays), "s", 2.0)
        tell("the same, slowest", max(delays), "s", 2.0)
        tell("CPU meanwhile", 100 * share, "%")
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
        tell("memory", resident, "MB")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--checkpoints", type=int, default=50)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--commits", type=int, default=10)
    options = parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options, Path(folder))
    publish("dashboard", rows, **json.loads(json.dumps(vars(options))))


if __name__ == "__main__":
    main()
