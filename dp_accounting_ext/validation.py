"""Checks of what users pass in: the field, the value found, the remedy."""

import math
import numbers
from typing import Any


def real_number(name: str, value: Any) -> float:
    """Returns the value as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is NaN.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number. Found {value!r}.")
    if math.isnan(value):
        raise ValueError(f"{name} must be a number. Found nan.")
    return float(value)


def noise_multiplier(value: Any) -> float:
    """Returns the value as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is negative, infinite or NaN.
    """
    return non_negative("noise_multiplier", value)


def non_negative(name: str, value: Any) -> float:
    """Returns the value as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is negative, infinite or NaN.
    """
    number = real_number(name, value)
    if number < 0 or math.isinf(number):
        raise ValueError(f"{name} must be non-negative and finite. Found {value}.")
    return number


def probability(name: str, value: Any) -> float:
    """Returns the value as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is not in [0, 1].
    """
    number = real_number(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must be in [0, 1]. Found {value}.")
    return number


def non_negative_integer(name: str, value: Any) -> int:
    """Returns the value as an int.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is negative.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer. Found {value!r}.")
    if value < 0:
        raise ValueError(f"{name} must be at least 0. Found {value}.")
    return int(value)


def positive_integer(name: str, value: Any) -> int:
    """Returns the value as an int.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is less than one.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer. Found {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1. Found {value}.")
    return int(value)


def steps(num_selected: Any, num_steps: Any) -> tuple[int, int]:
    """Returns both as ints.

    Raises:
        TypeError: If either is not an integer.
        ValueError: If not 1 ≤ num_selected ≤ num_steps.
    """
    selected = positive_integer("num_selected", num_selected)
    total = positive_integer("num_steps", num_steps)
    if selected > total:
        raise ValueError(
            f"num_selected must be at most num_steps. Found {selected} of {total}."
        )
    return selected, total


def discretization_interval(value: Any) -> float:
    """Returns the value as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is not positive and finite.
    """
    number = real_number("value_discretization_interval", value)
    if not 0 < number < math.inf:
        raise ValueError(
            f"value_discretization_interval must be positive and finite. Found {value}."
        )
    return number
