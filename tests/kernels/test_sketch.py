"""A sketch's cumulants, against enumeration, and its atoms."""

import itertools
import math

import numpy as np
import pytest

from dp_accounting_ext.kernels import sketch

# Four of 1 or 3, as likely; two of 2 or 4, the second thrice as likely.
LAWS = [
    (np.array([1.0, 3.0]), np.array([0.5, 0.5]), 4),
    (np.array([2.0, 4.0]), np.array([0.25, 0.75]), 2),
]
BOTH = sketch.Sketch(LAWS)


def enumerated():
    """(sum, probability) of all six together."""
    atoms = [
        list(zip(values.tolist(), masses.tolist(), strict=True))
        for values, masses, count in LAWS
        for _ in range(count)
    ]
    for way in itertools.product(*atoms):
        yield sum(place for place, _ in way), math.prod(mass for _, mass in way)


@pytest.mark.parametrize("tilt", [-60.0, -0.75, 0.0, 0.5, 60.0])
def test_cumulants_are_those_of_the_sum(tilt):
    moments = np.zeros(3)
    centre = 13.0
    for total, mass in enumerated():
        weight = mass * math.exp(tilt * (total - centre))
        moments += weight * (total - centre) ** np.arange(3)
    value, mean, variance = BOTH.cumulants(tilt)
    shift = moments[1] / moments[0]
    assert value == pytest.approx(math.log(moments[0]) + tilt * centre, rel=1e-13)
    assert mean == pytest.approx(shift + centre, rel=1e-13)
    truth = moments[2] / moments[0] - shift**2
    assert variance == pytest.approx(truth, rel=1e-12, abs=1e-12)


def test_masses_need_not_sum_to_one():
    values, masses, count = LAWS[0]
    half = sketch.Sketch([(values, masses / 2, count)]).cumulants(0.25)
    whole = sketch.Sketch([LAWS[0]]).cumulants(0.25)
    assert half[0] == pytest.approx(whole[0] - count * math.log(2), rel=1e-14)
    assert half[1:] == whole[1:]


def test_large_exponents_do_not_overflow():
    value, mean, variance = sketch.Sketch(LAWS[:1]).cumulants(1000.0)
    assert value == pytest.approx(12_000 - 4 * math.log(2))
    assert (mean, variance) == (12.0, 0.0)


def test_ends_are_those_of_the_sum():
    assert BOTH.ends() == (4.0 + 4.0, 12.0 + 8.0)


def test_many_atoms_are_grouped_at_their_means():
    """Pairs of neighbours, of which the last cell has no mass, and is no end."""
    masses = np.full(4096, 2.0**-12)
    masses[-2:] = 0.0
    values, chances = sketch.grouped(1.0 + np.arange(4096.0), masses)
    np.testing.assert_array_equal(values, 1.5 + 2.0 * np.arange(2047))
    np.testing.assert_array_equal(chances, 2.0**-11)


@pytest.mark.parametrize("size", [1, 5, 2048])
def test_few_atoms_are_kept(size):
    values = np.arange(float(size))
    found, masses = sketch.grouped(values, np.full(size, 1 / size))
    np.testing.assert_allclose(found, values, rtol=1e-15)
    np.testing.assert_array_equal(masses, 1 / size)


def test_exponents_of_many_tilts_are_those_of_each():
    tilts = np.array([-3.0, -0.5, 0.0, 0.25, 40.0])
    for law in (BOTH, sketch.Sketch(LAWS[:1])):
        for tilt, found in zip(tilts, law.exponents(tilts), strict=True):
            value, mean, _ = law.cumulants(float(tilt))
            assert found == pytest.approx(value - tilt * mean, rel=1e-12, abs=1e-12)


def test_a_sketch_may_have_fewer_atoms():
    values, masses = sketch.grouped(np.arange(8.0), np.full(8, 0.125), 4)
    np.testing.assert_array_equal(values, [0.5, 2.5, 4.5, 6.5])
    np.testing.assert_array_equal(masses, 0.25)
