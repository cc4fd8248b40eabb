"""The eight places where somebody else's bytes come in. Each takes bytes and may raise only what it declares."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from inputs.cases.clusters import CONFIG, POD
from inputs.cases.figures import CATALOGUE, ROW
from inputs.cases.spec import GOOD
from stayfast.errors import StayfastError

ROOT = Path(__file__).resolve().parents[2]
Read = Callable[[bytes], object]


class Target(NamedTuple):
    """What is fuzzed, from which good inputs, and which errors are answers."""

    name: str
    read: Read
    corpus: Callable[[], list[bytes]]
    declared: tuple[type[Exception], ...] = (StayfastError,)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def manifest(data: bytes) -> object:
    """The linter answers everything with findings, and prints them."""
    from stayfast.lint.engine import lint_bundle
    from stayfast.lint.formats import machine
    from stayfast.lint.formats.text import to_text
    from stayfast.lint.objects.bundle import LintSettings
    from stayfast.lint.sources import Source

    name = "a.tf" if data.startswith(b"resource") else "a.yaml"
    text = _text(data)
    report = lint_bundle([Source(name, text)], LintSettings())
    to_text(report, lambda _: text.split("\n"), colour=False)
    machine.to_json(report)
    return len(report.findings)


def workload(data: bytes) -> object:
    """stayfast.yaml, and the settings of the linter."""
    from stayfast.capacity.spec import read_spec
    from stayfast.lint.configuration import read_configuration

    if data[:1] == b"#":
        return read_configuration(_text(data), "c.yaml")
    return read_spec(_text(data), "stayfast.yaml", accelerators=("h100", "l4"))


def _resealed(data: bytes) -> bytes:
    """With a checksum that fits, so that what lies behind it is reached too."""
    from stayfast.runtime.checkpoint import inventory
    from stayfast.runtime.run_record import record as head

    try:
        body = json.loads(data)
        body.pop("checksum", None)
        digest = inventory._digest if body.get("kind") else head._digest
        return json.dumps(body | {"checksum": digest(body)}).encode()
    except (ValueError, RecursionError, TypeError, AttributeError):
        return data


def stored(data: bytes) -> object:
    """Records, inventories and trees from a bucket that anybody may have written to."""
    from stayfast.runtime.checkpoint import inventory
    from stayfast.runtime.run_record import record as head
    from stayfast.runtime.state import decoding as tree

    for bytes_ in (data, _resealed(data)):
        for read in (lambda given: head.decode(given), lambda given: inventory.decode(given, where="inventory.json")):
            try:
                read(bytes_)
            except StayfastError:
                pass
    return tree.decode(data, lambda number: number)


def address(data: bytes) -> object:
    """URLs of stores, queues, sinks and servers."""
    from stayfast.cluster.kubernetes.endpoint import split_server
    from stayfast.settings import read_settings
    from stayfast.storage.network import urls
    from stayfast.storage.stores.file import FileStore
    from stayfast.storage.stores.open_store import open_store

    url = _text(data)
    answers = []
    for read in (
        urls.parse_url, urls.redacted_url, urls.parse_postgres_url, split_server,
        lambda given: urls.parse_sqlite_url(given, ("queue", "table")), urls.url_without_password,
        lambda given: FileStore(given), lambda given: given.startswith(("file:", "memory:")) and open_store(given),
        lambda given: read_settings({"STAYFAST_LEASE_ENDS_AT": given}), lambda given: read_settings({"GCE_METADATA_HOST": given}),
        lambda given: read_settings({"STAYFAST_GRACE_SECONDS": given, "RANK": given}),
        lambda given: read_settings({"STAYFAST_EXTRA_SIGNAL": given}), lambda given: read_settings({"JOB_COMPLETION_INDEX": given}),
    ):  # fmt: skip
        try:
            read(url)  # type: ignore[operator]
        except StayfastError as error:
            answers.append(type(error).__name__)
    return tuple(answers)


def items(data: bytes) -> object:
    """JSON lines and CSV on their way into a queue; payloads on their way out."""
    from stayfast.batch.queue.item_sources import from_csv, from_json_lines, key_by_field

    read = from_csv if data.startswith(b"key,") else from_json_lines
    lines = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="" if read is from_csv else None)
    return sum(1 for _ in read(lines, "items", key_by_field(None)))  # type: ignore[operator]


def figures(data: bytes) -> object:
    """Capacity traces, price catalogues, and the plans that bills are held against."""
    from stayfast.capacity.machines.prices import read_catalogue, to_json
    from stayfast.capacity.replay.traces import read_traces

    text = _text(data)
    if '"machines"' in text:
        return len(to_json(read_catalogue(text, "prices.json")))
    return sum(trace.ticks for trace in read_traces(text, "traces"))


def cluster(data: bytes) -> object:
    """Kubeconfigs, and objects of a cluster that may hold anything anywhere."""
    if data.startswith((b"[", b"{")):
        return _observed(data)
    from stayfast.cluster.kubernetes.kubeconfig import find_endpoint

    with open(_scratch() / "kubeconfig", "wb") as file:
        file.write(data)
    access = find_endpoint(kubeconfig=str(_scratch() / "kubeconfig"), environment={"HOME": "/nonexistent"})
    return access.context


def _observed(data: bytes) -> object:
    from cluster.scenarios import NOW
    from stayfast.cluster.diagnosis.diagnose import diagnose
    from stayfast.cluster.kubernetes.resources import JOB_SETS, JOBS, PODS
    from stayfast.cluster.observed.runs import summarize
    from stayfast.cluster.observed.snapshot import Snapshot
    from stayfast.cluster.watch.actions.action import ACTIONS, plan_actions
    from stayfast.cluster.watch.alerts import find_alerts
    from stayfast.cluster.watch.metrics import exposition

    try:
        rows = json.loads(data)
    except (ValueError, RecursionError):
        return None
    observed = Snapshot(NOW)
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, list) and len(row) == 2 and isinstance(row[1], dict) and str(row[0]) in _kinds():
            observed.add(_kinds()[str(row[0])], row[1])  # the server answers objects under the kind that was asked for
    found, alerts = summarize(observed), find_alerts(observed)
    plan_actions(observed, set(ACTIONS.names()))
    exposition(observed, found, alerts, {})
    for kind in (JOBS, JOB_SETS, PODS):
        for root in observed.of(kind):
            diagnose(observed, root)
    return len(alerts)


@cache
def _kinds() -> dict[Any, Any]:
    from cluster.test_junk_objects import world

    return {resource.plural: resource for resource, _ in world()}


@cache
def _scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="stayfast-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))


def answers(data: bytes) -> object:
    """What programs leave behind for rehearse to compare, lease and notice files, baselines, descriptions of clusters."""
    from stayfast.clock import from_rfc3339
    from stayfast.cluster.observed.capabilities import ClusterDescription, check_capabilities
    from stayfast.lint.baseline import new_findings
    from stayfast.proof.rehearse.differences import Comparison
    from stayfast.proof.rehearse.records import compare_records

    for folder in ("want", "got"):
        (_scratch() / folder).mkdir(exist_ok=True)
    want, got = _scratch() / "want", _scratch() / "got"
    for name, good in (
        ("r.jsonl", b'{"id": "a", "x": 1}\n'),
        ("r.csv", b"id,x\na,1\n"),
        ("r.json", b'{"x": [1.5, {"y": 2}]}'),
    ):
        (want / name).write_bytes(good)
        (got / name).write_bytes(data)
    told: list[Any] = [compare_records(str(want), str(got), name, ("id",)) for name in ("r.jsonl", "r.csv")]
    told.append(Comparison(json_files=("r.json",), tolerance=1e-6).differences(str(want), str(got), {}))
    for read in (lambda: from_rfc3339(_text(data)), lambda: new_findings(_text(data), "b.json", [])):
        try:
            read()
        except (ValueError, OverflowError, StayfastError):
            told.append("no")
    try:
        described = json.loads(data)
    except (ValueError, RecursionError):
        described = {}
    check_capabilities(ClusterDescription("v1.36.0-gke.1", {}, [], described if isinstance(described, dict) else {}))
    return [row[:1] if isinstance(row, tuple) else str(row)[:60] for part in told for row in part][:4]


def _manifests() -> list[bytes]:
    found = [path.read_bytes() for path in sorted((ROOT / "tests" / "lint" / "cases").rglob("*.yaml"))[:60]]
    found += [path.read_bytes() for path in sorted((ROOT / "tests" / "render" / "golden").rglob("*.yaml"))[:20]]
    found += [path.read_bytes() for path in sorted((ROOT / "tests" / "render" / "golden").rglob("*.tf"))[:5]]
    return [POD.encode(), *(data for data in found if len(data) < 9_000)]


def _stored() -> list[bytes]:
    from stayfast.runtime.checkpoint.inventory import TREE, Inventory, InventoryEntry, Part
    from stayfast.runtime.checkpoint.inventory import encode as encode_inventory
    from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord, RunRecord, encode

    row = AttemptRecord(attempt=1, started_at="2026-01-01T00:00:00Z")
    done = CheckpointRecord(3, 1, "2026-01-01T00:00:00Z", 4096, "0" * 64)
    part = Part("checkpoints/000000000003-000001/part-00000.bin", 4096, ("0" * 16,))
    entry = InventoryEntry(TREE, "json", (4000,), 0, 0, 4000)
    head = RunRecord(run="r", attempt=1, token="t", checkpoints=(done,), attempts=(row,))
    tree = b'{"map":{"a":{"leaf":0},"b":[1,2.5,"x",null,true]}}'
    return [encode(head), encode_inventory(Inventory(3, 1, "xxh3-64", 4 << 20, (part,), (entry,))), tree]


def _objects() -> list[bytes]:
    from cluster.test_junk_objects import world

    return [
        json.dumps([[resource.plural, value] for resource, value in world()]).encode(),
        CONFIG.encode(),
        CONFIG.encode(),
    ]


URLS = [
    b"file:///data/run", b"gs://bucket/run/a", b"s3://bucket/x", b"memory://name", b"sqlite:///data/w.db?queue=images",
    b"postgresql://me:pw@host:5432/db?queue=q&sslmode=require", b"pubsub://project/sub?topic=t", b"https://[::1]:6443/path",
    b"2026-11-15T20:03:37Z", b"2026-11-15T20:03:37.123+05:30", b"metadata.google.internal:80", b"15.5", b"SIGUSR1", b"7",
]  # fmt: skip
ITEMS = [
    b'{"key": "a", "x": 1}\n{"id": "b", "y": [1, {"z": null}]}\n',
    b'key,x\na,1\n"b ""c""",2\n',
    b'{"key": "\\u00e4"}\n',
]
FIGURES = [
    json.dumps(ROW).encode(),
    json.dumps(CATALOGUE).encode(),
    b"seconds,available,zone\n0,4,a\n600,0,a\n0,1,b\n600,1,b\n",
]
ANSWERS = [
    b'{"id": "a", "x": 1}\n{"id": "b", "x": 2}\n', b"id,x\na,1\n", b'{"x": [1.5, {"y": 2}]}', b"2026-11-15T20:03:37Z",
    b'{"nodePools": [{"config": {"spot": true, "machineType": "g2"}}], "autopilot": {"enabled": false}, "status": "RUNNING"}',
    b'{"version": 1, "findings": [{"rule": "SF101", "file": "a.yaml", "pointer": "/x", "count": 1}]}',
]  # fmt: skip
SPECS = [GOOD.encode(), b"# lint\nselect: [SF1]\ncluster: {mode: standard, pools: [{name: a, spot: true}]}\n"]

TARGETS = (
    Target("manifest", manifest, _manifests, ()),
    Target("spec", workload, lambda: SPECS),
    Target("stored", stored, _stored),
    Target("address", address, lambda: URLS, ()),
    Target("items", items, lambda: ITEMS),
    Target("figures", figures, lambda: FIGURES),
    Target("cluster", cluster, _objects),
    Target("answers", answers, lambda: ANSWERS),
)
