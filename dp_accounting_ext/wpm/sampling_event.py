"""The event of one private draw."""

from typing import Any

import attr
from dp_accounting import dp_event

_MOST_SHOWN = 6


def _as_tuple(value: Any) -> Any:
    """Returns what can be gone through as a tuple, so that events are values."""
    try:
        return tuple(value)
    except TypeError:
        return value


def _in_short(masses: Any) -> str:
    """Returns a few of many masses, and how many there are."""
    if not isinstance(masses, tuple) or len(masses) <= _MOST_SHOWN:
        return repr(masses)
    shown = ", ".join(map(repr, masses[:_MOST_SHOWN]))
    return f"({shown}, ... {len(masses)} in all)"


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PrivateSamplingEvent(dp_event.DpEvent):
    """Represents one draw whose law may be any between two bounds, by its input.

    For every input, output j has a probability in [e^{−ε/2} m_j, e^{ε/2} m_j], with a
    public base measure m. A record is the whole input of a user, replaced by any
    other. A lower bound is of inputs that lead to any such law, as those of a
    `WassersteinProjectionMechanism` do if each output is an input that is free to
    stay; where fewer laws are reached, less may be revealed.

    Attributes:
        epsilon: The privacy parameter ε > 0 of one draw.
        total_mass: The sum M of m, in [e^{−ε/2}, e^{ε/2}], rounded to a float.
        largest_masses: The masses of the largest outputs, the larger first. What they
            leave of M is shared by others, none larger than the last of these. Without
            any, outputs are as small as may be, and more is revealed than with any m
            of that sum.
    """

    epsilon: float
    total_mass: float
    largest_masses: tuple[float, ...] = attr.ib(
        default=(), converter=_as_tuple, repr=_in_short
    )
