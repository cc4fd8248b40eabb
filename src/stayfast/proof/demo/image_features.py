"""The demo's batch task: features of small images, in plain Python so that it runs wherever stayfast does."""

from __future__ import annotations

import math
import os
import random
from typing import Any

import stayfast

SIDE = 20
LEVELS = 8


@stayfast.task(key=lambda item: item["image"])
def features(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A histogram of grey levels and one of edge directions for each image."""
    _note([item["image"] for item in batch])
    return [describe(item["seed"]) for item in batch]


def describe(seed: int) -> dict[str, Any]:
    """The features of one image; the same seed always gives the same ones."""
    image = _draw(seed)
    grey, edges = [0] * LEVELS, [0.0] * LEVELS
    for y in range(1, SIDE - 1):
        for x in range(1, SIDE - 1):
            grey[min(LEVELS - 1, int(image[y][x] * LEVELS))] += 1
            across = image[y][x + 1] - image[y][x - 1]
            down = image[y + 1][x] - image[y - 1][x]
            angle = (math.atan2(down, across) + math.pi) / (2 * math.pi)
            edges[min(LEVELS - 1, int(angle * LEVELS))] += math.hypot(across, down)
    return {"grey": grey, "edges": [round(value, 6) for value in edges]}


def _draw(seed: int) -> list[list[float]]:
    """A few soft discs on a slope."""
    chance = random.Random(seed)
    tilt = chance.uniform(-0.02, 0.02)
    discs = [(chance.uniform(0, SIDE), chance.uniform(0, SIDE), chance.uniform(2, 6)) for _ in range(4)]
    rows = []
    for y in range(SIDE):
        row = []
        for x in range(SIDE):
            light = 0.3 + tilt * (x - y)
            for cx, cy, radius in discs:
                light += 0.35 * math.exp(-((x - cx) ** 2 + (y - cy) ** 2) / radius**2)
            row.append(min(0.999, max(0.0, light)))
        rows.append(row)
    return rows


def _note(keys: list[str]) -> None:
    """Write down what is computed, so that the end can tell how often work was done again."""
    path = os.environ.get("STAYFAST_DEMO_LOG")
    if path:
        with open(f"{path}.{os.getpid()}", "a", encoding="utf-8") as file:
            file.write("".join(f"{key}\n" for key in keys))
