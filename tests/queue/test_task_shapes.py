"""Whatever a task is or does to its process: no item is lost, and exit 0 still means finished."""

from __future__ import annotations

import os

import pytest
from work_command import finish, pairs, start_work, until, write_task

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Lease
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.worker.compute import LeasedItem, run_task
from stayfast.batch.worker.task import Task, TaskResultError, load_task
from stayfast.errors import Interrupted, UsageError

LEAVES = """def work(item):
    print("a word on stdout")
    if item["v"] == 2: os._exit(0)
    if item["v"] == 4: os._exit(75)
    if item["v"] == 6: os.closerange(3, 256)
    if item["v"] == 8: sys.stdout.close(), sys.stderr.close()
    return item["v"]"""


def test_a_task_that_ends_or_breaks_its_process_is_a_crash_whatever_the_code(make_place, tmp_path):
    place = make_place("sqlite")
    queue = open_queue(place.queue)
    queue.enqueue(pairs(9))
    task = write_task(tmp_path, LEAVES, "@stayfast.task(each=True)")
    more = ("--chunk", "1", "--prefetch", "0", "--max-failures", "1")
    process = start_work(tmp_path, task, place.queue, place.sink, *more)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert {row.key: row.reason.split(" while")[0] for row in queue.dead()} == {
        "k00002": "its worker died with exit code 0",
        "k00004": "its worker died with exit code 75",
        "k00006": "its worker died with signal SIGKILL",
    }
    assert queue.depth().done == 6
    assert "has closed its pipe" in err
    assert out.count("\n") == 1, "stdout is for the JSON alone"
    assert "a word on stdout" in err
    queue.close()


FORKS = """def work(item):
    pid = os.fork()
    if pid == 0:
        if item["v"] % 2: raise SystemExit(0)
        return "a child's"
    open("children", "a").write(f"{pid}\\n")
    return item["v"]"""


def test_a_process_that_a_task_forked_and_forgot_records_nothing_and_ends(make_place, tmp_path):
    place = make_place("sqlite")
    queue, sink = open_queue(place.queue), open_sink(place.sink)
    queue.enqueue(pairs(6))
    task = write_task(tmp_path, FORKS, "@stayfast.task(each=True)")
    code, told, err = finish(start_work(tmp_path, task, place.queue, place.sink))
    assert (code, told["done"], told["lost"]) == (0, 6, 0), err
    assert [sink.get(key) for key in sink.keys()] == [str(n) for n in range(6)]
    pids = (tmp_path / "children").read_text().split()
    assert len(pids) == 6
    until(lambda: not any(os.path.exists(f"/proc/{pid}/fd/0") for pid in pids))
    queue.close()
    sink.close()


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("@stayfast.task\nasync def work(batch): return batch", "is async; write a plain function"),
        ("@stayfast.task(each=True)\nasync def work(item): yield item", "is async"),
        ("@stayfast.task(each=True)\ndef work(item): yield item", "is a generator; return the results"),
        ("class Model:\n    async def __call__(self, batch): ...\nwork = stayfast.task(Model())", "is async"),
        ("@stayfast.task\ndef work(): return []", "cannot be called with one argument"),
        ("@stayfast.task\ndef work(model, batch): return batch", "missing a required argument: 'batch'"),
        ("raise SystemExit(0)", "cannot be imported: SystemExit: 0"),
        ("raise BaseException('odd')", "cannot be imported: BaseException: odd"),
    ],
)
def test_a_task_that_could_do_no_item_is_refused_before_the_first(tmp_path, monkeypatch, source, sentence):
    name = f"shape_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(f"import stayfast\n{source}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError) as refused:
        load_task(f"{name}:work")
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "source", ["functools.partial(lambda a, batch: batch, 1)", "len", "Model().method", "lambda batch, more=2: batch"]
)
def test_anything_that_takes_one_argument_is_a_task(tmp_path, monkeypatch, source):
    name = f"fine_{abs(hash(source))}"
    model = "class Model:\n    def method(self, batch): return batch\n"
    (tmp_path / f"{name}.py").write_text(f"import functools, stayfast\n{model}work = stayfast.task({source})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(load_task(f"{name}:work"), Task)


@pytest.mark.parametrize("each", [True, False])
def test_a_task_that_says_it_was_interrupted_without_a_notice_has_failed(each):
    def work(_):
        raise Interrupted(75, cause="superseded")

    chunk = [LeasedItem(Lease(n, f"k{n}", "1", 1, 0), 1) for n in range(2)]
    task = Task(work, key=None, each=each)
    settled, unstarted = run_task(task, chunk, lambda: False)
    assert [failure.lease.key for failure in settled.failures] == ["k0", "k1"]
    assert not unstarted
    if each:
        assert run_task(task, chunk[1:], iter((False, True)).__next__)[1] == chunk[1:]
    else:
        with pytest.raises(Interrupted):
            run_task(task, chunk, lambda: True)


def test_a_result_that_is_only_promised_is_the_task_s_fault_and_no_item_s():
    chunk = [LeasedItem(Lease(0, "k0", "1", 1, 0), 1)]
    with pytest.raises(TaskResultError, match="gave a generator as a result"):
        run_task(Task(lambda item: (n for n in [item]), key=None, each=True), chunk, lambda: False)
    with pytest.raises(TaskResultError, match="gave a generator as a result"):
        run_task(Task(lambda batch: [(n for n in batch)], key=None, each=False), chunk, lambda: False)
