"""Powers of spectra near one: of a sum of very many copies.

A transform knows a spectrum f to an absolute error a, and the n-th power is off by
n · a. But only frequencies with n |f − 1| below some dozens matter, and there f − 1 is
small and can be had to a few units of itself, from moments about the middle c of the
law: with d = index − c, and weights w,

    f(ω) e^{−iωc} − 1 = Σ w − 1 + Σ_k (iω)^k Σ w d^k / k!,

a series that K terms leave by at most Σ w |ωd|^K / K!. So f^n = e^{n ln f} is off by n
times an error that is as small as f − 1 is.
"""

import dataclasses
import functools
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

# Tuning: terms of the series; even. A power of 1000 asks for |ωd| of about 4.
_TERMS = 28
_BLOCK = 1 << 12  # Of all terms so many weights at once: they stay in the cache.


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
    weights: FloatArray, start: int, frequencies: IndexArray, size: int
) -> Logarithms:
    """Returns logarithms of a spectrum f = Σ w e^{−iω index} near one.

    Args:
        weights: (n,) weights at start, start + 1, …; they count as exact, and sum to
            about one.
        start: Lattice index of the first.
        frequencies: (m,) numbers j of frequencies ω = 2πj / size, from 0 to size / 2.
        size: Number of lattice points on the circle.
    """
    places = np.arange(weights.size, dtype=np.float64)
    middle = round(sums.dot(weights, places))
    highest = max(int(frequencies.max()), 1)
    there = np.flatnonzero(weights)
    steps = (2 * math.pi * highest / size) * (places[there] - middle)
    moments = _moments(weights[there], steps)
    relative = frequencies / highest
    # Σ w − 1: multiples of 2^−51 add up exactly; the rest is below n 2^−52.
    high = (weights + 2.0) - 2.0
    constant = (float(high.sum()) - 1) + float((weights - high).sum())
    excess = _series(moments, relative) + constant
    doubt = _doubt(moments, weights.size, relative)
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
        error: Bound on their absolute errors.
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
        power = _power(self.values, count)
        if self.logarithms is not None and self._better is not None and count:
            power = np.where(self._better, self.logarithms.power(count), power)
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
