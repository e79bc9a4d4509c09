"""Norms of strategies: eigenvalues, sums of columns, and steps at the end of a run."""

from fractions import Fraction
import math

import min_sep_oracles
import numpy as np
import pytest

from dp_accounting_ext.correlated.chains import strategy_norms

COLUMNS = [(1.0,), (1.0, 0.5), (0.3, 0.2, 0.5, 0.4), tuple(1 / np.arange(1.0, 13.0))]


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("steps", [12, 40])
@pytest.mark.parametrize("period", [1, 2, 5, 50])
def test_no_eigenvalue_is_larger(column, steps, period):
    above = strategy_norms.precision_above(np.array(column), 1.5, steps, period)
    rows = np.array(min_sep_oracles.toeplitz(column, steps))
    for first in range(min(period, steps)):
        group = rows[:, first::period]
        largest = float(np.linalg.norm(group, 2)) ** 2 / 1.5**2
        assert largest <= above * (1 + 1e-13)
        if first == 0:
            assert above < 1.02 * largest
    if period == 1:
        of_rows = strategy_norms.precision_above(rows, 1.5, steps)
        assert above * (1 - 1e-12) <= of_rows <= above * (1 + 1e-12)


def test_long_runs_are_bounded_by_the_sum_of_a_row():
    # Too many products for an iteration: (1 + 0.5)² and 1 + 0.5².
    column, steps = np.array([1.0, 0.5]), 1 << 24
    found = strategy_norms.precision_above(column, 1.0, steps)
    assert 2.25 <= found < 2.25 * (1 + 1e-6)
    apart = strategy_norms.precision_above(column, 1.0, steps, 2)
    assert 1.25 <= apart < 1.25 * (1 + 1e-6)
    # No more than there are of a matrix: its norm is 1.
    assert 1.0 <= strategy_norms.precision_above(np.eye(3), 1.0, 3) < 1 + 1e-12


def test_the_least_sum_of_the_first_columns_counts():
    """Not that of the last of them, where columns differ."""
    rows = np.tril(np.ones((6, 6)))
    rows[:, 1] = [0, 0.01, 0, 0, 0, 0]
    rows[:, 2] = [0, 0, 9, 9, 9, 9]
    first = strategy_norms.first_steps(rows, 1.0, 6)
    least = min(rows[:, step].sum() for step in range(first.number))
    assert first.shift * math.sqrt(6) <= least
    norm = min(np.linalg.norm(rows[:, step]) for step in range(first.number))
    assert first.deviation * norm >= 1


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("steps", [12, 100])
def test_first_steps_move_the_sum_by_no_less_in_fractions(column, steps):
    rows = min_sep_oracles.toeplitz(column, steps)
    for strategy in (np.array(column), np.array(rows)):
        first = strategy_norms.first_steps(strategy, 2.0, steps)
        assert 1 <= first.number <= steps
        for step in range(first.number):
            entries = [Fraction(float(entry)) for entry in rows[:, step]]
            # shift · σ √n ≤ the sum of the column, and norm ≥ σ / deviation.
            moved = (Fraction(first.shift) * 2) ** 2 * steps
            assert moved <= sum(entries) ** 2
            norm = sum(entry**2 for entry in entries)
            assert Fraction(first.deviation) ** 2 * norm >= 4
        # Fewer or more steps have a smaller product, up to rounding.
        sums = [float(sum(rows[:, step])) for step in range(steps)]
        best = max((count + 1) * min(sums[: count + 1]) for count in range(steps))
        product = first.number * first.shift * 2 * math.sqrt(steps)
        assert product == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("steps", [12, 100])
def test_every_step_in_fractions(column, steps):
    rows = min_sep_oracles.toeplitz(column, steps)
    exact = sum(sum(map(Fraction, row)) ** 2 for row in rows.tolist()) / 4
    for strategy in (np.array(column), np.array(rows)):
        found = strategy_norms.precision_of_every_step(strategy, 2.0, steps)
        assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 10**10))
