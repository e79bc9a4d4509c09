"""Files in the shapes that people have: what each says, or what must be done first."""

import codecs
import gzip
import io
import json
import pathlib
import shlex
import tempfile

from command_runner import run_split
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pandas as pd
import pytest

from dp_accounting_ext.command_line import columns
from dp_accounting_ext.command_line import tables

# If both columns were swapped, A would be nearest to the first three, not B.
NAMES = ["A", "B", "C"]
PLACES = [[40.75, -73.90], [40.70, -73.84], [41.50, -73.00]]
LATITUDES, LONGITUDES = map(list, zip(*PLACES, strict=True))
TRACE = [[40.70, -73.90], [40.70, -73.895], [40.701, -73.90], [41.51, -73.01]]
LAW = [0.0, 0.75, 0.25]
LATS, LONS = map(list, zip(*TRACE, strict=True))
COSTS = "A,B,C\n0,1,4\n1,0,1\n4,1,0\n"
IDS = "id,12,57,99\n12,0,1,4\n57,1,0,1\n99,4,1,0\n"
UNNAMED = "0,1,4\n1,0,1\n4,1,0\n"
BY_COLUMN = "lon,lat\n" + "".join(f"{x},{y}\n" for y, x in TRACE)


def csv(header, *columns, separator=","):
    """Rows of columns, some of which are single values for all rows."""
    rows = max(len(column) for column in columns if isinstance(column, list))
    wide = [each if isinstance(each, list) else [each] * rows for each in columns]
    lines = [*[header] * bool(header), *zip(*wide, strict=True)]
    return "".join(separator.join(map(str, line)) + "\n" for line in lines)


def frame(**columns):
    return pd.DataFrame(columns)


def written(method, table, **how):
    """The bytes that a method of pandas writes."""
    file = io.BytesIO()
    getattr(table, method)(file, **how)
    return file.getvalue()


def saved(save, *arrays, **named):
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


def commas(column):
    return [str(value).replace(".", ",") for value in column]


def features(kind="Point", names=NAMES, places=PLACES):
    found = [
        {
            "type": "Feature",
            "properties": {"name": name, "fid": 7},
            "geometry": {"type": kind, "coordinates": [x, y]},
        }
        for name, (y, x) in zip(names, places, strict=True)
    ]
    return {"type": "FeatureCollection", "features": found}


def e7(places, **more):
    return [
        {"latitudeE7": round(y * 1e7), "longitudeE7": round(x * 1e7), **more}
        for y, x in places
    ]


VISITS = [
    {"placeVisit": {"location": place, "otherCandidateLocations": e7(PLACES[2:])}}
    for place in e7(TRACE)
]
RIDES = [{"activitySegment": {"startLocation": each}} for each in e7(PLACES)]
SEGMENTS = [
    {"visit": {"topCandidate": {"placeLocation": {"latLng": f"{y}°, {x}°"}}}}
    for y, x in TRACE
]
PHONE = [
    {"visit": {"topCandidate": {"placeLocation": f"geo:{y},{x}"}}} for y, x in TRACE
]
TAXI = frame(
    VendorID=[1, 2, 1, 2],
    tpep_pickup_datetime="2015-01-15 19:05:39",
    passenger_count=1,
    pickup_longitude=LONS,
    pickup_latitude=LATS,
    fare_amount=12.5,
)
RIDE = TAXI.assign(dropoff_longitude=-73.0, dropoff_latitude=41.5)
BIKE = frame(
    ride_id=["a", "b", "c", "d"], start_lng=LONS, start_lat=LATS, member_casual="member"
)
GOWALLA = csv(
    "", [0, 0, 1, 2], "2010-10-19T23:55:27Z", LATS, LONS, 22847, separator="\t"
)
FOURSQUARE = csv(
    "", 470, "49bbd6c0f964a520f4531fe3", "Café", LATS, LONS, -240, "Tue Apr 03 2012",
    separator="\t",
)  # fmt: skip
TWO_OF_EACH = "several columns of latitudes or longitudes"
POINT = [f"POINT ({x} {y})" for y, x in TRACE]
HOLES = csv(["lat", "lon"], [*LATS, "NA", 40.7, 40.7], [*LONS, -73.9, r"\N", ""])
WIDE = frame(lat=LATS, lon=LONS, time="noon")
HISTOGRAM = pd.Series([*"BCBB"], name="place").value_counts()
RATINGS = csv(
    ["userId", "movieId", "rating", "timestamp"], 1, [57, 99], [3.0, 1.0], 964982703
)
HEAD = csv(["name", "lat", "lon"], NAMES, LATITUDES, LONGITUDES)

# Of traces: the content, further options, and what a refusal says; None if it is read.
TRACES = {
    "taxi": (TAXI.to_csv(index=False), "", None),
    "taxi, Parquet": (written("to_parquet", TAXI), "", None),
    "taxi, both ends": (RIDE.to_csv(index=False), "", TWO_OF_EACH),
    "taxi, one end named": (
        RIDE.to_csv(index=False), "--data-columns pickup_latitude,pickup_longitude",
        None,
    ),
    "bike": (BIKE.to_csv(index=False), "", None),
    "Gowalla": (GOWALLA, "", "or --data-columns 3,4, the latitude first"),
    "Gowalla, columns named": (GOWALLA, "--data-columns 3,4", None),
    "Gowalla, gzipped": (gzip.compress(GOWALLA.encode()), "--data-columns 3,4", None),
    "Foursquare": (
        FOURSQUARE.encode("latin-1"), "--data-columns 4,5 --encoding latin-1", None
    ),
    "Geolife": (
        "Geolife trajectory\nWGS 84\nAltitude is in Feet\n40.7,-73.9,0,492\n", "",
        "in line 4 of",
    ),
    "words and units": (csv(["Longitude (deg)", "LATITUDE"], LONS, LATS), "", None),
    "short and long": (
        csv(["long", "lat", "platform", "belong"], LONS, LATS, 41.5, -73.0), "", None
    ),
    "x and y": (csv(["x", "y"], LONS, LATS), "", "as by --data-columns"),
    "x and y, named": (csv(["x", "y"], LONS, LATS), "--data-columns y,x", None),
    "no header": (csv("", LATS, LONS), "", "as by --data-columns"),
    "a cell in words": (
        csv(["lat", "lon"], [*LATS, "hjkl"], [*LONS, 1]), "", "in line 6, column 1 of"
    ),
    "JSON": (WIDE.to_json(orient="records"), "", None),
    "JSON by columns": (WIDE.to_json(), "", None),
    "JSON in a split": (WIDE.to_json(orient="split"), "", None),
    "JSON lines": (WIDE.to_json(orient="records", lines=True), "", None),
    "GeoJSON": (json.dumps(features("Point", [*"abcd"], TRACE)), "", None),
    "Takeout, records": (json.dumps({"locations": e7(TRACE, accuracy=9)}), "", None),
    "Takeout, visits": (json.dumps({"timelineObjects": VISITS}), "", None),
    "Takeout, visits and rides": (
        json.dumps({"timelineObjects": VISITS + RIDES}), "", TWO_OF_EACH
    ),
    "Timeline, Android": (
        json.dumps({"semanticSegments": SEGMENTS, "rawSignals": [{"a": 1}]}), "", None
    ),
    "Timeline, without rides": (
        json.dumps({"semanticSegments": [*SEGMENTS, {"activity": 1}]}),
        "--drop-missing", None
    ),
    "Timeline, iPhone": (json.dumps(PHONE), "", None),
    "NumPy": (saved(np.save, np.array(TRACE)), "", "as by --data-columns"),
    "NumPy, an archive": (saved(np.savez, lon=LONS, lat=LATS), "", None),
    "NumPy, of unequal arrays": (
        saved(np.savez_compressed, lon=LONS, lat=LATS[1:]), "", "cannot be read"
    ),
    "NumPy, fields": (
        saved(
            np.save, np.array(list(map(tuple, TRACE)), [("lat", "f8"), ("lon", "f8")])
        ), "", None
    ),
    "spaces": (csv(["lon", "lat"], LONS, LATS, separator="   "), "", None),
    "tabs, German": (
        csv(["lon", "lat"], commas(LONS), commas(LATS), separator="\t"), "", None
    ),
    "semicolons, German": (
        csv(["lon", "lat"], commas(LONS), commas(LATS), separator=";"), "", None
    ),
    "thousands": (
        csv(["lat", "lon"], ["40,700"], ["73,900"], separator="\t"), "", "write points"
    ),
    "Excel, Unicode": (
        codecs.BOM_UTF16_LE
        + csv(["lon", "lat"], LONS, LATS, separator="\t").encode("utf-16-le"),
        "", None,
    ),
    "Excel, with empty lines and columns": (
        codecs.BOM_UTF8 + b"lon,lat,,\r\n" + csv("", LONS, LATS, "", "").encode()
        + b",,,\r\n\r\n", "", None,
    ),
    "Excel, a workbook": (b"PK\x03\x04\x14\x00\x06\xff", "", "save it as CSV"),
    "GeoPackage": (b"SQLite format 3\0", "", "save it as CSV"),
    "GeoPandas": (csv(["", "fid", "geometry"], [*range(4)], 7, POINT), "", None),
    "PostGIS": (csv(["geom"], [f"SRID=4326;{each}" for each in POINT]), "", None),
    "polygons": (
        'WKT\n"POLYGON ((0 0,1 1,1 0,0 0))"\n', "", "something else in line 2"
    ),
    "missing cells": (HOLES, "", "an empty cell in line 6, column 1 of"),
    "missing cells left out": (HOLES, "--drop-missing", None),
    "a cell too many": ("lat,lon\n40.7,-73.9\n40.7,-73.9,1\n", "", "in line 3 of"),
    "a cell too few": ("lat,lon\n40.7,-73.9\n40.7\n", "", "an empty cell in line 3"),
    "a cell of several lines": (
        'lat,lon,why\n40.7,-73.9,"a\nb"\n40.7,x,c\n', "", "in line 4, column 2"
    ),
    "a quote that does not end": ('lat,lon\n40.7,"-73.9\n40.7,1\n', "", "quote"),
    "an empty file": ("", "", "no row of cells"),
    "no row of cells": ("lat,lon\n", "", "no row of cells"),
    "JSON of something else": ('{"lat": "hjkl"}', "", "must be a table"),
    "a cut archive": (gzip.compress(GOWALLA.encode())[:40], "", "must be a table"),
    "GPX": ('<?xml version="1.0"?>\n<gpx></gpx>\n', "", "as CSV or GeoJSON"),
    "Excel, with its separator": (
        "sep=;\n" + csv(["lat", "lon"], commas(LATS), commas(LONS), separator=";"),
        "", None,
    ),
    "two columns for one": (BY_COLUMN, "--data-columns lat,lat", "each once"),
    "Overpass": (
        json.dumps({"version": 0.6, "elements": e7(TRACE, type="node")}), "", None
    ),
    "Parquet with an index of two names": (
        written("to_parquet", WIDE.assign(u=1).set_index(["u", "time"])), "", None
    ),
}  # fmt: skip
# Of points, which are read with the trace above.
POINTS = {
    "other order": (
        csv(["lon", "lat", "name"], LONGITUDES, LATITUDES, NAMES), "", None
    ),
    "stations": (
        csv(
            ["station_id", "name", "Station Longitude", "Station Latitude"],
            [72, 79, 82], NAMES, LONGITUDES, LATITUDES,
        ),
        "", None,
    ),
    "no header": (csv("", NAMES, LATITUDES, LONGITUDES), "", "or --columns 3,4"),
    "GeoJSON": (json.dumps(features()), "", None),
    "a misspelt cell": (HEAD.replace("40.7,", "40.x,"), "", "'40.x' in line 3, column"),
    "a missing cell": (HEAD + "D,NA,1\n", "", "an empty cell in line 5, column lat"),
    "shapes": (
        json.dumps({"features": [{
            "type": "Feature", "properties": {},
            "geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]},
        }]}), "", "Found Polygon, and no POINT"
    ),
    "a place called NA": (
        csv(["name", "lat", "lon"], ["A", "NA", "C"], LATITUDES, LONGITUDES), "", None
    ),
}  # fmt: skip
# Of distributions: the costs, the content, options, and a law or what a refusal says.
MASSES = {
    "names in another order": (COSTS, "C,B,A\n1,0,0\n", "", [0, 0, 1]),
    "value_counts": (COSTS, HISTOGRAM.to_csv(), "", LAW),
    "value_counts, no header": (COSTS, HISTOGRAM.to_csv(header=False), "", LAW),
    "value_counts, Parquet": (
        COSTS, written("to_parquet", HISTOGRAM.to_frame()), "", LAW
    ),
    "count first": (COSTS, "count,place\n1,C\n3,B\n", "", LAW),
    "an index too": (COSTS, HISTOGRAM.reset_index().to_csv(), "", LAW),
    "check-ins": (
        COSTS, csv(["time", "place"], [1, 2, 3, 4], [*"BCBB"]), "",
        "as by --data-columns",
    ),
    "check-ins, named": (
        COSTS, csv(["time", "place"], [1, 2, 3, 4], [*"BCBB"]),
        "--data-columns place", LAW,
    ),
    "an unknown name": (COSTS, "place,count\nB,3\nD,1\n", "", "in line 3, column 1 of"),
    "an unknown column": (COSTS, "A,B,D\n1,0,0\n", "", "column 3 of"),
    "a name twice": (COSTS, "place,count\nB,3\nB,1\n", "", "add its counts up"),
    "names that costs lack": (UNNAMED, "place,count\nB,3\nC,1\n", "", "name the"),
    "numbers of no names": (COSTS, "loc,count\n0,5\n2,2\n", "", "as by --data-columns"),
    "identifiers": (IDS, "venue,count\n99,1\n57,3\n", "", LAW),
    "identifiers without a name": (IDS, "99,57\n1,3\n", "", "names of places, too"),
    "identifiers that count the rows": (
        "id,2,0,1\n2,0,1,4\n0,1,0,1\n1,4,1,0\n", ",count\n0,3\n1,1\n", "", LAW
    ),
    "ratings": (IDS, RATINGS, "", "as by --data-columns"),
    "ratings, named": (IDS, RATINGS, "--data-columns movieId,rating", LAW),
    "an array's header and index": (UNNAMED, ",0,1,2\n0,0,3,1\n", "", LAW),
    "an index with gaps": (COSTS, ",B,C\n5,3,1\n8,0,2\n", "", [LAW, [0, 0, 1]]),
    "columns in numbers": (COSTS, "place,count,when\nB,3,9\n", "--data-columns 1,2,3",
        "2 at most"),
    "masses in order": (COSTS, "0\n0.75\n0.25\n", "", LAW),
    "too many masses": (COSTS, "0\n0.5\n0.25\n0.25\n", "", "shape (3,)"),
    "a cell in words": (UNNAMED, "0,3,1\n0,x,1\n", "", "in line 2, column 2 of"),
    "one row": (UNNAMED, "0,1,2\n", "", [0, 1 / 3, 2 / 3]),
    "NumPy": (COSTS, saved(np.save, [0, 3, 1]), "", LAW),
    "NumPy, an archive": (COSTS, saved(np.savez, [0.0, 0.75, 0.25]), "", LAW),
    "NumPy, of objects": (
        COSTS, saved(np.save, np.array([None, 1], object)), "", "must be a table"
    ),
    "JSON, a list": (UNNAMED, "[0, 0.75, 0.25]", "", LAW),
    "a crowd": (COSTS, "C,B\n1,3\n0,1\n", "", [LAW, [0, 1, 0]]),
    "a crowd, with names": (COSTS, "user,C,B\nu1,1,3\nu2,0,1\n", "", [LAW, [0, 1, 0]]),
    "a crowd, empty cells": (COSTS, "A,B,C\n,3,1\n0,1,0\n", "", "in line 2, column 1"),
    "costs, R": (
        '"","V1","V2","V3"\n"1",0,1,4\n"2",1,0,1\n"3",4,1,0\n',
        "V2,V3\n3,1\n", "", LAW,
    ),
    "costs with names of rows": (
        ",B,C,A\nC,1,0,4\nB,0,1,1\nA,1,4,0\n", "place,count\nC,1\nB,3\n", "",
        [0.75, 0.25, 0],
    ),
    "costs, NumPy": (saved(np.save, 1 - np.eye(3)), "0\n0.75\n0.25\n", "", LAW),
    "costs, a numbered first line": (
        "0,1,2\n0,1,4\n1,0,1\n4,1,0\n", "0\n0.75\n0.25\n", "", "header=False"
    ),
    "a column twice": (COSTS, "A,B,B\n1,0,0\n", "", "two columns of one name"),
    "costs in a line of cells": (
        "from,to,cost\nA,B,1\n", "1,0\n", "", "a column for each"
    ),
}  # fmt: skip


def draw(capsys, command):
    """Returns what is printed, as JSON; or the error of a refusal; and the warnings."""
    arguments = [*shlex.split(command), "--json", "--show-law", "--epsilon", "60"]
    status, out, err = run_split(capsys, ["wpm", *arguments])
    if status:
        assert (status, out) == (2, "") and err.count("\n") == 1, err
        assert err.startswith("dp-accounting-ext wpm: error: ")
        return err, ""
    return json.loads(out), err


def paths(folder, **contents):
    for name, content in contents.items():
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return {name: folder / name for name in contents}


def expect_law(found, expected):
    assert isinstance(found, dict), found
    laws = (
        found["distribution"]
        if "draws" not in found
        else [each["distribution"] for each in found["draws"]]
    )
    np.testing.assert_allclose(laws, expected, atol=1e-6)


@pytest.mark.parametrize("shape", TRACES)
def test_traces(capsys, tmp_path, shape):
    content, options, refusal = TRACES[shape]
    files = paths(tmp_path, points=HEAD, trace=content)
    command = f"--points {files['points']} --trace {files['trace']} --metric haversine"
    found, _ = draw(capsys, f"{command} {options}")
    if refusal is None:
        expect_law(found, LAW)
        assert found["name"] == NAMES[found["sample"]]
        assert found["coordinates"] == PLACES[found["sample"]]
        return
    assert isinstance(found, str), found
    assert "--trace must be" in found or "--data-columns must be" in found
    assert refusal in found
    shown = found.replace(str(tmp_path), "")
    for private in (
        "40.7",
        "73.9",
        "hjkl",
        "40.x",
        "POLY",
        "Geolife",
        "LineS",
        "pickup",
    ):
        assert private not in shown


@pytest.mark.parametrize("shape", POINTS)
def test_points(capsys, tmp_path, shape):
    content, options, refusal = POINTS[shape]
    files = paths(tmp_path, points=content, trace=BY_COLUMN)
    command = f"--points {files['points']} --trace {files['trace']} --metric haversine"
    found, _ = draw(capsys, f"{command} {options}")
    if refusal is None:
        expect_law(found, LAW)
        assert found["coordinates"] == PLACES[found["sample"]]
        if "name" in found:
            assert found["name"] in ("ABC"[found["sample"]], "NA")
    else:
        assert isinstance(found, str) and refusal in found, found


@pytest.mark.parametrize("shape", MASSES)
def test_masses(capsys, tmp_path, shape):
    costs, content, options, expected = MASSES[shape]
    files = paths(tmp_path, cost=costs, mu=content)
    command = f"--cost {files['cost']} --distribution {files['mu']}"
    found, _ = draw(capsys, f"{command} {options}")
    if isinstance(expected, list):
        expect_law(found, expected)
    else:
        assert isinstance(found, str) and expected in found, found
        assert " D" not in found and "'a'" not in found


@pytest.mark.parametrize(
    "content",
    ["station_id,count\n79,3\n82,1.0\n", "station_id\n79\n79\n82\n79\n"],
)
def test_places_are_named_by_any_column_that_both_files_have(capsys, tmp_path, content):
    header, ids = ["station_id", "name", "lat", "lon"], [72, 79, 82]
    stations = csv(header, ids, NAMES, LATITUDES, LONGITUDES)
    files = paths(tmp_path, points=stations, mu=content)
    command = f"--points {files['points']} --distribution {files['mu']}"
    expect_law(draw(capsys, f"{command} --metric haversine")[0], LAW)


ROW = st.lists(
    st.one_of(
        st.integers(-(10**6), 10**6),
        st.floats(-1e9, 1e9).filter(lambda number: number == 0 or abs(number) > 1e-9),
    ),
    min_size=2,
    max_size=2,
)
WORDS = st.text("abcé ,;\t\"'()0123456789.-|", max_size=8)


@given(
    st.lists(ROW, min_size=2, max_size=6),
    st.lists(WORDS, min_size=6, max_size=6),
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_random_tables_come_back(rows, words, separator, end, is_first):
    """Numbers and names of any kind, whatever is between them."""
    names = [f"n{word}{number}" for number, word in enumerate(words[: len(rows)])]
    table = pd.DataFrame(rows, columns=["lng", "lat"], dtype=object)
    table.insert(0 if is_first else 2, "name", names)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "places.csv")
        table.to_csv(path, index=False, sep=separator, lineterminator=end)
        places = columns.points(tables.read("points", path))
    np.testing.assert_array_equal(places.numbers, np.array(rows, float)[:, ::-1])
    assert places.names == [" ".join(name.split()) for name in names]


def test_costs_have_the_names_of_a_spreadsheet(tmp_path):
    for content in (
        ";Nord;Süd\r\nNord;0;1,5\r\nSüd;1,5;0\r\n",
        "\ufeffplace,Nord,Süd\nNord,0,1.5\nSüd,1.5,0\n",
        "Nord\tSüd\n0\t1,5\n1,5\t0",
    ):
        path = tmp_path / "cost.csv"
        path.write_text(content, encoding="utf-8")
        inputs, outputs, costs = columns.costs(tables.read("cost", path))
        np.testing.assert_array_equal(costs, [[0.0, 1.5], [1.5, 0.0]])
        assert inputs.names == outputs.names == ["Nord", "Süd"]


@pytest.mark.parametrize(
    ("points", "trace"),
    [
        ("x,y\n0,0\n5,0\n0,7\n", "y,x\n0,4.9\n0.1,5\n0,5\n6.9,0\n"),
        ("0,0\n5,0\n0,7\n", "4.9,0\n5,0.1\n5,0\n0,6.9\n"),
    ],
)
def test_coordinates_that_are_no_degrees(capsys, tmp_path, points, trace):
    """They have the names of the points, or else their order."""
    files = paths(tmp_path, points=points, trace=trace)
    command = f"--points {files['points']} --trace {files['trace']}"
    expect_law(draw(capsys, command)[0], LAW)
