"""What k-out-of-t random allocation shows in two sums over its steps.

With λ in (0, 1) and q_i = λ X_i / (1 − λ + λ X_i), these are L = Σ ln(1 − λ + λ X_i),
the loss if each step were sampled on its own, and V = Σ q_i (1 − q_i), the variance of
the number of steps that a posterior takes to be sampled. Their joint law is a power on
a plane lattice, whatever the set of steps.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import optimize

from dp_accounting_ext.amplification.k_of_t import plane
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

# Tuning: speed and tightness only. With these the lattice costs some 5e-4 of ε.
COARSE_ROWS = 1024
_COLUMNS = 128  # Twice as many where cells are few: it moves ε by 1e-3 at k = 10.
_MOST_CELLS = 1 << 21
_ROWS_PER_ROOT = 256.0  # The rounding of t steps grows with the root of t.
_FEWEST_ROWS, _MOST_ROWS = 1 << 11, 1 << 14
_OUTSIDE = 16.0  # The exponent of what of a tilted law is out of the window.
_CHANGES = np.geomspace(0.1, 100.0, 24)  # Of a tilt, over the deviation.
_DEVIATIONS = 9.0  # Of V, above its mean.
_SKETCH_SIZE = 256
_FEWEST_DIGITS = 1e-300  # Certified: smaller floats may have few.
LARGEST_INDEX = 2.0**52  # Certified: floats hold all integers up to it.
# At its saddle point's tilt large ratios make a law wide: it is tilted less, at most so
# many times, until its window is not too wide beside another.
EASED, _MOST_EASED = 0.75, 12
_MARGIN = 1.125  # The torus over the widest window: what folds does so far from both.
_FLOOR_TILTS = np.geomspace(0.3, 300.0, 24)
_LOWEST_RATE, HIGHEST_RATE = 1e-2, 0.98  # Of λ: over k / t, and at all.


def scores(ratios: FloatArray, rate: float) -> tuple[FloatArray, FloatArray]:
    """Returns what each ratio adds to L, and to V.

    Positive terms: L's errs by (8 + 8 |its value|) units of rounding, V's relatively
    by 16.
    """
    mixed = (1 - rate) + rate * ratios
    return np.log(mixed), (rate * ratios / mixed) * ((1 - rate) / mixed)


@dataclasses.dataclass(frozen=True)
class Steps:
    """k of t steps with a record.

    Attributes:
        ratios: (n,) finite ratios of one step, increasing; zero may be among them.
        masses: (n,) their probabilities without the record.
        p_masses: (n,) those with it.
        num_selected: k.
        num_steps: t > k.
    """

    ratios: FloatArray
    masses: FloatArray
    p_masses: FloatArray
    num_selected: int
    num_steps: int

    @classmethod
    def of(
        cls, pair: dominating_pair.DominatingPair, num_selected: int, num_steps: int
    ) -> "Steps":
        """Returns the steps of a pair, its zero ratio among the others."""
        kept = pair.masses > 0
        ratios, masses = pair.ratios[kept], pair.masses[kept]
        if pair.zero_mass > 0:
            ratios = np.append(0.0, ratios)
            masses = np.append(pair.zero_mass, masses)
        return cls(ratios, masses, ratios * masses, num_selected, num_steps)

    def without_largest(self, mass: float) -> tuple["Steps", float]:
        """Returns the same without the rarest large ratios.

        Args:
            mass: Probability under P that any step may have one.

        Returns:
            The other ratios, and a bound on the probability that any step has one
            that is gone, under P or under Q.
        """
        others = self.num_steps - self.num_selected
        chances = self.num_selected * np.maximum(self.p_masses, self.masses)
        above = np.cumsum((chances + others * self.masses)[::-1])[::-1]
        first = max(int(np.searchsorted(-above, -mass)), 2)
        kept = dataclasses.replace(
            self,
            ratios=self.ratios[:first],
            masses=self.masses[:first],
            p_masses=self.p_masses[:first],
        )
        lost = float(above[first]) if first < above.size else 0.0
        return kept, floats.raised(lost)

    @functools.cached_property
    def sketch(self) -> "Sketch":
        """A few hundred ratios that stand for all."""
        starts = np.unique(np.arange(_SKETCH_SIZE) * self.ratios.size // _SKETCH_SIZE)
        masses = np.add.reduceat(self.masses, starts)
        p_masses = np.add.reduceat(self.p_masses, starts)
        return Sketch(
            p_masses / masses,
            masses / masses.sum(),
            p_masses / p_masses.sum(),
            self.num_selected,
            self.num_steps,
        )


@dataclasses.dataclass(frozen=True)
class Anchor:
    """Where a joint law is looked at: no bound depends on it.

    Attributes:
        rate: λ.
        tilt: The tilt of P's law, per nat of L.
        low: Lower end of the window of L.
        high: Its upper end.
        mean_variance: The mean of V.
        spread: The standard deviation of V, at most.
        changes: Changes of the tilt at which Chernoff's bounds at both ends are best.
    """

    rate: float
    tilt: float
    low: float
    high: float
    mean_variance: float
    spread: float
    changes: tuple[float, ...]


class Sketch:
    """The laws of one step in a few hundred atoms, for the choice of anchors."""

    def __init__(
        self,
        ratios: FloatArray,
        masses: FloatArray,
        p_masses: FloatArray,
        num_selected: int,
        num_steps: int,
    ) -> None:
        self._ratios = ratios
        self._laws = [
            (num_selected, p_masses),
            (num_steps - num_selected, masses),
        ]
        self._selected = num_selected
        self._steps = num_steps

    def _tilted(self, score: FloatArray, tilt: float) -> tuple[float, "Laws"]:
        """Returns ln E e^{tilt · L} under P, and the tilted laws of the steps."""
        return _tilted_laws(self._laws, tilt * score)

    def exponent(self, rate: float, tilt: float) -> float:
        """Returns Chernoff's exponent at the mean of the tilted L."""
        score = scores(self._ratios, rate)[0]
        cumulant, laws = self._tilted(score, tilt)
        return tilt * sum(n * sums.dot(w, score) for n, w in laws) - cumulant

    def deviation(self, rate: float) -> float:
        """Returns the standard deviation of L under P."""
        score = scores(self._ratios, rate)[0]
        variance = 0.0
        for count, masses in self._laws:
            mean = sums.dot(masses, score)
            variance += count * sums.dot(masses, (score - mean) ** 2)
        return math.sqrt(variance)

    def rate(self, tilt: float) -> float:
        """Returns λ at which the mean of Σ q_i under the tilted law is k.

        There the bound on π(k) is nearly attained. The best λ is near it.
        """
        even = self._selected / self._steps
        low = math.log(even * _LOWEST_RATE)
        high = math.log(min(2 * even, (HIGHEST_RATE + even) / 2))

        def excess(log_rate: float) -> float:
            rate = math.exp(log_rate)
            score, _ = scores(self._ratios, rate)
            posterior = rate * self._ratios / ((1 - rate) + rate * self._ratios)
            _, laws = self._tilted(score, tilt)
            return sum(n * sums.dot(w, posterior) for n, w in laws) - self._selected

        return math.exp(_root(excess, low, high))

    def tilt(self, exponent: float, rate: float | None = None) -> float:
        """Returns the tilt of an exponent, for a λ or with the λ that belongs to it."""
        if exponent == 0:
            return 0.0
        even = self._selected / self._steps
        centre = math.log(math.sqrt(2 * exponent) / self.deviation(rate or even))

        def excess(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            return self.exponent(rate or self.rate(tilt), tilt) - exponent

        return math.exp(_root(excess, centre - 4, centre + 4))

    def eased(self, rate: float, tilt: float, widest: float) -> Anchor:
        """Returns a window that is not too wide, of a law tilted less if need be.

        Args:
            rate: λ.
            tilt: The tilt, at most.
            widest: Width of its window over that of the law without a tilt.
        """
        both = scores(self._ratios, rate)
        return eased(both, self._laws, rate=rate, tilt=tilt, widest=widest)


Laws = list[tuple[int, FloatArray]]


def tilted(masses: FloatArray, exponents: FloatArray) -> tuple[float, FloatArray]:
    """Returns the logarithm of a sum of (n,) masses times e^{exponents}, and shares."""
    # What has no mass under one law may be all of the other's.
    exponents = np.where(masses > 0, exponents, -math.inf)
    largest = float(exponents.max())
    weights = masses * np.exp(exponents - largest)
    whole = float(weights.sum())
    return largest + math.log(whole), weights / whole


def _tilted_laws(laws: Laws, exponents: FloatArray) -> tuple[float, Laws]:
    """Returns the same of a sum over steps of several laws, with counts."""
    found = [(count, *tilted(masses, exponents)) for count, masses in laws]
    return sum(n * log for n, log, _ in found), [(n, w) for n, _, w in found]


def eased(
    sums_of_step: tuple[FloatArray, FloatArray],
    laws: Laws,
    *,
    rate: float,
    tilt: float,
    widest: float,
) -> Anchor:
    """Returns a window that is not too wide, of a law tilted less if need be.

    Args:
        sums_of_step: (n,) what the outputs of a step add to L, and to V.
        laws: (n,) masses of steps, with counts.
        rate: λ.
        tilt: The tilt, at most.
        widest: Width of the window over that of the law without a tilt.
    """
    plain = _anchor(sums_of_step, laws, rate, 0.0)
    found = _anchor(sums_of_step, laws, rate, tilt)
    for _ in range(_MOST_EASED):
        if found.high - found.low <= widest * (plain.high - plain.low):
            break
        tilt *= EASED
        found = _anchor(sums_of_step, laws, rate, tilt)
    return found


def _anchor(
    sums_of_step: tuple[FloatArray, FloatArray], laws: Laws, rate: float, tilt: float
) -> Anchor:
    """Returns the window of a tilted law."""
    score, variances = sums_of_step
    here, tilted_laws = _tilted_laws(laws, tilt * score)
    square = 0.0
    for count, weights in tilted_laws:
        mean = sums.dot(weights, score)
        square += count * sums.dot(weights, (score - mean) ** 2)
    changes = _CHANGES / max(math.sqrt(square), 1e-12)
    above, below = (
        [_tilted_laws(laws, (tilt + sign * c) * score)[0] - here for c in changes]
        for sign in (1, -1)
    )
    highs = (np.array(above) + _OUTSIDE) / changes
    lows = -(np.array(below) + _OUTSIDE) / changes
    best = int(np.argmin(highs)), int(np.argmax(lows))
    return Anchor(
        rate=rate,
        tilt=tilt,
        low=float(lows[best[1]]),
        high=float(highs[best[0]]),
        mean_variance=sum(n * sums.dot(w, variances) for n, w in tilted_laws),
        spread=math.sqrt(sum(n * sums.dot(w, variances**2) for n, w in tilted_laws)),
        changes=tuple(sorted({float(changes[index]) for index in best})),
    )


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns about where an increasing function is zero, or the nearer end."""
    if function(low) >= 0:
        return low
    if function(high) <= 0:
        return high
    return float(optimize.brentq(function, low, high, xtol=0.01))


def num_rows(num_steps: int) -> int:
    """Returns a number of fine rows for so many steps, a power of two."""
    wanted = math.ceil(math.log2(_ROWS_PER_ROOT * math.sqrt(num_steps)))
    return min(max(1 << wanted, _FEWEST_ROWS), _MOST_ROWS)


def _width(anchor: Anchor, columns: int) -> float:
    """Returns the width of columns that V and its rounding to them hardly exceed."""
    mean = anchor.mean_variance
    width = mean / columns
    for _ in range(8):
        spread = math.hypot(anchor.spread, math.sqrt(width * mean))
        width = (mean + _DEVIATIONS * spread) / columns
    return width


@dataclasses.dataclass(frozen=True)
class Grid:
    """A plane lattice for L and V.

    Attributes:
        rate: λ.
        row_step: Height of a fine row, in nats.
        column_step: Width of a column.
        rows: Fine rows on the torus.
        columns: Columns on the torus.
        height: Fine rows in a coarse one.
        is_even: Whether rows split masses so that the mean of the first sum is kept,
            and not that of e^{−L}.
    """

    rate: float
    row_step: float
    column_step: float
    rows: int
    columns: int
    height: int
    is_even: bool = False

    @classmethod
    def of(cls, anchors: Sequence[Anchor], num_steps: int, *, finer: int = 1) -> "Grid":
        """Returns a grid that goes round all windows of anchors with one λ.

        Args:
            anchors: At least one.
            num_steps: Number of steps, t.
            finer: How many times the columns there usually are, where cells are few.
        """
        rows = num_rows(num_steps)
        widest = max(anchor.high - anchor.low for anchor in anchors)
        step = _MARGIN * widest / rows
        columns = min(_COLUMNS * finer, _MOST_CELLS // rows)
        width = max(_width(anchor, columns) for anchor in anchors)
        height = rows // COARSE_ROWS
        return cls(anchors[0].rate, step, width, rows, columns, height)

    @property
    def coarse_step(self) -> float:
        """Height of a coarse row, in nats."""
        return self.row_step * self.height

    def holds(self, first: FloatArray, second: FloatArray, count: int) -> bool:
        """Tells whether all sums of so many have indices that floats hold exactly."""
        if not min(self.row_step, self.column_step) > 0:
            return False
        rows = float(np.abs(first).max()) / self.row_step
        columns = float(second.max()) / self.column_step
        return count * max(rows, columns) < LARGEST_INDEX

    def factors(self, steps: Steps) -> list[plane.Factor]:
        """Returns steps with the record, k of them, and without it, t − k."""
        sums_of_step = scores(steps.ratios, self.rate)
        others = steps.num_steps - steps.num_selected
        return [
            self.factor(*sums_of_step, steps.p_masses, steps.num_selected),
            self.factor(*sums_of_step, steps.masses, others),
        ]

    def factor(
        self,
        first: FloatArray,
        second: FloatArray,
        masses: FloatArray,
        count: int,
    ) -> plane.Factor:
        """Returns the law of what so many steps add to both sums.

        Masses that floats hold with few digits are raised.
        """
        rows, row_shares = self.shares(first / self.row_step, self.row_step)
        columns, column_shares = plane.even_shares(second / self.column_step)
        cells = np.broadcast_arrays(rows[:, np.newaxis], columns[np.newaxis])
        shared = row_shares[:, np.newaxis] * column_shares[np.newaxis]
        weights = np.maximum((shared * masses).ravel(), _FEWEST_DIGITS)
        kept = ((shared > 0) & (masses > 0)).ravel()
        return plane.Factor(
            cells[0].ravel()[kept], cells[1].ravel()[kept], weights[kept], count
        )

    def shares(
        self, positions: FloatArray, step: float
    ) -> tuple[IndexArray, FloatArray]:
        """Returns the rows around (n,) positions, with shares of their masses."""
        if self.is_even:
            return plane.even_shares(positions)
        return plane.shares(positions, step)

    def tent(self) -> FloatArray:
        """Returns shares of a coarse row in fine ones, split as each step was."""
        offsets = np.arange(self.height) / self.height
        _, (lower, upper) = self.shares(offsets, self.coarse_step)
        return np.concatenate([upper[1:], lower])

    def ratio_error(self, steps: Steps) -> float:
        """Bounds what L errs by from the rounding of scores and of their places."""
        score, _ = scores(steps.ratios, self.rate)
        largest = float(np.abs(score).max())
        return steps.num_steps * (8 + 16 * largest) * floats.UNIT_ROUNDOFF

    def law(
        self,
        factors: list[plane.Factor],
        tilt: float,
        changes: Sequence[float],
    ) -> plane.TiltedPlane:
        """Returns the law of the sum, tilted so much a nat."""
        factors = sorted(factors, key=lambda factor: factor.count)
        changes = [change * self.row_step for change in changes]
        return plane.TiltedPlane(
            factors, tilt * self.row_step, (self.rows, self.columns), changes
        )


class Window:
    """The joint law of two sums in the window of an anchor, no mass below the true one.

    Args:
        grid: The lattice.
        factors: What is summed.
        anchor: Where.

    Attributes:
        rows: (m,) the first sum, of coarse rows,
        columns: (n,) the second, no larger than it should be,
        masses: (m, n) and their masses.
        mass_error: Bound on their relative error, but for the factors' own.
        is_tilted: Whether rows below the first are not among the others.
    """

    def __init__(self, grid: Grid, factors: list[plane.Factor], anchor: Anchor) -> None:
        self._grid, self._factors = grid, factors
        self._law = grid.law(factors, anchor.tilt, anchor.changes)
        first = math.floor(anchor.low / grid.coarse_step)
        found = self._law.masses(grid.tent(), first, height=grid.height)
        self.masses: FloatArray = np.maximum(found.values, 0.0) + found.noise
        self.masses *= found.scale()[:, np.newaxis]
        self.rows: FloatArray = grid.coarse_step * found.rows.astype(np.float64)
        self.columns = grid.column_step * np.arange(grid.columns, dtype=np.float64)
        self.mass_error = self._law.mass_error
        self.is_tilted = anchor.tilt != 0
        self._last = int(found.rows[-1]) * grid.height

    def mass_above(self, least_tilt: float = 0.0) -> float:
        """Bounds the mass above the last row (Chernoff), by tilts a nat or more."""
        return self._law.mass_above(self._last, least_tilt * self._grid.row_step)

    def floor(self, log_mass: float) -> float:
        """Returns what the second sum is at least, but for a mass."""
        tilts = _FLOOR_TILTS / self._grid.columns
        column = variance_floor(self._factors, log_mass, tilts)
        return self._grid.column_step * column


def log_binomial(num_selected: int, num_steps: int, rate: float) -> tuple[float, float]:
    """Returns ln Binom(k; t, λ), and a bound on its error."""
    fewer = np.arange(min(num_selected, num_steps - num_selected), dtype=np.float64)
    logs = np.log((num_steps - fewer) / (fewer + 1))
    chosen = num_selected * math.log(rate)
    others = (num_steps - num_selected) * math.log1p(-rate)
    value = math.fsum([*logs.tolist(), chosen, others])
    size = float(np.abs(logs).sum()) + 2 * logs.size + abs(chosen) + abs(others)
    return value, 8 * floats.UNIT_ROUNDOFF * (size + num_steps)


def variance_floor(
    factors: list[plane.Factor], log_mass: float, columns: FloatArray
) -> float:
    """Returns a column below which the sum's column is with at most a given mass.

    Args:
        factors: What is summed, under the law that is not tilted.
        log_mass: Logarithm of the mass.
        columns: (m,) tilts per column, for Chernoff bounds.
    """
    best = 0.0
    laws = []
    for factor in factors:
        # Of huge ratios there are few columns, but far beyond what memory could hold.
        places, last = factor.columns, int(factor.columns.max())
        if last < 4 * places.size:
            distinct = np.arange(last + 1)
        else:
            distinct, places = np.unique(places, return_inverse=True)
        laws.append((factor.count, distinct, sums.gather(places, factor.masses)))
    for tilt in columns.tolist():
        exponent = 0.0
        for count, distinct, masses in laws:
            falls = np.exp(-tilt * distinct)
            exponent += count * math.log(sums.dot(masses, falls))
        best = max(best, (log_mass - exponent) / tilt - 1e-6)
    return best
