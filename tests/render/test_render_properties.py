"""Any valid workload: clean under the linter, the same bytes twice, the same objects back from YAML."""

from __future__ import annotations

import functools
import json

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from render_cases import QUICK

from stayfast.capacity.machines.prices import bundled_catalogue
from stayfast.capacity.plan.assumptions import Assumptions
from stayfast.capacity.plan.planner import make_plan
from stayfast.capacity.spec import read_spec
from stayfast.cluster.submission.prepare import findings
from stayfast.errors import UsageError
from stayfast.lint.schema.validator import validate, versions
from stayfast.model.capacity import CapacityClass
from stayfast.render.bundle import render
from stayfast.render.context import Controller
from stayfast.settings import read_settings

YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CATALOGUE = bundled_catalogue()
TINY = Assumptions(windows=4, most_ticks=20)
SHAPES = sorted(
    (item.accelerator, item.count) for item in CATALOGUE.machines.values() if not item.accelerator.startswith("tpu-")
)
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?", fullmatch=True)
WORDS = st.text(
    alphabet=st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_characters="\x7f"), min_size=1, max_size=20
).filter(lambda text: text.strip() and not text.startswith("-"))
PROGRAMS = st.sampled_from(["python", "torchrun", "/usr/bin/python3", "accelerate", "./train", "mpirun", "jobs:infer"])


@st.composite
def workloads(draw):
    """A workload as a user would write it, every field at random."""
    kind = draw(st.sampled_from(["train", "batch", "sweep", "serve"]))
    accelerator, count = draw(st.sampled_from(SHAPES))
    most = 1 if accelerator.startswith("tpu-") and kind == "train" else 5  # several TPU hosts are refused
    spec = {
        "name": draw(NAMES),
        "kind": kind,
        "image": draw(
            st.sampled_from(["trainer:v1", "us-docker.pkg.dev/p/r/train:v1", "reg.io/a/b@sha256:" + "0" * 64])
        ),
        "command": [draw(PROGRAMS), *draw(st.lists(WORDS, max_size=3))],
        "accelerator": {"type": accelerator, "count": count},
        "nodes": draw(st.integers(1, most)),
        "namespace": draw(st.just("default") | NAMES),
        "cluster": {"mode": draw(st.sampled_from(["autopilot", "standard"]))},
    }
    version = draw(st.sampled_from([None, "1.30", "1.33.4-gke.1", "1.35.0-gke.1171000", "1.36.1-gke.5"]))
    if version:
        spec["cluster"]["version"] = version
    if draw(st.booleans()):
        spec["cluster"]["pools"] = draw(st.lists(NAMES, min_size=1, max_size=2))
    if kind != "serve":
        ways = [{"hours": 3}, {"items": 50, "seconds_per_item": 120.0}, {"steps": 9000, "seconds_per_step": 1.5}]
        spec["work"] = draw(st.sampled_from(ways))
        spec["capacity"] = draw(st.sampled_from(["spot", "flex-start", "on-demand", "hybrid"]))
    size = draw(st.sampled_from(["10MB", "14GB", "40GB", "90GB", "900GB"]))
    spec["state"] = {"size": size, "checkpoints": draw(st.sampled_from(["gs://b/r/{index}", "s3://b/r"]))}
    if kind == "batch" or draw(st.booleans()):
        spec["queue"] = draw(st.sampled_from(["pubsub://p/s?topic=t", "postgresql://u:pw@h/d?queue=q"]))
        spec["sink"] = draw(st.sampled_from(["gs://b/out", "s3://b/out", "postgresql://h/d?table=t"]))
    volume = draw(st.sampled_from([None, {"kind": "filestore"}, {"kind": "gcsfuse", "bucket": "bkt"}]))
    if volume:
        spec["volume"] = {**volume, "path": draw(st.sampled_from(["/ckpt", "/mnt/a.b/c-d"]))}
    if draw(st.booleans()):
        spec["tolerance"] = {"longest_wait": "3h", "interruptible": draw(st.booleans())}
    zones = draw(st.sampled_from([[], ["us-central1-a"], ["us-central1-a", "us-central1-b"]]))
    if zones:
        spec["location"] = {"zones": zones}
    return spec


@functools.lru_cache(maxsize=1)  # planning costs ten times as much as rendering
def planned(text):
    parsed = read_spec(text, "stayfast.yaml", accelerators=CATALOGUE.accelerators)
    return parsed, make_plan(parsed, CATALOGUE, assumptions=TINY)


def bundle_of(spec, form=None):
    """Rendered with whatever class the plan can give; a spec that no class fits says nothing about rendering."""
    parsed, plan = planned(json.dumps(spec))
    assume(plan.choice is not None)
    return render(parsed, plan, form=form)


def has_form(spec, form):
    """Only training has the choice, and a queued gang has none."""
    if form == Controller.JOBSET:
        return spec["kind"] == "train"
    queued = spec["kind"] == "train" and spec["nodes"] > 1 and spec.get("capacity") == "flex-start"
    return form is None or not queued


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(workloads(), st.sampled_from([None, Controller.JOB, Controller.JOBSET]))
def test_any_workload_is_rendered_clean(spec, form):
    if not has_form(spec, form):
        with pytest.raises(UsageError, match="leave out --form"):
            bundle_of(spec, form)
        return
    bundle = bundle_of(spec, form)
    assert findings(bundle) == []
    assert [item for item in yaml.load_all(bundle.manifests, YAML) if item] == bundle.objects
    assert bundle.files == bundle_of(spec, form).files
    for item in bundle.objects:
        for version in (versions()[0], versions()[-1]):
            assert list(validate(item, item["apiVersion"], item["kind"], version)) == []
    assert not any("u:pw@" in text for text in bundle.files.values())


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(workloads())
def test_the_pod_and_its_environment_agree(spec):
    bundle = bundle_of(spec)
    workload = bundle.workload["spec"]
    if bundle.workload["kind"] == "JobSet":
        workload = workload["replicatedJobs"][0]["template"]["spec"]
    pod = workload["template"]["spec"]
    values = {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"] if "value" in entry}
    for item in bundle.objects:
        if item["kind"] == "ConfigMap":
            values |= item["data"]
    found = read_settings(values)
    assert found.window_seconds == pod["terminationGracePeriodSeconds"]
    assert found.capacity == ("" if bundle.outline.plan.choice == CapacityClass.HYBRID else bundle.outline.plan.choice)
    command = pod["containers"][0]["command"]
    assert command[-len(spec["command"]) :] == spec["command"] or command[2:] == spec["command"]
    names = [entry["name"] for entry in pod["containers"][0]["env"]]
    assert len(names) == len(set(names))
    mounted = [mount["name"] for mount in pod["containers"][0]["volumeMounts"]]
    assert sorted(mounted) == sorted(volume["name"] for volume in pod["volumes"])
    paths = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    assert len(paths) == len(set(paths))


def test_the_plan_of_the_tests_is_the_plan_of_the_product():
    assert QUICK.seed == Assumptions().seed
