"""Mechanisms that select one of several candidates."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.mechanisms import renyi_divergences
from dp_accounting_ext.pairs import bounded_range
from dp_accounting_ext.pairs import discrete
from dp_accounting_ext.pairs import renyi_profile
from dp_accounting_ext.renyi import pure_mechanisms
from dp_accounting_ext.renyi import selection

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair


@dataclasses.dataclass(frozen=True)
class ExponentialMechanism(interface.OnePairMechanism):
    """The ε-private exponential mechanism, whose losses span ε at most.

    Its profile is attained by another span for each κ. Of many runs its divergences,
    which are of one span for each order, can say less: the least of both is taken.
    """

    epsilon: float

    def pair(self, bound: Bound, tail_mass: float) -> DominatingPair:
        return bounded_range.dominating_pair_of(self.epsilon, bound)

    def other_parts(self, bound: Bound) -> Mapping[interface.Mechanism, int]:
        if bound is Bound.LOWER:
            return self.parts(bound)
        values = pure_mechanisms.bounded_range_rdp(renyi_profile.ORDERS, self.epsilon)
        return {renyi_bounded.RenyiBounded.of(values): 1}

    def claims(self) -> interface.Claims:
        return interface.Claims(self.epsilon, is_symmetric=True)


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
        return dominating_pair.of_probabilities(
            (1 - lie, lie), (lie, 1 - lie), bound, error=discrete.FEW_ERROR
        )

    def claims(self) -> interface.Claims:
        return self._laplace().claims()

    def _laplace(self) -> additive_noise.LaplaceMixture:
        return additive_noise.LaplaceMixture(
            ((self.epsilon, 1.0),), additive_noise.UNSHIFTED
        )


@dataclasses.dataclass(frozen=True)
class BestOf(interface.Mechanism):
    """The best answer of a random number of runs, known by its Rényi divergences.

    Attributes:
        inner: What is run.
        mean: The mean number of runs, at least 1.
        shape: Of its law, as in `selection.selection_rdp`.
    """

    inner: interface.Mechanism
    mean: float
    shape: float

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        return interface.pairs_of(_best_of(self), bound, tail_mass)

    def parts(self, bound: Bound) -> Mapping[interface.Mechanism, int]:
        return {_best_of(self): 1}

    def claims(self) -> interface.Claims:
        return interface.Claims(is_symmetric=True)


@functools.lru_cache(maxsize=64)
def _best_of(best: BestOf) -> renyi_bounded.RenyiBounded:
    """Returns the bound of a selection, as `curves.selected` has it of a curve."""
    inner = renyi_divergences.of_mechanism(best.inner)
    orders = renyi_profile.ORDERS
    # Divergences increase with the order: what holds at the next one does here.
    values = np.append(inner.values, math.inf)

    def curve(asked: Sequence[float]) -> selection.FloatArray:
        found: selection.FloatArray = values[np.searchsorted(orders, asked)]
        return found

    told = min(best.mean * inner.told * (1 + 8 * dominating_pair.UNIT_ROUNDOFF), 1.0)
    return renyi_bounded.RenyiBounded.of(
        selection.selection_rdp(orders, curve, best.mean, best.shape), told
    )
