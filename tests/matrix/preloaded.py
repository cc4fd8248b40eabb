"""A process that has imported torch and the frameworks once, and forks the matrix's programs instead of starting them.

Importing costs seconds of each process, and a cell under torchrun has three of them, twice. Here `python`, `stayfast
exec` and torchrun are forks of this process. Where they start a Python program themselves (posix_spawnp in exec, Popen
in torchrun), a fork takes the place of the new program: with that program's environment, descriptors, session, signal
mask, default signal handlers and a fresh state of `random`. All processes, signals, sessions and exit codes are real.

It reads one JSON object per line from standard input: `{"start": [argv], "env": {}, "cwd": "", "err": "path"}` answers
with the pid, `{"poll": pid}` with the exit code or null.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

MODULES = (
    "torch",
    "torch.distributed.run",
    "torch.utils.data",
    "torch.nn.parallel",
    "torch._dynamo",
    "torchdata.stateful_dataloader",
    "accelerate",
    "lightning",
    "lightning.pytorch.strategies",
    "transformers",
    "stayfast.cli.main",
    "stayfast.integrations.lightning",
    "stayfast.integrations.transformers",
)


def is_python(argv: Sequence[Any]) -> bool:
    return bool(argv) and os.fsdecode(argv[0]) == sys.executable


def become(argv: list[str], env: dict[str, str], keep: set[int]) -> NoReturn:
    """What exec() of Python would leave: no handlers, no descriptors of the parent, a program that starts."""
    code = 1
    try:
        forget_parent(env, keep)
        code = code_of(argv[1:])
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code & 0xFF)


def forget_parent(env: dict[str, str], keep: set[int]) -> None:
    atexit._clear()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(env)
    gc.freeze()  # objects of the parent are never finalized here: their descriptor numbers get new owners
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    random.seed()
    from multiprocessing import util

    atexit.register(util._exit_function)


def code_of(arguments: list[str]) -> int:
    """Run the program; its exit code as the interpreter finds it."""
    try:
        start_program(arguments)
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def start_program(arguments: list[str]) -> None:
    while arguments[0] == "-u":
        arguments = arguments[1:]
    if arguments[0] == "-m":
        sys.argv = ["-m", *arguments[2:]]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(arguments[0])
        runpy.run_path(arguments[0], run_name="__main__")


real_spawn = os.posix_spawnp
real_fork_exec = subprocess._fork_exec


def spawn(file: Any, argv: Any, env: Any, **options: Any) -> int:
    """What `stayfast exec` starts its program with."""
    if not is_python(argv) or set(options) != {"setsigmask", "setsigdef"}:
        return real_spawn(file, argv, env, **options)
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, options["setsigmask"])
        become([os.fsdecode(item) for item in argv], dict(env), set())
    return pid


def fork_exec(*given: Any) -> int:
    """What Popen starts a program with; the arguments are those of CPython 3.11."""
    argv, _files, _close, keep, cwd, env, p2cread, _, _, c2pwrite, _, errwrite, _, errpipe = given[:14]
    new_session, preexec = given[15], given[21]
    if not is_python(argv) or preexec is not None:
        return real_fork_exec(*given)
    pid = os.fork()
    if pid == 0:
        for number, source in enumerate((p2cread, c2pwrite, errwrite)):
            if source != -1:
                os.dup2(source, number)
        if cwd is not None:
            os.chdir(cwd)
        if new_session:
            os.setsid()
        values = dict(os.environ) if env is None else dict(os.fsdecode(item).split("=", 1) for item in env)
        become([os.fsdecode(item) for item in argv], values, set(keep) - {errpipe})
    return pid


def start(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        err = os.open(order["err"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(err, 1)
        os.dup2(err, 2)
        os.chdir(order["cwd"])
        become(order["start"], order["env"], set())
    return pid


def main() -> None:
    for name in MODULES:
        importlib.import_module(name)
    os.posix_spawnp = spawn
    subprocess._fork_exec = fork_exec
    print(json.dumps({"ready": os.getpid(), "threads": len(os.listdir("/proc/self/task"))}), flush=True)
    codes: dict[int, int] = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            answer: Any = start(order)
            codes.pop(answer, None)  # of an earlier process with the same number
        else:
            wanted = order["poll"]
            if wanted not in codes and (ended := os.waitpid(wanted, os.WNOHANG))[0]:
                codes[wanted] = os.waitstatus_to_exitcode(ended[1])
            answer = codes.get(wanted)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
