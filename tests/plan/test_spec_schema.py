"""The JSON Schema, judged by a validator that is not ours, beside the reader that it stands for."""

from __future__ import annotations

import copy
import json
import random

import jsonschema
import pytest
import yaml
from test_plan_command import MIX, SERVE, SWEEP, TRAIN
from test_workload_spec import FULL

from stayfast.capacity.machines.prices import bundled_catalogue
from stayfast.capacity.spec import json_schema, read_spec
from stayfast.cli.main import main
from stayfast.errors import UsageError

KNOWN = bundled_catalogue().accelerators
SCHEMA = json_schema(KNOWN)
VALID = [FULL, SWEEP, TRAIN, SERVE, MIX]


def valid(body):
    return jsonschema.Draft7Validator(SCHEMA).is_valid(body)


def readable(body):
    try:
        read_spec(json.dumps(body), "w.yaml", accelerators=KNOWN)
    except UsageError:
        return False
    return True


def test_the_schema_is_one_of_the_draft_that_it_claims():
    assert SCHEMA["$schema"] == jsonschema.Draft7Validator.META_SCHEMA["$schema"]
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("text", VALID)
def test_what_we_read_is_valid(text):
    assert valid(yaml.safe_load(text))
    assert readable(yaml.safe_load(text))


@pytest.mark.parametrize("kind", ["train", "batch"])
def test_every_example_of_init_is_valid(kind, tmp_path, capsys):
    assert main(["init", kind, str(tmp_path / "p")]) == 0
    capsys.readouterr()
    text = (tmp_path / "p" / "stayfast.yaml").read_text()
    assert valid(yaml.safe_load(text))
    commented = text.replace("# longest_wait", "longest_wait").replace("# zones", "zones").replace("# budget", "budget")
    body = yaml.safe_load(commented)
    assert {"budget"} <= set(body)
    assert valid(body)
    assert readable(body)


def change(path, value):
    body = yaml.safe_load(FULL)
    place = body
    for key in path[:-1]:
        place = place[key]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return body


REFUSED_BY_BOTH = [
    (("name",), "LLM 7"), (("name",), ""), (("name",), None), (("name",), 5), (("name",), KeyError),
    (("nmae",), "x"), (("kind",), "trian"), (("kind",), ["train"]), (("image",), "a b"), (("image",), " "),
    (("command",), "python"), (("command",), []), (("command",), [" "]), (("command",), ["a", 3]),
    (("accelerator",), "h100"), (("accelerator", "type"), "abacus"), (("accelerator", "count"), 0),
    (("accelerator", "count"), 8.5), (("accelerator", "count"), True), (("accelerator", "count"), "8"),
    (("accelerator", "memory"), 1), (("nodes",), -2), (("nodes",), 10**16), (("work",), KeyError), (("work",), None),
    (("work",), {}), (("work",), {"hours": 0}), (("work",), {"hours": -1}), (("work",), {"hours": "48"}),
    (("work",), {"hours": 1e16}), (("work",), {"hours": 1, "steps": 2}), (("work",), {"steps": 2}),
    (("work",), {"items": 5, "seconds_per_step": 1}),
    (("work",), {"hours": 1, "steps": 2, "seconds_per_step": 1}), (("deadline",), 72), (("deadline",), "3 weeks"),
    (("deadline",), "9" * 400 + "d"), (("deadline",), "-3h"), (("tolerance", "interruptible"), "maybe"),
    (("tolerance", "longest_wait"), "soon"), (("state", "size"), 14), (("state", "size"), "14 PB"),
    (("state", "checkpoints"), "bucket/runs"), (("state", "region"), "Iowa"), (("queue",), "redis://x"),
    (("sink",), "ftp://x"), (("location", "zones"), ["us-central1"]), (("location", "zones"), []),
    (("cluster", "mode"), "auto"), (("cluster", "version"), "v1"), (("cluster", "version"), 1.35),
    (("cluster", "pools"), [""]), (("namespace",), "A"), (("budget",), 0), (("budget",), True),
    (("capacity",), "sport"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), REFUSED_BY_BOTH)
def test_what_we_refuse_for_its_shape_is_invalid(path, value):
    body = change(path, value)
    assert not readable(body)
    assert not valid(body)


READER_ONLY = [
    (("location", "zones"), ["us-east4-c"]),  # spans two fields
    (("accelerator", "count"), 8.0),  # JSON knows no difference between 8 and 8.0
    (("deadline",), "0h"),  # a pattern cannot count
    (("name",), "llm-7\n"),  # Python's $ looks past a last line break; an editor's does not
]


@pytest.mark.parametrize(("path", "value"), READER_ONLY)
def test_what_only_the_reader_sees_is_listed(path, value):
    body = change(path, value)
    assert not readable(body)
    assert valid(body)


def test_the_two_agree_on_random_bodies():
    """Values moved about at random: beyond the listed exceptions there is no disagreement."""
    rng = random.Random(6)
    pool = [
        None,
        True,
        0,
        1,
        8,
        -1,
        1.5,
        "",
        " ",
        "x",
        "72h",
        "14GB",
        "us-central1",
        [],
        ["a"],
        {},
        {"hours": 1},
        "serve",
    ]
    refused = 0
    for _ in range(1500):
        body = yaml.safe_load(rng.choice(VALID))
        for _ in range(rng.choice([1, 1, 2])):
            place = body
            inner = [key for key, value in body.items() if isinstance(value, dict)]
            if inner and rng.random() < 0.5:
                place = body[rng.choice(inner)]
            key = rng.choice([*place, "odd"])
            if rng.random() < 0.2:
                place.pop(key, None)
            else:
                place[key] = copy.deepcopy(rng.choice(pool))
        assert readable(body) == valid(body), body
        refused += not valid(body)
    assert refused > 500
