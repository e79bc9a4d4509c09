"""Matrix mechanisms: known cases, quadrature of few bins, and both sides in order."""

from asked import bounds
import correlated_oracles
from dp_accounting import dp_event as stock
import nights
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.correlated import bins
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import interface

Event = ext.MatrixAllocationEvent
BAND = (1.0, 0.5, 0.25)
COLUMN = (1.0, 0.6, 0.5, 0.4)


@pytest.mark.parametrize(
    ("strategy", "bins", "epochs", "sigma"),
    [
        (BAND[:2], 2, 1, 1.0),
        (BAND, 2, 3, 2.5),
        (BAND, 3, 1, 1.5),
        (BAND, 4, 1, 1.5),
        ((1.0, 0.9, 0.8, 0.7), 3, 2, 4.0),
        ((0.5, 0.5), 3, 3, 1.5),
        ((0.8, 0.3, 0.2, 0.2, 0.1), 3, 2, 1.5),
        (BAND[:2], 2, 1, 3.5e6),
        (((1.0, 0.0), (0.7, 0.4)), 2, 1, 1.0),
    ],
)
def test_few_bins_against_quadrature(strategy, bins, epochs, sigma):
    if isinstance(strategy[0], tuple):
        matrix = np.array(strategy) / sigma
        gram = matrix.T @ matrix
    else:
        gram = correlated_oracles.toeplitz_gram(strategy, bins, epochs, sigma)
    accountant = ext.PLDAccountant().compose(Event(strategy, sigma, bins, epochs))
    for epsilon in (0.0, 0.5, 1.5):
        truth = max(
            correlated_oracles.profile(gram, epsilon, remove=way)
            for way in (True, False)
        )
        low, high = accountant.get_delta_bounds(epsilon)
        assert low - 1e-13 <= truth <= high + 1e-13


@pytest.mark.parametrize("sigma", [1.5, 30.0])
@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.5])
def test_true_positive_rates_against_quadrature(sigma, rate):
    """The least α κ + δ(ln κ) over all κ, which is convex in κ.

    At these rates ε is zero at the δ for which lower bounds by filters are tuned.
    """
    gram = correlated_oracles.toeplitz_gram(BAND, 2, 2, sigma)
    kappas = np.exp(np.linspace(-12 / sigma, 12 / sigma, 400))
    least, most = [], []
    for way in (True, False):
        heights = rate * kappas + [
            correlated_oracles.profile(gram, epsilon, remove=way)
            for epsilon in np.log(kappas)
        ]
        slopes = np.diff(heights) / np.diff(kappas)
        lowest = int(np.argmin(heights))
        # Chords on either side, prolonged, are below the curve around its minimum.
        chords = heights[lowest] + [
            slopes[lowest - 2] * (kappas[lowest + 1] - kappas[lowest]),
            -slopes[lowest + 1] * (kappas[lowest] - kappas[lowest - 1]),
        ]
        least.append(min(chords))
        most.append(heights[lowest])
    accountant = ext.PLDAccountant().compose(Event(BAND, sigma, 2, 2))
    (low,), (high,) = accountant.get_true_positive_rate_bounds([rate])
    assert low <= max(most)
    assert max(least) <= high


@pytest.mark.parametrize(
    "event",
    [
        ext.MinSepSamplingEvent(BAND, 2.0, 0.05, 3, 40),
        *nights.at_night(
            ext.PLDSubsampleEvent(0.5, Event(BAND, 2.0, 16, 2)),
            ext.WindowedAllocationEvent(BAND, 2.0, 16, 3, 2),
        ),
    ],
)
def test_every_question_has_an_answer(event):
    accountant = ext.PLDAccountant().compose(event)
    for rate in (1e-6, 1e-3, 0.1, 0.5):
        (low,), (high,) = accountant.get_true_positive_rate_bounds([rate])
        assert rate <= low <= high < 1
    low, high = accountant.get_gdp_parameter_bounds(least_false_positive_rate=0.3)
    assert 0 < low <= high
    assert "attacker" in ext.risk.in_words(accountant)


def test_bins_that_all_differ_have_a_lower_bound_with_correlations():
    """Far above what independent bins have."""
    event = Event(BAND, 4.0, 4, 1)
    alone = Event(np.eye(4), 4.0, 4, 1)
    low, high = bounds(event)
    assert low > 1.15 * bounds(alone)[1]
    assert high < 1.25 * low


def test_no_device_from_below_hides_another():
    """Blocks have a better bound here than a filter, which has one, too."""
    low, high = bounds(Event((1.0, 0.3), 1.0, 100, 1), 1e-6)
    assert 1.01 < low < high < 1.065


def test_blocks_of_bins_are_shorter_than_columns():
    """A filter has blocks of 256 bins here, and columns have 300 bands."""
    run = Event.from_buffered_toeplitz([0.8], [0.2], 2.0, 512, 1)
    strategy = strategies.strategy(run.strategy, 512)
    mechanism = bins.Bins(strategy, 2.0, 512, 512)
    pairs = mechanism.pairs(Bound.LOWER, accuracy.Accuracy(1e-22))
    assert 0.165 < pairs.remove.epsilon(1e-6, Direction.REMOVE) < 0.17


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("sigma", "coefficient", "tail_mass"), [(0.1, 0.3, 1e-22), (0.12, 0.9, 1e-12)]
)
def test_little_noise_has_bounds(sigma, coefficient, tail_mass):
    """P's mass was more than one, from what is lifted, and no bound was given.

    With tails of 1e-22 the pairs are those that the accountant asks for: made once.
    """
    column = (1.0, coefficient)
    gram = correlated_oracles.toeplitz_gram(column, 2, 1, sigma)
    run = bins.Bins(strategies.Strategy(column), sigma, 2, 2)
    fine = accuracy.Accuracy(tail_mass)
    above, below = (interface.pairs_of(run, bound, fine).add for bound in Bound)
    for epsilon in (0.0, 40.0, 70.0, 100.0):
        truth = correlated_oracles.profile(gram, epsilon, remove=False)
        assert below.delta(epsilon, Direction.ADD) <= truth
        assert truth <= above.delta(epsilon, Direction.ADD)
    low, high = bounds(Event(column, sigma, 2, 1))
    assert low <= high <= 1.05 * low


UNEVEN = tuple(tuple(row) for row in np.diag([2.0, 2.0, 0.5, 0.5]).tolist())


@pytest.mark.parametrize(
    ("strategy", "num_bins", "epochs"),
    [(COLUMN[:2], 4, 2), (COLUMN, 4, 2), (UNEVEN, 4, 1)],
)
def test_filters_of_independent_blocks_are_below(
    monkeypatch, strategy, num_bins, epochs
):
    """By quadrature. Of uneven bins, all blocks have the least moves of any."""
    monkeypatch.setattr(bins, "_BINS_OF_FILTER", 2)
    run = bins.Bins(strategies.Strategy(strategy), 1.5, num_bins, epochs * num_bins)
    gram = run.gram(Bound.LOWER)
    answers = accuracy.Accuracy.of_level(0, accuracy.CELLS)
    pair = run._filtered(gram, answers, 1e-3, 1.0)
    assert pair.delta(0.0, Direction.REMOVE) > 0
    for epsilon in (0.0, 0.5, 1.5):
        truth = correlated_oracles.profile(gram, epsilon, remove=True)
        assert pair.delta(epsilon, Direction.REMOVE) <= truth + 1e-13


def test_bins_that_no_block_has_take_part(monkeypatch):
    """One of five bins without correlation, two blocks of two and a single one."""
    monkeypatch.setattr(bins, "_BINS_OF_FILTER", 2)
    run = bins.Bins(strategies.Strategy((1.0,)), 1.5, 5, 5)
    answers = accuracy.Accuracy.of_level(0, accuracy.CELLS)
    pair = run._filtered(run.gram(Bound.LOWER), answers, 1e-3, 1.0)
    one_of_five = ext.RandomAllocationEvent(stock.GaussianDpEvent(1.5), 1, 5)
    whole = ext.PLDAccountant().compose(one_of_five)
    for epsilon in (0.0, 0.5, 1.0):
        least, most = whole.get_delta_bounds(epsilon)
        assert 0.95 * least < pair.delta(epsilon, Direction.REMOVE) <= most
