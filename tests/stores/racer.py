"""One of several processes that race on a store: ``racer.py URL NAME ROUNDS``; prints which keys it created."""

from __future__ import annotations

import json
import sys
import time

from stayfast.errors import ConflictError, OutcomeUnknownError, StoreUnavailableError
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.protocol import ABSENT, Store


def create_all(store: Store, name: str, rounds: int) -> list[int]:
    """The keys that this racer was first at."""
    won = []
    for number in range(rounds):
        try:
            store.put(f"create/{number:04d}", name.encode(), if_generation=ABSENT)
            won.append(number)
        except ConflictError:
            pass
    return won


def count_up(store: Store, name: str, rounds: int) -> list[str]:
    """Add ``rounds`` lines to one object by compare-and-swap; the generations that were ours."""
    won: list[str] = []
    while len(won) < rounds:
        blob = store.get("counter")
        line = f"{name} {len(won)}\n".encode()
        try:
            won.append(store.put("counter", blob.data + line, if_generation=blob.generation))
        except (ConflictError, StoreUnavailableError):
            continue
        except OutcomeUnknownError:  # S3 answers 409 to a race: read back
            if line in store.get("counter").data:
                won.append("read back")
    return won


def wait_for_all(store: Store, name: str, racers: int) -> None:
    """Nobody starts before everybody is there, or it would be no race."""
    store.put(f"ready/{name}", b"x")
    while len(list(store.keys("ready/"))) < racers:
        time.sleep(0.005)


if __name__ == "__main__":
    _, url, name, rounds = sys.argv
    place = open_store(url)
    wait_for_all(place, name, 2)
    print(json.dumps({"created": create_all(place, name, int(rounds)), "counted": count_up(place, name, int(rounds))}))
