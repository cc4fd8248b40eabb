"""The price list: what an hour of a machine costs where, as of a day."""

from __future__ import annotations

import datetime
import importlib.resources
import json
import math
from dataclasses import dataclass
from typing import Any

from stayfast.capacity.machines.machine import Machine, load_machines
from stayfast.errors import UsageError

STALE_DAYS = 30
_HIGHEST_USD_PER_HOUR = 1e9  # an hour; more is a slip, and an integer of 400 digits is no float


@dataclass(frozen=True, slots=True)
class MachinePrices:
    """US dollars per machine and hour; None where there is no price, and so no such offer."""

    on_demand: float | None
    spot: float | None
    flex_start: float | None


@dataclass(frozen=True, slots=True)
class PriceList:
    """Machines and their prices by region, as of a day."""

    date: datetime.date
    source: str
    machines: dict[str, Machine]
    prices: dict[str, dict[str, MachinePrices]]

    @property
    def accelerators(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(machine.accelerator for machine in self.machines.values()))

    def counts(self, accelerator: str) -> list[int]:
        """How many of it a machine can have."""
        return sorted({item.count for item in self.machines.values() if item.accelerator == accelerator})

    def machine_for(self, accelerator: str, count: int, region: str | None = None) -> Machine:
        """The smallest machine with exactly this many, in this region if one is given."""
        fitting = [item for item in self.machines.values() if (item.accelerator, item.count) == (accelerator, count)]
        if not fitting:
            counts = self.counts(accelerator)
            if not counts:
                raise UsageError(
                    f"the catalogue has no accelerator {accelerator!r}",
                    help=f"choose from {', '.join(self.accelerators)}",
                )
            raise UsageError(
                f"no machine has {count} {accelerator}", help=f"write a count of {', '.join(map(str, counts))}"
            )
        fitting.sort(key=lambda item: (item.vcpus, item.name))
        if region is None:
            return fitting[0]
        there = [item for item in fitting if region in self.prices.get(item.name, {})]
        if not there:
            regions = sorted({name for item in fitting for name in self.prices.get(item.name, {})})
            raise UsageError(
                f"{fitting[0].name} is not offered in {region}", help=f"choose a region from {', '.join(regions)}"
            )
        return there[0]

    def price(self, machine: str, region: str) -> MachinePrices:
        """What this machine costs there."""
        return self.prices[machine][region]

    def cheapest_region(self, machine: str) -> str:
        """Where on-demand costs least, for a workload that names no region."""
        offers = self.prices[machine]
        return min(sorted(offers), key=lambda region: offers[region].on_demand or math.inf)

    def age_days(self, today: datetime.date) -> int:
        return (today - self.date).days

    def warning(self, today: datetime.date) -> str | None:
        """A sentence when the prices are old; Spot prices moved every 14 days in 2026."""
        age = self.age_days(today)
        if age <= STALE_DAYS:
            return None
        return f"the prices are {age} days old ({self.date}); run: stayfast prices refresh"


def read_catalogue(text: str, where: str) -> PriceList:
    """A catalogue file, whole or refused."""
    try:
        body = json.loads(text)
        table = load_machines()
        # Our own file names machines of the table; a file from elsewhere may describe others.
        rows = body.get("machines")
        machines = (
            {name: table.machines[name] for name in body["usd_per_hour"]}
            if rows is None
            else {name: table.of_price_list(name, *row) for name, row in rows.items()}
        )
        prices = {
            name: {region: MachinePrices(*(_price(value) for value in row)) for region, row in offers.items()}
            for name, offers in body["usd_per_hour"].items()
        }
        date = datetime.date.fromisoformat(body["date"])
        shapes = all(_is_machine(item) for item in machines.values())
        if not shapes or not prices or set(prices) - set(machines):
            raise ValueError("machines and prices do not belong together")
        return PriceList(date, str(body["source"]), machines, prices)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{where} is not a price catalogue ({type(error).__name__}: {error!s:.200})",
            help="run: stayfast prices refresh",
        ) from error


def _is_machine(item: Machine) -> bool:
    sizes = (item.count, item.vcpus, item.memory_gib)
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes)
    return whole and isinstance(item.accelerator, str)


def _price(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _HIGHEST_USD_PER_HOUR:
        raise ValueError(f"{value!r:.40} is not a price")
    return float(value)


def bundled_catalogue() -> PriceList:
    """What ships with the package."""
    text = importlib.resources.files("stayfast.capacity.machines").joinpath("prices.json").read_text(encoding="utf-8")
    return read_catalogue(text, "prices.json")


def to_json(catalogue: PriceList) -> str:
    """The file form: one line per price, so that a change of one price is a change of one line."""
    names = sorted(catalogue.machines, key=lambda name: (catalogue.machines[name].accelerator, name))
    machines = [
        f'  "{name}": {json.dumps([item.accelerator, item.count, item.vcpus, item.memory_gib])}'
        for name, item in ((name, catalogue.machines[name]) for name in names)
    ]
    offers = []
    for name in names:
        rows = catalogue.prices.get(name, {})
        lines = [
            f'   "{region}": {json.dumps([rows[region].on_demand, rows[region].spot, rows[region].flex_start])}'
            for region in sorted(rows)
        ]
        offers.append(f'  "{name}": {{\n' + ",\n".join(lines) + "\n  }")
    head = f'{{\n "date": "{catalogue.date}",\n "source": {json.dumps(catalogue.source)},\n'
    return (
        head
        + ' "machines": {\n'
        + ",\n".join(machines)
        + '\n },\n "usd_per_hour": {\n'
        + ",\n".join(offers)
        + "\n }\n}\n"
    )
