"""Gaussian noise around one shift or a random one: pairs, and closed forms of δ and ε.

A law of shifts is a tuple of (shift, weight): that of N(shift, 1) with a random shift.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import optimize
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import shifts

Shifts = shifts.Shifts

# Certified: the relative error of a mass by quadrature with three nodes is at most this
# times the sixth power of the exponent's growth over the cell.
_QUADRATURE = 5e-7
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)

# Tuning, all of these constants.
# Where there would be more points than this, they are up to 1.5 times as far apart.
# Brackets of δ are still less than 1e-4 of it wide at δ = 1e-290.
_MANY_POINTS = 60_000
# The noise of one step is cut into so many cells (`NormalCells`). With half as many,
# brackets of groups and of replaced records are 5 to 60 % wider.
_STEP_CELLS = 2048

# Certified: `floats.normal_tail_error` is assumed up to this many standard deviations.
FURTHEST = 37.0
# A limit of time and memory: shifts further apart have the trivial pair.
_LONGEST_REACH = 200.0


def dominating_pair_of(
    noise_multiplier: float, bound: Bound, *, tail_mass: float
) -> dominating_pair.DominatingPair:
    """Returns a certified pair of the Gaussian mechanism with sensitivity one.

    Args:
        noise_multiplier: The standard deviation over the sensitivity, positive.
        bound: The side, as in `of_mixtures`.
        tail_mass: The probability outside of the grid at either end.
    """
    return of_mixtures(
        ((1 / noise_multiplier, 1.0),), shifts.UNSHIFTED, bound, tail_mass=tail_mass
    )


def of_mixtures(
    p: Shifts,
    q: Shifts,
    bound: Bound,
    *,
    tail_mass: float,
    rest: tuple[float, float] = (0.0, 0.0),
    start: float | None = None,
    cells: int = accuracy.CELLS,
) -> dominating_pair.DominatingPair:
    """Returns a certified pair of two mixtures of shifted Gaussians.

    No shift of P is below a shift of Q, so that the likelihood ratio increases. Masses
    are sums of positive terms (Gauss–Legendre quadrature), never differences of
    distribution functions. The error of the quadrature, w⁶ / 2,000,000 in a cell over
    which the exponent grows by w, is part of the masses' error.

    Args:
        p: The law P, with shifts of at least 0, in standard deviations of the noise.
        q: The law Q, with shifts of at most 0.
        bound: The side. An upper pair splits each cell of the noise between its ends, a
            lower one merges it at its mean.
        tail_mass: The probability outside of the grid at either end, at least 1e-300.
        rest: The probabilities that the weights of P and of Q leave out. The shifts
            that are left out may have any size.
        start: A value of the noise from which on the ratio increases, if shifts of Q
            may be above zero. Below it the ratio is at most that at `start`, which is
            one up to rounding. An upper pair holds everything below in its first atom,
            and bounds H_κ(P‖Q) for κ ≥ 1 alone.
        cells: The number of cells in a scale of what the pair is composed to.

    Returns:
        A pair with some thousand atoms, from equally spaced noise. Losses beyond ±690
        nats, whose ratios do not fit a float, are tails. If shifts are more than 200
        apart it is the trivial pair.

    Raises:
        ValueError: If a shift of P is negative, or one of Q positive, and `start` is
            None.

    Source:
        Zhu et al. 2022, https://arxiv.org/abs/2106.08567, for pairs;
        Doroshenko et al. 2022, https://arxiv.org/abs/2207.04380, for splitting.
    """
    if start is None:
        shifts.check_order(p, q)
    reach = max(p)[0] - min(q)[0]
    if reach > _LONGEST_REACH:
        return dominating_pair.trivial_pair(bound)
    low, high = _ends(p, q, float(special.ndtri(tail_mass)))
    if start is not None and bound is Bound.UPPER:
        low = max(low, start)
    if not low < high:
        return dominating_pair.trivial_pair(bound)
    size = max(abs(low), abs(high)) + reach
    # How much the exponents of densities may grow from one end to the other.
    growth = (high - low) * size
    points = max(accuracy.OUTPUT_CELLS, min(24 * growth, _MANY_POINTS), 16 * growth)
    points *= min(cells / accuracy.CELLS, 1.0)
    noise = np.linspace(low, high, math.ceil(points) + 1)
    terms = len(p) + len(q)
    of_weights = shifts.weight_error(p) + shifts.weight_error(q)
    mass_error = floats.normal_tail_error(size) + 2 * terms * floats.UNIT_ROUNDOFF
    mass_error += of_weights + _QUADRATURE * (growth / (noise.size - 1)) ** 6
    # From the exponents of ratios. The ratios of tails have the error of masses; these
    # masses are at most `tail_mass`.
    ratio_error = (32 + 10 * reach * size + 2 * terms) * floats.UNIT_ROUNDOFF
    ratio_error += of_weights

    edges, masses, excess, span = _cells(p, q, noise)
    q_low, p_low = _tail(q, low, -1), _tail(p, low, -1)
    q_high, p_high = _tail(q, high, 1), _tail(p, high, 1)
    if bound is Bound.LOWER:
        if max(p_high, q_low) > 1e-2:
            # A lower pair drops these tails: no divergence would be left.
            return dominating_pair.trivial_pair(bound)
        means = edges[:-1] * (1 + excess)
        # If P has little mass beyond the grid, both laws lose it. Otherwise its ratio
        # is lowered, which gives a lower bound of H(P‖Q) only.
        if p_high > 4 * tail_mass and q_high > floats.SMALLEST_MASS:
            lowered = (1 - 4 * mass_error) * p_high / q_high
            means, masses = np.append(means, lowered), np.append(masses, q_high)
        return shifts.lower_pair(means, masses, mass_error, ratio_error)
    masses = shifts.split(masses, excess, span)
    masses[0] += p_low / edges[0]
    masses[-1] += q_high
    # These are differences, with the error of what is subtracted from.
    infinity_mass = (
        max(p_high - float(edges[-1]) * q_high, 0.0) + 4 * mass_error * p_high
    )
    zero_mass = max(q_low - p_low / float(edges[0]), 0.0) + 4 * mass_error * q_low
    p_masses, slack = edges * masses, 4 * (mass_error + ratio_error)
    _check_tails(
        p,
        noise,
        (float(p_masses[:2].sum()), float(p_masses[-2:].sum()) + infinity_mass),
        slack,
    )
    _check_tails(
        q, noise, (float(masses[:2].sum()) + zero_mass, float(masses[-2:].sum())), slack
    )
    if start is not None:
        # Below `start` the ratio is at most one.
        edges[0] = min(edges[0], 1.0)
    return dominating_pair.DominatingPair(
        edges,
        masses,
        infinity_mass=infinity_mass + rest[0],
        zero_mass=zero_mass + rest[1],
        bound=bound,
        mass_error=mass_error,
        ratio_error=ratio_error,
    )


def _check_tails(
    law: Shifts, noise: FloatArray, held: tuple[float, float], slack: float
) -> None:
    """Checks that a pair holds a law's tails from the second node on either side.

    Args:
        law: The law of the shift.
        noise: The nodes.
        held: The masses that hold the lower and the upper tail, with a sink.
        slack: Bound on the relative error of these masses.

    Raises:
        MassError: If a tail has more mass.
    """
    tails = _tail(law, noise[1], -1), _tail(law, noise[-2], 1)
    for side, tail, mass in zip(("lower", "upper"), tails, held, strict=True):
        # Floats have fewer digits below the smallest mass.
        conservation.check_total(
            f"masses that hold the {side} tail of noise",
            mass,
            tail,
            slack * mass + floats.SMALLEST_MASS,
            more=math.inf,
        )


def _ends(p: Shifts, q: Shifts, tail: float) -> tuple[float, float]:
    """Returns the ends of the grid of the noise, or nan if there is none.

    Losses beyond ±690 nats do not fit a float as ratios. Where either law has hardly
    any density its masses underflow. Both are tails, whatever the other law has there.
    """
    low, high = min(q)[0] + tail, max(p)[0] - tail
    # No component is further away from a point than this.
    furthest = max(abs(low), abs(high)) + max(p)[0] - min(q)[0]
    rarest = max(min(weight for _, weight in (*p, *q)), floats.SMALLEST_MASS)
    if furthest**2 / 2 - math.log(rarest) < floats.LARGEST_LOSS - 1:
        return low, high
    points = np.linspace(low, high, 1 << 9)
    (log_p, _), (log_q, _) = _log_densities(p, points), _log_densities(q, points)
    rarer = np.where(points > 0, log_q, log_p) - points**2 / 2
    fits = np.maximum(np.abs(log_p - log_q), -rarer) <= floats.LARGEST_LOSS
    within = points[fits]
    return (float(within[0]), float(within[-1])) if within.size else (math.nan, 0.0)


def _tail(law: Shifts, point: float, sign: int) -> float:
    """Returns the probability of noise above a point (sign 1), or below it (−1)."""
    return sum(w * float(special.ndtr(sign * (s - point))) for s, w in law)


def _log_densities(
    law: Shifts, points: FloatArray, steps: Sequence[float] = ()
) -> tuple[FloatArray, FloatArray]:
    """Returns densities relative to N(0, 1) at points, and their growth from there.

    The exponential for a shift and a point is a product of two: one for the beginning
    of a block of points, and one for the place within the block. So a matrix product
    computes all of them.

    Args:
        law: The law of the shift.
        points: (n,) equally spaced values of the noise, at least two.
        steps: s distances from each point.

    Returns:
        (n,) logarithms of the relative densities; and for each of the s distances the
        (n,) relative growths, minus 1. They are sums of terms of one sign if all shifts
        have one sign.
    """
    slopes, weights = np.array(law).T
    step = points[1] - points[0]
    # A density grows by at most e^8 within a block.
    length = int(np.clip(8 / (np.abs(slopes).max() * step + 1e-300), 1, 32))
    exponents = np.log(weights) - slopes**2 / 2
    exponents = exponents + np.multiply.outer(points[::length], slopes)
    largest = exponents.max(axis=1, keepdims=True)
    within = np.exp(np.multiply.outer(slopes, step * np.arange(length)))
    growths_of_shifts = np.expm1(np.multiply.outer([*steps], slopes))
    factors = np.vstack([np.ones(slopes.size), growths_of_shifts])
    # Products of subnormal numbers are slow, and negligible beside 1.
    terms = np.exp(np.maximum(exponents - largest, -floats.LARGEST_LOSS))
    # A few rows at a time, so that BLAS wakes no threads.
    blocks = np.array_split(terms, 1 + terms.size * length // (1 << 17))
    products = factors[:, :, np.newaxis] * within
    table = np.concatenate([rows @ products for rows in blocks], axis=1)
    logs = (np.log(table[0]) + largest).reshape(-1)
    growths = (table[1:] / table[0]).reshape(len(steps), logs.size)
    return logs[: points.size], growths[:, : points.size]


def _cells(
    p: Shifts, q: Shifts, noise: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Returns ratios and masses of cells between equally spaced values of the noise.

    Args:
        p: The law P.
        q: The law Q.
        noise: (n + 1,) values of the noise.

    Returns:
        (n + 1,) ratios of P's density to Q's; (n,) Q-masses; (n,) means under Q of
        ratio / (ratio at the left end) − 1; and (n,) values of this at the right end.
    """
    # The width of a cell has a rounding error. For growths one common width is good
    # enough. Masses use the width of each cell, as the error of a common one would be
    # the same in all cells.
    half = np.diff(noise) / 2
    steps = [*(half[0] * (1 + _NODES)), 2 * half[0]]
    log_p, rises = _log_densities(p, noise, steps)
    log_q, falls = _log_densities(q, noise, steps)
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


def delta(mean: float, epsilon: float, bound: Bound) -> float:
    """Returns δ of N(mean, 1) against N(0, 1) at ε, by its closed form.

    δ(ε) = Φ(m/2 − ε/m) − e^ε Φ(−m/2 − ε/m). It is computed in logarithms, so that a
    large ε and a small δ stay in the range of floats.

    Args:
        mean: The mean m > 0: the sensitivity over the standard deviation.
        epsilon: ε, in nats.
        bound: The side of the bound.

    Source:
        Balle and Wang 2018, https://arxiv.org/abs/1805.06530, Theorem 8.
    """
    sign = 1 if bound is Bound.UPPER else -1
    if epsilon == 0:
        # Φ(m/2) − Φ(−m/2), which has all its digits however small it is.
        value = math.erf(mean / math.sqrt(8)) * (1 + sign * 16 * floats.UNIT_ROUNDOFF)
    else:
        value = math.exp(min(_log_delta(mean, epsilon, bound), 0.0))
    # The allowance is relative; a subnormal δ may be off by a few units more.
    return min(max(value + sign * 4 * 5e-324, 0.0), 1.0)


def _log_delta(mean: float, epsilon: float, bound: Bound) -> float:
    """Returns ln δ at ε, rounded to the side of the bound.

    With t = m/2 − ε/m and x = m − t, e^ε Φ(−x) = φ(t) R(x), where R is Mills's ratio.
    In this form no term is as large as ε or m², which are huge if the noise is small.
    """
    sign = 1 if bound is Bound.UPPER else -1
    slack = 64 * floats.UNIT_ROUNDOFF
    place, beyond = mean / 2 - epsilon / mean, mean / 2 + epsilon / mean
    if place == -math.inf:
        return place
    # A bound on the error of t, which is a difference of two rounded terms.
    shift = sign * 4 * floats.UNIT_ROUNDOFF * (mean / 2 + abs(epsilon) / mean)
    first = float(special.log_ndtr(place + shift))
    if first == -math.inf:
        return first
    first += sign * slack * (1 + abs(first))
    if beyond >= 0:
        mills = math.sqrt(math.pi / 2) * float(special.erfcx(beyond / math.sqrt(2)))
        # Beyond 1e150, φ(t) is below every float and t² above every float.
        furthest = min(max(abs(place) + shift, 0.0), 1e150)
        second = math.log(mills) - (furthest**2 + math.log(2 * math.pi)) / 2
    else:
        second = epsilon + float(special.log_ndtr(-beyond))
    second -= sign * slack * (1 + abs(second) + max(-epsilon, 0.0))
    difference = -math.expm1(min(second - first, 0.0))
    return first + math.log(difference) if difference > 0 else -math.inf


def epsilon(mean: float, delta: float, bound: Bound) -> float:
    """Returns ε ≥ 0 of N(mean, 1) against N(0, 1) at δ, from its closed form.

    Args:
        mean: The mean m > 0: the sensitivity over the standard deviation.
        delta: δ, in (0, 1).
        bound: The side of the bound.

    Returns:
        ε, in nats.

    Source:
        Balle and Wang 2018, https://arxiv.org/abs/1805.06530, Theorem 8.
    """
    goal = math.log(delta)

    def excess(candidate: float) -> float:
        return max(_log_delta(mean, candidate, bound), -1e300) - goal

    if excess(0.0) <= 0:
        return 0.0
    high = mean * (mean / 2 + math.sqrt(-2 * goal))
    while excess(high) > 0:
        high *= 2
    root = float(
        optimize.brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-14, disp=False)
    )
    # The result is near the root. Move it to the safe side until δ shows that it is.
    is_upper = bound is Bound.UPPER
    nudge = 1e-14 if is_upper else -1e-14
    while (excess(root) > 0) is is_upper:
        root += nudge * root
        nudge *= 2
    return max(root, 0.0)


@dataclasses.dataclass(frozen=True)
class NormalCells:
    """Cells of the noise of one step, and their probabilities.

    Attributes:
        ends: (n + 1,) ends of the cells.
        masses: (k, n) probabilities of the cells under N(shift, 1), one row per shift.
        above: (k,) upper bounds on the probabilities above the last end.
        mass_error: A bound on the relative error of any mass.
    """

    ends: FloatArray
    masses: FloatArray
    above: FloatArray
    mass_error: float

    @classmethod
    def of(cls, shifts: Sequence[float], low: float, high: float) -> "NormalCells":
        """Returns cells between two values. Masses are differences of the nearer tails.

        Args:
            shifts: (k,) shifts, none more than `FURTHEST` away from either end.
            low: The beginning of the first cell.
            high: The end of the last cell.
        """
        ends = np.linspace(low, high, _STEP_CELLS + 1)
        places = ends - np.array(shifts)[:, np.newaxis]
        below, above = special.ndtr(places), special.ndtr(-places)
        is_above = places[:, :-1] > 0
        masses = np.where(is_above, -np.diff(above), np.diff(below))
        sizes = np.where(
            is_above, above[:, :-1] + above[:, 1:], below[:, :-1] + below[:, 1:]
        )
        furthest = np.maximum(np.abs(places[:, :-1]), np.abs(places[:, 1:]))
        # The argument of a tail probability was rounded.
        rounded = 2 * (1 + furthest) * furthest * floats.UNIT_ROUNDOFF
        errors = (floats.normal_tail_error(furthest) + rounded) * sizes / masses
        error = float(errors.max()) + 16 * floats.UNIT_ROUNDOFF
        return cls(ends, masses, floats.raised(1.0) * above[:, -1], error)
