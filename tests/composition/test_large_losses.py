"""Compositions with heavy tails against direct convolution, exact in every digit."""

import math

import mpmath
import numpy as np
import pytest

from dp_accounting_ext.composition import composed_loss
from dp_accounting_ext.composition import large_losses
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
BOUNDS = list(Bound)


def heavy(bound, count, rare=1e-14):
    """Losses of ±0.01 and, rarely, of 1 to 5: a tail far from any exponential."""
    losses = np.array([-0.01, 0.01, 1.0, 2.0, 3.0, 4.0, 5.0])
    tail = rare * np.array([1.0, 0.5, 0.3, 0.2, 0.1])
    high = 1 / (1 + math.exp(-0.01))
    masses = np.concatenate([[1 - high, high], tail])
    masses[:2] *= 1 - tail.sum()
    return loss_distribution.LossDistribution(losses, masses, 0.0, count, bound)


def exact_delta(law, epsilon):
    """Every multiset of losses of the copies, in fifty digits."""
    with mpmath.workdps(50):
        terms = {0: mpmath.mpf(1)}
        # In hundredths, so that equal sums meet.
        places = [round(100 * loss) for loss in law.losses]
        for _ in range(law.count):
            following = {}
            for at, mass in terms.items():
                for place, own in zip(places, law.masses.tolist(), strict=True):
                    key = at + place
                    following[key] = following.get(key, 0) + mass * mpmath.mpf(own)
            terms = following
        return mpmath.fsum(
            mass * (1 - mpmath.exp(epsilon - mpmath.mpf(at) / 100))
            for at, mass in terms.items()
            if mpmath.mpf(at) / 100 > epsilon
        )


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("epsilon", [0.3, 0.97, 1.5, 2.5, 4.9])
def test_delta_of_a_heavy_tail_is_on_its_side_and_tight(bound, epsilon):
    law = heavy(bound, 6)
    found = large_losses.Composition([law], 1e-4).delta(epsilon)
    truth = exact_delta(law, epsilon)
    if bound is Bound.UPPER:
        assert truth <= found <= truth * (1 + 1e-3)
    else:
        assert truth * (1 - 1e-3) <= found <= truth


@pytest.mark.parametrize("delta", [3e-14, 1e-14, 2e-15])
def test_epsilon_of_a_heavy_tail_is_on_its_side_and_tight(delta):
    upper, lower = (
        large_losses.Composition([heavy(bound, 6)], 1e-4).epsilon(delta)
        for bound in (Bound.UPPER, Bound.LOWER)
    )
    law = heavy(Bound.LOWER, 6)
    assert exact_delta(law, upper) <= delta <= exact_delta(law, lower)
    assert lower <= upper <= lower * (1 + 1e-3)


@pytest.mark.parametrize("bound", BOUNDS)
def test_laws_that_differ(bound):
    """One large loss of either law; two of them are rarer than δ."""
    laws = [heavy(bound, 1, 3e-14), heavy(bound, 2), heavy(bound, 1)]
    same = heavy(bound, 4)
    found = large_losses.Composition(laws, 1e-4).delta(1.5)
    least, most = exact_delta(same, 1.5), 2 * exact_delta(same, 1.5)
    assert least * (1 - 1e-3) <= found <= most


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_light_tail_is_composed_whole(bound, monkeypatch):
    law = loss_distribution.LossDistribution(
        np.array([-0.1, 0.1]),
        np.array([1, math.exp(0.1)]) / (1 + math.exp(0.1)),
        0.0,
        30,
        bound,
    )
    monkeypatch.setattr(large_losses.Composition, "_apart", None)
    both = large_losses.Composition([law], 1e-4)
    plain = composed_loss.ComposedLoss([law], 1e-4)
    assert both.delta(0.5) == plain.delta(0.5) > 0
    assert both.epsilon(1e-5) == plain.epsilon(1e-5) > 0


def test_what_no_tilt_shows():
    """Bulk losses of 1e-3, and at δ = 1e-17 one of 0.1 to 5 makes ε."""
    tail = 1e-10 * np.geomspace(1, 1e-9, 40)
    losses = np.concatenate([[-0.001, 0.001], np.geomspace(0.02, 5.0, 40)])
    half = (1 - tail.sum()) / 2
    masses = np.concatenate([[half, half], tail])
    found, plain = {}, {}
    for bound in BOUNDS:
        law = loss_distribution.LossDistribution(losses, masses, 0.0, 3, bound)
        found[bound] = large_losses.Composition([law], 1e-4).epsilon(1e-17)
        plain[bound] = composed_loss.ComposedLoss([law], 1e-4).epsilon(1e-17)
    gap = found[Bound.UPPER] - found[Bound.LOWER]
    assert 0 <= gap < 5e-3 * found[Bound.UPPER]
    assert plain[Bound.UPPER] - plain[Bound.LOWER] > 10 * gap


def test_a_split_keeps_all_mass():
    law = heavy(Bound.UPPER, 10)
    bulk, large, chance = large_losses._split(law, 1e-10)
    assert bulk.losses.tolist() == [-0.01, 0.01]
    assert large.losses.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert bulk.count == 10 and large.count == 1
    assert large.masses.sum() <= chance <= large.masses.sum() * (1 + 1e-8)
    bulk, large, chance = large_losses._split(law, 1e-30)
    assert bulk is law and large is None and chance == 0


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("start", [0.3, 2.0, 30.0])
def test_a_root_is_found_from_its_side(start, upper):
    asked = []

    def excess(x):
        asked.append(x)
        return 9 - x**2

    found = large_losses._root(excess, start, upper=upper)
    assert found in asked
    assert (found >= 3) if upper else (found <= 3)
    assert found == pytest.approx(3.0, rel=0.05)


def test_no_root_in_sight_says_nothing():
    assert large_losses._root(lambda x: 1.0, 1.0, upper=True) == math.inf
    assert large_losses._root(lambda x: -math.inf, 1.0, upper=False) == 0.0
