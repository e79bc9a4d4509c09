"""A strategy's ways of drawing batches: against what each is known to be."""

import math

import dp_accounting
import numpy as np

import dp_accounting_ext as ext
from dp_accounting_ext.studies import strategy_comparison

DELTA = 1e-4


def compared(*fields):
    rows = strategy_comparison.compare(ext.MatrixAllocationEvent(*fields), DELTA)
    return {row.sampling: (row.epsilon_lower, row.epsilon_upper) for row in rows}


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
    found = compared(column, 10.0, 8, 3)["cyclic Poisson"]
    assert_around(found, known(dp_accounting.SelfComposedDpEvent(sampled, 12)))


def test_a_known_bin_is_a_gaussian_of_the_longest_mean():
    found = compared((1.0, 0.5, 0.25), 2.0, 2, 2)["no amplification"]
    # The first bin's columns, 0 and 2, add up to 1, 1/2, 5/4, 1/2.
    norm = math.sqrt(1 + 0.25 + 1.5625 + 0.25)
    assert_around(found, known(dp_accounting.GaussianDpEvent(2.0 / norm)))
