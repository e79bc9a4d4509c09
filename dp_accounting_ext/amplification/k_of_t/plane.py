"""Sums of independent pairs of variables on a plane lattice, by tilted transforms.

The law of a sum of many is one power of a Fourier transform, whose error is absolute:
it is taken of exponentially tilted masses, so that it is relative where the sum's
tilted law is centred. Its lattice is a torus. A row is known up to a multiple of their
number, and Chernoff's bound tells what has gone round; so is a column, of the variable
that is not tilted. The sum is made on fine rows, as the rounding of each summand adds
up, and is read off on coarse ones, on which it is rounded once.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import fft

from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

FloatArray = npt.NDArray[np.float64]
ComplexArray = npt.NDArray[np.complex128]
IndexArray = npt.NDArray[np.int64]

# Certified, in units of rounding: a butterfly level, relative to the sum of absolute
# inputs below it (Higham, Accuracy and Stability of Numerical Algorithms, Theorem 24.2,
# has 7 for radix 2 with accurate twiddle factors), and a product of spectra.
_LEVEL_ERROR, _MULTIPLY_ERROR = 8.0, 4.0
SHARE_ERROR = 32.0  # Of a product of two shares, in units of rounding.
_KERNEL_ERROR = 64.0  # Of the tilted shares of a coarse row.
# Of a tilted mass: an exponential, and its gathering; each of the terms of its exponent
# counts beside, so many times.
_TILTING_ERROR, _OF_EXPONENT = 16.0, 4.0
# Certified: of a sum of thousands of shares.
_SHARED = 1e-10
# What is left out of a spectrum counts as noise.
_NEGLIGIBLE_EXPONENT = -70.0


def shares(positions: FloatArray, step: float) -> tuple[IndexArray, FloatArray]:
    """Returns the two lattice points around each position, with shares of its mass.

    The shares keep the mass and the mean of e^{−step · position}, in which whatever
    is convex grows so.

    Args:
        positions: (n,) places in lattice steps.
        step: The lattice step, in nats.

    Returns:
        (2, n) lattice indices, and (2, n) shares.
    """
    low = np.floor(positions)
    above = positions - low
    whole = -math.expm1(-step)
    lower = math.exp(-step) * np.expm1((1 - above) * step) / whole
    upper = -np.expm1(-above * step) / whole
    cells = low.astype(np.int64)
    return np.stack([cells, cells + 1]), np.stack([lower, upper])


def even_shares(positions: FloatArray) -> tuple[IndexArray, FloatArray]:
    """Returns the same with shares that keep the mean position."""
    low = np.floor(positions)
    above = positions - low
    cells = low.astype(np.int64)
    return np.stack([cells, cells + 1]), np.stack([1 - above, above])


@dataclasses.dataclass(frozen=True)
class Factor:
    """`count` independent copies of one pair of lattice variables.

    Attributes:
        rows: (n,) lattice indices of the first.
        columns: (n,) those of the second.
        masses: (n,) probabilities, positive.
        count: Number of copies, at least 0.
    """

    rows: IndexArray
    columns: IndexArray
    masses: FloatArray
    count: int

    @functools.cached_property
    def _log_masses(self) -> FloatArray:
        return np.log(self.masses)

    def log_moment(self, tilt: float) -> float:
        """Returns the logarithm of the mean of e^{tilt · row}, of one copy."""
        exponents = self._log_masses + tilt * self.rows
        largest = float(exponents.max())
        return largest + math.log(float(np.exp(exponents - largest).sum()))

    def tilting_error(self, tilt: float) -> float:
        """Bounds the relative error of a tilted mass, of one copy."""
        largest = abs(tilt) * float(np.abs(self.rows).max())
        largest += float(np.abs(self._log_masses).max()) + abs(self.log_moment(tilt))
        units = _TILTING_ERROR + _OF_EXPONENT * largest + math.log2(self.rows.size)
        return units * floats.UNIT_ROUNDOFF

    def transformed(self, tilt: float, shape: tuple[int, int]) -> ComplexArray:
        """Returns the transform of the tilted, normalised law on a torus."""
        weights = np.exp(self._log_masses + tilt * self.rows - self.log_moment(tilt))
        cells = (self.rows % shape[0]) * shape[1] + self.columns % shape[1]
        plane = sums.gather(cells, weights, shape[0] * shape[1])
        plane = plane.reshape(shape)
        occupied = np.flatnonzero(plane.any(axis=1))
        half = np.zeros((shape[0], shape[1] // 2 + 1), dtype=np.complex128)
        half[occupied] = fft.rfft(plane[occupied], axis=1)
        return np.asarray(fft.fft(half, axis=0, overwrite_x=True))


class TiltedPlane:
    """The law of a sum of pairs on a torus, its first variable tilted.

    Args:
        factors: What is summed.
        tilt: The tilt, per fine row.
        shape: Number of fine rows, and of columns, on the torus.
    """

    def __init__(
        self, factors: Sequence[Factor], tilt: float, shape: tuple[int, int]
    ) -> None:
        factors = sorted(factors, key=lambda factor: factor.count)
        self._factors = factors
        self._counts = [factor.count for factor in factors]
        self._shape = shape
        self._size = shape[0] * shape[1]
        self._error = _LEVEL_ERROR * math.log2(self._size) * floats.UNIT_ROUNDOFF
        self._tilt = tilt
        main = factors[-1].transformed(tilt, shape)
        # Of a large power few frequencies are left that are not negligible.
        least = math.exp(_NEGLIGIBLE_EXPONENT / max(self._counts[-1], 1))
        self._active = np.flatnonzero(np.abs(main) + self._error > least)
        self._spectra = [
            factor.transformed(tilt, shape).ravel()[self._active]
            for factor in factors[:-1]
        ]
        self._spectra.append(main.ravel()[self._active])

    @functools.cached_property
    def mass_error(self) -> float:
        """A bound on the relative error of a mass from rounding, but for the factors'.

        That of the tilts' exponents, of shares, and of gathering them into cells. What
        undoes a tilt is at most e^745 either way, or its mass does not count.
        """
        units = SHARE_ERROR * sum(self._counts) + _KERNEL_ERROR
        units += 16 * floats.LARGEST_LOG + 8 * abs(self._log_moment(self._tilt))
        return units * floats.UNIT_ROUNDOFF + sum(
            factor.count * factor.tilting_error(self._tilt) for factor in self._factors
        )

    def _log_moment(self, tilt: float) -> float:
        """Returns the logarithm of the mean of e^{tilt · row} of the sum."""
        return sum(factor.count * factor.log_moment(tilt) for factor in self._factors)

    def mass_above(self, row: int, tilts: Sequence[float]) -> float:
        """Bounds the mass, not tilted, at or above a fine row (Chernoff).

        With tilts of τ or more it bounds E e^{τ (R − row)}, R the sum's row, there.

        Args:
            row: The row.
            tilts: Tilts a row, at least 0.
        """
        exponents = [self._log_moment(tilt) - tilt * row for tilt in tilts]
        log = min(exponents, default=math.inf)
        return floats.raised(floats.exponential(log + self.mass_error))

    def _power(self) -> tuple[ComplexArray, float]:
        """Returns the sum's spectrum where it is active, and a bound on its error.

        That is a bound on the mean over all frequencies of the absolute error.
        """
        product = np.ones(self._active.size, dtype=np.complex128)
        log_bound = np.zeros(self._active.size)
        relative = np.zeros(self._active.size)
        for spectrum, count in zip(self._spectra, self._counts, strict=True):
            if not count:
                continue
            product *= spectrum**count if count < 3 else _power(spectrum, count)
            magnitude = np.log(np.abs(spectrum) + self._error)
            log_bound += count * magnitude
            relative += count * self._error * np.exp(-magnitude)
        rounding = 2 * self._error + _MULTIPLY_ERROR * floats.UNIT_ROUNDOFF * (
            sum(self._counts) + self._shape[0]
        )
        error = float(((rounding + relative) * np.exp(log_bound)).sum())
        # Half of the frequencies are stored.
        mean = 2 * error / self._size + math.exp(_NEGLIGIBLE_EXPONENT)
        return product, floats.raised(mean)

    def masses(self, weights: FloatArray, first: int, *, height: int) -> FloatArray:
        """Returns the masses on (m, n) coarse rows, from one row on, and columns.

        None is less than the true one, but for `mass_error`; nor by e^700 of it.

        Args:
            weights: (2 · height − 1,) shares of a coarse row in the masses of the fine
                ones from 1 − height to height − 1 of it.
            first: The first coarse row.
            height: Fine rows in a coarse one; divides their number.
        """
        rows, columns = self._shape
        offsets = np.arange(1 - height, height)
        kernel = np.zeros(rows)
        kernel[offsets % rows] = weights * np.exp(-self._tilt * offsets)
        product, noise = self._power()
        half = columns // 2 + 1
        whole = np.zeros((rows, half), dtype=np.complex128)
        whole.ravel()[self._active] = product
        whole *= np.conj(fft.fft(kernel))[:, np.newaxis]
        coarse = rows // height
        folded = whole.reshape(height, coarse, half).sum(axis=0) / height
        values = fft.irfft(fft.ifft(folded, axis=0), columns, axis=1)
        # The tilted law has the mass one, and a fine row so much in all coarse ones.
        shared = kernel.reshape(-1, height).sum(axis=0)
        lost = floats.raised(noise * float(kernel.sum()))
        conservation.check_total(
            "tilted masses",
            float(values.sum()),
            float(shared.min()),
            lost * values.size + (self.mass_error + _SHARED) * float(shared.max()),
            more=float(shared.max() - shared.min()),
        )
        values = np.maximum(np.roll(values, -(first % coarse), axis=0), 0.0)
        values += lost
        tilts = self._tilt * height * (first + np.arange(coarse))
        exponents = self._log_moment(self._tilt) - tilts
        scale = np.exp(np.minimum(exponents, floats.LARGEST_EXPONENT))
        found: FloatArray = values * scale[:, np.newaxis]
        return found


def _power(base: ComplexArray, exponent: int) -> ComplexArray:
    """Returns base ** exponent, exponent ≥ 1, by repeated squaring."""
    result: ComplexArray | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if exponent:
            base = base * base
    assert result is not None
    return result
