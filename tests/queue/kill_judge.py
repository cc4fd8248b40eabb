"""The total-queue check, cheap enough for every kill: it reads what has changed since it last looked.

It lives in a process of its own, because a database connection must not be carried through the forks of the campaign.
One line in, the number of items enqueued so far; one line out, what it found.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.sink.open_sink import open_sink

READY, DEAD = 0, -2


class Judge:
    """What is known so far: whatever was once acknowledged and stored stays so, and is not read again."""

    def __init__(self, options: dict[str, Any], expected: Callable[[int], str | None]) -> None:
        self._queue, self._sink = open_queue(options["queue"], sink=options["sink"]), open_sink(options["sink"])
        self._expected = expected  # the payload for item n; None for one that must die
        self._acknowledged: set[str] = set()
        self._from = 0  # all items before this one were acknowledged or dead when we last looked
        self._postgres = options["queue"].startswith("postgres")
        self._results_postgres = options["sink"].startswith("postgres")

    def judge(self, enqueued: int) -> dict[str, int]:
        """The queue is read first: what is acknowledged by then must be stored, whenever that is looked up."""
        queue = self._queue._queue  # type: ignore[attr-defined]
        rows = self._read(
            "SELECT id, key, holder FROM stayfast_item WHERE queue=? AND id>=? ORDER BY id", (queue, self._from)
        )
        kept = self._read("SELECT count(*) FROM stayfast_item WHERE queue=?", (queue,))[0][0]
        fresh = [key for _, key, holder in rows if holder is None and key not in self._acknowledged]
        stored = self._stored(fresh)
        self._acknowledged.update(key for key in fresh if key in stored)
        still_open = [number for number, _, holder in rows if holder is not None and holder != DEAD]
        self._from = min(still_open) if still_open else (rows[-1][0] if rows else self._from)
        return {
            "lost": enqueued - kept,
            "acknowledged_not_stored": sum(key not in stored for key in fresh),
            "wrong": sum(stored[key] != self._expected(int(key[1:])) for key in fresh if key in stored),
            "unexpected": self._foreign(enqueued),
            "ready": sum(holder == READY for _, _, holder in rows),
        }

    def _stored(self, keys: list[str]) -> dict[str, str]:
        if not keys:
            return {}
        table = self._sink.table if self._results_postgres else f'"{self._sink.table}"'  # type: ignore[attr-defined]
        some = "=ANY(?)" if self._results_postgres else " IN (SELECT value FROM json_each(?))"
        values = (keys if self._results_postgres else json.dumps(keys),)
        return dict(self._read_results(f"SELECT key, payload FROM {table} WHERE key{some}", values))

    def _foreign(self, enqueued: int) -> int:
        """Results of nobody's: outside the range of the keys that were handed in."""
        table = self._sink.table if self._results_postgres else f'"{self._sink.table}"'  # type: ignore[attr-defined]
        query = f"SELECT count(*) FROM {table} WHERE key < ? OR key > ? OR length(key) <> 7"
        found: int = self._read_results(query, ("k000000", f"k{enqueued - 1:06d}"))[0][0]
        return found

    def _read(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        return _rows(self._queue, "connection", self._postgres, query, values)

    def _read_results(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        return _rows(self._sink, "_connection", self._results_postgres, query, values)


def _rows(place: Any, connection: str, postgres: bool, query: str, values: tuple[Any, ...]) -> list[Any]:
    if postgres:
        return list(place._database.execute(query.replace("?", "%s"), values).fetchall())
    return list(getattr(place, connection).execute(query, values).fetchall())


class JudgeProcess:
    """A judge beside the campaign: ask and wait for the answer."""

    def __init__(self, options: dict[str, Any], expected: Callable[[int], str | None]) -> None:
        asked, self._ask = os.pipe()
        self._told, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._ask)
            os.close(self._told)
            try:
                _serve(options, expected, asked, tell)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(asked)
        os.close(tell)
        self._answers = os.fdopen(self._told)

    def ask(self, enqueued: int) -> dict[str, int]:
        os.write(self._ask, f"{enqueued}\n".encode())
        line = self._answers.readline()
        if not line:
            raise SystemExit("the judge died")
        answer: dict[str, int] = json.loads(line)
        return answer

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._answers.close()
        os.close(self._ask)


def _serve(options: dict[str, Any], expected: Callable[[int], str | None], asked: int, tell: int) -> None:
    judge = Judge(options, expected)
    with os.fdopen(asked) as questions:
        for line in questions:
            os.write(tell, (json.dumps(judge.judge(int(line))) + "\n").encode())
