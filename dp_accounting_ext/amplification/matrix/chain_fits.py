"""Gaussian Markov chains whose covariance is above that of bins on a circle.

G′ is above G if G′ − G is a positive semidefinite matrix R plus one with no negative
entry, N: more of what is known, and Kahane's inequality. On a line of bins R may be
Toeplitz, which asks that its symbol, a cosine sum, is nowhere negative. Where the
circle is cut, [[0, a bᵀ], [b aᵀ, 0]] is below diag(a aᵀ, b bᵀ): bins near the cut vary
more.
"""

from collections.abc import Iterator
import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import optimize

from dp_accounting_ext.kernel import floats

FloatArray = npt.NDArray[np.float64]

# Certified: between points of a grid of frequencies h apart a symbol is at most h² / 8
# times its largest second derivative below the least of both ends.
_MOST_FREQUENCIES = 1 << 20
_GOOD_SLACK = 1e-3  # Tuning: of the variance, to which a grid is refined.

# Tuning.
CORRELATIONS = np.concatenate([np.linspace(0.0, 0.9, 91), np.linspace(0.905, 0.98, 16)])
FINER = np.linspace(-0.01, 0.01, 41)  # Around the best: 0.4 % of ε for 64 bands.
_FEW_CORRELATIONS = np.concatenate(
    [np.linspace(0.3, 0.86, 15), [0.88, 0.9, 0.92, 0.94, 0.955, 0.97, 0.98]]
)
_CUTS = 24
# Exponents count so many times in the moment that decides: what matters where δ is
# small. Of 1, 1.5, 2 and 3 it was the best for v = 0.6, by 0.1 to 2 %, and better than
# 1 for v = 4 and 64 bands, by 2 %.
_ORDER = 2.0
# The wider sense asks for more variance: for 0.6 it gains 5 to 8 % of ε, for 2.5 it
# loses 3 %. Of few bins most are near a cut.
_MOST_VARIANCE, _FEWEST_BINS = 1.5, 8
_LAGS, _FREQUENCIES, _ROUNDS = 32, 160, 2  # Of the linear programs.
_SMALLEST_EXCESS, _MOST_EXCESS, _ENDS = 1e-3, 0.9, 64
_MOST_EXPONENT = 600.0


@dataclasses.dataclass(frozen=True)
class Fit:
    """A chain on a line of bins: G′_ij = v (A r^|i−j| + (1 − A) 1_{i=j}) and its ends.

    Attributes:
        variance: v.
        share: A, in [0, 1].
        correlation: r.
        length: Number of bins on the line.
        excess: e: v A e r^{i+j} is added to bins i and j away from one end, and alike
            at the other end.
    """

    variance: float
    share: float
    correlation: float
    length: int
    excess: float = 0.0

    @property
    def reach(self) -> int:
        """Number of bins from an end in which the excess counts."""
        if self.excess <= _SMALLEST_EXCESS:
            return 0
        steps = math.log(_SMALLEST_EXCESS / self.excess) / 2
        steps /= math.log(max(self.correlation, 1e-3))
        return min(math.ceil(steps), (self.length - 1) // 2)


def candidates(gram: FloatArray) -> list[Fit]:
    """Returns chains above the mean of b ratios, each the best in some respect.

    The mean over all b bins is the mean over all windows of l neighbours, on a circle,
    of the window's mean: by Jensen's inequality the worst window dominates it.

    Args:
        gram: (b, b) entries, rounded up, at least 0.
    """
    bins, variance = len(gram), float(gram.diagonal().max())
    around = largest_by_distance(gram, circle=True) / variance
    along = largest_by_distance(gram, circle=False) / variance
    best = [_above_everywhere(variance, around, along)]
    if variance > _MOST_VARIANCE or bins < _FEWEST_BINS:
        return best
    chains = [found[:3] for found in programs(around, variance)]
    wider = _best_cut(chains, variance, around, along)
    return best if wider is None else [*best, wider]


def largest_by_distance(gram: FloatArray, *, circle: bool) -> FloatArray:
    """Returns (b,) largest entries at each distance between two bins."""
    bins = len(gram)
    largest = np.zeros(bins)
    rows = np.arange(bins)
    for distance in range(bins):
        columns = (rows + distance) % bins
        values = gram[rows, columns]
        largest[distance] = (values if circle else values[: bins - distance]).max()
    return largest


def _above_everywhere(variance: float, around: FloatArray, along: FloatArray) -> Fit:
    """Returns the best chain that is above all entries of a window, with no excess."""
    bins = around.size
    cuts = {int(cut) for cut in np.geomspace(1, bins, _CUTS)}
    beyond = np.flatnonzero(around[1 : bins // 2 + 1] > 0)
    cuts.add(int(beyond[-1]) + 2 if beyond.size else 1)
    # A window of one bin is always one: what is known without amplification.
    best, least = Fit(variance, 0.0, 0.0, 1), math.inf
    tables = [along if cut == 1 else around[: bins - cut + 1] for cut in sorted(cuts)]
    for table in tables:
        for correlation in CORRELATIONS.tolist():
            best, least = _better(best, least, variance, table, correlation)
    near = best.correlation + FINER
    tables = [table for table in tables if table.size == best.length]
    for correlation in near[(near > 0) & (near < 1)].tolist():
        best, least = _better(best, least, variance, tables[0], correlation)
    return best


def _better(
    best: Fit, least: float, variance: float, table: FloatArray, correlation: float
) -> tuple[Fit, float]:
    """Returns the better of a chain and of that with this r, and its moment."""
    share = _share(table, correlation)
    if share > 1:
        return best, least
    found = Fit(variance, share, correlation, table.size)
    cost = moment(found, _ORDER)
    return (found, cost) if cost < least else (best, least)


def _best_cut(
    chains: list[tuple[float, float, float]],
    variance: float,
    around: FloatArray,
    along: FloatArray,
) -> Fit | None:
    """Returns the best of these chains and of the numbers of bins that are left out.

    Args:
        chains: r, A and the share of independent noise, each above the entries of the
            table at less than half of the circle.
        variance: What the shares are of.
        around: (b,) largest entries by distance on the circle.
        along: (b,) those where none is left out.
    """
    bins = around.size
    beyond = np.flatnonzero(around[1 : bins // 2 + 1] > 0)
    last = int(beyond[-1]) + 1 if beyond.size else 0
    best, least = None, math.inf
    for cut in sorted({0, *np.linspace(0, last, min(last, 12) + 1).astype(int)}):
        table = along if cut == 0 else around[: bins - cut]
        across = table[table.size // 2 + 1 :][::-1]
        for correlation, share, noise in chains:
            excess = _excess(across, share, correlation)
            if excess > _MOST_EXCESS or not share:
                continue
            whole = share + noise
            found = Fit(
                floats.raised(variance * whole),
                min(floats.raised(share / whole), 1.0),
                correlation,
                table.size,
                excess,
            )
            cost = moment(found, _ORDER)
            if cost < least:
                best, least = found, cost
    return best


def _excess(across: FloatArray, share: float, correlation: float) -> float:
    """Returns the least e with e A r^m ≥ all entries m bins from the cut, raised."""
    if not across.any():
        return 0.0
    return _share(np.append(0.0, across), correlation) * correlation / max(share, 1e-9)


def _share(table: FloatArray, correlation: float) -> float:
    """Returns the least A with A r^d ≥ ρ_d at all distances d ≥ 1, raised."""
    occupied = np.flatnonzero(table[1:] > 0) + 1
    if not occupied.size:
        return 0.0
    if correlation == 0:
        return math.inf
    logs = np.log(table[occupied]) - occupied * math.log(correlation)
    return floats.raised(floats.exponential(float(logs.max())))


def moment(chain: Fit, order: float) -> float:
    """Returns the variance of the mean, with exponents so many times as large."""
    power, length = order * chain.variance, chain.length
    distances = np.arange(1, length)
    covariances = chain.share * chain.correlation**distances
    cross = np.expm1(np.minimum(power * covariances, _MOST_EXPONENT))
    own = math.expm1(min(power, _MOST_EXPONENT))
    total = own + 2 * float(((1 - distances / length) * cross).sum())
    if chain.excess:
        places = np.arange(min(_ENDS, length // 2))
        powers = chain.share * chain.correlation ** abs(places[:, None] - places)
        powers[np.diag_indices_from(powers)] = 1.0
        ends = chain.correlation ** (places[:, None] + places)
        more = np.minimum(power * chain.share * chain.excess * ends, _MOST_EXPONENT)
        grown = np.minimum(power * powers, _MOST_EXPONENT)
        total += 2 * float((np.exp(grown) * np.expm1(more)).sum()) / length
    return total / length


def programs(
    around: FloatArray, variance: float
) -> Iterator[tuple[float, float, float, FloatArray]]:
    """Yields r, A, the noise and N of chains that are above in the wider sense.

    For each r a linear program finds A, the noise and N, by distance, at some
    frequencies. The noise is then raised until the symbol is nowhere negative.
    """
    table = around[: around.size // 2 + 1]
    last = int(np.flatnonzero(table)[-1])
    if not last:
        return
    lags = np.unique(np.geomspace(1, 2 * last + 2, _LAGS).astype(int))
    points = math.pi * np.linspace(0.0, 1.0, _FREQUENCIES) ** 2
    occupied = np.arange(1, last + 1)
    target = table[0] + 2 * np.cos(np.outer(points, occupied)) @ table[1 : last + 1]
    hats = _hats(lags)
    distances = np.arange(1, hats.shape[1] + 1)
    cosines = 2 * np.cos(np.outer(points, distances)) @ hats.T
    for correlation in _FEW_CORRELATIONS:
        r = float(correlation)
        poisson = (1 - r * r) / (1 - 2 * r * np.cos(points) + r * r)
        rows = -np.column_stack([poisson, np.ones(points.size), -cosines])
        share, noise = 0.8, 0.2
        heights = np.zeros(lags.size)
        for _ in range(_ROUNDS):
            costs = _slopes(share, noise, r, variance * _ORDER, around.size)
            objective = np.append(costs, 1e-6 * hats.sum(axis=1))
            solved = optimize.linprog(objective, A_ub=rows, b_ub=-target)
            if not solved.success:
                break
            point = np.asarray(solved.x)
            share, noise, heights = float(point[0]), float(point[1]), point[2:]
        else:
            added = np.append(0.0, np.maximum(heights, 0.0) @ hats)
            yield r, share, _noise(table, r, share, added), added


def _slopes(
    share: float, noise: float, correlation: float, power: float, bins: int
) -> FloatArray:
    """Returns the derivatives of a moment by A and by the noise."""
    powers = correlation ** np.arange(1, max(bins // 2, 2))
    own = math.exp(min(power * (share + noise), 60.0))
    grown = powers * np.exp(np.minimum(power * share * powers, 60.0))
    return np.array([own + 2 * float(grown.sum()), own])


def _hats(lags: npt.NDArray[np.int64]) -> FloatArray:
    """Returns (lags, distances) hats, at all distances from 1 to the last lag."""
    distances = np.arange(1, int(lags[-1]) + 1)
    return np.array([np.interp(distances, lags, row) for row in np.eye(lags.size)])


def _noise(
    table: FloatArray, correlation: float, share: float, added: FloatArray
) -> float:
    """Returns the least noise with which R is positive semidefinite, raised.

    Args:
        table: (n,) what the chain and N are to be above, by distance.
        correlation: r.
        share: A.
        added: (m,) N by distance, at least 0.
    """
    whole = np.zeros(max(table.size, added.size))
    whole[: added.size] = added
    whole[: table.size] += table
    places = np.arange(whole.size)
    bend = 2 * float((places**2.0 * whole).sum())
    bend += 2 * share * correlation * (1 + correlation) / (1 - correlation) ** 3
    count = 2 * math.pi / math.sqrt(8 * _GOOD_SLACK / max(bend, 1e-3))
    count = 1 << math.ceil(math.log2(max(count, 8 * whole.size)))
    count = min(count, max(_MOST_FREQUENCIES, 2 * whole.size))
    sides = whole.copy()
    sides[1:] *= 2
    symbol = np.fft.rfft(sides, count).real
    angles = np.linspace(0.0, math.pi, symbol.size)
    apart = (1 - correlation) ** 2 + 4 * correlation * np.sin(angles / 2) ** 2
    poisson = (1 - correlation) * (1 + correlation) / apart
    slack = (2 * math.pi / count) ** 2 / 8 * bend
    # The transform errs by far less than 1e-9 of the sum of absolute values.
    rounding = 1e-9 * (float(sides.sum()) + share * float(poisson[0]))
    needed = float((symbol - share * poisson).max()) + slack + rounding
    return floats.raised(max(needed, 0.0))
