"""Samples for Poisson sampling with correlated noise, against all sets written out."""

import itertools
import math

import min_sep_oracles
import numpy as np
import pytest

from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.sampling import poisson_tilts

RATE, SIGMA = 0.3, 2.5
COLUMNS = [(1.0,), (1.0, 0.6), (1.0, 0.6, 0.3)]


def draws(column, steps, sigma=SIGMA, rate=RATE):
    strategy = strategies.Strategy(tuple(column))
    return poisson_tilts.Draws.of_strategy(strategy, sigma, rate, steps)


def gram(column, steps, sigma=SIGMA):
    return min_sep_oracles.gram_of(min_sep_oracles.toeplitz(column, steps), sigma)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_ratios_are_the_means_over_all_sets(column, steps):
    column = column[:steps]
    seen = np.random.default_rng(1).normal(size=(steps, 7), scale=3.0)
    inner = gram(column, steps)
    ratio, product = np.zeros(7), np.zeros(7)
    for taken, chance in min_sep_oracles.law_of_groups(RATE, 1, steps).items():
        each = chance * np.exp(
            sum((seen[step] - inner[step][step] / 2 for step in taken), np.zeros(7))
        )
        product += each
        met = sum(inner[i][j] for i, j in itertools.combinations(taken, 2))
        ratio += each * math.exp(-met)
    found = draws(column, steps).log_ratios(seen)
    np.testing.assert_allclose(found, np.log([ratio, product]), rtol=0, atol=1e-13)


@pytest.mark.parametrize("column", COLUMNS)
def test_numbers_have_the_law_that_is_written_out(column):
    steps, copies = 4, 2
    inner = gram(column, steps, 1.2)
    weights = {}
    for numbers in itertools.product(range(copies + 1), repeat=steps):
        n = np.array(numbers)
        weight = math.prod(
            math.comb(copies, k) * RATE**k * (1 - RATE) ** (copies - k) for k in numbers
        )
        exponent = (n @ inner @ n - inner.diagonal() @ n) / 2
        weights[numbers] = weight * math.exp(exponent)
    law = poisson_tilts._Numbers.of(draws(column, steps, 1.2), copies)
    whole = math.fsum(weights.values())
    assert law.log_sum == pytest.approx(math.log(whole), abs=1e-13)
    count = 40_000
    drawn = law.draw(count, np.random.default_rng(2))
    seen, numbers = np.unique(drawn.T.astype(int), axis=0, return_counts=True)
    expected = np.array([weights[tuple(row)] for row in seen.tolist()]) / whole * count
    # As a χ² of as many terms.
    off = float(((numbers - expected) ** 2 / expected).sum()) + count - expected.sum()
    assert abs(off - len(weights)) < 6 * math.sqrt(2 * len(weights))


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("copies", [2, 5])
def test_samples_have_the_divergence_for_their_mean_and_are_bounded(column, copies):
    steps = 3
    inner, law = gram(column, steps), min_sep_oracles.law_of_groups(RATE, 1, steps)
    source = draws(column, steps)
    samples = source.draw(copies, 60_000, np.random.default_rng(3))
    for epsilon in (0.0, 0.3, 0.8):
        values = samples.values(epsilon)
        truth = min_sep_oracles.profile(inner, law, epsilon, remove=True)
        assert abs(values.mean() - truth) < 5 * values.std() / math.sqrt(values.size)
        assert values.max() <= samples.largest(epsilon)


def test_as_many_copies_as_memory_and_floats_hold():
    assert draws((1.0, 0.5), 1000, 10.0).most_copies == 64
    assert draws((1.0,) * 4, 1000, 20.0).most_copies == 15
    assert draws((1.0,) * 8, 1000, 20.0).most_copies == 2
    assert draws((1.0,) * 9, 1000, 20.0).most_copies == 1
    # m² (1 + 1) is at most 300.
    assert draws((1.0, 1.0), 1000, 1.0).most_copies == 10
    assert draws((1.0, 1.0), 1000, 0.05).most_copies == 1
