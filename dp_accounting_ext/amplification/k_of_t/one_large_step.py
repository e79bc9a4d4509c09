"""A lower bound for k-out-of-t random allocation where a large ratio makes the tail.

At a δ so small that no number of ordinary ratios explains it, one step's noise does, or
that of two. What is looked at are these, if there are any, and a sum over the others as
in `allocation_by_sum`. With the record one such step is one of the record's with
probability k / t, and k − 1 of the others are; else k of them.
"""

from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.amplification.k_of_t import allocation_by_sum
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

Direction = dominating_pair.Direction
DominatingPair = dominating_pair.DominatingPair
FloatArray = npt.NDArray[np.float64]

# Certified, in units of rounding: products of a few factors, and sums of two of them,
# beside the sums of all masses that share a class, a bin or a group.
_TERMS = 32

# Tuning. (5 of 65536 steps, σ = 1.3, δ = 1e-30.)
_LARGE_RATE = 1e-4  # Expected number of large ratios; what has three of them is lost.
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
    if (
        not some
        or not allocation_by_sum.tells(ordinary.ratios, num_selected, num_steps)
        or ordinary.ratios[-1] > allocation_by_sum.LARGEST_RATIO
    ):
        return allocation_by_sum.lower_pair(
            pair,
            num_selected,
            num_steps,
            Direction.REMOVE,
            tail_mass=tail_mass,
        )
    law = allocation_by_sum.ScoreSums(
        ordinary.ratios,
        (ordinary.p_masses, ordinary.masses),
        num_selected,
        num_steps,
        Direction.REMOVE,
        tail_mass=tail_mass,
    )
    starts = first + np.arange(_CLASSES) * (pair.ratios.size - first) // _CLASSES
    starts = np.unique(starts)
    large = _LargeRatios(
        np.add.reduceat(pair.masses, starts),
        np.add.reduceat(pair.p_masses, starts),
        num_selected,
        num_steps,
    )
    parts = [_with_none(law), _with_one(law, large)]
    if num_selected + 2 <= num_steps:
        parts.append(_with_two(law, large))
    p, q = (
        np.concatenate(each)
        for each in zip(*(part.masses for part in parts), strict=True)
    )
    summing = (pair.ratios.size + parts[0].points + _TERMS) * floats.UNIT_ROUNDOFF
    error = law.error + max(part.error for part in parts) + 2 * summing
    return allocation_by_sum.pair_of(p, q, pair, num_selected, num_steps, error=error)


def _first_large(pair: DominatingPair, num_selected: int, num_steps: int) -> int:
    """Returns the index of the first ratio that is large."""
    each = num_steps * pair.masses + num_selected * pair.p_masses
    above = np.cumsum(each[::-1])[::-1]
    return int(np.searchsorted(-above, -_LARGE_RATE))


class _LargeRatios(NamedTuple):
    """Classes of large ratios, and how many of the steps hold the record."""

    masses: FloatArray  # (n,) Without the record,
    p_masses: FloatArray  # (n,) and with it.
    num_selected: int
    num_steps: int


class _Part(NamedTuple):
    """P- and Q-masses of what has so many large ratios, and how they err."""

    masses: tuple[FloatArray, FloatArray]
    points: int  # Of the lattice that they are sums of.
    error: float


def _with_none(law: allocation_by_sum.ScoreSums) -> _Part:
    """Returns what has no large ratio."""
    gain, cost = law.gain(), law.cost()
    p, q = law.masses([gain], cost)
    return _Part((p, q), p.size, gain.error + cost.error)


def _with_one(law: allocation_by_sum.ScoreSums, large: _LargeRatios) -> _Part:
    """Returns what has one large ratio, grouped by its losses."""
    q1, p1, k, t = large
    gains, cost = [law.gain(1, 0), law.gain(0, 1)], law.cost(1)
    hit, missed, spent = _binned(law.masses(gains, cost, 1))
    p = np.multiply.outer(k * p1, hit) + np.multiply.outer((t - k) * q1, missed)
    return _grouped(p, np.multiply.outer(t * q1, spent), gains, cost)


def _with_two(law: allocation_by_sum.ScoreSums, large: _LargeRatios) -> _Part:
    """Returns the same of what has two large ratios; of fewer classes, as all pairs."""
    masses, p_masses, k, t = large
    starts = np.arange(0, masses.size, -(-masses.size // _CLASSES_OF_PAIRS))
    q1, p1 = (np.add.reduceat(each, starts) for each in (masses, p_masses))
    first, second = np.triu_indices(q1.size)
    twice = np.where(first == second, 0.5, 1.0)
    (q1, q2), (p1, p2) = ((each[first], each[second]) for each in (q1, p1))
    gains, cost = [law.gain(2, 0), law.gain(1, 1), law.gain(0, 2)], law.cost(2)
    both, either, neither, spent = _binned(law.masses(gains, cost, 2))
    p = np.multiply.outer(k * (k - 1) * p1 * p2, both)
    p += np.multiply.outer(k * (t - k) * (p1 * q2 + q1 * p2), either)
    p += np.multiply.outer((t - k) * (t - k - 1) * q1 * q2, neither)
    q = np.multiply.outer(t * (t - 1) * q1 * q2, spent)
    return _grouped(twice[:, np.newaxis] * p, twice[:, np.newaxis] * q, gains, cost)


def _binned(each: FloatArray) -> FloatArray:
    """Returns (m, n) masses in bins of the lattice, the last ones Q's."""
    seen = (each[0] > 0) & (each[-1] > floats.SMALLEST_MASS)
    each = each[:, seen]
    starts = np.arange(0, each.shape[1], max(-(-each.shape[1] // _BINS), 1))
    found: FloatArray = np.add.reduceat(each, starts, axis=1) if starts.size else each
    return found


def _grouped(
    p: FloatArray,
    q: FloatArray,
    gains: Sequence[allocation_by_sum.Line],
    cost: allocation_by_sum.Line,
) -> _Part:
    """Returns P- and Q-masses of cells, those of about one loss together."""
    kept = (p > floats.SMALLEST_MASS) & (q > floats.SMALLEST_MASS)
    p, q = p[kept], q[kept]
    groups = np.rint(np.log(p / q) / _WIDTH).astype(np.int64)
    groups -= groups.min(initial=0)
    error = max(gain.error for gain in gains) + cost.error
    found = sums.gather(groups, p), sums.gather(groups, q)
    return _Part(found, gains[0].masses.size, error)
