"""Privacy loss distributions for users of them without accountants."""

import dp_accounting
from dp_accounting.pld import privacy_loss_distribution
import mpmath
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld

Gaussian = dp_accounting.GaussianDpEvent
PLD = privacy_loss_distribution.PrivacyLossDistribution


def test_it_composes_with_stock_distributions():
    ours = pld.from_event(ext.RandomAllocationEvent(Gaussian(1.0), 1, 100))
    stock = privacy_loss_distribution.from_gaussian_mechanism(5.0)
    accountant = ext.PLDAccountant()
    accountant.compose(ext.RandomAllocationEvent(Gaussian(1.0), 1, 100))
    accountant.compose(Gaussian(5.0))
    together = ours.compose(stock).get_epsilon_for_delta(1e-6)
    assert together == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-4)


def test_ends_of_the_arguments():
    given = pld.from_event(Gaussian(2.0))
    nothing = pld.poisson_subsample(given, 0.0)
    assert 0 <= nothing.get_delta_for_epsilon(0.0) < 1e-15
    same = pld.random_allocation(pld.poisson_subsample(given, 1.0), 1, 1)
    assert same.get_delta_for_epsilon(1.0) == pytest.approx(
        given.get_delta_for_epsilon(1.0), rel=1e-9
    )
    none = pld.from_event(dp_accounting.NonPrivateDpEvent())
    assert none.get_delta_for_epsilon(5.0) == 1.0
    no_op = pld.from_event(dp_accounting.NoOpDpEvent())
    assert 0 <= no_op.get_delta_for_epsilon(0.0) < 1e-15


def laplace_divergence(order):
    """Of Laplace noise of scale one, to thirty digits."""
    with mpmath.workdps(30):
        order = mpmath.mpf(order)
        terms = order * mpmath.exp(order - 1) + (order - 1) * mpmath.exp(-order)
        return mpmath.log(terms / (2 * order - 1)) / (order - 1)


RELATION = dp_accounting.NeighboringRelation


@pytest.mark.parametrize(
    ("event", "relation", "truth"),
    [
        (Gaussian(2.0), RELATION.ADD_OR_REMOVE_ONE, lambda order: order / 8),
        (Gaussian(2.0), RELATION.REPLACE_ONE, lambda order: order / 2),
        (
            ext.GroupSubsampledEvent(3, Gaussian(2.0)),
            RELATION.ADD_OR_REMOVE_ONE,
            lambda order: 9 * order / 8,
        ),
        (
            dp_accounting.LaplaceDpEvent(1.0),
            RELATION.ADD_OR_REMOVE_ONE,
            laplace_divergence,
        ),
    ],
)
def test_renyi_divergences_are_between_their_bounds(event, relation, truth):
    orders = [1.25, 2.0, 8.0]
    lower, upper = pld.renyi_divergence_bounds(
        event, orders, neighboring_relation=relation
    )
    for least, order, most in zip(lower, orders, upper, strict=True):
        assert 0.99 * most <= least <= truth(order) <= most, order
