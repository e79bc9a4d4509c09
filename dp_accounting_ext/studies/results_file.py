"""A table of results on disk that a kill at any moment leaves fit to be resumed."""

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import csv
import io
import os
from typing import BinaryIO

from dp_accounting_ext.studies import file_lock
from dp_accounting_ext.studies import grid_file

Cells = grid_file.Cells

RESULTS = ("epsilon_lower", "epsilon_upper", "seconds", "note")


class Table:
    """Rows of a grid, in its order, each with its results; as far as they are known.

    Args:
        file: Open for appending.
        num_rows: How many rows it holds.
    """

    def __init__(self, file: BinaryIO, num_rows: int) -> None:
        self._file = file
        self.num_rows = num_rows

    def append(self, cells: Iterable[str]) -> None:
        """Writes a row, at once."""
        self._file.write(_line(cells))
        self._file.flush()
        self.num_rows += 1


@contextlib.contextmanager
def resume(path: grid_file.Path, grid: grid_file.Grid) -> Iterator[Table]:
    """Opens a table, new or unfinished; a half-written last line is dropped.

    Raises:
        OSError: If the file cannot be read or written.
        ValueError: If it holds anything but a table of the grid's first rows, or
            another process writes it; it is left as it was.
    """
    header = _line([*grid.columns, *RESULTS])
    _check(path, _whole_lines(path, header), header, grid)
    with open(path, "ab") as file:
        if not file_lock.take(file):
            raise ValueError(
                "output must be written by one sweep at a time. Found another that "
                f"writes {path}; wait for its end, or name another file."
            )
        # Again, for another sweep may have been at it until now.
        whole = _whole_lines(path, header)
        _check(path, whole, header, grid)
        file.truncate(sum(map(len, whole)))
        table = Table(file, max(len(whole) - 1, 0))
        if not whole:
            file.write(header)
            file.flush()
        yield table


def _whole_lines(path: grid_file.Path, header: bytes) -> list[bytes]:
    """Returns the lines that were written to their ends."""
    if not os.path.exists(path):
        return []
    if not os.path.isfile(path) and not os.path.isdir(path):
        raise ValueError(f"output must be a file. Found {path}, which is a device.")
    with open(path, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        last = lines.pop()
        if not lines and not header.startswith(last):
            raise ValueError(_NOT_OF_THE_GRID.format(path=path, number=1))
    return lines


def _check(
    path: grid_file.Path, whole: list[bytes], header: bytes, grid: grid_file.Grid
) -> None:
    """Raises ValueError unless the lines are a header and the grid's first rows."""
    for number, line in enumerate(whole):
        if number == 0:
            agrees = line == header
        elif number > len(grid.rows):
            agrees = False
        else:
            row = grid.rows[number - 1]
            cells = _cells(line)
            agrees = cells[: len(row)] == row and len(cells) == len(row) + len(RESULTS)
        if not agrees:
            raise ValueError(_NOT_OF_THE_GRID.format(path=path, number=number + 1))


_NOT_OF_THE_GRID = (
    "output must be absent, or a table of this grid to go on with. Found {path}, whose "
    "line {number} is of something else; remove it, or name another."
)


def _line(cells: Iterable[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue().encode()


def _cells(line: bytes) -> Cells:
    try:
        return tuple(next(csv.reader([line.decode().removesuffix("\n")], strict=True)))
    except (UnicodeDecodeError, csv.Error, StopIteration):
        return ()
