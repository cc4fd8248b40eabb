"""The server's plans for the statements of a worker: by index, whatever the size of the tables when they were made."""

from __future__ import annotations

import pytest
from work_command import pairs

from stayfast.batch.queue import postgres_schema as sql
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.sink.protocol import Result


@pytest.fixture
def opened(make_place):
    place = make_place("postgres")
    queue, sink = open_queue(place.queue), open_sink(place.sink)
    yield queue, sink
    queue.close()
    sink.close()


def plan(database, statement: str, values) -> str:
    return "\n".join(row[0] for row in database.execute("EXPLAIN " + statement, values).fetchall())


@pytest.mark.parametrize("done", [0, 3000])
def test_a_claim_walks_along_the_open_items_and_never_over_the_finished(opened, done):
    queue, _ = opened
    queue.enqueue(pairs(done + 10))
    while done:
        done -= len(queue.complete(queue.claim(min(done, 1000))))
    queue._database.execute("ANALYZE stayfast_item", ())
    values = {"queue": queue._queue, "after": 0, "limit": 100, "owner": 1}
    shown = plan(queue._database, sql.CLAIM, values)
    if queue.depth().done:  # where ten items are all there is, any index will do
        assert "Index Scan using stayfast_item_open" in shown
    assert "Seq Scan" not in shown
    assert "JIT" not in shown
    assert [lease.key for lease in queue.claim(3)] == [key for key, _ in pairs(queue.depth().enqueued)[-10:-7]]


def test_what_is_recorded_is_looked_up_by_key_even_by_a_plan_made_for_an_empty_table(opened):
    _, sink = opened
    query = f"SELECT key FROM {sink.table} WHERE key=ANY(%s::text[])"
    for _ in range(8):  # prepared, and planned for good
        assert sink.missing(["a"]) == ["a"]
    assert "Index" in plan(sink._database, query, (["a"],))
    sink.record_all([Result(f"k{n}", "1", 1) for n in range(500)])
    assert sink.missing(["k7", "x"]) == ["x"]
    assert "Seq Scan" not in plan(sink._database, query, (["a"],))


def test_results_of_both_kinds_in_one_statement(opened):
    _, sink = opened
    sink.record_all([Result("text", '"t"', 1), Result("bytes", b"\0\xff", 2), Result("more", "3", 3)])
    sink.record_all([Result("only", b"raw", 4)])
    assert [sink.get(key) for key in ("text", "bytes", "more", "only")] == ['"t"', b"\0\xff", "3", b"raw"]
