"""A Gaussian Markov chain with what its steps add to a sum, and the grids of both.

The chain is x_1 ~ N(0, 1), x_{i+1} = r x_i + s ξ with r² + s² = 1. Each step adds
e^{a x_i − a²/2} W_i to a sum S, where the factors W_i are independent and have the
mean one. `markov_sums` computes the law of S.
"""

from collections.abc import Iterator
import dataclasses
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.kernel import floats

# Certified: masses below it are dropped and counted as lost.
SMALLEST_MASS = 1e-220

# Tuning: the number of states whose moves, or additions, are computed as one product.
ROWS = 32


@dataclasses.dataclass(frozen=True)
class Chain:
    """A chain, what its steps add to the sum, and the grids of both.

    Attributes:
        states: (n,) The increasing grid of x. Its range contains 0 and a.
        correlation: The correlation r of successive x, in [0, 1).
        scale: a ≥ 0.
        factors: (m,) The values of W, increasing and positive.
        probabilities: (m,) Their probabilities. W is 0 with the remaining probability.
        lost_factor: A bound on the amount by which the mean of W is below one.
        places: (l,) The grid of S, increasing from 0. For upper bounds S is the sum of
            one half of the steps.
        length: The number of steps, at least 1.
        excess: The amount e in [0, 1] by which the variance of x exceeds one at both
            ends.
        smallest_mass: Smaller masses of a state and a place are dropped. For upper
            bounds they are counted as lost, and a mass is only dropped if it is small
            under both Q and P.
        factor_gap: For upper bounds, factors are thinned out until the gap between two
            of them, times the state's ratio, is this many cells of sums, or until one
            is twice the other. The factors that are left out are split between those
            that remain.
    """

    states: FloatArray
    correlation: float
    scale: float
    factors: FloatArray
    probabilities: FloatArray
    lost_factor: float
    places: FloatArray
    length: int
    excess: float = 0.0
    smallest_mass: float = SMALLEST_MASS
    factor_gap: float = 0.0

    @property
    def ratios(self) -> FloatArray:
        """(n,) What a step adds to the sum in each state if its factor is one."""
        return np.asarray(np.exp(self.scale * self.states - self.scale**2 / 2))

    def most_to_come(self) -> FloatArray:
        """Returns (n,) bounds on the mean of any later step's ratio, given the state.

        Let t be the coefficient of x in a later state, 0 ≤ t ≤ 1 + e. Given x, the mean
        of that step's ratio is at most e^{a t x − a² t² / 2}. Its maximum over t is
        taken. Splits raise the logarithm by at most `drift`. Lifting states to the
        lowest one adds less than one.
        """
        real = np.maximum(self.states + self.scale * self.excess / 2, 0.0)
        most = self.scale * (1 + self.excess)
        logs = np.where(real <= most, real**2 / 2, most * real - most**2 / 2)
        return np.asarray(1 + np.exp(logs + drift(self)))

    def likelihoods(self, variance: float) -> FloatArray:
        """Returns (n,) densities of x at the states under Q, relative to the largest.

        Args:
            variance: The variance of x. The states are shifted as in `variances`.
        """
        away = self.states + self.scale * (variance - 1) / 2
        return np.asarray(np.exp(-(away**2) / (2 * variance)))

    @functools.cached_property
    def least_masses(self) -> FloatArray:
        """(n, l) The least masses of a state and a place that are kept.

        The divisor bounds the ratio of P's mass to Q's, plus one.
        """
        to_come = self.most_to_come()[:, np.newaxis]
        return np.asarray(
            self.smallest_mass / (1 + to_come + self.places / self.length)
        )

    def likely_rows(self, variance: float) -> slice:
        """Returns the states whose mass under Q or P is not negligible."""
        masses = self.likelihoods(variance) * self.most_to_come()
        likely = np.flatnonzero(masses > self.smallest_mass * self.places.size)
        return slice(int(likely[0]), int(likely[-1]) + 1)

    def variances(self) -> FloatArray:
        """Returns (length,) variances of x_i.

        At the distance d from an end the variance is 1 + e r^{2d}, where e is the
        excess. The term e r^{2d} is replaced by `chain_fits.LEAST_EXCESS` where it is
        smaller, so that most steps are equal. So that each ratio has the mean one, the
        grid holds x_i minus a / 2 times the amount by which its variance exceeds one.
        """
        places = np.arange(self.length)
        distances = np.minimum(places, places[::-1])
        more = self.excess * np.power(self.correlation, 2.0 * distances)
        return np.asarray(
            1 + np.maximum(more, min(self.excess, chain_fits.LEAST_EXCESS))
        )

    def steps(self) -> Iterator[tuple[float, float, float]]:
        """Yields for each i the coefficient of x_{i−1} in x_i and both variances."""
        before, slope = 1.0, 0.0
        for variance in self.variances().tolist():
            # The second half of the chain is the first half, reversed.
            yield slope * max(variance / before, 1.0), before, variance
            before, slope = variance, self.correlation


def drift(chain: Chain) -> float:
    """Returns η such that splits raise a ratio's mean by a factor of at most e^η.

    This holds given the path of ξ. The state is split once a step. A split moves it by
    at most one cell h, with the mean 0. The later effect of this on x decays by the
    factor r a step, up to a factor 1 + e if there is an excess e. Hoeffding's lemma is
    applied to each split.
    """
    step = float(np.diff(chain.states).max()) * (1 + chain.excess)
    innovation = (1 - chain.correlation) * (1 + chain.correlation)
    return floats.raised((chain.scale * step) ** 2 / 8 / innovation)


def place_error(chain: Chain) -> float:
    """Bounds the relative rounding error of a sum of ratios."""
    exponents = chain.scale * float(np.abs(chain.states).max()) + chain.scale**2
    return (8 * chain.length + 16 + 8 * exponents) * floats.UNIT_ROUNDOFF


def fits(chain: Chain) -> bool:
    """Whether the largest sum of a chain's ratios fits a float."""
    largest = chain.scale * float(chain.states.max()) - chain.scale**2 / 2
    largest += math.log(float(chain.factors.max())) + math.log(chain.length)
    return largest <= floats.LARGEST_LOSS
