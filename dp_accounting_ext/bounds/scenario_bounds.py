"""Bounds for scenarios one of which is true: the largest of several bounds."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses

import numpy as np

from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import floats

PrivacyBounds = privacy_bounds.PrivacyBounds
Accuracy = accuracy.Accuracy

# Tuning: compute lower bounds for at most this many scenarios, those with the largest
# upper bounds. Stop early once the bracket is narrow. (24 records in two fixed batches:
# the bracket of the first scenario alone has a width of 14 %.)
_MOST_LOWERS = 8


@dataclasses.dataclass(frozen=True, eq=False)
class WorstPrivacyBounds:
    """The largest bounds on ε or δ over several scenarios, one of which is true.

    Attributes:
        scenarios: The bounds of at least one scenario. It is faster if large ones come
            first, since smaller ones then need not be tight.
    """

    scenarios: Sequence[PrivacyBounds]

    def upper_epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on ε at (n,) δ in [0, 1), in nats."""
        return np.asarray(
            self._uppers(PrivacyBounds.upper_epsilons, deltas).max(axis=0)
        )

    def worst(self, delta: float) -> int:
        """Returns the index of the scenario with the largest upper bound on ε at δ."""
        found = self._uppers(PrivacyBounds.upper_epsilons, np.array([delta]))
        return int(np.argmax(found[:, 0]))

    def upper_deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on δ at (n,) ε."""
        return np.asarray(self._upper_deltas(epsilons).max(axis=0))

    def epsilon_bounds(self, deltas: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) lower and upper bounds on ε at (n,) δ in [0, 1), in nats."""
        return self._bounds(
            self._uppers(PrivacyBounds.upper_epsilons, deltas),
            lambda each, chosen: each.lower_epsilons(deltas[chosen]),
        )

    def delta_bounds(self, epsilons: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) lower and upper bounds on δ at (n,) ε."""
        lower, upper = self._bounds(
            self._upper_deltas(epsilons),
            lambda each, chosen: each.lower_deltas(epsilons[chosen]),
        )
        return np.where(lower < floats.SMALLEST_MASS, 0.0, lower), upper

    def _upper_deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (s, n) upper bounds, none of them a subnormal number."""
        found = self._uppers(PrivacyBounds.upper_deltas, epsilons)
        return np.where(found > 0, np.maximum(found, floats.SMALLEST_MASS), found)

    def _uppers(
        self,
        upper_of: Callable[..., FloatArray],
        asked: FloatArray,
    ) -> FloatArray:
        """Returns (s, n) upper bounds of s scenarios, the largest of them tight."""
        found = [upper_of(self.scenarios[0], asked)]
        worst = found[0]
        for scenario in self.scenarios[1:]:
            found.append(upper_of(scenario, asked, worst))
            worst = np.maximum(worst, found[-1])
        return np.array(found)

    def _bounds(
        self,
        uppers: FloatArray,
        lower_of: Callable[[PrivacyBounds, IntArray], FloatArray],
    ) -> tuple[FloatArray, FloatArray]:
        """Returns bounds on the largest value; any scenario gives a lower bound.

        Args:
            uppers: (s, n) upper bounds of s scenarios.
            lower_of: The function of a scenario and of some indices of questions that
                gives lower bounds.
        """
        lower, upper = np.zeros(uppers.shape[1]), uppers.max(axis=0)
        ranked = np.argsort(-uppers, axis=0, kind="stable")[:_MOST_LOWERS]
        for numbers in ranked:
            for number, scenario in enumerate(self.scenarios):
                is_wide = lower < np.minimum(0.999 * upper, uppers[number])
                chosen = np.flatnonzero(is_wide & (numbers == number))
                if chosen.size:
                    below = lower_of(scenario, chosen)
                    lower[chosen] = np.maximum(lower[chosen], below)
        return in_order(lower, upper), upper


def in_order(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Returns (n,) lower bounds after checking that none is above its upper bound.

    Raises:
        ArithmeticError: If a lower bound is above its upper bound. One of the two is
            then wrong, and no answer is better than a bound that may be too small.
    """
    crossed = np.flatnonzero(lower > upper)
    if crossed.size:
        first = crossed[0]
        raise ArithmeticError(
            f"A lower bound, {float(lower[first])}, is above the upper one, "
            f"{float(upper[first])}: one is wrong. Please report what was composed."
        )
    return lower
