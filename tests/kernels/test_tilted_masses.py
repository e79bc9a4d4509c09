"""Masses from several tilts: on their side of exact ones, each from the best tilt."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import tilted_masses

CHANGES = (0.05, 0.1, 0.2, 0.4)


def test_owners_cover_every_index_once():
    masses = np.random.default_rng(3).random(10) ** 4
    factor = lattice.Factor(0, masses / masses.sum(), 20)
    sums = [lattice.TiltedSum([factor], t, 512, CHANGES) for t in (-0.4, 0.0, 0.4)]
    values = [tilted.masses([20], 0) for tilted in sums]
    indices = np.arange(181)
    parts = tilted_masses.owners(values, indices)
    np.testing.assert_array_equal(
        np.concatenate([indices[own] for _, own in parts]), indices
    )
    assert [number for number, _ in parts] == [0, 1, 2]
    noise = np.array([value.log_noise(indices) for value in values])
    for number, own in parts:
        np.testing.assert_array_equal(noise[number, own], noise.min(axis=0)[own])


class Constant:
    """A tilted sum whose numbers are given."""

    def __init__(self, values, *, folded=0.0, moments=None, offset=0.0):
        self.values = values
        self.folded = folded
        self._moments = moments
        self._offset = offset

    def masses(self, counts, first, stencil):
        return self.values

    def moments(self, counts, first, stencil):
        return self._moments

    def folded_mass(self, counts, low, high):
        assert low <= high
        return self.folded

    def largest_offset(self):
        return self._offset


def value(peak, tilt):
    return lattice.TiltedValues(np.full(8, peak), 1e-16, 0.0, tilt)


@pytest.mark.parametrize(
    ("folded", "peaks", "left"),
    [
        ([1.0], [0.5], [0]),  # One at least.
        ([0.0, 0.9e-4], [0.5, 0.5], [0]),
        ([1e-4, 1e-4], [1.0, 1.0], [0, 1]),
        ([1e-3, 2e-3], [1.0, 1.0], [0]),
        ([0.0, 1e-3], [1.0, 0.0], [0, 1]),  # No mass: nothing to be wrong about.
    ],
)
def test_tilts_that_fold_are_left_out_worst_first(folded, peaks, left):
    """The tilts own one half of the window each."""
    sums = [
        Constant(value(peak, tilt), folded=mass)
        for mass, peak, tilt in zip(folded, peaks, (-1.0, 1.0), strict=False)
    ]
    indices = np.arange(-4, 4, dtype=np.int64)
    known = tilted_masses.LeastNoise(sums, [1], indices)
    assert known.sums == [sums[index] for index in left]
    ends = [folded[left[0]] + 1e-16, folded[left[-1]] + 1e-16]
    np.testing.assert_allclose(known.values()[1][[0, -1]], ends)


@pytest.mark.parametrize("first", [True, False])
def test_a_tilt_that_owns_nothing_is_no_trouble(first):
    best = Constant(value(0.5, 0.0))
    idle = Constant(dataclasses.replace(value(0.25, 0.0), noise=1.0), folded=1.0)
    sums = [idle, best] if first else [best, idle]
    indices = np.arange(8, dtype=np.int64)
    known = tilted_masses.LeastNoise(sums, [1], indices)
    assert known.sums == [best]
    np.testing.assert_array_equal(known.values()[0], 0.5)


def test_an_upper_bound_is_the_least_of_all_tilts():
    """The second is the less noisy one, and yet the first knows more of the end."""
    high = lattice.TiltedValues(np.array([9.0, 2.0, 0.25, -0.5]), 0.5, 0.0, 0.0)
    flat = lattice.TiltedValues(np.full(4, 3.0), 0.25, 0.0, 0.0)
    found = tilted_masses.raised(
        [Constant(high), Constant(flat)], [1], np.arange(4, dtype=np.int64)
    )
    np.testing.assert_array_equal(found, [3.25, 2.5, 0.75, 0.5])


def test_masses_are_multiplied_before_they_leave_the_range_of_floats():
    """A mass of e^−900, times e^890."""
    indices = np.arange(900, 903, dtype=np.int64)
    tilted = lattice.TiltedValues(np.array([1.0, 0.5, 2.0]), 2.0**-40, 0.0, 1.0)
    sums, factors = [Constant(tilted)], np.array([890.0, 890.0, 889.0])
    truth = np.array([1.0, 0.5, 2.0]) * np.exp([-10.0, -11.0, -13.0])
    upper = tilted_masses.raised(sums, [1], indices, factors)
    known = tilted_masses.LeastNoise(sums, [1], indices, factors)
    masses, errors = known.estimated()
    np.testing.assert_allclose(masses, truth, rtol=1e-15)
    np.testing.assert_allclose(errors, 2.0**-40 / tilted.values, rtol=1e-15)
    assert np.all(known.lowered() < truth)
    assert np.all(truth < upper)
    np.testing.assert_allclose(upper, truth, rtol=1e-11)
    np.testing.assert_allclose(known.lowered(), truth, rtol=1e-11)


def test_what_is_too_large_for_a_float_stays_large():
    tilted = Constant(lattice.TiltedValues(np.zeros(1), 1e-30, 0.0, -1.0))
    bound = tilted_masses.raised([tilted], [1], np.array([5000], dtype=np.int64))
    assert np.exp(600.0) < bound < np.inf


def test_values_below_their_noise_are_no_masses():
    tilted = lattice.TiltedValues(np.array([-1.0, 0.25, 1.0]), 0.5, 0.0, 0.0)
    known = tilted_masses.LeastNoise(
        [Constant(tilted, folded=0.25)], [1], np.arange(3, dtype=np.int64)
    )
    np.testing.assert_array_equal(known.lowered(), [0.0, 0.0, 0.25])
    masses, errors = known.estimated()
    assert np.all(masses > 0)
    np.testing.assert_allclose(errors, [1000.0, 3.0, 0.75])


def test_moments_err_by_what_folds_times_the_furthest_offset():
    moments = lattice.TiltedValues(np.array([0.25, -0.5]), 2.0**-20, 0.0, 0.0)
    one = Constant(value(0.5, 0.0), folded=2.0**-22, moments=moments, offset=8.0)
    known = tilted_masses.LeastNoise([one], [1], np.arange(2, dtype=np.int64))
    found, noise = known.moments()
    np.testing.assert_array_equal(found, [0.25, -0.5])
    np.testing.assert_array_equal(noise, 2.0**-20 + 8.0 * 2.0**-22)


def test_what_folds_onto_neighbours_is_weighed_and_moves_as_far_as_they_are():
    moments = lattice.TiltedValues(np.array([0.25, -0.5]), 2.0**-20, 0.0, 0.0)
    one = Constant(value(0.5, 0.0), folded=2.0**-22, moments=moments, offset=8.0)
    one.tilt, one.asked = 0.0, []
    one.folded_mass = lambda *range_: one.asked.append(range_) or one.folded
    stencil = lattice.Stencil(4, -3, np.array([0.5, 3.0, 0.25]))
    indices = np.array([8, 12], dtype=np.int64)
    known = tilted_masses.LeastNoise([one], [1], indices, stencil=stencil)
    assert one.asked == [([1], 5, 11)]
    folded = 3.0 * 2.0**-22
    _, noise = known.values()
    assert np.all(noise - 1e-16 >= folded)
    np.testing.assert_allclose(noise - 1e-16, folded, rtol=1e-8)
    _, noise = known.moments()
    assert np.all(noise - 2.0**-20 >= (8.0 + 3.0) * folded)
    np.testing.assert_allclose(noise, 2.0**-20 + 11.0 * folded, rtol=1e-8)


@pytest.mark.parametrize(
    ("first", "size", "tilts"),
    [
        (5, 32, [-0.5, 0.0, 0.4]),  # Half of the sums fold.
        (0, 64, [0.0]),  # Masses down to 1e-18 under the noise of the largest.
    ],
)
def test_masses_are_on_their_side(first, size, tilts):
    """Sums of 61 values on a circle."""
    factor = lattice.Factor(0, np.array([0.5, 0.25, 0.125, 0.125]), 20)
    truth = [Fraction(1)]
    for _ in range(20):
        truth = [
            sum(
                (truth[i - j] * Fraction(factor.masses[j]))
                for j in range(4)
                if 0 <= i - j < len(truth)
            )
            for i in range(len(truth) + 3)
        ]
    truth += [Fraction(0)] * 3
    indices = np.arange(first, first + size, dtype=np.int64)
    changes = [change / size for change in (30.0, 60.0, 120.0)]
    sums = [lattice.TiltedSum([factor], tilt, size, changes) for tilt in tilts]
    lower = tilted_masses.LeastNoise(sums, [20], indices).lowered()
    upper = tilted_masses.raised(sums, [20], indices)
    assert lower.any()
    error = Fraction(max(tilted.mass_error() for tilted in sums))
    for index, low, high in zip(indices, lower, upper, strict=True):
        assert low * (1 - error) <= truth[index] <= high * (1 + error)


@pytest.mark.parametrize(
    ("first", "number", "size", "tilts"),
    [
        (8, 7, 32, [-0.5, 0.0, 0.4]),  # Half of the sums fold.
        (0, 16, 64, [0.0]),
        (16, 5, 48, [-0.2]),
    ],
)
@pytest.mark.parametrize("begin", [-3, -2])
def test_sums_of_neighbours_are_on_their_side(first, number, size, tilts, begin):
    """Of 61 sums on a circle, around every fourth; with what folds onto them."""
    numerators, count, stride = [4, 2, 1, 1], 20, 4
    masses = np.array(numerators) / 8
    offsets = np.array([0.5, -0.25, 0.0, 0.25])
    factor = lattice.Factor(0, masses, count, masses * offsets)
    law, shifts = {0: Fraction(1)}, {0: Fraction(0)}
    for _ in range(count):
        longer, further = {}, {}
        for at, mass in law.items():
            for j, n in enumerate(numerators):
                chance = Fraction(n, 8)
                longer[at + j] = longer.get(at + j, 0) + mass * chance
                shift = shifts[at] + Fraction(float(offsets[j])) * mass
                further[at + j] = further.get(at + j, 0) + shift * chance
        law, shifts = longer, further
    weights = np.array([0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25])
    weights = weights if begin == -3 else np.ones(4)
    stencil = lattice.Stencil(stride, begin, weights)
    indices = first + stride * np.arange(number, dtype=np.int64)
    changes = [change / size for change in (30.0, 60.0, 120.0)]
    sums = [lattice.TiltedSum([factor], tilt, size, changes) for tilt in tilts]
    upper = tilted_masses.raised(sums, [count], indices, stencil=stencil)
    known = tilted_masses.LeastNoise(sums, [count], indices, stencil=stencil)
    lower = known.lowered()
    assert lower.any()
    error = Fraction(max(tilted.mass_error() for tilted in sums))
    values, noise = known.moments()
    (scales,) = {(part.found.log_scale, part.found.tilt) for part in known._parts[:1]}
    own = range(number)[known._parts[0].own]
    for position, index in enumerate(indices.tolist()):
        mass = moment = Fraction(0)
        for offset, weight in zip(stencil.offsets.tolist(), weights, strict=True):
            at = Fraction(float(weight))
            mass += at * law.get(index + offset, 0)
            moment += at * shifts.get(index + offset, 0)
            moment += at * offset * law.get(index + offset, 0)
        assert lower[position] * (1 - error) <= mass
        assert mass <= upper[position] * (1 + error)
        if position in own:
            scale = np.exp(scales[0] - scales[1] * index)
            wanted = float(moment) / scale
            assert abs(values[position] - wanted) <= noise[position] * (1 + 1e-9)
