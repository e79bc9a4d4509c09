"""Laws of trees: two ways to say one mechanism, and mechanisms that tell less."""

from dp_accounting import dp_event as stock
from hypothesis import given
from hypothesis import strategies as st
from lawful import NeighborRel
from lawful import accountant_of
from lawful import any_trees
from lawful import assert_meet
from lawful import assert_no_worse
from lawful import brackets
from lawful import cases
from lawful import deltas
from lawful import law
from lawful import mild_trees
import tree_strategies

import dp_accounting_ext as ext

Composed = stock.ComposedDpEvent
SelfComposed = stock.SelfComposedDpEvent
Poisson = stock.PoissonSampledDpEvent


@law
@given(st.lists(mild_trees, min_size=2, max_size=3), st.randoms(), deltas)
def test_order_does_not_matter(events, shuffler, delta):
    mixed = list(events)
    shuffler.shuffle(mixed)
    one = accountant_of(Composed(events))
    assert_meet(one, accountant_of(*mixed), delta)
    assert_meet(one, accountant_of(Composed([Composed(mixed)])), delta)


@law
@given(
    st.lists(tree_strategies.edge_leaves(), min_size=2, max_size=2),
    st.lists(tree_strategies.straddling(5000), min_size=2, max_size=2),
    deltas,
)
def test_order_does_not_matter_for_many_runs(events, counts, delta):
    """Counts beside every threshold of the package, losses of 1e-9 and of 700 nats."""
    pairs = list(zip(events, counts, strict=True))
    runs = [SelfComposed(event, count) for event, count in pairs]
    one, other = accountant_of(*runs), accountant_of(*runs[::-1])
    assert_meet(one, other, delta)
    halves = [SelfComposed(event, -(-count // 2)) for event, count in pairs]
    rest = [SelfComposed(event, count // 2) for event, count in pairs if count > 1]
    assert_meet(one, accountant_of(*halves, *rest), delta)
    for run in runs:
        assert_no_worse(accountant_of(run), one, delta)


@law
@given(any_trees, st.integers(2, 6), deltas)
def test_counts_are_compositions(event, count, delta):
    one = accountant_of(SelfComposed(event, count))
    for other in (
        accountant_of(*[event] * count),
        accountant_of(Composed([event] * count)),
        accountant_of(SelfComposed(event, count - 1), event),
    ):
        assert_meet(one, other, delta)


@law
@given(any_trees, any_trees, deltas)
def test_composition_never_tells_less(event, other, delta):
    assert_no_worse(accountant_of(event), accountant_of(event, other), delta)


@law
@given(any_trees, deltas)
def test_rates_of_zero_and_one(event, delta):
    plain = accountant_of(event)
    for kind in (Poisson, ext.PLDSubsampleEvent):
        assert_meet(plain, accountant_of(kind(1.0, event)), delta)
        free = accountant_of(kind(0.0, event))
        assert free.get_epsilon_bounds(0.0) == (0.0, 0.0)
        assert free.get_delta_bounds(0.0) == (0.0, 0.0)


@law
@given(
    any_trees,
    st.floats(0.1, 1.0),
    st.floats(0.1, 1.0),
    st.sampled_from([1, 1, 3]),
    st.sampled_from(list(NeighborRel)),
    deltas,
)
def test_a_sample_of_a_sample(event, rate, other, size, relation, delta):
    """Of a group too, and of any relation."""
    trees = [
        Poisson(rate, ext.PLDSubsampleEvent(other, event)),
        Poisson(rate * other, event),
    ]
    if size > 1:
        trees = [ext.GroupSubsampledEvent(size, tree) for tree in trees]
    twice, once = (accountant_of(tree, relation=relation) for tree in trees)
    # The product of the rates is rounded.
    for one, same in zip(brackets(twice, delta), brackets(once, delta), strict=True):
        assert one[0] <= same[1] * (1 + 1e-9) + 1e-12
        assert same[0] <= one[1] * (1 + 1e-9) + 1e-12


@law
@given(cases, st.floats(1.0, 3.0), deltas)
def test_more_noise_never_tells_more(case, factor, delta):
    event, relation = case
    names = "noise_multiplier", "standard_deviation"
    noisier = tree_strategies.fields_changed(event, lambda noise: noise * factor, names)
    assert_no_worse(
        accountant_of(noisier, relation=relation),
        accountant_of(event, relation=relation),
        delta,
    )


@law
@given(any_trees, st.just(0.0) | st.floats(1e-100, 1.0), deltas)
def test_smaller_samples_never_tell_more(event, factor, delta):
    rarer = tree_strategies.fields_changed(
        # No rate is smaller.
        event,
        lambda rate: rate * factor if rate * factor >= 1e-100 else 0.0,
        ("sampling_probability",),
    )
    assert_no_worse(accountant_of(rarer), accountant_of(event), delta)
    assert_no_worse(accountant_of(Poisson(factor, event)), accountant_of(event), delta)


@law
@given(cases, deltas, st.integers(1, 3))
def test_fewer_runs_never_tell_more(case, delta, runs):
    event, relation = case
    once = accountant_of(event, relation=relation)
    more = accountant_of(*[event] * (runs + 1), relation=relation)
    assert_no_worse(once, more, delta)


@law
@given(
    any_trees, tree_strategies.straddling(40), tree_strategies.straddling(10**9), deltas
)
def test_more_steps_never_tell_more(event, steps, added, delta):
    few, many = (
        accountant_of(ext.RandomAllocationEvent(event, 1, t))
        for t in (steps, steps + added)
    )
    assert_no_worse(many, few, delta)
    assert_no_worse(few, accountant_of(event), delta)


@law
@given(any_trees, st.integers(1, 6), deltas)
def test_all_steps_selected_are_a_composition(event, steps, delta):
    every = accountant_of(ext.RandomAllocationEvent(event, steps, steps))
    assert_meet(every, accountant_of(SelfComposed(event, steps)), delta)


@law
@given(any_trees, st.integers(2, 6), deltas)
def test_more_selected_steps_never_tell_less(event, steps, delta):
    few, many = (
        accountant_of(ext.RandomAllocationEvent(event, k, steps)) for k in (1, 2)
    )
    assert_no_worse(few, many, delta)


@law
@given(any_trees, st.integers(1, 20), deltas)
def test_equal_steps_of_a_schedule_are_an_allocation(event, steps, delta):
    scheduled = accountant_of(ext.ScheduledAllocationEvent([event], [steps], steps))
    allocated = accountant_of(ext.RandomAllocationEvent(event, 1, steps))
    assert_meet(scheduled, allocated, delta)
    one = accountant_of(ext.ScheduledAllocationEvent([event], [1], 1))
    assert_meet(one, accountant_of(event), delta)
    cut = accountant_of(ext.ScheduledAllocationEvent([event], [steps], steps + 1))
    assert_no_worse(cut, scheduled, delta)


@law
@given(cases, deltas)
def test_finer_intervals_only_narrow(case, delta):
    event, relation = case
    coarse, fine = (
        accountant_of(event, relation=relation, value_discretization_interval=width)
        for width in (1e-2, 1e-4)
    )
    assert_no_worse(fine, coarse, delta)
    assert_no_worse(coarse, fine, delta)
    assert fine.get_epsilon(delta) <= coarse.get_epsilon(delta) * 1.01
