"""What can be composed: the base class, and its dominating pairs when asked for."""

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

from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import memory
from dp_accounting_ext.kernel import sums

Accuracy = accuracy.Accuracy
Allocation = replaced_allocation.Allocation
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair

# Tuning: for mechanisms that others contain, tails are powers of it, so that pairs
# that were made once are used again.
_COARSE_TAILS = 1e6
# Certified: covers a few logarithms and products none of whose digits cancel.
LOSS_ROUNDED_UP = 1 + 1e-12

# Of all mechanisms together: some hundred pairs of noise.
_PAIRS: memory.Memory[DirectedPairs] = memory.Memory(64 << 20)


# The probability that something happens, and that it does not: neither is computed as a
# difference from one.
Chances = tuple[float, float]

# What `Mechanism.basis` says where a pair is attained, and where none is known.
OWN_PAIR = "its own dominating pair"
NOTHING = "nothing, so that it counts as 0"


@dataclasses.dataclass(frozen=True)
class Claims:
    """What is known of one run besides its pairs; bounds are taken at their word.

    What is computed in floats is rounded up.

    Attributes:
        loss: No loss is larger, in either direction,
        probability_of_more: but with this probability.
        gaussian_precision: 1/σ² of a Gaussian mechanism that dominates the run.
        is_symmetric: Whether both directions have the same profile.
        tail: (loss, 1/σ²) such that something with no larger loss, composed with a
            Gaussian mechanism, dominates the run; what follows from the others if it
            is not given.
    """

    loss: float = math.inf
    probability_of_more: float = 0.0
    gaussian_precision: float = math.inf
    is_symmetric: bool = False
    tail: tuple[float, float] = (math.inf, math.inf)

    def __post_init__(self) -> None:
        if math.isfinite(self.gaussian_precision):
            object.__setattr__(self, "tail", (0.0, self.gaussian_precision))
        elif math.isfinite(self.largest_loss):
            object.__setattr__(self, "tail", (self.largest_loss, 0.0))

    @property
    def largest_loss(self) -> float:
        """A bound on the loss whatever is drawn, or inf."""
        return self.loss if self.probability_of_more == 0 else math.inf


class Divergences(NamedTuple):
    """Rényi divergences of one run, but for an event of small probability.

    Attributes:
        values: (n,) upper bounds at n orders, in nats, of the larger direction, on what
            is released unless that event happens.
        failure_probability: The probability of that event, in which everything may be
            released. It does not depend on the data.
    """

    values: FloatArray
    failure_probability: float = 0.0


def each(function: Callable[[float], float], values: FloatArray) -> FloatArray:
    """Returns the (n,) values of a function of a number."""
    return np.array([function(value) for value in values.tolist()], dtype=np.float64)


class Mechanism(abc.ABC):
    """Something that can be composed: hashable parameters, pairs when asked.

    Subclass it, as a frozen dataclass, to account for a mechanism of one's own. Only
    `pairs` must be written. Whatever else is known of a mechanism is told by the other
    methods, whose defaults claim nothing.

    Attributes:
        holds_for_any_inputs: Whether the pairs hold for any two inputs, and not for
            neighbors alone, as those of a randomized response do.
        is_known_by_divergences: Whether the mechanism is known by its Rényi
            divergences, which add up, so that pairs are made from their sum.
    """

    holds_for_any_inputs: ClassVar[bool] = False
    is_known_by_divergences: ClassVar[bool] = False

    @abc.abstractmethod
    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        """Returns the pairs of one run.

        Args:
            bound: Upper pairs dominate the run; lower ones are dominated by it
                (`dominating_pair.trivial_pair` where no such pair is known).
            accuracy: What the pairs are for. `accuracy.tail_mass` is the probability
                that may be moved to the sinks.
        """

    def claims(self) -> Claims:
        """Returns what is known of one run besides."""
        return Claims()

    def loss_tail(self, direction: Direction) -> tuple[float, float]:
        """Returns mean and deviation of a normal variable that the loss may not exceed.

        The profile in that direction is at most that of a loss with this law, however
        far out; infinite where none is known. Rounded up.
        """
        loss, precision = self.claims().tail
        precision *= LOSS_ROUNDED_UP
        mean = loss + precision / 2
        return mean * LOSS_ROUNDED_UP, math.sqrt(precision) * LOSS_ROUNDED_UP

    def rdp(self, orders: Sequence[float]) -> Divergences | None:
        """Returns what a theorem says of Rényi divergences, if one does.

        Where none does, they are those of what is composed, or of the pairs.

        Args:
            orders: (n,) Rényi orders α ≥ 1, inf included.
        """
        return None

    def rdp_on_a_batch(self, orders: Sequence[float], rate: float) -> FloatArray | None:
        """Returns what a theorem says of it on batches of fixed size, if one does.

        Args:
            orders: (n,) Rényi orders α ≥ 1, inf included.
            rate: Batch size over dataset size, in (0, 1). A record is replaced.

        Returns:
            (n,) upper bounds on the Rényi divergences, in nats.
        """
        return None

    def sampled_from(self) -> "tuple[float, Mechanism] | None":
        """If it is a Poisson sample, returns the rate, and what runs on the sample.

        Of any other mechanism returns None. A sample of what is returned has no smaller
        divergence, and that of Poisson samples is increasing in their rate.
        """
        return None

    @property
    def gaussian_noise(self) -> float | None:
        """The noise multiplier, if it is the Gaussian mechanism of sensitivity one."""
        return None

    @property
    def revealed(self) -> Chances | None:
        """The chances of both with the record, if a run tells everything or nothing."""
        return None

    def is_certain(self) -> bool:
        """Tells whether there is no privacy at all."""
        return False

    def on_a_sample(self, rate: float) -> "Mechanism | None":
        """Returns the mechanism on a Poisson sample in closed form, if that is known.

        Args:
            rate: Inclusion probability of each record, in (0, 1).
        """
        return None

    def gaussian_steps(self) -> Allocation | None:
        """Returns the Gaussian steps one of which a record takes part in.

        Of what is not such an amplification of Gaussian mechanisms returns None.
        """
        return None

    def parts(self, bound: Bound) -> "Mapping[Mechanism, int]":
        """Returns mechanisms with counts whose composition bounds one run."""
        return {self: 1}

    def other_parts(self, bound: Bound) -> "Mapping[Mechanism, int]":
        """Returns mechanisms with counts whose composition bounds one run.

        A second bound from that side, looser or tighter than that of `parts`.
        """
        return self.parts(bound)

    def basis(self, bound: Bound) -> str:
        """Returns in a few words by what one run is bounded from a side."""
        return OWN_PAIR

    def sum_of(self, members: int) -> "Mechanism | None":
        """Returns what a group of members that differ is certain to reveal, or None.

        Either dataset has some of them, all of whose contributions add up.
        """
        return None


class OnePairMechanism(Mechanism):
    """A mechanism one pair of which serves both directions."""

    @abc.abstractmethod
    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        """Returns the pair of one run, as `pairs` does."""

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        return DirectedPairs.same(self.pair(bound, accuracy))

    def claims(self) -> Claims:
        """Returns the largest loss that the atoms of the upper pair show."""
        pairs = pairs_of(self, Bound.UPPER, accuracy.FOR_LARGEST_LOSSES)
        return Claims(largest_loss_of_atoms(pairs))


def claims_of(counts: Mapping[Mechanism, int]) -> Claims:
    """Returns what is known of a composition: all of it rounded up."""
    known = [(part.claims(), count) for part, count in counts.items()]
    if sum(counts.values()) == 1:
        return known[0][0]
    precision = math.fsum(n * c.gaussian_precision for c, n in known)
    tails = math.fsum(n * c.tail[1] for c, n in known)
    return Claims(
        _sum_of_losses([(c.loss, n) for c, n in known]),
        probability_of_any([(c.probability_of_more, n) for c, n in known]),
        precision * (1 + 4 * floats.UNIT_ROUNDOFF),
        all(c.is_symmetric for c, _ in known),
        (
            _sum_of_losses([(c.tail[0], n) for c, n in known]),
            tails * (1 + 4 * floats.UNIT_ROUNDOFF),
        ),
    )


def probability_of_any(chances: list[tuple[float, int]]) -> float:
    """Returns the probability that any of independent events happens, rounded up."""
    return min(sums.probability_of_any(chances) * LOSS_ROUNDED_UP, 1.0)


def _sum_of_losses(losses: list[tuple[float, int]]) -> float:
    """Returns Σ n l, the nearest float that is no less."""
    if any(math.isinf(loss) for loss, _ in losses):
        return math.inf
    total = sum(
        (count * fractions.Fraction(loss) for loss, count in losses),
        start=fractions.Fraction(0),
    )
    nearest = float(total)
    return nearest if nearest >= total else math.nextafter(nearest, math.inf)


def claims_of_either(known: list[Claims]) -> Claims:
    """Returns what is known of one of several mechanisms, whichever is drawn."""
    return Claims(
        max(each.loss for each in known),
        max(each.probability_of_more for each in known),
        max(each.gaussian_precision for each in known),
        all(each.is_symmetric for each in known),
        (max(each.tail[0] for each in known), max(each.tail[1] for each in known)),
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
    """Returns the pairs of one run; those that were made last are kept."""
    tail_mass = max(accuracy.tail_mass, floats.SMALLEST_MASS)
    accuracy = accuracy.with_tails(tail_mass)
    return _PAIRS.get(
        (mechanism, bound, accuracy),
        lambda: mechanism.pairs(bound, accuracy).map(dominating_pair.certain),
    )


def pairs_of_part(part: Mechanism, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
    """Returns the pairs of one run of what another mechanism is made of.

    They are made for few different tails: what is used twice on every level of a tree
    must not be computed for as many tails as there are paths to it.
    """
    exponent = math.log(max(accuracy.tail_mass, floats.SMALLEST_MASS), _COARSE_TAILS)
    coarse = accuracy.with_tails(_COARSE_TAILS ** math.floor(exponent))
    return pairs_of(part, bound, coarse)
