"""The bounds that tight group privacy is compared with."""

import math

import dp_accounting
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
from scipy import stats

import dp_accounting_ext as ext
from dp_accounting_ext.papers import group_baselines


def tight_delta(group_size, rate, noise, epsilon):
    """The largest hockey stick of all splits, by summing over a fine lattice."""
    points = np.linspace(-group_size - 40 * noise, group_size + 40 * noise, 400_001)
    shifted = {
        i: np.exp(-(((points - i) / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))
        for i in range(-group_size, group_size + 1)
    }

    def density(members, sign):
        return sum(
            stats.binom.pmf(i, members, rate) * shifted[sign * i]
            for i in range(members + 1)
        )

    return max(
        np.maximum(
            density(removed, 1) - math.exp(epsilon) * density(group_size - removed, -1),
            0.0,
        ).sum()
        * (points[1] - points[0])
        for removed in range(group_size + 1)
    )


def single_record(rate, noise):
    return group_baselines.poisson_sampled_profile(
        group_baselines.gaussian_profile(1 / noise), rate
    )


def agnostic(group_size, rate, noise, epsilon):
    return group_baselines.mechanism_agnostic(
        lambda count, e: group_baselines.gaussian_profile(count / noise)(e),
        rate,
        group_size,
        epsilon,
    )


def test_one_step_of_a_group_of_16():
    profile = single_record(0.2, 2.0)
    linear = group_baselines.post_hoc_linear(profile, 16, 2.0)
    geometric = group_baselines.post_hoc_geometric(profile, 16, 2.0)
    optimal = group_baselines.post_hoc_optimal(profile, 16, 2.0)
    tight = tight_delta(16, 0.2, 2.0, 2.0)
    assert tight == pytest.approx(0.2130, abs=5e-5)
    assert geometric == pytest.approx(0.4863, abs=5e-5)
    assert optimal == pytest.approx(0.3038, abs=5e-4)
    assert linear == 1.0
    assert tight < agnostic(16, 0.2, 2.0, 2.0) < optimal


def test_a_thousand_steps_of_a_group_of_4():
    composed = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, sampling_prob=0.01, value_discretization_interval=1e-3
    ).self_compose(1000)

    def profile(epsilon):
        return float(composed.get_delta_for_epsilon(epsilon))

    tight = 5.72e-5
    optimal = group_baselines.post_hoc_optimal(profile, 4, 8.0)
    geometric = group_baselines.post_hoc_geometric(profile, 4, 8.0)
    linear = group_baselines.post_hoc_linear(profile, 4, 8.0)
    assert optimal == pytest.approx(1.54e-4, rel=0.03)
    assert geometric == pytest.approx(1.24e-3, rel=0.02)
    assert tight < optimal < geometric < linear


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 5), st.floats(0.05, 1.0), st.floats(0.5, 4.0), st.floats(0.0, 4.0)
)
def test_no_baseline_is_below_the_truth(group_size, rate, noise, epsilon):
    truth = tight_delta(group_size, rate, noise, epsilon) * (1 - 1e-6) - 1e-13
    profile = single_record(rate, noise)
    coarse = group_baselines.post_hoc_optimal(profile, group_size, epsilon, points=20)
    fine = group_baselines.post_hoc_optimal(profile, group_size, epsilon, points=200)
    geometric = group_baselines.post_hoc_geometric(profile, group_size, epsilon)
    linear = group_baselines.post_hoc_linear(profile, group_size, epsilon)
    assert truth <= fine <= coarse * (1 + 1e-12)
    assert truth <= geometric <= linear * (1 + 1e-12)
    # With 200 = 4 · 50 = 5 · 40 equal shares are among the fine ones.
    if 200 % group_size == 0:
        assert fine <= geometric * (1 + 1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.floats(0.05, 0.99), st.floats(0.0, 4.0))
def test_agnostic_holds_for_groups_that_act_together(group_size, rate, epsilon):
    """All leave: the hockey stick of one mixture against N(0, σ²)."""
    points = np.linspace(-30, 40, 200_001)
    mixture = sum(
        stats.binom.pmf(i, group_size, rate) * stats.norm.pdf(points, i)
        for i in range(group_size + 1)
    )
    gaps = np.maximum(mixture - math.exp(epsilon) * stats.norm.pdf(points), 0.0)
    truth = gaps.sum() * (points[1] - points[0])
    bound = agnostic(group_size, rate, 1.0, epsilon)
    assert bound >= truth * (1 - 1e-6)
    if group_size == 1:
        assert bound == pytest.approx(truth, rel=1e-6)


def test_profiles():
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(
        dp_accounting.PoissonSampledDpEvent(0.3, dp_accounting.GaussianDpEvent(1.5))
    )
    profile = single_record(0.3, 1.5)
    for epsilon in (0.0, 0.3, 1.0):
        assert profile(epsilon) == pytest.approx(
            accountant.get_delta(epsilon), rel=1e-5
        )
    assert group_baselines.gaussian_profile(1.0)(0.0) == pytest.approx(
        2 * stats.norm.cdf(0.5) - 1, rel=1e-14
    )
    assert 0 < group_baselines.gaussian_profile(0.5)(15.0) < 1e-190


def test_groups_of_one_are_single_records():
    profile = single_record(0.1, 1.0)
    for bound in (group_baselines.post_hoc_geometric, group_baselines.post_hoc_optimal):
        assert bound(profile, 1, 0.7) == profile(0.7)


@pytest.mark.parametrize("order", [257, 300, 300.25])
def test_the_agnostic_bound_is_the_stocks_for_a_gaussian(order):
    """Above order 256 dp_accounting has the same theorem for ε(∞) = ∞."""
    gaussian = dp_accounting.GaussianDpEvent(6.0)
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    stock = dp_accounting.rdp.RdpAccountant([order], relation).compose(
        dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, gaussian)
    )
    (ours,) = group_baselines.agnostic_rdp([order], lambda orders: orders / 72, 0.01)
    assert ours == pytest.approx(float(stock.rdp[0]), rel=1e-9)


def test_the_agnostic_bound_is_no_more_than_without_sampling():
    found = group_baselines.agnostic_rdp([2, 50], lambda orders: orders / 2, 1.0)
    assert found == pytest.approx([1.0, 25.0])


def test_the_agnostic_bound_of_pure_privacy():
    """Order two by hand: log(1 + γ² e^{ε(2)} (e^{ε(∞)} − 1)²), where ε(∞) is small."""

    def base(orders):
        return np.where(np.isinf(orders), 0.1, 0.05)

    gain = 0.5**2 * math.exp(0.05) * math.expm1(0.1) ** 2
    (ours,) = group_baselines.agnostic_rdp([2], base, 0.5)
    assert ours == pytest.approx(math.log1p(gain), rel=1e-12)


@pytest.mark.parametrize("truth", [0.6, 0.75, 0.9])
def test_the_agnostic_bound_is_above_the_tight_one(truth):
    orders = [1.2, 2, 7.5, 64]
    accountant = ext.RdpAccountant(
        orders, dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    exact = accountant.compose(group_baselines.batch_response(truth, 1000)).rdp
    agnostic = group_baselines.agnostic_rdp(
        orders,
        lambda each: group_baselines.response_rdp(truth, each),
        1 / 1000,
    )
    assert (exact <= agnostic).all()
    # Theorem I.3 at order two: the χ² divergence of the two answers.
    other = 1 - truth
    moved = (2 * truth - 1) / 1000
    chi = moved**2 / (other * truth)
    assert exact[1] == pytest.approx(math.log1p(chi), rel=1e-3)


@pytest.mark.parametrize(("distance", "epsilon"), [(2.0, 0.0), (2.0, 1.0), (2.0, 2.5)])
def test_delta_of_laplace(distance, epsilon):
    exact = oracles.laplace_delta(1 / distance, epsilon)
    assert group_baselines.laplace_delta(distance, epsilon) == pytest.approx(
        float(exact), rel=1e-14
    )
