"""Looking at the cluster only while somebody asks, once for all who do, and beside everything else.

A cluster may take half a minute to say that it cannot be reached. Nobody waits for that: who asks gets what is known
after a moment at most, and the other pages never come near the thread that waits.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any, Protocol

from stayfast.clock import Clock, SystemClock
from stayfast.errors import StayfastError

log = logging.getLogger("stayfast.dashboard")

_LOOK_SECONDS = 4.0
_SHARE = 20.0  # a large cluster takes long to read: at most a twentieth of the time
_LONGEST_PAUSE_SECONDS = 120.0
_PATIENCE_SECONDS = 1.5
_SLOW_SECONDS = 8.0


class Fleet(Protocol):
    """What the dashboard asks of a cluster; a call may block for long, and is made from a thread of its own."""

    name: str

    def look(self) -> dict[str, Any]:
        """``{"namespace", "at", "runs": [...], "more", "unseen"}``; a ``StayfastError`` when it cannot be had."""

    def close(self) -> None:
        """Give connections back."""


class FleetCache:
    """Holds the last answer; asked from the event loop alone."""

    def __init__(self, fleet: Fleet, clock: Clock | None = None) -> None:
        self._fleet = fleet
        self._clock = clock or SystemClock()
        self._known: dict[str, Any] | None = None
        self._trouble: str | None = None
        self._next = float("-inf")
        self._began = 0.0
        self._under_way: asyncio.Future[None] | None = None

    async def latest(self) -> dict[str, Any]:
        """What is known, looked up again when that is due; never later than a moment."""
        if self._under_way is None and self._clock.monotonic() >= self._next:
            self._start()
        if self._under_way is not None:
            await asyncio.wait({self._under_way}, timeout=_PATIENCE_SECONDS)
        trouble = self._trouble
        waited = self._clock.monotonic() - self._began
        if self._under_way is not None and waited > _SLOW_SECONDS:
            trouble = f"the cluster has not answered for {waited:.0f} s"
        found = self._known or {"namespace": None, "at": None, "runs": [], "more": 0, "unseen": {}}
        return {**found, "name": self._fleet.name, "trouble": trouble, "now": self._clock.wall()}

    def close(self) -> None:
        """Give connections back; a look that is under way is left to its fate."""
        self._fleet.close()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._under_way = loop.create_future()
        self._began = self._clock.monotonic()
        # A daemon: a server that was told to end does not wait for a cluster that does not answer.
        threading.Thread(target=self._look, args=(loop,), name="stayfast-fleet", daemon=True).start()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        found: dict[str, Any] | None = None
        trouble: str | None = None
        try:
            found = self._fleet.look()
        except StayfastError as error:
            trouble = str(error)
        except Exception:  # objects are written by anybody; the page must come back whatever is in them
            log.exception("the cluster's answer could not be understood")
            trouble = "the cluster's answer could not be understood; the log of the dashboard says more"
        try:
            loop.call_soon_threadsafe(self._store, found, trouble)
        except RuntimeError:
            pass  # the loop has ended meanwhile

    def _store(self, found: dict[str, Any] | None, trouble: str | None) -> None:
        now = self._clock.monotonic()
        self._trouble = trouble
        if found is not None:
            self._known = found
        pause = min(_SHARE * (now - self._began), _LONGEST_PAUSE_SECONDS) if found is not None else 0.0
        self._next = now + max(_LOOK_SECONDS, pause)
        done, self._under_way = self._under_way, None
        if done is not None and not done.done():
            done.set_result(None)
