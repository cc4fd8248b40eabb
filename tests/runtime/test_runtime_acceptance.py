"""Real processes and real signals: what the issue promises, end to end."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from runtime_children import Child, environment, python

COUNTER = """
    import sys, time
    import stayfast
    with stayfast.run(sys.argv[1], total_steps=int(sys.argv[2])) as run:
        run.on_drain(lambda: print("drained", flush=True), name="tell")
        for step in run.steps():
            print("step", step, flush=True)
            time.sleep(float(sys.argv[3]))
    print("all done", flush=True)
"""


def steps_in(out: str) -> list[int]:
    return [int(line.split()[1]) for line in out.splitlines() if line.startswith("step ")]


def test_sigterm_mid_step_drains_and_leaves_with_75_and_the_next_attempt_ends_with_0(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/run"
    child = python(COUNTER, url, "6", "0.3")
    child.wait_for("step 2")
    child.send()
    first = child.end()
    assert first.code == 75
    assert first.seconds < 3
    assert "drained" in first.out
    assert "all done" not in first.out
    assert first.report["outcome"] == "interrupted"
    assert first.report["saved"] == "step 2"
    assert first.report["attempt"] == 1
    assert [step["name"] for step in first.report["drain"]] == ["save", "tell"]

    second = python(COUNTER, url, "6", "0").end()
    assert second.code == 0
    assert steps_in(second.out) == [3, 4, 5]
    assert "all done" in second.out
    assert second.report["attempt"] == 2


def test_a_sigkill_loses_only_what_was_not_committed(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/run"
    child = python(COUNTER, url, "6", "0.2", STAYFAST_CHECKPOINT_SECONDS="0.01")
    child.wait_for("step 3")
    child.send(signal.SIGKILL)
    child.end()
    second = python(COUNTER, url, "6", "0").end()
    assert second.code == 0
    assert steps_in(second.out)[0] in (2, 3)
    assert steps_in(second.out)[-1] == 5


def test_sigterm_while_c_holds_the_interpreter_is_stamped_when_it_arrived() -> None:
    """Nothing of ours can run for most of a second, yet the notice says when the signal really came."""
    child = python(
        """
        import time
        import stayfast
        started = time.process_time()
        sum(range(1_000_000))
        BIG = int(1_000_000 * 0.9 / (time.process_time() - started))
        with stayfast.run(total_steps=3) as run:
            for step in run.steps():
                print("blocking", flush=True)
                sum(range(BIG))
                time.sleep(0.05)
                print("stamp", run.notice.received_at, time.monotonic(), flush=True)
        """
    )
    child.wait_for("blocking")
    time.sleep(0.15)  # well inside the C call
    sent = child.send()
    ended = child.end()
    stamp, seen = (float(word) for word in ended.out.split("stamp")[1].split()[:2])
    assert ended.code == 75
    assert -0.001 < stamp - sent < 0.1, "stamped when the call was over"
    assert seen - sent > 0.2, "the call was too short to prove anything"


def test_the_step_in_which_a_signal_comes_is_the_last_however_short_steps_are() -> None:
    child = python(
        """
        import os, signal, stayfast
        with stayfast.run(total_steps=10_000_000) as run:
            for step in run.steps():
                if step == 5:
                    os.kill(os.getpid(), signal.SIGTERM)
        """
    )
    ended = child.end()
    assert (ended.code, ended.report["step"]) == (75, 5)


def test_a_drain_step_that_hangs_is_left_behind_before_the_deadline() -> None:
    child = python(
        """
        import time, stayfast
        with stayfast.run() as run:
            run.on_drain(lambda: time.sleep(60), name="hangs")
            for step in run.steps():
                print("step", flush=True)
                time.sleep(0.02)
        """,
        STAYFAST_GRACE_SECONDS="2",
        STAYFAST_MARGIN_SECONDS="1",
    )
    child.wait_for("step")
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert 0.9 < ended.seconds < 2
    assert ended.report["detail"] == "the deadline came before the drain was over"


SWALLOWERS = {
    "in the body": """
        for step in run.steps():
            try:
                print("step", step, flush=True); time.sleep(0.05)
            except BaseException:
                pass
        """,
    "around the loop": """
        try:
            for step in run.steps():
                print("step", step, flush=True); time.sleep(0.05)
        except BaseException:
            pass
        """,
    "except Exception around the loop": """
        try:
            for step in run.steps():
                print("step", step, flush=True); time.sleep(0.05)
        except Exception:
            print("swallowed")
        """,
    "again and again": """
        while True:
            try:
                for step in run.steps():
                    print("step", step, flush=True); time.sleep(0.05)
            except BaseException as error:
                print("again", flush=True)
                if "again" in seen:
                    break
                seen.append("again")
        """,
}


@pytest.mark.parametrize("where", SWALLOWERS)
def test_user_code_that_swallows_exceptions_cannot_swallow_the_interruption(where: str) -> None:
    loop = SWALLOWERS[where].replace("\n        ", "\n    ")
    source = f"import time, stayfast\nseen = []\nwith stayfast.run() as run:\n    {loop}\nprint('after the block')\n"
    child = python(source)
    child.wait_for("step 1")
    child.send()
    ended = child.end()
    assert ended.code == 75, ended.err
    assert ended.seconds < 3
    assert "after the block" not in ended.out
    assert "swallowed" not in ended.out
    assert ended.report["outcome"] == "interrupted"


@pytest.mark.parametrize("tail", ["", "sys.exit(0)", "raise ValueError('late')"])
def test_swallowing_the_interruption_outside_the_block_does_not_make_the_exit_code_lie(tail: str) -> None:
    child = python(
        f"""
        import atexit, sys, time, stayfast
        atexit.register(lambda: print("exit handler ran", flush=True))
        try:
            with stayfast.run() as run:
                for step in run.steps():
                    print("step", flush=True); time.sleep(0.02)
        except BaseException:
            pass
        print("not flushed by hand")
        {tail}
        """
    )
    child.wait_for("step")
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert "not flushed by hand" in ended.out
    assert ended.out.count("exit handler ran") == 1


def test_threads_that_never_end_do_not_keep_the_process() -> None:
    child = python(
        """
        import threading, time, stayfast
        def forever():
            while True:
                time.sleep(0.01)
        for _ in range(30):
            threading.Thread(target=forever).start()
        with stayfast.run() as run:
            for step in run.steps():
                print("step", flush=True); time.sleep(0.02)
        """,
        STAYFAST_GRACE_SECONDS="2.5",
    )
    child.wait_for("step")
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert ended.seconds < 2.5
    assert ended.report["seconds_used"] < 1


def test_a_finalizer_that_hangs_after_the_program_does_not_keep_the_process() -> None:
    """As multiprocessing's Pool does when a signal to the process group has ended its workers."""
    child = python(
        """
        import time, stayfast
        class Hangs:
            def __del__(self):
                time.sleep(60)
        def main():
            held = Hangs()
            with stayfast.run(total_steps=1000) as run:
                for step in run.steps():
                    print("step", flush=True)
                    time.sleep(0.02)
        main()
        """,
        STAYFAST_GRACE_SECONDS="6",
        STAYFAST_MARGIN_SECONDS="1",
    )
    child.wait_for("step")
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert 4 < ended.seconds < 7


def test_signals_after_the_end_of_the_block_do_not_change_the_code() -> None:
    """Launchers forward twice; the second one may come when the handlers are back already."""
    child = python(
        """
        import atexit, time, stayfast
        def slow():
            print("leaving", flush=True); time.sleep(0.4)
        atexit.register(slow)
        with stayfast.run() as run:
            for step in run.steps():
                print("step", flush=True); time.sleep(0.02)
        """
    )
    child.wait_for("step")
    child.send()
    child.wait_for("leaving")
    child.send(signal.SIGTERM)
    child.send(signal.SIGINT)
    assert child.end().code == 75


def test_a_second_ctrl_c_after_more_than_a_second_means_now() -> None:
    child = python(
        """
        import time, stayfast
        with stayfast.run() as run:
            for step in run.steps():
                print("step", flush=True); time.sleep(30)
        """
    )
    child.wait_for("step")
    child.send(signal.SIGINT)
    time.sleep(0.2)
    child.send(signal.SIGINT)
    time.sleep(1.1)
    assert child.process.poll() is None, "two within a second are one"
    child.send(signal.SIGINT)
    ended = child.end()
    assert ended.code == 75
    assert ended.seconds < 1.5
    assert ended.report["cause"] == "cancellation"


def test_the_extra_signal_is_a_notice_and_others_stay_the_programs() -> None:
    child = python(
        """
        import signal, time, stayfast
        signal.signal(signal.SIGUSR2, lambda *_: print("mine", flush=True))
        with stayfast.run() as run:
            for step in run.steps():
                print("step", flush=True); time.sleep(0.02)
        """,
        STAYFAST_EXTRA_SIGNAL="usr1",
    )
    child.wait_for("step")
    child.send(signal.SIGUSR2)
    child.wait_for("mine")
    assert child.process.poll() is None
    child.send(signal.SIGUSR1)
    ended = child.end()
    assert ended.code == 75
    assert ended.report["detail"] == "SIGUSR1"


def test_a_signalled_child_process_does_not_look_like_a_notice_to_its_parent() -> None:
    child = python(
        """
        import multiprocessing, os, signal, time, stayfast
        def work():
            print("worker", os.getpid(), flush=True); time.sleep(30)
        context = multiprocessing.get_context("fork")
        with stayfast.run(total_steps=40) as run:
            workers = [context.Process(target=work) for _ in range(3)]
            for step in run.steps():
                if step == 0:
                    for worker in workers: worker.start()
                if step == 5:
                    for worker in workers: os.kill(worker.pid, signal.SIGTERM)
                    for worker in workers: worker.join()
                    print("codes", [worker.exitcode for worker in workers], flush=True)
                time.sleep(0.01)
            print("notice", run.notice)
        """
    )
    ended = child.end()
    assert ended.code == 0, ended.err
    assert "codes [-15, -15, -15]" in ended.out
    assert "notice None" in ended.out


def test_a_child_forked_by_c_code_does_not_look_like_a_notice_either() -> None:
    """No hook of Python's runs in it: it keeps our handlers and our socket, and only the sender's id tells."""
    child = python(
        """
        import ctypes, os, signal, time, stayfast
        libc = ctypes.PyDLL(None)
        with stayfast.run(total_steps=30) as run:
            for step in run.steps():
                if step == 3:
                    pid = libc.fork()
                    if pid == 0:
                        libc.pause()
                        libc._exit(0)
                    time.sleep(0.1)
                    os.kill(pid, signal.SIGTERM)
                    os.waitpid(pid, 0)
                time.sleep(0.01)
            print("notice", run.notice)
        """
    )
    ended = child.end()
    assert ended.code == 0, ended.err
    assert "notice None" in ended.out


def test_a_forked_child_that_unwinds_the_block_ends_nothing(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/run"
    child = python(
        """
        import os, sys, stayfast
        with stayfast.run(sys.argv[1], total_steps=4) as run:
            for step in run.steps():
                if step == 1:
                    pid = os.fork()
                    if pid == 0:
                        sys.exit(3)
                    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
                if step == 2:
                    pid = os.fork()
                    if pid == 0:
                        break
                    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        print("over in", "parent" if pid else "child", step, flush=True)
        """,
        url,
    )
    ended = child.end()
    assert ended.code == 0, ended.err
    assert "child 3" in ended.out
    assert "over in child 2" in ended.out
    assert "over in parent 3" in ended.out
    assert len(ended.reports) == 1
    head = json.loads((tmp_path / "run" / "HEAD.json").read_text())
    assert head["attempt"] == 1
    assert head["finished"] is True
    assert head["checkpoints"][0]["step"] == 3


def test_asyncio_taking_the_wake_up_descriptor_does_not_lose_the_notice() -> None:
    child = python(
        """
        import asyncio, signal, stayfast
        async def main(guard):
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: print("usr1", flush=True))
            print("ready", flush=True)
            while not guard.should_stop():
                await asyncio.sleep(0.02)
        with stayfast.guard() as guard:
            asyncio.run(main(guard))
        """
    )
    child.wait_for("ready")
    child.send(signal.SIGUSR1)
    child.wait_for("usr1")
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert ended.seconds < 2


def test_an_asyncio_loop_around_the_guard_keeps_its_own_signals() -> None:
    child = python(
        """
        import asyncio, signal, stayfast
        async def main():
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: print("usr1", flush=True))
            with stayfast.guard() as guard:
                print("ready", flush=True)
                while not guard.should_stop():
                    await asyncio.sleep(0.02)
        asyncio.run(main())
        """
    )
    child.wait_for("ready")
    child.send(signal.SIGUSR1)
    child.wait_for("usr1")
    child.send()
    assert child.end().code == 75


def test_a_timer_that_floods_the_wake_up_socket_does_not_lose_the_notice() -> None:
    child = python(
        """
        import signal, time, stayfast
        signal.signal(signal.SIGALRM, lambda *_: None)
        started = time.monotonic()
        sum(range(1_000_000))
        BIG = int(1_000_000 * 0.9 / (time.monotonic() - started))
        with stayfast.run() as run:
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            for step in run.steps():
                print("step", flush=True)
                sum(range(BIG))
        """
    )
    child.wait_for("step")
    time.sleep(0.4)
    child.send()
    ended = child.end()
    assert ended.code == 75, ended.err
    assert ended.seconds < 10  # a step or two on a busy machine, not the whole grace


def test_off_the_main_thread_it_warns_and_the_other_sources_still_work(tmp_path: Path) -> None:
    file = tmp_path / "notice"
    child = python(
        """
        import threading, time, stayfast
        def work():
            try:
                with stayfast.run() as run:
                    for step in run.steps():
                        print("step", flush=True); time.sleep(0.02)
            except SystemExit as leaving:
                print("left with", leaving.code, leaving.cause, flush=True)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """,
        STAYFAST_NOTICE_FILE=file,
    )
    child.wait_for("step")
    file.write_text("defragmentation\n")
    ended = child.end()
    assert "left with 75 unknown" in ended.out
    assert "signals cannot be watched off the main thread" in ended.err
    assert ended.code == 75
    assert ended.report["detail"].endswith("notice: defragmentation")


@pytest.mark.parametrize("moment", ["entry", "exit", "between"])
def test_sigterm_at_awkward_moments(tmp_path: Path, moment: str) -> None:
    """While the run is being claimed, between two steps, and while the last commit is under way."""
    child = python(
        """
        import os, signal, sys, threading, time
        import stayfast
        from stayfast.storage.stores.file import FileStore
        moment, real, count = sys.argv[2], FileStore.put, [0]
        def put(self, key, data, **options):
            count[0] += 1
            if moment == "entry" and count[0] == 1 or moment == "exit" and count[0] == 3:
                os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.1)
            return real(self, key, data, **options)
        FileStore.put = put
        with stayfast.run(sys.argv[1], total_steps=2) as run:
            for step in run.steps():
                print("step", step, flush=True)
                if moment == "between" and step == 0:
                    os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.05)
        print("finished", flush=True)
        """,
        f"file://{tmp_path}/run",
        moment,
    )
    ended = child.end()
    if moment == "exit":  # the work was done already; saying so is the truth
        assert ended.code == 0
        assert "finished" in ended.out
    else:
        assert ended.code == 75
        assert steps_in(ended.out) == ([] if moment == "entry" else [0])
    second = python(COUNTER, f"file://{tmp_path}/run", "2", "0").end()
    assert second.code == 0
    assert steps_in(second.out) == {"entry": [0, 1], "between": [1], "exit": []}[moment]


def test_interrupted_code_0_is_for_deployments() -> None:
    child = python(COUNTER, "memory://run", "1000", "0.02", STAYFAST_INTERRUPTED_CODE="0")
    child.wait_for("step 1")
    child.send()
    ended = child.end()
    assert ended.code == 0
    assert "all done" not in ended.out
    assert ended.report["outcome"] == "interrupted"
    assert ended.report["code"] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="a new PID namespace needs root")
def test_as_pid_1_of_a_fresh_namespace() -> None:
    import shutil
    import subprocess
    import sys
    import textwrap

    unshare = shutil.which("unshare")
    works = (
        unshare
        and subprocess.run([unshare, "-p", "-f", "--mount-proc", "true"], capture_output=True, check=False).returncode
        == 0
    )
    if not works:
        pytest.skip("unshare -p -f --mount-proc is not possible here")
    program = textwrap.dedent(
        """
        import os, subprocess, time, stayfast
        subprocess.Popen(["sh", "-c", "sleep 0.1 & sleep 0.1 &"]).wait()   # orphans for PID 1 to reap
        with stayfast.run() as run:
            for step in run.steps():
                if step == 20:
                    states = [open(f"/proc/{p}/stat").read() for p in os.listdir("/proc") if p.isdigit()]
                    zombies = [state for state in states if ") Z" in state]
                    print("zombies", len(zombies), "pid", os.getpid(), "parent", os.getppid(), flush=True)
                time.sleep(0.02)
        """
    )
    command = [str(unshare), "-p", "-f", "--mount-proc", sys.executable, "-m", "stayfast", "exec", "--"]
    child = Child([*command, sys.executable, "-c", program], environment())
    line = child.wait_for("zombies")
    assert "zombies 0" in line
    assert "parent 1" in line
    pid_1 = int(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()[0])
    sent = time.monotonic()
    os.kill(pid_1, signal.SIGTERM)
    ended = child.end()
    assert ended.code == 75
    assert time.monotonic() - sent < 3
    assert [report["action"] for report in ended.reports] == ["attempt_ended", "program_ended"]
