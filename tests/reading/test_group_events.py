"""Trees of events as a group of records sees them."""

import itertools
import math

import asked
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld

NeighborRel = privacy_accountant.NeighboringRelation
accountant_of = asked.accountant_of
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

    def test_a_group_that_cannot_see_what_was_composed_changes_nothing(self):
        accountant = accountant_of(
            WithoutReplacement(10, 2, Gaussian(1.0)), 1, NeighborRel.REPLACE_ONE
        )
        before = accountant.get_epsilon(1e-6), accountant.ledger
        with pytest.raises(ValueError, match="group_size must be at most source"):
            accountant.compose(Group(16, Gaussian(1.0)))
        assert (accountant.get_epsilon(1e-6), accountant.ledger) == before


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Group(5, Poisson(0.1, Gaussian(1.0))), Gaussian(3.0)),
        (Group(4, Gaussian(1.0)), Group(2, Poisson(0.1, Laplace(1.0)))),
        (
            Group(3, Gaussian(4.0)),
            SelfComposed(Composed([Laplace(9.0), Poisson(0.2, Gaussian(2.0))]), 2),
        ),
        (Group(2, dp_accounting.NoOpDpEvent()), Gaussian(3.0)),
        (Group(2, Gaussian(0.0)), Poisson(0.0, Gaussian(3.0))),
    ],
)
def test_the_largest_group_sees_all_that_is_composed(first, second):
    inner = second.event if isinstance(second, Group) else second
    wrapped = accountant_of(Composed([first, Group(first.group_size, inner)]))
    bounds = wrapped.get_epsilon_bounds(1e-6)
    for events in ((first, second), (second, first)):
        accountant = ext.PLDAccountant()
        for event in events:
            assert accountant.supports(event)
            accountant.compose(event)
        assert accountant.get_epsilon_bounds(1e-6) == pytest.approx(bounds, rel=1e-12)
        assert accountant.ledger == Composed(list(events))
        tree = Composed(list(events))
        both = accountant_of(tree).get_epsilon_bounds(1e-6)
        assert both == pytest.approx(bounds, rel=1e-12)
        if bounds[1] < math.inf:
            found = pld.from_event(tree).get_delta_for_epsilon(bounds[1] + 1e-3)
            assert found <= 1.1e-6


def test_what_tells_everything_needs_no_group():
    accountant = accountant_of(Group(16, Poisson(0.1, Gaussian(1.0))))
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


def test_nested_groups_are_read_at_the_largest_size():
    inner = Composed([Gaussian(1.0), Laplace(1.0)])
    twice = accountant_of(SelfComposed(Group(2, inner), 3))
    twice.compose(Composed([SelfComposed(Gaussian(1.0), 2), Group(5, Laplace(1.0))]))
    once = accountant_of(
        Group(5, Composed([SelfComposed(inner, 3), SelfComposed(Gaussian(1.0), 2)]))
    )
    once.compose(Group(5, Laplace(1.0)))
    assert twice.get_epsilon_bounds(1e-6) == once.get_epsilon_bounds(1e-6)


def test_events_round_trip():
    event = Group(3, Poisson(0.3, Gaussian(2.0)))
    assert dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple()) == event


def two_in_an_allocation(parameter, epsilon, split):
    """Two members, each at a step of two: they leave, or one leaves and one joins."""
    outputs = range(-25, 26)
    p, q = [], []
    for found in itertools.product(outputs, repeat=2):

        def at(*moved, found=found):
            """Density where members moved so many steps' sums."""
            shifts = [sum(m for step, m in moved if step == s) for s in (0, 1)]
            return math.exp(
                -parameter * sum(abs(x - s) for x, s in zip(found, shifts, strict=True))
            )

        both = list(itertools.product((0, 1), repeat=2))
        if split == (2, 0):
            p.append(sum(at((i, 1), (j, 1)) for i, j in both) / 4)
            q.append(at())
        else:
            p.append((at((0, 1)) + at((1, 1))) / 2)
            q.append((at((0, -1)) + at((1, -1))) / 2)
    scale = math.tanh(parameter / 2) ** 2
    return scale * max(oracles.discrete_deltas(p, q, epsilon).values())


@pytest.mark.parametrize("parameter", [0.9, 2.0])
def test_two_in_an_allocation_by_enumeration(parameter):
    noise = stock_events.DiscreteLaplaceDpEvent(parameter, 1)
    accountant = accountant_of(Group(2, ext.RandomAllocationEvent(noise, 1, 2)))
    for epsilon in (0.0, 0.6, 1.7):
        truths = [
            two_in_an_allocation(parameter, epsilon, split)
            for split in ((2, 0), (1, 1))
        ]
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert max(truths) * (1 - 1e-9) <= upper
        assert lower <= max(truths) * (1 + 1e-9)
        assert upper <= 1.5 * max(truths) + 0.01


def test_a_group_under_random_allocation_is_no_worse_than_chained_by_hand():
    """σ=1, 1 of 1000, 10 epochs: what was measured with a grid of splits, or less."""
    epoch = ext.RandomAllocationEvent(Gaussian(1.0), 1, 1000)
    for size, most in ((2, 1.1395), (4, 2.4317), (8, 5.3265)):
        lower, upper = accountant_of(Group(size, epoch), 10).get_epsilon_bounds(1e-6)
        assert 0.7 * upper < lower <= upper <= most + 1e-4


def test_a_chain_is_never_below_what_is_tight():
    sample = Poisson(0.02, Gaussian(1.5))
    nested = ext.PLDSubsampleEvent(0.02, Composed([Gaussian(1.5)]))
    for size in (1, 5):
        tight, chain = (
            accountant_of(Group(size, event), 50) for event in (sample, nested)
        )
        for delta in (1e-3, 1e-12):
            low, _ = tight.get_epsilon_bounds(delta)
            assert low <= chain.get_epsilon(delta)


def test_larger_groups_than_have_splits_of_their_own():
    """Beyond 8 members one chain is for all splits: no less, and hardly more."""
    event = ext.RandomAllocationEvent(
        stock_events.DiscreteLaplaceDpEvent(0.1, 1), 1, 30
    )
    found = [accountant_of(Group(k, event)).get_epsilon(1e-6) for k in (7, 8, 9)]
    steps = [after / before for before, after in itertools.pairwise(found)]
    assert all(1 < step < 1.3 for step in steps)


@pytest.mark.parametrize("relation", [NeighborRel.REPLACE_ONE, "special"])
def test_answers_of_a_group_are_as_many(relation):
    """Each member has a report of its own: upper bounds count all, lower ones one."""
    if relation == "special":
        relation = NeighborRel.REPLACE_SPECIAL
    response = stock_events.RandomizedResponseDpEvent(0.4, 3)
    one = accountant_of(response, 1, relation)
    two = accountant_of(response, 2, relation)
    group = accountant_of(Group(2, response), 1, relation)
    for epsilon in (0.2, 1.0):
        low, high = group.get_delta_bounds(epsilon)
        assert two.get_delta_bounds(epsilon)[0] <= high
        assert one.get_delta_bounds(epsilon)[0] * (1 - 1e-9) <= low <= high
        if relation is NeighborRel.REPLACE_ONE:
            assert high == two.get_delta(epsilon)


def test_members_who_replace_others_in_a_batch_are_chained():
    """Of 1000, batches of 10: a mixture of both groups has nearly twice the ε."""
    batch = SelfComposed(WithoutReplacement(1000, 10, Gaussian(4.0)), 1000)
    one, four = (
        accountant_of(Group(k, batch), 1, NeighborRel.REPLACE_ONE) for k in (1, 4)
    )
    (low, high), (least, most) = (a.get_epsilon_bounds(1e-6) for a in (one, four))
    assert 0.8 * high < low <= high
    assert 0.8 * most < least <= most
    # Who leave or join are no worse off.
    joined = accountant_of(Group(4, batch)).get_epsilon_bounds(1e-6)
    assert joined[0] == pytest.approx(least, rel=1e-3)
    assert joined[1] <= most and joined[1] <= joined[0] * (1 + 1e-4)


def test_a_smaller_dataset_has_larger_shares():
    """Who leaves last leaves a dataset of N − K + 1 records."""
    tree = Composed([Gaussian(2.0), Laplace(3.0)])
    group = accountant_of(Group(3, WithoutReplacement(12, 2, tree)), 5)
    last = accountant_of(WithoutReplacement(10, 2, tree), 5)
    assert group.get_epsilon_bounds(1e-6)[0] >= 0.99 * last.get_epsilon_bounds(1e-6)[0]
    assert group.get_epsilon(1e-6) > last.get_epsilon(1e-6)


def test_a_lower_bound_is_that_of_the_worst_split_though_others_look_worse():
    """Of splits that are bounded roughly several have larger upper bounds."""
    batches = dp_accounting.SampledWithoutReplacementDpEvent(
        500, 10, dp_accounting.LaplaceDpEvent(20.0)
    )
    accountant = ext.PLDAccountant()
    accountant.compose(ext.GroupSubsampledEvent(24, batches), 2)
    lower, upper = accountant.get_delta_bounds(0.0704)
    assert 0.99 * upper <= lower <= upper
