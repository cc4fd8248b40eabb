"""Tables of the SQLite queue, and why they look like this.

``holder`` is the whole state of an item: NULL done, 0 ready, -1 delayed, -2 dead, otherwise the owner that leases it.
One partial index over what is not done serves claims, sweeps of dead owners, back-off and counts; finished items leave
it, so it stays as small as the work that is left, and its left edge is always the next item to claim. A lease lives in
its owner's row: renewing any number of items is one small update. Generations are drawn from one counter per queue, so
each claim has its own number and every later claim of the same item a higher one.
"""

from __future__ import annotations

import sqlite3

VERSION = 1
DELAYED, DEAD = -1, -2

_TABLES = """
CREATE TABLE stayfast_queue (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, generation INTEGER NOT NULL DEFAULT 0);
CREATE TABLE stayfast_owner (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  queue INTEGER NOT NULL,
  boot TEXT NOT NULL,
  expires REAL NOT NULL
);
CREATE TABLE stayfast_item (
  id INTEGER PRIMARY KEY,
  queue INTEGER NOT NULL,
  key TEXT NOT NULL,
  holder INTEGER,
  generation INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  deliveries INTEGER NOT NULL DEFAULT 0,
  due REAL,
  reason TEXT,
  payload TEXT NOT NULL
);
CREATE UNIQUE INDEX stayfast_item_key ON stayfast_item (queue, key);
CREATE INDEX stayfast_item_open ON stayfast_item (queue, holder, due) WHERE holder IS NOT NULL;
"""


def create(connection: sqlite3.Connection) -> None:
    """Version 1."""
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            connection.execute(statement)


STEPS = {1: create}

# A chunk is one row out and one statement in: sqlite3 lets go of the interpreter at every row it steps over, and beside
# a busy main thread each time costs a switch interval, with the write lock held. So there are only a handful of them.
NEXT = """
SELECT json_group_array(id), json_group_array(key), json_group_array(payload), json_group_array(failures) FROM (
  SELECT id, key, payload, failures FROM stayfast_item
  WHERE queue=? AND holder=0 AND due IS NULL ORDER BY id LIMIT ?)
"""
GENERATION = "UPDATE stayfast_queue SET generation=generation+1 WHERE id=? RETURNING generation"
CLAIM = """
UPDATE stayfast_item SET holder=?, generation=?, deliveries=deliveries+1 WHERE id IN (SELECT value FROM json_each(?))
"""
_MINE = " WHERE id IN (SELECT value FROM json_each(?)) AND generation=? AND holder=?"
COMPLETE = "UPDATE stayfast_item SET holder=NULL" + _MINE
RELEASE = "UPDATE stayfast_item SET holder=0, deliveries=deliveries-1" + _MINE
FAIL = """
UPDATE stayfast_item SET holder=?, failures=failures+1, due=?, reason=? WHERE id=? AND generation=? AND holder=?
"""
RENEW = "UPDATE stayfast_owner SET expires=max(expires, ?) WHERE id IN (SELECT value FROM json_each(?))"
COMPLETED = "SELECT 1 FROM stayfast_item WHERE id=? AND generation=? AND holder IS NULL"
ADD = """
INSERT INTO stayfast_item (queue, key, holder, payload) VALUES (?, ?, 0, ?) ON CONFLICT (queue, key) DO NOTHING
"""
REPLACE = """
INSERT INTO stayfast_item (queue, key, holder, payload) VALUES (?, ?, 0, ?) ON CONFLICT (queue, key) DO UPDATE
SET payload=excluded.payload, holder=0, failures=0, deliveries=0, due=NULL, reason=NULL
"""
RELEASE_EXPIRED = """
UPDATE stayfast_item SET holder=CASE WHEN deliveries >= ?3 THEN -2 ELSE 0 END,
  reason=CASE WHEN deliveries >= ?3 THEN ?4 ELSE reason END
WHERE queue=?1 AND holder=?2
"""
MAKE_DELAYED_READY = """
UPDATE stayfast_item SET holder=0, due=NULL WHERE queue=?1 AND holder=-1 AND (due <= ?2 OR due > ?3)
"""
RELEASE_OTHERS = """
UPDATE stayfast_item SET holder=0, deliveries=deliveries-1
WHERE queue=?1 AND holder=?2 AND id NOT IN (SELECT value FROM json_each(?3))
"""
RECORD_CRASH = """
UPDATE stayfast_item SET failures=failures+1, reason=?4,
  holder=CASE WHEN failures+1 >= ?3 THEN -2 ELSE -1 END, due=CASE WHEN failures+1 >= ?3 THEN NULL ELSE ?5 END
WHERE queue=?1 AND holder=?2
"""
ENTRIES = "SELECT key, holder FROM stayfast_item WHERE queue=? AND key > ? ORDER BY key LIMIT ?"
DEAD_ITEMS = """
SELECT id, key, payload, failures, reason FROM stayfast_item
WHERE queue=? AND holder=-2 AND due IS NULL AND id > ? ORDER BY id LIMIT ?
"""
RETRY = """
UPDATE stayfast_item SET holder=0, failures=0, deliveries=0, reason=NULL, due=NULL WHERE queue=? AND holder=-2
"""
