"""Fresh windows: what they are in simpler cases, and quadrature of one small cycle."""

import math

from asked import bounds
import correlated_oracles
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import min_sep_oracles
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.correlated import bins
from dp_accounting_ext.correlated import strategies

Event = ext.WindowedAllocationEvent
BAND = (1.0, 0.5, 0.25)
NORM = math.hypot(*BAND)


def meet(one, other):
    return one[0] <= other[1] and other[0] <= one[1]


def whole_gram(column, window, sigma):
    """The Gram matrix of a window, if the end of the run cuts no column."""
    matrix = min_sep_oracles.toeplitz(column, window + len(column))
    return min_sep_oracles.gram_of(matrix, sigma)[:window, :window]


@pytest.mark.parametrize(
    ("column", "window", "rate", "sigma"),
    [(BAND, 2, 1.0, 1.3), (BAND, 3, 0.3, 1.5), (BAND[:2], 4, 1.0, 2.5)],
)
def test_one_cycle_against_quadrature(column, window, rate, sigma):
    """(1 − q) Q + q P, of columns none of which is cut by the end of the window."""
    gram = whole_gram(column, window, sigma)
    accountant = ext.PLDAccountant().compose(Event(column, sigma, window, 3, 1, rate))
    for epsilon in (0.0, 0.5, 1.5):
        # REMOVE: q H at the ε of the sample; ADD: the reflection of REMOVE's.
        kappa = (math.exp(epsilon) - 1 + rate) / rate
        removed = rate * correlated_oracles.profile(gram, math.log(kappa), remove=True)
        low, high = accountant.get_delta_bounds(epsilon)
        assert removed <= high
        if rate == 1:
            added = correlated_oracles.profile(gram, epsilon, remove=False)
            assert low <= max(removed, added) <= high


def test_a_window_of_one_step_is_cyclic_poisson_sampling():
    run = Event(BAND, 2.0, 1, 5, 7, 0.2)
    step = stock.PoissonSampledDpEvent(0.2, stock.GaussianDpEvent(2.0 / NORM))
    cyclic = bounds(stock.SelfComposedDpEvent(step, 7))
    assert meet(bounds(run), cyclic)
    assert bounds(run)[1] < 1.0001 * cyclic[0]


def test_one_band_is_an_allocation_in_each_window():
    run = Event((0.5,), 1.0, 6, 2, 3, 0.5)
    window = ext.RandomAllocationEvent(stock.GaussianDpEvent(2.0), 1, 6)
    whole = stock.SelfComposedDpEvent(ext.PLDSubsampleEvent(0.5, window), 3)
    assert bounds(run) == bounds(whole)


def test_a_window_is_an_allocation_of_a_factor_of_its_gram_matrix():
    """C of C_wᵀ C_w = G, of a run that ends with the window."""
    window, sigma = 6, 1.5
    gram = whole_gram(BAND, window, 1.0)
    factor = np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T
    factor[factor < 1e-12] = 0.0
    assert np.allclose(factor.T @ factor, gram)
    allocated = ext.MatrixAllocationEvent(factor, sigma, window, 1)
    one = bounds(Event(BAND, sigma, window, 3, 1))
    assert meet(one, bounds(allocated))
    assert one[1] == pytest.approx(bounds(allocated)[1], rel=2e-3)


def test_a_run_that_ends_with_its_window_tells_less():
    """There the last columns are cut, so that their inner products are smaller."""
    run = bins.Bins(strategies.Strategy(BAND), 2.0, 8, 8, is_cut=False)
    cut = correlated_oracles.toeplitz_gram(BAND, 8, 1, 2.0)
    truth = whole_gram(BAND, 8, 2.0)
    low, high = run.gram(Bound.LOWER), run.gram(Bound.UPPER)
    assert (cut <= truth + 1e-15).all()
    occupied = truth > 0
    assert (low[occupied] < truth[occupied]).all()
    assert (truth[occupied] < high[occupied]).all()
    assert np.allclose(low, high, rtol=1e-12)


def test_other_relations_groups_and_no_noise():
    run = Event(BAND, 3.0, 4, 3, 2, 0.5)
    one = bounds(run)
    relations = privacy_accountant.NeighboringRelation
    special = bounds(run, relation=relations.REPLACE_SPECIAL)
    replaced = bounds(run, relation=relations.REPLACE_ONE)
    pair = bounds(ext.GroupSubsampledEvent(2, run))
    assert special == one
    for more in (replaced, pair):
        assert one[0] <= more[1]
        assert one[1] <= more[1] < math.inf
    assert bounds(Event(BAND, 0.0, 4, 3, 2, 0.5)) == (math.inf, math.inf)
    assert bounds(Event(BAND, 3.0, 4, 3, 2, 0.0)) == (0.0, 0.0)
    renyi = ext.RdpAccountant([2.0, 8.0]).compose(run)
    assert one[0] <= renyi.get_epsilon(1e-5) < math.inf
