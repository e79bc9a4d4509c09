"""The stock library's base mechanisms."""

import math

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import discrete
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.validation import fields

NeighborRel = privacy_accountant.NeighboringRelation


def no_op(event: stock.NoOpDpEvent, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads what tells nothing."""
    return compositions.NO_OP


def non_private(
    event: stock.NonPrivateDpEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads what has no privacy."""
    return known_bounds.NonPrivate()


def gaussian(
    event: stock.GaussianDpEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads the Gaussian mechanism; a replaced record moves its sum twice as far."""
    noise = fields.noise_multiplier(event.noise_multiplier)
    if noise == 0:
        return known_bounds.NonPrivate()
    if reader.neighboring_relation is NeighborRel.REPLACE_ONE:
        return additive_noise.Gaussian(noise / 2)
    return additive_noise.Gaussian(noise)


def laplace(
    event: stock.LaplaceDpEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads the Laplace mechanism."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    noise = fields.noise_multiplier(event.noise_multiplier)
    return additive_noise.laplace(noise) if noise else known_bounds.NonPrivate()


def discrete_laplace(
    event: stock.DiscreteLaplaceDpEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads the discrete Laplace mechanism."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    parameter = fields.scale("noise_parameter", event.noise_parameter)
    sensitivity = fields.positive_integer("sensitivity", event.sensitivity)
    if sensitivity > discrete.LARGEST_SENSITIVITY:
        raise ValueError(
            f"sensitivity must be at most {discrete.LARGEST_SENSITIVITY}. "
            f"Found {sensitivity}."
        )
    if parameter == 0:
        return known_bounds.NonPrivate()
    return discrete_outputs.DiscreteLaplace(parameter, sensitivity)


def randomized_response(
    event: stock.RandomizedResponseDpEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads randomized response over k buckets."""
    reader.require(event, NeighborRel.REPLACE_ONE, NeighborRel.REPLACE_SPECIAL)
    if reader.in_sample:
        raise event_reader.UnsupportedError(
            event,
            "`RandomizedResponseDpEvent` cannot run on a sample: nothing says what a "
            "record outside of it answers.",
        )
    buckets = fields.positive_integer("num_buckets", event.num_buckets)
    noise = fields.probability("noise_parameter", event.noise_parameter)
    if buckets == 1 or noise == 1:
        return compositions.NO_OP
    if noise == 0:
        return known_bounds.NonPrivate()
    replace_one = reader.neighboring_relation is NeighborRel.REPLACE_ONE
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


def truncated(
    event: stock.TruncatedSubsampledGaussianDpEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a Poisson sample of a Gaussian, cut to a largest batch."""
    rate = fields.sampling_probability(event.sampling_probability)
    size = fields.non_negative_integer("dataset_size", event.dataset_size)
    batch = fields.non_negative_integer(
        "truncated_batch_size", event.truncated_batch_size
    )
    noise = fields.noise_multiplier(event.noise_multiplier)
    if not (rate and size and batch):
        return compositions.NO_OP
    replace_one = reader.neighboring_relation is NeighborRel.REPLACE_ONE
    return subsampled.TruncatedSampledGaussian(size, rate, batch, noise, replace_one)
