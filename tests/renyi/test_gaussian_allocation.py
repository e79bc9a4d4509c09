"""Rényi divergences of random allocation, both directions."""

import math

from flint import arb
import numpy as np
import pytest
import renyi_oracles

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import renyi_curves
from dp_accounting_ext.renyi import gaussian_allocation

TIGHT = 1 + arb(10) ** -10


def rdp(noise, steps, orders):
    one = additive_noise.Gaussian(noise)
    return renyi_curves.of(allocated.allocate(one, 1, steps), orders).values


@pytest.mark.parametrize("noise", [0.15, 1.0, 20.0])
def test_two_steps_against_50_digits(noise):
    orders = [1.01, 1.9, 2.0, 2.6, 17.0, 40.0][: 3 if noise < 0.3 else None]
    for order, found in zip(orders, rdp(noise, 2, orders), strict=True):
        remove, add = (
            renyi_oracles.two_step_rdp(order, noise, remove=remove)
            for remove in (True, False)
        )
        truth = remove.max(add)
        assert truth <= found
        assert found <= truth * (1 + 1e-5)


@pytest.mark.parametrize(
    ("noise", "steps"),
    [(1.0, 1000), (1.0, 10**6), (0.3, 100), (20.0, 10**6), (1000.0, 10**9), (2.0, 5)],
)
def test_integer_moments_against_the_power_series(noise, steps):
    truths = renyi_oracles.raw_moments(24, noise, steps)
    orders = {2, 3, 9, 24}
    got = gaussian_allocation.log_remove_moments(orders, noise, steps)
    for order in orders:
        truth = truths[order].log()
        assert abs(got[order] - truth) <= 1e-12 * truth
        rdp = gaussian_allocation.removing_rdp([order], noise, steps)[0]
        assert truth / (order - 1) <= rdp <= truth / (order - 1) * TIGHT


@pytest.mark.parametrize(
    ("noise", "steps"), [(5.0, 10**4), (1.0, 10**6), (100.0, 10**6), (3.0, 1000)]
)
def test_adding_against_moments_of_many_steps(noise, steps):
    orders = 1.0000001, 1.5, 3.0, 8.3
    one = allocated.allocate(additive_noise.Gaussian(noise), 1, steps)
    _, found, _ = renyi_curves.both_ways(one, orders)
    raw = renyi_oracles.raw_moments(30, noise, steps)
    central = renyi_oracles.central_moments(raw)
    for order, value in zip(orders, found, strict=True):
        truth, rest = renyi_oracles.add_rdp_by_moments(order, central)
        assert rest < 1e-18
        assert truth <= value


@pytest.mark.parametrize("noise", [1e-60, 1e-40, 1e-3, 1e6, 1e60])
@pytest.mark.parametrize("steps", [2, 10**12])
def test_extreme_parameters_have_valid_answers(noise, steps):
    orders = [1.0, 1.5, 2.0, 2.5, 64.0, 4096.0, 1e7, math.inf]
    got = rdp(noise, steps, orders)
    assert not np.any(np.isnan(got))
    assert np.all(got > 0)
    assert got[-1] == math.inf
    # E Z^α ≥ t^{1−α} E X^α, and more where α log t is small.
    least = np.array(orders[2:7]) / (2 * noise**2) - math.log(steps)
    assert np.all(got[2:7] >= least)
