"""Pub/Sub against Google's emulator: the same promises, by other means; the ledger tells what Pub/Sub cannot."""

from __future__ import annotations

import json
import time

import pytest
from work_command import finish, pairs, start_work, stayfast, until, write_task

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Failure, RetryPolicy
from stayfast.batch.queue.pubsub_ledger import open_ledger
from stayfast.batch.sink.open_sink import open_sink
from stayfast.errors import QueueError, UsageError


@pytest.fixture
def place(make_place):
    return make_place("pubsub")


@pytest.fixture
def opened(place):
    queues = []

    def make(**options):
        queues.append(open_queue(place.queue, sink=place.sink, **options))
        return queues[-1]

    yield make
    for queue in queues:
        queue.close()


def pull(queue, count: int, seconds: float = 15.0) -> list:
    """Pull until so many are there: one pull may bring fewer than there are."""
    leases = []
    deadline = time.monotonic() + seconds
    while len(leases) < count and time.monotonic() < deadline:
        leases += queue.claim(count - len(leases))
    return leases


def test_items_come_out_and_the_ledger_knows_when_all_are_recorded(opened, place):
    queue, sink = opened(), open_sink(place.sink)
    assert queue.enqueue(pairs(30)).added == 30
    assert not queue.remaining().drained
    leases = pull(queue, 30)
    assert sorted(lease.key for lease in leases) == [key for key, _ in pairs(30)]
    assert {json.loads(lease.payload)["id"] for lease in leases} == {lease.key for lease in leases}
    sink.record_all([(lease.key, "1", lease.generation) for lease in leases[:29]])
    queue.complete(leases[:29])
    assert not queue.remaining().drained, "an empty pull would prove nothing; the ledger does"
    assert queue.depth().ready == 1
    sink.record_all([(leases[29].key, "1", 0)])
    queue.complete(leases[29:])
    assert queue.remaining().drained
    assert queue.depth().done == 30
    sink.close()


def test_enqueueing_is_idempotent_and_contradictions_are_refused(opened):
    queue = opened()
    assert queue.enqueue(pairs(10)).added == 10
    assert queue.enqueue(pairs(12)).added == 2
    with pytest.raises(UsageError, match="another payload"):
        queue.enqueue([("k00001", '"other"')])
    assert len(pull(queue, 13, 4.0)) == 12


def test_keys_in_the_ledger_that_were_never_published_are_published_by_the_next_enqueue(opened):
    queue = opened()
    queue._ledger.add(pairs(5), replace=False)  # an enqueue that died before publishing
    assert queue.claim(5) == []
    assert queue.enqueue(pairs(5)).added == 5
    assert len(pull(queue, 5)) == 5


def test_a_worker_publishes_what_a_dead_enqueue_left_behind(opened):
    queue = opened()
    queue._ledger.add(pairs(3), replace=False)
    queue.lease_seconds = 0.05
    assert not queue.remaining().drained
    time.sleep(0.2)
    queue.remaining()
    assert len(pull(queue, 3)) == 3


def test_released_messages_come_again_at_once(opened):
    queue = opened()
    queue.enqueue(pairs(5))
    queue.release(pull(queue, 5))
    started = time.monotonic()
    assert len(pull(queue, 5, 8.0)) == 5
    assert time.monotonic() - started < 8.0, "well before the deadline of 10 s"


def test_failures_back_off_and_end_in_ledger_and_dead_letter_topic(opened, place):
    from google.cloud import pubsub_v1

    queue = opened(policy=RetryPolicy(max_failures=2, backoff_seconds=0.0))
    with pubsub_v1.SubscriberClient() as subscriber:
        watch = subscriber.subscription_path("lab", queue._name + "-watch")
        subscriber.create_subscription(request={"name": watch, "topic": queue._dead_topic})
        queue.enqueue(pairs(1))
        assert queue.fail([Failure(pull(queue, 1)[0], "first")]) == []
        assert queue.fail([Failure(pull(queue, 1)[0], "second")]) == ["k00000"]
        answer = subscriber.pull(request={"subscription": watch, "max_messages": 1}, timeout=10)
        assert answer.received_messages[0].message.attributes["key"] == "k00000"
        assert answer.received_messages[0].message.attributes["reason"] == "second"
    assert [(row.key, row.failures, row.reason) for row in queue.dead()] == [("k00000", 2, "second")]
    assert queue.remaining().drained
    assert queue.retry() == 1
    assert pull(queue, 1)[0].key == "k00000"


def test_an_item_that_killed_its_worker_reaches_the_dead_letter_topic_with_its_payload(opened):
    from google.cloud import pubsub_v1

    queue = opened(policy=RetryPolicy(max_failures=1))
    with pubsub_v1.SubscriberClient() as subscriber:
        watch = subscriber.subscription_path("lab", queue._name + "-watch")
        subscriber.create_subscription(request={"name": watch, "topic": queue._dead_topic})
        queue.enqueue(pairs(1))
        assert (
            opened(policy=RetryPolicy(max_failures=1)).record_crash(queue.handles(pull(queue, 1)), "its worker died")
            == 1
        )
        answer = subscriber.pull(request={"subscription": watch, "max_messages": 1}, timeout=10)
        assert answer.received_messages[0].message.data.decode() == pairs(1)[0][1]
    assert [row.payload for row in queue.dead()] == [pairs(1)[0][1]]


def test_renewal_keeps_a_message_past_its_deadline(opened):
    queue = opened()
    queue.enqueue(pairs(1))
    leases = pull(queue, 1)
    handles = queue.handles(leases)
    for _ in range(4):
        time.sleep(3.2)
        assert opened().renew(handles) == []
    assert queue.claim(1) == []


def test_the_whole_command_drains_skips_duplicates_and_audits_clean(place, tmp_path, opened):
    queue = opened()
    queue.enqueue(pairs(300))
    queue._publish(pairs(300)[::7])  # a publisher that retried: the same keys in new messages
    task = write_task(tmp_path, "def work(batch): return [i['v'] * 3 for i in batch]")
    code, told, err = finish(start_work(tmp_path, task, place.queue, place.sink, "--chunk", "40", "--workers", "2"), 80)
    assert code == 0, err
    assert told["done"] + told["skipped"] >= 300
    sink = open_sink(place.sink)
    assert {key: sink.get(key) for key in sink.keys()} == {f"k{n:05d}": str(n * 3) for n in range(300)}
    sink.close()
    audit = stayfast("audit", "--queue", place.queue, "--sink", place.sink, "--json")
    assert (audit.returncode, json.loads(audit.stdout)["recorded"]) == (0, 300)
    status = stayfast("queue", "status", "--queue", place.queue, "--sink", place.sink, "--json")
    assert json.loads(status.stdout)["done"] == 300


def test_a_ledger_beside_results_in_a_directory(place, tmp_path):
    sink_url = f"file://{tmp_path}/out"
    queue, sink = open_queue(place.queue, sink=sink_url), open_sink(sink_url)
    assert queue.enqueue(pairs(5)).added == 5
    assert queue.enqueue(pairs(5)).added == 0
    leases = pull(queue, 5)
    queue.fail([Failure(leases[0], "bad", final=True)])
    sink.record_all([(lease.key, "1", 0) for lease in leases[1:]])
    queue.complete(leases[1:])
    assert queue.remaining().drained
    assert [row.key for row in queue.dead()] == [leases[0].key]
    assert [key for key, _ in queue.entries()] == [key for key, _ in pairs(5)]
    assert queue.retry([leases[0].key, "nobody"]) == 1
    queue.close()
    sink.close()


def test_a_subscription_that_does_not_exist_is_one_sentence(pubsub_server, tmp_path):
    with pytest.raises(UsageError, match=r"does not exist.*\?topic"):
        open_queue("pubsub://lab/nobody-made-this", sink=f"sqlite://{tmp_path}/l.db")
    with pytest.raises(UsageError, match="names no subscription"):
        open_queue("pubsub://lab", sink=f"sqlite://{tmp_path}/l.db")


def test_an_emulator_that_hangs_only_delays_the_work(place, tmp_path, opened, pubsub_server):
    queue = opened()
    queue.enqueue(pairs(60))
    task = write_task(tmp_path, "def work(batch):\n    time.sleep(0.05)\n    return [i['v'] for i in batch]")
    process = start_work(tmp_path, task, place.queue, place.sink, "--chunk", "5")
    sink = open_sink(place.sink)
    until(lambda: sink.get("k00000") is not None or sink.get("k00003") is not None)
    pubsub_server.pause()
    time.sleep(1.5)
    pubsub_server.resume()
    code, _, err = finish(process, 60)
    assert code == 0, err
    assert len(list(sink.keys())) == 60
    sink.close()


def test_an_owner_that_saw_the_end_sees_that_somebody_retried_the_dead(opened):
    queue, other = opened(), opened()
    queue.enqueue(pairs(1))
    queue.fail([Failure(pull(queue, 1)[0], "never", final=True)])
    assert queue.remaining().drained
    assert other.retry() == 1
    assert not queue.remaining().drained


def test_a_late_failure_does_not_bring_a_dead_item_back_to_life(opened, place):
    """Two messages for one key: one owner buries it, the other comes late. Alive again, it would have no message."""
    queue = opened(policy=RetryPolicy(max_failures=3, backoff_seconds=0.0))
    queue.enqueue(pairs(1))
    queue._publish(pairs(1))
    first, second = pull(queue, 2)
    assert queue.fail([Failure(first, "never", final=True)]) == ["k00000"]
    assert queue.fail([Failure(second, "perhaps later")]) == ["k00000"]
    assert queue.remaining().drained
    assert [row.key for row in queue.dead()] == ["k00000"]


def test_the_same_holds_for_a_ledger_of_objects(tmp_path):
    ledger = open_ledger(f"file://{tmp_path}/out", "q")
    ledger.add(pairs(1), replace=False)
    assert ledger.fail("k00000", "never", most=3, final=True) == (1, True)
    assert ledger.fail("k00000", "perhaps \udcff\0", most=3, final=False) == (2, True)
    assert ledger.page("")[0].reason == "perhaps \\udcff\\0"
    next(iter((tmp_path / "out" / "ledger" / "q").iterdir())).write_text("[]")
    with pytest.raises(QueueError, match="not an entry of a ledger"):
        ledger.page("")
    ledger.close()


def test_items_enqueued_behind_the_place_that_was_looked_at_are_not_overlooked(opened, place):
    """A worker that has seen the tail of the keys must not leave while new ones come in at the front."""
    queue, sink = opened(), open_sink(place.sink)
    queue.enqueue([(f"m{n}", "1") for n in range(3)])
    sink.record("m0", "1")
    assert not queue.remaining().drained
    queue.enqueue([("a0", "1")])
    sink.record_all([("m1", "1", 0), ("m2", "1", 0)])
    assert not queue.remaining().drained, "a0 is open, and sorts before what was looked at"
    sink.record("a0", "1")
    assert queue.remaining().drained
    sink.close()


def test_messages_of_strangers_are_put_away_and_hurt_nobody(place, opened, tmp_path):
    queue = opened()
    queue.enqueue(pairs(6))
    futures = [queue._publisher.publish(queue._topic, data) for data in (b"\xff\xfe", b"1,[2", b"3]", b"")[:3]]
    futures.append(queue._publisher.publish(queue._topic, b"not ours", key="k\x00 \x1b"))
    for future in futures:
        future.result(timeout=20)
    task = write_task(tmp_path, "def work(batch): return [i['v'] for i in batch]")
    code, told, err = finish(start_work(tmp_path, task, place.queue, place.sink), 80)
    assert (code, told["done"]) == (0, 6), err
    assert "Traceback" not in err
    audit = stayfast("audit", "--queue", place.queue, "--sink", place.sink, "--json")
    assert json.loads(audit.stdout)["recorded"] == 6


@pytest.mark.parametrize("given", ["abc", "9", "601", "-1", "1e2"])
def test_a_deadline_that_is_none_is_one_sentence(pubsub_server, tmp_path, given):
    with pytest.raises(UsageError, match=r"deadline.*10 to 600"):
        open_queue(f"pubsub://lab/wrong-sub?topic=wrong&deadline={given}", sink=f"sqlite://{tmp_path}/l.db")


def test_a_lease_that_is_over_on_an_exactly_once_subscription_does_not_stop_the_worker(opened, monkeypatch):
    """There Pub/Sub answers with an error; the message comes again, and nobody may try for ever."""
    queue = opened()
    queue.enqueue(pairs(1))
    leases = pull(queue, 1)

    def refuse(**_):
        raise queue._exceptions.FailedPrecondition("PERMANENT_FAILURE_INVALID_ACK_ID")

    monkeypatch.setattr(queue._subscriber, "modify_ack_deadline", refuse)
    assert queue.release(leases) == 1
    assert queue.fail([Failure(leases[0], "no")]) == []

    def give_up(**_):
        raise queue._exceptions.RetryError("no answer", cause=None)

    monkeypatch.setattr(queue._subscriber, "acknowledge", give_up)
    assert queue.complete(leases) == leases


def test_an_audit_of_a_subscription_that_never_held_anything_is_exit_1(place, opened):
    opened()
    audit = stayfast("audit", "--queue", place.queue, "--sink", place.sink)
    assert audit.returncode == 1, audit.stderr
    assert "nothing was ever enqueued in pubsub://" in audit.stdout
