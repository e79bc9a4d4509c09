"""Mechanisms from which outputs are drawn, by the definitions of events.

What has an upper bound in ball arithmetic is drawn from its table of outputs. All else
is drawn as its event says, with values of records that are stated there. A lower bound
on ε needs only some pair of datasets: one where each member of the group contributes 1
and the neighbor without them, or, for replaced records, where each contributes −1.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import itertools
import math
from typing import Any

from dp_accounting import dp_event as stock
import numpy as np

from dp_accounting_ext import dp_event
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import draws
from dp_accounting_ext.verify import readings
from dp_accounting_ext.verify import schemes

Mechanism = draws.Mechanism
Array = np.ndarray
# Tuning: the most sets of steps that are listed, the most states of sums over others,
# and how many steps estimates look back where there are more.
_MOST_SETS, _MOST_STATES, _MEMORY = 400, 64, 3
_ALLOCATIONS = (
    "RandomAllocationEvent",
    "RandomAllocationDpEvent",
    "ScheduledAllocationEvent",
)
_RUNS = (stock.ComposedDpEvent, stock.SelfComposedDpEvent)


@dataclasses.dataclass(frozen=True)
class Definitions:
    """Reads a tree of events as a mechanism of which outputs can be drawn.

    Attributes:
        members: The number of members of the group.
        replaced: Whether they have the value −1 in the second dataset.
        table: Returns the table of an event that need not be drawn as it is defined,
            from the event, and whether it is for the group and relation of the tree, or
            for a single member that is removed.
    """

    members: int
    replaced: bool
    table: Callable[[stock.DpEvent, bool], draws.Table]

    def of(self, event: Any) -> Mechanism:
        """Returns the mechanism of an event that is not inside of another's mixture.

        Raises:
            NoTheoremError: If an event has no definition here.
        """
        if isinstance(event, dp_event.GroupSubsampledEvent):
            return self.of(event.event)
        if not self.needs_draws(event):
            return self.table(event, True)
        if isinstance(event, _RUNS):
            return draws.Runs([(self.of(each), n) for each, n in _children(event)])
        found, leaves = _inside(event, self.table), list(_leaves(event))
        tables = not all(
            isinstance(each, readings.NOISES)
            for each in leaves
            if readings.kind(each) not in _SCHEMES
        )
        if tables or (self.members > 1 and not _takes_groups(event)):
            return draws.OneMember(found, leaves=tables)
        return found

    def needs_draws(self, event: Any) -> bool:
        """Returns whether there is no theorem for a tree, or for a part of it."""
        name = readings.kind(event)
        several = self.replaced or self.members > 1
        if name in _SCHEMES or (name in _ALLOCATIONS and several):
            return True
        if getattr(event, "num_selected", 1) > 1:
            return True
        return any(self.needs_draws(each) for each, _ in _children(event))


def _children(event: Any) -> list[tuple[Any, int]]:
    """Returns what an event runs on the same or on fewer records, and how often."""
    if isinstance(event, stock.ComposedDpEvent):
        return [(each, 1) for each in event.events]
    if isinstance(event, stock.SelfComposedDpEvent):
        return [(event.event, int(event.count))]
    if isinstance(event, dp_event.ScheduledAllocationEvent):
        return [*zip(event.events, map(int, event.counts), strict=True)]
    if readings.kind(event) in _ALLOCATIONS:
        return [(event.event, int(event.num_steps))]
    if isinstance(event, (*readings.SAMPLES, dp_event.GroupSubsampledEvent)):
        return [(event.event, 1)]
    return []


def _leaves(event: Any) -> Iterator[Any]:
    children = _children(event)
    for child, _ in children:
        yield from _leaves(child)
    if not children:
        yield event


def _takes_groups(event: Any) -> bool:
    """Returns whether the mechanism of an event may have several members."""
    if readings.kind(event) in _SCHEMES or getattr(event, "num_selected", 1) > 1:
        return False
    return all(_takes_groups(child) for child, _ in _children(event))


def _inside(event: Any, table: Callable[..., draws.Table]) -> Mechanism:
    """Returns the mechanism of an event, whatever the members contribute."""
    if readings.kind(event) in _SCHEMES:
        return _correlated(event)
    if isinstance(event, readings.NOISES):
        kind = "laplace" if isinstance(event, stock.LaplaceDpEvent) else "gaussian"
        return draws.Noise(kind, _positive(event))
    children = _children(event)
    if not children:
        return table(event, False)
    parts = [(_inside(child, table), count) for child, count in children]
    if isinstance(event, _RUNS):
        return draws.Runs(parts)
    if isinstance(event, readings.SAMPLES):
        return draws.Sampled(float(event.sampling_probability), parts[0][0])
    if readings.kind(event) in _ALLOCATIONS:
        selected = int(getattr(event, "num_selected", 1))
        return draws.Allocated(parts, selected, int(event.num_steps))
    return parts[0][0]


def _positive(event: Any) -> float:
    deviation = float(event.noise_multiplier)
    if not deviation:
        raise channels.NoTheoremError("no theorem for a part without noise")
    return deviation


def _correlated(event: Any) -> schemes.Correlated:
    strategy = np.array(event.strategy, dtype=np.float64)
    number, scheme = _SCHEMES[readings.kind(event)](event, strategy)
    return schemes.Correlated(strategy, _positive(event), number, scheme)


def _bins(event: Any, strategy: Array) -> tuple[int, schemes.Scheme]:
    bins, epochs = int(event.num_bins), int(event.num_epochs)
    sets = np.arange(bins)[:, None] + bins * np.arange(epochs)
    return bins * epochs, _listed(event, strategy, sets, bins * epochs)


def _listed(event: Any, strategy: Array, sets: Array, number: int) -> schemes.Listed:
    takes = np.zeros((len(sets), number))
    takes[np.arange(len(sets))[:, None], sets] = 1.0
    squares = schemes.squares(strategy, takes, _positive(event))
    return schemes.Listed(sets, squares, number)


def _windowed(event: Any, strategy: Array) -> tuple[int, schemes.Scheme]:
    window = int(event.window)
    cycle = window + int(event.separation) - 1
    number = cycle * int(event.num_cycles)
    squares = schemes.products(strategy, number, _positive(event), 1)[0]
    rate = float(event.sampling_probability)
    return number, schemes.Windowed(window, cycle, rate, squares)


def _separated(event: Any, strategy: Array) -> tuple[int, schemes.Scheme]:
    number = int(event.num_steps)
    squares = schemes.products(strategy, number, _positive(event), 1)[0]
    rate, separation = float(event.sampling_probability), int(event.separation)
    scheme = schemes.Separated(rate, separation, bool(event.warm_start), squares)
    return number, scheme


def _poisson(event: Any, strategy: Array) -> tuple[int, schemes.Scheme]:
    number, stride = int(event.num_steps), int(getattr(event, "cycle_length", 1))
    rate = float(event.sampling_probability)
    memory = _memory(strategy, number, stride)
    return number, _chained(event, strategy, number, memory, stride=stride, rate=rate)


def _selected(event: Any, strategy: Array) -> tuple[int, schemes.Scheme]:
    selected, period = int(event.num_selected), int(event.num_steps)
    epochs = int(event.num_epochs)
    number = period * epochs
    if math.comb(period, selected) ** epochs <= _MOST_SETS:
        of_epoch = [*itertools.combinations(range(period), selected)]
        moved = [np.array(of_epoch) + period * epoch for epoch in range(epochs)]
        sets = [np.concatenate(way) for way in itertools.product(*moved)]
        return number, _listed(event, strategy, np.array(sets), number)
    memory = _memory(strategy, number, 1)
    chosen = {"selected": selected, "period": period}
    return number, _chained(event, strategy, number, memory, **chosen)


def _memory(strategy: Array, number: int, stride: int) -> int:
    """Returns how many steps back a step of a walk may share noise with another."""
    gram = strategy.T @ strategy if strategy.ndim == 2 else strategy[:number]
    if strategy.ndim == 2:
        gram = [np.diagonal(gram, lag).any() for lag in range(number)]
    bands = int(np.flatnonzero(gram)[-1]) + 1
    return int(min(bands - 1, number - 1) // stride)


def _chained(
    event: Any,
    strategy: Array,
    number: int,
    memory: int,
    *,
    stride: int = 1,
    rate: float = 1.0,
    selected: int = 0,
    period: int = 1,
) -> schemes.Chained:
    is_exact = (selected + 1) << min(memory, 60) <= _MOST_STATES
    memory = memory if is_exact else min(memory, _MEMORY)
    lags = memory * stride + 1
    products = schemes.products(strategy, number, _positive(event), lags)
    return schemes.Chained(products, stride, rate, selected, period, memory, is_exact)


# How the steps of a record are drawn, by the names of events with correlated noise.
_SCHEMES: dict[str, Callable[[Any, Array], tuple[int, schemes.Scheme]]] = {
    "MatrixAllocationEvent": _bins,
    "WindowedAllocationEvent": _windowed,
    "MinSepSamplingEvent": _separated,
    "CyclicPoissonEvent": _poisson,
    "PoissonMatrixEvent": _poisson,
    "SelectedStepsMatrixEvent": _selected,
}
