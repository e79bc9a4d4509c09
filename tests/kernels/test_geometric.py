"""Sums on a multiplicative grid against sums by enumeration."""

import collections
from fractions import Fraction
import functools
import itertools

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.kernels import geometric
from dp_accounting_ext.pairs import dominating_pair

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
    with np.errstate(over="ignore"):
        scaled = scaled * law.places()
    below = np.maximum(1.0 - scaled, 0.0) @ law.masses + law.zero_mass
    return Fraction(float(factor * above)), Fraction(float(factor * below))


def assert_certified_sum(x, y, refinement, bound):
    exact = exact_sum(x, y)
    total = geometric.convolve(x, y, refinement)
    sign = 1 if bound is dominating_pair.Bound.UPPER else -1
    for kappa in KAPPAS:
        above, below = certified(total, kappa, bound)
        level = Fraction(kappa)
        assert sign * above >= sign * oracles.remove_divergence(exact, level, 0)
        assert sign * below >= sign * oracles.add_divergence(exact, level, 0)


@given(
    strategies.geometric_laws(STEP, grouped=False),
    strategies.geometric_laws(STEP, grouped=False),
    st.integers(1, 3),
)
def test_upper_sum_dominates_exact_sum(x, y, refinement):
    assert_certified_sum(x, y, refinement, dominating_pair.Bound.UPPER)


@pytest.mark.parametrize("tail", [1e-10, 1e-17, 2e-140])
@pytest.mark.parametrize("step", [0.001, STEP])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_rare_value_beside_a_sure_one_is_not_rounded_away(mirrored, step, tail):
    """One cell of the sum holds both, and the sure value sits on the grid."""
    masses = np.array([1.0, 0.0, tail])
    x = geometric.GeometricLaw(5.75, step, np.ones(1))
    y = geometric.GeometricLaw(1.0, step, masses[::-1] if mirrored else masses)
    exact = exact_sum(x, y)
    for one, other in ((x, y), (y, x)):
        total = geometric.convolve(one, other)
        for kappa in (*np.linspace(6.75, 5.75 + np.exp(2 * step), 7), 6.0, 8.0):
            for level in (kappa, 1 / kappa):
                found = certified(total, level, dominating_pair.Bound.UPPER)
                rational = Fraction(float(level))
                assert found[0] >= oracles.remove_divergence(exact, rational, 0)
                assert found[1] >= oracles.add_divergence(exact, rational, 0)


@given(
    strategies.geometric_laws(STEP, grouped=True),
    strategies.geometric_laws(STEP, grouped=True),
    st.integers(1, 3),
)
def test_lower_sum_is_dominated_by_exact_sum(x, y, refinement):
    assert_certified_sum(x, y, refinement, dominating_pair.Bound.LOWER)


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


def cells_by_pairs(x, y, total):
    """Of the sum's cells: masses, means and all the mass that is shared with them.

    Pair by pair in forty digits, with shares from the places alone.
    """
    step, origin = mpmath.mpf(total.step), mpmath.mpf(total.origin)
    masses, means, shared = (collections.defaultdict(mpmath.mpf) for _ in range(3))
    grids = [
        [
            mpmath.mpf(law.origin) * mpmath.exp(law.step * mpmath.mpf(i))
            for i in range(law.masses.size)
        ]
        for law in (x, y)
    ]
    places = [list(map(mpmath.mpf, law.places())) for law in (x, y)]
    of_x, of_y = (list(map(mpmath.mpf, law.masses)) for law in (x, y))
    width = mpmath.expm1(step)
    low_of = functools.cache(lambda cell: origin * mpmath.exp(step * cell))
    for i, j in itertools.product(range(x.masses.size), range(y.masses.size)):
        place = grids[0][i] + grids[1][j]
        cell = mpmath.log(place / origin) / step
        # The sum of two equal multiples of the origins is on the grid.
        on_grid = i == j
        cell = int(mpmath.nint(cell) if on_grid else mpmath.floor(cell))
        mass = of_x[i] * of_y[j]
        shared[cell] += mass
        if total.excess is not None:
            masses[cell] += mass
            means[cell] += mass * (places[0][i] + places[1][j])
            continue
        share = 0 if on_grid else (place / low_of(cell) - 1) / width
        masses[cell] += mass * (1 - share)
        masses[cell + 1] += mass * share
        shared[cell + 1] += mass
    return masses, means, shared


@pytest.mark.parametrize("refinement", [1, 4])
@pytest.mark.parametrize("ratio", [0.9, 1e-3, 300.0])
@pytest.mark.parametrize("step", [0.01, 0.07, 0.9])
@pytest.mark.parametrize("grouped", [False, True])
def test_every_cell_has_what_its_pairs_give_it(grouped, step, ratio, refinement):
    """Within the errors, be it 1e-60 beside one: runs of one and of all diagonals."""
    generator = np.random.default_rng(int(ratio) + refinement)
    laws = []
    for origin, size in ((1.0, 60), (ratio, 45)):
        masses = 10.0 ** -generator.uniform(0, 60, size)
        excess = masses * generator.uniform(0, step, size) if grouped else None
        laws.append(geometric.GeometricLaw(origin, step, masses, excess))
    total = geometric.convolve(*laws, refinement)
    with mpmath.workdps(40):
        masses, means, shared = cells_by_pairs(*laws, total)
    width, places = np.expm1(total.step), total.places()
    for cell, found in enumerate(total.masses):
        allowed = total.mass_error * masses[cell]
        if not grouped:
            # A place that is off moves mass between its cell's ends.
            allowed += total.ratio_error * (1 + 1 / width) * shared[cell]
        assert abs(float(found) - masses[cell]) <= allowed
        if grouped and masses[cell]:
            error = total.ratio_error + 2 * total.mass_error * width
            assert abs(places[cell] * masses[cell] / means[cell] - 1) <= error


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


def random_atoms(seed, widest, size):
    """Places between e^−widest and e^widest, one of them zero."""
    generator = np.random.default_rng(seed)
    # Not the exponentials of floats, which come back from their logarithms.
    places = np.exp(generator.uniform(-widest, widest, size))
    places *= generator.uniform(1.0, 1.1, size)
    places[int(generator.integers(size))] = 0.0
    return places, generator.dirichlet(np.ones(size))


@pytest.mark.parametrize("size", [2, 9])
@pytest.mark.parametrize("widest", [0.1, 3.0, 600.0])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_atoms_on_a_grid_keep_their_side(grouped, widest, seed, size):
    """Against the atoms as rational numbers, at their places and between."""
    places, masses = random_atoms(seed, widest, size)
    law = geometric.from_atoms(places, masses, widest / 20, grouped=grouped)
    bound = dominating_pair.Bound.LOWER if grouped else dominating_pair.Bound.UPPER
    exact = list(zip(oracles.exact(places), oracles.exact(masses), strict=True))
    for kappa in (*places, *law.grid(), 0.5 * places.max(), 1.0):
        above, below = certified(law, kappa, bound)
        level = Fraction(float(kappa))
        truths = (
            oracles.remove_divergence(exact, level, Fraction(0)),
            oracles.add_divergence(exact, level, Fraction(0)),
        )
        for found, truth in zip((above, below), truths, strict=True):
            assert found <= truth if grouped else found >= truth
    assert law.zero_mass == masses[places == 0].sum()
    assert law.mass_error < 1e-14 and law.ratio_error < 2e-12
    top = np.log(places.max())
    assert np.log(law.grid()[-2]) <= top + 1e-9
    assert np.log(law.grid()[-1]) >= top - 1e-9


def test_sums_of_many_atoms_that_would_round_down():
    """Each of a thousand masses would be lost if it were added to the first alone."""
    masses = np.append(1.0, np.full(1000, 2.0**-53))
    law = geometric.from_atoms(np.ones(1001), masses, 0.1, grouped=False)
    assert law.masses.sum() == 1.0 + 1000 * 2.0**-53
    above, below = certified(law, 0.0, dominating_pair.Bound.UPPER)
    assert min(above, below) >= sum(oracles.exact(masses), Fraction(0))


def test_no_mass_is_negative_where_rounding_puts_an_atom_above_its_cell():
    """Its logarithm less its cell's is more than the step, by rounding."""
    step, place = 0.06658114555247345, 6.10759766199067e58
    law = geometric.from_atoms(
        np.array([1.0, place]), np.full(2, 0.5), step, grouped=False
    )
    assert np.all(law.masses >= 0)
    assert law.masses.sum() == 1.0


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("zero", [0.0, 0.25])
def test_what_a_sum_carries_along(grouped, zero):
    """Lost means and errors add, in either order; zeros meet."""
    x, y = (
        geometric.GeometricLaw(
            origin,
            STEP,
            np.full(size, (1 - zero) / size),
            np.zeros(size) if grouped else None,
            zero_mass=zero,
            lost_mean=lost,
            mass_error=error,
            ratio_error=2 * error,
        )
        for origin, size, lost, error in ((0.5, 3, 0.125, 1e-10), (2.0, 70, 0.5, 3e-10))
    )
    for first, second in ((x, y), (y, x)):
        total = geometric.convolve(first, second)
        assert total.step == STEP
        assert total.lost_mean == 0.625
        assert total.zero_mass == zero**2
        rounding = 2.0**-53 * (x.masses.size + y.masses.size)
        assert 4e-10 + rounding <= total.mass_error <= 4e-10 + 10 * rounding
        assert 6e-10 + 4 * 2.0**-53 <= total.ratio_error <= 6e-10 + 1e-14


@pytest.mark.parametrize("refinement", [1, 2, 5])
@pytest.mark.parametrize("ratio", [1.0, 1e-8, 30.0])
def test_a_sum_takes_few_cells_and_few_passes(monkeypatch, refinement, ratio):
    """About as many cells as the larger law, and 2 ln 2 / step passes."""
    runs = []
    monkeypatch.setattr(
        geometric,
        "_runs",
        lambda *arguments, find=geometric._runs: (
            runs.append(find(*arguments)) or runs[-1]
        ),
    )
    x, y = (
        geometric.GeometricLaw(origin, STEP, np.full(size, 1 / size))
        for origin, size in ((1.0, 300), (ratio, 200))
    )
    total = geometric.convolve(x, y, refinement)
    assert total.masses.size <= refinement * 299 + 4
    cells = sum(np.unique(found.cells).size for found in runs)
    assert cells <= 2 * (np.log(2) * refinement / STEP + 2)
    # Of 3 · 2^k and 2^k diagonals each: what is in between takes two, or three.
    assert sum(found.cells.size for found in runs) <= 2 * cells


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("zero", [0.0, 0.25])
def test_a_wide_law_and_one_that_starts_at_its_top(grouped, order, zero):
    """Their origins' quotient is more than any float."""
    step = 10.0
    masses = np.zeros(80)
    masses[[0, 40, 74]] = 0.5 - zero, 0.25, 0.25
    x = geometric.GeometricLaw(
        2.0**-1010, step, masses, 2 * masses if grouped else None, zero_mass=zero
    )
    part = np.full(2, (1 - zero) / 2)
    y = geometric.GeometricLaw(
        2.0**60, step, part, part / 2 if grouped else None, zero_mass=zero
    )
    bound = dominating_pair.Bound.LOWER if grouped else dominating_pair.Bound.UPPER
    exact = exact_sum(x, y)
    total = geometric.convolve(*(x, y)[::order])
    assert total.masses.sum() + zero**2 == pytest.approx(1.0, rel=1e-14)
    for kappa in (0.0, *y.places(), *(4.0 * y.places()), *(1 / y.places())):
        above, below = certified(total, kappa, bound)
        level = Fraction(float(kappa))
        truths = (
            oracles.remove_divergence(exact, level, Fraction(0)),
            oracles.add_divergence(exact, level, Fraction(0)),
        )
        for found, truth in zip((above, below), truths, strict=True):
            assert found <= truth if grouped else found >= truth


def test_the_sum_of_the_origins_is_on_the_grid():
    """Not at the very end of the cell below, which would make its group as wide."""
    for first, second in np.random.default_rng(0).uniform(0.1, 10.0, (100, 2)):
        x, y = (
            geometric.GeometricLaw(origin, STEP, np.ones(1), np.zeros(1))
            for origin in (first, second)
        )
        total = geometric.convolve(x, y)
        assert total.excess.max() == 0
        assert total.places()[total.masses > 0] == pytest.approx(first + second)


@pytest.mark.parametrize("exponent", [0, 30, 373, 898])
def test_places_are_off_by_no_more_than_their_error(exponent):
    """The mean of a sum, where logarithms of its origins are long numbers."""
    x = geometric.GeometricLaw(
        1.37 * 2.0**-exponent, 0.7, np.full(1, 0.5), zero_mass=0.5
    )
    y = geometric.GeometricLaw(1.1, 0.7, np.full(1, 0.5), zero_mass=0.5)
    total = geometric.convolve(x, y)
    found = sum(
        p * q
        for p, q in zip(*map(oracles.exact, (total.grid(), total.masses)), strict=True)
    )
    true = (Fraction(x.origin) + Fraction(y.origin)) / 2
    assert abs(found / true - 1) <= Fraction(total.ratio_error)
    units = total.ratio_error * 2**53
    exponents = abs(np.log(x.origin)) + np.log(1.1)
    assert 38 + 4 * exponents <= units <= 41 + 4.1 * exponents


@pytest.mark.parametrize("grouped", [False, True])
def test_masses_of_many_atoms_err_as_little_as_those_of_few(grouped):
    """Equal masses in one cell, whose plain sum errs by hundreds of units."""
    number, mass = 40_000, 0.656 / 40_000
    places = np.append(1.0, np.full(number, 1.05))
    masses = np.append(0.344, np.full(number, mass))
    law = geometric.from_atoms(places, masses, 0.1, grouped=grouped)
    total = sum(oracles.exact(law.masses), Fraction(0))
    exact = sum(oracles.exact(masses), Fraction(0))
    assert abs(total / exact - 1) <= law.mass_error <= 8 * 2.0**-53


def test_a_place_is_as_certain_as_the_sums_that_make_it():
    """A group far beyond its grid point is off by both of its sums' errors."""
    masses, excess, error = np.array([2.0**-30]), np.array([2.0**-10]), 2.0**-20
    law = geometric.GeometricLaw(1.0, 0.1, masses, excess)
    low, high = 2.0**-10 * (1 - error), 2.0**-10 * (1 + error)
    worst = (high / (2.0**-30 * (1 - error))) / (low / 2.0**-30)
    moved = geometric.movement(law, error)
    assert moved >= (worst - 1) * 0.999 - 2 * error
    assert moved >= 2 * error * (1 - 2.0**-20)
    split = geometric.GeometricLaw(1.0, 0.1, masses)
    assert geometric.movement(split, error) == 0.0
