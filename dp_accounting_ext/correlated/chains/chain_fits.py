"""Gaussian Markov chains whose covariance is above that of bins.

G′ is above G if G′ − G = R + N, where R is positive semidefinite and N has no negative
entry. Adding R gives an adversary more outputs to see. Adding N gives a larger law in
the convex order, by Kahane's inequality. For bins on a line, R may be a Toeplitz
matrix. It is positive semidefinite if its symbol, a sum of cosines, is nowhere
negative.

The bins lie on a circle, which is cut open to a line. The covariances between bins on
both sides of the cut, [[0, a bᵀ], [b aᵀ, 0]], are below diag(a aᵀ, b bᵀ). So they are
replaced by a larger variance of the bins near the cut. Here a bᵀ is above the entries
across the cut, or it is what a chain on the closed circle has there.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
from scipy import optimize

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats

# Tuning, all of these constants.
# The search tries these correlations r of neighbors, first every _STRIDE-th.
CORRELATIONS, _STRIDE = np.linspace(0.02, 0.98, 193), 12
# The search tries these shares A, times 2 or the least A with A r^d above all entries,
# whichever is smaller.
_SHARES = np.linspace(0.1, 1.0, 13)
# Where the chain exceeds the window, N takes a part of the surplus up to some distance,
# and all of it beyond. These distances are tried, in units of half of the largest
# distance that has an entry.
_REACHES = (0, 2, 8, 128)
# A symbol is judged by its values at these frequencies.
_FREQUENCIES = math.pi * np.linspace(0.0, 1.0, 32) ** 2
# In the refinement N is given by its values at this many distances, and costs so many
# times what w does, the variance of a bin's own part in `Line`.
_KNOTS, _PRICE = 32, 1e-6
# The refinement moves r by these steps, and (r, A) in these directions. The largest r
# limits the time: grids of states have a size in proportion to 1 / √(1 − r²).
_REFINEMENTS = (0.01, 0.0025)
_DIRECTIONS = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, -1), (-1, 1))
_MOST_CORRELATED = 0.99
# Moments by which blocks are chosen, and chains inside of cycles, are of this order:
# exponents are multiplied by it.
ORDER = 2.0
# A chain of 8 times as many bins is cut into blocks of so many bins at least, and so
# long that this raises its moment by about this share at most: of 4096 bins of 4 bands,
# ε is 0.8 % higher then, in a twentieth of the time.
_SHORTEST, _RAISES = 64, 0.02

# B is at most this share of the largest entry, so that what is left of the entries is
# not all rounding error.
_MOST_SHARED = 0.9
# Certified: if r to the power of a block's length is at most the first number, the
# second one covers what the two ends of a block have to do with each other.
_FORGOTTEN, _COVERS = 1e-6, 1e-5
# Certified: half of what `floats.raised` adds to the diagonal.
_RAISED = 5e-10
# Certified: if the ends of a line have an excess e, all bins have one of at least this,
# or of e if that is smaller.
LEAST_EXCESS = 1e-3


@dataclasses.dataclass(frozen=True)
class Chain:
    """A Gaussian Markov chain: an own part, a chain's part, and a shared part.

    Steps i < j have the covariance B + v A V_i Π s_k, where k runs from i to j − 1, and
    s_k = r max(V_{k+1} / V_k, 1). Step i has the variance B + v (1 − A) + v A V_i.

    Attributes:
        variance: v.
        share: A, in [0, 1].
        correlation: r, in [0, 1).
        heights: The V_i of all steps, at least 1. They are symmetric about the middle,
            and decrease towards it, such that no s_k is above one.
        shared: B ≥ 0.
    """

    variance: float
    share: float
    correlation: float
    heights: tuple[float, ...]
    shared: float = 0.0

    @property
    def length(self) -> int:
        """The number of steps."""
        return len(self.heights)

    @property
    def innovation(self) -> float:
        """1 − r², the variance of a move of a chain of variance one."""
        return (1 - self.correlation) * (1 + self.correlation)

    @property
    def excess(self) -> float:
        """What the largest of the V_i exceeds one by."""
        return max(self.heights) - 1

    def variances(self) -> FloatArray:
        """Returns (length,) the V_i."""
        return np.array(self.heights)


def with_excess(excess: float, correlation: float, length: int) -> tuple[float, ...]:
    """Returns the V_i of a chain with more variance near both ends.

    At the distance d from the nearer end V is 1 + e r^{2d}. The term e r^{2d} is
    replaced by `LEAST_EXCESS` where it is smaller, so that most steps are equal. So to
    the covariance of two steps of one half, at the distances i and j from its end,
    e r^{i+j} is added.

    Args:
        excess: e, in [0, 1].
        correlation: r.
        length: The number of steps.
    """
    places = np.arange(length)
    added = excess * np.power(correlation, 2.0 * np.minimum(places, places[::-1]))
    heights = 1 + np.maximum(added, min(excess, LEAST_EXCESS))
    return tuple(heights.tolist())


@dataclasses.dataclass(frozen=True)
class Window:
    """The largest entries of a Gram matrix on a line, over the largest of all.

    Attributes:
        near: (n,) The largest entry at each distance along the line. It is zero at
            larger distances.
        across: (m,) The largest entries across the cut, of a bin i steps from one end
            and a bin j steps from the other end, for i + j = 0, 1, … It is shorter
            than half of the line.
        length: The number of bins.
        skipped: The number of bins of the circle between the two ends.
    """

    near: FloatArray
    across: FloatArray
    length: int
    skipped: int = 0

    @functools.cached_property
    def furthest(self) -> int:
        """The largest distance along the line at which there is an entry."""
        return int(np.flatnonzero(self.near)[-1])

    @functools.cached_property
    def distances(self) -> FloatArray:
        """The distances 1, 2, … up to twice the largest one that has an entry."""
        return np.arange(1.0, self.near[: 2 * self.furthest + 1].size)

    @functools.cached_property
    def entries(self) -> FloatArray:
        """The window's entries at `distances`."""
        return self.near[1 : 2 * self.furthest + 1]

    @functools.cached_property
    def cosines(self) -> FloatArray:
        """What entries are multiplied by to give the symbol at some frequencies."""
        return np.asarray(2 * np.cos(np.outer(self.distances, _FREQUENCIES)))

    @functools.cached_property
    def link(self) -> float:
        """The largest ratio of an entry across the cut to one along the line.

        Both entries have the same distance on the circle. The ratio is infinite if an
        entry across the cut has a distance at which there is none along the line.
        """
        along = np.zeros(self.across.size)
        overlap = self.near[self.skipped + 1 :][: along.size]
        along[: overlap.size] = overlap
        is_across = self.across > 0
        if not (along[is_across] > 0).all():
            return math.inf
        return float((self.across[is_across] / along[is_across]).max(initial=0.0))

    def excess(self, correlation: float, shares: FloatArray) -> FloatArray:
        """Returns (n,) values of e A for chains, the smaller one of two.

        The first is the least one for which e A r^{i+j} is above all entries across the
        cut. The second is that of a chain on the closed circle, whose covariance across
        the cut is c times as large: e is c r^s / (1 − r^b), where s is the number of
        steps from one end to the other, and b that of the circle.

        Args:
            correlation: r.
            shares: (n,) A of each chain.
        """
        steps = np.arange(self.across.size)
        needed = self.across / np.maximum(correlation**steps, 1e-300)
        entrywise = np.full(shares.size, float(needed.max(initial=0.0)))
        # Twice as far as symbols are looked at, on either side, the chain is to forget.
        bins = self.length + self.skipped
        remaining = bins - 4 * self.furthest
        if self.link > 1 or remaining < 3:
            return entrywise
        closed = self.link * correlation ** (self.skipped + 1) / (1 - correlation**bins)
        if 3 * correlation**remaining > min(closed, LEAST_EXCESS):
            return entrywise
        smaller: FloatArray = np.minimum(
            entrywise, shares * floats.raised(closed, 1e-9)
        )
        return smaller


def of_bins(gram: FloatArray, orders: Sequence[float]) -> list[Chain]:
    """Returns chains above the mean of b ratios, one for the moments of each order.

    A window is l neighboring bins on the circle of all bins. The mean of the ratios
    over all b bins is the mean over all windows of the mean in the window. So by
    Jensen's inequality, a chain that is above every window is above the mean.

    Args:
        gram: (b, b) The Gram matrix of the bins, rounded up, at least 0.
        orders: (n,) The numbers by which exponents are multiplied in the moments.

    Returns:
        (n,) The chains. Each has about the least moment of its order.
    """
    around, along = largest_by_distance(gram)
    largest = float(around[0])
    # All entries are at least the least one. The part B that all bins share is this, or
    # nothing. It makes the mean a product of two independent ratios.
    least_entry = min(float(gram.min()), _MOST_SHARED * largest)
    best: dict[float, tuple[float, Line, float]] = {}
    for shared in sorted({0.0, least_entry}):
        for window in _windows(around - shared, along - shared):
            for line in _lines_above(window, orders, largest - shared):
                moment_of_shared = math.expm1(min(line.order * shared, 300.0))
                moment = line.cost + moment_of_shared * (1 + line.cost)
                if line.order not in best or moment < best[line.order][0]:
                    best[line.order] = moment, line, shared
    return [_chain_of(best.get(order), largest) for order in orders]


def _chain_of(best: tuple[float, "Line", float] | None, largest: float) -> Chain:
    """Returns the refined chain of a moment, a line, and what all entries share."""
    if best is None:
        # A window of one step is always possible: the bound without amplification.
        return Chain(floats.raised(largest), 0.0, 0.0, (1.0,))
    _, line, shared = best
    chain = refined(line).chain()
    return dataclasses.replace(chain, shared=floats.raised(shared) if shared else 0.0)


def cut(chain: Chain) -> tuple[Chain, int]:
    """Returns a chain, and how many independent copies of it are above a long chain.

    Steps i and j away from a cut, on its two sides, have the covariance v A r r^{i+j}.
    Without it, and with v A r r^{i+j} for steps on one side, a law is larger. So blocks
    have an excess of r at both ends, or that of the chain, if it is larger. Bins that
    are left over are left out.

    Args:
        chain: The chain. If it has a part that all steps share, it is not cut.

    Source:
        docs/matrix.md, "Long chains are cut".
    """
    if chain.shared or chain.length < 8 * _SHORTEST:
        return chain, 1
    # The middle of a chain with an excess is higher than one, too.
    middle = min(chain.heights)
    variance = chain.variance * (1 - chain.share + chain.share * middle)
    share = chain.share * middle / (1 - chain.share + chain.share * middle)
    excess = max(chain.correlation, chain.excess)
    order, places = ORDER * variance, np.arange(chain.length)
    powers = np.power(chain.correlation, places)
    ends = 1 + share * excess * powers**2
    # What a step adds to the moment by itself, and with all others; and what the larger
    # variances at both ends of a block add.
    alone = grown(order * np.ones(1))[0]
    with_others = 2 * grown(order * share * powers[1:]).sum()
    of_ends = 2 * float((grown(order * ends) - alone).sum())
    forgotten = int(np.count_nonzero(powers > _FORGOTTEN))
    enough = math.ceil(of_ends / (_RAISES * float(alone + with_others)))
    copies = chain.length // max(_SHORTEST, forgotten, enough)
    if copies < 2:
        return chain, 1
    length = chain.length // copies
    powers = np.maximum(powers[:length], powers[:length][::-1])
    heights = 1 + np.maximum(excess * powers**2, _FORGOTTEN)
    block = Chain(
        floats.raised(variance * (1 + share * _COVERS)),
        min(floats.raised(share * (1 + _COVERS) / (1 + share * _COVERS)), 1.0),
        chain.correlation,
        tuple(heights.tolist()),
    )
    return block, copies


def largest_by_distance(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns (b,) the largest entries at each distance, on a circle and on a line.

    Args:
        gram: (b, b) The Gram matrix of bins.
    """
    along = np.array([np.diagonal(gram, apart).max() for apart in range(len(gram))])
    around = np.maximum(along, np.append(along[0], along[:0:-1]))
    return around, along


def _windows(around: FloatArray, along: FloatArray) -> Iterator[Window]:
    """Yields windows of several lengths.

    For each length there is one window that ignores that the circle is closed. If there
    are entries between its two ends, there is one that counts them separately.

    Args:
        around: (b,) The largest entries at each distance on the circle of all bins.
        along: (b,) Those on the line.
    """
    around, along = around / around[0], along / around[0]
    bins = around.size
    last = int(np.flatnonzero(around[: bins // 2 + 1])[-1])
    cuts = [*np.linspace(0, last, min(last, 3) + 1), (last + bins) / 2]
    for cut in sorted({int(cut) for cut in cuts if cut < bins - 1}):
        table = around[: bins - cut] if cut else along
        half = table.size // 2 + 1
        yield Window(table, np.zeros(0), table.size)
        if table[half:].any():
            yield Window(table[:half], table[half:][::-1], table.size, cut)


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """A chain above a window.

    Here the diagonal of the chain is v (A + w), and its other entries are v A r^d.

    Attributes:
        window: The window.
        order: The number by which exponents are multiplied in the moment.
        variance: The largest entry v of the Gram matrix.
        correlation: r.
        share: A.
        gap: (n,) ρ_d − A r^d + N_d at the distances d = 1, 2, …, where ρ_d is the
            window's entry. Beyond these distances N is all of A r^d.
    """

    window: Window
    order: float
    variance: float
    correlation: float
    share: float
    gap: FloatArray

    @functools.cached_property
    def whole(self) -> float:
        """A + w, rounded up."""
        return max(1 + float(highest_of_symbol(self.gap)), self.share)

    @functools.cached_property
    def cost(self) -> float:
        """An approximation of the moment of the mean of the bins' ratios, minus one."""
        (moment_of_sum,) = _moments(
            self.window,
            self.order * self.variance,
            self.correlation,
            np.array([self.share]),
            np.array([self.whole]),
        )
        return float(moment_of_sum) / self.window.length

    def chain(self) -> Chain:
        """Returns the chain, rounded up, after a check that it is above the window.

        Raises:
            ArithmeticError: If an entry is not.
        """
        (excess,) = self.window.excess(self.correlation, np.array([self.share]))
        relative = floats.raised(float(excess) / self.share) if self.share else 0.0
        chain = Chain(
            floats.raised(self.variance * self.whole),
            min(floats.raised(self.share / self.whole), 1.0),
            self.correlation,
            with_excess(relative, self.correlation, self.window.length),
        )
        self.check(chain)
        return chain

    def check(self, chain: Chain) -> None:
        """Checks that a chain is above the window, but for what was added as N or R.

        Raises:
            ArithmeticError: If an entry is not.
        """
        powers = chain.correlation**self.window.distances
        entries = chain.variance * chain.share * powers
        lacking = self.variance * (self.window.entries - self.gap) - entries
        # Roundings are less than what the diagonal was raised by.
        allowed = _RAISED * chain.variance / (2 * chain.length)
        if lacking.max(initial=0.0) > allowed:
            raise ArithmeticError(
                f"{chain} must be above its window. It lacks {lacking.max():g}."
            )


def _lines_above(
    window: Window, orders: Sequence[float], variance: float
) -> list[Line]:
    """Returns the chains above a window with the least moments of these orders.

    If no chain has a finite moment of an order, there is none for it.
    """
    best: dict[float, tuple[float, Line]] = {}

    def try_correlation(index: int) -> None:
        correlation = float(CORRELATIONS[index])
        for cost, line in lines_at(window, orders, variance, correlation):
            if cost < best.get(line.order, (math.inf, line))[0]:
                best[line.order] = cost, line

    # First every few correlations are tried, and then all around the best of these.
    seen = set(range(0, CORRELATIONS.size, _STRIDE))
    for index in sorted(seen):
        try_correlation(index)
    centres = [line.correlation for _, line in best.values()]
    places = np.searchsorted(CORRELATIONS, centres)
    around = np.add.outer(places, np.arange(1 - _STRIDE, _STRIDE)).ravel().tolist()
    for index in sorted(set(around) - seen):
        if 0 <= index < CORRELATIONS.size:
            try_correlation(index)
    return [line for _, line in best.values()]


def lines_at(
    window: Window, orders: Sequence[float], variance: float, correlation: float
) -> list[tuple[float, Line]]:
    """Returns the best chains of one correlation above a window, with their moments.

    For each order there is the chain with about the least moment. Where a chain exceeds
    the window, N is a part of the surplus, and R is the rest of the difference.
    """
    powers = correlation**window.distances
    highest = float((window.entries / np.maximum(powers, 1e-300)).max(initial=0.0))
    shares = min(highest, 2.0) * _SHARES
    gaps = window.entries - shares[:, np.newaxis] * powers
    reaches = sorted({window.furthest * number // 2 for number in _REACHES})
    fewer = np.array([without_surplus(gaps, reach) for reach in reaches])
    wholes = np.maximum(1 + (fewer @ window.cosines).max(axis=2), shares)
    lines = []
    for order in orders:
        costs = _moments(window, order * variance, correlation, shares, wholes)
        place = np.unravel_index(costs.argmin(), costs.shape)
        share = float(shares[place[1]])
        line = Line(window, order, variance, correlation, share, fewer[place])
        lines.append((float(costs[place]), line))
    return lines


def refined(line: Line) -> Line:
    """Returns the best chain that is found by a search around a chain.

    For given r and A, a linear program finds the N with the least w.
    """
    distances, near = line.window.distances, line.window.entries
    if not near.size or not line.share:
        return line
    # N is piecewise linear, given by its values at the knots.
    count = min(near.size, _KNOTS)
    knots = np.linspace(1, near.size, count)
    basis = np.array([np.interp(distances, knots, row) for row in np.eye(count)]).T
    frequencies = np.linspace(0.0, math.pi, 3 * near.size + 2)
    cosines = 2 * np.cos(np.outer(frequencies, distances))
    matrix = np.hstack([cosines @ basis, -np.ones((frequencies.size, 1))])
    prices = np.append(np.full(count, _PRICE), 1.0)

    def line_with(correlation: float, share: float) -> Line | None:
        if not (0 < correlation <= _MOST_CORRELATED and share > 0):
            return None
        gap = near - share * correlation**distances
        bounds = [(0, None)] * count + [(None, None)]
        candidate = optimize.linprog(prices, matrix, -cosines @ gap, bounds=bounds)
        if candidate.x is None:
            return None
        gap = gap + basis @ np.maximum(candidate.x[:-1], 0.0)
        return dataclasses.replace(line, correlation=correlation, share=share, gap=gap)

    best = line
    for step in _REFINEMENTS:
        has_improved = True
        while has_improved:
            has_improved = False
            for of_correlation, of_share in _DIRECTIONS:
                candidate = line_with(
                    best.correlation + of_correlation * step,
                    best.share + 5 * of_share * step,
                )
                if candidate is not None and candidate.cost < best.cost:
                    best, has_improved = candidate, True
    return best


def without_surplus(gaps: FloatArray, reach: int) -> FloatArray:
    """Returns gaps ρ_d − A r^d to which N_d is added where they are negative.

    The part of the surplus A r^d − ρ_d that N takes grows linearly with the distance,
    and is all of it beyond `reach`. With a sudden change ε is up to 2 % higher.

    Args:
        gaps: (…, n) The gaps at the distances 1, 2, …
        reach: The largest distance at which N takes only a part of the surplus.
    """
    distances = np.arange(1, gaps.shape[-1] + 1)
    return np.where(gaps < 0, gaps * np.maximum(1 - distances / (reach + 1), 0.0), gaps)


def highest_of_symbol(gaps: FloatArray) -> FloatArray:
    """Returns (…) upper bounds on 2 Σ_{d≥1} gap_d cos(dω) over all ω.

    It is computed at frequencies h apart. Between two of them, it exceeds the larger
    value by at most h² / 8 times its largest second derivative. The error of the
    Fourier transform is far less than 1e-9 Σ |gap_d|.

    Args:
        gaps: (…, n) The gaps at the distances 1, 2, …
    """
    size = gaps.shape[-1]
    count = 1 << math.ceil(math.log2(64 * (size + 1)))
    padded = np.concatenate([np.zeros((*gaps.shape[:-1], 1)), gaps], axis=-1)
    symbols = 2 * np.fft.rfft(padded, count).real
    sizes, distances = 2 * np.abs(gaps), np.arange(1, size + 1)
    bends = (distances**2 * sizes).sum(axis=-1)
    slack = (2 * math.pi / count) ** 2 / 8 * bends
    return np.asarray(symbols.max(axis=-1) + slack + 1e-9 * sizes.sum(axis=-1))


def _moments(
    window: Window,
    power: float,
    correlation: float,
    shares: FloatArray,
    wholes: FloatArray,
) -> FloatArray:
    """Returns about the moment of the sum of a window's ratios under several chains.

    Args:
        window: The window that the chains are above.
        power: The order of the moment times v.
        correlation: The correlation r of all chains.
        shares: (n,) The share A of each chain.
        wholes: (…, n) The variance of each chain over v, without its excess.

    Returns:
        (…, n) The sum of e^{power · entry} − 1 over pairs of bins, divided by the
        number of bins. It is infinite if the excess is more than A.
    """
    column = power * shares[:, np.newaxis]
    # Powers of r below e^-40 add nothing.
    limit = min(window.length, 2 + int(40 / -math.log(correlation)))
    distances = np.arange(1, limit)
    powers, weights = correlation**distances, 1 - distances / window.length
    alone = grown(power * wholes)
    total = alone + 2 * grown(column * powers) @ weights
    excess = window.excess(correlation, shares)
    if excess.any():
        places = np.arange(min(24, window.length // 2))  # Others hardly vary more.
        rows, columns = (index.ravel() for index in np.indices((places.size,) * 2))
        by_excess = power * excess[:, np.newaxis] * correlation ** (rows + columns)
        added = grown(by_excess) * (2 / window.length)
        is_diagonal = rows == columns
        total += added[:, is_diagonal].sum(axis=1) * (1 + alone)
        powers = correlation ** np.abs(rows - columns)[~is_diagonal]
        total += (added[:, ~is_diagonal] * (1 + grown(column * powers))).sum(axis=1)
    return np.where(excess <= shares, total, math.inf)


def grown(exponents: FloatArray) -> FloatArray:
    """Returns e^x − 1, or a smaller number if sums of many of them would overflow."""
    return np.asarray(np.expm1(np.minimum(exponents, floats.LARGEST_EXPONENT / 2)))
