"""Run a target on mutated inputs in a process of its own, within its means: one second and 200 MB for each input.

The input at hand lies in memory that parent and child share, so that even a crash of the interpreter leaves what caused
it behind. Inputs that get an answer nobody got before are kept and bent further.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import random
import re
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from fuzz.mutation import Mutator
from fuzz.targets import Target

SECONDS_PER_INPUT = 1.0
BYTES_PER_INPUT = 200 << 20
FINDS = Path(__file__).resolve().parent / "finds"
_SHARED_BYTES = 1 << 20


class Found(NamedTuple):
    """An input that broke a promise, and how."""

    data: bytes
    why: str


class Outcome(NamedTuple):
    """What a session did."""

    inputs: int
    kept: int
    found: Found | None


class TooSlow(BaseException):
    """Not an ``Exception``, so that nothing on the way can take it for an answer."""


def _too_slow(*_: object) -> None:
    raise TooSlow


def fuzz(target: Target, seconds: float, seed: int) -> Outcome:
    """Fuzz for so long; stops at the first find."""
    shared = mmap.mmap(-1, _SHARED_BYTES)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _session(target, seconds, seed, shared, writing)
        finally:
            os._exit(9)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    at_hand = shared[4 : 4 + int.from_bytes(shared[:4], "big")]
    if status != 0 or not told:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {status}"
        return Outcome(0, 0, Found(at_hand, f"the process died: {how}"))
    answer = json.loads(told)
    return Outcome(answer["inputs"], answer["kept"], Found(at_hand, answer["why"]) if answer["why"] else None)


def _session(target: Target, seconds: float, seed: int, shared: mmap.mmap, pipe: int) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    mutator = Mutator(target.corpus(), random.Random(seed))
    known: set[str] = set()
    for data in mutator.pool[:]:  # also brings in all modules, before memory is counted
        check(target, data)
    _limit_memory()
    until = time.monotonic() + seconds
    inputs, why = 0, ""
    while time.monotonic() < until and not why:
        data = mutator.next()
        shared[: 4 + len(data)] = len(data).to_bytes(4, "big") + data
        outcome, why = check(target, data)
        inputs += 1
        if outcome not in known:
            known.add(outcome)
            mutator.keep(data)
    os.write(pipe, json.dumps({"inputs": inputs, "kept": len(known), "why": why}).encode())
    os._exit(0)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + BYTES_PER_INPUT
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def check(target: Target, data: bytes) -> tuple[str, str]:
    """The answer in short, and what is wrong with it, if anything is; time is the processor's, as machines are busy."""
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS_PER_INPUT)
    try:
        return f"fine {target.read(data)!r:.80}", ""
    except TooSlow:
        return "slow", f"longer than {SECONDS_PER_INPUT:g} s of processor time"
    except MemoryError:
        return "memory", f"more than {BYTES_PER_INPUT >> 20} MB"
    except target.declared as error:
        return re.sub(r"[0-9]+|'[^']*'", "", f"{type(error).__name__} {error}")[:200], _sentence(error)
    except Exception:
        return "crash", traceback.format_exc(limit=-6)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _sentence(error: Exception) -> str:
    """A declared error still has to be a sentence that is not endless."""
    return "" if 10 < len(str(error)) < 300_000 else f"no sentence: {str(error)[:100]!r}"


def keep(target: Target, found: Found) -> Path:
    """Where the find stays, for the test that tries it again for ever."""
    folder = FINDS / target.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(found.data).hexdigest()[:12]}.bin"
    path.write_bytes(found.data)
    print(f"kept {path}: {found.why}", file=sys.stderr)
    return path
