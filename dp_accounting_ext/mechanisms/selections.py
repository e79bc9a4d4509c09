"""Mechanisms that select one of several candidates."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.mechanisms import renyi_curves
from dp_accounting_ext.pairs import bounded_range
from dp_accounting_ext.pairs import discrete
from dp_accounting_ext.renyi import pure_mechanisms
from dp_accounting_ext.renyi import selection

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair


@dataclasses.dataclass(frozen=True)
class ExponentialMechanism(interface.OnePairMechanism):
    """The ε-private exponential mechanism, whose losses lie in an interval of length ε.

    For each κ another position of the interval attains the profile, and for each order
    another one attains the Rényi divergence. For many runs, the bound by divergences
    may be the smaller one, so that the smaller of both bounds is used.
    """

    epsilon: float

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        return bounded_range.dominating_pair_of(self.epsilon, bound)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        found = pure_mechanisms.bounded_range_rdp(orders, self.epsilon)
        return interface.Divergences(found)

    def routes(self, bound: Bound) -> Sequence[Mapping[interface.Mechanism, int]]:
        if bound is Bound.LOWER:
            return [{self: 1}]
        values, _ = self.rdp(renyi_bounded.ORDERS)
        return [{self: 1}, {renyi_bounded.RenyiBounded.of(values): 1}]

    def claims(self) -> interface.Claims:
        return interface.Claims(self.epsilon, is_symmetric=True)


@dataclasses.dataclass(frozen=True)
class PermuteAndFlip(interface.OnePairMechanism):
    """The ε-private permute-and-flip mechanism: no worse than Laplace noise.

    With two candidates it compares the difference of their scores, with Laplace noise
    of parameter 1/ε, to zero. So for each κ some difference of scores attains the
    profile of Laplace noise. The lower bound of a composition is for the difference in
    the middle.

    Source:
        https://arxiv.org/abs/2010.12603. That the profile with any number of candidates
        is that of Laplace noise is taken from dp_accounting.
    """

    epsilon: float

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        if bound is Bound.UPPER:
            return self._laplace().pair(bound, accuracy)
        lie = math.exp(-self.epsilon / 2) / 2
        return output_pairs.of_probabilities(
            (1 - lie, lie), (lie, 1 - lie), bound, error=discrete.FEW_ERROR
        )

    def rdp(self, orders: Sequence[float]) -> interface.Divergences | None:
        """Returns the Rényi divergences of Laplace noise, which are an upper bound.

        The mechanism releases the outcome with the largest sum of its score and
        exponential noise. In units of the noise, the differences of scores change by
        less than ε between neighboring datasets. For a set of outcomes, let G(s) be the
        probability that the largest noisy score in the set is above the largest one
        outside of it by s. Maxima of exponential variables have hazard rates of at most
        one, so −G' ≤ min(G, 1 − G), with equality for the Laplace law. So G(s + ε) is
        no smaller than for Laplace noise with the same G(s).
        """
        return self._laplace().rdp(orders)

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
        inner: The mechanism that is run.
        mean: The mean number of runs, at least 1.
        shape: The shape of the law of this number, as in `selection.selection_rdp`.
    """

    inner: interface.Mechanism
    mean: float
    shape: float

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        return interface.pairs_of(self._bounded(), bound, accuracy)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        """Returns the Rényi divergences of the selection, unless any run fails.

        A run fails with probability δ, and may then reveal everything. None of K runs
        fails with probability E (1 − δ)^K ≥ 1 − δ E K. Given this, K has a law of the
        same shape and of a smaller mean.
        """
        values = selection.selection_rdp(
            orders,
            lambda asked: renyi_curves.of(self.inner, asked).values,
            self.mean,
            self.shape,
        )
        failure = self.mean * renyi_curves.of(self.inner, orders).failure_probability
        rounded = failure * (1 + 8 * floats.UNIT_ROUNDOFF)
        return interface.Divergences(values, min(rounded, 1.0))

    def routes(self, bound: Bound) -> Sequence[Mapping[interface.Mechanism, int]]:
        return [{self._bounded(): 1}]

    def basis(self, bound: Bound) -> str:
        if bound is Bound.LOWER:
            return interface.NOTHING
        return "the Rényi divergences of the selection"

    def claims(self) -> interface.Claims:
        return interface.Claims(is_symmetric=True)

    def _bounded(self) -> renyi_bounded.RenyiBounded:
        values, failure = renyi_curves.of(self, renyi_bounded.ORDERS)
        return renyi_bounded.RenyiBounded.of(values, failure)
