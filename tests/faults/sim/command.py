"""``python -m faults.sim --seed N``: replay one seed and print its history; ``--count`` runs many."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import Any

from faults.sim import world
from faults.tiers import Lost

Options = dict[str, Any]


def shrink(seed: int, options: Options, tries: int = 200) -> frozenset[int]:
    """The faults that can be left out and something is still lost: halves first, then quarters, down to single ones."""
    total, skip = _faults(seed, options), frozenset[int]()
    size = max(1, total)
    while size and tries > 0:
        for first in range(0, total, size):
            longer = skip | frozenset(range(first, min(total, first + size)))
            if longer != skip and tries > 0:
                tries -= 1
                skip = longer if _is_lost(seed, longer, options) else skip
        size //= 2
    return skip


def _faults(seed: int, options: Options) -> int:
    seen: list[int] = []
    try:
        world.play(seed, watch=lambda scheduler: seen.append(scheduler.ordinals), **options)
    except Lost:
        pass
    return seen[0]


def _is_lost(seed: int, skip: frozenset[int], options: Options) -> bool:
    try:
        world.play(seed, skip=skip, **options)
    except Lost:
        return True
    return False


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m faults.sim", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, help="run this many seeds and print sums instead of a history")
    parser.add_argument("--kind", choices=sorted(world.WORLDS))
    parser.add_argument("--shrink", action="store_true", help="leave out faults that do not matter, then print")
    args = parser.parse_args(arguments)
    options: Options = {"kind": args.kind}
    logging.disable(logging.CRITICAL)
    try:
        if args.count:
            print(world.run(args.seed, args.count, **options))
            return
        skip = shrink(args.seed, options) if args.shrink else frozenset()
        scheduler = world.play(args.seed, say=print, skip=skip, **options)
    except Lost as error:
        sys.exit(f"LOST: {error}")
    print(f"fine: {scheduler.tick} ticks, {sum(scheduler.injected.values())} faults, {scheduler.fingerprint}")
