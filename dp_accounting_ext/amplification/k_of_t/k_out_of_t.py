"""k-out-of-t random allocation itself, from above, for 1 < k < t.

With X_i the ratios of the steps, Z = e_k(X_1, …, X_t) / C(t, k). For any λ in (0, 1)
and q_i = λ X_i / (1 − λ + λ X_i),

    Z = ∏ (1 − λ + λ X_i) · π(k) / Binom(k; t, λ),

π(k) the probability that k of independent events with chances q_i happen. It is at
most e^{−V} I₀(V), V = Σ q_i (1 − q_i). So the joint law of L = Σ ln(1 − λ + λ X_i) and
V bounds Z's.
"""

from collections.abc import Sequence
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.amplification.k_of_t import bound_cells
from dp_accounting_ext.amplification.k_of_t import joint_allocation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

Bound = dominating_pair.Bound
DominatingPair = dominating_pair.DominatingPair
FloatArray = npt.NDArray[np.float64]

# Tuning.
# Where upper bounds are tight: δ of one run is from 1 to 1e-12. Those below zero are of
# losses below the mean, for many runs: 10 of 5 of 391 steps, σ = 0.55 and δ = 1e-5, are
# at 21.93 without them, 21.86 with them.
_EXPONENTS = (-3.0, -0.5, 0.0, 0.5, 1.5, 3.0, 5.5, 9.0, 14.0, 19.0, 27.0)
_FURTHER = 1.5  # Beyond the last one, quotient of neighbours.
_SPARE = 6.0  # Of a tail's exponent.
_WIDEST = 3.0  # Of a tilted law's window, over one without a tilt.
_MOST_STEPS = 10**7  # Of more, rounding to a lattice that fits leaves nothing.
_STEEPEST_ROW = 50.0  # Tilt of a coarse row, whose fine rows have all to be floats.
_LEAST_DEVIATION = 1e-6  # Of L, in nats.
_RARE = 14.0  # Exponent of V below its floor, beyond that of an anchor.


def upper_pair(
    pair: DominatingPair,
    num_selected: int,
    num_steps: int,
    known: Sequence[DominatingPair],
    *,
    tail_mass: float,
) -> DominatingPair:
    """Returns a pair that dominates k-out-of-t allocation when a record is removed.

    Its profile is the greatest convex one below several bounds: those that are known,
    and those of the theorem for a few λ.

    Args:
        pair: An upper bound of one step, n atoms.
        num_selected: Number of steps with the record, 1 < k < t.
        num_steps: Number of steps, t.
        known: Upper bounds of the allocation, when a record is removed; at least one.
        tail_mass: Rarest losses that the result is to tell from infinite ones.

    Guarantees:
        H(P‖Q) of the result is at least that of the allocation, at every κ ≥ 0. The
        pair is for this direction alone.

    Source:
        docs/mathematics.md, "k out of t: the theorem".
    """
    steps = joint_allocation.Steps.of(pair, num_selected, num_steps)
    if num_steps > _MOST_STEPS or _is_constant(steps):
        return bound_cells.least(known)
    sketch = steps.sketch
    cells = []
    for exponent in exponents_up_to(_EXPONENTS, tail_mass):
        tilt = math.copysign(sketch.tilt(abs(exponent)), exponent)
        rate = min(sketch.rate(tilt), joint_allocation.HIGHEST_RATE)
        # Below the mean too the whole law is looked at: nothing is below its window.
        exponent, tilt = max(exponent, 0.0), max(tilt, 0.0)
        ordinary, lost = steps.without_largest(math.exp(-exponent - _RARE))
        anchor = ordinary.sketch.eased(rate, joint_allocation.EASED * tilt, _WIDEST)
        grid = joint_allocation.Grid.of([anchor], num_steps, finer=2)
        scores = joint_allocation.scores(ordinary.ratios, rate)
        is_steep = anchor.tilt * grid.coarse_step > _STEEPEST_ROW
        if not is_steep and grid.holds(*scores, num_steps):
            cells.append(_upper_cells(pair, ordinary, anchor, grid, lost, exponent))
    return bound_cells.least(known, cells)


def _is_constant(steps: joint_allocation.Steps) -> bool:
    """Tells whether all ratios are one, so that a lattice has nothing to show."""
    if steps.ratios.size < 2 or not steps.p_masses.any():
        return True
    even = steps.num_selected / steps.num_steps
    return steps.sketch.deviation(even) < _LEAST_DEVIATION


def _upper_cells(
    pair: DominatingPair,
    steps: joint_allocation.Steps,
    anchor: joint_allocation.Anchor,
    grid: joint_allocation.Grid,
    lost: float,
    exponent: float,
) -> bound_cells.Cells:
    """Returns the theorem's bound for one λ, accurate about one tilt.

    Args:
        pair: One step.
        steps: Its ratios, but for some large ones.
        anchor: Where to look.
        grid: The lattice for it.
        lost: Probability that any step has one of those, under P.
        exponent: About −ln δ where the bound is to be tight.
    """
    selected, total = steps.num_selected, steps.num_steps
    window = joint_allocation.Window(grid, grid.factors(steps), anchor)
    log_binomial, error = joint_allocation.log_binomial(selected, total, anchor.rate)
    cells = bound_cells.by_counts(
        window, log_binomial, log_mass=-exponent - _RARE, is_of_p=True
    )
    assert cells is not None
    lost += sums.probability_of_any([(pair.infinity_mass, selected)])
    error += grid.ratio_error(steps) + (total + 1) * pair.ratio_error
    return cells.with_more(lost, total * _error_of_step(pair), error)


def _error_of_step(pair: DominatingPair) -> float:
    """Bounds the relative error of a mass of one step, under P or Q."""
    return pair.mass_error + pair.ratio_error + 2 * floats.UNIT_ROUNDOFF


def exponents_up_to(first: Sequence[float], tail_mass: float) -> list[float]:
    """Returns exponents, and further ones, up to a little less than that of a tail."""
    last = -math.log(tail_mass) - _SPARE
    exponents = list(first)
    while exponents[-1] * _FURTHER < last:
        exponents.append(exponents[-1] * _FURTHER)
    return [exponent for exponent in exponents if exponent <= last] or exponents[:1]
