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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import fft

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import near_one
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
# A sum of n masses as it is, but n: angles of up to 2π (19), a cosine and a sine (1
# each), a product.
_SUMMED_ERROR = 32.0
_GATHERING_ERROR = 8.0  # A mass that was added up in its cell, or split.
# A tilted mass: an exponential (4), a product and a quotient. What its exponents add
# is in `Factor.tilted`.
_TILTING_ERROR = 8.0
# Masses beside others: both gathered (2 each), the exponential between the two (4) and
# its argument and product, the quotient and its product.
_BESIDE_ERROR = 16.0
# A weight of a stencil, tilted (an exponential and its argument, 8), its turn in exact
# parts of the circle (8), their sum (a few dozen levels) and its product.
_STENCIL_ERROR = 64.0
# Up to 15 of them by Horner's scheme: each of its steps a turn (an angle in exact parts
# of the circle, 7, a cosine and a sine), a product (3) and a sum, 16 in all; and the
# weights themselves.
_NEIGHBOURS_ERROR = 320.0
# Certified: masses and quotients of masses that far apart have all their digits.
_LEAST_ANCHOR = 1e-200

# Tuning: logarithm of what is left out, which counts as noise. Half and twice it: the
# same gaps, times within 4 % (1 of 1000 steps, once and 100 times; Poisson samples).
_NEGLIGIBLE_EXPONENT = -70.0
# Certified, of a `TiltedProduct`: what is left out is less by e. Later factors, of less
# than 10^13 copies, are at most e together, as their magnitudes are at most 1 + 1e-13.
_LEFT_OUT_EXPONENT = _NEGLIGIBLE_EXPONENT - 1.0
# From so many copies on a spectrum is wanted better than a transform has it.
_MANY_COPIES = 500
# From so many points on, and so many copies, a few frequencies are all there are, and
# are computed sooner without a transform.
_SMOOTH_COPIES = 50
_LARGE_CIRCLE = 1 << 13
_MOST_FREQUENCIES = 1 << 11
_MOST_TERMS = 1 << 21  # Frequencies times masses.
_LIGHT = 2.0**-4  # There is no better way for what is far from the middle.
_WORSE = 4.0  # So many times a transform's error is no matter.


@dataclasses.dataclass(frozen=True)
class Factor:
    """`count` independent copies of one lattice variable.

    Attributes:
        start: Lattice index of the first mass.
        masses: (n,) probabilities at start, start + 1, …
        count: Number of copies, at least 0.
        moments: (n,) mass times the offset of the cell's mean from its index,
            in lattice steps; None where all mass sits on the lattice.
        gaps: (n,) places of the masses from the start, increasing, where many are
            empty; None where they are 0, 1, … A `TiltedProduct` takes both.
    """

    start: int
    masses: FloatArray
    count: int
    moments: FloatArray | None = None
    gaps: IndexArray | None = None

    @functools.cached_property
    def places(self) -> IndexArray:
        """(n,) places of the masses from the start."""
        return np.arange(self.masses.size) if self.gaps is None else self.gaps

    @property
    def end(self) -> int:
        """Lattice index of the last mass."""
        return self.start + int(self.places[-1])

    @functools.cached_property
    def indices(self) -> FloatArray:
        """(n,) lattice indices of the masses."""
        return self.start + self.places.astype(np.float64)

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

    def tilted(self, tilt: float) -> "Tilted":
        """Returns the tilted law: masses · e^{tilt · index} over their sum.

        The exponents are taken from the heaviest tilted mass on, from the masses
        themselves: with a `short` tilt they are exact, and every weight has but a few
        roundings, however large the exponents are.
        """
        exponents = self.log_masses + tilt * self.indices
        anchor = int(exponents.argmax())
        from_anchor = tilt * (self.places - float(self.places[anchor]))
        from_anchor[self.masses == 0] = -np.inf
        if (
            from_anchor.max() > floats.LARGEST_EXPONENT
            or self.masses[anchor] < _LEAST_ANCHOR
        ):
            return self._tilted_by_logarithms(tilt, exponents)
        weights = np.exp(from_anchor, out=from_anchor)
        weights *= self.masses
        total = sums.total(weights)
        weights /= total
        at_anchor, log_total = tilt * float(self.indices[anchor]), math.log(total)
        units = _TILTING_ERROR + 6 * (abs(at_anchor) + abs(log_total))
        if short(tilt) != tilt:
            units += abs(tilt) * (self.end - self.start + 1)
        return Tilted(at_anchor + log_total, weights, units * floats.UNIT_ROUNDOFF)

    def _tilted_by_logarithms(self, tilt: float, exponents: FloatArray) -> "Tilted":
        """Returns the tilted law of masses too far apart for a common scale."""
        largest = float(exponents.max())
        weights = np.exp(exponents - largest)
        total = sums.total(weights)
        weights /= total
        exponent = abs(tilt) * float(np.abs(self.indices[[0, -1]]).max())
        shift = largest + math.log(total)
        units = 4 * (exponent + abs(shift) + floats.LARGEST_LOG) + _TILTING_ERROR
        return Tilted(shift, weights, units * floats.UNIT_ROUNDOFF)

    def mean(self, tilt: float) -> float:
        """Returns the mean lattice index of one copy, tilted."""
        return sums.dot(self.tilted(tilt).weights, self.indices)


class Tilted(NamedTuple):
    """A tilted law.

    Attributes:
        log_moment: ln Σ masses · e^{tilt · index}.
        weights: (n,) summands over the sum.
        error: Bound on the relative error of any weight · e^{log_moment}, and of
            that factor's rounding where it is undone.
    """

    log_moment: float
    weights: FloatArray
    error: float


def short(tilt: float) -> float:
    """Returns a tilt of 24 binary digits: its products with indices are exact."""
    mantissa, exponent = math.frexp(tilt)
    return math.ldexp(round(mantissa * 2**24), exponent - 24)


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


@dataclasses.dataclass(frozen=True)
class Stencil:
    """How neighbouring masses are added up, around every index that a stride divides.

    Attributes:
        stride: How far apart these indices are.
        begin: Where the first weight is, relative to each.
        weights: (n,) weights at least 0, each of a few roundings; no more than 15 of
            them for a `TiltedSum`.
    """

    stride: int
    begin: int
    weights: FloatArray

    @property
    def offsets(self) -> IndexArray:
        """(n,) where the weights are, relative to an index."""
        return self.begin + np.arange(self.weights.size)

    def tilted(self, tilt: float) -> FloatArray:
        """Returns (n,) weights of tilted masses in the tilted sum."""
        weights: FloatArray = self.weights * np.exp(-tilt * self.offsets)
        return weights

    @property
    def reach(self) -> int:
        """How far the furthest weight is from its index."""
        return int(np.abs(self.offsets).max())


class TiltedSum:
    """The tilted law of a sum, on a circle of `size` lattice points.

    Points outside a window of that size fold onto it. They add positive amounts
    to the masses. The tilt is taken as `short` says.

    The weights of a tilted factor count as exact: they are those of a law whose
    masses are off by no more than `mass_error`. A sum `beside` another takes its
    weights from that law, times quotients of masses, so that both have one error.

    Args:
        factors: What is summed.
        tilt: The tilt, per lattice step.
        size: Number of lattice points on the circle.
        changes: Positive changes of the tilt for Chernoff bounds of tilted tails.
        beside: The sum of factors at the same indices, whose masses these are nearly.
        left_out: How many copies of a factor a partial sum may lack; one more where
            moments are asked for.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        tilt: float,
        size: int,
        changes: Sequence[float],
        *,
        beside: "TiltedSum | None" = None,
        left_out: int = MOST_LEFT_OUT,
    ) -> None:
        self.tilt = short(tilt)
        self.size = size
        self._factors = factors
        self._changes = changes
        self._error = _LEVEL_ERROR * math.log2(size) * floats.UNIT_ROUNDOFF
        if beside is None:
            tilted = [factor.tilted(self.tilt) for factor in factors]
        else:
            tilted = beside._times(factors)
        self._shifts = [each.log_moment for each in tilted]
        self._weights = [each.weights for each in tilted]
        self._tilting_errors = [each.error for each in tilted]
        spectra = [
            _transform(weights, factor.start, size)
            for factor, weights in zip(factors, self._weights, strict=True)
        ]
        # A power of hundreds leaves few frequencies that are not negligible.
        largest = np.zeros(spectra[0].size)
        for factor, spectrum in zip(factors, spectra, strict=True):
            copies = max(factor.count - left_out - 1, 0)
            largest += copies * np.log(np.abs(spectrum) + self._error)
        self._active = np.flatnonzero(largest > _NEGLIGIBLE_EXPONENT)
        self._spectra = [
            self._spectrum(factor, weights, spectrum[self._active])
            for factor, weights, spectrum in zip(
                factors, self._weights, spectra, strict=True
            )
        ]

    def _spectrum(
        self, factor: Factor, weights: FloatArray, spectrum: ComplexArray
    ) -> near_one.Spectrum:
        """Returns a factor's spectrum where it is active, the better of two."""
        logarithms = _logarithms(
            weights, factor.start, self._active, self.size, factor.count
        )
        return near_one.Spectrum(spectrum, self._error, logarithms)

    def _times(self, factors: Sequence[Factor]) -> list[Tilted]:
        """Returns other masses at the same indices, tilted as these are."""
        return [
            Tilted(
                shift,
                weights
                * np.divide(
                    other.masses,
                    own.masses,
                    out=np.zeros_like(weights),
                    where=own.masses > 0,
                ),
                error,
            )
            for own, other, shift, weights, error in zip(
                self._factors,
                factors,
                self._shifts,
                self._weights,
                self._tilting_errors,
                strict=True,
            )
        ]

    def mass_error(self) -> float:
        """Bounds the relative error of a mass from rounding.

        That of the tilts' exponents, and of gathering the masses into cells. A scale
        that undoes a tilt is at most e^745 either way, or its mass does not count; its
        parts are the tilts' own, whose errors allow for them.
        """
        gathering = _GATHERING_ERROR * floats.UNIT_ROUNDOFF
        total = 8 * floats.LARGEST_LOG * floats.UNIT_ROUNDOFF
        for factor, error in zip(self._factors, self._tilting_errors, strict=True):
            total += factor.count * (error + gathering)
        return total

    def quotient_error(self) -> float:
        """Bounds the relative error of quotients with the masses that it is beside."""
        copies = sum(factor.count for factor in self._factors)
        units = _BESIDE_ERROR * copies + 16 * floats.LARGEST_LOG
        units += 8 * abs(self.log_moment([factor.count for factor in self._factors]))
        return units * floats.UNIT_ROUNDOFF

    def log_moment(self, counts: Sequence[int]) -> float:
        """Returns ln E e^{tilt · sum} of some copies of each factor."""
        return sum(
            count * shift for count, shift in zip(counts, self._shifts, strict=True)
        )

    @functools.cached_property
    def _shifted(self) -> list[tuple[float, list[float]]]:
        """Logarithmic moments of each factor at tilts a little to either side."""
        return [
            (tilt - self.tilt, [f.tilted(tilt).log_moment for f in self._factors])
            for magnitude in self._changes
            for tilt in (short(self.tilt + magnitude), short(self.tilt - magnitude))
        ]

    def folded_mass(self, counts: Sequence[int], low: int, high: int) -> float:
        """Bounds the tilted mass that folds onto the indices from low to high.

        The best of a few Chernoff bounds on either side.
        """
        whole = self._log_total(counts)
        bounds = {1.0: whole, -1.0: whole}
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

    def _log_total(self, counts: Sequence[int]) -> float:
        """Bounds the logarithm of the tilted mass: that of a sum beside is not one."""
        totals = [max(sums.total(weights), 1.0) for weights in self._weights]
        return sum(c * math.log(t) for c, t in zip(counts, totals, strict=True))

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
        product = self._spectra[0].power(counts[0])
        for spectrum, count in zip(self._spectra[1:], counts[1:], strict=True):
            product = product * spectrum.power(count)
        return product

    def noise(self, counts: Sequence[int], more: float = 0.0) -> float:
        """Bounds the error of the inverse transform of `_power`.

        Args:
            counts: Copies of each factor.
            more: Of each frequency, some relative error more.
        """
        log_bound = np.zeros(self._active.size)
        relative = np.full(self._active.size, self._error + more)
        for spectrum, count in zip(self._spectra, counts, strict=True):
            log_bound += count * spectrum.log_magnitudes
            relative += spectrum.relative_error(count)
        # Half of the frequencies are stored; the mean is over all of them.
        mean = float(2 * (relative * np.exp(log_bound)).sum() / self.size)
        return floats.raised(mean + math.exp(_NEGLIGIBLE_EXPONENT))

    def _values(
        self,
        spectrum: ComplexArray,
        noise: float,
        counts: Sequence[int],
        first: int,
        stride: int = 1,
    ) -> TiltedValues:
        # Where no frequency folds, a shorter transform has every so manieth value.
        folds = 2 * stride * int(self._active[-1]) >= self.size
        apart = 1 if folds else stride
        size = self.size // apart
        whole = np.zeros(size // 2 + 1, dtype=np.complex128)
        whole[self._active] = spectrum / apart
        values = fft.irfft(whole, size)[:: stride // apart]
        at = first % self.size // stride
        values = np.concatenate([values[at:], values[:at]])
        return TiltedValues(values, noise, self.log_moment(counts), self.tilt)

    def _turned(self, weights: FloatArray, begin: int) -> ComplexArray:
        """Returns Σ w_j e^{iω (begin + j)} at the active frequencies, by Horner."""
        turn = self._turn(1)
        total = np.full(self._active.size, complex(weights[-1]))
        for weight in weights[-2::-1]:
            total *= turn
            total += weight
        total *= self._turn(begin)
        return total

    def _turn(self, begin: int) -> ComplexArray:
        # In whole parts of the circle angles are exact.
        angles = (2 * math.pi / self.size) * (self._active * begin % self.size)
        turn: ComplexArray = np.cos(angles) + 1j * np.sin(angles)
        return turn

    def masses(
        self, counts: Sequence[int], first: int, stencil: Stencil | None = None
    ) -> TiltedValues:
        """Returns the masses, from index first, of so many copies of each factor.

        Args:
            counts: Copies of each factor.
            first: The first index; a multiple of the stencil's stride.
            stencil: Neighbours that are added up, around every index that its stride
                divides, as it divides the size; by default each mass alone.
        """
        power = self._power(counts)
        if stencil is None:
            return self._values(power, self.noise(counts), counts, first)
        weights = stencil.tilted(self.tilt)
        noise = self.noise(counts, _NEIGHBOURS_ERROR * floats.UNIT_ROUNDOFF)
        noise = floats.raised(noise * float(weights.sum()))
        power *= self._turned(weights, stencil.begin)
        return self._values(power, noise, counts, first, stencil.stride)

    def moments(
        self, counts: Sequence[int], first: int, stencil: Stencil | None = None
    ) -> TiltedValues:
        """Returns mass times mean offset from the lattice, in lattice steps.

        Of neighbours, from the index that they are around. One copy, any, has its
        offsets in the place of its masses. That transform's error is the masses' times
        the sum of absolute offsets.
        """
        total = np.zeros(self._active.size, dtype=np.complex128)
        noise = 0.0
        more = 0.0 if stencil is None else _NEIGHBOURS_ERROR * floats.UNIT_ROUNDOFF
        for index, (count, own) in enumerate(
            zip(counts, self._offset_spectra, strict=True)
        ):
            if not count or own is None:
                continue
            others = list(counts)
            others[index] -= 1
            norm, offset = own
            noise += 2 * count * norm * self.noise(others, more)
            total += count * self._power(others) * offset
        if stencil is None:
            return self._values(total, noise, counts, first)
        weights = stencil.tilted(self.tilt)
        total *= self._turned(weights, stencil.begin)
        noise *= float(weights.sum())
        weights *= stencil.offsets
        total += self._power(counts) * self._turned(weights, stencil.begin)
        noise += self.noise(counts, more) * float(np.abs(weights).sum())
        return self._values(total, floats.raised(noise), counts, first, stencil.stride)

    @functools.cached_property
    def _offset_spectra(self) -> list[tuple[float, ComplexArray] | None]:
        """Of each factor's offsets the sum of their absolutes, and the transform."""
        found: list[tuple[float, ComplexArray] | None] = []
        for factor, weights in zip(self._factors, self._weights, strict=True):
            if factor.moments is None:
                found.append(None)
                continue
            weighted = weights * factor.offsets
            spectrum = _transform(weighted, factor.start, self.size)[self._active]
            found.append((float(np.abs(weighted).sum()), spectrum))
        return found

    def largest_offset(self) -> float:
        """Bounds the sum of all copies' offsets, in lattice steps."""
        return sum(
            factor.count * float(np.abs(factor.offsets).max())
            for factor in self._factors
        )


class TiltedProduct:
    """The tilted law of a sum of which one factor after another is taken in.

    As a `TiltedSum`, for the numbers of copies that the factors have, and with its
    `short` tilt. A factor's spectrum is multiplied in and forgotten: thousands take no
    more memory than one.

    Args:
        tilt: The tilt, per lattice step.
        size: Number of lattice points on the circle.
        changes: Changes of the tilt, of either sign, for Chernoff bounds of tails.
    """

    def __init__(self, tilt: float, size: int, changes: Sequence[float]) -> None:
        self.tilt = short(tilt)
        self.size = size
        # Of a mass, relatively, from rounding; what undoes a tilt is at most e^745
        # either way, and parts of it are the tilts' own.
        self.mass_error = 16 * floats.LARGEST_LOG * floats.UNIT_ROUNDOFF
        self._changes = tuple(changes)
        self._error = _LEVEL_ERROR * math.log2(size) * floats.UNIT_ROUNDOFF
        # Of no factor yet; see `_only_below`.
        self._active: IndexArray = np.zeros(0, dtype=np.int64)
        self._product: ComplexArray = np.zeros(0, dtype=np.complex128)
        self._log_bound = self._relative = np.zeros(0)
        self._is_begun = False
        # Of each factor, all copies: under the tilt, and under those a little away.
        # Sums of thousands of them are rounded once.
        self._moments: list[tuple[float, ...]] = []
        self._doubt = 0.0
        self._start = self._end = 0

    def multiply(self, factor: Factor) -> None:
        """Adds all copies of a factor to the sum."""
        count = factor.count
        tilted = factor.tilted(self.tilt)
        spectrum = self._near_one(tilted.weights, factor)
        if spectrum is None:
            spectrum = self._by_transform(tilted.weights, factor)
        self._log_bound += count * spectrum.log_magnitudes
        self._product *= spectrum.power(count)
        self._relative += spectrum.relative_error(count)
        others = [factor.tilted(self.tilt + change) for change in self._changes]
        each = [tilted, *others]
        self._moments.append(tuple(count * one.log_moment for one in each))
        worst = max(one.error for one in each)
        rounding = 4 * max(abs(one.log_moment) for one in each) * floats.UNIT_ROUNDOFF
        self._doubt += 2 * count * (worst + rounding)
        self._start += count * factor.start
        self._end += count * factor.end
        units = _GATHERING_ERROR + 8 * abs(tilted.log_moment)
        self.mass_error += count * (tilted.error + units * floats.UNIT_ROUNDOFF)

    def _only_below(self, frequency: int) -> None:
        """Leaves out frequencies from one on, which are negligible."""
        if not self._is_begun:
            self._active = np.arange(frequency)
            self._product = np.ones(frequency, dtype=np.complex128)
            self._log_bound = np.zeros(frequency)
            self._relative = np.full(frequency, self._error)
            self._is_begun = True
        self._keep(slice(int(self._active.searchsorted(frequency))))

    def _keep(self, kept: slice | npt.NDArray[np.bool_]) -> None:
        """Leaves out all frequencies but some."""
        self._active = self._active[kept]
        self._product = self._product[kept]
        self._log_bound = self._log_bound[kept]
        self._relative = self._relative[kept]

    def _near_one(
        self, weights: FloatArray, factor: Factor
    ) -> near_one.Spectrum | None:
        """Returns a spectrum at the first few frequencies, where the rest are nothing.

        Of many copies, on a circle so large that a transform takes longer; None
        elsewhere, and where the transform is much better.
        """
        if self.size < _LARGE_CIRCLE or self._are_few(weights.size):
            return None
        end = int(self._active[-1]) + 1 if self._is_begun else self.size // 2 + 1
        if factor.count >= _SMOOTH_COPIES:
            # Later factors only shrink it.
            first = near_one.first_negligible(
                weights, factor.places, self.size, factor.count, _LEFT_OUT_EXPONENT
            )
            end = min(end, first or end)
        if end > _MOST_FREQUENCIES or end * weights.size > _MOST_TERMS:
            return None
        self._only_below(end)
        found = near_one.logarithms(
            weights, 0, self._active, self.size, factor.places, light=_LIGHT
        )
        if not (found.errors * np.exp(found.values.real) < _WORSE * self._error).all():
            return None
        return near_one.Spectrum(found.values, math.inf, found)

    def _by_transform(self, weights: FloatArray, factor: Factor) -> near_one.Spectrum:
        """Returns a spectrum where it is not negligible."""
        self._only_below(self.size // 2 + 1)
        if self._are_few(weights.size):
            values = self._summed(weights, factor.places)
        elif factor.gaps is None:
            values = self._transform(weights)[self._active]
        else:
            dense = np.zeros(int(factor.gaps[-1]) + 1)
            dense[factor.gaps] = weights
            values = self._transform(dense)[self._active]
        magnitude = np.log(np.abs(values) + self._error)
        kept = self._log_bound + factor.count * magnitude > _LEFT_OUT_EXPONENT
        self._keep(kept)
        logarithms = _logarithms(
            weights, 0, self._active, self.size, factor.count, factor.gaps
        )
        return near_one.Spectrum(values[kept], self._error, logarithms)

    def _are_few(self, number: int) -> bool:
        """Tells whether so many masses are summed sooner, and as well, as they are."""
        error = (number + _SUMMED_ERROR) * floats.UNIT_ROUNDOFF
        terms = number * self._active.size
        return self._is_begun and error <= self._error and terms <= self.size // 4

    def _summed(self, weights: FloatArray, places: IndexArray) -> ComplexArray:
        """Returns the spectrum of a few masses where it is not negligible."""
        # In whole parts of the circle angles are exact.
        parts = np.multiply.outer(self._active, places) % self.size
        turns = (2 * math.pi / self.size) * parts
        values: ComplexArray = (np.cos(turns) - 1j * np.sin(turns)) @ weights
        return values

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
        return TiltedValues(values, self._noise(), self._moment(0), self.tilt)

    def is_smooth(self, stride: int) -> bool:
        """Tells whether sums at every so manieth index are a transform of their own.

        They are where the stride divides the size, and what is not negligible does not
        fold.
        """
        folds = 2 * stride * int(self._active[-1]) >= self.size
        return stride == 1 or not (self.size % stride or folds)

    def sums(self, stencil: Stencil, first: int, number: int) -> TiltedValues:
        """Returns sums of neighbouring masses at so many multiples of the stride.

        Their values are those at first, first + stride, …, as of `masses`. Only few
        frequencies are needed: of a long sum's law one in thousands.

        Args:
            stencil: What is added up; the law is smooth for its stride.
            first: A multiple of the stride.
            number: How many sums, no more than size / stride.
        """
        weights = stencil.tilted(self.tilt)
        size = self.size // stencil.stride
        at, between = divmod((first - self._start) % self.size, stencil.stride)
        parts = np.multiply.outer(self._active, stencil.offsets + between) % self.size
        turns = (2 * math.pi / self.size) * parts
        kernel = np.einsum("ij,j->i", np.cos(turns) + 1j * np.sin(turns), weights)
        whole = np.zeros(size // 2 + 1, dtype=np.complex128)
        whole[self._active] = self._product * kernel / stencil.stride
        values = fft.irfft(whole, size)
        values = np.concatenate([values[at:], values[:at]])[:number]
        noise = self._noise(_STENCIL_ERROR * floats.UNIT_ROUNDOFF)
        noise = floats.raised(noise * float(weights.sum()))
        return TiltedValues(values, noise, self._moment(0), self.tilt)

    def _noise(self, more: float = 0.0) -> float:
        """Bounds the error of the inverse transform, and some relative error more."""
        error = (self._relative + more) * np.exp(self._log_bound)
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
        here = self._moment(0)
        for number, change in enumerate(self._changes, 1):
            if change * sign > 0:
                exponents.append(self._moment(number) - here - change * index)
        return self._chance(exponents)

    def _moment(self, number: int) -> float:
        """Returns the logarithmic moment under the tilt (0), or a little away."""
        return math.fsum(moments[number] for moments in self._moments)

    def _chance(self, exponents: Sequence[float]) -> float:
        """Bounds the least of some chances, whose logarithms are rounded."""
        return floats.raised(math.exp(min(0.0, min(exponents) + self._doubt)))

    def mass_above(self, index: int) -> float:
        """Bounds the mass, not tilted, at or above an index (Chernoff)."""
        if index > self._end:
            return 0.0
        exponents = [0.0, self._moment(0) - self.tilt * index]
        for number, change in enumerate(self._changes, 1):
            if self.tilt + change >= 0:
                exponents.append(self._moment(number) - (self.tilt + change) * index)
        return self._chance(exponents)


def _logarithms(
    weights: FloatArray,
    start: int,
    active: IndexArray,
    size: int,
    count: int,
    gaps: IndexArray | None = None,
) -> near_one.Logarithms | None:
    """Returns a spectrum's logarithms, where there are copies enough to want them."""
    if count < _MANY_COPIES or not active.size:
        return None
    return near_one.logarithms(weights, start, active, size, gaps)


def _transform(values: FloatArray, start: int, size: int) -> ComplexArray:
    """Returns the transform of values at start, start + 1, … on a circle."""
    folded = np.zeros(size)
    begin, at = 0, start % size
    while begin < values.size:
        part = values[begin : begin + size - at]
        folded[at : at + part.size] += part
        begin, at = begin + part.size, 0
    return np.asarray(fft.rfft(folded))
