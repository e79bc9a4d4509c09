"""Files of numbers, with names of rows and columns."""

from collections.abc import Sequence
import pathlib
import re
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.command_line import csv_file
from dp_accounting_ext.common_types import FloatArray

_WITH_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
# The comma is a decimal point or stands between thousands: this cannot be known.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
# Well-known text, as programs for maps write it.
SHAPE = re.compile(
    r"(SRID=\d+;)?\s*(MULTI)?(POINT|LINESTRING|POLYGON|GEOMETRYCOLLECTION)\b.*\(",
    re.IGNORECASE,
)


class Table(NamedTuple):
    """What a file holds.

    Attributes:
        numbers: A row a line.
        header: Names of the columns of numbers, where the first line has names.
        names: Of the rows, where a column has no numbers.
    """

    numbers: FloatArray
    header: list[str]
    names: list[str]


class Column(NamedTuple):
    """Represents a column of a sheet.

    Attributes:
        header: Its name; "" where it has none.
        cells: What stands in it.
        numbers: The numbers that its cells mean; None where a cell is no number.
    """

    header: str
    cells: Sequence[str]
    numbers: list[float] | None

    @property
    def has_number(self) -> bool:
        """Whether any cell is a number: then others may be misspelt."""
        return self.numbers is not None or any(map(_is_number, self.cells))


class Sheet(NamedTuple):
    """What a file holds, by columns.

    Attributes:
        path: Of the file.
        form: What it must be, for errors.
        is_private: Whether errors must not show what it holds.
        has_header: Whether its first line has the names of columns.
        lines: The lines on which its rows are.
        columns: All as long as there are rows.
    """

    path: object
    form: str
    is_private: bool
    has_header: bool
    lines: list[int]
    columns: list[Column]

    def error(self, found: str, line: int | None = None) -> ValueError:
        """Returns what to raise where something else was found."""
        shown = "something else" if self.is_private and line is not None else found
        where = f" in line {line} of {self.path}" if line is not None else ""
        return ValueError(f"{self.form}. Found {shown}{where}.")

    def misspelt(self, column: Column) -> ValueError:
        """Returns what to raise where a column must have numbers and has not."""
        for line, cell in zip(self.lines, column.cells, strict=True):
            if not _is_number(cell):
                return self.error(repr(cell)[:60] if cell else "an empty cell", line)
        # Each is a number for itself.
        return self.error(
            f"in {self.path} numbers such as 1,234, of 1.234 or of a thousand; write "
            "points for decimals, and nothing between thousands"
        )

    def numbers_of(self, columns: Sequence[Column]) -> FloatArray:
        """Returns the (rows, columns) numbers of some columns.

        Raises:
            ValueError: If a cell is none.
        """
        found = []
        for column in columns:
            if column.numbers is None:
                raise self.misspelt(column)
            found.append(column.numbers)
        return np.array(found).reshape(len(columns), len(self.lines)).T

    def names_beside(self, columns: Sequence[Column]) -> list[str]:
        """Returns the names of rows: the column "name", or the first without numbers.

        Args:
            columns: Those that hold numbers that are used.
        """
        used = set(map(id, columns))
        others = [each for each in self.columns if id(each) not in used]
        named = [each for each in others if each.header.casefold() == "name"]
        named += [each for each in others if not each.has_number]
        return [" ".join(cell.split()) for cell in named[0].cells] if named else []


def read(
    option: str,
    path: str | pathlib.Path,
    *,
    is_private: bool = False,
    encoding: str | None = None,
) -> Table:
    """Returns the numbers of a file, and names.

    Args:
        option: That named it, as it is typed, without its hyphens.
        path: Of the file.
        is_private: Whether errors must not show what the file holds.
        encoding: As for `csv_file.rows`.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it has other lines.
    """
    found = sheet(option, path, is_private=is_private, encoding=encoding)
    columns = numeric(found)
    if not found.has_header:  # A name is first; elsewhere it is a misspelt number.
        columns = found.columns[not found.columns[0].has_number :]
    header = [column.header for column in columns] if found.has_header else []
    return Table(found.numbers_of(columns), header, found.names_beside(columns))


def numeric(found: Sheet) -> list[Column]:
    """Returns the columns of numbers but that of an index, as of pandas.

    Raises:
        ValueError: If there is none, or a cell among numbers is none.
    """
    columns = [column for column in found.columns if column.has_number]
    if found.has_header and any(column.header for column in columns):
        columns = [column for column in columns if not _is_index(column)]
    if not columns:
        raise found.error(f"no column of numbers in {found.path}")
    return columns


def sheet(
    option: str,
    path: str | pathlib.Path,
    *,
    is_private: bool = False,
    encoding: str | None = None,
) -> Sheet:
    """Returns what a file holds.

    The first line is one of names if no cell of it is a number or a shape, or if it
    counts columns beside an empty cell, as pandas does where columns have no names.

    Args:
        option: That named it, as it is typed, without its hyphens.
        path: Of the file.
        is_private: Whether errors must not show what the file holds.
        encoding: As for `csv_file.rows`.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no CSV file, or has no rows.
    """
    form = f"{option} must be a file of rows of numbers separated by commas"
    content = pathlib.Path(path).read_bytes()
    delimiter, rows = csv_file.read(
        form, content, path, encoding, is_private=is_private
    )
    first = rows[0].cells
    has_header = len(rows) > 1 and (
        (not first[0] and len(first) > 1 and _counts(first[1:]))
        or not any(SHAPE.match(cell) or _is_number(cell) for cell in first)
    )
    body = rows[1:] if has_header else rows
    header = first if has_header else [""] * len(first)
    cells = list(zip(*(row.cells for row in body), strict=True))
    commas = [
        cell
        for column in cells
        for cell in column
        if "," in cell and _WITH_COMMA.fullmatch(cell)
    ]
    # Where semicolons are between cells, commas stand for decimal points.
    clear = delimiter == ";" or not all(map(_THOUSANDS.fullmatch, commas))
    columns = [
        Column(name, column, _numbers(column, with_commas=clear))
        for name, column in zip(header, cells, strict=True)
    ]
    found = Sheet(path, form, is_private, has_header, [r.line for r in body], columns)
    if _is_header_of_pandas(first, columns):
        raise found.error(
            f"{','.join(first)} above numbers with decimals in {path}, as pandas "
            "writes it above columns without names; write header=False"
        )
    return found


def _numbers(cells: Sequence[str], *, with_commas: bool) -> list[float] | None:
    """Returns the numbers that cells mean, or None.

    Args:
        cells: Of a column.
        with_commas: Whether commas are decimal points.
    """
    joined = "".join(cells)
    if not joined.isascii() or "_" in joined:  # Python's floats know more of them.
        return None
    if with_commas and "," in joined:
        cells = [
            cell.replace(",", ".") if _WITH_COMMA.fullmatch(cell) else cell
            for cell in cells
        ]
    try:
        return list(map(float, cells))
    except ValueError:
        return None


def _is_number(cell: str) -> bool:
    """Returns whether a cell is a number. A misspelt number counts as a name."""
    return _numbers([cell], with_commas=True) is not None


def _is_index(column: Column) -> bool:
    return not column.header or column.header.startswith("Unnamed: ")


def _counts(cells: Sequence[str]) -> bool:
    """Returns whether cells are 0, 1 and so on."""
    return list(cells) == [str(place) for place in range(len(cells))]


def _is_header_of_pandas(first: Sequence[str], columns: Sequence[Column]) -> bool:
    """Returns whether a first line counts columns, and all below it has decimals."""
    if len(first) < 2 or not _counts(first):
        return False
    rest = [cell for column in columns for cell in column.cells[1:]]
    return bool(rest) and all("." in cell for cell in rest)
