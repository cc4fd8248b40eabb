"""Short calls share a claim and a commit; long ones keep nobody's items waiting behind them."""

from __future__ import annotations

import json
import os
import threading

import pytest
from work_command import finish, pairs, start_work, until, write_task

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Lease
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.worker.compute import LeasedItem
from stayfast.batch.worker.prefetch import PrefetchBuffer, PrefetchOptions, ResultBuffer
from stayfast.batch.worker.task import Task
from stayfast.batch.worker.worker import Worker, WorkerOptions
from stayfast.runtime.interruption.guard import Guard


@pytest.fixture(autouse=True)
def no_outcome_file(monkeypatch):
    monkeypatch.setenv("STAYFAST_OUTCOME_FILE", os.devnull)


def items(count: int, start: int = 0) -> list[LeasedItem]:
    return [LeasedItem(Lease(n, f"k{n}", "{}", 1, 0), {}) for n in range(start, start + count)]


def filled(shelf: PrefetchBuffer) -> PrefetchBuffer:
    """As full as it gets."""
    number = 0
    while room := shelf.claim_size(in_work=True):
        shelf.add(items(room, number))
        number += room
    return shelf


# -- the shelf by itself


def test_what_was_asked_for_is_fetched_chunk_by_chunk():
    shelf = PrefetchBuffer(PrefetchOptions(chunk=10, prefetch=1))
    assert shelf.claim_size(in_work=False) == 10
    shelf.add(items(10))
    assert shelf.claim_size(in_work=True) == 0
    assert len(shelf.take(4)) == 4
    assert shelf.claim_size(in_work=True) == 0, "a chunk that is begun is used up first"
    assert len(shelf.take(10)) == 6
    assert shelf.claim_size(in_work=True) == 10


def test_nothing_is_fetched_ahead_when_that_was_asked_for():
    shelf = PrefetchBuffer(PrefetchOptions(chunk=3, prefetch=0))
    shelf.ahead = 50
    assert (shelf.claim_size(in_work=True), shelf.claim_size(in_work=False)) == (0, 3)
    shelf.add(items(3))
    assert shelf.claim_size(in_work=False) == 0
    assert not shelf.has_extra_chunks


def test_a_deep_shelf_is_filled_by_halves_and_handed_out_in_chunks():
    shelf = PrefetchBuffer(PrefetchOptions(chunk=2, prefetch=1))
    shelf.ahead = 10
    assert shelf.has_extra_chunks
    assert shelf.claim_size(in_work=True) == 10, "five chunks of two in one claim"
    filled(shelf)
    assert len(shelf) == 10
    taken = [shelf.take(2) for _ in range(4)]
    assert shelf.claim_size(in_work=True) == 0, "not for every chunk"
    taken.append(shelf.take(2))
    assert shelf.claim_size(in_work=True) == 10
    assert [work.lease.id for chunk in taken for work in chunk] == list(range(10)), "in order, each once"


def test_a_shelf_that_must_be_shallow_again_gives_back_the_last():
    shelf = PrefetchBuffer(PrefetchOptions(chunk=1, prefetch=2))
    shelf.ahead = 20
    filled(shelf)
    shelf.ahead = 15
    assert not shelf.has_surplus, "estimates waver"
    shelf.ahead = 0
    assert shelf.has_surplus
    assert sorted(lease.id for lease in shelf.take_surplus()) == list(range(2, 20))
    assert not shelf.has_surplus
    assert [lease.id for lease in shelf.clear()] == [0, 1]
    assert len(shelf) == 0


def test_an_outbox_knows_everything_that_is_still_leased():
    box = ResultBuffer()
    assert not box
    box.returned += [work.lease for work in items(1)]
    box.skipped += [work.lease for work in items(1, 1)]
    assert box
    assert sorted(lease.id for lease in box.held()) == [0, 1]


# -- the worker


class Watched:
    """A worker on a fresh SQLite file, with every claim and every commit of a result written down."""

    def __init__(self, place, count: int, function, **options) -> None:
        self.queue, self.sink = open_queue(place.queue), open_sink(place.sink)
        self.queue.enqueue(pairs(count))
        self.claims: list[int] = []
        self.settled: list[int] = []
        self._watch(self.queue, "claim", lambda args, result: self.claims.append(len(result)))
        self._watch(self.sink, "record_all", lambda args, result: self.settled.append(len(args[0])))
        self.task = Task(function, key=None, each=False)
        self.options = WorkerOptions(**options)

    @staticmethod
    def _watch(place, name, note) -> None:
        original = getattr(place, name)

        def watched(*args, **options):
            result = original(*args, **options)
            note(args, result)
            return result

        setattr(place, name, watched)

    def run(self, before=lambda worker: None) -> Worker:
        with Guard() as guard:
            worker = Worker(self.task, self.queue, self.sink, guard, self.options)
            before(worker)
            worker.run()
        return worker

    def close(self) -> None:
        self.queue.close()
        self.sink.close()


def test_short_calls_share_claims_and_commits_and_each_gets_its_chunk(make_place):
    sizes = []

    def work(batch):
        sizes.append(len(batch))
        return [item["v"] for item in batch]

    place = make_place("sqlite")
    watched = Watched(place, 600, work, chunk=1)
    worker = watched.run()
    assert sizes == [1] * 600
    assert (worker.tally.done, worker.tally.lost) == (600, 0)
    assert sum(watched.settled) == 600
    assert max(watched.claims) <= 50, "a hundred items at most, by halves"
    assert len(watched.settled) < 450, "far fewer commits than items, even if the machine stands still once or twice"
    assert {key: json.loads(watched.sink.get(key)) for key, _ in pairs(600)} == {f"k{n:05d}": n for n in range(600)}
    watched.close()


@pytest.mark.parametrize(
    ("options", "largest"),
    [({"prefetch": 0}, 1), ({"isolate_items": True}, 1), ({"prefetch_more": False}, 1), ({"chunk": 100}, 100)],
    ids=str,
)
def test_no_more_is_held_than_was_asked_for(make_place, options, largest):
    """Where nothing is to be fetched ahead, after a crash, and where chunks are large anyway."""
    watched = Watched(make_place("sqlite"), 150, lambda batch: [1] * len(batch), **{"chunk": 1, **options})
    assert watched.run().tally.done == 150
    assert max(watched.claims) == largest
    watched.close()


def test_items_behind_a_call_that_is_long_by_surprise_go_to_those_who_are_free(make_place):
    place = make_place("sqlite")
    free = threading.Event()
    order = []

    def work(batch):
        order.append(batch[0]["v"])
        if len(order) == 120:
            assert free.wait(30)
        return [1] * len(batch)

    watched = Watched(place, 300, work, chunk=1)
    rival = open_queue(place.queue)
    taken: list[Lease] = []

    def help_out() -> None:
        until(lambda: len(order) == 120, 30)
        # what is on the shelf comes first, being the oldest: only who gives it back lets others have it
        until(lambda: taken.extend(rival.claim(300)) or len(taken) >= 178, 30)
        rival.complete(taken)
        free.set()

    helper = threading.Thread(target=help_out)
    helper.start()
    worker = watched.run()
    helper.join()
    assert worker.tally.done + len(taken) == 300
    assert not {lease.key for lease in taken} & {f"k{n:05d}" for n in order}, "nothing twice"
    rival.close()
    watched.close()


def test_results_of_short_calls_are_recorded_before_long(make_place):
    """What waits for company does not wait for half a shelf of calls that have slowed down."""
    place = make_place("sqlite")
    other = open_sink(place.sink)
    seen = []

    def work(batch):
        number = batch[0]["v"]
        if number == 110:  # in the middle of a shelf: those before it are finished and not yet told
            seen.append(bool(until(lambda: not other.missing([f"k{n:05d}" for n in range(110)]), 30)))
        return [1]

    watched = Watched(place, 130, work, chunk=1)
    assert watched.run().tally.done == 130
    assert seen == [True]
    other.close()
    watched.close()


def test_a_notice_gives_back_the_whole_shelf_while_a_call_runs(make_place):
    place = make_place("sqlite")
    rival = open_queue(place.queue)
    posted, count = threading.Event(), []
    worker_of = {}

    def work(batch):
        count.append(1)
        if len(count) == 30:
            worker_of["worker"]._guard.interrupt("a test")
            until(lambda: rival.depth().leased <= len(count), 20)  # all but what was begun is free again
            posted.set()
        return [1] * len(batch)

    watched = Watched(place, 200, work, chunk=1)
    with pytest.raises(SystemExit) as ended:
        watched.run(before=lambda worker: worker_of.update(worker=worker))
    assert ended.value.code == 75
    assert posted.is_set()
    assert len(count) == 30
    depth = rival.depth()
    assert (depth.done, depth.leased, depth.ready) == (30, 0, 170)
    rival.close()
    watched.close()


def test_where_one_failure_is_the_end_a_crash_takes_only_the_chunk_and_the_next_with_it(make_place, tmp_path):
    place = make_place("sqlite")
    queue = open_queue(place.queue)
    queue.enqueue(pairs(120))
    body = "def work(batch):\n    if batch[0]['v'] == 60: os.kill(os.getpid(), signal.SIGKILL)\n    return [1]"
    task = write_task(tmp_path, body)
    more = ("--chunk", "1", "--max-failures", "1")
    code, _, err = finish(start_work(tmp_path, task, place.queue, place.sink, *more))
    assert code == 0, err
    dead = {row.key for row in queue.dead()}
    assert "k00060" in dead
    assert len(dead) <= 4, "finished and not yet told, in work, on the shelf; never a whole deep shelf"
    assert queue.depth().done == 120 - len(dead)
    queue.close()
