"""Bins from below by a filter: laws of its statistic, and quadrature of few of them."""

import itertools

import numpy as np
import pytest
from scipy import special

from dp_accounting_ext.correlated import bins
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.chains import filtered_bins

COLUMN = np.array([0.6, 0.3])


UNIT = 0.01


def statistic(bins, scale=0.7):
    length = bins + COLUMN.size - 1
    states = np.linspace(-6.0, 7.0, 400)
    added = np.rint(np.exp(scale * states - scale**2 / 2) / UNIT).astype(int)
    found = filtered_bins.Statistic(states, 0.5, added, 20_000)
    return found, np.tile(COLUMN, (length, 1))


def test_laws_are_those_of_every_path():
    """Three states of x and two bins: all paths are counted, with their sums."""
    states, shifts = np.array([-1.0, 0.2, 1.5]), np.array([[0.9, 0.4]] * 3)
    function = filtered_bins.Statistic(states, 0.6, np.array([0, 1, 3]), 5)
    p_masses, q_masses, error = filtered_bins.laws(function, shifts, least=0.0)
    ends = np.array([-np.inf, -0.4, 0.85, np.inf])

    def chances(mean, spread):
        return np.diff(special.ndtr((ends - mean) / spread))

    first = chances(0.0, 1.0)
    for moves, masses in (
        ([np.zeros(3)], q_masses),
        ([np.array([0.9, 0.4, 0.0]), np.array([0.0, 0.9, 0.4])], p_masses),
    ):
        found = np.zeros(5)
        for moved, path in itertools.product(
            moves, itertools.product(range(3), repeat=4)
        ):
            chance, total = first[path[0]], 0
            for step, (before, after) in enumerate(itertools.pairwise(path)):
                mean = 0.6 * states[before] + 0.8 * moved[2 - step]
                chance *= chances(mean, 0.8)[after]
                total += function.added[after] if step else 0
            found[min(total, 4)] += chance / len(moves)
        assert masses == pytest.approx(found, rel=error + 1e-12)


def lower_pair(column, sigma, num_bins, epochs, epsilon):
    strategy = strategies.Strategy(tuple(column))
    run = bins.Bins(strategy, sigma, num_bins, num_bins * epochs)
    return filtered_bins.lower_pair(run.shifts(), delta=1e-6, epsilon=epsilon)


@pytest.mark.parametrize("epochs", [1, 3])
def test_bands_of_bins_are_parts_of_their_moves(epochs):
    """Of a matrix of random rows: inner products are below those of the bins."""
    steps = 4 * epochs
    matrix = np.tril(np.random.default_rng(3).random((steps, steps))) + np.eye(steps)
    rows = tuple(map(tuple, matrix.tolist()))
    run = bins.Bins(strategies.Strategy(rows), 2.0, 4, steps)
    shifts = run.shifts()
    assert shifts.shape == (7, 4)
    moves = np.zeros((4, 7))
    for place, band in itertools.product(range(4), range(4)):
        moves[place, place + band] = shifts[place + band, band]
    whole = np.array([matrix[:, place::4].sum(axis=1) / 2.0 for place in range(4)])
    assert np.all(moves @ moves.T <= (whole @ whole.T) * (1 + 1e-12))
    assert moves[0, 0] == pytest.approx(
        matrix.diagonal()[::4].sum() / 2 / np.sqrt(epochs)
    )


@pytest.mark.nightly
def test_what_takes_too_long_is_left_out():
    """Bands of long columns, and bins that are too many."""
    assert lower_pair(np.full(40, 0.1), 2.0, 200, 2, 0.1) is not None
    many = np.tile(np.array([[0.1]]), (1 << 17, 1))
    assert filtered_bins.lower_pair(many, delta=1e-6, epsilon=1.0) is None


@pytest.mark.parametrize("epsilon", [0.2, 0.7])
@pytest.mark.parametrize(
    ("column", "num_bins", "epochs"),
    [((0.05, 0.02), 30, 1), ((0.1, 0.05, 0.04), 85, 1), ((0.03, 0.02), 40, 2)],
)
def test_little_is_dropped_where_ratios_vary_little(column, num_bins, epochs, epsilon):
    """Every step moves S by almost the same number of cells, and the laws with it."""
    pair = lower_pair(column, 1.0, num_bins, epochs, epsilon)
    assert pair.p_masses.sum() > 1 - 1e-9
