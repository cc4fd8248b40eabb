"""``stayfast work`` as a real process: results, failures, notices, crashes, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from work_command import finish, pairs, start_work, stayfast, until, write_task

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.sink.open_sink import open_sink


@pytest.fixture
def filled(place):
    opened = []

    def fill(count: int):
        queue = open_queue(place.queue)
        opened.append(queue)
        queue.enqueue(pairs(count))
        return queue

    yield fill
    for queue in opened:
        queue.close()


def results(place) -> dict[str, object]:
    sink = open_sink(place.sink)
    try:
        return {key: json.loads(sink.get(key)) for key in sink.keys()}
    finally:
        sink.close()


def test_chunks_in_results_out_exit_0(place, filled, tmp_path):
    queue = filled(500)
    task = write_task(tmp_path, "def work(batch):\n    return [i['v'] * 2 for i in batch]")
    code, told, err = finish(start_work(tmp_path, task, place.queue, place.sink, "--chunk", "30", "--workers", "2"))
    assert (code, told["done"], told["failed"]) == (0, 500, 0), err
    assert results(place) == {f"k{n:05d}": n * 2 for n in range(500)}
    assert queue.depth().done == 500


def test_sigterm_after_the_last_item_does_not_hide_that_all_is_done(make_place, tmp_path):
    """The interpreter takes a while to go down, and the machine may be taken just then."""
    place = make_place("sqlite")
    task = write_task(tmp_path, "def work(batch):\n    return batch")
    script = (
        "import atexit, os; atexit.register(os.kill, os.getpid(), 15); from stayfast.cli.main import entry; entry()"
    )
    words = ("work", task, "--queue", place.queue, "--sink", place.sink)
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_each_item_alone_bytes_results_and_recorded_keys_are_not_computed_again(place, filled, tmp_path):
    filled(40)
    sink = open_sink(place.sink)
    sink.record_all([(f"k{n:05d}", '"earlier"', 0) for n in range(0, 40, 2)])
    log = tmp_path / "seen"
    body = f"def work(item):\n    open({str(log)!r}, 'a').write(item['id'] + '\\n')\n    return item['id'].encode()"
    task = write_task(tmp_path, body, "@stayfast.task(each=True)")
    code, told, err = finish(start_work(tmp_path, task, place.queue, place.sink, "--chunk", "7"))
    assert (code, told["done"], told["skipped"]) == (0, 20, 20), err
    assert sorted(log.read_text().split()) == [f"k{n:05d}" for n in range(1, 40, 2)]
    assert sink.get("k00000") == '"earlier"'
    assert sink.get("k00001") == b"k00001"
    sink.close()


def test_one_bad_item_never_fails_its_neighbours_and_dies_with_its_traceback(place, filled, tmp_path):
    queue = filled(30)
    body = (
        "def work(batch):\n"
        "    for item in batch:\n        if item['v'] == 11: raise ValueError('eleven is too many')\n"
        "    return [stayfast.Failed('no threes') if i['v'] == 3 else i['v'] for i in batch]"
    )
    task = write_task(tmp_path, body)
    more = ("--chunk", "10", "--max-failures", "2", "--backoff", "0.05")
    code, told, err = finish(start_work(tmp_path, task, place.queue, place.sink, *more))
    assert (code, told["done"], told["failed"], told["dead"]) == (0, 28, 4, 2), err
    dead = {row.key: row for row in queue.dead()}
    assert "eleven is too many" in dead["k00011"].reason
    assert "Traceback" in dead["k00011"].reason
    assert dead["k00003"].reason == "no threes"
    assert len(results(place)) == 28


def test_a_notice_releases_unstarted_items_at_once_finishes_the_current_one_and_leaves_with_75(place, filled, tmp_path):
    queue = filled(20)
    flag = tmp_path / "begun"
    body = f"def work(item):\n    open({str(flag)!r}, 'a').write('x')\n    time.sleep(2.0)\n    return 1"
    task = write_task(tmp_path, body, "@stayfast.task(each=True)")
    process = start_work(tmp_path, task, place.queue, place.sink, "--chunk", "10")
    until(flag.exists)
    until(lambda: queue.depth().leased == 10)
    os.kill(process.pid, signal.SIGTERM)
    told_at = time.monotonic()
    until(lambda: queue.depth().leased <= 1, 1.5)
    assert time.monotonic() - told_at < 1.5, "the rest must be free while the long item still runs"
    assert process.poll() is None
    code, told, err = finish(process)
    assert (code, told["done"]) == (75, 1), err
    depth = queue.depth()
    assert (depth.ready, depth.leased, depth.done) == (19, 0, 1)


def test_a_task_that_outlasts_the_grace_is_left_behind_in_time(place, filled, tmp_path):
    queue = filled(3)
    flag = tmp_path / "begun"
    body = f"def work(batch):\n    open({str(flag)!r}, 'a').write('x')\n    time.sleep(60)\n    return [1] * len(batch)"
    process = start_work(tmp_path, write_task(tmp_path, body), place.queue, place.sink, STAYFAST_GRACE_SECONDS="4")
    until(flag.exists)
    started = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    code, told, err = finish(process)
    assert code == 75, err
    assert time.monotonic() - started < 4.0
    assert told["done"] == 0
    assert queue.depth().ready == 3, "given back before leaving, not left to the lease"


def test_a_worker_that_crashes_is_replaced_and_the_guilty_item_dies_alone(place, filled, tmp_path):
    queue = filled(60)
    body = (
        "def work(batch):\n"
        "    if any(i['v'] == 17 for i in batch): os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    return [i['v'] for i in batch]"
    )
    task = write_task(tmp_path, body)
    more = ("--chunk", "20", "--max-failures", "3", "--backoff", "0.05")
    code, _, err = finish(start_work(tmp_path, task, place.queue, place.sink, *more))
    assert code == 0, err
    assert [row.key for row in queue.dead()] == ["k00017"]
    assert "SIGSEGV" in next(queue.dead()).reason
    assert len(results(place)) == 59


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("def work(batch):\n    return [1]", "returned 1 results for 8 items"),
        ("def work(batch):\n    return 'ab'", "returned a str for 8 items"),
        ("def work(batch)\n    return 'ab'", "cannot be imported"),
        ("raise RuntimeError('no weights')\ndef work(batch): ...", "cannot be imported"),
    ],
)
def test_a_wrong_task_is_one_sentence_exit_1_and_the_items_stay(place, filled, tmp_path, body, sentence):
    queue = filled(8)
    code, _, err = finish(start_work(tmp_path, write_task(tmp_path, body), place.queue, place.sink))
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err
    depth = queue.depth()
    assert (depth.ready, depth.enqueued) == (8, 8)


def test_a_missing_task_is_one_sentence(place, filled, tmp_path):
    filled(1)
    write_task(tmp_path, "def other(batch): ...")
    for task, sentence in (
        ("job:work", "its tasks are other"),
        ("nojob:work", "try: python -c 'import nojob'"),
        ("job.py:other", "; write job:other"),
        ("job:os", "not a task"),
    ):
        code, _, err = finish(start_work(tmp_path, task, place.queue, place.sink))
        assert code == 1
        assert sentence in err
        assert "Traceback" not in err


def test_a_key_that_the_task_disagrees_with_goes_to_the_dead_letter(place, filled, tmp_path):
    queue = filled(4)
    decorator = "@stayfast.task(key=lambda item: item['id'] if item['v'] != 2 else 'other')"
    task = write_task(tmp_path, "def work(batch): return [1] * len(batch)", decorator)
    code, told, err = finish(start_work(tmp_path, task, place.queue, place.sink))
    assert (code, told["done"]) == (0, 3), err
    rejected = list(queue.dead())
    assert [row.key for row in rejected] == ["k00002"]
    assert "'other'" in rejected[0].reason


def test_results_that_json_cannot_say_fail_their_item_only(place, filled, tmp_path):
    queue = filled(3)
    task = write_task(tmp_path, "def work(batch): return [float('nan') if i['v'] == 1 else i['v'] for i in batch]")
    code, _, err = finish(start_work(tmp_path, task, place.queue, place.sink, "--max-failures", "1"))
    assert code == 0, err
    assert [row.key for row in queue.dead()] == ["k00001"]
    assert "JSON" in next(queue.dead()).reason


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("work", "job", "--queue", "sqlite:////tmp/x.db", "--sink", "sqlite:////tmp/x.db"), "does not name a task"),
        (("work", "a:b", "--queue", "x", "--sink", "y", "--chunk", "0"), "--chunk is 0"),
        (("enqueue", "--queue", "redis://x"), "no known scheme"),
        (("enqueue", "--queue", "sqlite:///nodir/q.db"), "no directory /nodir"),
        (("enqueue", "--queue", "sqlite:////tmp/q.db?table=x"), "'table'.*unknown"),
        (("queue", "status", "--queue", "sqlite:////tmp/absent-stayfast.db"), "no file /tmp/absent-stayfast.db"),
        (("audit", "--queue", "sqlite:////tmp/absent-stayfast.db", "--sink", "nope://"), "no file"),
        (("enqueue", "--queue", "pubsub://p/s"), "--sink"),
    ],
)
def test_bad_input_is_exit_2_and_one_sentence(arguments, sentence):
    import re

    done = stayfast(*arguments, stdin="")
    assert done.returncode == 2, done.stderr
    assert re.search(sentence, done.stderr)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_work_never_leaves_with_the_codes_of_the_command_line(tmp_path):
    """Once started it is an in-pod program: 1, not 2 or 3, even when the queue is not there."""
    task = write_task(tmp_path, "def work(batch): return batch")
    code, _, err = finish(start_work(tmp_path, task, "sqlite:////nodir/q.db", "sqlite:////nodir/q.db"))
    assert code == 1
    assert "no directory /nodir" in err


def test_a_queue_that_never_held_anything_is_finished_but_not_in_silence(make_place, tmp_path):
    place = make_place("sqlite")
    task = write_task(tmp_path, "def work(batch): return [1] * len(batch)")
    code, _, err = finish(start_work(tmp_path, task, place.queue, place.sink))
    assert (code, "nothing was ever enqueued in sqlite://" in err) == (0, True), err


def test_a_worker_that_is_warned_alone_is_replaced(make_place, tmp_path):
    place = make_place("sqlite")
    queue = open_queue(place.queue)
    queue.enqueue(pairs(60))
    log = tmp_path / "pids"
    body = (
        f"def work(item):\n    open({str(log)!r}, 'a').write(f'{{os.getpid()}}\\n')\n    time.sleep(0.03)\n    return 1"
    )
    process = start_work(tmp_path, write_task(tmp_path, body, "@stayfast.task(each=True)"), place.queue, place.sink)
    first = int(until(lambda: log.exists() and log.read_text()).split()[0])
    os.kill(first, signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 0, err
    assert len(set(log.read_text().split())) == 2
    assert queue.depth().done == 60
    queue.close()


@pytest.mark.parametrize(("number", "workers", "deaths"), [("SIGKILL", 1, 2), ("SIGTERM", 1, 1), ("SIGKILL", 3, 6)])
def test_workers_killed_while_they_start_are_replaced(make_place, tmp_path, number, workers, deaths):
    """More deaths than one worker would be forgiven, but all of them at two blows: the third three do the work."""
    place = make_place("sqlite")
    queue = open_queue(place.queue)
    queue.enqueue(pairs(20))
    task = write_task(tmp_path, "def work(batch): return [1] * len(batch)")
    victim = (
        f"import os, signal\nfor n in range({deaths}):\n"
        "    try: os.close(os.open(f'death-{n}', os.O_CREAT | os.O_EXCL))\n"
        "    except FileExistsError: continue\n"
        f"    os.kill(os.getpid(), signal.{number})\n    signal.pause()\n"
    )
    module = tmp_path / "job.py"
    module.write_text(victim + module.read_text())
    process = start_work(tmp_path, task, place.queue, place.sink, "--workers", str(workers), STAYFAST_GRACE_SECONDS="2")
    code, told, err = finish(process)
    assert code == 0, err
    assert told["done"] == 20
    assert len(list(tmp_path.glob("death-*"))) == deaths
    assert queue.depth().done == 20
    queue.close()


def test_workers_that_never_live_long_enough_end_the_pool(make_place, tmp_path):
    place = make_place("sqlite")
    queue = open_queue(place.queue)
    queue.enqueue(pairs(3))
    task = write_task(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", decorator="")
    code, _, err = finish(start_work(tmp_path, task, place.queue, place.sink))
    assert code == 1
    assert "5 workers in a row died with signal SIGKILL without finishing an item" in err
    assert queue.depth().ready == 3
    queue.close()


def test_workers_leave_when_their_pool_is_killed(make_place, tmp_path):
    place = make_place("sqlite")
    queue = open_queue(place.queue)
    queue.enqueue(pairs(500))
    log = tmp_path / "pid"
    body = f"def work(item):\n    open({str(log)!r}, 'w').write(str(os.getpid()))\n    time.sleep(0.05)\n    return 1"
    process = start_work(tmp_path, write_task(tmp_path, body, "@stayfast.task(each=True)"), place.queue, place.sink)
    worker = int(until(lambda: log.exists() and log.read_text()))
    process.kill()
    process.communicate()
    until(lambda: not os.path.exists(f"/proc/{worker}") or _is_zombie(worker), 10)
    assert until(lambda: queue.depth().leased == 0, 10)
    queue.close()


def _is_zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] == b"Z"
