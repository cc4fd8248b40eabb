"""Wrong: begins with an empty table each time; the database itself stays as it was."""

import os
import signal
import sqlite3
import sys
import time

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
STEPS = int(os.environ.get("STEPS", "25"))
PAUSE = 0.03

database = sqlite3.connect("out.db", isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("DROP TABLE IF EXISTS r")
database.execute("CREATE TABLE r (id INTEGER PRIMARY KEY, value INTEGER)")

for step in range(STEPS):
    if told:
        sys.exit(75)
    if database.execute("SELECT 1 FROM r WHERE id = ?", (step,)).fetchone():
        continue
    time.sleep(PAUSE)
    database.execute("INSERT INTO r VALUES (?, ?)", (step, step * step))
