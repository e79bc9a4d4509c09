"""Checks of what users pass in. Errors name the field, the value and the remedy.

A check returns the value, in the type that its first line says. It raises `TypeError`
for a value that is of no such type, and `ValueError` for NaN and for what is outside of
the range that the line names.
"""

from collections.abc import Sequence
import math
import numbers
from typing import Any
import warnings

from dp_accounting import privacy_accountant
import numpy as np
import numpy.typing as npt

from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray

LARGEST_INTEGER = 2**53  # Floats hold all integers up to this one.
SMALLEST_SCALE, LARGEST_SCALE = 1e-60, 1e60
SMALLEST_RATE = 1e-100
MOST_RUNS = 10**9  # Runs of one mechanism, or steps.


def real_number(name: str, value: Any) -> float:
    """Returns the value as a float that is no NaN."""
    if type(value) is float and not math.isnan(value):
        return value  # Nearly all values are floats, for which this is quicker.
    if isinstance(value, bool | np.timedelta64) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number. Found {value!r}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isnan(number):
        raise ValueError(f"{name} must be a number. Found nan.")
    if math.isinf(number) and value not in (math.inf, -math.inf):
        raise ValueError(f"{name} must be at most 1.8e308 in size. Found more.")
    if number == 0 and value != 0:
        raise ValueError(f"{name} must be 0 or at least 5e-324 in size. Found less.")
    return number


def real_numbers(name: str, value: Any) -> FloatArray:
    """Returns a real number, or an array or list of these, as an array of its shape."""
    if not isinstance(value, np.ndarray | list | tuple):
        return np.asarray(real_number(name, value))
    rows = () if isinstance(value, np.ndarray) else value
    # Such lists may be ragged: NumPy before 1.24 only warns unless dtype is object.
    is_nested = any(isinstance(row, np.ndarray | list | tuple) for row in rows)
    try:
        array = np.asarray(value, dtype=object if is_nested else None)
    except ValueError:
        raise TypeError(f"{name} must be real numbers. Found {value!r}.") from None
    if array.dtype.kind not in "fiuO":
        raise TypeError(f"{name} must be real numbers. Found {value!r}.")
    if array.dtype.kind == "O":
        entries = [real_number(name, number) for number in array.flat]
        return np.array(entries, dtype=np.float64).reshape(array.shape)
    if np.isnan(array).any():
        raise ValueError(f"{name} must be a number. Found nan.")
    return array.astype(np.float64)


def noise_multiplier(value: Any) -> float:
    """Returns the value as a float, as `scale` does."""
    return scale("noise_multiplier", value)


def scale(name: str, value: Any) -> float:
    """Returns the value as a float that is 0 or from 1e-60 to 1e60.

    Its square is in the range of floats.
    """
    number = real_number(name, value)
    if number < 0 or math.isinf(number):
        raise ValueError(f"{name} must be non-negative and finite. Found {value}.")
    if number and not SMALLEST_SCALE <= number <= LARGEST_SCALE:
        raise ValueError(
            f"{name} must be 0 or from {SMALLEST_SCALE:g} to {LARGEST_SCALE:g}. "
            f"Found {value}."
        )
    return number


def positive(name: str, value: Any) -> float:
    """Returns the value as a positive and finite float."""
    number = real_number(name, value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be positive and finite. Found {value}.")
    return number


def probability(name: str, value: Any) -> float:
    """Returns the value as a float in [0, 1]."""
    number = real_number(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must be in [0, 1]. Found {value}.")
    return number


def inner_probability(name: str, value: Any) -> float:
    """Returns the value as a float in (0, 1)."""
    number = real_number(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must be in (0, 1). Found {value}.")
    return number


def target_deltas(value: Any) -> FloatArray:
    """Returns δ in [0, 1], a number or an array, as an array of its shape.

    A δ of 1 is allowed, as dp_accounting's own tests ask for ε there. It promises
    nothing, so that a warning is issued.
    """
    deltas = real_numbers("target_delta", value)
    wrong = (deltas < 0) | (deltas > 1)
    if wrong.any():
        raise ValueError(
            f"target_delta must be in [0, 1]. Found {deltas[wrong].flat[0]:.17g}."
        )
    if (deltas == 1).any():
        warnings.warn(
            "target_delta must be below 1 to promise anything. Found 1, at which ε is "
            "0 for whatever has run.",
            stacklevel=3,
        )
    return deltas


def number_array(name: str, value: Any) -> npt.NDArray[Any]:
    """Returns real numbers as an array, integers as integers; none may be masked."""
    rows = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(row, np.ma.MaskedArray) for row in rows):
        raise TypeError(
            f"{name} must be an array of real numbers. Found a masked array, whose "
            "hidden entries would count; fill them in."
        )
    try:
        with warnings.catch_warnings():
            # An old NumPy warns of rows of unequal lengths, a newer one refuses them.
            warnings.simplefilter("error")
            array = np.asarray(value)
    except (ValueError, Warning):
        raise TypeError(
            f"{name} must be an array of real numbers. Found rows of unequal lengths."
        ) from None
    if array.dtype.kind not in "fiu":
        raise TypeError(
            f"{name} must be an array of real numbers. Found dtype {array.dtype}."
        )
    return array


def rates(name: str, value: Any) -> FloatArray:
    """Returns a number or an array of numbers in [0, 1] as an array of its shape."""
    array = number_array(name, value).astype(np.float64)
    outside = ~((array >= 0) & (array <= 1))
    if outside.any():
        raise ValueError(f"{name} must be in [0, 1]. Found {array[outside].flat[0]}.")
    return array


def sampling_probability(value: Any) -> float:
    """Returns the value as a float that is 0 or from 1e-100 to 1.

    Products of a few of these are exact but for their rounding.
    """
    rate = probability("sampling_probability", value)
    if 0 < rate < SMALLEST_RATE:
        raise ValueError(
            f"sampling_probability must be 0 or at least {SMALLEST_RATE}. "
            f"Found {value}."
        )
    return rate


def non_negative_integer(name: str, value: Any) -> int:
    """Returns the value as an int from 0 to 2^53."""
    return _integer(name, value, 0)


def positive_integer(name: str, value: Any) -> int:
    """Returns the value as an int from 1 to 2^53."""
    return _integer(name, value, 1)


def _integer(name: str, value: Any, least: int) -> int:
    if type(value) is int and least <= value <= LARGEST_INTEGER:
        return value  # Nearly all values are, so that this is quicker.
    if isinstance(value, bool | np.timedelta64) or not isinstance(
        value, numbers.Integral
    ):
        raise TypeError(f"{name} must be an integer. Found {value!r}.")
    number = int(value)
    bits = number.bit_length()
    found = str(number) if bits <= 200 else f"one of {bits} bits"
    if number < least:
        raise ValueError(f"{name} must be at least {least}. Found {found}.")
    if number > LARGEST_INTEGER:
        raise ValueError(f"{name} must be at most 2^53. Found {found}.")
    return number


def sequence(name: str, value: Any) -> list[Any]:
    """Returns a sequence, which an iterator is not, as a list."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return list(value)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a sequence. Found a {type(value).__name__}.")
    return list(value)


def function(name: str, value: Any) -> Any:
    """Returns something callable, unchanged."""
    if not callable(value):
        raise TypeError(f"{name} must be callable. Found {value!r:.60}.")
    return value


def flag(name: str, value: Any) -> bool:
    """Returns the value as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be a bool. Found {value!r:.60}.")
    return bool(value)


def neighboring_relation(value: Any) -> privacy_accountant.NeighboringRelation:
    """Returns a neighboring relation, unchanged."""
    if not isinstance(value, privacy_accountant.NeighboringRelation):
        raise TypeError(
            f"neighboring_relation must be a NeighboringRelation. Found {value!r}."
        )
    return value


def direction(value: Any) -> Direction:
    """Returns the direction of this name, "remove" or "add"."""
    if value not in ("remove", "add"):
        raise ValueError(
            f"direction must be 'remove', 'add' or None, for the larger one. "
            f"Found {value!r:.60}."
        )
    return Direction(value)


def number_of_steps(value: Any) -> int:
    """Returns the value as an int from 1 to 1e9."""
    total = positive_integer("num_steps", value)
    if total > MOST_RUNS:
        raise ValueError(f"num_steps must be at most {MOST_RUNS}. Found {total}.")
    return total


def steps(num_selected: Any, num_steps: Any) -> tuple[int, int]:
    """Returns both as ints, 1 ≤ num_selected ≤ num_steps ≤ 1e9."""
    selected = positive_integer("num_selected", num_selected)
    total = number_of_steps(num_steps)
    if selected > total:
        raise ValueError(
            f"num_selected must be at most num_steps. Found {selected} of {total}."
        )
    return selected, total


def discretization_interval(value: Any) -> float:
    """Returns the value as a float, as `positive` does."""
    return positive("value_discretization_interval", value)
