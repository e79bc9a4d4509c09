"""The joint law of two sums over the steps of k-out-of-t random allocation.

Let X_i be the likelihood ratio of step i, 0 < λ < 1, and q_i = λ X_i / (1 − λ + λ X_i).
The first sum L = Σ ln(1 − λ + λ X_i) would be the privacy loss if the record were in
each step independently with probability λ. The probability that it is in step i, given
the outputs, would then be q_i. The second sum V = Σ q_i (1 − q_i) is the variance of
the number of its steps, given the outputs. The joint law does not depend on which k
steps hold the record. It is computed as a product of powers on a lattice in the plane.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
from scipy import optimize

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.kernel import tilted_sums

# For each law of a step: the masses of the step's outputs, and the number of steps that
# have this law.
Laws = list[tuple[FloatArray, int]]

# Tuning: numbers of fine rows, coarse rows and columns. Rounding to the lattice grows
# with the root of t. With these numbers it costs about 5e-4 of ε, up to 4000 steps.
_ROWS_PER_ROOT, _MOST_ROWS = 400.0, 1 << 14
_COARSE_ROWS, _MOST_COLUMNS, _MOST_CELLS = 1024, 192, 1 << 21
# Tuning: V is rarely above so many of its standard deviations.
_DEVIATIONS = 6.0
# Tuning: a window leaves out e^−16 of a tilted law at either end.
_OUTSIDE = 16.0
# Tuning: the tilt over that of the saddle point, if large ratios make a law wide there.
_EASED = 0.75
# Tuning: the largest λ.
HIGHEST_RATE = 0.98
# Certified: the largest tilt of a coarse row, so that all of its fine rows fit a float.
_STEEPEST_ROW = 50.0
_LARGEST_INDEX = 2.0**52  # Certified: floats hold all integers up to it.
# Certified: many times the relative error of sums of tens of thousands of shares.
_SPLIT_ERROR = 1e-10


def scores(ratios: FloatArray, rate: float) -> tuple[FloatArray, FloatArray]:
    """Returns the term of each ratio in L, and its term in V.

    The absolute error of a term in L is at most `error_of_score`. A term in V is a
    product of positive numbers, with a relative error of at most 16 units of rounding.
    """
    mixed = (1 - rate) + rate * ratios
    return np.log(mixed), (rate * ratios / mixed) * ((1 - rate) / mixed)


def error_of_score(largest: float) -> float:
    """Returns a bound on the error of a ratio's term in L and of its row."""
    return (8 + 16 * largest) * floats.UNIT_ROUNDOFF


@dataclasses.dataclass(frozen=True)
class Steps:
    """The t steps, k of which hold the record.

    Attributes:
        ratios: (n,) finite likelihood ratios of one step, increasing. The first may be
            zero.
        masses: (n,) probabilities of the ratios without the record.
        p_masses: (n,) probabilities of the ratios with the record.
        num_selected: Number of steps with the record, k.
        num_steps: Number of steps, t > k.
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
        """Returns steps with the atoms of a pair, including its ratio of zero."""
        kept = pair.masses > 0
        ratios, masses = pair.ratios[kept], pair.masses[kept]
        if pair.zero_mass > 0:
            ratios = np.append(0.0, ratios)
            masses = np.append(pair.zero_mass, masses)
        return cls(ratios, masses, ratios * masses, num_selected, num_steps)

    @property
    def laws(self) -> Laws:
        """The laws of the k steps with the record and of the t − k steps without it."""
        others = self.num_steps - self.num_selected
        return [(self.p_masses, self.num_selected), (self.masses, others)]

    def without_largest(self, mass: float) -> tuple["Steps", float]:
        """Returns the steps without the rarest large ratios.

        Args:
            mass: The largest probability that any step has a ratio that is left out.

        Returns:
            The steps with the remaining ratios; and a bound on the probability, under
            P or under Q, that any step has a ratio that was left out.
        """
        others = self.num_steps - self.num_selected
        probabilities = self.num_selected * np.maximum(self.p_masses, self.masses)
        above = np.cumsum((probabilities + others * self.masses)[::-1])[::-1]
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
    def sketch(self) -> "Steps":
        """The steps with a few hundred ratios, which suffice to choose parameters."""
        starts = np.unique(np.linspace(0, self.ratios.size - 1, 256).astype(np.int64))
        masses = np.add.reduceat(self.masses, starts)
        p_masses = np.add.reduceat(self.p_masses, starts)
        return dataclasses.replace(
            self,
            ratios=p_masses / masses,
            masses=masses / masses.sum(),
            p_masses=p_masses / p_masses.sum(),
        )

    def deviation(self, rate: float) -> float:
        """Returns the standard deviation of L under P."""
        score, _ = scores(self.ratios, rate)
        return math.sqrt(variance(self.laws, score))

    def rate(self, tilt: float) -> float:
        """Returns the λ at which the mean of Σ q_i under the tilted law is k.

        There the bound on π(k), the probability that k independent events with
        probabilities q_i happen, is nearly attained. The best λ is close to it.
        """
        even = self.num_selected / self.num_steps

        def excess(log_rate: float) -> float:
            rate = math.exp(log_rate)
            score, _ = scores(self.ratios, rate)
            posterior = rate * self.ratios / ((1 - rate) + rate * self.ratios)
            _, laws = tilted_laws(self.laws, tilt * score)
            return mean(laws, posterior) - self.num_selected

        high = min(2 * even, (HIGHEST_RATE + even) / 2)
        found = math.exp(root(excess, math.log(even / 100), math.log(high)))
        return min(found, HIGHEST_RATE)

    def tilt(self, exponent: float) -> float:
        """Returns the tilt at whose mean of L Chernoff's bound has a given value.

        λ is that of `rate` at each tilt.

        Args:
            exponent: −ln of the bound.
        """
        if not exponent:
            return 0.0
        even = self.num_selected / self.num_steps
        centre = math.log(math.sqrt(2 * exponent) / self.deviation(even))

        def excess(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            score, _ = scores(self.ratios, self.rate(tilt))
            cumulant, laws = tilted_laws(self.laws, tilt * score)
            return tilt * mean(laws, score) - cumulant - exponent

        return math.exp(root(excess, centre - 4, centre + 4))


def is_informative(steps: Steps, least: float) -> bool:
    """Returns whether the standard deviation of L under P is above `least`."""
    if steps.ratios.size < 2 or not steps.p_masses.any():
        return False
    return steps.sketch.deviation(steps.num_selected / steps.num_steps) > least


def exponents_up_to(first: Sequence[float], tail_mass: float) -> list[float]:
    """Returns values of −ln δ: the given ones, continued to nearly −ln(tail_mass)."""
    last = -math.log(tail_mass) - 6.0
    exponents = list(first)
    while exponents[-1] * 1.5 < last:
        exponents.append(exponents[-1] * 1.5)
    return [exponent for exponent in exponents if exponent <= last] or exponents[:1]


def mean(laws: Laws, values: FloatArray) -> float:
    """Returns the mean of a sum over steps."""
    return sum(count * sums.dot(masses, values) for masses, count in laws)


def variance(laws: Laws, values: FloatArray) -> float:
    """Returns the variance of a sum over steps."""
    return sum(
        count * sums.dot(masses, (values - sums.dot(masses, values)) ** 2)
        for masses, count in laws
    )


def tilted(masses: FloatArray, exponents: FloatArray) -> tuple[float, FloatArray]:
    """Returns ln Σ m_i e^{x_i} for masses m_i and exponents x_i, and the tilted law."""
    # An output without mass must not count, even if it has the largest exponent.
    exponents = np.where(masses > 0, exponents, -math.inf)
    largest = float(exponents.max())
    weights = masses * np.exp(exponents - largest)
    whole = float(weights.sum())
    return largest + math.log(whole), weights / whole


def tilted_laws(laws: Laws, exponents: FloatArray) -> tuple[float, Laws]:
    """Returns the cumulant of a sum over steps, and the tilted laws of the steps."""
    found = [(*tilted(masses, exponents), count) for masses, count in laws]
    return sum(n * log for log, _, n in found), [(w, n) for _, w, n in found]


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns an approximate zero of an increasing function, or the nearer end."""
    if function(low) >= 0:
        return low
    if function(high) <= 0:
        return high
    return float(optimize.brentq(function, low, high, xtol=0.01))


@dataclasses.dataclass(frozen=True)
class Grid:
    """A lattice in the plane for two sums, around the center of their tilted law.

    The lattice is a torus, so sums beyond it return at its other end.

    Attributes:
        tilt: The tilt, per nat of the first sum.
        changes: (2,) positive changes of the tilt for Chernoff's bounds, upwards and
            downwards.
        low: Lower end of the window of the first sum.
        row_step: Height of a fine row, in nats.
        column_step: Width of a column.
        rows: Number of fine rows of the torus.
        columns: Number of columns of the torus.
        height: Number of fine rows in a coarse row.
        is_even: Whether a mass is split between rows such that the mean of the first
            sum is kept. Otherwise that of e^{−L} is kept.
    """

    tilt: float
    changes: FloatArray
    low: float
    row_step: float
    column_step: float
    rows: int
    columns: int
    height: int
    is_even: bool = False

    @classmethod
    def of(
        cls,
        sums_of_step: tuple[FloatArray, FloatArray],
        laws: Laws,
        tilt: float,
        deviations: float = _DEVIATIONS,
    ) -> "Grid":
        """Returns a grid for a law, tilted a little less than to its saddle point.

        Args:
            sums_of_step: (n,) terms of a step's outputs in either sum.
            laws: (n,) masses of steps, with counts.
            tilt: The tilt of the saddle point.
            deviations: How many standard deviations of the second sum have columns.
        """
        tilt *= _EASED
        first, second = sums_of_step
        low, high, changes = window(first, laws, tilt)
        count = sum(count for _, count in laws)
        height = math.ceil(_ROWS_PER_ROOT * math.sqrt(count) / _COARSE_ROWS)
        rows = min(height * _COARSE_ROWS, _MOST_ROWS)
        columns = min(_MOST_COLUMNS, _MOST_CELLS // rows)
        _, here = tilted_laws(laws, tilt * first)
        middle = mean(here, second)
        # This is the variance of V, with what rounding to columns adds to it.
        spread = mean(here, second**2) + 2 * middle**2 / columns
        return cls(
            tilt=tilt,
            changes=changes,
            low=low,
            # The torus is larger than the window by an eighth, so that sums which go
            # round it are at least this far beyond the ends.
            row_step=1.125 * (high - low) / rows,
            column_step=(middle + deviations * math.sqrt(spread)) / columns,
            rows=rows,
            columns=columns,
            height=rows // _COARSE_ROWS,
        )

    def with_fewer_columns(self, width: float) -> "Grid":
        """Returns the grid with columns no wider than this, if they would be fewer."""
        whole = self.columns * self.column_step
        columns = min(math.ceil(whole / width), self.columns)
        return dataclasses.replace(self, columns=columns, column_step=whole / columns)

    @property
    def coarse_step(self) -> float:
        """Height of a coarse row, in nats."""
        return self.row_step * self.height

    def holds(self, sums_of_step: tuple[FloatArray, FloatArray], count: int) -> bool:
        """Returns whether the sums of `count` steps and the rows' tilts fit floats."""
        steps = self.row_step, self.column_step
        if not min(steps) > 0 or self.tilt * self.coarse_step > _STEEPEST_ROW:
            return False
        indices = (
            float(np.abs(each).max()) / step
            for each, step in zip(sums_of_step, steps, strict=True)
        )
        return count * max(indices) < _LARGEST_INDEX

    def factor(
        self,
        sums_of_step: tuple[FloatArray, FloatArray],
        masses: FloatArray,
        count: int,
    ) -> tilted_sums.Factor:
        """Returns the law of the terms of `count` equal steps in both sums.

        Masses below `floats.SMALLEST_MASS` are raised to it.
        """
        first, second = sums_of_step
        rows, row_shares = self._shares(first / self.row_step, self.row_step)
        columns, column_shares = tilted_sums.even_shares(second / self.column_step)
        cells = np.broadcast_arrays(rows[:, np.newaxis], columns[np.newaxis])
        shared = row_shares[:, np.newaxis] * column_shares[np.newaxis]
        weights = np.maximum((shared * masses).ravel(), floats.SMALLEST_MASS)
        kept = ((shared > 0) & (masses > 0)).ravel()
        found = tilted_sums.Factor(
            cells[0].ravel()[kept], cells[1].ravel()[kept], weights[kept], count
        )
        self._check(found, sums_of_step, masses)
        return found

    def _check(
        self,
        factor: tilted_sums.Factor,
        sums_of_step: tuple[FloatArray, FloatArray],
        masses: FloatArray,
    ) -> None:
        """Checks that splitting kept the total mass and the mean of either sum.

        Raises:
            MassError: If one of them has changed.
        """
        first, second = sums_of_step
        rows = self.row_step * factor.rows.astype(np.float64)
        columns = self.column_step * factor.columns.astype(np.float64)
        if not self.is_even:
            # The mean of e^{−L} is kept. It is divided by its largest value.
            least = float(first.min())
            first, rows = np.exp(least - first), np.exp(least - rows)
        for name, before, after in (
            ("masses of a step", np.ones_like(first), np.ones_like(rows)),
            ("means of a step's first sum", first, rows),
            ("means of a step's second sum", second, columns),
        ):
            size = sums.dot(masses, np.abs(before)) + factor.masses.size * floats.TINY
            conservation.check_total(
                name,
                sums.dot(factor.masses, after),
                sums.dot(masses, before),
                _SPLIT_ERROR * size,
            )

    def _shares(
        self, positions: FloatArray, step: float
    ) -> tuple[IntArray, FloatArray]:
        """Returns the rows around (n,) positions, with shares of their masses."""
        if self.is_even:
            return tilted_sums.even_shares(positions)
        return tilted_sums.shares(positions, step)

    def tent(self) -> FloatArray:
        """Returns a coarse row's share in each fine row, split as the steps were."""
        offsets = np.arange(self.height) / self.height
        _, (lower, upper) = self._shares(offsets, self.coarse_step)
        found = np.concatenate([upper[1:], lower])
        conservation.check_total(
            "shares of fine rows",
            float(found.sum()),
            self.height,
            _SPLIT_ERROR * self.height,
        )
        return found


def window(
    first: FloatArray, laws: Laws, tilt: float, outside: float = _OUTSIDE
) -> tuple[float, float, FloatArray]:
    """Returns the window of a tilted sum, by Chernoff's bounds.

    Args:
        first: (n,) terms of a step's outputs in the sum.
        laws: (n,) masses of steps, with counts.
        tilt: The tilt, per nat.
        outside: −ln of the probability that may be outside at either end.

    Returns:
        The lower and upper end, and the (2,) changes of the tilt that give the best
        bounds above and below.
    """
    here, now = tilted_laws(laws, tilt * first)
    changes = np.geomspace(0.1, 100.0, 24) / max(math.sqrt(variance(now, first)), 1e-12)
    above, below = (
        np.array([tilted_laws(laws, (tilt + sign * c) * first)[0] for c in changes])
        for sign in (1, -1)
    )
    highs, lows = (
        (above - here + outside) / changes,
        (here - below - outside) / changes,
    )
    best = changes[[int(np.argmin(highs)), int(np.argmax(lows))]]
    return float(lows.max()), float(highs.min()), best


class Window:
    """The joint law of two sums in a window, with masses rounded up.

    Args:
        grid: The lattice.
        factors: The laws of the terms.
        num_steps: The number of steps, which the counts of the factors must add up to.

    Raises:
        MassError: If the counts do not add up, or if masses were lost.

    Attributes:
        rows: (m,) values of the first sum, one for each coarse row.
        row_step: The distance of two of these values.
        columns: (n,) values of the second sum, no larger than the true ones.
        masses: (m, n) masses of the rows and columns.
        mass_error: Bound on the relative error of the masses, besides that of the
            factors.
        is_tilted: Whether the masses below the first row are left out.
    """

    def __init__(
        self, grid: Grid, factors: list[tilted_sums.Factor], num_steps: int
    ) -> None:
        conservation.check_terms(sum(factor.count for factor in factors), num_steps)
        self._grid = grid
        self._law = tilted_sums.TiltedSum(
            factors, grid.tilt * grid.row_step, (grid.rows, grid.columns)
        )
        first = math.floor(grid.low / grid.coarse_step)
        self.masses = self._law.masses(grid.tent(), first, height=grid.height)
        rows = first + np.arange(self.masses.shape[0], dtype=np.float64)
        self.rows: FloatArray = grid.coarse_step * rows
        self.row_step = grid.coarse_step
        columns = np.arange(grid.columns, dtype=np.float64)
        self.columns: FloatArray = grid.column_step * columns
        self.mass_error = self._law.mass_error
        self.is_tilted = grid.tilt != 0
        self._last = int(rows[-1]) * grid.height

    def mass_above(self, least_tilt: float = 0.0) -> float:
        """Returns a bound on the mass above the last row, by Chernoff's bound.

        Args:
            least_tilt: The smallest tilt, per nat, that may be used.
        """
        tilts = self._grid.tilt + np.append(0.0, self._grid.changes)
        tilts = tilts[tilts >= least_tilt] * self._grid.row_step
        return self._law.mass_above(self._last, tilts.tolist())


def log_binomial(num_selected: int, num_steps: int, rate: float) -> tuple[float, float]:
    """Returns ln Binom(k; t, λ), and a bound on its error."""
    fewer = np.arange(min(num_selected, num_steps - num_selected), dtype=np.float64)
    logs = np.log((num_steps - fewer) / (fewer + 1))
    chosen = num_selected * math.log(rate)
    others = (num_steps - num_selected) * math.log1p(-rate)
    value = math.fsum([*logs.tolist(), chosen, others])
    size = float(np.abs(logs).sum()) + 2 * logs.size + abs(chosen) + abs(others)
    return value, 8 * floats.UNIT_ROUNDOFF * (size + num_steps)
