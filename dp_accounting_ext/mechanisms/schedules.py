"""Schedules: many runs of sampled Gaussian noise, each with another noise multiplier.

Hundreds of different mechanisms are bounded by a few, in cells of their shifts s = 1/σ.
Write G_s for Gaussian noise with a record that shifts it by s, and δ_s(ε) for its
divergence H(N(s, 1) ‖ N(0, 1)) at any real ε. As ∂δ_s/∂s = φ(s/2 − ε/s), with
u(s) = 2 Φ(s/2) − 1,

    ∂δ_s/∂u = exp(ε/2 − ε² / (2 s²)),                                         (1)

which increases in s. So δ_s is convex in u, and for a < s < b

    δ_s ≤ (1 − r) δ_a + r δ_b  at every ε,  r = (u(s) − u(a)) / (u(b) − u(a)):

G_s is dominated by a public coin that decides between G_a and G_b. From below, by (1),

    δ_s ≥ (1 − λ) δ_a + λ δ_b  for |ε| ≤ E,
    λ = ∫_a^s exp(−E² / (2 t²)) du(t) / ∫_a^b exp(−E² / (2 t²)) du(t),

as this share falls where |ε| grows.

Let T_b be G_b with outputs above z, and below b − z, each released as one. Then no loss
of T_b is beyond ±E_b, where E_b = b z − b²/2 − ln(1 − b/z), since the excess of a
normal variable above z is smaller than an exponential one with the rate z. With
E = E_b, and T_a alike, a coin with λ between T_a and T_b is dominated by G_s: beyond ±E
neither reveals anything that the other bound on δ_s, (1 − e^ε)_+, does not.

An inequality that holds at every real ε means that one pair is made of the other by
post-processing. Sampling a record first keeps this, and so does composition.

Runs in one cell have different r. Of n independent coins with probabilities r_i, the
number of heads is stochastically at most that of n coins with one probability,
1 − (Π (1 − r_i))^{1/n}, and at least that of n coins with (Π r_i)^{1/n}. Runs with more
heads dominate those with fewer: G_b does G_a, and T_b does T_a if E_a is at most the
loss of b at z. So each part of a cell is one mechanism with a count.

Source:
    https://arxiv.org/abs/1905.02383, Corollary 2.13 (δ_s of Gaussian noise). The coins
    are those of Pledger and Proschan 1971, Comparisons of order statistics (sums of
    independent coins, by their hazards).
"""

import collections
from collections.abc import Mapping
import dataclasses
import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
Mechanism = interface.Mechanism

# Tuning, all of these constants.
# A schedule of more different mechanisms than this has up to half more cells. Of so
# many runs with the largest shifts, to which tails are due, each has one of its own.
_CELLS, _PLACES, _ALONE = 160, 64, 32
# Cells are this much wider at either end than their runs need, relatively: coins that
# are nearly certain have no good common bound.
_MARGINS = {Bound.UPPER: 0.7, Bound.LOWER: 0.4}
# Outputs of T_b are kept apart up to so many standard deviations above b. If these are
# fewer, rare outputs reveal less; if they are more, coins are less likely to be heads.
_KEPT = 6.5
# The number of intervals by which each integral of (1) is bounded.
_INTERVALS = 16
# Runs with other shifts are composed as they are.
_LEAST_SHIFT, _LARGEST_SHIFT = 1e-6, 4.0

# Certified: where shifts are at least the first number apart from the ends of a cell,
# relatively, and at most 4, quotients of differences of `erf` over a 16th of that have
# a relative error below the second number: 16 · 4 · 2^-53 / (1e-4 · 0.2) is 4e-10.
_NARROWEST, _ROUNDING = 1e-4, 1e-8


def is_scheduled(mechanism: Mechanism) -> bool:
    """Returns whether many mechanisms like this one, with other noise, become few."""
    return _step_of(mechanism) is not None


def in_cells(
    counts: Mapping[Mechanism, int], bound: Bound
) -> tuple[dict[Mechanism, int], list[tuple[dict[Mechanism, int], int]]]:
    """Returns mechanisms whose composition bounds another, with few for a schedule.

    Args:
        counts: The mechanisms to compose, none of which has parts, with counts.
        bound: The side of the bound.

    Returns:
        Mechanisms with counts; and for each schedule mechanisms with counts, all of
        which run together as often as the second number says.
    """
    if len(counts) <= _CELLS:
        return dict(counts), []
    single: dict[Mechanism, int] = {}
    schedules: dict[tuple[float, float], dict[float, int]] = {}
    for mechanism, count in counts.items():
        step = _step_of(mechanism)
        if step is None:
            single[mechanism] = count
        else:
            shift, absent, present = step
            schedules.setdefault((absent, present), {})[shift] = count
    repeated = []
    for (absent, present), runs in schedules.items():
        cells: dict[int, collections.Counter[Mechanism]] = {}
        for runs_of_cell in _bins(runs):
            size = sum(runs_of_cell.values())
            cell = _cell_of(absent, present, runs_of_cell, bound)
            cells.setdefault(size, collections.Counter())[cell] += 1
        for size, parts in cells.items():
            # What runs once, or is one cell, needs no composition of its own.
            if size > 1 and len(parts) > 1:
                repeated.append((dict(parts), size))
                continue
            for cell, number in parts.items():
                single[cell] = single.get(cell, 0) + size * number
    return single, repeated


def _step_of(mechanism: Mechanism) -> tuple[float, float, float] | None:
    """Returns the shift of a sampled Gaussian, and its weights without and with it."""
    if not isinstance(mechanism, additive_noise.GaussianMixture):
        return None
    if len(mechanism.p) != 2 or mechanism.q != additive_noise.UNSHIFTED:
        return None
    (zero, absent), (shift, present) = mechanism.p
    if zero or not absent or not _LEAST_SHIFT <= shift <= _LARGEST_SHIFT:
        return None
    return shift, absent, present


def _sampled(
    shift: float, absent: float, present: float
) -> additive_noise.GaussianMixture:
    """Returns Gaussian noise whose shift is drawn with probability `present`."""
    weights = ((0.0, absent), (shift, present))
    return additive_noise.GaussianMixture(weights, additive_noise.UNSHIFTED)


def _bins(runs: Mapping[float, int]) -> list[dict[float, int]]:
    """Returns runs, from shifts to counts, in bins of alike shifts.

    A bin has a power of two of runs: one where shifts are largest, and more of them
    where shifts are small or close to each other. A schedule of few shifts has a bin
    for each.
    """
    if len(runs) <= _CELLS:
        return [{shift: count} for shift, count in runs.items()]
    shifts = np.array(sorted(runs, reverse=True))
    ends = np.cumsum([runs[shift] for shift in shifts.tolist()])
    total = int(ends[-1])
    # What a bin loses is about the slope of a run's Rényi divergences, times
    # the number of runs, times the width. Widths make the sum of this least.
    places = np.linspace(0, total - 1, _PLACES + 1)
    shifts_at = shifts[np.searchsorted(ends, places, side="right")]
    slopes = shifts_at * np.exp(np.minimum(shifts_at**2, 2.0))
    density = np.sqrt(slopes[:-1] * -np.diff(shifts_at))
    density *= _PLACES * _CELLS / (density.sum() * total)
    bins = []
    begin = 0
    while begin < total:
        place = int(np.searchsorted(places, begin, side="right")) - 1
        longest = 1 / max(density[min(place, density.size - 1)], _CELLS / (8 * total))
        size = 1 << max(int(min(longest, total - begin)).bit_length() - 1, 0)
        size = size if begin >= _ALONE else 1
        first, last = np.searchsorted(ends, [begin, begin + size - 1], side="right")
        inside = ends[first : last + 1].clip(begin, begin + size)
        counts = np.diff(inside, prepend=begin)
        bins.append(
            dict(zip(shifts[first : last + 1].tolist(), counts.tolist(), strict=True))
        )
        begin += size
    return bins


def _cell_of(
    absent: float, present: float, runs: Mapping[float, int], bound: Bound
) -> Mechanism:
    """Returns a mechanism that bounds `runs`, shifts with counts, if run as often."""
    low, high = min(runs), max(runs)
    if low == high:
        return _sampled(low, absent, present)
    margin = max(_MARGINS[bound] * (high - low), _NARROWEST * high)
    low, high = max(low - margin, low / 2), high + margin
    counts = np.array(list(runs.values()), dtype=np.float64)
    coins = _coins(low, high, np.array(list(runs)), bound)
    below, above = (_sampled(shift, absent, present) for shift in (low, high))
    arguments = below, above, _one_coin(coins, counts, bound)
    return known_bounds.ByFunction(_pairs_of_cell, arguments, above.claims())


def _coins(low: float, high: float, shifts: FloatArray, bound: Bound) -> FloatArray:
    """Returns the probability of the higher shift, for each of n shifts between both.

    The integrals of (1) below and above a shift are at least and at most sums over
    intervals, as the integrand increases.
    """
    below = np.linspace(low, shifts, _INTERVALS + 1)
    above = np.linspace(shifts, high, _INTERVALS + 1)
    loss = _largest_loss(high, high + _KEPT) if bound is Bound.LOWER else 0.0

    def integrals(points: FloatArray, ends: FloatArray) -> FloatArray:
        areas = np.diff(special.erf(points / math.sqrt(8)), axis=0)
        integrand = np.exp(loss**2 / 2 * (high**-2 - ends**-2.0))
        return np.asarray((areas * integrand).sum(axis=0))

    area_below, area_above = integrals(below, below[:-1]), integrals(above, above[1:])
    share = area_below / (area_below + area_above)
    if bound is Bound.LOWER:
        return np.asarray(share * (1 - _ROUNDING))
    return np.asarray(np.minimum(share * (1 + _ROUNDING), 1.0))


def _one_coin(coins: FloatArray, counts: FloatArray, bound: Bound) -> float:
    """Returns one probability for n coins, with as many heads at least, or at most."""
    if bound is Bound.UPPER:
        with np.errstate(divide="ignore"):  # A coin may be certain.
            mean = float(np.log1p(-coins) @ counts) / float(counts.sum())
        return min(-math.expm1(mean) * (1 + _ROUNDING) + _ROUNDING, 1.0)
    with np.errstate(divide="ignore"):
        mean = float(np.log(coins) @ counts) / float(counts.sum())
    return math.exp(mean) * (1 - _ROUNDING)


def _largest_loss(shift: float, end: float) -> float:
    """Returns E, rounded up, for the shift s and the end z of the outputs of T_s."""
    return floats.raised(shift * end - shift**2 / 2 - math.log1p(-shift / end))


def _lower_end(shift: float, near: float, loss: float) -> float:
    """Returns an end z for the shift a, at which E is at most `loss`.

    Args:
        shift: a.
        near: A value of z, with which the logarithm in E is guessed.
        loss: The largest E.
    """
    end = (loss + shift**2 / 2 + math.log1p(-shift / near)) / shift
    while _largest_loss(shift, end) > loss:
        end -= 0.01
    return end


def _pairs_of_cell(
    low: additive_noise.GaussianMixture,
    high: additive_noise.GaussianMixture,
    weight: float,
    bound: Bound,
    accuracy: Accuracy,
) -> DirectedPairs:
    """Returns the pairs of one of two sampled Gaussians, by a public coin.

    From below, these are T_a and T_b in place of G_a and G_b.

    Args:
        low: G_a, sampled, with the smaller shift.
        high: G_b, sampled, with the larger shift.
        weight: The probability of the latter.
        bound: The side of the bound.
        accuracy: What the pairs are for.
    """
    of_low, of_high = (
        interface.pairs_of_part(part, bound, accuracy).remove for part in (low, high)
    )
    if bound is Bound.LOWER:
        (a, _), (b, _) = low.p[-1], high.p[-1]
        end_of_high = b + _KEPT
        loss_at_end = floats.lowered(b * end_of_high - b**2 / 2)
        end_of_low = _lower_end(a, end_of_high, loss_at_end)
        of_low = _with_ends_merged(of_low, low, end_of_low)
        of_high = _with_ends_merged(of_high, high, end_of_high)
    pair = dominating_pair.mixture([of_low, of_high], [1 - weight, weight])
    return DirectedPairs.same(pair)


def _with_ends_merged(
    pair: DominatingPair, mechanism: additive_noise.GaussianMixture, end: float
) -> DominatingPair:
    """Returns the lower pair of T_s, for which some outputs are released as one.

    Args:
        pair: A lower pair of a sampled Gaussian.
        mechanism: The sampled Gaussian, with the shift s.
        end: The end z. Outputs above z are one atom, and those below s − z are one.
    """
    (_, absent), (shift, present) = mechanism.p
    loss = shift * end - shift**2 / 2
    # Beyond these ratios, and in the cell that has either of them, outputs are one.
    ends = absent + present * np.exp(np.minimum([-loss, loss], floats.LARGEST_LOSS))
    first = int(np.searchsorted(pair.ratios, ends[0], side="right"))
    last = int(np.searchsorted(pair.ratios, ends[1])) - 1
    starts = np.array([0, *range(first + 1, last + 1)])
    masses = np.add.reduceat(pair.masses, starts)
    rounding = 2 * pair.ratios.size * floats.UNIT_ROUNDOFF
    return dataclasses.replace(
        pair,
        ratios=np.add.reduceat(pair.p_masses, starts) / masses,
        masses=masses,
        mass_error=pair.mass_error + rounding,
        ratio_error=pair.ratio_error + rounding,
    )
