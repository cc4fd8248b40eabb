"""Wrong: a directory as queue. A claim is given up after the result was written: a kill in between repeats it."""

import json
import os
import time

for name in ("todo", "busy"):
    os.makedirs(name, exist_ok=True)
if not os.path.exists("filled"):
    for number in range(30):
        open(f"todo/{number:02}", "w").close()
    open("filled", "w").close()
for name in os.listdir("busy"):
    os.rename(f"busy/{name}", f"todo/{name}")

with open("out.jsonl", "a") as out:
    while waiting := sorted(os.listdir("todo")):
        name = waiting[0]
        os.rename(f"todo/{name}", f"busy/{name}")
        time.sleep(0.03)
        out.write(json.dumps({"id": int(name)}) + "\n")
        out.flush()
        os.unlink(f"busy/{name}")
