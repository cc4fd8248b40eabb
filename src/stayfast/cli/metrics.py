"""``stayfast metrics``: what can be scraped, and the dashboard and alerts that go with it."""

from __future__ import annotations

import argparse
import json
from importlib.resources import files

from stayfast.cli.main import OK, add_output
from stayfast.telemetry.metric_table import METRICS, RUN_METRICS

_EPILOG = """\
examples:
  STAYFAST_METRICS_PORT=9464 python train.py             (curl localhost:9464/metrics)
  stayfast metrics                                        what there is
  stayfast metrics --grafana > stayfast.json              import it in Grafana
  stayfast metrics --alerts > stayfast-alerts.yaml        rule_files of Prometheus
  stayfast metrics --pod-monitoring | kubectl apply -f -  Google's managed Prometheus
"""
FILES = {"grafana": "grafana.json", "alerts": "alerts.yaml", "pod_monitoring": "pod-monitoring.yaml"}


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--grafana", action="store_true", help="print a Grafana dashboard")
    group.add_argument("--alerts", action="store_true", help="print alert rules for Prometheus")
    group.add_argument("--pod-monitoring", action="store_true", help="print a PodMonitoring for GKE")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """A file, or the list."""
    chosen = next((file for name, file in FILES.items() if getattr(args, name)), None)
    if chosen is not None:
        print(read_file(chosen), end="")
    elif args.output == "json":
        print(json.dumps([{**metric._asdict(), "labels": list(metric.labels)} for metric in METRICS]))
    else:
        width = max(len(metric.name) for metric in METRICS)
        for metric in METRICS:
            if metric is METRICS[0] or metric is METRICS[len(RUN_METRICS)]:
                print("stayfast.run:" if metric is METRICS[0] else "\nstayfast work:")
            print(f"  {metric.name:<{width}}  {metric.kind:<8} {metric.meaning}")
    return OK


def read_file(name: str) -> str:
    """One of the files that come with the package."""
    return files("stayfast.cli").joinpath("monitoring", name).read_text(encoding="utf-8")
