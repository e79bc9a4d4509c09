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
IndexArray = npt.NDArray[np.int64]

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
    rate = num_selected / num_steps
    ratios, laws = pair.ratios, (pair.p_masses, pair.masses)
    if pair.zero_mass > 0 and rate < 1:
        ratios = np.append(0.0, ratios)
        laws = np.append(0.0, laws[0]), np.append(pair.zero_mass, laws[1])
    if ratios.size == 0 or np.ptp(ratios) == 0 or not laws[0].any():
        return dominating_pair.trivial_pair(Bound.LOWER)
    scores = np.log1p(rate * (ratios - 1))
    deviation = spread(scores, laws, num_selected, num_steps)
    goal = math.sqrt(-2 * math.log(tail_mass))
    step = max(4 * goal * deviation, float(np.ptp(scores))) / _POINTS
    cells = np.rint(scores / step).astype(np.int64)
    start = int(cells[0])
    with_record, without = (sums.gather(cells - start, masses) for masses in laws)
    p_factors = [
        lattice.Factor(start, with_record, num_selected),
        lattice.Factor(start, without, num_steps - num_selected),
    ]
    q_factors = [lattice.Factor(start, without, num_steps)]
    if direction is Direction.REMOVE:
        gained, spent, sign = p_factors, q_factors, 1.0
    else:
        gained, spent, sign = q_factors, p_factors, -1.0
    tilts = sign * np.linspace(-0.25, 1.0, _TILTS) * goal / deviation * step
    centre = sum(factor.count * factor.mean(0.0) for factor in gained)
    circle = fft.next_fast_len(2 * _POINTS, real=True)
    first = math.floor(centre - circle / 2)
    indices = np.arange(first, first + circle, dtype=np.int64)
    counts, sums_of_gains, gain_error = _tilted(gained, tilts, circle)
    gain = tilted_masses.LeastNoise(sums_of_gains, counts, indices).lowered()
    counts, sums_of_costs, cost_error = _tilted(spent, tilts + sign * step, circle)
    cost = tilted_masses.raised(sums_of_costs, counts, indices)
    p, q = (gain, cost) if direction is Direction.REMOVE else (cost, gain)
    kept = (p > floats.SMALLEST_MASS) & (q > floats.SMALLEST_MASS)
    ratios = p[kept] / q[kept]
    order = np.argsort(ratios, kind="stable")
    # A step's masses count as exact; those of P, of k steps, err by their ratios.
    transforms = gain_error + cost_error
    of_ratios = pair.ratio_error + 2 * floats.UNIT_ROUNDOFF
    return dominating_pair.DominatingPair(
        ratios[order],
        q[kept][order],
        infinity_mass=0.0,
        zero_mass=0.0,
        bound=Bound.LOWER,
        mass_error=num_steps * (pair.mass_error + of_ratios) + transforms,
        ratio_error=2 * num_selected * of_ratios + transforms,
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
) -> tuple[list[int], list[lattice.TiltedSum], float]:
    """Returns the number of copies, a sum under several tilts, and its mass error."""
    changes = [change / size for change in (30.0, 60.0, 120.0)]
    tilteds = [lattice.TiltedSum(factors, float(tilt), size, changes) for tilt in tilts]
    error = max(tilted.mass_error() for tilted in tilteds)
    return [factor.count for factor in factors], tilteds, error
