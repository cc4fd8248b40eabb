"""``python -m faults.sim --seed N``: replay one seed and print its history; ``--count`` runs many."""

from __future__ import annotations

import argparse
import logging
import sys

from faults.sim import world
from faults.tiers import Lost


def shrink(seed: int, kind: str | None, tries: int = 400) -> frozenset[int]:
    """The faults that can be left out and something is still lost."""
    skip: frozenset[int] = frozenset()
    total = _faults(seed, skip, kind)
    size = max(1, total // 2)
    while size and tries:
        changed = False
        for first in range(0, total, size):
            tries -= 1
            longer = skip | frozenset(range(first, min(total, first + size)))
            if longer != skip and _is_lost(seed, longer, kind):
                skip, changed = longer, True
            if not tries:
                break
        if not changed or size > 1:
            size //= 2
    return skip


def _faults(seed: int, skip: frozenset[int], kind: str | None) -> int:
    seen: list[int] = []
    try:
        world.play(seed, skip=skip, kind=kind, watch=lambda scheduler: seen.append(scheduler.ordinals))
    except Lost:
        pass
    return seen[0]


def _is_lost(seed: int, skip: frozenset[int], kind: str | None) -> bool:
    try:
        world.play(seed, skip=skip, kind=kind)
    except Lost:
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m faults.sim", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, help="run this many seeds and print sums instead of a history")
    parser.add_argument("--kind", choices=sorted(world.WORLDS))
    parser.add_argument("--shrink", action="store_true", help="leave out faults that do not matter, then print")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    try:
        if args.count:
            print(world.run(args.seed, args.count, kind=args.kind))
            return
        skip = shrink(args.seed, args.kind) if args.shrink else frozenset()
        scheduler = world.play(args.seed, say=print, kind=args.kind, skip=skip)
    except Lost as error:
        sys.exit(f"LOST: {error}")
    print(f"fine: {scheduler.tick} ticks, {sum(scheduler.injected.values())} faults, {scheduler.fingerprint}")
