"""Trees of events as a group of records sees them."""

import math

import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld

NeighborRel = privacy_accountant.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
Group = ext.GroupSubsampledEvent
WithoutReplacement = dp_accounting.SampledWithoutReplacementDpEvent
WithReplacement = dp_accounting.SampledWithReplacementDpEvent
TRUNCATED = stock_events.TruncatedSubsampledGaussianDpEvent(20, 0.2, 6, 2.0)
RESPONSE = stock_events.RandomizedResponseDpEvent(0.5, 2)  # θ = 3/4.
SelfComposed = dp_accounting.SelfComposedDpEvent


def accountant_of(event, count=1, relation=NeighborRel.ADD_OR_REMOVE_ONE):
    return ext.PLDAccountant(relation).compose(event, count)


class TestRefusals:
    @pytest.mark.parametrize(
        ("event", "relation", "message"),
        [
            (
                Group(2, WithoutReplacement(10, 2, RESPONSE)),
                NeighborRel.ADD_OR_REMOVE_ONE,
                "unproven for groups",
            ),
            (Group(2, Poisson(0.5, RESPONSE)), NeighborRel.REPLACE_ONE, "on a sample"),
            (Group(2, Group(3, Gaussian(1.0))), NeighborRel.REPLACE_ONE, "multiply"),
            (
                Group(2, TRUNCATED),
                NeighborRel.ADD_OR_REMOVE_ONE,
                "dataset of one size.*REPLACE_ONE",
            ),
            (
                Group(2, Poisson(0.5, WithoutReplacement(10, 2, Gaussian(1.0)))),
                NeighborRel.ADD_OR_REMOVE_ONE,
                "dataset of one size",
            ),
            (
                Group(3, WithoutReplacement(10, 8, Composed([Gaussian(1.0)]))),
                NeighborRel.ADD_OR_REMOVE_ONE,
                "source_dataset_size must be at least.*Found 10",
            ),
            (
                Poisson(0.5, Group(2, Gaussian(1.0))),
                NeighborRel.ADD_OR_REMOVE_ONE,
                "put the sampling inside",
            ),
            (
                WithReplacement(10, 2, stock_events.DiscreteLaplaceDpEvent(0.5, 1)),
                NeighborRel.ADD_OR_REMOVE_ONE,
                "unproven",
            ),
        ],
    )
    def test_what_is_not_proven(self, event, relation, message):
        accountant = ext.PLDAccountant(relation)
        assert not accountant.supports(event)
        with pytest.raises(privacy_accountant.UnsupportedEventError, match=message):
            accountant.compose(event)

    @pytest.mark.parametrize(
        ("event", "error", "message"),
        [
            (
                Group(0, Gaussian(1.0)),
                ValueError,
                "group_size must be at least 1. Found 0",
            ),
            (Group(1.5, Gaussian(1.0)), TypeError, "group_size must be an integer"),
            (Group(5000, Gaussian(1.0)), ValueError, "at most 1024. Found 5000"),
            (Group(2, Poisson(1.5, Gaussian(1.0))), ValueError, "sampling_probability"),
            (
                Group(2, WithoutReplacement(5, 9, Gaussian(1.0))),
                ValueError,
                "sample_size must be at most source_dataset_size. Found 9 of 5",
            ),
            (
                Group(9, WithoutReplacement(5, 2, Gaussian(1.0))),
                ValueError,
                "group_size must be at most source_dataset_size. Found 9 of 5",
            ),
            (Group(2, Gaussian(-1.0)), ValueError, "noise_multiplier"),
            (
                Group(2, stock_events.RandomizedResponseDpEvent(0.5, 3)),
                ValueError,
                "num_buckets must be 2 in a group. Found 3",
            ),
        ],
    )
    def test_bad_fields(self, event, error, message):
        accountant = ext.PLDAccountant()
        with pytest.raises(error, match=message):
            accountant.compose(event)
        assert accountant.ledger == dp_accounting.NoOpDpEvent()

    def test_mixed_trees(self):
        group = Group(16, Poisson(0.1, Gaussian(1.0)))
        remedy = r"group_size 16 cannot.*wrap it in GroupSubsampledEvent\(16, …\)"
        error = privacy_accountant.UnsupportedEventError
        with pytest.raises(error, match=remedy):
            accountant_of(Composed([group, Gaussian(1.0)]))
        accountant = accountant_of(group)
        before = accountant.get_epsilon(1e-6)
        assert not accountant.supports(Gaussian(1.0))
        with pytest.raises(error, match=remedy):
            accountant.compose(Gaussian(1.0))
        with pytest.raises(error, match="one group_size. Found 2 and 16"):
            accountant.compose(Group(2, Gaussian(1.0)))
        assert accountant.get_epsilon(1e-6) == before
        accountant.compose(dp_accounting.NoOpDpEvent())
        accountant.compose(dp_accounting.NonPrivateDpEvent())
        assert accountant.get_epsilon(1e-6) == math.inf


def test_trees_distribute_over_groups():
    inside = Composed(
        [
            Poisson(0.1, Gaussian(2.0)),
            dp_accounting.SelfComposedDpEvent(Poisson(0.2, Laplace(3.0)), 3),
        ]
    )
    outside = Composed(
        [
            Group(3, Poisson(0.1, Gaussian(2.0))),
            dp_accounting.SelfComposedDpEvent(Group(3, Poisson(0.2, Laplace(3.0))), 3),
        ]
    )
    values = [
        accountant_of(tree, 2).get_epsilon(1e-6) for tree in (Group(3, inside), outside)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_compositions_of_compositions_of_groups_are_split_once():
    """Three runs of two: a group of one replaced, a Gaussian of mean 2 √6."""
    twice = Composed([Gaussian(1.0), Gaussian(1.0)])
    truth = oracles.gaussian_delta(2 * math.sqrt(6), 1.0)
    for event in (
        SelfComposed(Group(1, twice), 3),
        Composed([Group(1, twice), Group(1, SelfComposed(Gaussian(1.0), 4))]),
        SelfComposed(Composed([Group(1, twice), Group(1, SelfComposed(twice, 2))]), 1),
    ):
        accountant = accountant_of(event, 1, NeighborRel.REPLACE_ONE)
        lower, upper = accountant.get_delta_bounds(1.0)
        assert lower <= truth <= upper <= truth * (1 + 1e-6)


def test_nested_compositions_of_groups_keep_their_lower_bound():
    inner = Composed([Poisson(0.1, Gaussian(1.0)), Laplace(1.0)])
    nested = accountant_of(SelfComposed(Group(2, inner), 3)).get_epsilon_bounds(1e-6)
    flat = accountant_of(Group(2, SelfComposed(inner, 3))).get_epsilon_bounds(1e-6)
    assert nested == flat
    assert 0 < nested[0] <= nested[1] <= nested[0] * 1.001


def test_nested_groups_of_two_sizes_are_refused():
    inner = Composed([Gaussian(1.0), Laplace(1.0)])
    accountant = accountant_of(SelfComposed(Group(5, inner), 3))
    for event in (Gaussian(1.0), Group(4, inner)):
        with pytest.raises(dp_accounting.UnsupportedEventError, match="group_size"):
            accountant.compose(event)
        with pytest.raises(dp_accounting.UnsupportedEventError, match="group_size"):
            pld.from_event(Composed([Group(5, inner), event]))
    accountant.compose(Composed([Group(5, inner), Group(5, Laplace(2.0))]))


def test_events_round_trip():
    event = Group(3, Poisson(0.3, Gaussian(2.0)))
    assert dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple()) == event
