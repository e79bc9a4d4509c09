"""Runs one after another: compositions, on a lattice of losses where they are long."""

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
    """Returns a mechanism run so many times.

    Args:
        channel: One run.
        count: How many.
        most: Of how many outputs products of channels are, about.
        rare: Probability of large losses that may be told apart from the others.
        cells: Most cells of the lattice on which long compositions are.
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
    """Returns two mechanisms on the same records, one after the other.

    Those of many outputs meet on a lattice, in place of every output with every other.
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
    """A law of losses in cells [i, i + 1) h (LOW), or on points i h (HIGH).

    Attributes:
        side: Which of both.
        step: h, a power of two.
        start: The first i.
        q, p: Masses; HIGH has P's as Q's times the ratio, LOW by themselves.
        sinks: Probability that only Q has, and only P.
        blur: As of a channel.
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
        """Lays a channel on a lattice; what is rare and far away goes to the sinks."""
        apart = channels.Apart.of(channel)
        sinks = [ZERO, ZERO]
        for q, p in apart.ends:
            # What is in doubt a lower bound leaves out.
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
        """Returns it with P's masses as Q's times the ratio, all rounded up."""
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
        """Returns the law of a sum of copies."""
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
            row = list(arb_poly(one) * arb_poly(two))
            rows.append([*row, *[ZERO] * (size - len(row))])
        sinks = [
            1 - (1 - a) * (1 - b) for a, b in zip(self.sinks, other.sinks, strict=True)
        ]
        start = self.start + other.start
        blur = self.blur + other.blur
        found = _Lattice(self.side, self.step, start, rows[0], rows[1], sinks, blur)
        if self.side is Side.LOW:
            return found
        # Each row is as exact as its own largest masses: the better one serves.
        step = ball(self.step)
        q = [
            a
            if a.rel_accuracy_bits() >= b.rel_accuracy_bits()
            else b * (-step * (start + i)).exp()
            for i, (a, b) in enumerate(zip(*rows, strict=True))
        ]
        return dataclasses.replace(found, q=q)._with_ratios()

    def _narrowed(self, most: int, rare: float) -> "_Lattice":
        """Returns it without ends that are rare, of a larger step if it is long."""
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
        """Returns it with twice the step."""
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
        # An odd point between two even ones, whose ratios are e^∓h times its own.
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
        # What is in doubt a lower bound leaves out.
        kept = [(a, b) for a, b in columns if (a > 0 or b > 0) and a >= 0 and b >= 0]
        rows = [[column[i] for column in kept] for i in (0, 1)]
        return Channel(rows, self.side, self.blur)
