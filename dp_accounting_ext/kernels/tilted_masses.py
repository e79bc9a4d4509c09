"""Masses of a sum on the safe side, from its law under several tilts.

A transform's noise is absolute, so each tilt shows one part of the law only. An upper
bound on a mass is the least that any tilt allows. A lower one also lacks what folds
around the circle, which grows with the part of the line that a tilt must answer for:
every index belongs to the one tilt whose noise is least there.
"""

from collections.abc import Sequence
import dataclasses
import itertools

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import floats
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
    *,
    stencil: lattice.Stencil | None = None,
) -> FloatArray:
    """Returns (n,) upper bounds on the masses of a sum.

    Args:
        sums: The sum under one or more tilts.
        counts: Copies of each of its factors.
        indices: (n,) consecutive lattice indices, no more than the circles have; or
            consecutive multiples of a stencil's stride.
        log_factors: (n,) logarithms of what the masses are multiplied by.
        stencil: Which masses around an index are added up.

    Guarantees:
        No mass is larger, but for the tilts' own `mass_error`. Where e^700 is too
        small a scale the bound is above e^600.
    """
    least = np.full(indices.size, np.inf)
    for tilted in sums:
        found = tilted.masses(counts, int(indices[0]), stencil)
        values = np.maximum(found.values[: indices.size], 0.0) + found.noise
        np.minimum(least, values * found.scale(indices, log_factors), out=least)
    return least


def owners(
    values: Sequence[lattice.TiltedValues], indices: IndexArray
) -> list[tuple[int, slice]]:
    """Returns which tilt errs least where: its number, and a range of positions.

    The ranges follow one another. The logarithm of each noise is a line, so that a
    tilt has one of them, or none.
    """
    if len(values) == 1:
        return [(0, slice(0, indices.size))]
    best = np.argmin([value.log_noise(indices) for value in values], axis=0)
    ends = [0, *(np.flatnonzero(np.diff(best)) + 1).tolist(), indices.size]
    return [(int(best[a]), slice(a, b)) for a, b in itertools.pairwise(ends)]


@dataclasses.dataclass(frozen=True)
class _Part:
    """What one tilt says of the positions that it answers for.

    Attributes:
        tilted: The sum under that tilt.
        found: Its masses.
        own: The positions.
        folded: Bound on what folds onto them.
    """

    tilted: lattice.TiltedSum
    found: lattice.TiltedValues
    own: slice
    folded: float

    @property
    def values(self) -> FloatArray:
        return self.found.values[self.own]

    @property
    def noise(self) -> float:
        return self.found.noise + self.folded

    def share(self) -> float:
        """Returns what folds onto the largest mass, relatively."""
        largest = float(self.values.max())
        return self.folded / largest if largest > 0 else 0.0


class LeastNoise:
    """Masses of a sum, each under the tilt whose noise is least there.

    A tilted mass is too large by what folds onto it, which its noise counts.

    Args:
        sums: The sum under one or more tilts.
        counts: Copies of each of its factors.
        indices: (n,) consecutive lattice indices, no more than the circles have; or
            consecutive multiples of a stencil's stride.
        log_factors: (n,) logarithms of what the masses are multiplied by.
        stencil: Which masses around an index are added up.
    """

    def __init__(
        self,
        sums: Sequence[lattice.TiltedSum],
        counts: Sequence[int],
        indices: IndexArray,
        log_factors: FloatArray | float = 0.0,
        *,
        stencil: lattice.Stencil | None = None,
    ) -> None:
        self._counts = counts
        self._stencil = stencil
        self._indices = indices
        self._log_factors = np.broadcast_to(log_factors, indices.shape)
        first = int(indices[0])
        found = [tilted.masses(counts, first, stencil) for tilted in sums]
        self._parts = _that_do_not_fold(sums, found, counts, indices, stencil)

    @property
    def sums(self) -> list[lattice.TiltedSum]:
        """The sum under those tilts that answer for some index."""
        return [part.tilted for part in self._parts]

    def values(self) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) tilted masses, and bounds on their errors."""
        return (
            np.concatenate([part.values for part in self._parts]),
            np.concatenate([np.full(p.values.size, p.noise) for p in self._parts]),
        )

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) tilted masses times mean offsets, and bounds on their errors."""
        moments, noise = np.zeros((2, self._indices.size))
        first = int(self._indices[0])
        reach = 0 if self._stencil is None else self._stencil.reach
        for part in self._parts:
            found = part.tilted.moments(self._counts, first, self._stencil)
            moments[part.own] = found.values[part.own]
            offset = part.tilted.largest_offset() + reach
            noise[part.own] = found.noise + part.folded * offset
        return moments, noise

    def lowered(self) -> FloatArray:
        """Returns (n,) lower bounds on the masses."""
        return np.concatenate(
            [
                np.maximum(part.values - part.noise, 0.0) * self._scale(part)
                for part in self._parts
            ]
        )

    def estimated(self) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) positive masses, and bounds on their relative errors."""
        masses, errors = [], []
        for part in self._parts:
            positive = np.maximum(part.values, part.noise * 1e-3)
            masses.append(positive * self._scale(part))
            errors.append(part.noise / positive)
        return np.concatenate(masses), np.concatenate(errors)

    def _scale(self, part: _Part) -> FloatArray:
        """Returns what undoes the tilt of a part's masses, times their factors."""
        own = part.own
        return part.found.scale(self._indices[own], self._log_factors[own])


def _that_do_not_fold(
    sums: Sequence[lattice.TiltedSum],
    found: Sequence[lattice.TiltedValues],
    counts: Sequence[int],
    indices: IndexArray,
    stencil: lattice.Stencil | None,
) -> list[_Part]:
    """Returns the tilts that answer for some index, and know its mass; one at least.

    The law under any other has left the circle, and what folds back is no mass.
    """
    while True:
        parts = [
            _Part(
                sums[i], found[i], own, _folded(sums[i], counts, indices[own], stencil)
            )
            for i, own in owners(found, indices)
        ]
        worst = max(parts, key=_Part.share)
        if len(found) == 1 or worst.share() <= _MOST_FOLDED:
            return parts
        kept = [i for i in range(len(found)) if found[i] is not worst.found]
        sums, found = [sums[i] for i in kept], [found[i] for i in kept]


def _folded(
    tilted: lattice.TiltedSum,
    counts: Sequence[int],
    indices: IndexArray,
    stencil: lattice.Stencil | None,
) -> float:
    """Bounds what folds onto the masses around some indices, as they are weighed."""
    low, high = int(indices[0]), int(indices[-1])
    if stencil is None:
        return tilted.folded_mass(counts, low, high)
    mass = tilted.folded_mass(
        counts, low + int(stencil.offsets[0]), high + int(stencil.offsets[-1])
    )
    return floats.raised(mass * float(stencil.tilted(tilted.tilt).max()))
