"""Right: three threads work, the main one saves what is done and leaves with 75 when it is told to."""

import json
import os
import queue
import signal
import sys
import threading
import time

stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
ITEMS, lock, todo = 60, threading.Lock(), queue.Queue()
done = set()
if os.path.exists("done.json"):
    with open("done.json") as file:
        done = set(json.load(file))
for item in range(ITEMS):
    if item not in done:
        todo.put(item)


def work():
    while not stop.is_set():
        try:
            item = todo.get_nowait()
        except queue.Empty:
            return
        time.sleep(0.05)
        with lock:
            done.add(item)


def save():
    with lock:
        items = sorted(done)
    with open("done.tmp", "w") as file:
        json.dump(items, file)
    os.replace("done.tmp", "done.json")


threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    time.sleep(0.05)
    save()
save()
if len(done) < ITEMS:
    sys.exit(75)
with open("result.tmp", "w") as file:
    file.write(f"{sum(done)}\n")
os.replace("result.tmp", "result.txt")
