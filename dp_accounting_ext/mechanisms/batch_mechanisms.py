"""Mechanisms that run on a batch, each known by the distance between two batches.

They are additive noise on a sum (`Noise`, or `WithoutNoise`), randomized response
(`Answer`), and any mechanism whose pairs for neighboring batches are known
(`NeighboringBatches`). How batches are drawn is the subject of `sampling`.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.pairs import batch_laws
from dp_accounting_ext.pairs import profile_pairs
from dp_accounting_ext.pairs import trade_off_curves
from dp_accounting_ext.validation import fields

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
Mechanism = interface.Mechanism
Distances = batches.Distances


@dataclasses.dataclass(frozen=True)
class Noise(batches.Base):
    """Gaussian or Laplace noise on a sum over the batch.

    Attributes:
        noise_multiplier: The standard deviation (Gaussian) or the parameter (Laplace)
            of the noise, divided by the change of the sum at a distance of one.
        is_laplace: Whether the noise is Laplace noise. Otherwise it is Gaussian.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.8 and Theorem M.2.
    """

    noise_multiplier: float
    is_laplace: bool = False

    def __post_init__(self) -> None:
        noise = fields.real_number("noise_multiplier", self.noise_multiplier)
        if not 0 <= noise < math.inf:
            raise ValueError(
                f"noise_multiplier must be non-negative and finite. Found {noise}."
            )

    def on(self, removed: Distances, inserted: Distances) -> Mechanism:
        if self.noise_multiplier == 0:
            return WithoutNoise().on(removed, inserted)
        p, q = self._shifts(removed, 1.0), self._shifts(inserted, -1.0)
        if len(p) == len(q) == 1:
            # Both shifts are certain, so only the distance between them matters.
            reach = p[0][0] - q[0][0]
            if reach == 0:
                return compositions.NO_OP
            if self.is_laplace:
                return additive_noise.laplace(1 / reach)
            return additive_noise.Gaussian(1 / reach)
        if self.is_laplace:
            return additive_noise.LaplaceMixture(p, q)
        return additive_noise.GaussianMixture(p, q)

    def curves(
        self, distances: FloatArray, accuracy: Accuracy
    ) -> tuple[FloatArray, trade_off_curves.Curves]:
        scaled = distances / self.noise_multiplier
        if self.is_laplace:
            return scaled, trade_off_curves.LaplaceCurves()
        return scaled, trade_off_curves.GaussianCurves()

    @property
    def gaussian_noise(self) -> float | None:
        return None if self.is_laplace else self.noise_multiplier or None

    @property
    def is_revealing(self) -> bool:
        return self.noise_multiplier == 0

    def replaced(self) -> "Noise":
        """Returns the noise over the two norms by which a replaced record moves."""
        return dataclasses.replace(self, noise_multiplier=self.noise_multiplier / 2)

    def _shifts(self, distances: Distances, sign: float) -> Distances:
        noise = sign * self.noise_multiplier
        return tuple(
            (distance / noise, weight) for distance, weight in distances if weight
        )


@dataclasses.dataclass(frozen=True)
class WithoutNoise(batches.Base):
    """A mechanism whose output reveals whether the batch holds a member."""

    @property
    def is_revealing(self) -> bool:
        return True

    def on(self, removed: Distances, inserted: Distances) -> Mechanism:
        if removed == inserted == batches.NONE:
            return compositions.NO_OP
        record, other = _probabilities(removed), _probabilities(inserted)
        if known_bounds.ALWAYS in (record, other):
            return known_bounds.NonPrivate()
        return known_bounds.NonPrivate(record, other, batches.WEIGHT_ERROR)


def _probabilities(distances: Distances) -> interface.Probabilities:
    """Returns the probabilities that a batch holds a member, and that it holds none."""
    member = min(math.fsum(weight for distance, weight in distances if distance), 1.0)
    return member, math.fsum(weight for distance, weight in distances if not distance)


@dataclasses.dataclass(frozen=True)
class Answer(batches.Base):
    """Randomized response to a yes-or-no question about the batch.

    Attributes:
        noise_parameter: Probability of a random answer, 2 (1 − θ), in [0, 1].

    Source:
        https://arxiv.org/abs/2403.04867, Appendix M (randomized response).
    """

    is_of_one_question = True

    noise_parameter: float

    def __post_init__(self) -> None:
        fields.probability("noise_parameter", self.noise_parameter)

    @property
    def is_revealing(self) -> bool:
        return self.noise_parameter == 0

    def attains(self, parts: Sequence[batches.Coupled]) -> bool:
        """Returns whether in each part only one dataset's batches hold members."""
        return all(batches.NONE in (part.removed, part.inserted) for part in parts)

    def curves(
        self, distances: FloatArray, accuracy: Accuracy
    ) -> tuple[FloatArray, trade_off_curves.Curves]:
        answered = self.on(((1.0, 1.0),), batches.NONE)
        pair = interface.pairs_of_part(answered, Bound.UPPER, accuracy).remove
        curves = trade_off_curves.PairCurves({1.0: profile_pairs.Hinges.of(pair)})
        return np.minimum(np.ceil(distances), 1.0), curves

    def on(self, removed: Distances, inserted: Distances) -> Mechanism:
        if self.noise_parameter == 0:
            return WithoutNoise().on(removed, inserted)
        arguments = self, _probabilities(removed), _probabilities(inserted)
        return known_bounds.ByFunction(_pairs_of_answers, arguments)

    def of(self, probabilities: interface.Probabilities) -> tuple[float, float]:
        """Returns the probabilities of yes and of no, neither of them a difference."""
        lie, gain = self.noise_parameter / 2, 1 - self.noise_parameter
        somebody, nobody = probabilities
        return lie + somebody * gain, lie + nobody * gain


def _pairs_of_answers(
    answer: Answer,
    removed: interface.Probabilities,
    inserted: interface.Probabilities,
    bound: Bound,
    accuracy: Accuracy,
) -> DirectedPairs:
    """Returns pairs of answers to the question whether the batch holds a member.

    Args:
        answer: The randomized response.
        removed: The probabilities that a batch of the first dataset holds a member who
            leaves, and that it holds none.
        inserted: The same for the second dataset and members who join.
        bound: The side of the bound.
        accuracy: What the pairs are for.
    """
    # Each dataset's answers against those of a batch that never holds a member.
    without = answer.of(known_bounds.NEVER)
    sides = []
    if removed[0]:
        sides.append((answer.of(removed), without))
    if inserted[0]:
        sides.append((without, answer.of(inserted)))
    error = discrete_outputs.FEW_ERROR + batches.WEIGHT_ERROR
    pairs = [output_pairs.of_probabilities(p, q, bound, error=error) for p, q in sides]
    if len(pairs) == 1:
        return DirectedPairs.same(pairs[0])
    if bound is Bound.LOWER or not pairs:
        return DirectedPairs.same(dominating_pair.identity_pair(bound))
    # Neither side dominates the other, and a composition can attain both.
    return profile_pairs.maximum([DirectedPairs.same(side) for side in pairs])


@dataclasses.dataclass(frozen=True)
class NeighboringBatches(batches.Base):
    """Any mechanism that is known by its pairs for two batches at distance one.

    For batches at a larger distance, pairs are chained along neighboring batches.

    Attributes:
        mechanism: The mechanism, whose pairs are those of two batches at distance one.
        is_bounded: Whether the pairs hold for batches at any distance, as those of a
            randomized response do.

    Source:
        https://arxiv.org/abs/2403.04867, section 3.2 (mechanism-agnostic bounds).
    """

    counts_norms = False

    mechanism: Mechanism
    is_bounded: bool = False

    def attains(self, parts: Sequence[batches.Coupled]) -> bool:
        """Returns False, as pairs of neighboring batches need not be attained here."""
        return False

    def on(self, removed: Distances, inserted: Distances) -> Mechanism:
        self.check(np.array([distance for distance, _ in removed + inserted]))
        leave, join = (self._from_common(law) for law in (removed, inserted))
        if join == compositions.NO_OP:
            return leave
        joining = chained.chain(join, 0, 1)
        if leave == compositions.NO_OP:
            return joining
        return chained.in_a_row((leave, 1, False), (joining, 1, False))

    def _from_common(self, distances: Distances) -> Mechanism:
        """Returns the mechanism on one dataset's batches, against the common batch."""
        if batches.furthest(distances) == 0:
            return compositions.NO_OP
        if distances == ((1.0, 1.0),):
            return self._either
        return _AtDistance(self, distances)

    def curves(
        self, distances: FloatArray, accuracy: Accuracy
    ) -> tuple[FloatArray, trade_off_curves.Curves]:
        if self.is_bounded:
            distances = np.minimum(distances, 1.0)
        profiles = {
            distance: profile_pairs.Hinges.of(
                interface.pairs_of_part(self.at(distance), Bound.UPPER, accuracy).remove
            )
            for distance in np.unique(distances[distances > 0]).tolist()
        }
        return distances, trade_off_curves.PairCurves(profiles)

    @property
    def _either(self) -> Mechanism:
        """The mechanism on two neighboring batches, either of which may be first."""
        if self.mechanism.claims().is_symmetric:
            return self.mechanism
        return chained.Symmetrized(self.mechanism)

    def at(self, distance: float) -> Mechanism:
        """Returns the mechanism on two batches at a distance above 0."""
        if distance == 1 or self.is_bounded:
            return self._either
        return known_bounds.between(
            None, chained.ChainedSplit(self._either, int(distance), 0)
        )

    def check(self, distances: FloatArray) -> None:
        wrong = distances[distances != np.floor(distances)]
        if wrong.size:
            raise ValueError(
                "distances must be integers where a mechanism is known between "
                f"neighboring batches. Found {wrong[0]}."
            )


@dataclasses.dataclass(frozen=True)
class _AtDistance(Mechanism):
    """A mechanism on batches at random distances, against that on a common batch.

    The output is a mixture: with probability 1 − r the batch is the common one, and
    otherwise it is at a random distance d > 0. The ratios Z_d of outputs at distance d
    to those on the common batch are largest together, so that the ratio of the mixture
    is 1 − r + Σ w_d Z_d with comonotone Z_d. The lower bound is that of a mechanism
    that gives all batches at a distance above 0 one law of outputs.
    """

    base: NeighboringBatches
    distances: Distances

    def basis(self, bound: Bound) -> str:
        basis = self.base.at(1.0).basis(bound)
        return f"a mixture by distances between batches, of {basis}"

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        rare = accuracy.tail_mass
        likely, lost = additive_noise.without_rare(self.distances, rare, bound)
        weights: dict[Mechanism, float] = {}
        for distance, weight in likely:
            if distance and weight:
                apart = self.base.at(1.0 if bound is Bound.LOWER else distance)
                weights[apart] = weights.get(apart, 0.0) + weight
        parts = [
            (interface.pairs_of_part(apart, bound, accuracy), weight)
            for apart, weight in weights.items()
        ]
        if len(parts) > 1:
            common = math.fsum(weight for distance, weight in likely if not distance)
            return batch_laws.mixture_and_common(parts, common, lost)
        ((pairs, rate),) = parts
        sign = 1 if bound is Bound.UPPER else -1
        sampled = min(rate * (1 + sign * batches.WEIGHT_ERROR), 1.0)

        def on_a_sample(pair: DominatingPair) -> DominatingPair:
            pair = poisson_subsampling.poisson_subsample(pair, sampled)
            return dataclasses.replace(pair, infinity_mass=pair.infinity_mass + lost)

        return pairs.map(on_a_sample)

    def claims(self) -> interface.Claims:
        inner = self.base.at(1.0).claims()
        distances = self.distances
        if self.base.is_bounded:
            distances = tuple((min(d, 1.0), weight) for d, weight in distances)
        # A batch at the distance d is d steps between neighboring batches away.
        steps = batches.furthest(distances)
        largest = steps * inner.largest_loss
        if largest <= floats.LARGEST_EXPONENT:
            # The ratio is 1 + Σ w_d (Z_d − 1), and Z_d is at most e^{d · largest loss}.
            increase = math.fsum(
                weight * math.expm1(d * inner.largest_loss) for d, weight in distances
            )
            mixed = math.log1p(increase * (1 + batches.WEIGHT_ERROR))
            largest = min(mixed, largest)
        return interface.Claims(
            largest * interface.LOSS_ROUNDED_UP,
            gaussian_precision=steps**2 * inner.gaussian_precision,
        )
