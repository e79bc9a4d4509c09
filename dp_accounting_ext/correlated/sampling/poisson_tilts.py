"""Bounded samples for the divergence of Poisson sampling with correlated noise.

A record takes part in each step with probability q, independently. Let c_t be the
columns over σ, G their inner products, and g_t = c_t · y. Let S be a set of steps, and
x_t one if t is in S and zero otherwise. The ratio of N(0, I) moved by Σ_S c_t to Q =
N(0, I) is

    L_S = exp(Σ_t x_t (g_t − G_tt / 2) − Σ_{s<t} x_s x_t G_st),

and Z is its mean over S. Without the second sum the mean is a product, which is at
least as large:

    Y = Π_t (1 − q + q e^{g_t − G_tt / 2}) ≥ Z.

Let m copies of a record draw their sets, and let n_t be the number of copies that take
part in step t. Draw the n_t with a probability in proportion to

    Π_t Binom(m, q)(n_t) e^{G_tt n_t (n_t − 1) / 2} · Π_{s<t} e^{G_st n_s n_t},

and let C be the sum of these numbers. Draw y from Q moved by Σ n_t c_t. Then y has the
density q(y) Y^m / C, and the sample

    h = C (Z − κ)₊ / Y^m

has the mean E_Q (Z − κ)₊, and is at most C (Z − κ)₊ / Z^m. With p bands, the law of the
next number depends on the last p − 1 numbers only, and Z is computed by a recursion
over the last p − 1 values x_t.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.sampling import bets

# Limits of memory and time: the states of the last numbers, these states in all steps,
# and the copies.
_MOST_STATES, _MOST_IN_ALL, _MOST_COPIES = 1 << 12, 1 << 23, 64
# Tuning: the number of powers m that are tried; the samples in a block; and the steps
# after which sums are rescaled.
_TRIED, _BLOCK, _SCALED = 18, 1 << 11, 8
# A limit of exponents of sums over copies.
_LARGEST_EXPONENT = 300.0


@dataclasses.dataclass(frozen=True, eq=False)
class Draws(bets.Source):
    """A run with Poisson sampling.

    Attributes:
        columns: (n, p) the p entries of every column over σ, from its diagonal on, at
            least 0. Entries beyond the end of the run are 0.
        rate: The sampling probability q, in (0, 1).
    """

    # All m are tried. With a small m, a pilot meets no rare large ratio and would take
    # m for a good one. Only the bound on all samples shows this, which is not monotone.
    worse: ClassVar[float] = math.inf

    columns: FloatArray
    rate: float

    @classmethod
    def of_strategy(
        cls,
        strategy: strategies.Strategy,
        noise_multiplier: float,
        rate: float,
        num_steps: int,
    ) -> "Draws":
        """Returns the run of a strategy, with noise of the multiplier σ."""
        bands = range(strategy.bands)
        columns = [strategy.diagonal(band, num_steps) for band in bands]
        return cls(np.stack(columns, axis=1) / noise_multiplier, rate)

    @property
    def size(self) -> int:
        """The number of normal variables in one draw of the noise."""
        return len(self.columns)

    @functools.cached_property
    def products(self) -> FloatArray:
        """(n, p) inner products G of the columns of steps t and t − d, 0 ≤ d < p."""
        steps, bands = self.columns.shape
        table = np.zeros((steps, bands))
        for distance in range(min(bands, steps)):
            later = self.columns[distance:, : bands - distance]
            earlier = self.columns[: -distance or None, distance:]
            table[distance:, distance] = (later * earlier).sum(axis=1)
        return table

    @property
    def moments(self) -> Sequence[int]:
        """The powers m that are tried, about a sixth apart, up to `most_copies`."""
        tried = 2 * np.power(32.0, np.linspace(0.0, 1.0, _TRIED))
        moments = np.unique(np.round(tried).astype(int))
        return [m for m in moments.tolist() if m <= self.most_copies]

    @functools.cached_property
    def most_copies(self) -> int:
        """The largest m for which memory and floats suffice; 1 if there is none."""
        largest, fits = float(self.products.sum(axis=1).max()), 1
        while fits < _MOST_COPIES:
            copies = fits + 1
            states = self.states(copies)
            if states > min(_MOST_STATES, _MOST_IN_ALL // self.size):
                break
            if copies**2 * largest > _LARGEST_EXPONENT:
                break
            fits = copies
        return fits

    def states(self, moment: int) -> int:
        """Returns the number of states of the last p − 1 numbers of m copies."""
        return int((moment + 1) ** (self.columns.shape[1] - 1))

    def work(self, moment: int) -> float:
        """Returns 1, as all m take the same time."""
        return 1.0

    def draw(
        self, moment: int, count: int, generator: np.random.Generator
    ) -> bets.Samples:
        numbers = _Numbers.of(self, moment)
        parts = []
        for start in range(0, count, _BLOCK):
            drawn = numbers.draw(min(_BLOCK, count - start), generator)
            noise = generator.standard_normal(drawn.shape)
            parts.append(self.log_ratios(self._projections(drawn, noise)))
        log_ratios, log_products = np.concatenate(parts, axis=1)
        # Z is never more than Y.
        short = np.minimum(log_ratios - log_products, 0.0)
        weights = numbers.log_sum + moment * short
        return bets.Samples(moment, log_ratios, weights, numbers.log_sum + 1e-9)

    def _projections(self, numbers: FloatArray, noise: FloatArray) -> FloatArray:
        """Returns (n, k) values g_t = c_t · y of k outputs y.

        Args:
            numbers: (n, k) the n_t.
            noise: (n, k) outputs under Q, which are moved by Σ n_t c_t in place.
        """
        steps, bands = self.columns.shape
        for band in range(min(bands, steps)):
            column = self.columns[: steps - band, [band]]
            noise[band:] += numbers[: steps - band] * column
        projections = np.zeros_like(noise)
        for band in range(min(bands, steps)):
            column = self.columns[: steps - band, [band]]
            projections[: steps - band] += column * noise[band:]
        return projections

    def log_ratios(self, projections: FloatArray) -> FloatArray:
        """Returns (2, k) logarithms of Z and of Y.

        Args:
            projections: (n, k) values g_t.
        """
        steps, bands = self.columns.shape
        gains = np.exp(projections - self.products[:, [0]] / 2)
        logs = np.log1p(self.rate * (gains - 1)).sum(axis=0)
        patterns = np.arange(2 ** (bands - 1))
        # Bit d − 1 of a pattern is x_{t−d}.
        bits = (patterns[:, np.newaxis] >> np.arange(bands - 1)) & 1
        met = np.exp(-(bits @ self.products[:, 1:].T)) * self.rate
        means = np.zeros((patterns.size, projections.shape[1]))
        means[0], scale = 1.0, np.zeros(projections.shape[1])
        for step in range(steps):
            taking_part = means * met[:, [step]] * gains[step]
            means *= 1 - self.rate
            if bands == 1:
                means += taking_part
            else:
                # The oldest bit is dropped.
                half = patterns.size // 2
                following = np.empty_like(means)
                following[::2] = means[:half] + means[half:]
                following[1::2] = taking_part[:half] + taking_part[half:]
                means = following
            if step % _SCALED == _SCALED - 1:
                largest = means.max(axis=0)
                means /= largest
                scale += np.log(largest)
        return np.array([np.log(means.sum(axis=0)) + scale, logs])


@dataclasses.dataclass(frozen=True, eq=False)
class _Numbers:
    """The law of the number of copies that take part in each step.

    Attributes:
        moment: The number m of copies.
        log_sum: The logarithm of C.
        probabilities: (n, s) for each step and state, the probability that no copy
            takes part in the step.
        weights: For each step, the (s, m + 1) weights of the numbers after each state.
        values: (n + 1, s) sums of the weights of all later steps from each state. Each
            step has its own scale.
    """

    moment: int
    log_sum: float
    probabilities: FloatArray
    weights: list[FloatArray]
    values: FloatArray

    @classmethod
    def of(cls, draws: Draws, moment: int) -> "_Numbers":
        """Returns the law, by a recursion from the last step on."""
        steps, bands = draws.columns.shape
        states = draws.states(moment)
        numbers = np.arange(moment + 1)
        digits = (
            np.arange(states)[:, np.newaxis] // (moment + 1) ** np.arange(bands - 1)
        ) % (moment + 1)
        prior = special.binom(moment, numbers) * draws.rate**numbers
        prior *= (1 - draws.rate) ** (moment - numbers)
        following = _following(states, moment)
        values = np.ones((steps + 1, states))
        probabilities = np.empty((steps, states))
        weights: list[FloatArray] = []
        log_sum = 0.0
        for step in range(steps - 1, -1, -1):
            products = draws.products[step]
            if not weights or (products != draws.products[step + 1]).any():
                met = digits @ products[1:]
                of_step = prior * np.exp(products[0] * numbers * (numbers - 1) / 2)
                table = of_step * np.exp(np.multiply.outer(met, numbers))
            weights.append(table)
            totals = (table * values[step + 1][following]).sum(axis=1)
            probabilities[step] = (
                table[:, 0] * values[step + 1][following[:, 0]] / totals
            )
            scale = float(totals[0])
            values[step] = totals / scale
            log_sum += math.log(scale)
        return cls(moment, log_sum, probabilities, weights[::-1], values)

    def draw(self, count: int, generator: np.random.Generator) -> FloatArray:
        """Returns (n, k) numbers of copies in each step, for k draws."""
        steps, num_states = self.probabilities.shape
        following = _following(num_states, self.moment)
        state = np.zeros(count, dtype=np.int64)
        numbers = np.zeros((steps, count))
        for step in range(steps):
            goals = generator.random(count)
            number = np.zeros(count, dtype=np.int64)
            # In most draws no copy takes part. Only in others a number is looked up.
            others = np.flatnonzero(goals >= self.probabilities[step][state])
            if others.size:
                states = state[others]
                later = self.values[step + 1][following[states]]
                cumulative = np.cumsum(self.weights[step][states] * later, axis=1)
                goal = goals[others] * cumulative[:, -1]
                drawn = (cumulative <= goal[:, np.newaxis]).sum(axis=1)
                number[others] = np.minimum(drawn, self.moment)
            numbers[step] = number
            state = following[state, number]
        return numbers


def _following(states: int, moment: int) -> IntArray:
    """Returns (s, m + 1) the state that follows each state after each number."""
    base = moment + 1
    if states == 1:
        return np.zeros((1, base), dtype=np.int64)
    places = np.arange(states)[:, np.newaxis] * base + np.arange(base)
    return np.asarray(places % states, dtype=np.int64)
