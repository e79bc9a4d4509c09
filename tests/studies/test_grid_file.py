"""Grids: what is read, and what is refused."""

import pytest

from dp_accounting_ext.studies import grid_file
from dp_accounting_ext.studies import training_run

HEADER = "noise_multiplier,steps,selected,epochs,delta"


def read(tmp_path, content):
    path = tmp_path / "grid.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return grid_file.read(path)


@pytest.mark.parametrize(
    "content",
    [
        f"{HEADER}\n1,2,3,4,5\n",
        f"{HEADER}\r\n1,2,3,4,5\r\n",
        f"\ufeff{HEADER}\n\n1,2,3,4,5",
        f'"noise_multiplier",{HEADER[17:]}\n1,"2",3,4,5\n',
    ],
)
def test_plain_files(tmp_path, content):
    grid = read(tmp_path, content)
    assert grid.columns == tuple(HEADER.split(","))
    assert grid.rows == (("1", "2", "3", "4", "5"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "grid must have a header. Found an empty file"),
        ("steps,selected,epochs,delta\n", "grid must have a column noise_multiplier"),
        (f"{HEADER},colour\n", "Found 'colour'"),
        (f"{HEADER},group-size\n", "Found 'group-size'"),
        (f"{HEADER},steps\n", "grid must have one column steps"),
        (f"{HEADER}\n1,2,3,4\n", "must have 5 cells. Found 4 on line 2"),
        (f"{HEADER}\n1,2,3,4,5\n\n1,2,3,4,5,6\n", "Found 6 on line 4"),
        (f'{HEADER}\n1,"2\n2",3,4,5\n', "must be of one line"),
        (f'{HEADER}\n1,"2\n', "grid must be a CSV file in UTF-8"),
        (f"{HEADER}\n1,2,3,4,{'5' * 200_000}\n", "grid must be a CSV file in UTF-8"),
        (b"\xff\xfe\x00", "grid must be a CSV file in UTF-8"),
    ],
)
def test_malformed_files(tmp_path, content, message):
    with pytest.raises(ValueError) as error:
        read(tmp_path, content)
    assert message in str(error.value)
    assert len(str(error.value)) < 300


ROW = dict(zip(HEADER.split(","), ["1.5", "30", "2", "4", "1e-6"], strict=True))


@pytest.mark.parametrize("more", [{}, {"scheme": "", "group_size": ""}])
def test_what_is_absent_or_empty_has_a_default(more):
    scheme, setting = grid_file.read_row({**ROW, **more})
    assert scheme == "random allocation"
    assert setting == training_run.TrainingRun(1.5, 30, 2, 4, 1e-6)


def test_a_scheme_and_a_group():
    row = {**ROW, "scheme": "Poisson sampling", "group_size": "3"}
    scheme, setting = grid_file.read_row(row)
    assert scheme == "Poisson sampling"
    assert setting.group_size == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_multiplier": "x"}, "noise_multiplier must be a number. Found 'x'"),
        ({"noise_multiplier": "nan"}, "noise_multiplier must be a number. Found nan"),
        ({"delta": ""}, "delta must be a number. Found ''"),
        ({"steps": "1e3"}, "steps must be an integer. Found '1e3'"),
        ({"epochs": "9" * 5000}, "epochs must be positive and finite. Found inf."),
        ({"epochs": "1e"}, "epochs must be a number. Found '1e'."),
        ({"group_size": "two"}, "group_size must be an integer. Found 'two'"),
        ({"selected": "31"}, "num_selected must be at most num_steps. Found 31 of 30"),
    ],
)
def test_cells_that_are_no_numbers(change, message):
    with pytest.raises(ValueError) as error:
        grid_file.read_row({**ROW, **change})
    assert message in str(error.value)
    assert len(str(error.value)) < 200
