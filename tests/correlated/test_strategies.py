"""Strategies: each condition has its own message; inner products and norms."""

from fractions import Fraction
import math

import min_sep_oracles
import numpy as np
import pytest

from dp_accounting_ext.correlated import strategies


def of(entries):
    """The strategy of a column or of rows."""
    entries = np.asarray(entries).tolist()
    rows = [tuple(row) if isinstance(row, list) else row for row in entries]
    return strategies.Strategy(tuple(rows))


@pytest.mark.parametrize("value", ["1", 1.0, None, ("1",), (1.0, (1.0,)), (1j,)])
def test_what_is_no_strategy(value):
    with pytest.raises(TypeError):
        strategies.strategy(value, 2)


def test_coefficients_beyond_the_run_and_last_zeros_do_not_count():
    assert strategies.strategy([1, 0.5, 0, 0], 4).entries == (1.0, 0.5)
    assert strategies.strategy((1.0, 0.5, 0.25), 2).entries == (1.0, 0.5)
    assert strategies.strategy(np.eye(2).tolist(), 2).entries == (
        (1.0, 0.0),
        (0.0, 1.0),
    )


def test_rows_of_a_matrix():
    rows = np.tril(np.random.default_rng(1).random((12, 12)))
    added = np.stack([rows[:, i::4].sum(axis=1) for i in range(4)])
    found, error = of(rows).gram(4, 3)
    assert np.allclose(found, added @ added.T, rtol=error, atol=0)


COLUMNS = [(1.0,), (1.0, 0.5), (0.3, 0.2, 0.5, 0.4), tuple(1 / np.arange(1.0, 13.0))]


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("steps", [12, 40])
@pytest.mark.parametrize("period", [1, 2, 5, 50])
def test_no_eigenvalue_is_larger(column, steps, period):
    above = of(column).precision_above(1.5, steps, period)
    rows = np.array(min_sep_oracles.toeplitz(column, steps))
    for first in range(min(period, steps)):
        group = rows[:, first::period]
        largest = float(np.linalg.norm(group, 2)) ** 2 / 1.5**2
        assert largest <= above * (1 + 1e-13)
        if first == 0:
            assert above < 1.02 * largest
    of_rows = of(rows).precision_above(1.5, steps, period)
    assert above * (1 - 1e-12) <= of_rows <= above * (1 + 1e-12)


def test_long_runs_are_bounded_by_the_sum_of_a_row():
    # Too many products for an iteration: (1 + 0.5)² and 1 + 0.5².
    column, steps = (1.0, 0.5), 1 << 24
    found = of(column).precision_above(1.0, steps)
    assert 2.25 <= found < 2.25 * (1 + 1e-6)
    apart = of(column).precision_above(1.0, steps, 2)
    assert 1.25 <= apart < 1.25 * (1 + 1e-6)
    # No more than there are of a matrix: its norm is 1.
    assert 1.0 <= of(np.eye(3)).precision_above(1.0, 3) < 1 + 1e-12


def test_the_least_sum_of_the_first_columns_counts():
    """Not that of the last of them, where columns differ."""
    rows = np.tril(np.ones((6, 6)))
    rows[:, 1] = [0, 0.01, 0, 0, 0, 0]
    rows[:, 2] = [0, 0, 9, 9, 9, 9]
    first = of(rows).first_steps(1.0, 6)
    least = min(rows[:, step].sum() for step in range(first.number))
    assert first.shift * math.sqrt(6) <= least
    norm = min(np.linalg.norm(rows[:, step]) for step in range(first.number))
    assert first.deviation * norm >= 1


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("steps", [12, 100])
def test_first_steps_move_the_sum_by_no_less_in_fractions(column, steps):
    rows = min_sep_oracles.toeplitz(column, steps)
    for strategy in (of(column), of(rows)):
        first = strategy.first_steps(2.0, steps)
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
    for strategy in (of(column), of(rows)):
        found = strategy.precision_of_every_step(2.0, steps)
        assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 10**10))


def test_groups_of_a_matrix_may_differ():
    """The largest eigenvalue of any group counts, not that of the first."""
    rows = np.tril(np.random.default_rng(2).random((9, 9)))
    rows[:, 4] *= 3
    largest = max(np.linalg.norm(rows[:, first::3], 2) ** 2 for first in range(3))
    found = of(rows).precision_above(1.0, 9, 3)
    assert largest <= found * (1 + 1e-13)
    assert found < 1.02 * largest


def test_products_by_distance_are_the_largest():
    rows = np.tril(np.random.default_rng(2).random((9, 9)))
    rows[np.arange(9)[:, None] - np.arange(9) > 3] = 0.0
    gram = rows.T @ rows
    found, error = of(rows).by_distance(6)
    assert of(rows).bands == 4 and not found[4:].any()
    for apart in range(4):
        truth = gram.diagonal(apart).max()
        assert found[apart] == pytest.approx(truth, rel=error)
    column, _ = of((1.0, 0.5, 0.25)).by_distance(4)
    assert column.tolist() == [1.3125, 0.625, 0.25, 0.0]
