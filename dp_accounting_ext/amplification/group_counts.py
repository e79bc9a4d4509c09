"""Upper bounds for groups under random allocation of Gaussian noise.

Each of g members independently takes part in one of several equal steps, in each with
probability w, or with probability w₀ in none. Let X_i = e^{s y_i − s²/2} and
h_i(z) = Σ_n (w z)^n e^{n s y_i − n² s²/2} / n!. The likelihood ratio of all g members
is Z = g! [z^g] e^{w₀ z} Π h_i(z). All zeros of the product are real and negative
(docs/mathematics.md, "Groups under random allocation, from above"). Therefore Z is
bounded, and nearly determined, by two sums over the steps, in either of two ways:

- by moments, S = w₀ + Σ w X_i and A² = Σ w² (1 − e^{−s²}) X_i²:

      Z ≤ (S − A)^{g−1} (S + (g − 1) A).

  This is Z itself for g = 2, and tight if at most one step is far from the others;

- by counts, for some λ > 0, L = Σ (ln h_i(λ) − λ w) and V = λ w₀ + Σ Var n_i, where n_i
  is the number of members in step i, whose probabilities are in proportion to the terms
  of h_i(λ):

      Z ≤ e^L e^{−V} I₀(V) / Pois(g; λ).

  As for k out of t, this is tight if g or Z is large.

Either bound is a convex function of both sums, which increases in the first sum and
decreases in the second. Its expectation is taken under the law of the outputs without
the group. So the contribution of a step to the sums may be split, with its mean kept,
on a lattice in the plane.
"""

import dataclasses
import math

import numpy as np
from scipy import special

from dp_accounting_ext.amplification import counts
from dp_accounting_ext.amplification import plane_sums
from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import profile_pairs

Accuracy = accuracy.Accuracy
DominatingPair = dominating_pair.DominatingPair
Hinges = profile_pairs.Hinges
Steps = replaced_allocation.Steps

# A limit: terms of h of up to e to this power, and sums of them, fit a float.
_LARGEST_LOG = 600.0
# Certified, in units of rounding: the error of a term of h_i, or of a value computed
# from such terms.
_TERMS = 64

# Tuning, all of these constants.
# Values of −ln δ at which bounds are accurate. Smaller δ are not considered.
_EXPONENTS = (0.5, 2.0, 4.0, 6.5, 9.0, 11.5, 14.0, 16.5, 19.0, 23.0, 27.0)
_RARE = 7.0  # Noise is left out whose probability is below e^−7 of δ.
_PLACES = 160  # Values of the noise by which λ is chosen.
# The λ for a given −ln δ is the best one for a value that is smaller by this number.
_EARLIER = 1.5
# If a bound may be rough: the number of columns that are merged into one, and that of κ
# at which a bound is compared with others.
_MERGED, _FEW_KAPPAS = 4, 512


def upper_pair(
    allocation: replaced_allocation.Allocation,
    members: int,
    upper_bound: DominatingPair,
    accuracy: Accuracy,
    *,
    is_rough: bool = False,
) -> DominatingPair:
    """Returns an upper pair of an allocation from which a group of records is removed.

    Args:
        allocation: Equal steps, none of which has infinite losses.
        members: The size g ≥ 2 of the group.
        upper_bound: An upper pair of H(P‖Q).
        accuracy: The accuracy of the result. Losses that matter only for a much smaller
            δ may count as infinite.
        is_rough: Whether a bound that is about 1 % above suffices, in a third of the
            time.

    Guarantees:
        H(P‖Q) of the result is at least that of any group of this size, whatever its
        members contribute, at every κ ≥ 0. The pair is for this direction only.

    Source:
        docs/mathematics.md, "Groups under random allocation, from above".
    """
    (steps,) = allocation.steps
    shift = steps.shift * (1 + replaced_allocation.SHIFT * floats.UNIT_ROUNDOFF)
    steps = dataclasses.replace(steps, shift=shift)
    # Bounds are computed for δ down to a millionth of the least δ that is often asked.
    rarest = 1e-6 * accuracy.frequent_delta
    exponents = step_laws.exponents_up_to(rarest, _EXPONENTS)
    merged, most = (_MERGED, _FEW_KAPPAS) if is_rough else (1, None)
    bounds: list[Hinges] = [Hinges.of(upper_bound)]
    for exponent in exponents[1::2] if is_rough else exponents:
        noise = _Noise.of(steps, allocation.null_probability, members, exponent)
        for bound in (
            _by_moments(noise, exponent, merged),
            _by_counts(noise, exponent, merged),
        ):
            if bound is not None:
                bounds.append(bound)
    return profile_pairs.least(bounds, most=most)


@dataclasses.dataclass(frozen=True)
class _Noise:
    """The noise of one step, in cells.

    Attributes:
        steps: The steps.
        null_probability: The probability that a member is in no step.
        members: The size g of the group.
        cells: Cells with the masses of N(0, 1) and N(s, 1).
        lost: The probability, with the group, that the noise of any step is above all
            cells.
    """

    steps: Steps
    null_probability: float
    members: int
    cells: gaussian.NormalCells
    lost: float

    @classmethod
    def of(
        cls, steps: Steps, null_probability: float, members: int, exponent: float
    ) -> "_Noise":
        """Returns the noise in cells that are fine and far enough for a given −ln δ."""
        others = np.arange(members + 1.0)
        rate = min(floats.raised(steps.probability), 1.0)
        # A bound on the probability that some step has j or more members, for each j.
        bounds = steps.count * special.binom(members, others) * rate**others
        share = math.exp(-exponent - _RARE) / others.size
        with np.errstate(divide="ignore"):
            tails = special.ndtri(np.minimum(share / bounds, 1.0))
        high = min(float((others * steps.shift - tails).max()), gaussian.FURTHEST)
        low = float(special.ndtri(replaced_allocation.RARE / steps.count))
        cells = gaussian.NormalCells.of((0.0, steps.shift), low, high)
        lost = sums.dot(bounds, special.ndtr(others * steps.shift - high))
        return cls(steps, null_probability, members, cells, floats.raised(lost))

    def at_ends(self, share: FloatArray) -> FloatArray:
        """Returns (n + 1,) masses of N(0, 1) at the ends of the cells.

        The probability below all cells goes to the first end.

        Args:
            share: (n,) shares of the cells that go to their upper ends.
        """
        share = np.clip(share * (1 + 1e-9), 0.0, 1.0)
        masses = np.append(self.cells.masses[0] * (1 - share), 0.0)
        masses[1:] += self.cells.masses[0] * share
        masses[0] += floats.raised(float(special.ndtr(self.cells.ends[0])))
        conservation.check_total(
            "masses of a step's noise",
            float(masses.sum()) + float(self.cells.above[0]),
            1.0,
            self.cells.mass_error + 1e-12,
            more=1e-8,
        )
        return masses


def _by_moments(noise: _Noise, exponent: float, merged: int) -> Hinges | None:
    """Returns the bound by S and A², accurate around one δ.

    Args:
        noise: The noise of a step.
        exponent: −ln δ.
        merged: The number of columns of the lattice that are merged into one.
    """
    steps, g = noise.steps, noise.members
    terms = _terms_of_moments(noise)
    if terms is None:
        return None
    first, second, share = terms
    mean_of_second = steps.count * steps.probability**2 * math.expm1(steps.shift**2)
    laws: step_laws.Laws = [(noise.at_ends(share), steps.count)]
    grid = plane_sums.Grid.of(
        (first, second),
        laws,
        _tilt_of_moments(noise, first, exponent),
        largest_second=-math.expm1(-(steps.shift**2)) * float(first[-1]) ** 2
        + mean_of_second,
        merged=merged,
    )
    window = plane_sums.Window.of(grid, (first, second), laws)
    if window is None or noise.null_probability + window.rows[-1] <= 0:
        return None
    # S, rounded up, and A, rounded down: the bound increases in S and decreases in A.
    rounding = 8 * floats.UNIT_ROUNDOFF
    total = (noise.null_probability + window.rows)[:, np.newaxis] * (1 + rounding)
    root = np.sqrt(window.columns) * (1 - rounding)
    difference = total - root
    inside = difference > 0
    difference = difference + rounding * np.abs(total)
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = (g - 1) * np.log(difference) + np.log(total + (g - 1) * root)
    losses = losses[inside]
    with np.errstate(over="ignore"):
        masses = window.masses[inside] * np.exp(losses)
    lowest, last = (noise.null_probability + float(window.rows[end]) for end in (0, -1))
    is_cut = window.is_tilted and lowest > 0
    # Beyond the last row, (S / last)^g is at most e^{g (S − last) / last}.
    lost = window.mass_above(g / last) * floats.exponential(g * math.log(last) + 1e-9)
    error = (16 * g + 64) * floats.UNIT_ROUNDOFF
    return counts.hinges_of(
        losses,
        masses,
        below=g * math.log(lowest) + 2 * error if is_cut else -math.inf,
        infinity_mass=floats.raised(noise.lost + lost),
        mass_error=window.mass_error + steps.count * noise.cells.mass_error + error,
        ratio_error=error,
    )


def _terms_of_moments(
    noise: _Noise,
) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Returns a step's terms of S and A² at the ends of its n cells of noise.

    Returns:
        (n + 1,) terms w X of S, rounded up; (n + 1,) terms w² (1 − e^{−s²}) X² of A²,
        rounded down; and (n,) shares of the cells' masses that go to their upper ends,
        which keep the mean of w X in a cell. None if a term is too large for a float.
    """
    steps = noise.steps
    exponents = steps.shift * noise.cells.ends - steps.shift**2 / 2
    if steps.probability * math.exp(min(exponents[-1], _LARGEST_LOG)) > _LARGEST_LOG:
        return None
    off = replaced_allocation.EXPONENTIAL + 2 * 4 * (np.abs(exponents) + steps.shift**2)
    first = steps.probability * np.exp(exponents) * (1 + off * floats.UNIT_ROUNDOFF)
    # The chord of a square over a cell is above the square by at most a quarter of the
    # squared width. If the values at the ends are lowered by this, the chord is below
    # the square.
    widths = np.pad(np.diff(first), 1, mode="edge")
    sags = np.maximum(widths[1:], widths[:-1]) ** 2 / 4
    squares = first**2 * (1 - 8 * off * floats.UNIT_ROUNDOFF)
    second = -math.expm1(-(steps.shift**2)) * np.maximum(squares - sags, 0.0)
    # The first end stands for all noise below the cells, where the value may be zero.
    second[0] = 0.0
    base, moved = noise.cells.masses
    rounding = 1 + 4 * noise.cells.mass_error + 16 * floats.UNIT_ROUNDOFF
    mean = steps.probability * moved / base * rounding
    return first, second, (mean - first[:-1]) / np.diff(first)


def _tilt_of_moments(noise: _Noise, first: FloatArray, exponent: float) -> float:
    """Returns the tilt of S for some −ln δ, from (n,) terms of S at ends of cells."""
    few = slice(None, None, len(first) // _PLACES)
    weights = np.exp(-(noise.cells.ends[few] ** 2) / 2)
    laws: step_laws.Laws = [(weights / weights.sum(), noise.steps.count)]
    terms = first[few] - step_laws.mean(laws, first[few]) / noise.steps.count
    best = 0.0
    deviation = math.sqrt(step_laws.variance(laws, terms))
    for tilt in (np.geomspace(0.05, 40.0, 48) / deviation).tolist():
        cumulant, tilted = step_laws.tilted_laws(laws, tilt * terms)
        mean = step_laws.mean(tilted, terms)
        spread = math.sqrt(step_laws.variance(tilted, terms))
        # About −ln δ at the mean of the tilted law, by a saddle point approximation.
        attained = tilt * mean - cumulant + math.log1p(2.5 * tilt * spread)
        if attained - noise.members * math.log1p(mean) > exponent:
            break
        best = tilt
    return best


def _by_counts(noise: _Noise, exponent: float, merged: int) -> Hinges | None:
    """Returns the bound by L and V for one λ, accurate around one δ.

    Args:
        noise: The noise of a step.
        exponent: −ln δ.
        merged: The number of columns of the lattice that are merged into one.
    """
    steps, g = noise.steps, noise.members
    rate, tilt = rate_and_tilt(steps, noise.null_probability, g, exponent - _EARLIER)
    ends = noise.cells.ends
    terms, off = counted(ends, steps, rate)
    if terms.losses[-1] > _LARGEST_LOG:
        return None
    width = float(ends[1] - ends[0])
    # This is a lower bound on the variance in a cell, by bounds on the derivatives of
    # its logarithm.
    second = np.minimum(
        terms.variances,
        np.minimum(np.roll(terms.variances, 1), np.roll(terms.variances, -1)),
    )
    second *= 1 - (steps.shift * width) ** 2
    second[[0, -1]] = 0.0
    sums_of_step = terms.losses, np.maximum(second, 0.0)
    # Where the noise is negative, its density increases. So the mean of a cell is above
    # the middle.
    share = 0.5 + np.maximum(-ends[:-1], 0.0) * width / 12
    laws: step_laws.Laws = [(noise.at_ends(share) * np.exp(terms.losses), steps.count)]
    grid = plane_sums.Grid.of(sums_of_step, laws, tilt, merged=merged)
    window = plane_sums.Window.of(grid, sums_of_step, laws)
    if window is None:
        return None
    return counts.by_counts(
        window,
        log_poisson(g, rate),
        is_of_p=False,
        added=rate * noise.null_probability * (1 - 8 * floats.UNIT_ROUNDOFF),
        lost=noise.lost,
        mass_error=steps.count * (noise.cells.mass_error + off),
        ratio_error=steps.count * off + 64 * (1 + rate) * floats.UNIT_ROUNDOFF,
    )


def rate_and_tilt(
    steps: replaced_allocation.Steps,
    null_probability: float,
    members: int,
    exponent: float,
) -> tuple[float, float]:
    """Returns the λ and the tilt of L that suit a δ.

    Under the law of L with this tilt, the mean number of members in all steps is g. The
    profile at the mean of L is then about δ.

    Args:
        steps: The steps.
        null_probability: The probability that a member is in no step.
        members: The number of members g.
        exponent: The approximate −ln δ.
    """
    # This is a rough law of the noise. It suffices for up to three members in one step,
    # as more are rare.
    ends = np.linspace(-7.0, min(7.0 + 3 * steps.shift, gaussian.FURTHEST), _PLACES)
    weights = np.exp(-(ends**2) / 2)
    laws: step_laws.Laws = [(weights / weights.sum(), steps.count)]
    before = -1.0, math.log(members), 0.0
    for rate in (members * np.geomspace(0.82, 1e-4, 46)).tolist():
        first, _, variances = counted(ends, steps, rate)[0]
        # The derivative of L with respect to ln λ is the mean number of members.
        means = np.gradient(first, ends) / steps.shift
        tilt = _tilt_for_mean(laws, first, means, members - rate * null_probability)
        if tilt is None:
            break
        log, tilted = step_laws.tilted_laws(laws, (1 + tilt) * first)
        spread = math.sqrt(step_laws.variance(tilted, first))
        variance = step_laws.mean(tilted, variances) + rate * null_probability
        # About −ln δ at the mean of the tilted law, by a saddle point approximation.
        attained = tilt * step_laws.mean(tilted, first) - log
        attained += math.log1p(2.5 * tilt * spread) + math.log1p(tilt)
        attained += float(counts.log_reciprocal(np.array([variance]))[0])
        attained += log_poisson(members, rate)
        after = attained, math.log(rate), tilt
        if attained > exponent:
            # Interpolate between the last two, by their exponents.
            share = (exponent - before[0]) / (attained - before[0])
            log, tilt = (
                x + share * (y - x) for x, y in zip(before[1:], after[1:], strict=True)
            )
            return math.exp(log), tilt
        before = after
    return math.exp(before[1]), before[2]


def _tilt_for_mean(
    laws: step_laws.Laws, first: FloatArray, means: FloatArray, goal: float
) -> float | None:
    """Returns the tilt of L at which the mean number of members is `goal`, or None."""

    def excess(log_tilt: float) -> float:
        _, tilted = step_laws.tilted_laws(laws, (1 + math.exp(log_tilt)) * first)
        return step_laws.mean(tilted, means) - goal

    low, high = -6.0, 7.0
    if excess(high) < 0:
        return None
    best = step_laws.root(excess, low, high)
    return math.exp(best) if best > low else 0.0


def log_poisson(members: int, rate: float) -> float:
    """Returns ln Pois(g; λ), the logarithm of a Poisson probability."""
    return members * math.log(rate) - rate - math.log(math.factorial(members))


def counted(
    places: FloatArray, steps: Steps, rate: float
) -> tuple[step_laws.Terms, float]:
    """Returns the terms of a step, ln h_i(λ) − λ w and the moments of n_i.

    Args:
        places: (n,) values of the step's noise, increasing.
        steps: The steps.
        rate: The mean λ of the number of members.

    Returns:
        The terms, with variances rounded down; and a bound on the absolute error of a
        loss.
    """
    shift, log_rate = steps.shift, math.log(rate * steps.probability)
    top = max(float(places[-1]), 0.0)
    # From this n on, each term is at most 1 / e of the one before.
    number = 1
    while log_rate - math.log(number) + shift * top - (number - 0.5) * shift**2 > -1:
        number += 1 + number // 8
    numbers = np.arange(number + 40.0)[:, np.newaxis]
    factorials = np.cumsum(np.log(np.maximum(numbers, 1.0)), axis=0)
    logs = numbers * log_rate - factorials - (numbers * shift) ** 2 / 2
    exponents = logs + numbers * shift * places
    largest = exponents.max(axis=0)
    weights = np.exp(exponents - largest)
    total = weights.sum(axis=0)
    means = (numbers * weights).sum(axis=0) / total
    variances = ((numbers - means) ** 2 * weights).sum(axis=0) / total
    size = np.abs(numbers * log_rate) + factorials + numbers * shift * top
    off = (_TERMS + 8 * float(size.max()) + 4 * numbers.size) * floats.UNIT_ROUNDOFF
    losses = largest + np.log(total) - rate * steps.probability
    increasing = np.maximum.accumulate(losses)
    return step_laws.Terms(increasing, means, variances * (1 - off)), off
