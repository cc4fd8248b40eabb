"""Wrong: weights and counter are each replaced at once, but not together: a kill in between pairs old with new."""

import json
import os
import signal
import sys
import time

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))


def put(path, value):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".tmp", "w") as file:
        json.dump(value, file)
    os.replace(path + ".tmp", path)


def get(path, default):
    if not os.path.exists(path):
        return default
    with open(path) as file:
        return json.load(file)


weights, step = get("model/weights.json", 1), get("loader/step.json", 0)
while step < 25:
    time.sleep(0.03)
    weights = (weights * 31 + step) % 1000003
    step += 1
    put("model/weights.json", weights)
    put("loader/step.json", step)
    if told:
        sys.exit(75)
put("result.txt", weights)
