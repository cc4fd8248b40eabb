"""Which price list is in force: the named file, the refreshed one, or ours."""

from __future__ import annotations

import os
from pathlib import Path

from stayfast.capacity.machines.prices import PriceList, bundled_catalogue, read_catalogue, to_json
from stayfast.errors import UsageError
from stayfast.model.variables import CATALOGUE as FILE_VARIABLE
from stayfast.text.files import read_text, replace_file


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


def write_price_list(path: Path, prices: PriceList) -> None:
    """Whole or not at all: a reader never meets half a price list."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(str(path), to_json(prices).encode(), 0o600, is_synced=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror})", help=f"set {FILE_VARIABLE}") from error
