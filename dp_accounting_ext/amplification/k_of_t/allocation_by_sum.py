"""A lower bound for k-out-of-t random allocation: what a sum over steps reveals.

The composition of k blocks dominates the mechanism, so a lower bound of it is none of
the mechanism. By data processing, any statistic of the outputs gives one. The statistic
here is the sum over the t steps of ln(1 + λ(X_i − 1)), λ = k/t, each term rounded to a
lattice: what would be the privacy loss if the record took part in each step
independently. Of a record that another replaces it is the difference of the two
records' losses.

No step is known to hold the record, so that all are rounded alike, and to one lattice.
Sums are made of positive terms, as in `kernel.lattice_law`, and need no transform.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.amplification.k_of_t import joint_allocation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import normal_cells
from dp_accounting_ext.pairs import profile_pairs

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
FloatArray = npt.NDArray[np.float64]
Laws = joint_allocation.Laws

# Certified, in units of rounding: of a mass that was gathered and tilted, but for what
# the exponent adds; of a shift; and of a mass that is made of two with their chances.
_TILTED, _SHIFT, _CHANCE = 32, 8, 16
# Certified: larger ones are looked at nowhere, as their tilts would not fit a float.
_LARGEST_RATIO = math.exp(600.0)

# Tuning: odds of statistics over k / (t − k), one of which is near the best: the larger
# where a step tells little. (2 of 100 steps, σ = 0.5 and 1, δ = 1e-6, a replaced
# record: ε is 8.14 and 1.937 by the last, 8.94 and 1.846 by that of 0.3.)
_MOST_POINTS = 1 << 15  # Of a sum; of more the step is doubled.
_SHARES = 0.06, 0.3, 0.6, 1.0


@dataclasses.dataclass(frozen=True)
class Line:
    """Masses at consecutive lattice indices.

    Attributes:
        start: The first index.
        masses: (n,) masses, each at most what it should be.
        missing: How much all masses together are less than they should be, at most.
        error: Bound on the relative rounding error of any.
    """

    start: int
    masses: FloatArray
    missing: float = 0.0
    error: float = 0.0

    def plus(self, other: "Line", cut: float) -> "Line":
        """Returns the law of the sum, without tails of so much mass each."""
        masses = sums.convolve(self.masses, other.masses)
        terms = min(self.masses.size, other.masses.size)
        missing = self.missing * (float(other.masses.sum()) + other.missing)
        missing += other.missing * float(self.masses.sum())
        # Before a float has fewer digits; a sum of products may have lost less.
        masses[masses < floats.TINY] = 0.0
        missing += 2 * floats.TINY * masses.size
        first = min(int(np.searchsorted(np.cumsum(masses), cut)), masses.size - 1)
        above = int(np.searchsorted(np.cumsum(masses[::-1]), cut))
        last = max(masses.size - above, first + 1)
        return Line(
            self.start + other.start + first,
            masses[first:last],
            floats.raised(missing + 2 * cut),
            self.error
            + other.error
            + sums.convolution_error(terms)
            + 2 * floats.UNIT_ROUNDOFF,
        )

    def at(self, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Returns the (m,) masses at consecutive indices."""
        found = np.zeros(indices.size)
        offset = self.start - int(indices[0])
        low, high = max(offset, 0), min(offset + self.masses.size, indices.size)
        if high > low:
            found[low:high] = self.masses[low - offset : high - offset]
        return found


def _sum_of(factors: Sequence[tuple[Line, int]], cut: float) -> Line | None:
    """Returns the law of a sum of independent copies, if it is not too long."""
    total = Line(0, np.ones(1))
    for power, count in factors:
        while count:
            if count & 1:
                total = total.plus(power, cut)
            count >>= 1
            if count:
                power = power.plus(power, cut)
            if max(total.masses.size, power.masses.size) > _MOST_POINTS:
                return None
    return total


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
        tail_mass: Probability of the rarest sums that are looked at.

    Source:
        Data processing, https://arxiv.org/abs/2602.17284, Remark 4.7 (lower
        bounds) for k = 1.
    """
    ratios, laws = pair.ratios, (pair.p_masses, pair.masses)
    if pair.zero_mass > 0 and num_selected < num_steps:
        ratios = np.append(0.0, ratios)
        laws = np.append(0.0, laws[0]), np.append(pair.zero_mass, laws[1])
    seen = ratios <= _LARGEST_RATIO
    ratios, laws = ratios[seen], (laws[0][seen], laws[1][seen])
    if not ratios.size or not laws[0].any():
        return dominating_pair.trivial_pair(Bound.LOWER)
    drawn: Laws = [(laws[0], num_selected), (laws[1], num_steps - num_selected)]
    absent: Laws = [(laws[1], num_steps)]
    # A step's masses count as exact; those of P, of k steps, err by their ratios.
    of_ratios = pair.ratio_error + 2 * floats.UNIT_ROUNDOFF
    errors = (
        num_steps * (pair.mass_error + of_ratios),
        2 * num_selected * of_ratios,
    )
    if direction is Direction.REMOVE:
        most = [share * num_selected for share in _SHARES]
        rates = [each / (num_steps - num_selected + each) for each in most]
        scores = [np.log1p(rate * (ratios - 1)) for rate in rates]
        infinite = sums.probability_of_any([(pair.infinity_mass, num_selected)])
        return profile_pairs.pair_below(
            _tests(scores, drawn, absent, tail_mass),
            floats.lowered(infinite),
            mass_error=errors[0],
            ratio_error=errors[1],
        )
    # Who has not the record has small scores: large ratios are as one.
    score = np.log1p(num_selected / num_steps * (ratios - 1))
    variance = joint_allocation.variance(absent, score)
    highest = math.sqrt(-2 * math.log(tail_mass) * variance)
    score = np.minimum(score, score[0] + highest)
    absent, drawn = (
        [(masses[::-1], count) for masses, count in law] for law in (absent, drawn)
    )
    found = profile_pairs.pair_below(
        _tests([-score[::-1]], absent, drawn, tail_mass),
        mass_error=errors[0] + errors[1],
        ratio_error=errors[1],
    )
    return dominating_pair.dual(found)


def replaced_pair(
    step: tuple[float, float, float],
    num_selected: int,
    num_steps: int,
    *,
    tail_mass: float,
) -> dominating_pair.DominatingPair:
    """Returns a pair that k of t steps dominate where a record replaces another.

    The old record moves the Gaussian noise of its steps one way, the new one the other
    way. With X and X′ the ratios of either to none, and θ the odds k / (t − k) or less,
    the statistic is the sum of ln((1 + θX) / (1 + θX′)).

    Args:
        step: How far a record moves the noise, over its deviation, in (0, 12]; with
            what chance it does; and with what chance it does not.
        num_selected: Number of steps with the record, k < t.
        num_steps: Number of steps, t.
        tail_mass: Probability of the rarest sums that are looked at.

    Guarantees:
        H(P‖Q) and H(Q‖P) of the result are at most those of these two records.

    Source:
        docs/mathematics.md, "A replaced record under random allocation".
    """
    shift, chance, silent = step
    shift *= 1 - _SHIFT * floats.UNIT_ROUNDOFF
    rarest = max(tail_mass / num_steps, floats.TINY)
    high = min(shift - float(special.ndtri(rarest)), normal_cells.FURTHEST - shift)
    cells = normal_cells.NormalCells.of((0.0, -shift, shift), -high, high)
    base, new, old = cells.masses
    new, old = (chance * law + silent * base for law in (new, old))
    exponents = shift * (cells.ends[:-1] + cells.ends[1:]) / 2 - shift**2 / 2
    ratios = silent + chance * np.exp(exponents)
    others = (base, num_steps - num_selected)
    gained, spent = [(old, num_selected), others], [(new, num_selected), others]
    odds = num_selected / (num_steps - num_selected)
    scores = [np.log1p(share * odds * ratios) for share in _SHARES]
    tests = _tests(
        [np.maximum.accumulate(score - score[::-1]) for score in scores],
        gained,
        spent,
        tail_mass,
        error=2 * num_steps * (cells.error + _CHANCE * floats.UNIT_ROUNDOFF),
    )
    return profile_pairs.symmetric_below(tests, 0.0)


def _tests(
    scores: Sequence[FloatArray],
    gained: Laws,
    spent: Laws,
    tail_mass: float,
    error: float = 0.0,
) -> FloatArray:
    """Returns (2, n) chances of tests of several sums, those of the first law lowered.

    Args:
        scores: Of each sum the (m,) scores of one step's outputs.
        gained: As for `_masses`, and so are the next two.
        spent: Which law is bounded from above.
        tail_mass: Probability of the rarest sums that are looked at.
        error: What the quotient of a sum's masses may err by besides.
    """
    found = [np.zeros((2, 1))]
    for score in scores:
        # Or indices do not fit an integer.
        if not np.ptp(score) > 1e-9 * np.abs(score).max():
            continue
        p, q, rounding = _masses(score, gained, spent, tail_mass)
        kept = (p > floats.TINY) & (q > floats.TINY)
        p, q = p[kept], q[kept]
        kept = np.abs(np.log(p) - np.log(q)) <= floats.LARGEST_LOSS
        p, q = p[kept], q[kept]
        order = np.argsort(-p / q, kind="stable")
        rounding += error + 2 * (p.size + 16) * floats.UNIT_ROUNDOFF
        p = np.cumsum(p[order]) * math.exp(-rounding)
        q = np.cumsum(q[order]) * math.exp(rounding)
        # Of what is nearly always so more would be known than there is.
        found.append(np.array([p, q])[:, q <= floats.lowered(1.0)])
    return np.concatenate(found, axis=1)


def _masses(
    scores: FloatArray, gained: Laws, spent: Laws, tail_mass: float
) -> tuple[FloatArray, FloatArray, float]:
    """Returns masses of the sum of steps' scores on a lattice, of two laws.

    Args:
        scores: (n,) scores of one step's outputs, increasing; where they are large the
            first law is the larger. What shows another one in any step is left out of
            all masses.
        gained: (n,) masses of steps, of the law that is bounded from below.
        spent: Those of the law that is bounded from above.
        tail_mass: Probability of the rarest sums that are looked at.

    Returns:
        (m,) lower bounds, (m,) upper bounds on the other law's, and a bound on the
        relative errors of both together, but for the steps' own.
    """
    num_steps = sum(count for _, count in gained)
    deviation = math.sqrt(joint_allocation.variance(gained, scores))
    # A fifth of what a step deviates; sums and steps have not too many points.
    step = deviation * min(max(0.2 / math.sqrt(num_steps), 1 / 800), 1 / 200)
    step = max(step, float(np.ptp(scores)) / 2**14)
    while (found := _masses_on(scores, gained, spent, tail_mass, step)) is None:
        step *= 2
    return found


def _masses_on(
    scores: FloatArray, gained: Laws, spent: Laws, tail_mass: float, step: float
) -> tuple[FloatArray, FloatArray, float] | None:
    """Returns the masses on a lattice of such a step, if they are not too many."""
    num_steps = sum(count for _, count in gained)
    cells = np.rint(scores / step).astype(np.int64)
    start = int(cells[0])
    cells -= start
    # The law that is bounded from above is multiplied by what makes it about the
    # other: its tails have to be known where the other has its masses.
    places = start + np.arange(int(cells[-1]) + 1)
    tilts = np.exp(step * places)
    # Of all steps together so little that the tail itself has its masses.
    cut = max(tail_mass * 1e-5 / num_steps, floats.TINY)
    tilted, logs = [], []
    for masses, count in spent:
        weights = sums.gather(cells, masses) * tilts
        total = float(weights.sum())
        line = Line(start, weights / total, weights.size * floats.TINY / total)
        tilted.append((line, count))
        logs.append(math.log(total))
    gain = _sum_of(
        [(Line(start, sums.gather(cells, masses)), count) for masses, count in gained],
        cut,
    )
    cost = _sum_of(tilted, cut)
    if gain is None or cost is None:
        return None
    indices = np.arange(gain.start, gain.start + gain.masses.size)
    log_total = math.fsum(
        count * log for (_, count), log in zip(spent, logs, strict=True)
    )
    with np.errstate(over="ignore", under="ignore"):
        above = cost.at(indices) + cost.missing
        above *= np.exp(log_total - step * indices)
    largest = float(np.abs(step * places).max()) + max(abs(log) for log in logs)
    units = _TILTED + places.size + 8 * largest
    error = num_steps * units * floats.UNIT_ROUNDOFF + gain.error + cost.error
    # No more than a probability, so that products with it keep their digits.
    return gain.masses, np.minimum(above, 2.0), error
