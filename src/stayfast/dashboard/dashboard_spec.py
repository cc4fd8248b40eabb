"""What a workload file tells the dashboard: where its run and its queue are, and what its machines cost by the list."""

from __future__ import annotations

from typing import NamedTuple

from stayfast.capacity.machines.prices import PriceList
from stayfast.capacity.spec.workload import WorkloadKind, WorkloadSpec
from stayfast.dashboard.run_view import RunPricing
from stayfast.model.capacity import CapacityClass


class WorkloadSources(NamedTuple):
    """URL of the run (or of the folder of its trials), queue, sink, prices."""

    run_url: str | None
    queue_url: str | None
    sink_url: str | None
    prices: RunPricing


def from_spec(spec: WorkloadSpec, catalogue: PriceList, given: RunPricing) -> WorkloadSources:
    """The catalogue's prices of all machines of the gang; those that were given on the command line come first."""
    machine = catalogue.machine_for(spec.accelerator, spec.accelerator_count, spec.region)
    region = spec.region or catalogue.cheapest_region(machine.name)
    gang = spec.nodes if spec.kind == WorkloadKind.TRAIN else 1
    row = catalogue.price(machine.name, region)
    listed = {
        CapacityClass.ON_DEMAND.value: row.on_demand,
        CapacityClass.SPOT.value: row.spot,
        CapacityClass.FLEX_START.value: row.flex_start,
    }
    known = {name: price * gang for name, price in listed.items() if price is not None}
    many = f"{gang} × " if gang > 1 else ""
    because = f"{many}{machine.name} in {region}, list prices of {catalogue.date}"
    prices = RunPricing(
        given.usd_per_hour,
        given.on_demand_usd_per_hour if given.on_demand_usd_per_hour is not None else known.get("on-demand"),
        known,
        "" if given.on_demand_usd_per_hour is not None else because,
    )
    url = spec.checkpoint_url
    return WorkloadSources(
        url.partition("{index}")[0].rstrip("/") if url else None, spec.queue_url, spec.sink_url, prices
    )
