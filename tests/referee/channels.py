"""Mechanisms as laws of outputs, with a record and without it: the referee's model.

A channel lists outputs with their probabilities without the record (row 0) and with
it (row 1). A tree of events is built of channels by what the events say, inclusion by
inclusion. Nothing here is shared with the package, and no formula of its for the ratio
of a sample or an allocation is used.

Channels are exact (rational numbers, or mpmath's at 60 digits), or bounds: outputs
merged tell less (`LOW`), outputs split in two of more extreme ratio tell more (`HIGH`).
Both orders are kept by every operation, as what is done with outputs can only tell
less.
"""

from collections.abc import Sequence
import dataclasses
import enum
import fractions
import functools
import itertools
import math
from typing import Any

import mpmath
import numpy as np

DIGITS = 60  # Of mpmath, wherever channels are made.
MOST_EXACT = 4000
_UNIT = 2.0**-53
_RARE = 1e-200  # Outputs rarer than this are dropped, or told.
_FINE = 1 << 16
_SAME = 1e-9  # Bins narrower than this, relatively, count as one ratio.


class Side(enum.Enum):
    """What a channel is to the mechanism it stands for."""

    EXACT = "exact"
    LOW = "low"
    HIGH = "high"


class TooLargeError(Exception):
    """Raised where a channel has more outputs than can be listed."""


@dataclasses.dataclass(frozen=True, eq=False)
class Channel:
    """Outputs and their probabilities.

    Attributes:
        laws: (2, n): without the record, with it.
        error: Bound on the relative error of each probability.
        side: Whether it is the mechanism, tells less or tells more.
    """

    laws: np.ndarray
    error: float
    side: Side

    @property
    def size(self) -> int:
        return self.laws.shape[1]

    def reversed(self) -> "Channel":
        """Returns the channel with the two datasets exchanged."""
        return dataclasses.replace(self, laws=self.laws[::-1])

    def delta(self, epsilon: float, *, remove: bool) -> tuple[Any, Any]:
        """Returns bounds on Σ (p − e^ε q)_+; the mechanism's own as the side says."""
        p, q = self.laws[::-1] if remove else self.laws
        if self.laws.dtype == object:
            with mpmath.workdps(DIGITS):
                middle = mpmath.exp(mpmath.mpf(epsilon))
            low, high = (
                fraction(middle) * (1 + side * fractions.Fraction(1, 10**50))
                for side in (-1, 1)
            )
            slack = fractions.Fraction(self.error)
            exact = [(fraction(a), fraction(b)) for a, b in zip(p, q, strict=True)]
            return (
                sum(max(a * (1 - slack) - high * b * (1 + slack), 0) for a, b in exact),
                sum(max(a * (1 + slack) - low * b * (1 - slack), 0) for a, b in exact),
            )
        kappa = math.exp(epsilon)
        error = self.error + 4 * _UNIT
        rounding = self.size * _UNIT + 1e-15
        least = np.maximum(p * (1 - error) - kappa * q * (1 + error), 0.0)
        most = np.maximum(p * (1 + error) - kappa * q * (1 - error), 0.0)
        # Rows that underflow are far below this.
        return (
            max(float(least.sum()) * (1 - rounding) - 1e-280 * kappa, 0.0),
            float(most.sum()) * (1 + rounding) + 1e-280 * kappa,
        )


def fraction(number: Any) -> fractions.Fraction:
    """Returns the rational number that a number is."""
    if isinstance(number, mpmath.mpf):
        sign, mantissa, exponent, _ = number._mpf_
        whole = fractions.Fraction(int(mantissa)) * fractions.Fraction(2) ** exponent
        return -whole if sign else whole
    return fractions.Fraction(number)


def exact(without: Sequence[Any], with_record: Sequence[Any]) -> Channel:
    """Returns the channel of a discrete law: rational numbers, or mpmath's."""
    laws = np.empty((2, len(without)), dtype=object)
    laws[0, :], laws[1, :] = without, with_record
    rational = all(isinstance(x, int | fractions.Fraction) for x in laws.ravel())
    return merged(Channel(laws, 0.0 if rational else 1e-50, Side.EXACT))


def floats(channel: Channel, side: Side) -> Channel:
    """Returns an exact channel in floats, as a bound."""
    if channel.laws.dtype != object:
        return channel
    laws = channel.laws.astype(np.float64)
    return Channel(laws, channel.error + 2 * _UNIT, side)


def _alike(channels: Sequence[Channel]) -> list[Channel]:
    """Returns channels all exact, or all bounds from one side."""
    sides = {channel.side for channel in channels} - {Side.EXACT}
    if not sides:
        return list(channels)
    (side,) = sides
    return [floats(channel, side) for channel in channels]


def _outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == object and a.size * b.size > MOST_EXACT:
        raise TooLargeError
    return np.multiply.outer(a, b).ravel()


def product(one: Channel, other: Channel, most: int) -> Channel:
    """Returns two mechanisms on the same records, one after the other."""
    one, other = _alike([one, other])
    one, other = reduced(one, most), reduced(other, most)
    laws = np.stack([_outer(a, b) for a, b in zip(one.laws, other.laws, strict=True)])
    error = one.error + other.error + 2 * _UNIT
    return reduced(Channel(laws, error, one.side), most)


def power(channel: Channel, count: int, most: int) -> Channel:
    """Returns a mechanism run so many times."""
    result, square = NO_OP, channel
    while count:
        if count % 2:
            result = product(result, square, most)
        count //= 2
        if count:
            square = product(square, square, most)
    return result


def sampled(rate: float, channel: Channel) -> Channel:
    """Returns a mechanism on a Poisson sample: the record is in it, or is not."""
    without, with_record = channel.laws
    inside = fractions.Fraction(rate)
    outside, error = 1 - inside, channel.error
    if channel.laws.dtype != object:
        inside, outside, error = float(inside), float(outside), error + 4 * _UNIT
    laws = np.stack([without, outside * without + inside * with_record])
    return merged(dataclasses.replace(channel, laws=laws, error=error))


def allocated(steps: Sequence[Channel], selected: int, most: int) -> Channel:
    """Returns steps in a random set of which the record takes part.

    Row j holds the sum, over the sets of j of the steps so far, of the probabilities
    of the outputs with the record in the steps of the set.
    """
    steps = _alike(steps)
    if selected == len(steps):
        return functools.reduce(lambda a, b: product(a, b, most), steps)
    if steps[0].side is Side.HIGH and selected > 1:
        # More than pairs cannot be split: all outputs are listed.
        steps = [reduced(step, int(1e5 ** (1 / len(steps)) / 2)) for step in steps]
        if math.prod(step.size for step in steps) > 4e5:
            raise TooLargeError
    rows, error = steps[0].laws, steps[0].error
    for step in steps[1:]:
        step = reduced(step, most)
        without, with_record = step.laws
        parts = [_outer(rows[0], without)]
        for fewer, row in itertools.pairwise(rows):
            parts.append(_outer(row, without) + _outer(fewer, with_record))
        if len(rows) <= selected:
            parts.append(_outer(rows[-1], with_record))
        rows, added = _reduced_rows(np.stack(parts), step.side, most)
        error += step.error + added + 4 * _UNIT * (step.side is not Side.EXACT)
    sets = fractions.Fraction(math.comb(len(steps), selected))
    if rows.dtype != object:
        sets = float(sets)
    laws = np.stack([rows[0], rows[selected] / sets])
    return reduced(Channel(laws, error, steps[0].side), most)


def merged(channel: Channel) -> Channel:
    """Returns an exact channel with outputs of the same ratio as one."""
    if channel.laws.dtype != object:
        return channel
    laws, _ = _merged_rows(channel.laws)
    return dataclasses.replace(channel, laws=laws)


def _merged_rows(rows: np.ndarray) -> tuple[np.ndarray, float]:
    if rows.shape[1] > MOST_EXACT:
        raise TooLargeError
    together: dict[Any, list[Any]] = {}
    for column in rows.T:
        scale = next((x for x in column if x), None)
        if scale is None:
            continue
        key = tuple(_key(x / scale) if x else 0 for x in column)
        kept = together.setdefault(key, [0] * len(column))
        for j, value in enumerate(column):
            kept[j] += value
    found = np.empty((rows.shape[0], len(together)), dtype=object)
    for i, column in enumerate(together.values()):
        found[:, i] = column
    return found, 0.0


def _key(ratio: Any) -> Any:
    if isinstance(ratio, mpmath.mpf):
        _, mantissa, exponent, bits = ratio._mpf_
        cut = max(bits - 170, 0)  # Some 51 digits.
        rounded = (int(mantissa) + (1 << cut >> 1)) >> cut
        return fractions.Fraction(rounded) * fractions.Fraction(2) ** (exponent + cut)
    return fractions.Fraction(ratio)


NO_OP = exact([1], [1])
EVERYTHING = exact([1, 0], [0, 1])


def reduced(channel: Channel, most: int) -> Channel:
    """Returns a channel of about as many outputs, from the same side."""
    laws, added = _reduced_rows(channel.laws, channel.side, most)
    return dataclasses.replace(channel, laws=laws, error=channel.error + added)


def _reduced_rows(rows: np.ndarray, side: Side, most: int) -> tuple[np.ndarray, float]:
    """Returns fewer outputs and a bound on the relative error so made."""
    if rows.dtype == object:
        return _merged_rows(rows)
    if rows.shape[1] <= most or (side is Side.HIGH and len(rows) > 2):
        return rows, 0.0
    rare = np.max(rows, axis=0) < _RARE
    if side is Side.HIGH:
        # Ratios that no float holds are as good as infinite.
        rare |= rows[1] * 1e-290 > rows[0]
    kept = rows[:, ~rare]
    ends = []
    if side is Side.HIGH:
        lost = rows[:, rare].sum(axis=1) * (1 + 1e-9)
        ends = [np.array([[lost[0], 0.0], [0.0, lost[1]]])]
    plain = (kept[0] > 0) & (kept[1] > 0)
    for index in (0, 1):
        alone = kept[:, ~plain & (kept[index] > 0)]
        ends.append(alone.sum(axis=1, keepdims=True))
    kept = kept[:, plain]
    error = (rows.shape[1] + 8) * _UNIT
    if kept.shape[1] == 0:
        return np.concatenate(ends, axis=1), error
    with np.errstate(over="ignore"):
        logs = np.log(kept[1]) - np.log(kept[0])
    low, high = float(logs.min()), float(logs.max())
    if high - low < _SAME:
        together = kept.sum(axis=1, keepdims=True)
        return np.concatenate([together, *ends], axis=1), error + 2 * _SAME
    width = (high - low) / _FINE
    fine = np.minimum(((logs - low) / width).astype(np.int64), _FINE - 1)
    labels, edges = _coarse(fine, kept[0] + kept[1], most)
    bins = labels[fine]
    if side is Side.LOW:
        found = np.stack([np.bincount(bins, row, edges.size - 1) for row in kept])
        return np.concatenate([found, *ends], axis=1), error
    # Ends a little beyond the bin's, for the rounding of logarithms.
    span = np.maximum(np.diff(edges) * width, _SAME)
    start = low + edges[:-1] * width - 1e-11
    inside = logs - start[bins]
    span = span + 2e-11
    share = np.clip(np.expm1(inside) / np.expm1(span)[bins], 0.0, 1.0)
    slack = 64 * (error + 2e-13) / span
    least = np.bincount(bins, kept[0] * (1 - share), start.size)
    most_q = np.bincount(bins, kept[0] * share, start.size)
    whole = np.bincount(bins, kept[0], start.size)
    q = np.concatenate([least + slack * whole, most_q + slack * whole])
    places = np.concatenate([start, start + span])
    found = np.stack([q, q * np.exp(places)])
    return np.concatenate([found, *ends], axis=1), error + 1e-12


def _coarse(
    fine: np.ndarray, weights: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bin of each fine bin, and the fine indices of the bins' edges.

    Half the bins are equal, half are narrow where there is much mass.
    """
    density = np.bincount(fine, weights, _FINE) ** (1 / 3)
    quantile = np.cumsum(density) / density.sum()
    equal = np.arange(_FINE) / _FINE
    marks = np.floor(quantile * most / 2), np.floor(equal * most / 2)
    change = np.append(True, (np.diff(marks[0]) > 0) | (np.diff(marks[1]) > 0))
    labels = np.cumsum(change) - 1
    edges = np.append(np.flatnonzero(change), _FINE)
    return labels, edges
