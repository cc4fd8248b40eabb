"""Numbers of the watch in the text form that Prometheus reads, and the pages they are read from."""

from __future__ import annotations

from collections import Counter

from stayfast.cluster.observed.runs import RunSummary
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.alerts import Alert, pending_pods
from stayfast.errors import SettingError
from stayfast.telemetry.metric_table import WATCH_METRICS
from stayfast.telemetry.metrics_server import MetricsServer
from stayfast.telemetry.prometheus import PrometheusText
from stayfast.version import __version__


def exposition(observed: Snapshot, rows: list[RunSummary], alerts: list[Alert], counters: dict[str, int]) -> str:
    """All metrics."""
    out = PrometheusText(WATCH_METRICS)
    for name in ("stayfast_runs", "stayfast_interrupted_pods", "stayfast_oldest_pending_seconds", "stayfast_alerts"):
        out.declare(name)
    out.add_sample("stayfast_build_info", 1, version=__version__)
    phases = Counter((row.namespace, row.phase.value) for row in rows)
    for (place, phase), count in sorted(phases.items()):
        out.add_sample("stayfast_runs", count, namespace=place, phase=phase)
    causes: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for cause, count in row.interruptions.items():
            causes[row.namespace, cause] += count
    for (place, cause), count in sorted(causes.items()):
        out.add_sample("stayfast_interrupted_pods", count, namespace=place, cause=cause)
    for place, seconds in sorted(pending_pods(observed).items()):
        out.add_sample("stayfast_oldest_pending_seconds", seconds, namespace=place)
    open_alerts = Counter((alert.namespace, alert.code) for alert in alerts)
    for (place, code), count in sorted(open_alerts.items()):
        out.add_sample("stayfast_alerts", count, namespace=place, code=code)
    out.add_sample("stayfast_watch_last_look_timestamp_seconds", observed.now)
    for name, count in counters.items():
        out.add_sample(f"stayfast_watch_{name}_total", count)
    return out.render().decode()


class MetricsPages:
    """``GET /metrics`` and ``/healthz``; on loopback unless told otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._page = b""
        try:
            self._server = MetricsServer(host, port, {"/metrics": lambda: self._page, "/healthz": lambda: b"ok\n"})
        except OSError as error:
            raise SettingError(
                f"the port {port} on {host} cannot be used ({error.strerror})", help="choose another"
            ) from None

    @property
    def port(self) -> int:
        """The port that it got."""
        return self._server.port

    def show(self, page: str) -> None:
        """From now on, this."""
        self._page = page.encode()

    def close(self) -> None:
        """Stop serving."""
        self._server.close()
