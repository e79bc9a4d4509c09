"""A strategy's ways of drawing batches: against what each is known to be."""

import math

import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.studies import strategy_comparison

DELTA = 1e-4


def compared(sampling, *fields):
    event = ext.MatrixAllocationEvent(*fields)
    (row,) = strategy_comparison.compare(event, DELTA, sampling=sampling)
    return row.epsilon_lower, row.epsilon_upper


def known(event):
    return ext.PLDAccountant().compose(event).get_epsilon_bounds(DELTA)


def assert_around(bounds, other):
    """Both brackets may hold one number, and the first one is tight."""
    assert bounds[0] <= other[1]
    assert other[0] <= bounds[1]
    assert bounds[1] <= bounds[0] * (1 + 1e-4)


def test_bands_are_sampled_in_turn():
    column = np.array([3.0, 4.0])  # Of norm 5.
    gaussian = dp_accounting.GaussianDpEvent(10.0 / 5)
    sampled = dp_accounting.PoissonSampledDpEvent(2 / 8, gaussian)
    found = compared("cyclic Poisson", column, 10.0, 8, 3)
    assert_around(found, known(dp_accounting.SelfComposedDpEvent(sampled, 12)))


def test_a_known_bin_is_a_gaussian_of_the_longest_mean():
    found = compared("no amplification", (1.0, 0.5, 0.25), 2.0, 2, 2)
    # The first bin's columns, 0 and 2, add up to 1, 1/2, 5/4, 1/2.
    norm = math.sqrt(1 + 0.25 + 1.5625 + 0.25)
    assert_around(found, known(dp_accounting.GaussianDpEvent(2.0 / norm)))


def test_windows_are_those_of_the_least_divergence_of_order_two():
    """E Z² is computed by its definition for every number of cycles."""
    column, steps, apart, rate, sigma = (1.0, 0.6, 0.3), 60, 4, 1 / 12, 1.5
    found = strategy_comparison.fresh_windows(column, sigma, apart, steps, rate)
    costs = {}
    for cycles in range(5, 16):
        window = steps // cycles - apart + 1
        matrix = np.zeros((window + 2, window))
        for place in range(window):
            matrix[place : place + 3, place] = column
        grown = np.exp(matrix.T @ matrix / sigma**2).mean() - 1
        costs[cycles, window] = (1 + (5 / cycles) ** 2 * grown) ** cycles
    assert (found.num_cycles, found.window) == min(costs, key=costs.get)
    assert found.num_cycles * found.sampling_probability == pytest.approx(5)
    with pytest.raises(ValueError, match="rate must be at most 0.25 for steps 4 apart"):
        strategy_comparison.fresh_windows(column, sigma, apart, steps, 0.3)


def test_schemes_have_the_participation_of_bins():
    found = strategy_comparison.schemes(
        ext.MatrixAllocationEvent((1.0, 0.5), 2.0, 10, 4)
    )
    stays_out = found["b-min-sep"][0]
    rate = stays_out.sampling_probability
    assert rate / (1 + rate) == pytest.approx(1 / 10)
    assert stays_out.num_steps == 40
    windows = found["fresh windows"][1]
    assert windows.num_cycles * windows.sampling_probability == pytest.approx(4)
    wide = strategy_comparison.schemes(ext.MatrixAllocationEvent((1.0,) * 5, 2.0, 3, 2))
    assert list(wide) == ["balls in bins", "no amplification"]
