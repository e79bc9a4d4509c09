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
import warnings

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.validation import extras

NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)
# The beginning of a point, or another shape, in a text; as Takeout writes points, too.
SHAPE = re.compile(
    r"(SRID=\d+;)? ?\w*(POINT|LINE|POLYGON|GEOM)\w*.*\(|geo:|\S+°,", re.I
)
# In such a cell the comma may be a decimal point, or it may separate thousands.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_MISSING = {"", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "NULL", "null"}
_MISSING |= {"None", r"\N"}
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_OTHERS = b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"SQLite format 3", b"<"
# Tuning: the number of lines from which the separator of cells is found.
_FIRST_LINES = 100


class Table(NamedTuple):
    """The cells of a file.

    Attributes:
        option, path, is_private, drop_missing: As for `read`.
        frame: A pandas.DataFrame of numbers and of texts. Its columns are their names,
            or "" without one. Its index has the number of each line, or of each row of
            a file without lines, from one.
        separator: The separator of cells; "" in a file without lines.
    """

    option: str
    path: object
    is_private: bool
    drop_missing: bool | None
    frame: Any
    separator: str

    @property
    def header(self) -> list[str]:
        """The name of each column, which is empty if it has none."""
        return list(self.frame.columns)

    def texts(self, column: int) -> list[str]:
        """Returns the cells of a column as texts; of whole floats, without ".0"."""
        words = map(str, self.frame.iloc[:, column].tolist())
        return [
            word[:-2] if word.endswith(".0") and word[:-2].isdecimal() else word
            for word in words
        ]

    def has_number(self, column: int) -> bool:
        """Returns whether any cell is a number: others may be misspelt numbers."""
        cells = self.frame.iloc[:, column]
        return _is_typed(cells) or any(map(NUMBER.fullmatch, set(cells)))

    def rows(
        self, numbers: Sequence[int], names: Sequence[int] = ()
    ) -> tuple["Table", FloatArray]:
        """Returns the rows that lack no cell of some columns, and their numbers.

        It warns of the other rows if these are to be left out.

        Raises:
            ValueError: If a cell is missing and its row is not to be left out, or if a
                cell that is to be a number is not.
        """
        lost = np.zeros(len(self.frame), dtype=bool)
        for column in [*numbers, *names]:
            cells = self.frame.iloc[:, column]
            missing = cells.isna() | cells.isin(_MISSING if column in numbers else {""})
            if missing.any() and not self.drop_missing:
                remedy = "fill it in"
                if self.drop_missing is not None:
                    remedy += "; or --drop-missing leaves out its row"
                raise self.error("an empty cell", missing.argmax(), column, remedy)
            lost |= missing.to_numpy(bool)
        if lost.all():
            raise self.error("no row without empty cells")
        if lost.any():
            words = f"{lost.sum()} rows of {self.path} that lack a cell are left out."
            warnings.warn(words, stacklevel=1)
        rows = self._replace(frame=self.frame[~lost])
        no_column = np.empty((len(rows.frame), 0))
        return rows, np.column_stack([no_column, *map(rows._numbers, numbers)])

    def _numbers(self, column: int) -> FloatArray:
        cells = self.frame.iloc[:, column]
        # Takeout has degrees times 10^7.
        unit = 1e7 if self.header[column].endswith("E7") else 1.0
        if _is_typed(cells):
            return np.asarray(cells.to_numpy(np.float64) / unit)
        for row, text in enumerate(cells):
            if not NUMBER.fullmatch(text):
                shown = "something else" if self.is_private else repr(text)[:60]
                raise self.error(shown, row, column)
        commas = [text for text in cells if "," in text]
        # If semicolons separate cells, commas are decimal points.
        if commas and self.separator != ";" and all(map(_THOUSANDS.fullmatch, commas)):
            words = "numbers such as 1,234, of 1.234 or of a thousand,"
            remedy = "write points for decimals, and nothing between thousands"
            raise self.error(words, column=column, remedy=remedy)
        return np.array([float(text.replace(",", ".")) for text in cells]) / unit

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
            kind = "line" if self.separator else "row"
            where.append(f"{kind} {self.frame.index[row]}")
        if column is not None:
            shown = "" if self.is_private else self.header[column]
            where.append(f"column {shown or column + 1}")
        at = ", ".join(where) + " of " * bool(where) + str(self.path)
        return _error(self.option, f"{words} in {at}{'; ' * bool(remedy)}{remedy}")


def read(
    option: str,
    path: str | pathlib.Path,
    *,
    encoding: str = "utf-8",
    is_private: bool = False,
    drop_missing: bool | None = None,
    names: Collection[str] = (),
) -> Table:
    """Returns the table of a file: a text, JSON, Parquet or NumPy's, maybe gzipped.

    Errors begin with the option that named the file, and show no content of it if it is
    private. Rows that lack a cell are left out if `drop_missing` is true; it is None if
    there is no such option. The encoding is of a text without a byte order mark. The
    names are those of places, which may be numbers.
    """
    content, separator = pathlib.Path(path).read_bytes(), ""
    try:
        import pandas as pd

        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        frame = _data_frame(content, pd)
        if frame is not None:
            frame = _plain(frame, pd)
    except ImportError as failure:
        # Parquet needs pyarrow, whose absence pandas reports without a name.
        name = failure.name or "pyarrow"
        raise ModuleNotFoundError(extras.missing(failure), name=name) from failure
    except Exception as failure:  # Libraries raise errors of any kind at broken files.
        why = "" if is_private else f" ({failure})"
        raise _error(option, f"one that cannot be read{why}, {path}") from None
    if frame is None:
        text = text_of(option, content, path, encoding)
        separator, frame = _cells(option, text, path, pd)
        has_names = frame.size and _has_header(option, frame, path, names)
        header = list(frame.iloc[0]) if has_names else [""] * frame.shape[1]
        frame = frame[int(has_names) :].set_axis(header, axis=1)
    if not frame.size:
        raise _error(option, f"no row of cells in {path}")
    return Table(option, path, is_private, drop_missing, frame, separator)


def _error(option: str, words: str) -> ValueError:
    return ValueError(
        f"{option} must be a table, as CSV, JSON, Parquet or .npy. Found {words}."
    )


def counts(cells: Sequence[str]) -> bool:
    """Returns whether cells are the numbers 0, 1, 2, … in this order."""
    return list(cells) == [str(place) for place in range(len(cells))]


def text_of(option: str, content: bytes, path: object, encoding: str) -> str:
    """Returns the text of a file, each of whose lines ends in a newline."""
    remedy = f"in {path}; save it as CSV or GeoJSON, in UTF-8"
    if content.startswith(_OTHERS):
        kinds = "a workbook, an archive, a database, or XML as of KML and GPX"
        raise _error(option, f"{kinds} {remedy}")
    name = next((_MARKS[mark] for mark in filter(content.startswith, _MARKS)), encoding)
    try:
        text = content.decode(name)
    except UnicodeDecodeError:
        text = "\0"  # As in a binary file.
    except LookupError:
        raise ValueError(
            "encoding must be one that Python knows, such as utf-8, cp1252, mac-roman "
            f"or utf-16-le. Found {name!r:.60}."
        ) from None
    if "\0" in text:
        remedy += ", or name its encoding, as by --encoding cp1252 or utf-16-le"
        raise _error(option, f"bytes that are no {name} text {remedy}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


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
    if isinstance(value, dict) and "data" in value and {"index", "columns"} & {*value}:
        return pd.DataFrame(value["data"], value.get("index"), value.get("columns"))
    if isinstance(value, dict):
        # The records of GeoJSON and of Takeout have a key, which may be any.
        lists = [member for member in value.values() if isinstance(member, list)]
        records = [member for member in lists if member and isinstance(member[0], dict)]
        is_nested = lists or any(isinstance(member, dict) for member in value.values())
        value = records[0] if records else value if is_nested else [value]
    if all(isinstance(record, dict) for record in value) and isinstance(value, list):
        return pd.json_normalize(list(map(_without_geometry, value)))
    return pd.DataFrame(value)


def _without_geometry(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record; of a feature of GeoJSON its properties, and a point as text."""
    shape = record.get("geometry") if record.get("type") == "Feature" else None
    if shape is None:
        return record
    place = " ".join(map(str, shape.get("coordinates", [])[:2]))
    return {**(record["properties"] or {}), "geometry": f"{shape['type']} ({place})"}


def _plain(frame: Any, pd: Any) -> Any:
    """Returns a data frame of numbers and texts, an index with names among these."""
    is_order = frame.index.equals(pd.RangeIndex(len(frame)))
    if not is_order or frame.index.names != [None]:
        frame = frame.rename_axis([name or "" for name in frame.index.names])
        frame = frame.reset_index(allow_duplicates=True)
    has_names = not isinstance(frame.columns, pd.RangeIndex)
    header = [_text(name) if has_names else "" for name in frame.columns]
    for column, (_, cells) in enumerate(frame.items()):
        if not _is_typed(cells):
            words = map(_text, cells.astype(object).where(cells.notna(), ""))
            frame.isetitem(column, pd.Series(words, frame.index, dtype=object))
    return frame.set_axis(header, axis=1).set_axis(range(1, len(frame) + 1))


def _is_typed(cells: Any) -> bool:
    """Returns whether a column has numbers, and not texts that may be numbers."""
    return isinstance(cells.dtype, np.dtype) and cells.dtype.kind in "iuf"


def _text(cell: object) -> str:
    return " ".join(str(cell).split())


def _cells(option: str, text: str, path: object, pd: Any) -> tuple[str, Any]:
    """Returns the separator and the cells of a text, without empty rows and columns."""
    # Excel may name the separator in a first line; NumPy writes a hash before names.
    below = re.sub(r"\A\n*(sep=.\n)?", "", text)
    above = text.count("\n") - below.count("\n")
    text = re.sub(r"\A(\n*(?:sep=.\n)?)# *", r"\1", text)
    separator = _separator(text.split("\n")[above:])
    form: dict[str, Any] = {"header": None, "dtype": object, "na_filter": False}
    form |= {"skip_blank_lines": False, "skipinitialspace": True, "skiprows": above}
    form |= {"sep": r"\s+" if separator == " " else separator}
    try:
        frame = pd.read_csv(io.StringIO(text), **form).fillna("")
    except pd.errors.EmptyDataError:
        return separator, pd.DataFrame()
    except pd.errors.ParserError as failure:
        longer = re.search(r"in line \d+", str(failure))
        words = f"more cells than above {longer[0]}" if longer else "open quote"
        words += f" of {path}; cells with {separator!r} in them must be in quotes"
        raise _error(option, words) from None
    breaks = sum(frame[at].str.count("\n") for at in frame) if '"' in text else 0
    frame.index += 1 + above + np.cumsum(breaks)
    # Columns of objects: those of texts are slow to read cell by cell.
    texts = {at: list(map(_text, cells.tolist())) for at, cells in frame.items()}
    frame = pd.DataFrame(texts, frame.index, dtype=object)
    is_used = frame != ""
    return separator, frame.loc[is_used.any(axis=1), is_used.any(axis=0)]


def _separator(lines: Sequence[str]) -> str:
    """Returns what gives the first lines equally many cells, or the most cells."""
    lines = [line for line in lines[:_FIRST_LINES] if line.strip()] or [""]
    best = (0, ",")
    for separator in "\t;,| ":
        cut = map(str.strip, lines) if separator == " " else lines
        rows = list(csv.reader(cut, delimiter=separator, skipinitialspace=True))
        # Blanks are in names, too.
        is_likely = separator != " " or any(map(NUMBER.fullmatch, rows[-1][1:]))
        if len(rows[0]) > 1 and is_likely:
            if len({len(row) for row in rows}) == 1:
                return separator
            best = max(best, (sum(map(len, rows)), separator))
    return best[1]


def _has_header(option: str, frame: Any, path: object, names: Collection[str]) -> bool:
    """Returns whether the first line has names of columns, which may be numbers."""
    first = list(frame.iloc[0])
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
    are_names = numbers <= {*names} and len(numbers) == len(first)
    if is_wide and len(frame) > 1 and not is_square and (counts(first) or are_names):
        words = f"numbers in the first line of {path} that may be names of places, too"
        remedy = "write header=False, or the index, too; or put names above it"
        raise _error(option, f"{words}; {remedy}")
    return False
