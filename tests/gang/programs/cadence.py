"""Two ranks in lockstep with steps of a given length and a given cadence; every rank logs its steps."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import stayfast
from stayfast.runtime.checkpoint.policies import EverySeconds, EverySteps, KeepLast

url, out, steps, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
cadence = eval(sys.argv[5], {"EverySteps": EverySteps, "EverySeconds": EverySeconds})
kill_at, kill_rank = int(os.environ.get("KILL_AT", "-1")), int(os.environ.get("KILL_RANK", "1"))
stall_at, stall_rank = int(os.environ.get("STALL_AT", "-1")), int(os.environ.get("STALL_RANK", "0"))
dist.init_process_group("gloo")
rank = dist.get_rank()
state = torch.zeros(8)
with stayfast.run(url, total_steps=steps, cadence=cadence, retention=KeepLast(1000)) as run:
    run.track(state=(lambda: state, state.copy_))
    for step in run.steps():
        if step == kill_at and rank == kill_rank and run.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == stall_at and rank == stall_rank:
            time.sleep(2)
        if os.environ.get("WAIT"):
            run._saver.wait(20)  # a slow machine must not turn a due save into a later one
        gradient = torch.full((8,), float(step * (rank + 1)))
        dist.all_reduce(gradient)
        state += gradient
        with open(f"{out}.steps-{rank}", "a") as log:
            log.write(f"{step} {time.time()}\n")
        time.sleep(pause)
with open(f"{out}.final-{rank}", "w") as file:
    file.write(str(state.tolist()))
dist.destroy_process_group()
