"""Wrong: tracks its model and not its loader; the sample ids that it adds to the fingerprint tell."""

import os
import time

import stayfast

model = {"weight": 0.0}
samples = iter(range(1000))

with stayfast.run("file://" + os.path.abspath("run"), total_steps=30) as run:
    run.track(model=(lambda: dict(model), model.update))
    for step in run.steps():
        sample = next(samples)
        run.fingerprint(samples=[sample])
        model["weight"] = model["weight"] * 0.9 + sample
        time.sleep(0.02)
        if step % 5 == 4:
            run.save()

with open("result.tmp", "w") as file:
    file.write(f"{model['weight']!r}\n")
os.replace("result.tmp", "result.txt")
