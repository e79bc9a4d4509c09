"""What the stock accountant gets wrong, and ours does not; one test a defect."""

import math
import time

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
DPSGD = Poisson(0.01, Gaussian(1.0))


def composed(event, count=1, relation=NeighborRel.ADD_OR_REMOVE_ONE):
    return ext.PLDAccountant(relation).compose(event, count)


def test_randomized_response_counts():
    event = stock_events.RandomizedResponseDpEvent(0.5, 4)
    at_once = composed(event, 10, NeighborRel.REPLACE_ONE)
    by_one = ext.PLDAccountant(NeighborRel.REPLACE_ONE)
    for _ in range(10):
        by_one.compose(event)
    epsilon = at_once.get_epsilon(1e-12)
    assert epsilon == by_one.get_epsilon(1e-12)
    assert 15 < epsilon <= 10 * math.log(5) * (1 + 1e-12)
    stock = dp_accounting.pld.PLDAccountant(NeighborRel.REPLACE_ONE)
    assert stock.compose(event, 10).get_epsilon(1e-12) < 2


def test_no_floor_under_delta():
    accountant = composed(DPSGD, 1000)
    epsilons = {delta: accountant.get_epsilon(delta) for delta in (1e-13, 1e-15, 1e-20)}
    # By the design's prototype, to its digits.
    assert epsilons[1e-13] == pytest.approx(4.2298, abs=1e-3)
    assert epsilons[1e-15] == pytest.approx(4.8546, abs=1e-3)
    for delta, upper in epsilons.items():
        lower, _ = accountant.get_epsilon_bounds(delta)
        assert lower <= upper <= lower * (1 + 2e-4)
    stock = dp_accounting.pld.PLDAccountant().compose(DPSGD, 1000)
    assert stock.get_epsilon(1e-15) == math.inf


def test_calibration_at_a_small_delta():
    sigma = dp_accounting.calibrate_dp_mechanism(
        ext.PLDAccountant,
        lambda noise: Poisson(0.01, Gaussian(noise)),
        1.0,
        1e-16,
    )
    assert composed(Poisson(0.01, Gaussian(sigma))).get_epsilon(1e-16) <= 1.0
    assert sigma < 3


@pytest.mark.parametrize("interval", [1e-3, 1e-4, 1e-5])
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


def test_tiny_losses_have_a_fine_grid():
    event = stock_events.DiscreteLaplaceDpEvent(1e-5, 1)
    assert composed(event, 10**4).get_epsilon(1e-6) <= 0.1
    many = Poisson(1e-4, Gaussian(5.0))
    lower, upper = composed(many, 10**5).get_epsilon_bounds(1e-5)
    assert lower <= upper <= lower * (1 + 1e-4)
    assert upper < 0.0169


def test_pure_privacy_at_delta_zero():
    accountant = composed(dp_accounting.LaplaceDpEvent(2.0), 3)
    accountant.compose(stock_events.DiscreteLaplaceDpEvent(0.25, 2), 2)
    lower, upper = accountant.get_epsilon_bounds(0.0)
    assert upper == pytest.approx(2.5, rel=1e-9)
    assert upper >= 2.5
    assert 2.49 < lower <= 2.5
    assert accountant.get_delta(upper) == 0.0
    assert composed(Gaussian(1.0)).get_epsilon(0.0) == math.inf


@pytest.mark.parametrize("count", [-1, 0, 2.5])
def test_nested_counts_are_checked(count):
    accountant = ext.PLDAccountant()
    inner = dp_accounting.SelfComposedDpEvent(Gaussian(1.0), count)
    with pytest.raises((ValueError, TypeError), match=f"count.*Found {count}"):
        accountant.compose(dp_accounting.ComposedDpEvent([Gaussian(1.0), inner]))
    with pytest.raises((ValueError, TypeError)):
        accountant.compose(Gaussian(1.0), count)
    assert accountant.ledger == dp_accounting.NoOpDpEvent()


def test_mixtures_are_built_fast():
    event = stock_events.MixtureOfGaussiansDpEvent(1.0, list(range(17)), [1 / 17] * 17)
    begin = time.process_time()
    lower, upper = composed(event).get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * (1 + 1e-4)
    # The stock needs 78 s.
    assert time.process_time() - begin < 8


def test_poisson_sampling_of_a_composition():
    inner = dp_accounting.ComposedDpEvent(
        [Gaussian(1.0), dp_accounting.LaplaceDpEvent(2.0)]
    )
    event = Poisson(0.1, inner)
    lower, upper = composed(event, 100).get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * (1 + 1e-3)
    assert not dp_accounting.pld.PLDAccountant().supports(event)


def test_composing_is_atomic():
    accountant = composed(DPSGD, 5)
    before = accountant.ledger, accountant.get_epsilon(1e-6)
    bad = [
        Gaussian(-1.0),
        dp_accounting.ComposedDpEvent([Gaussian(1.0), Gaussian(math.nan)]),
        dp_accounting.ComposedDpEvent(
            [Gaussian(1.0), dp_accounting.UnsupportedDpEvent()]
        ),
        Poisson(1.2, Gaussian(1.0)),
        Poisson(0.5, dp_accounting.ComposedDpEvent([Gaussian(1.0), Gaussian("1")])),
    ]
    for event in bad:
        with pytest.raises(
            (ValueError, TypeError, privacy_accountant.UnsupportedEventError)
        ):
            accountant.compose(event, 2)
        assert (accountant.ledger, accountant.get_epsilon(1e-6)) == before


class TestRdp:
    """Of the stock's Rényi accountant."""

    def test_order_infinity_is_no_certainty(self):
        relation = NeighborRel.REPLACE_ONE
        event = stock_events.RandomizedResponseDpEvent(0.5, 2)
        epsilons = [
            accountant([2.0, math.inf], relation).compose(event).get_epsilon(1e-9)
            for accountant in (_silent_stock_rdp, ext.RdpAccountant)
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

    def test_broken_orders_of_a_sampled_gaussian_are_tight(self):
        """The stock's series is 3 % above the integral at order 1.5."""
        event = Poisson(0.01, Gaussian(2.5))
        stock, ours = (
            accountant([1.5]).compose(event).rdp[0]
            for accountant in (dp_accounting.rdp.RdpAccountant, ext.RdpAccountant)
        )
        points = np.linspace(-60, 60, 200_001)
        ratio = 0.99 + 0.01 * np.exp((points - 0.5) / 6.25)
        weights = np.exp(-(points**2) / 12.5) / np.exp(-(points**2) / 12.5).sum()
        truth = math.log(np.sum(weights * ratio**1.5)) / 0.5
        assert ours == pytest.approx(truth, rel=1e-8)
        assert stock > 1.02 * truth

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

    def test_a_refused_event_stays_out_of_the_ledger(self):
        for accountant in (dp_accounting.rdp.RdpAccountant(), ext.RdpAccountant()):
            with pytest.raises(ValueError):
                accountant.compose(Gaussian(-1.0))
            is_ours = isinstance(accountant, ext.RdpAccountant)
            assert (accountant.ledger == dp_accounting.NoOpDpEvent()) == is_ours


def _silent_stock_rdp(orders, relation):
    """The stock's accountant, warnings of its not-a-number aside."""

    class Silent(dp_accounting.rdp.RdpAccountant):
        def get_epsilon(self, target_delta):
            with np.errstate(invalid="ignore"):
                return super().get_epsilon(target_delta)

    return Silent(orders, relation)
