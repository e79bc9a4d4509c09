"""Rényi curves of events that no theorem covers, and bounds for any tree."""

import math

import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext.mechanisms import pair_divergences
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.reading import renyi_pairs
from dp_accounting_ext.renyi import curves
from dp_accounting_ext.renyi import group_subsampling
from dp_accounting_ext.renyi import randomized_response

Bound = dominating_pair.Bound
NeighborRel = privacy_accountant.NeighboringRelation
Laplace = dp_accounting.LaplaceDpEvent
Gaussian = dp_accounting.GaussianDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
Group = ext.GroupSubsampledEvent
WithoutReplacement = dp_accounting.SampledWithoutReplacementDpEvent
WithReplacement = dp_accounting.SampledWithReplacementDpEvent
Response = stock_events.RandomizedResponseDpEvent
ORDERS = [1.0, 2.0, 4.0, 16.0, 64.0]


def rdp(event, count=1, relation=NeighborRel.ADD_OR_REMOVE_ONE):
    return ext.RdpAccountant(ORDERS, relation).compose(event, count).rdp


def test_sampled_laplace_noise_is_tight():
    """With the record at +1: E[(1 − λ + λ Z)^α] at integer orders, Z's moments known.

    E_Q Z^i of Laplace noise of parameter b is
    (i e^{(i−1)/b} + (i − 1) e^{−i/b}) / (2 i − 1).
    """
    rate, noise = 0.05, 1.0
    found = rdp(Poisson(rate, Laplace(noise)))
    for place, order in list(enumerate(ORDERS))[1:]:
        moment = math.fsum(
            math.comb(int(order), i)
            * rate**i
            * (1 - rate) ** (order - i)
            * (i * math.exp((i - 1) / noise) + (i - 1) * math.exp(-i / noise))
            / (2 * i - 1)
            for i in range(int(order) + 1)
        )
        truth = math.log(moment) / (order - 1)
        assert truth * (1 - 1e-12) <= found[place] <= truth * (1 + 1e-6)


def test_groups_of_laplace_noise_are_their_worst_split():
    event = Group(3, Poisson(0.2, Laplace(2.0)))
    lower, upper = pld.renyi_divergence_bounds(event, ORDERS[1:])
    found = rdp(event)[1:]
    np.testing.assert_allclose(found, upper, rtol=1e-12)
    assert np.all(lower <= upper) and np.all(upper <= lower * (1 + 1e-6))
    assert np.all(found > 3 * rdp(Poisson(0.2, Laplace(2.0)))[1:])
    twice = rdp(event, 2)[1:]
    np.testing.assert_allclose(twice, 2 * found, rtol=1e-12)


@pytest.mark.parametrize("relation", ["ADD_OR_REMOVE_ONE", "REPLACE_ONE"])
def test_rows_of_a_group_are_its_splits(monkeypatch, relation):
    """Each is the first dataset's divergence of its split; half of them are made."""
    relation = NeighborRel[relation]
    event = Group(3, WithoutReplacement(50, 5, Gaussian(2.0)))
    mechanism = renyi_pairs.mechanism_of(event, relation, in_sample=False)
    replaced = relation is NeighborRel.REPLACE_ONE
    splits = [(3, 3)] * 4 if replaced else [(0, 3), (1, 2), (2, 1), (3, 0)]
    divergences, asked = pair_divergences.divergences, []
    each = [
        divergences(mechanism.split(*split), ORDERS[1:], Bound.UPPER)[0]
        for split in splits
    ]

    def counted(*arguments):
        asked.append(arguments)
        return divergences(*arguments)

    monkeypatch.setattr(pair_divergences, "divergences", counted)
    found = renyi_pairs.curve(mechanism, relation).rdp(ORDERS[1:])
    np.testing.assert_allclose(found, each, rtol=1e-9)
    assert len(asked) == (1 if replaced else 2)


def test_groups_beside_gaussian_ones_share_their_splits():
    """Row by row: of a theorem's splits and of the pairs'."""
    gaussian, laplace = Poisson(0.2, Gaussian(2.0)), Poisson(0.2, Laplace(2.0))
    both = ext.RdpAccountant(ORDERS).compose(Group(3, gaussian))
    both.compose(Group(3, laplace))
    single = [rdp(Group(3, each)) for each in (gaussian, laplace)]
    assert np.all(both.rdp <= (single[0] + single[1]) * (1 + 1e-12))
    assert np.all(both.rdp >= np.maximum(*single))


def test_groups_of_gaussian_noise_agree_with_their_theorem():
    relation = NeighborRel.ADD_OR_REMOVE_ONE
    event = Group(3, Poisson(0.2, Gaussian(3.0)))
    mechanism = renyi_pairs.mechanism_of(event, relation, in_sample=False)
    rows = renyi_pairs.curve(mechanism, relation).rdp(ORDERS[1:4])
    exact = group_subsampling.group_rdp(ORDERS[1:4], 3, 0.2, 3.0)
    assert rows.shape == exact.shape
    assert np.all(rows >= exact * (1 - 1e-9))
    np.testing.assert_allclose(rows, exact, rtol=1e-5)


def test_randomized_response_of_a_group():
    """One record on a Poisson sample is one on a batch of that share, replaced."""
    found = rdp(Group(1, Poisson(0.05, Response(0.5, 2))))[1:]
    known = randomized_response.batch_rdp(ORDERS[1:], 0.5, 0.05)
    np.testing.assert_allclose(found, known, rtol=1e-8)
    assert np.all(found >= known * (1 - 1e-11))


def test_batches_drawn_again():
    """Of one draw the two schemes are one; of more they differ by a little."""
    for inner in (Gaussian(3.0), Laplace(4.0)):
        one = rdp(WithReplacement(20, 1, inner))
        np.testing.assert_allclose(one, rdp(WithoutReplacement(20, 1, inner)))
        again = rdp(WithReplacement(20, 4, inner))
        without = rdp(WithoutReplacement(20, 4, inner))
        assert np.all(again[:3] > 0.9 * without[:3]) and np.all(again > without / 2)
        assert again[-1] > without[-1]
    replaced = rdp(WithReplacement(20, 4, Gaussian(3.0)), 1, NeighborRel.REPLACE_ONE)
    assert np.all(replaced[:3] > rdp(WithReplacement(20, 4, Gaussian(3.0)))[:3])


@pytest.mark.parametrize(
    "event",
    [
        ext.RandomAllocationEvent(Laplace(1.0), 1, 8),
        ext.ScheduledAllocationEvent((Laplace(1.0),), (2,), 3),
        stock_events.DiscreteLaplaceDpEvent(1.0, 1),
        stock_events.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]),
        Group(2, Composed([Gaussian(3.0), Poisson(0.1, Laplace(1.0))])),
    ],
    ids=lambda event: type(event).__name__,
)
def test_bounds_of_any_tree_hold_the_accountant_s(event):
    lower, upper = pld.renyi_divergence_bounds(event, ORDERS[1:])
    assert np.all(lower > 0) and np.all(lower <= upper)
    assert np.all(upper[:3] <= lower[:3] * 1.02)
    found = rdp(event)[1:]
    assert np.all(lower <= found) and np.all(found <= upper * (1 + 1e-9))


@pytest.mark.parametrize("orders", [[], [1.0], [2.0, 0.5], [math.nan], ["two"]])
def test_orders_are_above_one(orders):
    with pytest.raises((TypeError, ValueError), match="orders must be"):
        pld.renyi_divergence_bounds(Laplace(1.0), orders)


def test_unsupported_events_are_refused():
    with pytest.raises(privacy_accountant.UnsupportedEventError):
        pld.renyi_divergence_bounds(stock_events.UnsupportedDpEvent(), [2.0])


def test_what_has_no_curve_of_its_own():
    relation = NeighborRel.ADD_OR_REMOVE_ONE

    def curve(event):
        mechanism = renyi_pairs.mechanism_of(event, relation, in_sample=False)
        return renyi_pairs.curve(mechanism, relation)

    assert curve(Composed([])) == curves.NO_OP
    assert curve(Gaussian(0.0)) == curves.NON_PRIVATE
    unknown = stock_events.UnsupportedDpEvent()
    assert renyi_pairs.mechanism_of(unknown, relation, in_sample=False) is None
    many = Group(65, Poisson(0.1, Laplace(1.0)))
    assert renyi_pairs.mechanism_of(many, relation, in_sample=False) is None
