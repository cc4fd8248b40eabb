"""What is read from a bucket may come from anybody: names, links, rows, bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mirrored import contents, keep, memory, mirror_of, opened

from stayfast.clock import SystemClock
from stayfast.errors import CheckpointError, CorruptError, FormatError
from stayfast.runtime.checkpoint.inventory import Inventory, InventoryEntry, Part
from stayfast.runtime.directory_sync.copy_format import (
    PART_BYTES,
    build_inventory,
    is_directory,
    read_entries,
    tree_bytes,
)
from stayfast.runtime.directory_sync.copy_restorer import read_copy
from stayfast.runtime.directory_sync.file_scan import FILE, FOLDER, LINK, FileState, stays_inside
from stayfast.runtime.run_record.commit_protocol import read_head, run_protocol

PART = Part("checkpoints/000000000000-000001/part-00000.bin", 4096, ("0" * 64,))


def inventory() -> Inventory:
    return build_inventory(0, 1, "sha256", [(FileState(FILE, 0o644, 5), (PART,))], (10, [PART]))


def tree(*rows: list[Any], **more: Any) -> bytes:
    body: dict[str, Any] = {"version": 1, "rows": list(rows)} | more
    return json.dumps({"map": {"~directory": {"map": body}}}).encode()


def row(
    path: Any = "a", kind: Any = FILE, mode: Any = 0o644, mtime: Any = 1, last: Any = 0, absolute: Any = False
) -> Any:
    return [path, kind, mode, mtime, last, absolute]


def test_a_listing_comes_back_as_it_was() -> None:
    listing = {
        "a": FileState(FILE, 0o640, 5, 123456789),
        "d": FileState(FOLDER, 0o755),
        "d/\udcff\n odd": FileState(FILE, 0o600, 0, 7),
        "d/l": FileState(LINK, target="../a"),
    }
    data, files = tree_bytes(listing)
    assert is_directory(data)
    rows = [(listing[path], (PART,) if listing[path].size else ()) for path in files]
    back = read_entries(build_inventory(0, 1, "sha256", rows, (len(data), [PART])), data, where="x")
    assert {copied.path: copied.seen for copied in back} == listing


@pytest.mark.parametrize(
    "path",
    ["../a", "/etc/passwd", "a/../../b", "", ".", "..", "a//b", "a/", "a\0b", ".stayfast-restore", "x" * 5000, 7, None],
)
def test_paths_that_lead_outside_are_refused(path: Any) -> None:
    with pytest.raises(CorruptError):
        read_entries(inventory(), tree(row(path)), where="x")


@pytest.mark.parametrize("target", ["/etc", "..", "../..", "d/../../..", "", "a\0", 3])
def test_links_that_lead_outside_are_refused(target: Any) -> None:
    with pytest.raises(CorruptError):
        read_entries(inventory(), tree(row("l", LINK, last=target)), where="x")


@pytest.mark.parametrize(
    "rows",
    [
        [row(), row()],
        [row("l", LINK, last="a"), row("l/passwd")],
        [row("nowhere/a")],
        [row("a"), row("a/b")],
        [row(last=1)],
        [row(last=-1)],
        [row(last="0")],
        [row(mode=0o4755)],
        [row(mode=-1)],
        [row(mtime=-1)],
        [row(mtime=1 << 63)],
        [row(kind="device")],
        [["a"]],
        [7],
        [row(absolute=1)],
    ],
)
def test_rows_that_mean_nothing_are_refused(rows: list[Any]) -> None:
    with pytest.raises(CorruptError):
        read_entries(inventory(), tree(*rows), where="x")


def test_a_file_must_lie_in_parts_of_its_own() -> None:
    entries = (InventoryEntry("f", "bytes", (5,), 0, 8, 5), InventoryEntry("(tree)", "json", (10,), 1, 0, 10))
    packed = Inventory(0, 1, "sha256", PART_BYTES, (PART, PART), entries)
    with pytest.raises(CorruptError):
        read_entries(packed, tree(row()), where="x")


def test_other_versions_and_other_states_are_told_apart() -> None:
    with pytest.raises(FormatError, match="version"):
        read_entries(inventory(), tree(row(), version=2), where="x")
    with pytest.raises(FormatError, match="not the copy of a directory"):
        read_entries(inventory(), b'{"map":{"model":7}}', where="x")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_garbage_is_refused_in_one_sentence(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        read_entries(inventory(), data, where="x")


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="a./", max_size=8), st.text(alphabet="a./", max_size=12))
def test_no_link_that_stays_inside_ever_leaves(path: str, target: str) -> None:
    import os

    if path.strip("/.") and not path.startswith("/") and ".." not in path and stays_inside(path, target):
        whole = os.path.normpath(os.path.join("/kept", os.path.dirname(path), target))
        assert whole == "/kept" or whole.startswith("/kept/")


def test_a_hostile_copy_is_passed_over_for_the_one_before_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody with access to the bucket writes a copy with matching checksums that wants to climb out."""
    store = memory()
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("good")
    keep(source, store)
    mirror = opened(source, store)
    (source / "evil").write_text("bad")
    original = tree_bytes

    import stayfast.runtime.directory_sync.copy_uploader as upload

    def evil(listing: Any) -> tuple[bytes, list[str]]:
        data, files = original(listing)
        return data.replace(b'"evil"', b'"../x"'), files

    upload.tree_bytes = evil  # type: ignore[assignment]
    try:
        from mirrored import copied

        copied(mirror)
    finally:
        upload.tree_bytes = original
    target = tmp_path / "target"
    mirror_of(target, store).claim_and_restore()
    assert list(contents(target)) == ["a"]
    assert not (tmp_path / "x").exists()
    assert "is damaged and set aside" in caplog.text


def test_the_run_of_a_program_is_never_claimed(tmp_path: Path) -> None:
    """Its trainer would be fenced off by a wrong URL on somebody's command line."""
    import stayfast

    class Weights:
        def state_dict(self) -> dict[str, Any]:
            return {"w": [1.0, 2.0]}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    url = f"file://{tmp_path}/run"
    with stayfast.run(url, total_steps=2) as run:
        run.track(weights=Weights())
        for _ in run.steps():
            run.save()
    from stayfast.storage.stores.open_store import open_store

    store = open_store(url)
    before = store.get("HEAD.json").data
    with pytest.raises(FormatError, match="holds the run of a program"):
        opened(tmp_path / "dir", store)
    assert store.get("HEAD.json").data == before


def test_a_copy_is_an_ordinary_checkpoint(tmp_path: Path) -> None:
    """``stayfast checkpoints`` reads it: kinds and digests included."""
    from stayfast.runtime.checkpoint.checkpointer import Checkpointer
    from stayfast.runtime.checkpoint.reader import DamagedFile

    store = memory()
    source = tmp_path / "d"
    source.mkdir()
    (source / "a").write_bytes(b"x" * 10_000_000)
    keep(source, store)
    held = run_protocol(read_head(), store, SystemClock())
    assert held is not None
    assert held.head.newest is not None
    engine = Checkpointer(store, buffers=1)
    results = list(engine.verify(held.head.newest))
    engine.close()
    assert not [one for one in results if isinstance(one, DamagedFile)]
    assert sum(one for one in results if isinstance(one, int)) == held.head.newest.size
    assert [copied.path for copied in read_copy(store, held.head.newest).rows] == ["a"]
