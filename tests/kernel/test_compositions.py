"""Compositions are accurate where it is asked, and count errors; what is kept."""

import dataclasses
import math
import pathlib
import re

import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.kernel import memory
from dp_accounting_ext.pairs import gaussian


@pytest.mark.parametrize("count", [1, 2, 50])
def test_each_direction_is_accurate_in_its_own_tail(count):
    """A Gaussian composed is a Gaussian; its two laws are far apart."""
    mean = 30.0
    for bound in Bound:
        step = gaussian.dominating_pair_of(
            math.sqrt(count) / mean, bound, tail_mass=1e-30
        )
        pairs = dominating_pair.DirectedPairs.same(step)
        both = law_sums.ComposedLosses(
            [(lambda pairs=pairs: pairs, count)], bound, accuracy.Accuracy(1e-25)
        )
        for direction in Direction:
            for epsilon in (400.0, 500.0, 560.0):
                truth = gaussian.delta(mean, epsilon, bound)
                found = (
                    both.losses(direction)
                    .profile(direction)
                    .deltas(np.array([epsilon]))[0]
                )
                if bound is Bound.UPPER:
                    assert truth * (1 - 1e-9) <= found <= truth * 1.05
                else:
                    assert truth * 0.95 <= found <= truth * (1 + 1e-9)


# By how much masses are off, as a function of the ratio.
PATTERNS = {
    "above one": lambda ratios: np.where(ratios > 1, 1.0, -1.0),
    "below one": lambda ratios: np.where(ratios > 1, -1.0, 1.0),
    "far from one": lambda ratios: np.where(np.abs(np.log(ratios)) > 0.1, 1.0, -1.0),
    "all": lambda ratios: np.ones(ratios.size),
    "none": lambda ratios: -np.ones(ratios.size),
    "in turn": lambda ratios: np.where(np.arange(ratios.size) % 2, 1.0, -1.0),
}


def _perturbed(sigma, bound, pattern, error, told=0.0):
    """Returns a Gaussian's pair whose masses are off, and a part `told` in sinks."""
    pair = gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-30)
    return dominating_pair.DominatingPair(
        pair.ratios,
        pair.masses * (1 + error * PATTERNS[pattern](pair.ratios)) * (1 - told),
        pair.infinity_mass + told,
        pair.zero_mass + told,
        bound,
        pair.mass_error + 1.01 * error,
        pair.ratio_error,
    )


def _composed(pair, bound, copies):
    """Returns the profiles of both directions."""
    pairs = dominating_pair.DirectedPairs.same(pair)
    composed = law_sums.ComposedLosses(
        [(lambda: pairs, copies)], bound, accuracy.Accuracy(1e-25)
    )
    return [composed.losses(way).profile(way) for way in Direction]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("sigma", [30.0, 1000.0])
def test_masses_that_are_off(sigma, pattern):
    """Against the closed form. Masses of the sum are off by 3 %."""
    copies, error, deltas = 3000, 1e-5, np.array([1e-3, 1e-6, 1e-15])
    mean = math.sqrt(copies) / sigma
    truth = [gaussian.epsilon(mean, delta, Bound.UPPER) for delta in deltas]
    bounds = {}
    for bound in Bound:
        profiles = _composed(_perturbed(sigma, bound, pattern, error), bound, copies)
        bounds[bound] = np.max([way.epsilons(deltas) for way in profiles], axis=0)
    assert (bounds[Bound.LOWER] <= truth).all()
    assert (truth <= bounds[Bound.UPPER]).all()


@pytest.mark.parametrize("pattern", ["all", "none", "in turn"])
@pytest.mark.parametrize("copies", [3000, 1_000_000])
def test_sinks_beside_masses_that_are_off(copies, pattern):
    """A sink is a probability: masses that sum to more than one take none of it."""
    error, told = 0.1 / copies, 3e-4 / copies
    pair = _perturbed(math.sqrt(copies), Bound.UPPER, pattern, error, told)
    epsilons = np.array([1.0, 5.0, 9.5])
    finite = math.exp(copies * math.log1p(-told))
    for profile in _composed(pair, Bound.UPPER, copies):
        found = profile.deltas(epsilons)
        for epsilon, delta in zip(epsilons, found, strict=True):
            of_finite = gaussian.delta(1.0, epsilon, Bound.LOWER)
            assert 1 - finite + finite * of_finite <= delta
        # All that is told beyond is in the sink.
        assert profile.epsilons(np.array([(1 - finite) * 0.999]))[0] == math.inf


@pytest.mark.parametrize("bound", Bound)
def test_errors_that_fit_no_float_say_nothing(bound):
    pair = _perturbed(30.0, bound, "in turn", 0.2)
    nothing = (1.0, math.inf) if bound is Bound.UPPER else (0.0, 0.0)
    for profile in _composed(pair, bound, 10_000):
        assert profile.deltas(np.array([1.0]))[0] == nothing[0]
        assert profile.epsilons(np.array([1e-6]))[0] == nothing[1]


@pytest.mark.parametrize("drift", [3e-7, -3e-7])
def test_masses_that_are_all_too_large_or_too_small_have_a_billion_copies(drift):
    """Their product is off by e^±300."""
    ratios, copies = np.array([1 - 1e-5, 1 + 1e-5]), 10**9
    # Of losses ±1e-5 the sum is normal but for 1e-5, of mean 0.05 and variance 0.1.
    delta = gaussian.delta(math.sqrt(0.1), 0.3, Bound.LOWER)
    for bound in Bound:
        pair = dominating_pair.DominatingPair(
            ratios, np.full(2, (1 + drift) / 2), 0.0, 0.0, bound, 3.1e-7, 2e-16
        )
        found = _composed(pair, bound, copies)[0].deltas(np.array([0.3]))[0]
        assert found >= delta * 0.98 if bound is Bound.UPPER else found <= delta * 1.02


Accuracy = accuracy.Accuracy
PACKAGE = pathlib.Path(ext.__file__).parent


def test_no_other_module_chooses_a_resolution():
    for path in PACKAGE.rglob("*.py"):
        if path.name != "accuracy.py":
            chosen = re.findall(r"\bAccuracy\([^(),]+,[^)]+\)", path.read_text())
            assert not chosen, path


def test_the_width_of_a_bracket_is_in_proportion_to_the_interval():
    """Between the fewest and the most cells; beyond these it does not change.

    So is that of a trade-off curve.
    """
    event = dp_accounting.PoissonSampledDpEvent(
        0.05, dp_accounting.GaussianDpEvent(1.0)
    )
    found, curves = {}, {}
    for interval in (1e-8, 7.9e-6, 1e-4, 1e-3, 2.1e-3, 1.0):
        accountant = ext.PLDAccountant(value_discretization_interval=interval)
        found[interval] = accountant.compose(event, 50).get_epsilon_bounds(1e-5)
        if interval in (1e-4, 1e-3):
            rates = [1e-5, 1e-3, 0.1]
            curves[interval] = accountant.get_true_positive_rate_bounds(rates)
    widths = {each: upper - lower for each, (lower, upper) in found.items()}
    assert 5 < widths[1e-3] / widths[1e-4] < 20
    assert found[1e-8] == found[7.9e-6]
    assert found[2.1e-3] == found[1.0]
    (fine_lower, fine_upper), (lower, upper) = curves.values()
    assert (lower <= fine_upper).all() and (fine_lower <= upper).all()
    ratios = (upper - lower) / (fine_upper - fine_lower)
    assert (ratios > 4).all() and (ratios < 20).all()


def test_cells_of_an_interval():
    assert accuracy.cells_of_interval(accuracy.STOCK_INTERVAL) == accuracy.CELLS
    assert accuracy.cells_of_interval(4e-4) == accuracy.CELLS // 2
    assert accuracy.cells_of_interval(math.inf) == accuracy.FEWEST_CELLS
    assert accuracy.cells_of_interval(1e-300) == accuracy.MOST_CELLS


def made(size, log=None, name=None):
    def make():
        if log is not None:
            log.append(name)
        return np.zeros(size, dtype=np.uint8)

    return make


def test_what_was_asked_for_last_is_kept():
    kept, log = memory.Memory(100), []
    for name in "abcabdacd":
        assert kept.get(name, made(30, log, name)).size == 30
        assert kept.nbytes <= 100
    # Three fit: d drives out c, then c drives out b.
    assert "".join(log) == "abcdc"


def test_the_memory_of_a_pair_is_that_of_its_arrays():
    """Also if its numbers are NumPy's, and once if one pair serves both directions."""
    ratios, masses = np.array([0.5, 2.0]), np.array([2 / 3, 1 / 3])
    sinks = np.float32(0.0), np.int64(0)
    pair = dominating_pair.DominatingPair(ratios, masses, *sinks, Bound.UPPER, 1e-9, 0)
    assert memory.nbytes_of(dominating_pair.DirectedPairs.same(pair)) == 32
    other = dataclasses.replace(pair, ratios=ratios.copy(), masses=masses.copy())
    assert memory.nbytes_of(dominating_pair.DirectedPairs(pair, other)) == 64
    assert memory.nbytes_of((None, "words", Bound.UPPER, (masses,))) == 16


def test_a_value_that_is_too_large_is_kept_alone():
    kept, log = memory.Memory(100), []
    kept.get("small", made(50, log, "small"))
    kept.get("large", made(500, log, "large"))
    assert kept.nbytes == 500
    kept.get("large", made(500, log, "large"))
    assert log == ["small", "large"]
    kept.get("small", made(50))
    assert kept.nbytes == 50
