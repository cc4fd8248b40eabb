"""One suite over every queue: what the protocol promises, each promise once."""

from __future__ import annotations

import json
import time

import pytest
from work_command import until

from stayfast.batch.queue import sql_queue, validation
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Failure, Queue, RetryPolicy
from stayfast.errors import LeaseLostError, UsageError


def items(count: int, start: int = 0) -> list[tuple[str, str]]:
    return [(f"k{number:05d}", json.dumps({"v": number})) for number in range(start, start + count)]


@pytest.fixture
def opened(place):
    queues: list[Queue] = []

    def make(**options) -> Queue:
        queues.append(open_queue(place.queue, sink=place.other_sink, **options))
        return queues[-1]

    yield make
    for queue in queues:
        queue.close()


def drain(queue: Queue, limit: int = 10) -> list[str]:
    keys = []
    while leases := queue.claim(limit):
        keys += [lease.key for lease in queue.complete(leases)]
    return keys


def test_items_come_out_once_and_in_order(opened):
    queue = opened()
    count = queue.enqueue(items(250))
    assert (count.added, count.known) == (250, 0)
    assert drain(queue, 100) == [key for key, _ in items(250)]
    assert queue.claim(10) == []
    assert queue.depth().done == 250
    assert queue.remaining().drained


def test_enqueueing_twice_is_enqueueing_once(opened):
    queue = opened()
    queue.enqueue(items(20))
    again = queue.enqueue(items(30))
    assert (again.added, again.known) == (10, 20)
    drain(queue)
    assert queue.enqueue(items(30)).added == 0
    assert queue.claim(5) == []


def test_the_same_key_with_another_payload_is_refused_and_nothing_of_the_batch_is_kept(opened):
    queue = opened()
    queue.enqueue(items(3))
    with pytest.raises(UsageError, match=r"k00001.*another payload.*--replace"):
        queue.enqueue([("new", "{}"), ("k00001", '{"v": 99}')])
    assert queue.depth().enqueued == 3
    assert queue.enqueue([("k00001", '{ "v":1 }')]).known == 1, "the same JSON in another spelling is the same item"


def test_two_payloads_for_one_key_in_the_same_input_are_refused(opened):
    queue = opened()
    with pytest.raises(UsageError, match=r"twice.*another payload|another payload"):
        queue.enqueue([("twice", "1"), ("twice", "2")])
    assert queue.depth().enqueued == 0


def test_replace_makes_a_finished_item_ready_again_with_a_higher_generation(opened):
    queue = opened()
    queue.enqueue(items(1))
    first = queue.claim(1)
    queue.complete(first)
    queue.enqueue([("k00000", '{"v": 5}')], replace=True)
    second = queue.claim(1)
    assert second[0].payload == '{"v": 5}'
    assert second[0].generation > first[0].generation


def test_two_owners_never_hold_the_same_item(opened):
    one, two = opened(), opened()
    one.enqueue(items(40))
    mine, theirs = one.claim(25), two.claim(25)
    assert len(mine) == 25
    assert len(theirs) == 15
    assert not {lease.key for lease in mine} & {lease.key for lease in theirs}
    assert two.complete(mine) == [], "somebody else's lease cannot be completed"
    assert two.release(mine) == 0
    assert len(one.complete(mine)) == 25


def test_released_items_are_claimable_at_once_and_not_counted_as_deliveries(opened):
    one, two = opened(policy=RetryPolicy(max_deliveries=3)), opened(policy=RetryPolicy(max_deliveries=3))
    one.enqueue(items(5))
    for _ in range(10):
        assert one.release(one.claim(5)) == 5
    assert len(two.claim(5)) == 5
    assert two.depth().dead == 0


def test_an_item_given_back_and_claimed_again_is_completed_by_the_newer_lease_alone(opened):
    queue = opened()
    queue.enqueue(items(1))
    first = queue.claim(1)
    queue.release(first)
    second = queue.claim(1)
    assert queue.fail([Failure(first[0], "an old lease", final=True)]) == []
    assert queue.release(first) == 0
    assert queue.complete(first + second) == second
    assert queue.depth().done == 1


def test_a_release_after_completion_changes_nothing(opened):
    queue = opened()
    queue.enqueue(items(1))
    leases = queue.claim(1)
    queue.complete(leases)
    assert queue.release(leases) == 0
    assert queue.complete(leases) in ([], leases)
    assert queue.depth().done == 1


def test_a_failed_item_waits_and_comes_back_and_finally_dies_with_its_reason(opened):
    queue = opened(policy=RetryPolicy(max_failures=3, backoff_seconds=0.0))
    queue.enqueue(items(1))
    for attempt in range(3):
        lease = queue.claim(1)[0]
        assert (lease.key, lease.failures) == ("k00000", attempt)
        dead = queue.fail([Failure(lease, f"ValueError: attempt {attempt}")])
        assert dead == (["k00000"] if attempt == 2 else [])
    assert [(row.key, row.failures, row.reason) for row in queue.dead()] == [("k00000", 3, "ValueError: attempt 2")]
    queue.enqueue(items(1, start=1))
    assert drain(queue) == ["k00001"]
    assert queue.remaining().drained


def test_back_off_delays_and_the_tail_says_how_long(opened):
    queue = opened(policy=RetryPolicy(backoff_seconds=60.0))
    queue.enqueue(items(1))
    queue.fail([Failure(queue.claim(1)[0], "no")])
    assert queue.claim(1) == []
    tail = queue.remaining()
    assert tail.delayed_seconds is not None
    assert 30 < tail.delayed_seconds <= 60
    assert not tail.drained
    assert queue.depth().delayed == 1


def test_a_final_failure_goes_to_the_dead_letter_at_once_and_retry_brings_it_back(opened):
    queue = opened()
    queue.enqueue(items(3))
    leases = queue.claim(3)
    assert queue.fail([Failure(leases[0], "bad", final=True), Failure(leases[1], "worse", final=True)]) == [
        "k00000",
        "k00001",
    ]
    assert queue.retry(["k00001", "nobody"]) == 1
    assert [lease.key for lease in queue.claim(5)] == ["k00001"]
    assert queue.retry() == 1
    lease = queue.claim(5)[0]
    assert (lease.key, lease.failures) == ("k00000", 0)


def test_everything_in_a_batch_happens_or_nothing(opened):
    queue = opened()
    queue.enqueue(items(4))
    leases = queue.claim(2)

    class Stop(Exception):
        pass

    with pytest.raises(Stop), queue.batch():
        queue.complete(leases)
        queue.claim(2)
        raise Stop
    assert queue.depth().done == 0
    assert queue.depth().leased == 2
    assert len(queue.complete(leases)) == 2
    fresh = opened()
    with pytest.raises(Stop), fresh.batch():
        fresh.claim(1)
        raise Stop
    assert len(fresh.claim(1)) == 1, "its first claim was taken back, and its registration with it"


def test_hold_gives_back_what_was_claimed_without_knowing(opened):
    one, two = opened(), opened()
    one.enqueue(items(6))
    known = one.claim(2)
    one.claim(3)  # the answer to this one was lost
    one.release_all_except(known)
    assert len(two.claim(10)) == 4
    assert len(one.complete(known)) == 2


def test_a_crashed_owner_is_blamed_for_every_item_it_held(opened):
    one, two = (
        opened(policy=RetryPolicy(max_failures=2, backoff_seconds=0.0)),
        opened(policy=RetryPolicy(max_failures=2, backoff_seconds=0.0)),
    )
    one.enqueue(items(3))
    leases = one.claim(2)
    assert two.record_crash(one.handles(leases), "died with SIGSEGV") == 2
    assert one.complete(leases) == []
    came = sorted((lease.key, lease.failures) for lease in two.claim(3))
    assert came == [("k00000", 1), ("k00001", 1), ("k00002", 0)]
    with pytest.raises(LeaseLostError):
        one.claim(1)
    three = opened(policy=RetryPolicy(max_failures=2, backoff_seconds=0.0))
    assert three.record_crash(two.handles([]), "died with SIGSEGV again") == 3
    assert sorted((row.key, row.failures, row.reason) for row in three.dead()) == [
        ("k00000", 2, "died with SIGSEGV again"),
        ("k00001", 2, "died with SIGSEGV again"),
    ]
    assert [(lease.key, lease.failures) for lease in three.claim(3)] == [("k00002", 1)]


def test_an_item_whose_owners_vanish_again_and_again_is_given_up(opened):
    """It kills its workers, or outlasts them: three deliveries, and none that was given back counts."""
    rival = opened(policy=RetryPolicy(max_deliveries=3))
    rival.enqueue(items(2))
    for delivery in range(3):
        assert rival.release(rival.claim(2)) == 2
        assert rival.depth().dead == 0, f"given up after {delivery} deliveries"
        owner = opened(policy=RetryPolicy(max_deliveries=3))
        owner.lease_seconds = 0.01
        assert len(owner.claim(2)) == 2
        until(lambda: (rival.remaining(), rival.depth().leased)[1] == 0, 20)
    assert rival.claim(2) == []
    assert [(row.key, row.reason[:18]) for row in rival.dead()] == [(key, "handed out 3 times") for key, _ in items(2)]
    assert rival.retry() == 2
    assert len(rival.claim(2)) == 2


def test_an_owner_whose_lease_is_over_changes_nothing(opened):
    """Whether the item lies there again or somebody else holds it: no acknowledgement, no failure, no giving back."""
    stale, rival = opened(policy=RetryPolicy(max_failures=1)), opened()
    stale.enqueue(items(2))
    stale.lease_seconds = 0.01
    leases = stale.claim(2)
    until(lambda: (rival.remaining(), rival.depth().leased)[1] == 0, 20)
    for held in (0, 2):
        taken = rival.claim(held)
        assert stale.complete(leases) == []
        assert stale.fail([Failure(lease, "too late", final=True) for lease in leases]) == []
        assert stale.release(leases) == 0
        stale.release_all_except([])
        depth = rival.depth()
        assert (depth.ready, depth.leased, depth.dead, depth.done) == (2 - held, held, 0, 0)
    assert [lease.failures for lease in taken] == [0, 0]
    with pytest.raises(LeaseLostError):
        stale.claim(1)
    assert rival.complete(taken) == taken
    stale.lease_seconds = 60.0
    stale.enqueue(items(1, start=2))
    assert len(stale.complete(stale.claim(1))) == 1, "told once, it starts afresh"


def test_whoever_renews_keeps_what_it_holds_and_who_does_not_is_told(opened):
    fresh, owner, rival, beat = opened(), opened(), opened(), opened()
    fresh.enqueue(items(2))
    fresh.lease_seconds, began = 4.0, time.monotonic()
    fresh.claim(1)
    owner.lease_seconds = 0.5
    handles = owner.handles(owner.claim(1))
    beat.lease_seconds = 60.0
    assert beat.renew(handles) == []
    time.sleep(0.6)
    assert rival.claim(2) == [] or time.monotonic() - began > 3.9, "one is not over yet, the other was renewed outside"
    rival.record_crash(handles, "gone")
    assert beat.renew(handles) == handles, "whoever renews for a dead owner hears of it"


def test_a_replaced_item_is_not_finished_by_who_holds_the_old_one(opened):
    queue = opened()
    queue.enqueue(items(1))
    old = queue.claim(1)
    queue.enqueue([("k00000", '{"v": 5}')], replace=True)
    assert queue.complete(old) == []
    assert queue.depth().ready == 1
    new = queue.claim(1)
    assert new[0].payload == '{"v": 5}'
    assert queue.complete(old + new) == new


def test_what_is_held_by_others_is_not_given_back_with_ones_own(opened):
    one, two = opened(), opened()
    one.enqueue(items(4))
    mine, theirs = one.claim(2), two.claim(2)
    one.release_all_except([])
    assert one.depth().leased == 2
    assert two.complete(theirs) == theirs
    assert one.complete(mine) == []


def test_retry_brings_back_the_dead_and_nobody_else(opened, place):
    queue = opened()
    other = open_queue(place.queue + "x")
    for each in (queue, other):
        each.enqueue(items(4))
        leases = each.claim(3)
        each.complete(leases[:1])
        each.fail([Failure(leases[1], "bad", final=True)])
    assert queue.retry() == 1
    for each, dead in ((queue, 0), (other, 1)):
        depth = each.depth()
        assert (depth.dead, depth.done, depth.leased, depth.ready) == (dead, 1, 1, 2 - dead)
    other.close()


def test_a_dead_owner_of_one_queue_is_none_of_the_other_queues_business(opened, place):
    """Both lie in the same tables."""
    queue = opened()
    other = open_queue(place.queue + "x")
    queue.enqueue(items(2))
    other.enqueue(items(2))
    queue.lease_seconds = 0.01
    queue.claim(2)
    held = other.claim(2)
    rival = opened()
    until(lambda: (rival.remaining(), rival.depth().leased)[1] == 0, 20)
    other.remaining()
    assert other.depth().leased == 2
    assert other.complete(held) == held
    other.close()


def test_entries_are_sorted_by_code_point_and_tell_the_state(opened):
    queue = opened()
    keys = ["b", "a", "Z", "ä", "é", "\U0001f600", "z", "a/b", "a b", "0", "ﬀ"]
    queue.enqueue([(key, "1") for key in keys])
    lease = queue.claim(1)
    queue.complete(lease)
    found = list(queue.entries())
    assert [key for key, _ in found] == sorted(keys)
    assert dict(found)[lease[0].key] == "done"


def test_a_long_input_is_taken_in_batches_and_every_item_once(opened, monkeypatch):
    monkeypatch.setattr(validation, "BATCH", 3)
    queue = opened()
    count = queue.enqueue(items(8))
    assert (count.added, count.known) == (8, 0)
    assert queue.depth().ready == 8
    count = queue.enqueue(items(10))
    assert (count.added, count.known) == (2, 8)


@pytest.mark.parametrize("count", [5, 6, 7])
def test_what_is_read_in_pages_is_read_once(opened, monkeypatch, count):
    monkeypatch.setattr(sql_queue, "_PAGE", 3)
    queue = opened()
    queue.enqueue(items(count))
    assert [key for key, _ in queue.entries()] == [key for key, _ in items(count)]
    queue.fail([Failure(lease, "bad", final=True) for lease in queue.claim(count)])
    assert [row.key for row in queue.dead()] == [key for key, _ in items(count)]


def test_two_queues_in_one_place_do_not_see_each_other(opened, place):
    queue = opened()
    other = open_queue(place.queue + "x")
    try:
        queue.enqueue(items(3))
        other.enqueue(items(2))
        assert len(drain(other)) == 2
        assert len(drain(queue)) == 3
    finally:
        other.close()


def test_closing_gives_the_leases_back(opened):
    one, two = opened(), opened()
    one.enqueue(items(5))
    one.claim(5)
    one.close()
    assert len(two.claim(5)) == 5


def test_renewal_by_handle_works_from_another_object(opened):
    one, two = opened(), opened()
    one.enqueue(items(1))
    leases = one.claim(1)
    assert two.renew(one.handles(leases)) == []
    assert two.renew(["999999999"]) == ["999999999"]
