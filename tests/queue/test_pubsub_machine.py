"""Suite H for Pub/Sub: Hypothesis drives several owners of one subscription on Google's emulator.

Pub/Sub promises less than a database: a message may come again at any time, to anybody, also after it was done. What
has to hold all the same: the first recorded result stands, the books know every key and its state, ``drained`` says
neither too much nor too little, and once the faults stop every key ends as recorded or dead. A lease ends here by a
deadline of zero set behind its owner's back; the shortest real one is ten seconds.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import uuid
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from test_queue_machine import drive, drive_until

from faults.tiers import account, goal
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Failure, Lease, RetryPolicy
from stayfast.batch.queue.pubsub import PubsubQueue
from stayfast.batch.sink.open_sink import open_sink

MOST_FAILURES = 3
OWNERS = st.integers(0, 2)


class Workshop:
    """Clients and connections that stay from one example to the next: opening them would be most of the time."""

    def __init__(self) -> None:
        from google.cloud.pubsub_v1.types import BatchSettings

        self.folder = folder = tempfile.mkdtemp(prefix="stayfast-hp-")
        sink = f"sqlite://{folder}/r.db?table=r"
        policy = RetryPolicy(max_failures=MOST_FAILURES, backoff_seconds=0.0)
        url = "pubsub://lab/machine-sub?topic=machine&deadline=10"
        self.owners: list[Any] = [open_queue(url, sink=sink, policy=policy) for _ in range(3)]
        self.sink: Any = open_sink(sink)
        for connection in (self.sink._connection, *(queue._ledger._books._connection for queue in self.owners)):
            connection.execute("PRAGMA synchronous=OFF")  # durability has its own suite
        for queue in self.owners:
            queue._publisher.batch_settings = BatchSettings(max_messages=1000, max_latency=0)  # nobody else to wait for

    def fresh(self, name: str) -> None:
        first = self.owners[0]
        topic = first._publisher.topic_path("lab", name)
        subscription = first._subscriber.subscription_path("lab", name)
        first._publisher.create_topic(request={"name": topic})
        request = {"name": subscription, "topic": topic, "ack_deadline_seconds": 10}
        first._subscriber.create_subscription(request=request)
        for queue in self.owners:
            queue._topic, queue._subscription, queue._ledger._queue = topic, subscription, name
            queue._done_up_to, queue._idle_since, queue._whole = "", None, True

    def clear(self) -> None:
        first = self.owners[0]
        first._subscriber.delete_subscription(request={"subscription": first._subscription})
        first._publisher.delete_topic(request={"topic": first._topic})
        self.sink._connection.execute("DELETE FROM r")
        first._ledger._books._connection.execute("DELETE FROM stayfast_ledger")

    def close(self) -> None:
        for queue in self.owners:
            queue.close()
        self.sink.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class PubsubMachine(RuleBasedStateMachine):
    """The model: what each key's books say, and what was recorded first."""

    calls = 0
    patience_seconds = 15.0
    workshop: Workshop

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, str] = {}
        self.unpublished: set[str] = set()
        self.failures: dict[str, int] = {}
        self.dead: set[str] = set()
        self.recorded: dict[str, str] = {}
        self.held: list[list[Lease]] = [[], [], []]
        self.orphans: list[Lease] = []  # of owners that died: their deadlines still run
        self.name = "m" + uuid.uuid4().hex[:12]
        self.shop, self.owners, self.sink = self.workshop, self.workshop.owners, self.workshop.sink
        self.shop.fresh(self.name)

    def new(self, count: int) -> list[tuple[str, str]]:
        start = len(self.known)
        rows = [(f"{self.name}-{start + n:04d}", json.dumps(start + n)) for n in range(count)]
        self.known.update(rows)
        return rows

    # -- filling

    @initialize(count=st.integers(1, 6))
    def fill(self, count: int) -> None:
        self.enqueue(0, count)

    @rule(owner=OWNERS, count=st.integers(1, 5))
    def enqueue(self, owner: int, count: int) -> None:
        type(self).calls += 1
        assert self.owners[owner].enqueue(self.new(count)).added == count

    @rule(count=st.integers(1, 3))
    def enqueue_dies_before_it_publishes(self, count: int) -> None:
        type(self).calls += 1
        rows = self.new(count)
        assert self.owners[2]._ledger.add(rows, replace=False) == rows
        self.unpublished.update(key for key, _ in rows)

    @rule(number=st.integers(0, 30))
    def enqueue_again(self, number: int) -> None:
        type(self).calls += 1
        key = f"{self.name}-{number:04d}"
        if key in self.known:
            assert self.owners[1].enqueue([(key, self.known[key])]).added == (key in self.unpublished)
            self.unpublished.discard(key)

    @rule(number=st.integers(0, 30))
    def a_publisher_retries(self, number: int) -> None:
        """The same key in a second message."""
        type(self).calls += 1
        key = f"{self.name}-{number:04d}"
        if key in self.known and key not in self.unpublished:
            self.owners[0]._publish([(key, self.known[key])])

    # -- working

    @rule(owner=OWNERS, limit=st.integers(1, 6))
    def claim(self, owner: int, limit: int) -> None:
        type(self).calls += 1
        self.pull(owner, limit)

    def pull(self, owner: int, limit: int) -> None:
        """Pull, and acknowledge without computing what is recorded already, as a worker does."""
        leases = self.owners[owner].claim(limit)
        assert len(leases) <= limit
        for lease in leases:
            assert lease.payload == self.known[lease.key], "a message that nobody enqueued"
            assert lease.key not in self.unpublished
        missing = set(self.sink.missing([lease.key for lease in leases]))
        assert missing == {lease.key for lease in leases} - self.recorded.keys()
        skipped = [lease for lease in leases if lease.key not in missing]
        if skipped:
            self.owners[owner].complete(skipped)
        self.held[owner] += [lease for lease in leases if lease.key in missing]

    def take(self, owner: int) -> list[Lease]:
        """What the owner holds, to do something with it; empty hands are filled first."""
        if not self.held[owner]:
            self.pull(owner, 3)
        leases, self.held[owner] = self.held[owner], []
        return leases

    def store(self, owner: int, leases: list[Lease]) -> None:
        rows = [(lease.key, json.dumps([owner, lease.id]), lease.generation) for lease in leases]
        self.sink.record_all(rows)
        for key, payload, _ in rows:
            self.recorded.setdefault(key, payload)

    @rule(owner=OWNERS)
    def settle(self, owner: int) -> None:
        type(self).calls += 1
        leases = self.take(owner)
        self.store(owner, leases)
        self.owners[owner].complete(leases)

    @rule(owner=OWNERS)
    def record_and_die(self, owner: int) -> None:
        type(self).calls += 1
        leases = self.take(owner)
        self.store(owner, leases)
        self.orphans += leases

    @rule(owner=OWNERS)
    def die(self, owner: int) -> None:
        type(self).calls += 1
        self.orphans += self.take(owner)

    @rule(owner=OWNERS)
    def release(self, owner: int) -> None:
        type(self).calls += 1
        self.owners[owner].release(self.take(owner))

    @rule(owner=OWNERS, other=OWNERS)
    def renew(self, owner: int, other: int) -> None:
        type(self).calls += 1
        assert self.owners[other].renew(self.owners[owner].handles(self.held[owner])) == []

    @rule(owner=OWNERS, final=st.booleans())
    def fail(self, owner: int, final: bool) -> None:
        type(self).calls += 1
        leases = self.take(owner)
        died = self.owners[owner].fail([Failure(lease, "reason", final) for lease in leases])
        expected = []
        for lease in leases:
            self.failures[lease.key] = self.failures.get(lease.key, 0) + 1
            if final or self.failures[lease.key] >= MOST_FAILURES or lease.key in self.dead:
                self.dead.add(lease.key)
                expected.append(lease.key)
        assert died == expected, "dead stays dead, whatever a late owner says"

    @rule()
    def leases_end(self) -> None:
        """The owners do not know; what they do from now on comes late."""
        type(self).calls += 1
        self.owners[0]._modify([lease.id for held in self.held for lease in held] + [x.id for x in self.orphans], 0)
        self.orphans = []

    @rule(owner=OWNERS)
    def retry_the_dead(self, owner: int) -> None:
        type(self).calls += 1
        assert self.owners[owner].retry() == len(self.dead)
        for key in self.dead:
            self.failures[key] = 0
        self.dead.clear()

    # -- after every rule

    @rule(owner=OWNERS)
    def ask_whether_drained(self, owner: int) -> None:
        type(self).calls += 1
        open_keys = self.known.keys() - self.recorded.keys() - self.dead
        assert self.owners[owner].remaining().drained == (not open_keys)

    @invariant()
    def books_agree(self) -> None:
        states = dict(self.owners[0].entries())
        assert states.keys() == self.known.keys(), "a key vanished or appeared"
        assert {key for key, state in states.items() if state == "dead"} == self.dead
        assert dict(self.sink._connection.execute("SELECT key, payload FROM r")) == self.recorded

    def teardown(self) -> None:
        """The faults stop: everything comes again, and comes right."""
        try:
            self.leases_end()
            self.held = [[], [], []]
            queue = self.owners[0]
            queue.enqueue(self.known.items())
            until = time.monotonic() + self.patience_seconds
            while not queue.remaining().drained:
                leases = queue.claim(50)
                self.sink.record_all([(lease.key, "9", lease.generation) for lease in leases])
                queue.complete(leases)
                assert time.monotonic() < until, "an item never came back"
            stored = dict(self.sink._connection.execute("SELECT key, payload FROM r"))
            assert {key: stored[key] for key in self.recorded} == self.recorded, "a first result was replaced"
            assert stored.keys() | self.dead == self.known.keys()
        finally:
            self.shop.clear()


@pytest.fixture(scope="module")
def workshop(pubsub_server):
    made = Workshop()
    PubsubMachine.workshop = made
    yield made
    made.close()


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(900)  # round trips: a busy machine takes its time
def test_pubsub_queue_machine(workshop):
    account("H", drive_until(PubsubMachine, goal("H")), part="pubsub queue")


@pytest.mark.faults
def test_the_machine_finds_a_release_that_acknowledges(workshop, monkeypatch):
    """Planted: whoever gives an item back tells Pub/Sub that it is done."""
    monkeypatch.setattr(PubsubQueue, "release", PubsubQueue.complete)
    monkeypatch.setattr(PubsubMachine, "patience_seconds", 1.0)
    with pytest.raises(AssertionError, match="never came back"):
        drive(PubsubMachine, 60)
