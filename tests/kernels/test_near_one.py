"""Powers of spectra near one against fifty digits, and the sums that they need."""

import math

import mpmath
import numpy as np
import pytest
from scipy import fft

from dp_accounting_ext.kernels import near_one


@pytest.fixture(autouse=True)
def fifty_digits():
    with mpmath.workdps(50):
        yield


def law(seed, size, spread):
    """Weights that sum to about one, of so many indices around the middle."""
    rng = np.random.default_rng(seed)
    places = np.arange(size) - size / 2
    weights = rng.random(size) * np.exp(-np.abs(places / spread))
    return weights / weights.sum()


def exact_spectrum(weights, start, frequency, size):
    """Σ w e^{−2πi j index / size}."""
    turn = -2 * mpmath.pi * frequency / size
    return mpmath.fsum(
        mpmath.mpf(float(weight)) * mpmath.expj(turn * (start + index))
        for index, weight in enumerate(weights)
    )


FREQUENCIES = np.array([0, 1, 2, 5, 17, 60, 210, 700], dtype=np.int64)
SIZE = 16000


@pytest.mark.parametrize(
    ("seed", "size", "spread", "start"),
    [(0, 2, 1.0, 0), (1, 40, 3.0, -7), (2, 300, 20.0, 5), (3, 900, 4.0, -(10**6))],
)
def test_logarithms_are_within_their_errors(seed, size, spread, start):
    weights = law(seed, size, spread)
    found = near_one.logarithms(weights, start, FREQUENCIES, SIZE)
    known = 0
    for number, frequency in enumerate(FREQUENCIES.tolist()):
        if math.isinf(found.errors[number]):
            continue
        known += 1
        exact = mpmath.log(exact_spectrum(weights, start, frequency, SIZE))
        phase = -2 * mpmath.pi * int(found.phases[number]) / SIZE
        off = mpmath.mpc(complex(found.values[number])) + 1j * phase - exact
        turns = mpmath.nint(off.imag / (2 * mpmath.pi))
        assert abs(off - 2j * mpmath.pi * turns) <= found.errors[number]
    assert known >= 4
    # Far below what a transform knows, which is some 1e-14.
    assert found.errors[0] < 1e-24
    assert found.errors[1] < 1e-17 * (1 + spread)


@pytest.mark.parametrize("count", [1, 500, 10**4, 10**6, 10**9])
def test_powers_are_within_their_errors(count):
    weights = law(4, 60, 3.0)
    transform = fft.rfft(np.pad(weights, (0, SIZE - weights.size)))[FREQUENCIES]
    logarithms = near_one.logarithms(weights, 0, FREQUENCIES, SIZE)
    error = 8 * math.log2(SIZE) * 2.0**-53
    for spectrum in (
        near_one.Spectrum(transform, error),
        near_one.Spectrum(transform, error, logarithms),
    ):
        powers = spectrum.power(count)
        allowed = spectrum.relative_error(count)
        for number, frequency in enumerate(FREQUENCIES.tolist()):
            exact = exact_spectrum(weights, 0, frequency, SIZE) ** count
            bound = mpmath.exp(count * mpmath.mpf(spectrum.log_magnitudes[number]))
            off = abs(mpmath.mpc(complex(powers[number])) - exact)
            assert abs(exact) <= bound
            # What does not fit a float is negligible, and left out.
            assert off <= allowed[number] * bound + mpmath.mpf("1e-300")
    # Where the power is not negligible, the second knows it whatever the count.
    assert allowed[0] < 1e-13


def test_many_copies_need_logarithms():
    weights = law(5, 60, 3.0)
    transform = fft.rfft(np.pad(weights, (0, SIZE - weights.size)))[FREQUENCIES]
    error = 8 * math.log2(SIZE) * 2.0**-53
    plain = near_one.Spectrum(transform, error)
    logarithms = near_one.logarithms(weights, 0, FREQUENCIES, SIZE)
    better = near_one.Spectrum(transform, error, logarithms)
    count = 10**7
    assert better.relative_error(count)[1] < 2e-3 * plain.relative_error(count)[1]


def test_a_spectrum_far_from_one_is_not_known_better():
    weights = np.array([0.5, 0.5])
    frequencies = np.array([0, 7, 8], dtype=np.int64)
    found = near_one.logarithms(weights, 0, frequencies, 16)
    assert math.isinf(found.errors[2])
    transform = np.array([1.0, 0.5 + 0.5 * np.exp(-7j * np.pi / 8), 0.0])
    spectrum = near_one.Spectrum(transform, 1e-15, found)
    np.testing.assert_allclose(spectrum.power(3), transform**3, atol=1e-14)


def test_no_copies_are_a_point():
    weights = law(6, 9, 2.0)
    logarithms = near_one.logarithms(weights, 0, FREQUENCIES, SIZE)
    spectrum = near_one.Spectrum(np.full(8, 0.5 + 0j), 1e-15, logarithms)
    assert spectrum.power(0).tolist() == [1.0] * 8
    assert spectrum.relative_error(0).tolist() == [0.0] * 8


def test_powers_by_squaring():
    base = np.array([0.5, 1j, -0.25 + 0.5j])
    for exponent in range(12):
        found = near_one._power(base, exponent)
        assert found.shape == base.shape
        np.testing.assert_allclose(found, base**exponent, atol=1e-15)


def test_far_weights_are_within_their_errors():
    """A heavy tail, of which no series is any good."""
    weights = np.zeros(60_000)
    weights[:60] = law(5, 60, 8.0)
    weights[100::997] = 1e-9
    weights /= weights.sum()
    size, frequencies = 1 << 17, np.arange(300)
    places = np.flatnonzero(weights)
    found = near_one.logarithms(weights[places], -3, frequencies, size, places)
    whole = near_one.logarithms(weights, -3, frequencies, size)
    np.testing.assert_array_equal(found.values, whole.values)
    assert np.isfinite(found.errors).all()
    for frequency in (1, 7, 120, 299):
        turn = -2 * mpmath.pi * frequency / size
        exact = mpmath.log(
            mpmath.fsum(
                mpmath.mpf(float(weights[place])) * mpmath.expj(turn * (place - 3))
                for place in places.tolist()
            )
        )
        phase = -2 * mpmath.pi * int(found.phases[frequency]) / size
        off = mpmath.mpc(complex(found.values[frequency])) + 1j * phase - exact
        turns = mpmath.nint(off.imag / (2 * mpmath.pi))
        assert abs(off - 2j * mpmath.pi * turns) <= found.errors[frequency] < 1e-14


def smooth(size, spread):
    """Weights that fall from the middle to both sides, a little roughly."""
    rng = np.random.default_rng(size)
    places = np.arange(size) - size / 3
    return (0.9 + 0.2 * rng.random(size)) * np.exp(-np.abs(places / spread))


@pytest.mark.parametrize(
    ("weights", "count"),
    [
        (smooth(4000, 200.0), 1000),
        (smooth(400, 30.0) + np.eye(1, 400, 399)[0] * 0.2, 10_000),
        (np.full(500, 1 / 500), 600),
        (np.where(np.arange(3000) % 7, 0.0, 0.001) + smooth(3000, 40.0), 5000),
    ],
)
def test_what_counts_as_negligible_is(weights, count):
    weights = weights / weights.sum()
    places = np.flatnonzero(weights)
    size, exponent = 1 << 14, -70.0
    first = near_one.first_negligible(weights[places], places, size, count, exponent)
    folded = np.bincount(places % size, weights[places], size)
    powers = count * np.log(np.abs(fft.rfft(folded)) + 1e-14)
    active = np.flatnonzero(powers > exponent)
    # Beyond it there is none, and it is no multiple of what there is.
    assert active[-1] < first <= 3 * active[-1] + 3
    np.testing.assert_array_equal(active, np.arange(active.size))


def test_laws_with_gaps_have_no_negligible_spectrum():
    weights = np.array([0.5, 0.5])
    for places in ([0, 2], [0, 50]):
        found = near_one.first_negligible(weights, np.array(places), 1000, 10**6, -70.0)
        assert found is None
