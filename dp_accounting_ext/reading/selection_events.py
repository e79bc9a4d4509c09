"""Events that select one of several candidates."""

from typing import Any

from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import selections
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.validation import fields

# Means of numbers of runs above it are refused.
_LARGEST_MEAN = 2.0**53


def exponential(event: Any, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads the exponential mechanism."""
    reader.require_own_relation(event)
    epsilon = fields.scale("epsilon", event.epsilon)
    if epsilon == 0:
        return compositions.NO_OP
    return selections.ExponentialMechanism(epsilon)


def permute_and_flip(event: Any, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads the permute-and-flip mechanism."""
    reader.require_own_relation(event)
    epsilon = fields.scale("epsilon", event.epsilon)
    return selections.PermuteAndFlip(epsilon) if epsilon else compositions.NO_OP


def repeat_and_select(event: Any, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads the best of a random number of runs."""
    inner = reader.mechanism(event.event)
    mean, shape = number_of_runs(event)
    parts = compositions.unpacked({inner: 1})
    if any(isinstance(part, groups.Grouped) for part in parts):
        raise event_reader.UnsupportedError(
            event,
            f"`{type(event).__name__}` takes single-record events: no theorem covers "
            "the splits of a group.",
        )
    if inner == compositions.NO_OP:
        return inner
    if compositions.is_certainly_known(inner):
        return known_bounds.NonPrivate()
    return selections.BestOf(inner, mean, shape)


def number_of_runs(event: Any) -> tuple[float, float]:
    """Reads the mean and the shape of the law of the number of runs."""
    mean = fields.real_number("mean", event.mean)
    shape = fields.real_number("shape", event.shape)
    if not 1 <= mean <= _LARGEST_MEAN:
        raise ValueError(f"mean must be at least 1 and at most 2^53. Found {mean}.")
    if shape < 0:
        raise ValueError(f"shape must be non-negative. Found {shape}.")
    return mean, shape
