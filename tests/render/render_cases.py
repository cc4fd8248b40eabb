"""The matrix of workloads that the render tests share, and the golden files.

``python tests/render/render_cases.py`` (with ``src`` on PYTHONPATH) writes the golden files anew; read the diff before
you commit it.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any, NamedTuple

from stayfast.capacity.machines.prices import bundled_catalogue
from stayfast.capacity.plan.assumptions import Assumptions
from stayfast.capacity.plan.planner import Plan, make_plan
from stayfast.capacity.spec import read_spec
from stayfast.capacity.spec.workload import WorkloadSpec
from stayfast.render.bundle import Bundle, render
from stayfast.render.context import Controller

GOLDEN = Path(__file__).resolve().parent / "golden"
QUICK = Assumptions(windows=40, most_ticks=60)

TRAIN = """\
name: llm-7
kind: train
image: us-docker.pkg.dev/project/repository/trainer:v1
command: [python, train.py]
accelerator: {type: h100, count: 8}
work: {steps: 100000, seconds_per_step: 1.7}
state: {size: 14GB, checkpoints: gs://bucket/runs/llm-7}
location: {region: us-central1}
namespace: ml
"""
GANG = TRAIN.replace("[python, train.py]", "[torchrun, train.py]") + "nodes: 2\n"
BATCH = """\
name: labels
kind: batch
image: us-docker.pkg.dev/project/repository/labels:v1
command: ["jobs:infer"]
accelerator: {type: l4, count: 1}
nodes: 4
work: {items: 1000000, seconds_per_item: 0.4}
queue: pubsub://project/images?topic=images
sink: gs://bucket/labels
location: {region: us-central1, zones: [us-central1-a, us-central1-c]}
namespace: ml
"""
SWEEP = """\
name: sweep
kind: sweep
image: us-docker.pkg.dev/project/repository/trainer:v1
command: [python, trial.py]
accelerator: {type: l4, count: 1}
nodes: 3
work: {items: 24, seconds_per_item: 1800}
state: {size: 500MB, checkpoints: "gs://bucket/sweep/{index}"}
location: {region: us-central1}
"""
SERVE = """\
name: endpoint
kind: serve
image: us-docker.pkg.dev/project/repository/server:v1
command: [python, -m, server, --port=8080]
accelerator: {type: l4, count: 2}
location: {region: europe-west4}
namespace: serving
"""
AUTOPILOT = "cluster: {mode: autopilot}\n"
LONG = "cluster: {version: 1.35.2-gke.1}\n"


class Case(NamedTuple):
    """One workload of the matrix."""

    text: str
    form: Controller | None = None


def on(text: str, capacity: str, *more: str) -> str:
    """The workload on a capacity class, with more fields."""
    return text + f"capacity: {capacity}\n" + "".join(more)


def big(text: str) -> str:
    """With a state that does not fit 15 s."""
    return text.replace("size: 14GB", "size: 60GB")


CASES: dict[str, Case] = {
    "train-spot": Case(on(TRAIN, "spot")),
    "train-spot-jobset": Case(on(TRAIN, "spot"), Controller.JOBSET),
    "train-spot-long-grace": Case(on(big(TRAIN), "spot", LONG)),
    "train-spot-autopilot": Case(on(TRAIN, "spot", AUTOPILOT)),
    "train-spot-autopilot-long": Case(on(big(TRAIN), "spot", "cluster: {mode: autopilot, version: 1.35.2-gke.1}\n")),
    "train-spot-gang": Case(on(GANG, "spot")),
    "train-spot-gang-job": Case(on(GANG, "spot"), Controller.JOB),
    "train-spot-gang-filestore": Case(on(GANG, "spot", "volume: {kind: filestore, size: 2TiB, path: /mnt/shared}\n")),
    "train-spot-gcsfuse": Case(on(TRAIN, "spot", "volume: {kind: gcsfuse, bucket: my-bucket}\n")),
    "train-spot-pools": Case(on(TRAIN, "spot", "cluster: {pools: [spot-a, spot-b]}\n")),
    "train-spot-s3": Case(on(TRAIN.replace("gs://bucket", "s3://bucket"), "spot")),
    "train-flex": Case(on(TRAIN, "flex-start")),
    "train-flex-autopilot": Case(on(TRAIN, "flex-start", AUTOPILOT)),
    "train-spot-tpu-autopilot": Case(on(TRAIN.replace("h100, count: 8", "tpu-v6e, count: 4"), "spot", AUTOPILOT)),
    "train-queued-gang": Case(on(GANG, "flex-start")),
    "train-queued-gang-autopilot": Case(on(GANG, "flex-start", AUTOPILOT)),
    "train-on-demand-disk": Case(
        on(
            TRAIN.replace("gs://bucket/runs/llm-7", "file:///checkpoints/llm-7"),
            "on-demand",
            "volume: {kind: regional-disk, size: 500GiB}\n",
            "service_account: trainer@project.iam.gserviceaccount.com\n",
        )
    ),
    "train-on-demand-gang": Case(on(GANG, "on-demand")),
    "train-hybrid": Case(on(TRAIN, "hybrid")),
    "train-hybrid-gang-long": Case(on(big(GANG), "hybrid", LONG)),
    "batch-spot": Case(on(BATCH, "spot")),
    "batch-flex-secret": Case(
        on(BATCH.replace("pubsub://project/images?topic=images", "postgresql://me:hunter2@db/q?queue=a"), "flex-start")
    ),
    "batch-on-demand": Case(on(BATCH, "on-demand")),
    "batch-hybrid-autopilot": Case(on(BATCH, "hybrid", AUTOPILOT)),
    "sweep-spot": Case(on(SWEEP, "spot")),
    "sweep-flex": Case(on(SWEEP, "flex-start")),
    "sweep-queue-autopilot": Case(
        on(SWEEP, "flex-start", AUTOPILOT, "queue: pubsub://project/trials\n", "sink: gs://bucket/trials\n")
    ),
    "serve-one": Case(SERVE),
    "serve-three-autopilot": Case(SERVE + "nodes: 3\n" + AUTOPILOT),
}


@functools.lru_cache(maxsize=64)
def planned(text: str) -> tuple[WorkloadSpec, Plan]:
    """The spec and a quick plan of it."""
    catalogue = bundled_catalogue()
    spec = read_spec(text, "stayfast.yaml", accelerators=catalogue.accelerators)
    return spec, make_plan(spec, catalogue, assumptions=QUICK)


def rendered(text: str, form: Controller | None = None) -> Bundle:
    """The bundle of a workload."""
    spec, plan = planned(text)
    return render(spec, plan, form=form)


def case(name: str) -> Bundle:
    """The bundle of a case."""
    return rendered(CASES[name].text, CASES[name].form)


def objects(bundle: Bundle, kind: str) -> list[dict[str, Any]]:
    """All objects of a kind."""
    return [item for item in bundle.objects if item["kind"] == kind]


def the(bundle: Bundle, kind: str) -> dict[str, Any]:
    """The one object of a kind."""
    (found,) = objects(bundle, kind)
    return found


def template(bundle: Bundle) -> dict[str, Any]:
    """The pod template."""
    spec = bundle.workload["spec"]
    if bundle.workload["kind"] == "JobSet":
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    found: dict[str, Any] = spec["template"]
    return found


def job_spec(bundle: Bundle) -> dict[str, Any]:
    """The JobSpec, of a Job or of the set's only one."""
    spec: dict[str, Any] = bundle.workload["spec"]
    return spec["replicatedJobs"][0]["template"]["spec"] if bundle.workload["kind"] == "JobSet" else spec


def container(bundle: Bundle) -> dict[str, Any]:
    """The only container."""
    (found,) = template(bundle)["spec"]["containers"]
    return found


def environment(bundle: Bundle) -> dict[str, str]:
    """What the pod would see, fields of the pod left out."""
    found: dict[str, str] = {}
    for item in objects(bundle, "ConfigMap"):
        found |= item["data"]
    return found | {entry["name"]: entry["value"] for entry in container(bundle)["env"] if "value" in entry}


IN_FULL = ("train-spot-long-grace", "train-queued-gang", "train-hybrid", "batch-flex-secret", "serve-three-autopilot")
"""Cases whose README, Terraform, alerts and patches are kept too; the others would repeat them."""


def as_golden(name: str) -> str:
    """The files of a case in one text, so that a case is one diff."""
    files = case(name).files.items()
    kept = [(file, text) for file, text in files if name in IN_FULL or ("/" not in file and file.endswith(".yaml"))]
    return "".join(f"==> {file} <==\n{text}" for file, text in kept)


if __name__ == "__main__":
    texts = {name: as_golden(name) for name in CASES}
    for old in GOLDEN.glob("*.txt"):
        old.unlink()
    for name, text in texts.items():
        (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
    print(f"wrote {len(texts)} golden files", file=sys.stderr)
