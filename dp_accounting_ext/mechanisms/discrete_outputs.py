"""Mechanisms with discrete outputs: their pairs, and what else is known of them."""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.renyi import ratio_moments

Accuracy = interface.Accuracy
DominatingPair = dominating_pair.DominatingPair
# Probabilities (P, Q) of outcomes under two laws.
Outcomes = tuple[tuple[float, float], ...]

# Certified (docs/rounding.md, "a few outcomes"): the relative error of a probability
# made of three operations, a sum of a few terms, an exponential and a quotient.
FEW_ERROR = 32 * floats.UNIT_ROUNDOFF
# A limit of time and memory: there are as many atoms as this.
LARGEST_SENSITIVITY = 1_000_000


def _of_losses(
    losses: FloatArray,
    masses: FloatArray,
    sink: float,
    bound: Bound,
    mass_error: float = 0.0,
) -> DominatingPair:
    """Returns the pair of (n,) losses with (n,) masses under Q, and of equal sinks.

    Args:
        losses: The losses, increasing.
        masses: The masses.
        sink: The mass of either sink.
        bound: The side. The atoms are exact, so that it changes no number.
        mass_error: The relative error that masses have besides.
    """
    # docs/rounding.md, "discrete Laplace and Gaussian noise".
    error = 64 * floats.UNIT_ROUNDOFF * (1 + float(np.abs(losses).max())) + mass_error
    return DominatingPair(np.exp(losses), masses, sink, sink, bound, error, error)


@dataclasses.dataclass(frozen=True)
class DiscreteLaplace(interface.OnePairMechanism):
    """The discrete Laplace mechanism: integer noise x, in proportion to e^{−a|x|}.

    Attributes:
        parameter: a > 0.
        sensitivity: The sensitivity, from 1 to 1,000,000.

    Source:
        Ghosh et al. 2009, https://arxiv.org/abs/0811.2841, for the mechanism.
    """

    parameter: float
    sensitivity: int

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        if self.parameter * self.sensitivity > floats.LARGEST_EXPONENT:
            return dominating_pair.trivial_pair(bound)
        outputs = np.arange(0, self.sensitivity + 1, dtype=np.float64)
        masses = math.tanh(self.parameter / 2) * np.exp(-self.parameter * outputs)
        # The first and the last atom also hold all outputs beyond them.
        masses[[0, -1]] /= -math.expm1(-self.parameter)
        losses = self.parameter * (2 * outputs - self.sensitivity)
        return _of_losses(losses, masses, 0.0, bound)

    def claims(self) -> interface.Claims:
        largest = self.parameter * self.sensitivity * interface.LOSS_ROUNDED_UP
        return interface.Claims(largest, is_symmetric=True)

    def sum_of(self, members: int) -> interface.Mechanism | None:
        moved = self.sensitivity * members
        if moved > LARGEST_SENSITIVITY:
            return None
        return DiscreteLaplace(self.parameter, moved)


@dataclasses.dataclass(frozen=True)
class DiscreteGaussian(interface.OnePairMechanism):
    """The discrete Gaussian mechanism: integer noise x, in proportion to e^{−x²/2σ²}.

    Attributes:
        sigma: σ, from 1e-100 to 100,000.
        sensitivity: The sensitivity s, from 1 to 1,000,000.

    Raises:
        ValueError: If σ or s is outside of its range.

    Source:
        Canonne et al. 2020, https://arxiv.org/abs/2004.00010, for the mechanism.
    """

    sigma: float
    sensitivity: int

    def __post_init__(self) -> None:
        if not is_discrete_gaussian(self.sigma, self.sensitivity):
            raise ValueError(
                "sigma must be between 1e-100 and 100000, and sensitivity between 1 "
                f"and {LARGEST_SENSITIVITY}. Found {self.sigma} and {self.sensitivity}."
            )

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        sigma, sensitivity = self.sigma, self.sensitivity
        tail = math.ceil(sigma * math.sqrt(-2 * math.log(accuracy.tail_mass))) + 2
        # Outputs are cut off where their mass under the other dataset, and so their
        # loss, would not fit a float.
        widest = math.floor(sigma * math.sqrt(2 * floats.LARGEST_LOSS)) - sensitivity
        if widest < 0:
            return dominating_pair.trivial_pair(bound)
        reach = min(tail, widest)
        outputs = np.arange(-reach, sensitivity + reach + 1, dtype=np.float64)
        exponents = outputs**2 / (2 * sigma**2)
        total = _normalization(sigma)
        sink = 0.0
        if bound is Bound.UPPER:
            # The larger tail is P's at one end and Q's at the other: a geometric series
            # bounds either. A lower pair drops them.
            first = math.exp(-((reach + 1) ** 2) / (2 * sigma**2))
            one_less_quotient = -math.expm1(-(2 * reach + 3) / (2 * sigma**2))
            sink = 2 * floats.raised(first / one_less_quotient) / total
        error = (outputs.size + 8 * float(exponents.max())) * floats.UNIT_ROUNDOFF
        losses = sensitivity * (2 * outputs - sensitivity) / (2 * sigma**2)
        return _of_losses(losses, np.exp(-exponents) / total, sink, bound, error)

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
        if not is_discrete_gaussian(self.sigma, moved):
            return None
        return DiscreteGaussian(self.sigma, moved)


def is_discrete_gaussian(sigma: float, sensitivity: int) -> bool:
    """Returns whether `DiscreteGaussian` supports the parameters.

    The square of a smaller σ may underflow, and a larger σ needs too many atoms.
    """
    return 1e-100 <= sigma <= 1e5 and 1 <= sensitivity <= LARGEST_SENSITIVITY


def _normalization(sigma: float) -> float:
    """Returns Σ e^{−x²/(2σ²)} over all integers, for large σ by Poisson's formula."""
    if sigma > 1:
        return (
            sigma
            * math.sqrt(2 * math.pi)
            * (1 + 2 * math.exp(-2 * math.pi**2 * sigma**2))
        )
    return 1 + 2 * sum(math.exp(-(x**2) / (2 * sigma**2)) for x in range(1, 41))


@dataclasses.dataclass(frozen=True)
class RandomizedResponse(interface.OnePairMechanism):
    """Randomized response over k buckets.

    A uniform answer is given with probability p, the noise parameter. In the other
    dataset, the record is replaced by another one or by a special one, whose answer is
    uniform.

    Source:
        Kairouz et al. 2016, https://arxiv.org/abs/1602.07387, section 4.
    """

    holds_for_any_inputs = True

    noise_parameter: float
    num_buckets: int
    replace_one: bool

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        num_lies = self.num_buckets - 1
        lie = self.noise_parameter / self.num_buckets
        truth = 1 - self.noise_parameter + lie
        # Answers with one ratio are merged.
        if self.replace_one:
            common = [(num_lies - 1) * lie] if num_lies > 1 else []
            p, q = [truth, lie, *common], [lie, truth, *common]
        else:
            p = [truth, num_lies * lie]
            q = [1 / self.num_buckets, num_lies / self.num_buckets]
        return output_pairs.of_probabilities(p, q, bound, error=FEW_ERROR)

    def rdp_on_a_batch(self, orders: Sequence[float], rate: float) -> FloatArray | None:
        """Returns the divergences of the answer to a yes-or-no question about a batch.

        The batch has a fixed size, and one record of the dataset is replaced.

        The true answer is kept with probability 1 − β, where β = p/2. With a = β +
        rate · (1 − 2β), the result is the larger one of the divergences of Bern(a) from
        Bern(β) and of Bern(β) from Bern(a). This bound is tight.

        Returns:
            (n,) divergences; or None if there are more than two buckets, or if ratios
            do not fit a float.

        Source:
            https://arxiv.org/abs/2403.04867, Theorem I.3.
        """
        if self.num_buckets != 2 or self.noise_parameter < floats.SMALLEST_MASS:
            return None
        lie, shift = self.noise_parameter / 2, rate * (1 - self.noise_parameter)
        losses = np.array([math.log1p(shift / lie), math.log1p(-shift / (1 - lie))])
        before, after = [lie, 1 - lie], [lie + shift, 1 - lie - shift]
        return np.maximum(
            ratio_moments.of_outcomes(orders, before, losses),
            ratio_moments.of_outcomes(orders, after, -losses),
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
        return output_pairs.of_probabilities(p, q, bound, error=FEW_ERROR)

    def claims(self) -> interface.Claims:
        is_symmetric = all(
            sorted(laws) == sorted((q, p) for p, q in laws)
            for laws in (self.dominating, self.attained)
        )
        return dataclasses.replace(super().claims(), is_symmetric=is_symmetric)


@dataclasses.dataclass(frozen=True)
class PrivacyParameters(interface.OnePairMechanism):
    """An (ε, δ)-private mechanism of which no more is known.

    It is a function of an answer that is the data with probability δ, and is that of
    ε-private randomized response otherwise.

    Source:
        Kairouz et al. 2015, https://arxiv.org/abs/1311.0776, Theorem 3.4.
    """

    epsilon: float
    delta: float = 0.0

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        is_informative = self.epsilon <= floats.LARGEST_EXPONENT and self.delta < 1
        if bound is Bound.LOWER or not is_informative:
            return dominating_pair.trivial_pair(bound)
        losses = np.array([-self.epsilon, self.epsilon])
        masses = (1 - self.delta) * special.expit(-losses)
        return _of_losses(losses, masses, self.delta, bound)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        """Returns the divergences of randomized response, unless the data is released.

        Source:
            https://arxiv.org/abs/1702.07476, Proposition 5.
        """
        values = np.full(len(orders), self.epsilon)
        if 0 < self.epsilon <= floats.LARGEST_EXPONENT:
            losses = np.array([self.epsilon, -self.epsilon])
            masses = special.expit(-losses)
            values = ratio_moments.of_outcomes(orders, masses, losses)
        return interface.Divergences(values, self.delta)

    def claims(self) -> interface.Claims:
        return interface.Claims(self.epsilon, self.delta, is_symmetric=True)
