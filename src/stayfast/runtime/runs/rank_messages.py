"""Short messages between the ranks: set, get and wait for keys of a store that they share anyway.

The store is torch.distributed's own. All calls are short, most of them from threads of their own; a step costs no
collective.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

from stayfast.backoff import Backoff
from stayfast.clock import Clock
from stayfast.errors import UsageError
from stayfast.settings import Settings

log = logging.getLogger("stayfast")

POLL_SECONDS = 0.05
POLL_SECONDS_PER_RANK = 0.001
LONGEST_POLL_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 0.02

_runs = itertools.count()  # runs one after another in the same processes must not read each other's keys


class SharedKeys(Protocol):
    """What the ranks need to share: set, and a get that never waits."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str) -> bytes | None: ...


class RankMessages:
    """What this rank says to the others, and what it hears of them."""

    def __init__(self, shared: SharedKeys, settings: Settings, clock: Clock) -> None:
        self.rank = settings.rank
        self.size = settings.world_size
        self.clock = clock
        self._shared = shared
        self._run = next(_runs)
        self._prefix = f"start-{self._run}"
        self.closed = threading.Event()

    @property
    def poll_seconds(self) -> float:
        """Between two looks; longer with many ranks, so that the store is not the bottleneck."""
        return min(LONGEST_POLL_SECONDS, POLL_SECONDS + POLL_SECONDS_PER_RANK * self.size)

    def set(self, key: str, value: Any) -> None:
        """Send a value to the others."""
        self._shared.set(f"stayfast/{self._prefix}/{key}", json.dumps(value).encode())

    def get(self, key: str) -> Any:
        """The value that was sent under this key, None if there is none yet."""
        data = self._shared.get(f"stayfast/{self._prefix}/{key}")
        return None if data is None else json.loads(data)

    def wait_for(self, key: str, until: Callable[[], float], is_new: Callable[[Any], bool] | None = None) -> Any:
        """Wait for a value that ``is_new`` accepts; None when the deadline that ``until`` gives comes first."""
        pauses = Backoff(self.poll_seconds / 100, LONGEST_PAUSE_SECONDS).pauses()
        while not self.closed.is_set():
            value = self.get(key)
            if value is not None and (is_new is None or is_new(value)):
                return value
            if self.clock.monotonic() >= until():
                break
            self.clock.sleep(next(pauses))
        return None

    def wait_for_all(self, key: str, until: Callable[[], float]) -> list[Any] | None:
        """One value from every rank under ``key/<rank>``; None when the deadline comes first."""
        values = []
        for rank in range(self.size):
            value = self.wait_for(f"{key}/{rank}", until)
            if value is None:
                return None
            values.append(value)
        return values

    def use_attempt(self, attempt: int) -> None:
        """From here on all keys belong to this attempt; ranks that restart with the same store read no old ones."""
        self._prefix = f"run-{self._run}/attempt-{attempt}"

    def close(self) -> None:
        """End every wait."""
        self.closed.set()


class TorchSharedKeys:
    """torch.distributed's own store; only calls that return at once."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes | None:
        if not self._store.check([key]):
            return None
        value: bytes = self._store.get(key)
        return value


def connect_ranks(settings: Settings, clock: Clock) -> RankMessages:
    """The messages between this process and the other ranks of its world."""
    store = _torch_store()
    if store is None:
        raise UsageError(
            f"WORLD_SIZE={settings.world_size}, but the ranks cannot reach each other",
            help="call torch.distributed.init_process_group() before stayfast.run, or start the ranks with torchrun",
        )
    return RankMessages(TorchSharedKeys(store), settings, clock)


def _torch_store() -> Any:
    """The default group's store, or the launcher's; None without torch."""
    import sys

    if "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            return dist.distributed_c10d._get_default_store()
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        try:
            from datetime import timedelta

            from torch.distributed import PrefixStore, TCPStore

            host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            client = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=30))
            return PrefixStore(f"stayfast-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", client)
        except (ImportError, KeyError, ValueError, RuntimeError) as error:
            log.debug("the launcher's store is not reachable: %s", error)
    return None
