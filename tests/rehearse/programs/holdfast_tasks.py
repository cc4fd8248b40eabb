"""Right: a batch task."""

import time

import holdfast


@holdfast.task(key=lambda item: item["id"])
def square(batch):
    time.sleep(0.02 * len(batch))
    return [{"square": item["id"] ** 2} for item in batch]
