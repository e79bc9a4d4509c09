"""Correlated noise on Poisson samples: quadrature, and simpler names of it."""

import itertools
import math

from dp_accounting import dp_event as stock
import min_sep_oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.mechanisms import poisson_matrix

Event = ext.PoissonMatrixEvent
BAND = (1.0, 0.5)


def bounds(event, delta=1e-5):
    return ext.PLDAccountant().compose(event).get_epsilon_bounds(delta)


def law_of_steps(rate, steps):
    """{set of steps: probability}, all of them."""
    found = {}
    for taken in itertools.product((False, True), repeat=steps):
        chosen = tuple(step for step in range(steps) if taken[step])
        found[chosen] = rate ** len(chosen) * (1 - rate) ** (steps - len(chosen))
    return found


@pytest.mark.parametrize(
    ("column", "sigma", "rate", "steps"),
    [
        (BAND, 1.5, 0.3, 3),
        (BAND, 2.0, 1.0, 3),
        (BAND, 1.5, 0.6, 4),
        ((1.0, 0.7, 0.4), 2.0, 0.1, 4),
    ],
)
def test_tiny_runs_against_quadrature(column, sigma, rate, steps):
    matrix = min_sep_oracles.toeplitz(column, steps)
    gram = min_sep_oracles.gram_of(matrix, sigma)
    run = poisson_matrix.Run(column, sigma, rate, steps)
    law = law_of_steps(rate, steps)
    min_sep_oracles.assert_bounded(run, gram, law, (0.0, 0.5))


def test_noise_that_is_not_correlated_and_none():
    sample = stock.PoissonSampledDpEvent(0.3, stock.GaussianDpEvent(1.5 / 0.8))
    whole = stock.SelfComposedDpEvent(sample, 20)
    assert bounds(Event((0.8,), 1.5, 0.3, 20)) == bounds(whole)
    assert bounds(Event((0.8, 0.0), 1.5, 0.3, 20)) == bounds(whole)
    assert bounds(Event(BAND, 3.0, 0.0, 20)) == (0.0, 0.0)
    # The second coefficient is none of the run's own.
    assert bounds(Event(BAND, 3.0, 0.4, 1)) == bounds(Event((1.0,), 3.0, 0.4, 1))
    nothing = ext.PLDAccountant().compose(Event(BAND, 0.0, 0.4, 2))
    low, high = nothing.get_delta_bounds(1.0)
    assert low <= 1 - 0.6**2 <= high


def test_correlated_noise_costs_more_than_as_much_independent_noise():
    alone = stock.PoissonSampledDpEvent(0.05, stock.GaussianDpEvent(2 / 1.25**0.5))
    low, high = bounds(Event(BAND, 2.0, 0.05, 100))
    assert bounds(stock.SelfComposedDpEvent(alone, 100))[1] < low < high < 1.3 * low
    # A record in every step is a Gaussian that the sum of outputs nearly tells.
    low, high = bounds(Event(BAND, 20.0, 1.0, 100))
    mean = math.sqrt(99 * 1.5**2 + 1) / 20
    known = bounds(stock.GaussianDpEvent(1 / mean))[1]
    assert low <= known <= high < 1.02 * low
