"""The laws of the steps of k-out-of-t random allocation, and their sums when tilted.

Let X_i be the likelihood ratio of step i, 0 < λ < 1, and q_i = λ X_i / (1 − λ + λ X_i).
The first sum L = Σ ln(1 − λ + λ X_i) would be the privacy loss if the record were in
each step independently with probability λ. The probability that it is in step i, given
the outputs, would then be q_i. The second sum V = Σ q_i (1 − q_i) is the variance of
the number of its steps, given the outputs. `joint_allocation` computes their joint law.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
from scipy import optimize

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

# For each law of a step: the masses of the step's outputs, and the number of steps that
# have this law.
Laws = list[tuple[FloatArray, int]]

# Tuning: the largest λ.
HIGHEST_RATE = 0.98


def scores(ratios: FloatArray, rate: float) -> tuple[FloatArray, FloatArray]:
    """Returns the term of each ratio in L, and its term in V.

    The absolute error of a term in L is at most `error_of_score`. A term in V is a
    product of positive numbers, with a relative error of at most 16 units of rounding.
    """
    mixed = (1 - rate) + rate * ratios
    return np.log(mixed), (rate * ratios / mixed) * ((1 - rate) / mixed)


def error_of_score(largest: float) -> float:
    """Returns a bound on the error of a ratio's term in L and of its row."""
    return (8 + 16 * largest) * floats.UNIT_ROUNDOFF


@dataclasses.dataclass(frozen=True)
class Steps:
    """The t steps, k of which hold the record.

    Attributes:
        ratios: (n,) finite likelihood ratios of one step, increasing. The first may be
            zero.
        masses: (n,) probabilities of the ratios without the record.
        p_masses: (n,) probabilities of the ratios with the record.
        num_selected: Number of steps with the record, k.
        num_steps: Number of steps, t > k.
    """

    ratios: FloatArray
    masses: FloatArray
    p_masses: FloatArray
    num_selected: int
    num_steps: int

    @classmethod
    def of(
        cls, pair: dominating_pair.DominatingPair, num_selected: int, num_steps: int
    ) -> "Steps":
        """Returns steps with the atoms of a pair, including its ratio of zero."""
        kept = pair.masses > 0
        ratios, masses = pair.ratios[kept], pair.masses[kept]
        if pair.zero_mass > 0:
            ratios = np.append(0.0, ratios)
            masses = np.append(pair.zero_mass, masses)
        return cls(ratios, masses, ratios * masses, num_selected, num_steps)

    @property
    def laws(self) -> Laws:
        """The laws of the k steps with the record and of the t − k steps without it."""
        others = self.num_steps - self.num_selected
        return [(self.p_masses, self.num_selected), (self.masses, others)]

    def without_largest(self, mass: float) -> tuple["Steps", float]:
        """Returns the steps without the rarest large ratios.

        Args:
            mass: The largest probability that any step has a ratio that is left out.

        Returns:
            The steps with the remaining ratios; and a bound on the probability, under
            P or under Q, that any step has a ratio that was left out.
        """
        others = self.num_steps - self.num_selected
        probabilities = self.num_selected * np.maximum(self.p_masses, self.masses)
        above = np.cumsum((probabilities + others * self.masses)[::-1])[::-1]
        first = max(int(np.searchsorted(-above, -mass)), 2)
        kept = dataclasses.replace(
            self,
            ratios=self.ratios[:first],
            masses=self.masses[:first],
            p_masses=self.p_masses[:first],
        )
        lost = float(above[first]) if first < above.size else 0.0
        return kept, floats.raised(lost)

    @functools.cached_property
    def sketch(self) -> "Steps":
        """The steps with a few hundred ratios, which suffice to choose parameters."""
        starts = np.unique(np.linspace(0, self.ratios.size - 1, 256).astype(np.int64))
        masses = np.add.reduceat(self.masses, starts)
        p_masses = np.add.reduceat(self.p_masses, starts)
        return dataclasses.replace(
            self,
            ratios=p_masses / masses,
            masses=masses / masses.sum(),
            p_masses=p_masses / p_masses.sum(),
        )

    def deviation(self, rate: float) -> float:
        """Returns the standard deviation of L under P."""
        score, _ = scores(self.ratios, rate)
        return math.sqrt(variance(self.laws, score))

    def rate(self, tilt: float) -> float:
        """Returns the λ at which the mean of Σ q_i under the tilted law is k.

        There the bound on π(k), the probability that k independent events with
        probabilities q_i happen, is nearly attained. The best λ is close to it.
        """
        even = self.num_selected / self.num_steps

        def excess(log_rate: float) -> float:
            rate = math.exp(log_rate)
            score, _ = scores(self.ratios, rate)
            posterior = rate * self.ratios / ((1 - rate) + rate * self.ratios)
            _, laws = tilted_laws(self.laws, tilt * score)
            return mean(laws, posterior) - self.num_selected

        high = min(2 * even, (HIGHEST_RATE + even) / 2)
        found = math.exp(root(excess, math.log(even / 100), math.log(high)))
        return min(found, HIGHEST_RATE)

    def tilt(self, exponent: float) -> float:
        """Returns the tilt at whose mean of L Chernoff's bound has a given value.

        λ is that of `rate` at each tilt.

        Args:
            exponent: −ln of the bound.
        """
        if not exponent:
            return 0.0
        even = self.num_selected / self.num_steps
        centre = math.log(math.sqrt(2 * exponent) / self.deviation(even))

        def excess(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            score, _ = scores(self.ratios, self.rate(tilt))
            cumulant, laws = tilted_laws(self.laws, tilt * score)
            return tilt * mean(laws, score) - cumulant - exponent

        return math.exp(root(excess, centre - 4, centre + 4))


def is_informative(steps: Steps, least: float) -> bool:
    """Returns whether the standard deviation of L under P is above `least`."""
    if steps.ratios.size < 2 or not steps.p_masses.any():
        return False
    return steps.sketch.deviation(steps.num_selected / steps.num_steps) > least


def exponents_up_to(first: Sequence[float], tail_mass: float) -> list[float]:
    """Returns values of −ln δ: the given ones, continued to nearly −ln(tail_mass)."""
    last = -math.log(tail_mass) - 6.0
    exponents = list(first)
    while exponents[-1] * 1.5 < last:
        exponents.append(exponents[-1] * 1.5)
    return [exponent for exponent in exponents if exponent <= last] or exponents[:1]


def mean(laws: Laws, values: FloatArray) -> float:
    """Returns the mean of a sum over steps."""
    return sum(count * sums.dot(masses, values) for masses, count in laws)


def variance(laws: Laws, values: FloatArray) -> float:
    """Returns the variance of a sum over steps."""
    return sum(
        count * sums.dot(masses, (values - sums.dot(masses, values)) ** 2)
        for masses, count in laws
    )


def tilted(masses: FloatArray, exponents: FloatArray) -> tuple[float, FloatArray]:
    """Returns ln Σ m_i e^{x_i} for masses m_i and exponents x_i, and the tilted law."""
    # An output without mass must not count, even if it has the largest exponent.
    exponents = np.where(masses > 0, exponents, -math.inf)
    largest = float(exponents.max())
    weights = masses * np.exp(exponents - largest)
    whole = float(weights.sum())
    return largest + math.log(whole), weights / whole


def tilted_laws(laws: Laws, exponents: FloatArray) -> tuple[float, Laws]:
    """Returns the cumulant of a sum over steps, and the tilted laws of the steps."""
    found = [(*tilted(masses, exponents), count) for masses, count in laws]
    return sum(n * log for log, _, n in found), [(w, n) for _, w, n in found]


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns an approximate zero of an increasing function, or the nearer end."""
    if function(low) >= 0:
        return low
    if function(high) <= 0:
        return high
    return float(optimize.brentq(function, low, high, xtol=0.01))


def log_binomial(num_selected: int, num_steps: int, rate: float) -> tuple[float, float]:
    """Returns ln Binom(k; t, λ), and a bound on its error."""
    fewer = np.arange(min(num_selected, num_steps - num_selected), dtype=np.float64)
    logs = np.log((num_steps - fewer) / (fewer + 1))
    chosen = num_selected * math.log(rate)
    others = (num_steps - num_selected) * math.log1p(-rate)
    value = math.fsum([*logs.tolist(), chosen, others])
    size = float(np.abs(logs).sum()) + 2 * logs.size + abs(chosen) + abs(others)
    return value, 8 * floats.UNIT_ROUNDOFF * (size + num_steps)
