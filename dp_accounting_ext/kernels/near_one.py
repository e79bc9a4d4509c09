"""Powers of spectra near one: of a sum of very many copies.

A transform knows a spectrum f to an absolute error a, and the n-th power is off by
n · a. But only frequencies with n |f − 1| below some dozens matter, and there f − 1 is
small and can be had to a few units of itself, from moments about the middle c of the
law: with d = index − c, and weights w,

    f(ω) e^{−iωc} − 1 = Σ w − 1 + Σ_k (iω)^k Σ w d^k / k!,

a series that K terms leave by at most Σ w |ωd|^K / K!. So f^n = e^{n ln f} is off by n
times an error that is as small as f − 1 is. What little lies far from the middle is
summed as it is.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import sums

FloatArray = npt.NDArray[np.float64]
ComplexArray = npt.NDArray[np.complex128]
IndexArray = npt.NDArray[np.int64]

# Certified, in units of rounding (docs/guarantees.md, "tilted Fourier power").
_MULTIPLY_ERROR = 4.0  # A product of complex numbers.
# Moment k, in units of that of |ωd|^k / k!: six roundings a factor of ωd / k, three of
# the frequency's own and of its power, two of Horner's scheme, less than 10 k.
_FACTOR_ERROR = 10.0
_TERM_ERROR = 8.0
# e^{−iωd} − 1 of what is far: for each frequency up to this one an angle of up to 2π
# (12), a cosine and a sine (1 each), and a product.
_TURN_ERROR = 20.0
# ln(1 + g), |g| ≤ 1/2, in units of |g|: 2 Re g + |g|² is off by 6, half its log by
# 12 for that and 6 of its own; the angle by 2 for 1 + Re g and 8 of its own.
_LOGARITHM_ERROR = 40.0
# e^{n ln f}: an exponential and a sine (4 each), an angle (19 for a phase up to 2π, 7
# for the sum), products; and three roundings of n ln f.
_POWER_ERROR = 64.0
_EXPONENT_ERROR = 4.0
_LARGEST_EXCESS = 0.5  # |g| up to which that holds,
_LARGEST_DOUBT = 0.02  # and its error, up to which |ln'| is at most 2.1.
_SLOPE = 2.1

# Certified: of 1 − |f| as `first_negligible` bounds it, a sum of some 50 terms up to 1,
# and what weights may sum to above 1.
_DOUBT_OF_LAYERS = 1e-12

# Tuning: layers of a law, each so much lower than the one within; how far its middle
# reaches, in cells; and how many frequencies are worth a search.
_LAYERS = 2.0 ** -np.arange(0.25, 14.0, 0.5)
_REACH = 1 << 14
_MOST_FREQUENCIES = 1 << 10
# Tuning: terms of the series; even. A power of 1000 asks for |ωd| of about 4.
_TERMS = 28
_NEAREST = 3.0  # |ωd| up to which the series takes it.
_LIGHT = 2.0**-8  # Of E |ωd|², so much of them; their error is of their own mass.
_MOST_FAR = 1 << 21  # Of frequencies times weights that are not near, that many.
_BLOCK = 1 << 12  # Of all terms so many weights at once: they stay in the cache.
_SUMMED = 1 << 8  # So many products of powers are summed one by one, the rest in pairs.


def first_negligible(
    weights: FloatArray, places: IndexArray, size: int, count: int, exponent: float
) -> int | None:
    """Returns a frequency from which on a spectrum's power is negligible, or None.

    A law is layers of level boxes, and a rest. The spectrum of a box of n cells is the
    Dirichlet kernel: at most sin(nx) / (n sin x) for nx ≤ π/2, x = ω/2, and at most
    1 / (n sin x) beyond. Both fall with x.

    Args:
        weights: (n,) weights, which sum to about one.
        places: (n,) their indices, increasing.
        size: Number of lattice points on the circle.
        count: The power.
        exponent: Of a negligible power, the logarithm at most; negative.

    Returns:
        The least j found so that from it on, up to size / 2, the power is no larger.
    """
    heights, widths = _boxes(_around_the_top(weights, places))
    lacking = -math.expm1(exponent / count) + _DOUBT_OF_LAYERS

    def is_negligible(frequency: int) -> bool:
        half = math.pi * frequency / size
        turns = widths * half
        kernels = np.sin(np.minimum(turns, math.pi / 2)) / (widths * math.sin(half))
        return sums.dot(heights * widths, 1 - kernels) >= lacking

    low, high = 0, min(_MOST_FREQUENCIES, size // 2)
    if high < 1 or not is_negligible(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_negligible(middle) else (middle, high)
    return high


def _around_the_top(weights: FloatArray, places: IndexArray) -> FloatArray:
    """Returns the weights around the largest one without a gap, some thousands."""
    top = int(weights.argmax())
    begin = max(top - _REACH, 0)
    # Without gaps, places count as their numbers do.
    lags = places[begin : top + _REACH] - np.arange(
        begin, min(top + _REACH, places.size)
    )
    first, last = np.searchsorted(lags, lags[top - begin] + np.array([0, 1]))
    return weights[begin + first : begin + last]


def _boxes(weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns the heights and widths of boxes that together no weight is below."""
    top = int(weights.argmax())
    right = np.minimum.accumulate(weights[top:])
    left = np.minimum.accumulate(weights[: top + 1][::-1])
    levels = float(weights[top]) * _LAYERS
    # Both hold the top itself.
    widths = (-right).searchsorted(-levels, side="right") - 1
    widths += (-left).searchsorted(-levels, side="right")
    heights = levels - np.append(levels[1:], 0.0)
    return heights, widths.astype(np.float64)


@dataclasses.dataclass(frozen=True)
class Logarithms:
    """ln f at some frequencies, but for the phase of the middle index.

    Attributes:
        values: (m,) ln (f e^{iωc}).
        errors: (m,) bounds on their absolute errors, inf where nothing is known.
        phases: (m,) ωc as whole parts of the circle: frequency · c modulo its size.
        size: Number of lattice points on the circle.
    """

    values: ComplexArray
    errors: FloatArray
    phases: IndexArray
    size: int

    def power(self, count: int) -> ComplexArray:
        """Returns f^count."""
        exponents = count * self.values
        # In whole parts of the circle the phase is exact.
        parts = self.phases * (count % self.size) % self.size
        angles = exponents.imag - (2 * math.pi / self.size) * parts
        power = np.cos(angles) + 1j * np.sin(angles)
        power *= np.exp(exponents.real)
        return power


def logarithms(
    weights: FloatArray,
    start: int,
    frequencies: IndexArray,
    size: int,
    places: IndexArray | None = None,
    *,
    light: float = _LIGHT,
) -> Logarithms:
    """Returns logarithms of a spectrum f = Σ w e^{−iω index} near one.

    Args:
        weights: (n,) weights at start, start + 1, …; they count as exact, and sum to
            about one.
        start: Lattice index of the first.
        frequencies: (m,) numbers j of frequencies ω = 2πj / size, from 0 to size / 2.
        size: Number of lattice points on the circle.
        places: (n,) where the weights are, from the start; 0, 1, … by default.
        light: What is far from the middle is summed as it is where it weighs no more,
            over E |ωd|² with the highest frequency.
    """
    if places is None:
        places = np.flatnonzero(weights)
        weights = weights[places]
    middle = round(sums.dot(weights, places.astype(np.float64)))
    highest = max(int(frequencies.max()), 1)
    steps = (2 * math.pi * highest / size) * (places - middle).astype(np.float64)
    distant = _distant(weights, steps, highest, light)
    moments = _moments(weights[~distant], steps[~distant])
    relative = frequencies / highest
    # Σ w − 1: multiples of 2^−51 add up exactly; the rest is below n 2^−52.
    high = (weights + 2.0) - 2.0
    constant = (float(high.sum()) - 1) + float((weights - high).sum())
    excess = _series(moments, relative) + constant
    doubt = _doubt(moments, weights.size, relative)
    if distant.any():
        turns = ((places[distant] - middle) % size).astype(np.float64)
        turns *= 2 * math.pi / size
        rest, doubts = _far(weights[distant], turns, highest)
        excess += rest[frequencies]
        doubt += doubts[frequencies]
    distance = np.abs(excess)
    known = (distance <= _LARGEST_EXCESS) & (doubt <= _LARGEST_DOUBT)
    excess[~known] = 0.0
    values = 0.5 * np.log1p(2 * excess.real + np.abs(excess) ** 2) + 1j * np.arctan2(
        excess.imag, 1 + excess.real
    )
    errors = _SLOPE * doubt + _LOGARITHM_ERROR * floats.UNIT_ROUNDOFF * distance
    phases = frequencies * ((start + middle) % size) % size
    return Logarithms(values, np.where(known, errors, np.inf), phases, size)


def _moments(weights: FloatArray, steps: FloatArray) -> FloatArray:
    """Returns Σ w x^k / k! for k from 1 to the number of terms."""
    found = []
    for begin in range(0, weights.size, _BLOCK):
        before, here = weights[begin : begin + _BLOCK], steps[begin : begin + _BLOCK]
        terms = np.empty((_TERMS, here.size))
        for row in terms:
            before = np.multiply(before, here, out=row)
        found.append(sums.pairwise(terms))
    factorials = np.cumprod(np.arange(1.0, _TERMS + 1))
    moments: FloatArray = sums.pairwise(np.array(found).T) / factorials
    return moments


def _distant(
    weights: FloatArray, steps: FloatArray, highest: int, light: float
) -> npt.NDArray[np.bool_]:
    """Tells which weights are summed on their own: few, and light beside the rest."""
    distant: npt.NDArray[np.bool_] = np.abs(steps) > _NEAREST
    most = light * sums.dot(weights, steps**2)
    if (
        highest > _MOST_FREQUENCIES
        or int(distant.sum()) * (highest + 1) > _MOST_FAR
        or float(weights[distant].sum()) > most
    ):
        distant[:] = False
    return distant


def _far(
    weights: FloatArray, turns: FloatArray, highest: int
) -> tuple[ComplexArray, FloatArray]:
    """Returns Σ w (e^{−ij turn} − 1) for j from 0 to the highest, and their errors."""
    found: ComplexArray = np.concatenate(
        [
            _powers(
                weights[begin : begin + _BLOCK], turns[begin : begin + _BLOCK], highest
            )
            for begin in range(0, weights.size, _BLOCK)
        ]
    )
    errors = np.arange(highest + 1, dtype=np.float64) * _TURN_ERROR
    # Each part of a product's sum has 2 n terms; both together err by the root of 2.
    errors += 3 * min(_SUMMED, weights.size) + math.log2(len(found)) + _TERM_ERROR
    errors *= floats.UNIT_ROUNDOFF * float(weights.sum())
    total = sums.pairwise(found.T) - float(weights.sum())
    total[0] = errors[0] = 0.0
    return total, errors


def _powers(weights: FloatArray, turns: FloatArray, highest: int) -> ComplexArray:
    """Returns (k, highest + 1) parts of Σ w e^{−ij turn}: low powers times high ones.

    Those of each part are summed one by one.
    """
    step = math.isqrt(highest) + 1
    low, high = np.empty((2, step, weights.size), dtype=np.complex128)
    turn = np.cos(turns) - 1j * np.sin(turns)
    low[0], high[0] = 1.0, weights
    for before, row in itertools.pairwise(low):
        np.multiply(before, turn, out=row)
    turn *= low[-1]
    for before, row in itertools.pairwise(high):
        np.multiply(before, turn, out=row)
    whole = weights.size // _SUMMED * _SUMMED
    blocks = [
        x[:, :whole].reshape(step, -1, _SUMMED).transpose(1, 0, 2) for x in (high, low)
    ]
    products = blocks[0] @ blocks[1].transpose(0, 2, 1)
    if whole < weights.size:
        rest = high[:, whole:] @ low[:, whole:].T
        products = np.concatenate([products, rest[np.newaxis]])
    return np.asarray(products.reshape(len(products), -1)[:, : highest + 1])


def _series(moments: FloatArray, relative: FloatArray) -> ComplexArray:
    """Returns Σ_k (−i r)^k moment_k, all but the last one, by Horner's scheme."""
    total = np.zeros(relative.size, dtype=np.complex128)
    for moment in moments[-2::-1]:
        total = (total + moment) * relative * -1j
    return total


def _doubt(moments: FloatArray, size: int, relative: FloatArray) -> FloatArray:
    """Bounds the error of the series: its rounding, and what it leaves out."""
    absolute = np.abs(moments)
    # Of odd order: E|x|^k is at most the root of E x^{k−1} · E x^{k+1}; E 1 is 1.1.
    orders = np.arange(1, _TERMS, 2)
    before = np.append(1.1, absolute[1:-1:2])
    absolute[::2] = 1.1 * np.sqrt(before * absolute[1::2] * (orders + 1) / orders)
    units = _FACTOR_ERROR * np.arange(1, _TERMS + 1) + math.log2(size) + _TERM_ERROR
    coefficients = floats.UNIT_ROUNDOFF * units * absolute
    coefficients[-1] += 1.1 * absolute[-1]
    total = np.zeros(relative.size)
    for coefficient in coefficients[::-1]:
        total = (total + coefficient) * relative
    return total + 2 * (size * floats.UNIT_ROUNDOFF) ** 2


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """A spectrum at some frequencies, and its powers.

    Attributes:
        values: (m,) values, from a transform.
        error: Bound on their absolute errors; inf if only the logarithms are known.
        logarithms: Their logarithms, which serve where they are known better.
    """

    values: ComplexArray
    error: float
    logarithms: Logarithms | None = None

    @functools.cached_property
    def _better(self) -> npt.NDArray[np.bool_] | None:
        """(m,) where the logarithms are known better."""
        if self.logarithms is None:
            return None
        magnitudes = np.exp(self.logarithms.values.real)
        better: npt.NDArray[np.bool_] = self.logarithms.errors * magnitudes < self.error
        return better

    @functools.cached_property
    def log_magnitudes(self) -> FloatArray:
        """(m,) upper bounds on the logarithms of true and computed magnitudes."""
        bounds: FloatArray = np.log(np.abs(self.values) + self.error)
        if self.logarithms is not None and self._better is not None:
            known = self.logarithms.values.real + self.logarithms.errors
            bounds = np.where(self._better, known, bounds)
        return bounds

    def power(self, count: int) -> ComplexArray:
        """Returns (m,) values to the power of a count."""
        if self.logarithms is None or self._better is None or not count:
            return _power(self.values, count)
        power = self.logarithms.power(count)
        if not self._better.all():
            power = np.where(self._better, power, _power(self.values, count))
        return power

    def relative_error(self, count: int) -> FloatArray:
        """Bounds the (m,) errors of a power, over e^{count · log_magnitude}."""
        if not count:
            return np.zeros(self.values.size)
        errors: FloatArray = self.error * np.exp(-self.log_magnitudes)
        errors += _MULTIPLY_ERROR * floats.UNIT_ROUNDOFF
        errors *= count
        if self.logarithms is not None and self._better is not None:
            sizes = _EXPONENT_ERROR * count * np.abs(self.logarithms.values)
            rounding = (_POWER_ERROR + sizes) * floats.UNIT_ROUNDOFF
            known = count * self.logarithms.errors + rounding
            errors = np.where(self._better, known, errors)
        return errors


def _power(base: ComplexArray, exponent: int) -> ComplexArray:
    """Returns base ** exponent by repeated squaring."""
    result: ComplexArray | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if exponent:
            base = base * base
    return np.ones_like(base) if result is None else result
