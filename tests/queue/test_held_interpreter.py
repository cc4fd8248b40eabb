"""Suite G, the other half: a task that will not let go of the interpreter, and transactions that stand still for it."""

from __future__ import annotations

import contextlib
import sqlite3
import time

import pytest
from work_command import finish, pairs, shorten_leases, start_work, until, write_task

from faults.counts import record
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.postgres import PostgresQueue
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.worker.task import Task
from stayfast.batch.worker.worker import Worker, WorkerOptions
from stayfast.clock import ManualClock
from stayfast.errors import LeaseLostError, QueueUnavailableError
from stayfast.runtime.interruption.guard import Guard


def hold_for_three_leases(place, folder):
    """Start a worker on a call that holds the interpreter, and a rival beside it; returns what must be true then."""
    folder.mkdir()
    queue = open_queue(place.queue)
    queue.enqueue(pairs(1))
    log = folder / "runs"
    body = (
        f"def work(batch):\n    open({str(log)!r}, 'a').write('x')\n"
        "    ctypes.PyDLL(None).usleep(999_000) or [ctypes.PyDLL(None).usleep(999_000) for _ in range(11)]\n"
        "    return [1] * len(batch)"
    )
    task = write_task(folder, body)
    path = shorten_leases(folder, 4.0)
    slow = start_work(folder, task, place.queue, place.sink, "--chunk", "1", PYTHONPATH=path)
    until(log.exists, 40)
    rival = start_work(folder, task, place.queue, place.sink, "--chunk", "1", PYTHONPATH=path)

    def judge():
        assert finish(rival)[0] == 0, "the rival finds the item in living hands and leaves"
        code, told, err = finish(slow)
        assert (code, told["done"]) == (0, 1), err
        assert log.read_text() == "x", "it was never handed out a second time"
        queue.close()
        record("G", items_of_three_leases=1)

    return judge


@pytest.mark.faults
@pytest.mark.slow
def test_a_c_call_that_holds_the_interpreter_for_three_leases_keeps_its_item(make_place, tmp_path):
    """PyDLL does not let go of the interpreter: no thread of the worker runs, and the heartbeat is elsewhere."""
    for judge in [hold_for_three_leases(make_place(kind), tmp_path / kind) for kind in ("sqlite", "postgres")]:
        judge()  # both at the same time: they sleep


def hold_beside_a_neighbour(place, folder, stuck):
    """Start two workers of which one gets stuck in a call; returns what must be true in the end."""
    folder.mkdir()
    queue = open_queue(place.queue)
    queue.enqueue(pairs(40))
    log = folder / "runs"
    body = (
        "def work(item):\n"
        f"    open({str(log)!r}, 'a').write(item['id'] + '\\n')\n"
        f"    if item['v'] == {stuck}:\n        ctypes.PyDLL(None).sleep(11)\n"
        f"        open({str(log)!r}, 'a').write('over\\n')\n"
        "    time.sleep(0.02)\n    return 1"
    )
    task = write_task(folder, body, "@stayfast.task(each=True)")
    path = shorten_leases(folder, 5.0)
    work = start_work(folder, task, place.queue, place.sink, "--workers", "2", "--chunk", "1", PYTHONPATH=path)

    def judge():
        code, told, err = finish(work)
        assert (code, told["done"], told["lost"]) == (0, 40, 0), err
        lines = log.read_text().split()
        assert sorted(lines) == sorted([key for key, _ in pairs(40)] + ["over"]), "each ran once"
        if stuck == 0:
            assert len(lines[lines.index("over") :]) <= 5, "the neighbour did the rest meanwhile"
        queue.close()
        record("G", items_of_three_leases=1)

    return judge


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("stuck", [0, 7], ids=["at-first", "by-surprise"])
def test_a_neighbour_keeps_its_items_while_a_c_call_holds_the_interpreter(make_place, tmp_path, stuck):
    """The stuck worker locks nobody out, or, after many short calls and without warning, gives the time back."""
    kinds = ("sqlite", "postgres")
    for judge in [hold_beside_a_neighbour(make_place(kind), tmp_path / kind, stuck) for kind in kinds]:
        judge()


def test_a_transaction_that_stands_still_past_its_lease_does_not_cost_its_items(place):
    """Half-way in, our own lease ends: a later statement of the same transaction must not sweep us away."""
    stuck, pool, rival = (open_queue(place.queue) for _ in range(3))
    stuck.enqueue(pairs(2))
    mine = stuck.claim(1)
    if place.kind == "postgres":
        with stuck.batch():
            more = stuck.claim(1)
            end = "UPDATE stayfast_owner SET expires=clock_timestamp() - interval '1 s' WHERE id=%s"
            pool._database.execute(end, (stuck._owner,))  # it would wait here if the row were locked against renewal
            assert rival.claim(2) == []
            assert stuck.claim(1) == [], "its own items are not up for grabs"
            assert pool.renew(stuck.handles(mine)) == []
    else:
        clock = stuck._clock = pool._clock = rival._clock = ManualClock(monotonic=time.monotonic())
        pool.enqueue([("another", "1")])
        with stuck.batch():
            more = stuck.claim(1)
            clock.advance(3 * stuck.lease_seconds)
        theirs = pool.claim(1)
        with stuck.batch():
            clock.advance(3 * stuck.lease_seconds)
            assert stuck.claim(3) == [], "nor does the one who stood still judge its neighbours by that"
        assert rival.claim(3) == [], "a neighbour who could not renew meanwhile keeps its items too"
        assert len(pool.complete(theirs)) == 1
    assert rival.claim(2) == []
    assert len(stuck.complete(mine + more)) == 2
    for queue in (stuck, pool, rival):
        queue.close()


def test_a_transaction_that_stands_still_and_then_fails_costs_nobody_its_items(tmp_path):
    stuck, neighbour, rival = (open_queue(f"sqlite:///{tmp_path}/q.db") for _ in range(3))
    clock = stuck._clock = neighbour._clock = rival._clock = ManualClock(monotonic=time.monotonic())
    stuck.enqueue(pairs(3))
    mine, theirs = stuck.claim(1), neighbour.claim(1)
    with pytest.raises(QueueUnavailableError), stuck.batch():
        clock.advance(3 * stuck.lease_seconds)
        raise sqlite3.OperationalError("disk I/O error")
    assert len(rival.claim(3)) == 1, "those who could not renew meanwhile keep theirs"
    assert len(stuck.complete(mine)) == len(neighbour.complete(theirs)) == 1
    for queue in (stuck, neighbour, rival):
        queue.close()


def test_the_server_ends_a_transaction_whose_client_fell_silent(make_place, tmp_path):
    """A machine that vanished without a word must not keep its locks: they would outlive its lease."""
    place = make_place("postgres")
    gone, rival = PostgresQueue(place.queue, lease_seconds=0.5), PostgresQueue(place.queue, lease_seconds=0.5)
    gone.enqueue(pairs(2))
    gone.claim(1)
    with pytest.raises(QueueUnavailableError), gone.batch():
        gone.claim(1)
        taken = []
        until(lambda: taken.extend(rival.claim(2)) or len(taken) == 2, 15)
        gone.claim(1)
    with pytest.raises(LeaseLostError):
        gone.claim(1)
    gone.close()
    rival.close()


def test_a_registration_that_was_rolled_back_is_forgotten(place):
    queue = open_queue(place.queue)
    queue.enqueue(pairs(1))
    with pytest.raises(ZeroDivisionError), queue.batch():
        queue.claim(1)
        raise ZeroDivisionError
    assert len(queue.claim(1)) == 1, "not 'the lease ran out': there was none yet"
    queue.close()


def test_no_transaction_is_open_beside_a_long_call(make_place):
    """A task that may be long finds the file free of our write lock, all the time it runs."""
    place = make_place("sqlite")
    path = place.queue[len("sqlite://") :].split("?")[0]
    queue, sink = open_queue(place.queue), open_sink(place.sink)
    queue.enqueue(pairs(6))
    found = []

    def look(batch):
        with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            for _ in range(20):
                try:
                    other.execute("BEGIN IMMEDIATE")
                    found.append("free")
                    other.execute("ROLLBACK")
                except sqlite3.OperationalError as error:
                    found.append(str(error))
                time.sleep(0.02)
        return [1] * len(batch)

    with Guard() as guard:
        Worker(Task(look, key=None, each=False), queue, sink, guard, WorkerOptions(chunk=1)).run()
    queue.close()
    sink.close()
    assert found == ["free"] * 120
