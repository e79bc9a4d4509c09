"""Matrix mechanisms: known cases, quadrature of few bins, and both sides in order."""

import math

import correlated_oracles
import dp_accounting
import numpy as np
import pytest
from scipy import optimize

import dp_accounting_ext as ext
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import matrix_allocation

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Event = ext.MatrixAllocationEvent
BAND = (1.0, 0.5, 0.25)


def bounds(event, delta=1e-5):
    return ext.PLDAccountant().compose(event).get_epsilon_bounds(delta)


def test_rare_tails_are_as_tight_as_others():
    """Moves of ten deviations are rare, but not beside 1e-26 or in a high moment."""
    event = Event(BAND, 4.0, 12, 2)
    low, high = bounds(event, 1e-26)
    assert low < high < 1.3 * low
    renyi = ext.RdpAccountant([16.0]).compose(event).get_epsilon(1e-5)
    low, high = bounds(event)
    assert low < renyi < 1.3 * high


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_identity_is_random_allocation(epochs):
    steps = dp_accounting.SelfComposedDpEvent(
        dp_accounting.GaussianDpEvent(2.0), epochs
    )
    epoch = ext.RandomAllocationEvent(steps, 1, 50)
    assert bounds(Event((1.0,), 2.0, 50, epochs)) == bounds(epoch)


def test_orthogonal_bins_are_an_allocation_of_uneven_steps():
    rows = np.diag([1.0, 1.0, 2.0])
    low, high = bounds(Event(rows, 2.0, 3, 1))
    events = [dp_accounting.GaussianDpEvent(sigma) for sigma in (2.0, 1.0)]
    known = bounds(ext.ScheduledAllocationEvent(events, [2, 1], 3))
    assert known[0] * (1 - 1e-8) <= low <= high <= known[1] * (1 + 1e-8)


def test_one_bin_is_a_gaussian_of_its_column():
    low, high = bounds(Event(BAND, 2.0, 1, 2))
    norm = math.sqrt(1.0 + 1.5**2)
    known = bounds(dp_accounting.GaussianDpEvent(2.0 / norm))
    assert low <= known[1]
    assert known[0] <= high <= known[1] * 1.02


def test_equal_rows_of_bins_are_no_amplification():
    low, high = bounds(Event((1.0,) * 60, 40.0, 2, 30))
    assert 0 < low < high < math.inf


@pytest.mark.parametrize(
    ("strategy", "bins", "epochs", "sigma"),
    [
        (BAND[:2], 2, 1, 1.0),
        (BAND, 2, 3, 2.5),
        (BAND, 3, 1, 1.5),
        (BAND, 4, 1, 1.5),
        ((1.0, 0.9, 0.8, 0.7), 3, 2, 4.0),
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


def test_bins_that_all_differ_have_a_lower_bound_with_correlations():
    """Below by blocks, not by a filter, and far above what independent bins have."""
    event = Event(BAND, 4.0, 4, 1)
    alone = Event(np.eye(4), 4.0, 4, 1)
    low, high = bounds(event)
    assert low > 1.15 * bounds(alone)[1]
    assert high < 1.25 * low


def test_it_composes_with_other_events():
    run = Event(BAND, 3.0, 10, 2)
    noise = dp_accounting.GaussianDpEvent(5.0)
    alone, both = bounds(run), bounds(dp_accounting.ComposedDpEvent([run, noise]))
    assert alone[0] < both[0] < both[1]
    assert alone[1] < both[1] < alone[1] + bounds(noise)[1]
    sampled = bounds(dp_accounting.PoissonSampledDpEvent(0.5, run))
    assert sampled[0] < sampled[1] < alone[1]


def test_noise_is_calibrated_to_it():
    target = 1.0

    def run(sigma):
        return Event(BAND, sigma, 3, 1)

    sigma = dp_accounting.calibrate_dp_mechanism(
        ext.PLDAccountant,
        run,
        target,
        1e-2,
        dp_accounting.LowerEndpointAndGuess(0.5, 2.0),
        tol=2e-2,
    )
    assert bounds(run(sigma), 1e-2)[1] <= target < bounds(run(sigma - 0.04), 1e-2)[1]


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.3])
def test_its_trade_off_is_around_the_truth(rate):
    """The best test finds min e^ε α + δ(ε) over ε, in the worse direction."""
    gram = correlated_oracles.toeplitz_gram(BAND, 2, 1, 1.5)

    def found(epsilon, remove):
        delta = correlated_oracles.profile(gram, epsilon, remove=remove)
        return math.exp(epsilon) * rate + delta

    truth = max(
        optimize.minimize_scalar(
            found, bounds=(-4.0, 6.0), args=(remove,), options={"xatol": 1e-9}
        ).fun
        for remove in (True, False)
    )
    accountant = ext.PLDAccountant().compose(Event(BAND, 1.5, 2, 1))
    low, high = accountant.get_true_positive_rate_bounds(rate)
    assert low - 1e-12 <= truth <= high + 1e-12
    assert rate < low < high < 1.5 * low


def test_more_correlation_is_less_private():
    uppers = [bounds(Event((1.0, c), 3.0, 20, 1))[1] for c in (0.1, 0.4, 0.9)]
    assert uppers == sorted(uppers)


def test_simpler_names():
    plain = matrix_allocation.allocate((2.0,), 3.0, 7, 1)
    assert plain == allocated.RandomAllocation(additive_noise.Gaussian(1.5), 1, 7)
    bare = matrix_allocation.allocate(BAND, 0.0, 7, 1)
    assert bare == known_bounds.NonPrivate()


def test_grams_are_rounded_to_their_sides():
    run = matrix_allocation.MatrixAllocation(BAND, 2.0, 6, 2)
    truth = correlated_oracles.toeplitz_gram(BAND, 6, 2, 2.0)
    low, high = run.gram(Bound.LOWER), run.gram(Bound.UPPER)
    occupied = truth > 0
    assert np.all(low[occupied] < truth[occupied])
    assert np.all(truth[occupied] < high[occupied])
    assert np.allclose(low, high, rtol=1e-12)
