"""The papers' figures in a directory."""

import sys

import pytest

from dp_accounting_ext.papers import catalogue
from dp_accounting_ext.studies import drawing

FIGURE = drawing.Picture(
    "one", [drawing.Panel("", "x", "y", [drawing.Curve("c", [0.0, 1.0], [1.0, 2.0])])]
)


@pytest.fixture
def small(monkeypatch):
    figures = {"first": lambda: FIGURE, "second": lambda: FIGURE}
    monkeypatch.setattr(catalogue, "FIGURES", figures)


def test_all_figures_are_drawn_with_their_tables(small, tmp_path):
    seen = []
    found = catalogue.redraw(
        tmp_path / "new" / "figures", progress=lambda done, total: seen.append(done)
    )
    assert [each.name for each in found] == ["first", "second"]
    names = {path.name for path in (tmp_path / "new" / "figures").iterdir()}
    assert names == {"first.png", "first.csv", "second.png", "second.csv"}
    assert seen == [1, 2]
    assert found[0].picture.endswith("first.png")
    assert found[0].table.endswith("first.csv")


def test_only_some(small, tmp_path):
    catalogue.redraw(tmp_path, ["second", "second"], suffix=".pdf")
    assert {path.name for path in tmp_path.iterdir()} == {"second.pdf", "second.csv"}
    assert (tmp_path / "second.pdf").read_bytes().startswith(b"%PDF")


def test_what_is_not_known_is_refused_first(small, tmp_path):
    with pytest.raises(ValueError, match=r"one of first, second\. Found third\."):
        catalogue.redraw(tmp_path / "new", ["first", "third"])
    assert not (tmp_path / "new").exists()


def test_a_directory_that_cannot_be_made(small, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        catalogue.redraw(tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        catalogue.redraw(tmp_path / "file" / "figures")


def test_without_matplotlib_nothing_is_made(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        ModuleNotFoundError, match="matplotlib must be installed for pictures"
    ):
        catalogue.redraw(tmp_path / "new")
    assert not (tmp_path / "new").exists()
