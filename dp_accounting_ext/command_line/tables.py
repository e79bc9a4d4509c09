"""Tables in the files that people have, which pandas and NumPy read.

Only this is by hand: what kind of file it is, how a text is encoded and separated, and
whether its first line has names. The module `columns` says what the columns mean.
"""

from collections.abc import Collection
from collections.abc import Sequence
import csv
import gzip
import io
import json
import pathlib
import re
from typing import Any
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.validation import extras

NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)
# The beginning of a point, or another shape, in a text; as Takeout writes points, too.
SHAPE = re.compile(
    r"(SRID=\d+;)? ?\w*(POINT|LINE|POLYGON|GEOM)\w*.*\(|geo:|\S+°,", re.I
)
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_OTHERS = {
    b"PK\x03\x04": "a ZIP archive, as .xlsx and .ods are; save it as CSV",
    b"\xd0\xcf\x11\xe0": "a workbook; save it as CSV",
    b"SQLite format 3": "a database, as a GeoPackage is; save it as CSV",
    b"<": "XML, as KML and GPX are; save it as GeoJSON or CSV",
}
# The keys of records in JSON: in GeoJSON, in Takeout, and as pandas writes it.
_RECORDS = ("features", "locations", "timelineObjects", "semanticSegments", "data")
# Tuning: the number of lines from which the separator of cells is found.
_FIRST_LINES = 100


class Table(NamedTuple):
    """The cells of a file.

    Attributes:
        option, path, is_private: As for `read`.
        header: The name of each column, which is empty if it has none.
        frame: A pandas.DataFrame, whose index has the number of each line, or of each
            row of a file without lines, from one.
        separator: The separator of cells; "" in a file without lines.
    """

    option: str
    path: object
    is_private: bool
    header: list[str]
    frame: Any
    separator: str

    def texts(self, column: int) -> list[str]:
        """Returns the cells of a column as texts; of whole floats, without ".0"."""
        cells = self.frame.iloc[:, column].astype(object)
        return [
            word[:-2] if word.endswith(".0") and word[:-2].isdecimal() else word
            for word in _words(cells.where(cells.notna(), ""))
        ]

    def has_number(self, column: int) -> bool:
        """Returns whether any cell is a number: others may be misspelt numbers."""
        is_typed = self.frame.iloc[:, column].dtype.kind in "iuf"
        return is_typed or any(map(NUMBER.fullmatch, set(self.texts(column))))

    def error(
        self,
        words: str,
        row: int | None = None,
        column: int | None = None,
        remedy: str = "",
    ) -> ValueError:
        """Returns the error for other content, at the indices of a row and a column."""
        where = []
        if row is not None:
            where.append(
                f"{'line' if self.separator else 'row'} {self.frame.index[row]}"
            )
        if column is not None:
            shown = "" if self.is_private else self.header[column]
            where.append(f"column {shown or column + 1}")
        at = f"{', '.join(where)} of {self.path}" if where else str(self.path)
        return error(self.option, f"{words} in {at}{'; ' * bool(remedy)}{remedy}")


def read(
    option: str,
    path: str | pathlib.Path,
    *,
    encoding: str = "utf-8",
    is_private: bool = False,
    names: Collection[str] = (),
) -> Table:
    """Returns the table of a file: a text, JSON, Parquet or NumPy's, maybe gzipped.

    Args:
        option: The field of the option that named the file, for errors.
        path: The path of the file.
        is_private: Whether errors must not show its content.
        encoding: The encoding of a text without a byte order mark.
        names: The names of places; some may be numbers.

    Raises:
        ModuleNotFoundError: If pandas, or what it needs for a file, is not installed.
        OSError: If the file cannot be opened.
        ValueError: If it is not such a file, or has no rows.
    """
    content, separator = pathlib.Path(path).read_bytes(), ""
    try:
        import pandas as pd

        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        frame = _data_frame(content, pd)
    except ImportError as failure:
        # Parquet needs pyarrow, whose absence pandas reports without a name.
        name = failure.name or "pyarrow"
        raise ModuleNotFoundError(extras.missing(failure), name=name) from failure
    except Exception as failure:  # Libraries raise errors of any kind at broken files.
        why = "" if is_private else f" ({failure})"
        raise error(option, f"one that cannot be read{why}, {path}") from None
    if frame is None:
        text = text_of(option, content, path, encoding)
        separator, frame = _cells(option, text, path, pd)
        header = [""] * frame.shape[1]
        if len(frame) and _has_header(option, frame, path, names):
            header, frame = _words(frame.iloc[0]), frame.iloc[1:]
    else:
        if not isinstance(frame.index, pd.RangeIndex):
            frame = frame.rename_axis(frame.index.name or "").reset_index()
        has_names = not isinstance(frame.columns, pd.RangeIndex)
        header = _words(frame.columns) if has_names else [""] * frame.shape[1]
        frame.index = range(1, len(frame) + 1)
    if not frame.size:
        raise error(option, f"no row of cells in {path}")
    return Table(option, path, is_private, header, frame, separator)


def error(option: str, words: str) -> ValueError:
    """Returns the error of a file that is no table, or of a table of other content."""
    return ValueError(
        f"{option} must be a table, as CSV, JSON, Parquet or .npy. Found {words}."
    )


def counts(cells: Sequence[str]) -> bool:
    """Returns whether cells are the numbers 0, 1, 2, … in this order."""
    return list(cells) == [str(place) for place in range(len(cells))]


def _data_frame(content: bytes, pd: Any) -> Any:
    """Returns the data frame of a file that is not a text of lines, or else None."""
    if content.startswith(b"PAR1"):
        return pd.read_parquet(io.BytesIO(content))
    is_archive = content.startswith(b"PK") and b".npy" in content[:100]
    if content.startswith(b"\x93NUMPY") or is_archive:
        array = np.load(io.BytesIO(content), allow_pickle=False)
        if is_archive and len(array.files) > 1:
            return pd.DataFrame({name: array[name] for name in array.files})
        return pd.DataFrame(array[array.files[0]] if is_archive else array)
    if not content.lstrip(b"\xef\xbb\xbf \r\n\t").startswith((b"{", b"[")):
        return None
    text = content.decode("utf-8-sig")
    try:
        value = json.loads(text)
    except ValueError:  # There is a value on each line.
        value = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(value, dict) and "columns" in value:
        return pd.DataFrame(value["data"], value.get("index"), value["columns"])
    if isinstance(value, dict):
        lists = [value[key] for key in _RECORDS if isinstance(value.get(key), list)]
        value = lists[0] if lists else value
    if isinstance(value, dict):
        is_nested = any(isinstance(cell, dict | list) for cell in value.values())
        return pd.DataFrame(value if is_nested else [value])
    if all(isinstance(record, dict) for record in value):
        return pd.json_normalize(list(map(_without_geometry, value)))
    return pd.DataFrame(value)


def _without_geometry(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record; of a feature of GeoJSON its properties, and a point as text."""
    shape = record.get("geometry") if record.get("type") == "Feature" else None
    if shape is None:
        return record
    place = " ".join(map(str, shape.get("coordinates", [])[:2]))
    return {**(record["properties"] or {}), "geometry": f"{shape['type']} ({place})"}


def text_of(option: str, content: bytes, path: object, encoding: str) -> str:
    """Returns the text of a file, each of whose lines ends in a newline.

    Raises:
        ValueError: If it is another file, or has another encoding.
    """
    for beginning in filter(content.startswith, _OTHERS):
        raise error(option, f"in {path} {_OTHERS[beginning]}")
    name = next((_MARKS[mark] for mark in filter(content.startswith, _MARKS)), encoding)
    remedy = f"{path}; save it as CSV in UTF-8, or name its encoding, as by --encoding"
    try:
        text = content.decode(name)
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        words = f"a letter that is not {name} in line {line} of {remedy} cp1252"
        raise error(option, words) from None
    except (LookupError, ValueError):
        raise ValueError(
            "encoding must be one that Python knows, such as utf-8, cp1252, mac-roman "
            f"or utf-16-le. Found {name!r:.60}."
        ) from None
    if "\0" in text:
        raise error(option, f"zero bytes in {remedy} utf-16-le")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _cells(option: str, text: str, path: object, pd: Any) -> tuple[str, Any]:
    """Returns the separator and the cells of a text, without empty rows and columns."""
    # Excel may name the separator in a first line; NumPy writes a hash before names.
    body = re.sub(r"\A\n*(sep=.\n)?(# *)?", "", text)
    above, separator = text.removesuffix(body).count("\n"), _separator(body)
    form: dict[str, Any] = {"header": None, "dtype": object, "na_filter": False}
    form |= {"skip_blank_lines": False, "skipinitialspace": True}
    form["sep"] = r"\s+" if separator == " " else separator
    try:
        frame = pd.read_csv(io.StringIO(body), **form).fillna("")
    except pd.errors.EmptyDataError:
        return separator, pd.DataFrame()
    except pd.errors.ParserError as failure:
        longer = re.search(r"in line (\d+), saw", str(failure))
        words = f"more cells than above in line {longer[1]}" if longer else "open quote"
        words += f" of {path}; cells with {separator!r} in them must be in quotes"
        raise error(option, words) from None
    breaks = sum(frame[at].str.count("\n") for at in frame) if '"' in body else 0
    frame.index += 1 + above + np.cumsum(breaks)
    is_used = frame != ""
    return separator, frame.loc[is_used.any(axis=1), is_used.any(axis=0)]


def _separator(text: str) -> str:
    """Returns what gives the first lines equally many cells, or the most cells."""
    lines = [line for line in text.split("\n")[:_FIRST_LINES] if line.strip()] or [""]
    most = (0, ",")
    for separator in "\t;,| ":
        cut = map(str.strip, lines) if separator == " " else lines
        rows = list(csv.reader(cut, delimiter=separator, skipinitialspace=True))
        # Blanks are in names, too.
        is_likely = separator != " " or any(map(NUMBER.fullmatch, rows[-1][1:]))
        if len(rows[0]) > 1 and is_likely:
            if len({len(row) for row in rows}) == 1:
                return separator
            most = max(most, (sum(map(len, rows)), separator))
    return most[1]


def _has_header(option: str, frame: Any, path: object, names: Collection[str]) -> bool:
    """Returns whether the first line has names of columns, which may be numbers.

    Raises:
        ValueError: If it counts the columns, and may be a row, too.
    """
    first = _words(frame.iloc[0])
    numbers, is_wide = set(filter(NUMBER.fullmatch, first)), len(first) > 1
    if not numbers:
        ends = zip(first, frame.iloc[-1], strict=True)
        is_name = any(top in names and last in names for top, last in ends)
        return not is_name and not any(map(SHAPE.match, first))
    if is_wide and first[0] not in numbers:
        is_new = not first[0] or (bool(names) and first[0] not in names)
        is_named = first[1:] == frame.iloc[1:, 0].tolist() or numbers <= {*names}
        return is_named or (is_new and counts(first[1:]))
    is_square = option == "cost" and len(frame) == len(first)
    if not is_wide or len(frame) == 1 or is_square:
        return False
    if counts(first):
        words = f"0, 1, … in the first line of {path}, as pandas writes it for arrays"
        raise error(option, f"{words}; write header=False, or put names above it")
    if numbers <= {*names} and len(numbers) == len(first):
        words = f"numbers in the first line of {path}, which are names of places, too"
        raise error(option, f"{words}; write the index, too, if it is a header")
    return False


def _words(cells: Any) -> list[str]:
    return [" ".join(str(cell).split()) for cell in cells]
