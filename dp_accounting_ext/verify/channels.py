"""What mechanisms reveal, in ball arithmetic: each number is an interval that holds it.

A channel has one column for each output: its probability without the record, and with
it. There is nothing here of how the package computes: no step in ε is chosen by it, no
tilt, no transform, no float. Numbers are Arb's, of any size, with their own errors.

- `EXACT` channels are the mechanism's.
- `LOW` channels are functions of it: outputs are merged, which never reveals more.
- Of `HIGH` channels the mechanism is a function: outputs are split in two, of a larger
  and of a smaller ratio, which merged give them back.

No ball can show that two ratios are equal. Where they agree to 100 bits outputs are
merged, and `blur` bounds by how much the logarithm of any ratio is wrong for it.
"""

from collections.abc import Sequence
import dataclasses
import enum
import itertools
import math
from typing import Any

from flint import arb
from flint import arb_mat
from flint import ctx
from flint import fmpq
import numpy as np

BITS = 160
MOST_EXACT = 20_000  # Outputs of a product of exact channels, before they are merged.
_ALIKE = 100  # Bits of two ratios that are taken for one.
ROUNDING = 2.0**-50  # Of a logarithm made a float, relatively.
_SHORTEST = 1e-13  # No two nodes are nearer than this share of their distance to zero.
ZERO, ONE = arb(0), arb(1)
Row = list[arb]


class Side(enum.Enum):
    """From where a channel bounds what it stands for."""

    LOW = -1
    EXACT = 0
    HIGH = 1


class TooLargeError(Exception):
    """An exact channel has too many outputs."""


class NoTheoremError(Exception):
    """Nothing is known here about an event."""


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
        """The number of outputs."""
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


def alike(channels: Sequence[Channel]) -> list[Channel]:
    """Returns channels of one side: exact ones become those of the others."""
    sides = {channel.side for channel in channels} - {Side.EXACT}
    if not sides:
        return list(channels)
    (side,) = sides
    return [bounding(channel, side) for channel in channels]


def outer(a: Row, b: Row) -> Row:
    """Returns every product, those of a row's first mass first."""
    return list((arb_mat(len(a), 1, a) * arb_mat(1, len(b), b)).entries())


def check_size(one: Channel, other: Channel) -> None:
    """Raises TooLargeError if exact channels have too many outputs together."""
    if one.side is Side.EXACT and one.size * other.size > MOST_EXACT:
        raise TooLargeError


def product(one: Channel, other: Channel, most: int) -> Channel:
    """Returns two mechanisms on the same records, one after the other."""
    one, other = alike([one, other])
    check_size(one, other)
    if one.side is not Side.EXACT:
        one, other = reduced(one, most), reduced(other, most)
    rows = [outer(a, b) for a, b in zip(one.rows, other.rows, strict=True)]
    return reduced(Channel(rows, one.side, one.blur + other.blur), most)


def sampled(rate: Any, channel: Channel) -> Channel:
    """Returns a mechanism on a Poisson sample: the record is in it, or is not."""
    inside = ball(rate)
    without, with_record = channel.rows
    mixed = [
        (1 - inside) * b + inside * a for a, b in zip(with_record, without, strict=True)
    ]
    return merged(dataclasses.replace(channel, rows=[without, mixed]))


def reduced(channel: Channel, most: int) -> Channel:
    """Returns a channel of about as many outputs at most, from the same side."""
    if channel.side is Side.EXACT:
        return merged(channel)
    if channel.size <= most:
        return channel
    if channel.side is Side.HIGH and len(channel.rows) > 2:
        return merged(channel)
    apart = Apart.of(channel)
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
class Apart:
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
    def of(cls, channel: Channel) -> "Apart":
        """Returns the outputs of a channel, apart."""
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
            reach = ball(ROUNDING) * float(np.abs(nodes[cell : cell + 2]).max())
            slack = (reach + arb(2) ** -120).exp()
            masses[cell] += ((high * q - p / slack) / (high - low)).abs_upper()
            masses[cell + 1] += ((p * slack - low * q) / (high - low)).abs_upper()
        return [mass.upper() for mass in masses]


def _add(found: dict[Any, Row], key: Any, column: Sequence[arb]) -> None:
    known = found.get(key, [ZERO] * len(column))
    found[key] = [a + b for a, b in zip(known, column, strict=True)]
