"""Privacy amplification by random allocation: k of t steps, for every record."""

from collections.abc import Sequence
import dataclasses
import enum
import math

from dp_accounting_ext.amplification import additive_allocation
from dp_accounting_ext.amplification import additive_window
from dp_accounting_ext.amplification import geometric_allocation
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.pairs import dominating_pair

# Points of each sum, so that brackets are within about 1e-5 of ε, relatively.
ADDITIVE_POINTS = 16384
_GEOMETRIC_POINTS = 4000
_UNEVEN_POINTS = 16384
_GEOMETRIC_WIDTH = 20.0  # The loss's range, and
_GEOMETRIC_DOUBLINGS = 8.0  # the number of doublings, at which a sum takes that many.

_LONGEST_STAGE = 160

# Where the multiplicative grid is used. Tuning, all of it: either route is certified
# for any pair. Measured over Gaussians of σ from 0.7 to 1000, Laplace noise and
# randomized response, t from 2 to 10⁷, δ from 1e-3 to 1e-100.
_NARROWEST_LOSS = 1e-9  # Below it a lattice's points have more digits than a float.
_WIDEST_LOSS = 150.0
_HIGHEST_SUM = 16.0  # Over the lowest, without large ratios.
_FEWEST_STEPS = 8  # Of fewer, a lattice shows large ratios, and the sum's ends, badly:
_NEAREST_END = 0.75  # its window's ends, on the way from the mean to the sum's.
_RAREST = 1e-90  # Tails that Fourier sums leave nothing of.
# With large ratios; lengths are in standard deviations of the sum without them.
_HEAVIEST_RATIO = 4.0
_FURTHEST_RATIO = 1e7
_LARGEST_SHARE = 0.5  # Of the mean, that large ratios may have.
_RAREST_WITH_LARGE = 1e-72
# Large ratios so short that several make a sum of the tail. At σ = 6, t = 9 and δ of
# 1e-9, 1e-16, 1e-40 lattices are 3e-4, 7e-3 and 4e-2 wide, the grid 1e-5, 1e-5 and
# 3e-5.
_SHORT_RATIO = 60.0
_RARE = 2e-15  # Above it, and
_RARE_SUM = 6e-10  # for tails times t^2.5, lattices are as tight and cheaper.


class Route(enum.Enum):
    """How sums of ratios are computed."""

    AUTOMATIC = "automatic"
    GEOMETRIC = "geometric"
    ADDITIVE = "additive"


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
    if num_steps == 1 or _is_constant(pair):
        return pair
    if _is_lost(pair, num_steps, tail_mass):
        return dominating_pair.trivial_pair(pair.bound)
    # Sums of ratios must fit a float.
    largest = floats.LARGEST_LOSS - math.log(num_steps)
    pair = dominating_pair.below_loss(_occupied(pair), largest)
    if route is Route.AUTOMATIC:
        route = choose_route(pair, num_steps, tail_mass=tail_mass)
    if route is Route.GEOMETRIC:
        return _geometric(pair, num_steps, tail_mass, points)
    return _in_stages(pair, num_steps, tail_mass, points or ADDITIVE_POINTS)


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
        points=_UNEVEN_POINTS,
    )


def _is_constant(pair: dominating_pair.DominatingPair) -> bool:
    """Tells whether the finite ratio is one number, or there is none at all."""
    if not pair.p_masses.any():
        return True
    return pair.loss_range() == 0 and not pair.zero_mass


def _is_lost(
    pair: dominating_pair.DominatingPair, num_steps: int, tail_mass: float
) -> bool:
    """Tells whether a lower bound lacks so much mass that of the sums none is left."""
    mass = float(pair.masses.sum()) + pair.zero_mass
    return num_steps * math.log(mass) < math.log(tail_mass)


def _occupied(pair: dominating_pair.DominatingPair) -> dominating_pair.DominatingPair:
    """Returns the pair without ratios that have no mass."""
    kept = pair.masses > 0
    return dataclasses.replace(pair, ratios=pair.ratios[kept], masses=pair.masses[kept])


def _points_for(pair: dominating_pair.DominatingPair, num_steps: int) -> int:
    """Returns points that keep the cost, points² / range a doubling, the same."""
    growth = max(pair.loss_range() / _GEOMETRIC_WIDTH, 1.0)
    growth *= _GEOMETRIC_DOUBLINGS / math.ceil(math.log2(num_steps) + 1)
    return math.ceil(_GEOMETRIC_POINTS * math.sqrt(growth))


def choose_route(
    pair: dominating_pair.DominatingPair, num_steps: int, *, tail_mass: float
) -> Route:
    """Returns the route that is tighter, or as tight and cheaper.

    The additive lattice for sums whose bulk is wide beside their large ratios, and no
    lower than it resolves: to an inserted record the least ratios matter, relatively.

    Args:
        pair: The ratio of one step, all of whose atoms have mass.
        num_steps: Number of steps, t ≥ 2.
        tail_mass: Probability that may be trimmed, on either side.
    """
    loss_range = pair.loss_range()
    if not _NARROWEST_LOSS < loss_range <= _WIDEST_LOSS:
        return Route.GEOMETRIC
    if abs(math.log(float(pair.ratios[-1]))) > _WIDEST_LOSS or tail_mass < _RAREST:
        return Route.GEOMETRIC
    large, deviation = _bulk(pair, num_steps)
    if math.isfinite(large) and (
        num_steps < _FEWEST_STEPS
        or tail_mass < _RAREST_WITH_LARGE
        or large - 1 > _HEAVIEST_RATIO * deviation
        or _is_all_large(pair, num_steps)
        or _are_many_large(pair, num_steps, tail_mass)
    ):
        return Route.GEOMETRIC
    summands = [additive_window.Summand(pair, num_steps)]
    window = additive_window.window_of(summands, tail_mass)
    if window.high > _HIGHEST_SUM * window.low:
        return Route.GEOMETRIC
    if num_steps < _FEWEST_STEPS and _reaches_an_end(window, pair, num_steps):
        return Route.GEOMETRIC
    return Route.ADDITIVE


def _are_many_large(
    pair: dominating_pair.DominatingPair, num_steps: int, tail_mass: float
) -> bool:
    """Tells whether it takes several large ratios to make a sum of the tail."""
    _, deviation = _bulk(pair, num_steps)
    longest = float(pair.ratios[-1]) - 1
    rare = tail_mass <= min(_RARE, _RARE_SUM / num_steps**2.5)
    return rare and longest <= _SHORT_RATIO * deviation


def _reaches_an_end(
    window: additive_window.Window,
    pair: dominating_pair.DominatingPair,
    num_steps: int,
) -> bool:
    """Tells whether a window comes near the least or the largest sum."""
    mean = num_steps * float(pair.p_masses.sum())
    least, largest = num_steps * pair.ratios[[0, -1]]
    low = mean - window.low > _NEAREST_END * (mean - float(least))
    return low or window.high - mean > _NEAREST_END * (float(largest) - mean)


def _bulk(pair: dominating_pair.DominatingPair, num_steps: int) -> tuple[float, float]:
    """Returns where large ratios begin, and the deviation of a sum without them."""
    summands = [additive_window.Summand(pair, num_steps)]
    large = additive_window.large_ratio_threshold(summands)
    return large, additive_window.bulk_deviation(summands, large)


def _is_all_large(pair: dominating_pair.DominatingPair, num_steps: int) -> bool:
    """Tells whether a lattice that resolves the bulk has no room for the large ratios.

    Or whether these have most of the mean, so that the bulk is next to nothing.
    """
    large, deviation = _bulk(pair, num_steps)
    if math.isinf(large):
        return False
    of_the_mean = float(pair.p_masses[pair.ratios > large].sum())
    if of_the_mean > _LARGEST_SHARE * float(pair.p_masses.sum()):
        return True
    return float(pair.ratios[-1]) > _FURTHEST_RATIO * deviation


def _geometric(
    pair: dominating_pair.DominatingPair,
    num_steps: int,
    tail_mass: float,
    points: int | None,
) -> dominating_pair.DominatingPair:
    return geometric_allocation.mean_of_copies(
        pair,
        num_steps,
        tail_mass=tail_mass,
        points=points or _points_for(pair, num_steps),
    )


def _in_stages(
    pair: dominating_pair.DominatingPair,
    num_steps: int,
    tail_mass: float,
    points: int,
) -> dominating_pair.DominatingPair:
    """Returns the mean of t ratios as a mean of means of means.

    A lattice that resolves one ratio is needlessly fine for a sum of thousands.
    Each stage averages a few dozen, and the next has a lattice of its own.
    """
    stages = math.ceil(math.log(num_steps) / math.log(_LONGEST_STAGE))
    means: dict[int, dominating_pair.DominatingPair] = {1: pair}

    def mean(steps: int, stage: int, tail: float) -> dominating_pair.DominatingPair:
        if steps in means:
            return means[steps]
        if stage == 1 and stages > 1 and _is_all_large(pair, steps):
            # A few dozen may be all large ratios where a million are not.
            means[steps] = _geometric(pair, steps, tail, None)
            return means[steps]
        groups = _number_of_groups(steps, stage)
        size, larger = divmod(steps, groups)
        sizes = [(size, groups - larger), (size + 1, larger)]
        summands = [
            additive_window.Summand(
                mean(n, stage - 1, tail / groups), count, n * groups / steps
            )
            for n, count in sizes
            if count
        ]
        window = additive_window.window_of(summands, tail)
        means[steps] = additive_allocation.mean_of(summands, window, points=points)
        return means[steps]

    return mean(num_steps, stages, tail_mass)


def _number_of_groups(num_steps: int, stages: int) -> int:
    """Returns into how many groups of nearly equal size the last stage averages.

    Where a number near the best one divides the steps, all groups are equal.
    """
    if stages == 1:
        return num_steps
    best = float(num_steps ** (1 / stages))
    near = range(max(2, math.ceil(best / 1.5)), math.floor(best * 1.5) + 1)
    divisors = [groups for groups in near if num_steps % groups == 0]
    candidates: list[int] = divisors or [round(best)]
    return min(candidates, key=lambda groups: abs(groups - best))
