"""Strategy matrices: checks, inner products, and norms.

Errors name the field, the value and the remedy.

Let C be the strategy and z the noise, of standard deviation σ. Let c_i be the columns
of C for the steps in which a record can take part, and G their inner products over σ².
No entry is negative, so that sums and products keep their relative accuracy.

From above: more outputs, whose means have the inner products λ I − G, reveal more. If λ
is at least the largest eigenvalue of G, all outputs together have the inner products
λ I. These are steps with independent Gaussian noise of precision λ.

From below: the sum of all outputs has one normal law of noise, and a step of the record
moves it by the sum of its column. And steps whose noise is independent, with the norms
of the columns, reveal less, as no entry of G is negative (Kahane's inequality).

Source:
    docs/matrix.md, "Steps that may be near each other".
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.validation import fields

# Limits of time and memory: of the sizes of runs, and of the products in an iteration
# by which the largest eigenvalue is found, with the number of iterations.
MOST_BINS, MOST_STEPS, MOST_ROWS, MOST_APART = 4096, 1 << 17, 1024, 1024
_MOST_PRODUCTS, _ITERATIONS = 1 << 24, 24
SMALLEST_ENTRY, LARGEST_ENTRY = 1e-30, 1e30


def nested_tuple(value: Any) -> Any:
    """Returns rows of a matrix as a tuple of tuples, and a row as a tuple."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        rows = (list, tuple, np.ndarray)  # One check for each row of many numbers.
        return tuple(
            [nested_tuple(row) if isinstance(row, rows) else row for row in value]
        )
    return value


@dataclasses.dataclass(frozen=True)
class FirstSteps:
    """What the first steps of a run do to the outputs, at least.

    The last steps are left out, because the end of the run cuts their columns.

    Attributes:
        number: The number of first steps that count, at least 1.
        shift: The least amount by which one of them moves the sum of all outputs, in
            standard deviations of the sum, rounded down.
        deviation: The noise multiplier of a Gaussian mechanism for the column with the
            smallest norm among them, rounded up.
    """

    number: int
    shift: float
    deviation: float


@dataclasses.dataclass(frozen=True)
class Strategy:
    """A strategy matrix C, checked.

    Attributes:
        entries: The first column of a Toeplitz matrix, whose last entry is positive; or
            the rows of any matrix.
    """

    entries: tuple[float, ...] | tuple[tuple[float, ...], ...]

    @functools.cached_property
    def array(self) -> FloatArray:
        """The entries, of shape (p,) for a Toeplitz matrix and (n, n) for any other."""
        return np.array(self.entries, dtype=np.float64)

    @property
    def is_toeplitz(self) -> bool:
        """Whether the matrix is a Toeplitz matrix, given by its first column."""
        return self.array.ndim == 1

    @property
    def only_entry(self) -> float | None:
        """The diagonal of a Toeplitz matrix without other entries, or None."""
        is_diagonal = self.is_toeplitz and self.array.size == 1
        return float(self.array[0]) if is_diagonal else None

    @functools.cached_property
    def bands(self) -> int:
        """The number of diagonals from the main one to the last with an entry."""
        if self.is_toeplitz:
            return self.array.size
        rows, columns = np.nonzero(self.array)
        return int((rows - columns).max()) + 1

    def diagonal(self, band: int, num_steps: int) -> FloatArray:
        """Returns (n,) the entries of a diagonal of n steps, and zeros beyond it."""
        padded = np.zeros(num_steps)
        padded[: num_steps - band] = (
            self.array[band] if self.is_toeplitz else self.array.diagonal(-band)
        )
        return padded

    def gram(self, num_bins: int, num_epochs: int) -> tuple[FloatArray, float]:
        """Returns (b, b) inner products of bins, and a bound on their relative error.

        A record of bin i moves the outputs by m_i, the sum of the columns i, i + b, …
        For a Toeplitz matrix let e_s = Σ_j c_{s − jb}, where c is the first column.
        Then m_i is e, shifted by i and cut after n steps. So m_i · m_{i+d} is the sum
        of the first n − i − d products e_s e_{s+d}.

        Args:
            num_bins: The number b of bins.
            num_epochs: The number n / b of epochs.
        """
        steps, error = num_bins * num_epochs, product_error(num_bins * num_epochs)
        if not self.is_toeplitz:
            added = self.array.reshape(steps, num_epochs, num_bins).sum(axis=1)
            return np.asarray(added.T @ added), error
        column = np.zeros(steps)
        column[: self.array.size] = self.array
        added = np.cumsum(column.reshape(num_epochs, num_bins), axis=0).ravel()
        gram = np.zeros((num_bins, num_bins))
        for distance in range(num_bins):
            partial = np.cumsum(added[: steps - distance] * added[distance:])
            rows = np.arange(num_bins - distance)
            values = partial[steps - rows - distance - 1]
            gram[rows, rows + distance] = gram[rows + distance, rows] = values
        return gram, error

    def by_distance(self, size: int) -> tuple[FloatArray, float]:
        """Returns the largest inner products of columns by their distance.

        Args:
            size: The number of distances, which start at 0.

        Returns:
            (size,) products of columns that are not cut, 0 from the number of bands on;
            and a bound on their relative error.
        """
        table, number = np.zeros(size), min(self.bands, size)
        if self.is_toeplitz:
            column = self.array
            for distance in range(number):
                table[distance] = column[: column.size - distance] @ column[distance:]
        else:
            matrix, size = self.array, len(self.array)
            for distance in range(number):
                products = matrix[:, : size - distance] * matrix[:, distance:]
                table[distance] = products.sum(axis=0).max()
        return table, product_error(len(self.array))

    def precision_above(
        self, noise_multiplier: float, num_steps: int, period: int = 1
    ) -> float:
        """Returns an upper bound on the largest eigenvalue of G.

        G has the columns of one of the groups of steps 0, b, 2b, … or 1, b + 1, … and
        so on. For a Toeplitz matrix the first group has the largest inner products, as
        the columns of others are cut earlier.

        Args:
            noise_multiplier: The noise multiplier, σ > 0.
            num_steps: The number n of steps, at least p.
            period: The number b of steps between two steps of a group.

        Returns:
            The largest eigenvalue over σ², rounded up.
        """
        if self.is_toeplitz:
            # The largest sum of a row of G, for columns that are not cut. With r the
            # residue of the row, it is Σ_r (Σ_j c_{r + jb})².
            strategy = self.array
            padded = np.zeros(-(-strategy.size // period) * period)
            padded[: strategy.size] = strategy
            largest = float((padded.reshape(-1, period).sum(axis=0) ** 2).sum())
            products: float = num_steps * strategy.size
        else:
            largest, products = 0.0, math.inf
            for group in range(min(period, num_steps)):
                eigenvalue = self._collatz_wielandt(num_steps, period, group)
                largest = max(largest, eigenvalue)
        if products <= _MOST_PRODUCTS:
            largest = min(largest, self._collatz_wielandt(num_steps, period))
        rounding = 16 * (num_steps + 8) * floats.UNIT_ROUNDOFF
        return largest / noise_multiplier**2 * (1 + rounding)

    def precision_of_every_step(self, noise_multiplier: float, num_steps: int) -> float:
        """Returns the squared norm of the sum of all columns over σ², rounded up.

        It is 1/σ² of a Gaussian mechanism that dominates every run, whatever the law of
        a record's steps, as no entry is negative.

        Args:
            noise_multiplier: As for `precision_above`.
            num_steps: As for `precision_above`.
        """
        if self.is_toeplitz:
            sums = np.cumsum(self.array)
            later = max(num_steps - self.array.size, 0)
            squared = float((sums**2).sum()) + later * float(sums[-1]) ** 2
        else:
            squared = float((self.array.sum(axis=1) ** 2).sum())
        rounding = 16 * (num_steps + 8) * floats.UNIT_ROUNDOFF
        return squared / noise_multiplier**2 * (1 + rounding)

    def _collatz_wielandt(self, num_steps: int, period: int, first: int = 0) -> float:
        """Returns max_i (G v)_i / v_i for a v > 0: at least the largest eigenvalue.

        G has the columns of one group, and is not divided by σ² here. v is found by
        iteration from v = 1.
        """
        strategy, group = self.array, slice(first, None, period)
        columns = None if self.is_toeplitz else strategy[:, group]
        vector = np.ones(len(range(first, num_steps, period)))
        smallest = math.inf
        for _ in range(_ITERATIONS):
            if columns is None:
                moved = np.zeros(num_steps)
                moved[group] = vector
                moved = np.convolve(moved, strategy)[:num_steps]
                image = np.convolve(moved[::-1], strategy)[:num_steps][::-1][group]
            else:
                image = columns.T @ (columns @ vector)
            smallest = min(smallest, float((image / vector).max()))
            vector = np.maximum(image / image.max(), floats.UNIT_ROUNDOFF)
        return smallest

    def first_steps(self, noise_multiplier: float, num_steps: int) -> FirstSteps:
        """Returns as many first steps as make their number times their shift largest.

        Args:
            noise_multiplier: As for `precision_above`.
            num_steps: As for `precision_above`.
        """
        strategy = self.array
        if self.is_toeplitz:
            sums, squares = np.cumsum(strategy), np.cumsum(strategy**2)
            # The column of step i has its first n − i entries.
            last = np.minimum(np.arange(num_steps, 0, -1), strategy.size) - 1
            sums, squares = sums[last], squares[last]
        else:
            sums, squares = strategy.sum(axis=0), (strategy**2).sum(axis=0)
        sums = np.minimum.accumulate(sums)
        # Of equal products the one of more steps is taken, so the order is reversed.
        products = sums * np.arange(1, num_steps + 1)
        number = num_steps - int(np.argmax(products[::-1]))
        rounding = 4 * (num_steps + 8) * floats.UNIT_ROUNDOFF
        scale = noise_multiplier * math.sqrt(num_steps)
        norm = math.sqrt(float(squares[:number].min()))
        return FirstSteps(
            number,
            float(sums[number - 1]) / scale * (1 - rounding),
            noise_multiplier / norm * (1 + rounding),
        )


def product_error(num_steps: int) -> float:
    """Returns a bound on the relative error of an inner product over n steps."""
    return 4 * (num_steps + 8) * floats.UNIT_ROUNDOFF + 8 * floats.UNIT_ROUNDOFF


def integer_up_to(name: str, value: Any, limit: int = MOST_STEPS) -> int:
    """Returns a number of steps, or of bins, as an int.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is less than one, or more than `limit`.
    """
    number = fields.positive_integer(name, value)
    if number > limit:
        raise ValueError(f"{name} must be at most {limit}. Found {number}.")
    return number


def bins(num_bins: Any, num_epochs: Any) -> tuple[int, int]:
    """Returns the number of bins, and of steps of all epochs, as ints.

    Raises:
        TypeError: If either argument is not an integer.
        ValueError: If either is less than one, or if there are too many.
    """
    number = integer_up_to("num_bins", num_bins, MOST_BINS)
    steps = number * fields.positive_integer("num_epochs", num_epochs)
    return number, integer_up_to("num_bins times num_epochs", steps)


def separated(value: Any, separation: int, num_steps: int) -> Strategy:
    """Returns a strategy whose columns at a distance have no row in common.

    Args:
        value: The coefficients of a Toeplitz matrix, or the rows of a matrix.
        separation: The least number of steps between two steps of a record.
        num_steps: The number of steps of the run.

    Raises:
        TypeError, ValueError: If `strategy` raises, or if there are more bands.
    """
    checked = strategy(value, num_steps)
    if checked.bands > separation:
        raise ValueError(
            f"strategy must have at most as many bands as separation, {separation}: "
            "no theorem covers steps of a record whose columns meet. Found "
            f"{checked.bands}; cut the columns, or use a MatrixAllocationEvent, which "
            "takes any."
        )
    return checked


def separated_column(value: Any, separation: Any) -> Strategy:
    """Returns a Toeplitz strategy whose columns at a distance have no row in common.

    Args:
        value: The coefficients of the matrix.
        separation: The least number of steps between two steps of a record.

    Raises:
        TypeError: If a coefficient is not a number, or the separation not an integer.
        ValueError: If `strategy` raises, if rows are given, or if there are more bands.
    """
    distance = fields.positive_integer("separation", separation)
    column = fields.sequence("strategy", value)
    if any(isinstance(row, tuple | list | np.ndarray) for row in column):
        raise ValueError(
            "strategy must be the coefficients of a Toeplitz matrix here. Found rows: "
            "use a column that is no less than each of theirs, for an upper bound."
        )
    return separated(column, distance, max(len(column), 1))


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
        return Strategy(tuple(column[: last + 1].tolist()))
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
    return Strategy(
        tuple(_row(row, index, num_steps) for index, row in enumerate(rows))
    )


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


def _numbers(values: list[Any], noun: str) -> FloatArray:
    """Returns the entries of a strategy, each of which errors call by the noun."""
    numbers = np.array([fields.real_number("strategy", value) for value in values])
    is_in_range = (numbers >= SMALLEST_ENTRY) & (numbers <= LARGEST_ENTRY)
    wrong = np.flatnonzero(~(is_in_range | (numbers == 0)))
    if wrong.size:
        place = int(wrong[0])
        if numbers[place] < 0:
            raise ValueError(
                f"strategy must have no negative {noun}: no theorem covers it. "
                f"Found {values[place]} at {place}."
            )
        raise ValueError(
            f"strategy must have each {noun} 0 or from {SMALLEST_ENTRY:g} to "
            f"{LARGEST_ENTRY:g}: write 0 for what has died out, or {SMALLEST_ENTRY:g} "
            f"for an upper bound. Found {values[place]} at {place}."
        )
    return numbers
