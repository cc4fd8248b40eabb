"""Stores that cannot keep a commit's promise are refused at the start, in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from servers.bucket_server import BucketServer
from stayfast.errors import AccessDeniedError, StoreError, UrlError
from stayfast.storage.stores import precondition_check
from stayfast.storage.stores.bucket import BucketStore
from stayfast.storage.stores.file import FileStore
from stayfast.storage.stores.memory import MemoryStore
from stayfast.storage.stores.precondition_check import check_preconditions


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_a_server_that_enforces_preconditions_is_taken_and_left_clean(
    bucket_server: BucketServer, open_on: Any, scheme: str
) -> None:
    store = open_on(scheme, bucket_server.url, "run")
    check_preconditions(store)
    assert bucket_server.names() == []
    assert bucket_server.requests.total() == 4


def test_moto_is_taken(moto_url: str, open_on: Any) -> None:
    store = open_on("s3", moto_url, "probe-run")
    check_preconditions(store)
    assert list(store.keys()) == []


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_a_server_that_ignores_preconditions_is_refused_and_left_clean(open_on: Any, scheme: str) -> None:
    with BucketServer(enforce=False) as server:
        store = open_on(scheme, server.url, "run")
        with pytest.raises(StoreError, match="destroy each other's checkpoints") as caught:
            check_preconditions(store)
        assert "\n" not in str(caught.value)
        assert server.names() == []


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_a_server_that_ignores_create_only_is_refused(open_on: Any, scheme: str) -> None:
    class Careless(BucketServer):
        def write(self, bucket: str, name: str, data: bytes, wants: Any) -> Any:
            exists = name in self.buckets[bucket]
            return super().write(bucket, name, data, (lambda now: True) if exists else wants)

    with Careless() as server:
        with pytest.raises(StoreError, match="only to create"):
            check_preconditions(open_on(scheme, server.url, "run"))
        assert server.names() == []


def test_the_public_emulator_ignores_preconditions_and_is_refused(gcs_emulator_url: str, open_on: Any) -> None:
    store = open_on("gs", gcs_emulator_url, "probe-run")
    with pytest.raises(StoreError, match="preconditions"):
        check_preconditions(store)
    assert list(store.keys()) == []


@pytest.mark.parametrize("fault", ["apply_drop", "apply_503", "lose_request", "429"])
def test_lost_answers_do_not_fool_the_probe(bucket_server: BucketServer, open_on: Any, fault: str) -> None:
    store = open_on("gs", bucket_server.url, "run")
    for skip in range(3):
        bucket_server.arm(fault, op="put", skip=skip)
        check_preconditions(store)
        bucket_server.calm()
        assert bucket_server.names() == []


def test_no_permission_is_said_as_such(bucket_server: BucketServer, open_on: Any) -> None:
    bucket_server.arm("403", times=99)
    with pytest.raises(AccessDeniedError, match="grant"):
        check_preconditions(open_on("gs", bucket_server.url, "run"))


def test_the_clouds_themselves_are_not_asked(bucket_server: BucketServer, open_on: Any) -> None:
    store = open_on("gs", bucket_server.url, "run")
    assert isinstance(store, BucketStore)
    store.enforces_preconditions = True
    check_preconditions(store)
    assert bucket_server.requests.total() == 0


def test_memory_and_local_disks_are_taken(tmp_path: Path) -> None:
    check_preconditions(MemoryStore())
    store = FileStore(str(tmp_path / "not" / "there" / "yet"))
    check_preconditions(store, filesystem=lambda path: None)
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize("kind", ["NFS", "FUSE (gcsfuse and the like)"])
def test_network_file_systems_are_refused(tmp_path: Path, kind: str) -> None:
    asked: list[str] = []

    def filesystem(path: str) -> str:
        asked.append(path)
        return kind

    with pytest.raises(UrlError, match=r"gs://bucket/prefix") as caught:
        check_preconditions(FileStore(f"{tmp_path}/run"), filesystem=filesystem)
    assert kind in str(caught.value)
    assert asked == [str(tmp_path)], "the nearest directory that exists"


def test_the_bucket_behind_a_mount_is_named(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 0:20 / / rw - ext4 /dev/sda1 rw\n"
        "40 22 0:40 / /data rw,nosuid shared:1 - fuse.gcsfuse my-bucket rw,user_id=0\n"
        "41 22 0:41 / /nfs rw - nfs4 server:/export rw\n"
        "42 22 0:42 / /s3 rw - fuse.s3fs other rw\n"
        "broken line\n"
    )
    found = {
        root: precondition_check._mounted_bucket(root, str(table))
        for root in ("/data/runs/7", "/data", "/nfs/x", "/s3/a", "/x")
    }
    assert found == {
        "/data/runs/7": "gs://my-bucket/runs/7",
        "/data": "gs://my-bucket",
        "/nfs/x": None,
        "/s3/a": "s3://other/a",
        "/x": None,
    }
    assert precondition_check._mounted_bucket("/data", str(tmp_path / "absent")) is None
