"""Every machine of the catalogue, on every capacity, in both modes: what is rendered fits it."""

from __future__ import annotations

import math

import pytest
from render_cases import GANG, SERVE, TRAIN, container, on, planned, rendered, template, the

from stayfast.capacity.machines.machine import load_machines
from stayfast.capacity.machines.prices import bundled_catalogue, read_catalogue, to_json
from stayfast.cluster.submission.prepare import findings
from stayfast.errors import UsageError
from stayfast.render.objects.pod import (
    EPHEMERAL_GIB,
    cpu_request,
    memory_request_gib,
    shared_memory_gib,
    snapshot_gib,
)
from stayfast.render.pools.pool import node_pools

CATALOGUE = bundled_catalogue()
SHAPES = sorted({(item.accelerator, item.count) for item in CATALOGUE.machines.values()})
SMALL = {"l4": "500MB"}


def workload(accelerator, count, base=TRAIN):
    text = base.replace("{type: h100, count: 8}", f"{{type: {accelerator}, count: {count}}}")
    text = text.replace("location: {region: us-central1}\n", "")  # wherever it is offered
    return text.replace("size: 14GB", f"size: {SMALL.get(accelerator, '14GB')}")


@pytest.mark.parametrize(("accelerator", "count"), SHAPES, ids=str)
@pytest.mark.parametrize("capacity", ["spot", "flex-start", "on-demand", "hybrid"])
def test_every_machine_is_rendered_clean_everywhere(accelerator, count, capacity):
    for base in (TRAIN, GANG):
        text = on(workload(accelerator, count, base), capacity)
        if planned(text)[1].choice is None:
            continue  # not offered: it has no price
        if base == GANG and accelerator.startswith("tpu-"):
            with pytest.raises(UsageError, match="one slice with a topology of its own"):
                rendered(text)
            continue
        bundle = rendered(text)
        assert findings(bundle) == []
        assert bundle.outline.machine.accelerator == accelerator
        kind = "tpu" if accelerator.startswith("tpu-") else "gpu"
        resource = {"tpu": "google.com/tpu", "gpu": "nvidia.com/gpu"}[kind]
        assert container(bundle)["resources"]["requests"][resource] == str(count)
        assert any(entry["key"] == resource for entry in template(bundle)["spec"]["tolerations"])
        selector = template(bundle)["spec"]["nodeSelector"]
        if bundle.outline.class_rows:
            for row in the(bundle, "ComputeClass")["spec"]["priorities"]:
                assert (row[kind]["type"], row[kind]["count"]) == (load_machines().gke_name(accelerator), count)
                assert row["machineType"] == bundle.outline.machine.name
        else:
            label = {"tpu": "gke-tpu-accelerator", "gpu": "gke-accelerator"}[kind]
            assert selector[f"cloud.google.com/{label}"] == load_machines().gke_name(accelerator)
            assert ("cloud.google.com/gke-tpu-topology" in selector) == (kind == "tpu")


@pytest.mark.parametrize(("accelerator", "count"), SHAPES, ids=str)
def test_autopilot_needs_no_pools_and_is_clean_too(accelerator, count):
    for capacity in ("spot", "flex-start"):
        text = on(workload(accelerator, count), capacity, "cluster: {mode: autopilot}\n")
        if planned(text)[1].choice is None:
            continue
        bundle = rendered(text)
        assert findings(bundle) == []
        assert node_pools(bundle.outline) == []
        assert "pools.sh" not in bundle.files


def test_a_price_list_and_the_linter_mean_the_same_machines():
    table = load_machines()
    for machine in CATALOGUE.machines.values():
        assert table.machines[machine.name] == machine
        accelerator = table.accelerator(machine.gke_accelerator)
        assert accelerator.name == machine.accelerator != machine.gke_accelerator
        assert machine.vcpus <= accelerator.vcpus_by_count[machine.count]
        assert cpu_request(machine) <= machine.vcpus
        assert memory_request_gib(machine) <= machine.memory_gib
    assert read_catalogue(to_json(CATALOGUE), "refreshed").machines == CATALOGUE.machines


@pytest.mark.parametrize(
    ("name", "cpu", "memory"),
    [("g2-standard-4", 2, 11), ("g2-standard-8", 6, 25), ("a2-highgpu-1g", 10, 72), ("a3-highgpu-8g", 196, 1734)],
)
def test_requests_follow_the_reservation_by_slices(name, cpu, memory):
    """Figures worked out by hand from the slices: 6 % of the first CPU, a quarter of the first 4 GiB, and so on."""
    machine = CATALOGUE.machines[name]
    assert (cpu_request(machine), memory_request_gib(machine)) == (cpu, memory)


def by_hand_memory(total):
    """The slices once more, written out."""
    reserved = 0.25 * min(total, 4)
    if total > 4:
        reserved += 0.20 * min(total - 4, 4)
    if total > 8:
        reserved += 0.10 * min(total - 8, 8)
    if total > 16:
        reserved += 0.06 * min(total - 16, 112)
    if total > 128:
        reserved += 0.02 * (total - 128)
    return total - reserved - 0.1


def test_memory_is_below_what_the_node_can_give():
    for machine in CATALOGUE.machines.values():
        allocatable = by_hand_memory(machine.memory_gib)
        assert memory_request_gib(machine) <= allocatable - 1.5
        assert memory_request_gib(machine) >= math.floor(0.8 * allocatable - 2)


def test_shared_memory_is_a_part_of_the_pods_own():
    for accelerator, count in SHAPES:
        outline = rendered(on(workload(accelerator, count), "on-demand")).outline
        assert 1 <= shared_memory_gib(outline) <= memory_request_gib(outline.machine)
        assert shared_memory_gib(outline) <= 64


def test_a_gang_shares_its_state():
    one = rendered(on(TRAIN, "spot")).outline
    two = rendered(on(GANG, "spot")).outline
    assert snapshot_gib(one) == pytest.approx(14e9 / 2**30)
    assert snapshot_gib(two) == pytest.approx(snapshot_gib(one) / 2)


def test_the_queue_covers_scratch_space_too():
    bundle = rendered(on(GANG, "flex-start"))
    assert bundle.outline.is_queued
    (flavor,) = the(bundle, "ClusterQueue")["spec"]["resourceGroups"][0]["flavors"]
    quotas = {row["name"]: row["nominalQuota"] for row in flavor["resources"]}
    assert quotas["ephemeral-storage"] == f"{2 * EPHEMERAL_GIB}Gi"


def test_zones_reach_every_place_that_can_hold_them():
    zones = "location: {region: us-central1, zones: [us-central1-a, us-central1-c]}\n"
    text = TRAIN.replace("location: {region: us-central1}\n", zones)
    bundle = rendered(on(text, "spot"))
    assert "--node-locations=us-central1-a,us-central1-c" in bundle.files["pools.sh"]
    assert 'node_locations     = ["us-central1-a", "us-central1-c"]' in bundle.files["pools.tf"]
    terms = template(bundle)["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (rule,) = terms["nodeSelectorTerms"][0]["matchExpressions"]
    assert rule == {
        "key": "topology.kubernetes.io/zone",
        "operator": "In",
        "values": ["us-central1-a", "us-central1-c"],
    }
    hybrid = rendered(on(text, "hybrid"))
    for row in the(hybrid, "ComputeClass")["spec"]["priorities"]:
        assert row["location"] == {"zones": ["us-central1-a", "us-central1-c"]}
    assert "affinity" not in template(hybrid)["spec"], "the class says where"
    disk = rendered(
        on(text.replace("gs://bucket/runs", "file:///checkpoints"), "on-demand", "volume: {kind: regional-disk}\n")
    )
    (topology,) = the(disk, "StorageClass")["allowedTopologies"]
    assert topology["matchLabelExpressions"][0]["values"] == ["us-central1-a", "us-central1-c"]


def test_one_zone_goes_into_the_ledger():
    one = TRAIN.replace("{region: us-central1}", "{region: us-central1, zones: [us-central1-a]}")
    assert the(rendered(on(one, "spot")), "ConfigMap")["data"]["STAYFAST_ZONE"] == "us-central1-a"
    assert "STAYFAST_ZONE" not in the(rendered(on(TRAIN, "spot")), "ConfigMap")["data"]


def test_the_ledger_knows_the_price_of_what_it_runs_on():
    prices = CATALOGUE.price("a3-highgpu-8g", "us-central1")
    for capacity, price in (("spot", prices.spot), ("flex-start", prices.flex_start), ("on-demand", prices.on_demand)):
        data = the(rendered(on(TRAIN, capacity)), "ConfigMap")["data"]
        assert float(data["STAYFAST_USD_PER_HOUR"]) == pytest.approx(price)
        assert data["STAYFAST_CAPACITY"] == capacity
    hybrid = the(rendered(on(TRAIN, "hybrid")), "ConfigMap")["data"]
    assert "STAYFAST_USD_PER_HOUR" not in hybrid, "a hybrid pod cannot know which machine it got"


def test_an_endpoint_is_replaced_without_a_spare_accelerator():
    bundle = rendered(SERVE + "nodes: 2\n")
    spec = the(bundle, "Deployment")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert the(bundle, "PodDisruptionBudget")["spec"]["minAvailable"] == 1
