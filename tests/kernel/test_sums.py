"""Products and sums in cells, in rational arithmetic; what is said about floats."""

from fractions import Fraction
import itertools
import math
import sys

from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest

from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums


def test_dot():
    generator = np.random.default_rng(0)
    for size in (0, 1, 2, 100):
        x, y = generator.normal(size=(2, size))
        pairs = list(zip(oracles.exact(x), oracles.exact(y), strict=True))
        exact = sum((a * b for a, b in pairs), Fraction(0))
        error = abs(Fraction(sums.dot(x, y)) - exact)
        terms = sum((abs(a * b) for a, b in pairs), Fraction(0))
        assert error <= (size + 1) * Fraction(2.0**-53) * terms


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("number", [1, 3, 20_000])
def test_gathering_many_errs_by_two_units_at_most(number, signed):
    """Equal weights err to one side in a plain sum, and small ones are lost in it."""
    generator = np.random.default_rng(number)
    for weights in (
        np.full(number, 0.656 / number),
        np.append(1.0, np.full(number, 2.0**-54)),
        generator.lognormal(0.0, 20.0, number),
    ):
        if signed:
            weights = weights * generator.choice([-1.0, 1.0], weights.size)
        cells = np.arange(weights.size) % 2
        found = sums.gather(cells, weights)
        for cell in range(found.size):
            mine = weights[cell::2]
            error = abs(Fraction(float(found[cell])) - oracles.exact_total(mine))
            assert error <= 2 * Fraction(2.0**-53) * oracles.exact_total(abs(mine))


@pytest.mark.parametrize(
    "chances",
    [
        [],
        [(0.0, 3)],
        [(0.25, 1)],
        [(0.25, 2), (0.5, 1)],
        [(2.0**-60, 1), (2.0**-61, 10)],
        [(1e-12, 1000), (1 - 2.0**-53, 1)],
    ],
)
def test_any_of(chances):
    """One minus the chance of none, by rational arithmetic, relatively accurate."""
    none = Fraction(1)
    for chance, number in chances:
        none *= (1 - Fraction(chance)) ** number
    assert sums.probability_of_any(chances) == pytest.approx(
        float(1 - none), rel=1e-15, abs=0
    )


def test_any_of_has_no_negative_zero():
    assert math.copysign(1.0, sums.probability_of_any([(0.0, 2)])) == 1.0


@pytest.mark.parametrize("certain", [1.0, 1.5])
def test_any_of_what_is_certain(certain):
    """Bounds on chances may be above one."""
    assert sums.probability_of_any([(0.5, 2), (certain, 1)]) == 1.0


@given(
    masses=st.lists(st.floats(-300.0, 0.0), min_size=2, max_size=40),
    others=st.lists(st.floats(-300.0, 0.0), min_size=2, max_size=700),
)
@example(masses=[0.0] * 600, others=[-1.0] * 600)
def test_a_convolution_errs_by_what_is_claimed(masses, others):
    x, y = (np.exp(np.array(each)) for each in (masses, others))
    found = sums.convolve(x, y)
    bound = Fraction(sums.convolution_error(min(x.size, y.size)))
    # Every float is a whole number of 2^−1074.
    units = [[int(Fraction(v) * 2**1074) for v in each.tolist()] for each in (x, y)]
    exact = [0] * found.size
    for i, a in enumerate(units[0]):
        for j, b in enumerate(units[1]):
            exact[i + j] += a * b
    for value, ways in zip(found.tolist(), exact, strict=True):
        truth = Fraction(ways, 2**2148)
        if truth > floats.TINY:
            assert abs(Fraction(value) - truth) <= bound * truth


@pytest.mark.parametrize("size", [600, 1500])
def test_convolutions_of_whole_numbers_are_exact(size):
    """Of a law and itself too, and of laws with blocks that are empty."""
    generator = np.random.default_rng(size)
    x, y = generator.integers(0, 2**20, (2, size)).astype(float)
    y[size // 4 : 3 * size // 4] = 0.0
    for one, other in itertools.product((x, y), repeat=2):
        exact = np.convolve(one.astype(np.int64), other.astype(np.int64))
        assert np.array_equal(sums.convolve(one, other), exact)


@pytest.mark.parametrize("degrees", [1, 2, 5])
def test_a_product_of_series_errs_by_what_is_claimed(degrees):
    generator = np.random.default_rng(degrees)
    x, y = generator.lognormal(0.0, 30.0, (2, degrees, 40))
    x[generator.random(x.shape) < 0.5] = 0.0
    y[0], x[-1, :10] = 0.0, 0.0
    found = sums.products(x, y, range(degrees), sums.convolve)
    bound = Fraction(sums.convolution_error(40) + degrees * floats.UNIT_ROUNDOFF)
    for degree in range(degrees):
        exact = [Fraction(0)] * found.shape[1]
        for low in range(degree + 1):
            for i, a in enumerate(map(Fraction, x[low].tolist())):
                for j, b in enumerate(map(Fraction, y[degree - low].tolist())):
                    exact[i + j] += a * b
        for value, truth in zip(found[degree].tolist(), exact, strict=True):
            assert abs(Fraction(value) - truth) <= bound * truth


POSITIVE = st.floats(min_value=1e-300, max_value=1e300)


def test_the_unit_is_that_of_rounding_to_nearest():
    assert 1.0 + floats.UNIT_ROUNDOFF == 1.0
    assert 1.0 + floats.UNIT_ROUNDOFF * (1 + 2.0**-52) > 1.0
    assert sys.float_info.epsilon == floats.UNIT_ROUNDOFF * 2


def test_exponents_fit_with_room():
    assert math.isfinite(1e4 * math.exp(floats.LARGEST_EXPONENT))
    assert math.exp(-floats.LARGEST_EXPONENT) * 1e-3 > sys.float_info.min
    assert math.exp(-floats.LARGEST_LOSS) > floats.SMALLEST_MASS > sys.float_info.min
    assert -math.log(math.ulp(0.0)) <= floats.LARGEST_LOG


@given(POSITIVE, st.sampled_from([1e-15, 1e-12, 1e-9]))
def test_bounds_move_outward(bound, by):
    raised, lowered = floats.raised(bound, by), floats.lowered(bound, by)
    assert lowered < bound < raised
    exact, share = Fraction(bound), Fraction(by)
    # What is left after the two roundings covers most of what was asked for.
    assert Fraction(raised) - exact > exact * share / 2
    assert exact - Fraction(lowered) > exact * share / 2
    assert raised < bound * (1 + 2 * by)
    assert lowered > bound * (1 - 2 * by)


@pytest.mark.parametrize("x", [-800.0, -1.0, 0.0, 700.0, 709.7])
def test_exponentials_that_fit(x):
    assert floats.exponential(x) == math.exp(x)


@pytest.mark.parametrize("x", [709.8, 1e9, math.inf])
def test_exponentials_that_do_not_fit(x):
    assert floats.exponential(x) in (sys.float_info.max, math.inf)
