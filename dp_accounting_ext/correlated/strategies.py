"""Checks of strategy matrices. Errors name the field, the value and the remedy."""

from typing import Any
from typing import TypeAlias

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.validation import fields

# The first column of a Toeplitz matrix, or the rows of any matrix.
Strategy: TypeAlias = "tuple[float, ...] | tuple[tuple[float, ...], ...]"

# Tuning: larger runs take too much time or memory.
MOST_BINS, MOST_STEPS, MOST_ROWS, MOST_APART = 4096, 1 << 17, 1024, 1024
SMALLEST_ENTRY, LARGEST_ENTRY = 1e-30, 1e30


def bins(num_bins: Any, num_epochs: Any) -> tuple[int, int]:
    """Returns both as ints.

    Raises:
        TypeError: If either is not an integer.
        ValueError: If either is less than one, or their product is too large.
    """
    number = fields.positive_integer("num_bins", num_bins)
    epochs = fields.positive_integer("num_epochs", num_epochs)
    if number > MOST_BINS:
        raise ValueError(f"num_bins must be at most {MOST_BINS}. Found {number}.")
    if number * epochs > MOST_STEPS:
        raise ValueError(
            f"num_bins times num_epochs must be at most {MOST_STEPS}. "
            f"Found {number * epochs}."
        )
    return number, epochs


def cycles(window: Any, separation: Any, num_cycles: Any) -> tuple[int, int]:
    """Returns the number of steps of a window, and the number of cycles, as ints.

    Raises:
        TypeError: If any of them is not an integer.
        ValueError: If any is less than one, or there are too many steps.
    """
    size = fields.positive_integer("window", window)
    number = fields.positive_integer("num_cycles", num_cycles)
    if size > MOST_BINS:
        raise ValueError(f"window must be at most {MOST_BINS}. Found {size}.")
    apart = fields.positive_integer("separation", separation)
    length = size + apart - 1
    if length * number > MOST_STEPS:
        raise ValueError(
            f"num_cycles must make at most {MOST_STEPS} steps. Found {number} cycles "
            f"of {length} steps."
        )
    return size, number


def separated_steps(separation: Any, num_steps: Any) -> tuple[int, int]:
    """Returns the separation of a record's steps, and the number of steps, as ints.

    Raises:
        TypeError: If either is not an integer.
        ValueError: If either is less than one, or too large.
    """
    apart = fields.positive_integer("separation", separation)
    if apart > MOST_APART:
        raise ValueError(f"separation must be at most {MOST_APART}. Found {apart}.")
    steps = fields.positive_integer("num_steps", num_steps)
    if steps > MOST_STEPS:
        raise ValueError(f"num_steps must be at most {MOST_STEPS}. Found {steps}.")
    return apart, steps


def separated(value: Any, separation: int, num_steps: int) -> Strategy:
    """Returns a strategy whose columns so far apart have no row in common.

    Args:
        value: The coefficients of a Toeplitz matrix, or the rows of a matrix.
        separation: The least number of steps between two steps of a record.
        num_steps: The number of steps of the run.

    Raises:
        TypeError, ValueError: If `strategy` raises, or if there are more bands.
    """
    found = strategy(value, num_steps)
    if isinstance(found[0], tuple):
        rows, columns = np.nonzero(np.array(found))
        bands = int((rows - columns).max()) + 1
    else:
        bands = len(found)
    if bands > separation:
        raise ValueError(
            f"strategy must have at most as many bands as separation, {separation}: "
            f"no theorem covers steps of a record whose columns meet. Found {bands}; "
            "cut the columns, or use a MatrixAllocationEvent, which takes any."
        )
    return found


def separated_column(value: Any, separation: Any) -> tuple[float, ...]:
    """Returns a Toeplitz strategy whose columns so far apart have no row in common.

    Args:
        value: The coefficients of the matrix.
        separation: The least number of steps between two steps of a record.

    Raises:
        TypeError: If a coefficient is not a number, or the separation not an integer.
        ValueError: If `toeplitz_column` raises, or if there are more bands.
    """
    apart = fields.positive_integer("separation", separation)
    column = toeplitz_column(value, None)
    separated(column, apart, len(column))
    return column


def toeplitz_column(value: Any, num_steps: int | None) -> tuple[float, ...]:
    """Returns the coefficients of a Toeplitz strategy, without trailing zeros.

    Args:
        value: The coefficients of the matrix.
        num_steps: The number of steps of the run. Later coefficients are dropped. None
            if no column is cut off.

    Raises:
        TypeError, ValueError: If `strategy` raises, or if rows are given.
    """
    column = fields.sequence("strategy", value)
    if any(isinstance(row, tuple | list | np.ndarray) for row in column):
        raise ValueError(
            "strategy must be the coefficients of a Toeplitz matrix here. Found rows: "
            "use a column that is no less than each of theirs, for an upper bound."
        )
    found = strategy(value, max(len(column), 1) if num_steps is None else num_steps)
    return tuple(float(entry) for entry in found if not isinstance(entry, tuple))


def strategy(value: Any, num_steps: int) -> Strategy:
    """Returns a strategy as floats, a Toeplitz one without trailing zeros.

    Args:
        value: The coefficients of a Toeplitz matrix, or the rows of a matrix.
        num_steps: The number of steps of the run. Later coefficients are dropped.

    Raises:
        TypeError: If it is neither, or has an entry that is not a real number.
        ValueError: If an entry is negative or not finite; or if the matrix is not
            square with one row for each step, lower triangular, and positive on its
            diagonal.
    """
    rows = fields.sequence("strategy", value)
    if not rows:
        raise ValueError("strategy must have a coefficient at least. Found none.")
    if not any(isinstance(row, tuple | list | np.ndarray) for row in rows):
        column = _numbers(rows[:num_steps], "coefficient")
        if not column[0]:
            raise ValueError(
                f"strategy must begin with a positive coefficient. Found {rows[0]}."
            )
        last = int(np.flatnonzero(column)[-1])
        return tuple(column[: last + 1].tolist())
    if len(rows) != num_steps:
        raise ValueError(
            f"strategy must have a row for each of the {num_steps} steps, or be the "
            f"coefficients of a Toeplitz matrix. Found {len(rows)} rows."
        )
    if num_steps > MOST_ROWS:
        raise ValueError(
            f"strategy must have at most {MOST_ROWS} rows, or be the coefficients of "
            f"a Toeplitz matrix. Found {num_steps} rows."
        )
    return tuple(_row(row, index, num_steps) for index, row in enumerate(rows))


def buffered_toeplitz(decays: Any, scales: Any, num_steps: int) -> FloatArray:
    """Returns the first column of a buffered linear Toeplitz matrix.

    Args:
        decays: θ, one for each buffer, in [0, 1].
        scales: ω, one for each buffer: c_0 = 1 and c_t = Σ ω θ^{t − 1}.
        num_steps: The number of steps of the run.

    Raises:
        TypeError, ValueError: If they are not equally many numbers in their ranges.
            `strategy` checks that no coefficient is negative.
    """
    roots, weights = (
        [fields.real_number(name, number) for number in fields.sequence(name, value)]
        for name, value in (("decays", decays), ("scales", scales))
    )
    if len(roots) != len(weights):
        raise ValueError(
            "decays and scales must be as many, one a buffer. "
            f"Found {len(roots)} and {len(weights)}."
        )
    steps, column = np.arange(num_steps - 1), np.zeros(num_steps - 1)
    for root, weight in zip(roots, weights, strict=True):
        if not 0 <= root <= 1:
            raise ValueError(f"decays must be in [0, 1]. Found {root}.")
        if not abs(weight) <= LARGEST_ENTRY:
            raise ValueError(
                f"scales must be at most {LARGEST_ENTRY:g} in size. Found {weight}."
            )
        column += weight * root**steps
    # Entries below this are negligible.
    column[np.abs(column) < SMALLEST_ENTRY] = 0.0
    return np.append(1.0, column)


def _row(value: Any, index: int, size: int) -> tuple[float, ...]:
    entries = fields.sequence(f"row {index} of strategy", value)
    if len(entries) != size:
        raise ValueError(
            f"strategy must be square. Found {len(entries)} entries in row {index} "
            f"of {size}."
        )
    row = _numbers(entries, f"entry of row {index}")
    if row[index + 1 :].any():
        raise ValueError(
            f"strategy must be lower triangular. Found a positive entry above the "
            f"diagonal in row {index}."
        )
    if not row[index]:
        raise ValueError(
            f"strategy must have a positive diagonal. Found 0 in row {index}."
        )
    return tuple(row.tolist())


def _numbers(values: list[Any], what: str) -> FloatArray:
    numbers = np.array([fields.real_number("strategy", value) for value in values])
    size = (numbers >= SMALLEST_ENTRY) & (numbers <= LARGEST_ENTRY)
    wrong = np.flatnonzero(~(size | (numbers == 0)))
    if wrong.size:
        found = int(wrong[0])
        if numbers[found] < 0:
            raise ValueError(
                f"strategy must have no negative {what}: no theorem covers it. "
                f"Found {values[found]} at {found}."
            )
        raise ValueError(
            f"strategy must have each {what} 0 or from {SMALLEST_ENTRY:g} to "
            f"{LARGEST_ENTRY:g}: write 0 for what has died out, or {SMALLEST_ENTRY:g} "
            f"for an upper bound. Found {values[found]} at {found}."
        )
    return numbers
