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

from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.composition import saddle_point
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import profile
from dp_accounting_ext.kernels import tilted_masses
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
LossDistribution = loss_distribution.LossDistribution
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

# Certified: a cost above it may have been cut off (`tilted_masses.raised`).
_LARGEST_COST = math.exp(600.0)

# Tuning. In brackets: gap and time for half of it, and twice, over what they are for
# 10,000 Poisson samples of rate 0.01 and σ = 1 at δ = 1e-6.
_MOVED = 5e-6  # How far the lattice may move ε, relatively. (0.6 and 1.3, 1.4 and 0.8.)
_DEVIATIONS_BELOW = 1.0  # How far below its centre a composed loss is kept. (The same.)
_RARE = 1e-7  # Share of δ that may become infinite. (The same.)
_NEGLIGIBLE = 1e-12  # Share of a law that may move to the safe side. (The same.)
_TRIES = 6  # How often a window is moved to where ε is. (The same.)
_NEAR_THE_MEAN = 1.0  # The least tilt that an interval allows for, in deviations.
_LEAST_CENTRE = 0.1  # An ε near zero counts as so many deviations. (The same.)
_COARSEST = 1.0  # The largest loss interval, in nats. Not measured.
_FINEST = 1e-12  # The least one, over the largest loss, for the digits of an index.
_MOST_POINTS = 1 << 21  # Bounds the memory: 16 MB an array.


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
        log_kappa = epsilon + shift - self.origin
        total = self.sink
        # Above it no gain exceeds κ times its cost, which is e^−700 of it or more.
        if log_kappa < floats.LARGEST_EXPONENT:
            terms = np.maximum(self.gain - math.exp(log_kappa) * self.cost, 0.0)
            total += float(terms.sum())
        return min(max(factor * total, 0.0), 1.0)

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
        infinity_mass += floats.raised(float(law.masses[high:].sum()))
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


def _compose(
    laws: Sequence[LossDistribution],
    tilt: float,
    centre: float,
    window: saddle_point.Window,
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
    factors = [loss_distribution.on_lattice(law, interval) for law in laws]
    counts = [law.count for law in laws]
    changes = [change * interval for change in window.changes]
    tilted = lattice.TiltedSum([p for p, _ in factors], tilt * interval, size, changes)
    # Losses far below where the profile is read count for nothing there.
    lowest = max(
        first, math.floor((centre - _DEVIATIONS_BELOW * window.deviation) / interval)
    )
    indices = np.arange(lowest, last + 1, dtype=np.int64)
    losses = indices.astype(np.float64) * interval
    mass_error = sum(law.count * law.mass_error for law in laws) + tilted.mass_error()
    ratio_error = sum(law.count * law.ratio_error for law in laws)
    sink = loss_distribution.infinity_mass(laws)
    if bound is Bound.UPPER:
        gain = tilted_masses.raised([tilted], counts, indices)
        gain = np.minimum(gain, loss_distribution.most_mass(laws))
        cost = gain * np.exp(np.minimum(centre - losses, floats.LARGEST_EXPONENT))
        sink += tilted.mass_above(counts, last + 1)
    else:
        others = lattice.TiltedSum(
            [q for _, q in factors if q is not None],
            tilt * interval,
            size,
            changes,
            beside=tilted,
        )
        gain = tilted_masses.LeastNoise([tilted], counts, indices).lowered()
        cost = tilted_masses.raised([others], counts, indices, centre - losses)
        # Beyond it a cost may have been cut off; it outweighs any gain.
        gain[cost > _LARGEST_COST] = 0.0
        # The masses of a lower bound count as exact: what is less than the mechanism
        # is a share of them. So only what is between gains and costs moves a ratio.
        ratio_error += others.quotient_error()
    return _Atoms(
        origin=centre,
        losses=losses[::-1],
        gain=gain[::-1],
        cost=cost[::-1],
        sink=sink,
        mass_error=mass_error,
        ratio_error=ratio_error,
        bound=bound,
    )


def _single(law: LossDistribution) -> _Atoms:
    """Returns the atoms of one law, which need no lattice."""
    gain = law.masses[::-1]
    losses = law.losses[::-1]
    # A sum of many constant losses need not fit a float as a ratio.
    origin = float(losses[0]) if losses.size == 1 else 0.0
    largest = floats.LARGEST_EXPONENT
    exponents = np.clip(origin - losses, -largest, largest)
    return _Atoms(
        origin=origin,
        losses=losses,
        gain=gain,
        cost=gain * np.exp(exponents),
        sink=law.infinity_mass,
        mass_error=law.mass_error,
        ratio_error=law.ratio_error,
        bound=law.bound,
    )


def _constant(laws: Sequence[LossDistribution]) -> LossDistribution:
    """Returns the composition of laws with one finite loss each."""
    copies = sum(law.count for law in laws)
    loss = math.fsum(law.count * float(law.losses[0]) for law in laws)
    mass = math.prod(float(law.masses[0]) ** law.count for law in laws)
    rounding = 4 * (copies + abs(loss)) * floats.UNIT_ROUNDOFF
    return LossDistribution(
        losses=np.array([loss]),
        masses=np.array([mass]),
        infinity_mass=loss_distribution.infinity_mass(laws),
        count=1,
        bound=laws[0].bound,
        mass_error=rounding + sum(law.count * law.mass_error for law in laws),
        ratio_error=rounding + sum(law.count * law.ratio_error for law in laws),
    )


class ComposedLoss:
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
        known = [law for law in laws if law.masses.size or law.infinity_mass]
        if known and all(law.losses.size == 1 for law in known):
            known = [_constant(known)]
        self._laws = known
        self._interval = interval

    @functools.cached_property
    def _sketch(self) -> saddle_point.LossSketch:
        return saddle_point.LossSketch(self._laws)

    def _without_high(self, delta: float) -> "ComposedLoss":
        """Returns the same without losses too rare to matter at δ."""
        dropped = _RARE * delta / len(self._laws)
        laws = [_without_high(law, dropped) for law in self._laws]
        return ComposedLoss(laws, self._interval)

    def _around(self, tilt: float, centre: float) -> _Atoms:
        tilt = self._sketch.eased(tilt)
        window = self._sketch.window(tilt, self._laws[0].bound)
        low, high = min(window.low, centre), max(window.high, centre)
        interval = self._interval_for(tilt, centre, window.deviation)
        interval = max(interval, (high - low + window.deviation) / _MOST_POINTS)
        return _compose(self._laws, tilt, centre, window, interval)

    def _interval_for(self, tilt: float, centre: float, deviation: float) -> float:
        """Returns the loss interval: fine enough for ε, no coarser than asked.

        An interval h adds about h²/6 to the variance of each loss, which moves ε by
        n h² (1 + tilt) / 12; near its mean a narrow loss moves as if one over its
        deviation were the tilt.
        """
        copies = sum(law.count for law in self._laws)
        moved = _MOVED * max(centre, _LEAST_CENTRE * deviation)
        steepness = 1 + max(tilt, _NEAR_THE_MEAN / deviation)
        fine = math.sqrt(12 * moved / (copies * steepness))
        largest = max(float(np.abs(law.losses).max()) for law in self._laws)
        interval = max(min(fine, self._interval, _COARSEST), _FINEST * largest)
        # An atom at the end of the losses is better on the lattice than between.
        return largest / math.ceil(largest / interval) if largest else interval

    def delta(self, epsilon: float) -> float:
        """Returns a certified δ at ε, in nats."""
        if not self._laws:
            return max(0.0, -math.expm1(min(epsilon, 0.0)))
        if self._is_single():
            return _single(self._laws[0]).delta(epsilon)
        if self._is_infinite() or epsilon >= self._largest_loss():
            return self._beyond_all_losses()
        tilt = self._sketch.tilt_for_epsilon(epsilon)
        value, mean, _ = self._sketch.cumulants(tilt)
        about = math.exp(min(value - tilt * mean, 0.0))
        upper = self._laws[0].bound is Bound.UPPER
        best = 1.0 if upper else 0.0
        for _ in range(_TRIES):
            shorter = self._without_high(about)
            tilt = shorter._sketch.tilt_for_epsilon(epsilon)
            delta = shorter._around(tilt, epsilon).delta(epsilon)
            # Each is a bound; where the law has a heavy tail one may be loose.
            best = min(best, delta) if upper else max(best, delta)
            if about <= 10 * delta:
                break
            about = delta
        return best

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

    def is_heavy(self, epsilon: float, delta: float, above: float) -> bool:
        """Tells whether no tilt shows ε: all that any allows is far above δ.

        Args:
            epsilon: In nats.
            delta: What δ is there, about.
            above: How far above it Chernoff's bound is, in nats.
        """
        if not self._laws or self._is_single() or self._is_infinite() or delta <= 0:
            return False
        tilt = self._sketch.tilt_for_epsilon(epsilon)
        value, _, _ = self._sketch.cumulants(tilt)
        return value - tilt * epsilon > math.log(delta) + above

    def tests_above(self, tilt: float, centre: float) -> tuple[FloatArray, FloatArray]:
        """Returns what tests that reject the largest losses find, and what they spend.

        Of lower bounds: some test of the mechanism finds as much at no larger a rate.

        Args:
            tilt: The tilt under which losses are accurate; see `saddle_point`.
            centre: A loss that the tests go down to, and a little further.

        Returns:
            (n,) true positive rates, and (n,) false positive rates, both increasing.
        """
        atoms = self._around(tilt, centre)
        shift, factor = atoms._allowance()
        rounding = 2 * (atoms.gain.size + 16) * dominating_pair.UNIT_ROUNDOFF
        found = atoms.sink + np.cumsum(atoms.gain)
        found *= max(factor - rounding, 0.0)
        spent = np.cumsum(atoms.cost) * (1 + rounding)
        with np.errstate(over="ignore", divide="ignore"):
            spent = np.exp(np.log(spent) + (shift - atoms.origin)) * (1 + rounding)
        return np.minimum(found, 1.0), np.maximum(spent, floats.SMALLEST_MASS)

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
        return min(factor * loss_distribution.infinity_mass(self._laws), 1.0)

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
        return max(floats.raised(best), 0.0)
