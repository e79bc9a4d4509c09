"""Sums of independent pairs of variables on a plane lattice, by tilted transforms.

As in `lattice`, with a second variable beside the tilted one. Its lattice is a
circle: a column is known up to a multiple of their number. The sum is made on fine
rows, as the rounding of each summand adds up, and is read off on coarse ones, on
which it is rounded once.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import fft

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import sums

FloatArray = npt.NDArray[np.float64]
ComplexArray = npt.NDArray[np.complex128]
IndexArray = npt.NDArray[np.int64]

UNIT_ROUNDOFF = floats.UNIT_ROUNDOFF

# Certified: the errors of one transform, as in `lattice`, and of a share below.
_LEVEL_ERROR = 8.0
_MULTIPLY_ERROR = 4.0
SHARE_ERROR = 32.0  # Of a product of two shares, in units of rounding.
_KERNEL_ERROR = 64.0  # Of the tilted shares of a coarse row.
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
        masses: (n,) probabilities.
        count: Number of copies, at least 0.
    """

    rows: IndexArray
    columns: IndexArray
    masses: FloatArray
    count: int

    @functools.cached_property
    def marginal(self) -> lattice.Factor:
        """The law of the first variable."""
        start = int(self.rows.min())
        return lattice.Factor(
            start, sums.gather(self.rows - start, self.masses), self.count
        )

    def transformed(self, tilt: float, shape: tuple[int, int]) -> ComplexArray:
        """Returns the transform of the tilted, normalised law on a torus."""
        # Each mass is a share of its row, and rows are tilted on the line.
        own = self.rows - self.marginal.start
        of_row = self.marginal.masses[own]
        weights = np.divide(
            self.masses, of_row, out=np.zeros(of_row.size), where=of_row > 0
        )
        weights *= self.marginal.tilted(tilt).weights[own]
        cells = (self.rows % shape[0]) * shape[1] + self.columns % shape[1]
        plane = sums.gather(cells, weights, shape[0] * shape[1])
        plane = plane.reshape(shape)
        occupied = np.flatnonzero(plane.any(axis=1))
        half = np.zeros((shape[0], shape[1] // 2 + 1), dtype=np.complex128)
        half[occupied] = fft.rfft(plane[occupied], axis=1)
        return np.asarray(fft.fft(half, axis=0, overwrite_x=True))


@dataclasses.dataclass(frozen=True)
class TiltedCells:
    """Masses of coarse rows and columns.

    The mass of row C, column J is values[C − first, J] · e^{log_scale − tilt · C}, and
    its error at most noise · e^{log_scale − tilt · C}.

    Attributes:
        first: Coarse row of the first values.
        values: (m, n) values.
        noise: Bound on their errors, but for what folds onto the rows.
        log_scale: See above.
        tilt: The tilt, per coarse row.
    """

    first: int
    values: FloatArray
    noise: float
    log_scale: float
    tilt: float

    @property
    def rows(self) -> IndexArray:
        """(m,) coarse rows."""
        return np.arange(self.first, self.first + self.values.shape[0], dtype=np.int64)

    def scale(self) -> FloatArray:
        """Returns (m,) e^{log_scale − tilt · row}, at most e^700."""
        exponents = self.log_scale - self.tilt * self.rows
        scale: FloatArray = np.exp(np.minimum(exponents, floats.LARGEST_EXPONENT))
        return scale


class TiltedPlane:
    """The law of a sum of pairs on a torus, its first variable tilted.

    Args:
        factors: What is summed; the last one has the most copies.
        tilt: The tilt, per fine row.
        shape: Number of fine rows, and of columns, on the torus.
        changes: Changes of the tilt for Chernoff bounds, as in `lattice.TiltedSum`.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        tilt: float,
        shape: tuple[int, int],
        changes: Sequence[float],
    ) -> None:
        self._counts = [factor.count for factor in factors]
        self._shape = shape
        self._size = shape[0] * shape[1]
        self._error = _LEVEL_ERROR * math.log2(self._size) * UNIT_ROUNDOFF
        self._marginals = [factor.marginal for factor in factors]
        self._line = lattice.TiltedSum(self._marginals, tilt, shape[0], changes)
        self._tilt = tilt = self._line.tilt
        main = factors[-1].transformed(tilt, shape)
        # Of a large power few frequencies are left that are not negligible.
        least = math.exp(_NEGLIGIBLE_EXPONENT / max(self._counts[-1], 1))
        self._active = np.flatnonzero(np.abs(main) + self._error > least)
        self._spectra = [
            factor.transformed(tilt, shape).ravel()[self._active]
            for factor in factors[:-1]
        ]
        self._spectra.append(main.ravel()[self._active])

    def mass_error(self) -> float:
        """Bounds the relative error of a mass from rounding, but for its factors' own.

        That of the tilts' exponents, of shares, and of gathering them into cells.
        """
        shared = SHARE_ERROR * sum(self._counts) + _KERNEL_ERROR
        return self._line.mass_error() + shared * UNIT_ROUNDOFF

    def mean(self) -> float:
        """Returns the tilted mean of the sum's fine row."""
        return sum(
            count * marginal.mean(self._tilt)
            for count, marginal in zip(self._counts, self._marginals, strict=True)
        )

    def mass_above(self, row: int) -> float:
        """Bounds the mass, not tilted, at or above a fine row (Chernoff)."""
        return self._line.mass_above(self._counts, row)

    def folded_mass(self, low: int, high: int) -> float:
        """Bounds the tilted mass that folds onto the fine rows from low to high."""
        return self._line.folded_mass(self._counts, low, high)

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
        rounding = 2 * self._error + _MULTIPLY_ERROR * UNIT_ROUNDOFF * (
            sum(self._counts) + self._shape[0]
        )
        error = float(((rounding + relative) * np.exp(log_bound)).sum())
        # Half of the frequencies are stored.
        mean = 2 * error / self._size + math.exp(_NEGLIGIBLE_EXPONENT)
        return product, floats.raised(mean)

    def masses(self, weights: FloatArray, first: int, *, height: int) -> TiltedCells:
        """Returns the masses on coarse rows, from one row on.

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
        return TiltedCells(
            first=first,
            values=np.roll(values, -(first % coarse), axis=0),
            noise=floats.raised(noise * float(kernel.sum())),
            log_scale=self._line.log_moment(self._counts),
            tilt=self._tilt * height,
        )


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
