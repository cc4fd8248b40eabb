"""Right with two writers: an attempt that finds another one at work leaves with 75, and the old one takes its time."""

import fcntl
import os
import signal
import sys
import time

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))

lock = os.open("lock", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(75)

step = 0
if os.path.exists("step"):
    with open("step") as file:
        step = int(file.read())
while step < 25:
    if told:
        time.sleep(1.5)
        sys.exit(75)
    time.sleep(0.03)
    step += 1
    with open("step.tmp", "w") as file:
        file.write(str(step))
    os.replace("step.tmp", "step")

with open("result.tmp", "w") as file:
    file.write(f"{step}\n")
os.replace("result.tmp", "result.txt")
