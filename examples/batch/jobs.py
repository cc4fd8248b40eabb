"""Batch inference: a "model" over text, a hundred items at a time."""

import hashlib
import os
import time

import stayfast

PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0.05"))  # stands for the work of a real batch


def model(text):
    """Something that always gives the same answer for the same input."""
    return {
        "label": "long" if len(text) > 40 else "short",
        "score": int(hashlib.sha256(text.encode()).hexdigest()[:4], 16),
    }


@stayfast.task(key=lambda item: item["id"])
def infer(batch):
    time.sleep(PAUSE_SECONDS)
    print(f"batch of {len(batch)}", flush=True)
    return [model(item["text"]) for item in batch]
