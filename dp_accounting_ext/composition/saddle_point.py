"""Where a composed loss lies under a tilt: the saddle point, and Chernoff's ends."""

from collections.abc import Sequence
import math

import numpy as np
from scipy import optimize

from dp_accounting_ext.composition import anchors
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.kernels import sketch

LossDistribution = loss_distribution.LossDistribution

# Tuning, all of it. In brackets: the gap for half of it, and twice, over what it is for
# 10,000 Poisson samples of rate 0.01 and σ = 1 at δ = 1e-6, and for 100 Laplace runs of
# scale 20 at δ = 1e-15.
# Minus the logarithm of the tilted mass that may be outside a window.
_EXPONENT = 45.0  # (1.2 and 9, 1 and 1; time 0.9, 1.3.)
# Share of a tilt's rate that an eased one has. (1.1 and 3; without easing 1 and 20.)
_EASE = 0.65
_EASING_STEPS = 5  # Bisections for it. (The same for the first.)
_TILT_DOUBLINGS = 10  # From one over the deviation to the largest tilt; a limit.
_LEAST_CENTRE = 0.1  # A loss near zero counts as so many deviations. (The same.)
_LEAST_SPREAD = 1e-12  # A smaller deviation, over the largest loss, is rounding.


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

    def place(self, tilt: float, centre: float) -> anchors.Place:
        """Returns where a lower bound is computed that is read from a centre upwards.

        What folds onto its window is lost to it, which so is a wide one (Chernoff).
        """
        tilt = self.eased(tilt)
        here, _, variance = self.cumulants(tilt)
        deviation = max(math.sqrt(variance), 1e-9 * self.deviation)

        def end(sign: float) -> tuple[float, float]:
            bounds = []
            for change in np.geomspace(0.3, 20.0, 12) / deviation:
                moment = self.cumulants(tilt + sign * change)[0] - here
                bounds.append(((moment + _EXPONENT) / change, sign * float(change)))
            return min(bounds)

        (low, below), (high, above) = end(-1.0), end(1.0)
        lowest = centre - deviation
        return anchors.Place(
            tilt,
            min(-low, lowest),
            max(high, centre),
            lowest,
            math.inf,
            max(centre, _LEAST_CENTRE * deviation),
            (below, above),
        )

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
