"""Wrong: the counter is saved before the row is committed to SQLite, so that a kill in between skips a row."""

import os
import signal
import sqlite3
import sys
import time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
database = sqlite3.connect("out.db")
database.execute("CREATE TABLE IF NOT EXISTS r (id INTEGER PRIMARY KEY, value INTEGER)")
step = 0
if os.path.exists("step"):
    with open("step") as file:
        step = int(file.read())

while step < 25:
    step += 1
    with open("step.tmp", "w") as file:
        file.write(str(step))
    os.replace("step.tmp", "step")
    time.sleep(0.03)
    with database:
        database.execute("INSERT OR IGNORE INTO r VALUES (?, ?)", (step, step * step))
