"""Rényi divergences of what has Gaussian tails beside a bounded loss."""

from dp_accounting import dp_event as stock
import mpmath
import nights
import pytest

import dp_accounting_ext as ext

ORDERS = [2.0, 3.0]


def moments(sigma, parameter):
    """E X² and E X³ of Gaussian and Laplace noise together, X the ratio under Q."""
    b = 1 / mpmath.mpf(parameter)
    found = []
    for power in (2, 3):
        gaussian = mpmath.exp(power * (power - 1) / (2 * mpmath.mpf(sigma) ** 2))
        # With τ = 1/b: half of the line has the ratio e^τ, a part e^−τ.
        last = power - 1
        laplace = mpmath.mpf(power) / (2 * power - 1) * mpmath.exp(
            last * b
        ) + mpmath.mpf(last) / (2 * power - 1) * mpmath.exp(-power * b)
        found.append(gaussian * laplace)
    return found


@pytest.mark.parametrize("steps", [1, 2, 100])
@pytest.mark.parametrize(("sigma", "parameter"), [(1.0, 1.0), (3.0, 0.7), (0.5, 4.0)])
def test_one_of_t_gaussian_and_laplace_steps(steps, sigma, parameter):
    """Nothing bounded the tail of their sum, and so every order was infinite."""
    both = stock.ComposedDpEvent(
        [stock.GaussianDpEvent(sigma), stock.LaplaceDpEvent(parameter)]
    )
    event = ext.RandomAllocationEvent(both, 1, steps) if steps > 1 else both
    found = ext.RdpAccountant(ORDERS).compose(event).rdp
    with mpmath.workdps(40):
        second, third = moments(sigma, parameter)
        t = mpmath.mpf(steps)
        removed = [
            mpmath.log((second + t - 1) / t),
            mpmath.log((third + 3 * (t - 1) * second + (t - 1) * (t - 2)) / t**2) / 2,
        ]
    for got, exact in zip(found, removed, strict=True):
        assert exact <= got
        # Of little noise in one of t steps a record that is removed tells more.
        if sigma <= parameter:
            assert got <= exact * 1.002


@pytest.mark.parametrize("delta", [1e-4, *nights.at_night(1e-9)])
def test_schedules_and_samples_of_them_have_an_epsilon(delta):
    both = stock.ComposedDpEvent(
        [stock.GaussianDpEvent(1.0), stock.LaplaceDpEvent(1.0)]
    )
    schedule = ext.ScheduledAllocationEvent(
        [both, stock.GaussianDpEvent(2.0), stock.LaplaceDpEvent(3.0)], [3, 4, 5], 20
    )
    for event in (schedule, stock.PoissonSampledDpEvent(0.1, schedule)):
        losses = ext.PLDAccountant().compose(event)
        least, _ = losses.get_epsilon_bounds(delta)
        found = ext.RdpAccountant().compose(event).get_epsilon(delta)
        assert least <= found <= least + 1
