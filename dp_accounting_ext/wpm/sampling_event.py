"""The event of one private draw."""

from typing import Any

import attr
from dp_accounting import dp_event

_MOST_SHOWN = 6


def _as_tuple(value: Any) -> Any:
    """Returns an iterable as a tuple, so that events are immutable values."""
    try:
        return tuple(value)
    except TypeError:
        return value


def _in_short(masses: Any) -> str:
    """Returns a short text with the first few masses and the number of all."""
    if not isinstance(masses, tuple) or len(masses) <= _MOST_SHOWN:
        return repr(masses)
    shown = ", ".join(map(repr, masses[:_MOST_SHOWN]))
    return f"({shown}, ... {len(masses)} in all)"


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PrivateSamplingEvent(dp_event.DpEvent):
    """Represents one draw whose law, which depends on the input, is between two bounds.

    For every input, output j has a probability in [e^{−ε/2} m_j, e^{ε/2} m_j], with a
    public base measure m. A record is the whole input of a user, which is replaced by
    any other input. The lower bound assumes that every law between the bounds is the
    law of some input. This is so for a `WassersteinProjectionMechanism` if each output
    is also an input, at cost zero. If fewer laws are reached, less may be revealed.

    Attributes:
        epsilon: The privacy parameter ε > 0 of one draw.
        total_mass: The sum M of m, in [e^{−ε/2}, e^{ε/2}], rounded to a float.
        largest_masses: The masses of the largest outputs, in decreasing order. The rest
            of M is the mass of other outputs, none of them larger than the last of
            these. If none are given, outputs may be arbitrarily small, and more is
            revealed than with any other measure of the same sum.
    """

    epsilon: float
    total_mass: float
    largest_masses: tuple[float, ...] = attr.ib(
        default=(), converter=_as_tuple, repr=_in_short
    )
