"""Groups under random allocation of Gaussian noise, from above.

Each of g members takes part in one of several steps that are alike, drawn on its own
with chance w each; with some chance w₀ in none. With X_i = e^{s y_i − s²/2}, and
h_i(z) = Σ_n (w z)^n e^{n s y_i − n² s²/2} / n!, the ratio of all g leaving is
Z = g! [z^g] e^{w₀ z} Π h_i(z). All zeros of the product are real and negative
(docs/mathematics.md, "Groups under random allocation, from above"), so that two sums
over the steps say nearly all of Z:

- of moments, S = w₀ + Σ w X_i and A² = Σ w² (1 − e^{−s²}) X_i²:

      Z ≤ (S − A)^{g−1} (S + (g − 1) A),

  which is Z itself for g = 2, and tight where no more than one step is far from others;

- of counts, for a λ > 0, L = Σ (ln h_i(λ) − λ w) and V = λ w₀ + Σ Var n_i, n_i the
  number of members in step i if their chances are as the terms of h_i(λ):

      Z ≤ e^L e^{−V} I₀(V) / Pois(g; λ),

  as for k out of t, tight where g or Z are large.

Either is a convex function of both sums, growing in the first and falling in the
second, and its expectation is over the law of the outputs without members: what a step
adds may be split with its mean kept, on a plane lattice.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy import special

from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.amplification.k_of_t import joint_allocation
from dp_accounting_ext.amplification.k_of_t import k_out_of_t
from dp_accounting_ext.amplification.k_of_t import plane
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import normal_cells
from dp_accounting_ext.pairs import profile_pairs

Bound = dominating_pair.Bound
DominatingPair = dominating_pair.DominatingPair
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]
Shares = Callable[[FloatArray, float], tuple[IndexArray, FloatArray]]

_UNIT = floats.UNIT_ROUNDOFF
# Certified, in units of rounding: of an exponential, and of a unit of its exponent; of
# a shift; of a term of h, and of what is made of these.
_EXPONENTIAL, _OF_EXPONENT, _SHIFT, _TERMS = 24, 4, 8, 64
# A limit: terms of h, so many of them, fit a float.
_LARGEST_LOG = 600.0
# Certified: more than any probability, and a great many of it fit a float.
_MOST_MASS = 1e290

# Tuning, all of it.
_EXPONENTS = (0.5, 2.0, 4.0, 6.5, 9.0, 11.5, 14.0, 16.5, 19.0, 23.0, 27.0)
# Exponents beyond that of an answer: of what is looked at nowhere, and from where
# squares need not be told apart.
_RARE, _UNUSUAL = 7.0, 3.0
_RARE_BELOW = 1e-6  # The chance of noise of any step so low that it is one cell.
_SKETCH, _SKETCHED, _TOGETHER = 160, 7.0, 3
_EARLIER = 1.5  # An exponent, by which the best λ is that of a larger δ.
_RATES = np.geomspace(0.82, 1e-4, 46)  # λ over g.
_TILTS = np.geomspace(0.05, 40.0, 48)
_WIDEST, _STEEPEST_ROW = 3.0, 50.0
# Losses at which profiles are compared: of one distance up to the first, relatively.
_NEAR, _STEP = 1e-4, 0.004
_FINE = 8192  # Places in a window.
_HALVINGS = 40
_TAILS_OF_DELTA = 1e10  # Questions are of δ so many times the tail, or more.
# Of a window: how much less a law is tilted, and changes of the tilt over a deviation.
_EASED, _MOST_EASED, _OUTSIDE = 0.8, 14, 16.0
_CHANGES = np.geomspace(0.1, 50.0, 20)
_HOPELESS = 3.0  # Over what is known.
_LOG_TILTS = -6.0, 7.0


def upper_pair(
    allocation: replaced_allocation.Allocation,
    members: int,
    known: DominatingPair,
    *,
    tail_mass: float,
) -> DominatingPair:
    """Returns a pair that dominates an allocation where members leave.

    Args:
        allocation: Steps of one kind, none of which tells all.
        members: How many leave, g ≥ 2.
        known: An upper bound on H(P‖Q).
        tail_mass: Rarest losses that the result is to tell from infinite ones.

    Guarantees:
        H(P‖Q) of the result is at least that of members whatever they contribute, at
        every κ ≥ 0. The pair is for this direction alone.

    Source:
        docs/mathematics.md, "Groups under random allocation, from above".
    """
    exponents = k_out_of_t.exponents_up_to(_EXPONENTS, tail_mass * _TAILS_OF_DELTA)
    noises = {each: _Noise.of(allocation, members, each) for each in exponents}
    # The one from where Z is near one on, the other from where it is far.
    found = _while_less(known, _by_moments, list(noises.items()), _HOPELESS)
    rest = list(noises.items())[::-1]
    found += _while_less(_least(known, found), _by_counts, rest, 1.0)
    return _least(known, found)


def _while_less(
    known: DominatingPair,
    bound: "Callable[[_Noise, float], _Cells | None]",
    noises: Sequence[tuple[float, "_Noise"]],
    hopeless: float,
) -> "list[_Cells]":
    """Returns bounds for one δ after another while they are less than what is known.

    Args:
        known: An upper bound.
        bound: From a step's noise and −ln δ to a bound.
        noises: What it is asked for, in order.
        hopeless: How much more than what is known ends it, once any was less.
    """
    found: list[_Cells] = []
    for exponent, noise in noises:
        cells = bound(noise, exponent)
        if cells is None:
            continue
        goal = math.exp(-exponent)
        epsilon = known.epsilon(goal, dominating_pair.Direction.REMOVE)
        place = np.array([min(epsilon, floats.LARGEST_LOSS)])
        excess = float(cells.values(place)[0]) / goal
        if excess < 1:
            found.append(cells)
        elif found and excess > hopeless:
            break
    return found


@dataclasses.dataclass(frozen=True)
class _Cells(k_out_of_t.Cells):
    """An upper bound on Z in cells: masses times Z, and ln Z, increasing."""

    def values(self, losses: FloatArray) -> FloatArray:
        """Returns (m,) bounds on E(Z − κ)₊ at (m,) ln κ, one where none is known."""
        shift, factor = dominating_pair.allowance(
            Bound.UPPER, self.losses.size, self.mass_error, self.ratio_error
        )
        with np.errstate(over="ignore"):
            found = factor * profile_pairs.values_at(
                np.exp(losses + shift),
                np.exp(self.losses),
                self.masses * np.exp(-self.losses),
                self.sink,
            )
        found[losses < self.valid_from] = 1.0
        return np.minimum(found, 1.0)


def _least(known: DominatingPair, cells: list[_Cells]) -> DominatingPair:
    """Returns the pair of the least of several profiles of H(P‖Q)."""
    highest = max([float(np.log(known.ratios[-1])), *(c.losses[-1] for c in cells)])
    highest = min(highest, floats.LARGEST_LOSS)
    last = math.ceil(math.asinh(highest / _NEAR) / _STEP)
    first = math.floor(math.asinh(-1.0 / _NEAR) / _STEP)
    losses = _NEAR * np.sinh(_STEP * np.arange(first, last + 1))
    places = np.exp(losses)
    values = profile_pairs.values(known, places)
    for each in cells:
        np.minimum(values, each.values(losses), out=values)
    if not (values < 1).any():
        return known
    # What is less than a float is not zero.
    return profile_pairs.pair_above(places, np.maximum(values, profile_pairs.SMALLEST))


@dataclasses.dataclass(frozen=True)
class _Noise:
    """The noise of one step, in cells.

    Attributes:
        steps: The steps, shifts rounded up.
        silent: The chance that a member is in no step.
        members: How many members there are.
        cells: Masses of N(0, 1) and N(s, 1).
        usual: What noise exceeds with a chance that is small beside δ.
        below: The mass of N(0, 1) below all cells.
        lost: With the members, the chance that any step's noise is above them.
    """

    steps: replaced_allocation.Steps
    silent: float
    members: int
    cells: normal_cells.NormalCells
    usual: float
    below: float
    lost: float

    @classmethod
    def of(
        cls, allocation: replaced_allocation.Allocation, members: int, exponent: float
    ) -> "_Noise":
        """Returns cells for −ln δ."""
        (steps,) = allocation.steps
        shift = steps.shift * (1 + _SHIFT * _UNIT)
        steps = dataclasses.replace(steps, shift=shift)
        rate = min(floats.raised(steps.chance), 1.0)
        others = np.arange(members + 1.0)
        chances = special.binom(members, others) * rate**others

        def above(high: float) -> float:
            # Of j members or more in a step: the most that any number has above.
            tails = special.ndtr(others * shift - high)
            return floats.raised(steps.count * sums.dot(chances, tails))

        def highest(log_mass: float) -> float:
            ends = 0.0, normal_cells.FURTHEST
            for _ in range(_HALVINGS):
                middle = sum(ends) / 2
                rare = above(middle) <= math.exp(log_mass)
                ends = (ends[0], middle) if rare else (middle, ends[1])
            return ends[1]

        low = float(special.ndtri(_RARE_BELOW / steps.count))
        high = highest(-exponent - _RARE)
        return cls(
            steps,
            allocation.silent,
            members,
            normal_cells.NormalCells.of((0.0, shift), low, high),
            highest(-exponent - _UNUSUAL),
            floats.raised(float(special.ndtr(low))),
            above(high),
        )

    def at_ends(self, share: FloatArray) -> FloatArray:
        """Returns (n + 1,) masses of N(0, 1) at the cells' ends.

        Args:
            share: (n,) shares of cells that go to their upper ends.
        """
        share = np.clip(share * (1 + 8 * _UNIT), 0.0, 1.0)
        masses = np.append(self.cells.masses[0] * (1 - share), 0.0)
        masses[1:] += self.cells.masses[0] * share
        masses[0] += self.below
        return masses


class _Plane:
    """The joint law of two sums over the steps, on a lattice.

    Args:
        first: (n,) what one step adds to the first sum, increasing.
        second: (n,) what it adds to the second one.
        masses: (n,) their masses.
        count: How many steps.
        tilt: Of the first sum, where the answer is.
        error: Bound on the relative error of a mass.
        shares: Those of a place of the first sum on a lattice of a given step.
        most: What the second sum is told apart up to, if not chosen here.

    Attributes:
        rows: (k,) the first sum,
        columns: (m,) the second, no larger than it should be,
        masses: (k, m) and their masses, no smaller.
        fits: Whether there are such.
    """

    def __init__(
        self,
        first: FloatArray,
        second: FloatArray,
        masses: FloatArray,
        count: int,
        *,
        tilt: float,
        error: float,
        shares: Shares,
        most: float = 0.0,
    ) -> None:
        anchor = _eased((first, second), masses, count, tilt)
        grid = joint_allocation.Grid.of([anchor], count, finer=1 if most else 2)
        if most:
            grid = dataclasses.replace(grid, column_step=most / grid.columns)
        largest = max(
            float(np.abs(first).max()) / max(grid.row_step, floats.SMALLEST_MASS),
            float(second.max()) / max(grid.column_step, floats.SMALLEST_MASS),
        )
        self.fits = count * largest < joint_allocation.LARGEST_INDEX
        self.fits &= anchor.tilt * grid.coarse_step <= _STEEPEST_ROW
        if not self.fits:
            return
        rows, row_shares = shares(first / grid.row_step, grid.row_step)
        columns, column_shares = plane.even_shares(second / grid.column_step)
        cells = np.broadcast_arrays(rows[:, np.newaxis], columns[np.newaxis])
        weights = row_shares[:, np.newaxis] * column_shares[np.newaxis] * masses
        kept = (weights > 0).ravel()
        self._factor = plane.Factor(
            cells[0].ravel()[kept],
            cells[1].ravel()[kept],
            np.maximum(weights.ravel()[kept], floats.SMALLEST_MASS),
            count,
        )
        self._anchor, self._grid = anchor, grid
        law = grid.law([self._factor], anchor.tilt, anchor.changes)
        begin = math.floor(anchor.low / grid.coarse_step)
        offsets = np.arange(grid.height) / grid.height
        _, (lower, upper) = shares(offsets, grid.coarse_step)
        tent = np.concatenate([upper[1:], lower])
        found = law.masses(tent, begin, height=grid.height)
        self.masses = np.maximum(found.values, 0.0) + found.noise
        self.masses *= found.scale()[:, np.newaxis]
        self.rows: FloatArray = grid.coarse_step * found.rows.astype(np.float64)
        self.columns = grid.column_step * np.arange(grid.columns, dtype=np.float64)
        self.mass_error = law.mass_error + count * error
        self._last = int(found.rows[-1]) * grid.height

    def mass_above(self, least: float, power: float) -> float:
        """Bounds E max(R, last)^power over what is above the last row, R the first sum.

        Args:
            least: A number that is added to R; the last row is then positive.
            power: Not negative.
        """
        step = self._grid.row_step
        last = least + step * self._last
        tilts = [self._anchor.tilt + change for change in (0.0, *self._anchor.changes)]
        exponents = [
            self._factor.count * self._factor.log_moment(tilt * step)
            - tilt * step * self._last
            for tilt in tilts
            if tilt * last >= power
        ]
        if not exponents:
            return math.inf
        log = min(exponents) + (power * math.log(last) if power else 0.0)
        return floats.exponential(log + self.mass_error + 1e-9)

    def floor(self, log_mass: float) -> float:
        """Returns what the second sum is at least, but for a mass."""
        tilts = np.geomspace(0.3, 300.0, 24) / self._grid.columns
        return self._grid.column_step * joint_allocation.variance_floor(
            [self._factor], log_mass, tilts
        )

    @property
    def is_tilted(self) -> bool:
        """Whether rows below the first are not among the others."""
        return self._anchor.tilt != 0


def _eased(
    sums_of_step: tuple[FloatArray, FloatArray],
    masses: FloatArray,
    count: int,
    tilt: float,
) -> joint_allocation.Anchor:
    """Returns a window that is not too wide, of a law tilted less if need be."""
    widest = math.inf
    for share in (0.0, *(_EASED ** np.arange(1.0, _MOST_EASED)).tolist()):
        found = _anchor(sums_of_step, masses, count, share * tilt)
        width = found.high - found.low
        if share and width <= widest:
            break
        widest = min(widest, _WIDEST * width)
    return found


def _anchor(
    sums_of_step: tuple[FloatArray, FloatArray],
    masses: FloatArray,
    count: int,
    tilt: float,
) -> joint_allocation.Anchor:
    """Returns the window of a tilted law: no bound depends on it."""
    first, second = sums_of_step
    here, tilted = _tilted(masses, tilt * first)
    mean = sums.dot(tilted, first)
    deviation = math.sqrt(count * sums.dot(tilted, (first - mean) ** 2))
    changes = _CHANGES / max(deviation, 1e-9)
    above, below = (
        [
            count * (_tilted(masses, (tilt + sign * c) * first)[0] - here)
            for c in changes
        ]
        for sign in (1, -1)
    )
    highs = (np.array(above) + _OUTSIDE) / changes
    lows = -(np.array(below) + _OUTSIDE) / changes
    best = int(np.argmin(highs)), int(np.argmax(lows))
    return joint_allocation.Anchor(
        rate=1.0,
        tilt=tilt,
        low=float(lows[best[1]]),
        high=float(highs[best[0]]),
        mean_variance=count * sums.dot(tilted, second),
        spread=math.sqrt(count * sums.dot(tilted, second**2)),
        changes=tuple(sorted({float(changes[index]) for index in best})),
    )


def _by_moments(noise: _Noise, exponent: float) -> _Cells | None:
    """Returns the bound by S and A², accurate about one δ.

    Args:
        noise: The noise of a step.
        exponent: −ln δ there.
    """
    steps, g = noise.steps, noise.members
    exponents = steps.shift * noise.cells.ends - steps.shift**2 / 2
    if steps.chance * math.exp(min(exponents[-1], _LARGEST_LOG)) > _LARGEST_LOG:
        return None
    off = _EXPONENTIAL + 2 * _OF_EXPONENT * (np.abs(exponents) + steps.shift**2)
    first = steps.chance * np.exp(exponents) * (1 + off * _UNIT)
    # The point of a cell is above a line between those of its ends, but for a bit.
    curved = -math.expm1(-(steps.shift**2))
    widths = np.pad(np.diff(first), 1, mode="edge")
    bits = np.maximum(widths[1:], widths[:-1]) ** 2 / 4
    second = curved * np.maximum(first**2 * (1 - 8 * off * _UNIT) - bits, 0.0)
    # What is below all cells is at the first end.
    second[0] = 0.0
    base, moved = noise.cells.masses
    mean = steps.chance * moved / base * (1 + 4 * noise.cells.error + 16 * _UNIT)
    share = (mean - first[:-1]) / np.diff(first)
    largest = steps.chance * math.exp(steps.shift * noise.usual - steps.shift**2 / 2)
    usual = steps.count * steps.chance**2 * math.expm1(steps.shift**2)
    law = _Plane(
        first,
        second,
        noise.at_ends(share),
        steps.count,
        tilt=_tilt_of_moments(noise, first, exponent),
        error=noise.cells.error,
        shares=lambda places, _: plane.even_shares(places),
        most=curved * largest**2 + usual,
    )
    if not law.fits or noise.silent + law.rows[-1] <= 0:
        return None
    total = (noise.silent + law.rows)[:, np.newaxis] * (1 + 8 * _UNIT)
    root = np.sqrt(law.columns) * (1 - 8 * _UNIT)
    apart = total - root
    inside = apart > 0
    apart = apart + 8 * _UNIT * np.abs(total)
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = (g - 1) * np.log(apart) + np.log(total + (g - 1) * root)
    lowest = noise.silent + float(law.rows[0])
    is_cut = law.is_tilted and lowest > 0
    with np.errstate(over="ignore"):
        masses = law.masses[inside] * np.exp(losses[inside])
    return _collapsed(
        losses[inside],
        masses,
        noise.lost + law.mass_above(noise.silent, g),
        law.mass_error,
        (16 * g + 64) * _UNIT,
        g * math.log(lowest) if is_cut else -math.inf,
    )


def _tilt_of_moments(noise: _Noise, first: FloatArray, exponent: float) -> float:
    """Returns the tilt of S for some −ln δ."""
    steps, some = noise.steps, slice(None, None, len(first) // _SKETCH)
    weights = np.exp(-(noise.cells.ends[some] ** 2) / 2)
    weights /= weights.sum()
    places = first[some] - sums.dot(weights, first[some])
    deviation = math.sqrt(sums.dot(weights, places**2) * steps.count)
    found = 0.0
    for tilt in (_TILTS / deviation).tolist():
        log, tilted = _tilted(weights, tilt * places)
        mean = steps.count * sums.dot(tilted, places)
        apart = (places - mean / steps.count) ** 2
        spread = math.sqrt(steps.count * sums.dot(tilted, apart))
        here = tilt * mean - steps.count * log + math.log1p(2.5 * tilt * spread)
        if here - noise.members * math.log1p(mean) > exponent:
            break
        found = tilt
    return found


def _tilted(weights: FloatArray, exponents: FloatArray) -> tuple[float, FloatArray]:
    """Returns the logarithm of a mean of exponentials, and (n,) tilted weights."""
    largest = float(exponents.max())
    tilted = weights * np.exp(exponents - largest)
    total = float(tilted.sum())
    return largest + math.log(total), tilted / total


def _by_counts(noise: _Noise, exponent: float) -> _Cells | None:
    """Returns the bound by L and V for one λ, accurate about one δ.

    Args:
        noise: The noise of a step.
        exponent: −ln δ there.
    """
    steps, g = noise.steps, noise.members
    rate, tilt = rate_and_tilt(steps, noise.silent, g, exponent - _EARLIER)
    ends = noise.cells.ends
    first, variances, off = counted(ends, steps, rate)
    if first[-1] > _LARGEST_LOG:
        return None
    width = float(ends[1] - ends[0])
    # The variance in a cell, of whose logarithm derivatives are small.
    second = np.minimum(
        variances, np.minimum(np.roll(variances, 1), np.roll(variances, -1))
    )
    second *= 1 - (steps.shift * width) ** 2
    second[[0, -1]] = 0.0
    # Where noise is below zero its density grows, and its mean is above the middle.
    share = 0.5 + np.maximum(-ends[:-1], 0.0) * width / 12
    masses = noise.at_ends(share * (1 + 1e-9)) * np.exp(first)
    law = _Plane(
        first,
        np.maximum(second, 0.0),
        masses,
        steps.count,
        tilt=tilt,
        error=noise.cells.error + off,
        shares=plane.shares,
    )
    if not law.fits:
        return None
    log_chance = _log_chance(g, rate)
    added = rate * noise.silent * (1 - 8 * _UNIT)
    log_chances = k_out_of_t.log_reciprocal(law.columns + added) + log_chance
    if log_chances.min() < -floats.LARGEST_EXPONENT:
        return None
    lost, valid_from = law.mass_above(0.0, 0.0), -math.inf
    if law.is_tilted:
        log_mass = float(log_chances[0]) - exponent - _RARE
        lost += math.exp(log_mass)
        floor = np.array([law.floor(log_mass) + added])
        least = float(k_out_of_t.log_reciprocal(floor)[0]) + log_chance
        valid_from = float(law.rows[0]) - least
    lost *= math.exp(-float(log_chances[0]))
    largest = float(np.abs(law.rows[[0, -1]]).max()) + abs(log_chance) + rate
    rounding = steps.count * off + 64 * (1 + largest) * _UNIT
    with np.errstate(over="ignore"):
        masses = law.masses * np.exp(-log_chances)
    return _collapsed(
        (law.rows[:, np.newaxis] - log_chances).ravel(),
        masses.ravel(),
        noise.lost + floats.raised(lost),
        law.mass_error,
        rounding,
        valid_from,
    )


def rate_and_tilt(
    steps: replaced_allocation.Steps, silent: float, members: int, exponent: float
) -> tuple[float, float]:
    """Returns λ, and the tilt of L, where all members are expected for some −ln δ.

    Args:
        steps: The steps.
        silent: The chance that a member is in none.
        members: g.
        exponent: −ln δ, about.
    """
    highest = min(_SKETCHED + _TOGETHER * steps.shift, normal_cells.FURTHEST)
    ends = np.linspace(-_SKETCHED, highest, _SKETCH)
    weights = np.exp(-(ends**2) / 2)
    weights /= weights.sum()
    before = -1.0, math.log(members), 0.0
    for rate in (members * _RATES).tolist():
        first, variances, _ = counted(ends, steps, rate)
        # The derivative of L by ln λ is the mean of the count.
        means = np.gradient(first, ends) / steps.shift
        goal = (members - rate * silent) / steps.count
        tilt = _tilt_for_mean(weights, first, means, goal)
        if tilt is None:
            break
        log, tilted = _tilted(weights, (1 + tilt) * first)
        mean = sums.dot(tilted, first)
        spread = math.sqrt(steps.count * sums.dot(tilted, (first - mean) ** 2))
        variance = steps.count * sums.dot(tilted, variances) + rate * silent
        here = steps.count * (tilt * mean - log) + math.log1p(2.5 * tilt * spread)
        here += math.log1p(tilt) + _log_chance(members, rate)
        here += float(k_out_of_t.log_reciprocal(np.array([variance]))[0])
        after = here, math.log(rate), tilt
        if here > exponent:
            # Between the two as the exponents tell.
            share = (exponent - before[0]) / (here - before[0])
            log, tilt = (
                x + share * (y - x) for x, y in zip(before[1:], after[1:], strict=True)
            )
            return math.exp(log), tilt
        before = after
    return math.exp(before[1]), before[2]


def _tilt_for_mean(
    weights: FloatArray, first: FloatArray, means: FloatArray, goal: float
) -> float | None:
    """Returns the tilt of a step's L at which it has a mean count, if any does."""

    def excess(log_tilt: float) -> float:
        _, tilted = _tilted(weights, (1 + math.exp(log_tilt)) * first)
        return sums.dot(tilted, means) - goal

    low, high = _LOG_TILTS
    if excess(high) < 0:
        return None
    if excess(low) >= 0:
        return 0.0
    return math.exp(float(optimize.brentq(excess, low, high, xtol=0.01)))


def _log_chance(members: int, rate: float) -> float:
    """Returns ln Pois(g; λ)."""
    return members * math.log(rate) - rate - math.log(math.factorial(members))


def counted(
    places: FloatArray, steps: replaced_allocation.Steps, rate: float
) -> tuple[FloatArray, FloatArray, float]:
    """Returns ln h(λ) − λ w, and the variance of the number of members in a step.

    Args:
        places: (n,) values of its noise.
        steps: The steps.
        rate: λ.

    Returns:
        (n,) values, (n,) variances, and a bound on the errors of a value.
    """
    shift, log_rate = steps.shift, math.log(rate * steps.chance)
    top = max(float(places[-1]), 0.0)
    # Terms fall by e or more from n on.
    number = 1
    while log_rate - math.log(number) + shift * top - (number - 0.5) * shift**2 > -1:
        number += 1 + number // 8
    counts = np.arange(number + 40.0)[:, np.newaxis]
    factorials = np.cumsum(np.log(np.maximum(counts, 1.0)), axis=0)
    logs = counts * log_rate - factorials - (counts * shift) ** 2 / 2
    exponents = logs + counts * shift * places
    largest = exponents.max(axis=0)
    weights = np.exp(exponents - largest)
    total = weights.sum(axis=0)
    mean = (counts * weights).sum(axis=0) / total
    variances = ((counts - mean) ** 2 * weights).sum(axis=0) / total
    size = float((np.abs(counts * log_rate) + factorials + counts * shift * top).max())
    off = (_TERMS + 8 * size + 4 * counts.size) * _UNIT
    values = largest + np.log(total) - rate * steps.chance
    return np.maximum.accumulate(values), variances * (1 - off), off


def _collapsed(
    losses: FloatArray,
    masses: FloatArray,
    sink: float,
    mass_error: float,
    ratio_error: float,
    valid_from: float,
) -> _Cells | None:
    """Returns cells on evenly spaced losses, those below −1 left out, or nothing."""
    # Where noise has more than one, what is known is one.
    masses = np.minimum(masses, _MOST_MASS)
    beyond = losses > floats.LARGEST_LOSS
    sink += float(masses[beyond].sum()) * (1 + 1e-9)
    seen = (losses > -1.0) & ~beyond
    losses, masses = losses[seen], masses[seen]
    if not masses.any():
        return None
    step = max(float(np.ptp(losses)) / _FINE, 1e-12)
    low = float(losses.min())
    places, shares = plane.shares((losses - low) / step, step)
    gathered = sums.gather(places.ravel(), (shares * masses).ravel())
    kept = gathered > 0
    return _Cells(
        losses=(low + step * np.arange(gathered.size, dtype=np.float64))[kept],
        masses=gathered[kept],
        sink=sink,
        mass_error=mass_error + 64 * _UNIT,
        ratio_error=ratio_error + 1e-12,
        valid_from=max(valid_from, -1.0) + 2 * ratio_error,
    )
