"""A new machine is a row of the table: plan, render and lint know it from there."""

from __future__ import annotations

import datetime
import json

import pytest
import yaml

from stayfast.capacity.machines import billing_skus, machine
from stayfast.capacity.machines import gke_keys as keys
from stayfast.capacity.machines.billing_skus import price_list_from_skus
from stayfast.capacity.plan.assumptions import Assumptions
from stayfast.capacity.plan.planner import make_plan
from stayfast.capacity.spec import read_spec
from stayfast.cluster.submission.prepare import findings
from stayfast.lint.engine import lint_bundle
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.sources import Source
from stayfast.render.bundle import render

NEW_GPU = {
    "name": "z1",
    "billing": {"accelerator": "Nvidia Z1 GPU"},
    "machines": {"z9-highgpu-4g": [4, 64, 512]},
}
NEW_TPU = {
    "name": "tpu-v9",
    "billing": {"accelerator": "TpuV9"},
    "machines": {"ct9-standard-8t": [8, 180, 1440, "2x4"]},
}
SKUS = [
    {
        "description": f"{name} running in Iowa",
        "serviceRegions": ["us-central1"],
        "pricingInfo": [
            {"pricingExpression": {"usageUnit": "h", "tieredRates": [{"unitPrice": {"units": str(price)}}]}}
        ],
    }
    for name, price in (("Nvidia Z1 GPU", 2), ("TpuV9", 3))
]
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  nodeSelector: {cloud.google.com/gke-accelerator: KIND}
  containers:
  - {name: a, image: "i:1", resources: {limits: {nvidia.com/gpu: COUNT}}}
"""
SPEC = """\
name: toy
kind: train
image: i
command: [python, train.py]
accelerator: {{type: {accelerator}, count: {count}}}
work: {{hours: 10}}
deadline: 24h
state: {{size: 1GB, checkpoints: gs://bucket/toy}}
location: {{region: us-central1}}
capacity: on-demand
"""


@pytest.fixture
def prices(monkeypatch, tmp_path):
    """A price list for two machines that only a copy of the table has."""
    body = json.loads(machine.TABLE.read_text())
    body["accelerators"] |= {"nvidia-z1": NEW_GPU, "tpu-v9-slice": NEW_TPU}
    (tmp_path / "machines.json").write_text(json.dumps(body))
    monkeypatch.setattr(machine, "TABLE", tmp_path / "machines.json")
    machine.load_machines.cache_clear()
    billing_skus.price_patterns.cache_clear()
    today = datetime.date(2026, 11, 1)
    names = ("z9-highgpu-4g", "ct9-standard-8t")
    yield price_list_from_skus(SKUS, {name: machine.load_machines().machines[name] for name in names}, today)
    machine.load_machines.cache_clear()
    billing_skus.price_patterns.cache_clear()


@pytest.mark.parametrize(
    ("accelerator", "name", "count", "labels", "usd_per_hour"),
    [
        ("z1", "z9-highgpu-4g", 4, {keys.ACCELERATOR: "nvidia-z1"}, 8.0),
        ("tpu-v9", "ct9-standard-8t", 8, {keys.TPU_ACCELERATOR: "tpu-v9-slice", keys.TPU_TOPOLOGY: "2x4"}, 24.0),
    ],
)
def test_a_row_is_all_that_a_machine_needs(prices, accelerator, name, count, labels, usd_per_hour):
    spec = read_spec(SPEC.format(accelerator=accelerator, count=count), "stayfast.yaml")
    plan = make_plan(spec, prices, assumptions=Assumptions(windows=20, most_ticks=40))
    assert plan.machine.name == name
    assert plan.prices.on_demand == usd_per_hour
    bundle = render(spec, plan)
    selector = yaml.safe_load(bundle.files["50-workload.yaml"])["spec"]["template"]["spec"]["nodeSelector"]
    assert selector.items() >= labels.items()
    assert findings(bundle) == []
    assert name in bundle.files["pools.sh"]


def test_the_linter_judges_the_new_machine(prices):
    wrong = POD.replace("KIND", "nvidia-z1").replace("COUNT", "8")
    assert codes(wrong) == {"SF602"}, "8 of them in one pod, and the largest machine has 4"
    assert "SF502" in codes(POD.replace("KIND", "nvidia-z2").replace("COUNT", "4"))


def test_without_the_row_nothing_of_it_is_known():
    assert machine.load_machines().accelerator("nvidia-z1") is None
    assert "SF502" in codes(POD.replace("KIND", "nvidia-z1").replace("COUNT", "4"))


def codes(text):
    return {item.rule for item in lint_bundle([Source("pod.yaml", text)], LintSettings()).findings} & {"SF502", "SF602"}
