"""CPU time against the gap achieved, for both routes (the paper's Figure 3).

Prints for each route the points of a sum, the bracket of ε and its relative gap, and
the CPU seconds of both bounds; then the exponent of time over 1 / gap, fitted. The
paper's algorithm has exponent 2. Last, the two routes' bounds combined.

    python benchmarks/kernel_scaling.py
"""

import numpy as np

from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import profile_pairs
from dp_accounting_ext.papers import allocation_sums

Route = allocation_sums.Route

SETTINGS = [(1.0, 100, 1e-6), (2.0, 1000, 1e-6)]
POINTS = {
    Route.GEOMETRIC: (1000, 2000, 4000, 8000, 16000),
    Route.ADDITIVE: (4096, 8192, 16384, 32768, 65536),
}
REPEATS = 3
REMOVE = dominating_pair.Direction.REMOVE


def sums(
    sigma: float, steps: int, delta: float, route: Route, points: int
) -> allocation_sums.Sums:
    return allocation_sums.compute(
        sigma,
        steps,
        tail_mass=1e-6 * delta,
        route=route,
        points=points,
        repeats=REPEATS,
    )


def main() -> None:
    for sigma, steps, delta in SETTINGS:
        print(f"σ = {sigma:g}, t = {steps}, δ = {delta:g}, remove")
        for route, sizes in POINTS.items():
            gaps, seconds = [], []
            for points in sizes:
                made = sums(sigma, steps, delta, route, points)
                lower, upper = made.epsilons(delta, REMOVE)
                gaps.append(made.gap(delta))
                seconds.append(made.seconds)
                print(
                    f"  {route.value:<10}{points:>7} points  [{lower:.8f}, {upper:.8f}]"
                    f"  gap {gaps[-1]:.1e}  {seconds[-1]:.3f} CPU s"
                )
            slope = np.polyfit(-np.log(gaps), np.log(seconds), 1)[0]
            print(f"  {route.value:<10}CPU time grows as (1 / gap)^{slope:.2f}")
        first = sums(sigma, steps, delta, Route.ADDITIVE, 16384)
        second = sums(sigma, steps, delta, Route.GEOMETRIC, 2000)
        lower, upper = (
            profile_pairs.combine(main, tail).epsilon(delta, REMOVE)
            for main, tail in ((first.lower, second.lower), (first.upper, second.upper))
        )
        print(f"  combined  16384 and 2000  [{lower:.8f}, {upper:.8f}]")


if __name__ == "__main__":
    main()
