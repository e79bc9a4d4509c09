"""CSV files as spreadsheets, pandas and programs for maps write them."""

import codecs
import csv
import io
import itertools
from typing import Any
from typing import NamedTuple

# The first bytes of other types of files, their names, and what to do with them.
_OTHERS = {
    b"PK\x03\x04": "a ZIP archive, as .xlsx and .ods are; save it as CSV",
    b"\xd0\xcf\x11\xe0": "a workbook; save it as CSV",
    b"PAR1": "a Parquet file; write it with to_csv",
    b"SQLite format 3": "a GeoPackage; export it as CSV, with GEOMETRY=AS_XY",
    b"{": "JSON; write it as CSV, of GeoJSON with GEOMETRY=AS_XY",
    b"[": "JSON; write it as CSV",
}
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    # These come before UTF-16, whose mark is the first half of theirs.
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_DELIMITERS = {"\t": "a tab", ";": "a semicolon", ",": "a comma"}
# Tuning: the number of lines from which the separator of cells is found.
_FIRST_LINES = 100


class Row(NamedTuple):
    """Represents a row.

    Attributes:
        line: The number of its last line, counted from one.
        cells: The texts between the delimiters, without surrounding spaces.
    """

    line: int
    cells: list[str]


class File(NamedTuple):
    """Represents a file.

    Attributes:
        delimiter: The delimiter between cells.
        rows: The rows that are not empty. All have the same number of cells, at least
            one.
    """

    delimiter: str
    rows: list[Row]


def read(
    form: str,
    content: bytes,
    path: object,
    encoding: str | None = None,
    *,
    is_private: bool = False,
) -> File:
    """Returns the rows of a file.

    Cells are separated by commas, by semicolons or by tabs: by the delimiter that gives
    all rows the same number of cells. Columns that are empty in every row are left out.

    Args:
        form: What the file must be, for errors: "points must be a file of numbers".
        content: The bytes of the file.
        path: The path of the file, for errors.
        encoding: The encoding of a file without a byte order mark; None for UTF-8, in
            a command that has no option for another.
        is_private: Whether errors must not show how many cells a row has.

    Raises:
        ValueError: If it is not such a file. The message shows no cell of it.
    """
    text = _decoded(form, content, path, encoding)
    delimiter = _delimiter(text)
    reader = _reader(text, delimiter)
    found = []
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped):
                found.append(Row(reader.line_num, stripped))
    except csv.Error as error:
        raise ValueError(
            f"{form}. Found {error} in line {reader.line_num} of {path}."
        ) from None
    if not found:
        raise ValueError(f"{form}. Found an empty file, {path}.")
    length = len(found[0].cells)
    used = _used(found[0].cells)
    for row in found:
        if _used(row.cells) > length or len(row.cells) < used:
            counted = f"{len(row.cells)} cells in place of {length}"
            raise ValueError(
                f"{form}, all of one length. Found "
                f"{'something else' if is_private else counted} in line {row.line} of "
                f"{path}; a cell with {_DELIMITERS[delimiter]} in it must be in quotes."
            )
    width = max(_used(row.cells) for row in found)
    for row in found:
        row.cells[width:] = []
        row.cells.extend([""] * (width - len(row.cells)))
    kept = [any(column) for column in zip(*(row.cells for row in found), strict=True)]
    if not all(kept):
        found = [Row(n, list(itertools.compress(cells, kept))) for n, cells in found]
    return File(delimiter, found)


def _decoded(form: str, content: bytes, path: object, encoding: str | None) -> str:
    for beginning, what in _OTHERS.items():
        if content.startswith(beginning):
            raise ValueError(f"{form}. Found in {path} {what}.")
    marks = (name for mark, name in _MARKS.items() if content.startswith(mark))
    name = next(marks, encoding or "utf-8")
    remedy = "; save it as CSV in UTF-8" + ", or name its encoding, as by " * bool(
        encoding
    )
    try:
        text = content.decode(name)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        remedy += "--encoding cp1252" * bool(encoding)
        raise ValueError(
            f"{form}. Found a letter that is not {name} in line {line} of {path}"
            f"{remedy}."
        ) from None
    except (LookupError, ValueError):
        raise ValueError(
            "encoding must be one that Python knows, such as utf-8, cp1252, mac-roman "
            f"or utf-16-le. Found {name!r:.60}."
        ) from None
    if "\0" in text:
        remedy += "--encoding utf-16-le" * bool(encoding)
        raise ValueError(f"{form}. Found zero bytes in {path}{remedy}.")
    return text


def _reader(text: str, delimiter: str) -> Any:
    # A quote that is never closed is an error. It must not become one long cell.
    lines = io.StringIO(text, newline="")
    return csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)


def _delimiter(text: str) -> str:
    """Returns the delimiter that gives all rows as many cells, or the most cells."""
    most: tuple[int, str] = (0, ",")
    for delimiter in _DELIMITERS:
        try:
            first = itertools.islice(_reader(text, delimiter), _FIRST_LINES)
            lengths = [len(cells) for cells in first if any(map(str.strip, cells))]
        except csv.Error:
            continue
        if len(set(lengths)) == 1 and lengths[0] > 1:
            return delimiter
        most = max(most, (sum(lengths) - len(lengths), delimiter))
    return most[1] if most[0] else ","


def _used(cells: list[str]) -> int:
    """Returns the number of cells, without empty cells at the end."""
    return max((place for place, cell in enumerate(cells, 1) if cell), default=0)
