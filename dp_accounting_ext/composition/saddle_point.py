"""Where a composed loss lies under a tilt: the saddle point, and Chernoff's ends."""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import optimize

from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.kernels import sketch
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
LossDistribution = loss_distribution.LossDistribution

# Tuning, all of it. In brackets: the gap for half of it, and twice, over what it is for
# 10,000 Poisson samples of rate 0.01 and σ = 1 at δ = 1e-6, and for 100 Laplace runs of
# scale 20 at δ = 1e-15. Times differ for the first constant alone.
# Minus the logarithm of the tilted mass that may be outside a window:
_LOWER_EXPONENT = 45.0  # Of a lower bound. (1.2 and 9, 1 and 1; time 0.9, 1.3.)
_UPPER_EXPONENT = 28.0  # Below an upper one, less what folds. (1 and 5, 1 and 0.9.)
_LEAST_EXPONENT = 6.0  # Below an upper one at least. (The same.)
# Above an upper one, what folds onto losses that are read. (The same; without it ε of 1
# of 100,000 steps at δ = 1e-6 is twice what it is.)
_FOLDED_EXPONENT = 16.0
# Minus the logarithm of the share of δ that is above an upper one, and so infinite.
_SINK_EXPONENT = 20.0  # (5 and 600, 1 and 0.9.)
# Share of a tilt's rate that an eased one has. (1.1 and 3; without easing 1 and 20.)
_EASE = 0.65
_EASING_STEPS = 5  # Bisections for it. (The same for the first.)
_TILT_DOUBLINGS = 10  # From one over the deviation to the largest tilt; a limit.
_LEAST_SPREAD = 1e-12  # A smaller deviation, over the largest loss, is rounding.


@dataclasses.dataclass(frozen=True)
class Window:
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


class LossSketch(sketch.Sketch):
    """A few thousand atoms of each law, to find the tilt with; nothing certified."""

    def __init__(self, laws: Sequence[LossDistribution]) -> None:
        super().__init__(
            [(*sketch.grouped(law.losses, law.masses), law.count) for law in laws]
        )
        largest = max(float(np.abs(law.losses).max()) for law in laws)
        # The spread of losses that are equal but for rounding is no guide.
        least = max(_LEAST_SPREAD * largest, 1e-100)
        self.deviation = max(math.sqrt(max(self.cumulants(0.0)[2], 0.0)), least)

    def window(self, tilt: float, bound: Bound) -> Window:
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
            return Window(-low[0], high[0], (low[1], high[1]), deviation)
        # Above it the law, not tilted, has a negligible share of δ.
        rate = (tilt * mean - here) / _EASE
        ends = []
        for change in np.geomspace(1e-3, 20.0, 24) / deviation:
            moment = self.cumulants(tilt + change)[0] + rate + _SINK_EXPONENT
            ends.append((moment / (tilt + change), float(change)))
        high = min(ends)
        folded = 0.7 * tilt * (high[0] - mean)
        low = end(-1.0, max(_UPPER_EXPONENT - folded, _LEAST_EXPONENT))
        # What the tilted law has above it folds onto losses that are not read.
        room = max(mean + low[0] - deviation, 0.0)
        top = max(high[0], end(1.0, _FOLDED_EXPONENT)[0] - room)
        return Window(-low[0], top, (low[1], high[1]), deviation)

    def tilt_for_epsilon(self, epsilon: float) -> float:
        """Returns the tilt ≥ 0 that centres the loss on epsilon, about."""
        return max(self.tilt_for_mean(epsilon), 0.0)

    def eased(self, tilt: float) -> float:
        """Returns a somewhat smaller tilt ≥ 0, of two thirds of the rate.

        The law tilted to a point has a tail beyond it as heavy as tilts allow, or is
        that point alone where it is the largest loss; a little less tilt has neither
        trouble, and noise enough to spare.
        """

        def rate(x: float) -> float:
            value, mean, _ = self.cumulants(x)
            return x * mean - value

        if tilt <= 0:
            return tilt
        none = rate(0.0)
        goal = none + _EASE * (rate(tilt) - none)
        low, high = 0.0, tilt
        for _ in range(_EASING_STEPS):
            middle = (low + high) / 2
            if rate(middle) < goal:
                low = middle
            else:
                high = middle
        return high

    def tilt_for_mean(self, mean: float) -> float:
        """Returns the tilt, of either sign, that centres the loss there, about."""
        centre = self.cumulants(0.0)[1]
        sign = 1.0 if mean >= centre else -1.0
        end = sign / self.deviation
        for _ in range(_TILT_DOUBLINGS):
            if sign * (self.cumulants(end)[1] - mean) >= 0:
                break
            end *= 2.0
        else:
            return end
        return float(
            optimize.brentq(
                lambda x: self.cumulants(x)[1] - mean,
                min(0.0, end),
                max(0.0, end),
                rtol=1e-3,
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
