"""Gaussian noise around random shifts: one mixture against another."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy import special

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.pairs import cells
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import shifts

FloatArray = npt.NDArray[np.float64]

# Certified (docs/guarantees.md, "Gaussian cells" and "Assumptions"): relative error of
# scipy.special.ndtr in the lower tail, in units of rounding: at argument 0, and its
# growth with the square of the argument.
_NDTR_ERROR = 32.0
_NDTR_GROWTH = 4.0
# Certified: below it the argument leaves the range for which that is assumed.
SMALLEST_TAIL_MASS = 1e-290
# Certified: growth of an exponent over a cell of a coarser grid, at most; quadrature
# errs by 5e-16 of a mass then.
_MOST_GROWTH = 2.0**-5
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)

# Tuning. Half of it or twice: gaps within 3 % (Poisson samples, allocation), times
# within 6 %, and 1.2.
POINTS = 1 << 15
# Tuning: half of them will do for tails half as long, in deviations, and where the mean
# shift times the tail is less: Poisson samples' first answers take 0.8 of the time, and
# gaps are 4 % wider, which the lattice makes up for.
_LONG_TAIL = 16.0
_FREQUENT = 0.4
# Tuning: what is below a place is on a grid so many times coarser where it adds no more
# than this share to what all adds, and changes by no more than that, in nats; looked
# for among so many places.
_COARSER = 8
_ADDED = 0.02
_FLAT = 0.05
_SURVEYED = 65
# Tuning: neighbours whose exponentials are products, unless they are too far apart, in
# nats; and how many blocks of them are multiplied at once.
_BLOCK = 64
_BLOCK_SPAN = 16.0
_ROWS = 8
# Tuning: so few are summed sooner without an array.
_FEW_SHIFTS = 8
# Tuning: what has so long a reach, or so much beyond 700 nats, says nothing.
_LONGEST_REACH = 200.0
_MOST_OUTSIDE = 1e-2


@dataclasses.dataclass(frozen=True)
class Mixture(shifts.Mixture):
    """N(shift, 1) with a random shift, as (shift, weight); weights sum to one."""

    def below(self, point: float) -> float:
        """Returns the probability below a point."""
        return sum(w * float(special.ndtr(point - s)) for s, w in self.shifts)

    def above(self, point: float) -> float:
        """Returns the probability above a point."""
        return sum(w * float(special.ndtr(s - point)) for s, w in self.shifts)

    @staticmethod
    def noise_below(points: FloatArray) -> tuple[FloatArray, FloatArray]:
        errors = _NDTR_ERROR + _NDTR_GROWTH * np.minimum(points, 0.0) ** 2
        return special.ndtr(points), errors * floats.UNIT_ROUNDOFF

    @staticmethod
    def log_ratio_error(points: FloatArray, furthest: float, terms: int) -> FloatArray:
        units = 8 + terms + 2 * furthest * (np.abs(points) + furthest)
        return units * floats.UNIT_ROUNDOFF

    def log_densities(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) logarithms of the density over that of N(0, 1), and slopes."""
        exponents = np.multiply.outer(points, self._slopes)
        exponents += self._at_zero
        largest = exponents.max(axis=1)
        exponents -= largest[:, np.newaxis]
        terms = np.exp(exponents, out=exponents)
        totals = terms.sum(axis=1)
        terms *= self._slopes
        return largest + np.log(totals), terms.sum(axis=1) / totals

    def log_density(self, point: float) -> float:
        """Returns the logarithm of the density over that of N(0, 1) at a point."""
        if len(self.shifts) <= _FEW_SHIFTS:
            each = [constant + slope * point for constant, slope in self._lines]
            highest = max(each)
            return highest + math.log(sum([math.exp(x - highest) for x in each]))
        exponents = self._at_zero + self._slopes * point
        largest = float(exponents.max())
        return largest + math.log(float(np.exp(exponents - largest).sum()))

    @functools.cached_property
    def _lines(self) -> list[tuple[float, float]]:
        """Each component's logarithm over N(0, 1)'s: at zero, and its slope."""
        return list(zip(self._at_zero.tolist(), self._slopes.tolist(), strict=True))

    @functools.cached_property
    def _slopes(self) -> FloatArray:
        return np.array([shift for shift, _ in self.shifts])

    @functools.cached_property
    def _at_zero(self) -> FloatArray:
        logs = [math.log(weight) for _, weight in self.shifts]
        exponents: FloatArray = np.array(logs) - self._slopes**2 / 2
        return exponents

    def tabulated(
        self, grid: "_Grid", steps: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Returns the density over that of N(0, 1) on a grid, and how it grows.

        A block of the grid at a time, every shift has one exponential for the block
        and one for a place in it: all of them take one product of matrices.

        Returns:
            (n,) logarithms of the relative densities; and for each of (s,) steps its
            (n,) growth, minus 1: sums of terms of one sign where all shifts have one.
            One shift grows everywhere alike: (1,) growths.
        """
        if len(self.shifts) == 1:
            lines = self._at_zero + self._slopes * grid.points
            return lines, np.expm1(np.multiply.outer(steps, self._slopes))
        length = grid.block(float(np.abs(self._slopes).max()))
        centres, offsets = grid.blocks(length)
        exponents = self._at_zero + np.multiply.outer(centres, self._slopes)
        largest = exponents.max(axis=1, keepdims=True)
        terms = np.exp(exponents - largest)
        grown = np.expm1(np.multiply.outer(steps, self._slopes))
        terms = np.concatenate([terms[np.newaxis], grown[:, np.newaxis] * terms])
        within = np.exp(np.multiply.outer(self._slopes, offsets))
        # A few rows at a time, so that no thread is woken for them.
        rows = terms.reshape(-1, grid.rows(length), self._slopes.size)
        table: FloatArray = (rows @ within).reshape(len(terms), centres.size, length)
        logs = (np.log(table[0]) + largest).reshape(-1)
        growths = (table[1:] / table[0]).reshape(steps.size, -1)
        return logs[: grid.number], growths[:, : grid.number]


@dataclasses.dataclass(frozen=True)
class _Grid:
    """Equally spaced values of the noise.

    Attributes:
        low: The lowest.
        high: The highest.
        number: How many there are.
    """

    low: float
    high: float
    number: int

    @property
    def step(self) -> float:
        return (self.high - self.low) / (self.number - 1)

    @functools.cached_property
    def points(self) -> FloatArray:
        """The (n,) values."""
        return np.linspace(self.low, self.high, self.number)

    def block(self, reach: float) -> int:
        """Returns how many neighbours are near enough for shifts of so long a reach."""
        return max(min(_BLOCK, int(_BLOCK_SPAN / (reach * self.step + 1e-300))), 1)

    def rows(self, length: int) -> int:
        """Returns how many blocks of a length are made at a time."""
        return max(_BLOCK // length, 1) * _ROWS

    def blocks(self, length: int) -> tuple[FloatArray, FloatArray]:
        """Returns where blocks of a length are, the last ones beyond the grid.

        Returns:
            (m,) values in their middles, m a multiple of `rows`; and what (length,)
            values of a block are above its middle.
        """
        rows = self.rows(length)
        blocks = -(-self.number // (length * rows)) * rows
        middles = length * np.arange(blocks, dtype=np.float64) + length // 2
        offsets = np.arange(length, dtype=np.float64) - length // 2
        return self.low + self.step * middles, self.step * offsets


def dominating_pair_of(
    p: Mixture,
    q: Mixture,
    bound: dominating_pair.Bound,
    *,
    tail_mass: float,
    points: int | None = None,
) -> dominating_pair.DominatingPair:
    """Returns a certified pair of one mixture of shifted Gaussians and another.

    No shift of P is below a shift of Q, so that the likelihood ratio increases.
    Masses are sums of positive terms (Gauss–Legendre), never differences of
    distribution functions. The quadrature's own error, w⁶ / 2,000,000 in a cell
    over which the exponent grows by w, is below what rounding is allowed.

    Args:
        p: P, shifts at least 0, over the noise's standard deviation.
        q: Q, shifts at most 0.
        bound: Upper splits each cell of the noise between its ends, lower groups
            it at its mean.
        tail_mass: Probability outside the grid on either side, at least 1e-290.
        points: Number of grid points; by default enough for any use here.

    Returns:
        A pair with about n = points atoms, the noise equally spaced, or fewer, where
        it says little; one that says nothing where most losses are beyond 700 nats,
        which fit no float as ratios.

    Raises:
        ValueError: If a shift of P is negative, or one of Q positive.

    Source:
        Zhu et al. 2022, https://arxiv.org/abs/2106.08567, for pairs;
        Doroshenko et al. 2022, https://arxiv.org/abs/2207.04380, for splitting.
    """
    shifts.check_order(p, q)
    reach = p.highest() - q.lowest()
    if reach > _LONGEST_REACH:
        return dominating_pair.trivial_pair(bound)
    tail = float(special.ndtri(tail_mass))
    if points is None:
        growth = math.sqrt(max(reach * (reach - 2 * tail) / 20, 1.0))
        share = _share_of_points(p, q, tail)
        points = math.ceil(POINTS * min(growth, 8.0) * share)
    low, high = _ends(p, q, tail)
    if max(p.above(high), q.below(low)) > _MOST_OUTSIDE:
        return dominating_pair.trivial_pair(bound)
    grids = _grids(p, q, _Grid(low, high, points))
    size = max(abs(low), abs(high)) + reach
    terms = len(p.shifts) + len(q.shifts)
    mass_error = _NDTR_ERROR + _NDTR_GROWTH * size**2 + 2 * terms
    # From the exponents of ratios. The tails' ratios are as uncertain as masses, and
    # these are no more than tail_mass.
    ratio_error = 32 + 10 * reach * size + 2 * terms
    of_weights = p.weight_error() + q.weight_error()
    return _pair_on(
        p,
        q,
        grids,
        bound,
        mass_error * floats.UNIT_ROUNDOFF + of_weights,
        ratio_error * floats.UNIT_ROUNDOFF + of_weights,
    )


def _share_of_points(p: Mixture, q: Mixture, tail: float) -> float:
    """Returns the share of the points that will do for rare shifts and short tails.

    Elsewhere neighbours' losses are so far apart that a lattice shows them one by one.
    """
    means = [sum(shift * weight for shift, weight in each.shifts) for each in (p, q)]
    if (means[0] - means[1]) * -tail > _FREQUENT:
        return 1.0
    return min(max(-tail / _LONG_TAIL, 0.5), 1.0)


def _ends(p: Mixture, q: Mixture, tail: float) -> tuple[float, float]:
    """Returns between what values of the noise the grid lies.

    Losses beyond ±700 do not fit a float as ratios: they are tail, whatever their
    mass.
    """

    def loss(point: float) -> float:
        return p.log_density(point) - q.log_density(point)

    def where(level: float) -> Callable[[float], float]:
        return lambda point: loss(point) - level

    low, high = q.lowest() + tail, p.highest() - tail
    if loss(low) < -floats.LARGEST_EXPONENT:
        low = float(optimize.brentq(where(-floats.LARGEST_EXPONENT), low, high))
    if loss(high) > floats.LARGEST_EXPONENT:
        high = float(optimize.brentq(where(floats.LARGEST_EXPONENT), low, high))
    return low, high


def _grids(p: Mixture, q: Mixture, grid: _Grid) -> list[_Grid]:
    """Returns the grid, or two of it: fewer points where the loss hardly changes.

    Below most of a sample's noise the loss is that of no record. What a cell adds to
    the variance of the loss is its mass times the square of the loss's change.
    """
    reach = abs(grid.low) + p.highest() - q.lowest()
    coarser = min(_COARSER, int(_MOST_GROWTH / (grid.step * reach)))
    if coarser <= 1:
        return [grid]
    rough = _Grid(grid.low, grid.high, _SURVEYED)
    points = rough.points
    log_p, log_q = (each.tabulated(rough, np.zeros(1))[0] for each in (p, q))
    losses = log_p - log_q
    logs = np.logaddexp(log_p, log_q) - points**2 / 2
    added = np.exp(logs - logs.max())[1:] * np.diff(losses) ** 2
    below = np.cumsum(added) <= _ADDED / _COARSER**2 * added.sum()
    below &= losses[1:] - losses[0] < _FLAT
    share = int(below.sum()) / (_SURVEYED - 1)
    # A cell is left for the other grid.
    length = int(share * (grid.number - 2) / coarser)
    if not length:
        return [grid]
    middle = grid.low + grid.step * coarser * length
    return [
        _Grid(grid.low, middle, length + 1),
        _Grid(middle, grid.high, grid.number - coarser * length),
    ]


def _pair_on(
    p: Mixture,
    q: Mixture,
    grids: Sequence[_Grid],
    bound: dominating_pair.Bound,
    mass_error: float,
    ratio_error: float,
) -> dominating_pair.DominatingPair:
    """Returns the pair whose cells lie between neighbours of grids of the noise."""
    each = [_tabulated(p, q, grid) for grid in grids]
    # One grid begins where the one before ends.
    ratios = np.concatenate([part[0][:-1] for part in each] + [each[-1][0][-1:]])
    _, masses, excess, span = (np.concatenate(x) for x in zip(*each, strict=True))
    q_low, p_low = q.below(grids[0].low), p.below(grids[0].low)
    q_high, p_high = q.above(grids[-1].high), p.above(grids[-1].high)
    if bound is dominating_pair.Bound.LOWER:
        means = ratios[:-1] * (1 + excess)
        if q_high > floats.SMALLEST_MASS:
            lowered = (1 - 4 * mass_error) * p_high / q_high
            means = np.append(means, lowered)
            masses = np.append(masses, q_high)
        return cells.lower_pair(means, masses, mass_error, ratio_error)
    flat = span <= 0
    share = np.divide(excess, span, out=np.zeros_like(span), where=~flat)
    ratios, masses = cells.upper_atoms(ratios, masses, share)
    masses[0] += p_low / ratios[0]
    masses[-1] += q_high
    return dominating_pair.DominatingPair(
        ratios,
        masses,
        # These are differences: they err by as much as what is subtracted from.
        infinity_mass=max(p_high - float(ratios[-1]) * q_high, 0.0)
        + 4 * mass_error * p_high,
        zero_mass=max(q_low - p_low / float(ratios[0]), 0.0) + 4 * mass_error * q_low,
        bound=bound,
        mass_error=mass_error,
        ratio_error=ratio_error,
    )


def _tabulated(
    p: Mixture, q: Mixture, grid: _Grid
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Returns the ratios on a grid, and what `_cells` does."""
    steps = grid.step / 2 * np.append(1 + _NODES, 2.0)
    log_p, rises = p.tabulated(grid, steps)
    log_q, falls = q.tabulated(grid, steps)
    return np.exp(log_p - log_q), *_cells(grid.points, log_q, rises, falls)


def _cells(
    noise: FloatArray, log_q: FloatArray, rises: FloatArray, falls: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns what lies in the cells between equally spaced values of the noise.

    Args:
        noise: (n + 1,) values.
        log_q: (n + 1,) logarithms of Q's density over that of N(0, 1).
        rises: (4, n + 1) growths of P's from a value to the nodes above it and to the
            next value, minus 1; or (4, 1) where they are the same everywhere.
        falls: (4, n + 1) growths of Q's, or (4, 1).

    Returns:
        (n,) Q-masses; (n,) means under Q of ratio / ratio at the left end − 1; and
        (n,) that quotient at the right end.
    """
    # A difference of neighbours is off by a rounding of either. Growths forgive it;
    # masses do not, as it is the same in all cells.
    half = np.diff(noise) / 2
    middle = noise[:-1] + half
    rises, falls = (x[:, :-1] if x.shape[1] > 1 else x for x in (rises, falls))
    # At equal distances of the middle densities are c e^x and c e^−x, x = half · node ·
    # middle. In place: fresh memory costs more than the arithmetic.
    first, second, third = zip(_WEIGHTS, rises, falls, strict=False)
    growth = np.multiply(half * _NODES[2], middle)
    np.exp(growth, out=growth)
    term = np.empty(half.size)
    masses, excess = np.zeros((2, half.size))
    for density, (weight, rise, fall) in (
        (growth, first),
        (np.divide(1.0, growth), third),
    ):
        density *= weight * math.exp(-((half[0] * _NODES[2]) ** 2) / 2)
        masses += np.multiply(density, 1 + fall, out=term)
        np.subtract(rise, fall, out=term)
        excess += np.multiply(density, term, out=term)
    weight, rise, fall = second
    masses += weight * (1 + fall)
    np.subtract(rise, fall, out=term)
    term *= weight
    excess += term
    excess /= masses
    masses *= half * np.exp(log_q[:-1] - middle**2 / 2) / math.sqrt(2 * math.pi)
    span = (rises[-1] - falls[-1]) / (1 + falls[-1])
    return masses, excess, np.broadcast_to(span, masses.shape)
