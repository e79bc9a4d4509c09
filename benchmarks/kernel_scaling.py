"""CPU time against the gap achieved, for both routes (the paper's Figure 3).

Prints for each route the points of a sum, the bracket of ε and its relative gap, and
the CPU seconds of both bounds; then the exponent of time over 1 / gap, fitted. The
paper's algorithm has exponent 2. Last, the two routes' bounds combined.

    python benchmarks/kernel_scaling.py
"""

import math
import time

import numpy as np

from dp_accounting_ext import dominating_pair
from dp_accounting_ext import profile_pairs
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.mechanisms import gaussian

Bound = dominating_pair.Bound
Route = random_allocation.Route

SETTINGS = [(1.0, 100, 1e-6), (2.0, 1000, 1e-6)]
POINTS = {
    Route.GEOMETRIC: (1000, 2000, 4000, 8000, 16000),
    Route.ADDITIVE: (4096, 8192, 16384, 32768, 65536),
}
REPEATS = 3
REMOVE = dominating_pair.Direction.REMOVE


def pairs(
    sigma: float, steps: int, delta: float, route: Route, points: int
) -> tuple[list[dominating_pair.DominatingPair], float]:
    """Returns the lower and the upper pair, and the least CPU time of a few runs."""
    best = math.inf
    tail = 1e-6 * delta
    bases = [
        gaussian.dominating_pair_of(
            sigma, bound, tail_mass=tail / steps / 100, points=1 << 16
        )
        for bound in (Bound.LOWER, Bound.UPPER)
    ]
    for _ in range(REPEATS):
        begin = time.process_time()
        made = [
            random_allocation.random_allocation(
                base, steps, tail_mass=tail, route=route, points=points
            )
            for base in bases
        ]
        best = min(best, time.process_time() - begin)
    return made, best


def main() -> None:
    for sigma, steps, delta in SETTINGS:
        print(f"σ = {sigma:g}, t = {steps}, δ = {delta:g}, remove")
        for route, sizes in POINTS.items():
            gaps, seconds = [], []
            for points in sizes:
                made, spent = pairs(sigma, steps, delta, route, points)
                lower, upper = (pair.epsilon(delta, REMOVE) for pair in made)
                gaps.append((upper - lower) / upper)
                seconds.append(spent)
                print(
                    f"  {route.value:<10}{points:>7} points  [{lower:.8f}, {upper:.8f}]"
                    f"  gap {gaps[-1]:.1e}  {spent:.3f} CPU s"
                )
            slope = np.polyfit(-np.log(gaps), np.log(seconds), 1)[0]
            print(f"  {route.value:<10}CPU time grows as (1 / gap)^{slope:.2f}")
        first, _ = pairs(sigma, steps, delta, Route.ADDITIVE, 16384)
        second, _ = pairs(sigma, steps, delta, Route.GEOMETRIC, 2000)
        both = [
            profile_pairs.combine(main, tail)
            for main, tail in zip(first, second, strict=True)
        ]
        lower, upper = (pair.epsilon(delta, REMOVE) for pair in both)
        print(f"  combined  16384 and 2000  [{lower:.8f}, {upper:.8f}]")


if __name__ == "__main__":
    main()
