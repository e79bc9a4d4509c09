"""One reader for all events: what it counts, and what it refuses."""

import itertools
import math

import asked
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import newer_events
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table

NeighborRel = privacy_accountant.NeighboringRelation
accountant_of = asked.accountant_of
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
SelfComposed = dp_accounting.SelfComposedDpEvent


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(5)), st.integers(1, 4))
def test_order_and_grouping_do_not_matter(order, count):
    leaves = [
        Gaussian(3.0),
        Poisson(0.1, Gaussian(1.0)),
        Laplace(4.0),
        ext.RandomAllocationEvent(Gaussian(1.0), 1, 10),
        Poisson(0.1, Gaussian(1.0)),
    ]
    by_one = ext.PLDAccountant()
    for _, index in itertools.product(range(count), order):
        by_one.compose(leaves[index])
    at_once = accountant_of(Composed(leaves), count)
    assert by_one.get_epsilon(1e-6) == pytest.approx(
        at_once.get_epsilon(1e-6), rel=1e-5
    )


def test_ten_thousand_composes_one_at_a_time():
    accountant = ext.PLDAccountant()
    for _ in range(10_000):
        accountant.compose(Poisson(0.001, Gaussian(1.0)))
    expected = accountant_of(Poisson(0.001, Gaussian(1.0)), 10_000)
    assert accountant.get_epsilon(1e-6) == expected.get_epsilon(1e-6)


def reader_of(relation=NeighborRel.ADD_OR_REMOVE_ONE):
    return event_table.reader(relation)


trees = st.recursive(
    st.sampled_from([Gaussian(1.0), Gaussian(2.0), Laplace(3.0)]),
    lambda inner: (
        st.lists(inner, max_size=3).map(Composed)
        | st.builds(SelfComposed, inner, st.integers(1, 5))
    ),
    max_leaves=6,
)


@given(trees, trees)
def test_reading_and_composing_may_be_exchanged(event, other):
    reader = reader_of()
    at_once = reader.mechanism(Composed([event, SelfComposed(other, 2)]))
    one_by_one = compositions.compose(
        {reader.mechanism(event): 1, wrapped(reader.mechanism(other)): 2}
    )
    counts = [compositions.unpacked({each: 1}) for each in (at_once, one_by_one)]
    assert counts[0] == counts[1]


def wrapped(mechanism):
    """Returns the mechanism as a composition of its own, never equal to another."""
    return compositions.Composed(((mechanism, 1),))


def test_builders_know_whether_they_are_in_a_sample():
    seen = []

    class Probe(dp_accounting.DpEvent):
        pass

    def build(event, reader):
        seen.append((reader.in_sample, reader.neighboring_relation))
        return compositions.NO_OP

    reader = event_reader.Reader(
        NeighborRel.REPLACE_ONE, {Probe: event_reader.Row(frozenset(), build)}
    )
    reader.mechanism(Composed([Probe()]))
    reader.sampled(SelfComposed(Probe(), 2))
    reader.mechanism(Probe())
    assert seen == [(each, NeighborRel.REPLACE_ONE) for each in (False, True, False)]


def test_the_nearest_type_is_built():
    class Parent(dp_accounting.DpEvent):
        pass

    class Child(Parent):
        pass

    class Grandchild(Child):
        pass

    noise = {kind: i for i, kind in enumerate((Parent, Child), start=1)}
    rows = {
        kind: event_reader.Row(
            frozenset(),
            lambda event, reader, sigma=sigma: additive_noise.Gaussian(float(sigma)),
        )
        for kind, sigma in noise.items()
    }
    reader = event_reader.Reader(NeighborRel.ADD_OR_REMOVE_ONE, rows)
    for kind, sigma in ((Parent, 1.0), (Child, 2.0), (Grandchild, 2.0)):
        assert reader.mechanism(kind()) == additive_noise.Gaussian(sigma)


@pytest.mark.parametrize("relation", list(NeighborRel))
def test_a_relation_is_required_or_not(relation):
    reader, event = reader_of(relation), Gaussian(1.0)
    reader.require(event, relation)
    reader.require(event, *NeighborRel)
    others = [each for each in NeighborRel if each is not relation]
    with pytest.raises(event_reader.UnsupportedError) as error:
        reader.require(event, *others)
    assert error.value.event is event
    allowed = " or ".join(f"`{each.name}`" for each in others)
    assert error.value.message == str(error.value)
    assert f"neighboring_relation must be {allowed} for" in error.value.message
    assert "\n" not in error.value.message


def test_what_nobody_reads():
    event = dp_accounting.UnsupportedDpEvent()
    with pytest.raises(event_reader.UnsupportedError) as error:
        reader_of().mechanism(Composed([Gaussian(1.0), SelfComposed(event, 3)]))
    assert error.value.event is event


def test_so_many_runs_and_no_more():
    laplace, gaussian = additive_noise.laplace(1.0), additive_noise.Gaussian(1.0)
    event_reader.check_counts({laplace: 10**9, gaussian: 2**53})
    with pytest.raises(ValueError, match=r"^count must be at most 1000000000 .*Found"):
        event_reader.check_counts({laplace: 10**9 + 1})
    with pytest.raises(ValueError, match=r"^count must be at most 2\^53"):
        event_reader.check_counts({gaussian: 2**53 + 1})


def test_so_many_mechanisms_and_no_more():
    parts = [additive_noise.laplace(1.0 + i) for i in range(2000)]
    noise = [additive_noise.Gaussian(1.0 + i) for i in range(10)]
    assert event_reader.count_distinct([*parts, *noise]) == 2000
    event_reader.check_distinct(2000)
    with pytest.raises(ValueError, match=r"^event must add up to at most 2000 .* 2001"):
        event_reader.check_distinct(2001)


REPLACE = NeighborRel.REPLACE_ONE
ANYTHING = [
    Laplace(2.0),
    stock_events.DiscreteLaplaceDpEvent(0.4, 2),
    stock_events.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]),
    stock_events.TruncatedSubsampledGaussianDpEvent(20, 0.2, 6, 2.0),
    ext.RandomAllocationEvent(Gaussian(1.0), 1, 10),
    ext.RandomAllocationEvent(stock_events.DiscreteLaplaceDpEvent(1.0, 1), 2, 5),
    ext.ScheduledAllocationEvent([Gaussian(1.0), Laplace(2.0)], [3, 2], 6),
    Poisson(0.3, Laplace(1.0)),
    Poisson(0.3, Composed([Gaussian(2.0), Laplace(1.0)])),
    ext.PLDSubsampleEvent(0.5, ext.RandomAllocationEvent(Gaussian(1.0), 1, 4)),
    stock_events.SampledWithoutReplacementDpEvent(9, 2, Composed([Gaussian(2.0)])),
]


@pytest.mark.parametrize("event", ANYTHING, ids=lambda event: type(event).__name__)
def test_a_replaced_record_is_at_least_one_that_leaves(event):
    """It may contribute nothing; and it is no more than two that leave in a row."""
    one, two = (
        accountant_of(each, 3).get_epsilon_bounds(1e-5)
        for each in (event, ext.GroupSubsampledEvent(1, event))
    )
    assert one == pytest.approx(two, rel=1e-6)
    low, high = accountant_of(event, 3, REPLACE).get_epsilon_bounds(1e-5)
    assert one[0] * (1 - 1e-6) <= high
    assert 0 < low <= high < math.inf
    assert accountant_of(event, 3, REPLACE).get_delta_bounds(1.0)[1] < 1


def test_what_moves_from_one_end_to_the_other():
    """Noise of half the parameter; integers twice as far; the same path of a tree."""
    for event, moved in (
        (Laplace(2.0), Laplace(1.0)),
        (
            stock_events.DiscreteLaplaceDpEvent(0.4, 2),
            stock_events.DiscreteLaplaceDpEvent(0.4, 4),
        ),
    ):
        found = accountant_of(event, 2, REPLACE).get_epsilon_bounds(1e-4)
        assert found == accountant_of(moved, 2).get_epsilon_bounds(1e-4)


def replaced_by_enumeration(parameter, steps, epsilon, value=-1):
    """Discrete Laplace noise on steps, a record at 1 in one of them, or at a value."""
    outputs = range(-25, 26)
    p, q = [], []
    for found in itertools.product(outputs, repeat=steps):
        weights = [math.exp(-parameter * abs(x)) for x in found]
        rest = math.prod(weights)

        def law(moved, found=found, weights=weights, rest=rest):
            return sum(
                rest / weight * math.exp(-parameter * abs(x - moved))
                for x, weight in zip(found, weights, strict=True)
            )

        p.append(law(1))
        q.append(law(value) if value else steps * rest)
    scale = math.tanh(parameter / 2) ** steps / steps
    deltas = oracles.discrete_deltas(p, q, epsilon)
    return scale * max(deltas.values())


@pytest.mark.parametrize("parameter", [0.9, 2.0])
def test_a_replaced_record_of_an_allocation_by_enumeration(parameter):
    noise = stock_events.DiscreteLaplaceDpEvent(parameter, 1)
    event = ext.RandomAllocationEvent(noise, 1, 2)
    for epsilon in (0.0, 0.5, 1.2):
        low, high = accountant_of(event, 1, REPLACE).get_delta_bounds(epsilon)
        truth = replaced_by_enumeration(parameter, 2, epsilon)
        assert low <= truth * (1 + 1e-9) and truth * (1 - 1e-9) <= high
        assert high <= 1.5 * truth + 0.01


def test_what_states_its_own_privacy_states_it_of_its_own_relation(monkeypatch):
    monkeypatch.setattr(event_table, "_TABLE", dict(event_table._TABLE))
    event_table.register_stock_events(newer_events.MODULE)
    stated = newer_events.EpsilonDelta(1.0, 1e-6)
    assert accountant_of(stated, 1, REPLACE).get_epsilon(2e-6) <= 1.0 + 1e-9
    accountant = ext.PLDAccountant(REPLACE)
    for event in (
        Poisson(0.5, stated),
        ext.RandomAllocationEvent(Composed([Gaussian(1.0), stated]), 1, 5),
    ):
        assert not accountant.supports(event)
        with pytest.raises(
            privacy_accountant.UnsupportedEventError, match="here another counts"
        ):
            accountant.compose(event)
        assert ext.PLDAccountant().supports(event)


def test_an_event_that_stands_for_nothing_known_is_refused_as_that():
    with pytest.raises(
        privacy_accountant.UnsupportedEventError, match="no event describes"
    ):
        accountant_of(stock_events.UnsupportedDpEvent())


def test_a_long_event_is_shown_in_short_where_it_is_refused():
    strategy = np.tril(np.ones((40, 40)))
    inner = ext.MatrixAllocationEvent(strategy, 4.0, 4, 10)
    event = ext.PLDSubsampleEvent(0.1, ext.GroupSubsampledEvent(2, inner))
    with pytest.raises(dp_accounting.UnsupportedEventError) as refused:
        ext.PLDAccountant().compose(event)
    text = str(refused.value)
    assert "put the sampling inside of it" in text
    assert " … " in text and len(text) < 1200
