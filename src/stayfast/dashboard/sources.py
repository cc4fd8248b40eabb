"""Where the runs are: a URL may be a run, or a folder or bucket prefix with many; a workload file tells of its own."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote

from stayfast.capacity.machines.prices import PriceList
from stayfast.capacity.spec.workload import WorkloadKind, WorkloadSpec
from stayfast.dashboard.run_view import RunPricing
from stayfast.errors import KeyMissingError
from stayfast.filesystem import FS, SystemFS
from stayfast.model.capacity import CapacityClass
from stayfast.runtime.run_record.record import RECORD_KEY
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.protocol import Store

MOST_RUNS = 2000
_DEPTH = 4
_MOST_FOLDERS = 20_000
_MOST_NAMES = 200_000
_MOST_QUEUES = 20
_SKIPPED = ("checkpoints",)


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


def as_url(text: str) -> str:
    """A plain path is meant as a folder of this machine."""
    return text if "://" in text else "file://" + os.path.abspath(text)


def find_runs(url: str, fs: FS | None = None) -> list[str]:
    """The URLs of all runs at or under this one, in order of their names, at most ``MOST_RUNS``."""
    store = open_store(url)
    try:
        if url.startswith("file:"):
            root = store.url.removeprefix("file://")
            return ["file://" + path for path in islice(_folders(root, fs or SystemFS()), MOST_RUNS)]
        return _in_bucket(store, url)
    finally:
        store.close()


def find_queues(url: str) -> list[str]:
    """The URLs of work queues in databases that lie in this folder itself, as ``stayfast demo --keep`` leaves one."""
    root = url.removeprefix("file://")
    if not url.startswith("file:") or not os.path.isdir(root):
        return []
    found = []
    for name in islice(sorted(os.listdir(root)), _MOST_NAMES):
        path = os.path.join(root, name)
        if name.endswith(".db") and os.path.isfile(path):  # and no pipe, which would make us wait
            found += [f"sqlite://{quote(path)}?queue={quote(queue, safe='')}" for queue in _queues_in(path)]
    return found[:_MOST_QUEUES]


def _queues_in(path: str) -> list[str]:
    """Names of the queues in a database; none when it is another one's, or no database at all."""
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=1.0)) as database:
            rows = database.execute("SELECT name FROM stayfast_queue ORDER BY name LIMIT ?", (_MOST_QUEUES,))
            return [name for (name,) in rows if isinstance(name, str)]
    except sqlite3.Error:
        return []


def _folders(root: str, fs: FS) -> Iterator[str]:
    """Breadth first; nothing under a run is looked at, since its checkpoints are many."""
    level = [root]
    seen = 0
    for _ in range(_DEPTH + 1):
        below = []
        for folder in level:
            seen += 1
            if seen > _MOST_FOLDERS:
                return
            if fs.stat(os.path.join(folder, RECORD_KEY)) is not None:
                yield folder
                continue
            below += _subfolders(folder, fs)
        level = below


def _subfolders(folder: str, fs: FS) -> list[str]:
    try:
        names = sorted(fs.listdir(folder))
    except OSError:  # no longer there, or closed to us: then there is nothing to show
        return []
    found = []
    for name in names:
        if name in _SKIPPED or name.startswith("."):
            continue
        path = os.path.join(folder, name)
        if os.path.islink(path):  # a link to a folder above would never end
            continue
        status = fs.stat(path)
        if status is not None and status.is_dir:
            found.append(path)
    return found


def _in_bucket(store: Store, url: str) -> list[str]:
    try:
        store.get(RECORD_KEY, length=1)
    except KeyMissingError:
        pass
    else:
        return [url]
    base = url.rstrip("/")
    found = []
    for entry in islice(store.keys(), _MOST_NAMES):
        folder, _, name = entry.key.rpartition("/")
        if name == RECORD_KEY and folder:
            found.append(f"{base}/{folder}")
            if len(found) >= MOST_RUNS:
                break
    return found
