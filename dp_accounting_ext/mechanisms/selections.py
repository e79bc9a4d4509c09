"""Mechanisms that select one of several candidates."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import accuracy as accuracies
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.mechanisms import renyi_curves
from dp_accounting_ext.renyi import ratio_moments
from dp_accounting_ext.renyi import selection

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair

# Tuning: the larger losses of two outcomes over ε, for bounds from below. The last one
# is for few runs.
_SHARES = (0.5, 0.625, 0.75, 0.875, 1 - 2.0**-10)


@dataclasses.dataclass(frozen=True)
class ExponentialMechanism(interface.OnePairMechanism):
    """The ε-private exponential mechanism, whose losses lie in an interval of length ε.

    If the losses lie in [t − ε, t], the largest divergence is that of two outcomes with
    losses t − ε and t. For each κ another t attains the profile, and for each order
    another one attains the Rényi divergence. For many runs, the bound by divergences
    may be the smaller one, so that the smaller of both bounds is used.

    Source:
        https://arxiv.org/abs/1905.04273 (the mechanism has bounded range);
        https://arxiv.org/abs/1909.13830, section 3 (the profile).
    """

    epsilon: float

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        """Returns the pair of the worst mechanism, or of losses ±ε/2 (lower).

        With E = e^{−ε} and E ≤ κ ≤ 1/E, the largest divergence over t is
        H_κ = (1 − √(κE))² / (1 − E). This is convex in κ, and so the profile of a pair:
        Q(Z > κ) = (√(E/κ) − E) / (1 − E). Its cells are split between their ends.
        """
        if self.epsilon > floats.LARGEST_LOSS:
            return dominating_pair.trivial_pair(bound)
        if bound is Bound.LOWER:
            return _two_losses(self.epsilon, 0.5).pairs(bound, accuracy).remove
        # Each cell is at most a hundredth of a nat wide.
        number = max(accuracies.OUTPUT_CELLS, math.ceil(200 * self.epsilon))
        losses = np.linspace(-self.epsilon, self.epsilon, number + 1)
        width = 2 * self.epsilon / number
        cells = np.exp(-(losses[:-1] + self.epsilon) / 2)
        cells *= math.expm1(-width / 2) / math.expm1(-self.epsilon)
        # The mean ratio of a cell is the geometric mean of its ends.
        raised = cells / (1 + math.exp(width / 2))
        masses = np.append(cells - raised, 0.0)
        masses[1:] += raised
        # The relative error of exponentials of up to ε, and of a few products.
        error = 64 * floats.UNIT_ROUNDOFF * (1 + self.epsilon)
        return DominatingPair(np.exp(losses), masses, 0.0, 0.0, bound, error, error)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        """Returns the largest divergences over t, or those of ε²/8-zCDP if smaller.

        As a function of t the divergence is flat near its largest value: if t is off by
        s ε, the divergence is off by a share of about s², which is less than a rounding
        error.

        Source:
            https://arxiv.org/abs/2004.07223, Lemma 3.4, for ε²/8-zCDP.
        """
        alpha, epsilon = np.array(orders, dtype=np.float64), self.epsilon
        with np.errstate(over="ignore"):
            bounds = alpha * ratio_moments.rounded_up(epsilon**2 / 8)
        bounds = np.minimum(np.where(np.isinf(alpha), epsilon, bounds), epsilon)
        # Below ε = 1e-5, t is a difference of two nearly equal logarithms, whose error
        # would exceed 1e-10 ε.
        if 1e-5 <= epsilon <= floats.LARGEST_EXPONENT:
            largest = [self._largest(max(a, ratio_moments.LOWEST_ORDER)) for a in alpha]
            bounds = np.minimum(bounds, largest)
        return interface.Divergences(bounds)

    def _largest(self, order: float) -> float:
        """Returns the largest divergence of two outcomes over t, at an order above 1.

        With u = e^t, the divergence times α − 1 is
        ln(((1 − e^{−αε}) u^{α−1} − (e^{−ε} − e^{−αε}) u^α) / (1 − e^{−ε})), and the
        best u is the zero of its derivative.
        """
        epsilon = self.epsilon
        if order > ratio_moments.LARGEST_ORDER:
            return epsilon
        share = (order - 1) / order * math.expm1(-order * epsilon)
        top = epsilon + math.log(share / math.expm1(-(order - 1) * epsilon))
        top = min(max(top, 0.0), epsilon)
        # The probabilities of both ends under Q.
        high = math.expm1(epsilon - top) / math.expm1(epsilon)
        low = math.expm1(-top) / math.expm1(-epsilon)
        losses = np.array([top, top - epsilon])
        return float(ratio_moments.of_outcomes([order], (high, low), losses)[0])

    def routes(self, bound: Bound) -> Sequence[Mapping[interface.Mechanism, int]]:
        """Returns itself and its divergences, or else two outcomes for each of some t.

        In any number of runs, all of them may have two outcomes of the same losses.
        """
        if bound is Bound.LOWER:
            return [{_two_losses(self.epsilon, share): 1} for share in _SHARES]
        values, _ = self.rdp(renyi_bounded.ORDERS)
        return [{self: 1}, {renyi_bounded.RenyiBounded.of(values): 1}]

    def claims(self) -> interface.Claims:
        return interface.Claims(self.epsilon, is_symmetric=True)


def _two_losses(epsilon: float, share: float) -> interface.Mechanism:
    """Returns a lower bound: an exponential mechanism with two outcomes.

    Their losses are t and t − ε. With e_x = e^x − 1, their probabilities are
    e_{t−ε} / e_{−ε} and e_t / e_ε under P, and e_{ε−t} / e_ε and e_{−t} / e_{−ε} under
    Q. The scores decide what t is.

    Args:
        epsilon: ε.
        share: t / ε, a sum of a few powers of two.
    """
    return known_bounds.ByFunction(
        _pairs_of_two_losses, (epsilon, share), side=Bound.LOWER
    )


def _pairs_of_two_losses(
    epsilon: float, share: float, bound: Bound, accuracy: Accuracy
) -> DirectedPairs:
    if epsilon > floats.LARGEST_LOSS:
        return DirectedPairs.same(dominating_pair.trivial_pair(bound))
    high, low = epsilon * share, epsilon * (1 - share)
    up, down = math.expm1(epsilon), math.expm1(-epsilon)
    p = math.expm1(-low) / down, math.expm1(high) / up
    q = math.expm1(low) / up, math.expm1(-high) / down
    error = 16 * floats.UNIT_ROUNDOFF * (1 + epsilon)
    return DirectedPairs.same(output_pairs.of_probabilities(p, q, bound, error=error))


def permute_and_flip(epsilon: float) -> interface.Mechanism:
    """Returns the ε-private permute-and-flip mechanism: no worse than Laplace noise.

    With two candidates it compares the difference of their scores, with Laplace noise
    of parameter 1/ε, to zero. So for each κ some difference of scores attains the
    profile of Laplace noise. The lower bound of a composition is for the difference in
    the middle.

    Laplace noise is an upper bound of Rényi divergences, too. The mechanism releases
    the outcome with the largest sum of its score and exponential noise. In units of the
    noise, the differences of scores change by less than ε between neighboring datasets.
    For a set of outcomes, let G(s) be the probability that the largest noisy score in
    the set is above the largest one outside of it by s. Maxima of exponential variables
    have hazard rates of at most one, so −G' ≤ min(G, 1 − G), with equality for the
    Laplace law. So G(s + ε) is no smaller than for Laplace noise with the same G(s).

    Source:
        https://arxiv.org/abs/2010.12603. That the profile with any number of candidates
        is that of Laplace noise is taken from dp_accounting.
    """
    laplace = additive_noise.LaplaceMixture(((epsilon, 1.0),), additive_noise.UNSHIFTED)
    claims = interface.Claims(epsilon, is_symmetric=True)
    middle = known_bounds.ByFunction(
        _pairs_of_the_middle, (epsilon,), claims, side=Bound.LOWER
    )
    return known_bounds.between(middle, laplace)


def _pairs_of_the_middle(
    epsilon: float, bound: Bound, accuracy: Accuracy
) -> DirectedPairs:
    """Returns lower pairs of permute-and-flip, with two candidates."""
    lie = math.exp(-epsilon / 2) / 2
    outcomes = (1 - lie, lie)
    return DirectedPairs.same(
        output_pairs.of_probabilities(
            outcomes, outcomes[::-1], bound, error=discrete_outputs.FEW_ERROR
        )
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
