"""A lower bound for k-out-of-t random allocation from sums over the steps.

The composition of k blocks dominates the mechanism, so a lower bound on the composition
is not a lower bound on the mechanism. By data processing, the law of any statistic of
the outputs gives a lower bound. The statistic here is the sum over the t steps of
ln(1 − λ + λX_i), where X_i is the likelihood ratio of step i. It would be the privacy
loss if the record took part in each step independently with probability λ. Each term
is rounded to a lattice. If there are few steps, a second sum joins the statistic, which
distinguishes a few large ratios from many. For a replaced record the statistic is the
difference of the two records' losses.

Which steps hold the record is unknown, so all steps are rounded in the same way, to one
lattice. The best λ depends on δ. So for each of several δ there is a λ, and a lattice
for the law of the sum that is tilted to the losses which matter at this δ. At each κ
the most powerful of all tests is used.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import special

from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.kernel import tilted_sums
from dp_accounting_ext.pairs import normal_cells
from dp_accounting_ext.pairs import profile_pairs

Laws = step_laws.Laws

# Certified, in units of rounding: the error of a shift; and of a mass that is a mixture
# of two masses.
_SHIFT, _CHANCE = 8, 16
# Certified: larger ratios are left out, as their tilted masses would not fit a float.
_LARGEST_RATIO = math.exp(600.0)
# Certified: the largest tilt of a block, so that all of its rows fit a float.
_STEEPEST = 50.0
# Certified: tests whose rounded probability under Q is larger are left out.
_MOST_LIKELY = floats.lowered(1.0)

# Tuning, all of these constants.
# The values of −ln δ for which tests are made, up to that of the tail mass.
_EXPONENTS = (0.0, 3.0, 7.0, 11.0, 16.0, 28.0)
# The tilt over that of the saddle point, if large ratios make a law wide there.
_EASED = 0.75
_RARE = 14.0  # Ratios are left out whose probability is below e^−14 of δ.
_OUTSIDE = 45.0  # A window leaves out a probability of e^−45 at either end.
_MARGIN = 1.05  # The size of the torus over that of the window.
# For a single sum: the number of fine rows over the root of t, as the rounding of t
# steps grows with this root; the least and the largest number of fine rows; and the
# number of blocks of rows.
_ROWS_PER_ROOT, _FEWEST_ROWS, _MOST_ROWS, _BLOCKS = 24.0, 1 << 13, 1 << 17, 1 << 12
# For two sums: the numbers of rows and columns; and the largest number of steps, up to
# which rounding to so few rows costs less than the second sum gains.
_ROWS_OF_TWO, _COLUMNS, _MOST_STEPS_OF_TWO = 1 << 11, 64, 128
_ODDS_OF_SECOND = 3.0  # Odds of a step in the second sum, over those in the first.
# The odds θ that are tried in the statistics for a replaced record, over k / (t − k).
# The best one is larger if the noise is larger.
_SHARES = 0.06, 0.3, 0.6, 1.0
_TESTS = 4096  # The number of tests of a sum.


@dataclasses.dataclass(frozen=True)
class _Look:
    """A statistic, and the tilt at which its law is computed.

    Attributes:
        scores: (n,) terms of a step's outputs in the statistic.
        second: (n,) terms of the outputs in a second sum, if there is one.
        gained: (n,) masses of steps under the law that is bounded from below.
        spent: (n,) masses of steps under the law that is bounded from above.
        tilt: The tilt of the first law, per nat.
        more: The further tilt of the second law, so that both tilted laws have the same
            mean. It is one if the sum is a privacy loss.
    """

    scores: FloatArray
    second: FloatArray | None
    gained: Laws
    spent: Laws
    tilt: float
    more: float = 1.0

    def tests(self, error: float) -> FloatArray:
        """Returns the tests of the sum, as `tests_of` does.

        Args:
            error: A further relative error of the quotient of a sum's masses.
        """
        found = self._masses()
        if found is None:
            return np.zeros((2, 0))
        p, q, rounding = found
        return tests_of(p, q, rounding + error)

    def _masses(self) -> tuple[FloatArray, FloatArray, float] | None:
        """Returns the masses of the sums on a lattice under both laws.

        Returns:
            (m,) lower bounds on the masses under the first law; (m,) upper bounds on
            those under the second law; and a bound on the sum of the relative errors
            of both, besides those of the steps' masses. None if the sum has one value.
        """
        places = step_laws.places_of(self.scores.size)
        sketch = self.scores[places]
        laws: Laws = [
            (np.add.reduceat(masses, places), count) for masses, count in self.gained
        ]
        low, high, changes = step_laws.window(sketch, laws, self.tilt, _OUTSIDE)
        _, about = step_laws.tilted_laws(laws, self.tilt * sketch)
        count = sum(count for _, count in laws)
        conservation.check_terms(sum(count for _, count in self.spent), count)
        if self.second is None:
            spread = math.sqrt(step_laws.variance(about, sketch))
            wanted = _ROWS_PER_ROOT * math.sqrt(count) * (high - low)
            wanted = min(max(wanted / max(spread, 1e-300), _FEWEST_ROWS), _MOST_ROWS)
            shape = 1 << math.ceil(math.log2(wanted)), 1
            height = shape[0] // _BLOCKS
            columns: IntArray = np.zeros(self.scores.size, dtype=np.int64)
        else:
            shape, height = (_ROWS_OF_TWO, _COLUMNS), 1
            second = self.second[places]
            width = 18 * math.sqrt(step_laws.variance(about, second))
            width = max(min(width, count * float(np.ptp(second))), 1e-9)
            columns = np.rint(self.second * (_COLUMNS / width)).astype(np.int64)
        step = _MARGIN * (high - low) / shape[0]
        # With smaller steps, indices would not fit an integer.
        if not step > 1e-13 * float(np.abs(self.scores).max()):
            return None
        rows = np.rint(self.scores / step).astype(np.int64)
        if rows[0] == rows[-1]:
            return None
        # The window was found with a few scores, without rounding. Both move the mean.
        _, here = step_laws.tilted_laws(self.gained, self.tilt * self.scores)
        moved = step_laws.mean(here, step * rows.astype(np.float64))
        moved -= step_laws.mean(about, sketch)
        first = math.floor((low + moved) / step / height)
        steepest = _STEEPEST / height
        gain = self._sum(
            [(masses, masses > floats.TINY, n) for masses, n in self.gained],
            (rows, columns),
            min(self.tilt * step, steepest),
            shape,
        )
        # No mass of the law that is bounded from above is left out.
        cost = self._sum(
            [
                (np.maximum(masses, floats.SMALLEST_MASS), masses >= 0, n)
                for masses, n in self.spent
            ],
            (rows, columns),
            min((self.tilt + self.more) * step, steepest),
            shape,
        )
        p = gain.masses_below(first, height=height, changes=(changes * step).tolist())
        q = cost.masses(tilted_sums.block(height), first, height=height)
        # A larger bound on a probability is useless and would cost digits in sums.
        q = np.minimum(q, 2.0)
        return p.ravel(), q.ravel(), gain.mass_error + cost.mass_error

    @staticmethod
    def _sum(
        laws: Sequence[tuple[FloatArray, BoolArray, int]],
        cells: tuple[IntArray, IntArray],
        tilt: float,
        shape: tuple[int, int],
    ) -> tilted_sums.TiltedSum:
        """Returns the law of a sum over steps, from the masses of each that count."""
        rows, columns = cells
        return tilted_sums.TiltedSum(
            [
                tilted_sums.Factor(rows[kept], columns[kept], masses[kept], count)
                for masses, kept, count in laws
            ],
            tilt,
            shape,
        )


def tests_of(p: FloatArray, q: FloatArray, error: float) -> FloatArray:
    """Returns (2, m) probabilities of tests under two laws: the most powerful ones.

    Those under the first law are rounded down, and those under the second law up.

    Args:
        p: (n,) masses of outputs under the first law. Some may be left out.
        q: (n,) masses of the same outputs under the second law.
        error: A bound on the sum of the relative errors of both masses.
    """
    q = np.maximum(q, floats.TINY)
    kept = p > floats.TINY
    losses = np.log(p, where=kept, out=np.zeros(p.size)) - np.log(q)
    kept &= np.abs(losses) <= floats.LARGEST_LOSS
    p, q, losses = p[kept], q[kept], losses[kept]
    order = np.argsort(-losses)
    error += 2 * (p.size + 16) * floats.UNIT_ROUNDOFF
    gains = np.cumsum(p[order]) * math.exp(-error)
    costs = np.cumsum(q[order]) * math.exp(error)
    last = costs <= _MOST_LIKELY
    if losses.size > _TESTS:
        last[:-1] &= np.diff(_levels(gains, losses[order])) != 0
    return np.array([gains, costs])[:, last]


def _levels(p: FloatArray, losses: FloatArray) -> FloatArray:
    """Returns (n,) increasing levels of tests, of which one test per level suffices.

    Args:
        p: (n,) probabilities of the tests under the first law, increasing.
        losses: (n,) losses at the ends of the tests, decreasing.
    """
    odds = np.log(p) - np.log(np.maximum(1 - p, floats.UNIT_ROUNDOFF))
    found = np.zeros(p.size)
    for each in (losses, odds):
        found += np.abs(each - each[0]) * (_TESTS / 2 / max(np.ptp(each), 1e-300))
    return np.asarray(np.floor(found), dtype=np.float64)


def lower_pair(
    pair: dominating_pair.DominatingPair,
    num_selected: int,
    num_steps: int,
    direction: Direction,
    *,
    tail_mass: float,
) -> dominating_pair.DominatingPair:
    """Returns a pair dominated, in one direction, by k-out-of-t random allocation.

    Under Q no step holds the record. Under P a uniformly random set of k steps holds
    it. The law of the sum does not depend on this set: k terms have the law of
    ln(1 − λ + λX) under P, and the others have that under Q.

    Args:
        pair: A lower bound of one step, n atoms.
        num_selected: Number of steps with the record, k ≤ t.
        num_steps: Number of steps, t.
        direction: Which of the two datasets holds the record.
        tail_mass: Probability of the rarest sums that are considered.

    Source:
        Data processing, https://arxiv.org/abs/2602.17284, Remark 4.7 (lower
        bounds) for k = 1.
    """
    seen = pair.ratios <= _LARGEST_RATIO
    given = dataclasses.replace(
        pair,
        ratios=pair.ratios[seen],
        masses=pair.masses[seen],
        zero_mass=pair.zero_mass if num_selected < num_steps else 0.0,
    )
    steps = step_laws.Steps.of(given, num_selected, num_steps)
    if not steps.is_informative(1e-9):
        return dominating_pair.trivial_pair(Bound.LOWER)
    # Masses of a step under Q count as exact. Those of the k steps under P have the
    # errors of ratios.
    of_ratios = pair.ratio_error + 2 * floats.UNIT_ROUNDOFF
    errors = (
        num_steps * (pair.mass_error + of_ratios),
        2 * num_selected * of_ratios,
    )
    exponents = step_laws.exponents_up_to(_EXPONENTS, tail_mass)
    if direction is Direction.REMOVE:
        infinite = sums.probability_of_any([(pair.infinity_mass, num_selected)])
        absent: Laws = [(steps.masses, num_steps)]
        tests = [_best(_removed(steps, exponents)), _of_largest(steps.laws, absent)]
        return profile_pairs.pair_below(
            np.concatenate(tests, axis=1),
            floats.lowered(infinite),
            mass_error=errors[0],
            ratio_error=errors[1],
        )
    found = profile_pairs.pair_below(
        _best(_added(steps, exponents, tail_mass)),
        mass_error=errors[0] + errors[1],
        ratio_error=errors[1],
    )
    return dominating_pair.dual(found)


def _best(looks: Sequence[_Look], error: float = 0.0) -> FloatArray:
    """Returns (2, n) tests of several sums, as `_Look.tests` does."""
    found = [np.zeros((2, 1)), *(look.tests(error) for look in looks)]
    return np.concatenate(found, axis=1)


def _of_largest(gained: Laws, spent: Laws, error: float = 0.0) -> FloatArray:
    """Returns (2, m) tests, as `_Look.tests`, of whether any step's output is large.

    Test j is whether the output of at least one step is the j-th or a later one.
    In the far tail a single step dominates the sum, and no tilt can reach it there. The
    probability that at least one of some independent events happens is a concave
    function of a common factor of their probabilities. So its relative error is no
    larger than theirs.

    Args:
        gained: (n,) masses of steps under the law that is bounded from below. Outputs
            are in the order of their evidence for this law.
        spent: (n,) masses of steps under the law that is bounded from above.
        error: A further relative error of the quotient of the two probabilities.
    """
    p, q = _probabilities_of_any(gained), _probabilities_of_any(spent)
    steps = sum(count for _, count in gained)
    rounding = error + (4 * p.size + 8 * steps + 4096) * floats.UNIT_ROUNDOFF
    p, q = p * math.exp(-rounding), np.maximum(q, floats.TINY) * math.exp(rounding)
    return np.array([p, q])[:, (p > floats.TINY) & (q <= _MOST_LIKELY)]


def _probabilities_of_any(laws: Laws) -> FloatArray:
    """Returns (n,) probabilities that some step's output is the j-th or later.

    If the masses of a step sum to less than one, outputs without a mass do not count.
    """
    log_all, log_none = 0.0, np.zeros(laws[0][0].size)
    for masses, count in laws:
        if not count:
            continue
        tails = np.cumsum(masses[::-1])[::-1]
        # The error of the total mass is multiplied by the number of steps.
        whole = math.fsum(masses.tolist())
        log_all += count * math.log(whole)
        with np.errstate(divide="ignore"):
            log_none += count * np.log1p(-np.minimum(tails / whole, 1.0))
    found: FloatArray = -np.expm1(log_none) * math.exp(log_all)
    return found


def _removed(steps: step_laws.Steps, exponents: Sequence[float]) -> list[_Look]:
    """Returns the statistics if a record is removed."""
    found = []
    for exponent in exponents:
        tilt = steps.sketch.tilt(exponent)
        rate = steps.sketch.rate(tilt)
        seen, _ = steps.without_largest(math.exp(-exponent - _RARE))
        scores = np.log1p(rate * (seen.ratios - 1))
        absent = [(seen.masses, steps.num_steps)]
        look = _Look(scores, None, seen.laws, absent, _EASED * tilt)
        found.append(look)
        if steps.num_steps <= _MOST_STEPS_OF_TWO:
            odds = _ODDS_OF_SECOND * rate * seen.ratios
            second = (odds / (1 - rate + odds)) ** 2
            found.append(dataclasses.replace(look, second=second))
    return found


def _added(
    steps: step_laws.Steps, exponents: Sequence[float], tail_mass: float
) -> list[_Look]:
    """Returns the statistics if a record is added."""
    absent: Laws = [(steps.masses, steps.num_steps)]
    rate = min(steps.num_selected / steps.num_steps, step_laws.HIGHEST_RATE)
    scores = np.log1p(rate * (steps.ratios - 1))
    # Without the record, scores are small: all large ratios get the same score.
    variance = step_laws.variance(absent, scores)
    highest = math.sqrt(-2 * math.log(tail_mass) * variance)
    scores = -np.minimum(scores, scores[0] + highest)[::-1]
    absent, drawn = (
        [(masses[::-1], count) for masses, count in laws]
        for laws in (absent, steps.laws)
    )
    tilts = [_EASED * tilt for tilt in _tilts(scores, absent, exponents)]
    return [
        _Look(scores, None, absent, drawn, tilt, _more(scores, absent, drawn, tilt))
        for tilt in tilts
    ]


def _more(scores: FloatArray, gained: Laws, spent: Laws, tilt: float) -> float:
    """Returns the further tilt at which the second law has the first law's mean."""
    _, here = step_laws.tilted_laws(gained, tilt * scores)
    goal = step_laws.mean(here, scores)

    def excess(log_more: float) -> float:
        exponents = (tilt + math.exp(log_more)) * scores
        _, there = step_laws.tilted_laws(spent, exponents)
        return step_laws.mean(there, scores) - goal

    return math.exp(step_laws.root(excess, -2.0, 16.0))


def _tilts(scores: FloatArray, laws: Laws, exponents: Sequence[float]) -> list[float]:
    """Returns tilts, per nat, at whose means of a sum Chernoff's bounds are given.

    Args:
        scores: (n,) terms of a step's outputs in the sum.
        laws: (n,) masses of steps, with counts.
        exponents: −ln of the bounds.
    """
    places = step_laws.places_of(scores.size)
    scores = scores[places]
    laws = [(np.add.reduceat(masses, places), count) for masses, count in laws]
    deviation = math.sqrt(step_laws.variance(laws, scores))

    def tilt_of(exponent: float) -> float:
        if not exponent or not deviation:
            return 0.0

        def excess(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            cumulant, tilted = step_laws.tilted_laws(laws, tilt * scores)
            return tilt * step_laws.mean(tilted, scores) - cumulant - exponent

        centre = math.log(math.sqrt(2 * exponent) / deviation)
        return math.exp(step_laws.root(excess, centre - 4, centre + 4))

    return [tilt_of(exponent) for exponent in exponents]


def replaced_pair(
    step: tuple[float, float, float],
    num_selected: int,
    num_steps: int,
    *,
    tail_mass: float,
) -> dominating_pair.DominatingPair:
    """Returns a pair that k-out-of-t allocation dominates if a record is replaced.

    The old record moves the Gaussian noise of its steps in one direction, and the new
    record in the opposite one. Let X and X′ be the likelihood ratios of a step with the
    old and with the new record to that without either, and let θ be at most the odds
    k / (t − k). The statistic is the sum of ln((1 + θX) / (1 + θX′)).

    Args:
        step: How far a record moves the noise of its step, in standard deviations, in
            (0, 12]; the probability that it does; and the probability that it does not.
        num_selected: Number of steps with the record, k < t.
        num_steps: Number of steps, t.
        tail_mass: Probability of the rarest sums that are considered.

    Guarantees:
        H(P‖Q) and H(Q‖P) of the result are at most those of these two records.

    Source:
        docs/mathematics.md, "A replaced record under random allocation".
    """
    shift, probability, null_probability = step
    shift *= 1 - _SHIFT * floats.UNIT_ROUNDOFF
    rarest = max(tail_mass / num_steps, floats.TINY)
    high = min(shift - float(special.ndtri(rarest)), normal_cells.FURTHEST - shift)
    cells = normal_cells.NormalCells.of((0.0, -shift, shift), -high, high)
    base, new, old = cells.masses
    new, old = (probability * law + null_probability * base for law in (new, old))
    losses = shift * (cells.ends[:-1] + cells.ends[1:]) / 2 - shift**2 / 2
    ratios = null_probability + probability * np.exp(losses)
    others = (base, num_steps - num_selected)
    gained: Laws = [(old, num_selected), others]
    spent: Laws = [(new, num_selected), others]
    odds = num_selected / (num_steps - num_selected)
    exponents = step_laws.exponents_up_to(_EXPONENTS, tail_mass)
    found = []
    for share in _SHARES:
        score = np.log1p(share * odds * ratios)
        scores = np.maximum.accumulate(score - score[::-1])
        found += [
            _Look(scores, None, gained, spent, _EASED * tilt)
            for tilt in _tilts(scores, gained, exponents)
        ]
    error = 2 * num_steps * (cells.mass_error + _CHANCE * floats.UNIT_ROUNDOFF)
    tests = [_best(found, error), _of_largest(gained, spent, error)]
    return profile_pairs.symmetric_below(np.concatenate(tests, axis=1), 0.0)
