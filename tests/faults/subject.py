"""What is put under fault: one attempt that claims, saves and prunes, and a restore, all over the product's own code."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.checkpoint.effects import drive
from holdfast.checkpoint.head import AttemptRow, Committed
from holdfast.checkpoint.protocol import Held, claim, commit, read_head
from holdfast.clock import Clock, ManualClock
from holdfast.errors import CorruptError, KeyMissingError
from holdfast.stores.base import ABSENT, Store

State = dict[str, bytes]


def make_state(rng: random.Random, step: int, *, parts: int = 3, largest: int = 1800) -> State:
    """Bytes that name their step, so that a mix of two saves can never pass for either."""
    return {
        f"part-{n}": b"%d/%d:" % (step, n) + rng.randbytes(rng.randint(0, largest - 20)) for n in range(max(1, parts))
    }


@dataclass
class Attempt:
    """One process life: owns the head that it claimed."""

    store: Store
    held: Held
    token: Callable[[], str]
    keep: int = 2
    clock: Clock = ManualClock()

    @property
    def number(self) -> int:
        return self.held.head.attempt

    def save(self, step: int, state: State) -> None:
        """Acknowledged once this returns."""
        folder = Committed(step, self.number, "").name
        inventory: dict[str, tuple[int, str]] = {}
        for name, data in state.items():
            self.store.put(f"checkpoints/{folder}/{name}", data, if_generation=ABSENT)
            inventory[name] = (len(data), hashlib.sha256(data).hexdigest())
        listing = json.dumps(inventory, sort_keys=True).encode()
        self.store.put(f"checkpoints/{folder}/inventory.json", listing, if_generation=ABSENT)
        row = Committed(step, self.number, "2026-01-01T00:00:00Z", 0, hashlib.sha256(listing).hexdigest())
        new = replace(self.held.head, checkpoints=(row, *self.held.head.checkpoints)[: self.keep])
        self.held = drive(commit(self.held, new, self.token), self.store, self.clock)

    def prune(self) -> None:
        """Remove what no kept checkpoint needs."""
        kept = {item.name for item in self.held.head.checkpoints}
        for entry in list(self.store.keys("checkpoints/")):
            if entry.key.split("/")[1] not in kept:
                self.store.delete(entry.key)


def start(store: Store, token: Callable[[], str], *, keep: int = 2, clock: Clock | None = None) -> Attempt:
    """Claim the run."""
    clock = clock or ManualClock()
    row = AttemptRow(attempt=0, started_at="2026-01-01T00:00:00Z")
    return Attempt(store, drive(claim("run", row, token), store, clock), token, keep, clock)


def restore_all(store: Store) -> list[tuple[int, State]]:
    """Every checkpoint that the head lists, newest first; ``CorruptError`` when one is not whole."""
    held = drive(read_head(), store, ManualClock())
    return [] if held is None else [(row.step, _restore(store, row)) for row in held.head.checkpoints]


def _restore(store: Store, row: Committed) -> State:
    folder = f"checkpoints/{row.name}"
    try:
        listing = store.get(f"{folder}/inventory.json").data
        if hashlib.sha256(listing).hexdigest() != row.inventory_sha256:
            raise CorruptError(f"the inventory of {row.name} does not match its record")
        state = {name: store.get(f"{folder}/{name}").data for name in json.loads(listing)}
    except KeyMissingError as error:
        raise CorruptError(f"a part of {row.name} is missing: {error}") from error
    for name, (size, digest) in json.loads(listing).items():
        if len(state[name]) != size or hashlib.sha256(state[name]).hexdigest() != digest:
            raise CorruptError(f"{name} of {row.name} does not match its checksum")
    return state
