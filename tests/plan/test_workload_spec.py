"""``stayfast.yaml``: read whole or refused, with every mistake at its place."""

from __future__ import annotations

import random

import pytest

from stayfast.capacity.spec import json_schema, read_spec
from stayfast.capacity.spec.workload import WorkloadKind
from stayfast.errors import DocumentError, UsageError
from stayfast.model.capacity import CapacityClass

FULL = """\
name: llm-7
kind: train
image: us-docker.pkg.dev/p/repo/trainer:v1
command: [python, train.py, --epochs, "3"]
accelerator:
  type: h100
  count: 8
nodes: 2
work:
  steps: 100000
  seconds_per_step: 1.5
deadline: 72h
tolerance:
  interruptible: true
  longest_wait: 10m
state:
  size: 14GB
  checkpoints: gs://bucket/runs/llm-7
queue: sqlite:///work.db?queue=a
sink: gs://bucket/out
location:
  region: us-central1
  zones: [us-central1-a, us-central1-c]
cluster:
  mode: autopilot
  version: 1.35.0-gke.1171000
  pools: [gpu]
namespace: ml
budget: 500
capacity: spot
"""


def refuse(text, accelerators=()):
    with pytest.raises(DocumentError) as caught:
        read_spec(text, "w.yaml", accelerators=accelerators)
    return str(caught.value).split("\n")


def test_a_full_spec():
    spec = read_spec(FULL, "w.yaml", accelerators=("h100", "l4"))
    assert (spec.name, spec.kind, spec.nodes, spec.accelerator_count) == ("llm-7", WorkloadKind.TRAIN, 2, 8)
    assert spec.command == ("python", "train.py", "--epochs", "3")
    assert spec.work_seconds == 150_000
    assert (spec.units, spec.unit_seconds) == (100_000, 1.5)
    assert spec.deadline_seconds == 72 * 3600
    assert spec.longest_wait_seconds == 600
    assert spec.state_bytes == 14_000_000_000
    assert spec.zones == ("us-central1-a", "us-central1-c")
    assert spec.capacity == CapacityClass.SPOT
    assert spec.cluster_mode == "autopilot"
    assert spec.budget_usd == 500


def test_defaults_and_the_other_ways_to_say_work():
    small = FULL.split("nodes:")[0]
    spec = read_spec(small + "work: {hours: 2.5}\n", "w.yaml")
    assert (spec.work_seconds, spec.nodes, spec.capacity, spec.interruptible) == (9000, 1, None, True)
    spec = read_spec(
        small.replace("train\n", "batch\n") + "nodes: 4\nwork: {items: 100, seconds_per_item: 2}\n", "w.yaml"
    )
    assert spec.work_seconds == 50
    assert read_spec(small.replace("kind: train", "kind: serve"), "w.yaml").work_seconds is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("name: llm-7", "nmae: llm-7"), "w.yaml:1:1: nmae: there is no such field; write name"),
        (("name: llm-7", "name: LLM 7"), "w.yaml:1:7: name: 'LLM 7' is not a valid name; write for example llm-7"),
        (("name: llm-7", "name: yes"), "w.yaml:1:7: name: True is not a text"),
        (("name: llm-7\n", ""), "name is missing (of the workload and its objects); add name: llm-7"),
        (("kind: train", "kind: trian"), "w.yaml:2:7: kind: 'trian' is not one of train, batch, sweep, serve;"),
        (("kind: train", "kind: 5"), "w.yaml:2:7: kind: 5 is not one of train"),
        (("[python, train.py, --epochs, \"3\"]", "python train.py"), "w.yaml:4:10: command: 'python train.py' is"),
        (("\"3\"]", "3]"), "w.yaml:4:39: command.3: 3 is not a text"),
        (("\"3\"]", "\"\"]"), "command.3: '' is not a text"),
        (("type: h100", "type: nvidia-h100"), "w.yaml:6:9: accelerator.type: 'nvidia-h100' is not in the cat"),
        (("type: h100", "type: abacus"), "choose from h100, l4"),
        (("count: 8", "count: 0"), "w.yaml:7:10: accelerator.count: 0 is not a whole number from 1"),
        (("count: 8", "count: 8.5"), "accelerator.count: 8.5 is not a whole number"),
        (("count: 8", "count: true"), "accelerator.count: True is not a whole number"),
        (("nodes: 2", "nodes: two"), "w.yaml:8:8: nodes: 'two' is not a whole number from 1; write for example 2"),
        (("  seconds_per_step: 1.5\n", ""), "w.yaml:9:1: work: steps does not say how much work there is"),
        (("seconds_per_step: 1.5", "seconds_per_step: .nan"), "work.seconds_per_step: nan is not a number above 0"),
        (("seconds_per_step: 1.5", "seconds_per_step: -1"), "work.seconds_per_step: -1 is not a number above 0"),
        (("deadline: 72h", "deadline: 72"), "w.yaml:12:11: deadline: 72 is not a duration such as 90m, 48h or 3d"),
        (("deadline: 72h", "deadline: 3 weeks"), "deadline: '3 weeks' is not a duration"),
        (("interruptible: true", "interruptible: maybe"), "tolerance.interruptible: 'maybe' is neither true nor false"),
        (("size: 14GB", "size: 14"), "state.size: 14 is not a size such as 500MB or 14GiB"),
        (("gs://bucket/runs/llm-7", "bucket/runs"), "state.checkpoints: 'bucket/runs' is not a valid checkpoints"),
        (("queue: sqlite:///work.db?queue=a", "queue: redis://x"), "queue: 'redis://x' is not a valid queue"),
        (("us-central1-c]", "us-east4-c]"), "w.yaml:23:26: location.zones.1: 'us-east4-c' is not in us-central1"),
        (("mode: autopilot", "mode: auto"), "cluster.mode: 'auto' is not one of autopilot, standard; write autopilot"),
        (("budget: 500", f"budget: {10**400}"), "is not a number above 0"),
        (("budget: 500", "budget: 1e400"), "budget: '1e400' is not a number above 0"),
        (("capacity: spot", "capacity: sport"), "capacity: 'sport' is not one of auto, spot"),
        (("  interruptible: true\n  longest_wait: 10m\n", "  - high\n"), "tolerance: sequence is not a section"),
    ],
)  # fmt: skip
def test_every_mistake_has_its_place_and_its_cure(change, expected):
    assert change[0] in FULL
    complaints = refuse(FULL.replace(*change), ("h100", "l4"))
    assert any(expected in line for line in complaints), complaints
    assert len(complaints) == 1, complaints
    assert all(line.startswith("w.yaml:") and "; " in line for line in complaints)


def test_all_mistakes_at_once_in_order():
    text = FULL.replace("kind: train", "kind: trian").replace("nodes: 2", "nodes: -2").replace("budget", "bugdet")
    complaints = refuse(text)
    assert [line.split(":")[1] for line in complaints] == ["2", "8", "29"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "x",
        "a: 1\n---\nb: 2",
        "name: a\nname: b",
        "- " * 50_000,
        "{" * 5000,
        "name: *x",
        "\x00",
        "name: !!python/object:os.system x",
    ],
)
def test_hostile_and_empty_files_are_refused_in_one_piece(text):
    with pytest.raises(UsageError, match=r"^w.yaml:\d+:\d+: "):
        read_spec(text, "w.yaml")


def test_damage_never_escapes_as_another_error():
    rng = random.Random(3)
    refused = 0
    for _ in range(1500):
        data = list(FULL)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice("\n :[]{}#&*!|>'\"%@`0aé-,")
        try:
            read_spec("".join(data), "w.yaml", accelerators=("h100",))
        except UsageError:
            refused += 1
    assert refused > 700


def test_the_schema_is_the_same_table():
    schema = json_schema(("h100",))
    assert schema["$schema"].endswith("draft-07/schema#")
    assert set(schema["required"]) == {"name", "kind", "image", "command", "accelerator"}
    assert schema["additionalProperties"] is False
    assert schema["properties"]["kind"]["enum"] == ["train", "batch", "sweep", "serve"]
    assert schema["properties"]["accelerator"]["properties"]["type"]["enum"] == ["h100"]
    assert len(schema["properties"]["work"]["oneOf"]) == 3

    def walk(node):
        assert "description" in node or "$schema" in node
        for child in node.get("properties", {}).values():
            walk(child)

    walk(schema)
