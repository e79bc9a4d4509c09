"""Gaussian noise around random shifts: one mixture against another."""

from collections.abc import Callable
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy import special

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import cells
from dp_accounting_ext.pairs import shifts

FloatArray = npt.NDArray[np.float64]

# Certified (docs/guarantees.md, "Gaussian cells" and "Assumptions"): relative error of
# scipy.special.ndtr in the lower tail, in units of rounding: at argument 0, and its
# growth with the square of the argument.
_NDTR_ERROR = 32.0
_NDTR_GROWTH = 4.0
# Certified: so many standard deviations away a normal law has no mass.
FURTHEST = 1e9
# Certified: below it the argument leaves the range for which that is assumed.
SMALLEST_TAIL_MASS = 1e-290
# Certified: the logarithm of a density over N(0, 1)'s at 0 whose cells, a thousandth
# wide and more, have masses above `floats.SMALLEST_MASS`.
_LEAST_DENSITY = -680.0
# Certified: quadrature of three nodes errs by so much of a mass, times the sixth power
# of the exponent's growth over the cell; and the growth is no more than this.
_QUADRATURE = 5e-7
_MOST_GROWTH = 2.0**-3
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)

# Tuning. Half of it or twice: brackets within 5 %, but for one or two runs, where they
# are some 1e-6 wide.
POINTS = 1 << 14
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

    def log_ratios(
        self, other: "Mixture", points: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Returns (n,) ln of this density over another, slopes, and errors at most."""
        points = np.clip(points, -FURTHEST, FURTHEST)
        values, slopes = self.log_densities(points)
        less, fewer = other.log_densities(points)
        furthest = max(abs(shift) for shift, _ in self.shifts + other.shifts)
        terms = len(self.shifts) + len(other.shifts)
        units = 8 + terms + 2 * furthest * (np.abs(points) + furthest)
        errors = units * floats.UNIT_ROUNDOFF
        errors = errors + (self.weight_error() + other.weight_error())
        return values - less, slopes - fewer, errors

    def reflected(self) -> "Mixture":
        """Returns the mixture of the opposite shifts."""
        return Mixture(tuple((-shift, weight) for shift, weight in self.shifts))

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
) -> dominating_pair.DominatingPair:
    """Returns a certified pair of one mixture of shifted Gaussians and another.

    No shift of P is below a shift of Q, so that the likelihood ratio increases.
    Masses are sums of positive terms (Gauss–Legendre), never differences of
    distribution functions. The quadrature's own error, w⁶ / 2,000,000 in a cell
    over which the exponent grows by w, is counted among the masses' errors.

    Args:
        p: P, shifts at least 0, over the noise's standard deviation.
        q: Q, shifts at most 0.
        bound: Upper splits each cell of the noise between its ends, lower groups
            it at its mean.
        tail_mass: Probability outside the grid on either side, at least 1e-290.

    Returns:
        A pair with some thousand atoms, the noise equally spaced, or fewer, where
        it says little; one that says nothing where most losses are beyond 700 nats,
        which fit no float as ratios.

    Raises:
        ValueError: If a shift of P is negative, or one of Q positive.

    Source:
        Zhu et al. 2022, https://arxiv.org/abs/2106.08567, for pairs;
        Doroshenko et al. 2022, https://arxiv.org/abs/2207.04380, for splitting.
    """
    shifts.check_order(p, q)
    return _pair_of(p, q, bound, tail_mass, -math.inf)


def pair_beyond(
    p: Mixture,
    q: Mixture,
    start: float,
    bound: dominating_pair.Bound,
    *,
    tail_mass: float,
) -> dominating_pair.DominatingPair:
    """Returns a certified pair of mixtures whose ratio increases from one on only.

    Args:
        p: P, shifts at least 0.
        q: Q, shifts at least 0, none above the highest of P.
        start: A value of the noise. Beyond it the ratio increases, and before it the
            ratio is at most that at it, which is one but for rounding.
        bound: Upper: the pair bounds H_κ(P‖Q) for κ ≥ 1, and nothing else. Lower: all
            divergences, in either direction, as any mean over cells does.
        tail_mass: As for `dominating_pair_of`.
    """
    if bound is dominating_pair.Bound.LOWER:
        return _pair_of(p, q, bound, tail_mass, -math.inf)
    pair = _pair_of(p, q, bound, tail_mass, start)
    # The first atom holds all that is before the start: its ratio is one.
    ratios = np.append(np.minimum(pair.ratios[:1], 1.0), pair.ratios[1:])
    return dataclasses.replace(pair, ratios=ratios)


def _pair_of(
    p: Mixture,
    q: Mixture,
    bound: dominating_pair.Bound,
    tail_mass: float,
    start: float,
) -> dominating_pair.DominatingPair:
    """Returns the pair of cells of the noise, all beyond a start."""
    reach = p.highest() - q.lowest()
    if reach > _LONGEST_REACH:
        return dominating_pair.trivial_pair(bound)
    tail = float(special.ndtri(tail_mass))
    growth = math.sqrt(max(reach * (reach - 2 * tail) / 20, 1.0))
    low, high = _ends(p, q, tail)
    if max(p.above(high), q.below(low)) > _MOST_OUTSIDE:
        return dominating_pair.trivial_pair(bound)
    low = max(low, start)
    if low >= high:
        return dominating_pair.trivial_pair(bound)
    size = max(abs(low), abs(high)) + reach
    grown = (high - low) * size
    points = math.ceil(max(POINTS * min(growth, 8.0), grown / _MOST_GROWTH))
    quadrature = _QUADRATURE * (grown / (points - 1)) ** 6
    terms = len(p.shifts) + len(q.shifts)
    mass_error = _NDTR_ERROR + _NDTR_GROWTH * size**2 + 2 * terms
    # From the exponents of ratios. The tails' ratios are as uncertain as masses, and
    # these are no more than tail_mass.
    ratio_error = 32 + 10 * reach * size + 2 * terms
    of_weights = p.weight_error() + q.weight_error()
    return _pair_on(
        p,
        q,
        _Grid(low, high, points),
        bound,
        mass_error * floats.UNIT_ROUNDOFF + of_weights + quadrature,
        ratio_error * floats.UNIT_ROUNDOFF + of_weights,
        tail_mass,
    )


def _ends(p: Mixture, q: Mixture, tail: float) -> tuple[float, float]:
    """Returns between what values of the noise the grid lies.

    Losses beyond ±700 do not fit a float as ratios, and where either law has next to
    no density its masses do not fit one: both are tail, whatever the other law has.
    """

    def loss(point: float) -> float:
        return p.log_density(point) - q.log_density(point)

    def where(level: float) -> Callable[[float], float]:
        return lambda point: loss(point) - level

    def from_least(law: Mixture) -> Callable[[float], float]:
        return lambda point: law.log_density(point) - point**2 / 2 - _LEAST_DENSITY

    low, high = q.lowest() + tail, p.highest() - tail
    if from_least(p)(low) < 0:
        low = float(optimize.brentq(from_least(p), low, p.highest()))
    if from_least(q)(high) < 0:
        high = float(optimize.brentq(from_least(q), q.lowest(), high))
    if loss(low) < -floats.LARGEST_EXPONENT:
        low = float(optimize.brentq(where(-floats.LARGEST_EXPONENT), low, high))
    if loss(high) > floats.LARGEST_EXPONENT:
        high = float(optimize.brentq(where(floats.LARGEST_EXPONENT), low, high))
    return low, high


def _pair_on(
    p: Mixture,
    q: Mixture,
    grid: _Grid,
    bound: dominating_pair.Bound,
    mass_error: float,
    ratio_error: float,
    tail_mass: float,
) -> dominating_pair.DominatingPair:
    """Returns the pair whose cells lie between neighbours of a grid of the noise."""
    steps = grid.step / 2 * np.append(1 + _NODES, 2.0)
    log_p, rises = p.tabulated(grid, steps)
    log_q, falls = q.tabulated(grid, steps)
    ratios = np.exp(log_p - log_q)
    masses, excess, span = _cells(grid.points, log_q, rises, falls)
    q_low, p_low = q.below(grid.low), p.below(grid.low)
    q_high, p_high = q.above(grid.high), p.above(grid.high)
    if bound is dominating_pair.Bound.LOWER:
        means = ratios[:-1] * (1 + excess)
        # Where P has little beyond, both laws go without: a lowered ratio is a lower
        # bound where a record is removed alone.
        if p_high > 4 * tail_mass and q_high > floats.SMALLEST_MASS:
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
