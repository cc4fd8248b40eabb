"""Suite G: owners that freeze, clocks that lie, items that outlast their lease."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from work_command import finish, pairs, shorten_leases, start_work, until, write_task

from faults.counts import record
from stayfast.batch.queue import sqlite_schema
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Failure, RetryPolicy
from stayfast.batch.queue.sqlite import SqliteQueue
from stayfast.batch.sink.open_sink import open_sink
from stayfast.clock import ManualClock, SystemClock
from stayfast.errors import LeaseLostError

FROZEN = """
import json, os, signal, sys
sys.path.insert(0, {tests!r})
from faults.planted import Edit, plant
options = json.loads(sys.argv[1])
plant([Edit(*edit) for edit in options["bug"]])
from stayfast.errors import LeaseLostError
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.sink.open_sink import open_sink
queue = open_queue(options["queue"]); queue.lease_seconds = options["lease"]
sink = open_sink(options["sink"])
for _ in range(options["rounds"]):
    leases = queue.claim(3)
    os.kill(os.getpid(), signal.SIGSTOP)          # frozen with leases in hand, as a live migration does
    if options["fused"]:
        with queue.batch() as transaction:
            kept = queue.complete(leases)
            sink.record_all([(l.key, '"stale"', l.generation) for l in kept], transaction=transaction)
    else:
        sink.record_all([(l.key, '"stale"', l.generation) for l in leases])
        kept = queue.complete(leases)
    lost = "no"
    try:
        queue.release(queue.claim(1))
    except LeaseLostError:
        lost = "yes"
    print(json.dumps({{"kept": len(kept), "told": lost}}), flush=True)
"""


NO_FENCE = (
    ("batch/queue/sqlite_schema.py", 'AND generation=? AND holder=?"\nCOMPLETE', 'AND ? AND ? IS NOT 0"\nCOMPLETE'),
    (
        "batch/queue/postgres_schema.py",
        "AND item.generation=mine.generation AND item.holder=%s RETURNING item.id, item.generation",
        "AND %s IS NOT NULL RETURNING mine.id, mine.generation",
    ),
)
"""Whoever comes last is believed: neither owner nor generation is asked."""


def freeze_and_overtake(place, rounds: int, *, fused: bool, bug: Sequence[tuple[str, str, str]] = ()) -> list[dict]:
    """Freeze an owner past its lease, let another finish its items, wake it; what did it get away with?"""
    sink_url = place.sink if fused else place.other_sink
    lease = 0.15
    fresh = open_queue(place.queue)
    fresh.enqueue(pairs(3))
    sink = open_sink(sink_url)
    options = {
        "queue": place.queue,
        "sink": sink_url,
        "lease": lease,
        "rounds": rounds,
        "fused": fused,
        "bug": bug,
    }
    script = FROZEN.format(tests=str(Path(__file__).resolve().parents[1]))
    process = subprocess.Popen([sys.executable, "-c", script, json.dumps(options)], stdout=subprocess.PIPE, text=True)
    told = []
    try:
        for number in range(rounds):
            _wait_until_stopped(process.pid)
            until(lambda: fresh.claim(0) == [] and fresh.depth().leased == 0, 10)  # the sweep frees what expired
            taken = fresh.claim(3)
            assert len(taken) == 3
            with fresh.batch() as transaction:
                kept = fresh.complete(taken)
                if fused:
                    sink.record_all([(x.key, '"fresh"', x.generation) for x in kept], transaction=transaction)
            if not fused:
                sink.record_all([(x.key, '"fresh"', x.generation) for x in kept])
            fresh.enqueue([(f"r{number}-{key}", payload) for key, payload in pairs(3)])  # for the next round
            os.kill(process.pid, signal.SIGCONT)
            told.append(json.loads(process.stdout.readline()))
            stored = [sink.get(x.key) for x in taken]
            told[-1]["stale"] = sum(value != '"fresh"' for value in stored)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        sink.close()
        fresh.close()
    return told


def _wait_until_stopped(pid: int) -> None:
    def stopped() -> bool:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"

    until(stopped, 10)


@pytest.mark.faults
@pytest.mark.parametrize("fused", [True, False], ids=["one-database", "two-databases"])
def test_an_owner_frozen_past_its_lease_cannot_acknowledge_or_overwrite(place, fused):
    rounds = 25
    told = freeze_and_overtake(place, rounds, fused=fused)
    assert [row["kept"] for row in told] == [0] * rounds
    assert [row["stale"] for row in told] == [0] * rounds
    assert {row["told"] for row in told} == {"yes"}, "the stale owner must be told, loudly"
    record("G", frozen_owners=rounds)


@pytest.mark.faults
def test_the_planted_missing_fence_is_found(place):
    told = freeze_and_overtake(place, 2, fused=True, bug=NO_FENCE)
    assert sum(row["kept"] for row in told) > 0, told


@pytest.mark.faults
def test_a_stopped_worker_of_the_real_command_is_overtaken_and_fenced(make_place, tmp_path):
    """The pool keeps beating for a worker in a long C call, but not for one that is stopped."""
    place = make_place("sqlite")
    queue = SqliteQueue(place.queue[len("sqlite://") :].split("?")[0], place.queue.split("=")[1])
    queue.enqueue(pairs(2))
    flag = tmp_path / "pid"
    body = (
        f"def work(batch):\n    open({str(flag)!r}, 'w').write(str(os.getpid()))\n    time.sleep(1)\n"
        "    return ['old'] * len(batch)"
    )
    path = shorten_leases(tmp_path, 4.0)
    process = start_work(tmp_path, write_task(tmp_path, body), place.queue, place.sink, PYTHONPATH=path)
    worker = int(until(lambda: flag.exists() and flag.read_text()))
    os.kill(worker, signal.SIGSTOP)
    taken = until(lambda: queue.claim(5), 25)
    with queue.batch() as transaction:
        kept = queue.complete(taken)
        sink = open_sink(place.sink)
        sink.record_all([(x.key, '"new"', x.generation) for x in kept], transaction=transaction)
    os.kill(worker, signal.SIGCONT)
    code, told, err = finish(process)
    assert code == 0, err
    assert told["lost"] == 2
    assert [sink.get(key) for key, _ in pairs(2)] == ['"new"', '"new"']
    assert "ran out and went to others" in err
    sink.close()
    queue.close()
    record("G", frozen_owners=1)


class Skewed(SystemClock):
    """A machine's clock that is wrong, and jumps."""

    def __init__(self, seconds: float) -> None:
        self.skew = seconds

    def wall(self) -> float:
        return super().wall() + self.skew


def stolen_under_skew(path: str, rounds: int) -> int:
    """How often an owner with a wrong wall clock takes what another holds with a fresh lease."""
    chance = random.Random(4)
    right = SqliteQueue(path, clock=Skewed(0))
    stolen = 0
    for number in range(rounds):
        right.enqueue([(f"r{number}-{key}", payload) for key, payload in pairs(2)])
        mine = right.claim(2)
        wrong = SqliteQueue(path, clock=Skewed(chance.choice((-1, 1)) * chance.uniform(30, 600)))
        stolen += len(wrong.claim(2))
        wrong.close()
        try:
            right.complete(mine)
            right.claim(0)
        except LeaseLostError:
            pass
    right.close()
    return stolen


@pytest.mark.faults
def test_wrong_wall_clocks_steal_nothing(tmp_path):
    assert stolen_under_skew(str(tmp_path / "q.db"), 75) == 0
    record("G", skewed_clocks=75)


@pytest.mark.faults
def test_postgres_never_asks_a_worker_for_the_time():
    """All instants in its statements come from the server; a worker's clock has no way in."""
    from stayfast.batch.queue import postgres, postgres_schema

    source = Path(postgres.__file__).read_text() + Path(postgres_schema.__file__).read_text()
    assert "wall(" not in source
    assert "time.time" not in source
    assert postgres_schema.RENEW.count("clock_timestamp()") == 2
    assert "expires < clock_timestamp()" in postgres_schema.EXPIRED


def test_nobody_declares_an_owner_dead_that_is_claiming(make_place):
    """Its lease is over, and it holds more with every claim: whoever took its row away now would leave what is being
    claimed with an owner that nobody knows, for ever."""
    place = make_place("postgres")
    owner, rival = open_queue(place.queue), open_queue(place.queue)
    owner.enqueue(pairs(2))
    owner.lease_seconds = 0.01
    owner.release(owner.claim(1))
    with owner.batch():
        time.sleep(0.05)
        assert len(owner.claim(2)) == 2
        assert rival.claim(2) == []
    until(lambda: rival.claim(2), 20)
    assert rival.depth().leased == 2
    owner.close()
    rival.close()


def test_a_transaction_that_stood_still_does_not_end_its_own_owner(make_place):
    place = make_place("postgres")
    owner = open_queue(place.queue)
    owner.enqueue(pairs(2))
    owner.lease_seconds = 0.01
    first = owner.claim(1)
    with owner.batch():
        time.sleep(0.05)
        second = owner.claim(2)  # more than there is, so that it looks for the dead
        assert len(owner.complete(first + second)) == 2
    owner.lease_seconds = 60.0
    assert owner.claim(1) == []
    owner.close()


def test_what_a_dead_process_held_is_free_at_once(tmp_path):
    """Its lease has minutes to go, but the kernel has dropped its lock, though a child of it lives on."""
    path = str(tmp_path / "q.db")
    rival = SqliteQueue(path, lease_seconds=600.0)
    rival.enqueue(pairs(5))
    stays, ends = os.pipe()
    lives, begun = os.pipe()
    pid = os.fork()
    if pid == 0:
        owner = SqliteQueue(path, lease_seconds=600.0)
        owner.claim(3)
        if os.fork() == 0:
            os.close(ends)
            os.write(begun, b"!")
            os.read(stays, 1)
        os._exit(0)
    os.waitpid(pid, 0)
    os.read(lives, 1)  # what it has inherited is closed as soon as it begins, not before
    rival._next_sweep = float("inf")  # it has just looked: it looks again only because it finds too little
    assert len(rival.claim(4)) == 4, "two that lay there, two of the dead one's, and not one more than was asked for"
    assert len(rival.claim(4)) == 1
    for descriptor in (ends, stays, lives, begun):
        os.close(descriptor)
    rival.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_queue_is_not_drained_while_another_owner_holds_items(make_place, kind):
    """They come back when that owner ends without finishing them, and a worker has to be there then."""
    place = make_place(kind)
    owner, rival = open_queue(place.queue), open_queue(place.queue)
    owner.enqueue(pairs(2))
    leases = owner.claim(2)
    assert rival.claim(1) == []
    assert rival.remaining().leased
    assert not rival.remaining().drained
    assert owner.renew(owner.handles(leases)) == []
    assert not rival.remaining().drained, "an owner that lives may still fail"
    assert owner.remaining().drained, "what it holds itself it knows"
    owner.complete(leases[:1])
    assert rival.remaining().leased
    owner.close()
    assert rival.remaining().claimable
    rival.complete(rival.claim(1))
    assert rival.remaining().drained
    rival.close()


@pytest.mark.timeout(60)
def test_a_heartbeat_waits_for_nobody(make_place):
    """One owner of the pool is being declared dead, and whoever does it stands still: the others need their beat."""
    place = make_place("postgres")
    one, two, judge, beat = (open_queue(place.queue) for _ in range(4))
    one.enqueue(pairs(2))
    handles = [*one.handles(one.claim(1)), *two.handles(two.claim(1))]
    with judge.batch():
        judge.record_crash(handles[:1], "died")
        assert beat.renew(handles) == []
    assert beat.renew(handles) == handles[:1]
    for queue in (one, two, judge, beat):
        queue.close()


@pytest.mark.timeout(60)
def test_a_claim_waits_for_no_transaction_that_stands_still(make_place):
    """Somebody has woken a failed item and has not come to its commit yet."""
    place = make_place("postgres")
    still, rival = (open_queue(place.queue, policy=RetryPolicy(backoff_seconds=0.0)) for _ in range(2))
    still.enqueue(pairs(2))
    failed, _ = still.claim(2)
    still.fail([Failure(failed, "no")])
    with still.batch():
        still.remaining()
        assert rival.claim(2) == []
    assert len(rival.claim(2)) == 1
    still.close()
    rival.close()


@pytest.mark.faults
def test_leases_of_another_boot_are_over(tmp_path):
    """After a reboot the monotonic clock starts again: an instant of the old boot may lie far in the future."""
    path = str(tmp_path / "q.db")
    old = SqliteQueue(path, clock=ManualClock(monotonic=1e9))
    old._boot = "another boot"
    old.enqueue(pairs(1))
    assert len(old.claim(1)) == 1
    new = SqliteQueue(path, clock=ManualClock(monotonic=5.0))
    assert len(new.claim(1)) == 1
    new.close()
    old.close()


def test_a_wall_clock_that_is_set_back_keeps_no_failed_item_waiting(tmp_path):
    """A back-off is at most five minutes; an instant that lies days ahead was written by a clock that was wrong."""
    clock = ManualClock()
    queue = SqliteQueue(str(tmp_path / "q.db"), clock=clock)
    queue.enqueue(pairs(1))
    queue.fail([Failure(queue.claim(1)[0], "no")])
    clock.jump_wall(-86400.0)
    assert len(queue.claim(1)) == 1
    queue.close()


@pytest.mark.faults
def test_100000_simulated_races_of_two_owners_never_show_a_lower_generation(tmp_path):
    """Owners in one process on a manual clock: claim, freeze past the lease, settle late, in random order."""
    clock = ManualClock()
    chance = random.Random(11)
    path = str(tmp_path / "q.db")
    owners = [SqliteQueue(path, clock=clock, lease_seconds=15.0) for _ in range(3)]
    for owner in owners:
        owner.connection.execute("PRAGMA synchronous=OFF")  # durability has its own suite; this one is about order
    done: dict[str, int] = {}
    held: list[list] = [[], [], []]
    races = late = 0
    next_key = 0
    until_time = time.monotonic() + 25
    while races < 100_000 and time.monotonic() < until_time:
        owner = chance.randrange(3)
        action = chance.random()
        if action < 0.15:
            owners[owner].enqueue([(f"i{next_key + n}", "0") for n in range(50)])
            next_key += 50
        elif action < 0.55:
            try:
                held[owner] += owners[owner].claim(chance.randrange(1, 40))
            except LeaseLostError:
                late += 1
        elif action < 0.85:
            batch, held[owner] = held[owner], []
            for lease in owners[owner].complete(batch):
                assert lease.key not in done, "acknowledged twice"
                done[lease.key] = lease.generation
            races += len(batch)
        else:
            clock.advance(chance.choice((1.0, 6.0, 16.0)))
    rows = dict(owners[0].connection.execute("SELECT key, generation FROM stayfast_item WHERE holder IS NULL"))
    assert rows == done
    assert late > 0
    record("G", simulated=races)
    assert races >= 20_000
    for owner in owners:
        owner.close()


def test_the_schema_names_owner_and_generation_wherever_an_item_is_settled():
    for statement in (sqlite_schema.COMPLETE, sqlite_schema.RELEASE, sqlite_schema.FAIL):
        assert "generation=?" in statement
        assert "holder=?" in statement


def test_owners_meet_again_when_somebody_removes_their_lock_file(tmp_path):
    """Those who opened it before and those who opened it after would take each other for dead, again and again."""
    path = str(tmp_path / "q.db")
    first = SqliteQueue(path)
    first.enqueue(pairs(6))
    old = first.claim(2)
    os.remove(path + "-owners")
    second = SqliteQueue(path)
    taken = second.claim(2)
    first._next_sweep = second._next_sweep = 0.0
    with pytest.raises(LeaseLostError):  # once: nobody could know that it lives
        first.claim(1)
    kept = first.claim(1)
    for _ in range(3):
        first.remaining()
        second.remaining()
    assert first.complete(old) == []
    assert len(first.complete(kept)) == 1
    assert len(second.complete(taken)) == 2
    first.close()
    second.close()
