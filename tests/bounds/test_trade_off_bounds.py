"""Trade-off curves and μ of an accountant."""

import math

import asked
import dp_accounting
import mpmath
import numpy as np
import pytest

import dp_accounting_ext as ext

accountant_of = asked.accountant_of
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
RATES = np.logspace(-12, math.log10(0.5), 25)


def quantile(rate):
    with mpmath.workdps(30):
        return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(float(rate)) - 1)


def test_laplace_noise():
    """With g = e^{1/b}: α g up to 1/(2g), 1 − 1/(4αg) up to 1/2, then 1 − (1 − α)/g."""
    scale = 2.0
    growth = math.exp(1 / scale)
    rates = np.array([1e-9, 0.01, 0.5 / growth, 0.4, 0.5, 0.7, 0.999])
    lower, upper = accountant_of(Laplace(scale)).get_true_positive_rate_bounds(rates)
    truth = np.where(
        rates <= 0.5 / growth,
        rates * growth,
        np.where(rates <= 0.5, 1 - 1 / (4 * rates * growth), 1 - (1 - rates) / growth),
    )
    assert (lower <= truth * (1 + 1e-14)).all()
    assert (truth <= upper * (1 + 1e-14)).all()
    assert np.allclose(lower, upper, rtol=1e-8)


def test_one_sampled_gaussian_by_the_neyman_pearson_test():
    """Removed: tests x > c of N(0, 1) against (1 − q) N(0, 1) + q N(1, 1)."""
    rate, mean = 0.1, 1.0
    accountant = accountant_of(Poisson(rate, Gaussian(1 / mean)))
    lower, upper = accountant.get_true_positive_rate_bounds(RATES)
    for alpha, low, high in zip(RATES, lower, upper, strict=True):
        with mpmath.workdps(30):
            z = quantile(alpha)
            size = mpmath.mpf(float(alpha))
            remove = (1 - rate) * size + rate * mpmath.ncdf(z + mean)

            def excess(c, size=size):
                spent = (1 - rate) * mpmath.ncdf(c) + rate * mpmath.ncdf(c - mean)
                return mpmath.log(spent / size)

            c = mpmath.findroot(excess, z)
            truth = max(remove, mpmath.ncdf(c))
        assert low <= truth * (1 + 1e-12)
        assert truth * (1 - 1e-12) <= high <= low * (1 + 1e-5)


def test_ends():
    empty = ext.PLDAccountant()
    assert empty.get_true_positive_rates(0.3) == pytest.approx(0.3, rel=1e-12)
    assert empty.get_gdp_parameter_bounds() == (0.0, 0.0)
    everything = accountant_of(dp_accounting.NonPrivateDpEvent())
    assert everything.get_true_positive_rate_bounds(0.0) == (1.0, 1.0)
    assert everything.get_gdp_parameter_estimate() == math.inf
    # With probability 1e-3 the loss is infinite: too often for 1e-12, not for 0.01.
    sampled = accountant_of(Poisson(1e-3, dp_accounting.NonPrivateDpEvent()))
    assert sampled.get_gdp_parameter_bounds() == (math.inf, math.inf)
    assert sampled.get_gdp_parameter_estimate(np.array([0.01, 0.2, 0.9])) < 0.1
    low, high = sampled.get_true_positive_rate_bounds(0.0)
    assert low <= 1e-3 <= high <= 1e-3 * (1 + 1e-9)
