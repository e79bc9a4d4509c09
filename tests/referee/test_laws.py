"""Laws that bounds of any tree obey, whatever the numbers are.

Two ways to say one mechanism have brackets that meet, and are equal but for rounding;
a mechanism that tells less has no lower bound above the other's upper one. With
LAW_EXAMPLES=1000 in the environment each law is tried that often, on other trees.
"""

import copy
import math
import os
import pickle

import dp_accounting
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import event_trees
from hypothesis import HealthCheck
from hypothesis import Phase
from hypothesis import assume
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld

NeighborRel = privacy_accountant.NeighboringRelation
ADD = NeighborRel.ADD_OR_REMOVE_ONE
Composed = stock.ComposedDpEvent
SelfComposed = stock.SelfComposedDpEvent
Poisson = stock.PoissonSampledDpEvent

LARGE = event_trees.Sizes(count=8, steps=16, selected=2)
MILD = event_trees.Sizes(count=8, steps=12, selected=2, extremes=False, depth=2)
EXAMPLES = int(os.environ.get("LAW_EXAMPLES", "0"))

cases = event_trees.cases(LARGE)
trees = event_trees.sampled_trees(LARGE)
mild_trees = event_trees.sampled_trees(MILD)
deltas = event_trees.log_scale(1e-30, 0.9)


def law(function):
    """Tries a law on some trees, the same in every run; on many others if asked."""
    return settings(
        max_examples=EXAMPLES or 4,
        derandomize=not EXAMPLES,
        deadline=None,
        # To shrink a tree takes minutes: ask for it where there is need.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(function)


def accountant_of(*events, relation=ADD, **options):
    accountant = ext.PLDAccountant(relation, **options)
    for event in events:
        accountant.compose(event)
    return accountant


def brackets(accountant, delta):
    return accountant.get_epsilon_bounds(delta), accountant.get_delta_bounds(0.5)


def assert_the_same(one, other, delta, *, rel=1e-6):
    """Requires brackets that meet, of about the same ends."""
    for (low, high), (low_2, high_2) in zip(
        brackets(one, delta), brackets(other, delta), strict=True
    ):
        assert low <= high_2 and low_2 <= high
        if math.isfinite(high):
            assert high == pytest.approx(high_2, rel=rel, abs=1e-12)
            assert low == pytest.approx(low_2, rel=rel, abs=1e-12)
        else:
            assert math.isinf(high_2)


def assert_no_worse(better, worse, delta):
    """Requires that what tells less is not certain to tell more."""
    for (low, _), (_, high) in zip(
        brackets(better, delta), brackets(worse, delta), strict=True
    ):
        assert low <= high


@law
@given(cases, deltas, st.floats(0.0, 1.0))
def test_bounds_are_ordered(case, delta, share):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    low, high = accountant.get_epsilon_bounds(delta)
    assert 0 <= low <= high
    for epsilon in (0.0, share * (high if math.isfinite(high) else 3.0)):
        least, most = accountant.get_delta_bounds(epsilon)
        assert 0 <= least <= most <= 1


@law
@given(cases, deltas)
def test_epsilon_at_delta_has_that_delta(case, delta):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    epsilon = accountant.get_epsilon(delta)
    assume(math.isfinite(epsilon))
    # Rounding near the largest loss of all is about as much.
    assert accountant.get_delta(epsilon) <= delta * 1.01 + 1e-15
    least, _ = accountant.get_delta_bounds(epsilon)
    assert least <= delta


@law
@given(cases, st.lists(deltas, min_size=3, max_size=3))
def test_profiles_fall(case, points):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    small, *_, large = sorted(points)
    assert accountant.get_epsilon_bounds(large)[0] <= accountant.get_epsilon(small)
    assert accountant.get_delta_bounds(1.0)[0] <= accountant.get_delta(0.5)


@law
@given(st.lists(mild_trees, min_size=2, max_size=3), st.randoms(), deltas)
def test_order_does_not_matter(events, shuffler, delta):
    mixed = list(events)
    shuffler.shuffle(mixed)
    one = accountant_of(Composed(events))
    assert_the_same(one, accountant_of(*mixed), delta)
    assert_the_same(one, accountant_of(Composed([Composed(mixed)])), delta)


@law
@given(mild_trees, st.integers(2, 6), deltas)
def test_counts_are_compositions(event, count, delta):
    one = accountant_of(SelfComposed(event, count))
    assert_the_same(one, accountant_of(*[event] * count), delta)
    assert_the_same(one, accountant_of(Composed([event] * count)), delta)
    halves = [SelfComposed(event, count - 1), event]
    assert_the_same(one, accountant_of(*halves), delta)


@law
@given(trees, trees, deltas)
def test_composition_never_tells_less(event, other, delta):
    assert_no_worse(accountant_of(event), accountant_of(event, other), delta)


@law
@given(trees, deltas)
def test_rates_of_zero_and_one(event, delta):
    plain = accountant_of(event)
    for kind in (Poisson, ext.PLDSubsampleEvent):
        assert_the_same(plain, accountant_of(kind(1.0, event)), delta)
        free = accountant_of(kind(0.0, event))
        assert free.get_epsilon_bounds(0.0) == (0.0, 0.0)
        assert free.get_delta_bounds(0.0) == (0.0, 0.0)


@law
@given(mild_trees, st.floats(0.1, 1.0), st.floats(0.1, 1.0), deltas)
def test_a_sample_of_a_sample(event, rate, other, delta):
    twice = accountant_of(Poisson(rate, ext.PLDSubsampleEvent(other, event)))
    once = accountant_of(Poisson(rate * other, event))
    # The product of the rates is rounded.
    for one, same in zip(brackets(twice, delta), brackets(once, delta), strict=True):
        assert one[0] <= same[1] * (1 + 1e-9) + 1e-12
        assert same[0] <= one[1] * (1 + 1e-9) + 1e-12


def changed(event, names, change):
    """Returns a tree with a change made to the fields of these names."""
    if isinstance(event, dp_accounting.DpEvent):
        fields = {}
        for name in [field.name for field in type(event).__attrs_attrs__]:
            value = getattr(event, name)
            value = changed(value, names, change)
            fields[name] = change(value) if name in names else value
        return type(event)(**fields)
    if isinstance(event, list | tuple):
        return type(event)(changed(item, names, change) for item in event)
    return event


@law
@given(cases, st.floats(1.0, 3.0), deltas)
def test_more_noise_never_tells_more(case, factor, delta):
    event, relation = case
    names = "noise_multiplier", "standard_deviation"
    noisier = changed(event, names, lambda noise: noise * factor)
    assert_no_worse(
        accountant_of(noisier, relation=relation),
        accountant_of(event, relation=relation),
        delta,
    )


@law
@given(trees, st.floats(0.0, 1.0), deltas)
def test_smaller_samples_never_tell_more(event, factor, delta):
    rarer = changed(event, ("sampling_probability",), lambda rate: rate * factor)
    assert_no_worse(accountant_of(rarer), accountant_of(event), delta)


@law
@given(cases, deltas, st.integers(1, 3))
def test_fewer_runs_never_tell_more(case, delta, runs):
    event, relation = case
    once = accountant_of(event, relation=relation)
    more = accountant_of(*[event] * (runs + 1), relation=relation)
    assert_no_worse(once, more, delta)


@law
@given(mild_trees, st.integers(1, 40), st.integers(1, 40), deltas)
def test_more_steps_never_tell_more(event, steps, added, delta):
    few, many = (
        accountant_of(ext.RandomAllocationEvent(event, 1, t))
        for t in (steps, steps + added)
    )
    assert_no_worse(many, few, delta)
    assert_no_worse(few, accountant_of(event), delta)


@law
@given(mild_trees, st.integers(1, 6), deltas)
def test_all_steps_selected_are_a_composition(event, steps, delta):
    every = accountant_of(ext.RandomAllocationEvent(event, steps, steps))
    assert_the_same(every, accountant_of(SelfComposed(event, steps)), delta)


@law
@given(mild_trees, st.integers(1, 20), deltas)
def test_equal_steps_of_a_schedule_are_an_allocation(event, steps, delta):
    scheduled = accountant_of(ext.ScheduledAllocationEvent([event], [steps], steps))
    allocated = accountant_of(ext.RandomAllocationEvent(event, 1, steps))
    # One step of one is the event itself, but for an ulp of rounding.
    assert_the_same(scheduled, allocated, delta, rel=1e-3)


@law
@given(
    event_trees.gaussians(MILD) | event_trees.laplaces(MILD),
    event_trees.rates(MILD),
    st.integers(1, 20),
    deltas,
)
def test_a_group_of_one_is_a_record(noise, rate, count, delta):
    event = Composed([SelfComposed(Poisson(rate, noise), count), noise])
    group = accountant_of(ext.GroupSubsampledEvent(1, event))
    assert_the_same(group, accountant_of(event), delta)


@law
@given(
    event_trees.gaussians(MILD) | event_trees.laplaces(MILD),
    event_trees.rates(MILD),
    st.integers(1, 8),
    st.integers(1, 5),
    st.sampled_from([ADD, NeighborRel.REPLACE_ONE]),
    deltas,
)
def test_larger_groups_never_lose_less(noise, rate, size, count, relation, delta):
    event = SelfComposed(Poisson(rate, noise), count)
    small, large = (
        accountant_of(ext.GroupSubsampledEvent(k, event), relation=relation)
        for k in (size, size + 1)
    )
    assert_no_worse(small, large, delta)


@law
@given(event_trees.group_trees(MILD), st.integers(2, 4), deltas)
def test_groups_compose_inside_and_outside(group, count, delta):
    outside = accountant_of(SelfComposed(group, count))
    one_by_one = accountant_of(*[group] * count)
    assert_the_same(outside, one_by_one, delta)


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
@given(trees, deltas)
def test_zero_out_is_joining_or_leaving_for_samples(event, delta):
    special = accountant_of(event, relation=NeighborRel.REPLACE_SPECIAL)
    assert brackets(special, delta) == brackets(accountant_of(event), delta)


@law
@given(event_trees.cases(MILD), st.floats(0.0, 1.0))
def test_distributions_agree_with_the_accountant(case, share):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    top = accountant.get_epsilon(1e-6)
    assume(top < 100)
    low, high = (
        pld.from_event(
            event,
            neighboring_relation=relation,
            value_discretization_interval=max(top, 1e-3) / 100,
            pessimistic_estimate=side,
        ).get_delta_for_epsilon(share * top)
        for side in (False, True)
    )
    least, most = accountant.get_delta_bounds(share * top)
    assert low <= most * (1 + 1e-12)
    assert least <= high * (1 + 1e-12)


@law
@given(cases)
def test_events_survive_named_tuples_pickles_and_copies(case):
    event, _ = case
    assert dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple()) == event
    assert pickle.loads(pickle.dumps(event)) == event
    assert copy.deepcopy(event) == event


@law
@given(cases, deltas, st.sampled_from([copy.deepcopy, "pickle"]))
def test_copies_of_accountants_are_independent(case, delta, way):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    before = brackets(accountant, delta)
    copied = (
        pickle.loads(pickle.dumps(accountant)) if way == "pickle" else way(accountant)
    )
    assert brackets(copied, delta) == before
    copied.compose(event)
    assert brackets(accountant, delta) == before


@law
@given(cases, deltas)
def test_numpy_scalars_are_pythons(case, delta):
    event, relation = case
    twin = event_trees.with_numpy_scalars(event)
    assert brackets(accountant_of(twin, relation=relation), delta) == brackets(
        accountant_of(event, relation=relation), delta
    )


REFUSED = [
    dp_accounting.UnsupportedDpEvent(),
    stock.GaussianDpEvent(-1.0),
    Poisson(1.5, stock.GaussianDpEvent(1.0)),
    ext.RandomAllocationEvent(stock.GaussianDpEvent(1.0), 3, 2),
    ext.GroupSubsampledEvent(0, stock.GaussianDpEvent(1.0)),
    SelfComposed(stock.GaussianDpEvent(1.0), 0),
    ext.PLDSubsampleEvent(0.5, stock.RandomizedResponseDpEvent(0.5, 2)),
]


@law
@given(cases, deltas, st.sampled_from(REFUSED))
def test_refusals_leave_the_accountant_alone(case, delta, refused):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    before = brackets(accountant, delta), accountant.ledger
    for tree in (refused, Composed([event, refused]), SelfComposed(refused, 2)):
        with pytest.raises(
            (ValueError, TypeError, privacy_accountant.UnsupportedEventError)
        ):
            accountant.compose(tree)
    assert (brackets(accountant, delta), accountant.ledger) == before


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


@law
@given(mild_trees, st.integers(1, 20), deltas)
def test_larger_groups_of_anything_never_lose_less(event, size, delta):
    small, large = (
        accountant_of(ext.GroupSubsampledEvent(k, event)) for k in (size, size + 1)
    )
    assert_no_worse(small, large, delta)
    assert_no_worse(accountant_of(event), small, delta)


@law
@given(mild_trees, deltas)
def test_to_replace_a_record_is_no_less_than_to_remove_it(event, delta):
    """And no more than to remove it, and to add another."""
    added = accountant_of(event)
    replaced = accountant_of(event, relation=NeighborRel.REPLACE_ONE)
    assert_no_worse(added, replaced, delta)
    least, _ = replaced.get_delta_bounds(1.0)
    assert least <= (1 + math.exp(0.5)) * added.get_delta(0.5)
