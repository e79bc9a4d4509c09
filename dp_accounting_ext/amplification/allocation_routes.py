"""Which way of summing ratios suits a pair: a multiplicative grid or a lattice."""

import enum
import math

from dp_accounting_ext.amplification import additive_window
from dp_accounting_ext.pairs import dominating_pair

# Where the multiplicative grid is used. Tuning, all of it: either route is certified
# for any pair. Measured over Gaussians of σ from 0.7 to 1000, Laplace noise and
# randomized response, t from 2 to 10⁷, δ from 1e-3 to 1e-100.
_NARROWEST_LOSS = 1e-9  # Below it a lattice's points have more digits than a float.
_WIDEST_LOSS = 150.0
_HIGHEST_SUM = 16.0  # Over the lowest, without large ratios.
_FEWEST_STEPS = 8  # Of fewer, a lattice shows large ratios, and the sum's ends, badly:
_NEAREST_END = 0.75  # its window's ends, on the way from the mean to the sum's.
_RAREST = 1e-90  # Tails that Fourier sums leave nothing of.
# Nor are the ends shown of a few more at rare tails. (1 of 9, σ = 4.763, δ = 8e-29: the
# lattice is 4e-4 wide, the grid 2e-5.)
_FEW_STEPS, _RAREST_OF_FEW = 12, 1e-30
# With large ratios; lengths are in standard deviations of the sum without them.
_HEAVIEST_RATIO = 4.0
_FURTHEST_RATIO = 1e7
_LARGEST_SHARE = 0.5  # Of the mean, that large ratios may have.
_RAREST_WITH_LARGE = 1e-72


class Route(enum.Enum):
    """How sums of ratios are computed."""

    AUTOMATIC = "automatic"
    GEOMETRIC = "geometric"
    ADDITIVE = "additive"


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
    if _FEWEST_STEPS <= num_steps < _FEW_STEPS and tail_mass < _RAREST_OF_FEW:
        return Route.GEOMETRIC
    large, deviation = bulk(pair, num_steps)
    if math.isfinite(large) and (
        num_steps < _FEWEST_STEPS
        or tail_mass < _RAREST_WITH_LARGE
        or large - 1 > _HEAVIEST_RATIO * deviation
        or is_all_large(pair, num_steps)
    ):
        return Route.GEOMETRIC
    summands = [additive_window.Summand(pair, num_steps)]
    window = additive_window.window_of(summands, tail_mass)
    if window.high > _HIGHEST_SUM * window.low:
        return Route.GEOMETRIC
    if num_steps < _FEWEST_STEPS and _reaches_an_end(window, pair, num_steps):
        return Route.GEOMETRIC
    return Route.ADDITIVE


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


def bulk(pair: dominating_pair.DominatingPair, num_steps: int) -> tuple[float, float]:
    """Returns where large ratios begin, and the deviation of a sum without them."""
    summands = [additive_window.Summand(pair, num_steps)]
    large = additive_window.large_ratio_threshold(summands)
    return large, additive_window.bulk_deviation(summands, large)


def is_all_large(pair: dominating_pair.DominatingPair, num_steps: int) -> bool:
    """Tells whether a lattice that resolves the bulk has no room for the large ratios.

    Or whether these have most of the mean, so that the bulk is next to nothing.
    """
    large, deviation = bulk(pair, num_steps)
    if math.isinf(large):
        return False
    of_the_mean = float(pair.p_masses[pair.ratios > large].sum())
    if of_the_mean > _LARGEST_SHARE * float(pair.p_masses.sum()):
        return True
    return float(pair.ratios[-1]) > _FURTHEST_RATIO * deviation
