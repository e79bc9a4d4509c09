"""Correlated noise with k of t steps: quadrature, exact fractions, simpler names."""

import fractions
import math

import asked
from asked import bounds
from dp_accounting import dp_event as stock
import min_sep_oracles
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.correlated import runs
from dp_accounting_ext.correlated import schedules
from dp_accounting_ext.correlated import strategies

Event = ext.SelectedStepsMatrixEvent
BAND = (1.0, 0.5)


@pytest.mark.parametrize(
    ("column", "sigma", "selected", "steps", "epochs"),
    [
        (BAND, 1.5, 2, 3, 1),
        (BAND, 2.0, 1, 2, 2),
        (BAND, 0.8, 2, 4, 1),
        ((1.0, 0.7, 0.4), 2.0, 3, 4, 1),
        ((0.3, 0.2, 0.5, 0.4), 1.0, 2, 4, 1),
    ],
)
def test_tiny_runs_against_quadrature(column, sigma, selected, steps, epochs):
    matrix = min_sep_oracles.toeplitz(column, steps * epochs)
    gram = min_sep_oracles.gram_of(matrix, sigma)
    law = min_sep_oracles.law_of_epochs(selected, steps, epochs)
    schedule = schedules.SelectedSteps(steps * epochs, selected, steps)
    run = runs.Run(strategies.Strategy(column), sigma, schedule)
    min_sep_oracles.assert_bounded(run, gram, law, (0.0, 0.5, 1.5))
    rows = tuple(map(tuple, matrix.tolist()))
    uneven = runs.Run(strategies.Strategy(rows), sigma, schedule)
    min_sep_oracles.assert_bounded(uneven, gram, law, (0.0, 0.5, 1.5))


@pytest.mark.nightly
def test_simpler_names_of_it():
    # One coefficient: the noise is independent.
    one = ext.RandomAllocationEvent(stock.GaussianDpEvent(1.5 / 0.8), 2, 20)
    whole = stock.SelfComposedDpEvent(one, 3)
    assert bounds(Event((0.8,), 1.5, 2, 20, 3)) == bounds(whole)
    assert bounds(Event((0.8, 0.0), 1.5, 2, 20, 3)) == bounds(whole)
    # One step of one epoch: balls in bins.
    bins = ext.MatrixAllocationEvent(BAND, 3.0, 20, 1)
    assert bounds(Event(BAND, 3.0, 1, 20)) == bounds(bins)
    # All steps: a Gaussian mechanism.
    mean = math.sqrt(99 * 1.5**2 + 1) / 20
    low, high = bounds(Event(BAND, 20.0, 100, 100))
    known = bounds(stock.GaussianDpEvent(1 / mean))
    assert low <= known[1] and known[0] <= high < (1 + 1e-6) * low
    # No noise at all.
    nothing = ext.PLDAccountant().compose(Event(BAND, 0.0, 2, 4))
    assert nothing.get_delta_bounds(1.0)[0] == 1.0


def test_correlated_noise_costs_more_than_as_much_independent_noise():
    alone = ext.RandomAllocationEvent(stock.GaussianDpEvent(4 / 1.25**0.5), 5, 100)
    low, high = bounds(Event(BAND, 4.0, 5, 100))
    assert bounds(alone)[1] < low < high < 1.2 * low
    # With little noise, independent noise over the norm of a column is the better
    # lower bound.
    low = asked.lower_epsilon(
        asked.accountant_of(Event((1.0, 0.1), 0.4, 2, 1000)), 1e-5
    )
    steps = 1000 - 1
    inner = ext.RandomAllocationEvent(stock.GaussianDpEvent(0.4), 2, steps)
    kept = math.comb(steps, 2) / math.comb(1000, 2)
    known = asked.accountant_of(ext.PLDSubsampleEvent(kept, inner))
    assert low >= 0.99 * asked.lower_epsilon(known, 1e-5)


@pytest.mark.parametrize(
    ("selected", "steps", "rest"),
    [(1, 2, 1), (3, 10, 4), (7, 10, 5), (9, 10, 1), (50, 2000, 1985), (300, 400, 250)],
)
def test_how_many_steps_are_among_the_first_in_fractions(selected, steps, rest):
    found, error = schedules.SelectedSteps(steps, selected, steps).numbers(rest)
    for among, probability in enumerate(found.tolist()):
        exact = fractions.Fraction(
            math.comb(rest, among) * math.comb(steps - rest, selected - among),
            math.comb(steps, selected),
        )
        if exact > fractions.Fraction(1, 10**280):
            assert abs(fractions.Fraction(probability) / exact - 1) <= error
        else:
            assert probability <= 1e-270


def test_nearly_all_steps_cost_no_more_than_all():
    column = tuple(1 / np.sqrt(np.arange(1.0, 41.0)))
    whole = bounds(Event(column, 30.0, 40, 40))
    for selected in (36, 39):
        low, high = bounds(Event(column, 30.0, selected, 40))
        assert low <= whole[1] and high <= whole[1] * (1 + 1e-9)
    few = bounds(Event(column, 30.0, 10, 40))
    assert few[1] < whole[0]


@pytest.mark.nightly
def test_by_sampling_of_few_sets():
    run = Event((1.0, 0.6), 2.0, 2, 12)
    low, high = bounds(run, 1e-4)
    found = ext.certify_by_sampling(run, 1e-4, 1e-6, 0.06, seed=1)
    assert low < found.lower < found.remove_upper < high
    epochs = ext.certify_by_sampling(
        Event((1.0, 0.6), 2.0, 2, 5, 2), 1e-4, 1e-6, 0.1, seed=1
    )
    assert found.lower < epochs.lower < epochs.remove_upper
    gram = np.ones((1, 1)) * (1.6**2 + 1) / 4  # All of two steps: one set.
    whole = ext.certify_by_sampling(Event((1.0, 0.6), 2.0, 2, 2), 1e-4, 1e-6, seed=1)
    one = ext.sampling_certificate.certify_mixture(gram, 1e-4, 1e-6, seed=1)
    assert whole.lower == pytest.approx(one.lower, rel=1e-6)
