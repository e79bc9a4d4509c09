"""Pictures and the tables beside them, and what is said where there can be none."""

import csv
import dataclasses
import math
import sys

from matplotlib import axes
import pytest

from dp_accounting_ext.studies import drawing

BAND = drawing.Curve("a band", [1.0, 2.0, 4.0], [0.5, 1e-3, 0.0], [0.4, 1e-4, 0.0])
LINE = drawing.Curve("a line", [1, 2], [1.0, 1 / 3], look=drawing.RENYI)
PANEL = drawing.Panel("left", "ε (nats)", "δ", [BAND, LINE], log_x=True, log_y=True)
PICTURE = drawing.Picture("Title", [PANEL], "A note of\n two lines.")


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("SVG", b"<?xml"), ("pdf", b"%PDF")]
)
def test_a_picture_is_of_its_suffix(tmp_path, suffix, start):
    path = tmp_path / f"picture.{suffix}"
    drawing.draw(PICTURE, path)
    assert path.read_bytes().startswith(start)


@pytest.mark.parametrize("suffix", ["pdf", "png", "svg"])
def test_the_same_numbers_make_the_same_file(tmp_path, suffix):
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in paths:
        drawing.draw(PICTURE, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("panels", "kind"),
    [
        *((1, kind) for kind in drawing.Kind),
        (2, drawing.Kind.LINE),
        (5, drawing.Kind.POINTS),
    ],
)
def test_every_kind_in_any_number_of_panels(tmp_path, kind, panels):
    look = drawing.Look(drawing.Colour.GREEN, drawing.Dashes.LONG, kind)
    curve = drawing.Curve("curve", [1, 2, 3], [1.0, 2.0, 1.5], look=look)
    panel = drawing.Panel("", "x", "y", [curve])
    path = tmp_path / "picture.png"
    drawing.draw(drawing.Picture("", [panel] * panels), path)
    assert path.stat().st_size > 1000


def test_texts_are_in_the_picture(tmp_path):
    other = drawing.Panel("right", "σ", "time (s)", [LINE])
    path = tmp_path / "picture.svg"
    drawing.draw(dataclasses.replace(PICTURE, panels=[PANEL, other]), path)
    # Matplotlib leaves every text as a comment before its outlines.
    whole = path.read_text(encoding="utf-8")
    texts = ["Title", "A note of  two lines.", "left", "right", "ε (nats)", "time (s)"]
    for text in [*texts, "a band", "a line"]:
        assert f"<!-- {text} -->" in whole, text
    assert whole.count("<!-- a line -->") == 2  # Each panel has its own legend.


def test_equal_legends_are_one(tmp_path):
    path = tmp_path / "picture.svg"
    drawing.draw(dataclasses.replace(PICTURE, panels=[PANEL, PANEL]), path)
    assert path.read_text(encoding="utf-8").count("<!-- a line -->") == 1


def test_the_table_holds_every_number_in_full(tmp_path):
    path = tmp_path / "table.csv"
    drawing.write_table(PICTURE, path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["# Title", "# A note of two lines."]
    rows = list(csv.DictReader(lines[2:]))
    assert {row["x_is"] for row in rows} == {"ε (nats)"}
    assert {row["panel"] for row in rows} == {"left"}
    band = [row for row in rows if row["curve"] == "a band"]
    assert [float(row["lower"]) for row in band] == BAND.lower
    assert [float(row["upper"]) for row in band] == BAND.upper
    line = [row for row in rows if row["curve"] == "a line"]
    assert [float(row["upper"]) for row in line] == LINE.upper
    assert [row["lower"] for row in line] == ["", ""]


@pytest.mark.parametrize(("limits", "end"), [((1e-3, 1.0), 1e-3), ((None, None), 0.2)])
def test_a_band_with_lower_ends_of_zero_goes_to_the_bottom(
    tmp_path, monkeypatch, limits, end
):
    seen = []
    monkeypatch.setattr(
        axes.Axes,
        "fill_between",
        lambda _, x, lower, upper, **style: seen.append(lower),
    )
    band = drawing.Curve("band", [1.0, 2.0, 3.0], [0.9, 0.8, 0.7], [0.2, 0.0, math.nan])
    panel = drawing.Panel("", "x", "y", [band], log_y=True, y_limits=limits)
    drawing.draw(drawing.Picture("one", [panel]), tmp_path / "a.png")
    assert seen[0][:2] == [0.2, end] and math.isnan(seen[0][2])


@pytest.mark.parametrize("name", ["picture", "picture.jpg", "picture.png.gz"])
def test_other_suffixes_are_refused(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(ValueError, match=r"must end in \.pdf, \.png or \.svg\. Found"):
        drawing.draw(PICTURE, path)
    assert not path.exists()


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must be in a directory that can be"):
        drawing.check_output(tmp_path / "nowhere" / "picture.png")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="must be in a directory that can be"):
        drawing.check_output(tmp_path / "file" / "picture.png")


def test_a_directory_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing.os, "access", lambda path, mode: False)
    with pytest.raises(ValueError, match="must be in a directory that can be"):
        drawing.check_output(tmp_path / "picture.png")


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for action in (drawing.check_output, lambda path: drawing.draw(PICTURE, path)):
        with pytest.raises(ModuleNotFoundError) as error:
            action(tmp_path / "picture.png")
        assert "python -m pip install matplotlib" in str(error.value)
    drawing.write_table(PICTURE, tmp_path / "table.csv")


def test_matplotlib_that_is_not_found(monkeypatch):
    monkeypatch.setattr(drawing.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="must be installed for pictures"):
        drawing.check_matplotlib()


def luminance(colour):
    """WCAG's relative luminance."""
    parts = [int(colour.value[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_lines_stand_out_from_white():
    for colour in drawing.Colour:
        if colour is not drawing.Colour.GREY:
            assert 1.05 / (luminance(colour) + 0.05) > 2


def test_dots_of_an_inch(tmp_path):
    sizes = []
    for dpi in (50, 100):
        path = tmp_path / f"{dpi}.png"
        drawing.draw(PICTURE, path, dpi=dpi)
        sizes.append(int.from_bytes(path.read_bytes()[16:20], "big"))
    assert sizes[1] == pytest.approx(2 * sizes[0], abs=2)
    for dpi in (0, 19, 1201, 1.5):
        with pytest.raises((TypeError, ValueError), match="dpi must be"):
            drawing.draw(PICTURE, tmp_path / "none.png", dpi=dpi)
