"""CSV files of results that grow row by row, so that a stopped run can go on."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import csv
import io
import pathlib
from typing import Any


def resumed(
    path: pathlib.Path,
    columns: Sequence[str],
    words: str,
    is_whole: Callable[[dict[str, str]], bool],
) -> list[dict[str, str]]:
    """Prepares a file, new or of an earlier run, for more rows, and returns its rows.

    The words say what the columns are, in errors. A row is left out unless it is whole;
    if it is of another run, the function raises a ValueError. The file of another run
    is left as it was.
    """
    before = path.read_bytes() if path.exists() else b""
    first = line(columns).encode()
    try:
        if before[: len(first)] != first[: len(before)]:
            raise ValueError("its first line is another")
        # The last line may have been written in part.
        table = table_of(before[: before.rfind(b"\n") + 1].decode())
        rows = [dict(zip(columns, cells, strict=True)) for cells in table[1:]]
        rows = list(filter(is_whole, rows))
    except (csv.Error, ValueError) as error:
        raise ValueError(
            f"output must be a file, new or with {words}; name another one, or "
            f"mend it. Found {str(path)!r}: {error}."
        ) from None
    copy = pathlib.Path(f"{path}.part")
    with copy.open("wb") as file:
        file.write(first)
        file.writelines(line(row.values()).encode() for row in rows)
    copy.replace(path)
    return rows


@contextlib.contextmanager
def appended(path: pathlib.Path) -> Iterator[Callable[[Iterable[Any]], None]]:
    """Yields a function that adds a row of cells to a file at once."""
    with path.open("ab") as file:

        def add(cells: Iterable[Any]) -> None:
            file.write(line(cells).encode())
            file.flush()

        yield add


def line(cells: Iterable[Any]) -> str:
    """Returns the line of some cells."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerow(cells)
    return file.getvalue()


def table_of(text: str, **form: Any) -> list[list[str]]:
    """Returns the cells of a CSV file, line by line, without empty lines.

    It raises `csv.Error` if a line has more or fewer cells than the first one, or a
    quote is never closed, which must not become one long cell.
    """
    lines = csv.reader(io.StringIO(text, newline=""), strict=True, **form)
    table: list[list[str]] = []
    for cells in filter(None, lines):
        table.append(cells)
        if len(cells) != len(table[0]):
            words = f"{len(cells)} cells in place of {len(table[0])}"
            raise csv.Error(f"{words} in line {lines.line_num}")
    return table
