"""Plain files of numbers separated by commas."""

import pathlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Table(NamedTuple):
    """What a file holds.

    Attributes:
        numbers: A row a line.
        header: Names of the columns, where the first line has names alone.
        names: Of the rows, where each begins with one.
    """

    numbers: npt.NDArray[np.float64]
    header: list[str]
    names: list[str]


def read(
    option: str,
    path: str | pathlib.Path,
    *,
    is_private: bool = False,
) -> Table:
    """Returns the numbers of a file, and names.

    Args:
        option: That named it, as it is typed, without its hyphens.
        path: Of the file.
        is_private: Whether errors must not show what the file holds.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it has other lines.
    """
    form = f"{option} must be a file of rows of numbers separated by commas, all of "
    form += "one length. Found"
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{form} no text in {path}.") from None
    for at, line in enumerate(lines, 1):
        if ";" in line:
            raise ValueError(f"{form} semicolons in line {at} of {path}; write commas.")
    rows = {at: line.split(",") for at, line in enumerate(lines, 1) if line.strip()}
    header, names = [], []
    first = next(iter(rows), 0)
    if len(rows) > 1 and not any(map(_is_number, rows[first])):
        header = [cell.strip() for cell in rows.pop(first)]
    if all(len(row) > 1 and not _is_number(row[0]) for row in rows.values()):
        names = [row.pop(0).strip() for row in rows.values()]
    if not rows:
        raise ValueError(f"{form} an empty file.")
    length = len(next(iter(rows.values())))
    for at, row in rows.items():
        found = next((repr(cell)[:60] for cell in row if not _is_number(cell)), "")
        if not found and len(row) != length:
            found = f"{len(row)} in place of {length} numbers"
        if found:
            found = "something else" if is_private else found
            raise ValueError(f"{form} {found} in line {at} of {path}.")
    numbers = np.array([list(map(float, row)) for row in rows.values()])
    return Table(numbers, header[-length:] if len(header) >= length else [], names)


def _is_number(cell: str) -> bool:
    """Tells numbers from names; one that is misspelt counts as a name."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
