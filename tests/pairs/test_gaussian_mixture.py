"""Pairs of Gaussian mixtures against Neyman and Pearson's lemma to 40 digits."""

import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import gaussian_mixture

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Mixture = gaussian_mixture.Mixture


def bracket(p, q, epsilon, direction, tail_mass=1e-30):
    return [
        gaussian_mixture.dominating_pair_of(
            Mixture(tuple(p)), Mixture(tuple(q)), bound, tail_mass=tail_mass
        ).delta(epsilon, direction)
        for bound in (Bound.LOWER, Bound.UPPER)
    ]


MIXTURES = {
    "one shift": ([(1.0, 1.0)], [(0.0, 1.0)]),
    "a sample": ([(0.0, 0.99), (1.0, 0.01)], [(0.0, 1.0)]),
    "a replaced record": ([(0.0, 0.9), (2.0, 0.1)], [(0.0, 0.9), (-2.0, 0.1)]),
    "seventeen": ([(i / 4, 1 / 17) for i in range(17)], [(0.0, 1.0)]),
    "against several": ([(0.5, 1.0)], [(-1.0, 0.25), (-0.5, 0.25), (0.0, 0.5)]),
}


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("epsilon", [-0.3, 0.0, 0.4, 1.5, 4.0])
def test_the_truth_lies_between(name, direction, epsilon):
    p, q = MIXTURES[name]
    lower, upper = bracket(p, q, epsilon, direction)
    truth = oracles.shift_mixture_deltas(p, q, epsilon)[direction.value]
    assert lower <= truth <= upper
    assert upper - lower <= 1e-3 * upper + 1e-28


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_mixture(data):
    def mixture(sign):
        size = data.draw(st.integers(1, 4))
        shifts = data.draw(
            st.lists(st.floats(0.0, 4.0), min_size=size, max_size=size, unique=True)
        )
        weights = data.draw(st.lists(st.integers(1, 64), min_size=size, max_size=size))
        total = sum(weights)
        with mpmath.workdps(60):
            exact = [mpmath.mpf(weight) / total for weight in weights]
        return [(sign * s, w) for s, w in zip(shifts, exact, strict=True)]

    p, q = mixture(1.0), mixture(-1.0)
    rounded = [[(s, float(w)) for s, w in each] for each in (p, q)]
    epsilon = data.draw(st.floats(0.0, 6.0))
    for direction in Direction:
        lower, upper = bracket(*rounded, epsilon, direction)
        truth = oracles.shift_mixture_deltas(p, q, epsilon)[direction.value]
        assert lower <= truth <= upper


def test_cells_against_quadrature():
    points = np.linspace(-9.0, 12.0, 20001)
    mean = 1.7
    grid = gaussian_mixture._Grid(-9.0, 12.0, 20001)
    steps = grid.step / 2 * np.append(1 + gaussian_mixture._NODES, 2.0)
    _, rises = Mixture(((mean, 1.0),)).tabulated(grid, steps)
    log_q, falls = Mixture(((0.0, 1.0),)).tabulated(grid, steps)
    masses, excess, span = gaussian_mixture._cells(points, log_q, rises, falls)
    with mpmath.workdps(40):
        for cell in (0, 4000, 8570, 10000, 19999):
            a, b = mpmath.mpf(points[cell]), mpmath.mpf(points[cell + 1])
            mass = mpmath.ncdf(-a) - mpmath.ncdf(-b)
            ratio = mpmath.exp(mean**2 / 2 - mean * a) * (
                mpmath.ncdf(mean - a) - mpmath.ncdf(mean - b)
            )
            assert abs(masses[cell] / mass - 1) < 1e-11  # The grid's own rounding.
            assert abs(excess[cell] / (ratio / mass - 1) - 1) < 1e-9
            assert abs(span[cell] / mpmath.expm1(mean * (b - a)) - 1) < 1e-11


@pytest.mark.parametrize("number", [40, 63, 64, 1000, 20_000])
@pytest.mark.parametrize("reach", [0.0, 0.3, 150.0])
def test_densities_and_growths_on_a_grid(number, reach):
    """Blocks of any length, however coarse the grid is."""
    mixture = Mixture(tuple((reach * i / 4, w) for i, w in enumerate([0.2, 0.5, 0.3])))
    grid = gaussian_mixture._Grid(-7.0, 9.0 + reach, number)
    logs, growths = mixture.tabulated(grid, np.array([0.5, 1.0]) * grid.step)
    assert logs.shape == (number,) and growths.shape == (2, number)
    with mpmath.workdps(40):

        def density(point):
            return mpmath.fsum(
                mpmath.mpf(w)
                * mpmath.exp(mpmath.mpf(s) * point - mpmath.mpf(s) ** 2 / 2)
                for s, w in mixture.shifts
            )

        points = grid.points
        for at in {0, number // 3, number - 1}:
            point = mpmath.mpf(points[at])
            exact = density(point)
            error = (32 + 10 * reach * (16 + reach)) * 2.0**-53
            assert abs(logs[at] - mpmath.log(exact)) <= error
            for growth, share in zip(growths[:, at], (0.5, 1.0), strict=True):
                there = density(point + mpmath.mpf(share) * mpmath.mpf(grid.step))
                assert abs(growth - (there / exact - 1)) <= 1e-11 * abs(growth) + 1e-300


@pytest.mark.parametrize("noise", [0.05, 0.3, 1.0, 100.0])
def test_it_is_a_realization(noise):
    """P's masses and Q's sum to one, whatever the range."""
    pair = gaussian_mixture.dominating_pair_of(
        Mixture(((1 / noise, 1.0),)),
        Mixture(((0.0, 1.0),)),
        Bound.UPPER,
        tail_mass=1e-20,
    )
    assert abs(pair.p_masses.sum() + pair.infinity_mass - 1) < 1e-11
    assert abs(pair.masses.sum() + pair.zero_mass - 1) < 1e-11


def test_shifts_on_the_wrong_side_are_refused():
    with pytest.raises(ValueError, match="at least 0.*Found -1"):
        gaussian_mixture.dominating_pair_of(
            Mixture(((-1.0, 1.0),)), Mixture(((0.0, 1.0),)), Bound.UPPER, tail_mass=1e-9
        )


def test_out_of_range_nothing_is_claimed():
    p, q = [(1 / 0.02, 1.0)], [(0.0, 1.0)]
    for direction in Direction:
        assert bracket(p, q, 1.0, direction) == [0.0, 1.0]


@pytest.mark.parametrize("tail_mass", [1e-12, 1e-60, 1e-200])
def test_tails_go_to_the_sinks(tail_mass):
    p, q = MIXTURES["one shift"]
    epsilon = 12.0 if tail_mass > 1e-20 else math.sqrt(-2 * math.log(tail_mass)) - 2
    lower, upper = bracket(p, q, epsilon, Direction.REMOVE, tail_mass)
    assert lower <= oracles.gaussian_delta(1.0, epsilon) <= upper


@pytest.mark.parametrize("bound", Bound)
@pytest.mark.parametrize("tail_mass", [1e-14, 1e-25, 1e-100, 1e-280])
@pytest.mark.parametrize("shift", [0.01, 0.1, 1.0, 3.0, 20.0])
def test_masses_of_a_gaussian_pair_err_by_no_more_than_they_say(
    shift, tail_mass, bound
):
    """They sum to one, tails and sinks included."""
    pair = gaussian_mixture.dominating_pair_of(
        gaussian_mixture.Mixture(((shift, 1.0),)),
        gaussian_mixture.Mixture(((0.0, 1.0),)),
        bound,
        tail_mass=tail_mass,
    )
    masses = math.fsum(pair.masses) + pair.zero_mass
    gains = math.fsum(pair.p_masses) + pair.infinity_mass
    if bound is Bound.UPPER:
        assert masses >= 1 - pair.mass_error
        assert gains >= 1 - pair.mass_error - pair.ratio_error
    else:
        assert masses <= 1 + pair.mass_error
        assert gains <= 1 + pair.mass_error + pair.ratio_error


@pytest.mark.parametrize("points", [8185, 8192, 8193])
def test_grids_of_any_size_hold_what_tells_nothing(monkeypatch, points):
    """Where all of a grid may be coarse, a cell is left for the other one."""
    monkeypatch.setattr(gaussian_mixture, "POINTS", points)
    same = Mixture(((0.0, 1.0),))
    for bound in Bound:
        pair = gaussian_mixture.dominating_pair_of(same, same, bound, tail_mass=1e-15)
        assert pair.ratios == pytest.approx(1.0, abs=1e-12)
        assert float(pair.masses.sum()) == pytest.approx(1.0, abs=1e-12)
