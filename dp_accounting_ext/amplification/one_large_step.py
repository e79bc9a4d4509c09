"""A lower bound for k-out-of-t random allocation where a large ratio makes the tail.

At a δ so small that no number of ordinary ratios explains it, one step's noise does, or
that of two. What is looked at are these, if there are any, and a sum over the others as
in `allocation_by_sum`. With the record one such step is one of the record's with
probability k / t, and k − 1 of the others are; else k of them.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import fft

from dp_accounting_ext.amplification import allocation_by_sum
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.kernels import tilted_masses
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
DominatingPair = dominating_pair.DominatingPair
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

# Certified, in units of rounding: products of a few factors, and sums of two of them,
# beside the sums of all masses that share a class, a bin or a group.
_TERMS = 32

# Tuning. (5 of 65536 steps, σ = 1.3, δ = 1e-30.)
_LARGE_RATE = 1e-4  # Expected number of large ratios; what has three of them is lost.
_POINTS = 1 << 15  # Of the lattice.
_TILTS = 8
_CLASSES = 1024  # Of large ratios,
_CLASSES_OF_PAIRS = 96  # and where there are two.
_BINS = 192  # Of the sum of the others, beside a large ratio.
_WIDTH = 5e-4  # Of groups of losses with a large ratio, in nats.


def lower_pair(
    pair: DominatingPair, num_selected: int, num_steps: int, *, tail_mass: float
) -> DominatingPair:
    """Returns a pair that k-out-of-t allocation dominates when a record is removed.

    Args:
        pair: A lower bound of one step, n atoms.
        num_selected: Number of steps with the record, k ≤ t.
        num_steps: Number of steps, t.
        tail_mass: Probability that may be outside the lattice.

    Returns:
        The pair; where no ratio is large, or all are, or k = t, that of the sum over
        all steps.

    Source:
        Data processing, https://arxiv.org/abs/2602.17284, Remark 4.7.
    """
    first = _first_large(pair, num_selected, num_steps)
    ordinary = dataclasses.replace(
        pair, ratios=pair.ratios[:first], masses=pair.masses[:first]
    )
    some = 1 < first < pair.ratios.size and num_selected < num_steps
    if not some or ordinary.loss_range() == 0:
        return allocation_by_sum.lower_pair(
            pair,
            num_selected,
            num_steps,
            dominating_pair.Direction.REMOVE,
            tail_mass=tail_mass,
        )
    law = _Sums(ordinary, num_selected, num_steps, tail_mass)
    none = law.gain(0, 0), law.cost(0)
    starts = first + np.arange(_CLASSES) * (pair.ratios.size - first) // _CLASSES
    starts = np.unique(starts)
    masses = np.add.reduceat(pair.masses, starts)
    p_masses = np.add.reduceat(pair.p_masses, starts)
    large = law, masses, p_masses, num_selected, num_steps
    parts = [none, _with_one_large(*large)]
    if num_selected + 2 <= num_steps:
        parts.append(_with_two_large(*large))
    p, q = (np.concatenate(each) for each in zip(*parts, strict=True))
    kept = (p > floats.SMALLEST_MASS) & (q > floats.SMALLEST_MASS)
    ratios = p[kept] / q[kept]
    order = np.argsort(ratios, kind="stable")
    # A step's masses count as exact; those of P, of k steps, err by their ratios.
    of_ratios = pair.ratio_error + 2 * floats.UNIT_ROUNDOFF
    summing = (pair.ratios.size + none[0].size + _TERMS) * floats.UNIT_ROUNDOFF
    error = law.error + summing
    return DominatingPair(
        ratios[order],
        q[kept][order],
        infinity_mass=0.0,
        zero_mass=0.0,
        bound=Bound.LOWER,
        mass_error=num_steps * (pair.mass_error + of_ratios) + error,
        ratio_error=2 * num_selected * of_ratios + 2 * error,
    )


def _first_large(pair: DominatingPair, num_selected: int, num_steps: int) -> int:
    """Returns the index of the first ratio that is large."""
    each = num_steps * pair.masses + num_selected * pair.p_masses
    above = np.cumsum(each[::-1])[::-1]
    return int(np.searchsorted(-above, -_LARGE_RATE))


def _with_one_large(
    law: "_Sums",
    masses: FloatArray,
    p_masses: FloatArray,
    num_selected: int,
    num_steps: int,
) -> tuple[FloatArray, FloatArray]:
    """Returns P- and Q-masses of what has one large ratio, grouped by their losses.

    Args:
        law: The sums of ordinary ratios.
        masses: (n,) Q-masses of classes of large ratios.
        p_masses: (n,) P-masses.
        num_selected: k.
        num_steps: t.
    """
    hit, missed, cost = _binned(law.gain(1, 0), law.gain(0, 1), law.cost(1))
    p = np.multiply.outer(num_selected * p_masses, hit)
    p += np.multiply.outer((num_steps - num_selected) * masses, missed)
    return _grouped(p, np.multiply.outer(num_steps * masses, cost))


def _with_two_large(
    law: "_Sums",
    masses: FloatArray,
    p_masses: FloatArray,
    num_selected: int,
    num_steps: int,
) -> tuple[FloatArray, FloatArray]:
    """Returns the same of what has two large ratios; of fewer classes, as all pairs."""
    others = num_steps - num_selected
    starts = np.arange(0, masses.size, -(-masses.size // _CLASSES_OF_PAIRS))
    q1, p1 = (np.add.reduceat(each, starts) for each in (masses, p_masses))
    first, second = np.triu_indices(q1.size)
    twice = np.where(first == second, 0.5, 1.0)
    (q1, q2), (p1, p2) = ((each[first], each[second]) for each in (q1, p1))
    both, either, neither, cost = _binned(
        law.gain(2, 0), law.gain(1, 1), law.gain(0, 2), law.cost(2)
    )
    p = np.multiply.outer(num_selected * (num_selected - 1) * p1 * p2, both)
    p += np.multiply.outer(num_selected * others * (p1 * q2 + q1 * p2), either)
    p += np.multiply.outer(others * (others - 1) * q1 * q2, neither)
    q = np.multiply.outer(num_steps * (num_steps - 1) * q1 * q2, cost)
    return _grouped(twice[:, np.newaxis] * p, twice[:, np.newaxis] * q)


def _binned(*laws: FloatArray) -> FloatArray:
    """Returns (m, n) masses in bins of the lattice, the last ones Q's."""
    each = np.stack(laws)
    each = each[:, (each[0] > 0) & (each[-1] > floats.SMALLEST_MASS)]
    starts = np.arange(0, each.shape[1], max(-(-each.shape[1] // _BINS), 1))
    found: FloatArray = np.add.reduceat(each, starts, axis=1) if starts.size else each
    return found


def _grouped(p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns P- and Q-masses of cells, those of about one loss together."""
    kept = (p > floats.SMALLEST_MASS) & (q > floats.SMALLEST_MASS)
    p, q = p[kept], q[kept]
    groups = np.rint(np.log(p / q) / _WIDTH).astype(np.int64)
    groups -= groups.min(initial=0)
    return sums.gather(groups, p), sums.gather(groups, q)


class _Sums:
    """The sum over steps without large ratios, of ln(1 + λ(X − 1)) on a lattice.

    Args:
        pair: The ordinary ratios of one step.
        num_selected: k.
        num_steps: t.
        tail_mass: Probability that may be outside the lattice.

    Attributes:
        error: Bound on the relative error of any mass, but for the step's own.
    """

    def __init__(
        self,
        pair: DominatingPair,
        num_selected: int,
        num_steps: int,
        tail_mass: float,
    ) -> None:
        scores = np.log1p(num_selected / num_steps * (pair.ratios - 1))
        laws = pair.p_masses, pair.masses
        deviation = allocation_by_sum.spread(scores, laws, num_selected, num_steps)
        goal = math.sqrt(-2 * math.log(tail_mass))
        step = max(4 * goal * deviation, float(np.ptp(scores))) / _POINTS
        cells = np.rint(scores / step).astype(np.int64)
        start = int(cells[0])
        with_record, without = (sums.gather(cells - start, law) for law in laws)
        self._counts = num_selected, num_steps - num_selected
        gains = [
            lattice.Factor(start, with_record, self._counts[0]),
            lattice.Factor(start, without, self._counts[1]),
        ]
        costs = [lattice.Factor(start, without, num_steps)]
        tilts = np.linspace(-0.25, 1.0, _TILTS) * goal / deviation * step
        size = fft.next_fast_len(2 * _POINTS, real=True)
        centre = sum(factor.count * factor.mean(0.0) for factor in gains)
        first = math.floor(centre - size / 2)
        self._indices = np.arange(first, first + size, dtype=np.int64)
        self._gains = _tilted(gains, tilts, size)
        self._costs = _tilted(costs, tilts + step, size)
        self.error = max(s.mass_error() for s in self._gains)
        self.error += max(s.mass_error() for s in self._costs)

    def gain(self, hit: int, missed: int) -> FloatArray:
        """Returns lower bounds on masses under P, without steps hit or missed."""
        counts = self._counts[0] - hit, self._counts[1] - missed
        return tilted_masses.LeastNoise(self._gains, counts, self._indices).lowered()

    def cost(self, fewer: int) -> FloatArray:
        """Returns upper bounds on masses under Q, of so many steps fewer."""
        counts = [sum(self._counts) - fewer]
        return tilted_masses.raised(self._costs, counts, self._indices)


def _tilted(
    factors: Sequence[lattice.Factor], tilts: FloatArray, size: int
) -> list[lattice.TiltedSum]:
    changes = [change / size for change in (30.0, 60.0, 120.0)]
    return [lattice.TiltedSum(factors, float(tilt), size, changes) for tilt in tilts]
