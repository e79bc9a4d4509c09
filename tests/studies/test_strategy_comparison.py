"""A strategy's ways of drawing batches: against what each is known to be."""

import math

import dp_accounting
import numpy as np
import pytest

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


def test_the_identity_is_plain_sampling():
    found = compared((2.0,), 3.0, 20, 3)
    gaussian = dp_accounting.GaussianDpEvent(1.5)
    sampled = dp_accounting.PoissonSampledDpEvent(1 / 20, gaussian)
    bin_of_steps = dp_accounting.SelfComposedDpEvent(gaussian, 3)
    for scheme, event in {
        "balls in bins": ext.RandomAllocationEvent(bin_of_steps, 1, 20),
        "cyclic Poisson": dp_accounting.SelfComposedDpEvent(sampled, 60),
        "no amplification": dp_accounting.SelfComposedDpEvent(gaussian, 3),
    }.items():
        assert_around(found[scheme], known(event))


def test_bands_are_sampled_in_turn():
    column = np.array([3.0, 4.0])  # Of norm 5.
    gaussian = dp_accounting.GaussianDpEvent(10.0 / 5)
    sampled = dp_accounting.PoissonSampledDpEvent(2 / 8, gaussian)
    found = compared(column, 10.0, 8, 3)["cyclic Poisson"]
    assert_around(found, known(dp_accounting.SelfComposedDpEvent(sampled, 12)))


def test_rounds_that_do_not_come_out_even_widen_the_bracket():
    column = np.array([3.0, 4.0])
    gaussian = dp_accounting.GaussianDpEvent(10.0 / 5)
    sampled = dp_accounting.PoissonSampledDpEvent(2 / 7, gaussian)
    low, high = compared(column, 10.0, 7, 1)["cyclic Poisson"]
    assert low <= known(dp_accounting.SelfComposedDpEvent(sampled, 3))[1]
    assert high >= known(dp_accounting.SelfComposedDpEvent(sampled, 4))[0]


def test_a_known_bin_is_a_gaussian_of_the_longest_mean():
    found = compared((1.0, 0.5, 0.25), 2.0, 2, 2)["no amplification"]
    # The first bin's columns, 0 and 2, add up to 1, 1/2, 5/4, 1/2.
    norm = math.sqrt(1 + 0.25 + 1.5625 + 0.25)
    assert_around(found, known(dp_accounting.GaussianDpEvent(2.0 / norm)))


def test_more_bands_than_bins_have_no_cycle():
    assert set(compared((1.0, 0.5, 0.25), 2.0, 2, 2)) == {
        "balls in bins",
        "no amplification",
    }


def test_rows_of_a_matrix_are_as_its_coefficients():
    column = [1.0, 0.5]
    rows = np.eye(6) + 0.5 * np.eye(6, k=-1)
    by_rows, by_column = compared(rows, 2.0, 6, 1), compared(column, 2.0, 6, 1)
    for scheme, bounds in by_column.items():
        assert by_rows[scheme][1] == pytest.approx(bounds[1], rel=1e-6)
        # From below more is known of coefficients.
        assert by_rows[scheme][0] <= bounds[0] * (1 + 1e-6)


def test_each_scheme_is_reported():
    seen = []
    event = ext.MatrixAllocationEvent((1.0,), 3.0, 5, 1)
    strategy_comparison.compare(event, DELTA, progress=lambda *done: seen.append(done))
    assert seen == [(1, 3), (2, 3), (3, 3)]
