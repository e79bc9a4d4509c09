"""Gaussian noise around random shifts: one mixture against another."""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import whole_laws
from dp_accounting_ext.pairs import normal_cells
from dp_accounting_ext.pairs import shifts

# Certified: quadrature of three nodes errs by so much of a mass, times the sixth power
# of the exponent's growth over the cell.
_QUADRATURE = 5e-7
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)

# Tuning. Half of it or twice: brackets within 5 %, but for one or two runs, where they
# are some 1e-6 wide.
_POINTS = 10_000
# A limit of time and memory: what has so long a reach says nothing.
_LONGEST_REACH = 200.0


@dataclasses.dataclass(frozen=True)
class Mixture(shifts.Mixture):
    """N(shift, 1) with a random shift, as (shift, weight); weights sum to one."""

    def below(self, point: float) -> float:
        """Returns the probability below a point."""
        return sum(w * float(special.ndtr(point - s)) for s, w in self.shifts)

    def above(self, point: float) -> float:
        """Returns the probability above a point."""
        return sum(w * float(special.ndtr(s - point)) for s, w in self.shifts)

    def log_densities(
        self, points: FloatArray, steps: Sequence[float] = ()
    ) -> tuple[FloatArray, FloatArray]:
        """Returns the density over that of N(0, 1) at points, and how it grows.

        A block of points at a time, every shift has one exponential for where the block
        begins and one for a place in it: all of them take one product of matrices.

        Args:
            points: (n,) equally spaced values of the noise, at least two.
            steps: s steps from each of them.

        Returns:
            (n,) logarithms of the relative densities; and for each of s steps its
            (n,) growth, minus 1: sums of terms of one sign where all shifts have one.
        """
        slopes, weights = np.array(self.shifts).T
        step = points[1] - points[0]
        # No density grows by more than e^8 in a block.
        length = int(np.clip(8 / (np.abs(slopes).max() * step + 1e-300), 1, 32))
        exponents = np.log(weights) - slopes**2 / 2
        exponents = exponents + np.multiply.outer(points[::length], slopes)
        largest = exponents.max(axis=1, keepdims=True)
        within = np.exp(np.multiply.outer(slopes, step * np.arange(length)))
        grown = np.expm1(np.multiply.outer([*steps], slopes))
        factors = np.vstack([np.ones(slopes.size), grown])
        # Products of denormals take a hundred times as long, and are nothing beside 1.
        terms = np.exp(np.maximum(exponents - largest, -floats.LARGEST_LOSS))
        # A few rows at a time, so that no thread is woken for them.
        few = np.array_split(terms, 1 + terms.size * length // (1 << 17))
        products = factors[:, :, np.newaxis] * within
        table = np.concatenate([rows @ products for rows in few], axis=1)
        logs = (np.log(table[0]) + largest).reshape(-1)
        growths = (table[1:] / table[0]).reshape(len(steps), logs.size)
        return logs[: points.size], growths[:, : points.size]


def dominating_pair_of(
    p: Mixture,
    q: Mixture,
    bound: Bound,
    *,
    tail_mass: float,
    rest: tuple[float, float] = (0.0, 0.0),
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
        tail_mass: Probability outside the grid on either side, at least 1e-300.
        rest: What the weights of P, and those of Q, lack to one: shifts of any size.

    Returns:
        A pair with some thousand atoms, the noise equally spaced; losses beyond 690
        nats, which fit no float as ratios, are tails. One that says nothing where
        shifts are more than 200 apart.

    Raises:
        ValueError: If a shift of P is negative, or one of Q positive.

    Source:
        Zhu et al. 2022, https://arxiv.org/abs/2106.08567, for pairs;
        Doroshenko et al. 2022, https://arxiv.org/abs/2207.04380, for splitting.
    """
    shifts.check_order(p, q)
    return _pair_of(p, q, bound, tail_mass, -math.inf, rest)


def pair_beyond(
    p: Mixture,
    q: Mixture,
    start: float,
    bound: Bound,
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
    if bound is Bound.LOWER:
        return _pair_of(p, q, bound, tail_mass, -math.inf)
    pair = _pair_of(p, q, bound, tail_mass, start)
    # The first atom holds all that is before the start: its ratio is one.
    ratios = np.append(np.minimum(pair.ratios[:1], 1.0), pair.ratios[1:])
    return dataclasses.replace(pair, ratios=ratios)


def _pair_of(
    p: Mixture,
    q: Mixture,
    bound: Bound,
    tail_mass: float,
    start: float,
    rest: tuple[float, float] = (0.0, 0.0),
) -> dominating_pair.DominatingPair:
    """Returns the pair of cells of the noise, all beyond a start."""
    reach = p.highest() - q.lowest()
    if reach > _LONGEST_REACH:
        return dominating_pair.trivial_pair(bound)
    low, high = _ends(p, q, float(special.ndtri(tail_mass)))
    low = max(low, start)
    if not low < high:
        return dominating_pair.trivial_pair(bound)
    size = max(abs(low), abs(high)) + reach
    grown = (high - low) * size
    noise = np.linspace(low, high, math.ceil(max(_POINTS, 24 * grown)) + 1)
    terms = len(p.shifts) + len(q.shifts)
    of_weights = p.weight_error() + q.weight_error()
    mass_error = normal_cells.tail_error(size) + 2 * terms * floats.UNIT_ROUNDOFF
    mass_error += of_weights + _QUADRATURE * (grown / (noise.size - 1)) ** 6
    # From the exponents of ratios. The tails' ratios are as uncertain as masses, and
    # these are no more than tail_mass.
    ratio_error = (32 + 10 * reach * size + 2 * terms) * floats.UNIT_ROUNDOFF
    ratio_error += of_weights

    edges, masses, excess, span = _cells(p, q, noise)
    q_low, p_low = q.below(low), p.below(low)
    q_high, p_high = q.above(high), p.above(high)
    if bound is Bound.LOWER:
        if max(p_high, q_low) > 1e-2:
            # Without so much of both laws, what is left says less than nothing at all.
            return dominating_pair.trivial_pair(bound)
        means = edges[:-1] * (1 + excess)
        # Where P has little beyond, both laws go without: a lowered ratio is a lower
        # bound where a record is removed alone.
        if p_high > 4 * tail_mass and q_high > floats.SMALLEST_MASS:
            lowered = (1 - 4 * mass_error) * p_high / q_high
            means, masses = np.append(means, lowered), np.append(masses, q_high)
        found = shifts.lower_pair(means, masses, mass_error, ratio_error)
        # What lies outside of the grid, if it is left out.
        claimed = whole_laws.Closeness(1.01 * (6 * mass_error + ratio_error))
        outside = max(p_low, p_high, q_low, q_high) + found.masses.size * floats.RARE
        return found.as_close_as(claimed.without(outside))
    masses = shifts.split(masses, excess, span)
    masses[0] += p_low / edges[0]
    masses[-1] += q_high
    # These are differences: they err by as much as what is subtracted from.
    infinity_mass = (
        max(p_high - float(edges[-1]) * q_high, 0.0) + 4 * mass_error * p_high
    )
    zero_mass = max(q_low - p_low / float(edges[0]), 0.0) + 4 * mass_error * q_low
    # From the second node on either side, all that is beyond it.
    p_masses, slack = edges * masses, 4 * (mass_error + ratio_error)
    for law, tail, held in (
        ("P, above", p.above(noise[-2]), infinity_mass + float(p_masses[-2:].sum())),
        ("Q, above", q.above(noise[-2]), float(masses[-2:].sum())),
        ("P, below", p.below(noise[1]), float(p_masses[:2].sum())),
        ("Q, below", q.below(noise[1]), zero_mass + float(masses[:2].sum())),
    ):
        conservation.check_held(law, held, tail, slack)
    found = dominating_pair.DominatingPair(
        edges,
        masses,
        infinity_mass=infinity_mass + rest[0],
        zero_mass=zero_mass + rest[1],
        bound=bound,
        mass_error=mass_error,
        ratio_error=ratio_error,
    )
    return found.as_close_as(whole_laws.Closeness(1.01 * (mass_error + ratio_error)))


def _ends(p: Mixture, q: Mixture, tail: float) -> tuple[float, float]:
    """Returns between what values of the noise the grid lies, nan for nowhere.

    Losses beyond ±690 do not fit a float as ratios, and where either law has next to
    no density its masses do not fit one: both are tail, whatever the other law has.
    """
    points = np.linspace(q.lowest() + tail, p.highest() - tail, 1 << 9)
    (log_p, _), (log_q, _) = p.log_densities(points), q.log_densities(points)
    rarer = np.where(points > 0, log_q, log_p) - points**2 / 2
    fits = np.maximum(np.abs(log_p - log_q), -rarer) <= floats.LARGEST_LOSS
    within = points[fits]
    return (float(within[0]), float(within[-1])) if within.size else (math.nan, 0.0)


def _cells(
    p: Mixture, q: Mixture, noise: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Returns what lies in the cells between equally spaced values of the noise.

    Args:
        p: P.
        q: Q.
        noise: (n + 1,) values.

    Returns:
        (n + 1,) ratios of P's density to Q's; (n,) Q-masses; (n,) means under Q of
        ratio / ratio at the left end − 1; and (n,) that quotient at the right end.
    """
    # A difference of neighbors is off by a rounding of either. Growths forgive it;
    # masses do not, as it is the same in all cells.
    half = np.diff(noise) / 2
    steps = [*(half[0] * (1 + _NODES)), 2 * half[0]]
    log_p, rises = p.log_densities(noise, steps)
    log_q, falls = q.log_densities(noise, steps)
    rises, falls = rises[:, :-1], falls[:, :-1]
    middle = noise[:-1] + half
    masses, excess = np.zeros((2, half.size))
    for node, weight, rise, fall in zip(_NODES, _WEIGHTS, rises, falls, strict=False):
        offset = half * node
        density = weight * np.exp(-offset * (middle + offset / 2))
        masses += density * (1 + fall)
        excess += density * (rise - fall)
    excess /= masses
    masses *= half * np.exp(log_q[:-1] - middle**2 / 2) / math.sqrt(2 * math.pi)
    span = (rises[-1] - falls[-1]) / (1 + falls[-1])
    return np.exp(log_p - log_q), masses, excess, span
