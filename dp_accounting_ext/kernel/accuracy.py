"""The accuracy of answers: everything that determines how fine lattices are.

A question for ε or δ is turned into an `Accuracy`: the probability that tails may hold,
and the resolution of lattices. It is passed on to all computations. Code that is tuned
for one δ takes this δ from here, and does not infer it from a tail mass. The grids for
k of t steps and for correlated noise have constants of their own in their modules.
"""

import dataclasses
import math

# Tuning, all of these constants.
# The number of cells in a scale of a composition whose bounds are released. A scale is
# about a standard deviation of the law's middle.
CELLS = 144
# The number of cells in a scale of a composition that runs on a sample, or in a step of
# an allocation.
WHOLE_CELLS = 192
# The number of cells in a scale for sums of scores of a record's steps. Such a sum is
# computed many times for one answer.
SCORE_CELLS = 32
# The smallest and the largest number of cells in a scale, whatever discretization
# interval is asked for. At the stock accountant's default interval there are `CELLS`.
FEWEST_CELLS, MOST_CELLS, STOCK_INTERVAL = 32, 512, 1e-4
# The number of scales with narrow cells for trade-off curves, which are queried far
# from the median.
CURVE_SCALES = 6
# (smallest δ, scales) of each level. A question about a δ that is at least a level's
# smallest δ is answered from a law whose tails are far below this δ, and which is fine
# over this number of scales. So a few laws answer all questions, in any order.
LEVELS = ((1e-15, 3), (1e-50, 8), (1e-270, 14))
# The share of the least δ that tails may hold. It changes ε by less than a relative
# 1e-6.
TAIL_SHARE = 1e-7
# The same share of the least false positive rate of a trade-off curve, and of the δ of
# the direction ADD in brackets by sampling.
COARSE_TAIL_SHARE = 1e-6
# Tuning: the outputs of a mechanism are cut into so many cells at least. With half or
# twice as many, brackets change by less than 5 % of their width, except for one or two
# runs, whose brackets are about 1e-6 wide.
OUTPUT_CELLS = 10_000
# A law with more levels than this has fewer cells on each, but at least this many.
_MANY_LEVELS, _FEWEST_OF_LEVEL = 48, 8
# The δ for which bounds are tuned that are tight at one δ only, over the least δ.
_FREQUENT = 1e9
# It is no larger than this, nor is the rate that determines the tails of a
# curve. Where a curve is asked for at rates of a tenth, the least δ would be one, at
# which every ε is zero.
_LARGEST = 1e-3


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """How accurate a bound is to be.

    Attributes:
        tail_mass: The probability that may be moved to the sinks of an upper bound, or
            be left out of a lower one.
        cells: The least number of cells in a scale of the lattices on which losses are
            composed. A scale is about a standard deviation of the law's middle. The
            width of a bracket is in proportion to 1 / cells².
        scales: The number of scales, on either side of the middle, on which all cells
            have one width.
    """

    tail_mass: float
    cells: int = CELLS
    scales: int = 3

    @classmethod
    def of_level(cls, level: int, cells: int) -> "Accuracy":
        """Returns the accuracy of answers at δ of a level or more.

        Args:
            level: The number of one of `LEVELS`.
            cells: The number of cells in a scale.
        """
        smallest_delta, scales = LEVELS[level]
        return cls(smallest_delta * TAIL_SHARE, cells, scales)

    @classmethod
    def of_curve(cls, least_rate: float, cells: int) -> "Accuracy":
        """Returns the accuracy of a trade-off curve from a false positive rate on.

        Args:
            least_rate: The least false positive rate that is asked for.
            cells: The number of cells in a scale.
        """
        tail_mass = min(max(least_rate, 1e-200), _LARGEST) * COARSE_TAIL_SHARE
        return cls(tail_mass, cells, CURVE_SCALES)

    @property
    def delta(self) -> float:
        """The least δ for which a law with such tails is accurate."""
        return self.tail_mass / TAIL_SHARE

    @property
    def frequent_delta(self) -> float:
        """The δ for which bounds are tuned that are tight at one δ only.

        It is the least δ that is often asked for: 1e-6 at the first of `LEVELS`.
        """
        return min(self.delta * _FREQUENT, _LARGEST)

    def shared(self, parts: float) -> "Accuracy":
        """Returns the accuracy of one of several parts, which share the tail mass."""
        return dataclasses.replace(self, tail_mass=self.tail_mass / parts)

    def of_levels(self, levels: float) -> "Accuracy":
        """Returns an accuracy that is fine enough for a law of several levels."""
        cells = round(self.cells * min(1.0, _MANY_LEVELS / max(levels, 1.0)))
        return dataclasses.replace(self, cells=max(cells, _FEWEST_OF_LEVEL))


# The accuracy of pairs that become distributions of the stock library; of pairs for
# Rényi divergences, which are determined by the largest losses at high orders; and of
# pairs from which the largest loss is read.
FOR_DISTRIBUTIONS = Accuracy(tail_mass=1e-25)
FOR_DIVERGENCES = Accuracy(tail_mass=1e-240)
FOR_LARGEST_LOSSES = Accuracy(tail_mass=1e-30)


def cells_of_interval(interval: float) -> int:
    """Returns the number of cells in a scale for the stock accountant's parameter.

    The width of a bracket is in proportion to 1 / cells², and so to the interval if the
    square of the number of cells is in proportion to 1 / interval.

    Args:
        interval: The accountant's `value_discretization_interval`.
    """
    cells = CELLS * math.sqrt(STOCK_INTERVAL / interval)
    return round(min(max(cells, FEWEST_CELLS), MOST_CELLS))
