"""Any mechanism on batches of any sampling: one certified pair for both.

Two datasets that differ in a group of records (its members) draw batches. Condition the
batches of either dataset on the number of members in them, and couple all conditional
laws to one common batch without members. Then a dominating pair needs two things only:
the law of the distance from the common batch (`Coupled`), and the pair of the mechanism
on two batches at a given distance (`Base`).

Why this is a bound: let y₀ be the batch without members. The outputs have the densities
Σ_i w_i b(y_i) and Σ_j v_j b(y'_j), both averaged over the coupling. Divergences are
jointly convex, so the divergence of the averages is at most the largest divergence of
two such mixtures whose distances d(y₀, y_i) and d(y₀, y'_j) are those of the coupling.
A coupling that always attains the least possible distances loses nothing.
"""

import abc
from collections.abc import Sequence
import dataclasses
import math
from typing import ClassVar

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_of_pairs
from dp_accounting_ext.pairs import few_atoms
from dp_accounting_ext.pairs import replaced_draws as replaced_draws_pair
from dp_accounting_ext.pairs import shifts

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
Mechanism = interface.Mechanism
Distances = shifts.Shifts

NONE: Distances = additive_noise.UNSHIFTED

# Tuning: the probability of the largest numbers of hits that Rényi divergences leave
# out. With a smaller value, rarer hits would determine moments of high order. Over a
# million runs, this value adds 1e-14 to δ.
_RARE_HITS = 1e-20
# Certified: a bound on the relative error of a sum of up to 4096 weights, which is at
# most 4e-13 and 2e-15 for each weight: see `shifts.Mixture.weight_error`.
WEIGHT_ERROR = 1e-11


@dataclasses.dataclass(frozen=True)
class Coupled:
    """Batches of two datasets, all coupled to one common batch without the group.

    Attributes:
        removed: The law of the distance between a batch of the first dataset and the
            common batch, as (distance, weight). The weights sum to one.
        inserted: The same law for the second dataset.
        probability: The probability of this part of the batches, which is the same for
            both datasets. A part is drawn first and counts as revealed: for example,
            the stratum from which the batch is drawn.

    The relative error of each weight must be at most 4e-13, or at most 4e-16 if there
    are two weights.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.4 and Definition 3.6 (the distances
        of a compatible coupling are the least between the supports).
    """

    removed: Distances = NONE
    inserted: Distances = NONE
    probability: float = 1.0


class Base(abc.ABC):
    """A mechanism that runs on a batch, known by the distance between two batches.

    Attributes:
        counts_norms: Whether distances are measured in norms of one record. If so, two
            batches in which one record replaces another are at distance 2; otherwise
            they are at distance 1.
    """

    counts_norms: ClassVar[bool] = True

    @abc.abstractmethod
    def on(self, removed: Distances, inserted: Distances) -> Mechanism:
        """Returns the worst case of one mixture of outputs against another.

        Args:
            removed: Law of the distance between a batch of the first dataset and the
                common batch.
            inserted: The same law for the second dataset.
        """

    @property
    def gaussian_noise(self) -> float | None:
        """The noise multiplier, if this is Gaussian noise on a sum and is not zero."""
        return None

    @property
    def is_revealing(self) -> bool:
        """Whether the output always reveals that the batch holds a member."""
        return False

    def attains(self, parts: Sequence[Coupled]) -> bool:
        """Returns whether coupled batches of two real datasets give a lower bound."""
        return True

    def replaced(self) -> "Base":
        """Returns the mechanism for which replacing one record is a distance of one."""
        return self


def on_batches(
    base: Base, parts: Sequence[Coupled], *, is_attained: bool = False
) -> Mechanism:
    """Returns a mechanism on the batches of two datasets.

    Args:
        base: The mechanism that runs on a batch.
        parts: The coupled batches. Their probabilities sum to one. If there are several
            parts, the bound assumes that the output reveals which one was drawn.
        is_attained: Whether two datasets attain the bound, so that it is a lower bound
            as well. This has an effect for a single part only.

    Raises:
        ValueError: If probabilities do not sum to one, or a distance is negative.

    Guarantees:
        No divergence of the outputs, in either direction and at any κ, is above that
        of the mechanism's upper pairs.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.3 (for parts that are revealed),
        Theorem 3.4, and Proposition 3.5 (the worst case by distances).
    """
    mechanism = on_parts(base, parts, WEIGHT_ERROR)
    is_one = sum(part.probability > 0 for part in parts) == 1
    if (is_attained and is_one) or mechanism == compositions.NO_OP:
        return mechanism
    return known_bounds.UpperOnly(mechanism)


def on_parts(base: Base, parts: Sequence[Coupled], error: float) -> Mechanism:
    """Returns a mechanism on coupled batches whose output also reveals the part.

    Args:
        base: The mechanism that runs on a batch.
        parts: The coupled batches.
        error: Bound on the relative error of the probability of each part.

    Raises:
        ValueError: If probabilities do not sum to one, or a distance is negative.
    """
    _check_probabilities(
        "probabilities of parts", [part.probability for part in parts], error
    )
    for part in parts:
        for law in (part.removed, part.inserted):
            weights = [weight for _, weight in law]
            _check_probabilities("weights of distances", weights, WEIGHT_ERROR)
            if not all(0 <= distance < math.inf for distance, _ in law):
                raise ValueError(
                    f"distances must be finite and at least 0. Found {law}."
                )
    likely = [part for part in parts if part.probability]
    drawn = [
        (base.on(part.removed, part.inserted), part.probability) for part in likely
    ]
    if len(drawn) == 1 and drawn[0][1] == 1:
        return drawn[0][0]
    return RandomChoice(tuple(drawn), error)


def _check_probabilities(name: str, values: Sequence[float], error: float) -> None:
    if not all(0 <= value <= 1 + 2 * error for value in values):
        raise ValueError(f"{name} must be in [0, 1]. Found {list(values)}.")
    if abs(math.fsum(values) - 1) > 2 * error:
        raise ValueError(f"{name} must sum to 1. Found {math.fsum(values)}.")


def furthest(distances: Distances) -> float:
    """Returns the largest distance that has a positive probability."""
    return max(distance for distance, weight in distances if weight)


@dataclasses.dataclass(frozen=True)
class RandomChoice(Mechanism):
    """One of several mechanisms, drawn at random. The output reveals which one.

    Attributes:
        drawn: Each mechanism with its probability. The probabilities sum to one.
        error: Bound on the relative error of each probability.

    Source:
        https://arxiv.org/abs/2403.04867, Appendix J (weighted sums of divergences).
    """

    drawn: tuple[tuple[Mechanism, float], ...]
    error: float = WEIGHT_ERROR

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        weights = [weight for _, weight in self.drawn]

        def mixed(pairs: Sequence[DominatingPair]) -> DominatingPair:
            pair = dominating_pair.mixture(pairs, weights)
            pair = dataclasses.replace(pair, mass_error=pair.mass_error + self.error)
            return few_atoms.reduced(pair)

        # There may be dozens, each of which has a quarter of a million atoms where
        # there is little noise.
        each = [
            interface.pairs_of_part(part, bound, accuracy).map(few_atoms.reduced)
            for part, _ in self.drawn
        ]
        return DirectedPairs.combined(each, mixed)

    def basis(self, bound: Bound) -> str:
        found = dict.fromkeys(part.basis(bound) for part, _ in self.drawn)
        return f"one of several at random, and which one: {'; '.join(found)}"

    def claims(self) -> interface.Claims:
        return interface.claims_of_either([part.claims() for part, _ in self.drawn])


def replaced_draws(base: Base, hits: Distances) -> Mechanism:
    """Returns a mechanism on batches in which other records replace those of a group.

    Args:
        base: The mechanism that runs on a batch.
        hits: Law of the number of draws that hit the group. It is the same in either
            dataset.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem L.5, tightened.
    """
    if not furthest(hits):
        return compositions.NO_OP
    return ReplacedDraws(base, hits)


@dataclasses.dataclass(frozen=True)
class ReplacedDraws(interface.OnePairMechanism):
    """A mechanism on batches that draw a group's records, or those that replace them.

    The lower bound is for a group whose members all differ from the other records in
    the same way, where the records that replace the group are equal to the others.

    Attributes:
        base: The mechanism that runs on a batch.
        hits: Law of the number of draws that hit the group. It is the same in either
            dataset.
    """

    base: Base
    hits: Distances

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        one_sided = self.base.on(self.hits, NONE)
        if bound is Bound.LOWER:
            return interface.pairs_of_part(one_sided, bound, accuracy).remove
        moved = [(number, weight) for number, weight in self.hits if number and weight]
        rate = math.fsum(weight for _, weight in moved)
        given = tuple((number, weight / rate) for number, weight in moved)
        released = RandomChoice(
            tuple(
                (self.base.on(((number, 1.0),), NONE), weight)
                for number, weight in given
            )
        )
        mechanisms = (
            self.base.on(given, NONE),
            released,
            self.base.on(self.hits, self.hits),
        )
        apart, each, star = (
            interface.pairs_of_part(part, bound, accuracy).remove for part in mechanisms
        )
        raised = min(rate * (1 + WEIGHT_ERROR), 1.0)
        single = dict(given).get(1.0, 0.0) * (1 - WEIGHT_ERROR)
        return replaced_draws_pair.dominating_pair_of(apart, each, star, raised, single)

    def basis(self, bound: Bound) -> str:
        if bound is Bound.LOWER:
            return "other records that are all alike"
        return "a convex minorant over what the other draws may reveal"

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        """Returns the Rényi divergences of its pairs, unless very many draws hit.

        The largest numbers of hits move a sum so far that they alone would determine
        every moment of high order. Their probability counts as failure probability.
        """
        kept, lost = additive_noise.without_rare(self.hits, _RARE_HITS, Bound.UPPER)
        whole = math.fsum(weight for _, weight in kept)
        usual = tuple((number, weight / whole) for number, weight in kept)
        found = renyi_of_pairs.upper(ReplacedDraws(self.base, usual), orders)
        failure = min(found.failure_probability + lost, 1.0)
        return interface.Divergences(found.values, failure)

    def claims(self) -> interface.Claims:
        # If two batches are coupled draw by draw, their distance is the number of hits.
        apart = self.base.on(((furthest(self.hits), 1.0),), NONE).claims()
        return interface.Claims(
            self.base.on(self.hits, self.hits).claims().largest_loss,
            gaussian_precision=apart.gaussian_precision,
            is_symmetric=True,
        )
