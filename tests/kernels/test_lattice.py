"""Tilted Fourier powers against direct convolution, and the transform's own error."""

from fractions import Fraction
import functools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest
from scipy import fft

from dp_accounting_ext.kernels import floats
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
        + np.longdouble(tilted.tilt) * indices
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
    levels = lattice._LEVEL_ERROR * np.log2(size) * floats.UNIT_ROUNDOFF
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


def point_among(size, mass):
    """So much mass at 0, the rest evenly around the circle: a flat spectrum.

    The transform is one at frequency zero and `mass` at every other.
    """
    masses = np.full(size, (1 - mass) / size)
    masses[0] += mass
    return masses


FIRST_ORDER = 7 * 2.0**-53  # Higham, Theorem 24.2: of a butterfly level.


def power_error(size, flats, counts):
    """First-order error of a product of computed spectra, per unit of its mean."""
    level = Fraction(FIRST_ORDER) * Fraction(math.log2(size))
    means = []
    for frequency in (0, 1):
        sizes = [Fraction(1) if frequency == 0 else Fraction(flat) for flat in flats]
        product = math.prod(s**c for s, c in zip(sizes, counts, strict=True))
        raised = math.prod((s + level) ** c for s, c in zip(sizes, counts, strict=True))
        # The spectra's own error, the products', the inverse transform's.
        rounding = level + 4 * sum(counts) * Fraction(2.0**-53)
        means.append((raised - product, rounding * product))
    first, others = means
    return tuple(
        (a + (size - 1) * b) / size for a, b in zip(first, others, strict=True)
    )


@pytest.mark.parametrize("size", [4, 4096])
@pytest.mark.parametrize("counts", [(1, 1), (3, 1), (2, 5), (0, 3)])
def test_noise_is_the_first_order_error(counts, size):
    flats = (0.75, 0.5)
    factors = [lattice.Factor(0, point_among(size, flat), 6) for flat in flats]
    tilted = lattice.TiltedSum(factors, 0.0, size, CHANGES)
    spectra, rounding = power_error(size, flats, counts)
    noise = Fraction(tilted.masses(counts, 0).noise)
    assert noise >= spectra + rounding
    # Frequency zero, and the last, count twice.
    assert noise <= Fraction(2.5 if size == 4 else 1.3) * (spectra + rounding)


@pytest.mark.parametrize("counts", [(1, 0), (0, 1), (1, 1), (2, 1)])
def test_noise_of_moments_is_the_first_order_error(counts):
    """Every copy's offsets meet the product of the others, and err themselves."""
    size, flats, offset = 4096, (0.75, 0.5), 0.25
    factors = [
        lattice.Factor(0, masses, 6, offset * masses)
        for masses in (point_among(size, flat) for flat in flats)
    ]
    tilted = lattice.TiltedSum(factors, 0.0, size, CHANGES)
    least = most = Fraction(0)
    for index, count in enumerate(counts):
        if count:
            others = [c - (i == index) for i, c in enumerate(counts)]
            spectra, rounding = power_error(size, flats, others)
            # The offsets' own transform errs as the inverse one does.
            least += Fraction(offset) * count * (spectra + 2 * rounding)
            most += Fraction(offset) * count * 2 * (spectra + rounding)
    noise = Fraction(tilted.moments(counts, 0).noise)
    slack = Fraction(1e-3)  # The offsets' transform has no product of its own.
    assert noise >= least * (1 - slack)
    assert noise <= Fraction(1.3) * most


@pytest.mark.parametrize("margin", [0.99, 1.01])
def test_frequencies_are_left_out_as_late_as_a_partial_sum_may_need_them(
    monkeypatch, margin
):
    """Two factors whose product is at the threshold where no copy but 17 is left."""
    size, flats, counts = 256, (0.5, 0.75), (20, 18)
    lacking = lattice.MOST_LEFT_OUT + 1
    level = 0.5 ** (counts[0] - lacking) * 0.75 ** (counts[1] - lacking)
    monkeypatch.setattr(lattice, "_NEGLIGIBLE_EXPONENT", math.log(margin * level))
    factors = [
        lattice.Factor(0, point_among(size, flat), count)
        for flat, count in zip(flats, counts, strict=True)
    ]
    tilted = lattice.TiltedSum(factors, 0.0, size, CHANGES)
    assert tilted._active.size == (1 if margin > 1 else size // 2 + 1)
    fewest = [count - lacking for count in counts]
    found = tilted.masses(fewest, 0)
    truth = point_among(size, level)
    assert np.abs(found.values - truth).max() <= found.noise
    assert found.noise <= 1.02 * margin * level


@pytest.mark.parametrize("count", [0, 1, 2])
def test_no_frequency_is_left_out_of_sums_of_few(monkeypatch, count):
    """The law of no copies at all is a point, whatever a copy's spectrum is."""
    monkeypatch.setattr(lattice, "_NEGLIGIBLE_EXPONENT", -5.0)
    tilted = lattice.TiltedSum(
        [lattice.Factor(0, point_among(64, 0.001), 2)], 0.0, 64, CHANGES
    )
    found = tilted.masses([count], 0)
    truth = point_among(64, 0.001**count)
    assert np.abs(found.values - truth).max() <= found.noise


def test_a_spectrum_with_zeros_has_a_noise():
    tilted = lattice.TiltedSum(
        [lattice.Factor(0, np.full(64, 1 / 64), 3)], 0.0, 64, CHANGES
    )
    found = tilted.masses([3], 0)
    assert np.abs(found.values - 1 / 64).max() <= found.noise < 1e-14


@pytest.mark.parametrize(
    ("start", "size", "tilt"),
    [
        (-1, 2, 1e6),
        (0, 2, -300.0),
        (0, 100, 5.0),
        (-900, 1000, -0.65),
        (10**6, 5, 1.0),
        (-(10**6), 5, 0.7),
    ],
)
def test_tilted_masses_are_within_their_error(start, size, tilt):
    """Each against fifty digits; the tilt is taken as it is."""
    masses = random_masses(3, size)
    for own in (lattice.short(tilt), tilt + 1e-9):
        found = lattice.Factor(start, masses, 1).tilted(own)
        with mpmath.workdps(50):
            moment = mpmath.mpf(found.log_moment)
            for index, mass in enumerate(masses):
                exponent = mpmath.mpf(own) * (start + index) - moment
                exact = mpmath.mpf(float(mass)) * mpmath.exp(exponent)
                off = abs(mpmath.mpf(float(found.weights[index])) - exact)
                assert off <= found.error * exact + mpmath.mpf("1e-250")
        assert found.weights.sum() == pytest.approx(1.0, rel=1e-14)


def test_masses_too_far_apart_are_tilted_by_their_logarithms():
    masses = np.array([1e-320, 1.0])
    found = lattice.Factor(0, masses, 1).tilted(-2000.0)
    assert found.weights.tolist() == [1.0, 0.0]
    assert found.log_moment == pytest.approx(math.log(1e-320), rel=1e-12)
    assert found.error >= 2 * 745 * 2.0**-53


def test_a_short_tilt_has_exact_products():
    for tilt in (0.1, -1e-9, 12345.678):
        own = lattice.short(tilt)
        assert own == pytest.approx(tilt, rel=1e-7)
        for index in (3, 10**6 + 1, 2**28 - 1):
            assert Fraction(own * index) == Fraction(own) * index


@pytest.mark.parametrize("counts", [(1,), (7,), (3, 4)])
def test_mass_error_counts_tilting_and_gathering_for_each_copy(counts):
    factors = [lattice.Factor(2, random_masses(0, 9), count) for count in counts]
    tilted = lattice.TiltedSum(factors, 0.7, 64, CHANGES)
    error = factors[0].tilted(tilted.tilt).error
    gathering = 8 * 2.0**-53
    once = 8 * 745 * 2.0**-53
    assert tilted.mass_error() == pytest.approx(
        once + sum(counts) * (error + gathering), rel=1e-9
    )


def test_a_sum_beside_another_has_its_tilt_and_its_scale():
    """Masses a little apart: every quotient of sums is within a few roundings."""
    masses, count = random_masses(4, 12), 400
    others = masses * np.exp(np.linspace(-1e-3, 1e-3, 12))
    factor, other = (lattice.Factor(-3, law, count) for law in (masses, others))
    size = 6000
    own = lattice.TiltedSum([factor], 0.21, size, CHANGES)
    beside = lattice.TiltedSum([other], 0.21, size, CHANGES, beside=own)
    first = -3 * count
    p, q = own.masses([count], first), beside.masses([count], first)
    assert (p.tilt, p.log_scale) == (q.tilt, q.log_scale)
    exact = power(others, count) / power(masses, count)
    clear = np.flatnonzero(p.values[: exact.size] > 1e5 * p.noise)
    assert clear.size > 50
    found = q.values[clear] / p.values[clear]
    noise = 2 * (p.noise + q.noise) / p.values[clear]
    off = np.abs(found / exact[clear].astype(float) - 1)
    assert np.all(off <= beside.quotient_error() + noise)
    assert beside.quotient_error() < 16 * (count + 800 + 8 * count) * 2.0**-53


@pytest.mark.parametrize("tilt", [-0.3, 0.0, 0.7])
def test_mean_of_a_tilted_factor(tilt):
    masses = random_masses(1, 5)
    indices = -2 + np.arange(5)
    weights = masses * np.exp(tilt * indices)
    found = lattice.Factor(-2, masses, 3).mean(tilt)
    assert found == pytest.approx((weights @ indices) / weights.sum(), rel=1e-13)


def test_largest_offset_is_that_of_all_copies_together():
    a, b = random_masses(1, 3), random_masses(2, 2)
    factors = [
        lattice.Factor(0, a, 3, a * np.array([0.25, -0.5, 0.1])),
        lattice.Factor(0, b, 2, b * np.array([0.125, -0.0625])),
    ]
    tilted = lattice.TiltedSum(factors, 0.3, 128, CHANGES)
    assert tilted.largest_offset() == pytest.approx(3 * 0.5 + 2 * 0.125, rel=1e-15)


def test_offsets_of_some_factors_only():
    """A factor without offsets, or without copies, in any place among others."""
    laws = [random_masses(seed, 4) for seed in range(4)]
    offsets = [None, np.array([0.3, -0.2, 0.1, 0.4]), np.full(4, 0.5), np.full(4, 0.2)]
    factors = [
        lattice.Factor(0, law, 2, None if offset is None else law * offset)
        for law, offset in zip(laws, offsets, strict=True)
    ]
    tilted = lattice.TiltedSum(factors, 0.2, 64, CHANGES)
    for counts in ((1, 2, 0, 1), (2, 0, 0, 0), (0, 0, 2, 0), (0, 1, 1, 2)):
        truth = np.zeros(64)
        for index, count in enumerate(counts):
            if count and offsets[index] is not None:
                parts = [np.ones(1), count * laws[index] * offsets[index]]
                for other, copies in enumerate(counts):
                    parts += [laws[other]] * (copies - (other == index))
                law = functools.reduce(np.convolve, parts)
                truth[: law.size] += law
        found = tilted.moments(counts, 0)
        scale = found.scale(np.arange(64))
        error = np.abs(found.values * scale - truth)
        assert np.all(error <= found.noise * scale + 1e-15)
        assert found.noise < 1e-13


def chernoff(masses, start, count, tilts, index):
    """Logarithm of the least of E e^{tilt (sum − index)}; the laws are not tilted."""
    places = start + np.arange(masses.size)
    return min(
        count * math.log(float(masses @ np.exp(tilt * places))) - tilt * index
        for tilt in tilts
    )


@pytest.mark.parametrize("index", [-20, 3, 9, 20, 32, 41])
@pytest.mark.parametrize("tilt", [-2.0, -0.3, -0.1, 0.0, 0.15, 1.5])
def test_mass_above_is_the_best_chernoff_bound(tilt, index):
    masses, start, count = random_masses(5, 8), -1, 6
    factor = lattice.Factor(start, masses, count)
    tilted = lattice.TiltedSum([factor], tilt, 64, CHANGES)
    own = tilted.tilt
    changed = (own + sign * change for sign in (-1, 1) for change in CHANGES)
    tilts = [0.0, own, *map(lattice.short, changed)]
    best = chernoff(masses, start, count, [t for t in tilts if t >= 0], index)
    bound = tilted.mass_above([count], index)
    assert bound == pytest.approx(math.exp(best), rel=1e-8)


def test_mass_above_knows_that_mass_is_missing():
    """Lower bounds drop mass: what is left is less than one at any index."""
    tilted = lattice.TiltedSum(
        [lattice.Factor(0, np.full(4, 0.125), 2)], 0.0, 64, CHANGES
    )
    assert 0.25 <= tilted.mass_above([2], 0) <= 0.25 * (1 + 1e-8)


@pytest.mark.parametrize("tilt", [-0.2, 0.0, 0.3])
@pytest.mark.parametrize(("low", "high"), [(0, 19), (4, 23), (-3, 16), (25, 44)])
def test_folded_mass_is_the_best_chernoff_bound(low, high, tilt):
    masses, start, count, size = random_masses(6, 8), -1, 6, 20
    factor = lattice.Factor(start, masses, count)
    changes = (*CHANGES, 1.5)
    tilted = lattice.TiltedSum([factor], tilt, size, changes)
    own = tilted.tilt
    weights = masses * np.exp(own * (start + np.arange(masses.size)))
    weights /= weights.sum()
    total = 0.0
    if low + size <= count * (start + masses.size - 1):
        ups = [lattice.short(own + change) - own for change in changes]
        above = chernoff(weights, start, count, (0.0, *ups), low + size)
        total += math.exp(above)
    if high - size >= count * start:
        mirrored, end = weights[::-1], -(start + masses.size - 1)
        downs = [own - lattice.short(own - change) for change in changes]
        total += math.exp(chernoff(mirrored, end, count, (0.0, *downs), size - high))
    assert tilted.folded_mass([count], low, high) == pytest.approx(total, rel=1e-8)


@pytest.mark.parametrize("place", [-7, 0, 5])
def test_a_point_folds_wholly_or_not_at_all(place):
    """At the first index outside a window, on either side, and the last inside."""
    size, count = 16, 3
    tilted = lattice.TiltedSum(
        [lattice.Factor(place, np.ones(1), count)], 0.5, size, CHANGES
    )
    at = count * place
    for low, high in ((at - size, at - 1), (at + 1, at + size)):
        assert 1 <= tilted.folded_mass([count], low, high) <= 1 + 1e-8
    for low, high in ((at, at + size - 1), (at - size + 1, at)):
        assert tilted.folded_mass([count], low, high) == 0


@pytest.mark.parametrize("size", [5, 8, 30])
def test_masses_wind_around_the_circle(size):
    masses = random_masses(7, 23)
    for start in (-11, 0, 4):
        folded = np.zeros(size)
        np.add.at(folded, (start + np.arange(masses.size)) % size, masses)
        found = lattice._transform(masses, start, size)
        np.testing.assert_allclose(found, np.fft.rfft(folded), atol=1e-15)


def test_scale_never_overflows():
    values = lattice.TiltedValues(np.ones(1), 1e-16, 0.0, 1.0)
    scale = values.scale(np.array([-(10**6), -701, -699]))
    assert np.all(scale <= math.exp(700.0))
    assert scale[2] == math.exp(699.0)


def test_every_factor_needs_its_count():
    """A sum without a count for each factor is refused, not computed of some."""
    factors = [lattice.Factor(0, random_masses(8, 3), 2)] * 2
    tilted = lattice.TiltedSum(factors, 0.1, 64, CHANGES)
    for counts in ([1], [1, 1, 1]):
        for method in (
            tilted.log_moment,
            tilted.noise,
            tilted._power,
            tilted._support,
        ):
            with pytest.raises(ValueError, match="zip"):
                method(counts)


def exact_power(numerators, count):
    """The law of a sum of copies with sixteenths as masses, as integers."""
    law, one = np.array([1], dtype=object), np.array(numerators, dtype=object)
    for _ in range(count):
        law = np.convolve(law, one)
    return law.tolist()


@pytest.mark.parametrize("tilt", [0.0, 0.03, -0.02])
@pytest.mark.parametrize(("stride", "begin"), [(1, 0), (4, 0), (4, -3), (3, 1)])
def test_sums_of_neighbours_are_within_their_noise(tilt, stride, begin):
    numerators = [2, 5, 4, 3, 2]
    start, count, size = -7, 200, 816
    product = lattice.TiltedProduct(tilt, size, [0.01])
    product.multiply(lattice.Factor(start, np.array(numerators) / 16, count))
    assert product.is_smooth(stride)
    weights = np.random.default_rng(stride).random(2 * stride)
    exact = exact_power(numerators, count)
    first = stride * math.floor((count * start + 300) / stride)
    found = product.sums(lattice.Stencil(stride, begin, weights), first, 25)
    assert found.noise < 1e-12
    for number, value in enumerate(found.values):
        index = first + stride * number
        wanted = Fraction(0)
        for offset, weight in enumerate(weights.tolist()):
            at = index + begin + offset - count * start
            if 0 <= at < len(exact):
                wanted += Fraction(weight) * Fraction(exact[at], 16**count)
        scale = mpmath.exp(mpmath.mpf(found.log_scale) - mpmath.mpf(found.tilt) * index)
        wanted = mpmath.mpf(wanted.numerator) / wanted.denominator / scale
        # What gathering and tilting lose is counted apart.
        allowed = found.noise + product.mass_error * wanted
        assert abs(mpmath.mpf(float(value)) - wanted) <= allowed


@pytest.mark.parametrize("tilt", [0.0, 0.03, -0.5])
@pytest.mark.parametrize(
    ("numerators", "count"), [([2, 5, 4, 3, 2], 200), ([8, 0, 0, 0, 0, 8], 40)]
)
@pytest.mark.parametrize(("stride", "begin"), [(4, -3), (8, -7), (8, -4)])
def test_neighbours_of_a_sum_are_within_their_noise(
    numerators, count, tilt, stride, begin
):
    """Masses and means, of a smooth sum and of one whose frequencies fold."""
    start, size = -7, 816
    offsets = np.array([0.25, -0.5, 0.125, 0.375, -0.25, 0.5])[: len(numerators)]
    masses = np.array(numerators) / 16
    factor = lattice.Factor(start, masses, count, masses * offsets)
    tilted = lattice.TiltedSum([factor], tilt, size, CHANGES)
    folds = 2 * stride * int(tilted._active[-1]) >= size
    if stride == 4 and tilt >= 0:
        assert folds is (numerators[0] == 8)
    weights = np.random.default_rng(stride).random(1 - 2 * begin)
    exact = exact_power(numerators, count)
    # 8 times each offset is a whole number.
    one = [round(8 * x) * n for x, n in zip(offsets, numerators, strict=True)]
    others = np.array(exact_power(numerators, count - 1), dtype=object)
    shifts = (count * np.convolve(others, np.array(one, dtype=object))).tolist()
    first = stride * math.floor((count * start + 380) / stride)
    stencil = lattice.Stencil(stride, begin, weights)
    found = tilted.masses([count], first, stencil)
    means = tilted.moments([count], first, stencil)
    assert found.values.size == means.values.size == size // stride
    assert found.noise < 1e-11 and means.noise < 1e-8
    for number in range(4):
        index = first + stride * number
        mass = moment = Fraction(0)
        for offset, weight in zip(stencil.offsets.tolist(), weights, strict=True):
            at = index + offset - count * start
            own = Fraction(exact[at], 16**count) if 0 <= at < len(exact) else 0
            shift = Fraction(shifts[at], 8 * 16**count) if 0 <= at < len(exact) else 0
            mass += Fraction(float(weight)) * own
            moment += Fraction(float(weight)) * (shift + offset * own)
        for values, wanted in ((found, mass), (means, moment)):
            at = mpmath.mpf(values.log_scale) - mpmath.mpf(values.tilt) * index
            wanted = mpmath.mpf(wanted.numerator) / wanted.denominator / mpmath.exp(at)
            # What gathering and tilting lose is counted apart.
            allowed = values.noise + tilted.mass_error() * abs(wanted)
            assert abs(mpmath.mpf(float(values.values[number])) - wanted) <= allowed


def test_neighbours_have_each_others_noise():
    """And 320 roundings of the weights' turns; of means, as far as they are."""
    masses = np.array([0.25, 0.5, 0.25])
    factor = lattice.Factor(0, masses, 50, masses * [0.5, 0.25, -0.5])
    tilted = lattice.TiltedSum([factor], 0.25, 816, CHANGES)
    weights = np.array([0.5, 1.0, 2.0])
    stencil = lattice.Stencil(4, -2, weights)
    each = tilted.noise([50], 320 * 2.0**-53)
    assert each > tilted.noise([50])
    weights = weights * np.exp(-0.25 * np.array([-2, -1, 0]))
    found = tilted.masses([50], 48, stencil).noise
    assert found == pytest.approx(each * weights.sum(), rel=1e-8)
    assert found >= each * weights.sum() * (1 + 1e-12)
    norm = float((tilted._weights[0] * np.abs(factor.offsets)).sum())
    own = 2 * 50 * norm * tilted.noise([49], 320 * 2.0**-53) * weights.sum()
    wanted = own + each * (weights @ [2.0, 1.0, 0.0])
    found = tilted.moments([50], 48, stencil).noise
    assert found == pytest.approx(wanted, rel=1e-8)
    assert found >= wanted * (1 + 1e-12)


@pytest.mark.parametrize(("tilt", "change"), [(0.5, -1.0), (0.0, 0.5), (0.0, -0.5)])
def test_tails_of_a_product_are_no_less_than_chernoffs_bounds(tilt, change):
    """Of so many copies, whose logarithms are rounded as often."""
    count, size = 10**11, 64
    for seed in range(12):
        masses = random_masses(seed, 5)
        product = lattice.TiltedProduct(tilt, size, [change])
        product.multiply(lattice.Factor(0, masses, count))
        with mpmath.workdps(40):
            at = mpmath.mpf(tilt or change)
            parts = [mpmath.mpf(m) * mpmath.exp(at * i) for i, m in enumerate(masses)]
            moment = count * mpmath.log(mpmath.fsum(parts))
            index = int(moment / at) + (1 if at > 0 else -1)
            best = mpmath.exp(moment - at * index)
        if at > 0:
            found = [product.mass_above(index)]
        else:
            found = [product.folded_mass(count * 9, index + size)]
        if at > 0 and not tilt:
            found.append(product.folded_mass(index - size, 0))
        assert all(best <= each <= best * (1 + 1e-2) for each in found)


def test_a_rough_law_is_not_smooth():
    product = lattice.TiltedProduct(0.0, 120, [0.1])
    product.multiply(lattice.Factor(0, np.array([0.5, 0.0, 0.5]), 3))
    assert product.is_smooth(1)
    assert not product.is_smooth(2)
    assert not product.is_smooth(7)


@pytest.mark.parametrize(("count", "size"), [(3, 1 << 10), (700, 1 << 18)])
def test_a_factor_with_gaps_is_the_same_with_zeros(count, size):
    rng = np.random.default_rng(1)
    masses = np.zeros(900)
    masses[:300] = rng.random(300)
    masses[np.array([500, 620, 899])] = 1e-3
    masses /= masses.sum()
    gaps = np.flatnonzero(masses)
    found = []
    for factor in (
        lattice.Factor(-100, masses, count),
        lattice.Factor(-100, masses[gaps], count, gaps=gaps),
    ):
        product = lattice.TiltedProduct(1e-3, size, [1e-4])
        product.multiply(factor)
        found.append(product)
    whole, sparse = found
    first = count * 30
    np.testing.assert_allclose(
        whole.masses(first, 50).values, sparse.masses(first, 50).values, atol=1e-12
    )
    assert sparse.masses(first, 50).noise < 2 * whole.masses(first, 50).noise
    assert sparse.mass_above(10**7) == whole.mass_above(10**7) == 0


@pytest.mark.parametrize("count", [3, 700])
@pytest.mark.parametrize("tilt", [0.0, 1e-3])
def test_few_masses_far_apart_after_a_smooth_law(tilt, count):
    """Their spectrum is summed at the frequencies left, and taken to a power."""
    size = 1 << 14
    smooth = np.exp(-0.5 * (np.arange(-60, 61) / 20) ** 2)
    smooth /= smooth.sum()
    places, masses = np.array([0, 7]), np.array([0.25, 0.75])
    product = lattice.TiltedProduct(tilt, size, [1e-4])
    product.multiply(lattice.Factor(-60, smooth, 40))
    assert product._active.size < size / 8
    product.multiply(lattice.Factor(0, masses, count, gaps=places))
    with mpmath.workdps(40):
        heads = [
            mpmath.binomial(count, n)
            * mpmath.mpf(0.75) ** n
            * mpmath.mpf(0.25) ** (count - n)
            for n in range(count + 1)
        ]
        heads = np.array([float(mass) for mass in heads])
    spread = smooth
    for _ in range(39):
        spread = np.convolve(spread, smooth)
    truth = np.zeros(7 * count + spread.size)
    for number, mass in enumerate(heads):
        truth[7 * number : 7 * number + spread.size] += mass * spread
    first = int(0.75 * 7 * count) - 500
    found = product.masses(first, 1000)
    indices = first + np.arange(1000)
    expected = truth[indices + 60 * 40] * np.exp(
        product.tilt * indices - found.log_scale
    )
    np.testing.assert_allclose(found.values, expected, atol=1e-12 + found.noise)
    assert found.noise < 1e-6 * found.values.max()


@pytest.mark.parametrize(
    ("width", "atoms", "ways"), [(30, 3, {"few"}), (120, 120, {"near one"})]
)
def test_many_different_factors_are_within_their_noise(width, atoms, ways, monkeypatch):
    """Once few frequencies are left, no factor needs a transform of its own."""
    generator = np.random.default_rng(width)
    number, size = 160, 1 << 14
    used = set()
    for name, way in (("_summed", "few"), ("_near_one", "near one")):
        plain = getattr(lattice.TiltedProduct, name)

        def spied(self, *given, plain=plain, way=way):
            found = plain(self, *given)
            used.update({way} if found is not None else set())
            return found

        monkeypatch.setattr(lattice.TiltedProduct, name, spied)
    product = lattice.TiltedProduct(0.0, size, [0.01])
    rows = []
    for _ in range(number):
        row = np.zeros(width, dtype=np.longdouble)
        places = np.sort(generator.permutation(width)[:atoms])
        places[0] = 0
        masses = generator.multinomial(4096 - atoms, np.full(atoms, 1 / atoms)) + 1
        masses = masses / 4096
        row[places] = masses
        rows.append(row)
        product.multiply(lattice.Factor(0, masses, 1, gaps=places))
    assert used == ways
    # In longer floats, of positive terms.
    exact = functools.reduce(np.convolve, rows)
    middle = round(number * (width - 1) / 2)
    found = product.masses(middle - 20, 41)
    assert found.noise < 1e-12
    for place, value in enumerate(found.values):
        wanted = exact[middle - 20 + place]
        assert abs(value - wanted) <= found.noise + product.mass_error * wanted
