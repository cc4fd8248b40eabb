"""Right: a batch task."""

import time

import stayfast


@stayfast.task(key=lambda item: item["id"])
def measure(batch):
    time.sleep(0.02 * len(batch))
    return [{"letters": len(item["id"])} for item in batch]
