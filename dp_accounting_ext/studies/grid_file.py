"""Grids of settings: plain files, a setting a row."""

from collections.abc import Mapping
import csv
import dataclasses
import os

from dp_accounting_ext.studies import training_run

Cells = tuple[str, ...]
Path = str | os.PathLike[str]

_REQUIRED = ("noise_multiplier", "steps", "selected", "epochs", "delta")
_OPTIONAL = ("scheme", "group_size")


@dataclasses.dataclass(frozen=True)
class Grid:
    """Rows of cells, as they were found.

    Attributes:
        columns: Names of the columns.
        rows: One cell a column.
    """

    columns: Cells
    rows: tuple[Cells, ...]


def read(path: Path) -> Grid:
    """Returns the grid in a file of comma-separated values with a header.

    The columns noise_multiplier, steps, selected, epochs and delta are needed, in any
    order; scheme and group_size are optional. Cells are not looked into.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is no such file.
    """
    with open(path, encoding="utf-8-sig", newline="") as file:
        try:
            # A quote that is never closed is an error, no cell to the end of the file.
            reader = csv.reader(file, strict=True)
            lines = [(reader.line_num, tuple(cells)) for cells in reader if cells]
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"grid must be a CSV file in UTF-8. {error}.") from None
    if not lines:
        raise ValueError("grid must have a header. Found an empty file.")
    columns = lines[0][1]
    _check_columns(columns)
    for number, cells in lines[1:]:
        _check_row(number, cells, len(columns))
    return Grid(columns, tuple(cells for _, cells in lines[1:]))


def _check_columns(columns: Cells) -> None:
    missing = [name for name in _REQUIRED if name not in columns]
    if missing:
        raise ValueError(f"grid must have a column {missing[0]}. Found {columns}.")
    for name in columns:
        if name not in _REQUIRED + _OPTIONAL:
            allowed = ", ".join(_REQUIRED + _OPTIONAL)
            raise ValueError(f"grid's columns must be of {allowed}. Found {name!r}.")
        if columns.count(name) > 1:
            raise ValueError(f"grid must have one column {name}. Found several.")


def _check_row(number: int, cells: Cells, size: int) -> None:
    if len(cells) != size:
        raise ValueError(
            f"grid's rows must have {size} cells. Found {len(cells)} on line {number}."
        )
    if any("\n" in cell or "\r" in cell for cell in cells):
        raise ValueError(
            f"grid's cells must be of one line. Found a longer one on line {number}."
        )


def read_row(row: Mapping[str, str]) -> tuple[str, training_run.TrainingRun]:
    """Returns the scheme and the setting of a row.

    Args:
        row: From columns to cells. An empty or absent scheme is random allocation, an
            empty or absent group_size one.

    Raises:
        TypeError, ValueError: If a cell is not what its column says, naming it.
    """
    setting = training_run.TrainingRun(
        noise_multiplier=_number("noise_multiplier", row),
        num_steps=_integer("steps", row["steps"]),
        num_selected=_integer("selected", row["selected"]),
        epochs=_number("epochs", row),
        delta=_number("delta", row),
        group_size=_integer("group_size", row.get("group_size") or "1"),
    )
    return row.get("scheme") or training_run.RANDOM_ALLOCATION, setting


def _number(name: str, row: Mapping[str, str]) -> float:
    try:
        return float(row[name])
    except ValueError:
        raise ValueError(f"{name} must be a number. Found {row[name]!r}.") from None


def _integer(name: str, cell: str) -> int:
    try:
        return int(cell)
    except ValueError:
        raise ValueError(f"{name} must be an integer. Found {cell!r:.60}.") from None
