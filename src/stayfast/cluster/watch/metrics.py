"""Numbers of the watch in the text form that Prometheus reads, and the small server they are read from."""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stayfast.cluster.observed.runs import RunSummary
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.alerts import Alert, pending_pods
from stayfast.errors import SettingError
from stayfast.version import __version__


def exposition(observed: Snapshot, rows: list[RunSummary], alerts: list[Alert], counters: dict[str, int]) -> str:
    """All metrics."""
    lines: list[str] = []
    _metric(lines, "stayfast_build_info", "gauge", "version of stayfast", {f'version="{__version__}"': 1.0})
    phases = Counter((row.namespace, row.phase.value) for row in rows)
    runs = {f'namespace="{_text(place)}",phase="{phase}"': float(n) for (place, phase), n in sorted(phases.items())}
    _metric(lines, "stayfast_runs", "gauge", "runs by phase", runs)
    causes: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for cause, count in row.interruptions.items():
            causes[row.namespace, cause] += count
    seen = {
        f'namespace="{_text(place)}",cause="{_text(cause)}"': float(n) for (place, cause), n in sorted(causes.items())
    }
    _metric(lines, "stayfast_interrupted_pods", "gauge", "interrupted pods that still exist", seen)
    waits = {f'namespace="{_text(place)}"': value for place, value in sorted(pending_pods(observed).items())}
    _metric(lines, "stayfast_oldest_pending_seconds", "gauge", "age of the oldest waiting pod", waits)
    open_alerts = Counter((alert.namespace, alert.code) for alert in alerts)
    shown = {f'namespace="{_text(place)}",code="{code}"': float(n) for (place, code), n in sorted(open_alerts.items())}
    _metric(lines, "stayfast_alerts", "gauge", "alerts that hold now", shown)
    _metric(
        lines, "stayfast_watch_last_look_timestamp_seconds", "gauge", "when the watch last looked", {"": observed.now}
    )
    for name, value in sorted(counters.items()):
        _metric(lines, f"stayfast_watch_{name}_total", "counter", f"{name} since the start", {"": float(value)})
    return "\n".join(lines) + "\n"


def _metric(lines: list[str], name: str, kind: str, about: str, values: dict[str, float]) -> None:
    lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    lines += [
        f"{name}{{{labels}}} {value:.15g}" if labels else f"{name} {value:.15g}" for labels, value in values.items()
    ]


def _text(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsServer:
    """``GET /metrics`` and ``/healthz``; on loopback unless told otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._page = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10

            def do_GET(self) -> None:
                pages = {"/metrics": outer._page, "/healthz": "ok\n"}
                body = pages.get(self.path)
                data = (body if body is not None else "nothing here\n").encode()
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Scrapes are no news."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise SettingError(
                f"the port {port} on {host} cannot be used ({error.strerror})", help="choose another"
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it got."""
        return int(self._server.server_address[1])

    def show(self, page: str) -> None:
        """From now on, this."""
        self._page = page

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
