"""Mechanisms that select one of several candidates."""

import dataclasses
import math

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import bounded_range
from dp_accounting_ext.pairs import discrete
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
DominatingPair = dominating_pair.DominatingPair


@dataclasses.dataclass(frozen=True)
class ExponentialMechanism(interface.OnePairMechanism):
    """The ε-private exponential mechanism, whose losses span ε at most."""

    epsilon: float

    def pair(self, bound: Bound, tail_mass: float) -> DominatingPair:
        return bounded_range.dominating_pair_of(self.epsilon, bound)

    def closed_form_delta(
        self, epsilon: float, direction: Direction, bound: Bound
    ) -> float | None:
        return bounded_range.delta(self.epsilon, epsilon, bound)

    def largest_loss(self) -> float:
        return self.epsilon

    def is_symmetric(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class PermuteAndFlip(interface.OnePairMechanism):
    """The ε-private permute-and-flip mechanism: no worse than Laplace noise.

    With two candidates it is Laplace noise of parameter 1/ε on the difference of their
    scores, cut at zero: its profile is attained, by a cut for each κ. Lower bounds of
    compositions are of the cut in the middle.

    Source:
        https://arxiv.org/abs/2010.12603; that the profile is that of Laplace noise
        with any number of candidates, as dp_accounting has it.
    """

    epsilon: float

    def pair(self, bound: Bound, tail_mass: float) -> DominatingPair:
        if bound is Bound.UPPER:
            return self._laplace().pair(bound, tail_mass)
        lie = math.exp(-self.epsilon / 2) / 2
        if lie < _RAREST:
            return dominating_pair.trivial_pair(bound)
        return discrete.two_outcomes((1 - lie, lie), (lie, 1 - lie), bound)

    def closed_form_delta(
        self, epsilon: float, direction: Direction, bound: Bound
    ) -> float | None:
        return self._laplace().closed_form_delta(epsilon, direction, bound)

    def largest_loss(self) -> float:
        return self._laplace().largest_loss()

    def is_symmetric(self) -> bool:
        return True

    def _laplace(self) -> additive_noise.LaplaceMixture:
        return additive_noise.LaplaceMixture(
            ((self.epsilon, 1.0),), additive_noise.UNSHIFTED
        )


# Certified: what is rarer has no float of its own.
_RAREST = 1e-290
