"""Sums of independent variables on an additive lattice, by tilted Fourier powers.

The law of a sum of many lattice variables is one power of a discrete Fourier
transform. Its error is absolute, so the transform is taken of exponentially
tilted masses: the sum's tilted law is centred where it is needed, and there
the error is relative. Every value comes with a bound on its error, made of the
computed spectrum and two constants about the transform itself.

Source:
    https://arxiv.org/abs/2602.17284, section 5 (FFT convolution); Koskela et
    al., https://arxiv.org/abs/2102.12412, for Chernoff-bounded windows.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import fft

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import sums

FloatArray = npt.NDArray[np.float64]
ComplexArray = npt.NDArray[np.complex128]
IndexArray = npt.NDArray[np.int64]

# Certified: how many copies of a factor a partial sum may lack. A frequency is left out
# only where it is negligible without so many.
MOST_LEFT_OUT = 16

# Certified, in units of rounding (docs/guarantees.md, "tilted Fourier power").
# A butterfly level, relative to the sum of the absolute inputs below it: Higham,
# Accuracy and Stability of Numerical Algorithms, Theorem 24.2, has 7 for radix 2 with
# accurate twiddle factors.
_LEVEL_ERROR = 8.0
_MULTIPLY_ERROR = 4.0  # A product of complex numbers.
_GATHERING_ERROR = 8.0  # A mass that was added up in its cell, or split.

# Tuning: logarithm of what is left out, which counts as noise. Half and twice it: the
# same gaps, times within 4 % (1 of 1000 steps, once and 100 times; Poisson samples).
_NEGLIGIBLE_EXPONENT = -70.0


@dataclasses.dataclass(frozen=True)
class Factor:
    """`count` independent copies of one lattice variable.

    Attributes:
        start: Lattice index of the first mass.
        masses: (n,) probabilities at start, start + 1, …
        count: Number of copies, at least 0.
        moments: (n,) mass times the offset of the cell's mean from its index,
            in lattice steps; None where all mass sits on the lattice.
    """

    start: int
    masses: FloatArray
    count: int
    moments: FloatArray | None = None

    @functools.cached_property
    def indices(self) -> FloatArray:
        """(n,) lattice indices of the masses."""
        return self.start + np.arange(self.masses.size, dtype=np.float64)

    @functools.cached_property
    def log_masses(self) -> FloatArray:
        """(n,) logarithms of the masses, −inf where there is none."""
        with np.errstate(divide="ignore"):
            return np.log(self.masses)

    @functools.cached_property
    def offsets(self) -> FloatArray:
        """(n,) offsets of the cells' means from their indices."""
        assert self.moments is not None
        return np.divide(
            self.moments,
            self.masses,
            out=np.zeros_like(self.masses),
            where=self.masses > 0,
        )

    def tilted(self, tilt: float) -> tuple[float, FloatArray]:
        """Returns ln Σ masses · e^{tilt · index}, and the summands over the sum."""
        exponents = self.log_masses + tilt * self.indices
        largest = float(exponents.max())
        exponents -= largest
        weights = np.exp(exponents)
        total = float(weights.sum())
        weights /= total
        return largest + math.log(total), weights

    def mass_error(self, tilt: float, shift: float) -> float:
        """Bounds the relative rounding error of a tilted mass of the copies' sum.

        Args:
            tilt: The tilt, per lattice step.
            shift: The logarithm that `tilted` returns for it.
        """
        exponent = abs(tilt) * float(np.abs(self.indices[[0, -1]]).max())
        exponent += abs(shift) + floats.LARGEST_LOG
        units = self.count * (2 * exponent + _GATHERING_ERROR)
        return units * floats.UNIT_ROUNDOFF

    def mean(self, tilt: float) -> float:
        """Returns the mean lattice index of one copy, tilted."""
        return sums.dot(self.tilted(tilt)[1], self.indices)


@dataclasses.dataclass(frozen=True)
class TiltedValues:
    """Values at consecutive lattice indices.

    The value at index K is values[K − first] · e^{log_scale − tilt · K}, and its
    error at most noise · e^{log_scale − tilt · K}.
    """

    values: FloatArray
    noise: float
    log_scale: float
    tilt: float

    def scale(
        self, indices: IndexArray, log_factors: FloatArray | float = 0.0
    ) -> FloatArray:
        """Returns e^{log_scale − tilt · index + log_factor}, at most e^700."""
        exponents = self.log_scale - self.tilt * indices + log_factors
        scale: FloatArray = np.exp(np.minimum(exponents, floats.LARGEST_EXPONENT))
        return scale

    def log_noise(self, indices: IndexArray) -> FloatArray:
        """Returns the logarithm of the error at each index."""
        log_noise = math.log(self.noise) + self.log_scale
        return log_noise - self.tilt * indices.astype(np.float64)


class TiltedSum:
    """The tilted law of a sum, on a circle of `size` lattice points.

    Points outside a window of that size fold onto it. They add positive amounts
    to the masses.

    Args:
        factors: What is summed.
        tilt: The tilt, per lattice step.
        size: Number of lattice points on the circle.
        changes: Positive changes of the tilt for Chernoff bounds of tilted tails.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        tilt: float,
        size: int,
        changes: Sequence[float],
    ) -> None:
        self.tilt = tilt
        self.size = size
        self._factors = factors
        self._changes = changes
        self._error = _LEVEL_ERROR * math.log2(size) * floats.UNIT_ROUNDOFF
        tilted = [factor.tilted(tilt) for factor in factors]
        self._shifts = [shift for shift, _ in tilted]
        self._weights = [weights for _, weights in tilted]
        spectra = [
            _transform(weights, factor.start, size)
            for factor, weights in zip(factors, self._weights, strict=True)
        ]
        # A power of hundreds leaves few frequencies that are not negligible.
        largest = np.zeros(spectra[0].size)
        for factor, spectrum in zip(factors, spectra, strict=True):
            copies = max(factor.count - MOST_LEFT_OUT - 1, 0)
            largest += copies * np.log(np.abs(spectrum) + self._error)
        self._active = np.flatnonzero(largest > _NEGLIGIBLE_EXPONENT)
        self._spectra = [spectrum[self._active] for spectrum in spectra]
        self._magnitudes = [np.log(np.abs(s) + self._error) for s in self._spectra]

    def mass_error(self) -> float:
        """Bounds the relative error of a mass from rounding.

        That of the tilts' exponents, and of gathering the masses into cells.
        """
        return sum(
            factor.mass_error(self.tilt, shift)
            for factor, shift in zip(self._factors, self._shifts, strict=True)
        )

    def log_moment(self, counts: Sequence[int]) -> float:
        """Returns ln E e^{tilt · sum} of some copies of each factor."""
        return sum(
            count * shift for count, shift in zip(counts, self._shifts, strict=True)
        )

    @functools.cached_property
    def _shifted(self) -> list[tuple[float, list[float]]]:
        """Logarithmic moments of each factor at tilts a little to either side."""
        return [
            (change, [factor.tilted(self.tilt + change)[0] for factor in self._factors])
            for magnitude in self._changes
            for change in (magnitude, -magnitude)
        ]

    def folded_mass(self, counts: Sequence[int], low: int, high: int) -> float:
        """Bounds the tilted mass that folds onto the indices from low to high.

        The best of a few Chernoff bounds on either side.
        """
        bounds = {1.0: 0.0, -1.0: 0.0}
        here = self.log_moment(counts)
        for change, shifts in self._shifted:
            at = low + self.size if change > 0 else high - self.size
            moment = sum(c * shift for c, shift in zip(counts, shifts, strict=True))
            side = math.copysign(1.0, change)
            bounds[side] = min(bounds[side], moment - here - change * at)
        bottom, top = self._support(counts)
        outside = {1.0: low + self.size <= top, -1.0: high - self.size >= bottom}
        return floats.raised(
            sum(math.exp(bound) for side, bound in bounds.items() if outside[side])
        )

    def _support(self, counts: Sequence[int]) -> tuple[int, int]:
        """Returns the least and the largest lattice index of the sum."""
        ends = [(f.start, f.start + f.masses.size - 1) for f in self._factors]
        low = sum(c * start for c, (start, _) in zip(counts, ends, strict=True))
        high = sum(c * end for c, (_, end) in zip(counts, ends, strict=True))
        return low, high

    def mass_above(self, counts: Sequence[int], index: int) -> float:
        """Bounds the mass, not tilted, at or above an index (Chernoff)."""
        exponents = [self.log_moment(counts) - self.tilt * index]
        for change, shifts in self._shifted:
            moment = sum(c * shift for c, shift in zip(counts, shifts, strict=True))
            exponents.append(moment - (self.tilt + change) * index)
        tilts = [self.tilt, *(self.tilt + change for change, _ in self._shifted)]
        valid = [e for e, tilt in zip(exponents, tilts, strict=True) if tilt >= 0]
        return floats.raised(math.exp(min([0.0, *valid])))

    def _power(self, counts: Sequence[int]) -> ComplexArray:
        """Returns the spectrum of the sum of some copies of each factor."""
        product = _power(self._spectra[0], counts[0])
        for spectrum, count in zip(self._spectra[1:], counts[1:], strict=True):
            product = product * _power(spectrum, count)
        return product

    def _noise(self, counts: Sequence[int]) -> float:
        """Bounds the error of the inverse transform of `_power`."""
        log_bound = sum(
            count * magnitude
            for count, magnitude in zip(counts, self._magnitudes, strict=True)
        )
        rounding = self._error + _MULTIPLY_ERROR * sum(counts) * floats.UNIT_ROUNDOFF
        error = rounding * np.exp(log_bound)
        for count, magnitude in zip(counts, self._magnitudes, strict=True):
            if count:
                error += count * self._error * np.exp(log_bound - magnitude)
        # Half of the frequencies are stored; the mean is over all of them.
        mean = float(2 * error.sum() / self.size)
        return floats.raised(mean + math.exp(_NEGLIGIBLE_EXPONENT))

    def _values(
        self, spectrum: ComplexArray, noise: float, counts: Sequence[int], first: int
    ) -> TiltedValues:
        whole = np.zeros(self.size // 2 + 1, dtype=np.complex128)
        whole[self._active] = spectrum
        values = np.roll(fft.irfft(whole, self.size), -(first % self.size))
        return TiltedValues(values, noise, self.log_moment(counts), self.tilt)

    def masses(self, counts: Sequence[int], first: int) -> TiltedValues:
        """Returns the masses, from index first, of so many copies of each factor."""
        return self._values(self._power(counts), self._noise(counts), counts, first)

    def moments(self, counts: Sequence[int], first: int) -> TiltedValues:
        """Returns mass times mean offset from the lattice, in lattice steps.

        One copy, any, has its offsets in the place of its masses. That
        transform's error is the masses' times the sum of absolute offsets.
        """
        total = np.zeros_like(self._spectra[0])
        noise = 0.0
        for index, (factor, weights) in enumerate(
            zip(self._factors, self._weights, strict=True)
        ):
            if not counts[index] or factor.moments is None:
                continue
            others = list(counts)
            others[index] -= 1
            weighted = weights * factor.offsets
            norm = counts[index] * float(np.abs(weighted).sum())
            noise += 2 * norm * self._noise(others)
            offset = _transform(weighted, factor.start, self.size)[self._active]
            total += counts[index] * self._power(others) * offset
        return self._values(total, noise, counts, first)

    def largest_offset(self) -> float:
        """Bounds the sum of all copies' offsets, in lattice steps."""
        return sum(
            factor.count * float(np.abs(factor.offsets).max())
            for factor in self._factors
        )


class TiltedProduct:
    """The tilted law of a sum of which one factor after another is taken in.

    As a `TiltedSum`, for the numbers of copies that the factors have. A factor's
    spectrum is multiplied in and forgotten: thousands take no more memory than one.

    Args:
        tilt: The tilt, per lattice step.
        size: Number of lattice points on the circle.
        changes: Changes of the tilt, of either sign, for Chernoff bounds of tails.
    """

    def __init__(self, tilt: float, size: int, changes: Sequence[float]) -> None:
        self.tilt = tilt
        self.size = size
        self.mass_error = 0.0  # Of a mass, relatively, from rounding.
        self._changes = tuple(changes)
        self._error = _LEVEL_ERROR * math.log2(size) * floats.UNIT_ROUNDOFF
        self._active = np.arange(size // 2 + 1)
        self._product = np.ones(self._active.size, dtype=np.complex128)
        self._log_bound = np.zeros(self._active.size)
        self._lacking_one = np.zeros(self._active.size)
        self._copies = 0
        self._log_moment = 0.0
        self._shifted = np.zeros(len(self._changes))
        self._start = self._end = 0

    def multiply(self, factor: Factor) -> None:
        """Adds all copies of a factor to the sum."""
        count = factor.count
        shift, weights = factor.tilted(self.tilt)
        spectrum = self._transform(weights)[self._active]
        magnitude = np.log(np.abs(spectrum) + self._error)
        log_bound = self._log_bound + count * magnitude
        # Later factors only shrink it.
        kept = log_bound > _NEGLIGIBLE_EXPONENT
        self._active, self._log_bound = self._active[kept], log_bound[kept]
        self._product = self._product[kept] * _power(spectrum[kept], count)
        lacking_one = count * self._error * np.exp(-magnitude[kept])
        self._lacking_one = self._lacking_one[kept] + lacking_one
        self._copies += count
        self._log_moment += count * shift
        self._shifted += [
            count * factor.tilted(self.tilt + change)[0] for change in self._changes
        ]
        self._start += count * factor.start
        self._end += count * (factor.start + factor.masses.size - 1)
        self.mass_error += factor.mass_error(self.tilt, shift)

    def _transform(self, weights: FloatArray) -> ComplexArray:
        """Returns the transform of masses at 0, 1, … on the circle."""
        if weights.size > self.size:
            rows = -(-weights.size // self.size)
            padded = np.zeros(rows * self.size)
            padded[: weights.size] = weights
            weights = padded.reshape(rows, self.size).sum(axis=0)
        return np.asarray(fft.rfft(weights, self.size))

    def masses(self, first: int, number: int) -> TiltedValues:
        """Returns the masses at so many indices from the first, no more than `size`."""
        whole = np.zeros(self.size // 2 + 1, dtype=np.complex128)
        whole[self._active] = self._product
        values = fft.irfft(whole, self.size)
        at = (first - self._start) % self.size
        values = np.concatenate([values[at:], values[:at]])[:number]
        return TiltedValues(values, self._noise(), self._log_moment, self.tilt)

    def _noise(self) -> float:
        """Bounds the error of the inverse transform."""
        rounding = self._error
        rounding += _MULTIPLY_ERROR * self._copies * floats.UNIT_ROUNDOFF
        error = (rounding + self._lacking_one) * np.exp(self._log_bound)
        # Half of the frequencies are stored; the mean is over all of them.
        mean = float(2 * error.sum() / self.size)
        return floats.raised(mean + math.exp(_NEGLIGIBLE_EXPONENT))

    def folded_mass(self, low: int, high: int) -> float:
        """Bounds the tilted mass that folds onto the indices from low to high."""
        above = below = 0.0
        if low + self.size <= self._end:
            above = self._outside(1.0, low + self.size)
        if high - self.size >= self._start:
            below = self._outside(-1.0, high - self.size)
        return floats.raised(above + below)

    def _outside(self, sign: float, index: int) -> float:
        """Bounds the tilted mass from an index on, upwards or downwards (Chernoff)."""
        exponents = [0.0]
        for change, moment in zip(self._changes, self._shifted, strict=True):
            if change * sign > 0:
                exponents.append(moment - self._log_moment - change * index)
        return math.exp(min(exponents))

    def mass_above(self, index: int) -> float:
        """Bounds the mass, not tilted, at or above an index (Chernoff)."""
        if index > self._end:
            return 0.0
        exponents = [0.0, self._log_moment - self.tilt * index]
        for change, moment in zip(self._changes, self._shifted, strict=True):
            if self.tilt + change >= 0:
                exponents.append(moment - (self.tilt + change) * index)
        return floats.raised(math.exp(min(exponents)))


def _transform(values: FloatArray, start: int, size: int) -> ComplexArray:
    """Returns the transform of values at start, start + 1, … on a circle."""
    folded = np.zeros(size)
    begin, at = 0, start % size
    while begin < values.size:
        part = values[begin : begin + size - at]
        folded[at : at + part.size] += part
        begin, at = begin + part.size, 0
    return np.asarray(fft.rfft(folded))


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
