"""Products, sums and powers in cells, in rational arithmetic."""

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
from dp_accounting_ext.kernel import tilted_sums


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
        [(0.5, 2), (1.0, 1)],
        # Bounds on chances may be above one.
        [(0.5, 2), (1.5, 1)],
    ],
)
def test_any_of(chances):
    """One minus the chance of none, by rational arithmetic, relatively accurate."""
    none = Fraction(1)
    for chance, number in chances:
        none *= (1 - min(Fraction(chance), 1)) ** number
    assert sums.probability_of_any(chances) == pytest.approx(
        float(1 - none), rel=1e-15, abs=0
    )


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


def test_exponentials_that_fit_and_that_do_not():
    for x in (-800.0, -1.0, 0.0, 700.0, 709.7):
        assert floats.exponential(x) == math.exp(x)
    for x in (709.8, 1e9, math.inf):
        assert floats.exponential(x) in (sys.float_info.max, math.inf)


TILTS = (0.05, 0.1, 0.2, 0.4, 0.8)


def factor_of(seed, size, count, start):
    """A factor with a few cells, columns beyond the circle among them."""
    generator = np.random.default_rng(seed)
    rows = start + generator.integers(0, 6, size)
    columns = generator.integers(0, 9, size)
    masses = generator.random(size) ** 4 + 1e-6
    return tilted_sums.Factor(rows, columns, masses / masses.sum(), count)


def direct_law(factors):
    """{(row, column): mass} of the sum, in rational arithmetic."""
    law = {(0, 0): Fraction(1)}
    for factor in factors:
        cells = list(
            zip(
                factor.rows.tolist(),
                factor.columns.tolist(),
                map(Fraction, factor.masses.tolist()),
                strict=True,
            )
        )
        for _ in range(factor.count):
            longer = {}
            for (row, column), mass in law.items():
                for down, right, chance in cells:
                    key = row + down, column + right
                    longer[key] = longer.get(key, Fraction(0)) + mass * chance
            law = longer
    return law


def one_row(height):
    """Weights that take the fine rows of a coarse one, and of no other."""
    return np.concatenate([np.zeros(height - 1), np.ones(height)])


@pytest.mark.parametrize("tilt", [-100.0, -20.0, 100.0])
@pytest.mark.parametrize("first", [-8, 0, 8])
@pytest.mark.filterwarnings("error")
def test_masses_beyond_floats_are_large_numbers(tilt, first):
    """Far from its tilted middle a law is not known, and says so without a warning."""
    zeros, halves = np.zeros(2, dtype=np.int64), np.full(2, 0.5)
    factor = tilted_sums.Factor(np.arange(2), zeros, halves, 10)
    law = tilted_sums.TiltedSum([factor], tilt, (64, 1))
    found = law.masses(tilted_sums.block(4), first, height=4)[:, 0]
    assert np.isfinite(found).all()
    if first == 0:
        ways = np.array([176, 792, 56])
        assert (found[:3] * (1 + law.mass_error) >= ways / 1024).all()


@st.composite
def two_factors(draw):
    """Two factors, and the lowest row of their sum."""
    seed, size = draw(st.integers(0, 10**6)), draw(st.integers(1, 5))
    some, more = draw(st.integers(0, 3)), draw(st.integers(1, 4))
    start = draw(st.integers(-4, 3))
    one = factor_of(seed, size, some, start)
    other = factor_of(seed + 1, size + 1, more, start)
    return [one, other], start * (some + more)


@given(two_factors(), st.floats(-1.0, 1.0), st.sampled_from([1, 2, 4]))
def test_masses_are_hardly_above_the_true_ones(both, tilt, height):
    factors, lowest = both
    law = tilted_sums.TiltedSum(factors, tilt, (64, 16))
    first = math.floor(lowest / height)
    found = law.masses(one_row(height), first, height=height)
    assert found.shape == (64 // height, 16)
    expected = np.zeros(found.shape)
    for (row, column), mass in direct_law(factors).items():
        expected[row // height - first, column % 16] += float(mass)
    assert np.all(found >= expected * (1 - law.mass_error))
    # What noise adds is relative to where the tilted law is.
    tilts = np.exp(tilt * height * (first + np.arange(64 // height)))[:, np.newaxis]
    noise = ((found - expected) * tilts).max()
    assert noise < 1e-10 * (expected * tilts).sum()


CHANGES = (0.05, 0.2, 0.8, 3.0, 10.0, 40.0)


@given(
    two_factors(),
    st.floats(-1.0, 1.0),
    st.sampled_from([(16, 1), (64, 1), (64, 2), (64, 4)]),
    st.sampled_from([1, 16]),
)
def test_masses_below_are_hardly_below_the_true_ones(
    both, tilt, rows_and_height, columns
):
    """No tolerance from above, also where the sum has more rows than the torus."""
    factors, lowest = both
    rows, height = rows_and_height
    law = tilted_sums.TiltedSum(factors, tilt, (rows, columns))
    first = math.floor(lowest / height)
    found = law.masses_below(first, height=height, changes=CHANGES)
    assert found.shape == (rows // height, columns)
    expected = np.zeros(found.shape, dtype=object)
    goes_round = False
    for (row, column), mass in direct_law(factors).items():
        if row // height - first < rows // height:
            expected[row // height - first, column % columns] += mass
        else:
            goes_round = True
    limit = 1 + Fraction(law.mass_error)
    for value, exact in zip(found.ravel(), expected.ravel(), strict=True):
        assert Fraction(value) <= exact * limit
    if not goes_round:
        tilts = np.exp(tilt * height * (first + np.arange(rows // height)))
        expected = expected.astype(np.float64)
        noise = ((expected - found) * tilts[:, np.newaxis]).max()
        assert noise < 1e-9 * (expected * tilts[:, np.newaxis]).sum()


@pytest.mark.parametrize(("tilt", "height"), [(-1.0, 1), (0.0, 4), (0.7, 1)])
def test_a_sum_of_thousands_has_digits_around_its_tilted_middle(tilt, height):
    """The number of ones of 3000 coins, of which 2000 are fair, in whole numbers."""
    cells = np.arange(2), np.zeros(2, dtype=np.int64)
    law = tilted_sums.TiltedSum(
        [
            tilted_sums.Factor(*cells, np.array([0.5, 0.5]), 2000),
            tilted_sums.Factor(*cells, np.array([0.875, 0.125]), 1000),
        ],
        tilt,
        (4096, 1),
    )
    upper = law.masses(tilted_sums.block(height), 0, height=height)[:, 0]
    lower = law.masses_below(0, height=height, changes=[0.1, 1.0, 10.0])[:, 0]
    # Of 2^2000 and of 8^1000 equally likely ways.
    ones = [math.comb(2000, n) for n in range(2001)]
    others = [math.comb(1000, n) * 7 ** (1000 - n) for n in range(1001)]
    ways = 2**2000 * 8**1000
    with np.errstate(divide="ignore"):
        logs = tilt * height * np.arange(upper.size) + np.log(lower)
    near = np.flatnonzero(logs > logs.max() - 12)[::7]
    assert near.size > 5
    for block in near.tolist():
        found = sum(
            ones[row - n] * others[n]
            for row in range(block * height, (block + 1) * height)
            for n in range(max(row - 2000, 0), min(row, 1000) + 1)
        )
        exact = Fraction(found, ways)
        assert Fraction(lower[block]) <= exact * (1 + Fraction(law.mass_error))
        assert Fraction(upper[block]) >= exact * (1 - Fraction(law.mass_error))
        assert upper[block] - lower[block] < 1e-4 * float(exact)
        assert law.mass_error < 1e-9


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_what_is_above_a_row_is_bounded(seed, count):
    factors = [factor_of(seed, 4, count, -2)]
    law = tilted_sums.TiltedSum(factors, 0.1, (8, 16))
    exact = direct_law(factors)
    for row in range(-10, 20):
        rows = [(r, m) for (r, _), m in exact.items() if r >= row]
        assert sum(m for _, m in rows) <= law.mass_above(row, TILTS)
        moment = sum(m * math.exp((r - row) / 10) for r, m in rows)
        assert moment <= law.mass_above(row, TILTS[1:])
