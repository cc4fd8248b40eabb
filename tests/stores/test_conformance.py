"""One suite for every store: what ``storage/stores/protocol.py`` promises, on real disks and real sockets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from racer import count_up, create_all

import stayfast
from servers.bucket_server import BucketServer
from stayfast.errors import ConflictError, KeyMissingError, UrlError
from stayfast.storage.stores import s3
from stayfast.storage.stores.memory import MemoryStore
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.protocol import ABSENT, Store

BACKENDS = ("memory", "file", "s3-moto", "s3-ours", "s3-kms", "gs-ours", "gs-emulator")
HOSTILE = (
    "p" * 241,
    "a/" * 300 + "b",
    "",
    "/",
    "a//b",
    "../x",
    "a/../b",
    ".",
    "a/.",
    "/etc/passwd",
    "a\nb",
    "a\0b",
    "ä",
    "a\\b",
    ".tmp-x",
    "a/.tmp-1",
)
numbers = iter(range(10**6))


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, open_on: Callable[[str, str, str], Store]) -> Iterator[Store]:
    backend: str = request.param
    prefix = f"runs/{os.getpid()}-{next(numbers)}"
    if backend == "memory":
        opened: Store = MemoryStore()
    elif backend == "file":
        opened = open_store(f"file://{tmp_path}/deep/store")
    elif backend == "s3-moto":
        opened = open_on("s3", request.getfixturevalue("moto_url"), prefix)
    elif backend == "gs-emulator":
        opened = open_on("gs", request.getfixturevalue("gcs_emulator_url"), prefix)
    else:
        server: BucketServer = request.getfixturevalue("bucket_server")
        server.page = 7  # several pages in every listing
        server.weak_etags = backend == "s3-kms"
        opened = open_on(backend[:2], server.url, prefix)
    yield opened
    opened.close()


@pytest.fixture
def strict(store: Store, request: pytest.FixtureRequest) -> Store:
    """Stores that enforce preconditions; the public emulator does not, which is what the probe is for."""
    if "gs-emulator" in request.node.name:
        pytest.skip("gcp-storage-emulator ignores preconditions; test_probe.py checks that it is refused")
    return store


def test_what_was_put_is_read_back(store: Store) -> None:
    generation = store.put("a/b", b"hello")
    assert store.get("a/b") == stayfast.storage.stores.protocol.Blob(b"hello", generation)
    second = store.put("a/b", b"hello again")
    assert second != generation
    assert store.get("a/b").data == b"hello again"
    assert store.get("a/b").generation == second


@pytest.mark.parametrize("size", [0, 1, 4095, 1 << 20, 3 * (1 << 20) + 17])
def test_sizes_and_kinds_of_buffers(store: Store, size: int, request: pytest.FixtureRequest) -> None:
    if not size and "gs-emulator" in request.node.name:
        pytest.skip("gcp-storage-emulator fails on empty uploads")
    content = os.urandom(size)
    for kind in (bytes, bytearray, lambda data: memoryview(bytearray(data))):
        store.put("object", kind(content))
        assert store.get("object").data == content
    buffer = bytearray(size)
    assert store.read_into("object", memoryview(buffer)) == size
    assert buffer == content


def test_a_listing_longer_than_a_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "PAGE_ROWS", 3)
    keys = [f"d/{number}" for number in range(9)]
    for key in keys:
        store.put(key, b"x")
    assert [entry.key for entry in store.keys("d/")] == keys


def test_ranges(store: Store) -> None:
    content = bytes(range(256)) * 40
    store.put("object", content)
    for offset, length in (
        (0, 1),
        (1, 5),
        (0, None),
        (100, None),
        (10239, 1),
        (10239, 50),
        (10240, 5),
        (99999, 1),
        (5, 0),
    ):
        end = None if length is None else offset + length
        assert store.get("object", offset=offset, length=length).data == content[offset:end], (offset, length)
        assert store.get("object", offset=offset, length=length).generation == store.get("object").generation
    buffer = bytearray(b"x" * 100)
    assert store.read_into("object", memoryview(buffer), offset=10200) == 40
    assert buffer == content[10200:] + b"x" * 60
    assert store.read_into("object", memoryview(buffer), offset=10240) == 0
    assert store.read_into("object", memoryview(buffer), offset=99999) == 0


def test_what_is_not_there(store: Store) -> None:
    with pytest.raises(KeyMissingError, match="nothing/here"):
        store.get("nothing/here")
    with pytest.raises(KeyMissingError):
        store.read_into("nothing/here", memoryview(bytearray(5)))
    store.delete("nothing/here")
    assert list(store.keys()) == []
    assert list(store.keys("nothing/")) == []


def test_delete_twice(store: Store) -> None:
    store.put("a/b", b"x")
    store.put("a/c", b"x")
    store.delete("a/b")
    store.delete("a/b")
    assert [entry.key for entry in store.keys("")] == ["a/c"]
    with pytest.raises(KeyMissingError):
        store.get("a/b")


def test_listing_in_key_order_with_sizes_and_prefixes(store: Store) -> None:
    keys = ["HEAD.json", "a-b/x", "a/x", "a/y/z", "a.b", "a0", *(f"many/{i:03d}" for i in range(20)), "many2/x"]
    for size, key in enumerate(keys, 1):
        store.put(key, b"x" * size)
    assert [(entry.key, entry.size) for entry in store.keys("")] == sorted((k, i) for i, k in enumerate(keys, 1))
    for prefix in ("a", "a/", "many/", "many", "many/00", "a/y/z", "HEAD", "zzz", "a/y/"):
        assert [entry.key for entry in store.keys(prefix)] == sorted(k for k in keys if k.startswith(prefix)), prefix


def test_awkward_but_allowed_names(store: Store) -> None:
    for key in ("a b/c d", "x=1/y@2+3", "_/-/.hidden", "UPPER/lower", "p" * 240):
        store.put(key, key.encode())
        assert store.get(key).data == key.encode()
        assert key in [entry.key for entry in store.keys(key[:1])]


@pytest.mark.parametrize("key", HOSTILE)
def test_hostile_keys_are_refused_before_anything_happens(store: Store, key: str) -> None:
    for act in (
        lambda: store.put(key, b"x"),
        lambda: store.get(key),
        lambda: store.delete(key),
        lambda: store.read_into(key, memoryview(bytearray(1))),
    ):
        with pytest.raises(UrlError):
            act()
    assert list(store.keys()) == []


def test_create_only(strict: Store) -> None:
    generation = strict.put("object", b"first", if_generation=ABSENT)
    with pytest.raises(ConflictError):
        strict.put("object", b"second", if_generation=ABSENT)
    assert strict.get("object").data == b"first"
    assert strict.get("object").generation == generation
    strict.delete("object")
    strict.put("object", b"third", if_generation=ABSENT)


def test_if_generation(strict: Store) -> None:
    first = strict.put("object", b"1")
    second = strict.put("object", b"2", if_generation=first)
    for stale in (first, ABSENT):
        with pytest.raises(ConflictError):
            strict.put("object", b"3", if_generation=stale)
    assert strict.get("object").data == b"2"
    assert strict.get("object").generation == second
    strict.delete("object")
    with pytest.raises(ConflictError):
        strict.put("object", b"4", if_generation=second)
    with pytest.raises(KeyMissingError):
        strict.get("object")


def test_a_conflict_leaves_nothing_else_behind(strict: Store) -> None:
    strict.put("object", b"1")
    for _ in range(3):
        with pytest.raises(ConflictError):
            strict.put("object", b"x" * 5000, if_generation=ABSENT)
    assert [entry.key for entry in strict.keys("")] == ["object"]


def test_threads_race_and_one_wins_each_generation(strict: Store) -> None:
    strict.put("counter", b"")
    barrier = threading.Barrier(4)

    def race(name: str) -> tuple[list[int], list[str]]:
        barrier.wait()
        return create_all(strict, name, 12), count_up(strict, name, 6)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(race, "abcd"))
    check_race(strict, dict(zip("abcd", results, strict=True)), created=12, counted=6)


def test_processes_race_and_one_wins_each_generation(strict: Store) -> None:
    if strict.url.startswith("memory"):
        pytest.skip("memory lives in one process")
    strict.put("counter", b"")
    script = Path(__file__).with_name("racer.py")
    environment = {**os.environ, "PYTHONPATH": str(Path(stayfast.__file__).parents[1])}
    racers = {
        name: subprocess.Popen(
            [sys.executable, str(script), strict.url, name, "25"], stdout=subprocess.PIPE, env=environment
        )
        for name in "pq"
    }
    answers = {name: json.loads(racer.communicate(timeout=60)[0]) for name, racer in racers.items()}
    results = {name: (answer["created"], answer["counted"]) for name, answer in answers.items()}
    check_race(strict, results, created=25, counted=25)


def check_race(store: Store, results: dict[str, tuple[list[int], list[str]]], *, created: int, counted: int) -> None:
    winners = {number: name for name, (won, _) in results.items() for number in won}
    assert sum(len(won) for won, _ in results.values()) == created, "exactly one creator per key"
    for number, name in winners.items():
        assert store.get(f"create/{number:04d}").data == name.encode()
    lines = store.get("counter").data.decode().splitlines()
    assert sorted(lines) == sorted(f"{name} {i}" for name in results for i in range(counted)), "no lost update"
    known = [generation for _, won in results.values() for generation in won if generation != "read back"]
    assert len(set(known)) == len(known), "no generation was won twice"
