"""Compositions of channels; long ones are computed on a lattice of privacy losses."""

import dataclasses
import math

from flint import arb
from flint import arb_poly
import numpy as np

from dp_accounting_ext.verify import channels

Channel = channels.Channel
Row = channels.Row
Side = channels.Side
ONE, ZERO, ball = channels.ONE, channels.ZERO, channels.ball
_RARE = 1e-40
_CELLS = 8192


def power(
    channel: Channel, count: int, most: int, rare: float = _RARE, cells: int = _CELLS
) -> Channel:
    """Returns the composition of `count` runs of a mechanism.

    Args:
        channel: The channel of one run.
        count: The number of runs.
        most: The approximate number of outputs to which products are reduced.
        rare: Probability of tails that may be truncated. A `LOW` channel drops them;
            in a `HIGH` channel they reveal whether the record is there.
        cells: The largest number of cells of the lattice for long compositions.
    """
    if channel.side is not Side.EXACT and count > 2:
        return _Lattice.of(channel, cells, rare).times(count, cells, rare).channel()
    result = None
    for digit in bin(count)[2:]:
        if result is not None:
            result = channels.product(result, result, most)
        if digit == "1":
            result = (
                channel if result is None else channels.product(result, channel, most)
            )
    return channels.NO_OP if result is None else result


def product(one: Channel, other: Channel, most: int, rare: float = _RARE) -> Channel:
    """Returns the composition of two mechanisms on the same records.

    If both have many outputs, they are convolved on a lattice of losses; otherwise
    every output of the one is paired with every output of the other.
    """
    one, other = channels.alike([one, other])
    if one.side is Side.EXACT or min(one.size, other.size) <= most:
        return channels.product(one, other, most)
    first, second = (_Lattice.of(each, _CELLS, rare) for each in (one, other))
    while first.step != second.step:
        if first.step < second.step:
            first = first._coarser()
        else:
            second = second._coarser()
    return first._plus(second)._narrowed(_CELLS, rare).channel()


@dataclasses.dataclass(frozen=True)
class _Lattice:
    """A law of privacy losses log(p/q), on a lattice with spacing h.

    Q is the law without the record, P that with it. A `LOW` lattice merges outputs:
    those of one run with a loss in [i h, (i + 1) h) form cell i, and indices add under
    composition. A `HIGH` lattice splits outputs between the points i h.

    Attributes:
        side: `LOW` or `HIGH`.
        step: The spacing h, a power of two.
        start: The index i of the first cell or point.
        q: The masses under Q.
        p: The masses under P. On a `HIGH` lattice they are e^{i h} times those under Q.
        sinks: The mass of outputs that are impossible under P, and under Q.
        blur: As for a channel.
    """

    side: Side
    step: float
    start: int
    q: Row
    p: Row
    sinks: Row
    blur: arb

    @classmethod
    def of(cls, channel: Channel, most: int, rare: float) -> "_Lattice":
        """Returns the lattice of a channel.

        Losses far beyond all outputs that are more probable than `rare` are not placed:
        a `LOW` lattice drops them, a `HIGH` one adds their masses to the sinks.
        """
        apart = channels.Apart.of(channel)
        sinks = [ZERO, ZERO]
        for q, p in apart.ends:
            # A lower bound drops outputs whose masses are not certain.
            sinks[0] += q if p == 0 else ZERO
            sinks[1] += p if q == 0 else ZERO
        losses = apart.losses
        heavy, weights = losses[apart.weights > rare], apart.weights
        if not heavy.size:
            heavy, weights = np.append(losses, 0.0), np.append(weights, 1.0)
        middle = np.average(losses, weights=weights) if losses.size else 0.0
        spread = np.average(abs(losses - middle), weights=weights) if losses.size else 1
        span = max(float(np.ptp(heavy)), 1e-6 * float(np.abs(heavy).max()), 2.0**-40)
        step = 2.0 ** math.floor(math.log2(max(spread / 16, span / most)))
        reach = most * step
        inside = (losses > heavy.min() - reach) & (losses < heavy.max() + reach)
        if not inside.all():
            first, last = np.flatnonzero(inside)[[0, -1]] if inside.any() else (0, -1)
            if channel.side is Side.HIGH:
                for start, stop in ((0, first), (last + 1, losses.size)):
                    far = apart.total(start, stop)
                    sinks = [a + b for a, b in zip(sinks, far, strict=True)]
            kept = slice(first, last + 1)
            losses = losses[kept]
            apart = dataclasses.replace(apart, order=apart.order[kept], losses=losses)
        if not losses.size:
            return cls(channel.side, step, 0, [ZERO], [ZERO], sinks, channel.blur)
        start = math.floor(losses[0] / step) - 1
        size = math.floor(losses[-1] / step) + 2 - start
        if channel.side is Side.LOW:
            places = np.floor(losses / step).astype(int) - start
            q, p = [ZERO] * size, [ZERO] * size
            for place, i in zip(places.tolist(), apart.order.tolist(), strict=True):
                q[place] += channel.rows[0][i]
                p[place] += channel.rows[1][i]
            return cls(Side.LOW, step, start, q, p, sinks, channel.blur)
        q = apart.split(np.arange(start, start + size) * step)
        found = cls(Side.HIGH, step, start, q, [], sinks, channel.blur)
        return found._with_ratios()

    def _with_ratios(self) -> "_Lattice":
        """Returns the lattice with P's masses set to e^{i h} times Q's, rounded up."""
        step = ball(self.step)
        q = [mass.abs_upper() for mass in self.q]
        p = [
            (mass * (step * (self.start + i)).exp()).upper() if mass != 0 else ZERO
            for i, mass in enumerate(q)
        ]
        return dataclasses.replace(
            self, q=q, p=p, sinks=[sink.abs_upper() for sink in self.sinks]
        )

    def times(self, count: int, most: int, rare: float) -> "_Lattice":
        """Returns the law of the sum of `count` independent losses of this law."""
        found: _Lattice | None = None
        base = self
        for digit in bin(count)[2:]:
            if found is not None:
                found = found._plus(found)._narrowed(most, rare)
            if digit == "1":
                if found is None:
                    found = base
                    continue
                while base.step < found.step:
                    base = base._coarser()
                found = found._plus(base)._narrowed(most, rare)
        assert found is not None
        return found

    def _plus(self, other: "_Lattice") -> "_Lattice":
        assert self.step == other.step
        size = len(self.q) + len(other.q) - 1
        rows = []
        for one, two in ((self.q, other.q), (self.p, other.p)):
            first = arb_poly(one)
            # A square takes two thirds of the time of a product.
            row = list(first * (first if two is one else arb_poly(two)))
            rows.append([*row, *[ZERO] * (size - len(row))])
        sinks = [
            1 - (1 - a) * (1 - b) for a, b in zip(self.sinks, other.sinks, strict=True)
        ]
        start = self.start + other.start
        blur = self.blur + other.blur
        found = _Lattice(self.side, self.step, start, rows[0], rows[1], sinks, blur)
        if self.side is Side.LOW:
            return found
        # The error of a product is relative to the largest mass of its row, so that at
        # each point the row that is relatively more accurate is used.
        step = ball(self.step)
        q = [
            a
            if a.rel_accuracy_bits() >= b.rel_accuracy_bits()
            else b * (-step * (start + i)).exp()
            for i, (a, b) in enumerate(zip(*rows, strict=True))
        ]
        return dataclasses.replace(found, q=q)._with_ratios()

    def _narrowed(self, most: int, rare: float) -> "_Lattice":
        """Returns the lattice with its tails truncated, of at most `most` cells.

        The spacing is doubled until the number of cells is small enough.
        """
        p = np.array([float(x.abs_upper()) for x in self.p])
        q = np.array([float(x.abs_upper()) for x in self.q])
        below = int(np.searchsorted(np.cumsum(q), rare))
        above = int(np.searchsorted(np.cumsum(p[::-1]), rare))
        last = len(self.q) - above
        found = self
        if below < last and (below or above):
            sinks = self.sinks
            if self.side is Side.HIGH:
                cut = [*range(below), *range(last, len(self.q))]
                sinks = [
                    sum(map(row.__getitem__, cut), sink).abs_upper()
                    for sink, row in zip(sinks, (self.q, self.p), strict=True)
                ]
            found = dataclasses.replace(
                self,
                start=self.start + below,
                q=self.q[below:last],
                p=self.p[below:last],
                sinks=sinks,
            )
        while len(found.q) > most:
            found = found._coarser()
        return found

    def _coarser(self) -> "_Lattice":
        """Returns the lattice with twice the spacing."""
        if self.side is Side.LOW:
            first = self.start // 2
            size = (self.start + len(self.q) - 1) // 2 - first + 1
            q, p = [ZERO] * size, [ZERO] * size
            for i in range(len(self.q)):
                j = (self.start + i) // 2 - first
                q[j] += self.q[i]
                p[j] += self.p[i]
            return dataclasses.replace(self, step=2 * self.step, start=first, q=q, p=p)
        first = (self.start - 1) // 2
        q = [ZERO] * ((self.start + len(self.q)) // 2 - first + 2)
        # An odd point is split between the even points beside it, whose ratios are
        # e^−h and e^h times its own.
        up = ONE / (1 + ball(self.step).exp())
        for i, mass in enumerate(self.q):
            j = (self.start + i) // 2 - first
            if (self.start + i) % 2:
                q[j] += (1 - up) * mass
                q[j + 1] += up * mass
            else:
                q[j] += mass
        found = dataclasses.replace(self, step=2 * self.step, start=first, q=q)
        return found._with_ratios()

    def channel(self) -> Channel:
        ends = [(self.sinks[0], ZERO), (ZERO, self.sinks[1])]
        columns = [*zip(self.q, self.p, strict=True), *ends]
        if self.side is Side.HIGH:
            columns = [(a.abs_upper(), b.abs_upper()) for a, b in columns]
        # Outputs with a mass that is not certain are dropped.
        kept = [(a, b) for a, b in columns if (a > 0 or b > 0) and a >= 0 and b >= 0]
        rows = [[column[i] for column in kept] for i in (0, 1)]
        return Channel(rows, self.side, self.blur)
