"""The dominating pair of a composition, for what is sampled as a whole.

Subsampling and allocation need both tails of Z = dP/dQ under Q, each relatively
accurate: a mass at a loss of −30 counts e^{30} times in P's law of a sample. So
the composed law is computed under several tilts, and every loss takes the one
whose noise is least there.
"""

from collections.abc import Sequence
import math

import numpy as np
import numpy.typing as npt
from scipy import fft

from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.composition import saddle_point
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.kernels import tilted_masses
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]
PairWithCount = tuple[dominating_pair.DominatingPair, int]

# Tuning. In brackets: gap and time for half of it, and twice, over what they are for a
# Poisson sample of 30 Laplace runs.
_CELLS_PER_DEVIATION = 300.0  # In the average run's. (9 and 0.8, 0.8 and 1.3.)
_DIVERGENCE = 12.0  # Of laws under neighbouring tilts, in nats. (1 and 1, 1.1 and 0.9.)
_MARGIN = 12.0  # Of the circle around the window, in standard deviations. (The same.)
_MOST_TILTS = 40  # A limit.
_FINEST = 1e-12  # The least interval over the largest loss, for an index's digits.
_MOST_POINTS = 1 << 19  # Bounds the memory: 4 MB an array and tilt.
# The relative errors that masses of a lower bound may have, tried in turn until no more
# mass than this must be dropped. (The same.)
_ERRORS = (1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5)
_MOST_DROPPED = 1e-12


def compose(
    pairs: Sequence[PairWithCount], *, tail_mass: float
) -> dominating_pair.DominatingPair:
    """Returns the pair of a composition.

    Args:
        pairs: Pairs with the number of runs of each; all upper, or all lower.
        tail_mass: Probability that may be moved to the sinks (of an upper bound)
            or dropped (of a lower one), on either side.

    Guarantees:
        Upper (lower) pairs give an upper (lower) pair, in both directions.

    Source:
        https://arxiv.org/abs/2106.08567, Theorem 10 (composition).
    """
    if len(pairs) == 1 and pairs[0][1] == 1:
        return pairs[0][0]
    copies = sum(count for _, count in pairs)
    pairs = [
        (dominating_pair.without_tails(pair, tail_mass / copies), count)
        for pair, count in pairs
    ]
    laws = [
        loss_distribution.from_pair(pair, dominating_pair.Direction.REMOVE, count)
        for pair, count in pairs
    ]
    if not all(law.masses.any() for law in laws):
        return dominating_pair.trivial_pair(laws[0].bound)
    if all(law.losses.size == 1 for law in laws):
        return _constant(pairs)
    sketch = saddle_point.LossSketch(laws)
    low, high = _ends(sketch, tail_mass)
    interval = sketch.deviation / (_CELLS_PER_DEVIATION * math.sqrt(copies))
    largest = max(float(np.abs(law.losses).max()) for law in laws)
    interval = max(interval, (high - low) / _MOST_POINTS, _FINEST * largest)
    least = sum(law.count * float(law.losses[0]) for law in laws)
    most = sum(law.count * float(law.losses[-1]) for law in laws)
    tilts = _tilts(sketch, max(low, least), min(high, most))
    composed = _Lattice(laws, sketch, interval, low, high, tilts)
    infinity_mass = sums.probability_of_any(
        [(pair.infinity_mass, count) for pair, count in pairs]
    )
    zero_mass = sums.probability_of_any(
        [(pair.zero_mass, count) for pair, count in pairs]
    )
    if laws[0].bound is Bound.UPPER:
        return composed.upper(infinity_mass, zero_mass)
    return composed.lower(infinity_mass, zero_mass)


def _constant(pairs: Sequence[PairWithCount]) -> dominating_pair.DominatingPair:
    """Returns the composition of pairs with one finite ratio each."""
    log_ratio = sum(count * math.log(pair.ratios[-1]) for pair, count in pairs)
    if abs(log_ratio) > floats.LARGEST_LOSS:
        return dominating_pair.trivial_pair(pairs[0][0].bound)
    mass = math.prod(float(pair.masses.sum()) ** count for pair, count in pairs)
    copies = sum(count for _, count in pairs)
    rounding = 64 * (copies + abs(log_ratio)) * floats.UNIT_ROUNDOFF
    return dominating_pair.DominatingPair(
        np.array([math.exp(log_ratio)]),
        np.array([mass]),
        sums.probability_of_any([(pair.infinity_mass, count) for pair, count in pairs]),
        sums.probability_of_any([(pair.zero_mass, count) for pair, count in pairs]),
        pairs[0][0].bound,
        rounding + sum(count * pair.mass_error for pair, count in pairs),
        rounding + sum(count * pair.ratio_error for pair, count in pairs),
    )


def _ends(sketch: saddle_point.LossSketch, tail_mass: float) -> tuple[float, float]:
    """Returns between what losses P and Q lie, but for the tails (Chernoff)."""
    exponent = -math.log(tail_mass)
    low, high = -floats.LARGEST_LOSS, floats.LARGEST_LOSS
    for change in np.geomspace(1e-2, 1e3, 60) / sketch.deviation:
        high = min(high, (sketch.cumulants(change)[0] + exponent) / change)
        low = max(low, -(sketch.cumulants(-1 - change)[0] + exponent) / change)
    # For lower bounds that lack much of their mass the two ends cross.
    return (low, high) if low < high else (high, low)


def _tilts(sketch: saddle_point.LossSketch, low: float, high: float) -> list[float]:
    """Returns tilts whose centres go from the low end to the high one.

    Neighbours overlap: of two laws with a divergence of a few nats either way, one
    has masses far above the noise wherever the other has not.
    """
    tilt, last = sketch.tilt_for_mean(low), sketch.eased(sketch.tilt_for_mean(high))
    tilts = [tilt]
    value, mean, variance = sketch.cumulants(tilt)
    while tilt < last and len(tilts) < _MOST_TILTS:
        step = math.sqrt(2 * _DIVERGENCE / max(variance, 1e-6 * sketch.deviation**2))
        step = min(step, last - tilt)
        while True:
            there = sketch.cumulants(tilt + step)
            rise = there[0] - value
            if max(rise - step * mean, step * there[1] - rise) <= 1.5 * _DIVERGENCE:
                break
            step /= 2
        tilt += step
        value, mean, variance = there
        tilts.append(tilt)
    return tilts


class _Lattice:
    """A composed law on a loss lattice, under several tilts.

    Args:
        laws: What is composed, its losses under P.
        sketch: The same in a few thousand atoms.
        interval: The loss interval.
        low: Lowest loss wanted.
        high: Highest loss wanted.
        tilts: Tilts, per nat.
    """

    def __init__(
        self,
        laws: Sequence[loss_distribution.LossDistribution],
        sketch: saddle_point.LossSketch,
        interval: float,
        low: float,
        high: float,
        tilts: Sequence[float],
    ) -> None:
        self._laws = laws
        self._interval = interval
        self._counts = [law.count for law in laws]
        factors = [loss_distribution.on_lattice(law, interval) for law in laws]
        self._factors = [p for p, _ in factors]
        self._others = [q for _, q in factors if q is not None]
        self._bottom = sum(f.count * f.start for f in self._factors)
        self._top = sum(f.count * int(f.indices[-1]) for f in self._factors)
        first = max(math.floor(low / interval) - 1, self._bottom)
        last = min(math.ceil(high / interval) + 1, self._top)
        self._indices = np.arange(first, last + 1, dtype=np.int64)
        window = last - first + 1
        margin = math.ceil(_MARGIN * sketch.deviation / interval)
        if laws[0].bound is Bound.LOWER:
            # What folds onto the window is taken off.
            margin = max(margin, 4 * window)
        size = min(window + margin, self._top - self._bottom + 1)
        self._size = int(fft.next_fast_len(size, real=True))
        self._tilts = [tilt * interval for tilt in tilts]
        self._tilted = [self._sum(self._factors, tilt) for tilt in self._tilts]

    def _sum(self, factors: Sequence[lattice.Factor], tilt: float) -> lattice.TiltedSum:
        changes = [change / self._size for change in (8.0, 30.0, 60.0, 120.0)]
        return lattice.TiltedSum(factors, tilt, self._size, changes)

    def _errors(self) -> tuple[float, float]:
        """Returns bounds on the relative errors of masses and of ratios."""
        mass_error = sum(law.count * law.mass_error for law in self._laws)
        ratio_error = sum(law.count * law.ratio_error for law in self._laws)
        rounding = 4 * floats.UNIT_ROUNDOFF * (2 + 2 * floats.LARGEST_LOSS)
        mass_error += max(tilted.mass_error() for tilted in self._tilted)
        return mass_error + rounding, ratio_error + rounding

    def upper(
        self, infinity_mass: float, zero_mass: float
    ) -> dominating_pair.DominatingPair:
        """Returns the upper pair: noise is added, what lies outside goes to sinks."""
        masses = tilted_masses.raised(self._tilted, self._counts, self._indices)
        masses = np.minimum(masses, loss_distribution.most_mass(self._laws))
        losses = self._indices * self._interval
        # All that is below 1e-300 under either law counts as infinite.
        q_masses = masses * np.exp(-losses)
        kept = (masses > floats.SMALLEST_MASS) & (q_masses > floats.SMALLEST_MASS)
        lost = losses.size * floats.SMALLEST_MASS
        mass_error, ratio_error = self._errors()
        infinity_mass += self._above() + lost + float(masses[~kept].sum())
        zero_mass += self._below() + lost + float(q_masses[~kept].sum())
        return dominating_pair.DominatingPair(
            np.exp(losses[kept]),
            q_masses[kept],
            infinity_mass=min(floats.raised(infinity_mass), 1.0),
            zero_mass=min(floats.raised(zero_mass), 1.0),
            bound=Bound.UPPER,
            mass_error=mass_error,
            ratio_error=ratio_error,
        )

    def _above(self) -> float:
        """Bounds P's mass above the lattice (Chernoff)."""
        end = int(self._indices[-1])
        if end >= self._top:
            return 0.0
        exponents = [
            tilted.log_moment(self._counts) - tilted.tilt * (end + 1)
            for tilted in self._tilted
            if tilted.tilt >= 0
        ]
        return floats.raised(math.exp(min(exponents, default=0.0)))

    def _below(self) -> float:
        """Bounds Q's mass below the lattice (Chernoff)."""
        end = int(self._indices[0])
        if end <= self._bottom:
            return 0.0
        exponents = [
            tilted.log_moment(self._counts) - (tilted.tilt + self._interval) * (end - 1)
            for tilted in self._tilted
            if tilted.tilt <= -self._interval
        ]
        return floats.raised(math.exp(min(exponents, default=0.0)))

    def lower(
        self, infinity_mass: float, zero_mass: float
    ) -> dominating_pair.DominatingPair:
        """Returns the lower pair: groups whose masses are not certain are dropped."""
        gain, cost, error = self._groups()
        positive = (gain > floats.SMALLEST_MASS) & (cost > floats.SMALLEST_MASS)
        for worst in _ERRORS:
            kept = positive & (error <= worst)
            dropped = positive & ~kept
            if max(gain[dropped].sum(), cost[dropped].sum()) <= _MOST_DROPPED:
                break
        worst = float(error[kept].max(initial=0.0))
        ratios = gain[kept] / cost[kept]
        order = np.argsort(ratios, kind="stable")
        mass_error, ratio_error = self._errors()
        # P's masses and Q's have a transform each. Those of the laws count as exact.
        tilting = 2 * max(tilted.mass_error() for tilted in self._tilted)
        return dominating_pair.DominatingPair(
            ratios[order],
            cost[kept][order],
            infinity_mass=floats.lowered(infinity_mass),
            zero_mass=floats.lowered(zero_mass),
            bound=Bound.LOWER,
            mass_error=mass_error + tilting + 2 * worst,
            ratio_error=ratio_error + 2 * tilting + 4 * worst,
        )

    def _groups(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Returns (n,) P-masses, Q-masses, and bounds on their relative errors."""
        p = tilted_masses.LeastNoise(self._tilted, self._counts, self._indices)
        q = tilted_masses.LeastNoise(
            [self._sum(self._others, tilted.tilt) for tilted in p.sums],
            self._counts,
            self._indices,
            -self._interval * self._indices.astype(np.float64),
        )
        (gain, gain_error), (cost, cost_error) = p.estimated(), q.estimated()
        return gain, cost, np.maximum(gain_error, cost_error)
