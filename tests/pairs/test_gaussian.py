"""The Gaussian mechanism against 60-digit arithmetic."""

import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest
from scipy import special

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import gaussian_mixture

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction


@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("direction", list(Direction))
def test_pairs_hold_the_profile_between_them(sigma, direction):
    upper, lower = (
        gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-30) for bound in Bound
    )
    for share in (0.0, 0.1, 0.5, 1.0, 1.5):
        epsilon = share * (0.5 / sigma**2 + 6 / sigma)
        truth = oracles.gaussian_delta(1 / sigma, epsilon)
        assert lower.delta(epsilon, direction) <= truth
        assert truth <= upper.delta(epsilon, direction)
        if truth > 1e-20:
            assert upper.delta(epsilon, direction) <= float(truth) * (1 + 1e-4)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 60.0), st.floats(0.0, 2.0), st.sampled_from(list(Bound)))
def test_closed_form_errs_on_its_side(mean, share, bound):
    epsilon = share * (mean**2 / 2 + 6 * mean)
    truth = oracles.gaussian_delta(mean, epsilon)
    found = gaussian.delta(mean, epsilon, bound)
    if bound is Bound.UPPER:
        assert found >= truth
    else:
        assert found <= truth
    if truth > 1e-300 and mean < 10:
        assert found == pytest.approx(float(truth), rel=1e-6)


@pytest.mark.parametrize("mean", [0.001, 0.5, 3.0, 40.0, 1000.0])
@pytest.mark.parametrize("delta", [0.9, 1e-2, 1e-6, 1e-30, 1e-300])
def test_epsilon_inverts_the_closed_form(mean, delta):
    lower, upper = (
        gaussian.epsilon(mean, delta, bound) for bound in (Bound.LOWER, Bound.UPPER)
    )
    assert 0 <= lower <= upper <= lower * (1 + 1e-9) + 1e-12
    assert oracles.gaussian_delta(mean, upper) <= delta
    if lower > 0:
        assert oracles.gaussian_delta(mean, lower) >= delta


@pytest.mark.parametrize("delta", [1e-300, 6.2e-26, 1e-9, 0.5, 0.999])
@pytest.mark.parametrize("mean", [1e-12, 0.03, 40.0, 1e3, 1e7, 1e10, 6e10, 1e13])
def test_epsilon_of_any_mean(mean, delta):
    """Where δ falls at once from one to nothing, its slope is no float."""
    lower, upper = (
        gaussian.epsilon(mean, delta, bound) for bound in (Bound.LOWER, Bound.UPPER)
    )
    assert 0 <= lower <= upper < math.inf
    assert gaussian.delta(mean, upper, Bound.UPPER) <= delta
    if lower > 0:
        assert gaussian.delta(mean, lower, Bound.LOWER) >= delta * (1 - 1e-9)
        assert upper <= lower * (1 + 1e-6) + 1e-10


def test_ndtr_is_as_accurate_as_assumed():
    for x in np.linspace(-36.0, 0.0, 400):
        with mpmath.workdps(40):
            truth = mpmath.ncdf(mpmath.mpf(x))
            error = abs(mpmath.mpf(special.ndtr(x)) / truth - 1)
            log_error = abs(mpmath.mpf(special.log_ndtr(x)) - mpmath.log(truth))
        allowed = gaussian_mixture._NDTR_ERROR + gaussian_mixture._NDTR_GROWTH * x**2
        assert error <= allowed * 2.0**-53
        assert log_error <= 64 * 2.0**-53 * (1 + abs(math.log(float(truth))))


@pytest.mark.parametrize("mean", [1e-300, 1e-12, 3e-7, 1e-4, 1.0001e-4, 0.01])
def test_total_variation_of_little_shift(mean):
    """Relatively known, on either side of where the closed form takes over."""
    truth = mpmath.erf(mpmath.mpf(mean) / mpmath.sqrt(8))
    upper, lower = (gaussian.delta(mean, 0.0, bound) for bound in Bound)
    assert lower <= truth <= upper <= lower * (1 + 2e-9)
