"""Checks of what users pass in. Errors name the field, the value and the remedy."""

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
    """Returns the value as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is NaN, or an integer too large for a float.
    """
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
    """Returns a real number, or an array or list of these, as an array of its shape.

    Raises:
        TypeError, ValueError: If `real_number` raises for any of them.
    """
    if not isinstance(value, np.ndarray | list | tuple):
        return np.asarray(real_number(name, value))
    parts = () if isinstance(value, np.ndarray) else value
    # Such lists may be ragged: NumPy before 1.24 only warns unless dtype is object.
    nested = any(isinstance(part, np.ndarray | list | tuple) for part in parts)
    try:
        found = np.asarray(value, dtype=object if nested else None)
    except ValueError:
        raise TypeError(f"{name} must be real numbers. Found {value!r}.") from None
    if found.dtype.kind not in "fiuO":
        raise TypeError(f"{name} must be real numbers. Found {value!r}.")
    if found.dtype.kind == "O":
        each = [real_number(name, number) for number in found.flat]
        return np.array(each, dtype=np.float64).reshape(found.shape)
    if np.isnan(found).any():
        raise ValueError(f"{name} must be a number. Found nan.")
    return found.astype(np.float64)


def noise_multiplier(value: Any) -> float:
    """Returns the value as a float, as `scale` does."""
    return scale("noise_multiplier", value)


def scale(name: str, value: Any) -> float:
    """Returns the value as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is negative or NaN, or its square might leave the range of
            floats.
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
    """Returns the value as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is not positive and finite.
    """
    number = real_number(name, value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be positive and finite. Found {value}.")
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


def inner_probability(name: str, value: Any) -> float:
    """Returns the value as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is not in (0, 1).
    """
    number = real_number(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must be in (0, 1). Found {value}.")
    return number


def target_deltas(value: Any) -> FloatArray:
    """Returns δ at which ε is asked for, a number or an array, as an array.

    A δ of 1 is one, as dp_accounting's own tests ask for ε there. It promises nothing,
    so that a warning is issued.

    Raises:
        TypeError: If it is not a real number, or an array of these.
        ValueError: If one is not in [0, 1].
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
    """Returns the value as an array, integers as integers.

    Raises:
        TypeError: If it does not consist of real numbers, or some are masked.
    """
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
            found = np.asarray(value)
    except (ValueError, Warning):
        raise TypeError(
            f"{name} must be an array of real numbers. Found rows of unequal lengths."
        ) from None
    if found.dtype.kind not in "fiu":
        raise TypeError(
            f"{name} must be an array of real numbers. Found dtype {found.dtype}."
        )
    return found


def rates(name: str, value: Any) -> FloatArray:
    """Returns a number or an array of probabilities as an array of its shape.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If one is not in [0, 1].
    """
    found = number_array(name, value).astype(np.float64)
    outside = ~((found >= 0) & (found <= 1))
    if outside.any():
        raise ValueError(f"{name} must be in [0, 1]. Found {found[outside].flat[0]}.")
    return found


def sampling_probability(value: Any) -> float:
    """Returns the value as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is not in [0, 1], or so small that products of it are not
            exact.
    """
    rate = probability("sampling_probability", value)
    if 0 < rate < SMALLEST_RATE:
        raise ValueError(
            f"sampling_probability must be 0 or at least {SMALLEST_RATE}. "
            f"Found {value}."
        )
    return rate


def non_negative_integer(name: str, value: Any) -> int:
    """Returns the value as an int.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is negative, or no float holds it exactly.
    """
    return _integer(name, value, 0)


def positive_integer(name: str, value: Any) -> int:
    """Returns the value as an int.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is less than one, or no float holds it exactly.
    """
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
    """Returns the value as a list.

    Raises:
        TypeError: If it is not a sequence, as an iterator is not.
    """
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return list(value)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a sequence. Found a {type(value).__name__}.")
    return list(value)


def function(name: str, value: Any) -> Any:
    """Returns the value unchanged.

    Raises:
        TypeError: If it is not callable.
    """
    if not callable(value):
        raise TypeError(f"{name} must be callable. Found {value!r:.60}.")
    return value


def flag(name: str, value: Any) -> bool:
    """Returns the value as a bool.

    Raises:
        TypeError: If it is not a bool.
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be a bool. Found {value!r:.60}.")
    return bool(value)


def neighboring_relation(value: Any) -> privacy_accountant.NeighboringRelation:
    """Returns the value unchanged.

    Raises:
        TypeError: If it is not a `NeighboringRelation`.
    """
    if not isinstance(value, privacy_accountant.NeighboringRelation):
        raise TypeError(
            f"neighboring_relation must be a NeighboringRelation. Found {value!r}."
        )
    return value


def direction(value: Any) -> Direction:
    """Returns the direction of this name.

    Raises:
        ValueError: If it is neither "remove" nor "add".
    """
    if value not in ("remove", "add"):
        raise ValueError(
            f"direction must be 'remove', 'add' or None, for the larger one. "
            f"Found {value!r:.60}."
        )
    return Direction(value)


def number_of_steps(value: Any) -> int:
    """Returns the value as an int.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is less than one, or more than can be accounted for.
    """
    total = positive_integer("num_steps", value)
    if total > MOST_RUNS:
        raise ValueError(f"num_steps must be at most {MOST_RUNS}. Found {total}.")
    return total


def steps(num_selected: Any, num_steps: Any) -> tuple[int, int]:
    """Returns both as ints.

    Raises:
        TypeError: If either is not an integer.
        ValueError: If not 1 ≤ num_selected ≤ num_steps.
    """
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
