"""Items from a pipe that may fall silent: what has arrived is enqueued, and does not wait for company."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from stayfast.batch.queue.validation import BATCH, BATCH_BYTES

_PATIENCE_SECONDS = 1.0

Item = tuple[str, str]


def stream_batches(items: Iterable[Item], *, patience_seconds: float = _PATIENCE_SECONDS) -> Iterator[list[Item]]:
    """Lists as long as ``add_items`` makes them, or what there is after so long; nothing of one that ends in an error.

    The source is read by a thread of its own, but never beside whoever takes the lists: a database gives way to a busy
    thread at every row, and each time costs more than the row.
    """
    source = _ReaderThread(items)
    reader = threading.Thread(target=source.read, name="stayfast-source", daemon=True)
    reader.start()
    while True:
        with source.changed:
            source.changed.wait_for(lambda: source.over or source.is_full, patience_seconds)
            if source.error is not None:
                raise source.error
            rows, source.rows, source.size = source.rows, [], 0
            if rows:
                yield rows
            if source.over:
                return
            source.changed.notify()


class _ReaderThread:
    """What a reading thread has found so far."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = items
        self.changed = threading.Condition()
        self.rows: list[Item] = []
        self.size = 0
        self.over = False
        self.error: BaseException | None = None

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= BATCH or self.size >= BATCH_BYTES

    def read(self) -> None:
        changed = self.changed
        try:
            for item in self._items:
                with changed:
                    self.rows.append(item)
                    self.size += len(item[1])
                    if self.is_full:
                        changed.notify()
                        changed.wait_for(lambda: not self.is_full)
        except BaseException as error:  # noqa: BLE001 - raised again where the lists are taken
            self.error = error
        with changed:
            self.over = True
            changed.notify()
