"""Long compositions and random allocation, on lattices of losses and of ratios.

The losses of the runs of a composition add up. Where a record takes part in one of t
steps, drawn uniformly, the ratio of all t outputs is the mean of the steps' ratios. So
either law is a power of a polynomial whose exponents count cells of a lattice.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math
import operator
from typing import TypeVar

from flint import arb
from flint import arb_poly
from flint import ctx
import numpy as np

from dp_accounting_ext.verify import channels

Channel = channels.Channel
Row = channels.Row
Side = channels.Side
Sizes = channels.Sizes
T = TypeVar("T")
ONE, ZERO, ball = channels.ONE, channels.ZERO, channels.ball
_CELLS = 32768  # About the most cells of a lattice of losses.
# Tuning, all of these constants.
# Cells of ratios per mean absolute deviation of the ratio, and per standard deviation;
# and the most cells of ratios per output that a channel may have.
_FINE, _COARSE, _NODES = 16, 8, 64
# The most products of masses in one allocation, and the fewest outputs to which
# channels are reduced for that.
_MOST_PRODUCTS, _FEWEST = 4_000_000, 8


def composed(parts: Sequence[tuple[Channel, int]], sizes: Sizes) -> Channel:
    """Returns the composition of mechanisms, each of which is run a number of times."""
    try:
        runs = (_times(channels.merged(one), n, channels.listed) for one, n in parts)
        return functools.reduce(channels.listed, runs, channels.NO_OP)
    except channels.TooLargeError:
        return _sum_of_losses(parts, sizes)


def allocated(
    steps: Sequence[tuple[Channel, int]], selected: int, sizes: Sizes
) -> Channel:
    """Returns the channel of all steps, where the record takes part in `selected`.

    The set of these is drawn uniformly at random. `steps` holds each channel with the
    number of its steps. `TooLargeError` is raised if there are too many outputs.
    """
    total = sum(number for _, number in steps)
    if selected == total:
        return composed(steps, sizes)
    try:
        return _by_blocks(steps, selected, channels.MOST_LISTED)
    except channels.TooLargeError:
        if selected == 1 and (summed := _one_of(steps, total, sizes)):
            return summed
    if sizes.side is Side.HIGH and selected > 1:
        # Channels of more than two rows cannot be split.
        raise channels.TooLargeError
    # Joining two blocks multiplies every two outputs, for each pair of row indices.
    pairs = (selected + 1) * (selected + 2) * total.bit_length()
    most = min(sizes.most, max(math.isqrt(_MOST_PRODUCTS // pairs), _FEWEST))
    reduce = functools.partial(channels.reduced, side=sizes.side, most=most)
    steps = [(reduce(channel), number) for channel, number in steps]
    return _by_blocks(steps, selected, most**2, reduce)


def _by_blocks(
    steps: Sequence[tuple[Channel, int]],
    selected: int,
    limit: int,
    reduce: Callable[[Channel], Channel] = channels.merged,
) -> Channel:
    """Returns the channel of an allocation, by joining blocks of its steps.

    Row j of a block is the sum, over all sets of j of its steps, of the probabilities
    of the outputs if the record takes part in the steps of the set. Two blocks together
    have at most `limit` outputs before they are reduced.
    """

    def joined(one: Channel, other: Channel) -> Channel:
        if one.size * other.size > limit:
            raise channels.TooLargeError
        rows = []
        for j in range(min(selected, len(one.rows) + len(other.rows) - 2) + 1):
            products = [
                channels.outer(row, other.rows[j - i])
                for i, row in enumerate(one.rows)
                if 0 <= j - i < len(other.rows)
            ]
            rows.append(
                functools.reduce(lambda a, b: [*map(operator.add, a, b)], products)
            )
        # Each ratio is a sum of products of at most `selected` of the blocks' ratios.
        return reduce(Channel(rows, one.blur + other.blur))

    block = functools.reduce(joined, (_times(*step, joined) for step in steps))
    sets = arb(math.comb(sum(number for _, number in steps), selected))
    rows = [block.rows[0], [x / sets for x in block.rows[selected]]]
    return reduce(dataclasses.replace(block, rows=rows))


def _times(one: T, count: int, joined: Callable[[T, T], T]) -> T:
    """Returns the join of `count` copies of a thing, by doublings."""
    power = one
    for digit in bin(count)[3:]:
        power = joined(power, power)
        if digit == "1":
            power = joined(power, one)
    return power


@dataclasses.dataclass(frozen=True)
class _Lattice:
    """A law of losses log(p/q), or of sums of ratios p/q, with spacing h.

    Q is the law without the record, P that with it; of sums of ratios, P is the sum
    over all steps of the law if the record takes part in the step. A `LOW` lattice
    merges outputs: those of one run between i h and (i + 1) h form cell i, and indices
    add under composition. A `HIGH` lattice splits outputs between the points i h.

    Attributes:
        side: The side.
        steps: The number of steps if ratios are summed, 0 if losses are.
        step: The spacing h, a power of two.
        start: The index i of the first cell or point.
        q: The masses under Q.
        p: The masses under P. On a `HIGH` lattice they are those under Q times the
            ratio.
        sinks: The mass under Q of outputs that are impossible under P, and the mass
            under P of those that are impossible under Q. A sum of ratios of zero has a
            cell of its own.
        blur: As for a channel.
    """

    side: Side
    steps: int
    step: float
    start: int
    q: Row
    p: Row
    sinks: Row
    blur: arb

    @classmethod
    def of(
        cls,
        apart: channels.Apart,
        side: Side,
        steps: int,
        step: float,
        within: tuple[float, float],
    ) -> "_Lattice":
        """Returns a lattice of the outputs whose losses are within two numbers.

        A `LOW` lattice drops the others, a `HIGH` one adds their masses to the sinks.
        """
        sinks, zero = [ZERO, ZERO], ZERO
        for q, p in apart.ends:
            # A lower bound drops outputs whose masses are not certain.
            sinks[1] += p if q == 0 else ZERO
            if steps:
                zero += q if p == 0 else ZERO
            else:
                sinks[0] += q if p == 0 else ZERO
        first, last = np.searchsorted(apart.losses, within).tolist()
        if side is Side.HIGH:
            for far in ((0, first), (last, apart.losses.size)):
                sinks = [a + b for a, b in zip(sinks, apart.total(*far), strict=True)]
        losses = apart.losses[first:last]
        order = apart.order[first:last]
        places = np.exp(losses) if steps else losses
        cells = np.floor(places / step).astype(int)
        start = 0 if steps or not cells.size else int(cells[0]) - 1
        size = int(cells[-1]) + 2 - start if cells.size else 2
        q, p = [ZERO] * size, [ZERO] * size
        lattice = cls(side, steps, step, start, q, p, sinks, apart.channel.blur)
        if side is Side.LOW:
            for cell, i in zip((cells - start).tolist(), order, strict=True):
                q[cell] += apart.channel.rows[0][i]
                p[cell] += apart.channel.rows[1][i]
        elif cells.size:
            points = (start + np.arange(size)) * step
            with np.errstate(divide="ignore"):
                nodes = np.log(points) if steps else points
            inside = dataclasses.replace(apart, order=order, losses=losses)
            q[:] = inside.split(nodes, [lattice.ratio(i) for i in range(size)])
        q[0] += zero
        return lattice._with_ratios() if side is Side.HIGH else lattice

    def ratio(self, index: int) -> arb:
        """Returns the ratio at a point, counted from the first."""
        place = ball(self.step) * (self.start + index)
        return place if self.steps else place.exp()

    def _with_ratios(self) -> "_Lattice":
        """Returns the lattice with P's masses, the ratios times Q's, rounded up."""
        q = [mass.abs_upper() for mass in self.q]
        p = [
            (mass * self.ratio(i)).upper() if mass != 0 else ZERO
            for i, mass in enumerate(q)
        ]
        sinks = [sink.abs_upper() for sink in self.sinks]
        return dataclasses.replace(self, q=q, p=p, sinks=sinks)

    def plus(self, other: "_Lattice", rare: float) -> "_Lattice":
        """Returns the law of the sum, with tails of probability `rare` truncated."""
        size = len(self.q) + len(other.q) - 1
        qs = [arb_poly(lattice.q) for lattice in (self, other)]
        ps = [arb_poly(lattice.p) for lattice in (self, other)]
        rows = [list(qs[0] * qs[1])]
        if self.side is Side.LOW:  # On the side `HIGH`, the ratios times Q's give P's.
            p = qs[0] * ps[1] + ps[0] * qs[1] if self.steps else ps[0] * ps[1]
            rows.append(list(p))
        rows = [[*row, *[ZERO] * (size - len(row))] for row in rows]
        (a, b), (c, d) = self.sinks, other.sinks
        sinks = [1 - (1 - a) * (1 - c), 1 - (1 - b) * (1 - d)]
        if self.steps:
            # Where one lattice is at Q's sink, the mass under Q goes to Q's sink, and
            # the one under P, a sum over the other lattice's steps, to P's sink.
            sinks[1] = b + d + a * other.steps + c * self.steps
        summed = _Lattice(
            self.side,
            self.steps + other.steps,
            self.step,
            self.start + other.start,
            rows[0],
            rows[-1],
            sinks,
            self.blur.max(other.blur) if self.steps else self.blur + other.blur,
        )
        if self.side is Side.HIGH:
            summed = summed._with_ratios()
        return summed._narrowed(rare)

    def _narrowed(self, rare: float) -> "_Lattice":
        """Returns the lattice with its tails truncated, and of few enough cells."""
        q, p = (np.array([float(x.abs_upper()) for x in r]) for r in (self.q, self.p))
        first = int(np.searchsorted(np.cumsum(q), rare))
        cut = int(np.searchsorted(np.cumsum(p[::-1]), rare * max(self.steps, 1)))
        last = len(self.q) - cut
        if first >= last:
            return self
        sinks = self.sinks
        if self.side is Side.HIGH:
            sinks = [
                sum([*row[:first], *row[last:]], sink).abs_upper()
                for sink, row in zip(sinks, (self.q, self.p), strict=True)
            ]
        return dataclasses.replace(
            self,
            start=self.start + first,
            q=self.q[first:last],
            p=self.p[first:last],
            sinks=sinks,
        )

    def channel(self) -> Channel:
        """Returns the channel of the composition or of the allocation."""
        columns = [*zip(self.q, self.p, strict=True)]
        columns += [(self.sinks[0], ZERO), (ZERO, self.sinks[1])]
        if self.side is Side.HIGH:
            columns = [(a.abs_upper(), b.abs_upper()) for a, b in columns]
        # Outputs with a mass that is not certain are dropped.
        columns = [(a, b) for a, b in columns if (a > 0 or b > 0) and a >= 0 and b >= 0]
        probability = ONE / max(self.steps, 1)  # Of each step of an allocation.
        rows = [[a for a, _ in columns], [b * probability for _, b in columns]]
        return Channel(rows, self.blur)


def _sum_of_losses(parts: Sequence[tuple[Channel, int]], sizes: Sizes) -> Channel:
    """Returns the composition of mechanisms, whose losses are added on a lattice.

    Its spacing is a 16th of the smallest spread of a mechanism's loss, or what makes
    few enough cells.
    """
    ends, variance, widest, finest = [], 0.0, 2.0**-40, math.inf
    for channel, number in parts:
        apart = channels.Apart.of(channel, sizes.side)
        # Losses far beyond those of outputs more probable than `rare` are not placed.
        is_heavy = apart.weights > sizes.rare
        losses, weights = apart.losses[is_heavy], apart.weights[is_heavy]
        if not losses.size:
            losses, weights = np.append(apart.losses, 0.0), np.append(apart.weights, 1)
        distances = abs(losses - np.average(losses, weights=weights))
        variance += number * float(np.average(distances**2, weights=weights))
        widest = max(widest, float(np.ptp(losses)), 1e-6 * float(abs(losses).max()))
        if np.ptp(losses):
            finest = min(finest, float(np.average(distances, weights=weights)) / 16)
        ends.append((apart, number, losses[0], losses[-1]))
    # About the range of sums that are more probable than `rare`. It determines the
    # spacing alone: bounds hold whatever it is.
    span = widest + math.sqrt(-8 * math.log(sizes.rare) * variance)
    step = 2.0 ** math.floor(math.log2(max(span / _CELLS, min(finest, widest))))
    reach = _CELLS * step
    placed = [(a, n, (low - reach, high + reach)) for a, n, low, high in ends]
    return _summed(placed, 0, step, sizes)


def _summed(
    parts: Sequence[tuple[channels.Apart, int, tuple[float, float]]],
    steps: int,
    step: float,
    sizes: Sizes,
) -> Channel:
    """Returns the channel of a sum, on lattices of one spacing.

    Args:
        parts: The outputs of each mechanism, the number of its runs, and the losses
            between which outputs are placed.
        steps: 1 if ratios are summed, 0 if losses are.
        step: The spacing, a power of two.
        sizes: As for `composed`.
    """
    joined = functools.partial(_Lattice.plus, rare=sizes.rare)
    sums = (
        _times(_Lattice.of(apart, sizes.side, steps, step, within), number, joined)
        for apart, number, within in parts
    )
    return functools.reduce(joined, sums).channel()


def _one_of(
    steps: Sequence[tuple[Channel, int]], total: int, sizes: Sizes
) -> Channel | None:
    """Returns the channel of `total` steps, one of which the record takes part in.

    The ratios of the steps are added on a lattice. The channel is None if the lattice
    would have too many points, or ratios are too large for it.
    """
    aparts = [channels.Apart.of(channel, sizes.side) for channel, _ in steps]
    largest_ratios, deviation, variance = [], 0.0, 0.0
    for apart, (channel, number) in zip(aparts, steps, strict=True):
        q, p = (
            np.array([float(row[i]) for i in apart.order.tolist()], dtype=float)
            for row in channel.rows
        )
        if not q.size or apart.losses[-1] > 600:
            return None
        ratios = np.exp(apart.losses)
        is_placed = np.cumsum(p[::-1])[::-1] > sizes.rare
        largest_ratios.append(float(ratios[is_placed].max(initial=2.0)) * 1.001)
        distances = abs(ratios - 1)[is_placed]
        deviation += number / total * float(q[is_placed] @ distances)
        with np.errstate(over="ignore"):
            # The mass comes first, as zero times a square that overflows is NaN.
            square = (q[is_placed] * distances) @ distances
            variance += number / total * float(square)
    if not deviation > 1e-9 or math.isinf(variance):
        return None
    span = max(largest_ratios) + 14 * math.sqrt(total * variance)
    finest = span / (_NODES * sizes.most)
    step = max(deviation / _FINE, finest)
    if step > max(math.sqrt(variance) / _COARSE, deviation / _FINE) or step > 1:
        return None
    bits = 128 + math.ceil(math.log2(span * _NODES * sizes.most / sizes.rare))
    with ctx.workprec(max(bits, ctx.prec)):
        placed = [
            (apart, number, (-math.inf, math.log(largest)))
            for apart, (_, number), largest in zip(
                aparts, steps, largest_ratios, strict=True
            )
        ]
        return _summed(placed, 1, 2.0 ** math.floor(math.log2(step)), sizes)
