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

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import special

from dp_accounting_ext.amplification import allocated_group
from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.amplification.k_of_t import bound_cells
from dp_accounting_ext.amplification.k_of_t import joint_allocation
from dp_accounting_ext.amplification.k_of_t import step_laws
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import normal_cells
from dp_accounting_ext.pairs import profile_pairs

Accuracy = accuracy.Accuracy
DominatingPair = dominating_pair.DominatingPair
Hinges = profile_pairs.Hinges
Steps = replaced_allocation.Steps

# A limit: terms of h of up to e to this power, and sums of them, fit a float.
_LARGEST_LOG = 600.0

# Tuning: values of −ln δ at which bounds are accurate. Smaller δ are not considered.
_EXPONENTS = (0.5, 2.0, 4.0, 6.5, 9.0, 11.5, 14.0, 16.5, 19.0, 23.0, 27.0)
_RARE = 7.0
_FEW_PLACES = 512  # Tuning: the number of places of each bound, if it may be rough.
# Tuning: at these δ, V is rarely more than this many deviations above its mean.
_DEVIATIONS = 9.0
_ROUGHER = 4  # Tuning: the number of columns that are merged, if a bound may be rough.
# Tuning: the λ for a given −ln δ is the best one for a value that is smaller by this.
_EARLIER = 1.5


def upper_pair(
    allocation: replaced_allocation.Allocation,
    members: int,
    known: DominatingPair,
    accuracy: Accuracy,
    *,
    is_rough: bool = False,
) -> DominatingPair:
    """Returns an upper pair of an allocation from which a group of records is removed.

    Args:
        allocation: Equal steps, none of which has infinite losses.
        members: The size g ≥ 2 of the group.
        known: An upper bound on H(P‖Q).
        accuracy: The accuracy of the result. Losses that matter only for a much smaller
            δ may count as infinite.
        is_rough: Whether a bound that is about 1 % above suffices, in a fifth of the
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
    exponents = step_laws.exponents_up_to(_EXPONENTS, rarest)
    remove = Direction.REMOVE
    found: list[Hinges] = [Hinges.of(known)]
    both: list[_Theorem] = [_by_moments, _by_counts]
    bounds = both
    for exponent in exponents[1::2] if is_rough else exponents:
        noise = _Noise.of(
            steps, allocation.null_probability, members, exponent, is_rough
        )
        goal = math.exp(-exponent)
        epsilon = min(known.epsilon(goal, remove), floats.LARGEST_LOSS)
        kappa = np.array([math.exp(epsilon)])
        made = [(bound, bound(noise, exponent)) for bound in bounds]
        # A bound without an improvement would only add places to compare.
        found += [each for _, each in made if each and each.values(kappa)[0] < goal]
        if is_rough:
            # Which of the two bounds is better changes slowly with δ.
            bounds = both if len(made) == 1 else [_better(made, goal)]
    most = _FEW_PLACES if is_rough else None
    return profile_pairs.least(found, most=most)


# A function from the noise and −ln δ to a bound, or None.
_Theorem = Callable[["_Noise", float], Hinges | None]


def _better(made: Sequence[tuple[_Theorem, Hinges | None]], goal: float) -> _Theorem:
    """Returns the function whose bound gives the smaller ε at a δ."""

    def epsilon(bound: Hinges | None) -> float:
        if bound is None:
            return math.inf
        below = np.flatnonzero(bound.values(bound.ratios) <= goal)
        return float(bound.ratios[below[0]]) if below.size else math.inf

    return min(made, key=lambda each: epsilon(each[1]))[0]


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
        is_rough: Whether sums are merged into fewer cells.
    """

    steps: Steps
    null_probability: float
    members: int
    cells: normal_cells.NormalCells
    lost: float
    is_rough: bool = False

    @classmethod
    def of(
        cls,
        steps: Steps,
        null_probability: float,
        members: int,
        exponent: float,
        is_rough: bool,
    ) -> "_Noise":
        """Returns the noise in cells that are fine and far enough for a given −ln δ."""
        others = np.arange(members + 1.0)
        rate = min(floats.raised(steps.probability), 1.0)
        # A bound on the probability that some step has j or more members, for each j.
        bounds = steps.count * special.binom(members, others) * rate**others
        share = math.exp(-exponent - _RARE) / others.size
        with np.errstate(divide="ignore"):
            tails = special.ndtri(np.minimum(share / bounds, 1.0))
        high = min(float((others * steps.shift - tails).max()), normal_cells.FURTHEST)
        low = float(special.ndtri(replaced_allocation.RARE / steps.count))
        cells = normal_cells.NormalCells.of((0.0, steps.shift), low, high)
        lost = sums.dot(bounds, special.ndtr(others * steps.shift - high))
        return cls(
            steps, null_probability, members, cells, floats.raised(lost), is_rough
        )

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


def _by_moments(noise: _Noise, exponent: float) -> Hinges | None:
    """Returns the bound by S and A², accurate around one δ.

    Args:
        noise: The noise of a step.
        exponent: −ln δ.
    """
    steps, g = noise.steps, noise.members
    exponents = steps.shift * noise.cells.ends - steps.shift**2 / 2
    if steps.probability * math.exp(min(exponents[-1], _LARGEST_LOG)) > _LARGEST_LOG:
        return None
    off = replaced_allocation.EXPONENTIAL + 2 * 4 * (np.abs(exponents) + steps.shift**2)
    first = steps.probability * np.exp(exponents) * (1 + off * floats.UNIT_ROUNDOFF)
    # The chord of a square over a cell is above the square by at most a quarter of the
    # squared width. If the values at the ends are lowered by `bits`, the chord is below
    # the square.
    curved = -math.expm1(-(steps.shift**2))
    widths = np.pad(np.diff(first), 1, mode="edge")
    bits = np.maximum(widths[1:], widths[:-1]) ** 2 / 4
    second = curved * np.maximum(
        first**2 * (1 - 8 * off * floats.UNIT_ROUNDOFF) - bits, 0.0
    )
    # The first end stands for all noise below the cells, where the value may be zero.
    second[0] = 0.0
    base, moved = noise.cells.masses
    mean = (
        steps.probability
        * moved
        / base
        * (1 + 4 * noise.cells.mass_error + 16 * floats.UNIT_ROUNDOFF)
    )
    share = (mean - first[:-1]) / np.diff(first)
    largest = steps.probability * math.exp(
        steps.shift * noise.cells.ends[-1] - steps.shift**2 / 2
    )
    usual = steps.count * steps.probability**2 * math.expm1(steps.shift**2)
    window = _window(
        (first, second),
        noise.at_ends(share),
        noise,
        _tilt_of_moments(noise, first, exponent),
        most=curved * largest**2 + usual,
    )
    if window is None or noise.null_probability + window.rows[-1] <= 0:
        return None
    total = (noise.null_probability + window.rows)[:, np.newaxis] * (
        1 + 8 * floats.UNIT_ROUNDOFF
    )
    root = np.sqrt(window.columns) * (1 - 8 * floats.UNIT_ROUNDOFF)
    apart = total - root
    inside = apart > 0
    apart = apart + 8 * floats.UNIT_ROUNDOFF * np.abs(total)
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = (g - 1) * np.log(apart) + np.log(total + (g - 1) * root)
    losses = losses[inside]
    with np.errstate(over="ignore"):
        masses = window.masses[inside] * np.exp(losses)
    lowest, last = (noise.null_probability + float(window.rows[end]) for end in (0, -1))
    is_cut = window.is_tilted and lowest > 0
    # Beyond the last row, (S / last)^g is at most e^{g (S − last) / last}.
    lost = window.mass_above(g / last) * floats.exponential(g * math.log(last) + 1e-9)
    error = (16 * g + 64) * floats.UNIT_ROUNDOFF
    return bound_cells.hinges_of(
        losses,
        masses,
        below=g * math.log(lowest) + 2 * error if is_cut else -math.inf,
        infinity_mass=floats.raised(noise.lost + lost),
        mass_error=window.mass_error + steps.count * noise.cells.mass_error + error,
        ratio_error=error,
    )


def _window(
    sums_of_step: tuple[FloatArray, FloatArray],
    masses: FloatArray,
    noise: _Noise,
    tilt: float,
    *,
    most: float = 0.0,
) -> joint_allocation.Window | None:
    """Returns the joint law of two sums over the steps, or None if it is too large.

    Args:
        sums_of_step: (n,) contributions of one step to the first sum, which increase;
            and (n,) contributions to the second sum.
        masses: (n,) masses of the contributions.
        noise: The noise of a step.
        tilt: The tilt of the first sum at which the answer lies.
        most: If positive, splits keep the mean of the first sum, and this is the
            largest value of the second sum that has a column. If 0, splits keep the
            mean of e^{−L}, where L is the first sum, and the columns are chosen here.
    """
    count = noise.steps.count
    grid = joint_allocation.Grid.of(sums_of_step, [(masses, count)], tilt, _DEVIATIONS)
    if noise.is_rough:
        grid = dataclasses.replace(
            grid,
            columns=grid.columns // _ROUGHER,
            column_step=grid.column_step * _ROUGHER,
        )
    if most:
        width = most / grid.columns
        grid = dataclasses.replace(grid, column_step=width, is_even=True)
    if not grid.holds(sums_of_step, count):
        return None
    factor = grid.factor(sums_of_step, masses, count)
    return joint_allocation.Window(grid, [factor], count)


def _tilt_of_moments(noise: _Noise, first: FloatArray, exponent: float) -> float:
    """Returns the tilt of S for some −ln δ."""
    steps, some = noise.steps, slice(None, None, len(first) // 160)
    weights = np.exp(-(noise.cells.ends[some] ** 2) / 2)
    weights /= weights.sum()
    places = first[some] - sums.dot(weights, first[some])
    deviation = math.sqrt(sums.dot(weights, places**2) * steps.count)
    found = 0.0
    for tilt in (np.geomspace(0.05, 40.0, 48) / deviation).tolist():
        log, tilted = step_laws.tilted(weights, tilt * places)
        mean = steps.count * sums.dot(tilted, places)
        apart = (places - mean / steps.count) ** 2
        spread = math.sqrt(steps.count * sums.dot(tilted, apart))
        here = tilt * mean - steps.count * log + math.log1p(2.5 * tilt * spread)
        if here - noise.members * math.log1p(mean) > exponent:
            break
        found = tilt
    return found


def _by_counts(noise: _Noise, exponent: float) -> Hinges | None:
    """Returns the bound by L and V for one λ, accurate around one δ.

    Args:
        noise: The noise of a step.
        exponent: −ln δ.
    """
    steps, g = noise.steps, noise.members
    rate, tilt = allocated_group.rate_and_tilt(
        steps, noise.null_probability, g, exponent - _EARLIER
    )
    ends = noise.cells.ends
    first, variances, off = allocated_group.counted(ends, steps, rate)
    if first[-1] > _LARGEST_LOG:
        return None
    width = float(ends[1] - ends[0])
    # This is a lower bound on the variance in a cell, by bounds on the derivatives of
    # its logarithm.
    second = np.minimum(
        variances, np.minimum(np.roll(variances, 1), np.roll(variances, -1))
    )
    second *= 1 - (steps.shift * width) ** 2
    second[[0, -1]] = 0.0
    # Where the noise is negative, its density increases. So the mean of a cell is above
    # the middle.
    share = 0.5 + np.maximum(-ends[:-1], 0.0) * width / 12
    masses = noise.at_ends(share) * np.exp(first)
    window = _window((first, np.maximum(second, 0.0)), masses, noise, tilt)
    if window is None:
        return None
    log_of_number = allocated_group.log_poisson(g, rate)
    return bound_cells.by_counts(
        window,
        log_of_number,
        is_of_p=False,
        added=rate * noise.null_probability * (1 - 8 * floats.UNIT_ROUNDOFF),
        lost=noise.lost,
        mass_error=steps.count * (noise.cells.mass_error + off),
        ratio_error=steps.count * off + 64 * (1 + rate) * floats.UNIT_ROUNDOFF,
    )
