"""A lower bound for k-out-of-t random allocation: what sums over the steps reveal.

The composition of k blocks dominates the mechanism, so a lower bound of it is none of
the mechanism. By data processing, any statistic of the outputs gives one. The statistic
here is the sum over the t steps of ln(1 − λ + λX_i), each term rounded to a lattice:
what would be the privacy loss if the record took part in each step independently.
Where steps are few a second sum is looked at beside it, which tells a few large ratios
from many. Of a record that another replaces the statistic is the difference of the two
records' losses.

No step is known to hold the record, so that all are rounded alike, and to one lattice.
How likely a δ of e^{−a} makes a step to be drawn depends on a; so there is a λ for each
of several a, a lattice for the sum's law that is tilted to where it is decided, and the
most powerful of all tests.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import special

from dp_accounting_ext.amplification.k_of_t import joint_allocation
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

Laws = joint_allocation.Laws

# Certified, in units of rounding: of a shift; and of a mass that is made of two with
# their chances.
_SHIFT, _CHANCE = 8, 16
# Certified: larger ones are looked at nowhere, as their tilts would not fit a float.
_LARGEST_RATIO = math.exp(600.0)
_STEEPEST = 50.0  # Certified: tilt of a block, whose rows have all to be floats.
# Certified: of what is nearly always so more would be known than there is.
_MOST_LIKELY = floats.lowered(1.0)

# Tuning.
# −ln δ where tests are good: those of one run, and as far as its tails are asked for.
_EXPONENTS = (0.0, 3.0, 7.0, 11.0, 16.0, 28.0)
_EASED = 0.75  # Of the tilt of a saddle point, where large ratios make a law wide.
_RARE = 14.0  # Exponent of what is left out, beyond that of an answer.
_OUTSIDE = 45.0  # Exponent of what a window leaves out.
_MARGIN = 1.05  # The torus over the window.
# Fine rows of a single sum, of which the rounding of t steps takes as many; and blocks.
_ROWS_PER_ROOT, _FEWEST_ROWS, _MOST_ROWS, _BLOCKS = 24.0, 1 << 13, 1 << 17, 1 << 12
# Of two sums, as long as rounding t steps to as few rows costs less than the second
# sum tells.
_ROWS_OF_TWO, _COLUMNS, _MOST_STEPS_OF_TWO = 1 << 11, 64, 128
_ODDS_OF_SECOND = 3.0  # Of the second sum, over those of the first.
# Odds of a replaced record's statistics over k / (t − k), one of which is near the
# best: the larger where a step tells little.
_SHARES = 0.06, 0.3, 0.6, 1.0
_TESTS = 4096  # Of a sum.


@dataclasses.dataclass(frozen=True)
class _Look:
    """A statistic, and where its law is looked at.

    Attributes:
        scores: (n,) what the outputs of a step add to it.
        second: (n,) what they add to a second sum that is looked at beside it, if any.
        gained: (n,) masses of steps, of the law that is bounded from below.
        spent: Those of the law that is bounded from above.
        tilt: The tilt of the first law, per nat.
        more: By how much more the other law is tilted, which brings it to the same
            place: by one where the sum is a loss.
    """

    scores: FloatArray
    second: FloatArray | None
    gained: Laws
    spent: Laws
    tilt: float
    more: float = 1.0

    def tests(self, error: float) -> FloatArray:
        """Returns (2, m) chances of tests, those of the first law lowered.

        Args:
            error: What the quotient of a sum's masses may err by besides.
        """
        found = self._masses()
        if found is None:
            return np.zeros((2, 0))
        p, q, rounding = found
        kept = (p > floats.TINY) & (q > floats.TINY)
        p, q = p[kept], q[kept]
        losses = np.log(p) - np.log(q)
        kept = np.abs(losses) <= floats.LARGEST_LOSS
        order = np.argsort(-losses[kept])
        p, q, losses = p[kept][order], q[kept][order], losses[kept][order]
        rounding += error + 2 * (p.size + 16) * floats.UNIT_ROUNDOFF
        p = np.cumsum(p) * math.exp(-rounding)
        q = np.cumsum(q) * math.exp(rounding)
        last = q <= _MOST_LIKELY
        if losses.size > _TESTS:
            last[:-1] &= np.diff(_levels(p, losses)) != 0
        return np.array([p, q])[:, last]

    def _masses(self) -> tuple[FloatArray, FloatArray, float] | None:
        """Returns masses of the sums on a lattice, of both laws.

        Returns:
            (m,) lower bounds, (m,) upper bounds on the other law's, and a bound on the
            relative errors of both together, but for the steps' own. Nothing if the
            sum has one value.
        """
        places = np.unique(np.linspace(0, self.scores.size - 1, 256).astype(np.int64))
        sketch = self.scores[places]
        laws: Laws = [
            (np.add.reduceat(masses, places), count) for masses, count in self.gained
        ]
        low, high, changes = joint_allocation.window(sketch, laws, self.tilt, _OUTSIDE)
        _, about = joint_allocation.tilted_laws(laws, self.tilt * sketch)
        count = sum(count for _, count in laws)
        conservation.check_terms(sum(count for _, count in self.spent), count)
        if self.second is None:
            spread = math.sqrt(joint_allocation.variance(about, sketch))
            wanted = _ROWS_PER_ROOT * math.sqrt(count) * (high - low)
            wanted = min(max(wanted / max(spread, 1e-300), _FEWEST_ROWS), _MOST_ROWS)
            shape = 1 << math.ceil(math.log2(wanted)), 1
            height = shape[0] // _BLOCKS
            columns: IntArray = np.zeros(self.scores.size, dtype=np.int64)
        else:
            shape, height = (_ROWS_OF_TWO, _COLUMNS), 1
            second = self.second[places]
            width = 18 * math.sqrt(joint_allocation.variance(about, second))
            width = max(min(width, count * float(np.ptp(second))), 1e-9)
            columns = np.rint(self.second * (_COLUMNS / width)).astype(np.int64)
        step = _MARGIN * (high - low) / shape[0]
        # Or indices do not fit an integer.
        if not step > 1e-13 * float(np.abs(self.scores).max()):
            return None
        rows = np.rint(self.scores / step).astype(np.int64)
        if rows[0] == rows[-1]:
            return None
        # Few scores that stand for all, and rounding, move the mean of the sum.
        _, here = joint_allocation.tilted_laws(self.gained, self.tilt * self.scores)
        moved = joint_allocation.mean(here, step * rows.astype(np.float64))
        moved -= joint_allocation.mean(about, sketch)
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
        # No more than a probability, so that sums with it keep their digits.
        q = np.minimum(q, 2.0)
        return p.ravel(), q.ravel(), gain.mass_error + cost.mass_error

    @staticmethod
    def _sum(
        laws: Sequence[tuple[FloatArray, BoolArray, int]],
        cells: tuple[IntArray, IntArray],
        tilt: float,
        shape: tuple[int, int],
    ) -> tilted_sums.TiltedSum:
        """Returns the law of a sum over steps, of those of their masses that count."""
        rows, columns = cells
        return tilted_sums.TiltedSum(
            [
                tilted_sums.Factor(rows[kept], columns[kept], masses[kept], count)
                for masses, kept, count in laws
            ],
            tilt,
            shape,
        )


def _levels(p: FloatArray, losses: FloatArray) -> FloatArray:
    """Returns (n,) numbers that increase where tests differ, of which few are enough.

    Args:
        p: (n,) the tests' chances under the first law, increasing.
        losses: (n,) the losses at their ends, which fall.
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

    Under Q all steps are without the record; under P a uniformly random set of
    k steps is with it, and the law of the sum does not depend on the set: k
    steps have the law of ln(1 − λ + λX) under P, the others that under Q.

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
    seen = pair.ratios <= _LARGEST_RATIO
    given = dataclasses.replace(
        pair,
        ratios=pair.ratios[seen],
        masses=pair.masses[seen],
        zero_mass=pair.zero_mass if num_selected < num_steps else 0.0,
    )
    steps = joint_allocation.Steps.of(given, num_selected, num_steps)
    if not joint_allocation.tells(steps, 1e-9):
        return dominating_pair.trivial_pair(Bound.LOWER)
    # A step's masses count as exact; those of P, of k steps, err by their ratios.
    of_ratios = pair.ratio_error + 2 * floats.UNIT_ROUNDOFF
    errors = (
        num_steps * (pair.mass_error + of_ratios),
        2 * num_selected * of_ratios,
    )
    exponents = joint_allocation.exponents_up_to(_EXPONENTS, tail_mass)
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
    """Returns (2, m) tests of whether any step's output is as large, as `_Look.tests`.

    In the far tail one step is as large as the sum of all, which no tilt can reach. A
    chance that some of independent events happen is a concave function of a factor of
    the chances of all of them: its relative error is no larger than theirs.

    Args:
        gained: (n,) masses of steps, of the law that is bounded from below, of outputs
            that tell more and more of it.
        spent: Those of the law that is bounded from above.
        error: What the quotient of the two chances may err by besides.
    """
    p, q = _chances_of_any(gained), _chances_of_any(spent)
    steps = sum(count for _, count in gained)
    rounding = error + (4 * p.size + 8 * steps + 4096) * floats.UNIT_ROUNDOFF
    p, q = p * math.exp(-rounding), np.maximum(q, floats.TINY) * math.exp(rounding)
    return np.array([p, q])[:, (p > floats.TINY) & (q <= _MOST_LIKELY)]


def _chances_of_any(laws: Laws) -> FloatArray:
    """Returns (n,) chances that all outputs are there, and any is the j-th or later."""
    log_all, log_none = 0.0, np.zeros(laws[0][0].size)
    for masses, count in laws:
        if not count:
            continue
        tails = np.cumsum(masses[::-1])[::-1]
        # The error of the whole counts as often as there are steps.
        whole = math.fsum(masses.tolist())
        log_all += count * math.log(whole)
        with np.errstate(divide="ignore"):
            log_none += count * np.log1p(-np.minimum(tails / whole, 1.0))
    found: FloatArray = -np.expm1(log_none) * math.exp(log_all)
    return found


def _removed(steps: joint_allocation.Steps, exponents: Sequence[float]) -> list[_Look]:
    """Returns what is looked at where a record is removed."""
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
    steps: joint_allocation.Steps, exponents: Sequence[float], tail_mass: float
) -> list[_Look]:
    """Returns what is looked at where a record is added."""
    absent: Laws = [(steps.masses, steps.num_steps)]
    rate = min(steps.num_selected / steps.num_steps, joint_allocation.HIGHEST_RATE)
    scores = np.log1p(rate * (steps.ratios - 1))
    # Who has not the record has small scores: large ratios are as one.
    variance = joint_allocation.variance(absent, scores)
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
    """Returns by how much more a law has to be tilted for the mean of another."""
    _, here = joint_allocation.tilted_laws(gained, tilt * scores)
    goal = joint_allocation.mean(here, scores)

    def excess(log_more: float) -> float:
        exponents = (tilt + math.exp(log_more)) * scores
        _, there = joint_allocation.tilted_laws(spent, exponents)
        return joint_allocation.mean(there, scores) - goal

    return math.exp(joint_allocation.root(excess, -2.0, 16.0))


def _tilts(scores: FloatArray, laws: Laws, exponents: Sequence[float]) -> list[float]:
    """Returns tilts, per nat, at whose means of a sum Chernoff's bound is so small.

    Args:
        scores: (n,) what the outputs of a step add to the sum.
        laws: (n,) masses of steps, with counts.
        exponents: −ln of the bounds.
    """
    places = np.unique(np.linspace(0, scores.size - 1, 256).astype(np.int64))
    scores = scores[places]
    laws = [(np.add.reduceat(masses, places), count) for masses, count in laws]
    deviation = math.sqrt(joint_allocation.variance(laws, scores))

    def tilt_of(exponent: float) -> float:
        if not exponent or not deviation:
            return 0.0

        def excess(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            cumulant, tilted = joint_allocation.tilted_laws(laws, tilt * scores)
            return tilt * joint_allocation.mean(tilted, scores) - cumulant - exponent

        centre = math.log(math.sqrt(2 * exponent) / deviation)
        return math.exp(joint_allocation.root(excess, centre - 4, centre + 4))

    return [tilt_of(exponent) for exponent in exponents]


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
    shift, chance, null_probability = step
    shift *= 1 - _SHIFT * floats.UNIT_ROUNDOFF
    rarest = max(tail_mass / num_steps, floats.TINY)
    high = min(shift - float(special.ndtri(rarest)), normal_cells.FURTHEST - shift)
    cells = normal_cells.NormalCells.of((0.0, -shift, shift), -high, high)
    base, new, old = cells.masses
    new, old = (chance * law + null_probability * base for law in (new, old))
    losses = shift * (cells.ends[:-1] + cells.ends[1:]) / 2 - shift**2 / 2
    ratios = null_probability + chance * np.exp(losses)
    others = (base, num_steps - num_selected)
    gained: Laws = [(old, num_selected), others]
    spent: Laws = [(new, num_selected), others]
    odds = num_selected / (num_steps - num_selected)
    exponents = joint_allocation.exponents_up_to(_EXPONENTS, tail_mass)
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
