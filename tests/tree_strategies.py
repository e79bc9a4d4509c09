"""Hypothesis strategies for trees of every supported event."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import importlib
import math
import pkgutil
from typing import Any

import attr
import dp_accounting
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
from hypothesis import strategies as st
import newer_events
import numpy as np
import registered

import dp_accounting_ext as ext
from dp_accounting_ext import wpm

NeighborRel = privacy_accountant.NeighboringRelation
Events = st.SearchStrategy[Any]

SAMPLED_RELATIONS = (NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large trees are, so that their cost is bounded.

    Attributes:
        count: Most runs of one event.
        steps: Most steps of an allocation.
        selected: Most of them that a record takes part in.
        depth: Most levels of sampling, allocation and composition.
        extremes: Whether parameters may be at the ends of what is supported.
        discrete: Whether only events with few outputs are drawn.
        given: Whether events that a user registered are drawn.
    """

    count: int = 30
    steps: int = 100
    selected: int = 4
    depth: int = 3
    extremes: bool = True
    discrete: bool = False
    given: bool = False


SMALL = Sizes(count=4, steps=6, selected=3, extremes=False, given=True)


def log_scale(low: float, high: float, number: int = 200) -> st.SearchStrategy[float]:
    """Numbers from a logarithmic scale, with three digits."""
    return st.integers(0, number).map(
        lambda i: float(f"{low * (high / low) ** (i / number):.3g}")
    )


def noise_multipliers(sizes: Sizes) -> st.SearchStrategy[float]:
    # Few, for the referee to remember their noise.
    usual = log_scale(0.3, 20.0, 24)
    if not sizes.extremes:
        return usual
    return usual | log_scale(0.04, 1e4, 24) | st.sampled_from([0.0, 1e-10, 0.03, 1e9])


def rates(sizes: Sizes) -> st.SearchStrategy[float]:
    usual = log_scale(0.01, 1.0)
    if not sizes.extremes:
        return usual
    ends = [0.0, 1.0, 1e-12, 1e-100, 1 - 1e-9]
    return usual | log_scale(1e-8, 1.0) | st.sampled_from(ends)


def gaussians(sizes: Sizes) -> Events:
    return st.builds(stock.GaussianDpEvent, noise_multipliers(sizes))


def laplaces(sizes: Sizes) -> Events:
    return st.builds(stock.LaplaceDpEvent, noise_multipliers(sizes))


def discrete_laplaces(sizes: Sizes) -> Events:
    usual = log_scale(0.02, 2.0), st.integers(1, 4)
    events = st.builds(stock.DiscreteLaplaceDpEvent, *usual)
    if sizes.extremes:
        extreme = st.sampled_from([0.0, 1e-6, 30.0]), st.sampled_from([1, 9])
        events |= st.builds(stock.DiscreteLaplaceDpEvent, *extreme)
    return events


def randomized_responses(sizes: Sizes, buckets: int = 6) -> Events:
    noise = log_scale(0.02, 0.9)
    if sizes.extremes:
        noise |= st.sampled_from([0.0, 1.0, 1e-6])
    return st.builds(stock.RandomizedResponseDpEvent, noise, st.integers(2, buckets))


@st.composite
def mixtures(draw: Any, sizes: Sizes) -> Any:
    size = draw(st.integers(1, 4))
    weights = draw(
        st.lists(st.integers(0, 5), min_size=size, max_size=size).filter(any)
    )
    shifts = [draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])) for _ in range(size)]
    return stock.MixtureOfGaussiansDpEvent(
        draw(log_scale(0.4, 10.0, 24)), shifts, [w / sum(weights) for w in weights]
    )


@st.composite
def discrete_events(draw: Any) -> Any:
    """Two laws on few outputs of integer weights, some of which only one has."""
    size = draw(st.integers(2, 3))
    weights = st.lists(st.integers(0, 8), min_size=size, max_size=size)
    with_record = draw(weights.filter(any))
    common = [i for i, weight in enumerate(with_record) if weight]
    without = draw(weights.filter(lambda law: any(law[i] for i in common)))
    return registered.DiscreteEvent(tuple(without), tuple(with_record))


def leaves(sizes: Sizes) -> Events:
    """Events that run on a sample, and need no other."""
    kinds = [discrete_laplaces(sizes), st.just(stock.NoOpDpEvent())]
    if sizes.extremes:
        kinds.append(st.just(stock.NonPrivateDpEvent()))
    if sizes.given:
        kinds += [discrete_events()] * 2
    if not sizes.discrete:
        kinds += [gaussians(sizes), laplaces(sizes), mixtures(sizes)]
    return st.one_of(kinds)


def _composed(events: Events, sizes: Sizes) -> Events:
    lists = st.lists(events, min_size=1, max_size=3)
    counts = st.integers(1, sizes.count)
    return st.builds(stock.ComposedDpEvent, lists) | st.builds(
        stock.SelfComposedDpEvent, events, counts
    )


@st.composite
def _allocation(
    draw: Any, events: Events, sizes: Sizes, kind: Any = ext.RandomAllocationEvent
) -> Any:
    steps = draw(st.integers(1, sizes.steps))
    selected = draw(st.integers(1, min(steps, sizes.selected)))
    return kind(draw(events), selected, steps)


@st.composite
def _schedule(draw: Any, events: Events, sizes: Sizes) -> Any:
    inner = draw(st.lists(events, min_size=1, max_size=2))
    most = max(sizes.steps // 2 - 1, 1)
    counts = [draw(st.integers(1, most)) for _ in inner]
    rest = draw(st.integers(0, 3))
    return ext.ScheduledAllocationEvent(inner, counts, sum(counts) + rest)


def sampled_trees(sizes: Sizes) -> Events:
    """Trees of what runs on a sample: composed, sampled and allocated in any order."""
    events = leaves(sizes)
    for _ in range(sizes.depth):
        events = st.one_of(
            leaves(sizes),
            _composed(events, sizes),
            st.builds(stock.PoissonSampledDpEvent, rates(sizes), events),
            st.builds(ext.PLDSubsampleEvent, rates(sizes), events),
            _allocation(events, sizes),
            _schedule(events, sizes),
        )
    return events


@st.composite
def batches(draw: Any, sizes: Sizes, members: int = 1) -> Any:
    """Batches of fixed size, of a dataset that is left with more records than those."""
    batch = draw(st.integers(1, 4))
    size = draw(st.integers(batch + members, 20))
    kinds = stock.SampledWithReplacementDpEvent, stock.SampledWithoutReplacementDpEvent
    kind = draw(st.sampled_from(kinds))
    noise = draw(gaussians(sizes) | laplaces(sizes) | st.just(stock.NoOpDpEvent()))
    return kind(size, batch, noise)


@st.composite
def batches_of_any(draw: Any, sizes: Sizes, members: int = 1) -> Any:
    """Batches without replacement that run a tree."""
    batch = draw(st.integers(1, 4))
    size = draw(st.integers(batch + members, 20))
    # Of few outputs, with and without a record as unlike as they may be, or any.
    few = discrete_events() if sizes.given else st.nothing()
    inner = draw(few | sampled_trees(dataclasses.replace(sizes, depth=1)))
    return stock.SampledWithoutReplacementDpEvent(size, batch, inner)


def truncated(sizes: Sizes) -> Events:
    return st.builds(
        stock.TruncatedSubsampledGaussianDpEvent,
        st.integers(1, 8 if sizes.given else 200),
        rates(sizes),
        st.integers(1, 6),
        noise_multipliers(sizes),
    )


@st.composite
def private_draws(draw: Any) -> Any:
    epsilon = draw(log_scale(0.05, 6.0))
    place = draw(st.floats(-0.95, 0.95))
    mass = float(np.exp(place * epsilon / 2))
    known = draw(st.integers(0, 3)) * [mass / 64]
    return wpm.PrivateSamplingEvent(epsilon, mass, known)


def record_trees(sizes: Sizes, relation: NeighborRel) -> Events:
    """Compositions of samples, batches and truncated batches; of draws and responses.

    The latter where a record is replaced, and not where one is added.
    """
    noise = gaussians(sizes) | laplaces(sizes)
    events = st.one_of(
        noise,
        sampled_trees(dataclasses.replace(sizes, depth=1)),
        st.builds(stock.PoissonSampledDpEvent, rates(sizes), noise),
        batches(sizes),
        batches_of_any(sizes),
        truncated(sizes),
    )
    if relation is not NeighborRel.ADD_OR_REMOVE_ONE:
        events |= randomized_responses(sizes) | private_draws()
    return (
        events | _composed(events, sizes) | _composed(_composed(events, sizes), sizes)
    )


@st.composite
def discrete_gaussians(draw: Any, sizes: Sizes) -> Any:
    sigma = draw(log_scale(0.3, 6.0, 12))
    if sizes.extremes:
        sigma = draw(st.sampled_from([sigma, 0.0, 0.05]))
    sensitivity = draw(st.sampled_from([1.0, 1.0, 0.0, 0.5, 1.5, 2.0, 3.0]))
    dimension = draw(st.sampled_from([1, 1, None, 7]))
    return newer_events.DiscreteGaussian(sigma, sensitivity, dimension)


def newer_leaves(sizes: Sizes) -> Events:
    """Events of newer versions of dp_accounting that any relation may have."""
    epsilons = log_scale(0.03, 4.0, 24)
    # An infinite loss is likelier than the δ that are asked for, or it is not.
    chances = st.sampled_from([0.0, 0.0, 0.0, 1e-9, 1e-3])
    rhos, constants = log_scale(1e-3, 1.0, 12), st.sampled_from([0.0, 0.0, 0.3])
    if sizes.extremes:
        epsilons |= st.sampled_from([0.0, 1e-9, 30.0, 700.0])
        chances |= st.sampled_from([1e-30, 0.5, 1.0])
        rhos |= st.sampled_from([0.0, 1e-9, 40.0])
    return st.one_of(
        st.builds(newer_events.EpsilonDelta, epsilons, chances),
        st.builds(newer_events.Exponential, epsilons),
        st.builds(newer_events.PermuteAndFlip, epsilons),
        st.builds(stock.ZCDpEvent, rhos, constants),
        discrete_gaussians(sizes),
    )


def selections(events: Events, sizes: Sizes) -> Events:
    means = st.sampled_from([1.0, 1.5, 4.0, 20.0])
    shapes = st.sampled_from([0.0, 0.5, 1.0, 3.0, float("inf")])
    return st.builds(stock.RepeatAndSelectDpEvent, events, means, shapes)


def tree_aggregations(sizes: Sizes) -> Events:
    steps = st.integers(1, 70) | st.lists(st.integers(1, 9), min_size=1, max_size=3)
    return st.builds(
        stock.SingleEpochTreeAggregationDpEvent, noise_multipliers(sizes), steps
    )


def mixed_trees(sizes: Sizes, relation: NeighborRel) -> Events:
    """Trees of old events and new ones; some are of what no theorem covers."""
    old = gaussians(sizes)
    if relation is not NeighborRel.REPLACE_ONE:
        old |= leaves(dataclasses.replace(sizes, given=False))
    if relation is not NeighborRel.ADD_OR_REMOVE_ONE:
        old |= randomized_responses(sizes)
    if relation is NeighborRel.REPLACE_SPECIAL:
        old |= tree_aggregations(sizes)
    events = old | newer_leaves(sizes)
    for _ in range(sizes.depth):
        parts = [events, _composed(events, sizes), selections(events, sizes)]
        if relation is not NeighborRel.REPLACE_ONE:
            parts += [
                st.builds(stock.PoissonSampledDpEvent, rates(sizes), events),
                _allocation(events, sizes),
                _allocation(events, sizes, newer_events.RandomAllocation),
            ]
        if relation is NeighborRel.ADD_OR_REMOVE_ONE:
            groups = st.builds(ext.GroupSubsampledEvent, st.integers(1, 3), events)
            parts = [*parts, *parts, *parts, groups]
        events = st.one_of(parts)
    if relation is not NeighborRel.REPLACE_SPECIAL:
        few = dataclasses.replace(sizes, given=True)  # Large datasets take seconds.
        fixed = batches(sizes) | truncated(few)
        events = st.one_of(*[events] * 6, fixed)
    return _composed(events, sizes)


@st.composite
def group_trees(draw: Any, sizes: Sizes, *, replaced: bool = False) -> Any:
    """Mechanisms of one group, composed inside of its event or outside."""
    size = draw(st.integers(1, 3 if sizes.given else 9))
    noise = gaussians(sizes) | laplaces(sizes)
    sampled = noise
    if not replaced:
        sampled |= randomized_responses(sizes, buckets=2)
    events = st.one_of(
        randomized_responses(sizes) if replaced else sampled,
        noise,
        st.builds(stock.PoissonSampledDpEvent, rates(sizes), sampled),
        st.builds(ext.PLDSubsampleEvent, rates(sizes), sampled),
        batches(sizes, size),
        batches_of_any(sizes, size),
        sampled_trees(dataclasses.replace(sizes, depth=1)),
    )
    group = st.builds(
        ext.GroupSubsampledEvent, st.just(size), events | _composed(events, sizes)
    )
    return draw(group | _composed(group, sizes))


def cases(sizes: Sizes) -> st.SearchStrategy[tuple[Any, NeighborRel]]:
    """Trees of every kind, with a relation that supports them."""
    add, *others = map(st.just, NeighborRel)
    sampled = st.tuples(sampled_trees(sizes), st.sampled_from(SAMPLED_RELATIONS))
    return st.one_of(
        sampled,
        sampled,
        *(st.tuples(record_trees(sizes, each), st.just(each)) for each in NeighborRel),
        st.tuples(group_trees(sizes), add),
        st.tuples(group_trees(sizes, replaced=True), st.one_of(others)),
    )


def fields_changed(
    event: Any, change: Callable[[Any], Any], names: Sequence[str] = ()
) -> Any:
    """Returns a tree with a change made to its numbers, or to those of some names."""
    if isinstance(event, dp_accounting.DpEvent):
        values = {}
        for field in attr.fields(type(event)):
            value = getattr(event, field.name)
            is_number = not isinstance(value, dp_accounting.DpEvent | list | tuple)
            # The ledger counts in Python's integers.
            kept = field.name == "count" if not names else field.name not in names
            if not (is_number and kept):
                value = fields_changed(value, change, names)
            values[field.name] = value
        return type(event)(**values)
    if isinstance(event, list | tuple):
        return type(event)(
            item
            if names and not isinstance(item, dp_accounting.DpEvent)
            else fields_changed(item, change, names)
            for item in event
        )
    return change(event)


def with_numpy_scalars(event: Any) -> Any:
    """Returns a tree whose numbers are NumPy's, but for counts of compositions.

    The host's ledger takes Python's only for these.
    """

    def change(value: Any) -> Any:
        if isinstance(value, int):
            return np.int64(value)
        return np.float64(value) if isinstance(value, float) else value

    return fields_changed(event, change)


# Adversarial ones: what is at the ends of ranges, and beside what the code decides by.


@functools.cache
def named_numbers() -> frozenset[int | float]:
    """Returns the numbers that the package's modules name.

    They are read from the modules, so that a constant that is added is looked at, too.
    """
    found = set()
    for info in pkgutil.walk_packages(ext.__path__, f"{ext.__name__}."):
        if not info.name.endswith("__main__") and ".integrations" not in info.name:
            module = importlib.import_module(info.name)
            found.update(
                value
                for name, value in vars(module).items()
                if name.isupper() and isinstance(value, int | float)
            )
    return frozenset(found)


def thresholds(most: int = 1_000_000) -> list[int]:
    """Returns the integers among them, where counts may matter."""
    named = {n for n in named_numbers() if isinstance(n, int) and 2 <= n <= most}
    return sorted({1, 2, 3, *named})


def beside(low: float, high: float) -> list[float]:
    """Returns the floats among them that are in a range, and their neighbors."""
    named = [x for x in named_numbers() if isinstance(x, float) and low <= x <= high]
    ends = [math.nextafter(x, end) for x in named for end in (0.0, math.inf)]
    return sorted({*named, *ends})


def straddling(most: int, least: int = 1) -> st.SearchStrategy[int]:
    """Counts at the package's own thresholds, one below and one above; and others."""
    beside = {n + d for n in thresholds(most) for d in (-1, 0, 1)}
    few = st.integers(least, min(most, 9))
    return few | st.sampled_from(sorted(n for n in beside if least <= n <= most))


SMALLEST_RATES = [1e-100, 1e-26, 1e-12, 1.75e-10, 1e-5, 0.25, 1 - 1e-9]
edge_deltas = log_scale(1e-250, 0.999, 60) | st.sampled_from(
    [1e-40, 1e-15, 1e-6, 0.5, 0.9, 0.999]
)


def losses() -> st.SearchStrategy[float]:
    """Losses far below one, far above it, and beside the largest exponent of floats."""
    huge = st.floats(20.0, 720.0).map(lambda x: round(x, 2))
    return log_scale(1e-9, 3.0, 30) | huge | huge | st.sampled_from(beside(500, 800))


@st.composite
def rare_parts(draw: Any, most: int = 200) -> Any:
    """What hardly tells anything, beside which nothing may be lost, up to so many runs.

    A rate, a weight or a loss is far below a rounding of one.
    """
    tiny = log_scale(1e-100, 1e-8, 23)
    tiny_losses = log_scale(1e-60, 1e-8, 13)
    leaf = st.builds(stock.LaplaceDpEvent, st.sampled_from([0.1, 1.0, 1e3]))
    leaf |= st.builds(stock.GaussianDpEvent, st.sampled_from([0.2, 1.0, 1e3]))
    leaf |= edge_leaves()
    event = draw(
        st.builds(stock.PoissonSampledDpEvent, tiny, leaf)
        | st.builds(stock.PoissonSampledDpEvent, tiny, leaf)
        | st.builds(
            stock.MixtureOfGaussiansDpEvent,
            st.just(1.0),
            st.just([0.0, 1.0]),
            tiny.map(lambda weight: [1 - weight, weight]),
        )
        | st.builds(stock.DiscreteLaplaceDpEvent, tiny_losses, st.just(1))
        | st.builds(registered.SingleShiftEvent)
    )
    return stock.SelfComposedDpEvent(event, draw(straddling(most)))


def beside_rare_parts(most: int = 12) -> Events:
    """Compositions of something ordinary, or at the edges, and of what is rare."""
    usual = st.builds(stock.GaussianDpEvent, log_scale(0.5, 4.0, 6)) | edge_leaves()
    return st.builds(
        lambda *parts: stock.ComposedDpEvent([*parts]), usual, rare_parts(most)
    )


@st.composite
def few_outcomes(draw: Any) -> registered.DiscreteEvent:
    """Two laws of some outputs: rare ones, denormal ones, combs, with and without gaps.

    The last output has what the others leave.
    """
    size = draw(st.integers(1, 6))
    # Squares of some are less than any float.
    rare = st.sampled_from(
        [1e-318, 5e-324, 1e-308, 1e-291, 1e-200, 1e-163, 1e-30, 1e-9]
    )
    rare |= st.sampled_from(beside(1e-320, 1e-100))
    mass = st.floats(0.01, 0.9 / 6) | rare | st.just(0.0)
    kind = draw(st.sampled_from(["any", "comb", "any"]))
    if kind == "comb":
        step = draw(losses()) / size
        weights = np.exp(-step * np.arange(size + 1))
        both = weights / weights.sum(), weights[::-1] / weights.sum()
        return registered.DiscreteEvent(*(tuple(map(float, law)) for law in both))
    laws = [[draw(mass) for _ in range(size)] for _ in range(2)]
    place, loss, mass = draw(st.integers(0, size - 1)), draw(losses()), draw(rare)
    likely = draw(st.sampled_from([mass * math.exp(min(loss, 709.0)), 0.05]))
    if draw(st.booleans()) and likely < 0.1:
        # One output that is far likelier with the record, or without it.
        laws[0][place], laws[1][place] = mass, likely
        laws = laws[:: draw(st.sampled_from([1, -1]))]
    places = draw(st.tuples(st.integers(0, size), st.integers(0, size)))
    for law, place in zip(laws, places, strict=True):
        law.insert(place, 1 - sum(law))
    if not any(min(a, b) > 1e-250 for a, b in zip(*laws, strict=True)):
        # At least one output is likely in both.
        laws = [[*(x / 2 for x in law), 0.5] for law in laws]
    return registered.DiscreteEvent(*map(tuple, laws))


@st.composite
def rare_outputs(draw: Any, number: int) -> registered.DiscreteEvent:
    """An output that one dataset hardly ever has: in one run, or in all of so many.

    Of several it is less than a float in one of them, and likely in the other.
    """
    rare = st.sampled_from([1e-308, 1e-291, 1e-200, 1e-163, 1e-143, 1e-30])
    chance = draw(rare | st.sampled_from(beside(1e-320, 1e-100)))
    chance **= draw(st.sampled_from([1.0, 1 / number]))
    likely, share, other = (draw(st.floats(1e-3, 0.4)) for _ in range(3))
    laws = [(chance, share, 1 - share - chance), (likely, other, 1 - other - likely)]
    return registered.DiscreteEvent(*laws[:: draw(st.sampled_from([1, -1]))])


@st.composite
def edge_runs(draw: Any, *, most: int = 12) -> Any:
    """Runs with such an output, and something else or not."""
    number = draw(straddling(most, 2))
    event: Any = draw(rare_outputs(number))
    kind = draw(st.sampled_from(["alone", "alone", "sample", "allocation"]))
    if kind == "sample":
        event = stock.PoissonSampledDpEvent(0.25, event)
    elif kind == "allocation":
        event = ext.RandomAllocationEvent(event, 1, draw(st.integers(2, 3)))
    runs = stock.SelfComposedDpEvent(event, number)
    besides = draw(st.just([]) | st.lists(edge_leaves(), min_size=1, max_size=1))
    return stock.ComposedDpEvent([runs, *besides])


def edge_leaves(*, discrete: bool = False, given: bool = True) -> Events:
    """Mechanisms whose losses are tiny or huge."""
    kinds = [
        st.builds(stock.DiscreteLaplaceDpEvent, losses(), st.sampled_from([1, 1, 2]))
    ]
    if given:
        kinds += [few_outcomes(), discrete_events()]
    if not discrete:
        sigmas = log_scale(0.027, 0.5, 40) | log_scale(0.5, 1e6, 20)
        kinds += [
            st.builds(stock.GaussianDpEvent, sigmas),
            st.builds(stock.GaussianDpEvent, sigmas),
            st.builds(stock.LaplaceDpEvent, losses().map(lambda x: 1 / x)),
        ]
    return st.one_of(kinds)


@st.composite
def edge_trees(
    draw: Any, *, discrete: bool = False, given: bool = True, most: int = 12
) -> Any:
    """One or two mechanisms at the edges, composed, sampled or allocated, in any order.

    Args:
        draw: Hypothesis'.
        discrete: Whether only mechanisms of few outputs are drawn.
        given: Whether mechanisms that a user registered are drawn.
        most: The largest number of steps, or of runs.
    """
    rates = st.sampled_from(SMALLEST_RATES) | log_scale(1e-12, 1.0, 30)
    leaf = edge_leaves(discrete=discrete, given=given)

    def inner() -> Any:
        event = draw(leaf)
        match draw(st.integers(0, 9)):
            case 0 | 1:
                return event
            case 2 | 3 | 4:
                steps = draw(straddling(most))
                selected = 1 if draw(st.integers(0, 3)) else min(2, steps)
                if draw(st.integers(0, 3)) == 0:
                    event = stock.PoissonSampledDpEvent(draw(rates), event)
                return ext.RandomAllocationEvent(event, selected, steps)
            case 5:
                counts = draw(st.integers(1, 3)), draw(st.integers(1, 3))
                return ext.ScheduledAllocationEvent(
                    [event, draw(leaf)], counts, sum(counts) + draw(st.integers(0, 2))
                )
            case 6:
                steps = draw(st.integers(1, 2))
                return ext.ScheduledAllocationEvent([event], [1], steps)
            case 7:
                steps = draw(st.integers(2, 6))
                return ext.RandomAllocationEvent(
                    event, steps - draw(st.integers(0, 1)), steps
                )
            case _:
                return stock.PoissonSampledDpEvent(draw(rates), event)

    parts = [inner() for _ in range(draw(st.sampled_from([1, 1, 2])))]
    parts = [
        stock.SelfComposedDpEvent(part, draw(straddling(most)))
        if draw(st.booleans())
        else part
        for part in parts
    ]
    event = parts[0] if len(parts) == 1 else stock.ComposedDpEvent(parts)
    if draw(st.integers(0, 5)) == 0:
        event = stock.PoissonSampledDpEvent(draw(rates), event)
    return event
