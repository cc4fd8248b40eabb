"""Two ranks; the given ones leave with `sys.exit(3)` in step 4 of 10."""

import sys

import torch.distributed as dist

import stayfast
from stayfast.runtime.runs import rank_group

rank_group.LEAVING_SECONDS = 2.0
dist.init_process_group("gloo")
done = []
with stayfast.run(sys.argv[1], total_steps=10) as run:
    run.track(done=(lambda: list(done), done.extend))
    for step in run.steps():
        assert done == list(range(step))
        done.append(step)
        dist.barrier()
        if step == 4 and str(dist.get_rank()) in sys.argv[2]:
            sys.exit(3)
