"""Random allocation of Gaussian noise as paper 1 states its algorithm, for comparison.

It is asked for (α, β): what it returns is at most α to the right of the truth, but for
a probability β. The accountant has no such request: it computes both sides in the
convex order, on far fewer points, and the bracket is the error.

True up to the rounding of floats, which is not counted. The pseudocode's cells of an
upper bound, [lᵢ, lᵢ₊₁) at lᵢ, round down; they are rounded up here, as its text says.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import special

FloatArray = npt.NDArray[np.float64]

_AT_ONCE = 1 << 20  # Sums in memory.


@dataclasses.dataclass(frozen=True)
class Sum:
    """A positive random variable on a multiplicative grid.

    Attributes:
        first: Logarithm of the least point.
        step: Difference of neighbouring logarithms.
        masses: (n,) probabilities.
        infinite: The probability of an infinite value.
    """

    first: float
    step: float
    masses: FloatArray
    infinite: float = 0.0

    @property
    def logarithms(self) -> FloatArray:
        """(n,) logarithms of the points."""
        places = np.arange(self.masses.size, dtype=np.float64)
        found: FloatArray = self.first + self.step * places
        return found

    def delta(self, epsilon: float) -> float:
        """Returns δ at ε of a loss with these logarithms."""
        below = np.minimum(epsilon - self.logarithms, 0.0)
        finite = float(-(self.masses @ np.expm1(below)))
        return finite + self.infinite


def remove(noise: float, num_steps: int, alpha: float, beta: float) -> Sum:
    """Returns the loss of one of t steps where a record is removed, over t.

    Args:
        noise: σ.
        num_steps: t ≥ 2.
        alpha: α > 0, in nats: how far losses may be moved up.
        beta: β > 0: what may be moved to infinity.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 1 and Theorem 4.6.
    """
    step = alpha / (2 * math.ceil(math.log2(num_steps)) + 1)
    present = _discretized(noise, step, beta / num_steps)
    absent = _dual(present)
    whole = _convolved(_self_convolved(absent, num_steps - 1), present)
    return dataclasses.replace(whole, first=whole.first - math.log(num_steps))


def _discretized(noise: float, step: float, tail: float) -> Sum:
    """Returns a step's ratio with the record, its loss rounded up to a grid.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 6.
    """
    mean, reach = 0.5 / noise**2, -float(special.ndtri(tail)) / noise
    first = mean - reach
    losses = first + step * np.arange(math.ceil(2 * reach / step) + 1)
    below = special.ndtr((losses - mean) * noise)
    beyond = float(special.ndtr((mean - losses[-1]) * noise))
    return Sum(first, step, np.diff(below, prepend=0.0), beyond)


def _dual(present: Sum) -> Sum:
    """Returns the ratio without the record, what is zero rounded up to the least.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 7.
    """
    masses = present.masses * np.exp(-present.logarithms)
    masses[0] += max(1.0 - float(masses.sum()), 0.0)
    return dataclasses.replace(present, masses=masses, infinite=0.0)


def _self_convolved(summand: Sum, count: int) -> Sum:
    """Returns the sum of so many independent copies, by squaring.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 3.
    """
    total: Sum | None = None
    while True:
        if count % 2:
            total = summand if total is None else _convolved(summand, total)
        count //= 2
        if not count:
            assert total is not None
            return total
        summand = _convolved(summand, summand)


def _convolved(one: Sum, other: Sum) -> Sum:
    """Returns the sum of two on one number of points, rounded up to as many.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithms 4 and 5.
    """
    size = one.masses.size
    first = float(np.logaddexp(one.first, other.first))
    values = np.exp(other.logarithms - first)
    found = np.zeros(size + 1)
    rows = max(_AT_ONCE // size, 1)
    for start in range(0, size, rows):
        points = np.exp(one.logarithms[start : start + rows] - first)
        sums = np.log(points[:, np.newaxis] + values) / one.step
        cells = np.clip(np.ceil(sums), 0, size).astype(np.int64)
        masses = one.masses[start : start + rows, np.newaxis] * other.masses
        found += np.bincount(cells.ravel(), masses.ravel(), minlength=size + 1)
    beyond = one.infinite + other.infinite + float(found[size])
    return Sum(first, one.step, found[:size], beyond)
