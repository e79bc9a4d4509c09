"""CPU time against the gap achieved, for both routes (the paper's Figure 3).

Prints for each route the points of a sum, the bracket of ε and its relative gap, and
the CPU seconds of both bounds; then the exponent of time over 1 / gap, fitted. The
paper's algorithm has exponent 2.

    python benchmarks/kernel_scaling.py
"""

import measured_with

from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.papers import allocation_sums

Route = allocation_sums.Route

SETTINGS = [(1.0, 100, 1e-6), (2.0, 1000, 1e-6)]
POINTS = {
    Route.GEOMETRIC: (1000, 2000, 4000, 8000, 16000),
    Route.ADDITIVE: (4096, 8192, 16384, 32768, 65536),
}
REPEATS = 3
REMOVE = dominating_pair.Direction.REMOVE


def print_setting(sigma: float, steps: int, delta: float) -> None:
    print(f"σ = {sigma:g}, t = {steps}, δ = {delta:g}, remove")
    for route, numbers in POINTS.items():
        rows = allocation_sums.compute(
            sigma, steps, route, numbers, tail_mass=1e-6 * delta, repeats=REPEATS
        )
        for row in rows:
            lower, upper = row.epsilons(delta, REMOVE)
            print(
                f"  {route.value:<10}{row.points:>7} points  [{lower:.8f}, {upper:.8f}]"
                f"  gap {row.gap(delta):.1e}  {row.seconds:.3f} CPU s"
            )
        exponent = allocation_sums.cost_exponent(rows, delta)
        print(f"  {route.value:<10}CPU time grows as (1 / gap)^{exponent:.2f}")


def main() -> None:
    print(measured_with.versions())
    for setting in SETTINGS:
        print_setting(*setting)


if __name__ == "__main__":
    main()
