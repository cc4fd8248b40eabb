"""Suite H on runs: Hypothesis chooses what happens next; the oracle of the simulator looks after every step of it."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from faults.fragile_disk import FragileDisk
from faults.memory_fs import Crash
from faults.sim.disk import Disk
from faults.sim.runs import Oracle, Owner, make_state
from faults.sim.world import deterministic
from faults.subject import make_engine
from faults.tiers import Lost, tier
from stayfast.clock import ManualClock
from stayfast.errors import CorruptError, StayfastError, SupersededError
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.checkpoint.cleanup import delete_unreferenced
from stayfast.runtime.run_record.commit_protocol import read_head, run_protocol
from stayfast.runtime.run_record.record import RunRecord
from stayfast.storage.stores.file import FileStore
from stayfast.storage.stores.protocol import Store

ROOTS = ("/data/runs/1", "/data/runs/10")  # the name of one is the start of the other's
SLOTS = st.integers(0, 1)
OPERATIONS = st.integers(0, 75)


class HookedStore:
    """A store that does something else in the middle of the n-th read of a part."""

    def __init__(self, inner: Store) -> None:
        self.inner, self.url = inner, inner.url
        self.between: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read_into(self, key: str, buffer: memoryview, *, offset: int = 0) -> int:
        if self.between:
            self.between.pop(0)()
        return self.inner.read_into(key, buffer, offset=offset)


class RunMachine(RuleBasedStateMachine):
    """One or two runs on one disk; each has at most one owner at a time that we still know of, and zombies."""

    calls = 0
    keep = 2

    def __init__(self) -> None:
        super().__init__()
        self.rng = random.Random(1)
        self.disk = FragileDisk()
        self.clock = ManualClock()
        self.owners: list[Owner | None] = [None, None]
        self.zombies: list[Owner] = []
        self.steps = [0, 0]
        for number, root in enumerate(ROOTS):
            names = self.disk.names_under(root)
            oracle = Oracle(lambda key, root=root: self._read(root, key), names)
            oracle.owners = _Anybody()
            self.disk.oracles[root] = oracle
            self.begin(number)

    def _read(self, root: str, key: str) -> bytes | None:
        node = self.disk.names.get(f"{root}/{key}")
        return None if node is None or node.data is None else bytes(node.data)

    def store(self, run: int) -> FileStore:
        return FileStore(ROOTS[run], fs=self.disk, clock=self.clock)

    def oracle(self, run: int) -> Oracle:
        return self.disk.oracles[ROOTS[run]]

    def begin(self, run: int) -> Owner:
        """A fresh process claims the run and resumes."""
        owner = Owner(self.store(run), self.clock, self.oracle(run), self.keep)
        owner.claim()
        self.steps[run] = owner.restore() + 1
        self.owners[run] = owner
        return owner

    def owner(self, run: int) -> Owner:
        return self.owners[run] or self.begin(run)

    def save(self, run: int) -> None:
        owner = self.owner(run)
        step, self.steps[run] = self.steps[run], self.steps[run] + 1
        owner.save(step, make_state(self.rng, step, owner.number))

    def head(self, run: int) -> RunRecord:
        held = run_protocol(read_head(), self.store(run), self.clock)
        assert held is not None
        return held.head

    @contextlib.contextmanager
    def breaking(self, run: int, after: int, how: str) -> Iterator[None]:
        """The process dies, or is told that the disk failed, at the n-th operation from here."""
        self.disk.left, self.disk.how = after, how
        try:
            yield
        except Crash:
            self.owners[run] = None
            self.disk._open.clear()
        except StayfastError:
            pass
        finally:
            self.disk.left = -1

    # -- rules that all share

    @rule(run=SLOTS)
    def save_one(self, run: int) -> None:
        type(self).calls += 1
        self.save(run)

    @rule(run=SLOTS, after=OPERATIONS, how=st.sampled_from(("kill", "full", "error")))
    def save_goes_wrong(self, run: int, after: int, how: str) -> None:
        type(self).calls += 1
        with self.breaking(run, after, how):
            self.save(run)

    @rule(run=SLOTS)
    def prune(self, run: int) -> None:
        type(self).calls += 1
        self.owner(run).prune()

    @invariant()
    def whole(self) -> None:
        for root in ROOTS:
            self.disk.oracles[root].look()


class _Anybody(dict[int, str]):
    """Who wrote HEAD is checked by the simulator, where writers have names."""

    def setdefault(self, key: int, default: str = "") -> str:
        return default


class CheckpointMachine(RunMachine):
    """Save, failed save, kill, power cut, restore here and in a fresh process, damage."""

    @rule(run=SLOTS)
    def restore_in_this_process(self, run: int) -> None:
        type(self).calls += 1
        owner = self.owner(run)
        head = self.head(run)
        found = owner.engine.restore_newest(head)
        if head.newest is not None:
            assert found is not None
            self.oracle(run).check_restored(found[0], found[1], head.newest.step)

    @rule(run=SLOTS)
    def restore_in_a_fresh_one(self, run: int) -> None:
        type(self).calls += 1
        self.begin(run)

    @rule(number=st.integers(0, 1 << 30))
    def power_cut(self, number: int) -> None:
        type(self).calls += 1
        self.disk.cut(random.Random(number))
        self.owners = [None, None]
        for oracle in self.disk.oracles.values():
            oracle.power_came_back()

    @rule(run=SLOTS, which=st.integers(0, 20), how=st.sampled_from(("flip", "cut", "gone", "zeros")), at=st.integers(0))
    def damage(self, run: int, which: int, how: str, at: int) -> None:
        """One file is damaged: whoever resumes now gets the newest that does not need it, or is told that all do."""
        type(self).calls += 1
        head = self.head(run)
        keys = sorted(self.oracle(run).needed)
        if not keys:
            return
        key = keys[which % len(keys)]
        path = f"{ROOTS[run]}/{key}"
        node = self.disk.names[path]
        assert node.data is not None
        before = bytes(node.data)
        _damage(self.disk, path, how, at)
        if self._read(ROOTS[run], key) != before:
            good = [row for row in head.checkpoints if key not in self.oracle(run).needs[row.inventory_sha256 or ""]]
            engine = make_engine(self.store(run), self.clock, inline=True)
            try:
                found = engine.restore_newest(head)
            except CorruptError:
                assert not good, f"{good[0].name} does not need {key} and was not used"
            else:
                assert found is not None
                assert found[0] == good[0], f"{found[0].name} was restored although {key} is damaged"
                self.oracle(run).check_restored(found[0], found[1], good[0].step)
        self.disk.names[path] = node
        node.data[:] = before


def _damage(disk: Disk, path: str, how: str, at: int) -> None:
    data = disk.names[path].data
    assert data is not None
    if how == "gone":
        del disk.names[path]
    elif how == "cut":
        del data[at % len(data) :]
    elif how == "flip":
        data[at % len(data)] ^= 1 << (at % 8)
    else:
        data[:] = bytes(len(data))


class PruneMachine(RunMachine):
    """Prunes by the owner, from outside and by zombies, while somebody reads slowly; and another run beside it."""

    keep = 1

    @rule(run=SLOTS)
    def prune_from_outside(self, run: int) -> None:
        type(self).calls += 1
        self.outside(run)

    def outside(self, run: int) -> None:
        run_protocol(delete_unreferenced(None), self.store(run), self.clock)

    @rule(run=SLOTS, after=OPERATIONS)
    def prune_goes_wrong(self, run: int, after: int) -> None:
        type(self).calls += 1
        self.owner(run)
        with self.breaking(run, after % 12, "error" if after % 2 else "kill"):
            self.outside(run)

    @rule(run=SLOTS)
    def a_replacement_starts(self, run: int) -> None:
        type(self).calls += 1
        if (old := self.owners[run]) is not None:
            self.zombies = [*self.zombies[-3:], old]
        self.begin(run)

    @precondition(lambda self: self.zombies)
    @rule(which=st.integers(0, 3), saves=st.booleans())
    def a_zombie_wakes_up(self, which: int, saves: bool) -> None:
        """It may write what it likes under its own name; it must neither commit nor remove what is needed."""
        type(self).calls += 1
        owner = self.zombies[which % len(self.zombies)]
        if owner.oracle.head is None or owner.oracle.head.attempt <= owner.number:
            return
        try:
            if saves:
                owner.save(99_000, make_state(self.rng, 99_000, owner.number))
                raise Lost(f"attempt {owner.number} saved, and is superseded")
            owner.prune()
        except SupersededError:
            owner.check_superseded()
        finally:
            self.zombies.remove(owner)

    @rule(run=SLOTS)
    def the_attempt_ends_well(self, run: int) -> None:
        type(self).calls += 1
        owner = self.owner(run)
        owner.ledger.update_attempt(outcome=Outcome.FINISHED, ended_at=owner.ledger.timestamp())
        self.owners[run] = None

    @rule(run=SLOTS, meanwhile=st.lists(st.sampled_from(("save", "prune", "outside", "other", "nothing")), max_size=6))
    def slow_restore(self, run: int, meanwhile: list[str]) -> None:
        """Between any two parts that a reader reads, others save and prune: he gets the newest, or a newer one."""
        type(self).calls += 1
        actions = {
            "save": lambda: self.save(run),
            "prune": lambda: self.owner(run).prune(),
            "outside": lambda: self.outside(run),
            "other": lambda: self.outside(1 - run),
            "nothing": lambda: None,
        }
        head = self.head(run)
        store = HookedStore(self.store(run))
        store.between = [actions[name] for name in meanwhile]
        engine = make_engine(store, self.clock, inline=True)  # type: ignore[arg-type]
        try:
            found = engine.restore_newest(head, reread=lambda: self.head(run))
        except CorruptError as error:
            raise Lost(f"a part vanished under a restore: {error}") from error
        if head.newest is not None:
            assert found is not None
            self.oracle(run).check_restored(found[0], found[1], head.newest.step)


def run_machine(machine: type[Any], calls: int, number: int | None = None) -> int:
    """At least so many rule calls, unless something is found; ``number`` seeds Hypothesis, as a shard does."""
    machine.calls = 0
    round_ = 0
    while machine.calls < calls:
        chosen = settings(
            max_examples=max(10, (calls - machine.calls) // 40),
            stateful_step_count=50,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            print_blob=False,
            report_multiple_bugs=False,
        )
        with deterministic(7):
            seeded = seed(number + round_) if number is not None else seed(20261116 + round_)
            run_state_machine_as_test(seeded(machine), settings=chosen)
        round_ += 1
    return int(machine.calls)


def shard_seed(base: int) -> int | None:
    """None in the PR tier, where every run is the same; otherwise the seed of this run."""
    return None if tier() == "pr" and not os.environ.get("STAYFAST_RANDOM") else base
