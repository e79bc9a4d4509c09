"""The Rényi accountant as a user of dp_accounting meets it."""

import math

import dp_accounting
from dp_accounting import dp_event as stock_dp_event
from dp_accounting import privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
import nights
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import dp_event
from dp_accounting_ext.accountants import rdp_accountant

NeighborRel = privacy_accountant.NeighboringRelation
Unsupported = privacy_accountant.UnsupportedEventError
Gaussian = dp_accounting.GaussianDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
SelfComposed = dp_accounting.SelfComposedDpEvent
WithoutReplacement = dp_accounting.SampledWithoutReplacementDpEvent
Group = dp_event.GroupSubsampledEvent
Allocation = dp_event.RandomAllocationEvent

ORDERS = [1.0, 1.5, 2.0, 2.5, 5.0, 16.0, 64.0]


def accountant(relation=NeighborRel.ADD_OR_REMOVE_ONE, orders=ORDERS):
    return rdp_accountant.RdpAccountant(orders, relation)


def rdp(event, count=1, **options):
    return accountant(**options).compose(event, count).rdp


class TestGroups:
    EVENT = Poisson(0.05, Gaussian(1.5))

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (Group(16, EVENT), Gaussian(1.0)),
            (Group(16, EVENT), SelfComposed(Composed([Gaussian(1.0), EVENT]), 2)),
            (Group(16, EVENT), Group(4, EVENT)),
            *nights.at_night(
                (Group(2, Allocation(Gaussian(4.0), 1, 2)), Allocation(EVENT, 1, 2))
            ),
        ],
    )
    def test_the_largest_group_sees_all_that_is_composed(self, first, second):
        size = first.group_size
        inner = second.event if isinstance(second, Group) else second
        expected = rdp(Composed([first, Group(size, inner)]))
        for events in ((first, second), (second, first)):
            ours = accountant()
            for event in events:
                assert ours.supports(event)
                ours.compose(event)
            np.testing.assert_allclose(ours.rdp, expected, rtol=1e-9)
            assert ours.ledger == Composed(list(events))
            np.testing.assert_allclose(rdp(Composed(list(events))), expected, rtol=1e-9)

    def test_a_group_that_cannot_see_what_was_composed_changes_nothing(self):
        fixed = WithoutReplacement(10, 2, Gaussian(1.0))
        ours = accountant(relation=NeighborRel.REPLACE_ONE).compose(fixed)
        before = ours.rdp, ours.ledger
        with pytest.raises((Unsupported, ValueError), match="group_size|dataset_size"):
            ours.compose(Group(16, Gaussian(1.0)))
        np.testing.assert_array_equal(ours.rdp, before[0])
        assert ours.ledger == before[1]


def test_what_was_composed_before_stays():
    ours = accountant().compose(Gaussian(2.0), 2)
    before = ours.rdp
    failing = stock_dp_event.RepeatAndSelectDpEvent(Gaussian(1.0), 0.5, 1)
    with pytest.raises(ValueError, match="mean must be"):
        ours.compose(failing)
    with pytest.raises(Unsupported):
        ours.compose(Composed([Gaussian(1.0), stock_dp_event.UnsupportedDpEvent()]))
    np.testing.assert_array_equal(ours.rdp, before)
    assert ours.ledger == SelfComposed(Gaussian(2.0), 2)


def test_is_a_stock_accountant():
    ours = rdp_accountant.RdpAccountant()
    assert isinstance(ours, rdp_privacy_accountant.RdpAccountant)
    assert ours.orders.tolist() == list(rdp_privacy_accountant.DEFAULT_RDP_ORDERS)
    assert ours.neighboring_relation is NeighborRel.ADD_OR_REMOVE_ONE


def test_orders_of_any_size():
    ours = accountant(orders=[1.0, 1e9, math.inf])
    ours.compose(Poisson(0.1, Gaussian(1.0)))
    ours.compose(Poisson(0.1, dp_accounting.LaplaceDpEvent(1.0)))
    ours.compose(dp_accounting.LaplaceDpEvent(1.0))
    assert not np.isnan(ours.rdp).any()
    assert ours.rdp[2] == math.inf


@pytest.mark.parametrize("order", [1e160, 1.7e308])
def test_the_tail_of_an_allocation_at_orders_whose_square_is_no_float(order):
    ours = accountant(orders=[2.0, order]).compose(Allocation(Gaussian(1.0), 1, 10))
    assert ours.rdp[1] == math.inf


def test_arrays_have_the_answers_of_numbers():
    accountant = rdp_accountant.RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(3.0), 4)
    deltas = np.array([[0.0, 1e-9], [1e-3, 0.5]])
    epsilons = accountant.get_epsilon(deltas)
    assert epsilons.shape == (2, 2)
    expected = [accountant.get_epsilon(delta) for delta in deltas.flat]
    assert epsilons.ravel().tolist() == expected
    found = accountant.get_delta([0.0, 1.0])
    assert found.tolist() == [accountant.get_delta(e) for e in (0.0, 1.0)]
    assert type(accountant.get_delta(1)) is float


GAUSSIAN = dp_accounting.GaussianDpEvent(1.0)
NOTHING_PRIVATE = dp_accounting.NonPrivateDpEvent()


def questions():
    """Every method that takes a δ, of both accountants, with what ran."""
    for ran in (GAUSSIAN, NOTHING_PRIVATE, dp_accounting.NoOpDpEvent()):
        exact, renyi = ext.PLDAccountant(), ext.RdpAccountant()
        for accountant in (exact.compose(ran), renyi.compose(ran)):
            yield accountant.get_epsilon
        yield exact.get_epsilon_bounds
        yield renyi.get_epsilon_and_optimal_order


QUESTIONS = list(questions())


def test_at_a_delta_of_one_epsilon_promises_nothing():
    answers = []
    for question in QUESTIONS:
        with pytest.warns(UserWarning, match="must be below 1 to promise") as warned:
            answers.append(np.array(question(1.0)).flat[0])
        assert [each.filename for each in warned] == [__file__]
    assert answers == [0.0] * 4 + [math.inf] * 4 + [0.0] * 4
