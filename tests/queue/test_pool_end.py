"""How ``stayfast work`` ends: 0 only when the queue says so, and numbers that survive a crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from work_command import fill, finish, log_pid, start_work, stayfast, until, write_task

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.sink.open_sink import open_sink

SLOW = "@stayfast.task(each=True)"


def depth(place):
    queue = open_queue(place.queue, create=False)
    try:
        return queue.depth()
    finally:
        queue.close()


def recorded(place) -> int:
    sink = open_sink(place.sink, create=False)
    try:
        return sum(1 for _ in sink.keys())
    finally:
        sink.close()


# -- the code


def test_a_notice_while_no_worker_lives_is_an_interruption(place, tmp_path):
    fill(place, 300)
    log = tmp_path / "pids"
    body = "def work(batch):\n" + log_pid(log) + "    os.kill(os.getpid(), signal.SIGKILL)"
    process = start_work(tmp_path, write_task(tmp_path, body), place.queue, place.sink, "--max-failures", "100")
    until(lambda: log.exists() and len(log.read_text().split()) == 4)  # the fifth starts 1.6 s after this death
    until(lambda: not os.path.exists(f"/proc/{log.read_text().split()[-1]}"))
    os.kill(process.pid, signal.SIGTERM)
    code, told, err = finish(process)
    assert (code, told["code"], told["done"], told["left"]) == (75, 75, 0, 300), err
    assert depth(place).done == 0


def test_a_notice_right_after_the_only_worker_was_killed_is_an_interruption(place, tmp_path):
    fill(place, 300)
    log = tmp_path / "pids"
    body = "def work(item):\n" + log_pid(log) + "    time.sleep(0.02)\n    return 1"
    process = start_work(tmp_path, write_task(tmp_path, body, SLOW), place.queue, place.sink, "--chunk", "5")
    until(lambda: log.exists() and len(log.read_text().split()) > 10)
    os.kill(int(log.read_text().split()[-1]), signal.SIGKILL)
    os.kill(process.pid, signal.SIGTERM)
    code, told, err = finish(process)
    assert (code, told["code"]) == (75, 75), err
    assert told["queue"]["done"] == depth(place).done == recorded(place)
    assert told["left"] == 300 - told["queue"]["done"] > 0


def test_a_pool_does_not_finish_while_another_holds_items(place, tmp_path):
    fill(place, 10)
    other = open_queue(place.queue)
    held = other.claim(4)
    task = write_task(tmp_path, "def work(batch): return [1] * len(batch)")
    process = start_work(tmp_path, task, place.queue, place.sink)
    until(lambda: other.depth().done == 6)
    for _ in range(30):
        time.sleep(0.1)
        other.renew(other.handles(held))
    assert process.poll() is None
    other.release(held)
    code, told, err = finish(process)
    assert (code, told["done"], told["left"]) == (0, 10, 0), err
    other.close()


def test_a_notice_while_another_pool_holds_the_rest_is_an_interruption(place, tmp_path):
    fill(place, 10)
    other = open_queue(place.queue)
    other.claim(4)
    task = write_task(tmp_path, "def work(batch): return [1] * len(batch)")
    process = start_work(tmp_path, task, place.queue, place.sink)
    until(lambda: other.depth().done == 6)
    os.kill(process.pid, signal.SIGTERM)
    code, told, err = finish(process)
    assert (code, told["done"], told["left"]) == (75, 6, 4), err
    other.close()


def test_the_outcome_line_says_interrupted_when_the_interrupted_code_is_0(place, tmp_path):
    fill(place, 50)
    log = tmp_path / "pids"
    outcome = tmp_path / "outcome"
    body = "def work(item):\n" + log_pid(log) + "    time.sleep(0.1)\n    return 1"
    process = start_work(
        tmp_path,
        write_task(tmp_path, body, SLOW),
        place.queue,
        place.sink,
        STAYFAST_INTERRUPTED_CODE="0",
        STAYFAST_OUTCOME_FILE=str(outcome),
    )
    until(log.exists)
    os.kill(process.pid, signal.SIGTERM)
    code, told, err = finish(process)
    assert (code, told["code"]) == (0, 0), err
    line = json.loads(outcome.read_text())
    assert (line["outcome"], line["code"]) == ("interrupted", 0)
    assert told["outcome"] == "interrupted"


# -- the numbers


def test_a_pool_that_gives_up_counts_what_was_done_before(place, tmp_path):
    """Every worker does some items, and is killed before it can report its progress at the usual interval."""
    fill(place, 400)
    seen = tmp_path / "seen"
    body = (
        "def work(item):\n"
        f"    with open({str(seen)!r}, 'a') as file: file.write('x')\n"
        f"    if os.path.getsize({str(seen)!r}) > 120: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return 1"
    )
    task = write_task(tmp_path, body, SLOW)
    more = ("--chunk", "10", "--prefetch", "0", "--max-failures", "1000")
    code, told, err = finish(start_work(tmp_path, task, place.queue, place.sink, *more))
    now = depth(place)
    assert code == 1
    assert "5 workers in a row died with signal SIGKILL without finishing an item" in err
    assert now.done == recorded(place) >= 100
    assert told["queue"]["done"] == now.done
    assert now.done - 10 <= told["done"] <= now.done, "at most the last chunk is not in the count of a killed worker"
    assert told["left"] == 400 - now.done - now.dead


def test_workers_that_are_killed_again_and_again_and_yet_get_on_do_not_end_the_pool(place, tmp_path):
    """Each of them finishes items in less than the interval at which progress used to be reported."""
    fill(place, 100)
    body = (
        "count = 0\ndef work(item):\n    global count\n    count += 1\n"
        "    if count > 12: os.kill(os.getpid(), signal.SIGKILL)\n    return 1"
    )
    (tmp_path / "job.py").write_text("import os, signal, stayfast\n" + body.replace("def work", SLOW + "\ndef work"))
    more = ("--chunk", "1", "--prefetch", "0", "--max-failures", "1000", "--backoff", "0.01")
    code, told, err = finish(start_work(tmp_path, "job:work", place.queue, place.sink, *more))
    assert (code, told["left"]) == (0, 0), err
    assert recorded(place) == depth(place).done == told["queue"]["done"] == 100
    assert told["queue"]["done"] - 20 <= told["done"] <= 100, "at most the last item of each worker is not in its count"


def test_the_line_for_people_names_what_is_left(make_place, tmp_path):
    place = make_place("sqlite")
    fill(place, 20)
    write_task(tmp_path, "def work(batch): return [stayfast.Failed('no', retry=False)] + [1] * (len(batch) - 1)")
    done = stayfast("work", "job:work", "--queue", place.queue, "--sink", place.sink, cwd=tmp_path)
    assert done.returncode == 0
    assert "19 done, 0 skipped, 1 failed, 1 dead" in done.stderr
    assert "the queue holds 0 unfinished items, 19 done and 1 dead" in done.stderr


# -- all of it in a storm


@pytest.mark.timeout(300)
def test_a_storm_never_ends_with_0_while_items_are_left(place):
    options = {"queue": place.queue, "sink": place.sink, "rounds": 9, "items": 100, "seed": 31, "seconds": 12}
    storm = Path(__file__).resolve().parent / "pool_storm.py"
    done = subprocess.run(
        [sys.executable, str(storm), json.dumps(options)], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["codes"]["0"] >= 1
    assert told["kills"] + told["terms"] >= 1
