"""Certified bounds on ε from the channels of an event."""

from collections.abc import Iterator
import math

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import numpy as np

from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import newer_readings
from dp_accounting_ext.verify import readings

Channel = channels.Channel
Side = channels.Side
_WAYS = (True, False)  # Whether the record is removed.
_LARGEST = 1e6  # The search for ε ends here.
_HALVINGS = 60
assert newer_readings  # Its import registers readers of events.


def epsilon_bracket(
    event: stock.DpEvent,
    relation: privacy_accountant.NeighboringRelation,
    delta: float,
    cells: int,
    most: int,
    *,
    rare: float,
) -> tuple[float, float]:
    """Returns a lower and an upper bound on ε of a tree of events at δ.

    Args:
        event: The tree of events.
        relation: The neighboring relation.
        delta: δ.
        cells: The number of cells into which continuous noise is discretized.
        most: The largest number of outputs of a channel.
        rare: Probability of tails that may be truncated, as in `runs.power`.

    Raises:
        NoTheoremError: If the verification knows no upper bound for the event.
    """
    sides = {}
    for side in (Side.HIGH, Side.LOW):
        sides[side] = readings.readings(
            event, relation, side, cells=cells, most=most, rare=rare
        )
        if side is Side.HIGH and not sides[side]:
            raise channels.NoTheoremError(
                f"no theorem for an upper bound of {type(event).__name__} as it is"
            )
    high = max(
        _at_most(channel, delta, remove)
        for channel in sides[Side.HIGH]
        for remove in _WAYS
    )
    low = max(
        (
            _at_least(channel, delta, remove)
            for channel in sides[Side.LOW]
            for remove in _WAYS
        ),
        default=0.0,
    )
    return low, high


def _at_least(channel: Channel, delta: float, remove: bool) -> float:
    """Returns a lower bound on ε: a number at which the privacy profile exceeds δ."""
    q, p = channel.rows if remove else channel.rows[::-1]
    alone = sum((b for a, b in zip(q, p, strict=True) if a == 0), channels.ZERO)
    if alone > delta:
        return math.inf
    for margin in _margins():
        epsilon = _about(channel, delta, remove) * (1 - margin)
        if channel.delta(epsilon, remove=remove)[0] > delta:
            return epsilon
    return 0.0


def _at_most(channel: Channel, delta: float, remove: bool) -> float:
    """Returns an upper bound on ε: the privacy profile there is at most δ."""
    about = _about(channel, delta, remove)
    for margin in (0.0, *_margins()) if about < _LARGEST else ():
        epsilon = about * (1 + margin) + margin * 1e-9
        if channel.delta(epsilon, remove=remove)[1] <= delta:
            return epsilon
    return math.inf


def _margins() -> Iterator[float]:
    """Yields relative distances to move an estimate of ε until it is certified."""
    yield from (1e-12, 1e-9, 1e-7, 1e-5, 1e-3)


def _about(channel: Channel, delta: float, remove: bool) -> float:
    """Returns an estimate of ε at δ, by bisection in floats; it is not certified."""
    q, p = (
        np.array([float(x.mid()) for x in row])
        for row in (channel.rows if remove else channel.rows[::-1])
    )

    def exceeds(epsilon: float) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = np.where(q > 0, p - math.exp(min(epsilon, 700.0)) * q, p)
        return float(np.maximum(gaps, 0.0).sum()) > delta

    low, high = 0.0, 1.0
    if not exceeds(0.0):
        return 0.0
    while exceeds(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            return _LARGEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high
