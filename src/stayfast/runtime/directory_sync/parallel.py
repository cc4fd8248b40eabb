"""A few threads for one piece of work; daemons, so that a stuck upload never keeps the process from leaving."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from stayfast.runtime.directory_sync.copy_format import PART_BYTES

THREADS = 4
T = TypeVar("T")
Work = Callable[[T, memoryview], None]
"""Does one piece with a buffer of its own, page-aligned and one part long."""


def run_parallel(pieces: Iterable[T], work: Work[T], threads: int = THREADS) -> None:
    """Do every piece; the first error stops those not yet begun and is raised."""
    todo = list(pieces)
    errors: list[BaseException] = []
    lock = threading.Lock()

    def run() -> None:
        pages = mmap.mmap(-1, PART_BYTES)
        view = memoryview(pages)
        while True:
            with lock:
                if errors or not todo:
                    return
                piece = todo.pop(0)
            try:
                work(piece, view)
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                with lock:
                    errors.append(error)

    if len(todo) < 2:
        run()
    else:
        workers = [threading.Thread(target=run, daemon=True) for _ in range(min(threads, len(todo)))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    if errors:
        raise errors[0]
