"""One law over all mechanisms: what one claims is no less than its lower pair shows.

Claims are taken at their word, whatever the parameters. So the law is asked of what is
read from trees of events of every kind, with parameters at their ends.
"""

import dataclasses

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
from hypothesis import HealthCheck
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import lawful
import mechanism_laws
import one_of_each
import pytest
import tree_strategies

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table

EPSILONS = (-3.0, -1e-9, 0.0, 1e-12, 1e-3, 0.5, 3.0, 40.0, 690.0)
SIZES = tree_strategies.Sizes(count=4, steps=9, selected=2, depth=1, given=True)
relations = st.sampled_from(privacy_accountant.NeighboringRelation)
edges = st.tuples(tree_strategies.edge_trees(most=9), st.just(one_of_each.ADD))
mixed = relations.flatmap(
    lambda each: st.tuples(tree_strategies.mixed_trees(SIZES, each), st.just(each))
)


@settings(
    max_examples=lawful.EXAMPLES or 20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(tree_strategies.cases(SIZES) | edges | mixed)
@example(
    # Cells of the noisy number of others are as wide as the noise: 149 GB of them.
    (stock.TruncatedSubsampledGaussianDpEvent(2, 0.01, 1, 1e-10), one_of_each.REPLACE)
)
def test_claims_of_what_is_read(case):
    event, relation = case
    try:
        mechanism = event_table.reader(relation).mechanism(event)
    except event_reader.UnsupportedError:
        return
    for scenario in groups.scenarios({mechanism: 1}):
        whole, parts = compositions.compose(scenario), compositions.unpacked(scenario)
        for each in {whole, *parts}:
            mechanism_laws.assert_claims(each, EPSILONS)


LAPLACE = additive_noise.laplace(1.0)


@dataclasses.dataclass(frozen=True)
class Boastful(interface.OnePairMechanism):
    """Laplace noise that claims what is not so."""

    claimed: interface.Claims

    def pair(self, bound, accuracy):
        return LAPLACE.pair(bound, accuracy)

    def claims(self):
        return self.claimed


@pytest.mark.parametrize(
    "claimed",
    [
        interface.Claims(0.999),
        interface.Claims(0.5, 0.1),
        interface.Claims(gaussian_precision=0.5),
    ],
)
def test_the_law_finds_what_is_not_so(claimed):
    mechanism_laws.assert_claims(Boastful(interface.Claims()))
    with pytest.raises(AssertionError):
        mechanism_laws.assert_claims(Boastful(claimed))


def test_what_is_claimed_of_one_direction_is_not_claimed_of_the_larger_one():
    """One of 100 steps loses less if a record is added; either order loses more."""
    one = allocated.allocate(additive_noise.Gaussian(1.0), 1, 100)
    added, removed = (one.claims().loss_tail(way) for way in (*Direction,)[::-1])
    assert added < removed
    either = chained.Symmetrized(one).claims()
    assert {either.loss_tail(way) for way in Direction} == {removed}


@pytest.mark.parametrize("side", Bound)
def test_a_function_is_asked_for_its_own_side_alone(side):
    asked = []

    def pairs(bound, accuracy):
        asked.append(bound)
        return dominating_pair.DirectedPairs.same(dominating_pair.identity_pair(bound))

    known = known_bounds.ByFunction(pairs, (), side=side)
    for bound in Bound:
        found = known.pairs(bound, accuracy.Accuracy(1e-20)).remove
        assert bound is side or found == dominating_pair.trivial_pair(bound)
        assert (known.basis(bound) == interface.NOTHING) == (bound is not side)
    assert asked == [side]
