"""What the columns of tables mean: coordinates, names and masses of places, and users.

Names decide; or else options name the columns, or an error asks for these.
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

_MISSING = {"", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "NULL", "null"}
_MISSING |= {"None", r"\N"}
_LATITUDES, _LONGITUDES = {"lat", "latitude"}, {"lon", "lng", "long", "longitude"}
# What a column of counts is named beside a column of names.
_COUNTS = {"0", "count", "counts", "n", "size", "visits", "frequency", "proportion"}
_COUNTS |= {"mass", "masses", "weight", "weights", "share", "shares", "probability"}
_UNNAMED = ("", "Unnamed: 0")
# In such a cell the comma may be a decimal point, or it may separate thousands.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_DEGREES = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
# In well-known text, a point is x before y, so the longitude before the latitude.
_X_AND_Y = re.compile(rf"(?:SRID.*;)?\D*point ?\(+ ?{_DEGREES} {_DEGREES} ?\)+", re.I)
_LATITUDE_AND_LONGITUDE = re.compile(rf"(?:geo:)?{_DEGREES}°?, ?{_DEGREES}°?", re.I)


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


class Data(NamedTuple):
    """What users hold.

    Attributes:
        numbers: The coordinates of each visit, or masses of the places: of one user, or
            as rows, also of a sparse matrix, of several.
        users: The user of each row; empty if no column has users.
        dropped: The number of rows that were left out, for want of a cell.
    """

    numbers: Any
    users: Sequence[str]
    dropped: int


class Options(NamedTuple):
    """What options say of a table.

    Attributes:
        columns: The columns of coordinates, or of names and counts, by their names or
            their numbers from one; None if their names decide.
        user: The column of users; None if there is none.
        is_haversine: Whether coordinates are latitude and longitude.
        drop_missing: Whether rows that lack a cell are left out, and are no error.
    """

    columns: str | None = None
    user: str | None = None
    is_haversine: bool = False
    drop_missing: bool = False


def points(table: tables.Table, options: Options) -> tuple[Places, int]:
    """Returns public points, and the number of rows that were left out.

    Raises:
        ValueError: If it is not clear which columns are coordinates, or if one of them
            has a cell that is not a number.
    """
    chosen, are_degrees = _coordinates(table, "columns", options, None)
    rows, numbers, header, dropped = _placed(table, chosen, options)
    left = [at for at in _unindexed(rows) if at not in chosen]
    names = [at for at in left if rows.header[at].casefold() == "name"]
    names += [at for at in left if not rows.has_number(at)]
    others = {rows.header[at]: rows.texts(at) for at in left if rows.header[at]}
    called = rows.texts(names[0]) if names else []
    return Places(numbers, header, called, others, are_degrees), dropped


def trace(table: tables.Table, places: Places, options: Options) -> Data:
    """Returns visits, with the same coordinates as the points, in the same order.

    Raises:
        ValueError: As for `points`.
    """
    chosen, _ = _coordinates(table, "data_columns", options, places)
    rows, numbers, _, dropped = _placed(table, chosen, options)
    return Data(numbers, _labels(rows, options), dropped)


def array(table: tables.Table) -> FloatArray:
    """Returns the (rows, columns) numbers of a table.

    Raises:
        ValueError: If it has none, or a cell among them is not a number.
    """
    values = _with_numbers(table)
    if not values:
        raise table.error("no numbers")
    return numbers(_complete(table, values, [], False)[0], values)


def costs(table: tables.Table) -> tuple[Places, Places, FloatArray]:
    """Returns the places of inputs, those of outputs, and the costs between them.

    Raises:
        ValueError: As for `array`; or if several columns are of names.
    """
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


def masses(table: tables.Table, places: Places, options: Options) -> Data:
    """Returns masses of the places, of one user or of each.

    Names decide which mass is whose: names of columns, each row of which is a user, or
    names in a column, beside a column of counts or alone. Only masses without names are
    in the order of the places.

    Raises:
        ValueError: If a name is of no place, or it is not clear what is a mass.
    """
    users, header = _users(table, options), table.header
    if options.columns is not None:
        chosen = _named(table, "data_columns", options.columns, 2)
        return _by_name(table, chosen, places, options)
    names, left = set(places.names) - {""}, _unindexed(table)
    if 0 not in left:  # Numbers of rows, unless they are names.
        rows = table.texts(0)
        is_order = tables.counts(rows) or tables.counts(["0", *rows])
        left = [0] * (not is_order or names.issuperset(rows)) + left
    left = [at for at in left if at not in users]
    values = [at for at in left if table.has_number(at)]
    wide = [at for at in left if header[at] in names]
    if wide:
        return _by_column(table, wide, values, places, options)
    chosen = _name_and_count(table, left, values, places)
    if chosen:
        return _by_name(table, chosen, places, options)
    is_array = not any(header) or tables.counts([header[at] for at in values])
    if users or not (is_array or len(left) == 1) or len(left) > len(values) + 1:
        remedy = "name the places as the other file does"
        if table.option == "distribution":
            remedy += ", or the columns, as by --data-columns place,count"
        at = next(iter(values or left), None)
        words = "a column that is named as no place, nor count or mass,"
        raise table.error(words, column=at, remedy=remedy)
    found, dropped = _complete(table, values, [], options.drop_missing)
    values_of = numbers(found, values)
    return Data(values_of.ravel() if 1 in values_of.shape else values_of, [], dropped)


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


def _complete(
    table: tables.Table, numbers: Sequence[int], names: Sequence[int], drop: bool
) -> tuple[tables.Table, int]:
    """Returns the rows that have these numbers and names, and the number of others."""
    lost = np.zeros(len(table.frame), dtype=bool)
    for column in [*numbers, *names]:
        cells = table.frame.iloc[:, column]
        absent = _MISSING if column in numbers else {""}
        missing = (cells.isna() | cells.astype(str).isin(absent)).to_numpy()
        if missing.any() and not drop:
            row, remedy = int(missing.argmax()), "--drop-missing leaves out its row"
            raise table.error("an empty cell", row, column, remedy)
        lost |= missing
    if lost.all():
        raise table.error("no row without empty cells")
    return table._replace(frame=table.frame[~lost]), int(lost.sum())


def numbers(table: tables.Table, columns: Sequence[int]) -> FloatArray:
    """Returns the (rows, columns) numbers of some columns.

    Raises:
        ValueError: If a cell among them is not a number.
    """
    return np.column_stack([_column(table, at) for at in columns])


def _column(table: tables.Table, column: int) -> FloatArray:
    cells = table.frame.iloc[:, column]
    # Takeout has degrees times 10^7.
    unit = 1e7 if table.header[column].endswith("E7") else 1.0
    if cells.dtype.kind in "iuf":
        return np.asarray(cells.to_numpy(np.float64) / unit)
    texts = list(map(str.strip, cells)) if table.separator else table.texts(column)
    for row, text in enumerate(texts):
        if not tables.NUMBER.fullmatch(text):
            shown = "something else" if table.is_private else repr(text)[:60]
            raise table.error(shown, row, column)
    commas = [text for text in texts if "," in text]
    # If semicolons separate cells, commas are decimal points.
    if commas and table.separator != ";" and all(map(_THOUSANDS.fullmatch, commas)):
        words = "numbers such as 1,234, of 1.234 or of a thousand,"
        remedy = "write points for decimals, and nothing between thousands"
        raise table.error(words, column=column, remedy=remedy)
    return np.array([float(text.replace(",", ".")) for text in texts]) / unit


def _named(
    table: tables.Table, option: str, typed: str, most: int | None = None
) -> list[int]:
    """Returns columns by names, or by numbers from one; `option` is for errors."""
    header, width = table.header, table.frame.shape[1]
    known = {str(at + 1): at for at in range(width)}
    known |= {name: at for at, name in enumerate(header)}
    names = [name.strip() for name in typed.split(",")]
    chosen = [known[name] for name in names if name in known and header.count(name) < 2]
    if len(set(chosen)) < len(names) or len(names) > (most or width):
        limit = f", {most} at most" if most else ""
        is_shown = any(header) and not table.is_private
        words = ", ".join(header) if is_shown else f"1 to {width}"
        raise ValueError(
            f"{option} must be of {words} in "
            f"{table.path}, each once{limit}, separated by commas. Found {typed!r:.60}."
        )
    return chosen


def _users(table: tables.Table, options: Options) -> list[int]:
    return [] if options.user is None else _named(table, "user", options.user, 1)


def _labels(table: tables.Table, options: Options) -> list[str]:
    """Returns the user of each row; nothing if no column has users."""
    return [user for at in _users(table, options) for user in table.texts(at)]


def _coordinates(
    table: tables.Table, option: str, options: Options, like: Places | None
) -> tuple[list[int], bool]:
    """Returns columns of coordinates, and whether they are latitude and longitude.

    `option` is for errors. If there are points `like` these, coordinates are the same.
    """
    if options.columns is not None:
        return _named(table, option, options.columns), options.is_haversine
    pair, several = _pair(table)
    need_degrees = options.is_haversine or (like is not None and like.are_degrees)
    if pair and (need_degrees or like is None):
        return pair, True
    values = _with_numbers(table)
    if not need_degrees and not several:
        alike = _alike(table, values, like)
        if alike:
            return alike, False
    words = "no columns that are named as those of the points are"
    if need_degrees or like is None:
        words = "no columns that are named latitude and longitude"
    if several:
        words = "several columns of latitudes or longitudes"
    decimals = [at for at in values if any("." in cell for cell in table.texts(at))]
    some = (decimals if len(decimals) > 1 else values)[:2]
    example = ",".join(str(at + 1) for at in some) if len(some) > 1 else "lat,lon"
    remedy = f"name the coordinates, as by --{option.replace('_', '-')} {example}"
    remedy += ", the latitude first" * options.is_haversine
    raise table.error(words, remedy=remedy)


def _pair(table: tables.Table) -> tuple[list[int], bool]:
    """Returns latitude and longitude, or points as text; and if there are several."""
    # "pick up lat" of pickUpLat, "latitude" of latitudeE7.
    parts = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name) for name in table.header]
    words = [set(re.findall("[a-z]+", part.casefold())) for part in parts]
    holds = [(bool(each & _LATITUDES), bool(each & _LONGITUDES)) for each in words]
    latitudes = [at for at, kind in enumerate(holds) if kind == (True, False)]
    longitudes = [at for at, kind in enumerate(holds) if kind == (False, True)]
    pair = [*latitudes, *longitudes]
    if len(pair) > 2:  # Such words are in names of texts, too.
        pair = [at for at in pair if table.has_number(at)]
    if not (latitudes and longitudes):
        pair = [at for at in range(table.frame.shape[1]) if _is_shape(table, at)]
        return (pair if len(pair) == 1 else []), len(pair) > 1
    return (pair if len(pair) == 2 else []), len(pair) > 2


def _is_shape(table: tables.Table, column: int) -> bool:
    cells = table.frame.iloc[:, column]
    first = next((cell for cell in cells if isinstance(cell, str) and cell), "")
    return bool(tables.SHAPE.match(first))


def _alike(table: tables.Table, values: list[int], like: Places | None) -> list[int]:
    """Returns coordinates that are no degrees, as those of points are; none if unclear.

    Without points to follow, these are all numbers, if their names are x and y, differ
    in a number alone, or are missing.
    """
    header = table.header
    if like is not None and any(like.header):
        is_there = all(header.count(name) == 1 for name in like.header)
        return [header.index(name) for name in like.header] if is_there else []
    if not any(header):
        return values
    stems = {header[at].rstrip("0123456789").casefold() for at in values}
    is_clear = len(stems) == 1 or stems in ({"x", "y"}, {"x", "y", "z"})
    return values if is_clear and like is None else []


def _placed(
    table: tables.Table, chosen: list[int], options: Options
) -> tuple[tables.Table, FloatArray, list[str], int]:
    """Returns rows with coordinates, these, their names, and how many have none."""
    users, drop = _users(table, options), options.drop_missing
    if len(chosen) > 1 or not _is_shape(table, chosen[0]):
        rows, dropped = _complete(table, chosen, users, drop)
        return rows, numbers(rows, chosen), [rows.header[at] for at in chosen], dropped
    rows, dropped = _complete(table, [], [*chosen, *users], drop)
    places = []
    for row, text in enumerate(rows.texts(chosen[0])):
        x_and_y = _X_AND_Y.fullmatch(text)
        found = x_and_y or _LATITUDE_AND_LONGITUDE.fullmatch(text)
        if found is None:
            shape = text.partition("(")[0].strip()[:40]
            shown = f"{shape}, and no POINT of two numbers,"
            raise rows.error("something else" if rows.is_private else shown, row)
        places.append(list(map(float, found.groups()[:: -1 if x_and_y else 1])))
    header = ["latitude", "longitude"] if options.is_haversine else ["y", "x"]
    return rows, np.array(places), header, dropped


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
    table: tables.Table, chosen: list[int], places: Places, options: Options
) -> Data:
    """Returns masses by a column of names and, if there is one, of counts."""
    (name, *counts), users = chosen, _users(table, options)
    index = _index(table, places.others.get(table.header[name], places.names))
    rows, dropped = _complete(table, counts, [name, *users], options.drop_missing)
    where = [index.get(word, -1) for word in rows.texts(name)]
    if -1 in where:
        raise rows.error("a name that no place has", where.index(-1), name)
    who = _labels(rows, options) or [""] * len(where)
    if counts and len(set(zip(who, where, strict=True))) < len(where):
        remedy = "add its counts up, or name the column of users by --user"
        raise rows.error("a name twice", remedy=remedy)
    weights = _column(rows, counts[0]) if counts else 1.0
    matrix, labels = per_user(who, where, len(index), weights)
    return Data(matrix if users else matrix.toarray()[0], labels * len(users), dropped)


def _by_column(
    table: tables.Table,
    wide: list[int],
    values: list[int],
    places: Places,
    options: Options,
) -> Data:
    """Returns masses by the names of columns, each row of which is a user."""
    index = _index(table, places.names)
    for at in values:
        if at not in wide and table.header[at] not in _UNNAMED:
            remedy = f"if it has users, write --user {at + 1}"
            raise table.error("a name that no place has", column=at, remedy=remedy)
    where = [index[table.header[at]] for at in wide]
    users = _users(table, options)
    rows, dropped = _complete(table, wide, users, options.drop_missing)
    labels = _labels(rows, options)
    if len(set(where)) < len(where) or len(set(labels)) < len(labels):
        what = "two rows of one user" if labels else "two columns of one name"
        raise rows.error(what, remedy="add them up")
    matrix = np.zeros((len(rows.frame), len(index)))
    matrix[:, where] = numbers(rows, wide)
    return Data(matrix if users or len(matrix) > 1 else matrix[0], labels, dropped)


def _index(table: tables.Table, names: Sequence[str]) -> dict[str, int]:
    """Returns the place of each name, if each place has a name of its own."""
    index = {name: at for at, name in enumerate(names)}
    if not names or len(index) < len(names):
        remedy = "name the columns of costs, or the lines of points; or write a mass "
        remedy += "for each place, in their order, without names"
        kind = "share some" if names else "have none"
        raise table.error(f"names, but places {kind}", remedy=remedy)
    return index
