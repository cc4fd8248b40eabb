"""``stayfast prices``: what the catalogue says, and a new one from Google's billing catalogue."""

from __future__ import annotations

import argparse
import datetime
import http.client
import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stayfast.capacity.machines.billing_skus import price_list_from_skus
from stayfast.capacity.machines.prices import PriceList, bundled_catalogue, read_catalogue, to_json
from stayfast.cli.main import add_output
from stayfast.errors import SettingError, StoreUnavailableError, UsageError
from stayfast.model import variables
from stayfast.text.files import read_text, replace_file

ENDPOINT = "https://cloudbilling.googleapis.com"
SERVICE = "services/6F81-5844-456A"
KEY_VARIABLE, ENDPOINT_VARIABLE, FILE_VARIABLE = (
    variables.BILLING_API_KEY,
    variables.BILLING_ENDPOINT,
    variables.CATALOGUE,
)
MAX_PAGES, MAX_PAGE_BYTES = 100, 64 << 20
_EPILOG = f"""\
examples:
  stayfast prices show --accelerator h100 --region us-central1
  {KEY_VARIABLE}=… stayfast prices refresh
The refreshed catalogue is kept in ${FILE_VARIABLE}, else in the user's cache, and is used from then on.
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
    warn(catalogue)
    return 0


def _refresh(args: argparse.Namespace) -> int:
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        raise SettingError(f"{KEY_VARIABLE} is not set", help="create an API key for cloudbilling.googleapis.com")
    path = catalogue_path()
    if path is None:
        raise SettingError("there is no home directory to keep the prices in", help=f"set {FILE_VARIABLE} to a file")
    endpoint = os.environ.get(ENDPOINT_VARIABLE, ENDPOINT)
    today = datetime.datetime.now(datetime.UTC).date()
    catalogue = price_list_from_skus(_skus(endpoint, key), bundled_catalogue().machines, today)
    _replace(path, to_json(catalogue))
    count = sum(len(offers) for offers in catalogue.prices.values())
    if args.output == "json":
        print(json.dumps({"path": str(path), "date": str(today), "prices": count}))
    else:
        print(f"{count} prices of {len(catalogue.prices)} machines written to {path}")
    return 0


def _skus(endpoint: str, key: str) -> Iterator[dict[str, Any]]:
    token = ""
    for _ in range(MAX_PAGES):
        query = {"pageSize": 5000, "currencyCode": "USD", "key": key} | ({"pageToken": token} if token else {})
        page = _get(f"{endpoint}/v1/{SERVICE}/skus?{urllib.parse.urlencode(query)}", endpoint)
        skus = page.get("skus", [])
        if not isinstance(skus, list):
            raise StoreUnavailableError(f"{endpoint} answered something that is not a list of SKUs")
        yield from (sku for sku in skus if isinstance(sku, dict))
        token = str(page.get("nextPageToken") or "")
        if not token:
            return
    raise StoreUnavailableError(f"{endpoint} answered more than {MAX_PAGES} pages")


def _get(url: str, endpoint: str) -> dict[str, Any]:
    """One page. The key is in the URL, so that no message here may show the URL."""
    if not re.match(r"https?://[^/\[\]]+", endpoint):
        raise SettingError(f"{ENDPOINT_VARIABLE} is {endpoint!r}", help="write an https URL")
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            data = answer.read(MAX_PAGE_BYTES + 1)
        if len(data) > MAX_PAGE_BYTES:
            raise StoreUnavailableError(f"{endpoint} answered a page of more than {MAX_PAGE_BYTES >> 20} MiB")
        page = json.loads(data)
    except urllib.error.HTTPError as error:
        cure = f"check the key in {KEY_VARIABLE}" if error.code in (400, 401, 403) else "try again later"
        raise StoreUnavailableError(f"{endpoint} answered {error.code}", help=cure) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise StoreUnavailableError(f"{endpoint} cannot be read ({reason})", help="check the network") from None
    if not isinstance(page, dict):
        raise StoreUnavailableError(f"{endpoint} answered something that is not a page of SKUs")
    return page


def _replace(path: Path, text: str) -> None:
    """Whole or not at all: a reader never meets half a catalogue."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(str(path), text.encode(), 0o600, is_synced=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror})", help=f"set {FILE_VARIABLE}") from error


def catalogue_path() -> Path | None:
    """Where a refreshed catalogue is kept."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if cache.startswith("~"):  # no HOME, and a user that the machine does not know, as in many containers
        return None
    return Path(cache) / "stayfast" / "prices.json"


def current_price_list(name: str | None = None) -> PriceList:
    """The named file, else the refreshed one if it is newer than ours, else ours."""
    path = Path(name) if name else catalogue_path()
    ours = bundled_catalogue()
    if path is None or (not name and not path.exists()):
        return ours
    found = read_catalogue(read_text(str(path)), str(path))
    return found if name or found.date >= ours.date else ours


def warn(catalogue: PriceList) -> None:
    """Say on stderr that the prices are old, if they are."""
    warning = catalogue.warning(datetime.datetime.now(datetime.UTC).date())
    if warning:
        print(f"stayfast: {warning}", file=sys.stderr)
