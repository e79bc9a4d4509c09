"""Tilted Fourier powers against direct convolution, and the transform's own error."""

import functools

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy import fft

from dp_accounting_ext.kernels import lattice

CHANGES = (0.05, 0.1, 0.2, 0.4)


def random_masses(seed, size):
    generator = np.random.default_rng(seed)
    masses = generator.random(size) ** 4
    return masses / masses.sum()


def power(masses, count):
    """The law of the sum, in extended precision, by direct convolution."""
    parts = [masses.astype(np.longdouble)] * count
    return functools.reduce(np.convolve, parts)


@settings(deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(2, 20),
    st.integers(1, 12),
    st.integers(-5, 5),
    st.floats(-1.5, 1.5),
)
def test_masses_are_within_their_noise(seed, size, count, start, tilt):
    masses = random_masses(seed, size)
    truth = power(masses, count)
    first = start * count
    factor = lattice.Factor(start, masses, count)
    circle = fft.next_fast_len(truth.size + 3, real=True)
    tilted = lattice.TiltedSum([factor], tilt, circle, CHANGES)
    found = tilted.masses([count], first)
    indices = first + np.arange(truth.size)
    weights = np.exp(
        np.log(np.maximum(truth, 1e-4000))
        + np.longdouble(tilt) * indices
        - np.longdouble(found.log_scale)
    )
    error = np.abs(found.values[: truth.size] - weights.astype(np.float64))
    assert np.all(error <= found.noise + tilted.mass_error() * weights)
    assert found.noise < 1e-11


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(-1.0, 1.0))
def test_moments_are_those_of_the_groups(seed, count, tilt):
    """Σ over the copies of mass × offset, against the derivative of the power."""
    generator = np.random.default_rng(seed)
    masses = random_masses(seed, 6)
    offsets = generator.uniform(-0.5, 0.5, 6)
    factor = lattice.Factor(0, masses, count, masses * offsets)
    tilted = lattice.TiltedSum([factor], tilt, 64, CHANGES)
    others = power(masses, count - 1) if count > 1 else np.ones(1)
    truth = count * np.convolve(others.astype(float), masses * offsets)
    found = tilted.moments([count], 0)
    values = found.values[: truth.size] * found.scale(np.arange(truth.size))
    slack = found.noise * found.scale(np.arange(truth.size)) + 1e-11 * np.abs(truth)
    assert np.all(np.abs(values - truth) <= slack + 1e-14)


def test_several_factors_multiply():
    a, b = random_masses(1, 5), random_masses(2, 9)
    truth = np.convolve(power(a, 3), power(b, 2)).astype(float)
    factors = [lattice.Factor(1, a, 3), lattice.Factor(-2, b, 2)]
    tilted = lattice.TiltedSum(factors, 0.3, 128, CHANGES)
    found = tilted.masses([3, 2], -1)
    indices = -1 + np.arange(truth.size)
    values = found.values[: truth.size] * found.scale(indices)
    slack = found.noise * found.scale(indices) + 1e-11 * truth
    assert np.all(np.abs(values - truth) <= slack)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(-0.5, 0.5), st.integers(10, 40))
def test_tails_are_bounded(seed, tilt, size):
    """What lies beyond an index, and what folds onto a window, against the truth."""
    masses, count = random_masses(seed, 8), 6
    truth = power(masses, count).astype(float)
    indices = np.arange(truth.size)
    tilted = lattice.TiltedSum([lattice.Factor(0, masses, count)], tilt, size, CHANGES)
    weights = truth * np.exp(tilt * indices)
    weights /= weights.sum()
    low, high = 0, min(size, truth.size) - 1
    outside = (indices >= low + size) | (indices <= high - size)
    assert tilted.folded_mass([count], low, high) >= weights[outside].sum()
    for index in (5, 20, 35):
        assert tilted.mass_above([count], index) >= truth[indices >= index].sum()


@pytest.mark.parametrize("size", [1000, 1024, 5000, 30375, 65536, 100000])
def test_the_transform_is_as_accurate_as_assumed(size):
    """pocketfft against itself in extended precision, which it also supports."""
    levels = lattice._LEVEL_ERROR * np.log2(size) * lattice.UNIT_ROUNDOFF
    for seed in range(3):
        generator = np.random.default_rng(seed)
        values = generator.random(size) ** 8
        values /= values.sum()
        exact = fft.rfft(values.astype(np.longdouble))
        found = fft.rfft(values)
        assert np.abs(found - exact).max() <= levels
        back = fft.irfft(found, size)
        exact_back = fft.irfft(found.astype(np.clongdouble), size)
        bound = levels * 2 * np.abs(found).sum() / size
        assert np.abs(back - exact_back).max() <= bound


def test_owned_covers_every_index_once():
    masses = random_masses(3, 10)
    factor = lattice.Factor(0, masses, 20)
    sums = [lattice.TiltedSum([factor], t, 512, CHANGES) for t in (-0.4, 0.0, 0.4)]
    values = [tilted.masses([20], 0) for tilted in sums]
    indices = np.arange(181)
    parts = lattice.owned(values, indices)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), indices)
    assert parts[0].max() < parts[1].min() <= parts[1].max() < parts[2].min()


@pytest.mark.parametrize("count", [60, 300])
def test_leaving_out_small_frequencies_stays_within_the_noise(count):
    """Neighbouring masses only: the spectrum decays, most of it is left out."""
    masses = np.array([0.2, 0.5, 0.3])
    truth = power(masses, count).astype(float)
    factor = lattice.Factor(0, masses, count)
    tilted = lattice.TiltedSum([factor], 0.0, truth.size + 5, CHANGES)
    found = tilted.masses([count], 0)
    assert tilted._active.size < 0.8 * (truth.size // 2)
    error = np.abs(found.values[: truth.size] - truth)
    assert np.all(error <= found.noise + tilted.mass_error() * truth)
