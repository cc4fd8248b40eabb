"""Python files: handlers of SIGTERM that end as if the work were done."""

from __future__ import annotations

import pytest
from lint_cases import lint

from holdfast.lint.pysource import zero_exits

BAD = {
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
    "loop": "import signal, sys\ndef h(s, f):\n    sys.exit(0)\nfor s in (signal.SIGINT, signal.SIGTERM):\n    signal.signal(s, h)\n",
    "asyncio": "import signal, sys\ndef h():\n    sys.exit(0)\nloop.add_signal_handler(signal.SIGTERM, h)\n",
    "from import": "from signal import signal, SIGTERM\nimport sys\ndef h(s, f):\n    sys.exit(0)\nsignal(SIGTERM, h)\n",
    "flag": "import signal, sys\nstop = False\ndef h(s, f):\n    global stop\n    stop = True\nsignal.signal(signal.SIGTERM, h)\n"
    "while True:\n    if stop:\n        save()\n        sys.exit(0)\n",
    "event": "import signal, sys, threading\nstop = threading.Event()\ndef h(s, f):\n    stop.set()\n"
    "signal.signal(signal.SIGTERM, h)\nif stop.is_set():\n    sys.exit(0)\n",
}
GOOD = {
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
    assert [finding.rule for finding in report.findings] == ["HF103"]
    line = BAD[name].split("\n")[report.findings[0].line - 1]
    assert "xit" in line


@pytest.mark.parametrize("name", GOOD)
def test_left_alone(name):
    assert lint(train__py=GOOD[name]).findings == []


def test_what_is_not_python_is_one_finding():
    assert zero_exits("SIGTERM = (") is None
    assert [f.message for f in lint(x__py="SIGTERM (((").findings] == ["not Python: it cannot be parsed"]
    assert zero_exits("SIGTERM\n" + "(" * 5000) is None
