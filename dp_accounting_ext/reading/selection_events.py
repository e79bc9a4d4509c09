"""Events that select one of several candidates."""

import math
from typing import Any

import numpy as np

from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.mechanisms import renyi_divergences
from dp_accounting_ext.mechanisms import selections
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.validation import fields


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
    mean = fields.scale("mean", event.mean)
    shape = fields.real_number("shape", event.shape)
    if mean < 1:
        raise ValueError(f"mean must be at least 1. Found {event.mean}.")
    if shape != math.inf:
        shape = fields.scale("shape", event.shape)
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
    divergences = renyi_divergences.divergences(inner)
    if not np.isfinite(divergences).any():
        raise event_reader.UnsupportedError(
            event,
            f"`{type(event).__name__}` takes what has finite Rényi divergences: an "
            "infinite loss has none.",
        )
    return renyi_bounded.RenyiBounded.of(
        renyi_divergences.repeat_and_select(divergences, mean, shape)
    )
