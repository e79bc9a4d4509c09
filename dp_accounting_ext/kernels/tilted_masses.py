"""Masses of a sum on the safe side, from its law under several tilts.

A transform's noise is absolute, so each tilt shows one part of the law only. An upper
bound on a mass is the least that any tilt allows. A lower one also lacks what folds
around the circle, which grows with the part of the line that a tilt must answer for:
every index belongs to the one tilt whose noise is least there.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import lattice

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

# Tuning: what may fold onto the largest mass that a tilt answers for, relatively. Where
# more does, the tilt is left out. Half and twice it: the same k-out-of-t lower bounds.
_MOST_FOLDED = 1e-4


def raised(
    sums: Sequence[lattice.TiltedSum],
    counts: Sequence[int],
    indices: IndexArray,
    log_factors: FloatArray | float = 0.0,
) -> FloatArray:
    """Returns (n,) upper bounds on the masses of a sum.

    Args:
        sums: The sum under one or more tilts.
        counts: Copies of each of its factors.
        indices: (n,) consecutive lattice indices, no more than the circles have.
        log_factors: (n,) logarithms of what the masses are multiplied by.

    Guarantees:
        No mass is larger, but for the tilts' own `mass_error`. Where e^700 is too
        small a scale the bound is above e^600.
    """
    least = np.full(indices.size, np.inf)
    for tilted in sums:
        found = tilted.masses(counts, int(indices[0]))
        values = np.maximum(found.values[: indices.size], 0.0) + found.noise
        np.minimum(least, values * found.scale(indices, log_factors), out=least)
    return least


def owners(values: Sequence[lattice.TiltedValues], indices: IndexArray) -> list[slice]:
    """Returns, for each tilt, the positions of the indices where it errs least.

    These are ranges, as the logarithm of each noise is a line; some are empty.
    """
    if len(values) == 1:
        return [slice(0, indices.size)]
    best = np.argmin([value.log_noise(indices) for value in values], axis=0)
    own = [np.flatnonzero(best == number) for number in range(len(values))]
    return [slice(int(o[0]), int(o[-1]) + 1) if o.size else slice(0, 0) for o in own]


class LeastNoise:
    """Masses of a sum, each under the tilt whose noise is least there.

    The mass at the i-th index is values[i] · scale[i], and the error at most
    noise[i] · scale[i], but for the tilts' own `mass_error`. A value is too large by
    what folds onto it, which the noise counts.

    Args:
        sums: The sum under one or more tilts.
        counts: Copies of each of its factors.
        indices: (n,) consecutive lattice indices, no more than the circles have.
        log_factors: (n,) logarithms of what the masses are multiplied by.

    Attributes:
        sums: Those of the tilts that answer for some index.
        values: (n,) tilted masses.
        noise: (n,) bounds on their errors.
        scale: (n,) what undoes the tilt, times the factors.
    """

    def __init__(
        self,
        sums: Sequence[lattice.TiltedSum],
        counts: Sequence[int],
        indices: IndexArray,
        log_factors: FloatArray | float = 0.0,
    ) -> None:
        self._counts = counts
        self._first = int(indices[0])
        found = [tilted.masses(counts, self._first) for tilted in sums]
        parts = _that_do_not_fold(sums, found, counts, indices)
        self.sums = [tilted for tilted, _, _, _ in parts]
        self._owners = [own for _, _, own, _ in parts]
        self._folded = [folded for _, _, _, folded in parts]
        self.values, self.noise, self.scale = np.zeros((3, indices.size))
        log_factors = np.broadcast_to(log_factors, indices.shape)
        for _, value, own, folded in parts:
            self.values[own] = value.values[own]
            self.noise[own] = value.noise + folded
            self.scale[own] = value.scale(indices[own], log_factors[own])

    def lowered(self) -> FloatArray:
        """Returns (n,) lower bounds on the masses."""
        bounds: FloatArray = np.maximum(self.values - self.noise, 0.0) * self.scale
        return bounds

    def estimated(self) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) positive masses, and bounds on their relative errors."""
        positive = np.maximum(self.values, self.noise * 1e-3)
        return positive * self.scale, self.noise / positive

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) tilted masses times mean offsets, and bounds on their errors."""
        moments, noise = np.zeros((2, self.values.size))
        for tilted, own, folded in zip(
            self.sums, self._owners, self._folded, strict=True
        ):
            found = tilted.moments(self._counts, self._first)
            moments[own] = found.values[own]
            noise[own] = found.noise + folded * tilted.largest_offset()
        return moments, noise


# A tilt, its masses, the positions that it answers for, and what folds onto them.
_Part = tuple[lattice.TiltedSum, lattice.TiltedValues, slice, float]


def _that_do_not_fold(
    sums: Sequence[lattice.TiltedSum],
    values: Sequence[lattice.TiltedValues],
    counts: Sequence[int],
    indices: IndexArray,
) -> list[_Part]:
    """Returns the tilts that answer for some index, and know its mass; one at least.

    The law under any other has left the circle, and what folds back is no mass.
    """
    while True:
        parts = [
            (tilted, value, own, _folded(tilted, counts, indices[own]))
            for tilted, value, own in zip(
                sums, values, owners(values, indices), strict=True
            )
            if own.stop
        ]
        shares = [
            folded / peak if (peak := float(value.values[own].max())) > 0 else 0.0
            for _, value, own, folded in parts
        ]
        worst = int(np.argmax(shares))
        if len(values) == 1 or shares[worst] <= _MOST_FOLDED:
            return parts
        left = [value is not parts[worst][1] for value in values]
        sums = [tilted for tilted, kept in zip(sums, left, strict=True) if kept]
        values = [value for value, kept in zip(values, left, strict=True) if kept]


def _folded(
    tilted: lattice.TiltedSum, counts: Sequence[int], indices: IndexArray
) -> float:
    return tilted.folded_mass(counts, int(indices[0]), int(indices[-1]))
