"""Rényi divergences of random allocation of the Gaussian mechanism."""

from collections.abc import Sequence
import functools
import math

import numpy as np
from scipy import special

from dp_accounting_ext.renyi import divergence
from dp_accounting_ext.renyi import lognormal
from dp_accounting_ext.renyi import trapezoid

FloatArray = divergence.FloatArray

# Relative error of a quadrature, e^-45; so far down its integrand is cut off.
_LOG_ERROR = -45.0
# Relative error of the closed form at the lower end, e^-28.
_LOG_LOWER_ERROR = -28.0
# The quadrature is for α − 1 up to so many t σ², and σ from the least one on.
_STEEPEST = 300.0
_LEAST_NOISE = 0.1
# Orders that share one lattice.
_BANDS = (8.0, 64.0, divergence.HIGHEST_ORDER)


def allocation_rdp(
    orders: Sequence[float], noise: float, num_selected: int, num_steps: int
) -> FloatArray:
    """Returns the RDP of `num_selected` uniformly chosen steps of `num_steps`.

    Several steps are bounded by one step in each of k blocks of ⌊t/k⌋ or ⌈t/k⌉ steps,
    t in all; that is exact for one step, and for all steps. The larger direction of
    the whole is taken last.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        noise: σ of every step.
        num_selected: k.
        num_steps: t ≥ k.

    Returns:
        A read-only array.

    Guarantees:
        No entry is below the truth.
    """
    return _allocation_rdp(
        tuple(float(order) for order in orders),
        divergence.noise_within_range(noise),
        int(num_selected),
        int(num_steps),
    )


@functools.lru_cache(maxsize=64)
def _allocation_rdp(
    orders: tuple[float, ...], noise: float, num_selected: int, num_steps: int
) -> FloatArray:
    if noise == 0:
        result = np.full(len(orders), np.inf)
    else:
        size, longer = divmod(num_steps, num_selected)
        total = np.zeros((2, len(orders)))
        for steps, count in ((size, num_selected - longer), (size + 1, longer)):
            if count:
                total += count * both_directions(orders, noise, steps)
        result = total.max(axis=0)
    result.setflags(write=False)
    return result


def both_directions(
    orders: Sequence[float], noise: float, num_steps: int
) -> FloatArray:
    """Returns the RDP of one step of t: a row for removing, one for adding.

    Z = (X_1 + … + X_t)/t is the likelihood ratio, each X_i the ratio of one step.

    Args:
        orders: Rényi orders α ≥ 1.
        noise: σ > 0.
        num_steps: t.

    Guarantees:
        Neither row is below the truth. Removing is exact at integer orders up to 4096,
        and below 2 where σ ≥ 0.1; in between it is the chord of log Ψ_α, a convex
        function of α. Adding is exact for σ ≥ 0.1 and α − 1 ≤ 300 t σ²; elsewhere, and
        where it is below the removing row anyhow, it is the geometric mean's bound.
    """
    plain = np.array([divergence.gaussian_rdp(1 / noise, order) for order in orders])
    if num_steps == 1:
        return np.stack([plain, plain])
    rows = np.stack(
        [
            np.minimum(plain, _chords(orders, noise, num_steps)),
            geometric_mean_rdp(orders, noise, num_steps),
        ]
    )
    if noise < _LEAST_NOISE:
        return rows
    lower = 0.0
    for upper in _BANDS:
        wanted = [
            (row, place)
            for place, order in enumerate(orders)
            if lower < order <= upper and order - 1 <= _STEEPEST * num_steps * noise**2
            for row in (0, 1)
            if order < 2 or (row == 1 and rows[1, place] > rows[0, place])
        ]
        for (row, place), value in zip(
            wanted,
            _exact(
                [(row == 0, orders[place]) for row, place in wanted], noise, num_steps
            ),
            strict=True,
        ):
            rows[row, place] = min(rows[row, place], value)
        lower = upper
    return rows


def geometric_mean_rdp(
    orders: Sequence[float], noise: float, num_steps: int
) -> FloatArray:
    """Returns a bound for the adding direction: (1 + (α − 1)/t) / 2σ².

    The arithmetic mean Z is at least the geometric one, so that
    E Z^{1−α} ≤ (E X^{−(α−1)/t})^t, and E X^{−s} = e^{s(s+1)/2σ²}. Exact for t = 1.

    Args:
        orders: Rényi orders α.
        noise: σ > 0.
        num_steps: t.
    """
    slopes = (np.array(orders) - 1) / num_steps
    bound: FloatArray = (1 + slopes) / (2 * noise**2)
    return bound


def _chords(orders: Sequence[float], noise: float, num_steps: int) -> FloatArray:
    """Returns the removing direction from integer orders; inf above the highest.

    log Ψ_α is convex in α, and 0 at α = 1, so that a chord is above it.
    """
    result = np.full(len(orders), np.inf)
    within = [order for order in orders if order <= divergence.HIGHEST_ORDER]
    needed = {math.floor(order) for order in within} | {
        max(math.ceil(order), 2) for order in within
    }
    moments = log_remove_moments(needed - {1}, noise, num_steps) | {1: 0.0}
    for place, order in enumerate(orders):
        if order <= divergence.HIGHEST_ORDER:
            order = max(order, divergence.LOWEST_ORDER)
            below = math.floor(order)
            share = order - below
            moment = (1 - share) * moments[below]
            if share:
                moment += share * moments[below + 1]
            result[place] = divergence.rdp_from_moment(moment, order)
    return result


def log_remove_moments(
    orders: set[int], noise: float, num_steps: int
) -> dict[int, float]:
    """Returns log E Z^α, the removing direction, for integer orders α ≥ 2, exactly.

    E Z^α = t^{−α} α! [s^α] (Σ_j E X^j s^j / j!)^t, E X^j = e^{j(j−1)/2σ²}, regrouped so
    that all terms are positive and those that make Z differ from 1 are summed alone:
    E Z^α − 1 = Σ_{j≥2} α (α − 1) … (α − j + 1) c_j, where j! c_j is the central moment
    of Z, j c_j = Σ_{k≥2} (κ_k/(k − 1)!) c_{j−k}, and the cumulant κ_k of Z is that of
    X over t^{k−1}. The time does not depend on t.

    Args:
        orders: Integers from 2 on.
        noise: σ > 0.
        num_steps: t.

    Source:
        https://arxiv.org/abs/2502.08202: the direct formula for the removing direction.
    """
    if not orders:
        return {}
    highest = max(orders)
    degrees = np.arange(highest)
    # Entry k − 1 is log κ_k/(k − 1)!.
    cumulants = _log_cumulants(highest, noise) - degrees * math.log(num_steps)
    central = np.full(highest + 1, -np.inf)
    central[0] = 0.0
    for n in range(2, highest + 1):
        terms = cumulants[1:n] + central[n - 2 :: -1][: n - 1]
        central[n] = divergence.log_sum(terms) - math.log(n)
    return {
        order: float(
            np.logaddexp(
                0.0,
                divergence.log_sum(_log_falling(order)[2:] + central[2 : order + 1]),
            )
        )
        for order in orders
    }


@functools.lru_cache(maxsize=16)
def _log_cumulants(highest: int, noise: float) -> FloatArray:
    """Returns log κ_k/(k − 1)! of X = dP/dQ under Q, k = 1, …, highest.

    E X^n = q^{n(n−1)/2}, q = e^{1/σ²}, counts graphs on n vertices with weight q − 1 an
    edge, so κ_n counts the connected ones: (q − 1)^{n−1} I_n(q), I_n the inversion
    enumerator of trees (Mallows and Riordan 1968), and
    I_n = Σ_k C(n − 2, k − 1) (1 + q + … + q^{k−1}) I_k I_{n−k}: all terms positive.
    """
    rate = noise**-2
    log_gap = rate + math.log(-math.expm1(-rate))
    counts = np.arange(1, highest + 1)
    log_sums = rate * counts + np.log(-np.expm1(-rate * counts)) - log_gap
    trees = np.zeros(highest)
    for n in range(2, highest + 1):
        terms = log_sums[: n - 1] + trees[: n - 1] + trees[n - 2 :: -1]
        trees[n - 1] = divergence.log_sum(terms) - math.log(n - 1)
    cumulants: FloatArray = trees + (counts - 1) * log_gap
    return cumulants


def _log_falling(order: int) -> FloatArray:
    """Returns log of α (α − 1) … (α − j + 1) for j = 0, …, α, from exact integers."""
    logs, product = [0.0], 1
    for count in range(order):
        product *= order - count
        logs.append(math.log(product))
    return np.array(logs)


def _exact(
    wanted: Sequence[tuple[bool, float]], noise: float, num_steps: int
) -> list[float]:
    """Returns the RDP in a direction (removing, or adding) at an order, of each item.

    Removing takes the power α of Z under Q, adding the power 1 − α.
    """
    if not wanted:
        return []
    items = [(removing, max(a, divergence.LOWEST_ORDER)) for removing, a in wanted]
    powers = [order if removing else 1 - order for removing, order in items]
    result = []
    for (_, order), value in zip(
        items, log_scaled_moments(powers, noise, num_steps), strict=True
    ):
        moment = divergence.log_moment_from_excess(value + math.log(order), order)
        result.append(divergence.rdp_from_moment(moment, order))
    return result


def log_scaled_moments(
    powers: Sequence[float], noise: float, num_steps: int
) -> list[float]:
    """Returns log (E Z^p − 1) / (p (p − 1)) for powers p < 2, limits at 0 and 1.

    Γ(2 − p) times it is ∫ e^{−pv} B(e^v) dv over the line, where
    B(u) = E e^{−uZ} − e^{−u} = e^{−u} ((E e^{−(u/t)(X − 1)})^t − 1): the Gamma
    integrals of z^p, or of z^p − 1 − p (z − 1), with the mean of Z − 1, which is zero,
    left out.

    Args:
        powers: Real numbers below 2.
        noise: σ.
        num_steps: t.

    Guarantees:
        B(u) = u² ∫ e^{−uw} D(w) dw with D(w) = E (Z − w)_+ − (1 − w)_+ ≥ 0. So
        |B(u e^{iη})| ≤ B(u cos η) / cos² η, which bounds the growth at height η by
        cos^{p−2} η; and B(u) ≤ u² Var Z / 2, which replaces it at the lower end. The
        upper end is cut where e^{−pv} E e^{−uZ}, log-concave in v, has fallen by e^-45.
    """
    steepest = 2 - min(powers)

    def log_growth(heights: FloatArray) -> FloatArray:
        bent: FloatArray = -steepest * np.log(np.cos(heights))
        return bent

    step = trapezoid.largest_step(log_growth, math.pi / 2, _LOG_ERROR)
    log_variance, first = _lower_end(noise, num_steps, step)
    points, logs = _log_integrand(powers, noise, num_steps, step, first)
    result = []
    for power in powers:
        slope = 2 - power
        below = slope * first * step - math.log(math.expm1(slope * step))
        total = np.logaddexp(
            divergence.log_sum(logs - power * points),
            below + log_variance - math.log(2),
        )
        result.append(float(total + math.log(step) - special.gammaln(slope)))
    return result


def _lower_end(noise: float, num_steps: int, step: float) -> tuple[float, int]:
    """Returns log Var Z, and the lattice point below which B(u) is u² Var Z / 2.

    The relative error of that is at most u (E Z³ − 1) / (3 Var Z), which is
    u (1 + x (3 + x) / 3t) with x = Var X.
    """
    rate = noise**-2
    log_x = rate + math.log(-math.expm1(-rate))
    log_skew = log_x + np.logaddexp(math.log(3), log_x) - math.log(3 * num_steps)
    end = _LOG_LOWER_ERROR - np.logaddexp(0.0, log_skew)
    return log_x - math.log(num_steps), math.floor(end / step)


def _log_integrand(
    powers: Sequence[float], noise: float, num_steps: int, step: float, first: int
) -> tuple[FloatArray, FloatArray]:
    """Returns lattice points v from `first` on, and log B(e^v) there."""
    extremes = np.array([min(powers), max(powers)])
    peaks = np.full(2, -np.inf)
    points, logs = [], []
    place = first
    while True:
        point = place * step
        decay, gap = lognormal.log_transform(point - math.log(num_steps), noise)
        share = -math.expm1(-num_steps * gap)
        value = -num_steps * decay + (math.log(share) if share else -math.inf)
        points.append(point)
        logs.append(value)
        peaks = np.maximum(peaks, value - extremes * point)
        largest_left = -num_steps * decay - extremes * point
        if point > 0 and np.all(largest_left < peaks + _LOG_ERROR):
            return np.array(points), np.array(logs)
        place += 1
