"""How large trees may be, and that what they compose is counted once a run."""

import collections

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


@pytest.mark.parametrize("accountant", [ext.PLDAccountant(), ext.RdpAccountant()])
def test_an_accountant_shows_what_it_composed(accountant):
    step = dp_accounting.GaussianDpEvent(2.0)
    accountant.compose(step, 5).compose(ext.RandomAllocationEvent(step, 1, 9))
    assert repr(accountant).splitlines() == [
        f"{type(accountant).__name__}, ADD_OR_REMOVE_ONE, composed:",
        "  5 × GaussianDpEvent(noise_multiplier=2.0)",
        f"  1 × {ext.RandomAllocationEvent(step, 1, 9)}",
    ]
