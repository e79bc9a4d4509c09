"""What certificates assume of numerical libraries, asked against mpmath.

The constants are those that the package allows, or those of docs/rounding.md; a probe
fails where a library errs by more than a good part of them.
"""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import fft
from scipy import special
from scipy import stats

from dp_accounting_ext.bounds import trade_off_bounds
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.kernel import tilted_sums

UNIT_ROUNDOFF = 2.0**-53


@pytest.fixture(autouse=True)
def fifty_digits():
    with mpmath.workdps(50):
        yield


def spread(low, high, count, seed=0):
    """Numbers of every magnitude between two of one sign."""
    rng = np.random.default_rng(seed)
    logs = rng.uniform(math.log(abs(low)), math.log(abs(high)), count)
    return np.sign(low) * np.exp(logs)


def errors(function, exact, arguments):
    """Errors of an array function, in units of roundoff, and the exact values."""
    truths = [exact(mpmath.mpf(float(x))) for x in arguments]
    pairs = zip(function(arguments), truths, strict=True)
    found = [float(abs(mpmath.mpf(float(y)) - truth)) for y, truth in pairs]
    return np.array(found) / UNIT_ROUNDOFF, np.array([float(t) for t in truths])


def log_ncdf(x):
    if x > 0:
        return mpmath.log1p(-mpmath.ncdf(-x))
    if x > -1000:
        return mpmath.log(mpmath.ncdf(x))
    # The asymptotic series of the tail.
    series = 1 - x**-2 + 3 * x**-4 - 15 * x**-6 + 105 * x**-8
    return (
        -(x**2) / 2 - mpmath.log(-x * mpmath.sqrt(2 * mpmath.pi)) + mpmath.log(series)
    )


def scaled_complement(x):
    """e^{x²} erfc(x), from its continued fraction far out."""
    if x < 1e4:
        return mpmath.exp(x**2) * mpmath.erfc(x)
    return (1 - x**-2 / 2 + 3 * x**-4 / 4) / (x * mpmath.sqrt(mpmath.pi))


NEAR_ZERO = np.concatenate([spread(1e-300, 1, 600), spread(-1e-300, -0.99, 600)])
AROUND_ZERO = np.concatenate([spread(1e-300, 1, 200), spread(-1e-300, -1, 200)])
NORMAL = np.concatenate([np.linspace(-37.4, 9, 2000), AROUND_ZERO])
LOG_NORMAL = [np.linspace(-40, 40, 1500), spread(-40, -1e150, 500), AROUND_ZERO]
# A function, its exact value, and where it is asked.
ELEMENTARY = {
    "exp": (np.exp, mpmath.exp, np.linspace(-700, 700, 3001)),
    "log": (np.log, mpmath.log, spread(1e-300, 1e300, 2000)),
    "log near one": (np.log, mpmath.log, 1 + spread(1e-15, 0.5, 600)),
    "log below one": (np.log, mpmath.log, 1 - spread(1e-15, 0.5, 600)),
    "expm1": (np.expm1, mpmath.expm1, np.append(NEAR_ZERO, spread(1, 700, 300))),
    "log1p": (np.log1p, mpmath.log1p, np.append(NEAR_ZERO, spread(1, 1e300, 300))),
    "math.exp": (np.vectorize(math.exp), mpmath.exp, np.linspace(-700, 700, 3001)),
    "math.log": (np.vectorize(math.log), mpmath.log, spread(1e-300, 1e300, 2000)),
    "math.expm1": (np.vectorize(math.expm1), mpmath.expm1, NEAR_ZERO),
    "math.log1p": (np.vectorize(math.log1p), mpmath.log1p, NEAR_ZERO),
    "math.erf": (np.vectorize(math.erf), mpmath.erf, spread(1e-300, 10, 1000)),
    "math.tanh": (np.vectorize(math.tanh), mpmath.tanh, spread(1e-300, 350, 1000)),
    "ndtr": (special.ndtr, mpmath.ncdf, NORMAL),
    "log_ndtr": (special.log_ndtr, log_ncdf, np.concatenate(LOG_NORMAL)),
    "erfcx": (
        special.erfcx,
        scaled_complement,
        np.append(np.linspace(0, 50, 1000), spread(50, 1e300, 500)),
    ),
    "expit": (
        special.expit,
        lambda x: 1 / (1 + mpmath.exp(-x)),
        np.append(np.linspace(-700, 700, 1401), NEAR_ZERO),
    ),
}
# Units of roundoff that are allowed at an argument x where the value is y.
ALLOWED = {
    "ndtr": lambda x, y: 0.7 * (32 + 4 * np.minimum(x, 0.0) ** 2) * y,
    "log_ndtr": lambda x, y: 16 * (1 + np.abs(y)),
    "erfcx": lambda x, y: 16 * y,
    "expit": lambda x, y: 16 * (1 + np.abs(x)) * y,
}


@pytest.mark.parametrize("name", ELEMENTARY)
def test_functions_of_libraries(name):
    function, exact, arguments = ELEMENTARY[name]
    found, values = errors(function, exact, arguments)
    allowed = ALLOWED.get(name, lambda x, y: 4 * np.abs(y))(arguments, values)
    assert (found <= allowed).all(), arguments[found > allowed]


def test_quantiles_of_the_normal_distribution():
    """Within what trade-off curves allow, in standard deviations."""
    arguments = np.concatenate([spread(1e-250, 0.5, 400), 1 - spread(1e-15, 0.5, 200)])
    for rate, found in zip(arguments, special.ndtri(arguments), strict=True):
        with mpmath.workdps(40):
            value, rate = mpmath.mpf(float(found)), mpmath.mpf(float(rate))
            # Newton's step: how far the quantile is, to first order.
            error = (mpmath.ncdf(value) - rate) / mpmath.npdf(value)
        assert abs(error) <= trade_off_bounds._INVERSE_ERROR * (1 + abs(value)) / 10, (
            rate
        )


def binomial_mass(number, trials, rate):
    chances = mpmath.mpf(rate) ** number * (1 - mpmath.mpf(rate)) ** (trials - number)
    return mpmath.binomial(trials, number) * chances


@pytest.mark.parametrize(
    ("trials", "rate"),
    [
        *itertools.product((1, 7, 100, 5000), (1e-5, 0.01, 0.3, 0.9)),
        (10**6, 1e-5),
        (10**6, 0.01),
        (10**9, 1e-6),
    ],
)
def test_binomial_masses(trials, rate):
    """To where they are below 1e-250, on either side of the mean."""
    mean, law = trials * rate, stats.binom(trials, rate)
    deviation = math.sqrt(max(mean * (1 - rate), 0.3))
    for distance in (-30, -12, -3, -1, 0, 1, 3, 6, 12, 20, 30):
        at = math.floor(mean + distance * deviation)
        exact = binomial_mass(at, trials, rate) if 0 <= at < trials else 0
        if exact >= 1e-290:
            assert abs(float(law.pmf(at)) / exact - 1) <= 4e-10, at


def laws(size, seed):
    """Laws of every shape that is transformed: flat, steep, sparse."""
    rng = np.random.default_rng(seed)
    shapes = [
        rng.random(size),
        np.exp(-rng.uniform(0, 300, size)),
        np.exp(-(np.linspace(-20, 20, size) ** 2) / 2),
        (rng.random(size) < 3 / size) + 0.0,
        np.eye(1, size, size // 3)[0],
    ]
    return [shape / shape.sum() for shape in shapes if shape.sum()]


@pytest.mark.parametrize("size", [16, 60, 1000, 2**11, 3**7, 5**5])
def test_forward_transform(size):
    """Frequencies against the sums that define them, within what is allowed."""
    allowed = tilted_sums._LEVEL_ERROR * math.log2(size) * UNIT_ROUNDOFF
    for frequency in np.random.default_rng(size).integers(1, size // 2 + 1, 2):
        # Angles are fractions of integers, which have no rounding.
        turns = (int(frequency) * np.arange(size)) % size
        waves = [mpmath.expjpi(-mpmath.mpf(int(turn)) * 2 / size) for turn in turns]
        for law in laws(size, size):
            exact = mpmath.fdot((float(m), w) for m, w in zip(law, waves, strict=True))
            found = complex(fft.rfft(law)[frequency])
            assert abs(mpmath.mpc(found) - exact) <= allowed


@pytest.mark.parametrize("size", [10, 1000, 60000])
def test_sums_of_positive_terms(size):
    """Each sum within n roundings of the exact one."""
    rng = np.random.default_rng(size)
    terms = np.exp(-rng.uniform(0, 30, size))
    weights = np.exp(-rng.uniform(0, 30, size))
    allowed = size * UNIT_ROUNDOFF
    exact = math.fsum(terms)
    assert abs(float(terms.sum()) / exact - 1) <= allowed
    assert abs(float(np.cumsum(terms)[-1]) / exact - 1) <= allowed
    dot = math.fsum(terms * weights)
    assert abs(sums.dot(terms, weights) / dot - 1) <= allowed
    cells = np.zeros(size, dtype=np.int64)
    assert abs(float(sums.gather(cells, terms, 1)[0]) / exact - 1) <= allowed


@pytest.mark.parametrize("size", [2, 9])
def test_symmetric_eigenvectors(size):
    """|S| of eigenvectors, of sequences such as inner products of columns are."""
    rng = np.random.default_rng(size)
    for table in (rng.uniform(size=2 * size), 0.9 ** np.arange(2 * size)):
        places = np.arange(size)
        matrix = table[places[:, np.newaxis] + places]
        values, vectors = np.linalg.eigh(matrix)
        found = (vectors * np.abs(values)) @ vectors.T
        exact_values, exact_vectors = mpmath.eigsy(mpmath.matrix(matrix.tolist()))
        sizes = mpmath.diag([abs(value) for value in exact_values])
        exact = exact_vectors * sizes * exact_vectors.T
        apart = [[float(found[i, j] - exact[i, j]) for i in places] for j in places]
        assert np.linalg.norm(apart, 2) <= 1e-12 * matrix.sum()
