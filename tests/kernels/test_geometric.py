"""Sums on a multiplicative grid against sums by enumeration."""

from fractions import Fraction
import itertools

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext import dominating_pair
from dp_accounting_ext.kernels import geometric

STEP = 0.13
KAPPAS = [0.0, 0.01, 0.3, 1.0, 2.5, 7.0, 20.0, 60.0]


def exact_sum(x, y):
    """All pairs, zero atoms included, as rational numbers."""
    atoms = []
    for law in (x, y):
        places = oracles.exact([0.0, *law.places()])
        masses = oracles.exact([law.zero_mass, *law.masses])
        atoms.append(list(zip(places, masses, strict=True)))
    return [(a + b, p * q) for (a, p), (b, q) in itertools.product(*atoms)]


def as_pair(law, bound):
    return dominating_pair.DominatingPair(
        law.places(),
        law.masses,
        law.lost_mean,
        law.zero_mass,
        bound,
        law.mass_error,
        law.ratio_error,
    )


def certified(law, kappa, bound):
    """The divergences at κ with the law's own allowance for rounding."""
    pair = as_pair(law, bound)
    shift, factor = pair._allowance()
    scaled = kappa * np.exp(shift)
    above = np.maximum(law.places() - scaled, 0.0) @ law.masses + law.lost_mean
    below = np.maximum(1.0 - scaled * law.places(), 0.0) @ law.masses + law.zero_mass
    return Fraction(float(factor * above)), Fraction(float(factor * below))


@given(
    strategies.geometric_laws(STEP, grouped=False),
    strategies.geometric_laws(STEP, grouped=False),
    st.integers(1, 3),
)
def test_upper_sum_dominates_exact_sum(x, y, refinement):
    exact = exact_sum(x, y)
    total = geometric.convolve(x, y, refinement)
    for kappa in KAPPAS:
        above, below = certified(total, kappa, dominating_pair.Bound.UPPER)
        level = Fraction(kappa)
        assert above >= oracles.remove_divergence(exact, level, Fraction(0))
        assert below >= oracles.add_divergence(exact, level, Fraction(0))


@given(
    strategies.geometric_laws(STEP, grouped=True),
    strategies.geometric_laws(STEP, grouped=True),
    st.integers(1, 3),
)
def test_lower_sum_is_dominated_by_exact_sum(x, y, refinement):
    exact = exact_sum(x, y)
    total = geometric.convolve(x, y, refinement)
    for kappa in KAPPAS:
        above, below = certified(total, kappa, dominating_pair.Bound.LOWER)
        level = Fraction(kappa)
        assert above <= oracles.remove_divergence(exact, level, Fraction(0))
        assert below <= oracles.add_divergence(exact, level, Fraction(0))


@pytest.mark.parametrize("grouped", [False, True])
@given(data=st.data())
def test_mass_and_mean_are_conserved(grouped, data):
    x = data.draw(strategies.geometric_laws(STEP, grouped=grouped))
    y = data.draw(strategies.geometric_laws(STEP, grouped=grouped))
    total = geometric.convolve(x, y, 2)
    means = [law.places() @ law.masses for law in (x, y, total)]
    assert total.masses.sum() + total.zero_mass == pytest.approx(1.0, rel=1e-13)
    assert means[2] == pytest.approx(means[0] + means[1], rel=1e-12)


@pytest.mark.parametrize("grouped", [False, True])
@given(data=st.data())
def test_square_is_the_sum_with_itself(grouped, data):
    """The symmetric path, which does half of the work, against the general one."""
    x = data.draw(strategies.geometric_laws(STEP, grouped=grouped))
    twin = geometric.GeometricLaw(
        **{field: getattr(x, field) for field in x.__dataclass_fields__}
    )
    square, general = geometric.convolve(x, x), geometric.convolve(x, twin)
    np.testing.assert_allclose(square.masses, general.masses, rtol=1e-11, atol=1e-16)
    places = square.masses > 1e-12
    np.testing.assert_allclose(
        square.places()[places], general.places()[places], rtol=1e-11
    )


@settings(max_examples=30)
@given(st.integers(50, 400), st.integers(0, 2**32 - 1))
def test_windows_add_up(size, seed):
    generator = np.random.default_rng(seed)
    values, step = generator.random(size), 0.01
    windows = geometric._Windows(values, step, size, size)
    width = int(generator.integers(1, size))
    sums, lags = windows.window(0, size, width)
    for end in (0, width - 1, size // 2, size - 1):
        inside = values[max(0, end - width + 1) : end + 1][::-1]
        weights = -np.expm1(-step * np.arange(inside.size))
        assert sums[end] == pytest.approx(inside.sum(), rel=1e-12)
        assert lags[end] == pytest.approx(inside @ weights, rel=1e-11, abs=1e-15)


def test_error_is_second_order_in_the_step():
    """Halving the step divides the distance of the two bounds by four."""
    gaps = []
    for points in (200, 400, 800, 1600):
        places = np.exp(np.linspace(-6.0, 4.0, 20001))
        masses = np.exp(-(np.log(places) ** 2) / 2) + 1e-30
        masses /= masses.sum()
        values = []
        for grouped in (False, True):
            law = geometric.from_atoms(places, masses, 10.0 / points, grouped=grouped)
            total = geometric.convolve(law, law)
            values.append(np.maximum(total.places() - 5.0, 0.0) @ total.masses)
        gaps.append(values[0] - values[1])
    ratios = np.array(gaps[:-1]) / np.array(gaps[1:])
    assert (gaps[-1] > 0) and np.all(ratios > 3.5) and np.all(ratios < 4.5)
