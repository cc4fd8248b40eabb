"""The same kind of task; that its items come from Pub/Sub is a matter of the URL."""

import os
import time

import stayfast

PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0.05"))  # stands for the work of a real batch


@stayfast.task
def count(batch):
    time.sleep(PAUSE_SECONDS)
    print(f"batch of {len(batch)}", flush=True)
    return [{"words": len(item["text"].split())} for item in batch]
