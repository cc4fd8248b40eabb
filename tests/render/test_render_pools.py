"""Node pools: flags that gcloud has, Terraform that is formatted and parses, and a script that runs."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess

import pytest
from render_cases import CASES, LONG, TRAIN, case, on, rendered

from stayfast.lint.readers.gcloud import pools_in_text
from stayfast.model.capacity import CapacityClass
from stayfast.render.pools.pool import node_pools

WITH_POOLS = sorted(name for name in CASES if node_pools(case(name).outline))
HOSTILE = TRAIN.replace("region: us-central1", "region: us-central1, zones: [us-central1-a, us-central1-b]")


def workers(name):
    """The pool with accelerators, as the linter reads it from each file."""
    bundle = case(name)
    found = [pools_in_text(bundle.files[file], file) for file in ("pools.sh", "pools.tf")]
    return [next((pool for pool in pools if pool.accelerator), None) for pools in found]


def test_pools_are_for_standard_clusters_that_have_none():
    for name in CASES:
        outline = case(name).outline
        expected = not outline.is_autopilot and not outline.spec.pools
        assert (
            bool(node_pools(outline))
            == expected
            == ("pools.sh" in case(name).files)
            == ("pools.tf" in case(name).files)
        )


@pytest.mark.parametrize("name", WITH_POOLS)
def test_gcloud_and_terraform_say_the_same(name):
    script, terraform = workers(name)
    if script is None:
        assert terraform is None
        assert case(name).outline.capacity == CapacityClass.HYBRID  # a ComputeClass makes its own pools
        return
    for field in ("name", "machine_type", "accelerator", "accelerator_count", "spot", "flex_start", "queued", "taints"):
        assert getattr(script, field) == getattr(terraform, field), field
    assert script.max_run_seconds == terraform.max_run_seconds


@pytest.mark.parametrize("name", WITH_POOLS)
def test_the_rules_of_gke_for_each_kind_of_pool(name):
    text, outline = case(name).files["pools.sh"], case(name).outline
    create = next((part for part in text.split("\n\n") if "--accelerator" in part), "")
    if outline.capacity == CapacityClass.HYBRID:
        assert create == ""
        return
    is_flex = outline.capacity == CapacityClass.FLEX_START
    assert ("--spot" in create) == (outline.capacity == CapacityClass.SPOT)
    assert ("--node-taints=cloud.google.com/gke-spot=true:NoSchedule" in create) == (
        outline.capacity == CapacityClass.SPOT
    )
    assert ("--flex-start" in create) == is_flex
    assert ("--no-enable-autorepair" in create) == is_flex
    assert ("--enable-queued-provisioning" in create) == outline.is_queued
    assert ("--max-run-duration" in create) == (outline.capacity == CapacityClass.FLEX_START and not outline.is_queued)
    assert ("--reservation-affinity=none" in create) == (is_flex or outline.capacity == CapacityClass.SPOT)
    assert "--num-nodes=0" in create
    assert f"--total-max-nodes={outline.spec.nodes} " in create
    assert not re.search(r"--(min|max)-nodes", create)  # refused together with the total ones


@pytest.mark.parametrize("name", WITH_POOLS)
def test_control_pieces_get_machines_that_stay(name):
    for file in ("pools.sh", "pools.tf"):
        pools = pools_in_text(case(name).files[file], file)
        (control,) = [pool for pool in pools if pool.name == "stayfast-control"]
        assert [control.spot, control.flex_start, control.queued, control.accelerator] == [False, False, False, ""]
        assert control.taints == ()


def test_the_patch_keeps_controllers_off_spot():
    import yaml

    body = yaml.safe_load(case("train-spot").files["patches/pin-to-on-demand.yaml"])
    affinity = body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "cloud.google.com/gke-spot", "operator": "DoesNotExist"} in term["matchExpressions"]
    readme = case("train-spot").files["README.md"]
    assert "kubectl patch deployment kueue-controller-manager" in readme


def test_gcloud_has_every_flag(tmp_path):
    """The flags that the installed SDK documents for this command."""
    if shutil.which("gcloud") is None:
        pytest.skip("no gcloud here: its flags were compared with 528.0.0")
    shown = subprocess.run(
        ["gcloud", "container", "node-pools", "create", "--help"],
        env={**os.environ, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "PAGER": "cat", "CLOUDSDK_CONFIG": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if shown.returncode != 0:
        pytest.skip(f"gcloud shows no help here: {shown.stderr[:200]}")
    known = set(re.findall(r"--(?:\[no-\])?([a-z][a-z0-9-]+)", shown.stdout))
    used = set()
    for name in WITH_POOLS:
        used |= {flag.removeprefix("no-") for flag in re.findall(r"^  --([a-z-]+)", case(name).files["pools.sh"], re.M)}
    assert len(used) >= 15
    assert used <= known, used - known


def run_script(tmp_path, text, *, existing=()):
    """Run pools.sh with a gcloud that only writes down what it is asked."""
    log, bin_dir = tmp_path / "log", tmp_path / "bin"
    bin_dir.mkdir()
    fake = bin_dir / "gcloud"
    cases = "".join(f'    *"describe {name} "*) exit 0;;\n' for name in existing)
    fake.write_text(
        f'#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word" >> {log}; done\nprintf "\\n" >> {log}\n'
        f'case "$*" in\n{cases}    *describe*) exit 1;;\nesac\n'
    )
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    script = tmp_path / "pools.sh"
    script.write_text(text)
    ended = subprocess.run(
        ["sh", str(script)],
        env={"PATH": f"{bin_dir}:/usr/bin:/bin", "CLUSTER": "my cluster"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    calls = [call.split("\n") for call in log.read_text().strip("\n").split("\n\n")]
    return ended, [call for call in calls if "create" in call]


def test_the_script_makes_what_is_missing(tmp_path):
    ended, created = run_script(tmp_path, case("train-queued-gang").files["pools.sh"])
    assert ended.returncode == 0, ended.stderr
    assert [call[3] for call in created] == ["llm-7-queued", "stayfast-control"]
    assert created[0][4] == "--cluster=my cluster"  # one word, whatever is in it
    assert created[0][5] == "--location=us-central1"


def test_the_script_may_run_twice(tmp_path):
    text = case("train-queued-gang").files["pools.sh"]
    ended, created = run_script(tmp_path, text, existing=["llm-7-queued", "stayfast-control"])
    assert ended.returncode == 0
    assert created == []


def test_the_script_asks_for_the_cluster():
    text = case("train-spot").files["pools.sh"]
    ended = subprocess.run(
        ["sh", "-c", text], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode != 0
    assert "set CLUSTER" in ended.stderr


@pytest.mark.parametrize("name", WITH_POOLS)
def test_the_shell_can_read_every_script(name):
    text = case(name).files["pools.sh"]
    ended = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_the_grace_file_lies_where_the_script_looks():
    bundle = case("train-spot-long-grace")
    (path,) = re.findall(r'--system-config-from-file="\$here/([^"]+)"', bundle.files["pools.sh"])
    assert path in bundle.files


def every_terraform(tmp_path):
    for name in WITH_POOLS:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "pools.tf").write_text(case(name).files["pools.tf"])
    folder = tmp_path / "zones"
    folder.mkdir()
    (folder / "pools.tf").write_text(rendered(on(HOSTILE.replace("14GB", "60GB"), "spot", LONG)).files["pools.tf"])


def test_terraform_is_formatted_and_parses(tmp_path):
    """``fmt`` refuses what does not parse, so that this is a syntax check too."""
    every_terraform(tmp_path)
    if shutil.which("terraform") is None:
        pytest.skip("no terraform here: braces and quotes are still checked below")
    ended = subprocess.run(
        ["terraform", "fmt", "-check", "-recursive", "-diff", str(tmp_path)],
        env={**os.environ, "CHECKPOINT_DISABLE": "1", "TF_CLI_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_terraform_validates_where_the_provider_can_be_had(tmp_path):
    if shutil.which("terraform") is None:
        pytest.skip("no terraform here")
    (tmp_path / "pools.tf").write_text(case("train-spot-long-grace").files["pools.tf"])
    environment = {**os.environ, "CHECKPOINT_DISABLE": "1", "TF_CLI_CONFIG_FILE": os.devnull, "TF_IN_AUTOMATION": "1"}
    folder = f"-chdir={tmp_path}"
    try:
        begun = subprocess.run(
            ["terraform", folder, "init", "-backend=false", "-input=false"],
            env=environment, capture_output=True, text=True, timeout=45,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip("the Google provider cannot be downloaded here: fields were compared with its documentation only")
    if begun.returncode != 0:
        pytest.skip("the Google provider cannot be downloaded here: fields were compared with its documentation only")
    ended = subprocess.run(
        ["terraform", folder, "validate"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", WITH_POOLS)
def test_terraform_blocks_close(name):
    text = case(name).files["pools.tf"]
    depth = 0
    for line in text.splitlines():
        assert line.count('"') % 2 == 0, line
        depth += line.count("{") - line.count("}")
        assert depth >= 0
    assert depth == 0
    labels = re.findall(r'resource "google_container_node_pool" "(\w+)"', text)
    assert len(labels) == len(set(labels)) == len(node_pools(case(name).outline))


def test_texts_cannot_become_terraform_expressions():
    from stayfast.render.pools.terraform import Reference, _value

    assert _value("${var.x}") == '"$${var.x}"'
    assert _value("%{if true}") == '"%%{if true}"'
    assert _value('a"b\\c') == '"a\\"b\\\\c"'
    assert _value(Reference("var.x")) == "var.x"
    assert _value(["a", "b"]) == '["a", "b"]'
    assert _value(True) == "true"
