"""Dominating pairs, from above and below, for laws between two multiples of a measure.

The bounds are αm and βm with α = e^{−ε/2}, β = e^{ε/2} and a base measure m of sum M.
Let a set of outputs have measure x. Any law between the bounds gives it a probability
of at most min(βx, 1 − α(M − x)) and at least max(αx, 1 − β(M − x)). For 1 ≤ κ ≤ e^ε the
difference of the largest probability and κ times the least is concave in x. Its maximum
is at A, the smaller of (1 − αM) / (β − α) and M − (1 − αM) / (β − α). The largest
hockey-stick divergence is therefore that of a set whose measure is the closest to A
from below or from above.

Computations are in rational numbers. Certified results are rounded once, at the end, to
the nearest float.
"""

from collections.abc import Sequence
import dataclasses
from fractions import Fraction
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.wpm import integer_weights

IntegerArray = integer_weights.IntegerArray
# Probabilities (P, Q) of outcomes under two laws.
Outcomes = tuple[tuple[float, float], ...]

# Certified: allowances for a total mass that was rounded to a float, and, relative to
# it, for sums of at most `checks.MOST_MASSES` floats that were.
_MASS_ERROR = Fraction(1, 2**50)
_SUM_ERROR = 2e-12
# Tuning: all sets of the largest outputs are looked at, up to 2^12 of them.
_LARGEST_OUTPUTS = 12
# Certified: outcomes of smaller probability are dropped; only lower bounds have such.
_NOTHING = 1e-290
NOTHING: Outcomes = ((1.0, 1.0),)


@dataclasses.dataclass(frozen=True)
class _Factors:
    """Rational lower and upper bounds on α, β and e^ε."""

    alpha: tuple[Fraction, Fraction]
    beta: tuple[Fraction, Fraction]
    ratio: tuple[Fraction, Fraction]

    @classmethod
    def of(cls, epsilon: float) -> "_Factors":
        beta = integer_weights.exponential_bounds(Fraction(epsilon) / 2)
        ratio = integer_weights.exponential_bounds(Fraction(epsilon))
        return cls((1 / beta[1], 1 / beta[0]), beta, ratio)

    def best_sum(self, light: Fraction, heavy: Fraction) -> tuple[Fraction, Fraction]:
        """Returns a lower and an upper bound on A, given bounds on M."""
        (alpha, alpha_high), (beta, beta_high) = self.alpha, self.beta
        high = min(1 - alpha * light, beta_high * heavy - 1) / (beta - alpha_high)
        low = min(1 - alpha_high * heavy, beta * light - 1) / (beta_high - alpha)
        return max(low, Fraction(0)), max(high, Fraction(0))


def dominating(
    epsilon: float, total_mass: float, largest_masses: Sequence[float] = ()
) -> Outcomes:
    """Returns a pair of laws that dominates any two laws between the bounds.

    If a set of outputs has measure A, the pair is binary randomized response with
    parameter ε that runs with probability (α + β) A and otherwise releases nothing. If
    there is none, let x be the largest measure of a set below A and y the least above
    it. The divergence at κ ≥ 1 is then the larger of two: the one with x in the place
    of A, and p − κ q, where p and q are the largest and the least probability that a
    law between the bounds can give a set of measure y.

    It has at most five outcomes and is symmetric.

    Guarantees:
        Before they are rounded to floats, with an allowance for M and for sums of
        masses, the divergence of the laws is not below that of any two laws between
        the bounds, at any order.

    Source:
        https://arxiv.org/abs/2605.10015, Definition 3.1 (laws between two bounds).
    """
    factors = _Factors.of(epsilon)
    lightest, heaviest = _about(total_mass)
    _, best = factors.best_sum(lightest, heaviest)
    ends = _next_sums(float(best), total_mass, np.array(largest_masses, dtype=float))
    ratio = factors.ratio[1]
    if ends is None:
        return _response(factors.alpha[1] * best, ratio)
    low = factors.alpha[1] * min(Fraction(ends[0]), best)
    mass = max(Fraction(ends[1]), best)
    p = min(factors.beta[1] * mass, 1 - factors.alpha[0] * (lightest - mass))
    q = max(factors.alpha[0] * mass, 1 - factors.beta[1] * (heaviest - mass))
    if p - q <= low * (ratio - 1):
        return _response(low, ratio)
    if q <= low or p >= ratio * q or p + q > 1:
        # Only allowances for rounding lead here. The result is the response of loss ε
        # with the same difference of the probabilities.
        return _response((p - q) / (ratio - 1), ratio)
    return _as_floats(
        [
            (low * ratio, low),
            (p - low * ratio, q - low),
            (1 - p - q, 1 - p - q),
            (q - low, p - low * ratio),
            (low, low * ratio),
        ]
    )


def attained(
    epsilon: float, total_mass: float, largest_masses: Sequence[float] = ()
) -> Outcomes:
    """Returns a pair of laws between the bounds, as a lower bound on the divergence.

    One law fills the outputs from the first to the last, the other from the last to the
    first. The order begins with a set whose measure is next below A, and so attains the
    divergences of that set.

    Guarantees:
        Before they are rounded to floats, they are probabilities under two laws
        between the bounds; of outputs without masses, in the limit of small ones.
    """
    factors = _Factors.of(epsilon)
    if not largest_masses:
        best, _ = factors.best_sum(*_about(total_mass))
        return _symmetric(factors.beta[0] * best, factors.alpha[1] * best)
    masses = [Fraction(mass) for mass in largest_masses]
    left = Fraction(total_mass) - sum(masses)
    laws = [_of_small_outputs(factors, total_mass, left, min(masses))]
    outputs = masses + ([left] if left > 0 else [])
    total = sum(outputs, Fraction(0))
    middle = float(factors.best_sum(total, total)[0])
    sizes = np.array([float(mass) for mass in outputs])
    first, _ = _sets_next_to(middle, sizes, np.arange(sizes.size))
    others = np.setdiff1d(np.arange(sizes.size), first)
    for last in _sets_next_to(middle, sizes, others):
        order = [*first, *np.setdiff1d(others, last), *last]
        laws.append(_laws_of(factors, [outputs[place] for place in order]))
    return max(laws, key=_distance)


def _about(total_mass: float) -> tuple[Fraction, Fraction]:
    """Returns a lower and an upper bound on a total mass before it was rounded."""
    mass = Fraction(total_mass)
    return mass * (1 - _MASS_ERROR), mass * (1 + _MASS_ERROR)


def _of_small_outputs(
    factors: _Factors, total_mass: float, small: Fraction, grain: Fraction
) -> Outcomes:
    """Returns two laws that differ on small outputs alone.

    These have the mass `small` together, and at most `grain` each. Two disjoint sets of
    small outputs have measures in [x, x + grain]. The first law gives βx to one set and
    α(x + grain) to the other, and the second law exchanges the two. Both laws give the
    rest to all other outputs. It is at least α times their measure, M − 2x or less, if
    (β − α) x ≤ 1 − α (M + grain). It is at most β times their measure, M − 2x − 2 grain
    or more, if (β − α) x ≤ βM − 1 − (2β − α) grain.
    """
    (alpha, alpha_high), (beta, beta_high) = factors.alpha, factors.beta
    light, heavy = _about(total_mass)
    room = min(
        1 - alpha_high * (heavy + grain),
        beta * light - 1 - (2 * beta_high - alpha) * grain,
    ) / (beta_high - alpha)
    x = min(room, small / 2 - grain) * (1 - _MASS_ERROR)
    p, q = beta * x, alpha_high * (x + grain)
    if x <= 0 or p <= q:
        return NOTHING
    return _symmetric(p, q)


def _response(rare: Fraction, ratio: Fraction) -> Outcomes:
    """Returns a response whose false answer has probability `rare`, or less.

    The true answer is `ratio` times as probable, and otherwise nothing is released.
    """
    rare = min(rare, 1 / (1 + ratio))
    return _symmetric(rare * ratio, rare)


def _symmetric(p: Fraction, q: Fraction) -> Outcomes:
    """Returns outcomes with the probabilities (p, q) and (q, p); the rest is common."""
    common = 1 - p - q
    return _as_floats([(p, q), (common, common), (q, p)])


def _as_floats(outcomes: list[tuple[Fraction, Fraction]]) -> Outcomes:
    """Returns the outcomes as floats, without those of negligible probability."""
    return tuple((float(p), float(q)) for p, q in outcomes if min(p, q) > _NOTHING)


def _distance(outcomes: Outcomes) -> tuple[float, float]:
    """Returns the rounded total variation, and the sum of both relative entropies."""
    variation = math.fsum(max(p - q, 0.0) for p, q in outcomes)
    entropy = math.fsum((p - q) * math.log(p / q) for p, q in outcomes)
    return round(variation, 9), entropy


def _next_sums(
    best: float, total_mass: float, masses: FloatArray
) -> tuple[float, float] | None:
    """Returns bounds on the measures of sets next to A, or None if one may be at A.

    A set is some of the largest outputs, with any part of the mass of the others.
    """
    if not masses.size or best <= 0:
        return None
    sums, others = np.zeros(1), total_mass
    sizes, counts = np.unique(masses, return_counts=True)
    for size, count in zip(sizes[::-1], counts[::-1], strict=True):
        if sums.size * (count + 1) > 1 << _LARGEST_OUTPUTS:
            break
        sums = np.add.outer(sums, size * np.arange(count + 1)).ravel()
        others -= size * count
    slack = _SUM_ERROR * total_mass
    starts, ends = sums - slack, sums + max(others, 0.0) + slack
    if ((starts <= best) & (ends >= best)).any() or ends.max() < best:
        return None
    return float(ends[ends < best].max()), float(starts[starts > best].min())


def _sets_next_to(
    best: float, sizes: FloatArray, places: IndexArray
) -> list[IndexArray]:
    """Returns a set of outputs whose sum is at most `best`, and one with a larger sum.

    Outputs are taken in the order of their sizes, unless the sum would exceed `best`.
    The second set has the smallest output that is left, too.
    """
    below: list[int] = []
    others: list[int] = []
    total = 0.0
    for place in places[np.argsort(-sizes[places], kind="stable")].tolist():
        is_inside = total + sizes[place] <= best * (1 + 1e-12)
        (below if is_inside else others).append(place)
        total += sizes[place] * is_inside
    return [np.array(s, dtype=np.intp) for s in (below, below + others[-1:])]


def _laws_of(factors: _Factors, masses: list[Fraction]) -> Outcomes:
    """Returns the laws that fill the outputs from the first and from the last one.

    The masses are those of the base measure. Probabilities are computed as integers, in
    units of 1/`unit`. Outputs that are at the same bounds under both laws are merged.
    """
    unit = max(mass.denominator for mass in masses) << integer_weights.EXPONENTIAL_BITS
    lower, upper = np.array(
        [
            (
                math.ceil(mass * factors.alpha[1] * unit),
                math.floor(mass * factors.beta[0] * unit),
            )
            for mass in masses
        ],
        dtype=object,
    ).T
    if not lower.sum() <= unit <= upper.sum():
        return NOTHING
    one = _filled(lower, upper, unit)
    other = _filled(lower[::-1], upper[::-1], unit)[::-1]
    are_equal = [one == lower, one == upper, other == lower, other == upper]
    kinds = (np.array([1, 2, 4, 8]) @ np.array(are_equal)).astype(np.intp)
    merged = [(one[kinds == kind], other[kinds == kind]) for kind in np.unique(kinds)]
    return _as_floats(
        [(Fraction(p.sum(), unit), Fraction(q.sum(), unit)) for p, q in merged]
    )


def _filled(lower: IntegerArray, upper: IntegerArray, unit: int) -> IntegerArray:
    """Returns the law of sum `unit` with as much as possible on the first outputs."""
    widths = upper - lower
    left = unit - lower.sum() - (np.cumsum(widths) - widths)
    return np.asarray(lower + np.minimum(np.maximum(left, 0), widths))
