"""What mechanisms reveal, in ball arithmetic: each number is an interval that holds it.

A channel has one column for each output: its probability without the record, and with
it. There is nothing here of how the package computes: no step in ε is chosen by it, no
tilt, no transform, no float. Numbers are Arb's, of any size, with their own errors.

- `EXACT` channels are the mechanism's.
- `LOW` channels are functions of it: outputs are merged, which never reveals more.
- Of `HIGH` channels the mechanism is a function: outputs are split in two, of a larger
  and of a smaller ratio, which merged give them back.

No ball tells that two ratios are equal. Where they agree to 100 bits outputs are
merged, and `blur` bounds by how much the logarithm of any ratio is wrong for it.
"""

from collections.abc import Sequence
import dataclasses
import enum
import itertools
import math
import operator
from typing import Any

from flint import arb
from flint import arb_mat
from flint import arb_poly
from flint import ctx
from flint import fmpq
import numpy as np

BITS = 160
MOST_EXACT = 20_000  # Outputs of a product of exact channels, before they are merged.
_ALIKE = 100  # Bits of two ratios that are taken for one.
_RARE = 1e-40
_CELLS = 8192
_ROUNDING = 2.0**-50  # Of a logarithm made a float, relatively.
_SHORTEST = 1e-13  # No two nodes are nearer than this share of their distance to zero.
ZERO, ONE = arb(0), arb(1)
Row = list[arb]

ctx.prec = BITS


class Side(enum.Enum):
    """From where a channel bounds what it stands for."""

    LOW = -1
    EXACT = 0
    HIGH = 1


class TooLargeError(Exception):
    """An exact channel has too many outputs."""


@dataclasses.dataclass(frozen=True)
class Channel:
    """Probabilities of outputs, one row a dataset.

    Attributes:
        rows: Without the record, and with it; in allocations, with more of it.
        side: From where they bound the mechanism.
        blur: Bound on the error of the logarithm of a ratio of rows.
    """

    rows: list[Row]
    side: Side = Side.EXACT
    blur: arb = ZERO

    @property
    def size(self) -> int:
        return len(self.rows[0])

    def delta(self, epsilon: Any, *, remove: bool) -> tuple[arb, arb]:
        """Returns bounds on δ at ε, of one direction; only the side's own holds."""
        q, p = self.rows if remove else self.rows[::-1]
        kappa = ball(epsilon).exp()
        low, high = kappa * (2 * self.blur).exp(), kappa * (-2 * self.blur).exp()
        # Terms are at least zero; of the upper ends all that may be positive count.
        least, most = ZERO, ZERO
        for a, b in zip(p, q, strict=True):
            under, over = a - low * b, a - high * b
            if under > 0:
                least += under
            if not over < 0:
                most += over.upper()
        return least.lower(), most.upper()

    def true_positives(self, rate: Any, *, remove: bool) -> tuple[arb, arb]:
        """Returns bounds on the power of the best test of a size, one direction."""
        q, p = self.rows if remove else self.rows[::-1]
        order = sorted(range(self.size), key=lambda i: -_loss(q[i], p[i]))
        left, power = ball(rate), ZERO
        for i in order:
            if left >= q[i]:
                left, power = left - q[i], power + p[i]
            else:
                # Any share of an output may count; the rest is no better a ratio.
                least = left.abs_lower() / q[i].upper() if left > 0 else ZERO
                most = left / q[i] if q[i] > 0 else ONE
                slack = (2 * self.blur).exp() * (1 + arb(2) ** -40)
                found = power + least * p[i], power + most.upper() * p[i]
                return found[0].lower() / slack, found[1].upper() * slack
        return power.lower(), ONE

    def renyi(self, order: Any, *, remove: bool) -> arb:
        """Returns a lower bound on the Rényi divergence of an order above one."""
        q, p = self.rows if remove else self.rows[::-1]
        total, alpha = ZERO, ball(order)
        for a, b in zip(p, q, strict=True):
            if a > 0 and not b > 0:
                return arb("inf") if b == 0 else ZERO
            if a > 0:
                total += a * ((alpha - 1) * (a / b).log()).exp()
        if not total > 0:
            return ZERO
        return (total.log() / (alpha - 1) - 2 * alpha * self.blur).lower()


def ball(value: Any) -> arb:
    """Returns a number as a ball: floats are the binary numbers they are."""
    if isinstance(value, arb):
        return value
    if hasattr(value, "numerator") and not isinstance(value, float):
        return arb(fmpq(int(value.numerator), int(value.denominator)))
    with ctx.workprec(64):
        return arb(float(value))


def exact(without: Sequence[Any], with_record: Sequence[Any]) -> Channel:
    """Returns the channel of two laws of the same outputs."""
    rows = [[ball(x) for x in law] for law in (without, with_record)]
    return merged(Channel(rows))


def _loss(q: arb, p: arb) -> float:
    """Returns about the logarithm of a ratio, infinite where one is zero."""
    if not p > 0:
        return -math.inf
    return float((p / q).log()) if q > 0 else math.inf


def merged(channel: Channel) -> Channel:
    """Returns a channel with outputs whose ratios agree as one."""
    together: dict[Any, list[arb]] = {}
    for column in zip(*channel.rows, strict=True):
        scale = next((x for x in column if x > 0), None)
        if scale is None:
            if all(x == 0 for x in column):
                continue
            key: Any = len(together)  # Not certain to be positive: by itself.
        else:
            key = tuple(_key(x / scale) for x in column)
        if key in together:
            together[key] = [a + b for a, b in zip(together[key], column, strict=True)]
        else:
            together[key] = list(column)
    every = together.values()
    rows = [[each[i] for each in every] for i in range(len(channel.rows))]
    blur = channel.blur
    if len(together) < channel.size:
        blur = blur + arb(2) ** (2 - _ALIKE)
    return dataclasses.replace(channel, rows=rows, blur=blur)


def _key(ratio: arb) -> Any:
    if ratio == 0:
        return 0
    if ratio.rel_accuracy_bits() < _ALIKE + 4:
        return object()
    mantissa, exponent = ratio.mid().man_exp()
    cut = max(int(abs(mantissa)).bit_length() - _ALIKE - 1, 0)
    rounded = (int(mantissa) + (1 << cut >> 1)) >> cut
    shift = (rounded & -rounded).bit_length() - 1 if rounded else 0
    return rounded >> shift, int(exponent) + cut + shift


NO_OP = exact([1], [1])
EVERYTHING = exact([1, 0], [0, 1])


def bounding(channel: Channel, side: Side) -> Channel:
    """Returns an exact channel as a bound, which may be made smaller."""
    if channel.side is not Side.EXACT:
        return channel
    return dataclasses.replace(channel, side=side)


def _alike(channels: Sequence[Channel]) -> list[Channel]:
    sides = {channel.side for channel in channels} - {Side.EXACT}
    if not sides:
        return list(channels)
    (side,) = sides
    return [bounding(channel, side) for channel in channels]


def _outer(a: Row, b: Row) -> Row:
    return (arb_mat(len(a), 1, a) * arb_mat(1, len(b), b)).entries()


def _checked(one: Channel, other: Channel) -> None:
    if one.side is Side.EXACT and one.size * other.size > MOST_EXACT:
        raise TooLargeError


def product(one: Channel, other: Channel, most: int) -> Channel:
    """Returns two mechanisms on the same records, one after the other."""
    one, other = _alike([one, other])
    _checked(one, other)
    if one.side is not Side.EXACT:
        one, other = reduced(one, most), reduced(other, most)
    rows = [_outer(a, b) for a, b in zip(one.rows, other.rows, strict=True)]
    return reduced(Channel(rows, one.side, one.blur + other.blur), most)


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
            result = product(result, result, most)
        if digit == "1":
            result = channel if result is None else product(result, channel, most)
    return NO_OP if result is None else result


def sampled(rate: Any, channel: Channel) -> Channel:
    """Returns a mechanism on a Poisson sample: the record is in it, or is not."""
    inside = ball(rate)
    without, with_record = channel.rows
    mixed = [
        (1 - inside) * b + inside * a for a, b in zip(with_record, without, strict=True)
    ]
    return merged(dataclasses.replace(channel, rows=[without, mixed]))


def allocated(
    steps: Sequence[tuple[Channel, int]], selected: int, most: int
) -> Channel:
    """Returns steps, so many of each, in a random set of which the record takes part.

    Row j is the sum, over the sets of j of the steps so far, of the probabilities of
    the outputs with the record in the steps of the set.
    """
    channels = _alike([channel for channel, _ in steps])
    numbers = [number for _, number in steps]
    total = sum(numbers)
    if selected == total:
        parts = [power(c, n, most) for c, n in zip(channels, numbers, strict=True)]
        found = parts[0]
        for part in parts[1:]:
            found = product(found, part, most)
        return found
    if channels[0].side is Side.HIGH and selected > 1:
        # What has more than two rows is never split: all outputs are listed.
        sizes = [min(max(int(6e4 ** (1 / total) / 2), 2), c.size) for c in channels]
        channels = [reduced(c, n) for c, n in zip(channels, sizes, strict=True)]
        listed = math.prod(c.size**n for c, n in zip(channels, numbers, strict=True))
        if listed > 6e4:
            raise TooLargeError
    found = None
    for channel, number in zip(channels, numbers, strict=True):
        base = reduced(channel, most)
        block: Channel | None = None
        for digit in bin(number)[2:]:
            if block is not None:
                block = _joined(block, block, selected, most)
            if digit == "1":
                block = base if block is None else _joined(block, base, selected, most)
        assert block is not None
        found = block if found is None else _joined(found, block, selected, most)
    assert found is not None
    sets = arb(math.comb(total, selected))
    rows = [found.rows[0], [x / sets for x in found.rows[selected]]]
    return reduced(dataclasses.replace(found, rows=rows), most)


def _joined(one: Channel, other: Channel, selected: int, most: int) -> Channel:
    """Returns two blocks of steps as one, with rows for up to so many of its steps."""
    _checked(one, other)
    rows = []
    for j in range(min(selected, len(one.rows) + len(other.rows) - 2) + 1):
        row: Row | None = None
        for i in range(len(one.rows)):
            if 0 <= j - i < len(other.rows):
                part = _outer(one.rows[i], other.rows[j - i])
                row = part if row is None else [*map(operator.add, row, part)]
        assert row is not None
        rows.append(row)
    # Each ratio is a sum of products of at most `selected` of the blocks' ratios.
    return reduced(Channel(rows, one.side, one.blur + other.blur), most)


def reduced(channel: Channel, most: int) -> Channel:
    """Returns a channel of about as many outputs at most, from the same side."""
    if channel.side is Side.EXACT:
        return merged(channel)
    if channel.size <= most:
        return channel
    if channel.side is Side.HIGH and len(channel.rows) > 2:
        return merged(channel)
    apart = _Apart.of(channel)
    losses = apart.losses
    if losses.size <= 2:
        return apart.beside([apart.total(i, i + 1) for i in range(losses.size)])
    marks = _marks(losses, apart.weights, most).tolist()
    if channel.side is Side.LOW:
        cuts = itertools.pairwise([0, *marks, losses.size])
        return apart.beside([apart.total(*cut) for cut in cuts])
    nodes = _spread([float(losses[i]) for i in (0, *marks, -1)])
    columns = [
        (mass, (mass * ball(node).exp()).upper())
        for mass, node in zip(apart.split(nodes), nodes.tolist(), strict=True)
        if mass != 0
    ]
    return apart.beside(columns)


def _marks(losses: np.ndarray, weights: np.ndarray, most: int) -> np.ndarray:
    """Returns where sorted outputs are cut: by masses, by number and by loss."""
    shares = np.cumsum(np.cbrt(weights)) / np.cbrt(weights).sum()
    third = np.linspace(0.0, 1.0, most // 3)[1:-1]
    marks = np.concatenate(
        [
            np.searchsorted(shares, third),
            (losses.size * third).astype(int),
            np.searchsorted(losses, losses[0] + third * np.ptp(losses)),
        ]
    )
    return np.unique(marks[(marks > 0) & (marks < losses.size)])


def _spread(nodes: Sequence[float]) -> np.ndarray:
    """Returns nodes none of which are too near, the outermost a little further out."""
    margin = _SHORTEST * max(abs(nodes[0]), abs(nodes[-1])) + 1e-27
    kept = [nodes[0] - margin]
    for node in nodes[1:-1]:
        if node - kept[-1] > _SHORTEST * abs(node) + 1e-27:
            kept.append(node)
    while len(kept) > 1 and nodes[-1] + margin - kept[-1] <= margin:
        kept.pop()
    return np.array([*kept, nodes[-1] + margin])


@dataclasses.dataclass(frozen=True)
class _Apart:
    """Outputs with a finite ratio, sorted by it, and all others.

    Attributes:
        channel: What they are of.
        order: Those with a finite ratio, by it.
        losses: Its logarithm.
        weights: The larger of the two probabilities, for where to cut.
        ends: Columns of the others: of what only one dataset has, or is in doubt.
    """

    channel: Channel
    order: np.ndarray
    losses: np.ndarray
    weights: np.ndarray
    ends: list[Row]

    @classmethod
    def of(cls, channel: Channel) -> "_Apart":
        finite, losses, weights = [], [], []
        others: dict[Any, Row] = {}
        for i, column in enumerate(zip(*channel.rows, strict=True)):
            q, p = column[0], column[1]
            # Of balls that are all error there is no number.
            loss = float((p / q).log()) if p > 0 and q > 0 else math.nan
            if math.isfinite(loss):
                finite.append(i)
                losses.append(loss)
                weights.append(max(float(p), float(q)))
            elif channel.side is Side.HIGH:
                # Split to both ends; what is in doubt is raised there.
                _add(others, 0, [q.abs_upper(), ZERO])
                _add(others, 1, [ZERO, p.abs_upper()])
            else:
                _add(others, tuple(0 if x == 0 else 1 for x in column), column)
        order = np.argsort(losses, kind="stable")
        return cls(
            channel,
            np.array(finite, dtype=int)[order],
            np.array(losses)[order],
            np.clip(np.array(weights)[order], 1e-300, 1.0),
            [end for end in others.values() if any(x != 0 for x in end)],
        )

    def total(self, start: int, stop: int) -> Row:
        """Returns the masses of a range of the outputs, row by row."""
        inside = self.order[start:stop].tolist()
        return [sum(map(row.__getitem__, inside), ZERO) for row in self.channel.rows]

    def beside(self, columns: Sequence[Sequence[arb]]) -> Channel:
        """Returns these outputs beside the others."""
        every = [*columns, *self.ends]
        rows = [[each[i] for each in every] for i in range(len(self.channel.rows))]
        return dataclasses.replace(self.channel, rows=rows)

    def split(self, nodes: np.ndarray) -> list[arb]:
        """Returns Q-masses at nodes that, merged, give the outputs between them back.

        Where a loss was rounded out of its cell, its ratio is moved back in: P's masses
        change by so much, and both nodes get what either could need.
        """
        cells = np.searchsorted(nodes, self.losses, side="right") - 1
        cells = np.clip(cells, 0, nodes.size - 2)
        masses = [ZERO] * nodes.size
        for cell in np.unique(cells).tolist():
            start, stop = np.searchsorted(cells, [cell, cell + 1]).tolist()
            q, p = self.total(start, stop)
            low, high = (ball(node).exp() for node in nodes[cell : cell + 2].tolist())
            reach = ball(_ROUNDING) * float(np.abs(nodes[cell : cell + 2]).max())
            slack = (reach + arb(2) ** -120).exp()
            masses[cell] += ((high * q - p / slack) / (high - low)).abs_upper()
            masses[cell + 1] += ((p * slack - low * q) / (high - low)).abs_upper()
        return [mass.upper() for mass in masses]


def _add(found: dict[Any, Row], key: Any, column: Sequence[arb]) -> None:
    known = found.get(key, [ZERO] * len(column))
    found[key] = [a + b for a, b in zip(known, column, strict=True)]


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
        apart = _Apart.of(channel)
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
        found = _Lattice(self.side, self.step, start, *rows, sinks, blur)
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
