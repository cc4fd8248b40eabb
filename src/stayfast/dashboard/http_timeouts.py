"""Connections that only take up room are closed: those that ask for nothing, and those that do not read their answer.

uvicorn waits for both without end, and answers nobody any more when a thousand of them are open.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

IDLE_SECONDS = 5.0
UNREAD_SECONDS = 10.0


def make_protocol() -> type[Any]:
    """uvicorn's own HTTP protocol, with an end to its patience."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):  # type: ignore[misc]  # uvicorn is an extra: without it there is no type here
        """Closes what is idle, aborts what does not read."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._unread: Any = None
            self._idle = self.loop.call_later(IDLE_SECONDS, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            self._idle.cancel()
            self._forgive()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._forgive()
            self._unread = self.loop.call_later(UNREAD_SECONDS, self._cut_off)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._forgive()

        def _forgive(self) -> None:
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

        def _cut_off(self) -> None:
            # Without this the kernel would keep what was sent, for a reader who does not come.
            held = self.transport.get_extra_info("socket")
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

        def _look(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()
            else:
                self._idle = self.loop.call_later(IDLE_SECONDS, self._look)

    return Impatient
