"""The stock library's distributions, read and written."""

from fractions import Fraction
import math

import dp_accounting
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st
import nights
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.reading import stock_pld

PLD = privacy_loss_distribution.PrivacyLossDistribution


def sparse(losses, interval=0.1, infinity=0.0, pessimistic=True):
    return PLD(pld_pmf.SparsePLDPmf(losses, interval, infinity, pessimistic))


class TestStockDistributions:
    @pytest.mark.parametrize("runs", [10, *nights.at_night(1000)])
    def test_masses_with_a_surplus(self, runs):
        """dp_accounting's sum to more than one, by 1.65e-7 for 10 runs."""
        step = dp_accounting.PoissonSampledDpEvent(
            0.01, dp_accounting.GaussianDpEvent(1.0)
        )
        run = dp_accounting.SelfComposedDpEvent(step, runs)
        given = privacy_loss_distribution.from_gaussian_mechanism(
            1.0, sampling_prob=0.01
        ).self_compose(runs)
        for answer, event in (
            (pld.poisson_subsample(given, 0.1), ext.PLDSubsampleEvent(0.1, run)),
            (
                pld.random_allocation(given, 1, 10),
                ext.RandomAllocationEvent(run, 1, 10),
            ),
        ):
            truth = ext.PLDAccountant().compose(event)
            low, high = truth.get_epsilon_bounds(1e-6)
            assert low <= answer.get_epsilon_for_delta(1e-6) <= 1.0001 * high
            low, high = truth.get_delta_bounds(0.01)
            assert low <= answer.get_delta_for_epsilon(0.01) <= high + 1e-4

    @given(
        st.lists(st.fractions(0, 1), min_size=2, max_size=6),
        st.fractions(1, Fraction(3, 2)),
        st.integers(-3, 6),
        st.booleans(),
    )
    def test_a_surplus_is_cut_off_below(self, weights, total, kappa_exponent, is_upper):
        """The profile of what is left is at least the hull of one and the profile."""
        if not any(weights):
            return
        masses = [Fraction(float(weight * total / sum(weights))) for weight in weights]
        given = sparse(
            {loss: float(mass) for loss, mass in enumerate(masses)},
            interval=math.log(2),
            pessimistic=is_upper,
        )
        pair = stock_pld.read(given)[0].remove
        kappa = Fraction(2) ** kappa_exponent
        whole = sum(
            max(mass - kappa * mass / 2**loss, 0) for loss, mass in enumerate(masses)
        )
        # Where the masses from a loss on sum to one, their profile is as before.
        above, chord = Fraction(0), Fraction(0)
        for loss in reversed(range(len(masses))):
            mass = min(masses[loss], 1 - above)
            chord += max(mass - kappa * mass / 2**loss, 0)
            above += mass
        epsilon = math.log(2) * kappa_exponent
        if is_upper:
            assert pair.delta(epsilon, Direction.REMOVE) >= chord
        else:
            assert pair.delta(epsilon, Direction.REMOVE) <= whole

    @pytest.mark.parametrize("mass", [1e-25, 1e-200, 1e-305, 5e-324])
    def test_no_rare_loss_is_forgotten(self, mass):
        """Its mass under Q, mass · e^{−loss}, is no float."""
        given = sparse({6890: mass, 0: 1 - mass})
        found = pld.poisson_subsample(given, 0.5)
        assert found.get_delta_for_epsilon(600.0) >= 0.5 * mass


class TestEvents:
    """A distribution as an event: never below its mechanism, and near it."""

    STEP = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    RUN = dp_accounting.SelfComposedDpEvent(STEP, 10)
    KNOWN = ext.PLDEvent(
        privacy_loss_distribution.from_gaussian_mechanism(
            1.0, sampling_prob=0.01
        ).self_compose(10)
    )

    @pytest.mark.parametrize(
        ("within", "count"),
        [
            (lambda event: event, 100),
            (lambda event: ext.PLDSubsampleEvent(0.1, event), 30),
            (lambda event: ext.RandomAllocationEvent(event, 1, 20), 3),
            (lambda event: ext.RandomAllocationEvent(event, 2, 20), 1),
            (
                lambda event: dp_accounting.ComposedDpEvent(
                    [event, dp_accounting.LaplaceDpEvent(3.0)]
                ),
                2,
            ),
        ],
    )
    def test_it_nests(self, within, count):
        truth = ext.PLDAccountant().compose(within(self.RUN), count)
        found = ext.PLDAccountant().compose(within(self.KNOWN), count)
        low, high = truth.get_epsilon_bounds(1e-6)
        assert low <= found.get_epsilon(1e-6) <= 1.001 * high

    def test_a_group_is_a_chain(self):
        whole = ext.GroupSubsampledEvent(2, self.RUN)
        low, _ = ext.PLDAccountant().compose(whole).get_epsilon_bounds(1e-6)
        known = ext.GroupSubsampledEvent(2, self.KNOWN)
        assert ext.PLDAccountant().compose(known).get_epsilon(1e-6) >= low

    def test_an_accountant_takes_the_distribution_itself(self):
        given = self.KNOWN.privacy_loss_distribution
        accountant = ext.PLDAccountant().compose(given, 3).compose(self.KNOWN)
        other = ext.PLDAccountant().compose(self.KNOWN, 4)
        assert accountant.get_epsilon(1e-6) == other.get_epsilon(1e-6)

    def test_it_holds_for_the_relation_of_the_accountant(self):
        relation = dp_accounting.NeighboringRelation.REPLACE_ONE
        accountant = ext.PLDAccountant(relation).compose(self.KNOWN)
        assert accountant.get_epsilon(1e-6) > 0
        sampled = dp_accounting.PoissonSampledDpEvent(0.1, self.KNOWN)
        assert not ext.PLDAccountant(relation).supports(sampled)
