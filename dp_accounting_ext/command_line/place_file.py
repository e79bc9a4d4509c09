"""Files of places, and which of their columns are coordinates, in which order."""

from collections.abc import Sequence
import pathlib
import re
from typing import NamedTuple

from dp_accounting_ext.command_line import number_file
from dp_accounting_ext.common_types import FloatArray

# Names in lower case of columns of latitudes and longitudes, or of y and x.
_PAIRS = (
    (("lat", "latitude"), ("lon", "long", "lng", "longitude")),
    (("y",), ("x",)),
)
# In well-known text, a point is x before y, so the longitude before the latitude.
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
_POINT = re.compile(
    rf"(?:srid=\d+;)?\s*(?:multi)?point\s*\(+\s*{_NUMBER}\s+{_NUMBER}\s*\)+",
    re.IGNORECASE,
)

Columns = Sequence[number_file.Column]


class Places(NamedTuple):
    """The content of a file of places.

    Attributes:
        numbers: (n, dimensions) coordinates.
        header: The names of their columns; empty if the file has no names.
        names: The names of the places; empty if the file has no names.
        is_reordered: Whether these columns are in another order than in the file.
    """

    numbers: FloatArray
    header: list[str]
    names: list[str]
    is_reordered: bool


def read_points(
    path: str | pathlib.Path,
    *,
    is_haversine: bool,
    columns: str | None = None,
    encoding: str | None = None,
) -> Places:
    """Returns public points.

    Coordinates are the columns that the argument names. By default they are read from
    well-known text; else from columns named latitude and longitude, or y and x; else
    from all columns of numbers.

    Args:
        path: The path of the file.
        is_haversine: Whether coordinates are latitudes and longitudes, in this order.
        columns: Names of columns, or their numbers from one, separated by commas.
        encoding: As for `csv_file.read`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not clear which columns are coordinates, or if one of them
            has a cell that is not a number.
    """
    sheet = number_file.sheet("points", path, encoding=encoding)
    if columns is not None:
        return _places(sheet, _named(sheet, columns))
    sheet = _without_text(sheet)
    pair, found = _pair(sheet), number_file.numeric(sheet)
    if is_haversine:
        return _places(sheet, pair or found)
    names = [column.header for column in found]
    if pair and len(found) > 2 and {each.casefold() for each in names} != {*"xyz"}:
        raise sheet.error(
            f"numbers in the columns {', '.join(names)} of {path}; say which are "
            f"coordinates, as by --columns {','.join(each.header for each in pair)}"
        )
    return _places(sheet, found)


def read_trace(
    option: str,
    path: str | pathlib.Path,
    points: Places,
    *,
    is_haversine: bool,
    is_private: bool,
    columns: str | None = None,
    encoding: str | None = None,
) -> FloatArray:
    """Returns places with the same coordinates as the points, in the same order.

    Args:
        option: The option that named the file, as it is typed, without hyphens.
        path: The path of the file.
        points: The public points.
        is_haversine: As for `read_points`.
        is_private: Whether errors must not show the content of the file.
        columns: As for `read_points`.
        encoding: As for `csv_file.read`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: As for `read_points`. It is also raised if the points have their
            columns in another order than their file, and no names match.
    """
    sheet = number_file.sheet(option, path, is_private=is_private, encoding=encoding)
    if columns is not None and (sheet.has_header or _are_numbers(columns)):
        return sheet.numbers_of(_named(sheet, columns))
    sheet = _without_text(sheet)
    header = [name.casefold() for name in points.header]
    there = [column.header.casefold() for column in sheet.columns]
    if all(header) and header and all(there.count(name) == 1 for name in header):
        return sheet.numbers_of([sheet.columns[there.index(each)] for each in header])
    pair = _pair(sheet)
    if pair and _is_pair(header):
        return sheet.numbers_of(pair)
    if pair and _is_pair(header[::-1]):
        return sheet.numbers_of(pair[::-1])
    if points.is_reordered:
        names = ", ".join(points.header)
        raise sheet.error(
            f"no columns named {names} in {path}, as those of the points are, which "
            "stand in another order in their file; name them"
        )
    return sheet.numbers_of(
        pair if pair and is_haversine else number_file.numeric(sheet)
    )


def _places(sheet: number_file.Sheet, columns: Columns) -> Places:
    numbers = [list(map(id, sheet.columns)).index(id(column)) for column in columns]
    return Places(
        sheet.numbers_of(columns),
        [column.header for column in columns] if sheet.has_header else [],
        sheet.names_beside(columns),
        numbers != sorted(numbers),
    )


def _are_numbers(columns: str) -> bool:
    return all(part.strip().isdecimal() for part in columns.split(","))


def _named(sheet: number_file.Sheet, columns: str) -> Columns:
    """Returns columns by names, or by numbers from one.

    Raises:
        ValueError: If there is no such column, or more than one.
    """
    there = [column.header.casefold() for column in sheet.columns]
    chosen = []
    for name in map(str.strip, columns.split(",")):
        places = [at for at, each in enumerate(there) if each == name.casefold()]
        if not places and name.isdecimal() and 0 < int(name) <= len(there):
            places = [int(name) - 1]
        if len(places) != 1 or not name:
            known = f"1 to {len(there)}"
            if sheet.has_header and not sheet.is_private:
                known = ", ".join(column.header for column in sheet.columns)
            raise ValueError(
                f"columns must be of {known} in {sheet.path}, each once, separated by "
                f"commas. Found {name!r:.60}."
            )
        chosen.append(sheet.columns[places[0]])
    return chosen


def _pair(sheet: number_file.Sheet) -> Columns:
    """Returns latitude and longitude, or y and x, if each is in the sheet once."""
    for names in _PAIRS:
        found = [
            [column for column in sheet.columns if column.header.casefold() in each]
            for each in names
        ]
        if all(len(columns) == 1 for columns in found):
            return [columns[0] for columns in found]
    return []


def _is_pair(header: Sequence[str]) -> bool:
    """Returns whether two names are of a latitude and a longitude, or of y and x."""
    return len(header) == 2 and any(
        header[0] in first and header[1] in second for first, second in _PAIRS
    )


def _without_text(sheet: number_file.Sheet) -> number_file.Sheet:
    """Returns a sheet with columns x and y in place of well-known text, if any.

    All other columns of numbers, such as identifiers, are then left out.

    Raises:
        ValueError: If the text has shapes other than points of two coordinates.
    """
    for column in sheet.columns:
        if not all(map(number_file.SHAPE.match, column.cells)):
            continue
        numbers = []
        for line, cell in zip(sheet.lines, column.cells, strict=True):
            point = _POINT.fullmatch(cell)
            if point is None:
                kind = cell.partition("(")[0].strip()[:40]
                raise sheet.error(f"{kind}, and no POINT of two coordinates,", line)
            numbers.append((float(point[1]), float(point[2])))
        made = [
            number_file.Column(name, column.cells, list(found))
            for name, found in zip("xy", zip(*numbers, strict=True), strict=True)
        ]
        names = [each for each in sheet.columns if not each.has_number]
        names = [each for each in names if each is not column]
        return sheet._replace(has_header=True, columns=[*made, *names])
    return sheet
