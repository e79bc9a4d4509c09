"""The steps of a random allocation: how λ, and the tilts of sums, are chosen for a δ.

A record, or the members of a group, are in some of t steps. If their number were random
with a parameter λ, the privacy loss would be a sum L over the steps. The number of
those in a step, given the outputs, has a mean and a variance there; V is the sum of the
variances. For k of t steps let X_i be the likelihood ratio of step i, and
q_i = λ X_i / (1 − λ + λ X_i). Then

    L = Σ ln(1 − λ + λ X_i),   V = Σ q_i (1 − q_i),

if the record were in each step independently with probability λ. For groups see
`group_counts`.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import optimize

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

# For each law of a step: the masses of the step's outputs, and the number of steps that
# have this law.
Laws = list[tuple[FloatArray, int]]

# Certified: the largest λ of k of t steps.
HIGHEST_RATE = 0.98
# Tuning, of bounds by sums over the steps: the number of outputs by which parameters
# are chosen; values of −ln δ at which bounds are tight, up to that of the least δ; the
# tilt over that of the saddle point, as large ratios make a law wide there; and the
# logarithm of δ over the probability of ratios that are left out.
_PLACES = 256
_EXPONENTS = (0.0, 1.0, 3.0, 7.0, 11.0, 16.0, 28.0)
EASED, RARE = 0.75, 14.0


class Terms(NamedTuple):
    """What the outputs of a step add to the sums.

    Attributes:
        losses: (n,) terms of L.
        means: (n,) means of the number of members in the step, given the output.
        variances: (n,) variances of this number, the terms of V.
    """

    losses: FloatArray
    means: FloatArray
    variances: FloatArray


def scores(ratios: FloatArray, rate: float) -> Terms:
    """Returns the terms of n likelihood ratios for k of t steps, and λ = `rate`.

    The absolute error of a loss is at most `error_of_score`. A variance is a product of
    positive numbers, with a relative error of at most 16 units of rounding.
    """
    mixed = (1 - rate) + rate * ratios
    means = rate * ratios / mixed
    return Terms(np.log(mixed), means, means * ((1 - rate) / mixed))


def error_of_score(largest: float) -> float:
    """Returns a bound on the error of a ratio's term in L and of its row."""
    return (8 + 16 * largest) * floats.UNIT_ROUNDOFF


@dataclasses.dataclass(frozen=True)
class Kind:
    """Several steps with the same pair.

    Attributes:
        pair: An upper or a lower pair of one of them.
        count: The number of steps.
    """

    pair: dominating_pair.DominatingPair
    count: int


@dataclasses.dataclass(frozen=True)
class Steps:
    """The t steps, k of which hold the record, by their finite likelihood ratios.

    A step of one kind has no mass at the outputs of the other kinds.

    Attributes:
        ratios: (n,) ratios of the outputs of all kinds, increasing. The first may be
            zero.
        absent: (n,) masses of a step of each kind without the record, with counts.
        num_selected: Number of steps with the record, k < t.
        mass_error: Bound on the relative error of a mass, with the record or without.
        ratio_error: Bound on the relative error of a ratio.
    """

    ratios: FloatArray
    absent: Laws
    num_selected: int
    mass_error: float = 0.0
    ratio_error: float = 0.0

    @classmethod
    def of(cls, kinds: Sequence[Kind], num_selected: int) -> "Steps":
        """Returns the steps of some kinds, from the atoms of their pairs.

        A `zero_mass` becomes an atom whose ratio is zero.
        """
        atoms = []
        for kind in kinds:
            has_mass = kind.pair.masses > 0
            ratios, masses = kind.pair.ratios[has_mass], kind.pair.masses[has_mass]
            if kind.pair.zero_mass > 0:
                ratios = np.append(0.0, ratios)
                masses = np.append(kind.pair.zero_mass, masses)
            atoms.append((ratios, masses))
        kind_of = np.repeat(np.arange(len(atoms)), [ratios.size for ratios, _ in atoms])
        ratios, masses = (np.concatenate(column) for column in zip(*atoms, strict=True))
        order = np.argsort(ratios, kind="stable")
        kind_of, masses = kind_of[order], masses[order]
        ratio_error = max(kind.pair.ratio_error for kind in kinds)
        mass_error = max(kind.pair.mass_error for kind in kinds) + ratio_error
        return cls(
            ratios[order],
            [
                (np.where(kind_of == i, masses, 0.0), k.count)
                for i, k in enumerate(kinds)
            ],
            num_selected,
            mass_error + 2 * floats.UNIT_ROUNDOFF,
            ratio_error,
        )

    @property
    def num_steps(self) -> int:
        """The number of steps, t."""
        return sum(count for _, count in self.absent)

    def with_record(self, numbers: Sequence[int]) -> Laws:
        """Returns the laws if the record is in so many steps of each kind."""
        laws: Laws = []
        for (masses, count), number in zip(self.absent, numbers, strict=True):
            laws += [(self.ratios * masses, number), (masses, count - number)]
        return [(masses, count) for masses, count in laws if count]

    def mixed(self, losses: FloatArray) -> Laws:
        """Returns the laws without the record, times e to the power of (n,) losses."""
        weights = np.exp(losses)
        return [(masses * weights, count) for masses, count in self.absent]

    def without_largest(self, mass: float) -> tuple["Steps", float]:
        """Returns the steps without their largest ratios, which are rare.

        Args:
            mass: The largest probability that some step has a ratio that is left out.

        Returns:
            The steps with the remaining ratios; and a bound on the probability, under
            P or under Q, that some step has a ratio that was left out.
        """
        # Bounds on the expected number of steps with each ratio, under P or under Q.
        share = self.num_selected / self.num_steps
        expected = np.zeros(self.ratios.size)
        for masses, count in self.absent:
            expected += count * masses * (1 + share * self.ratios)
        above = np.cumsum(expected[::-1])[::-1]
        number = max(int(np.searchsorted(-above, -mass)), 2)
        remaining = dataclasses.replace(
            self,
            ratios=self.ratios[:number],
            absent=[(masses[:number], count) for masses, count in self.absent],
        )
        lost = float(above[number]) if number < above.size else 0.0
        return remaining, floats.raised(lost)

    @functools.cached_property
    def few(self) -> "Steps":
        """The steps with a few hundred ratios."""
        starts = places_of(self.ratios.size)
        sizes = [np.add.reduceat(masses, starts) for masses, _ in self.absent]
        total = sum(n * np.add.reduceat(m, starts) for m, n in self.absent)
        with_record = sum(
            n * np.add.reduceat(self.ratios * m, starts) for m, n in self.absent
        )
        return dataclasses.replace(
            self,
            ratios=np.asarray(with_record / total),
            absent=[
                (kind_masses / kind_masses.sum(), n)
                for kind_masses, (_, n) in zip(sizes, self.absent, strict=True)
            ],
        )

    def _at(self, rate: float, tilt: float) -> tuple[Terms, float, Laws]:
        """Returns terms, and the cumulant and the laws tilted from the typical ones."""
        terms = scores(self.ratios, rate)
        return terms, *tilted_laws(self._typical, tilt * terms.losses)

    @functools.cached_property
    def _typical(self) -> Laws:
        """The laws if the record is in about its share of the steps of each kind."""
        share, left, numbers = self.num_selected / self.num_steps, self.num_selected, []
        others = self.num_steps
        for _, count in self.absent:
            others -= count
            number = min(max(round(share * count), left - others), left)
            numbers.append(number)
            left -= number
        return self.with_record(numbers)

    def rate(self, tilt: float) -> float:
        """Returns the λ at which the mean of Σ q_i under the tilted law is k.

        There the bound on π(k), the probability that k independent events with
        probabilities q_i happen, is nearly attained. The best λ is close to it.
        """
        few, usual = self.few, self.num_selected / self.num_steps

        def excess(log_rate: float) -> float:
            terms, _, laws = few._at(math.exp(log_rate), tilt)
            return mean(laws, terms.means) - self.num_selected

        high = min(2 * usual, (HIGHEST_RATE + usual) / 2)
        best = math.exp(root(excess, math.log(usual / 100), math.log(high)))
        return min(best, HIGHEST_RATE)

    def tilt(self, exponent: float) -> float:
        """Returns the tilt at whose mean of L Chernoff's bound has a given value.

        λ is that of `rate` at each tilt.

        Args:
            exponent: −ln of the bound.
        """

        def moments(tilt: float) -> tuple[float, float]:
            terms, cumulant, laws = self.few._at(self.rate(tilt), tilt)
            return mean(laws, terms.losses), cumulant

        return tilt_of_bound(moments, exponent, self._deviation())

    def is_informative(self, least: float) -> bool:
        """Returns whether the standard deviation of L under P is above `least`."""
        if self.ratios.size < 2 or not self.ratios[-1] > 0:
            return False
        return self._deviation() > least

    def _deviation(self) -> float:
        """Returns about the standard deviation of L under P, if λ is k / t."""
        few = self.few
        terms, _, laws = few._at(self.num_selected / self.num_steps, 0.0)
        return math.sqrt(variance(laws, terms.losses))


def places_of(size: int) -> IntArray:
    """Returns the first index of each of a few hundred runs of neighboring outputs.

    Args:
        size: The number of outputs.
    """
    return np.unique(np.linspace(0, size - 1, _PLACES).astype(np.int64))


def exponents_up_to(
    smallest_delta: float, first: Sequence[float] = _EXPONENTS
) -> list[float]:
    """Returns values of −ln δ: the first ones, continued nearly to the smallest δ."""
    last = -math.log(smallest_delta) - 6.0
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


def tilted_laws(laws: Laws, exponents: FloatArray) -> tuple[float, Laws]:
    """Returns the cumulant of a sum over steps, and the tilted laws of the steps."""
    cumulant, tilted = 0.0, []
    for masses, count in laws:
        # An output without mass must not count, even if it has the largest exponent.
        finite = np.where(masses > 0, exponents, -math.inf)
        largest = float(finite.max())
        weights = masses * np.exp(finite - largest)
        total = float(weights.sum())
        cumulant += count * (largest + math.log(total))
        tilted.append((weights / total, count))
    return cumulant, tilted


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns an approximate zero of an increasing function, or the nearer end."""
    if function(low) >= 0:
        return low
    if function(high) <= 0:
        return high
    return float(optimize.brentq(function, low, high, xtol=0.01))


def tilt_of_bound(
    moments: Callable[[float], tuple[float, float]], exponent: float, deviation: float
) -> float:
    """Returns the tilt θ for which Chernoff's bound has a given value.

    Let m be the mean of the sum if its law is tilted by θ, and K(θ) the cumulant. Then
    the sum is at least m with a probability of at most e^{K(θ) − θ m}.

    Args:
        moments: The function from θ to m and K(θ).
        exponent: −ln of the bound.
        deviation: The standard deviation of the sum.
    """
    if not exponent or not deviation:
        return 0.0

    def excess(log_tilt: float) -> float:
        tilt = math.exp(log_tilt)
        mean_of_sum, cumulant = moments(tilt)
        return tilt * mean_of_sum - cumulant - exponent

    # The tilt of a normal sum: the search is between this over e^4, and times e^4.
    centre = math.log(math.sqrt(2 * exponent) / deviation)
    return math.exp(root(excess, centre - 4, centre + 4))


def window(
    first: FloatArray, laws: Laws, tilt: float, outside: float
) -> tuple[float, float, FloatArray]:
    """Returns the window of a tilted sum, by Chernoff's bounds.

    Args:
        first: (n,) terms of a step's outputs in the sum.
        laws: (n,) masses of steps, with counts.
        tilt: The tilt, per nat.
        outside: −ln of the probability that may be outside at either end.

    Returns:
        The lower and upper end, and the (2,) changes of the tilt that give the best
        bounds above and below.
    """
    cumulant, tilted = tilted_laws(laws, tilt * first)
    deviation = math.sqrt(variance(tilted, first))
    # Changes are tried in units of 1 / deviation. If the sum is normal, the best one is
    # √(2 · outside), which is below 10.
    changes = np.geomspace(0.1, 100.0, 24) / max(deviation, 1e-12)

    def cumulants(tilts: FloatArray) -> FloatArray:
        return np.array([tilted_laws(laws, theta * first)[0] for theta in tilts])

    highs = (cumulants(tilt + changes) - cumulant + outside) / changes
    lows = (cumulant - cumulants(tilt - changes) - outside) / changes
    best = changes[[int(np.argmin(highs)), int(np.argmax(lows))]]
    return float(lows.max()), float(highs.min()), best


def log_binomial(num_selected: int, num_steps: int, rate: float) -> tuple[float, float]:
    """Returns ln Binom(k; t, λ), and a bound on its error."""
    fewer = np.arange(min(num_selected, num_steps - num_selected), dtype=np.float64)
    logs = np.log((num_steps - fewer) / (fewer + 1))
    chosen = num_selected * math.log(rate)
    others = (num_steps - num_selected) * math.log1p(-rate)
    value = math.fsum([*logs.tolist(), chosen, others])
    size = float(np.abs(logs).sum()) + 2 * logs.size + abs(chosen) + abs(others)
    return value, 8 * floats.UNIT_ROUNDOFF * (size + num_steps)
