"""Lower bounds for random allocation from sums of scores over the steps.

The composition of k blocks dominates k out of t steps, so a lower bound on the
composition is not a lower bound on the mechanism. By data processing, the law of any
statistic of the outputs gives a lower bound. The statistic here is the sum over the t
steps of ln(1 − λ + λX_i), where X_i is the likelihood ratio of step i. It would be the
privacy loss if the record took part in each step independently with probability λ. Each
term is rounded to a lattice. If there are few steps, a second sum joins the statistic,
which distinguishes a few large ratios from many. For a replaced record the statistic is
the difference of the two records' losses.

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
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.kernel import tilted_sums
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import profile_pairs

Laws = step_laws.Laws
# Laws of the steps, each with its probability; the likeliest one is the first.
Mixture = Sequence[tuple[Laws, float]]

# Certified, in units of rounding: the error of a shift; and of a mass that is a mixture
# of two masses.
_SHIFT, _CHANCE = 8, 16
# Certified: larger ratios are left out, as their tilted masses would not fit a float.
_LARGEST_RATIO = math.exp(600.0)
# Certified: the largest tilt of a block, so that all of its rows fit a float.
_STEEPEST = 50.0
# Certified: smaller masses are left out of laws that are bounded from below.
_LOST = math.nextafter(floats.TINY, math.inf)
# Certified: tests whose rounded probability under Q is larger are left out.
_MOST_LIKELY = floats.lowered(1.0)

# Tuning, all of these constants.
_OUTSIDE = 45.0  # A window leaves out a probability of e^−45 at either end.
_MARGIN = 1.05  # The size of the torus over that of the window.
# The number of fine rows over the root of t, as the rounding of t steps grows with this
# root; the least and the largest number of fine rows; and the number of blocks of rows.
_ROWS_PER_ROOT, _FEWEST_ROWS, _MOST_ROWS, _BLOCKS = 24.0, 1 << 13, 1 << 17, 1 << 12
# For two sums: the numbers of rows and columns; and the largest number of steps, up to
# which rounding to so few rows costs less than the second sum gains: without it the
# bracket of 2 of 7 steps is twice as wide.
_ROWS_OF_TWO, _COLUMNS, _MOST_STEPS_OF_TWO = 1 << 11, 64, 128
_ODDS_OF_SECOND = 3.0  # Odds of a step in the second sum, over those in the first.
# The odds θ that are tried in the statistics for a replaced record, over k / (t − k).
# The best one is larger if the noise is larger.
_SHARES = 0.06, 0.3, 0.6, 1.0


def tests_of(p: FloatArray, q: FloatArray, error: float) -> FloatArray:
    """Returns (2, m) probabilities of tests under two laws: the most powerful ones.

    Those under the first law are rounded down, and those under the second law up.

    Args:
        p: (n,) masses of outputs under the first law. Some may be left out.
        q: (n,) masses of the same outputs under the second law.
        error: A bound on the relative error of any mass.
    """
    q = np.maximum(q, floats.TINY)
    is_used = p > floats.TINY
    losses = np.log(p, where=is_used, out=np.zeros(p.size)) - np.log(q)
    is_used &= np.abs(losses) <= floats.LARGEST_LOSS
    order = np.argsort(-losses[is_used])
    error += 2 * (order.size + 16) * floats.UNIT_ROUNDOFF
    gains = np.cumsum(p[is_used][order]) * math.exp(-error)
    costs = np.cumsum(q[is_used][order]) * math.exp(error)
    return np.array([gains, costs])[:, costs <= _MOST_LIKELY]


def _tests_of_sum(
    scores: FloatArray,
    gained: Mixture,
    spent: Mixture,
    tilt: float,
    further: float = 1.0,
    error: float = 0.0,
    second: FloatArray | None = None,
) -> FloatArray:
    """Returns tests of a sum of scores over the steps, as `tests_of` does.

    Args:
        scores: (n,) terms of a step's outputs in the sum, increasing.
        gained: (n,) masses of steps under the law that is bounded from below. It may be
            a mixture.
        spent: The same under the law that is bounded from above.
        tilt: The tilt of the first law, per nat.
        further: The further tilt of the second law. If the sum is a privacy loss, the
            second law with a further tilt of one is the first law.
        error: A further relative error of the masses of the sum.
        second: (n,) terms of a step's outputs in a second sum, if there is one.
    """
    typical, _ = gained[0]
    few_scores, laws = _few(scores, typical)
    low, high, changes = step_laws.window(few_scores, laws, tilt, _OUTSIDE)
    _, tilted_few = step_laws.tilted_laws(laws, tilt * few_scores)
    count = sum(count for _, count in typical)
    for steps, _ in [*gained, *spent]:
        terms = sum(copies for _, copies in steps)
        conservation.check_total("terms of a law", terms, count, 0.0)
    if second is None:
        deviation = math.sqrt(step_laws.variance(tilted_few, few_scores))
        num_rows = _num_rows((high - low) / max(deviation, 1e-300), count)
        shape, height = (num_rows, 1), num_rows // _BLOCKS
        columns = np.zeros(scores.size, dtype=np.int64)
    else:
        shape, height = (_ROWS_OF_TWO, _COLUMNS), 1
        columns = _columns(second, typical, tilt * scores, count)
    step = _MARGIN * (high - low) / shape[0]
    # With smaller steps, indices would not fit an integer.
    if not step > 1e-13 * float(np.abs(scores).max()):
        return np.zeros((2, 0))
    rows = np.rint(scores / step).astype(np.int64)
    if rows[0] == rows[-1]:
        return np.zeros((2, 0))
    # The window is that of a few scores, without rounding. Both move the mean.
    _, tilted = step_laws.tilted_laws(typical, tilt * scores)
    offset = step_laws.mean(tilted, step * rows.astype(np.float64))
    offset -= step_laws.mean(tilted_few, few_scores)
    first_block = math.floor((low + offset) / step / height)

    def sum_of(laws: Laws, tilt: float, smallest: float) -> tilted_sums.TiltedSum:
        """Returns the law of the sum, without masses that are below `smallest`."""
        factors = []
        for masses, copies in laws:
            fits = masses >= smallest
            weights = np.maximum(masses[fits], floats.SMALLEST_MASS)
            factor = tilted_sums.Factor(rows[fits], columns[fits], weights, copies)
            factors.append(factor)
        return tilted_sums.TiltedSum(factors, min(tilt, _STEEPEST / height), shape)

    # Only the law that is bounded from below may have lost masses.
    gains = [(sum_of(laws, tilt * step, _LOST), weight) for laws, weight in gained]
    costs = [
        (sum_of(laws, (tilt + further) * step, 0.0), weight) for laws, weight in spent
    ]
    changes_of_row = (changes * step).tolist()
    p = sum(
        weight * law.masses_below(first_block, height=height, changes=changes_of_row)
        for law, weight in gains
    )
    block = tilted_sums.block(height)
    q = sum(
        weight * law.masses(block, first_block, height=height) for law, weight in costs
    )
    # A larger bound on a probability is useless and would cost digits in sums.
    q = np.minimum(q, 2.0)
    error += sum(max(law.mass_error for law, _ in side) for side in (gains, costs))
    error += 4 * (len(gains) + len(costs)) * floats.UNIT_ROUNDOFF
    return tests_of(np.ravel(p), np.ravel(q), error)


def _num_rows(width: float, count: int) -> int:
    """Returns how many fine rows a window has, for a sum over so many steps.

    Args:
        width: The width of the window, in standard deviations of the sum.
        count: The number of steps.
    """
    rows = _ROWS_PER_ROOT * math.sqrt(count) * width
    return 1 << math.ceil(math.log2(min(max(rows, _FEWEST_ROWS), _MOST_ROWS)))


def _columns(
    second: FloatArray, laws: Laws, exponents: FloatArray, count: int
) -> IntArray:
    """Returns (n,) terms of a second sum over so many steps, rounded to few columns.

    Args:
        second: (n,) terms of a step's outputs in the second sum.
        laws: (n,) masses of steps, with counts.
        exponents: (n,) logarithms of the factors by which masses are tilted.
        count: The number of steps.
    """
    _, tilted = step_laws.tilted_laws(laws, exponents)
    width = 18 * math.sqrt(step_laws.variance(tilted, second))
    width = max(min(width, count * float(np.ptp(second))), 1e-9)
    return np.rint(second * (_COLUMNS / width)).astype(np.int64)


def _few(scores: FloatArray, laws: Laws) -> tuple[FloatArray, Laws]:
    """Returns a few hundred of (n,) increasing scores, and laws of steps at these.

    The mass of an output goes to the nearest score that is not above its own.
    """
    places = step_laws.places_of(scores.size)
    return scores[places], [
        (np.add.reduceat(masses, places), count) for masses, count in laws
    ]


def _without_huge_ratios(kind: step_laws.Kind, keeps_zero: bool) -> step_laws.Kind:
    """Returns steps without ratios whose tilted masses would not fit a float.

    The outputs of the ratio zero are kept only if `keeps_zero` is true.
    """
    pair = kind.pair
    is_used = pair.ratios <= _LARGEST_RATIO
    pair = dataclasses.replace(
        pair,
        ratios=pair.ratios[is_used],
        masses=pair.masses[is_used],
        zero_mass=pair.zero_mass if keeps_zero else 0.0,
    )
    return dataclasses.replace(kind, pair=pair)


def lower_pair(
    kinds: Sequence[step_laws.Kind],
    num_selected: int,
    ways: Sequence[tuple[Sequence[int], float]],
    direction: Direction,
    *,
    tail_mass: float,
) -> dominating_pair.DominatingPair:
    """Returns a pair dominated, in one direction, by k-out-of-t random allocation.

    Under Q no step holds the record. Under P a uniformly random set of k steps holds
    it. The law of the sum depends on this set only by how many of its steps are of each
    kind: a step has the law of ln(1 − λ + λX) under P if it holds the record, and that
    under Q if not.

    Args:
        kinds: The t steps, by lower pairs, n atoms in all.
        num_selected: Number of steps with the record, k ≤ t.
        ways: How many of the k steps may be of each kind, with probabilities. Those
            below `floats.SMALLEST_MASS` are raised to it.
        direction: Which of the two datasets holds the record.
        tail_mass: Probability of the rarest sums that are considered.

    Source:
        Data processing, https://arxiv.org/abs/2602.17284, Remark 4.7 (lower
        bounds) for k = 1.
    """
    num_steps = sum(kind.count for kind in kinds)
    given = [_without_huge_ratios(kind, num_selected < num_steps) for kind in kinds]
    steps = step_laws.Steps.of(given, num_selected)
    if not steps.is_informative(1e-9):
        return dominating_pair.trivial_pair(Bound.LOWER)
    likeliest = sorted(ways, key=lambda way: -way[1])
    # Masses of a step under Q count as exact. Those of the k steps under P have the
    # errors of ratios.
    mass_error = num_steps * steps.mass_error
    ratio_error = 2 * num_selected * (steps.ratio_error + 2 * floats.UNIT_ROUNDOFF)
    drawn = [(steps.with_record(numbers), weight) for numbers, weight in likeliest]
    if direction is Direction.ADD:
        added = profile_pairs.pair_below(
            _tests_when_added(steps, drawn, tail_mass),
            mass_error=mass_error + ratio_error,
            ratio_error=ratio_error,
        )
        return dominating_pair.dual(added)
    # A probability that was raised is left out of a law that is bounded from below.
    likeliest = [way for way in likeliest if way[1] > floats.SMALLEST_MASS]
    absent: Mixture = [(steps.absent, 1.0)]
    tests = [_tests_of_largest(drawn[: len(likeliest)], absent)]
    for exponent in step_laws.exponents_up_to(tail_mass):
        tilt = steps.tilt(exponent)
        rate = steps.rate(tilt)
        common, _ = steps.without_largest(math.exp(-exponent - step_laws.RARE))
        drawn = [(common.with_record(numbers), weight) for numbers, weight in likeliest]
        losses = step_laws.scores(common.ratios, rate).losses
        absent = [(common.absent, 1.0)]
        eased = step_laws.EASED * tilt
        tests.append(_tests_of_sum(losses, drawn, absent, eased))
        if num_steps <= _MOST_STEPS_OF_TWO:
            odds = _ODDS_OF_SECOND * rate * common.ratios
            second = (odds / (1 - rate + odds)) ** 2
            tests.append(_tests_of_sum(losses, drawn, absent, eased, second=second))
    infinite = 0.0
    if len(kinds) == 1:
        infinite = sums.probability_of_any(
            [(kinds[0].pair.infinity_mass, num_selected)]
        )
    return profile_pairs.pair_below(
        np.concatenate(tests, axis=1),
        floats.lowered(infinite),
        mass_error=mass_error,
        ratio_error=ratio_error,
    )


def _tests_of_largest(
    gained: Mixture, spent: Mixture, error: float = 0.0
) -> FloatArray:
    """Returns tests of whether any step's output is large, as `tests_of` does.

    Test j is whether the output of at least one step is the j-th or a later one. In the
    far tail a single step dominates the sum, and no tilt can reach it there. The
    probability that at least one of some independent events happens is a concave
    function of a common factor of their probabilities. So its relative error is no
    larger than theirs.

    Args:
        gained: (n,) masses of steps under the law that is bounded from below. Outputs
            are in the order of their evidence for this law.
        spent: The same under the law that is bounded from above.
        error: A further relative error of the quotient of the two probabilities.
    """
    p, q = (
        sum(weight * _probabilities_of_any(laws) for laws, weight in mixture)
        for mixture in (gained, spent)
    )
    steps = sum(count for _, count in gained[0][0])
    terms = np.size(p) + 2 * steps + len(gained) + 1024
    error += 4 * terms * floats.UNIT_ROUNDOFF
    p = np.asarray(p) * math.exp(-error)
    q = np.maximum(np.asarray(q), floats.TINY) * math.exp(error)
    return np.array([p, q])[:, (p > floats.TINY) & (q <= _MOST_LIKELY)]


def _probabilities_of_any(laws: Laws) -> FloatArray:
    """Returns (n,) probabilities that some step's output is the j-th or a later one.

    If the masses of a step sum to less than one, no step may have an output that is
    left out: the result is the product of these sums, times the probability given that.
    """
    log_total, log_none = 0.0, np.zeros(laws[0][0].size)
    for masses, count in laws:
        tails = np.cumsum(masses[::-1])[::-1]
        # The error of the total mass is multiplied by the number of steps.
        total = math.fsum(masses.tolist())
        log_total += count * math.log(total)
        with np.errstate(divide="ignore"):
            log_none += count * np.log1p(-np.minimum(tails / total, 1.0))
    probabilities: FloatArray = -np.expm1(log_none) * math.exp(log_total)
    return probabilities


def _tests_when_added(
    steps: step_laws.Steps, drawn: Mixture, tail_mass: float
) -> FloatArray:
    """Returns tests if a record is added, which gain mass without the record.

    Args:
        steps: The steps.
        drawn: Laws of the steps with the record.
        tail_mass: Probability of the rarest sums that are considered.
    """
    rate = min(steps.num_selected / steps.num_steps, step_laws.HIGHEST_RATE)
    losses = step_laws.scores(steps.ratios, rate).losses
    # Without the record, losses are small: all large ratios get the same score.
    variance = step_laws.variance(steps.absent, losses)
    highest = math.sqrt(-2 * math.log(tail_mass) * variance)
    scores = -np.minimum(losses, losses[0] + highest)[::-1]
    gained, *spent = (
        ([(masses[::-1], count) for masses, count in laws], weight)
        for laws, weight in [(steps.absent, 1.0), *drawn]
    )
    exponents = step_laws.exponents_up_to(tail_mass)
    return _best_tests(scores, [gained], spent, exponents)


def _best_tests(
    scores: FloatArray,
    gained: Mixture,
    spent: Mixture,
    exponents: Sequence[float],
    error: float = 0.0,
) -> FloatArray:
    """Returns what `_tests_of_sum` does, at a tilt for each of several −ln δ."""
    tests = [np.zeros((2, 1))]
    for tilt in _tilts(scores, gained[0][0], exponents):
        eased = step_laws.EASED * tilt
        further_tilt = _more(scores, gained[0][0], spent[0][0], eased)
        tests.append(_tests_of_sum(scores, gained, spent, eased, further_tilt, error))
    return np.concatenate(tests, axis=1)


def _more(scores: FloatArray, gained: Laws, spent: Laws, tilt: float) -> float:
    """Returns the further tilt at which the second law has the first law's mean."""
    _, tilted = step_laws.tilted_laws(gained, tilt * scores)
    goal = step_laws.mean(tilted, scores)

    def excess(log_further: float) -> float:
        exponents = (tilt + math.exp(log_further)) * scores
        _, tilted_further = step_laws.tilted_laws(spent, exponents)
        return step_laws.mean(tilted_further, scores) - goal

    return math.exp(step_laws.root(excess, -2.0, 16.0))


def _tilts(scores: FloatArray, laws: Laws, exponents: Sequence[float]) -> list[float]:
    """Returns `step_laws.tilt_of_bound` of a sum of scores for each of some bounds.

    Args:
        scores: (n,) terms of a step's outputs in the sum.
        laws: (n,) masses of steps, with counts.
        exponents: −ln of the bounds.
    """
    scores, laws = _few(scores, laws)
    deviation = math.sqrt(step_laws.variance(laws, scores))

    def moments(tilt: float) -> tuple[float, float]:
        cumulant, tilted = step_laws.tilted_laws(laws, tilt * scores)
        return step_laws.mean(tilted, scores), cumulant

    return [step_laws.tilt_of_bound(moments, bound, deviation) for bound in exponents]


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
    high = min(shift - float(special.ndtri(rarest)), gaussian.FURTHEST - shift)
    cells = gaussian.NormalCells.of((0.0, -shift, shift), -high, high)
    base, new, old = cells.masses
    new, old = (probability * law + null_probability * base for law in (new, old))
    losses = shift * (cells.ends[:-1] + cells.ends[1:]) / 2 - shift**2 / 2
    ratios = null_probability + probability * np.exp(losses)
    others = (base, num_steps - num_selected)
    gained: Mixture = [([(old, num_selected), others], 1.0)]
    spent: Mixture = [([(new, num_selected), others], 1.0)]
    odds = num_selected / (num_steps - num_selected)
    exponents = step_laws.exponents_up_to(tail_mass)
    error = 2 * num_steps * (cells.mass_error + _CHANCE * floats.UNIT_ROUNDOFF)
    tests = [_tests_of_largest(gained, spent, error)]
    for share in _SHARES:
        score = np.log1p(share * odds * ratios)
        scores = np.maximum.accumulate(score - score[::-1])
        tests.append(_best_tests(scores, gained, spent, exponents, error))
    return profile_pairs.symmetric_below(np.concatenate(tests, axis=1), 0.0)
