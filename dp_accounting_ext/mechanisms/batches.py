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
import bisect
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_curves
from dp_accounting_ext.pairs import batch_laws
from dp_accounting_ext.pairs import chained_pairs
from dp_accounting_ext.pairs import profile_pairs
from dp_accounting_ext.pairs import shifts
from dp_accounting_ext.pairs import trade_off_curves
from dp_accounting_ext.validation import fields

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
Mechanism = interface.Mechanism
Distances = shifts.Shifts

NONE: Distances = additive_noise.UNSHIFTED

# The probabilities of classes of batches.
Weights = Mapping[Hashable, float] | Sequence[float]
# A limit of time: a pair for 40 classes on either side takes two to three seconds.
MOST_CLASSES = 128
# The largest distance, whose square is a float.
_FURTHEST = 1e60
# Tuning, all of these constants.
# The numbers of members of a group whose places are computed one by one.
MOST_NUMBERS = 24
# The probability of classes that Rényi divergences leave out. With a smaller value,
# rarer ones would determine moments of high order. Over a million runs, this value adds
# 1e-14 to δ.
_RARE = 1e-20

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
        is_of_one_question: Whether outputs tell apart batches by one question, so that
            `on` is tight whatever the distances are.
    """

    counts_norms: ClassVar[bool] = True
    is_of_one_question: ClassVar[bool] = False

    @abc.abstractmethod
    def on(self, removed: Distances, inserted: Distances) -> Mechanism:
        """Returns the worst case of one mixture of outputs against another.

        Args:
            removed: Law of the distance between a batch of the first dataset and the
                common batch.
            inserted: The same law for the second dataset.
        """

    def curves(
        self, distances: FloatArray, accuracy: Accuracy
    ) -> tuple[FloatArray, trade_off_curves.Curves]:
        """Returns what is known of outputs on two batches, by their distance.

        By default, outputs on two batches that differ may reveal which one it is.

        Args:
            distances: (n, n) distances.
            accuracy: What the curves are for.

        Returns:
            (n, n) distances in units of the curves, and the curves.
        """
        trivial = trade_off_curves.PairCurves({1.0: profile_pairs.TRIVIAL})
        return np.minimum(np.ceil(distances), 1.0), trivial

    def check(self, distances: FloatArray) -> None:
        """Checks that two batches may be at these distances.

        Raises:
            ValueError: If they may not.
        """
        return

    @property
    def gaussian_noise(self) -> float | None:
        """The noise multiplier, if this is Gaussian noise on a sum and is not zero."""
        return None

    @property
    def is_revealing(self) -> bool:
        """Whether the output always reveals that the batch holds a member."""
        return False

    def attains(self, parts: Sequence[Coupled]) -> bool:
        """Returns whether the mechanism on these parts is also a lower bound.

        Args:
            parts: The coupled batches of two datasets that exist; see `on_parts`.
        """
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
    return known_bounds.between(None, mechanism)


def on_batch_laws(
    base: Base,
    first: Weights,
    second: Weights,
    distances: npt.ArrayLike | Callable[[Any, Any], float],
    *,
    is_attained: bool = False,
) -> Mechanism:
    """Returns a mechanism on batches of two datasets, from the two laws of a batch.

    The batches are sorted into classes, such as batches with i members who leave and j
    who join. If permutations of records that change neither the laws nor any distance
    take each batch of a class to each other one, the bound by classes is as small as
    that by single batches.

    Args:
        base: The mechanism that runs on a batch.
        first: The probability of each class in the first dataset: a mapping from
            classes, or a sequence, whose classes are 0, 1, 2, ….
        second: The same in the second dataset. A class that is missing has probability
            zero. The relative error of each probability must be at most 4e-13.
        distances: The least distance of a batch of one class from a batch of another: a
            function of two classes; or an (n, n) matrix, in the order of the classes of
            `first`, followed by those only in `second`. Where a detour through a third
            class is shorter, its length is used.
        is_attained: Whether two datasets exist whose batches can be placed on a line as
            far apart as any distances allow. Then the lower bound is that of one such
            placement, for Gaussian and Laplace noise.

    Raises:
        TypeError: If `base` is not a mechanism on batches, or if a probability or a
            distance is no real number.
        ValueError: If probabilities do not sum to one; if there are too many classes;
            if a distance is negative, above 1e60 or NaN, differs from that the other
            way round, or is not zero from a class to itself; or if `base` does not know
            the distance.

    Guarantees:
        No divergence of the outputs, in either direction and at any κ, is above that of
        the upper pair. For one run under Gaussian or Laplace noise, no bound by these
        laws and distances is smaller by more than a small share.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.4 and Proposition 3.5, whose optimum
        this is; docs/mathematics.md, "Any two laws over batches".
    """
    if not isinstance(base, Base):
        raise TypeError(
            f"base must be a mechanism on batches, such as Noise(1.0) or "
            f"NeighboringBatches(mechanism). Found {base!r:.60}."
        )
    laws = [_weights_by_class("first", first), _weights_by_class("second", second)]
    classes = list(dict.fromkeys([*laws[0], *laws[1]]))
    if len(classes) > MOST_CLASSES:
        raise ValueError(
            f"first and second may have {MOST_CLASSES} classes at most. Found "
            f"{len(classes)}; put batches that symmetries exchange into one class."
        )
    for name, law in zip(("first", "second"), laws, strict=True):
        _check_probabilities(f"weights of {name}", list(law.values()), WEIGHT_ERROR)
    matrix = _checked_distances(distances, classes)
    base.check(matrix)
    weights = np.array([[law.get(label, 0.0) for label in classes] for law in laws])
    matrix, weights = _merged(matrix, weights)
    if np.array_equal(*weights):
        return compositions.NO_OP
    rows = tuple(tuple(row) for row in matrix.tolist())
    p, q = (tuple(row) for row in weights.tolist())
    return OnBatchLaws(base, p, q, rows, is_attained)


def _weights_by_class(name: str, law: Weights) -> dict[Hashable, float]:
    items = law.items() if isinstance(law, Mapping) else enumerate(law)
    name = f"weights of {name}"
    return {label: fields.real_number(name, weight) for label, weight in items}


def _checked_distances(
    distances: npt.ArrayLike | Callable[[Any, Any], float], classes: list[Hashable]
) -> FloatArray:
    """Returns (n, n) distances, none of which is longer than a detour."""
    if callable(distances):
        distances = [[distances(one, other) for other in classes] for one in classes]
    try:
        matrix = np.array(distances, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            "distances must be real numbers, in rows of one length. "
            f"Found {distances!r:.60}."
        ) from None
    number = len(classes)
    if matrix.shape != (number, number):
        raise ValueError(
            f"distances must be a ({number}, {number}) matrix, with a row for each "
            f"class of first and second. Found the shape {matrix.shape}."
        )
    wrong = matrix[~((matrix >= 0) & (matrix <= _FURTHEST))]
    if wrong.size:
        raise ValueError(
            f"distances must be from 0 to {_FURTHEST:g}. Found {wrong[0]}."
        )
    for one, other in zip(*np.nonzero(matrix != matrix.T), strict=True):
        raise ValueError(
            f"distances must be symmetric. Found {matrix[one, other]} from "
            f"{classes[one]} to {classes[other]}, and {matrix[other, one]} back; use "
            "the least one."
        )
    if matrix.diagonal().any():
        raise ValueError(
            "distances of a class from itself must be 0. Found "
            f"{matrix.diagonal().max()}; the least distance of its batches counts."
        )
    for middle in range(number):
        matrix = np.minimum(matrix, matrix[:, middle, np.newaxis] + matrix[middle])
    return matrix


def _merged(matrix: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns distances and weights where classes at distance zero are one class."""
    leaders = (matrix == 0).argmax(axis=1)
    distinct = np.unique(leaders)
    sums = np.array(
        [[math.fsum(row[leaders == leader]) for leader in distinct] for row in weights]
    )
    likely = sums.any(axis=0)
    distinct = distinct[likely]
    return matrix[np.ix_(distinct, distinct)], sums[:, likely]


@dataclasses.dataclass(frozen=True)
class OnBatchLaws(Mechanism):
    """A mechanism on batches of two laws, known by the distances between classes.

    Attributes:
        base: The mechanism that runs on a batch.
        first: The probability of each class in the first dataset.
        second: The probability of each class in the second dataset.
        distances: The distances between classes, none of which is longer than a detour.
        is_attained: Whether there are datasets whose batches are on a line, as far
            apart as these distances allow.
        error: Bound on the relative error of each probability.
    """

    base: Base
    first: tuple[float, ...]
    second: tuple[float, ...]
    distances: tuple[tuple[float, ...], ...]
    is_attained: bool = False
    error: float = batch_laws.WEIGHT_ERROR

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if self.base.is_revealing:
            # Classes are told apart, whatever their distance is.
            return DirectedPairs.same(
                output_pairs.of_probabilities(
                    self.first, self.second, bound, error=self.error
                )
            )
        trivial = DirectedPairs.same(dominating_pair.trivial_pair(bound))
        if bound is Bound.LOWER and not self.is_attained:
            return trivial
        distances, curves = self.base.curves(np.array(self.distances), accuracy)
        weights = np.array(self.first), np.array(self.second)
        laws = batch_laws.Laws(*weights, distances, curves, self.error)
        if bound is Bound.LOWER:
            return laws.lower_pairs(accuracy.tail_mass) or trivial
        return DirectedPairs.same(laws.upper_pair(accuracy.tail_mass))

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        """Returns the Rényi divergences of its pairs without classes that are rare.

        The rarest batches may be so far apart that they alone would determine every
        moment of high order. Their probability counts as failure probability.
        """
        weights = np.array([self.first, self.second])
        likeliest = np.sort(weights.max(axis=0))
        # Most classes are of one dataset only.
        is_together_rare = np.cumsum(likeliest) <= 2 * _RARE
        smallest_kept = likeliest[~is_together_rare][0]
        is_rare = weights.max(axis=0) < smallest_kept
        if not is_rare.any():
            return renyi_curves.upper(self, orders)
        places = np.flatnonzero(~is_rare)
        likely = weights[:, places] / weights[:, places].sum(axis=1, keepdims=True)
        first, second = (tuple(row) for row in likely.tolist())
        matrix = np.array(self.distances)[np.ix_(places, places)]
        usual = dataclasses.replace(
            self,
            first=first,
            second=second,
            distances=tuple(tuple(row) for row in matrix.tolist()),
        )
        divergences = renyi_curves.upper(usual, orders)
        lost = floats.raised(float(weights[:, is_rare].sum(axis=1).max()))
        failure = min(divergences.failure_probability + lost, 1.0)
        return interface.Divergences(divergences.values, failure)

    def basis(self, bound: Bound) -> str:
        if bound is Bound.UPPER:
            return "the worst case by distances between classes of batches"
        if self.is_attained:
            return "one placement of batches on a line"
        return interface.NOTHING

    def claims(self) -> interface.Claims:
        largest_distance = max(
            distance
            for row, weight in zip(self.distances, self.first, strict=True)
            for distance, other in zip(row, self.second, strict=True)
            if weight and other
        )
        weights = np.array(self.first), np.array(self.second)
        return dataclasses.replace(
            self.base.on(((largest_distance, 1.0),), NONE).claims(),
            is_symmetric=batch_laws.is_symmetric(*weights, np.array(self.distances)),
        )


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
            return chained_pairs.reduced(pair)

        # There may be dozens, each of which has a quarter of a million atoms where
        # there is little noise.
        pairs_of_parts = [
            interface.pairs_of_part(part, bound, accuracy).map(chained_pairs.reduced)
            for part, _ in self.drawn
        ]
        return DirectedPairs.combined(pairs_of_parts, mixed)

    def basis(self, bound: Bound) -> str:
        bases = dict.fromkeys(part.basis(bound) for part, _ in self.drawn)
        return f"one of several at random, and which one: {'; '.join(bases)}"

    def claims(self) -> interface.Claims:
        return interface.claims_of_either([part.claims() for part, _ in self.drawn])


def replaced_members(base: Base, members: Distances) -> Mechanism:
    """Returns a mechanism on batches in which other records replace those of a group.

    Batches with i of the records that leave and with j of those that join are at
    distance max(i, j), place by place.

    Args:
        base: The mechanism, for which replacing one record is a distance of one.
        members: Law of the number of members in a batch, the same in either dataset.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem L.5, tightened.
    """
    if not furthest(members):
        return compositions.NO_OP
    weights: dict[float, float] = {}
    # The likeliest numbers count one by one. A larger number stands for each other one.
    likeliest = sorted(members, key=lambda case: case[1], reverse=True)
    alone = sorted(number for number, weight in likeliest[:MOST_NUMBERS] if weight)
    standing, step = [0.0, *alone], 1.0
    while standing[-1] < furthest(members):
        standing.append(min(standing[-1] + step, furthest(members)))
        step *= 2
    for number, weight in members:
        stand_in = standing[bisect.bisect_left(standing, number)] if weight else 0.0
        weights[stand_in] = weights.get(stand_in, 0.0) + weight
    return on_batch_laws(
        base,
        {(number, 0.0): weight for number, weight in weights.items()},
        {(0.0, number): weight for number, weight in weights.items()},
        _distance_of_members,
    )


def _distance_of_members(one: tuple[float, float], other: tuple[float, float]) -> float:
    if (one[0] and other[1]) or (one[1] and other[0]):
        return max(*one, *other)
    return abs(sum(one) - sum(other))
