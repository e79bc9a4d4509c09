"""The base mechanisms, each as something that can be composed."""

import abc
import dataclasses
import math
import types

from scipy import stats

from dp_accounting_ext import constructions
from dp_accounting_ext import dominating_pair
from dp_accounting_ext.mechanisms import discrete
from dp_accounting_ext.mechanisms import gaussian_mixture
from dp_accounting_ext.mechanisms import laplace_mixture
from dp_accounting_ext.mechanisms import neyman_pearson
from dp_accounting_ext.mechanisms import shifts

Bound = dominating_pair.Bound
Construction = constructions.Construction
DirectedPairs = dominating_pair.DirectedPairs
Direction = dominating_pair.Direction
Shifts = shifts.Shifts

_FURTHEST = 1e9  # In standard deviations; no threshold lies beyond.
_UNSHIFTED = ((0.0, 1.0),)
_BINOMIAL_ERROR = 1e-9  # Of scipy's binomial tails and their quotient, relatively.


@dataclasses.dataclass(frozen=True)
class _ShiftMixture(Construction):
    """Noise around random shifts: one mixture against another.

    Shifts are over the noise's parameter, those of P at least 0, those of Q at most
    0; the weights of each sum to one. Any sampling scheme whose worst case is a pair
    of such mixtures is accounted for by naming their weights.

    Attributes:
        p: (shift, weight) pairs of P, the law with the record.
        q: (shift, weight) pairs of Q.

    Raises:
        ValueError: If there are more than 4096 shifts; checked when made.
    """

    p: Shifts
    q: Shifts

    def __post_init__(self) -> None:
        most = max(len(self.p), len(self.q))
        if most > shifts.MOST_SHIFTS:
            raise ValueError(
                f"A mixture may have {shifts.MOST_SHIFTS} shifts at most. Found {most}."
            )

    @abc.abstractmethod
    def _noise(self) -> types.ModuleType:
        """Returns the module of the noise: its mixtures and functions."""

    @abc.abstractmethod
    def _pair(
        self, p: Shifts, q: Shifts, bound: Bound, tail_mass: float
    ) -> dominating_pair.DominatingPair:
        """Returns the pair of two mixtures of the noise."""

    @abc.abstractmethod
    def _reach(self) -> tuple[float, float]:
        """Returns between what values of the noise the likelihood ratio changes."""

    def _mixtures(self) -> tuple[shifts.Mixture, shifts.Mixture]:
        mixture = self._noise().Mixture
        return mixture(self.p), mixture(self.q)

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        p, p_lost = _without_rare(self.p, tail_mass / 4, bound)
        q, q_lost = _without_rare(self.q, tail_mass / 4, bound)
        pair = self._pair(p, q, bound, tail_mass)
        return dominating_pair.both_ways(
            dataclasses.replace(
                pair,
                infinity_mass=pair.infinity_mass + p_lost,
                zero_mass=pair.zero_mass + q_lost,
            )
        )

    def closed_delta(
        self, epsilon: float, direction: Direction, bound: Bound
    ) -> float | None:
        p, q = self._mixtures()
        noise = self._noise()
        return neyman_pearson.delta(
            p,
            q,
            below=noise.below,
            log_ratio=lambda point: noise.log_ratio(p, q, point),
            reach=self._reach(),
            epsilon=epsilon,
            direction=direction,
            bound=bound,
        )

    def is_symmetric(self) -> bool:
        return sorted(self.p) == sorted((-shift, weight) for shift, weight in self.q)


@dataclasses.dataclass(frozen=True)
class GaussianMixture(_ShiftMixture):
    """Gaussian noise around random shifts, over its standard deviation."""

    def _noise(self) -> types.ModuleType:
        return gaussian_mixture

    def _pair(
        self, p: Shifts, q: Shifts, bound: Bound, tail_mass: float
    ) -> dominating_pair.DominatingPair:
        return gaussian_mixture.dominating_pair_of(
            gaussian_mixture.Mixture(p),
            gaussian_mixture.Mixture(q),
            bound,
            tail_mass=tail_mass,
        )

    def _reach(self) -> tuple[float, float]:
        return -_FURTHEST, _FURTHEST

    def gaussian_precision(self) -> float:
        # Mixtures are no further apart than their furthest components.
        return (max(s for s, _ in self.p) - min(s for s, _ in self.q)) ** 2


@dataclasses.dataclass(frozen=True)
class LaplaceMixture(_ShiftMixture):
    """Laplace noise around random shifts, over its parameter."""

    def _noise(self) -> types.ModuleType:
        return laplace_mixture

    def _pair(
        self, p: Shifts, q: Shifts, bound: Bound, tail_mass: float
    ) -> dominating_pair.DominatingPair:
        return laplace_mixture.dominating_pair_of(
            laplace_mixture.Mixture(p), laplace_mixture.Mixture(q), bound
        )

    def _reach(self) -> tuple[float, float]:
        p, q = self._mixtures()
        return q.lowest(), p.highest()

    def largest_loss(self) -> float:
        return laplace_mixture.largest_loss(
            laplace_mixture.Mixture(self.p), laplace_mixture.Mixture(self.q)
        )


def _without_rare(
    weighted: Shifts, tail_mass: float, bound: Bound
) -> tuple[Shifts, float]:
    """Returns shifts without the furthest ones, and the probability these had.

    An upper bound sends it to a sink. In a lower one the last shift that is kept
    has it: less shift is less loss.
    """
    ordered = sorted(weighted, key=lambda shift: abs(shift[0]))
    lost = 0.0
    while len(ordered) > 1 and lost + ordered[-1][1] <= tail_mass:
        lost += ordered.pop()[1]
    if bound is Bound.LOWER:
        shift, weight = ordered[-1]
        return (*ordered[:-1], (shift, weight + lost)), 0.0
    return tuple(ordered), lost * (1 + 1e-9)


def laplace(noise_multiplier: float) -> Construction:
    """Returns the Laplace mechanism of sensitivity one."""
    return LaplaceMixture(((1 / noise_multiplier, 1.0),), _UNSHIFTED)


def sampled(rate: float, inner: Construction) -> Construction:
    """Returns a construction on a Poisson sample, a mixture of shifts if it can be.

    Source:
        https://arxiv.org/abs/2602.17284, Theorem 3.3, in closed form.
    """
    if isinstance(inner, constructions.Gaussian):
        inner = GaussianMixture(((1 / inner.noise_multiplier, 1.0),), _UNSHIFTED)
    mixture = inner if isinstance(inner, GaussianMixture | LaplaceMixture) else None
    if mixture and mixture.q == _UNSHIFTED and 0 < rate < 1:
        return dataclasses.replace(mixture, p=_on_a_sample(rate, mixture.p))
    return constructions.poisson_sampled(rate, inner)


def _on_a_sample(rate: float, unsampled: Shifts) -> Shifts:
    weights = {shift: rate * weight for shift, weight in unsampled}
    weights[0.0] = weights.get(0.0, 0.0) + (1 - rate)
    return tuple(sorted(weights.items()))


@dataclasses.dataclass(frozen=True)
class UpperOnly(Construction):
    """A construction whose pair dominates a mechanism that need not attain it."""

    inner: Construction

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        if bound is Bound.LOWER:
            return dominating_pair.both_ways(dominating_pair.nothing_known(bound))
        return constructions.pairs_of(self.inner, bound, tail_mass)

    def closed_delta(
        self, epsilon: float, direction: Direction, bound: Bound
    ) -> float | None:
        if bound is Bound.LOWER:
            return 0.0
        return self.inner.closed_delta(epsilon, direction, bound)

    def gaussian_precision(self) -> float:
        return self.inner.gaussian_precision()

    def largest_loss(self) -> float:
        return self.inner.largest_loss()

    def is_symmetric(self) -> bool:
        return self.inner.is_symmetric()


@dataclasses.dataclass(frozen=True)
class DiscreteLaplace(Construction):
    """The discrete Laplace mechanism, e^{−a|x|} on the integers."""

    parameter: float
    sensitivity: int

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        return dominating_pair.both_ways(
            discrete.discrete_laplace(self.parameter, self.sensitivity, bound)
        )

    def largest_loss(self) -> float:
        return self.parameter * self.sensitivity

    def is_symmetric(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class DiscreteGaussian(Construction):
    """The discrete Gaussian mechanism, e^{−x²/(2σ²)} on the integers."""

    sigma: float
    sensitivity: int

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        return dominating_pair.both_ways(
            discrete.discrete_gaussian(
                self.sigma, self.sensitivity, bound, tail_mass=tail_mass
            )
        )

    def is_symmetric(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class RandomizedResponse(Construction):
    """Randomized response over k buckets, p the probability of a uniform answer.

    Where another record takes the record's place, or a special one does.
    """

    noise_parameter: float
    num_buckets: int
    replace_one: bool

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        return dominating_pair.both_ways(
            discrete.randomized_response(
                self.noise_parameter,
                self.num_buckets,
                replace_one=self.replace_one,
                bound=bound,
            )
        )

    def largest_loss(self) -> float:
        odds = (1 - self.noise_parameter) / self.noise_parameter
        if self.replace_one:
            return math.log1p(self.num_buckets * odds)
        truth = math.log1p((1 - self.noise_parameter) * (self.num_buckets - 1))
        return max(truth, -math.log(self.noise_parameter))

    def is_symmetric(self) -> bool:
        return self.replace_one


@dataclasses.dataclass(frozen=True)
class ThinnedResponse(Construction):
    """A binary randomized response that may release nothing: one private draw.

    Attributes:
        epsilon: The largest loss, in nats.
        truth: Probability of that loss.
        lie: Probability of its negative.
    """

    epsilon: float
    truth: float
    lie: float

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        return dominating_pair.both_ways(
            discrete.thinned_response(self.epsilon, self.truth, self.lie, bound)
        )

    def largest_loss(self) -> float:
        return self.epsilon

    def is_symmetric(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class PrivacyParameters(Construction):
    """An (ε, δ)-private mechanism of which no more is known."""

    epsilon: float
    delta: float = 0.0

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        return dominating_pair.both_ways(
            discrete.privacy_parameters(self.epsilon, self.delta, bound)
        )

    def largest_loss(self) -> float:
        return self.epsilon if self.delta == 0 else math.inf

    def is_symmetric(self) -> bool:
        return True


def sampled_gaussian_replace_one(
    sampling_probability: float, noise_multiplier: float
) -> Construction:
    """Returns the Gaussian mechanism on a Poisson sample where a record is replaced.

    Both datasets sample the record's place with probability λ; it shifts the sum
    by +1 in one and by −1 in the other.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.7, for one record removed and one
        inserted under one draw.
    """
    shift = 1 / noise_multiplier
    return GaussianMixture(
        _two_point(sampling_probability, shift),
        _two_point(sampling_probability, -shift),
    )


def _two_point(probability: float, shift: float) -> tuple[tuple[float, float], ...]:
    if probability == 1:
        return ((shift, 1.0),)
    return ((0.0, 1 - probability), (shift, probability))


@dataclasses.dataclass(frozen=True)
class TruncatedSampledGaussian(Construction):
    """The Gaussian mechanism on a Poisson sample, cut to a largest batch.

    With some probability the batch is full without the record, which then takes
    another's place; else the sample is a Poisson sample.

    Source:
        https://arxiv.org/abs/2508.15089, as dp_accounting has it: an upper bound, of
        which no lower one is known.
    """

    dataset_size: int
    sampling_probability: float
    truncated_batch_size: int
    noise_multiplier: float
    replace_one: bool

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        if bound is Bound.LOWER:
            return dominating_pair.both_ways(dominating_pair.nothing_known(bound))
        plain = self._not_full().pairs(bound, tail_mass)
        full, sampled_when_full = self._chances()
        if full == 0:
            return plain
        rest = sampled_gaussian_replace_one(
            sampled_when_full, self.noise_multiplier / 2
        ).pairs(bound, tail_mass)
        # Of mixtures, one pair serves both directions.
        mixed = dominating_pair.mixture([rest.remove, plain.remove], [full, 1 - full])
        error = mixed.mass_error + _BINOMIAL_ERROR
        return dominating_pair.both_ways(dataclasses.replace(mixed, mass_error=error))

    def _not_full(self) -> Construction:
        if self.replace_one:
            return sampled_gaussian_replace_one(
                self.sampling_probability, self.noise_multiplier
            )
        return sampled(
            self.sampling_probability, constructions.Gaussian(self.noise_multiplier)
        )

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

    def gaussian_precision(self) -> float:
        shift = 4 if self._chances()[0] else 2 if self.replace_one else 1
        return (shift / self.noise_multiplier) ** 2
