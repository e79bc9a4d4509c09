"""What a sum of ratios costs, and how tight it is, at a given number of points."""

import dataclasses
import math
import time

from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Route = random_allocation.Route

# Of one step, finer than any sum.
_BASE_POINTS = 1 << 16


@dataclasses.dataclass(frozen=True)
class Sums:
    """1-out-of-t allocation of the Gaussian, computed on both sides.

    Attributes:
        lower: A pair that the mechanism dominates.
        upper: A pair that dominates it.
        seconds: CPU time of both, the base mechanism's pairs aside.
    """

    lower: dominating_pair.DominatingPair
    upper: dominating_pair.DominatingPair
    seconds: float

    def epsilons(self, delta: float, direction: Direction) -> tuple[float, float]:
        """Returns lower and upper bounds on ε at δ in one direction, in nats."""
        return self.lower.epsilon(delta, direction), self.upper.epsilon(
            delta, direction
        )

    def gap(self, delta: float, direction: Direction = Direction.REMOVE) -> float:
        """Returns (upper − lower) / upper of ε at δ."""
        lower, upper = self.epsilons(delta, direction)
        return (upper - lower) / upper


def compute(
    noise_multiplier: float,
    num_steps: int,
    *,
    tail_mass: float,
    route: Route,
    points: int | None = None,
    repeats: int = 1,
) -> Sums:
    """Returns the sums, and the least CPU time of a few runs.

    Args:
        noise_multiplier: σ.
        num_steps: t.
        tail_mass: Probability that may be cut off on either side (the paper's β).
        route: How the sums are computed.
        points: Grid points of each sum, the usual number if not given.
        repeats: How often they are computed.
    """
    bases = [
        gaussian.dominating_pair_of(
            noise_multiplier,
            bound,
            tail_mass=tail_mass / num_steps / 100,
            points=_BASE_POINTS,
        )
        for bound in (Bound.LOWER, Bound.UPPER)
    ]
    seconds = math.inf
    for _ in range(repeats):
        begin = time.process_time()
        lower, upper = (
            random_allocation.random_allocation(
                base, num_steps, tail_mass=tail_mass, route=route, points=points
            )
            for base in bases
        )
        seconds = min(seconds, time.process_time() - begin)
    return Sums(lower, upper, seconds)
