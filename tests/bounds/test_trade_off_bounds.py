"""Trade-off curves and μ of an accountant."""

import math

import asked
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import mpmath
import numpy as np
import pytest

import dp_accounting_ext as ext

NeighborRel = privacy_accountant.NeighboringRelation
accountant_of = asked.accountant_of
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
RATES = np.logspace(-12, math.log10(0.5), 25)


def quantile(rate):
    with mpmath.workdps(30):
        return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(float(rate)) - 1)


@pytest.mark.parametrize(
    ("event", "count", "mean"),
    [
        (Gaussian(2.0), 1, 0.5),
        (Gaussian(1.0), 9, 3.0),
        (Composed([Gaussian(1.0), Gaussian(0.5)]), 1, math.sqrt(5)),
    ],
)
def test_a_gaussian_within_1e_6(event, count, mean):
    accountant = accountant_of(event, count)
    lower, upper = accountant.get_true_positive_rate_bounds(RATES)
    for rate, low, high in zip(RATES, lower, upper, strict=True):
        with mpmath.workdps(30):
            truth = mpmath.ncdf(quantile(rate) + mean)
            assert low <= truth * (1 + mpmath.mpf("1e-15"))
            assert truth * (1 - mpmath.mpf("1e-15")) <= high <= low * (1 + 1e-6)
    low, high = accountant.get_gdp_parameter_bounds()
    assert low <= mean <= high <= low + 1e-6
    assert accountant.get_gdp_parameter_estimate() == high


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


def test_private_training_within_1e_3():
    """q = 0.01, σ = 1, T = 1000; the library's estimate is 0.55230, in 190 seconds."""
    accountant = accountant_of(Poisson(0.01, Gaussian(1.0)), 1000)
    lower, upper = accountant.get_gdp_parameter_bounds()
    assert 0.5522 <= lower <= upper <= min(0.5523, lower + 1e-4)
    low, high = accountant.get_true_positive_rate_bounds(RATES)
    assert (low <= high).all()
    assert (high <= low * (1 + 1e-4)).all()
    # Where the profile is certified, no test finds more than α e^ε + δ.
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        delta = accountant.get_delta_bounds(epsilon)
        assert (low <= RATES * math.exp(epsilon) + delta[1]).all()


def test_the_largest_gap_is_delta():
    """max TPR(α) − e^ε α = δ(ε): both ways, of what is asymmetric."""
    accountant = accountant_of(Poisson(0.3, Gaussian(0.7)), 5)
    rates = np.linspace(0, 1, 20001)
    lower, upper = accountant.get_true_positive_rate_bounds(rates)
    for epsilon in (0.0, 0.4, 1.2):
        low, high = accountant.get_delta_bounds(epsilon)
        assert (lower - math.exp(epsilon) * rates).max() <= high
        assert (upper - math.exp(epsilon) * rates).max() >= low - 1e-7
        assert (upper - math.exp(epsilon) * rates).max() <= high + 1e-6


@pytest.mark.parametrize(
    "event",
    [
        ext.RandomAllocationEvent(Gaussian(1.0), 2, 20),
        ext.GroupSubsampledEvent(3, Poisson(0.1, Gaussian(2.0))),
        stock_events.DiscreteLaplaceDpEvent(0.5, 1),
        Composed([Laplace(3.0), Poisson(0.2, Gaussian(1.5))]),
        Poisson(1e-3, dp_accounting.NonPrivateDpEvent()),
        stock_events.ZCDpEvent(0.1),
        stock_events.TruncatedSubsampledGaussianDpEvent(40, 0.2, 9, 2.0),
    ],
    ids=lambda event: type(event).__name__,
)
@pytest.mark.parametrize("count", [1, 7])
def test_bounds_are_ordered_and_monotone(event, count):
    accountant = accountant_of(event, count)
    rates = np.concatenate([[0.0], RATES, [0.9, 1.0]])
    lower, upper = accountant.get_true_positive_rate_bounds(rates)
    assert (rates <= lower).all() and (lower <= upper).all() and (upper <= 1).all()
    assert (np.diff(lower) >= -1e-15).all() and (np.diff(upper) >= -1e-15).all()
    assert upper[-1] == 1.0
    low, high = accountant.get_gdp_parameter_bounds()
    assert 0 <= low <= high
    # A Gaussian mechanism of μ lets find no less.
    if math.isfinite(high):
        mean = [mpmath.ncdf(quantile(rate) + high) for rate in RATES]
        assert (lower[1:-2] <= np.array(mean, dtype=float) * (1 + 1e-9)).all()


def test_numbers_and_arrays():
    accountant = accountant_of(Gaussian(1.0))
    one = accountant.get_true_positive_rates(0.1)
    assert isinstance(one, float)
    assert one == accountant.get_true_positive_rates(np.array([0.1]))[0]
    grid = np.full((2, 3), 0.1)
    assert (accountant.get_true_positive_rates(grid, np.array([1e-6])) == one).all()
    assert accountant.get_true_positive_rates([0.1, 0.2])[0] == one
    assert accountant.get_true_positive_rates(np.array([])).size == 0
    assert (grid == 0.1).all()


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


@pytest.mark.parametrize(
    ("rates", "error", "message"),
    [
        (-0.1, ValueError, r"must be in \[0, 1\]. Found -0.1"),
        (np.array([0.5, math.nan]), ValueError, r"must be in \[0, 1\]. Found nan"),
        ("0.1", TypeError, "must be an array of real numbers"),
        ([[0.1], [0.2, 0.3]], TypeError, "must be an array of real numbers"),
        (True, TypeError, "must be an array of real numbers"),
    ],
)
def test_bad_rates(rates, error, message):
    accountant = accountant_of(Gaussian(1.0))
    with pytest.raises(error, match=f"false_positive_rates {message}"):
        accountant.get_true_positive_rates(rates)
    with pytest.raises(error, match=f"false_positive_rates {message}"):
        accountant.get_gdp_parameter_estimate(rates)


def test_bad_ranges():
    accountant = accountant_of(Gaussian(1.0))
    with pytest.raises(ValueError, match=r"must have one in \(0, 1/2\]. Found none"):
        accountant.get_gdp_parameter_estimate(np.array([0.0, 0.7]))
    for least in (0.0, 0.6):
        with pytest.raises(ValueError, match=r"must be in \[1e-200, 0.5\]. Found"):
            accountant.get_gdp_parameter_bounds(least_false_positive_rate=least)
