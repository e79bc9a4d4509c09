"""Laws of sums of many independent lattice variables, by tilted Fourier transforms.

The law of a sum of many copies is a power of a Fourier transform. The error of the
transform is absolute. So the masses are tilted first, multiplied by e^{tilt · row}:
where the tilted law of the sum has its mass, the error is then relative.

The summands are pairs of integers, a row and a column. Sums of single integers have one
column. The lattice is a torus: rows, and columns, are known up to a multiple of their
number. Chernoff's bound limits the mass whose row has gone round. The sum is computed
on fine rows, since the rounding of each summand adds up, and is read off on coarse
ones.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
import operator

import numpy as np
from scipy import fft

from dp_accounting_ext.common_types import ComplexArray
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

# Certified, in units of rounding: the error of one butterfly level of a Fourier
# transform, relative to the sum of the absolute inputs below it (Higham, Accuracy and
# Stability of Numerical Algorithms, Theorem 24.2, has 7 for radix 2 with accurate
# twiddle factors); and the error of a product of spectra.
_LEVEL_ERROR, _MULTIPLY_ERROR = 8.0, 4.0
# Certified, in units of rounding: the error of a product of two shares.
SHARE_ERROR = 32.0
# Certified, in units of rounding: the error of the tilted shares of a coarse row.
_KERNEL_ERROR = 64.0
# Certified, in units of rounding: the error of a tilted mass, from an exponential and
# the sum that it is divided by; and what each unit of its exponent adds to this error.
_TILTING_ERROR, _OF_EXPONENT = 16.0, 4.0
# Certified: the relative error of a sum of thousands of shares.
_SHARED = 1e-10
# Frequencies at which a spectrum is small are left out, and count as an error. This is
# the logarithm of their mean magnitude.
_NEGLIGIBLE_EXPONENT = -70.0


def shares(positions: FloatArray, step: float) -> tuple[IntArray, FloatArray]:
    """Returns the two lattice points around each position, with shares of its mass.

    The shares keep the mass and the mean of e^{−step · position}. The mean of any
    function that is convex in this exponential grows.

    Args:
        positions: (n,) positions, in lattice steps.
        step: The lattice step, in nats.

    Returns:
        (2, n) lattice indices, and (2, n) shares.
    """
    low = np.floor(positions)
    above = positions - low
    change = -math.expm1(-step)
    lower = math.exp(-step) * np.expm1((1 - above) * step) / change
    upper = -np.expm1(-above * step) / change
    cells = low.astype(np.int64)
    return np.stack([cells, cells + 1]), np.stack([lower, upper])


def even_shares(positions: FloatArray) -> tuple[IntArray, FloatArray]:
    """Returns the two lattice points, with shares that keep the mean position."""
    low = np.floor(positions)
    above = positions - low
    cells = low.astype(np.int64)
    return np.stack([cells, cells + 1]), np.stack([1 - above, above])


@dataclasses.dataclass(frozen=True)
class Factor:
    """`count` independent copies of one pair of lattice variables.

    Attributes:
        rows: (n,) lattice indices of the first variable.
        columns: (n,) lattice indices of the second variable.
        masses: (n,) probabilities, positive.
        count: The number of copies, at least 0.
    """

    rows: IntArray
    columns: IntArray
    masses: FloatArray
    count: int

    @functools.cached_property
    def _log_masses(self) -> FloatArray:
        return np.log(self.masses)

    def tilted(self, tilt: float) -> tuple[float, FloatArray, float]:
        """Returns the law of one copy, with masses multiplied by e^{tilt · row}.

        Returns:
            The logarithm of the sum of the tilted masses; the (n,) tilted masses
            divided by their sum; and a bound on the relative error of each of them and
            of the sum.
        """
        exponents = self._log_masses + tilt * self.rows
        largest = float(exponents.max())
        weights = np.exp(exponents - largest)
        total = float(weights.sum())
        log_moment = largest + math.log(total)
        weights /= total
        terms = abs(tilt) * float(np.abs(self.rows).max())
        terms += float(np.abs(self._log_masses).max()) + abs(log_moment)
        units = _TILTING_ERROR + _OF_EXPONENT * terms + math.log2(self.rows.size)
        return log_moment, weights, units * floats.UNIT_ROUNDOFF


class TiltedSum:
    """The law of a sum of pairs on a torus, tilted in the first variable.

    Args:
        factors: The summands.
        tilt: The tilt for each fine row.
        shape: The number of fine rows, which is even, and of columns of the torus.

    Attributes:
        mass_error: A bound on the relative rounding error of a mass, besides the errors
            of the factors. It comes from the exponents of tilts, from the shares into
            which masses are split, and from adding these up in cells. It holds where
            undoing the tilt multiplies a mass by at most e^±745; other masses are not
            used.
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
        laws = [factor.tilted(tilt) for factor in factors]
        self._log_moment = sum(
            count * log for count, (log, _, _) in zip(self._counts, laws, strict=True)
        )
        units = SHARE_ERROR * sum(self._counts) + _KERNEL_ERROR
        units += 16 * floats.LARGEST_LOG + 8 * abs(self._log_moment)
        self.mass_error = units * floats.UNIT_ROUNDOFF + sum(
            count * error
            for count, (_, _, error) in zip(self._counts, laws, strict=True)
        )
        # A large power has few frequencies that are not negligible.
        negligible = math.exp(_NEGLIGIBLE_EXPONENT / max(self._counts[-1], 1))
        main = _Columns(factors[-1], laws[-1][1], shape)
        self._of_rows = np.flatnonzero(main.magnitudes() + self._error > negligible)
        spectrum = main.spectrum(self._of_rows)
        self._active = np.flatnonzero(np.abs(spectrum) + self._error > negligible)
        self._spectra = [
            _Columns(factor, weights, shape).spectrum(self._of_rows)[self._active]
            for factor, (_, weights, _) in zip(factors[:-1], laws[:-1], strict=True)
        ]
        self._spectra.append(spectrum[self._active])

    def mass_above(self, row: int, tilts: Sequence[float]) -> float:
        """Returns an upper bound on the untilted mass at or above a fine row
        (Chernoff).

        It is the least of E e^{τ (R − row)} over the given tilts τ, where R is the row
        of the sum.

        Args:
            row: The row.
            tilts: The tilts τ for each row, at least 0.
        """
        logs = [self._log_chernoff(row, tilt) for tilt in tilts]
        return floats.raised(floats.exponential(min(logs, default=math.inf)))

    def _log_chernoff(self, row: int, tilt: float) -> float:
        """Returns an upper bound on the logarithm of E e^{tilt · (R − row)}."""
        laws = [factor.tilted(tilt) for factor in self._factors]
        log_moment = sum(
            count * (log + error + 4 * floats.UNIT_ROUNDOFF * abs(log))
            for count, (log, _, error) in zip(self._counts, laws, strict=True)
        )
        return log_moment - tilt * row + 4 * floats.UNIT_ROUNDOFF * abs(tilt * row)

    def _tilted_mass_outside(self, first: int, changes: Sequence[float]) -> float:
        """Returns an upper bound on the tilted mass outside the rows of the torus."""
        last = first + self._shape[0]
        outside = 0.0
        for sign, row in ((1.0, last), (-1.0, first - 1)):
            tilts = [self._tilt + sign * change for change in changes]
            # The logarithm of E e^{c (R − row)} under the tilted law.
            logs = [
                self._log_chernoff(row, tilt) + self._tilt * row - self._log_moment
                for tilt in tilts
            ]
            outside += floats.exponential(min(logs) + self.mass_error)
        return floats.raised(outside)

    def _power(self) -> tuple[ComplexArray, float]:
        """Returns the spectrum of the sum where it is active, and a bound on its error.

        The bound is on the mean absolute error over all frequencies.
        """
        product = np.ones(self._active.size, dtype=np.complex128)
        log_bound = np.zeros(self._active.size)
        relative = np.zeros(self._active.size)
        for spectrum, count in zip(self._spectra, self._counts, strict=True):
            if not count:
                continue
            product *= sums.repeated(spectrum, count, operator.mul)
            magnitude = np.log(np.abs(spectrum) + self._error)
            log_bound += count * magnitude
            relative += count * self._error * np.exp(-magnitude)
        rounding = 2 * self._error + _MULTIPLY_ERROR * floats.UNIT_ROUNDOFF * (
            sum(self._counts) + self._shape[0]
        )
        error = float(((rounding + relative) * np.exp(log_bound)).sum())
        # Only half of the frequencies are stored.
        mean = 2 * error / self._size + math.exp(_NEGLIGIBLE_EXPONENT)
        return product, floats.raised(mean)

    def masses(self, weights: FloatArray, first: int, *, height: int) -> FloatArray:
        """Returns upper bounds on the masses of (m, n) coarse rows and columns.

        None is less than the true mass, up to `mass_error`; masses above e^700 are
        returned as e^700.

        Args:
            weights: (2 · height − 1,) weights with which fine rows count in a coarse
                one, from `height` − 1 rows below its first fine row to as many above.
            first: The first coarse row.
            height: The number of fine rows in a coarse one. It divides the number of
                fine rows, and leaves an even number of coarse ones.
        """
        values, noise, _ = self._tilted_masses(weights, first, height)
        raised = np.maximum(values, 0.0) + noise
        # If a product overflows, the largest float is still above the probability.
        with np.errstate(over="ignore"):
            untilted = raised * self._scale(first, height)
        return np.minimum(untilted, math.exp(floats.LARGEST_EXPONENT))

    def masses_below(
        self, first: int, *, height: int, changes: Sequence[float]
    ) -> FloatArray:
        """Returns lower bounds on the masses of (m, n) blocks of rows and columns.

        None is more than the true mass, up to `mass_error`. Columns are those of the
        torus: a mass counts in its column however often it went round.

        Args:
            first: The first block of rows.
            height: The number of rows in a block, as for `masses`.
            changes: Positive changes of the tilt for each row, for Chernoff's bounds on
                the mass whose row has gone round.
        """
        weights = block(height)
        values, noise, largest = self._tilted_masses(weights, first, height)
        noise += largest * self._tilted_mass_outside(first * height, changes)
        lowered = np.maximum(values - floats.raised(noise), 0.0)
        return lowered * self._scale(first, height)

    def _scale(self, first: int, height: int) -> FloatArray:
        """Returns the (m, 1) factors that undo the tilt of coarse rows."""
        coarse = self._shape[0] // height
        tilts = self._tilt * height * (first + np.arange(coarse))
        exponents = np.minimum(self._log_moment - tilts, floats.LARGEST_EXPONENT)
        factors: FloatArray = np.exp(exponents)[:, np.newaxis]
        return factors

    def _tilted_masses(
        self, weights: FloatArray, first: int, height: int
    ) -> tuple[FloatArray, float, float]:
        """Returns tilted masses of coarse rows, and bounds on their errors.

        Returns:
            (m, n) tilted masses on the torus; a bound on the absolute error of any of
            them; and the largest weight of a fine row in a coarse one.
        """
        rows, columns = self._shape
        offsets = np.arange(1 - height, height)
        kernel = np.zeros(rows)
        kernel[offsets % rows] = weights * np.exp(-self._tilt * offsets)
        product, noise = self._power()
        spectrum = np.zeros((self._of_rows.size, columns), dtype=np.complex128)
        spectrum.ravel()[self._active] = product
        spectrum *= np.conj(fft.rfft(kernel))[self._of_rows, np.newaxis] / height
        coarse = rows // height
        grid = self._folded(spectrum, coarse)
        if columns > 1:
            grid = fft.ifft(grid, axis=1, overwrite_x=True)
        masses = fft.irfft(grid, coarse, axis=0)
        masses = np.roll(masses, -(first % coarse), axis=0)
        noise = floats.raised(noise * float(kernel.sum()))
        # A fine row is counted in several coarse rows. `shared` is the total weight
        # with which it is counted. As the tilted law has mass one, the coarse masses
        # sum to between the least and the largest of these weights.
        shared = kernel.reshape(-1, height).sum(axis=0)
        conservation.check_total(
            "tilted masses",
            float(masses.sum()),
            float(shared.min()),
            noise * masses.size + (self.mass_error + _SHARED) * float(shared.max()),
            more=float(shared.max() - shared.min()),
        )
        return masses, noise, float(kernel.max())

    def _folded(self, spectrum: ComplexArray, coarse: int) -> ComplexArray:
        """Returns the spectrum on coarse rows, to which finer frequencies alias.

        Args:
            spectrum: (k, n) transform at the frequencies of rows that count.
            coarse: The number of coarse rows.

        Returns:
            (coarse / 2 + 1, n) transform of the law on coarse rows.
        """
        half = coarse // 2 + 1
        folded = np.zeros((half, spectrum.shape[1]), dtype=np.complex128)
        # Increasing, so that those from one number to another are a slice.
        rows = self._of_rows
        blocks = range(0, self._shape[0] // 2 + 1, coarse)
        # The rows of a slice have different places, so `+=` adds them all.
        for start in blocks:
            first, last = np.searchsorted(rows, [start, start + half])
            folded[rows[first:last] - start] += spectrum[first:last]
        # A real law has conjugate frequencies, whose columns have the other sign.
        for start in blocks:
            ends = max(start - half + 1, 1), min(start, self._shape[0] // 2 - 1) + 1
            first, last = np.searchsorted(rows, ends)
            mirrored = np.roll(spectrum[first:last, ::-1], 1, axis=1)
            folded[start - rows[first:last]] += np.conj(mirrored)
        return folded


class _Columns:
    """The transforms of a tilted law over its rows, column by column."""

    def __init__(
        self, factor: Factor, weights: FloatArray, shape: tuple[int, int]
    ) -> None:
        self._shape = shape
        columns = factor.columns % shape[1]
        is_occupied = np.zeros(shape[1], dtype=bool)
        is_occupied[columns] = True
        self._occupied = np.flatnonzero(is_occupied)
        numbers = np.cumsum(is_occupied) - 1
        cells = numbers[columns] * shape[0] + factor.rows % shape[0]
        law = sums.gather(cells, weights, self._occupied.size * shape[0])
        self._half = fft.rfft(law.reshape(-1, shape[0]), axis=1)

    def magnitudes(self) -> FloatArray:
        """Returns a bound on the spectrum's magnitude at each frequency of rows.

        At a frequency of columns, the transforms of the columns are added up with
        factors of magnitude one.
        """
        return np.asarray(np.abs(self._half).sum(axis=0))

    def spectrum(self, of_rows: IntArray) -> ComplexArray:
        """Returns the flat (n · columns,) transform at n frequencies of rows."""
        columns = self._shape[1]
        if columns == 1:
            return np.asarray(self._half[0, of_rows])
        transforms = np.zeros((of_rows.size, columns), dtype=np.complex128)
        transforms[:, self._occupied] = self._half[:, of_rows].T
        return np.asarray(fft.fft(transforms, axis=1, overwrite_x=True)).ravel()


def block(height: int) -> FloatArray:
    """Returns the weights with which a coarse row is the sum of its fine rows."""
    return np.concatenate([np.zeros(height - 1), np.ones(height)])
