"""Tables and statements of the PostgreSQL queue; the same shape as in SQLite, judged by the server's clock.

``holder`` is the state: NULL done, 0 ready, -1 delayed, -2 dead, otherwise the owner. A chunk travels as arrays, so
that each step is one statement and one round trip, and every statement that settles an item names owner and generation.
"""

from __future__ import annotations

VERSION = 1
STEPS = {
    1: """
CREATE TABLE stayfast_queue (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE SEQUENCE stayfast_generation;
CREATE TABLE stayfast_owner (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue bigint NOT NULL,
  expires timestamptz NOT NULL,
  renewed timestamptz NOT NULL
) WITH (fillfactor=50);
CREATE TABLE stayfast_item (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue bigint NOT NULL,
  holder bigint,
  generation bigint NOT NULL DEFAULT 0,
  due timestamptz,
  failures int NOT NULL DEFAULT 0,
  deliveries int NOT NULL DEFAULT 0,
  key text COLLATE "C" NOT NULL,
  payload text NOT NULL,
  reason text
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_insert_scale_factor=0.2);
CREATE UNIQUE INDEX stayfast_item_key ON stayfast_item (queue, key);
CREATE INDEX stayfast_item_open ON stayfast_item (queue, holder, id) WHERE holder IS NOT NULL;
"""
}

ADD = """
INSERT INTO stayfast_item (queue, key, holder, payload)
SELECT %s, key, 0, payload FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS new (key, payload, place)
ORDER BY place ON CONFLICT (queue, key) DO
"""
REPLACE = """
UPDATE SET payload=excluded.payload, holder=0, failures=0, deliveries=0, due=NULL, reason=NULL
"""
# Spelt differently; whether they also mean different things is not for jsonb to say, which knows no NUL.
CHANGED = """
SELECT new.key, old.payload, new.payload FROM unnest(%s::text[], %s::text[]) AS new (key, payload)
JOIN stayfast_item AS old ON old.queue=%s AND old.key=new.key AND old.payload <> new.payload
"""
REGISTER = """
INSERT INTO stayfast_owner (queue, expires, renewed)
VALUES (%s, clock_timestamp() + make_interval(secs => %s), clock_timestamp()) RETURNING id
"""
# Nothing here may wait for a lock: one owner whose row is being taken away must not cost the others of its pool theirs.
RENEW = """
UPDATE stayfast_owner SET expires=clock_timestamp() + make_interval(secs => %s), renewed=clock_timestamp()
WHERE id IN (SELECT id FROM stayfast_owner WHERE id=ANY(%s::bigint[]) FOR NO KEY UPDATE SKIP LOCKED) RETURNING id
"""
# By itself a renewal need not survive a crash of the server, and must not wait for a busy disk.
RENEW_ASYNC = "WITH lightly AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))" + RENEW.replace(
    "WHERE id IN", "FROM lightly WHERE id IN"
)
# The weakest lock that keeps the row from being deleted: renewals from other processes go through beside it, however
# long the transaction lasts.
ALIVE = "SELECT id FROM stayfast_owner WHERE id=%s FOR KEY SHARE"
# Ready items stand in the order of the index of open items. ``holder = 0`` would let the server walk along the primary
# key instead, over everything that was finished before; so that is said in a way which only this index understands.
CLAIM = """
UPDATE stayfast_item SET holder=%(owner)s, deliveries=deliveries+1,
  generation=(SELECT nextval('stayfast_generation'))
WHERE id=ANY(ARRAY(
  SELECT id FROM stayfast_item WHERE queue=%(queue)s AND (holder, id) > (0, %(after)s) AND holder <= 0
  ORDER BY holder, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
RETURNING id, key, payload, generation, failures
"""
_MINE = """
FROM unnest(%s::bigint[], %s::bigint[]) AS mine (id, generation)
WHERE item.id=mine.id AND item.generation=mine.generation AND item.holder=%s RETURNING item.id, item.generation
"""
COMPLETE = "UPDATE stayfast_item AS item SET holder=NULL" + _MINE
RELEASE = "UPDATE stayfast_item AS item SET holder=0, deliveries=deliveries-1" + _MINE
FAIL = """
UPDATE stayfast_item SET holder=CASE WHEN %(over)s THEN -2 ELSE -1 END, failures=failures+1, reason=%(reason)s,
  due=CASE WHEN %(over)s THEN NULL ELSE clock_timestamp() + make_interval(secs => %(delay)s) END
WHERE id=%(id)s AND generation=%(generation)s AND holder=%(owner)s
"""
EXPIRED = """
DELETE FROM stayfast_owner WHERE id IN (
  SELECT id FROM stayfast_owner WHERE queue=%s AND id <> %s AND expires < clock_timestamp() FOR UPDATE SKIP LOCKED)
RETURNING id
"""
RELEASE_EXPIRED = """
UPDATE stayfast_item SET holder=CASE WHEN deliveries >= %(limit)s THEN -2 ELSE 0 END,
  reason=CASE WHEN deliveries >= %(limit)s THEN %(reason)s ELSE reason END
WHERE queue=%(queue)s AND holder=ANY(%(owners)s::bigint[])
"""
MAKE_DELAYED_READY = """
UPDATE stayfast_item SET holder=0, due=NULL WHERE id IN (
  SELECT id FROM stayfast_item WHERE queue=%s AND holder=-1 AND due <= clock_timestamp() FOR UPDATE SKIP LOCKED)
"""
RELEASE_OTHERS = """
UPDATE stayfast_item SET holder=0, deliveries=deliveries-1
WHERE queue=%s AND holder=%s AND NOT id=ANY(%s::bigint[])
"""
RECORD_CRASH = """
UPDATE stayfast_item SET failures=failures+1, reason=%(reason)s,
  holder=CASE WHEN failures+1 >= %(limit)s THEN -2 ELSE -1 END,
  due=CASE WHEN failures+1 >= %(limit)s THEN NULL ELSE clock_timestamp() + make_interval(secs => %(delay)s) END
WHERE queue=%(queue)s AND holder=ANY(%(owners)s::bigint[])
"""
REMAINING = """
SELECT EXISTS (SELECT FROM stayfast_item WHERE queue=%(queue)s AND holder=0),
  (SELECT extract(epoch FROM min(due) - clock_timestamp()) FROM stayfast_item WHERE queue=%(queue)s AND holder=-1),
  EXISTS (SELECT FROM stayfast_item WHERE queue=%(queue)s AND holder > 0 AND holder <> %(owner)s)
"""
ENTRIES = "SELECT key, holder FROM stayfast_item WHERE queue=%s AND key > %s ORDER BY key LIMIT %s"
DEAD_ITEMS = """
SELECT id, key, payload, failures, reason FROM stayfast_item
WHERE queue=%s AND holder=-2 AND id > %s ORDER BY id LIMIT %s
"""
RETRY = """
UPDATE stayfast_item SET holder=0, failures=0, deliveries=0, reason=NULL, due=NULL WHERE queue=%s AND holder=-2
"""
