"""A table that a kill at any moment leaves fit to be resumed."""

import os

import pytest

from dp_accounting_ext.studies import grid as grids
from dp_accounting_ext.studies import table

COLUMNS = ("noise_multiplier", "steps", "selected", "epochs", "delta")
ROWS = tuple(
    (noise, "10", "1", "1", "1e-6") for noise in ("1.0", '"quoted, cell"', "", "é")
)
GRID = grids.Grid(COLUMNS, ROWS)
CELLS = [(*row, "0.1", "0.2", "3", f"note {i}") for i, row in enumerate(ROWS)]


def written(path, number):
    """Returns the bytes of a table of so many rows, written in one run."""
    with table.resume(path, GRID) as rows:
        for cells in CELLS[:number]:
            rows.append(cells)
    return path.read_bytes()


def test_rows_are_on_disk_at_once(tmp_path):
    path = tmp_path / "table.csv"
    with table.resume(path, GRID) as rows:
        assert rows.num_rows == 0
        for number, cells in enumerate(CELLS, start=1):
            rows.append(cells)
            assert rows.num_rows == number
            lines = path.read_bytes().splitlines()
            assert len(lines) == number + 1
    assert lines[0].decode().split(",") == [*COLUMNS, *table.RESULTS]


def test_killed_after_any_byte_it_goes_on_where_it_was(tmp_path):
    whole = written(tmp_path / "whole.csv", len(CELLS))
    path = tmp_path / "table.csv"
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        with table.resume(path, GRID) as rows:
            complete = max(whole[:size].count(b"\n") - 1, 0)
            assert rows.num_rows == complete
            for cells in CELLS[complete:]:
                rows.append(cells)
        assert path.read_bytes() == whole


def test_a_finished_table_stays_as_it_is(tmp_path):
    path = tmp_path / "table.csv"
    whole = written(path, len(CELLS))
    with table.resume(path, GRID) as rows:
        assert rows.num_rows == len(CELLS)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: [b"something else\n"], 1),
        (lambda lines: [b"something else"], 1),
        (lambda lines: [b"noise_multiplier,steps\n", *lines[1:]], 1),
        (lambda lines: [lines[0], lines[2]], 2),
        (lambda lines: [lines[0], lines[1].replace(b",0.2", b"")], 2),
        (lambda lines: [lines[0], b"\xff\xfe\n"], 2),
        (lambda lines: [lines[0], b"\n"], 2),
        (lambda lines: [lines[0], b'"never closed\n'], 2),
        (lambda lines: [*lines, lines[1]], len(ROWS) + 2),
    ],
    ids=range(9),
)
def test_what_is_no_table_of_the_grid_is_left_as_it_was(tmp_path, change, line):
    path = tmp_path / "table.csv"
    lines = written(path, len(CELLS)).splitlines(keepends=True)
    content = b"".join(change(lines))
    path.write_bytes(content)
    with (
        pytest.raises(
            ValueError, match=rf"^output must be absent.*Found.*line {line} "
        ),
        table.resume(path, GRID),
    ):
        pass
    assert path.read_bytes() == content


def test_what_is_no_file(tmp_path):
    with (
        pytest.raises(ValueError, match=r"^output must be a file. Found .*a device"),
        table.resume(os.devnull, GRID),
    ):
        pass
    with pytest.raises(OSError), table.resume(tmp_path, GRID):
        pass
    with pytest.raises(OSError), table.resume(tmp_path / "no" / "table.csv", GRID):
        pass
