"""A package outside ours adds an object to every bundle: one file with a name that says where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_package import install

from stayfast.capacity.machines.prices import bundled_catalogue
from stayfast.capacity.plan.assumptions import Assumptions
from stayfast.capacity.plan.planner import make_plan
from stayfast.capacity.spec import read_spec
from stayfast.render.bundle import Bundle, render
from stayfast.render.directory import compare, write
from stayfast.render.objects.order import rendered_files

SPEC = """\
name: toy
kind: train
image: us-docker.pkg.dev/project/repository/trainer:v1
command: [python, train.py]
accelerator: {type: l4, count: 1}
work: {hours: 10}
state: {size: 1GB, checkpoints: gs://bucket/toy}
location: {region: us-central1}
"""
TOY = '''
from stayfast.render.rendered_file import RenderedFile

def build(context):
    """At most so many pods in the namespace."""
    spec = {"hard": {"pods": "10"}}
    return [{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": context.metadata("toy-quota"), "spec": spec}]

QUOTA = RenderedFile("45-quota.yaml", "how many pods there may be", build)
NOTE = RenderedFile("notes/quota.yaml", "for the notice board", build)
'''


@pytest.fixture
def toy_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    entries = "quota = toy_quota:QUOTA\nnote = toy_quota:NOTE"
    install(tmp_path, monkeypatch, "toy_quota", TOY, "stayfast.rendered_objects", entries)
    rendered_files.cache_clear()
    yield
    rendered_files.cache_clear()


def bundle() -> Bundle:
    spec = read_spec(SPEC, "stayfast.yaml")
    return render(spec, make_plan(spec, bundled_catalogue(), assumptions=Assumptions(windows=40, most_ticks=60)))


def test_it_stands_where_its_name_says(toy_objects: None) -> None:
    found = bundle()
    names = [name for name in found.files if name.endswith(".yaml") and "/" not in name]
    assert names[names.index("45-quota.yaml") + 1] == "50-workload.yaml"
    kinds = [item["kind"] for item in found.objects]
    assert kinds.index("ResourceQuota") < kinds.index("Job")
    assert "ResourceQuota" in found.manifests
    assert "| `45-quota.yaml` | how many pods there may be |" in found.files["README.md"]


def test_an_optional_one_is_kept_in_its_folder(toy_objects: None, tmp_path: Path) -> None:
    files = bundle().files
    assert "notes/quota.yaml" in files
    there = tmp_path / "deploy"
    write(str(there), files, compare(str(there), files), force=False)
    less = {name: text for name, text in files.items() if name != "notes/quota.yaml"}
    assert compare(str(there), less).extra == ["notes/quota.yaml"]
    write(str(there), less, compare(str(there), less), force=False)
    assert not (there / "notes").exists()


def test_without_it_nothing_is_added() -> None:
    assert "45-quota.yaml" not in bundle().files
