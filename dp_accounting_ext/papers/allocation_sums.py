"""What a sum of ratios costs, and how tight it is, at a given number of points."""

from collections.abc import Sequence
import dataclasses
import math
import time

import numpy as np

from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Route = random_allocation.Route

# Tuning: one step's pair is finer than any sum, so that the sum's points alone tell.
_BASE_POINTS = 1 << 16
_BASE_TAIL_SHARE = 1e-2


@dataclasses.dataclass(frozen=True)
class Sums:
    """1-out-of-t allocation of the Gaussian, computed on both sides.

    Attributes:
        points: Grid points of each sum; None if the usual number.
        lower: A pair that the mechanism dominates.
        upper: A pair that dominates it.
        seconds: CPU time of both, the base mechanism's pairs aside.
    """

    points: int | None
    lower: dominating_pair.DominatingPair
    upper: dominating_pair.DominatingPair
    seconds: float

    def epsilons(self, delta: float, direction: Direction) -> tuple[float, float]:
        """Returns lower and upper bounds on ε at δ in one direction, in nats."""
        lower, upper = self.lower, self.upper
        return lower.epsilon(delta, direction), upper.epsilon(delta, direction)

    def gap(self, delta: float, direction: Direction = Direction.REMOVE) -> float:
        """Returns (upper − lower) / upper of ε at δ."""
        lower, upper = self.epsilons(delta, direction)
        return (upper - lower) / upper


def compute(
    noise_multiplier: float,
    num_steps: int,
    route: Route,
    points: Sequence[int | None] = (None,),
    *,
    tail_mass: float = 1e-12,
    repeats: int = 1,
) -> list[Sums]:
    """Returns a row for each number of points, with the least CPU time of a few runs.

    Args:
        noise_multiplier: σ.
        num_steps: t.
        route: How the sums are computed.
        points: Grid points of each sum; None for the usual number.
        tail_mass: Probability that may be cut off on either side (the paper's β).
        repeats: How often each is computed.
    """
    bases = [
        gaussian.dominating_pair_of(
            noise_multiplier,
            bound,
            tail_mass=_BASE_TAIL_SHARE * tail_mass / num_steps,
            points=_BASE_POINTS,
        )
        for bound in (Bound.LOWER, Bound.UPPER)
    ]
    rows = []
    for number in points:
        seconds = math.inf
        for _ in range(repeats):
            begin = time.process_time()
            lower, upper = (
                random_allocation.random_allocation(
                    base, num_steps, tail_mass=tail_mass, route=route, points=number
                )
                for base in bases
            )
            seconds = min(seconds, time.process_time() - begin)
        rows.append(Sums(number, lower, upper, seconds))
    return rows


def cost_exponent(rows: Sequence[Sums], delta: float) -> float:
    """Returns the power of 1 / gap that CPU time grows as, fitted to several rows."""
    gaps = [row.gap(delta) for row in rows]
    seconds = [row.seconds for row in rows]
    return float(np.polyfit(-np.log(gaps), np.log(seconds), 1)[0])
