"""Mechanisms on a sample of the records."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.mechanisms import renyi_curves
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import profile_pairs
from dp_accounting_ext.pairs import shifts
from dp_accounting_ext.renyi import subsampling

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
Mechanism = interface.Mechanism
Shifts = shifts.Shifts

_OF_FIXED_SIZE = {
    Bound.LOWER: "one pair of datasets for all runs",
    Bound.UPPER: "the worse of two pairs of datasets in each run, at each ε",
}


def on_poisson_sample(rate: float, inner: Mechanism) -> Mechanism:
    """Returns a mechanism on a Poisson sample, in closed form if there is one.

    The closed form of additive noise is a mixture of shifts. If all records are
    sampled, the result is the mechanism itself.

    Source:
        https://arxiv.org/abs/2602.17284, Theorem 3.3, in closed form.
    """
    if rate == 0:
        return compositions.NO_OP
    if rate == 1 or inner == compositions.NO_OP:
        return inner
    closed = None
    if isinstance(inner, additive_noise.Gaussian):
        closed = inner.as_mixture().on_a_sample(rate)
    elif isinstance(inner, additive_noise.ShiftMixture | known_bounds.NonPrivate):
        closed = inner.on_a_sample(rate)
    return PoissonSampled(rate, inner) if closed is None else closed


@dataclasses.dataclass(frozen=True)
class PoissonSampled(Mechanism):
    """A mechanism on a Poisson sample."""

    sampling_probability: float
    inner: Mechanism

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        return interface.pairs_of(self.inner, bound, accuracy).map(
            lambda pair: poisson_subsampling.poisson_subsample(
                pair, self.sampling_probability
            )
        )

    def rdp(self, orders: Sequence[float]) -> interface.Divergences | None:
        """Returns Rényi divergences if only Gaussian noise runs on the sample."""
        noise = compositions.as_gaussian(self.inner)
        if noise is None:
            return None
        sample = on_poisson_sample(self.sampling_probability, noise)
        return None if sample == self else renyi_curves.of(sample, orders)

    def routes(self, bound: Bound) -> Sequence[Mapping[Mechanism, int]]:
        """Returns itself, and what divergences say if only they are known.

        Divergences of many runs add up, while the pairs of runs, which are made of
        divergences, lose some in every run.
        """
        inner = compositions.flatten({self.inner: 1}, bound)
        is_known = inner and all(part.is_known_by_divergences for part in inner)
        if bound is Bound.LOWER or not is_known:
            return super().routes(bound)
        divergences = _of_divergences(self.sampling_probability, self.inner)
        return [{self: 1}, {divergences: 1}]

    def basis(self, bound: Bound) -> str:
        return f"a Poisson sample of {self.inner.basis(bound)}"

    def draws(self) -> interface.Draws:
        rate = self.sampling_probability
        return interface.Draws(((self.inner, rate, 1),), null_probability=1 - rate)

    def claims(self) -> interface.Claims:
        inner = self.inner.claims()
        loss = inner.largest_loss
        if loss <= floats.LARGEST_EXPONENT:
            sampled = math.log1p(self.sampling_probability * math.expm1(loss))
            loss = sampled * interface.LOSS_ROUNDED_UP
        return interface.Claims(
            loss, gaussian_precision=inner.gaussian_precision, tail=inner.tail
        )


@functools.lru_cache(maxsize=16)
def _of_divergences(rate: float, inner: Mechanism) -> renyi_bounded.RenyiBounded:
    """Returns what a theorem on samples says of a mechanism's Rényi divergences."""
    orders = renyi_bounded.ORDERS
    values = subsampling.poisson_rdp(
        orders, lambda asked: renyi_curves.of(inner, asked).values, rate
    )
    failure_probability = renyi_curves.of(inner, orders).failure_probability
    rounded = rate * failure_probability * (1 + 4 * floats.UNIT_ROUNDOFF)
    return renyi_bounded.RenyiBounded.of(values, min(rounded, 1.0))


def _two_point(probability: float, shift: float) -> tuple[tuple[float, float], ...]:
    if probability == 1:
        return ((shift, 1.0),)
    return ((0.0, 1 - probability), (shift, probability))


def substituted_sample(inner: Mechanism, rate: float) -> Mechanism:
    """Returns a mechanism on a batch of fixed size if one record is replaced.

    Args:
        inner: The mechanism on two batches that differ in one replaced record.
        rate: Batch size over dataset size.

    Source:
        https://arxiv.org/abs/2106.08567, Theorem 11 (subset sampling).
    """
    if not inner.claims().is_symmetric:
        # Either record may be the one that is replaced.
        inner = chained.Symmetrized(inner)
    return SubstitutedSample(inner, rate)


@dataclasses.dataclass(frozen=True)
class SubstitutedSample(interface.OnePairMechanism):
    """A mechanism on a batch of fixed size, where one record is replaced.

    The upper profile is that of a Poisson sample for κ ≥ 1, and its reflection for
    κ < 1. It is tight for one run, but no single pair of datasets attains all of it.
    The lower bound is that of the Poisson sample: the record has one extreme value, the
    others have the opposite one, and so has the record that replaces it.

    Attributes:
        inner: The mechanism on two batches that differ in one replaced record. Both of
            its directions have the same profile.
        rate: Batch size over dataset size, in [0, 1].
    """

    inner: Mechanism
    rate: float

    @property
    def _sample(self) -> Mechanism:
        return on_poisson_sample(self.rate, self.inner)

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        pairs = interface.pairs_of(self._sample, bound, accuracy)
        if bound is Bound.LOWER:
            return pairs.remove
        return profile_pairs.joined(pairs.remove, dominating_pair.dual(pairs.remove))

    def basis(self, bound: Bound) -> str:
        return _OF_FIXED_SIZE[bound]

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        is_revealing = isinstance(self.inner, known_bounds.NonPrivate)
        if self._sample in (compositions.NO_OP, self.inner) or is_revealing:
            return renyi_curves.of(self._sample, orders)
        if isinstance(self.inner, discrete_outputs.RandomizedResponse):
            values = self.inner.rdp_on_a_batch(orders, self.rate)
            if values is not None:
                return interface.Divergences(values)
        return renyi_curves.of_sample(
            self, self.rate, self.inner, orders, subsampling.without_replacement_rdp
        )

    def claims(self) -> interface.Claims:
        return dataclasses.replace(self._sample.claims(), is_symmetric=True)


def zeroed_sample(noise_multiplier: float, rate: float) -> Mechanism:
    """Returns Gaussian noise on a batch of fixed size, one record of which is zeroed.

    Let r be the rate. With probability 1 − r the record is not in the batch. Otherwise
    it replaces another record u, so the sum moves by x − u if the record has the value
    x, and by −u if it is zeroed. If a record is removed, the worst case for κ ≥ 1 is
    u = −x: (1 − r) N(0) + r N(2) against (1 − r) N(0) + r N(1). If a record is added,
    it is u = x, which is a Poisson sample. Both are attained, so the profile is tight
    for one run, but no single pair of datasets attains all of it.

    Args:
        noise_multiplier: Standard deviation over the bound on a record's norm.
        rate: Batch size over dataset size.

    Source:
        docs/mathematics.md, "Groups".
    """
    noise = additive_noise.Gaussian(noise_multiplier)
    if rate == 1:
        # The batch is the whole dataset, so no other record replaces the zeroed one.
        return noise
    claims = interface.Claims(gaussian_precision=noise_multiplier**-2)
    bases = _OF_FIXED_SIZE[Bound.LOWER], _OF_FIXED_SIZE[Bound.UPPER]
    return known_bounds.ByFunction(_pairs_if_zeroed, (noise, rate), claims, bases)


def _pairs_if_zeroed(
    noise: additive_noise.Gaussian, rate: float, bound: Bound, accuracy: Accuracy
) -> DirectedPairs:
    """Returns the pairs of `zeroed_sample`, for rates below 1."""
    removed = gaussian.of_mixtures(
        _two_point(rate, 2 * noise.mean),
        _two_point(rate, noise.mean),
        bound,
        tail_mass=accuracy.tail_mass,
        start=1.5 * noise.mean,
    )
    if bound is Bound.LOWER:
        return DirectedPairs.same(removed)
    sample = on_poisson_sample(rate, noise)
    added = interface.pairs_of(sample, bound, accuracy).remove
    return DirectedPairs.same(
        profile_pairs.joined(removed, dominating_pair.dual(added))
    )
