"""Trade-off curves and μ of an accountant."""

import math

import asked
import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext

accountant_of = asked.accountant_of
Poisson = dp_accounting.PoissonSampledDpEvent


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


def test_groups_under_k_of_t_steps_count_the_sum_of_all_outputs():
    """The lower rate was that of a single record, 0.0116."""
    event = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(16.3), 8, 222)
    accountant = accountant_of(ext.GroupSubsampledEvent(17, event), 3)
    low, high = accountant.get_true_positive_rate_bounds(0.01)
    assert 0.99 * high <= low <= high
