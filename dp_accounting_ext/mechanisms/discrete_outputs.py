"""Mechanisms with discrete outputs."""

from collections.abc import Sequence
import dataclasses
import math

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import discrete
from dp_accounting_ext.renyi import pure_mechanisms
from dp_accounting_ext.renyi import ratio_moments

Accuracy = interface.Accuracy
DominatingPair = dominating_pair.DominatingPair
# Probabilities (P, Q) of outcomes under two laws.
Outcomes = tuple[tuple[float, float], ...]


@dataclasses.dataclass(frozen=True)
class DiscreteLaplace(interface.OnePairMechanism):
    """The discrete Laplace mechanism, e^{−a|x|} on the integers."""

    parameter: float
    sensitivity: int

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        return discrete.discrete_laplace(self.parameter, self.sensitivity, bound)

    def claims(self) -> interface.Claims:
        largest = self.parameter * self.sensitivity * interface.LOSS_ROUNDED_UP
        return interface.Claims(largest, is_symmetric=True)

    def sum_of(self, members: int) -> interface.Mechanism | None:
        moved = self.sensitivity * members
        if moved > discrete.LARGEST_SENSITIVITY:
            return None
        return DiscreteLaplace(self.parameter, moved)


@dataclasses.dataclass(frozen=True)
class DiscreteGaussian(interface.OnePairMechanism):
    """The discrete Gaussian mechanism, e^{−x²/(2σ²)} on the integers."""

    sigma: float
    sensitivity: int

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        return discrete.discrete_gaussian(
            self.sigma, self.sensitivity, bound, tail_mass=accuracy.tail_mass
        )

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        """Returns the divergences of Gaussian noise, which are upper bounds.

        At integer orders they are exact.

        Source:
            https://arxiv.org/abs/2004.00010, Proposition 5.
        """
        distance = self.sensitivity / self.sigma
        return interface.Divergences(ratio_moments.gaussian_rdp(distance, orders))

    def claims(self) -> interface.Claims:
        return interface.Claims(is_symmetric=True)

    def sum_of(self, members: int) -> interface.Mechanism | None:
        moved = self.sensitivity * members
        if not discrete.is_discrete_gaussian(self.sigma, moved):
            return None
        return DiscreteGaussian(self.sigma, moved)


@dataclasses.dataclass(frozen=True)
class RandomizedResponse(interface.OnePairMechanism):
    """Randomized response over k buckets.

    A uniform answer is given with probability p, the noise parameter. In the other
    dataset, the record is replaced by another one or by a special one.
    """

    holds_for_any_inputs = True

    noise_parameter: float
    num_buckets: int
    replace_one: bool

    def rdp_on_a_batch(self, orders: Sequence[float], rate: float) -> FloatArray | None:
        """Returns the divergences for two buckets, if their ratios fit a float."""
        if self.num_buckets != 2 or self.noise_parameter < floats.SMALLEST_MASS:
            return None
        return pure_mechanisms.batch_rdp(orders, self.noise_parameter, rate)

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        return discrete.randomized_response(
            self.noise_parameter,
            self.num_buckets,
            replace_one=self.replace_one,
            bound=bound,
        )

    def claims(self) -> interface.Claims:
        odds = (1 - self.noise_parameter) / self.noise_parameter
        if self.replace_one:
            largest = math.log1p(self.num_buckets * odds)
        else:
            truth = math.log1p((1 - self.noise_parameter) * (self.num_buckets - 1))
            largest = max(truth, -math.log(self.noise_parameter))
        return interface.Claims(
            largest * interface.LOSS_ROUNDED_UP, is_symmetric=self.replace_one
        )


@dataclasses.dataclass(frozen=True)
class PrivateDraw(interface.OnePairMechanism):
    """One draw, whose law may be any law between two bounds.

    Attributes:
        dominating: The probabilities (P, Q) of each outcome under two laws that
            dominate every pair of laws between the bounds.
        attained: The same probabilities for two laws that lie between the bounds.
    """

    holds_for_any_inputs = True

    dominating: Outcomes
    attained: Outcomes

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        outcomes = self.dominating if bound is Bound.UPPER else self.attained
        p, q = zip(*outcomes, strict=True)
        return output_pairs.of_probabilities(p, q, bound, error=discrete.FEW_ERROR)

    def claims(self) -> interface.Claims:
        is_symmetric = all(
            sorted(laws) == sorted((q, p) for p, q in laws)
            for laws in (self.dominating, self.attained)
        )
        return dataclasses.replace(super().claims(), is_symmetric=is_symmetric)


@dataclasses.dataclass(frozen=True)
class PrivacyParameters(interface.OnePairMechanism):
    """An (ε, δ)-private mechanism of which no more is known."""

    epsilon: float
    delta: float = 0.0

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        return discrete.privacy_parameters(self.epsilon, self.delta, bound)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        """Returns the Rényi divergences of randomized response, unless it fails.

        An (ε, δ)-private mechanism is a function of an answer that is the data with
        probability δ, and is that of ε-private randomized response otherwise.

        Source:
            https://arxiv.org/abs/1311.0776, Theorem 3.4.
        """
        response = pure_mechanisms.pure_dp_rdp(orders, self.epsilon)
        return interface.Divergences(response, self.delta)

    def claims(self) -> interface.Claims:
        return interface.Claims(self.epsilon, self.delta, is_symmetric=True)
