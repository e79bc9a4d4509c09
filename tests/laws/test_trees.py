"""Laws of trees, of groups and of neighboring relations.

Two ways to say one mechanism have brackets that meet; and what tells less.
"""

import itertools
import math

from dp_accounting import dp_event as stock
from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
from lawful import MILD
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
from lawful import trees
import registered
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


@law
@given(
    tree_strategies.gaussians(MILD) | tree_strategies.laplaces(MILD),
    tree_strategies.rates(MILD),
    st.integers(1, 4),
    deltas,
)
def test_a_group_of_one_is_a_record(noise, rate, count, delta):
    event = Composed([SelfComposed(Poisson(rate, noise), count), noise])
    group = accountant_of(ext.GroupSubsampledEvent(1, event))
    assert_meet(group, accountant_of(event), delta)


def assert_either_may_be_first(event, run, relation, delta):
    """Requires brackets that meet: which of two datasets is the first is open."""
    swapped = registered.DiscreteEvent(event.with_record, event.without)
    one, other = (
        accountant_of(run(each), relation=relation) for each in (event, swapped)
    )
    assert_meet(one, other, delta)


rare_runs = st.integers(2, 4).flatmap(
    lambda count: st.tuples(tree_strategies.rare_outputs(count), st.just(count))
)


# The square of the first probability is less than floats may have, and Q's is 1/9.
_TINY_SQUARE = registered.DiscreteEvent(
    (1 / 3, 0.37673829675516873, 0.289928369911498),
    (1.4916681462400413e-154, 0.35976405766591, 0.64023594233409),
)


@law
@given(st.lists(rare_runs, min_size=6, max_size=6), deltas)
@example([(_TINY_SQUARE, 2)], 1e-6)
def test_either_dataset_may_be_the_first(runs, delta):
    for event, count in runs:
        assert_either_may_be_first(
            event,
            lambda each, count=count: SelfComposed(each, count),
            NeighborRel.ADD_OR_REMOVE_ONE,
            delta,
        )


@law
@given(
    tree_strategies.few_outcomes() | tree_strategies.discrete_events(),
    st.integers(1, 3),
    st.integers(1, 8),
    st.sampled_from([NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_ONE]),
    deltas,
)
def test_either_batch_may_be_the_first(event, batch, others, relation, delta):
    """A record has another's place in it."""
    assert_either_may_be_first(
        event,
        lambda each: stock.SampledWithoutReplacementDpEvent(
            batch + others, batch, each
        ),
        relation,
        delta,
    )


@law
@given(
    tree_strategies.gaussians(MILD) | tree_strategies.laplaces(MILD),
    st.integers(2, 2**40),
    st.sampled_from(NeighborRel),
    deltas,
)
def test_a_group_moves_noise_as_often_as_it_has_members(noise, size, relation, delta):
    wide = type(noise)(noise.noise_multiplier * size)
    group = accountant_of(ext.GroupSubsampledEvent(size, wide), relation=relation)
    assert_meet(group, accountant_of(noise, relation=relation), delta)


@law
@given(st.integers(2, 2**53), tree_strategies.log_scale(0.05, 1.0), deltas)
def test_a_large_group_tells_as_much_as_its_noise_is_little(size, sigma, delta):
    """Half of all losses are above m² / 2, where δ is more than 0.3 for m ≥ 2."""
    event = ext.GroupSubsampledEvent(size, stock.GaussianDpEvent(sigma))
    low, _ = accountant_of(event).get_epsilon_bounds(min(delta, 0.3))
    assert low >= (size / sigma) ** 2 / 2 * (1 - 1e-9)


@law
@given(tree_strategies.group_trees(MILD), st.integers(2, 4), deltas)
def test_groups_compose_inside_and_outside(group, count, delta):
    outside = accountant_of(SelfComposed(group, count))
    one_by_one = accountant_of(*[group] * count)
    assert_meet(outside, one_by_one, delta)


@law
@given(
    mild_trees,
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(list(NeighborRel)),
    st.floats(0.0, 2.0),
    st.floats(0.0, 2.0),
)
def test_the_triangle_through_a_third_dataset(event, a, b, relation, one, other):
    """H of a + b members at κλ is at most that of a at κ, and κ that of b at λ."""
    whole, first, second = (
        accountant_of(ext.GroupSubsampledEvent(k, event), relation=relation)
        for k in (a + b, a, b)
    )
    least, _ = whole.get_delta_bounds(one + other)
    assert least <= first.get_delta(one) + math.exp(one) * second.get_delta(other)


runs_of_samples = st.builds(
    SelfComposed,
    st.builds(
        Poisson,
        tree_strategies.rates(MILD),
        tree_strategies.gaussians(MILD) | tree_strategies.laplaces(MILD),
    ),
    st.integers(1, 5),
)


@law
@given(
    mild_trees | runs_of_samples,
    st.sampled_from([1, 2, 3]),
    st.sampled_from(list(NeighborRel)),
    deltas,
)
def test_larger_groups_never_lose_less(event, size, relation, delta):
    alone, small, large = (
        accountant_of(each, relation=relation)
        for each in (
            event,
            *(ext.GroupSubsampledEvent(k, event) for k in (size, size + 1)),
        )
    )
    found = [brackets(each, delta) for each in (alone, small, large)]
    for less, more in itertools.pairwise(found):
        for (low, _), (_, high) in zip(less, more, strict=True):
            assert low <= high


@law
@given(mild_trees | tree_strategies.rare_parts(), deltas)
def test_to_replace_a_record_is_no_less_than_to_remove_it(event, delta):
    """And no more than to remove it, and to add another."""
    added = accountant_of(event)
    replaced = accountant_of(event, relation=NeighborRel.REPLACE_ONE)
    assert_no_worse(added, replaced, delta)
    least, _ = replaced.get_delta_bounds(1.0)
    assert least <= (1 + math.exp(0.5)) * added.get_delta(0.5)


@law
@given(trees, deltas)
def test_zero_out_is_joining_or_leaving_for_samples(event, delta):
    special = accountant_of(event, relation=NeighborRel.REPLACE_SPECIAL)
    assert brackets(special, delta) == brackets(accountant_of(event), delta)
