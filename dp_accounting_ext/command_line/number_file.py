"""Files of numbers, which may have names of rows and columns."""

from collections.abc import Sequence
import pathlib
import re
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.command_line import csv_file
from dp_accounting_ext.common_types import FloatArray

_WITH_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
# In such a cell the comma may be a decimal point, or it may separate thousands.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
# Well-known text, as programs for maps write it.
SHAPE = re.compile(
    r"(SRID=\d+;)?\s*(MULTI)?(POINT|LINESTRING|POLYGON|GEOMETRYCOLLECTION)\b.*\(",
    re.IGNORECASE,
)


class Table(NamedTuple):
    """The numbers and names of a file.

    Attributes:
        numbers: A row of numbers for each line.
        header: The names of the columns of numbers, if the first line has names.
        names: The names of the rows, if a column has names.
    """

    numbers: FloatArray
    header: list[str]
    names: list[str]


class Column(NamedTuple):
    """Represents a column of a sheet.

    Attributes:
        header: The name of the column; "" if it has none.
        cells: The texts of its cells.
        numbers: The numbers of its cells; None if a cell is not a number.
    """

    header: str
    cells: Sequence[str]
    numbers: list[float] | None

    @property
    def has_number(self) -> bool:
        """Whether any cell is a number, so that other cells may be misspelt numbers."""
        return self.numbers is not None or any(map(_is_number, self.cells))


class Sheet(NamedTuple):
    """The columns of a file.

    Attributes:
        path: The path of the file.
        form: What the file must be, for errors.
        is_private: Whether errors must not show its content.
        has_header: Whether its first line has the names of columns.
        lines: The numbers of the lines on which its rows are.
        columns: The columns, each with a cell for every row.
    """

    path: object
    form: str
    is_private: bool
    has_header: bool
    lines: list[int]
    columns: list[Column]

    def error(self, found: str, line: int | None = None) -> ValueError:
        """Returns the error for content of another form."""
        shown = "something else" if self.is_private and line is not None else found
        where = f" in line {line} of {self.path}" if line is not None else ""
        return ValueError(f"{self.form}. Found {shown}{where}.")

    def misspelt(self, column: Column) -> ValueError:
        """Returns the error for a column that must hold only numbers, but does not."""
        for line, cell in zip(self.lines, column.cells, strict=True):
            if not _is_number(cell):
                return self.error(repr(cell)[:60] if cell else "an empty cell", line)
        # Each cell alone is a number, but the meaning of its comma is unknown.
        return self.error(
            f"in {self.path} numbers such as 1,234, of 1.234 or of a thousand; write "
            "points for decimals, and nothing between thousands"
        )

    def numbers_of(self, columns: Sequence[Column]) -> FloatArray:
        """Returns the (rows, columns) numbers of some columns.

        Raises:
            ValueError: If a cell is not a number.
        """
        found = []
        for column in columns:
            if column.numbers is None:
                raise self.misspelt(column)
            found.append(column.numbers)
        return np.array(found).reshape(len(columns), len(self.lines)).T

    def names_beside(self, columns: Sequence[Column]) -> list[str]:
        """Returns names of rows: the column "name", or the first one without numbers.

        Args:
            columns: The columns whose numbers are used.
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
    """Returns the numbers of a file, with names of rows and columns.

    Args:
        option: The option that named the file, as it is typed, without hyphens.
        path: The path of the file.
        is_private: Whether errors must not show the content of the file.
        encoding: As for `csv_file.read`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it has lines of another form.
    """
    found = sheet(option, path, is_private=is_private, encoding=encoding)
    columns = numeric(found)
    if not found.has_header:  # A name is first; elsewhere it is a misspelt number.
        columns = found.columns[not found.columns[0].has_number :]
    header = [column.header for column in columns] if found.has_header else []
    return Table(found.numbers_of(columns), header, found.names_beside(columns))


def numeric(found: Sheet) -> list[Column]:
    """Returns the columns of numbers, without the column of an index as in pandas.

    Raises:
        ValueError: If there is no such column, or a cell among numbers is not a number.
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
    """Returns the columns of a file.

    The first line has the names of columns if no cell of it is a number or a shape. It
    also counts as names if it is an empty cell followed by 0, 1, …, which pandas writes
    for columns without names.

    Args:
        option: The option that named the file, as it is typed, without hyphens.
        path: The path of the file.
        is_private: Whether errors must not show the content of the file.
        encoding: As for `csv_file.read`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not a CSV file, or has no rows.
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
    # If semicolons separate cells, commas are decimal points.
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
    """Returns the numbers of cells, or None if a cell is not a number.

    Args:
        cells: The cells of a column.
        with_commas: Whether commas are decimal points.
    """
    joined = "".join(cells)
    if not joined.isascii() or "_" in joined:  # Python's floats accept more spellings.
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
    """Returns whether cells are the numbers 0, 1, 2, … in this order."""
    return list(cells) == [str(place) for place in range(len(cells))]


def _is_header_of_pandas(first: Sequence[str], columns: Sequence[Column]) -> bool:
    """Returns whether a first line counts columns, and all below it has decimals."""
    if len(first) < 2 or not _counts(first):
        return False
    rest = [cell for column in columns for cell in column.cells[1:]]
    return bool(rest) and all("." in cell for cell in rest)
