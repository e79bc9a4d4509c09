"""The base class of everything that can be composed, and a cache of its pairs."""

import abc
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions
import math
from typing import ClassVar
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import memory
from dp_accounting_ext.kernel import sums

Accuracy = accuracy.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair

# Tuning: for a mechanism inside another one, tail masses are rounded down to powers of
# this number, so that pairs that were computed once can be reused.
_COARSE_TAILS = 1e6
# Certified: covers the rounding of a few logarithms and products without cancellation.
LOSS_ROUNDED_UP = 1 + 1e-12

# The pairs of all mechanisms. The memory holds some hundred pairs of additive noise.
_PAIRS: memory.Memory[DirectedPairs] = memory.Memory(64 << 20)


# The probability that something happens, and the probability that it does not. Neither
# is computed as 1 minus the other.
Probabilities = tuple[float, float]

# The answers of `Mechanism.basis` if the pair is attained, and if no pair is known.
OWN_PAIR = "its own dominating pair"
NOTHING = "nothing, so that it counts as 0"


@dataclasses.dataclass(frozen=True)
class Claims:
    """What is known of one run besides its pairs. These bounds are not checked.

    Values that are computed in floats are rounded up.

    Attributes:
        loss: A bound on the privacy loss in either direction, in nats. It may be
            exceeded with probability `probability_of_more`.
        probability_of_more: The probability that the loss is larger than `loss`.
        gaussian_precision: 1/σ² of a Gaussian mechanism that dominates the run.
        is_symmetric: Whether the privacy profiles of both directions are equal.
        tail: (loss, 1/σ²) of two mechanisms of whose outputs those of the run are a
            function, whatever the dataset: one whose loss is at most `loss`, and a
            Gaussian mechanism. For groups each of the two is chained. By default it is
            derived from the other attributes.
        added_tail: The mean and the standard deviation, in nats, of a normal law that
            bounds the loss if a record is added, as `loss_tail` says; by default that
            of `tail`.
        rho: ρ, such that the Rényi divergences of all orders α > 1 are at most ρα, in
            either direction. By default it is derived from the tail: a bounded loss l
            has l² / 2 (https://arxiv.org/abs/1605.02065, Proposition 3.3).
    """

    loss: float = math.inf
    probability_of_more: float = 0.0
    gaussian_precision: float = math.inf
    is_symmetric: bool = False
    tail: tuple[float, float] = (math.inf, math.inf)
    rho: float = math.inf
    added_tail: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if math.isfinite(self.gaussian_precision):
            object.__setattr__(self, "tail", (0.0, self.gaussian_precision))
        elif math.isfinite(self.largest_loss):
            object.__setattr__(self, "tail", (self.largest_loss, 0.0))
        if self.rho == math.inf:
            loss, precision = min(self.tail[0], 1e150), self.tail[1]
            rho = (loss**2 + precision) / 2 * (1 + 4 * floats.UNIT_ROUNDOFF)
            object.__setattr__(self, "rho", rho if loss < 1e150 else math.inf)
        if self.is_symmetric:
            # What is known of one direction alone may not hold of the other.
            object.__setattr__(self, "added_tail", None)

    @property
    def largest_loss(self) -> float:
        """A bound on the loss that is never exceeded, in nats, or inf."""
        return self.loss if self.probability_of_more == 0 else math.inf

    def loss_tail(self, direction: Direction) -> tuple[float, float]:
        """Returns the mean and standard deviation of a normal bound on the loss.

        The privacy profile in this direction is, at every ε, at most that of a loss
        with this normal law. Both values are in nats and rounded up. They are infinite
        if no such law is known.
        """
        if direction is Direction.ADD and self.added_tail is not None:
            return self.added_tail
        loss, precision = self.tail
        precision *= LOSS_ROUNDED_UP
        mean = loss + precision / 2
        return mean * LOSS_ROUNDED_UP, math.sqrt(precision) * LOSS_ROUNDED_UP


# What is claimed if nothing is known.
NO_CLAIMS = Claims()


class Draws(NamedTuple):
    """The mechanisms one of which runs on a record, drawn at random.

    The output reveals no more of the draw than the mechanisms do. All probabilities,
    those of the parts times their numbers, sum to one.

    Attributes:
        parts: Mechanisms, each with the probability that a given one of its copies is
            drawn, and the number of copies.
        null_probability: The probability that the output does not depend on the record.
        infinity_mass: The probability that the output reveals the record.
    """

    parts: "tuple[tuple[Mechanism, float, int], ...]"
    null_probability: float = 0.0
    infinity_mass: float = 0.0


class Divergences(NamedTuple):
    """Rényi divergences of one run, except on an event of small probability.

    Attributes:
        values: (n,) upper bounds at n orders, in nats, on the larger of both
            directions' divergences of the outputs if that event does not happen.
        failure_probability: The probability of that event, which does not depend on the
            data. If the event happens, the output may reveal everything.
    """

    values: FloatArray
    failure_probability: float = 0.0


def each(function: Callable[[float], float], values: FloatArray) -> FloatArray:
    """Returns the (n,) values of a function of one number at (n,) numbers."""
    return np.array([function(value) for value in values.tolist()], dtype=np.float64)


class Mechanism(abc.ABC):
    """A mechanism that can be composed. It is hashable, and computes pairs on request.

    To account for your own mechanism, subclass it as a frozen dataclass. Only `pairs`
    must be implemented. The other methods and properties return further knowledge of
    the mechanism; their defaults claim nothing.

    Attributes:
        holds_for_any_inputs: Whether the pairs hold for any two inputs, and not only
            for neighboring ones. Those of a randomized response do.
        is_known_by_divergences: Whether the mechanism is known by its Rényi
            divergences. Divergences are added in a composition, and pairs are computed
            from their sum.
    """

    holds_for_any_inputs: ClassVar[bool] = False
    is_known_by_divergences: ClassVar[bool] = False

    @abc.abstractmethod
    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        """Returns the pairs of one run.

        Args:
            bound: Upper pairs dominate the run. Lower pairs are dominated by it. If
                no such pair is known, return `dominating_pair.trivial_pair`.
            accuracy: What the pairs are for. `accuracy.tail_mass` is the probability
                that may be moved to the sinks.
        """

    def claims(self) -> Claims:
        """Returns what is known of one run besides its pairs."""
        return NO_CLAIMS

    def rdp(self, orders: Sequence[float]) -> Divergences | None:
        """Returns Rényi divergences that a theorem gives, or None if there is none.

        If it is None, they are computed from the parts of a composition, or from the
        pairs.

        Args:
            orders: (n,) Rényi orders α ≥ 1, inf included.
        """
        return None

    def draws(self) -> Draws | None:
        """Returns the mechanisms one of which runs on a record, or None.

        This is for a Poisson sample, or one step of several: then theorems on samples
        and on random allocation hold.
        """
        return None

    def routes(self, bound: Bound) -> "Sequence[Mapping[Mechanism, int]]":
        """Returns compositions, each of which bounds one run on this side.

        Each is mechanisms with counts. The best of their bounds counts; where a rough
        bound suffices, it is that of the last, which should be quick. By default a run
        is bounded by its own pairs alone.
        """
        return [{self: 1}]

    def basis(self, bound: Bound) -> str:
        """Returns a short description of the bound of one run on this side."""
        return OWN_PAIR

    def sum_of(self, members: int) -> "Mechanism | None":
        """Returns the mechanism that releases only the sum of all outputs, or None.

        Its pair is a lower bound for `members` differing records. Some of them may be
        in one dataset and some in the other, such that their contributions add up.
        """
        return None


class OnePairMechanism(Mechanism):
    """A mechanism for which one pair is valid in both directions."""

    @abc.abstractmethod
    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        """Returns the pair of one run, as `pairs` does."""

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        return DirectedPairs.same(self.pair(bound, accuracy))

    def claims(self) -> Claims:
        """Returns the largest loss of the atoms of the upper pair."""
        pairs = pairs_of(self, Bound.UPPER, accuracy.FOR_LARGEST_LOSSES)
        return Claims(largest_loss_of_atoms(pairs))


def claims_of(counts: Mapping[Mechanism, int]) -> Claims:
    """Returns what is known of a composition. All values are rounded up."""
    claims = [(part.claims(), count) for part, count in counts.items()]
    if sum(counts.values()) == 1:
        return claims[0][0]
    precision = math.fsum(n * c.gaussian_precision for c, n in claims)
    tails = math.fsum(n * c.tail[1] for c, n in claims)
    return Claims(
        _sum_of_losses([(c.loss, n) for c, n in claims]),
        probability_of_any([(c.probability_of_more, n) for c, n in claims]),
        precision * (1 + 4 * floats.UNIT_ROUNDOFF),
        all(c.is_symmetric for c, _ in claims),
        (
            _sum_of_losses([(c.tail[0], n) for c, n in claims]),
            tails * (1 + 4 * floats.UNIT_ROUNDOFF),
        ),
        math.fsum(n * c.rho for c, n in claims) * (1 + 4 * floats.UNIT_ROUNDOFF),
    )


def probability_of_any(probabilities: list[tuple[float, int]]) -> float:
    """Returns the probability that at least one of independent events happens.

    Args:
        probabilities: Probabilities, each with the number of events that have it.

    Returns:
        The probability, rounded up.
    """
    return min(sums.probability_of_any(probabilities) * LOSS_ROUNDED_UP, 1.0)


def _sum_of_losses(losses: list[tuple[float, int]]) -> float:
    """Returns Σ n l for losses l with counts n, rounded up to a float."""
    if any(math.isinf(loss) for loss, _ in losses):
        return math.inf
    total = sum(
        (count * fractions.Fraction(loss) for loss, count in losses),
        start=fractions.Fraction(0),
    )
    nearest = float(total)
    return nearest if nearest >= total else math.nextafter(nearest, math.inf)


def claims_of_either(claims: list[Claims]) -> Claims:
    """Returns what is known of one of several mechanisms, drawn at random."""
    return Claims(
        max(each.loss for each in claims),
        max(each.probability_of_more for each in claims),
        max(each.gaussian_precision for each in claims),
        all(each.is_symmetric for each in claims),
        (max(each.tail[0] for each in claims), max(each.tail[1] for each in claims)),
        max(each.rho for each in claims),
    )


def largest_loss_of_atoms(pairs: DirectedPairs) -> float:
    """Returns the largest loss of upper pairs, in either direction, or inf."""
    remove, add = pairs.remove, dominating_pair.dual(pairs.add)
    if remove.infinity_mass or add.infinity_mass:
        return math.inf
    largest = max(float(pair.ratios[-1]) for pair in (remove, add))
    error = max(pair.ratio_error for pair in (remove, add))
    return (max(math.log(largest), 0.0) + 2 * error) * LOSS_ROUNDED_UP


def pairs_of(mechanism: Mechanism, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
    """Returns the pairs of one run. The pairs that were used last are cached."""
    tail_mass = max(accuracy.tail_mass, floats.SMALLEST_MASS)
    accuracy = dataclasses.replace(accuracy, tail_mass=tail_mass)
    return _PAIRS.get(
        (mechanism, bound, accuracy),
        lambda: mechanism.pairs(bound, accuracy).map(dominating_pair.certain),
    )


def pairs_of_part(part: Mechanism, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
    """Returns the pairs of one run of a mechanism inside another one.

    The tail mass is rounded down to one of a few values. Otherwise, a mechanism that is
    used twice on each level of a tree would be computed for as many tail masses as
    there are paths to it.
    """
    exponent = math.log(max(accuracy.tail_mass, floats.SMALLEST_MASS), _COARSE_TAILS)
    tail_mass = _COARSE_TAILS ** math.floor(exponent)
    coarse = dataclasses.replace(accuracy, tail_mass=tail_mass)
    return pairs_of(part, bound, coarse)
