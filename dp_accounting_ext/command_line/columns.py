"""What the columns of tables mean: coordinates, names and masses of places, and users.

Names decide; or else options name the columns, or an error asks for these. All errors
are ValueErrors, which say what was found and what to write.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import re
from typing import Any
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dp_accounting_ext.command_line import tables
from dp_accounting_ext.common_types import FloatArray

_LATITUDES, _LONGITUDES = {"lat", "latitude"}, {"lon", "lng", "long", "longitude"}
# What a column of counts is named beside a column of names.
_COUNTS = {"0", "count", "counts", "n", "size", "visits", "frequency", "proportion"}
_COUNTS |= {"mass", "masses", "weight", "weights", "share", "shares", "probability"}
_UNNAMED = ("", "Unnamed: 0")
_DEGREES = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
# In well-known text, a point is x before y, so the longitude before the latitude.
_X_AND_Y = re.compile(rf"(?i)^(?:SRID.*;)?\D*point ?\(+ ?{_DEGREES} {_DEGREES} ?\)+$")
_DEGREES_IN_ORDER = re.compile(rf"(?i)^(?:geo:)?{_DEGREES}°?, ?{_DEGREES}°?$")


class Places(NamedTuple):
    """Public places.

    Attributes:
        numbers: (n, dimensions) coordinates; None if there are costs in their place.
        header: The names of the coordinates; empty if they have none.
        names: The names of the places; empty if they have none.
        others: The cells of other columns, by which masses may name the places.
        are_degrees: Whether coordinates are latitude and longitude, in this order.
    """

    numbers: Any
    header: Sequence[str] = ()
    names: Sequence[str] = ()
    others: Mapping[str, Sequence[str]] = {}
    are_degrees: bool = False


# The coordinates of each visit, or masses of the places, of one user or as rows of
# several; and the user of each row, or none if no column has users.
Data = tuple[Any, list[str]]


def points(
    table: tables.Table, typed: str | None = None, is_haversine: bool = False
) -> Places:
    """Returns public points; the names of their columns may be `typed`."""
    table, chosen, are_degrees = _coordinates(table, typed, is_haversine, None)
    rows, numbers = table.rows(chosen)
    left = [at for at in _unindexed(rows) if at not in chosen]
    names = [at for at in left if rows.header[at].casefold() == "name"]
    names += [at for at in left if not rows.has_number(at)]
    others = {rows.header[at]: rows.texts(at) for at in left if rows.header[at]}
    called = rows.texts(names[0]) if names else []
    header = [rows.header[at] for at in chosen]
    return Places(numbers, header, called, others, are_degrees)


def trace(
    table: tables.Table,
    places: Places,
    typed: str | None = None,
    user: str | None = None,
    is_haversine: bool = False,
) -> Data:
    """Returns visits, with the same coordinates as the points, in the same order."""
    users = _users(table, user)
    table, chosen, _ = _coordinates(table, typed, is_haversine, places)
    rows, numbers = table.rows(chosen, users)
    return numbers, _labels(rows, users)


def array(table: tables.Table) -> FloatArray:
    """Returns the (rows, columns) numbers of a table."""
    values = _with_numbers(table)
    if not values:
        raise table.error("no numbers")
    return table.rows(values)[1]


def costs(table: tables.Table) -> tuple[Places, Places, FloatArray]:
    """Returns the places of inputs, those of outputs, and the costs between them."""
    values, header = _with_numbers(table), table.header
    words = [at for at in _unindexed(table) if at not in values]
    if values and table.texts(values[0]) == header[1:]:
        words.append(values.pop(0))
    if len(words) > 1:
        remedy = "write a row for each input, and a column for each output"
        raise table.error("several columns of names", remedy=remedy)
    outputs = [header[at] for at in values]
    outputs = outputs if any(outputs) and not tables.counts(outputs) else []
    inputs = table.texts(words[0]) if words else []
    numbers = array(table)[:, -len(values) :]
    if numbers.shape[0] == numbers.shape[1]:
        inputs, outputs = inputs or outputs, outputs or inputs
    return Places(None, names=inputs), Places(None, names=outputs), numbers


def masses(
    table: tables.Table,
    places: Places,
    typed: str | None = None,
    user: str | None = None,
) -> Data:
    """Returns masses of the places, of one user or of each.

    Names decide which mass is whose: names of columns, each row of which is a user, or
    names in a column, beside a column of counts or alone. Only masses without names are
    in the order of the places.
    """
    users, header = _users(table, user), table.header
    if typed is not None:
        return _by_name(table, _named(table, "data_columns", typed, 2), places, users)
    names, left = set(places.names) - {""}, _unindexed(table)
    if 0 not in left:  # Numbers of rows, unless they are names.
        rows = table.texts(0)
        is_order = tables.counts(rows) or tables.counts(["0", *rows])
        left = [0] * (not is_order or names.issuperset(rows)) + left
    left = [at for at in left if at not in users]
    values = [at for at in left if table.has_number(at)]
    wide = [at for at in left if header[at] in names]
    if wide:
        return _by_column(table, wide, values, places, users)
    chosen = _name_and_count(table, left, values, places)
    if chosen:
        return _by_name(table, chosen, places, users)
    is_array = not any(header) or tables.counts([header[at] for at in values])
    if users or not (is_array or len(left) == 1) or len(left) > len(values) + 1:
        remedy = "name the places as the other file does"
        if table.is_private:
            remedy += ", or the columns, as by --data-columns place,count"
        at = next(iter(values or left), None)
        words = "a column that is named as no place, nor count or mass,"
        raise table.error(words, column=at, remedy=remedy)
    numbers = table.rows(values)[1]
    return (numbers.ravel() if 1 in numbers.shape else numbers), []


def per_user(
    users: Sequence[str], places: Sequence[int], size: int, weights: Any
) -> tuple[Any, list[str]]:
    """Returns sums for each user and place, as a sparse matrix, and the users in order.

    Each visit has a user, one of `size` places, and a weight, or all have one weight.
    """
    labels, who = np.unique(np.asarray(users, dtype=str), return_inverse=True)
    weights = np.broadcast_to(weights, who.shape)
    matrix = sparse.csr_matrix((weights, (who, places)), (len(labels), size))
    return matrix, labels.tolist()


def _unindexed(table: tables.Table) -> list[int]:
    """Returns all columns but one that numbers the rows, as pandas and R write it."""
    width, is_unnamed = table.frame.shape[1], table.header[0] in _UNNAMED
    may_be_index = width > 1 and any(table.header) and is_unnamed
    is_index = may_be_index and all(map(str.isdecimal, table.texts(0)))
    return list(range(int(is_index), width))


def _with_numbers(table: tables.Table) -> list[int]:
    return [at for at in _unindexed(table) if table.has_number(at)]


def _named(table: tables.Table, option: str, typed: str, at_most: int) -> list[int]:
    """Returns at most so many columns, typed as names or as numbers from one."""
    header, width = table.header, table.frame.shape[1]
    index = {str(at + 1): at for at in range(width)}
    index |= {name: at for at, name in enumerate(header)}
    names = [name.strip() for name in typed.split(",")]
    chosen = [index[name] for name in names if name in index and header.count(name) < 2]
    if len(set(chosen)) < len(names) or len(names) > at_most:
        is_shown = any(header) and not table.is_private
        words = ", ".join(header) if is_shown else f"1 to {width}"
        number = "one column" if at_most == 1 else "columns"
        separated = ", each once, separated by commas" * (at_most > 1)
        limit = f", {at_most} at most" * (1 < at_most < width)
        raise ValueError(
            f"{option} must be {number} of {table.path}, by name or number: "
            f"{words}{separated}{limit}. Found {typed!r:.60}."
        )
    return chosen


def _users(table: tables.Table, typed: str | None) -> list[int]:
    """Returns the column of users, if it is typed."""
    return [] if typed is None else _named(table, "user", typed, 1)


def _labels(rows: tables.Table, users: list[int]) -> list[str]:
    """Returns the user of each row; nothing if no column has users."""
    return [label for at in users for label in rows.texts(at)]


def _coordinates(
    table: tables.Table, typed: str | None, is_haversine: bool, like: Places | None
) -> tuple[tables.Table, list[int], bool]:
    """Returns a table, its columns of coordinates, and whether these are degrees.

    If there are points `like` these, coordinates are the same.
    """
    option = "columns" if like is None else "data_columns"
    if typed is not None:
        chosen = _named(table, option, typed, len(table.header))
        are_degrees = is_haversine
    else:
        must_be_degrees = is_haversine or (like is not None and like.are_degrees)
        may_be_degrees = must_be_degrees or like is None
        pair = _pair(table)
        is_clear = len(pair) < 3
        chosen, are_degrees = pair if may_be_degrees and is_clear else [], True
        if is_clear and not chosen and not must_be_degrees:
            chosen, are_degrees = _alike(table, like), False
        if not chosen:
            words = "no columns that are named as those of the points are"
            if not is_clear:
                words = "several columns of latitudes or longitudes"
            elif may_be_degrees:
                words = "no columns that are named latitude and longitude"
            option = f"--{option.replace('_', '-')}"
            remedy = f"name the coordinates, as by {option} lat,lon or {option} 3,4"
            remedy += ", the latitude first" * is_haversine
            raise table.error(words, remedy=remedy)
    if len(chosen) == 1 and _is_shape(table, chosen[0]):
        return *_split(table, chosen[0], is_haversine), are_degrees
    return table, chosen, are_degrees


def _pair(table: tables.Table) -> list[int]:
    """Returns latitude and longitude, or else one column of points that are texts.

    If it is not clear which columns these are, it returns more than two.
    """
    # "pick up lat" of pickUpLat, "latitude" of latitudeE7.
    parts = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name) for name in table.header]
    words = [set(re.findall("[a-z]+", name.casefold())) for name in parts]
    coordinates = []
    for kind, other in ((_LATITUDES, _LONGITUDES), (_LONGITUDES, _LATITUDES)):
        named = [
            at for at, said in enumerate(words) if said & kind and not said & other
        ]
        # Such words are in names of texts, too.
        numbers = [at for at in named if table.has_number(at)]
        coordinates.append(named if len(named) < 2 else numbers)
    if all(coordinates):
        return [*coordinates[0], *coordinates[1]]
    shapes = [at for at in range(len(words)) if _is_shape(table, at)]
    return shapes * 3 if len(shapes) > 1 else shapes


def _is_shape(table: tables.Table, column: int) -> bool:
    return bool(tables.SHAPE.match(next(filter(None, table.texts(column)), "")))


def _split(
    table: tables.Table, column: int, is_haversine: bool
) -> tuple[tables.Table, list[int]]:
    """Returns a table in which a column of points is one of latitudes, and one more."""
    pairs = []
    for row, cell in enumerate(table.texts(column)):
        match = _DEGREES_IN_ORDER.match(_X_AND_Y.sub(r"\2,\1", cell))
        if cell and not match:
            shape = cell.partition("(")[0].strip()[:40]
            shown = f"{shape}, and no POINT of two numbers,"
            raise table.error("something else" if table.is_private else shown, row)
        pairs.append(match.groups() if match else ("", ""))
    latitudes, longitudes = map(list, zip(*pairs, strict=True))
    frame, width = table.frame.copy(), table.frame.shape[1]
    names = ("latitude", "longitude") if is_haversine else ("y", "x")
    frame.columns = [
        names[0] if at == column else name for at, name in enumerate(table.header)
    ]
    frame.isetitem(column, latitudes)
    frame.insert(width, names[1], longitudes, allow_duplicates=True)
    return table._replace(frame=frame), [column, width]


def _alike(table: tables.Table, like: Places | None) -> list[int]:
    """Returns coordinates that are no degrees, as those of points are; none if unclear.

    Without points to follow, these are all numbers, if their names are x and y, differ
    in a number alone, or are missing.
    """
    header, values = table.header, _with_numbers(table)
    if like is not None and any(like.header):
        is_there = all(header.count(name) == 1 for name in like.header)
        return [header.index(name) for name in like.header] if is_there else []
    if not any(header):
        return values
    stems = {header[at].rstrip("0123456789").casefold() for at in values}
    is_clear = len(stems) == 1 or stems in ({"x", "y"}, {"x", "y", "z"})
    return values if is_clear and like is None else []


def _name_and_count(
    table: tables.Table, left: list[int], values: list[int], places: Places
) -> list[int]:
    """Returns the columns of names and, if there is one, of counts; none if unclear."""
    header, names = table.header, set(places.names)
    chosen = [
        at
        for at in left
        if (header[at] in places.others and header[at] not in _COUNTS)
        or (any(header) and at in values and names.issuperset(table.texts(at)))
    ]
    if len(chosen) != 1:
        chosen = [at for at in left if at not in values]
    counts = [at for at in left if at not in chosen]
    if len(chosen) != 1 or len(counts) > 1 or not set(counts) <= set(values):
        return []
    is_named = all(header[at].casefold() in _COUNTS for at in counts)
    return [*chosen, *counts] if is_named or not header[chosen[0]] else []


def _by_name(
    table: tables.Table, chosen: list[int], places: Places, users: list[int]
) -> Data:
    """Returns masses by a column of names and, if there is one, of counts."""
    name, *counts = chosen
    index = _index(table, places.others.get(table.header[name], places.names))
    rows, weights = table.rows(counts, [name, *users])
    where = [index.get(word, -1) for word in rows.texts(name)]
    if -1 in where:
        raise rows.error("a name that no place has", where.index(-1), name)
    who = _labels(rows, users) or [""] * len(where)
    if counts and len(set(zip(who, where, strict=True))) < len(where):
        remedy = "add its counts up, or name the column of users by --user"
        raise rows.error("a name twice", remedy=remedy)
    all_weights = weights[:, 0] if counts else 1.0
    matrix, labels = per_user(who, where, len(index), all_weights)
    return (matrix if users else matrix.toarray()[0]), labels * len(users)


def _by_column(
    table: tables.Table,
    wide: list[int],
    values: list[int],
    places: Places,
    users: list[int],
) -> Data:
    """Returns masses by the names of columns, each row of which is a user."""
    index = _index(table, places.names)
    for at in values:
        if at not in wide and table.header[at] not in _UNNAMED:
            remedy = f"if it has users, write --user {at + 1}"
            raise table.error("a name that no place has", column=at, remedy=remedy)
    where = [index[table.header[at]] for at in wide]
    rows, numbers = table.rows(wide, users)
    labels = _labels(rows, users)
    if len(set(where)) < len(where) or len(set(labels)) < len(labels):
        words = "two rows of one user" if labels else "two columns of one name"
        raise rows.error(words, remedy="add them up")
    matrix = np.zeros((len(numbers), len(index)))
    matrix[:, where] = numbers
    return (matrix if users or len(matrix) > 1 else matrix[0]), labels


def _index(table: tables.Table, names: Sequence[str]) -> dict[str, int]:
    """Returns the place of each name, if each place has a name of its own."""
    index = {name: at for at, name in enumerate(names)}
    if not names or len(index) < len(names):
        remedy = "name the columns of costs, or the lines of points; or write a mass "
        remedy += "for each place, in their order, without names"
        kind = "share some" if names else "have none"
        raise table.error(f"names, but places {kind}", remedy=remedy)
    return index
