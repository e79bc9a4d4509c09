"""What can be composed: the base class, and its dominating pairs when asked for."""

import abc
from collections.abc import Mapping
from collections.abc import Sequence
import fractions
import functools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import memory
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian_mixture

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
FloatArray = npt.NDArray[np.float64]

# Certified: the smallest tail mass for which cells of a normal law are made.
_SMALLEST_TAIL_MASS = gaussian_mixture.SMALLEST_TAIL_MASS
# Tuning: for mechanisms that contain others, tails are powers of it, so that pairs
# that were made once are used again.
_COARSE_TAILS = 1e6
# Tuning: the tail of pairs that are asked for what does not depend on δ.
_RARE = 1e-30
# Certified: covers a few logarithms and products none of whose digits cancel.
LOSS_ROUNDED_UP = 1 + 1e-12
# Tuning: of so many runs the chance that any is an exception is a rational number.
_MOST_EXACT = 64

# Of all mechanisms together: some hundred pairs of noise.
_PAIRS: memory.Memory[DirectedPairs] = memory.Memory(64 << 20)


class Mechanism(abc.ABC):
    """Something that can be composed: hashable parameters, pairs when asked.

    Subclass it, as a frozen dataclass, to account for a mechanism of one's own.
    """

    @abc.abstractmethod
    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        """Returns the pairs of one run.

        Args:
            bound: Upper pairs dominate the run; lower ones are dominated by it
                (`dominating_pair.trivial_pair` where no such pair is known).
            tail_mass: Probability that may be moved to the sinks.
        """

    def rough_pairs(self, tail_mass: float, points: int) -> DirectedPairs:
        """Returns upper pairs, less tight than `pairs` and sooner made, if there are.

        Args:
            tail_mass: As of `pairs`.
            points: About how many atoms will do; those of `pairs` do.
        """
        return self.pairs(Bound.UPPER, tail_mass)

    def parts(self, bound: Bound) -> "Mapping[Mechanism, int]":
        """Returns mechanisms with counts whose composition bounds one run."""
        return {self: 1}

    def other_parts(self, bound: Bound) -> "Mapping[Mechanism, int]":
        """Returns mechanisms with counts whose composition bounds one run.

        A second bound from that side, looser or tighter than that of `parts`.
        """
        return self.parts(bound)

    def sum_of(self, members: int) -> "Mechanism | None":
        """Returns what a group of members that differ is certain to reveal, or None.

        Either dataset has some of them, all of whose contributions add up.
        """
        return None

    def total_variation(self) -> float:
        """Returns an upper bound on δ of one run at ε = 0, in either direction."""
        return 1.0

    def closed_form_delta(
        self, epsilon: float, direction: Direction, bound: Bound
    ) -> float | None:
        """Returns a certified δ of one run at ε, where it has a closed form."""
        return None

    def closed_form_deltas(
        self, epsilons: FloatArray, direction: Direction, bound: Bound
    ) -> FloatArray | None:
        """Returns (n,) certified δ of one run at (n,) ε, if it has a closed form."""
        found = [
            self.closed_form_delta(each, direction, bound) for each in epsilons.tolist()
        ]
        known = [delta for delta in found if delta is not None]
        return np.array(known) if len(known) == len(found) else None

    def closed_form_epsilon(self, delta: float, bound: Bound) -> float | None:
        """Returns a certified ε ≥ 0 of one run at δ, in both directions, likewise."""
        return None

    def closed_form_epsilons(
        self, deltas: FloatArray, bound: Bound
    ) -> FloatArray | None:
        """Returns (n,) of these at (n,) δ, if all are found sooner than one by one."""
        return None

    def gaussian_precision(self) -> float:
        """Returns 1/σ² of a Gaussian mechanism that dominates one run, or inf."""
        return math.inf

    def largest_loss(self) -> float:
        """Returns a bound on the loss of one run in either direction, or inf.

        What is computed in floats is rounded up: the bound is taken at its word.
        """
        return math.inf

    def chance_of_more(self) -> tuple[float, float]:
        """Returns a loss, and the probability, of either direction, of a larger one.

        Both are taken at their word, as of `largest_loss`.
        """
        return self.largest_loss(), 0.0

    def is_symmetric(self) -> bool:
        """Tells whether both directions have the same profile."""
        return False

    def tail_as_a_part(self, tail_mass: float) -> float:
        """Returns the tail with which it is computed as a part of another."""
        return max(tail_mass, _SMALLEST_TAIL_MASS)


class OnePairMechanism(Mechanism):
    """A mechanism one pair of which serves both directions."""

    @abc.abstractmethod
    def pair(self, bound: Bound, tail_mass: float) -> DominatingPair:
        """Returns the pair of one run, as `pairs` does."""

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        return DirectedPairs.same(self.pair(bound, tail_mass))

    def largest_loss(self) -> float:
        """Returns the largest loss that the atoms of the upper pair show."""
        return largest_loss_of_atoms(pairs_of(self, Bound.UPPER, _RARE))

    def total_variation(self) -> float:
        exact = self.closed_form_delta(0.0, Direction.REMOVE, Bound.UPPER)
        if exact is not None:
            return exact
        return pairs_of(self, Bound.UPPER, _RARE).remove.delta(0.0, Direction.REMOVE)


class AmplifiedMechanism(Mechanism):
    """A mechanism that runs another on a part of the records.

    It is computed for few different tails: what is used twice on every level of a
    tree must not be computed for as many tails as there are paths to it.
    """

    def tail_as_a_part(self, tail_mass: float) -> float:
        tail_mass = super().tail_as_a_part(tail_mass)
        return _COARSE_TAILS ** math.floor(math.log(tail_mass, _COARSE_TAILS))


def largest_loss_of(counts: Mapping[Mechanism, int]) -> float:
    """Returns a bound on the loss of a composition: a sum, rounded up."""
    return _sum_of([(part.largest_loss(), count) for part, count in counts.items()])


def chance_of_more_in(counts: Mapping[Mechanism, int]) -> tuple[float, float]:
    """Returns a loss of a composition, and the probability of a larger one.

    Both are rounded up. If the loss is infinite, the probability is no bound.
    """
    losses, log_kept, kept = [], 0.0, fractions.Fraction(1)
    if sum(counts.values()) == 1:
        loss, chance = next(iter(counts)).chance_of_more()
        return (loss, chance) if chance < 1 else (0.0, 1.0)
    for part, count in counts.items():
        loss, chance = part.chance_of_more()
        losses.append((loss, count))
        if chance >= 1:
            return 0.0, 1.0
        log_kept += count * math.log1p(-chance)
        if chance and sum(counts.values()) <= _MOST_EXACT:
            kept *= (1 - fractions.Fraction(chance)) ** count
    more = -math.expm1(log_kept) * LOSS_ROUNDED_UP
    if sum(counts.values()) <= _MOST_EXACT:
        more = _rounded_up(1 - kept)
    return _sum_of(losses), min(more, 1.0)


def _sum_of(losses: Sequence[tuple[float, int]]) -> float:
    if any(math.isinf(loss) for loss, _ in losses):
        return math.inf
    terms = (count * fractions.Fraction(loss) for loss, count in losses)
    return _rounded_up(sum(terms, start=fractions.Fraction(0)))


def _rounded_up(number: fractions.Fraction) -> float:
    nearest = float(number)
    return nearest if nearest >= number else math.nextafter(nearest, math.inf)


def total_variation_of(counts: Mapping[Mechanism, int]) -> float:
    """Returns an upper bound on δ of a composition at ε = 0.

    Two laws may be drawn to be equal but with that probability, and so may runs.
    """
    chances = [(total_variation(part), count) for part, count in counts.items()]
    return min(floats.raised(sums.probability_of_any(chances)), 1.0)


@functools.lru_cache(maxsize=256)
def total_variation(mechanism: Mechanism) -> float:
    """Returns an upper bound on δ of one run at ε = 0."""
    return min(mechanism.total_variation(), 1.0)


def largest_loss_of_atoms(pairs: DirectedPairs) -> float:
    """Returns the largest loss of upper pairs, in either direction, or inf."""
    remove, add = pairs.remove, dominating_pair.dual(pairs.add)
    if remove.infinity_mass or add.infinity_mass:
        return math.inf
    largest = max(float(pair.ratios[-1]) for pair in (remove, add))
    error = max(pair.ratio_error for pair in (remove, add))
    return (max(math.log(largest), 0.0) + 2 * error) * LOSS_ROUNDED_UP


def pairs_of(mechanism: Mechanism, bound: Bound, tail_mass: float) -> DirectedPairs:
    """Returns the pairs of one run; those that were made last are kept."""
    tail_mass = max(tail_mass, _SMALLEST_TAIL_MASS)
    return _PAIRS.get(
        (mechanism, bound, tail_mass),
        lambda: mechanism.pairs(bound, tail_mass).map(dominating_pair.certain),
    )


def rough_pairs_of(
    mechanism: Mechanism, tail_mass: float, points: int
) -> DirectedPairs:
    """Returns upper pairs of one run of about so many atoms, if there are."""
    tail_mass = max(tail_mass, _SMALLEST_TAIL_MASS)
    if type(mechanism).rough_pairs is Mechanism.rough_pairs:
        return pairs_of(mechanism, Bound.UPPER, tail_mass)

    def pairs() -> DirectedPairs:
        return mechanism.rough_pairs(tail_mass, points).map(dominating_pair.certain)

    return _PAIRS.get((mechanism, points, tail_mass), pairs)


def pairs_of_part(part: Mechanism, bound: Bound, tail_mass: float) -> DirectedPairs:
    """Returns the pairs of one run of what another mechanism is made of."""
    return pairs_of(part, bound, part.tail_as_a_part(tail_mass))
