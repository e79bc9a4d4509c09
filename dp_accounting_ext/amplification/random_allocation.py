"""Privacy amplification by random allocation: k of t steps, for every record."""

from collections.abc import Sequence
import dataclasses
import math

from dp_accounting_ext.amplification import allocation_routes
from dp_accounting_ext.amplification import allocation_stages
from dp_accounting_ext.amplification import geometric_allocation
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.pairs import dominating_pair

Route = allocation_routes.Route

UNEVEN_POINTS = 16384  # Tuning: as many as a lattice has.


def random_allocation(
    pair: dominating_pair.DominatingPair,
    num_steps: int,
    *,
    tail_mass: float,
    route: Route = Route.AUTOMATIC,
    points: int | None = None,
) -> dominating_pair.DominatingPair:
    """Returns the pair of 1-out-of-t random allocation.

    Z = (X_1 + … + X_t) / t, with X_i independent copies of the step's ratio,
    for both directions at once; an infinity_mass stays as it is.

    Args:
        pair: Any realization of one step, n atoms; upper or lower.
        num_steps: Number of steps, t ≥ 1.
        tail_mass: Probability that may be moved to the sinks (of an upper
            bound) or dropped (of a lower one).
        route: The multiplicative grid, the additive lattice, or whichever
            suits the pair.
        points: Grid points of each sum; more are tighter and slower.

    Guarantees:
        An upper (lower) pair of the step gives an upper (lower) pair of the
        allocation.

    Source:
        https://arxiv.org/abs/2602.17284, Theorem 4.4 and Claim 2.9; Theorem 4.6
        and Remark 4.7 for the computation.
    """
    if num_steps == 1 or is_constant(pair):
        return pair
    if is_lost(pair, num_steps, tail_mass):
        return dominating_pair.trivial_pair(pair.bound)
    # Sums of ratios must fit a float.
    largest = floats.LARGEST_LOSS - math.log(num_steps)
    pair = dominating_pair.below_loss(_occupied(pair), largest)
    if route is Route.AUTOMATIC:
        route = allocation_routes.choose_route(pair, num_steps, tail_mass=tail_mass)
    if route is Route.GEOMETRIC:
        return allocation_stages.on_grid(pair, num_steps, tail_mass, points)
    return allocation_stages.in_stages(
        pair, num_steps, tail_mass, points or allocation_stages.ADDITIVE_POINTS
    )


def uneven_allocation(
    pairs: Sequence[tuple[dominating_pair.DominatingPair, int]], *, tail_mass: float
) -> dominating_pair.DominatingPair:
    """Returns the pair of 1-out-of-t allocation over steps that differ.

    Args:
        pairs: Realizations of steps with the number of each, t in all; all upper
            or all lower.
        tail_mass: As for `random_allocation`.

    Source:
        https://arxiv.org/abs/2602.17284, Theorem 4.4, whose proof asks nothing of
        the steps but that they are the same with the record and without.
    """
    total = sum(count for _, count in pairs)
    tail_mass /= len(pairs)
    means = [
        random_allocation(pair, count, tail_mass=tail_mass) for pair, count in pairs
    ]
    if len(means) == 1:
        return means[0]
    return geometric_allocation.weighted_mean(
        means,
        [count / total for _, count in pairs],
        tail_mass=tail_mass,
        points=UNEVEN_POINTS,
    )


def is_constant(pair: dominating_pair.DominatingPair) -> bool:
    """Tells whether the finite ratio is one number, or there is none at all."""
    if not pair.p_masses.any():
        return True
    return pair.loss_range() == 0 and not pair.zero_mass


def is_lost(
    pair: dominating_pair.DominatingPair, num_steps: int, tail_mass: float
) -> bool:
    """Tells whether a lower bound lacks so much mass that of the sums none is left."""
    mass = float(pair.masses.sum()) + pair.zero_mass
    return num_steps * math.log(mass) < math.log(tail_mass)


def _occupied(pair: dominating_pair.DominatingPair) -> dominating_pair.DominatingPair:
    """Returns the pair without ratios that have no mass."""
    kept = pair.masses > 0
    return dataclasses.replace(pair, ratios=pair.ratios[kept], masses=pair.masses[kept])
