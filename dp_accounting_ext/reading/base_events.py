"""Events that draw no sample: noise, answers, known bounds, selections."""

from collections.abc import Callable
import math
import numbers
from typing import Any

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.mechanisms import selections
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import sampling_event

NeighborRel = privacy_accountant.NeighboringRelation

_CERTAIN = known_bounds.NonPrivate()
# Larger means of the number of runs are refused.
_LARGEST_MEAN = 2.0**53


def additive(
    make: Callable[[float], interface.Mechanism],
) -> event_reader.Builder:
    """Returns the builder of noise on a sum, from its noise multiplier."""

    def read(event: Any, reader: event_reader.Reader) -> interface.Mechanism:
        multiplier = fields.noise_multiplier(event.noise_multiplier)
        return make(multiplier / _norms_moved(reader)) if multiplier else _CERTAIN

    return read


def _norms_moved(reader: event_reader.Reader) -> int:
    """Returns the sensitivity of a sum, in norms of a record."""
    return 2 if reader.neighboring_relation is NeighborRel.REPLACE_ONE else 1


def discrete_laplace(
    event: stock.DiscreteLaplaceDpEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads the discrete Laplace mechanism; the sensitivity is one record's norm."""
    parameter = fields.scale("noise_parameter", event.noise_parameter)
    sensitivity = fields.positive_integer("sensitivity", event.sensitivity)
    norms = _norms_moved(reader)
    most = discrete_outputs.LARGEST_SENSITIVITY // norms
    if sensitivity > most:
        raise ValueError(f"sensitivity must be at most {most}. Found {sensitivity}.")
    if parameter == 0:
        return _CERTAIN
    return discrete_outputs.DiscreteLaplace(parameter, norms * sensitivity)


def randomized_response(
    event: stock.RandomizedResponseDpEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads randomized response over k buckets."""
    reader.refuse_sample(event, "answers")
    reader.require(event, NeighborRel.REPLACE_ONE, NeighborRel.REPLACE_SPECIAL)
    buckets = fields.positive_integer("num_buckets", event.num_buckets)
    noise = fields.probability("noise_parameter", event.noise_parameter)
    if buckets == 1 or noise == 1:
        return compositions.NO_OP
    replace_one = reader.neighboring_relation is NeighborRel.REPLACE_ONE
    if noise == 0:
        # The uniform answer of a special record may equal that of the other record.
        return _CERTAIN if replace_one else known_bounds.between(None, _CERTAIN)
    return discrete_outputs.RandomizedResponse(noise, buckets, replace_one)


def mixture_of_gaussians(
    event: stock.MixtureOfGaussiansDpEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads Gaussian noise around a random shift."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    deviation = fields.scale("standard_deviation", event.standard_deviation)
    shifts = [
        fields.scale("sensitivities", shift)
        for shift in fields.sequence("sensitivities", event.sensitivities)
    ]
    weights = [
        fields.probability("sampling_probs", weight)
        for weight in fields.sequence("sampling_probs", event.sampling_probs)
    ]
    if len(shifts) != len(weights) or not shifts:
        raise ValueError(
            "sensitivities and sampling_probs must have the same length, at least 1. "
            f"Found {len(shifts)} and {len(weights)}."
        )
    total = math.fsum(weights)
    if not math.isclose(total, 1):
        raise ValueError(f"sampling_probs must sum to 1. Found {total}.")
    together: dict[float, float] = {}
    for shift, weight in zip(shifts, weights, strict=True):
        if weight:
            together[shift] = together.get(shift, 0.0) + weight / total
    if not any(together):
        return compositions.NO_OP
    if deviation == 0:
        moved = math.fsum(weight for shift, weight in together.items() if shift)
        return known_bounds.NonPrivate((moved, together.get(0.0, 0.0)))
    shifted = tuple((s / deviation, w) for s, w in sorted(together.items()))
    return additive_noise.GaussianMixture(shifted, ((0.0, 1.0),))


def privacy_parameters(event: Any, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads a mechanism of which only (ε, δ) is known."""
    reader.require_own_relation(event)
    epsilon = fields.real_number("epsilon", event.epsilon)
    delta = fields.probability("delta", event.delta)
    if epsilon < 0:
        raise ValueError(f"epsilon must be non-negative. Found {event.epsilon}.")
    if epsilon == delta == 0:
        return compositions.NO_OP
    return discrete_outputs.PrivacyParameters(epsilon, delta)


def zero_concentrated(event: Any, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads a mechanism whose divergence at the order α is at most ξ + ρα."""
    reader.require_own_relation(event)
    rho, xi = fields.scale("rho", event.rho), fields.scale("xi", event.xi)
    return renyi_bounded.concentrated(rho, xi) if rho or xi else compositions.NO_OP


def discrete_gaussian(event: Any, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads the discrete Gaussian mechanism, of an integer-valued function.

    The sensitivity is the Euclidean norm of a record; a replaced record moves the
    function by up to twice that. If the function can move in one coordinate only, as in
    one dimension, the pair is exact. Otherwise the upper bound comes from the Rényi
    divergences, which are at most those of the Gaussian mechanism, and the lower bound
    is the pair of a function that moves in one coordinate.

    Source:
        Canonne et al. 2020, https://arxiv.org/abs/2004.00010, Theorem 14.
    """
    sigma = fields.scale("sigma", event.sigma)
    sensitivity = fields.scale("sensitivity", event.sensitivity)
    dimension = event.dimension
    if dimension is not None:
        dimension = fields.positive_integer("dimension", dimension)
    if sensitivity == 0:
        return compositions.NO_OP
    if sigma == 0:
        return _CERTAIN
    norms = _norms_moved(reader)
    steps = norms * math.floor(sensitivity)
    rho = (norms * sensitivity / sigma) ** 2 / 2
    if not discrete_outputs.is_discrete_gaussian(sigma, steps):
        return renyi_bounded.concentrated(rho)
    one = discrete_outputs.DiscreteGaussian(sigma, steps)
    # Here one record moves one coordinate by one. A replaced record may move two.
    if dimension == 1 or (norms == 1 and sensitivity**2 < 2):
        return one
    return known_bounds.between(one, renyi_bounded.concentrated(rho))


def tree_aggregation(event: Any, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads tree aggregation: noisy sums over the nodes of binary trees.

    A record contributes to the nodes on one path of one tree. A tree of s steps has
    paths of ⌈log₂(s + 1)⌉ nodes. A replacing record has the path of the replaced one.

    Source:
        Kairouz et al. 2021, https://arxiv.org/abs/2103.00039, Appendix D.
    """
    reader.require(event, NeighborRel.REPLACE_ONE, NeighborRel.REPLACE_SPECIAL)
    noise = fields.noise_multiplier(event.noise_multiplier)
    steps = event.step_counts
    if isinstance(steps, numbers.Integral):
        steps = [fields.positive_integer("step_counts", steps)]
    trees = [
        fields.non_negative_integer("step_counts", count)
        for count in fields.sequence("step_counts", steps)
    ]
    if not trees:
        raise ValueError("step_counts must name at least one tree. Found none.")
    depth = max(trees).bit_length()
    if depth == 0:
        return compositions.NO_OP
    if noise == 0:
        return _CERTAIN
    one = additive_noise.Gaussian(noise / _norms_moved(reader))
    return compositions.compose({one: depth})


def pure(make: Callable[[float], interface.Mechanism]) -> event_reader.Builder:
    """Returns the builder for selections of a candidate with a field `epsilon`.

    The function `make` returns the mechanism of a positive ε.
    """

    def read(event: Any, reader: event_reader.Reader) -> interface.Mechanism:
        reader.require_own_relation(event)
        epsilon = fields.scale("epsilon", event.epsilon)
        return make(epsilon) if epsilon else compositions.NO_OP

    return read


def private_sampling(
    event: sampling_event.PrivateSamplingEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads one draw from a private distribution."""
    # Imported here: few programs draw, and an import of the package should be fast.
    from dp_accounting_ext.wpm import checks
    from dp_accounting_ext.wpm import reached_laws

    reader.refuse_sample(event, "releases")
    reader.require(event, NeighborRel.REPLACE_ONE, NeighborRel.REPLACE_SPECIAL)
    privacy = checks.epsilon(event.epsilon)
    total = fields.real_number("total_mass", event.total_mass)
    mass = checks.total_mass("total_mass must be", total, privacy)
    largest = checks.largest_masses(event.largest_masses, mass)
    return discrete_outputs.PrivateDraw(
        reached_laws.dominating(privacy, mass, largest),
        reached_laws.attained(privacy, mass, largest),
    )


def repeat_and_select(event: Any, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads the best of a random number of runs."""
    inner = reader.mechanism(event.event)
    mean = fields.real_number("mean", event.mean)
    shape = fields.real_number("shape", event.shape)
    if not 1 <= mean <= _LARGEST_MEAN:
        raise ValueError(f"mean must be at least 1 and at most 2^53. Found {mean}.")
    if shape < 0:
        raise ValueError(f"shape must be non-negative. Found {shape}.")
    event_reader.refuse_group(
        event,
        f"`{type(event).__name__}` takes single-record events: no theorem covers the "
        "splits of a group.",
    )
    if inner == compositions.NO_OP:
        return inner
    return (
        _CERTAIN
        if known_bounds.is_certain(inner)
        else selections.BestOf(inner, mean, shape)
    )
