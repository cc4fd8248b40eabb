"""Right: four lines of stayfast around a loop."""

import os
import random
import time

import stayfast

random.seed(5)
model = {"weight": 0.0}

with stayfast.run("file://" + os.path.abspath("run"), total_steps=30) as run:
    run.track(model=(lambda: dict(model), model.update))
    for step in run.steps():
        model["weight"] = model["weight"] * 0.9 + random.random()
        time.sleep(0.03)
        if step % 5 == 4:
            run.save()

with open("result.tmp", "w") as file:
    file.write(f"{model['weight']!r}\n")
os.replace("result.tmp", "result.txt")
