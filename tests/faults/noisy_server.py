"""The bucket server with a share of all requests going wrong, by seed."""

from __future__ import annotations

import random
from typing import Any

from servers.bucket_server import BucketServer, Fault

APPLIED = ("drop", "reset", "503", "stall")
KINDS = {
    "put": ("lose_request", "reset", "stall", "409", "429", "503", *(f"apply_{how}" for how in APPLIED)),
    "get": ("lose_request", "reset", "torn", "stall", "429", "500", "503"),
    "look": ("lose_request", "503"),
    "list": ("stale_list", "503", "reset"),
    "delete": ("apply_drop", "503", "lose_request"),
}


class NoisyServer(BucketServer):
    """``noise`` is the share of requests that meet a fault; set it to 0 for silence."""

    def __init__(self, seed: int, *, noise: float = 0.25, **how: Any) -> None:
        super().__init__(**how)
        self.random = random.Random(seed)
        self.noise = noise

    def pick(self, op: str, name: str) -> Fault | None:
        if self.random.random() < self.noise:
            self.arm(self.random.choice(KINDS[op]), op=op, seconds=0.01)
        return super().pick(op, name)
