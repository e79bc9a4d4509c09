"""Channels: the output laws of a mechanism on two datasets, in ball arithmetic.

In ball arithmetic every number is an interval that contains the true value. A channel
has one column for each output: its probability without the record, and with it. The
ratio of an output is the second probability over the first. Nothing here uses the
algorithms of the package: no grid in ε, no tilt, no transform. Numbers are Arb's, which
have any exponent and carry their own error bounds; floats only choose where to cut.

Every operation here is on one `Side`. A channel of the side `LOW` is a post-processing
of the mechanism: outputs are merged, which never increases a divergence. The mechanism
is a post-processing of a channel of the side `HIGH`: outputs are split in two, of a
larger and of a smaller ratio. Merging the two restores the output. While few outputs
suffice, nothing is merged or split, and channels of both sides are the mechanism's own.

Ball arithmetic cannot show that two ratios are equal. Outputs whose ratios agree to 100
bits are merged, and `blur` bounds the resulting error of the logarithm of any ratio.
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
from flint import ctx
from flint import fmpq
import numpy as np

BITS = 160
MOST_LISTED = 4096  # The most outputs of a product of which none are merged or split.
_ALIKE = 100  # Ratios that agree to this many bits are treated as equal.
_ROUNDING = 2.0**-50  # Relative error of rounding a logarithm to a float.
_SHORTEST = 1e-13  # Smallest distance of two nodes, relative to their absolute value.
ZERO, ONE = arb(0), arb(1)
Row = list[arb]


class Side(enum.Enum):
    """Whether a mechanism is bounded from below or from above."""

    LOW = -1
    HIGH = 1


class TooLargeError(Exception):
    """A product has too many outputs to list them."""


class NoTheoremError(Exception):
    """The verification knows no bound for an event."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How finely a mechanism is bounded, and from which side.

    Attributes:
        side: The side.
        cells: The number of cells into which continuous noise is discretized.
        most: The number of outputs to which channels are reduced.
        rare: Probability of tails that may be truncated. The side `LOW` drops them; on
            the side `HIGH` they reveal whether the record is there.
    """

    side: Side
    cells: int = 150
    most: int = 200
    rare: float = 1e-40


@dataclasses.dataclass(frozen=True)
class Channel:
    """The probabilities of a mechanism's outputs, one row for each dataset.

    Attributes:
        rows: The probabilities without the record, and with it. In `lattices`, row j
            may be for j participations of the record.
        blur: Bound on the absolute error of the logarithm of an output's ratio.
    """

    rows: list[Row]
    blur: arb = ZERO

    @property
    def size(self) -> int:
        """The number of outputs."""
        return len(self.rows[0])

    def delta(self, epsilon: Any, *, remove: bool) -> tuple[arb, arb]:
        """Returns a lower and an upper bound on δ at ε, in one direction.

        For the mechanism itself, only the lower bound holds if the channel is of the
        side `LOW`, and only the upper bound if it is of the side `HIGH`.
        """
        q, p = self.rows if remove else self.rows[::-1]
        kappa = ball(epsilon).exp()
        low, high = kappa * (2 * self.blur).exp(), kappa * (-2 * self.blur).exp()
        # δ sums the positive parts (a − e^ε b)₊: the lower bound counts those terms
        # that are certainly positive, the upper bound those that may be.
        least, most = ZERO, ZERO
        for a, b in zip(p, q, strict=True):
            under, over = a - low * b, a - high * b
            if under > 0:
                least += under
            if not over < 0:
                most += over.upper()
        return least.lower(), most.upper()

    def true_positives(self, rate: Any, *, remove: bool) -> tuple[arb, arb]:
        """Returns bounds on the power of the best test at a false positive rate.

        If `remove`, the null hypothesis is the dataset without the record.
        """
        q, p = self.rows if remove else self.rows[::-1]
        order = sorted(range(self.size), key=lambda i: -_loss(q[i], p[i]))
        left, power = ball(rate), ZERO
        for i in order:
            if left >= q[i]:
                left, power = left - q[i], power + p[i]
            else:
                # The test is randomized at this output; later ratios are no larger.
                # Its probability of rejection is between these two.
                least = left.abs_lower() / q[i].upper() if left > 0 else ZERO
                most = left / q[i] if q[i] > 0 else ONE
                slack = (2 * self.blur).exp() * (1 + arb(2) ** -40)
                lower, upper = power + least * p[i], power + most.upper() * p[i]
                return lower.lower() / slack, upper.upper() * slack
        return power.lower(), ONE


def ball(value: Any) -> arb:
    """Returns a number as a ball; a float is converted exactly."""
    if isinstance(value, arb):
        return value
    if hasattr(value, "numerator") and not isinstance(value, float):
        return arb(fmpq(int(value.numerator), int(value.denominator)))
    with ctx.workprec(64):
        return arb(float(value))


def exact(without: Sequence[Any], with_record: Sequence[Any]) -> Channel:
    """Returns the channel of two laws on the same outputs."""
    rows = [[ball(x) for x in law] for law in (without, with_record)]
    return merged(Channel(rows))


def _loss(q: arb, p: arb) -> float:
    """Returns an estimate of log(p/q), infinite if one of the masses is zero."""
    if not p > 0:
        return -math.inf
    return float((p / q).log()) if q > 0 else math.inf


def merged(channel: Channel) -> Channel:
    """Returns the channel with all outputs whose ratios agree merged into one."""
    columns: dict[Any, list[arb]] = {}
    for column in zip(*channel.rows, strict=True):
        scale = next((x for x in column if x > 0), None)
        if scale is None:
            if all(x == 0 for x in column):
                continue
            key: Any = len(columns)  # No mass is certainly positive: it is not merged.
        else:
            key = tuple(_key(x / scale) for x in column)
        if key in columns:
            columns[key] = [a + b for a, b in zip(columns[key], column, strict=True)]
        else:
            columns[key] = list(column)
    rows = _rows_of([*columns.values()], len(channel.rows))
    blur = channel.blur
    if len(columns) < channel.size:
        blur = blur + arb(2) ** (2 - _ALIKE)
    return dataclasses.replace(channel, rows=rows, blur=blur)


def _rows_of(columns: Sequence[Sequence[arb]], number: int) -> list[Row]:
    """Returns the rows of a channel, of which there is this number."""
    return [[column[i] for column in columns] for i in range(number)]


def _key(ratio: arb) -> Any:
    """Returns a key that ratios have in common if they agree to `_ALIKE` bits."""
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


def outer(a: Row, b: Row) -> Row:
    """Returns all products of a mass of a and one of b, in the order of a, then b."""
    return list((arb_mat(len(a), 1, a) * arb_mat(1, len(b), b)).entries())


def listed(one: Channel, other: Channel) -> Channel:
    """Returns the composition of two mechanisms, or raises `TooLargeError`."""
    if one.size * other.size > MOST_LISTED:
        raise TooLargeError
    rows = [outer(a, b) for a, b in zip(one.rows, other.rows, strict=True)]
    return merged(Channel(rows, one.blur + other.blur))


def sampled(rate: Any, channel: Channel) -> Channel:
    """Returns the channel of a mechanism on a Poisson sample of the given rate."""
    rate = ball(rate)
    without, with_record = channel.rows
    mixed = [
        (1 - rate) * q + rate * p for p, q in zip(with_record, without, strict=True)
    ]
    return merged(dataclasses.replace(channel, rows=[without, mixed]))


def reduced(channel: Channel, side: Side, most: int) -> Channel:
    """Returns a channel on the same side with about `most` outputs, or fewer.

    On the side `HIGH` it has two rows.
    """
    if channel.size <= most:
        return channel
    apart = Apart.of(channel, side)
    losses = apart.losses
    if losses.size <= 2:
        return apart.beside([apart.total(i, i + 1) for i in range(losses.size)])
    marks = _marks(losses, apart.weights, most)
    if side is Side.LOW:
        cuts = itertools.pairwise([0, *marks, losses.size])
        return apart.beside([apart.total(*cut) for cut in cuts])
    nodes = _spread([float(losses[i]) for i in (0, *marks, -1)])
    ratios = [ball(node).exp() for node in nodes]
    masses = apart.split(np.array(nodes), ratios)
    columns = [(q, (q * r).upper()) for q, r in zip(masses, ratios, strict=True) if q]
    return apart.beside(columns)


def _marks(losses: np.ndarray, weights: np.ndarray, most: int) -> list[int]:
    """Returns the indices at which sorted outputs are cut.

    One third of the cuts is evenly spaced in the cumulated cube roots of the weights,
    one third in the index, and one third in the loss.
    """
    shares = np.cumsum(np.cbrt(weights)) / np.cbrt(weights).sum()
    third = np.linspace(0.0, 1.0, most // 3)[1:-1]
    marks = (
        np.searchsorted(shares, third),
        (losses.size * third).astype(int),
        np.searchsorted(losses, losses[0] + third * np.ptp(losses)),
    )
    return sorted({*np.concatenate(marks).tolist()} - {0, losses.size})


def _spread(nodes: Sequence[float]) -> list[float]:
    """Returns nodes that are not too close, the outermost moved a little outwards."""
    margin = _SHORTEST * max(abs(nodes[0]), abs(nodes[-1])) + 1e-27
    spread = [nodes[0] - margin]
    for node in nodes[1:-1]:
        if node - spread[-1] > _SHORTEST * abs(node) + 1e-27:
            spread.append(node)
    while len(spread) > 1 and nodes[-1] + margin - spread[-1] <= margin:
        spread.pop()
    return [*spread, nodes[-1] + margin]


@dataclasses.dataclass(frozen=True)
class Apart:
    """The outputs of a channel, divided into those of a finite loss and all others.

    Attributes:
        channel: The channel.
        order: Indices of the outputs with a finite loss, sorted by the loss.
        losses: Their losses, the logarithms of their ratios.
        weights: For each of them the larger of its two probabilities, which decides
            where to cut.
        ends: Columns of the other outputs, which are impossible under one of the laws
            or have a mass that is not certainly positive.
    """

    channel: Channel
    order: np.ndarray
    losses: np.ndarray
    weights: np.ndarray
    ends: list[Row]

    @classmethod
    def of(cls, channel: Channel, side: Side) -> "Apart":
        """Returns the outputs of a channel, divided in this way."""
        without, with_record = channel.rows[:2]
        ratios = map(operator.truediv, with_record, without)
        losses = np.array([float(ratio.log()) for ratio in ratios])
        positive = np.array([p > 0 for p in with_record], dtype=bool)
        # The midpoint is no number if the error of the ball is infinite.
        is_finite = positive & np.isfinite(losses)
        finite = np.flatnonzero(is_finite)
        ends: dict[Any, Row] = {}
        for i in np.flatnonzero(~is_finite).tolist():
            column = [row[i] for row in channel.rows]
            if side is Side.HIGH:
                # The output is split into one of zero and one of infinite ratio, whose
                # masses are rounded up.
                q, p = (x.abs_upper() for x in column)
                columns = [[q, ZERO], [ZERO, p]]
            else:
                columns = [column]
            for column in columns:
                key = tuple(x == 0 for x in column)
                end = ends.get(key, [ZERO] * len(column))
                ends[key] = [a + b for a, b in zip(end, column, strict=True)]
        order = finite[np.argsort(losses[finite], kind="stable")]
        masses = [np.array([float(x) for x in row]) for row in (without, with_record)]
        return cls(
            channel,
            order,
            losses[order],
            np.clip(np.maximum(*masses)[order], 1e-300, 1.0),
            [end for key, end in ends.items() if not all(key)],
        )

    def total(self, start: int, stop: int) -> Row:
        """Returns the total mass, in each row, of the outputs from start to stop."""
        inside = self.order[start:stop].tolist()
        return [sum(map(row.__getitem__, inside), ZERO) for row in self.channel.rows]

    def beside(self, columns: Sequence[Sequence[arb]]) -> Channel:
        """Returns the channel of these columns and the columns of `ends`."""
        rows = _rows_of([*columns, *self.ends], len(self.channel.rows))
        return dataclasses.replace(self.channel, rows=rows)

    def split(self, nodes: np.ndarray, ratios: Sequence[arb]) -> list[arb]:
        """Returns Q-masses at ratios such that merging restores the outputs.

        The outputs between two nodes are split to these nodes. A loss may have been
        rounded to the wrong cell. The ratio is then in the cell after P's mass has
        changed by a factor within `slack`, and each node gets the larger mass that any
        such factor needs.

        Args:
            nodes: The logarithms of the ratios, rounded to floats. The first may be
                −∞, and all losses are between the outermost.
            ratios: The ratios.
        """
        cells = np.searchsorted(nodes, self.losses, side="right") - 1
        cells = np.clip(cells, 0, nodes.size - 2)
        masses = [ZERO] * nodes.size
        starts = np.flatnonzero(np.diff(cells, prepend=-1)).tolist()
        for start, stop in itertools.pairwise([*starts, cells.size]):
            cell = int(cells[start])
            q, p = self.total(start, stop)
            low, high = ratios[cell : cell + 2]
            beside = [abs(node) for node in nodes[cell : cell + 2] if node > -math.inf]
            slack = (ball(_ROUNDING * max(beside)) + arb(2) ** -120).exp()
            masses[cell] += ((high * q - p / slack) / (high - low)).abs_upper()
            masses[cell + 1] += ((p * slack - low * q) / (high - low)).abs_upper()
        return [mass.upper() for mass in masses]
