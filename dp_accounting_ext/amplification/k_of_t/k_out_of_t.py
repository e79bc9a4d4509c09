"""k-out-of-t random allocation itself, from above and from below, for 1 < k < t.

With X_i the ratios of the steps, Z = e_k(X_1, …, X_t) / C(t, k). For any λ in (0, 1)
and q_i = λ X_i / (1 − λ + λ X_i),

    Z = ∏ (1 − λ + λ X_i) · π(k) / Binom(k; t, λ),

π(k) the probability that k of independent events with chances q_i happen. It is at
most e^{−V} I₀(V), V = Σ q_i (1 − q_i). So the joint law of L = Σ ln(1 − λ + λ X_i) and
V bounds Z's. Any statistic's law gives a lower bound: that of L and a sum of cubes.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.amplification.k_of_t import allocation_by_sum
from dp_accounting_ext.amplification.k_of_t import bound_cells
from dp_accounting_ext.amplification.k_of_t import few_out_of_t
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
# Of 2 and 3 draws `few_out_of_t` is nearly always less.
_EXPONENTS_OF_FEW = (0.0, 3.0, 9.0, 14.0, 27.0)
_LOWER_EXPONENTS = (0.0, 7.0, 16.0, 28.0)  # The same for lower ones.
_FURTHER = 1.5  # Beyond the last one, quotient of neighbours.
_DELTA_OVER_TAIL = 1e6  # Of a question.
_SPARE = 6.0  # Of a tail's exponent.
# The exponent of the λ of lower bounds, of that of a question. (12 of 240 steps, σ =
# 0.7, δ = 1e-20: ε is 23.5, and 23.25 with an exponent of 8 whatever the question.)
_TYPICAL, _LEAST_TYPICAL = 0.4, 6.0
# Of a tilted law's window, over one without a tilt; lower bounds share a grid.
_WIDEST, _LOWER_WIDEST = 3.0, 2.0
_MOST_STEPS = 10**7  # Of more, rounding to a lattice that fits leaves nothing.
_STEEPEST_ROW = 50.0  # Tilt of a coarse row, whose fine rows have all to be floats.
_GROUPS = 4096  # Of a lower bound's ratios.
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
    few = num_selected <= few_out_of_t.MOST_DRAWS
    exponents = exponents_up_to(_EXPONENTS_OF_FEW if few else _EXPONENTS, tail_mass)
    for exponent in exponents:
        tilt = math.copysign(sketch.tilt(abs(exponent)), exponent)
        rate = min(sketch.rate(tilt), joint_allocation.HIGHEST_RATE)
        # Below the mean too the whole law is looked at: nothing is below its window.
        exponent, tilt = max(exponent, 0.0), max(tilt, 0.0)
        ordinary, lost = steps.without_largest(math.exp(-exponent - _RARE))
        anchor = ordinary.sketch.eased(rate, joint_allocation.EASED * tilt, _WIDEST)
        grid = joint_allocation.Grid.of([anchor], num_steps, finer=2)
        if anchor.tilt * grid.coarse_step <= _STEEPEST_ROW and grid.holds(
            *ordinary.sums_at(rate), num_steps
        ):
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
    window = joint_allocation.Window(
        grid, list(grid.factors(steps, Bound.UPPER)), anchor
    )
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


def lower_pair(
    pair: DominatingPair, num_selected: int, num_steps: int, *, tail_mass: float
) -> DominatingPair:
    """Returns a pair dominated by k-out-of-t allocation when a record is removed.

    What L and a sum of cubes show, rounded at random to a lattice: under Q all steps
    are without the record; under P the law is that of any one set of k steps with it.
    Cells with about the same ratio are one group.

    Args:
        pair: A lower bound of one step, n atoms.
        num_selected: Number of steps with the record, 1 < k < t.
        num_steps: Number of steps, t.
        tail_mass: Probability of the rarest cells that are looked at.

    Guarantees:
        H(P‖Q) of the result is at most that of the allocation, at every κ ≥ 0.

    Source:
        Data processing, https://arxiv.org/abs/2602.17284, Remark 4.7 (lower
        bounds) for k = 1.
    """
    steps = joint_allocation.Steps.of(
        pair, num_selected, num_steps, joint_allocation.cubes
    )
    if num_steps > _MOST_STEPS or _is_constant(steps):
        return _by_sum(pair, num_selected, num_steps, tail_mass)
    anchors = _lower_anchors(steps, tail_mass)
    grid = joint_allocation.Grid.of([anchor for _, anchor in anchors], num_steps)
    if not grid.holds(*steps.sums_at(grid.rate), num_steps):
        return _by_sum(pair, num_selected, num_steps, tail_mass)
    tilted = [
        (ordinary, anchor, ordinary.sketch.tilt_without(anchor.rate, anchor.tilt))
        for ordinary, anchor in anchors
    ]
    looks = [
        _Look(grid, ordinary, anchor, under_q)
        for ordinary, anchor, under_q in tilted
        if max(anchor.tilt, under_q) * grid.coarse_step <= _STEEPEST_ROW
    ]
    if not looks:
        return _by_sum(pair, num_selected, num_steps, tail_mass)
    gain, cost = _grouped(looks)
    kept = (gain > floats.SMALLEST_MASS) & (cost > floats.SMALLEST_MASS)
    ratios = gain[kept] / cost[kept]
    order = np.argsort(ratios, kind="stable")
    error = 2 * num_steps * _error_of_step(pair)
    error += max(look.mass_error() for look in looks)
    masses = _one_at_most(cost[kept][order])
    return DominatingPair(
        ratios[order],
        masses,
        infinity_mass=floats.lowered(
            sums.probability_of_any([(pair.infinity_mass, num_selected)])
        ),
        zero_mass=0.0,
        bound=Bound.LOWER,
        mass_error=error,
        ratio_error=2 * error,
    )


def _one_at_most(masses: FloatArray) -> FloatArray:
    """Returns Q's masses without those of the smallest ratios, beyond a sum of one.

    Raised masses may add up to more, which counts in what is made of many such pairs.
    A divergence is no larger without an atom.

    Args:
        masses: (n,) masses of increasing ratios.
    """
    above = np.append(np.cumsum(masses[::-1])[-2::-1], 0.0)
    kept: FloatArray = np.clip(floats.lowered(1.0) - above, 0.0, masses)
    return kept


def _by_sum(
    pair: DominatingPair, num_selected: int, num_steps: int, tail_mass: float
) -> DominatingPair:
    """Returns what L alone shows, on a lattice of its own."""
    return allocation_by_sum.lower_pair(
        pair,
        num_selected,
        num_steps,
        dominating_pair.Direction.REMOVE,
        tail_mass=tail_mass,
    )


def exponents_up_to(first: Sequence[float], tail_mass: float) -> list[float]:
    """Returns exponents, and further ones, up to a little less than that of a tail."""
    last = -math.log(tail_mass) - _SPARE
    exponents = list(first)
    while exponents[-1] * _FURTHER < last:
        exponents.append(exponents[-1] * _FURTHER)
    return [exponent for exponent in exponents if exponent <= last] or exponents[:1]


def _lower_anchors(
    steps: joint_allocation.Steps, tail_mass: float
) -> list[tuple[joint_allocation.Steps, joint_allocation.Anchor]]:
    """Returns anchors of one λ, each after the ratios that are looked at there."""
    sketch = steps.sketch
    typical = max(_TYPICAL * -math.log(tail_mass * _DELTA_OVER_TAIL), _LEAST_TYPICAL)
    rate = sketch.rate(sketch.tilt(typical))
    anchors = []
    for exponent in exponents_up_to(_LOWER_EXPONENTS, tail_mass):
        tilt = joint_allocation.EASED * sketch.tilt(exponent, rate)
        ordinary, _ = steps.without_largest(math.exp(-exponent - _RARE))
        anchors.append((ordinary, ordinary.sketch.eased(rate, tilt, _LOWER_WIDEST)))
    return anchors


class _Look:
    """Masses of cells under P and Q, accurate about one tilt.

    What shows a ratio that is not among the steps' is in none of its cells.

    Q's law is tilted so that L has the same mean. What folds onto its cells only raises
    them.

    Args:
        grid: The cells.
        steps: The steps, but for some large ratios.
        anchor: Where it is looked at.
        under_q: The tilt of Q's law.
    """

    def __init__(
        self,
        grid: joint_allocation.Grid,
        steps: joint_allocation.Steps,
        anchor: joint_allocation.Anchor,
        under_q: float,
    ) -> None:
        self.grid = grid
        _, without = grid.factors(steps, Bound.UPPER)
        self._laws = (
            grid.law(
                list(grid.factors(steps, Bound.LOWER)), anchor.tilt, anchor.changes
            ),
            grid.law(
                [dataclasses.replace(without, count=steps.num_steps)],
                under_q,
                anchor.changes,
            ),
        )
        first = math.floor(anchor.low / grid.coarse_step)
        rows = np.concatenate([np.zeros(grid.height - 1), np.ones(grid.height)])
        self.cells = tuple(
            law.masses(rows, first, height=grid.height) for law in self._laws
        )
        # Beyond the window cells are few, and may have folded.
        last = int(self.cells[0].rows[-1])
        self._first = first
        self._last = min(math.ceil(anchor.high / grid.coarse_step), last)

    def mass_error(self) -> float:
        """Bounds the relative errors of masses under either law."""
        return max(law.mass_error for law in self._laws)

    def log_noise(self, rows: FloatArray) -> FloatArray:
        """Returns (n,) logarithms of P's noise in coarse rows, inf where it sees none.

        Args:
            rows: (n,) coarse rows.
        """
        cells = self.cells[0]
        noise = math.log(cells.noise) + cells.log_scale - cells.tilt * rows
        outside = (rows < self._first) | (rows > self._last)
        return np.where(outside, np.inf, noise)

    def seen(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns masses of cells in coarse rows, under P and Q.

        P's are lowered by their noise and by what may have folded, Q's raised.
        """
        gain, cost = self.cells
        own = rows.astype(np.int64) - gain.first
        height = self.grid.height
        ends = int(rows[0]) * height, (int(rows[-1]) + 1) * height - 1
        # A cell's fine rows count e^{−tilt · …} of the whole one.
        tallest = math.exp(abs(gain.tilt))
        folded = self._laws[0].folded_mass(*ends)
        noise = gain.noise + floats.raised(folded * tallest)
        gains = np.maximum(gain.values[own] - noise, 0.0) * gain.scale()[own, None]
        costs = np.maximum(cost.values[own], 0.0) + cost.noise
        return gains.ravel(), (costs * cost.scale()[own, None]).ravel()


def _grouped(looks: Sequence[_Look]) -> tuple[FloatArray, FloatArray]:
    """Returns (n,) masses of groups of cells with about the same ratio, under P and Q.

    Each row is of the look that knows it best.
    """
    rows = np.unique(np.concatenate([look.cells[0].rows for look in looks]))
    rows = rows.astype(np.float64)
    noises = np.array([look.log_noise(rows) for look in looks])
    owners = np.argmin(noises, axis=0)
    owners[np.isinf(noises.min(axis=0))] = -1
    parts = [
        look.seen(rows[owners == number])
        for number, look in enumerate(looks)
        if (owners == number).any()
    ]
    gain, cost = (np.concatenate(each) for each in zip(*parts, strict=True))
    kept = (gain > floats.SMALLEST_MASS) & (cost > floats.SMALLEST_MASS)
    gain, cost = gain[kept], cost[kept]
    if not gain.size:
        return gain, cost
    losses = np.log(gain) - np.log(cost)
    low, high = float(losses.min()), float(losses.max())
    groups = ((losses - low) / max(high - low, 1e-12) * _GROUPS).astype(np.int64)
    return sums.gather(groups, gain), sums.gather(groups, cost)
