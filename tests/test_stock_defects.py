"""What the stock accountant gets wrong, and ours does not; one test a defect."""

import math

import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld

NeighborRel = privacy_accountant.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent


def composed(event, count=1, relation=NeighborRel.ADD_OR_REMOVE_ONE):
    return ext.PLDAccountant(relation).compose(event, count)


@pytest.mark.parametrize("interval", [1e-3, 1e-4])
def test_distributions_are_realizations(interval):
    """Masses sum to one at most, and Σ p e^{−loss} does."""
    event = Poisson(0.01, Gaussian(1.0))
    for given in (Gaussian(1.0), event, dp_accounting.LaplaceDpEvent(2.0)):
        found = pld.from_event(given, value_discretization_interval=interval)
        for pmf in (found._pmf_remove, found._pmf_add):
            dense = pmf.to_dense_pmf()
            losses = (dense._lower_loss + np.arange(dense.size)) * interval
            assert dense._probs.sum() + dense._infinity_mass <= 1 + 1e-13
            assert (dense._probs * np.exp(-losses)).sum() <= 1 + 1e-12
    stock = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, value_discretization_interval=interval
    )._pmf_remove
    losses = (stock._lower_loss + np.arange(stock.size)) * interval
    assert (stock._probs * np.exp(-losses)).sum() > 1 + 1e-7


class TestRdp:
    """Of the stock's Rényi accountant."""

    def test_order_infinity_is_no_certainty(self):
        relation = NeighborRel.REPLACE_ONE
        event = stock_events.RandomizedResponseDpEvent(0.5, 2)
        with np.errstate(invalid="ignore"):  # Of the stock's not-a-number.
            epsilons = [
                accountant([2.0, math.inf], relation).compose(event).get_epsilon(1e-9)
                for accountant in (dp_accounting.rdp.RdpAccountant, ext.RdpAccountant)
            ]
        assert epsilons == [0, pytest.approx(math.log(3))]

    def test_a_replaced_record_is_two_norms_away(self):
        event, relation = Gaussian(3.0), NeighborRel.REPLACE_ONE
        stock, ours = (
            accountant(None, relation).compose(event).get_epsilon(1e-6)
            for accountant in (dp_accounting.rdp.RdpAccountant, ext.RdpAccountant)
        )
        truth, _ = composed(event, relation=relation).get_epsilon_bounds(1e-6)
        assert stock < truth <= ours

    def test_sampled_zcdp_is_no_sampled_gaussian_between_integer_orders(self):
        """The library's main takes a sampled Gaussian's divergences for all zCDP.

        This law of the privacy loss, found by linear programming, is ρ-zCDP.
        """
        rho, rate, order = 0.125, 0.5, 1.5
        losses = np.array([-0.36, -0.35, 0.66, 0.67])
        masses = np.array([0.5408686, 0.2174786, 0.1467033, 0.0949495])
        # To a mean ratio of one; then D_t ≤ ρ t of P‖Q, and of Q‖P by its mirror.
        masses[0] = -np.sum(masses[1:] * np.expm1(losses[1:])) / math.expm1(-0.36)
        masses /= masses.sum()
        powers = np.concatenate(
            [np.linspace(1.001, 300, 5000), np.linspace(-299, -1e-3, 5000)]
        )
        logs = np.logaddexp.reduce(
            np.log(masses)[:, None] + np.outer(losses, powers), axis=0
        )
        assert np.all(logs < rho * powers * (powers - 1))
        moment = np.sum(masses * (1 - rate + rate * np.exp(losses)) ** order)
        truth = math.log(moment) / (order - 1)
        sampled = ext.RdpAccountant([order]).compose(Poisson(rate, Gaussian(2.0)))
        assert sampled.rdp[0] < 0.996 * truth
        event = Poisson(rate, dp_accounting.ZCDpEvent(rho))
        assert ext.RdpAccountant([order]).compose(event).rdp[0] >= truth
