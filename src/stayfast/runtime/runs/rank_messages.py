"""Several ranks, one run: passing on the claim, agreeing where to stop, and committing once.

All talk goes through a small key-value board that the ranks share anyway (torch.distributed's own store), in short
calls, most of them from threads of its own; a step costs no collective.

When to save: rank 0 decides at the end of a step whether all ranks save there, and names the step at which it decides
next. The other ranks read the decision at the end of that same step, and wait for it if they come first. Nothing is
announced ahead of time, so no rank can miss it, however short or uneven the steps are.

Where to stop: a rank that learns of a notice publishes the step its loop has *reached*, and from then on holds its loop
at the next boundary. The last step is the largest that anybody published; a rank behind it goes on until there. Nobody
waits in a collective for a rank that holds, because a rank that holds has finished every step before the one it
published, and will run that one too if any other rank has entered it.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

from stayfast.clock import Clock
from stayfast.errors import UsageError
from stayfast.model.notice import Cause, Notice
from stayfast.runtime.interruption.notice_board import NoticeBoard
from stayfast.settings import Settings

log = logging.getLogger("stayfast")

POLL_SECONDS = 0.05
POLL_SECONDS_PER_RANK = 0.001
LONGEST_POLL_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 0.02

_runs = itertools.count()  # runs one after another in the same processes must not hear each other


class SharedKeys(Protocol):
    """What the ranks need to share: set, and a get that never waits."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str) -> bytes | None: ...


class RankGroup:
    """This rank among the others."""

    def __init__(self, board: SharedKeys, settings: Settings, clock: Clock) -> None:
        self.rank = settings.rank
        self.size = settings.world_size
        self._kv = board
        self._clock = clock
        self._run = next(_runs)
        self._prefix = f"start-{self._run}"
        self._stopped = threading.Event()
        self._published = False
        self._watcher: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def is_leader(self) -> bool:
        """Rank 0 claims and commits."""
        return self.rank == 0

    @property
    def poll_seconds(self) -> float:
        """Between two looks; longer in large worlds, so that the board is not the bottleneck."""
        return min(LONGEST_POLL_SECONDS, POLL_SECONDS + POLL_SECONDS_PER_RANK * self.size)

    # -- words

    def set(self, key: str, value: Any) -> None:
        """Tell the others."""
        self._kv.set(f"stayfast/{self._prefix}/{key}", json.dumps(value).encode())

    def get(self, key: str) -> Any:
        """What was said under this key, None if nothing yet."""
        data = self._kv.get(f"stayfast/{self._prefix}/{key}")
        return None if data is None else json.loads(data)

    def wait_for(self, key: str, until: Callable[[], float], is_new: Callable[[Any], bool] | None = None) -> Any:
        """Wait for a word that ``is_new`` accepts; None when the deadline that ``until`` gives comes first."""
        pause = self.poll_seconds / 100
        while not self._stopped.is_set():
            value = self.get(key)
            if value is not None and (is_new is None or is_new(value)):
                return value
            if self._clock.monotonic() >= until():
                break
            self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        return None

    def wait_for_all(self, key: str, until: Callable[[], float]) -> list[Any] | None:
        """One word from every rank under ``key/<rank>``; None when the deadline comes first."""
        words = []
        for rank in range(self.size):
            word = self.wait_for(f"{key}/{rank}", until)
            if word is None:
                return None
            words.append(word)
        return words

    def use_attempt(self, attempt: int) -> None:
        """From here on all words belong to this attempt; a restarted gang on the same board hears no old ones."""
        self._prefix = f"run-{self._run}/attempt-{attempt}"

    # -- stopping together

    def watch(self, board: NoticeBoard, hold: Callable[[], int]) -> None:
        """Spread our notice, hear of others'; ``hold`` makes the loop stop at its next boundary and tells its step."""

        def look() -> None:
            while not self._stopped.is_set():
                try:
                    if self._look(board, hold):
                        return
                except Exception as error:  # noqa: BLE001 - the board goes away when its host does
                    log.debug("world: %s", error)
                    if board.notice is not None:
                        return  # nobody left to talk to; the deadline does the rest
                self._clock.wait(board.arrived, self.poll_seconds)

        self._watcher = threading.Thread(target=look, name="stayfast-world", daemon=True)
        self._watcher.start()

    def _look(self, board: NoticeBoard, hold: Callable[[], int]) -> bool:
        notice = board.notice
        if notice is not None:
            self.set(
                "stop",
                {"cause": notice.cause, "detail": notice.detail, "left": board.deadline - self._clock.monotonic()},
            )
        else:
            word = self.get("stop")
            if word is None:
                return False
            detail = f"another rank: {word['detail']}"
            left = max(0.0, float(word["left"])) + board.settings.margin_seconds
            board.post(Notice(Cause(word["cause"]), self._clock.monotonic(), left, detail))
        self.announce_reached(hold())
        return True

    def announce_reached(self, reached: int) -> None:
        """Tell, once, the furthest step this rank may be in."""
        with self._lock:
            if not self._published:
                self._published = True
                self.set(f"reached/{self.rank}", reached)

    def last_step(self, until: Callable[[], float]) -> int | None:
        """The step after which all ranks stop; None when somebody stayed silent until the deadline."""
        words = self.wait_for_all("reached", until)
        return None if words is None else max(int(word) for word in words)

    def close(self) -> None:
        """Listen no more; a thread inside the store's C++ code while the interpreter goes down aborts the process."""
        self._stopped.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(LONGEST_POLL_SECONDS + 1.0)


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


def find_rank_group(settings: Settings, clock: Clock, *, required: bool) -> RankGroup | None:
    """The world this process is part of; None when it is alone, or when nobody can be reached and nobody has to be."""
    if settings.world_size == 1:
        return None
    store = _torch_store()
    if store is not None:
        return RankGroup(TorchSharedKeys(store), settings, clock)
    if required:
        raise UsageError(
            f"WORLD_SIZE={settings.world_size}, but the ranks cannot reach each other",
            help="call torch.distributed.init_process_group() before stayfast.run, or start the ranks with torchrun",
        )
    return None


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
