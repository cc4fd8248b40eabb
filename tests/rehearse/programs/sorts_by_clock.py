"""Right while the clock only moves ahead: parts are named by the time of day, joined in the order of their names."""

import glob
import os
import time

STEPS = 20

while len(glob.glob("parts/*.txt")) < STEPS:
    time.sleep(0.03)
    os.makedirs("parts", exist_ok=True)
    step = len(glob.glob("parts/*.txt"))
    with open("part.tmp", "w") as file:
        file.write(f"{step}\n")
    os.replace("part.tmp", f"parts/{time.time_ns()}.txt")

with open("result.tmp", "w") as file:
    for name in sorted(glob.glob("parts/*.txt")):
        with open(name) as part:
            file.write(part.read())
os.replace("result.tmp", "result.txt")
