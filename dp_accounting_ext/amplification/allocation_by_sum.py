"""A lower bound for k-out-of-t random allocation: what a sum over steps reveals.

The composition of k blocks dominates the mechanism, so a lower bound of it is
none of the mechanism. By data processing, any statistic of the outputs gives
one. The statistic here is the sum over the t steps of ln(1 + λ(X_i − 1)),
λ = k/t, each term rounded to a lattice: what would be the privacy loss if the
record took part in each step independently.
"""

from collections.abc import Sequence
import math

import numpy as np
import numpy.typing as npt
from scipy import fft

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.kernels import tilted_masses
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
FloatArray = npt.NDArray[np.float64]

# Tuning. In brackets: ε, and time over what it is, for half of it and twice, for 10 of
# 1000 steps and σ = 1 at δ = 1e-6.
_POINTS = 1 << 15  # Of the lattice. (7e-5 lower and 0.7, 2e-5 higher and 1.6.)
_TILTS = 8  # (2e-9 lower and 0.7, the same and 1.5.)


def lower_pair(
    pair: dominating_pair.DominatingPair,
    num_selected: int,
    num_steps: int,
    direction: Direction,
    *,
    tail_mass: float,
) -> dominating_pair.DominatingPair:
    """Returns a pair dominated, in one direction, by k-out-of-t random allocation.

    Under Q all steps are without the record; under P a uniformly random set of
    k steps is with it, and the law of the sum does not depend on the set: k
    steps have the law of ln(1 + λ(X − 1)) under P, the others that under Q.

    Args:
        pair: A lower bound of one step, n atoms.
        num_selected: Number of steps with the record, k ≤ t.
        num_steps: Number of steps, t.
        direction: Which of the two datasets holds the record.
        tail_mass: Probability that may be outside the lattice.

    Source:
        Data processing, https://arxiv.org/abs/2602.17284, Remark 4.7 (lower
        bounds) for k = 1.
    """
    ratios, laws = pair.ratios, (pair.p_masses, pair.masses)
    if pair.zero_mass > 0 and num_selected < num_steps:
        ratios = np.append(0.0, ratios)
        laws = np.append(0.0, laws[0]), np.append(pair.zero_mass, laws[1])
    if ratios.size == 0 or np.ptp(ratios) == 0 or not laws[0].any():
        return dominating_pair.trivial_pair(Bound.LOWER)
    law = ScoreSums(
        ratios, laws, num_selected, num_steps, direction, tail_mass=tail_mass
    )
    p, q = law.gain(), law.cost()
    if direction is Direction.ADD:
        p, q = q, p
    return pair_of(p, q, pair, num_selected, num_steps, error=law.error)


class ScoreSums:
    """The sum over steps of ln(1 + λ(X − 1)) on a lattice, with the record and without.

    Args:
        ratios: (n,) ratios X of one step.
        laws: Their (n,) masses with the record, and without.
        num_selected: k.
        num_steps: t.
        direction: Whether the law with the record is bounded from below and the other
            from above, or the other way round.
        tail_mass: Probability that may be outside the lattice.

    Attributes:
        error: Bound on the relative errors of two masses together, a lower and an
            upper one, but for the step's own.
    """

    def __init__(
        self,
        ratios: FloatArray,
        laws: tuple[FloatArray, FloatArray],
        num_selected: int,
        num_steps: int,
        direction: Direction,
        *,
        tail_mass: float,
    ) -> None:
        scores = np.log1p(num_selected / num_steps * (ratios - 1))
        deviation = spread(scores, laws, num_selected, num_steps)
        goal = math.sqrt(-2 * math.log(tail_mass))
        step = max(4 * goal * deviation, float(np.ptp(scores))) / _POINTS
        cells = np.rint(scores / step).astype(np.int64)
        start = int(cells[0])
        with_record, without = (sums.gather(cells - start, law) for law in laws)
        self._gained = [
            lattice.Factor(start, with_record, num_selected),
            lattice.Factor(start, without, num_steps - num_selected),
        ]
        self._spent = [lattice.Factor(start, without, num_steps)]
        sign = 1.0
        if direction is Direction.ADD:
            self._gained, self._spent, sign = self._spent, self._gained, -1.0
        tilts = sign * np.linspace(-0.25, 1.0, _TILTS) * goal / deviation * step
        circle = fft.next_fast_len(2 * _POINTS, real=True)
        centre = sum(factor.count * factor.mean(0.0) for factor in self._gained)
        first = math.floor(centre - circle / 2)
        self._indices = np.arange(first, first + circle, dtype=np.int64)
        self._gains = _tilted(self._gained, tilts, circle)
        self._costs = _tilted(self._spent, tilts + sign * step, circle)
        self.error = sum(
            max(tilted.mass_error() for tilted in each)
            for each in (self._gains, self._costs)
        )

    def gain(self, *fewer: int) -> FloatArray:
        """Returns lower bounds on masses, with so many fewer copies of each factor."""
        counts = _without(self._gained, fewer)
        return tilted_masses.LeastNoise(self._gains, counts, self._indices).lowered()

    def cost(self, *fewer: int) -> FloatArray:
        """Returns upper bounds on masses, with so many fewer copies of each factor."""
        counts = _without(self._spent, fewer)
        return tilted_masses.raised(self._costs, counts, self._indices)


def pair_of(
    p: FloatArray,
    q: FloatArray,
    step: dominating_pair.DominatingPair,
    num_selected: int,
    num_steps: int,
    *,
    error: float,
) -> dominating_pair.DominatingPair:
    """Returns the lower pair of what has these masses, P's and Q's.

    Args:
        p: (n,) masses with the record.
        q: (n,) masses without it.
        step: The lower bound of one step that they were computed from.
        num_selected: k.
        num_steps: t.
        error: Bound on the relative errors of a mass in p and one in q together, but
            for the step's own.
    """
    kept = (p > floats.SMALLEST_MASS) & (q > floats.SMALLEST_MASS)
    p, q = p[kept], q[kept]
    ratios = p / q
    order = np.argsort(ratios, kind="stable")
    # A step's masses count as exact; those of P, of k steps, err by their ratios.
    of_ratios = step.ratio_error + 2 * floats.UNIT_ROUNDOFF
    return dominating_pair.DominatingPair(
        ratios[order],
        q[order],
        infinity_mass=0.0,
        zero_mass=0.0,
        bound=Bound.LOWER,
        mass_error=num_steps * (step.mass_error + of_ratios) + error,
        ratio_error=2 * num_selected * of_ratios + error,
    )


def spread(
    scores: FloatArray,
    laws: tuple[FloatArray, FloatArray],
    num_selected: int,
    num_steps: int,
) -> float:
    """Returns the larger standard deviation of the sum, under P or under Q."""
    variances = []
    for masses in laws:
        mean = sums.dot(scores, masses)
        variances.append(sums.dot((scores - mean) ** 2, masses))
    under_p, under_q = variances
    mixed = num_selected * under_p + (num_steps - num_selected) * under_q
    return math.sqrt(max(mixed, num_steps * under_q))


def _tilted(
    factors: Sequence[lattice.Factor], tilts: FloatArray, size: int
) -> list[lattice.TiltedSum]:
    changes = [change / size for change in (30.0, 60.0, 120.0)]
    return [lattice.TiltedSum(factors, float(tilt), size, changes) for tilt in tilts]


def _without(factors: Sequence[lattice.Factor], fewer: Sequence[int]) -> list[int]:
    """Returns the number of copies of each factor, some left out."""
    each = zip(factors, fewer or [0] * len(factors), strict=True)
    return [factor.count - number for factor, number in each]
