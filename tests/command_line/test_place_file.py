"""Files of places as pandas, Excel and QGIS write them: read, or told what to do."""

import codecs
import random

from command_runner import run
import numpy as np
import pytest

from dp_accounting_ext.command_line import number_file
from dp_accounting_ext.command_line import place_file

NAMES = ["Saint-Denis, Basilica", "Café de Flore", 'Le "Petit" Palais']
LATITUDES, LONGITUDES = [48.9354, 48.8541, 48.8661], [2.3598, 2.3326, 2.3145]
PLACES = np.column_stack([LATITUDES, LONGITUDES])


def lines(*rows, delimiter=",", end="\n"):
    return end.join(delimiter.join(map(quoted, row)) for row in rows) + end


def quoted(cell):
    """As they all do where a delimiter or a quote is in a cell."""
    text = str(cell)
    escaped = text.replace('"', '""')
    return f'"{escaped}"' if set(text) & set(',;"\t') else text


def table(header, *columns, **form):
    return lines(header, *zip(*columns, strict=True), **form)


def commas(column):
    return [str(value).replace(".", ",") for value in column]


def german(*columns):
    """Excel quotes no decimal comma where semicolons are between cells."""
    header, rows = "name;lat;lon", zip(*columns, strict=True)
    quotes = [[quoted(name), *rest] for name, *rest in rows]
    return "\r\n".join([header, *map(";".join, quotes)]) + "\r\n"


POINTS = [f"POINT ({x} {y})" for y, x in PLACES]
ROWS = range(3)
NAMED = ["name", "lat", "lon"]
GERMAN = german(NAMES, commas(LATITUDES), commas(LONGITUDES))
TABS = "\r\n".join(
    "\t".join(row)
    for row in [
        NAMED,
        *zip(map(quoted, NAMES), commas(LATITUDES), commas(LONGITUDES), strict=True),
    ]
)
EMPTY = [""] * 3
# What wrote it, the bytes, and further options.
READ = {
    "pandas, with its index": (
        table(["", *NAMED], ROWS, NAMES, LATITUDES, LONGITUDES),
        {},
    ),
    "pandas, index read back": (
        table(["Unnamed: 0", *NAMED], ROWS, NAMES, LATITUDES, LONGITUDES),
        {},
    ),
    "pandas, of an array": (table(["", 0, 1], ROWS, LATITUDES, LONGITUDES), {}),
    "pandas, tabs, names last": (
        table(["lat", "lon", "name"], LATITUDES, LONGITUDES, NAMES, delimiter="\t"),
        {},
    ),
    "pandas, decimal commas": (
        table(NAMED, NAMES, commas(LATITUDES), commas(LONGITUDES), delimiter=";"),
        {},
    ),
    "pandas, gzipped columns of other numbers": (
        table(["pop", "lng", "lat"], [1, 2, 3], LONGITUDES, LATITUDES),
        {},
    ),
    "geopandas": (table(["", "name", "geometry"], ROWS, NAMES, POINTS), {}),
    "Excel, CSV UTF-8 with empty rows and columns": (
        codecs.BOM_UTF8
        + table(
            [*NAMED, "", ""],
            [*NAMES, "", ""],
            [*LATITUDES, "", ""],
            [*LONGITUDES, "", ""],
            [""] * 5,
            [""] * 5,
            end="\r\n",
        ).encode(),
        {},
    ),
    "Excel, German": (GERMAN.encode("cp1252"), {"encoding": "cp1252"}),
    "Excel, Unicode text": (codecs.BOM_UTF16_LE + TABS.encode("utf-16-le"), {}),
    "Excel, Macintosh": (
        table(NAMED, NAMES, LATITUDES, LONGITUDES, end="\r").encode("mac-roman"),
        {"encoding": "mac-roman"},
    ),
    "QGIS, AS_WKT": (table(["WKT", "fid", "name"], POINTS, [1, 2, 3], NAMES), {}),
    "QGIS, AS_XY": (
        table(["X", "Y", "fid", "name"], LONGITUDES, LATITUDES, [1, 2, 3], NAMES),
        {},
    ),
    "QGIS, AS_YX with quotes and CRLF": (
        table(["Y", "X", "fid"], LATITUDES, LONGITUDES, [1, 2, 3], end="\r\n"),
        {},
    ),
    "QGIS, of several points": (
        table(["WKT"], [f"MULTIPOINT (({point[7:]})" for point in POINTS]),
        {},
    ),
    "PostGIS": (
        table(["geom"], [f"SRID=4326;{p.replace(' (', '(')}" for p in POINTS]),
        {},
    ),
    "columns that are named": (
        table(["a", "b", "c"], [1, 2, 3], LONGITUDES, LATITUDES),
        {"columns": "c, B"},
    ),
    "columns that are numbered": (
        lines(*zip([1, 2, 3], LONGITUDES, LATITUDES, NAMES, strict=True)),
        {"columns": "3,2"},
    ),
}


def encoded(content):
    return content if isinstance(content, bytes) else content.encode()


@pytest.mark.parametrize("writer", READ)
def test_what_is_read(tmp_path, writer):
    content, options = READ[writer]
    path = tmp_path / "places.csv"
    path.write_bytes(encoded(content))
    found = place_file.read_points(path, is_haversine=True, **options)
    np.testing.assert_array_equal(found.numbers, PLACES)
    text = encoded(content).decode(options.get("encoding", "latin-1"), "replace")
    has_names = "Basilica" in text.replace("\0", "")
    assert found.names == (NAMES if has_names else [])
    trace = place_file.read_trace(
        "trace", path, found, is_haversine=True, is_private=True, **options
    )
    np.testing.assert_array_equal(trace, PLACES)


REFUSED = {
    "pandas, of an array without its index": (
        table([0, 1], LATITUDES, LONGITUDES),
        "as pandas writes it above columns without names; write header=False",
    ),
    "Excel, German": (GERMAN.encode("cp1252"), "line 3 of", "--encoding cp1252"),
    "Excel, a workbook": (b"PK\x03\x04\x14\x00\x06\xff", "save it as CSV"),
    "Excel, an old workbook": (b"\xd0\xcf\x11\xe0\xa1\xb1", "save it as CSV"),
    "Excel, UTF-16 without its mark": (
        TABS.replace("é", "e").encode("utf-16-le"),
        "--encoding utf-16-le",
    ),
    "pandas, Parquet": (b"PAR1\x15\x04\xff", "write it with to_csv"),
    "pandas, JSON": ('[{"lat":48.9}]', "write it as CSV"),
    "QGIS, GeoJSON": ('{"type": "FeatureCollection"}', "GEOMETRY=AS_XY"),
    "QGIS, GeoPackage": (b"SQLite format 3\0", "GEOMETRY=AS_XY"),
    "QGIS, of shapes": (
        table(["WKT", "name"], ["POLYGON ((0 0,1 1,1 0,0 0))", POINTS[0]], "ab"),
        "Found POLYGON, and no POINT of two coordinates, in line 2",
    ),
    "a cell too many": ("lat,lon\n48.9,2.3\n48.9,2.3,1\n", "3 cells in place of 2"),
    "an empty cell": ("lat,lon\n48.9,2.3\n48.9,\n", "an empty cell in line 3"),
    "a quote that does not end": ('"a,48.9,2.3\nb,48.9,2.3\n', "unexpected end of dat"),
    "thousands": (
        table(["lat", "lon"], ["48,935", "48,854"], ["2,359", "2,332"], delimiter="\t"),
        "write points for decimals",
    ),
    "nothing": ("\n,,\n", "an empty file"),
}


@pytest.mark.parametrize("writer", REFUSED)
def test_what_is_refused_says_what_to_do(capsys, tmp_path, writer):
    content, *expected = REFUSED[writer]
    path = tmp_path / "places.csv"
    path.write_bytes(encoded(content))
    command = f"wpm plan --points {path} --epsilon 1 --metric haversine"
    status, out, err = run(capsys, command)
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert err.startswith("dp-accounting-ext wpm: error: --points must be a file of")
    assert all(words in err for words in expected), err


@pytest.mark.parametrize("writer", REFUSED)
def test_what_is_private_is_not_shown(capsys, tmp_path, writer):
    points, trace = tmp_path / "places.csv", tmp_path / "trace.csv"
    points.write_text(table(["lat", "lon"], LATITUDES, LONGITUDES))
    trace.write_bytes(encoded(REFUSED[writer][0]))
    command = f"wpm --points {points} --trace {trace} --epsilon 1 --metric haversine"
    status, out, err = run(capsys, command)
    assert (status, out) == (2, "") and err.count("\n") == 1
    shown = err.replace(str(trace), "").replace("UTF-8", "").replace("1252", "")
    shown = shown.replace("1,234", "").replace("1.234", "").replace("utf-16", "")
    for word in ("48", "2,3", "2.3", "POLYGON", "Basilica", "FeatureC", "cells"):
        assert word not in shown


class TestOrders:
    """Of latitudes and longitudes, in points and in traces."""

    @pytest.fixture
    def read(self, tmp_path):
        def read(points, trace, is_haversine=True, **options):
            paths = tmp_path / "points.csv", tmp_path / "trace.csv"
            for path, content in zip(paths, (points, trace), strict=True):
                path.write_text(content)
            form = {"is_haversine": is_haversine, **options}
            places = place_file.read_points(paths[0], **form)
            trace = place_file.read_trace(
                "trace", paths[1], places, is_private=True, **form
            )
            return places.numbers.tolist(), trace.tolist()

        return read

    @pytest.mark.parametrize("is_haversine", [True, False])
    @pytest.mark.parametrize("points", ["lon,lat\n2,48\n", "X,Y\n2,48\n"])
    @pytest.mark.parametrize(
        "trace",
        [
            "lon,lat\n2,48\n",
            "Lat,Lng\n48,2\n",
            "y,x\n48,2\n",
            'WKT\n"POINT (2 48)"\n',
            "time,longitude,latitude\n0,2,48\n",
        ],
    )
    def test_names_decide(self, read, points, trace, is_haversine):
        expected = [[48.0, 2.0]] if is_haversine else [[2.0, 48.0]]
        assert read(points, trace, is_haversine) == (expected, expected)

    def test_columns_without_names_stand_as_the_points_do(self, read):
        pair = [[2.0, 48.0]]
        assert read("lon,lat\n2,48\n", "2,48\n", False) == (pair, pair)
        assert read("lon,lat\n2,48\n", "a,b\n2,48\n", False) == (pair, pair)
        pair = [[48.0, 2.0]]
        assert read("48,2\n", "48,2\n") == (pair, pair)
        assert read("48,2\n", "lon,lat\n2,48\n") == (pair, pair)
        both = {"columns": "2,1"}
        assert read("2,48\n", "2,48\n", **both) == (pair, pair)

    @pytest.mark.parametrize("trace", ["2,48\n", "a,b\n2,48\n"])
    def test_where_points_are_reordered_a_trace_must_have_names(self, read, trace):
        with pytest.raises(
            ValueError, match=r"no columns named lat, lon in .*name the"
        ):
            read("lon,lat\n2,48\n", trace)

    def test_what_is_not_clear_is_refused(self, read):
        with pytest.raises(ValueError, match=r"x, y, fid of .* --columns y,x"):
            read("x,y,fid\n2,48,1\n", "2,48\n", False)
        with pytest.raises(
            ValueError, match=r"columns must be of x, y in .* Found 'z'"
        ):
            read("x,y\n2,48\n", "2,48\n", columns="x,z")
        with pytest.raises(ValueError, match=r"must be of 1 to 2 in .* Found 'x'"):
            read("x,y\n2,48\n", "secret,words\n2,48\n", columns="x,y")
        solid = [[1.0, 2.0, 3.0]]
        assert read("x,y,z\n1,2,3\n", "1,2,3\n", False) == (solid, solid)


def test_random_tables_come_back(tmp_path):
    """Numbers and names of any kind, in any delimiter that is not their own."""
    chance = random.Random(20261125)
    letters = "abcé ,;\t\"'()0123456789.-"
    for _ in range(200):
        rows, columns = chance.randint(2, 6), chance.randint(1, 4)
        numbers = [
            [
                chance.choice([chance.randint(-99, 99), chance.gauss(0, 1e3)])
                for _ in range(columns)
            ]
            for _ in range(rows)
        ]
        names = [
            "n" + "".join(chance.choices(letters, k=chance.randint(0, 8)))
            for _ in range(rows)
        ]
        at = chance.randint(0, columns)
        header = [f"c{number}" for number in range(columns)]
        header.insert(at, "name")
        body = [
            [*row[:at], name, *row[at:]]
            for row, name in zip(numbers, names, strict=True)
        ]
        path = tmp_path / "table.csv"
        form = {
            "delimiter": chance.choice(",;\t"),
            "end": chance.choice(["\n", "\r\n"]),
        }
        path.write_bytes(lines(header, *body, **form).encode())
        found = number_file.read("points", path)
        np.testing.assert_array_equal(found.numbers, numbers)
        assert found.names == [" ".join(name.split()) for name in names]
