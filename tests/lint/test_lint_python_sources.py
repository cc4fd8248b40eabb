"""Python files: handlers of SIGTERM that end as if the work were done."""

from __future__ import annotations

import pytest
from lint_cases import lint

from stayfast.lint.readers.python_source import zero_exits

BAD = {
    "through another function": "import signal, sys\ndef leave():\n    sys.exit(0)\ndef h(s, f):\n"
    "    save()\n    leave()\nsignal.signal(signal.SIGTERM, h)\n",
    "sys.exit": "import signal, sys\ndef h(s, f):\n    save()\n    sys.exit(0)\nsignal.signal(signal.SIGTERM, h)\n",
    "no argument": "import signal, sys\ndef h(s, f):\n    sys.exit()\nsignal.signal(signal.SIGTERM, h)\n",
    "os._exit": "import signal, os\ndef h(s, f):\n    os._exit(0)\nsignal.signal(signal.SIGTERM, h)\n",
    "constant": "import signal, sys\nOK = 0\ndef h(s, f):\n    sys.exit(OK)\nsignal.signal(signal.SIGTERM, h)\n",
    "EX_OK": "import signal, sys, os\ndef h(s, f):\n    sys.exit(os.EX_OK)\nsignal.signal(signal.SIGTERM, h)\n",
    "raise": "import signal\ndef h(s, f):\n    raise SystemExit(0)\nsignal.signal(signal.SIGTERM, h)\n",
    "bare raise": "import signal\ndef h(s, f):\n    raise SystemExit\nsignal.signal(signal.SIGTERM, h)\n",
    "lambda": "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n",
    "method": "import signal, sys\nclass T:\n    def __init__(self):\n        signal.signal(signal.SIGTERM, self.h)\n"
    "    def h(self, s, f):\n        sys.exit(0)\n",
    "loop": "import signal, sys\ndef h(s, f):\n    sys.exit(0)\n"
    "for s in (signal.SIGINT, signal.SIGTERM):\n    signal.signal(s, h)\n",
    "asyncio": "import signal, sys\ndef h():\n    sys.exit(0)\nloop.add_signal_handler(signal.SIGTERM, h)\n",
    "from import": "from signal import signal, SIGTERM\nimport sys\ndef h(s, f):\n    sys.exit(0)\n"
    "signal(SIGTERM, h)\n",
    "flag": "import signal, sys\nstop = False\ndef h(s, f):\n    global stop\n    stop = True\n"
    "signal.signal(signal.SIGTERM, h)\nwhile True:\n    if stop:\n        save()\n        sys.exit(0)\n",
    "event": "import signal, sys, threading\nstop = threading.Event()\ndef h(s, f):\n    stop.set()\n"
    "signal.signal(signal.SIGTERM, h)\nif stop.is_set():\n    sys.exit(0)\n",
    "other names of modules": "import os as o, signal as sg\ndef h(*_):\n    o._exit(0)\nsg.signal(sg.SIGTERM, h)\n",
    "another name of exit": "import signal\nfrom sys import exit as bye_exit\ndef h(*_):\n    bye_exit(0)\n"
    "signal.signal(signal.SIGTERM, h)\n",
    "partial": "import functools, signal, sys\ndef h(model, s, f):\n    save(model)\n    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, functools.partial(h, model))\n",
    "a number": "import signal, sys\ndef h(s, f):\n    sys.exit(0)\nsignal.signal(15, h)\n",
    "by name": "import signal, sys\ndef h(s, f):\n    sys.exit(0)\nsignal.signal(getattr(signal, 'SIGTERM'), h)\n",
    "a tuple of signals": "import signal, sys\nSTOP = (signal.SIGINT, signal.SIGTERM)\ndef h(s, f):\n    sys.exit(0)\n"
    "for each in STOP:\n    signal.signal(each, h)\n",
    "a comprehension": "import signal, sys\ndef h(s, f):\n    sys.exit(0)\n"
    "[signal.signal(s, h) for s in (signal.SIGTERM, signal.SIGHUP)]\n",
    "a task": "import asyncio, signal, sys\nasync def shutdown():\n    sys.exit(0)\nasync def main():\n"
    "    loop = asyncio.get_running_loop()\n"
    "    loop.add_signal_handler(signal.SIGTERM, lambda: asyncio.create_task(shutdown()))\n",
    "a typed constant": "import signal, sys\nEXIT_CODE: int = 0\ndef h(s, f):\n    sys.exit(EXIT_CODE)\n"
    "signal.signal(signal.SIGTERM, h)\n",
    "after the loop": "import signal, sys\nclass Killer:\n    kill_now = False\n    def __init__(self):\n"
    "        signal.signal(signal.SIGTERM, self.exit_gracefully)\n    def exit_gracefully(self, *args):\n"
    "        self.kill_now = True\nkiller = Killer()\nwhile not killer.kill_now:\n    step()\nsave()\nsys.exit(0)\n",
    "a method of its own": "import signal, sys\nclass T:\n    def start(self):\n"
    "        signal.signal(signal.SIGTERM, self.on)\n    def on(self, s, f):\n        self.leave()\n"
    "    def leave(self):\n        sys.exit(0)\n",
    "else": "import signal, sys\ndef h(s, f):\n    global stop\n    stop = True\nsignal.signal(signal.SIGTERM, h)\n"
    "if not stop:\n    step()\nelse:\n    sys.exit(0)\n",
}
GOOD = {
    "only when finished": "import signal, sys\ndef h(s, f):\n    if finished:\n        sys.exit(0)\n    sys.exit(75)\n"
    "signal.signal(signal.SIGTERM, h)\n",
    "not stopped": "import signal, sys\ndef h(s, f):\n    global stop\n    stop = True\n"
    "signal.signal(signal.SIGTERM, h)\nif not stop:\n    sys.exit(0)\nsys.exit(75)\n",
    "a method of something else": "import signal, sys\ndef train():\n    sys.exit(0)\ndef h(s, f):\n    model.train()\n"
    "    sys.exit(75)\nsignal.signal(signal.SIGTERM, h)\n",
    "the loop may end by itself": "import signal, sys\ndef h(s, f):\n    global stop\n    stop = True\n"
    "signal.signal(signal.SIGTERM, h)\nwhile not stop:\n    if last:\n        break\nsys.exit(0)\n",
    "a choice": "import signal, sys\ndef h(s, f):\n    sys.exit(0 if ok else 75)\nsignal.signal(signal.SIGTERM, h)\n",
    "ignored": "import signal, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ndef main():\n    sys.exit(0)\n",
    "an attribute called exit": "import signal\ndef h(s, f):\n    pool.exit(0)\n    raise SystemExit(143)\n"
    "signal.signal(signal.SIGTERM, h)\n",
    "75": "import signal, sys\ndef h(s, f):\n    sys.exit(75)\nsignal.signal(signal.SIGTERM, h)\n",
    "143": "import signal, sys\ndef h(s, f):\n    sys.exit(128 + s)\nsignal.signal(signal.SIGTERM, h)\n",
    "only a flag": "import signal\ndef h(s, f):\n    global stop\n    stop = True\nsignal.signal(signal.SIGTERM, h)\n",
    "another signal": "import signal, sys\ndef h(s, f):\n    sys.exit(0)\nsignal.signal(signal.SIGINT, h)\n# SIGTERM\n",
    "main exits": "import signal, sys\nsignal.signal(signal.SIGTERM, signal.SIG_DFL)\nsys.exit(0)\n",
    "finished": "import signal, sys\ndef h(s, f):\n    global stop\n    stop = True\nsignal.signal(signal.SIGTERM, h)\n"
    "if done:\n    sys.exit(0)\n",
    "empty": "",
}


@pytest.mark.parametrize("name", BAD)
def test_found_with_its_line(name):
    report = lint(train__py=BAD[name])
    assert [finding.rule for finding in report.findings] == ["SF103"]
    line = BAD[name].split("\n")[report.findings[0].line - 1]
    assert "xit" in line


@pytest.mark.parametrize("name", GOOD)
def test_left_alone(name):
    assert lint(train__py=GOOD[name]).findings == []


def test_what_is_not_python_is_one_finding():
    assert zero_exits("SIGTERM = (") is None
    assert [f.message for f in lint(x__py="SIGTERM (((").findings] == ["not Python: it cannot be parsed"]
    assert zero_exits("SIGTERM\n" + "(" * 5000) is None
