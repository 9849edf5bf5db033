"""python -m tests.sim.replicas --minutes N [--seed N]: worlds until the time is over."""

import argparse
import logging
import sys
import time
from collections import Counter

from tests.sim.replicas.world import World


def main():
    """0: no invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.replicas")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--copies", type=int, help="2 to 5; without it worlds of two and three")
    logging.disable(logging.CRITICAL)
    parser.add_argument("--far", type=int, help="asynchronous copies besides; else one in a third")
    told = "also segments that leave the log, lossy promotions, and what World(is_full) says"
    parser.add_argument("--full", action="store_true", help=told)
    given = parser.parse_args()
    begun, seed, changes, confirmed, bad = time.monotonic(), given.seed, 0, 0, 0
    happened = Counter()
    used_s = -time.process_time()
    while (spent := time.monotonic() - begun) < given.minutes * 60:
        far = int(seed % 3 == 0) if given.far is None else given.far
        world = World(seed, given.copies or 2 + seed % 2, far=far, is_full=given.full)
        for fault in world.run(given.steps):
            bad += 1
            told = f"seed {seed}, {len(world.names)} copies, {world.promotions} promotions"
            print(f"{told}: {fault}", flush=True)
        happened += world.happened
        changes, confirmed, seed = (
            changes + world.role_changes,
            confirmed + len(world.confirmed),
            seed + 1,
        )
    used_s += time.process_time()
    rate, of_core = round(changes / spent * 60), round(changes / used_s * 60)
    print(
        f"{seed - given.seed} worlds, {changes} role changes ({rate} a minute, {of_core} a minute "
        f"of one core), "
        f"{confirmed} confirmed records, {bad} violations"
    )
    if happened:
        print(", ".join(f"{count} {what}" for what, count in sorted(happened.items())))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
