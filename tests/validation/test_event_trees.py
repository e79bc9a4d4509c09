"""How large trees may be, and that what they compose is counted once a run."""

import collections

import attr
import dp_accounting
from dp_accounting import dp_event as stock_events
from hypothesis import given
from hypothesis import strategies as st
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.validation import event_trees

Composed = stock_events.ComposedDpEvent
SelfComposed = stock_events.SelfComposedDpEvent
Poisson = stock_events.PoissonSampledDpEvent
LEAVES = [
    stock_events.GaussianDpEvent(1.0),
    stock_events.LaplaceDpEvent(2.0),
    Poisson(0.5, SelfComposed(stock_events.GaussianDpEvent(3.0), 4)),
    ext.ScheduledAllocationEvent([stock_events.GaussianDpEvent(1.0)], [2], 3),
]

trees = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.lists(inner, max_size=3).map(Composed)
        | st.builds(SelfComposed, inner, st.integers(1, 5))
    ),
    max_leaves=8,
)


def runs(event):
    """Returns every run of a tree, one by one, from its definition."""
    if isinstance(event, Composed):
        return [run for inner in event.events for run in runs(inner)]
    if isinstance(event, SelfComposed):
        return runs(event.event) * event.count
    return [repr(event)]


@given(trees)
def test_leaves_are_the_runs_of_a_tree(event):
    found = collections.Counter()
    for leaf, count in event_trees.leaves(event):
        assert not isinstance(leaf, Composed | SelfComposed)
        found[repr(leaf)] += count
    assert found == collections.Counter(runs(event))
    event_trees.event_tree(event)


@given(trees, st.lists(st.integers(1, 9), max_size=4), st.integers(1, 9))
def test_repetitions_multiply(event, counts, count):
    repeated = event
    product = count
    for number in counts:
        repeated = SelfComposed(repeated, number)
        product *= number
    core, total = event_trees.repeated(repeated, count)
    assert not isinstance(core, SelfComposed)
    assert sorted(runs(core) * total) == sorted(runs(event) * product)


@pytest.mark.parametrize("count", [0, -1, 2**53 + 1])
def test_counts_that_no_float_holds(count):
    event = SelfComposed(LEAVES[0], count)
    for reading in (
        lambda: list(event_trees.leaves(event)),
        lambda: event_trees.repeated(event, 1),
        lambda: event_trees.repeated(LEAVES[0], count),
    ):
        with pytest.raises(ValueError, match=r"^count must be at (least|most)"):
            reading()


def test_counts_that_are_no_integers():
    event = SelfComposed(LEAVES[0], 1.5)
    with pytest.raises(TypeError, match=r"^count must be an integer. Found 1.5"):
        list(event_trees.leaves(event))
    with pytest.raises(TypeError, match=r"^count must be an integer. Found 1.5"):
        event_trees.repeated(event, 1)


def nested(wrap, depth):
    event = LEAVES[0]
    for _ in range(depth):
        event = wrap(event)
    return event


@pytest.mark.parametrize(
    "wrap",
    [lambda event: Composed([LEAVES[1], event]), lambda event: SelfComposed(event, 1)],
)
def test_compositions_may_be_nested_so_deep_and_no_deeper(wrap):
    deepest = nested(wrap, event_trees.DEEPEST)
    event_trees.event_tree(deepest)
    with pytest.raises(ValueError, match=r"^event must be nested at most 200 deep"):
        event_trees.event_tree(wrap(deepest))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda event: Poisson(0.5, event),
        lambda event: ext.PLDSubsampleEvent(0.5, Composed([event])),
        lambda event: ext.RandomAllocationEvent(SelfComposed(event, 2), 1, 2),
        lambda event: ext.ScheduledAllocationEvent([LEAVES[1], event], [1, 1], 2),
        lambda event: ext.GroupSubsampledEvent(2, event),
    ],
)
def test_samples_may_be_nested_so_deep_and_no_deeper(wrap):
    deepest = nested(wrap, event_trees.MOST_SAMPLINGS)
    event_trees.event_tree(deepest)
    with pytest.raises(ValueError, match=r"^event must sample at most 16 times"):
        event_trees.event_tree(wrap(deepest))


def test_a_tree_may_hold_so_many_events_and_no_more():
    children = [LEAVES[0]] * (event_trees.MOST_EVENTS - 1)
    event_trees.event_tree(Composed(children))
    with pytest.raises(ValueError, match=r"^event must hold at most 300000 events"):
        event_trees.event_tree(Composed([*children, LEAVES[0]]))


def test_a_tree_that_holds_itself():
    event = Composed([])
    event.events.append(event)
    with pytest.raises(ValueError, match="nested at most 200 deep"):
        event_trees.event_tree(event)


@attr.s(frozen=True, auto_attribs=True)
class Other(dp_accounting.DpEvent):
    """A third party's event, with an event in a field of the usual name."""

    event: object


@pytest.mark.parametrize("value", [None, 1.0, "event", LEAVES])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda value: value,
        lambda value: Composed([LEAVES[0], value]),
        lambda value: SelfComposed(value, 2),
        lambda value: Poisson(0.5, value),
        Other,
    ],
)
def test_what_is_no_event_is_refused_wherever_it_is(value, wrap):
    with pytest.raises(TypeError, match=r"^event must be a DpEvent. Found "):
        event_trees.event_tree(wrap(value))


@pytest.mark.parametrize("events", [iter(LEAVES), None, "events", LEAVES[0]])
def test_events_must_be_a_sequence(events):
    for reading in (
        lambda: event_trees.event_tree(Composed(events)),
        lambda: list(event_trees.leaves(Composed(events))),
    ):
        with pytest.raises(TypeError, match=r"^events must be a sequence. Found a \w"):
            reading()


def test_a_ledger_is_described_by_events_and_counts():
    gaussian = dp_accounting.GaussianDpEvent(1.0)
    composed = dp_accounting.ComposedDpEvent(
        [
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.SelfComposedDpEvent(gaussian, 2), 3
            ),
            dp_accounting.NoOpDpEvent(),
            *[dp_accounting.LaplaceDpEvent(float(i)) for i in range(1, 20)],
        ]
    )
    lines = event_trees.described(composed).splitlines()
    assert lines[0] == "  6 × GaussianDpEvent(noise_multiplier=1.0)"
    assert lines[1] == "  1 × LaplaceDpEvent(noise_multiplier=1.0)"
    assert lines[-1] == "  and 11 more" and len(lines) == 10
    assert event_trees.described(dp_accounting.NoOpDpEvent()) == "  nothing"
    large = dp_accounting.ComposedDpEvent(
        [dp_accounting.ComposedDpEvent([gaussian] * 99)]
    )
    assert max(map(len, event_trees.described(large).splitlines())) < 320


@pytest.mark.parametrize("accountant", [ext.PLDAccountant(), ext.RdpAccountant()])
def test_an_accountant_shows_what_it_composed(accountant):
    step = dp_accounting.GaussianDpEvent(2.0)
    accountant.compose(step, 5).compose(ext.RandomAllocationEvent(step, 1, 9))
    assert repr(accountant).splitlines() == [
        f"{type(accountant).__name__}, ADD_OR_REMOVE_ONE, composed:",
        "  5 × GaussianDpEvent(noise_multiplier=2.0)",
        f"  1 × {ext.RandomAllocationEvent(step, 1, 9)}",
    ]
