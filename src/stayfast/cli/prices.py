"""``stayfast prices``: what the catalogue says, and a new one from Google's billing catalogue."""

from __future__ import annotations

import argparse
import datetime
import json
import sys

from stayfast.capacity.machines.billing_api import billing_key, read_skus
from stayfast.capacity.machines.billing_skus import price_list_from_skus
from stayfast.capacity.machines.price_file import (
    catalogue_path,
    current_price_list,
    write_price_list,
)
from stayfast.capacity.machines.prices import PriceList, bundled_catalogue
from stayfast.cli.main import add_output
from stayfast.errors import SettingError
from stayfast.model.variables import BILLING_API_KEY, CATALOGUE

_EPILOG = f"""\
examples:
  stayfast prices show --accelerator h100 --region us-central1
  {BILLING_API_KEY}=… stayfast prices refresh
The refreshed catalogue is kept in ${CATALOGUE}, else in the user's cache, and is used from then on.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("action", choices=("show", "refresh"), help="print them, or fetch them anew")
    parser.add_argument("--accelerator", metavar="NAME", help="only this one, such as h100")
    parser.add_argument("--region", metavar="REGION", help="only this one, such as us-central1")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Show or refresh."""
    if args.action == "refresh":
        return _refresh(args)
    catalogue = current_price_list()
    regions = sorted({region for offers in catalogue.prices.values() for region in offers})
    for option, given, known in (
        ("--accelerator", args.accelerator, catalogue.accelerators), ("--region", args.region, regions)
    ):  # fmt: skip
        if given is not None and given not in known:
            raise SettingError(f"{option} {given!r} is not in the catalogue", help=f"choose from {', '.join(known)}")
    rows = [
        {"machine": name, "accelerator": catalogue.machines[name].accelerator, "region": region,
         "on_demand": offer.on_demand, "spot": offer.spot, "flex_start": offer.flex_start}
        for name, offers in catalogue.prices.items()
        for region, offer in offers.items()
        if args.accelerator in (None, catalogue.machines[name].accelerator) and args.region in (None, region)
    ]  # fmt: skip
    if args.output == "json":
        print(json.dumps({"date": str(catalogue.date), "source": catalogue.source, "usd_per_hour": rows}))
        return 0
    print(f"US dollars per machine and hour, {catalogue.date}")
    print(f"{'machine':<18}{'region':<26}{'on-demand':>10}{'Spot':>10}{'flex-start':>12}")
    for row in rows:
        cells = [f"{row[name]:.4f}" if row[name] is not None else "-" for name in ("on_demand", "spot", "flex_start")]
        print(f"{row['machine']:<18}{row['region']:<26}{cells[0]:>10}{cells[1]:>10}{cells[2]:>12}")
    print_staleness(catalogue)
    return 0


def _refresh(args: argparse.Namespace) -> int:
    key = billing_key()
    path = catalogue_path()
    if path is None:
        raise SettingError("there is no home directory to keep the prices in", help=f"set {CATALOGUE} to a file")
    today = datetime.datetime.now(datetime.UTC).date()
    catalogue = price_list_from_skus(read_skus(key), bundled_catalogue().machines, today)
    write_price_list(path, catalogue)
    count = sum(len(offers) for offers in catalogue.prices.values())
    if args.output == "json":
        print(json.dumps({"path": str(path), "date": str(today), "prices": count}))
    else:
        print(f"{count} prices of {len(catalogue.prices)} machines written to {path}")
    return 0


def print_staleness(prices: PriceList) -> None:
    """Say on stderr that the prices are old, if they are."""
    warning = prices.warning(datetime.datetime.now(datetime.UTC).date())
    if warning:
        print(f"stayfast: {warning}", file=sys.stderr)
