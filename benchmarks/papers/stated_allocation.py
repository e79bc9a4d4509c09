"""Random allocation as paper 1 states its algorithms, for comparison.

They are asked for (α, β): what they return is at most α to the right of the truth, but
for a probability β. The accountant has no such request: it computes a lower and an
upper bound, and the bracket is the error.

True up to the rounding of floats, which is not counted. The pseudocode's cells of an
upper bound, [lᵢ, lᵢ₊₁) at lᵢ, round down; they are rounded up here, as its text says.

Source: https://arxiv.org/abs/2602.17284, section 4 and Appendix B.
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Protocol

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import FloatArray

_AT_ONCE = 1 << 20  # Sums in memory.


class Pair(Protocol):
    """A dominating pair (P, Q), by the law of its loss ln(dP/dQ) under P."""

    def dual(self) -> "Pair":
        """Returns the pair (Q, P)."""

    def at_most(self, losses: FloatArray) -> FloatArray:
        """Returns (n,) probabilities of a loss of at most each of (n,) values."""

    def beyond(self, loss: float) -> float:
        """Returns the probability of a larger loss, an infinite one included."""

    def ends(self, tail: float) -> tuple[float, float]:
        """Returns finite losses below and above which there is at most a tail."""


@dataclasses.dataclass(frozen=True)
class GaussianPair:
    """N(1, σ²) against N(0, σ²).

    Attributes:
        noise_multiplier: σ > 0.
    """

    noise_multiplier: float

    def dual(self) -> "GaussianPair":
        """Returns itself: the pair is symmetric."""
        return self

    def at_most(self, losses: FloatArray) -> FloatArray:
        """Returns (n,) probabilities of a loss of at most each of (n,) values."""
        noise = self.noise_multiplier
        return np.asarray(special.ndtr((losses - 0.5 / noise**2) * noise))

    def beyond(self, loss: float) -> float:
        """Returns the probability of a larger loss."""
        noise = self.noise_multiplier
        return float(special.ndtr((0.5 / noise**2 - loss) * noise))

    def ends(self, tail: float) -> tuple[float, float]:
        """Returns losses below and above which there is this tail."""
        noise = self.noise_multiplier
        reach = -float(special.ndtri(tail)) / noise
        return 0.5 / noise**2 - reach, 0.5 / noise**2 + reach


@dataclasses.dataclass(frozen=True)
class AtomicPair:
    """Any pair of discrete laws.

    Attributes:
        losses: (n,) finite losses, in order.
        masses: (n,) their probabilities under P.
        infinite: The probability under P of an infinite loss.
    """

    losses: FloatArray
    masses: FloatArray
    infinite: float = 0.0

    def dual(self) -> "AtomicPair":
        """Returns the pair (Q, P); what Q has where P has nothing is infinite."""
        masses = (self.masses * np.exp(-self.losses))[::-1]
        return AtomicPair(-self.losses[::-1], masses, max(1 - float(masses.sum()), 0.0))

    def at_most(self, losses: FloatArray) -> FloatArray:
        """Returns (n,) probabilities of a loss of at most each of (n,) values."""
        sums = np.append(0.0, np.cumsum(self.masses))
        return np.asarray(sums[np.searchsorted(self.losses, losses, side="right")])

    def beyond(self, loss: float) -> float:
        """Returns the probability of a larger loss, an infinite one included."""
        return float(self.masses[self.losses > loss].sum()) + self.infinite

    def ends(self, tail: float) -> tuple[float, float]:
        """Returns losses below and above which there is at most a tail."""
        low = np.searchsorted(np.cumsum(self.masses), tail)
        high = np.searchsorted(np.cumsum(self.masses[::-1]), tail)
        return float(self.losses[low]), float(self.losses[::-1][high])


@dataclasses.dataclass(frozen=True)
class Sum:
    """A positive random variable on a multiplicative grid.

    Attributes:
        first: Logarithm of the least point.
        step: Difference of neighboring logarithms.
        masses: (n,) probabilities.
        infinite: The probability of an infinite loss.
    """

    first: float
    step: float
    masses: FloatArray
    infinite: float = 0.0

    @property
    def logarithms(self) -> FloatArray:
        """(n,) logarithms of the points."""
        return np.asarray(self.first + self.step * np.arange(self.masses.size))

    @property
    def turned(self) -> "Sum":
        """The law of the inverse."""
        last = self.first + self.step * (self.masses.size - 1)
        return dataclasses.replace(self, first=-last, masses=self.masses[::-1])

    def times(self, factor: float) -> "Sum":
        """Returns the law of a multiple."""
        return dataclasses.replace(self, first=self.first + math.log(factor))

    def delta(self, epsilon: float) -> float:
        """Returns δ at ε of a loss with these logarithms."""
        below = np.minimum(epsilon - self.logarithms, 0.0)
        return float(-(self.masses @ np.expm1(below))) + self.infinite

    def second_moment(self) -> float:
        """Returns the Rényi divergence of order 2, what is infinite left out."""
        return math.log(float(self.masses @ np.exp(self.logarithms)))


def remove(pair: Pair, num_steps: int, alpha: float, beta: float) -> Sum:
    """Returns the loss of one of t steps where a record is removed.

    Args:
        pair: A dominating pair of one step.
        num_steps: t ≥ 2.
        alpha: α > 0, in nats: how far losses may be moved up.
        beta: β > 0: what may be moved to infinity.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 1 and Theorem 4.6.
    """
    present = _discretized(pair, _step(num_steps, alpha), beta / num_steps)
    absent = _dual(present)
    whole = _convolved(_self_convolved(absent, num_steps - 1, up=True), present, True)
    return whole.times(1 / num_steps)


def add(pair: Pair, num_steps: int, alpha: float, beta: float) -> Sum:
    """Returns the loss of one of t steps where a record is added.

    Args:
        pair: A dominating pair of one step.
        num_steps: t ≥ 2.
        alpha: α > 0, in nats: how far losses may be moved up.
        beta: β > 0: what may be moved to infinity.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 2 and Theorem 4.6.
    """
    step = _step(num_steps, alpha)
    absent = _discretized(pair.dual(), step, beta / num_steps).turned
    whole = _self_convolved(absent, num_steps, up=False)
    return whole.times(1 / num_steps).turned


def _step(num_steps: int, alpha: float) -> float:
    return alpha / (2 * math.ceil(math.log2(num_steps)) + 1)


def _discretized(pair: Pair, step: float, tail: float) -> Sum:
    """Returns a ratio under P, its loss rounded up to a grid.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 6.
    """
    first, last = pair.ends(tail)
    # One point more than it takes, so that rounding leaves no atom beyond the last.
    losses = first + step * np.arange(math.ceil((last - first) / step) + 2)
    masses = np.diff(pair.at_most(losses), prepend=0.0)
    return Sum(first, step, masses, pair.beyond(float(losses[-1])))


def _dual(present: Sum) -> Sum:
    """Returns the ratio without the record, what is zero rounded up to the least.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 7.
    """
    masses = present.masses * np.exp(-present.logarithms)
    masses[0] += max(1.0 - float(masses.sum()), 0.0)
    return dataclasses.replace(present, masses=masses, infinite=0.0)


def _self_convolved(summand: Sum, count: int, *, up: bool) -> Sum:
    """Returns the sum of several independent copies, by squaring.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 3.
    """
    total: Sum | None = None
    while True:
        if count % 2:
            total = summand if total is None else _convolved(summand, total, up)
        count //= 2
        if not count:
            assert total is not None
            return total
        summand = _convolved(summand, summand, up)


def _convolved(one: Sum, other: Sum, up: bool) -> Sum:
    """Returns the sum of two on one number of points, rounded up or down to as many.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithms 4 and 5.
    """
    size = one.masses.size
    first = float(np.logaddexp(one.first, other.first))
    values = np.exp(other.logarithms - first)
    found = np.zeros(size + 1)
    rows = max(_AT_ONCE // size, 1)
    rounded = np.ceil if up else np.floor
    for start in range(0, size, rows):
        points = np.exp(one.logarithms[start : start + rows] - first)
        sums = np.log(points[:, np.newaxis] + values) / one.step
        cells = np.clip(rounded(sums), 0, size if up else size - 1).astype(np.int64)
        masses = one.masses[start : start + rows, np.newaxis] * other.masses
        found += np.bincount(cells.ravel(), masses.ravel(), minlength=size + 1)
    beyond = one.infinite + other.infinite + float(found[size])
    return Sum(first, one.step, found[:size], beyond)


@dataclasses.dataclass(frozen=True)
class FourierMean:
    """The mean of t ratios without the record, on an additive grid.

    Attributes:
        places: (n,) values of the mean.
        masses: (n,) probabilities; FFT noise may make some negative.
        infinite: What the ratios beyond the grid have of the mean.
    """

    places: FloatArray
    masses: FloatArray
    infinite: float

    def remove(self, epsilon: float) -> float:
        """Returns δ at ε where a record is removed."""
        above = np.maximum(self.places - math.exp(epsilon), 0.0)
        return float(self.masses @ above) + self.infinite

    def add(self, epsilon: float) -> float:
        """Returns δ at ε where a record is added."""
        below = np.maximum(1 - math.exp(epsilon) * self.places, 0.0)
        return float(self.masses @ below)


def fourier(pair: Pair, num_steps: int, points: int, tail: float) -> FourierMean:
    """Returns the law of the mean of t ratios, by a power of one Fourier transform.

    Each ratio is moved to its two neighbors on the grid, its mean kept: hockey sticks
    are convex in the ratio, so that both directions are bounded from above.

    Args:
        pair: A dominating pair of one step.
        num_steps: t.
        points: Of the sum's grid, from 0 to t and twice the largest ratio.
        tail: The share of the largest ratios that counts as infinite.

    Source:
        https://arxiv.org/abs/2602.17284, section 5 (Fourier sums; as stated there or
        not, for its grids are not in the text).
    """
    _, last = pair.ends(tail / num_steps)
    width = (num_steps + 2 * math.exp(last)) / points
    size = math.ceil(math.exp(last) / width)
    with np.errstate(divide="ignore"):
        losses = np.log(width * np.arange(size + 1))
    # Of each cell: the mean's share, which is a probability under P, and Q's own.
    means = np.diff(pair.at_most(losses))
    without = pair.dual()
    own = np.diff(1 - without.at_most(-losses))
    raised = np.clip(means / width - np.arange(size) * own, 0.0, own)
    law = np.zeros(points)
    law[:size] += own - raised
    law[1 : size + 1] += raised
    law[0] += max(1 - float(law.sum()), 0.0)
    masses = np.fft.irfft(np.fft.rfft(law) ** num_steps, points)
    places = width * np.arange(points) / num_steps
    return FourierMean(places, masses, pair.beyond(float(losses[-1])))


def epsilon_at(profile: Callable[[float], float], delta: float) -> float:
    """Returns where a profile falls to δ, up to ε = 700; infinity if it does not."""
    low, high = 0.0, 700.0
    if profile(high) > delta:
        return math.inf
    while high - low > 1e-9 * max(high, 1e-3):
        middle = (low + high) / 2
        low, high = (middle, high) if profile(middle) > delta else (low, middle)
    return high
