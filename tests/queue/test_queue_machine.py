"""Suite H: Hypothesis drives several owners of one queue and compares it with a model after every rule."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from faults.tiers import account, goal, seed_for, tier
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Failure, RetryPolicy
from stayfast.batch.queue.sqlite import SqliteQueue
from stayfast.batch.sink.open_sink import open_sink
from stayfast.clock import ManualClock
from stayfast.errors import LeaseLostError

POLICY = RetryPolicy(max_failures=3, max_deliveries=10_000, backoff_seconds=0.0)
OWNERS = st.integers(0, 2)


class QueueMachine(RuleBasedStateMachine):
    """The model: which generation of which key is with whom, and what has been recorded."""

    calls = 0
    look_every = 1
    time_is_ours = True  # leases end when a rule says so, never by themselves

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, int] = {}
        self.holder: dict[str, tuple[int, int]] = {}  # key -> owner, generation, as the newest claim said
        self.held: list[list] = [[], [], []]
        self.done: set[str] = set()
        self.dead: set[str] = set()
        self.certain: dict[str, tuple[int, int]] = {}  # claimed since everybody last slept: nobody may take it away
        self.recorded: dict[str, str] = {}
        self.next = self.rules = 0
        self.open()

    # -- what differs between backends

    def open(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="stayfast-h-")
        self.clock = ManualClock()
        path = os.path.join(self.folder, "q.db")
        self.owners = [SqliteQueue(path, clock=self.clock, policy=POLICY) for _ in range(3)]
        self.sink = open_sink(f"sqlite://{path}?table=r")
        for connection in [queue.connection for queue in self.owners]:
            connection.execute("PRAGMA synchronous=OFF")  # durability has its own suite

    def let_leases_end(self) -> None:
        self.clock.advance(16.0)

    # -- rules

    @initialize(count=st.integers(1, 8))
    def fill(self, count: int) -> None:
        self.enqueue(count)

    @rule(count=st.integers(1, 6))
    def enqueue(self, count: int) -> None:
        type(self).calls += 1
        new = [(f"k{self.next + n:04d}", json.dumps(self.next + n)) for n in range(count)]
        assert self.owners[0].enqueue(new).added == count
        for key, payload in new:
            self.known[key] = json.loads(payload)
        self.next += count

    @rule(number=st.integers(0, 40))
    def enqueue_again(self, number: int) -> None:
        type(self).calls += 1
        if number < self.next:
            assert self.owners[1].enqueue([(f"k{number:04d}", json.dumps(number))]).added == 0

    @rule(owner=OWNERS, limit=st.integers(1, 5))
    def claim(self, owner: int, limit: int) -> None:
        type(self).calls += 1
        try:
            leases = self.owners[owner].claim(limit)
        except LeaseLostError:
            return
        for lease in leases:
            assert lease.key not in self.done, "finished work was handed out"
            assert lease.key not in self.dead, "dead work was handed out"
            assert lease.failures < POLICY.max_failures, "poison was handed out once too often"
            assert lease.key not in self.certain, "the work of a living owner was handed out"
            assert json.loads(lease.payload) == self.known[lease.key]
            if lease.key in self.holder:
                assert lease.generation > self.holder[lease.key][1], "generations only grow"
                assert lease not in self.held[owner]
            self.holder[lease.key] = (owner, lease.generation)
            if self.time_is_ours:
                self.certain[lease.key] = (owner, lease.generation)
        self.held[owner] += leases

    @rule(owner=OWNERS)
    def settle(self, owner: int) -> None:
        """Record and complete in one transaction, as a worker does."""
        type(self).calls += 1
        leases, self.held[owner] = self.held[owner], []
        with self.owners[owner].batch() as transaction:
            kept = self.owners[owner].complete(leases)
            rows = [(lease.key, json.dumps([owner, lease.generation]), lease.generation) for lease in kept]
            self.sink.record_all(rows, transaction=transaction)
        assert all(lease in kept for lease in self.let_go(owner, leases)), "a living owner lost its lease"
        for lease in kept:
            assert self.holder[lease.key] == (owner, lease.generation), "a lost lease was acknowledged"
            assert lease.key not in self.done, "acknowledged twice"
            self.done.add(lease.key)
            self.recorded[lease.key] = json.dumps([owner, lease.generation])

    @rule(owner=OWNERS)
    def release(self, owner: int) -> None:
        type(self).calls += 1
        leases, self.held[owner] = self.held[owner], []
        self.let_go(owner, leases)
        self.owners[owner].release(leases)

    @rule(owner=OWNERS, final=st.booleans())
    def fail(self, owner: int, final: bool) -> None:
        type(self).calls += 1
        leases, self.held[owner] = self.held[owner], []
        self.let_go(owner, leases)
        before = {lease.key for lease in leases if self.holder.get(lease.key) == (owner, lease.generation)}
        dead = self.owners[owner].fail([Failure(lease, "reason", final) for lease in leases])
        assert set(dead) <= before
        self.dead |= set(dead)

    def let_go(self, owner: int, leases: list) -> list:
        """Those of the leases that were certainly the owner's until now."""
        sure = [lease for lease in leases if self.certain.get(lease.key) == (owner, lease.generation)]
        for lease in sure:
            del self.certain[lease.key]
        return sure

    @rule()
    def everybody_sleeps(self) -> None:
        type(self).calls += 1
        self.certain.clear()
        self.let_leases_end()

    @rule(owner=OWNERS, rival=OWNERS, act=st.sampled_from(("settle", "release", "fail")))
    def oversleep(self, owner: int, rival: int, act: str) -> None:
        """What a stopped machine does when it wakes up: go on as if nothing had happened."""
        self.claim(owner, 3)
        self.everybody_sleeps()
        self.claim(rival, 5)
        self.fail(owner, False) if act == "fail" else getattr(self, act)(owner)

    @rule(owner=OWNERS, times=st.integers(1, 4))
    def keep_failing(self, owner: int, times: int) -> None:
        for _ in range(times):
            self.claim(owner, 1)
            self.fail(owner, False)

    @rule()
    def retry_the_dead(self) -> None:
        type(self).calls += 1
        assert self.owners[2].retry() == len(self.dead)
        self.dead.clear()

    # -- after every rule

    @invariant()
    def books_agree(self) -> None:
        self.rules += 1
        if self.rules % self.look_every == 0:
            self.look()

    def look(self) -> None:
        with self.owners[0].batch():
            entries, stored = dict(self.owners[0].entries()), self.stored()
        assert entries.keys() == self.known.keys(), "an item vanished or appeared"
        assert {key for key, state in entries.items() if state == "done"} == self.done
        assert {key for key, state in entries.items() if state == "dead"} == self.dead
        assert stored == self.recorded, "acknowledged, and not as recorded"

    def stored(self) -> dict[str, str]:
        return dict(self.owners[0].connection.execute("SELECT key, payload FROM r"))

    def teardown(self) -> None:
        for queue in self.owners:
            queue.close()
        self.sink.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class PostgresMachine(QueueMachine):
    """The same rules on a server; leases end by an update of the server's own books, not by waiting."""

    time_is_ours = False

    url = ""
    look_every = 5  # each look is four round trips
    pool: list = []
    results = None

    def open(self) -> None:
        """Fresh names on connections that stay: connecting would be most of the time."""
        self.folder = ""
        cls = type(self)
        if not cls.pool:
            name = "h" + uuid.uuid4().hex[:12]
            fast = f"{self.url}?options=-c%20synchronous_commit%3Doff"  # durability has its own suite
            cls.pool = [open_queue(f"{fast}&queue={name}", policy=POLICY) for _ in range(3)]
            cls.results = open_sink(f"{fast}&table={name}")
        self.owners, self.sink = cls.pool, cls.results
        with self.owners[0].batch() as cursor:
            cursor.execute("INSERT INTO stayfast_queue (name) VALUES (%s) RETURNING id", (uuid.uuid4().hex,))
            number = cursor.fetchone()[0]
        for queue in self.owners:
            queue._queue, queue._owner, queue._after, queue._next_sweep = number, None, 0, 0.0

    def stored(self) -> dict[str, str]:
        with self.owners[0].batch() as cursor:
            return dict(cursor.execute(f"SELECT key, payload FROM {self.sink.table}").fetchall())

    def let_leases_end(self) -> None:
        with self.owners[0].batch() as cursor:
            cursor.execute(
                "UPDATE stayfast_owner SET expires=clock_timestamp() - interval '1 s' WHERE queue=%s",
                (self.owners[0]._queue,),
            )

    def teardown(self) -> None:
        self.look()
        with self.owners[0].batch() as cursor:
            cursor.execute(f"DELETE FROM {self.sink.table}")
            cursor.execute("DELETE FROM stayfast_item WHERE queue=%s", (self.owners[0]._queue,))


def drive(machine: type[QueueMachine], examples: int, *, shrink: bool = False) -> int:
    machine.calls = 0
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return machine.calls


def drive_until(machine: type[QueueMachine], wanted: int) -> int:
    """Example after example until so many rules were called; for every change the same ones, otherwise by seed."""
    base = seed_for("H", always=20_261_115 if tier() == "pr" else None)
    calls = rounds = 0
    while calls < wanted:
        examples = 50 if not calls else max(5, min(200, (wanted - calls) * rounds * 50 // calls))
        calls += drive(seed(base + rounds)(machine), examples)
        rounds += 1
    return calls


@pytest.mark.faults
@pytest.mark.slow
def test_sqlite_queue_machine():
    account("H", drive_until(QueueMachine, goal("H")), part="sqlite queue")


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(900)  # round trips: a busy machine takes its time
def test_postgres_queue_machine(postgres_base):
    PostgresMachine.url = postgres_base
    try:
        calls = drive_until(PostgresMachine, goal("H"))
    finally:
        for queue in PostgresMachine.pool:
            queue.close()
        PostgresMachine.pool = []
    account("H", calls, part="postgres queue")
