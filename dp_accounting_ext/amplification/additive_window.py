"""Which part of the line a sum of ratios needs, and the tilts that reach it."""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import sketch
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair

FloatArray = npt.NDArray[np.float64]

# Tuning, all of it. In brackets: gap and time for half of it, and twice, over what they
# are for σ = 1, t = 1000 at δ = 1e-6.
_LARGE_RATE = 1e-3  # Expected number of large ratios in a sum. (0.6 and 1, 2 and 1.1.)
# Of rare tails fewer: the least expected number is so small a power of the tail, and
_RATE_POWER = 0.4
_RATE_STEP = 5.0  # is raised by so much, in logarithms, until
_LIGHT = 0.45  # the tilt of the window's end is so much of a Gaussian's,
_FURTHEST = 300.0  # and that end no further, in deviations without large ratios.
_LEAST_EXCESS = 6.0  # Of one over the mean, in deviations of the rest. (The same.)
_LARGEST_TILT = 0.7  # Over the tilt centred on the window's end. (1 and 1, 1 and 1.2.)
_TILT_SPACING = 9.0  # Of tilts' centres, in deviations. (1 and 1.15, 1 and 1.)
_TRIED = np.arange(-1.0, 1.3, 0.25)  # Logarithms of tilts that are tried at once.
_NEAREST_TILT = 0.05  # Of which this is known.
_SKETCHED = 512  # Atoms that a window is laid out for. (1 and 0.97, 1 and 1.1.)
_LEAST_SPREAD = 1e-12  # Of a sum's bulk over its mean: less is rounding.
_NEAR_THE_GOAL = 1e-6  # Relatively: of the end of a range, which is as likely as that.
_NEAR_THE_END = 0.01  # So near, in shares of its range, a sum is at its end.


@dataclasses.dataclass(frozen=True)
class Summand:
    """`count` independent copies of weight · Z, Z the ratio of a pair."""

    pair: dominating_pair.DominatingPair
    count: int
    weight: float = 1.0

    def places(self) -> FloatArray:
        """(n,) values of one copy."""
        return self.weight * self.pair.ratios

    def ordinary(self, threshold: float) -> tuple[FloatArray, FloatArray]:
        """Returns the values up to a threshold, which are sorted, and their masses."""
        places = self.places()
        number = int(np.searchsorted(places, threshold, side="right"))
        return places[:number], self.pair.masses[:number]

    def mean(self) -> float:
        """Returns the expectation of one copy, infinite ratios aside."""
        return self.weight * float(self.pair.p_masses.sum())


def negligible_zero(summand: Summand, tail_mass: float) -> bool:
    """Tells whether a sum with a zero among its copies may count as zero itself."""
    return summand.count * summand.pair.zero_mass <= 10 * tail_mass


def sketch_of(
    summands: Sequence[Summand], threshold: float, tail_mass: float
) -> sketch.Sketch:
    """Returns a sketch of the sum of ratios up to a threshold; masses sum to one."""
    laws = []
    for summand in summands:
        places, masses = sketch.grouped(*summand.ordinary(threshold), _SKETCHED)
        if not negligible_zero(summand, tail_mass):
            places = np.append(0.0, places)
            masses = np.append(summand.pair.zero_mass, masses)
        # Bounds may lack mass, or have too much; a law that is searched has one.
        laws.append((places, masses / masses.sum(), summand.count))
    return sketch.Sketch(laws)


def quantile(law: sketch.Sketch, goal: float, sign: float) -> tuple[float, float]:
    """Returns where Chernoff's exponent is about `goal`, and the tilt there.

    One search over the tilt: the saddle point of each tilt is known.

    Args:
        law: The sum.
        goal: Logarithm of the probability beyond, negative.
        sign: 1 for the upper tail, −1 for the lower one.
    """
    _, mean, variance = law.cumulants(0.0)
    end = law.ends()[sign > 0]
    middle = math.log(math.sqrt(-2 * goal / variance))
    while True:
        tilts = middle + _TRIED
        exponents = law.exponents(sign * np.exp(tilts))
        if exponents[0] < goal:
            middle += float(_TRIED[0])
            continue
        last = sign * math.exp(tilts[-1])
        if exponents[-1] < goal * (1 + _NEAR_THE_GOAL):
            break
        if abs(law.cumulants(last)[1] - end) < _NEAR_THE_END * abs(end - mean):
            # The end of the range itself is likelier than that.
            return end, last
        middle += float(_TRIED[-1])
    # They fall with the tilt; steeply where large ratios begin to count.
    while tilts[-1] - tilts[0] > _NEAREST_TILT:
        at = min(max(int(np.searchsorted(-exponents, -goal)), 1), tilts.size - 1)
        tilts = np.linspace(tilts[at - 1], tilts[at], tilts.size)
        exponents = law.exponents(sign * np.exp(tilts))
    tilt = sign * math.exp(np.interp(-goal, -exponents, tilts))
    return law.cumulants(tilt)[1], tilt


@dataclasses.dataclass(frozen=True)
class Window:
    """What part of the line a sum needs, and how to reach it.

    Attributes:
        tail_mass: Probability that may be outside, on either side.
        threshold: Ratios (times their weight) above it are large, others ordinary.
        low: Lower end of the sum of ordinary ratios.
        high: Its upper end.
        deviation: Its standard deviation.
        tilts: Tilts at which it is computed, increasing.
        lowering: Tilt that centres it on low.
        raising: Tilt that centres it on high.
    """

    tail_mass: float
    threshold: float
    low: float
    high: float
    deviation: float
    tilts: tuple[float, ...]
    lowering: float
    raising: float


def window_of(summands: Sequence[Summand], tail_mass: float) -> Window:
    """Returns a window outside which the sum has about tail_mass, on either side.

    Nothing is certified here: what lies outside is bounded anew by `mean_of`.
    """
    goal = math.log(tail_mass)
    light = _LIGHT * math.sqrt(-2 * goal)
    bulk = bulk_deviation(summands, large_ratio_threshold(summands))
    for rate in _rates(tail_mass):
        threshold = large_ratio_threshold(summands, rate)
        law = sketch_of(summands, threshold, tail_mass)
        _, mean, variance = law.cumulants(0.0)
        if math.sqrt(variance) < _LEAST_SPREAD * mean:
            # Without large ratios the sum is one number, which no lattice resolves.
            threshold = math.inf
            law = sketch_of(summands, threshold, tail_mass)
            _, _, variance = law.cumulants(0.0)
        high, raising = quantile(law, goal, 1.0)
        # A tail that one ratio makes needs little tilt, and no tilt shows all of it.
        is_light = raising * math.sqrt(variance) >= light
        if is_light and high - mean <= _FURTHEST * bulk:
            break
    low, lowering = quantile(law, goal, -1.0)
    pieces = max(1, math.ceil(_LARGEST_TILT * math.sqrt(-2 * goal) / _TILT_SPACING))
    steps = _LARGEST_TILT * np.arange(1, pieces + 1) / pieces
    tilts = [*(lowering * steps[::-1]), 0.0, *(raising * steps)]
    return Window(
        tail_mass=tail_mass,
        threshold=threshold,
        low=low,
        high=high,
        deviation=math.sqrt(variance),
        tilts=tuple(float(tilt) for tilt in tilts),
        lowering=lowering,
        raising=raising,
    )


def _rates(tail_mass: float) -> list[float]:
    """Returns how many large ratios a sum may expect, to be tried in turn."""
    least = min(tail_mass**_RATE_POWER, _LARGE_RATE)
    factors = max(1, math.ceil(math.log(_LARGE_RATE / least) / _RATE_STEP))
    return [*np.geomspace(least, _LARGE_RATE, factors + 1).tolist()]


def bulk_deviation(summands: Sequence[Summand], threshold: float) -> float:
    """Returns the standard deviation of the sum of ratios up to a threshold."""
    variance = 0.0
    for summand in summands:
        places, masses = summand.ordinary(threshold)
        total = float(masses.sum())
        mean = sums.dot(places, masses) / total
        squares = sums.dot((places - mean) ** 2, masses)
        variance += summand.count * squares / total
    return math.sqrt(variance)


def large_ratio_threshold(
    summands: Sequence[Summand], rate: float = _LARGE_RATE
) -> float:
    """Returns where large ratios begin: a sum expects about so many of them."""
    places = np.concatenate([s.places() for s in summands])
    rates = np.concatenate([s.count * s.pair.masses for s in summands])
    if len(summands) > 1:
        order = np.argsort(places)
        places, rates = places[order], rates[order]
    expected = np.cumsum(rates[::-1])
    last = int(np.searchsorted(expected, rate))
    if last == 0:
        return math.inf
    threshold = float(places[-1 - min(last, places.size - 1)])
    # Ratios that hardly leave the bulk are as good as ordinary.
    reach = float(places[-1]) - min(summand.mean() for summand in summands)
    if reach < _LEAST_EXCESS * bulk_deviation(summands, threshold):
        return math.inf
    return threshold
