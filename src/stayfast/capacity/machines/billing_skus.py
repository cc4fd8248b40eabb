"""From the SKUs of the Cloud Billing Catalog to machine prices.

A machine's price is its accelerators, vCPUs and memory, each a SKU of its own per region and class. Descriptions are
matched from their first character: two SKUs whose usage type says on-demand are reservations or calendar mode, and
taking them for on-demand is how public catalogues came to be wrong.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from stayfast.capacity.machines.machine import BillingText, Machine, load_machines
from stayfast.capacity.machines.prices import MachinePrices, PriceList
from stayfast.errors import UsageError

EXCLUDED = re.compile(r"Reserved|Commitment|Calendar Mode|Capacity Optimized|Sole Tenancy", re.IGNORECASE)


CLASSES = ("on_demand", "spot", "flex_start")


@cache
def price_patterns() -> dict[str, dict[tuple[str, str], re.Pattern[str]]]:
    """By accelerator; those without a billing text are not priced."""
    found = load_machines().accelerators.values()
    return {entry.name: _patterns_of(entry.billing) for entry in found if entry.billing is not None}


def _patterns_of(text: BillingText) -> dict[tuple[str, str], re.Pattern[str]]:
    chip, short = re.escape(text.accelerator), re.escape(text.flex_start or text.accelerator)
    rows = {
        ("on_demand", "chip"): rf"^{chip} running in ",
        ("spot", "chip"): rf"^({chip} attached to Spot Preemptible VMs|Spot Preemptible {chip}) running in ",
        (
            "flex_start",
            "chip",
        ): rf"^({chip} attached to DWS Defined Duration VMs|DWS Defined Duration {short}) running in ",
    }
    for part in ("Core", "Ram") if text.host else ():
        host = re.escape(text.host or "")
        bare = re.escape((text.host or "").removesuffix(" Instance"))
        rows |= {
            ("on_demand", part.lower()): rf"^{host} {part} running in ",
            ("spot", part.lower()): rf"^Spot Preemptible {host} {part} running in ",
            ("flex_start", part.lower()): rf"^DWS Defined Duration {bare}( Instance)? {part} running in ",
        }
    return {key: re.compile(pattern, re.IGNORECASE) for key, pattern in rows.items()}


_UNITS = {"h": 1.0, "GiBy.h": 1.0, "GBy.h": 2**30 / 10**9}
"""To the hour of one piece or one GiB; some families sell memory by the decimal gigabyte."""

Parts = dict[tuple[str, str, str, str], float]
"""(accelerator, class, part, region) to dollars per unit and hour."""


def collect_parts(skus: Iterable[Mapping[str, Any]]) -> Parts:
    """The parts that we price machines from; anything else is passed over."""
    parts: Parts = {}
    for sku in skus:
        text = sku.get("description")
        if not isinstance(text, str) or EXCLUDED.search(text):
            continue
        for accelerator, patterns in price_patterns().items():
            for (kind, part), pattern in patterns.items():
                if pattern.match(text):
                    price = unit_price(sku)
                    for region in sku.get("serviceRegions") or ():
                        if price is not None:
                            parts[accelerator, kind, part, str(region)] = price
    return parts


def unit_price(sku: Mapping[str, Any]) -> float | None:
    """Dollars per hour of one unit, or None when this SKU is not sold by the hour."""
    try:
        expression = sku["pricingInfo"][-1]["pricingExpression"]
        factor = _UNITS.get(expression["usageUnit"])
        if factor is None:
            return None
        rate = expression["tieredRates"][-1]["unitPrice"]
        if rate.get("currencyCode", "USD") != "USD":
            return None
        # Zero is a placeholder: nothing that we price is given away.
        return (int(rate.get("units") or 0) + int(rate.get("nanos") or 0) / 1e9) * factor or None
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def price_list_from_skus(
    skus: Iterable[Mapping[str, Any]], machines: Mapping[str, Machine], today: datetime.date
) -> PriceList:
    """A catalogue of these machines; refused when the answer prices none of them."""
    parts = collect_parts(skus)
    regions = sorted({region for _, _, _, region in parts})
    prices: dict[str, dict[str, MachinePrices]] = {}
    for name, machine in machines.items():
        for region in regions:
            row = [_sum(parts, machine, kind, region) for kind in CLASSES]
            if row[0] is not None or row[1] is not None:
                prices.setdefault(name, {})[region] = MachinePrices(*row)
    if not prices:
        raise UsageError("the answer of the billing catalogue prices no machine that we know", help="try again later")
    known = {name: machine for name, machine in machines.items() if name in prices}
    source = f"Cloud Billing Catalog API, services/6F81-5844-456A, read {today}; local SSD not included"
    return PriceList(today, source, known, prices)


def _sum(parts: Parts, machine: Machine, kind: str, region: str) -> float | None:
    amounts = {"chip": machine.count}
    if ("on_demand", "core") in price_patterns().get(machine.accelerator, {}):
        amounts |= {"core": machine.vcpus, "ram": machine.memory_gib}
    total = 0.0
    for part, amount in amounts.items():
        price = parts.get((machine.accelerator, kind, part, region))
        if price is None:
            return None
        total += price * amount
    return round(total, 4)
