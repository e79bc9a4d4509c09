"""Laws of groups and of neighboring relations."""

import itertools
import math

from dp_accounting import dp_event as stock
from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
from lawful import MILD
from lawful import NeighborRel
from lawful import accountant_of
from lawful import assert_meet
from lawful import assert_no_worse
from lawful import brackets
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
@given(mild_trees, deltas)
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
