"""What an accountant explains: bounds of each event, and where they come from."""

import math

import dp_accounting
from dp_accounting import dp_event as stock
from hypothesis import given
from hypothesis import strategies as st
from lawful import law
import pytest
import tree_strategies

import dp_accounting_ext as ext
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import event_table

Relation = dp_accounting.NeighboringRelation
DELTA = 1e-6
STEP = dp_accounting.GaussianDpEvent(1.0)
LAPLACE = dp_accounting.LaplaceDpEvent(1.0)
ALLOCATED = ext.RandomAllocationEvent(LAPLACE, 1, 20)


def explained(*events, relation=Relation.ADD_OR_REMOVE_ONE):
    accountant = ext.PLDAccountant(relation)
    for event in events:
        accountant.compose(event)
    return accountant, accountant.explain(DELTA)


def test_each_event_has_the_bounds_that_it_has_alone():
    accountant, found = explained(stock.SelfComposedDpEvent(STEP, 3), ALLOCATED)
    assert (found.lower, found.upper) == accountant.get_epsilon_bounds(DELTA)
    first, second = found.parts
    assert (first.runs, second.runs) == (3, 1)
    for part, event in zip(found.parts, (STEP, ALLOCATED), strict=True):
        alone = ext.PLDAccountant().compose(event, part.runs)
        assert (part.lower, part.upper) == alone.get_epsilon_bounds(DELTA)
        assert part.event == str(event)
    assert found.loosest is None
    assert "All bounds are tight." in repr(found)


def test_the_loose_one_is_named():
    """A replaced record is chained from above, and a single one from below."""
    tight = dp_accounting.GaussianDpEvent(2.0)
    _, found = explained(tight, ALLOCATED, relation=Relation.REPLACE_ONE)
    loose = found.loosest
    assert loose is found.parts[1]
    assert loose.width == pytest.approx(1 - loose.lower / loose.upper)
    assert "chain of 2" in loose.from_above
    assert "single record" in loose.from_below
    assert "The loosest is (2)" in repr(found)
    assert all(len(line) <= 80 for line in repr(found).splitlines())


def test_a_group_is_explained_by_its_worst_split():
    family = ext.GroupSubsampledEvent(3, ALLOCATED)
    accountant, found = explained(STEP, family)
    assert (found.lower, found.upper) == accountant.get_epsilon_bounds(DELTA)
    # What is composed beside a group is seen by the group, too.
    assert found.parts[0].upper > ext.PLDAccountant().compose(STEP).get_epsilon(DELTA)
    assert "chain of 3" in found.parts[1].from_above


def test_nothing_and_everything():
    assert explained()[1].parts == []
    _, found = explained(dp_accounting.NonPrivateDpEvent())
    assert found.parts[0].lower == found.parts[0].upper == math.inf
    assert found.loosest is None


@law
@given(
    st.one_of(
        tree_strategies.cases(tree_strategies.SMALL),
        st.tuples(
            tree_strategies.group_trees(tree_strategies.SMALL),
            st.just(Relation.ADD_OR_REMOVE_ONE),
        ),
    )
)
def test_words_say_that_nothing_is_known_where_nothing_is(case):
    """A lower pair is trivial wherever the words say so, and no upper bound is."""
    event, relation = case
    mechanism = event_table.reader(relation).mechanism(event)
    for scenario in groups.scenarios({mechanism: 1}):
        for part in compositions.unpacked(scenario):
            pairs = interface.pairs_of(part, Bound.LOWER, accuracy.Accuracy(1e-12))
            is_trivial = not any(
                pair.infinity_mass or pair.ratios.size > 1 or pair.zero_mass
                for pair in (pairs.remove, pairs.add)
            )
            said = part.basis(Bound.LOWER)
            if said == interface.NOTHING:
                assert is_trivial
            assert part.basis(Bound.UPPER) != interface.NOTHING
