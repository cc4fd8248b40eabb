"""Suite H for runs: checkpoints, ownership and prunes. (The queues have theirs in ``tests/queue``.)"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from faults import planted
from faults.fragile_disk import FragileDisk
from faults.lease_machine import LeaseMachine
from faults.machines import CheckpointMachine, PruneMachine, run_machine, shard_seed
from faults.tiers import account, goal, seed_for, shard, tier

pytestmark = pytest.mark.faults
WORKERS = 1 if shard()[1] > 1 else 2 if tier() == "pr" else len(os.sched_getaffinity(0))
MACHINES: dict[str, type[Any]] = {"checkpoint": CheckpointMachine, "lease": LeaseMachine, "prune": PruneMachine}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of warnings about damage that we made help nobody."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def share_of(name: str, calls: int, number: int, base: int) -> int:
    """What one worker process does; the first is always the same in the PR tier."""
    return run_machine(MACHINES[name], calls, (shard_seed(base) or 20_261_116) + 1000 * number)


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_the_machine_finds_nothing(name: str) -> None:
    base = seed_for("H")
    share = -(-goal("H") // WORKERS)
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        calls = sum(pool.starmap(share_of, [(name, share, number, base) for number in range(WORKERS)]))
    account("H", calls, part=f"{name} machine")


def test_the_checkpoint_machine_finds_an_unsynced_name() -> None:
    unsynced = mock.patch.object(FragileDisk, "fsync_dir", return_value=None)
    with unsynced, pytest.raises(AssertionError, match="power cut"):
        run_machine(CheckpointMachine, 2000)


def test_the_lease_machine_finds_an_unfenced_commit() -> None:
    said = r"wrote HEAD after|is gone|stale owner|head says otherwise"
    with planted.switched_on("generation not in precondition"), pytest.raises(AssertionError, match=said):
        run_machine(LeaseMachine, 4000)


def test_the_prune_machine_finds_a_prune_by_name() -> None:
    with planted.switched_on("prune newest-by-name"), pytest.raises(AssertionError, match="is not there"):
        run_machine(PruneMachine, 2000)
