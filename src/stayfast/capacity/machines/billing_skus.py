"""From the SKUs of the Cloud Billing Catalog to machine prices.

A machine's price is its accelerators, vCPUs and memory, each a SKU of its own per region and class. Descriptions are
matched from their first character: two SKUs whose usage type says on-demand are reservations or calendar mode, and
taking them for on-demand is how public catalogues came to be wrong.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from stayfast.capacity.machines.prices import Machine, MachinePrices, PriceList
from stayfast.errors import UsageError

EXCLUDED = re.compile(r"Reserved|Commitment|Calendar Mode|Capacity Optimized|Sole Tenancy", re.IGNORECASE)


class Family(NamedTuple):
    """How one machine family is called in descriptions."""

    chip: str
    host: str | None = None
    """None where the chip's price holds the whole machine: B200 slices and TPUs have no vCPU or RAM of their own."""
    short: str | None = None
    """What follows ``DWS Defined Duration`` where that is not the chip's own name."""


FAMILIES = {
    "t4": Family("Nvidia Tesla T4 GPU", "N1 Predefined Instance"),
    "l4": Family("Nvidia L4 GPU", "G2 Instance"),
    "rtx-pro-6000": Family("RTX 6000 96GB", "G4 Instance"),
    "a100-40gb": Family("Nvidia Tesla A100 GPU", "A2 Instance"),
    "a100-80gb": Family("Nvidia Tesla A100 80GB GPU", "A2 Instance"),
    "h100": Family("Nvidia H100 80GB GPU", "A3 Instance"),
    "h100-mega": Family("Nvidia H100 80GB Mega GPU", "A3Plus Instance"),
    "h200": Family("H200 141GB GPU", "A3Ultra Instance"),
    "b200": Family("A4 Nvidia B200 (1 gpu slice)"),
    "tpu-v5e": Family("TpuV5e", short="V5e"),
    "tpu-v6e": Family("TpuV6e", short="V6e"),
}
"""Descriptions as seen in public readings and fixtures of the live catalogue, June to October 2026. Not seen by us: the
flex-start form of B200, and of the N1 hosts of T4; where no such SKU matches, the class has no price."""

CLASSES = ("on_demand", "spot", "flex_start")


def _patterns(family: Family) -> dict[tuple[str, str], re.Pattern[str]]:
    chip, short = re.escape(family.chip), re.escape(family.short or family.chip)
    rows = {
        ("on_demand", "chip"): rf"^{chip} running in ",
        ("spot", "chip"): rf"^({chip} attached to Spot Preemptible VMs|Spot Preemptible {chip}) running in ",
        (
            "flex_start",
            "chip",
        ): rf"^({chip} attached to DWS Defined Duration VMs|DWS Defined Duration {short}) running in ",
    }
    for part in ("Core", "Ram") if family.host else ():
        host = re.escape(family.host or "")
        bare = re.escape((family.host or "").removesuffix(" Instance"))
        rows |= {
            ("on_demand", part.lower()): rf"^{host} {part} running in ",
            ("spot", part.lower()): rf"^Spot Preemptible {host} {part} running in ",
            ("flex_start", part.lower()): rf"^DWS Defined Duration {bare}( Instance)? {part} running in ",
        }
    return {key: re.compile(pattern, re.IGNORECASE) for key, pattern in rows.items()}


_UNITS = {"h": 1.0, "GiBy.h": 1.0, "GBy.h": 2**30 / 10**9}
"""To the hour of one piece or one GiB; some families sell memory by the decimal gigabyte."""

_PATTERNS = {name: _patterns(family) for name, family in FAMILIES.items()}
Parts = dict[tuple[str, str, str, str], float]
"""(accelerator, class, part, region) to dollars per unit and hour."""


def collect_parts(skus: Iterable[Mapping[str, Any]]) -> Parts:
    """The parts that we price machines from; anything else is passed over."""
    parts: Parts = {}
    for sku in skus:
        text = sku.get("description")
        if not isinstance(text, str) or EXCLUDED.search(text):
            continue
        for accelerator, patterns in _PATTERNS.items():
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
    if FAMILIES[machine.accelerator].host:
        amounts |= {"core": machine.vcpus, "ram": machine.memory_gib}
    total = 0.0
    for part, amount in amounts.items():
        price = parts.get((machine.accelerator, kind, part, region))
        if price is None:
            return None
        total += price * amount
    return round(total, 4)
