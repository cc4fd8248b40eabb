"""An exception that arrives after a notice is an interruption: 75, and what is saved is the state of a boundary."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from runtime_children import Ended, python

from stayfast.runtime.run_record.record import RunRecord, decode

PROGRAM = """
    import os, signal, sys, threading, time
    import stayfast
    from stayfast.runtime.checkpoint.policies import EverySteps

    total = [0.0]

    def state():
        time.sleep(float(os.environ.get("SLOW_SAVE", "0")))
        return {"total": total[0]}

    def load(saved):
        total[0] = saved["total"]

    def bang(*_):
        raise RuntimeError("DataLoader worker (pid 1) exited unexpectedly")

    def alarm_after_notice(seconds):
        while run.notice is None:
            time.sleep(0.005)
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.005)

    def raise_it(name):
        if name in ("SystemExit0", "SystemExit3"):
            sys.exit(int(name[-1]))
        raise {"Assertion": AssertionError, "EOF": EOFError, "Connection": ConnectionResetError,
               "Keyboard": KeyboardInterrupt}[name]("from the program")

    how, at = sys.argv[2], int(sys.argv[3])
    with stayfast.run(sys.argv[1], 6, cadence=EverySteps(2)) as run:
        run.track(total=(state, load))
        for step in run.steps():
            assert total[0] == step, (total, step)
            total[0] += 0.5  # in the middle of a step the state is that of no boundary
            if how != "plain" and step == at:
                print("step", flush=True)
                if how.startswith("alarm"):
                    signal.signal(signal.SIGALRM, bang)
                    threading.Thread(target=alarm_after_notice, args=(float(how[5:]),), daemon=True).start()
                    time.sleep(0.3)
                elif how.startswith("before"):
                    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
                    raise_it(how[6:])
                else:
                    while run.notice is None:
                        time.sleep(0.005)
                    raise_it(how)
            total[0] += 0.5
    print("total", total[0])
"""


def head(where: Path) -> RunRecord:
    return decode((where / "run" / "HEAD.json").read_bytes())


def interrupted(where: Path, how: str, at: int = 3, **variables: object) -> Ended:
    child = python(PROGRAM, f"file://{where}/run", how, str(at), **variables)
    child.wait_for("step")
    if not how.startswith("before"):
        child.send(signal.SIGTERM)
    return child.end(40)


def resumes_exactly(where: Path) -> None:
    ended = python(PROGRAM, f"file://{where}/run", "plain", "0").end(40)
    assert ended.code == 0, ended.err
    assert "total 6.0" in ended.out


@pytest.mark.parametrize("error", ["Assertion", "EOF", "Connection", "Keyboard", "SystemExit0", "SystemExit3"])
def test_an_exception_in_the_step_is_an_interruption_and_the_torn_step_is_not_saved(tmp_path: Path, error: str) -> None:
    ended = interrupted(tmp_path, error)
    assert ended.code == 75, ended.err
    assert ended.report["outcome"] == "interrupted"
    assert ended.report["cause"] == "unknown"
    assert ended.report["saved"] == "step 1", "the newest checkpoint at a boundary"
    assert (head(tmp_path).current_attempt.outcome, head(tmp_path).finished) == ("interrupted", False)
    if not error.startswith("SystemExit"):
        assert "from the program" in ended.err, "a real error is not hidden"
        assert "Traceback" in ended.err
    resumes_exactly(tmp_path)


@pytest.mark.parametrize("error", ["EOF", "SystemExit0"])
def test_an_exception_just_before_the_notice_is_an_interruption_too(tmp_path: Path, error: str) -> None:
    ended = interrupted(tmp_path, f"before{error}")
    assert ended.code == 75, ended.err
    resumes_exactly(tmp_path)


@pytest.mark.parametrize(("delay", "saved"), [(0.02, "step 1"), (0.6, "step 3")])
def test_a_foreign_signal_handler_that_raises_never_ends_the_last_save(
    tmp_path: Path, delay: float, saved: str
) -> None:
    """It raises every 5 ms from this moment on: first inside the step, then inside the save of a complete step."""
    ended = interrupted(tmp_path, f"alarm{delay}", SLOW_SAVE=0 if delay < 0.3 else 1.5)
    assert ended.code == 75, ended.err
    assert ended.report["saved"] == saved
    resumes_exactly(tmp_path)


OTHER_LOOPS = """
    import signal, sys, time
    import stayfast

    def bang(*_):
        raise RuntimeError("DataLoader worker (pid 1) exited unexpectedly")

    count, how = [0], sys.argv[2]
    signal.signal(signal.SIGALRM, bang)
    if how == "guard":
        with stayfast.guard() as guard:
            guard.on_drain(lambda: print("drained", flush=True))
            print("step", flush=True)
            while not guard.notice:
                time.sleep(0.005)
            raise EOFError("from the program")
    with stayfast.run(sys.argv[1], 6) as run:
        run.on_drain(lambda: print("drained", flush=True))
        run.track(count=(lambda: count[0], lambda saved: count.__setitem__(0, saved)))
        for step in range(run.restore(), 6):
            assert count[0] == step
            count[0] += 1
            if how == "told" and step == 2:
                print("step", flush=True)
                while not run.notice:
                    time.sleep(0.005)
            if run.should_stop(step):
                break
            if how == "torn" and step == 2:
                print("step", flush=True)
                while not run.notice:
                    time.sleep(0.005)
                count[0] += 1
                raise EOFError("from the program")
        if run.notice:
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            time.sleep(0.1)
    print("count", count[0])
"""


@pytest.mark.parametrize("how", ["guard", "told", "torn"])
def test_the_guard_and_loops_of_the_programs_own(tmp_path: Path, how: str) -> None:
    url = f"file://{tmp_path}/run"
    child = python(OTHER_LOOPS, url, how)
    child.wait_for("step")
    child.send(signal.SIGTERM)
    ended = child.end(40)
    assert ended.code == 75, ended.err
    assert "drained" in ended.out
    if how != "guard":
        assert ended.report["saved"] == ("step 2" if how == "told" else "nothing")
        again = python(OTHER_LOOPS, url, "plain").end(40)
        assert "count 6" in again.out, again.err
