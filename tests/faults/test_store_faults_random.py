"""Suite F, second half: thousands of seeded store faults, in memory and over real sockets."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from faults.counts import record
from faults.fault_store import FaultStore
from faults.noisy_server import NoisyServer
from faults.tiers import account, goal, seed_for, shard, tier
from faults.two_writers import Bucket, World, Writer, part_of
from stayfast.clock import ManualClock
from stayfast.errors import ConflictError, OutcomeUnknownError, StoreError, StoreUnavailableError
from stayfast.runtime.run_record.commit_protocol import (
    Delete,
    Effect,
    Get,
    Keys,
    Put,
    Sleep,
    perform_effect,
    read_head,
    run_protocol,
)
from stayfast.runtime.run_record.record import RECORD_KEY, RunRecord, decode
from stayfast.storage.stores import gcs, s3
from stayfast.storage.stores.bucket import BucketStore
from stayfast.storage.stores.memory import MemoryStore
from stayfast.storage.stores.protocol import ABSENT, Store

pytestmark = pytest.mark.faults
PROVIDERS = {"gs": gcs.PROVIDER, "s3": s3.PROVIDER}
SEED = int(os.environ.get("STAYFAST_SEED", "20261115"))
LEAST_SOCKET_FAULTS = {"pr": 300, "night": 3_000, "release": 30_000}[tier()] // shard()[1]


class Watched:
    """Lets a store be watched: remembers every HEAD that was ever visible."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.url = inner.url
        self.heads: list[RunRecord] = []

    def put(self, key: str, data: Any, *, if_generation: str | None = None) -> str:
        generation = self.inner.put(key, data, if_generation=if_generation)
        if key == RECORD_KEY:
            self.heads.append(decode(bytes(data)))
        return generation

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def interleave(writers: list[Writer], store: Store, rng: random.Random) -> None:
    """Run the writers against the store, one effect at a time, whoever the dice say."""
    clock = ManualClock()
    lives = [writer.life() for writer in writers]
    waiting: list[tuple[Any, Effect]] = [(life, next(life)) for life in lives]
    while waiting:
        life, effect = waiting.pop(rng.randrange(len(waiting)))
        try:
            try:
                answer = act(effect, store, clock)
            except StoreError as error:
                waiting.append((life, life.throw(error)))
            else:
                waiting.append((life, life.send(answer)))
        except StopIteration:
            continue


def act(effect: Effect, store: Store, clock: ManualClock) -> Any:
    """As the engine does: a part goes under a fresh name until it is certain; clean-up may fail and is left."""
    match effect:
        case Put(key, data, _) if key != RECORD_KEY:
            while True:
                try:
                    return store.put(key, data, if_generation=ABSENT)
                except ConflictError:
                    return "there already"  # its name belongs to this attempt alone
                except (OutcomeUnknownError, StoreUnavailableError):
                    continue
        case Delete(key):
            try:
                return store.delete(key)
            except StoreUnavailableError:
                return None
        case Get() | Put() | Keys() | Sleep():
            return perform_effect(effect, store, clock)


def check(writers: list[Writer], heads: list[RunRecord], store: Store) -> None:
    """The same promises as for the schedules, on what is really stored."""
    bucket = Bucket(objects={row.key: (store.get(row.key).data, "x") for row in store.keys("")}, heads=heads)
    world = World(pick=lambda bound: 0, writers=writers, faults_left=0, bucket=bucket)
    world._check_next = lambda last: None  # type: ignore[method-assign]  # done below, on the real store
    world.check()
    after = Writer("next", commits=1)
    interleave([after], store, random.Random(0))
    assert after.end == "done"
    held = run_protocol(read_head(), store, ManualClock())
    assert held is not None
    assert held.head.attempt == (heads[-1].attempt if heads else 0) + (0 if held.head == heads[-1] else 1)
    for row in held.head.checkpoints:
        assert store.get(part_of(row)).data == b"part"


def test_thousands_of_seeded_faults() -> None:
    seed, least = seed_for("F") if tier() != "pr" else SEED, goal("F")
    injected = runs = unknown = 0
    ends: set[str] = set()
    while injected < least:
        rng = random.Random(f"{seed}-{runs}")
        watched = Watched(MemoryStore())
        store = FaultStore(watched, rng.randrange(1 << 30), rate=rng.choice((0.05, 0.2, 0.5, 0.8, 0.95)))
        writers = [Writer(name, commits=rng.randrange(1, 4)) for name in "abc"[: rng.randrange(1, 4)]]
        interleave(writers, store, rng)
        injected += sum(store.injected.values())
        store.calm()
        try:
            check(writers, watched.heads, watched)
        except AssertionError as error:
            raise AssertionError(f"STAYFAST_SEED={seed}, run {runs}: {error}") from error
        ends.update(writer.end for writer in writers)
        unknown += sum(belief == "unknown" for writer in writers for belief, _ in writer.believes)
        runs += 1
    print(f"{injected} faults in {runs} runs, {unknown} commits of unknown outcome, ends {sorted(ends)}")
    assert {"done", "superseded", "unknown"} <= ends, "void: the faults did not reach every outcome"
    account("F", injected, random_runs=runs)


# -- over real sockets


@pytest.fixture
def noisy() -> Iterator[NoisyServer]:
    with NoisyServer(SEED) as server:
        yield server


def tidy(store: Store) -> None:
    """Lists and deletes under noise, of objects that belong to no checkpoint."""
    for number in range(3):
        try:
            store.put(f"junk/{number}", b"x" * 1000, if_generation=ABSENT)
            store.delete(f"junk/{number}")
            assert all(row.key.startswith("checkpoints/") for row in store.keys("checkpoints/"))
        except (OutcomeUnknownError, StoreUnavailableError):
            continue


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_faults_over_real_sockets(noisy: NoisyServer, cloud_environment: Any, scheme: str) -> None:
    print(f"seed {SEED}")
    server, rng = noisy, random.Random(SEED)
    cloud_environment(scheme, server.url)
    runs = 0
    while sum(server.injected.values()) < LEAST_SOCKET_FAULTS:
        server.noise = 0.25
        store = BucketStore(PROVIDERS[scheme], "bucket", f"run{runs}", clock=ManualClock())
        writers = [Writer(name, commits=2) for name in "ab"]
        interleave(writers, store, rng)
        tidy(store)
        server.noise = 0.0
        server.calm()
        check(writers, [decode(data) for data in server.heads_of(f"run{runs}/")], store)
        store.close()
        runs += 1
    print(dict(server.injected))
    assert len(server.injected) >= 10, "void: too few kinds of faults"
    record("F", socket_faults=sum(server.injected.values()), socket_runs=runs)
