"""A table on disk: wherever it is cut off, it is resumed at the last whole row."""

import pathlib
import tempfile

from hypothesis import given
from hypothesis import strategies as st
import pytest

from dp_accounting_ext.studies import grid_file
from dp_accounting_ext.studies import results_file

GRID = grid_file.Grid(
    ("steps", "scheme"), (("1", "a"), ("2", 'quoted, "b"'), ("3", "ε"))
)
CELLS = ("0.5", "0.75", "0.001", "a note, with a comma")


def fill(path):
    """Adds the rows that are missing; returns how many there were."""
    with results_file.resume(path, GRID) as table:
        kept = table.num_rows
        for row in GRID.rows[kept:]:
            table.append([*row, *CELLS])
    return kept


def filled():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "table.csv")
        assert fill(path) == 0
        return path.read_bytes()


WHOLE = filled()


def test_the_header_names_the_results():
    header = WHOLE.splitlines()[0].decode()
    assert header == ",".join([*GRID.columns, *results_file.RESULTS])


@given(st.integers(0, len(WHOLE)))
def test_a_table_that_was_cut_off_anywhere_becomes_whole(length):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "table.csv")
        path.write_bytes(WHOLE[:length])
        kept = fill(path)
        assert kept == max(WHOLE[:length].count(b"\n") - 1, 0)
        assert path.read_bytes() == WHOLE


@given(st.binary(min_size=1, max_size=30))
def test_what_is_no_table_of_the_grid_is_left_as_it_was(content):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "table.csv")
        path.write_bytes(content + b"\n" + WHOLE)
        with pytest.raises(ValueError, match="is of something else"):
            fill(path)
        assert path.read_bytes() == content + b"\n" + WHOLE


def test_a_row_is_on_disk_at_once(tmp_path):
    path = tmp_path / "table.csv"
    with results_file.resume(path, GRID) as table:
        table.append([*GRID.rows[0], *CELLS])
        assert path.read_bytes() == WHOLE[: len(path.read_bytes())]
        assert path.read_bytes().count(b"\n") == 2


def test_a_device_is_refused():
    with pytest.raises(ValueError, match="output must be a file. Found /dev/null"):
        fill("/dev/null")


def test_two_at_once_are_one_and_a_refusal(tmp_path):
    path = tmp_path / "table.csv"
    with results_file.resume(path, GRID) as table:
        table.append([*GRID.rows[0], *CELLS])
        before = path.read_bytes()
        with pytest.raises(ValueError, match="one sweep at a time. Found another"):
            fill(path)
        assert path.read_bytes() == before
    assert fill(path) == 1
    assert path.read_bytes() == WHOLE
