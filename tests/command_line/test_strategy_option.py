"""--strategy: its three forms, what it is compared with, and what is refused."""

import json

from command_runner import run
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.command_line import strategy_option
from dp_accounting_ext.studies import training_run

RUN = training_run.TrainingRun(2.0, 3, 1, 2, 1e-3)
COMMAND = "compare --noise-multiplier 2 --steps-per-epoch 6 --epochs 2 --delta 1e-3 "
COMMAND += "--strategy"


def strategy(typed):
    return strategy_option.event(typed, RUN).strategy


def test_coefficients():
    found = strategy_option.event("1, .5,2.5e-1", RUN)
    assert found == ext.MatrixAllocationEvent((1.0, 0.5, 0.25), 2.0, 3, 2)


def test_a_buffered_toeplitz_matrix():
    found = strategy_option.event("blt:0.5,0.25:0.5,1", RUN)
    assert found == ext.MatrixAllocationEvent.from_buffered_toeplitz(
        [0.5, 0.25], [0.5, 1.0], 2.0, 3, 2
    )


@pytest.mark.parametrize(
    "written", ["1,0.5,0.25\n", "1\n0.5\n\n0.25", "\ufeff1,.5,.25"]
)
def test_a_file_of_coefficients(tmp_path, written):
    path = tmp_path / "column.csv"
    path.write_text(written, encoding="utf-8")
    assert strategy(str(path)) == (1.0, 0.5, 0.25)


def test_a_file_of_rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("1,0\n.5,2\n")
    assert strategy(str(path)) == ((1.0, 0.0), (0.5, 2.0))


def test_a_file_with_a_comma_in_its_name(tmp_path):
    path = tmp_path / "of 2,a.csv"
    path.write_text("1,.5\n")
    assert strategy(str(path)) == (1.0, 0.5)


def test_the_table_of_a_strategy(capsys):
    status, out, err = run(capsys, f"{COMMAND} 1,0.5")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "2 epochs, correlated noise" in lines[0]
    schemes = ["balls in bins", "cyclic Poisson", "no amplification"]
    assert [line[:16].strip() for line in lines[3:6]] == schemes
    _, out, _ = run(capsys, f"{COMMAND} 1,0.5 --json")
    found = json.loads(out)
    assert found["setting"]["strategy"] == "1,0.5"
    accountant = ext.PLDAccountant().compose(
        ext.MatrixAllocationEvent((1.0, 0.5), 2.0, 6, 2)
    )
    result = found["results"][0]
    bounds = result["epsilon_lower"], result["epsilon_upper"]
    assert bounds == accountant.get_epsilon_bounds(1e-3)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("x", "--strategy must be numbers such as 1,0.5,0.25, or blt:"),
        (",", "--strategy must be numbers such as"),
        (".", "--strategy must be numbers such as"),
        ("blt:1", "Found 'blt:1'"),
        ("blt:0.5,0.25:1", "as many, one a buffer. Found 2 and 1"),
        ("blt:2:1", "--strategy blt: decays must be in [0, 1]. Found 2"),
        ("blt:0.5:nan", "--strategy blt: scales must be a number. Found nan"),
        ("blt:0.5,y:1,1", "Found 'y' in 'blt:0.5,y:1,1'"),
        ("1,x", "Found 'x' in '1,x'"),
        ("1,nan", "--strategy must be a number. Found nan"),
        ("1,inf", "Found inf at 1"),
        ("blt:0.5:-1", "--strategy must have no negative coefficient: no theorem"),
        ("1,-1", "--strategy must have no negative coefficient"),
        ("0,1", "--strategy must begin with a positive coefficient"),
        (
            "1 --batches-per-record 2",
            "--batches-per-record must be left out with --strategy. Found 2",
        ),
        ("1 --group-size 2", "--group-size must be left out with --strategy. Found 2"),
        ("1 --sampling shuffled", "--sampling must be left out with --strategy. Found"),
        ("1 --epochs 1.5", "--epochs must be whole with --strategy. Found 1.5"),
        (
            "1 --steps-per-epoch 5000",
            "at most 4096 steps an epoch, and 131072 in all. Found 5000",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, typed, message):
    status, out, err = run(capsys, f"{COMMAND} {typed}")
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_file_that_is_no_matrix(capsys, tmp_path):
    path = tmp_path / "rows.csv"
    for written, message in [
        (b"1,0\n.5\n", "1 in place of 2 numbers in line 2 of"),
        (b"", "strategy must have a line of numbers at least"),
        (b"\xff", "Found no text in"),
        (b"1,x", "Found 'x' in line 1"),
    ]:
        path.write_bytes(written)
        status, out, err = run(capsys, f"{COMMAND} {path}")
        assert (status, out) == (2, "")
        assert message in err


@settings(max_examples=50)
@given(st.text() | st.from_regex(r"(blt:)?[-0-9.e,:]*", fullmatch=True))
@example("\0")
@example("\ud800")
@example("9" * 5000)
@example("blt:nan:1")
@example("blt:1:1e400")
def test_whatever_is_typed(typed):
    try:
        found = strategy_option.event(typed, RUN)
    except (TypeError, ValueError) as error:
        assert "\n" not in str(error).replace(typed, "")
    else:
        assert found.num_bins == 3
