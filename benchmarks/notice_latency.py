"""From the signal to the notice: how late the loop sees it, and how true the kernel's stamp is while C code runs.

Goals: p99 under 50 ms with the main thread busy in Python; stamped within 5 ms while C holds the interpreter.

    python benchmarks/notice_latency.py [--repeats 200]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time

from reporting import SOURCE, parse, publish

CHILD = """
import sys, time, stayfast
kind = sys.argv[1]
started = time.monotonic(); sum(range(2_000_000)); BLOCK = int(2_000_000 * 0.25 / (time.monotonic() - started))
with stayfast.guard() as guard:
    if kind == "threads":
        import threading
        def busy():
            while True: sum(range(1000))
        for _ in range(4): threading.Thread(target=busy, daemon=True).start()
    print("ready", flush=True)
    if kind == "c":
        sum(range(BLOCK))
        while guard.notice is None: time.sleep(0.001)
    else:
        while guard.notice is None:
            sum(i * i for i in range(200))
    seen = time.monotonic()
    print(guard.notice.received_at, seen, flush=True)
    import os
    os._exit(0)
"""
PLAIN = """
import signal, sys, time
seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append(time.monotonic()))
print("ready", flush=True)
while not seen:
    sum(i * i for i in range(200))
print(seen[0], time.monotonic(), flush=True)
"""


def once(kind: str, wait: float) -> tuple[float, float]:
    """Milliseconds from sending until the stamp, and until the loop saw it."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "STAYFAST_METADATA": "off"}
    source = PLAIN if kind == "plain handler" else CHILD
    child = subprocess.Popen(
        [sys.executable, "-c", source, kind],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(wait)
    sent = time.monotonic()
    child.send_signal(signal.SIGTERM)
    stamp, seen = map(float, child.stdout.readline().split())
    child.wait()
    return (stamp - sent) * 1000, (seen - sent) * 1000


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    options = parse(parser)
    kinds = {
        "plain handler": "a bare signal handler, main thread busy in Python",
        "python": "main thread busy in Python",
        "threads": "main thread and 4 more busy in Python",
        "c": "C code holds the interpreter (about 0.2 s)",
    }
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for number in range(options.repeats):
        for kind in kinds:
            found[kind].append(once(kind, 0.01 + number % 7 * 0.003))
    goals = {
        "python": lambda _stamps, seen: percentile(seen, 0.99) < 50,
        "c": lambda stamps, _seen: max(stamps) < 5,
    }
    rows = []
    for kind, label in kinds.items():
        stamps = [abs(stamp) for stamp, _ in found[kind]]
        seen = [late for _, late in found[kind]]
        rows.append(
            {
                "case": label,
                "seen_p50_ms": round(percentile(seen, 0.5), 3),
                "seen_p99_ms": round(percentile(seen, 0.99), 3),
                "stamp_error_p50_ms": round(percentile(stamps, 0.5), 3),
                "stamp_error_p99_ms": round(percentile(stamps, 0.99), 3),
                "stamp_error_max_ms": round(max(stamps), 3),
                "within_goal": goals[kind](stamps, seen) if kind in goals else "no goal",
            }
        )
    publish("notice_latency", rows, record=options.record, repeats=options.repeats)


if __name__ == "__main__":
    main()
