"""Server-sent events: one look at the world, told to everybody who is watching."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from stayfast.dashboard.run_cache import RunCache, to_json
from stayfast.dashboard.thread_pool import DaemonThreadPool
from stayfast.errors import StayfastError

log = logging.getLogger("stayfast")

_LOOK_SECONDS = 0.5
_BEAT_SECONDS = 15.0
_BEHIND = 20
_LOOKERS = 4
MOST_VIEWERS = 200


class EventStream:
    """Looks while somebody watches; with no viewer nothing is read and no time is spent."""

    def __init__(self, watch: RunCache) -> None:
        self._watch = watch
        self._threads = DaemonThreadPool(_LOOKERS, "stayfast-look")
        self._viewers: set[asyncio.Queue[bytes | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._verified = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def full(self) -> bool:
        """Whether one more viewer would be too many."""
        return len(self._viewers) >= MOST_VIEWERS

    async def events(self) -> AsyncIterator[bytes]:
        """One viewer's stream; it ends when the server does."""
        inbox: asyncio.Queue[bytes | None] = asyncio.Queue(_BEHIND)
        self._viewers.add(inbox)
        self._loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield b"retry: 1000\n\n"
            while True:
                try:
                    message = await asyncio.wait_for(inbox.get(), _BEAT_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if message is None:
                    return
                yield message
        finally:
            self._viewers.discard(inbox)

    def tell(self, event: str, data: bytes) -> None:
        """To every viewer; one that does not read fast enough is cut off, and comes back by itself."""
        message = b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"
        for inbox in list(self._viewers):
            try:
                inbox.put_nowait(message)
            except asyncio.QueueFull:
                self._viewers.discard(inbox)
                while not inbox.empty():
                    inbox.get_nowait()
                inbox.put_nowait(None)

    async def close(self) -> None:
        """End every stream."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._end_all()

    def close_streams(self) -> None:
        """End every stream, from a signal handler: a server that waits for its viewers to leave would wait for long."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end_all)

    def _end_all(self) -> None:
        for inbox in list(self._viewers):
            while not inbox.empty():
                inbox.get_nowait()
            inbox.put_nowait(None)

    async def look(self) -> None:
        """Read what is due and tell everybody what is new, whoever it was that asked."""
        try:
            news = await asyncio.wrap_future(self._threads.submit(self._watch.refresh))
        except StayfastError as error:
            log.warning("the dashboard could not look: %s", error)
            return
        if news is not None and self._viewers:
            self.tell("news", to_json(news))

    async def _look(self) -> None:
        while self._viewers:
            await self.look()
            if self._watch.verifier.version != self._verified:
                self._verified = self._watch.verifier.version
                self.tell("verified", b"{}")
            await asyncio.sleep(_LOOK_SECONDS)
