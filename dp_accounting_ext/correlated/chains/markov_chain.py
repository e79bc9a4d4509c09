"""The grids on which sums along a Gaussian Markov chain are computed.

The chain is x_1 ~ N(0, 1), x_{i+1} = r x_i + s ξ with r² + s² = 1. Each step adds
e^{a x_i − a²/2} W_i to a sum S, where the factors W_i are independent and have the
mean one. `markov_sums` computes the law of S.
"""

import dataclasses
import itertools
import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import gaussian

# Certified: masses below it are dropped and counted as lost.
SMALLEST_MASS = 1e-220
# The number of states whose moves, or additions, are computed as one product.
ROWS = 32
# Tuning, all of these constants.
# The resolution of all grids, each of which changes ε by 0.1 to 0.3 %.
_CELL = 0.095  # The width of a cell of states, in deviations of the innovation.
# The width of a cell of a factor's logarithm, in standard deviations of the exponent of
# a sum of as correlated steps; and its largest width, over the root of 1 plus the
# exponent's variance.
_FACTOR_CELL, _WIDEST_FACTOR = 0.085, 0.075
_GROWTH = 0.005  # How fast cells of sums grow beyond the mean.
# The width of cells of sums below the mean, over the root of what a step adds to the
# variance of the sum.
_PLACE = 0.09
# In recursions of more than _STEPS steps, which take longer, cells are wider by this
# power of the number of steps.
_STEPS, _POWER = 32, 0.2
# If moves are short, states are as wide as for moves _MOST_MOVES as long, at most.
_MOST_MOVES = 2.0
# The probability beyond the last states and factors is so many times the tail mass.
# This is about a thousandth of the least δ that is asked for.
_TAILS = 1e4

# Certified: no cell of states is wider than so many standard deviations of a move, so
# that moves in it can be integrated (`chain_steps.hats`).
LARGEST_CELL = 0.5
# If the independent noise has a smaller share of the variance, that share is added to
# the chain's.
NO_NOISE = 1e-9
# Certified, as a larger variance is above a smaller one: smaller variances of exponents
# are raised to this, so that floats tell ratios apart.
_LEAST_VARIANCE = 1e-24


@dataclasses.dataclass(frozen=True)
class Grids:
    """A chain, what its steps add to the sum, and the grids of both.

    Attributes:
        chain: The chain, with the correlation r.
        scale: a ≥ 0.
        states: (n,) The increasing grid of x. Its range contains 0 and a.
        factors: (m,) The values of W, increasing and positive.
        probabilities: (m,) Their probabilities. W is 0 with the remaining probability.
        lost_factor: A bound on the amount by which the mean of W is below one.
        factor_error: A bound on the relative error of any of these.
        places: (l,) The grid of S, increasing from 0.
        cells: Cells of W, or None if what steps add is not split.
        smallest_mass: Smaller masses of a state and a place are dropped. They are
            counted as lost, and a mass is only dropped if it is small under both Q and
            P.
    """

    chain: chain_fits.Chain
    scale: float
    states: FloatArray
    factors: FloatArray
    probabilities: FloatArray
    lost_factor: float
    factor_error: float
    places: FloatArray
    cells: "LogCells | None" = None
    smallest_mass: float = SMALLEST_MASS

    @classmethod
    def of(
        cls,
        chain: chain_fits.Chain,
        steps: int,
        *,
        tail_mass: float,
        wider: float = 1.0,
    ) -> "Grids | None":
        """Returns the grids of a chain, or None if the largest sums fit no float.

        Args:
            chain: The chain.
            steps: The largest number of steps in a sum.
            tail_mass: The probability that may be moved to the sinks, divided by
                10,000.
            wider: The factor by which all cells are wider than usual.
        """
        chain = dataclasses.replace(
            chain,
            variance=max(chain.variance, _LEAST_VARIANCE),
            shared=max(chain.shared, _LEAST_VARIANCE) if chain.shared else 0.0,
        )
        variance, share = floats.raised(chain.variance), chain.share
        whole = variance + chain.shared
        if whole > floats.LARGEST_EXPONENT:
            return None
        if 1 - share < NO_NOISE:
            share = 1.0
        # The variances of the noise and of the chain must add up to at least v, and the
        # chain's covariances must not be too small.
        own = floats.raised(variance * (1 - share))
        scale = math.sqrt(variance * share)
        tail = tail_of_step(tail_mass, chain.length)
        times = _growth(chain)
        size = wider * _size_of_cells(steps)
        width = size * width_of_factors(variance, times)
        values, probabilities, lost, error = factors(own, width / 2, tail)
        # Near both ends of the chain the states are x − a e / 2, where the variance of
        # x is 1 + e.
        excess = chain.excess
        reach = _reach(tail) * math.sqrt(1 + excess) + scale * excess / 2
        # Cells are narrow beside the deviation of a move. If moves are short, it is
        # enough that cells are narrow beside what the chain moves by in all steps.
        move = math.sqrt(chain.innovation)
        cell = size * _CELL * min(max(move, math.sqrt(1 / steps)), _MOST_MOVES * move)
        cell = min(cell, floats.lowered(LARGEST_CELL * move, 1e-9))
        states = states_of(scale, reach, cell)
        lowest = scale * float(states[0]) - scale**2 / 2 + math.log(float(values[0]))
        places = _sum_places(steps, whole, tail, times, lowest=lowest, size=size)
        # All masses of a step that are dropped sum to at most the tail of a step.
        smallest = max(tail / (states.size * places.size), SMALLEST_MASS)
        largest = scale * float(states.max()) + scale**2 * (excess - 1) / 2
        largest += math.log(float(values.max())) + math.log(chain.length)
        if largest > floats.LARGEST_LOSS:
            return None
        return cls(
            chain=chain,
            scale=scale,
            states=states,
            factors=values,
            probabilities=probabilities,
            lost_factor=lost,
            factor_error=error,
            places=places,
            cells=LogCells.of(own, width) if values.size > 1 else None,
            smallest_mass=smallest,
        )

    @property
    def ratios(self) -> FloatArray:
        """(n,) What a step adds to the sum in each state if its factor is one."""
        return np.asarray(np.exp(self.scale * self.states - self.scale**2 / 2))

    def terms(self, rows: slice) -> FloatArray:
        """Returns (k,) terms, increasing from 0. What a step adds is split between two.

        Without cells they are all that a step may add.

        Args:
            rows: The states in which the step is.
        """
        ratios = self.ratios[rows]
        if self.cells is None:
            return np.unique(np.append(np.outer(ratios, self.factors), 0.0))
        first, last = np.log(ratios[[0, -1]]).tolist()
        cells = dataclasses.replace(
            self.cells,
            middle=self.cells.middle + (first + last) / 2,
            even=self.cells.even + (last - first) / 2,
        )
        lowest, highest = (float(ratios[end] * self.factors[end]) for end in (0, -1))
        return np.append(0.0, cells.between(lowest, highest))

    def most_to_come(self) -> FloatArray:
        """Returns (n,) bounds on the mean of any later step's ratio, given the state.

        Let t be the coefficient of x in a later state. It is a product of slopes, so
        that 0 ≤ t ≤ 1. Given x, the mean of that step's ratio is at most
        e^{a t x − a² t² / 2}. Its maximum over t is taken. Splits raise the logarithm
        by at most `drift`. Lifting states to the lowest one adds less than one.
        """
        x = np.maximum(self.states + self.scale * self.chain.excess / 2, 0.0)
        # The maximum is at a t = x, or at t = 1.
        scale = self.scale
        logs = np.where(x <= scale, x**2 / 2, scale * x - scale**2 / 2)
        return np.asarray(1 + np.exp(logs + self.drift))

    def likelihoods(self, variance: float) -> FloatArray:
        """Returns (n,) densities of x at the states under Q, relative to the largest.

        Args:
            variance: The variance of x. The states are shifted as in `variances`.
        """
        values = self.states + self.scale * (variance - 1) / 2
        return np.asarray(np.exp(-(values**2) / (2 * variance)))

    def least_masses(self, variance: float) -> FloatArray:
        """Returns (n, l) the least masses of a place that are kept, given each state.

        A divisor bounds the ratio of P's mass to Q's, plus one.

        Args:
            variance: The variance of x.
        """
        likely = self.likelihoods(variance)[:, np.newaxis]
        divisors = 1 + self.most_to_come()[:, np.newaxis]
        least = self.smallest_mass / (divisors + self.places / self.chain.length)
        return np.maximum(least / np.maximum(likely, floats.TINY), SMALLEST_MASS)

    def likely_rows(self, variance: float) -> slice:
        """Returns the states whose mass under Q or P is not negligible."""
        masses = self.likelihoods(variance) * self.most_to_come()
        likely = np.flatnonzero(masses > self.smallest_mass * self.places.size)
        return slice(int(likely[0]), int(likely[-1]) + 1)

    @property
    def drift(self) -> float:
        """η such that splits raise a ratio's mean by a factor of at most e^η.

        This holds given the path of ξ. The state is split once a step. A split moves it
        by at most one cell h, with the mean 0. Its effect on later states is multiplied
        by the slope of each move, from the middle outward. Hoeffding's lemma is applied
        to each split.
        """
        chain = self.chain
        heights = chain.heights[: (chain.length + 1) // 2][::-1]
        effect = largest = 1 / chain.innovation
        for inner, outer in itertools.pairwise(heights):
            slope = chain.correlation * max(outer / inner, 1.0)
            effect = 1 + slope**2 * effect
            largest = max(largest, effect)
        cell = float(np.diff(self.states).max())
        return floats.raised((self.scale * cell) ** 2 / 8 * largest)

    @property
    def place_error(self) -> float:
        """A bound on the relative rounding error of a sum of ratios."""
        exponents = self.scale * float(np.abs(self.states).max()) + self.scale**2
        return (8 * self.chain.length + 16 + 8 * exponents) * floats.UNIT_ROUNDOFF


def _growth(chain: chain_fits.Chain) -> float:
    """Returns about the sum's variance over that of a sum of independent steps."""
    powers = np.power(chain.correlation, np.arange(1.0, chain.length))
    variance = min(chain.variance, 40.0)  # So that no exponential overflows.
    added = chain_fits.grown(variance * chain.share * powers)
    return 1 + 2 * float(added.sum()) / math.expm1(variance)


def _size_of_cells(steps: int) -> float:
    """Returns how wide all cells are, over those of a recursion of a few steps."""
    return math.pow(max(steps, _STEPS) / _STEPS, _POWER)


def width_of_factors(variance: float, times: float = 1.0) -> float:
    """Returns the width of cells of the logarithm of what a step adds.

    Args:
        variance: The variance of a ratio's exponent.
        times: The ratio of the sum's variance to that of independent ratios.
    """
    width = _FACTOR_CELL * math.sqrt(times * variance)
    return min(width, _WIDEST_FACTOR * math.sqrt(1 + variance))


def tail_of_step(tail_mass: float, length: int) -> float:
    """Returns the probability that may be lost in one tail of a state or a factor."""
    return max(_TAILS * tail_mass / length / 8, 1e-280)


def _reach(tail: float) -> float:
    """Returns the number of standard deviations beyond which a tail has this mass."""
    return -float(special.ndtri(tail))


def _highest_log(variance: float, tail: float) -> float:
    """Returns the logarithm of the ratio beyond which P has the given tail mass."""
    return variance / 2 + math.sqrt(variance) * _reach(tail)


def states_of(scale: float, reach: float, cell: float) -> FloatArray:
    """Returns the grid of states.

    It reaches from the lower tail of x under Q to the upper tail under P, which moves x
    by up to a.

    Args:
        scale: a.
        reach: The distance from the mean of x to the end of either tail.
        cell: The largest distance of two neighboring states.
    """
    number = math.ceil((scale + 2 * reach) / cell) + 1
    return np.linspace(-reach, scale + reach, number)


@dataclasses.dataclass(frozen=True)
class LogCells:
    """Cells of the logarithm of a ratio.

    Up to a distance they have one width. Further out, their width is in proportion to
    the distance.

    Attributes:
        middle: The logarithm from which distances are measured.
        even: The distance up to which cells have nearly one width.
        width: The width of these cells.
    """

    middle: float
    even: float
    width: float

    @classmethod
    def of(cls, own: float, width: float) -> "LogCells":
        """Returns cells with one width in the bulk of e^{g − w/2} under P and Q.

        Args:
            own: The variance w of g.
            width: The width.
        """
        noise = math.sqrt(own)
        return cls(own / 2, (noise + 1.5) * noise, width)

    def numbers(self, ratios: FloatArray) -> FloatArray:
        """Returns (n,) the numbers of the cells of ratios, with their fractions."""
        distances = (np.log(ratios) - self.middle) / self.even
        return np.asarray(np.arcsinh(distances) * self.even / self.width)

    def between(self, lowest: float, highest: float) -> FloatArray:
        """Returns two ratios, and all ends of cells that are between them."""
        first, last = self.numbers(np.array([lowest, highest]))
        numbers = np.arange(math.floor(first) + 1.0, math.ceil(last))
        distances = np.sinh(numbers * self.width / self.even)
        inner = np.exp(self.middle + self.even * distances)
        inner = inner[(inner > lowest) & (inner < highest)]
        return np.concatenate([[lowest], inner, [highest]])


def law_of_noise(
    own: float, bound: Bound, tail_mass: float
) -> tuple[dominating_pair.DominatingPair, float]:
    """Returns a certified pair whose ratios have about the law of e^{g − w/2}.

    Here g ~ N(0, w). Also returned is a bound on the relative error of any mass, or sum
    of masses, or mean.
    """
    law = gaussian.dominating_pair_of(1 / math.sqrt(own), bound, tail_mass=tail_mass)
    error = 4 * (law.mass_error + law.ratio_error)
    return law, error + 4 * (law.masses.size + 4) * floats.UNIT_ROUNDOFF


def factors(
    own: float, width: float, tail: float
) -> tuple[FloatArray, FloatArray, float, float]:
    """Returns a law with few atoms that is above that of e^{g − w/2} for g ~ N(0, w).

    Every value is split between the ends of its cell.

    Args:
        own: w, the variance of the independent noise of a step.
        width: The width of cells of the logarithm.
        tail: The probability that may be lost on either side.

    Returns:
        (m,) the atoms; (m,) their masses; the amount by which their mean is below one;
        and a bound on the relative error of any of these.
    """
    if own <= NO_NOISE * width**2:
        return np.ones(1), np.ones(1), 0.0, 0.0
    law, error = law_of_noise(own, Bound.UPPER, tail)
    factors = LogCells.of(own, width).between(*law.ratios[[0, -1]].tolist())
    low = np.searchsorted(factors, law.ratios, side="right") - 1
    low = np.clip(low, 0, factors.size - 2)
    share = (law.ratios - factors[low]) / (factors[low + 1] - factors[low])
    share = np.clip(share, 0.0, 1.0)
    probabilities = sums.gather(low, law.masses * (1 - share), factors.size)
    probabilities += sums.gather(low + 1, law.masses * share, factors.size)
    return factors, probabilities, law.infinity_mass, error


def _sum_places(
    length: int,
    variance: float,
    tail: float,
    together: float,
    *,
    lowest: float,
    size: float,
) -> FloatArray:
    """Returns a grid of sums from 0 on, with wider cells beyond the mean.

    Args:
        length: The number of ratios in the sum, which is also its mean.
        variance: The variance of a ratio's exponent.
        tail: The probability that may be lost beyond the highest point.
        together: The ratio of the sum's variance to that of independent ratios.
        lowest: The logarithm of the least ratio.
        size: How wide all cells are, over those of a recursion of a few steps.
    """
    even = size * _PLACE * math.sqrt(together * math.expm1(min(variance, 40.0)))
    # There are 50 to 4000 cells below the mean.
    even = min(max(even, length / 4000), length / 50)
    highest = min(_highest_log(variance, tail), 300.0)
    logs = np.linspace(0.0, highest, 1 << 14)
    totals = length * np.exp(logs)
    # `counts` is the number of cells up to each of these sums.
    widths = even + size * _GROWTH * totals * logs
    counts = np.cumsum(np.diff(totals) / widths[1:])
    numbers = np.arange(0.0, math.ceil(counts[-1]) + 1)
    high = np.interp(numbers, np.append(0.0, counts), totals)
    # In the direction ADD the loss is infinite at the sum 0. So low sums are told apart
    # by their ratios, down to the least one.
    shares = np.linspace(0.0, 1.0, 64)
    near, furthest = math.log(1.25) * 63, math.log(4 * even) - lowest
    low = np.exp(-near * shares - max(furthest - near, 0.0) * shares**3)
    low = np.maximum(4 * even * low, floats.SMALLEST_MASS)
    return np.unique(
        np.concatenate([[0.0], low, np.arange(5 * even, length, even), high])
    )
