"""The bounds that tight group privacy is compared with."""

import math

import dp_accounting
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
from papers import earlier_groups
import pytest
from scipy import stats


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


def agnostic(group_size, rate, noise, epsilon):
    return earlier_groups.mechanism_agnostic(
        lambda count, e: earlier_groups.gaussian_delta(count / noise, e),
        rate,
        group_size,
        epsilon,
    )


def single_record(rate, noise):
    return lambda epsilon: agnostic(1, rate, noise, epsilon)


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 5), st.floats(0.05, 1.0), st.floats(0.5, 4.0), st.floats(0.0, 4.0)
)
def test_no_baseline_is_below_the_truth(group_size, rate, noise, epsilon):
    truth = tight_delta(group_size, rate, noise, epsilon) * (1 - 1e-6) - 1e-13
    profile = single_record(rate, noise)
    geometric = earlier_groups.post_hoc_geometric(profile, group_size, epsilon)
    linear = earlier_groups.post_hoc_linear(profile, group_size, epsilon)
    assert truth <= geometric <= linear * (1 + 1e-12)


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
    whole = 2 * stats.norm.cdf(0.5) - 1
    assert earlier_groups.gaussian_delta(1.0, 0.0) == pytest.approx(whole, rel=1e-14)
    assert 0 < earlier_groups.gaussian_delta(0.5, 15.0) < 1e-190


@pytest.mark.parametrize("order", [257, 300, 300.25])
def test_the_agnostic_bound_is_the_stocks_for_a_gaussian(order):
    """Above order 256 dp_accounting has the same theorem for ε(∞) = ∞."""
    gaussian = dp_accounting.GaussianDpEvent(6.0)
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    stock = dp_accounting.rdp.RdpAccountant([order], relation).compose(
        dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, gaussian)
    )
    (ours,) = earlier_groups.agnostic_rdp([order], lambda orders: orders / 72, 0.01)
    assert ours == pytest.approx(float(stock.rdp[0]), rel=1e-9)


def test_the_agnostic_bound_of_pure_privacy():
    """Order two by hand: log(1 + γ² e^{ε(2)} (e^{ε(∞)} − 1)²), where ε(∞) is small."""

    def base(orders):
        return np.where(np.isinf(orders), 0.1, 0.05)

    gain = 0.5**2 * math.exp(0.05) * math.expm1(0.1) ** 2
    (ours,) = earlier_groups.agnostic_rdp([2], base, 0.5)
    assert ours == pytest.approx(math.log1p(gain), rel=1e-12)


@pytest.mark.parametrize(("distance", "epsilon"), [(2.0, 0.0), (2.0, 1.0), (2.0, 2.5)])
def test_delta_of_laplace(distance, epsilon):
    exact = oracles.laplace_delta(1 / distance, epsilon)
    assert earlier_groups.laplace_delta(distance, epsilon) == pytest.approx(
        float(exact), rel=1e-14
    )
