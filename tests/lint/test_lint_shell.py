"""Shell forms: who gets SIGTERM. The first test asks real shells, so that the table stays honest."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from stayfast.lint.readers.shell import exits_zero_on_term, inline_script, program_without_signal, split

PROGRAM = "python train.py --epochs 3"
SWALLOWED = [
    ["sh", "-c", PROGRAM],
    ["/bin/sh", "-c", f"cd /x && {PROGRAM}"],
    ["sh", "-ec", PROGRAM],
    ["bash", "-c", f"{PROGRAM}; echo done"],
    ["bash", "-c", f"{PROGRAM} | tee log"],
    ["bash", "-c", f"{PROGRAM} 2>&1 | tee log"],
    ["bash", "-xc", f"set -e\n{PROGRAM} &\nwait"],
    ["bash", "-c", f"while true; do {PROGRAM}; done"],
    ["bash", "-c", f"if true; then\n {PROGRAM}\nfi"],
    ["bash", "-c", f"{PROGRAM} && gcloud storage cp out gs://b"],
    ["/usr/bin/env", "bash", "-c", f"{PROGRAM}\nexit $?"],
    ["tini", "--", "sh", "-c", PROGRAM],
    ["bash", "-c", "X=$(date) torchrun a.py; ls"],
]
FORWARDED = [
    ["python", "train.py"],
    ["bash", "-c", PROGRAM],
    ["bash", "-c", f"pip install x\n{PROGRAM}\n"],
    ["bash", "-c", f"export A=1; {PROGRAM} \\\n  --more\n"],
    ["bash", "-c", f"echo start && {PROGRAM}"],
    ["sh", "-c", f"exec {PROGRAM}"],
    ["bash", "-c", f"cd /x\nexec {PROGRAM}"],
    ["sh", "-c", f"trap 'kill -TERM $PID' TERM\n{PROGRAM} & PID=$!\nwait $PID"],
    ["bash", "-c", f"trap stop SIGTERM\n{PROGRAM} &\nwait"],
    ["sh", "-c", "sleep 30"],
    ["sh", "-c", "echo a; apt-get install -y b; nvidia-smi"],
    ["sh", "entrypoint.sh"],
    ["dumb-init", "sh", "-c", PROGRAM],
    ["sh", "-c", "R=$(python -c 'print(1)')\necho $R"],
    ["sh", "-c", "for i in 1 2 3; do echo $i; sleep 1; done"],
    ["sh"],
    [],
]


@pytest.mark.parametrize("words", SWALLOWED, ids=" ".join)
def test_swallowed(words):
    script = inline_script(words)
    assert script is not None
    assert program_without_signal(script) is not None


@pytest.mark.parametrize("words", FORWARDED, ids=" ".join)
def test_forwarded(words):
    script = inline_script(words)
    assert script is None or program_without_signal(script) is None


REAL = [
    (["bash", "-c", "{program}"], True),
    (["bash", "-c", "true; {program}"], True),
    (["bash", "-c", "{program}; true"], False),
    (["bash", "-c", "{program} | cat"], False),
    (["sh", "-c", "exec {program}"], True),
    (["bash", "-c", "{program} & wait"], False),
]


@pytest.mark.parametrize(("form", "reaches"), REAL, ids=str)
def test_real_shells_agree_with_the_table(form, reaches, tmp_path):
    """SIGTERM goes to the shell's process only, as the kubelet sends it to PID 1."""
    if shutil.which(form[0]) is None:
        pytest.skip(f"{form[0]} is not installed")
    mark, ready = tmp_path / "handled", tmp_path / "ready"
    source = tmp_path / "train.py"
    source.write_text(
        "import pathlib, signal, sys, time\n"
        f"def stop(*_):\n    pathlib.Path({str(mark)!r}).touch()\n    sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(20)\n"
    )
    words = [word.replace("{program}", f"{sys.executable} {source}") for word in form]
    process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 15
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert ready.exists()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=10) if reaches else time.sleep(0.3)
        assert mark.exists() is reaches
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if reaches or form[0] == "bash":
        script = inline_script([word.replace("{program}", "python train.py") for word in form])
        assert (program_without_signal(script) is None) is reaches


@pytest.mark.parametrize(
    "script",
    [
        "trap 'save; exit 0' TERM\nrun",
        'trap "exit 0" SIGTERM SIGINT\nrun',
        "stop() {\n  save\n  exit 0\n}\ntrap stop TERM\nrun",
        "function stop { exit 0; }\ntrap stop 15\nrun",
        "trap 'kill $P; exit  0' INT TERM",
    ],
)
def test_a_trap_that_ends_in_zero_is_found(script):
    offset = exits_zero_on_term(script)
    assert offset is not None
    assert script[offset:].startswith("exit")


@pytest.mark.parametrize(
    "script",
    [
        "trap 'exit 75' TERM",
        "trap 'exit 0' EXIT",
        "exit 0",
        "stop() { exit 1; }\ntrap stop TERM\nexit 0",
        "trap - TERM",
        "",
    ],
)
def test_other_traps_are_left_alone(script):
    assert exits_zero_on_term(script) is None


def test_split_keeps_quotes_substitutions_and_here_documents_together():
    script = "a 'x; y' && b \"$(c; d)\"\ncat <<EOF\nnot; a; command\nEOF\ne # f; g\n"
    assert [step.text for step in split(script)] == ["a 'x; y'", 'b "$(c; d)"', "cat <<EOF", "e # f; g"]


@pytest.mark.parametrize("script", ["'", '"', "$(", "${", "`", "a <<EOF\n", "\\", "& & &", "((((", "|||", "#"])
def test_broken_scripts_do_no_harm(script):
    split(script)
    program_without_signal(inline_script(["sh", "-c", script]))
    exits_zero_on_term(script)
