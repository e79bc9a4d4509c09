"""Mechanisms on a sample of the records."""

import dataclasses
import math

from scipy import stats

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.pairs import profile_pairs
from dp_accounting_ext.pairs import shifts

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
Mechanism = interface.Mechanism
Shifts = shifts.Shifts

# Certified: of scipy's binomial tails and of their quotient, relatively; asked by
# tests/test_assumptions.py.
_BINOMIAL_ERROR = 1e-9


def on_poisson_sample(rate: float, inner: Mechanism) -> Mechanism:
    """Returns a mechanism on a Poisson sample, a mixture of shifts if it can be.

    Source:
        https://arxiv.org/abs/2602.17284, Theorem 3.3, in closed form.
    """
    if isinstance(inner, additive_noise.Gaussian):
        inner = additive_noise.GaussianMixture(
            ((1 / inner.noise_multiplier, 1.0),), additive_noise.UNSHIFTED
        )
    mixture = (
        inner
        if isinstance(
            inner, additive_noise.GaussianMixture | additive_noise.LaplaceMixture
        )
        else None
    )
    if mixture and mixture.q == additive_noise.UNSHIFTED and 0 < rate < 1:
        sampled = _on_a_sample(rate, mixture.p)
        # Rarer shifts have fewer digits than a bound may lose.
        if min(weight for _, weight in sampled) >= floats.SMALLEST_MASS:
            return dataclasses.replace(mixture, p=sampled)
    return poisson_sampled(rate, inner)


def _on_a_sample(rate: float, unsampled: Shifts) -> Shifts:
    weights = {shift: rate * weight for shift, weight in unsampled}
    weights[0.0] = weights.get(0.0, 0.0) + (1 - rate)
    return tuple(sorted(weights.items()))


def poisson_sampled(sampling_probability: float, inner: Mechanism) -> Mechanism:
    """Returns a mechanism on a Poisson sample; what is not sampled costs nothing."""
    if sampling_probability == 0:
        return compositions.NO_OP
    if sampling_probability == 1 or inner == compositions.NO_OP:
        return inner
    if isinstance(inner, known_bounds.NonPrivate):
        return inner.on_a_sample(sampling_probability)
    return PoissonSampled(sampling_probability, inner)


@dataclasses.dataclass(frozen=True)
class PoissonSampled(Mechanism):
    """A mechanism on a Poisson sample."""

    sampling_probability: float
    inner: Mechanism

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        return interface.pairs_of(self.inner, bound, tail_mass).map(
            lambda pair: poisson_subsampling.poisson_subsample(
                pair, self.sampling_probability
            )
        )

    def claims(self) -> interface.Claims:
        inner = self.inner.claims()
        loss = inner.largest_loss
        if loss <= floats.LARGEST_EXPONENT:
            sampled = math.log1p(self.sampling_probability * math.expm1(loss))
            loss = sampled * interface.LOSS_ROUNDED_UP
        return interface.Claims(loss, gaussian_precision=inner.gaussian_precision)


def sampled_gaussian_replace_one(
    sampling_probability: float, noise_multiplier: float
) -> Mechanism:
    """Returns the Gaussian mechanism on a Poisson sample where a record is replaced.

    Both datasets sample the record's place with probability λ; it shifts the sum
    by +1 in one and by −1 in the other.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.7, for one record removed and one
        inserted under one draw.
    """
    if noise_multiplier == 0:
        sampled = sampling_probability, 1 - sampling_probability
        return known_bounds.NonPrivate(sampled, sampled)
    shift = 1 / noise_multiplier
    return additive_noise.GaussianMixture(
        _two_point(sampling_probability, shift),
        _two_point(sampling_probability, -shift),
    )


def _two_point(probability: float, shift: float) -> tuple[tuple[float, float], ...]:
    if probability == 1:
        return ((shift, 1.0),)
    return ((0.0, 1 - probability), (shift, probability))


@dataclasses.dataclass(frozen=True)
class TruncatedSampledGaussian(interface.OnePairMechanism):
    """The Gaussian mechanism on a Poisson sample, cut to a largest batch.

    With some probability the batch is full without the record, which then takes
    another's place; else the sample is a Poisson sample.

    Source:
        https://arxiv.org/abs/2508.15089, as dp_accounting has it: an upper bound. From
        below it is that of a record among others that contribute nothing.
    """

    dataset_size: int
    sampling_probability: float
    truncated_batch_size: int
    noise_multiplier: float
    replace_one: bool

    def pair(self, bound: Bound, tail_mass: float) -> DominatingPair:
        # One pair of a mixture of shifts serves both directions.
        if bound is Bound.LOWER:
            kept = self._on_a_sample(self._least_chance())
            return kept.pairs(bound, tail_mass).remove
        plain = (
            self._on_a_sample(self.sampling_probability).pairs(bound, tail_mass).remove
        )
        full, sampled_when_full = self._chances()
        if full == 0:
            return plain
        rest = sampled_gaussian_replace_one(
            sampled_when_full, self.noise_multiplier / 2
        ).pairs(bound, tail_mass)
        # A complement, which the error of what it is one of may have made too small.
        not_full = min(1 - full + 2 * _BINOMIAL_ERROR * full, 1.0)
        mixed = dominating_pair.mixture([rest.remove, plain], [full, not_full])
        error = mixed.mass_error + _BINOMIAL_ERROR
        return dataclasses.replace(mixed, mass_error=error)

    def _on_a_sample(self, rate: float) -> Mechanism:
        if self.replace_one:
            return sampled_gaussian_replace_one(rate, self.noise_multiplier)
        inner: Mechanism = known_bounds.NonPrivate()
        if self.noise_multiplier:
            inner = additive_noise.Gaussian(self.noise_multiplier)
        return on_poisson_sample(rate, inner)

    def _least_chance(self) -> float:
        """Returns the probability that the record is in the batch, or a little less.

        It is drawn, and one of the batch's that are kept of all that were drawn.
        """
        size, batch = self.dataset_size, self.truncated_batch_size
        rate = self.sampling_probability
        room = float(stats.binom.cdf(batch - 1, size - 1, rate))
        kept = float(stats.binom.sf(batch, size, rate)) * batch / size
        return (rate * room + kept) * (1 - 3 * _BINOMIAL_ERROR)

    def _chances(self) -> tuple[float, float]:
        """Returns the chance of a full batch given the record, and the converse."""
        size, batch = self.dataset_size, self.truncated_batch_size
        rate = self.sampling_probability
        full = float(stats.binom.sf(batch - 1, size - 1, rate))
        if full == 0:
            return 0.0, 0.0
        either = float(stats.binom.sf(batch, size, rate))
        ratio = either / full * (1 + 3 * _BINOMIAL_ERROR)
        return full, min(ratio * batch / size, 1.0)

    def claims(self) -> interface.Claims:
        if self.noise_multiplier == 0:
            return interface.Claims()
        shift = 4 if self._chances()[0] else 2 if self.replace_one else 1
        return interface.Claims(gaussian_precision=(shift / self.noise_multiplier) ** 2)


def substituted_sample(inner: Mechanism, rate: float) -> Mechanism:
    """Returns a mechanism on a batch of fixed size, one record of it replaced.

    Args:
        inner: The mechanism, of a pair with one record of its batch replaced.
        rate: Batch size over dataset size.

    Source:
        https://arxiv.org/abs/2106.08567, Theorem 11 (subset sampling).
    """
    if not inner.claims().is_symmetric:
        # Either record may be the one that is replaced.
        inner = batches.EitherWay(inner)
    return SubstitutedSample(poisson_sampled(rate, inner))


@dataclasses.dataclass(frozen=True)
class SubstitutedSample(interface.OnePairMechanism):
    """The profile of a sample for κ ≥ 1, and its reflection for κ < 1.

    A profile, tight for one run, and not that of two datasets. From below it is the
    sample: a record at one end among others at the other, where it is moved.
    """

    sample: Mechanism

    def pair(self, bound: Bound, tail_mass: float) -> DominatingPair:
        pairs = interface.pairs_of(self.sample, bound, tail_mass)
        if bound is Bound.LOWER:
            return pairs.remove
        return profile_pairs.reflected(pairs.remove)

    def claims(self) -> interface.Claims:
        return dataclasses.replace(self.sample.claims(), is_symmetric=True)
