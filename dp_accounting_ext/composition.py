"""Composition at the query: sums of privacy losses, tilted to where δ is read.

Laws are kept with their counts; the loss interval, the tilt and the window are
chosen anew for each question. So a small δ is as accurate as a large one.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import fft
from scipy import optimize

from dp_accounting_ext import dominating_pair
from dp_accounting_ext import loss_distribution
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import profile
from dp_accounting_ext.kernels import sums

Bound = dominating_pair.Bound
LossDistribution = loss_distribution.LossDistribution
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

# A lattice this fine moves ε by less than 1e-5, relatively.
_CELLS_PER_DEVIATION = 100.0
_MOST_POINTS = 1 << 21
_UPPER_EXPONENT = 28.0
_LOWER_EXPONENT = 45.0
_LEAST_EXPONENT = 6.0
_DEVIATIONS_BELOW = 1.0  # How far below its centre a composed loss is kept.
_LARGEST_EXPONENT = 700.0
_SKETCH_SIZE = 2048
_RARE = 1e-7  # Share of δ that may become infinite.
_NEGLIGIBLE = 1e-12  # Share of a law that may be moved to the safe side.
_TRIES = 6
_COARSEST = 1.0
_TILT_DOUBLINGS = 10  # From one over the standard deviation.


@dataclasses.dataclass(frozen=True)
class _Window:
    """Losses between which a tilted law lies, and the tilt changes that show it.

    Attributes:
        low: Lower end.
        high: Upper end.
        changes: Changes of the tilt with which Chernoff's bound gives the ends.
        deviation: Standard deviation of the tilted law.
    """

    low: float
    high: float
    changes: tuple[float, ...]
    deviation: float


class _Sketch:
    """A few thousand atoms of each law, to find the tilt with; nothing certified."""

    def __init__(self, laws: Sequence[LossDistribution]) -> None:
        self._laws = []
        for law in laws:
            chunks = np.linspace(0, law.losses.size, _SKETCH_SIZE, False).astype(int)
            starts = np.unique(chunks)
            masses = np.add.reduceat(law.masses, starts)
            means = np.add.reduceat(law.masses * law.losses, starts)
            kept = masses > 0
            self._laws.append(
                (law.count, means[kept] / masses[kept], np.log(masses[kept]))
            )
        self.deviation = math.sqrt(max(self.cumulants(0.0)[2], 1e-200))

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """Returns ln E e^{tilt · loss} and its first two derivatives."""
        value = mean = variance = 0.0
        for count, losses, log_masses in self._laws:
            exponents = log_masses + tilt * losses
            largest = float(exponents.max())
            weights = np.exp(exponents - largest)
            total = float(weights.sum())
            centre = sums.dot(weights, losses) / total
            value += count * (largest + math.log(total))
            mean += count * centre
            variance += count * sums.dot(weights, (losses - centre) ** 2) / total
        return value, mean, variance

    def window(self, tilt: float, bound: Bound) -> _Window:
        """Returns between what losses the tilted law lies, nearly (Chernoff).

        What folds onto the window is lost to a lower bound, which so needs a wide
        one. For an upper bound it counts too much, and little: what lies below
        folds onto the top, where tilting back makes it small.
        """
        here, mean, variance = self.cumulants(tilt)
        deviation = max(math.sqrt(variance), 1e-9 * self.deviation)

        def end(sign: float, exponent: float) -> tuple[float, float]:
            bounds = []
            for change in np.geomspace(0.3, 20.0, 12) / deviation:
                moment = self.cumulants(tilt + sign * change)[0] - here
                bounds.append(((moment + exponent) / change, float(change)))
            return min(bounds)

        if bound is Bound.LOWER:
            high, low = end(1.0, _LOWER_EXPONENT), end(-1.0, _LOWER_EXPONENT)
        else:
            high = end(1.0, _UPPER_EXPONENT)
            folded = 0.7 * tilt * (high[0] - mean)
            low = end(-1.0, max(_UPPER_EXPONENT - folded, _LEAST_EXPONENT))
        return _Window(-low[0], high[0], (low[1], high[1]), deviation)

    def tilt_for_epsilon(self, epsilon: float) -> float:
        """Returns the tilt ≥ 0 that centres the loss on epsilon, about."""
        low, high = 0.0, 1 / self.deviation
        if self.cumulants(low)[1] >= epsilon:
            return low
        for _ in range(_TILT_DOUBLINGS):
            if self.cumulants(high)[1] >= epsilon:
                break
            high *= 2.0
        else:
            return high
        return float(
            optimize.brentq(
                lambda x: self.cumulants(x)[1] - epsilon, low, high, rtol=1e-3
            )
        )

    def tilt_for_delta(self, delta: float) -> float:
        """Returns the tilt that centres the loss on ε(delta), by the saddle point."""
        goal = math.log(delta)

        def excess(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            value, mean, variance = self.cumulants(tilt)
            spread = 0.5 * math.log(2 * math.pi * max(variance, 1e-200))
            # Where the loss is almost constant there is no density to speak of.
            prefactor = max(log_tilt + math.log1p(tilt) + spread, 0.0)
            return value - tilt * mean - prefactor - goal

        low = math.log(1e-6 / self.deviation)
        high = math.log(2.0**_TILT_DOUBLINGS / self.deviation)
        if excess(low) < 0:
            return 0.0
        if excess(high) > 0:
            return math.exp(high)
        return math.exp(optimize.brentq(excess, low, high, xtol=1e-2))


@dataclasses.dataclass(frozen=True)
class _Atoms:
    """A composed loss near ε: what is counted, from the largest loss down.

    Masses `cost` are relative to e^{origin}: δ(ε) = sink + Σ (gain −
    e^{ε − origin} cost)_+.
    """

    origin: float
    losses: FloatArray
    gain: FloatArray
    cost: FloatArray
    sink: float
    mass_error: float
    ratio_error: float
    bound: Bound

    def _allowance(self) -> tuple[float, float]:
        return dominating_pair.allowance(
            self.bound, self.gain.size, self.mass_error, self.ratio_error
        )

    def delta(self, epsilon: float) -> float:
        shift, factor = self._allowance()
        kappa = math.exp(epsilon + shift - self.origin)
        terms = np.maximum(self.gain - kappa * self.cost, 0.0)
        return min(max(factor * (self.sink + float(terms.sum())), 0.0), 1.0)

    def epsilon(self, delta: float) -> float:
        shift, factor = self._allowance()
        if factor == 0:
            return 0.0
        kappa = profile.log_kappa(self.gain, self.cost, self.sink, delta / factor)
        return self.origin + kappa - shift


def _without_high(law: LossDistribution, dropped: float) -> LossDistribution:
    """Returns the law without its highest losses, which are rare.

    They become infinite (upper bounds) or are dropped (lower bounds).
    """
    above = np.cumsum(law.masses[::-1])[::-1] * law.count
    high = max(int(np.searchsorted(-above, -dropped)), 1)
    infinity_mass = law.infinity_mass
    if law.bound is Bound.UPPER:
        infinity_mass += float(law.masses[high:].sum()) * (1 + 1e-9)
    return dataclasses.replace(
        law,
        losses=law.losses[:high],
        masses=law.masses[:high],
        infinity_mass=infinity_mass,
    )


def _without_low(law: LossDistribution, tilt: float) -> LossDistribution:
    """Returns the law without low losses that no answer at this tilt depends on.

    They are raised (upper bounds) or dropped (lower bounds).
    """
    with np.errstate(divide="ignore"):
        exponents = np.log(law.masses) + tilt * law.losses
    weights = np.exp(exponents - exponents.max())
    share = np.cumsum(weights) / weights.sum()
    low = int(np.searchsorted(share, _NEGLIGIBLE / law.count))
    masses = law.masses[low:].copy()
    if law.bound is Bound.UPPER:
        masses[0] += law.masses[:low].sum()
    return dataclasses.replace(law, losses=law.losses[low:], masses=masses)


def _factors(
    law: LossDistribution, interval: float
) -> tuple[lattice.Factor, lattice.Factor | None]:
    """Returns a law on the loss lattice: split (upper) or grouped (lower).

    A split keeps both masses, and its Q-masses follow from its P-masses. A
    group has Q-masses of its own; they are relative to e^{−loss} at its index.
    """
    positions = law.losses / interval
    if law.bound is Bound.UPPER:
        cells = np.floor(positions).astype(np.int64)
        start = int(cells[0])
        size = int(cells[-1]) - start + 2
        raised = np.expm1(interval * (cells - positions)) / math.expm1(-interval)
        raised = np.clip(raised, 0.0, 1.0) * law.masses
        masses = sums.gather(cells - start, law.masses - raised, size)
        masses += sums.gather(cells - start + 1, raised, size)
        return lattice.Factor(start, masses, law.count), None
    cells = np.rint(positions).astype(np.int64)
    start = int(cells[0])
    size = int(cells[-1]) - start + 1
    masses = sums.gather(cells - start, law.masses, size)
    others = law.masses * np.exp(interval * (cells - positions))
    other_masses = sums.gather(cells - start, others, size)
    return (
        lattice.Factor(start, masses, law.count),
        lattice.Factor(start, other_masses, law.count),
    )


def _compose(
    laws: Sequence[LossDistribution],
    tilt: float,
    centre: float,
    window: _Window,
    interval: float,
) -> _Atoms:
    """Returns the composed loss in a window around `centre`.

    Args:
        laws: What is composed.
        tilt: Tilt that centres the composed loss there.
        centre: Where the profile is read.
        window: The losses between which the tilted law lies, nearly.
        interval: The loss interval.
    """
    laws = [_without_low(law, tilt) for law in laws]
    bound = laws[0].bound
    first = math.floor(min(window.low, centre - window.deviation) / interval) - 2
    size = math.ceil(max(window.high, centre) / interval) + 3 - first
    size = fft.next_fast_len(size, real=True)
    last = first + size - 1
    factors = [_factors(law, interval) for law in laws]
    counts = [law.count for law in laws]
    changes = [change * interval for change in window.changes]
    tilted = lattice.TiltedSum([p for p, _ in factors], tilt * interval, size, changes)
    values = tilted.masses(counts, first)
    # Losses far below where the profile is read count for nothing there.
    lowest = max(
        first, math.floor((centre - _DEVIATIONS_BELOW * window.deviation) / interval)
    )
    indices = np.arange(last, lowest - 1, -1, dtype=np.int64)
    kept = slice(size - 1, lowest - first - 1 if lowest > first else None, -1)
    losses = indices.astype(np.float64) * interval
    scale = values.scale(indices)
    mass_error = sum(law.count * law.mass_error for law in laws) + tilted.mass_error()
    ratio_error = sum(law.count * law.ratio_error for law in laws)
    sink = _infinity_mass(laws)
    if bound is Bound.UPPER:
        gain = (np.maximum(values.values[kept], 0.0) + values.noise) * scale
        gain = np.minimum(gain, 1.0)
        cost = gain * np.exp(np.minimum(centre - losses, _LARGEST_EXPONENT))
        sink += tilted.mass_above(counts, last + 1)
    else:
        others = lattice.TiltedSum(
            [q for _, q in factors if q is not None], tilt * interval, size, changes
        )
        other = others.masses(counts, first)
        noise = values.noise + tilted.folded_mass(counts, first, last)
        gain = np.maximum(values.values[kept] - noise, 0.0) * scale
        cost = np.maximum(other.values[kept], 0.0) + other.noise
        exponent = other.log_scale - other.tilt * indices + (centre - losses)
        cost *= np.exp(np.minimum(exponent, _LARGEST_EXPONENT))
        gain[exponent > _LARGEST_EXPONENT] = 0.0
        mass_error += others.mass_error()
        # Gains and costs of a group are off each by its own rounding.
        ratio_error += 2 * mass_error
    return _Atoms(
        origin=centre,
        losses=losses,
        gain=gain,
        cost=cost,
        sink=sink,
        mass_error=mass_error,
        ratio_error=ratio_error,
        bound=bound,
    )


def _single(law: LossDistribution) -> _Atoms:
    """Returns the atoms of one law, which need no lattice."""
    gain = law.masses[::-1]
    losses = law.losses[::-1]
    return _Atoms(
        origin=0.0,
        losses=losses,
        gain=gain,
        cost=gain * np.exp(np.clip(-losses, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)),
        sink=law.infinity_mass,
        mass_error=law.mass_error,
        ratio_error=law.ratio_error,
        bound=law.bound,
    )


def _infinity_mass(laws: Sequence[LossDistribution]) -> float:
    """Returns the probability that any loss is infinite."""
    if any(law.infinity_mass >= 1 for law in laws):
        return 1.0
    return -math.expm1(sum(law.count * math.log1p(-law.infinity_mass) for law in laws))


class Composition:
    """The composition of privacy losses in one direction.

    Args:
        laws: All upper or all lower bounds; of none the loss is zero.
        interval: The loss interval, in nats, at most.

    Guarantees:
        `delta` and `epsilon` are on the side of `laws`, whatever the interval.

    Source:
        https://arxiv.org/abs/2106.08567, Theorem 10 (composition).
    """

    def __init__(self, laws: Sequence[LossDistribution], interval: float) -> None:
        self._laws = [law for law in laws if law.masses.size or law.infinity_mass]
        self._interval = interval

    @functools.cached_property
    def _sketch(self) -> _Sketch:
        return _Sketch(self._laws)

    def _without_high(self, delta: float) -> "Composition":
        """Returns the same without losses too rare to matter at δ."""
        dropped = _RARE * delta / len(self._laws)
        laws = [_without_high(law, dropped) for law in self._laws]
        return Composition(laws, self._interval)

    def _around(self, tilt: float, centre: float) -> _Atoms:
        window = self._sketch.window(tilt, self._laws[0].bound)
        low, high = min(window.low, centre), max(window.high, centre)
        interval = self._interval_for(tilt, high - low + window.deviation)
        return _compose(self._laws, tilt, centre, window, interval)

    def _interval_for(self, tilt: float, width: float) -> float:
        """Returns the loss interval: fine beside the losses, no coarser than asked.

        Only where the window would need more than `_MOST_POINTS` is it coarser.
        """
        copies = sum(law.count for law in self._laws)
        deviation = math.sqrt(self._sketch.cumulants(tilt)[2])
        deviation = min(deviation, self._sketch.deviation) / math.sqrt(copies)
        fine = deviation / _CELLS_PER_DEVIATION
        smallest = min(fine, self._interval) if fine > 0 else self._interval
        return max(min(smallest, _COARSEST), width / _MOST_POINTS)

    def delta(self, epsilon: float) -> float:
        """Returns a certified δ at ε, in nats."""
        if not self._laws:
            return max(0.0, -math.expm1(epsilon))
        if self._is_single():
            return _single(self._laws[0]).delta(epsilon)
        if self._is_infinite() or epsilon >= self._largest_loss():
            return self._beyond_all_losses()
        tilt = self._sketch.tilt_for_epsilon(epsilon)
        value, mean, _ = self._sketch.cumulants(tilt)
        about = math.exp(min(value - tilt * mean, 0.0))
        for _ in range(_TRIES):
            shorter = self._without_high(about)
            tilt = shorter._sketch.tilt_for_epsilon(epsilon)
            delta = shorter._around(tilt, epsilon).delta(epsilon)
            if about <= 10 * delta:
                break
            about = delta
        return delta

    def epsilon(self, delta: float) -> float:
        """Returns a certified ε ≥ 0 at δ in (0, 1), in nats."""
        if not self._laws:
            return 0.0
        if self._is_single():
            return max(_single(self._laws[0]).epsilon(delta), 0.0)
        if self._beyond_all_losses() > delta:
            return math.inf
        if self._is_infinite():
            return 0.0
        return self._without_high(delta)._search(delta)

    def _search(self, delta: float) -> float:
        """Returns ε at δ: a guess by the saddle point, then the profile there."""
        tilt = self._sketch.tilt_for_delta(delta)
        centre = self._sketch.cumulants(tilt)[1]
        if centre <= 0:
            centre = 0.0
            tilt = self._sketch.tilt_for_epsilon(centre)
        for _ in range(_TRIES):
            atoms = self._around(tilt, centre)
            epsilon = atoms.epsilon(delta)
            lowest, highest = float(atoms.losses[-1]), float(atoms.losses[0])
            if lowest <= max(epsilon, 0.0) <= highest:
                return max(epsilon, 0.0)
            centre = min(max(epsilon, lowest, 0.0), highest)
            tilt = self._sketch.tilt_for_epsilon(centre)
        if self._laws[0].bound is Bound.LOWER:
            return 0.0
        return self._chernoff(delta)

    def _is_single(self) -> bool:
        return len(self._laws) == 1 and self._laws[0].count == 1

    def _is_infinite(self) -> bool:
        """Tells whether some law has nothing but an infinite loss."""
        return any(not law.masses.any() for law in self._laws)

    def _largest_loss(self) -> float:
        """Returns the largest finite loss of the composition."""
        largest = sum(law.count * float(law.losses[-1]) for law in self._laws)
        error = sum(law.count * law.ratio_error for law in self._laws)
        return largest + error + 1e-12 * abs(largest)

    def _beyond_all_losses(self) -> float:
        """Returns a certified δ for an ε that no finite loss exceeds."""
        factor = dominating_pair.allowance(
            self._laws[0].bound,
            len(self._laws),
            sum(law.count * law.mass_error for law in self._laws),
            0.0,
        )[1]
        return min(factor * _infinity_mass(self._laws), 1.0)

    def _chernoff(self, delta: float) -> float:
        """Returns ε with P(loss > ε) ≤ δ, which is valid if not tight."""
        best = math.inf
        infinity = sum(law.count * law.infinity_mass for law in self._laws)
        if infinity >= delta:
            return best
        for tilt in np.geomspace(1e-3, 1e3, 61) / self._sketch.deviation:
            moment = 0.0
            for law in self._laws:
                with np.errstate(divide="ignore"):
                    exponents = np.log(law.masses) + tilt * law.losses
                moment += law.count * float(np.logaddexp.reduce(exponents))
            best = min(best, (moment - math.log(delta - infinity)) / tilt)
        return max(best * (1 + 1e-9), 0.0)
