"""--strategy: its three forms, what it is compared with, and what is refused."""

import json

from command_runner import run
from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.command_line import training
from dp_accounting_ext.studies import training_run

RUN = training_run.TrainingRun(2.0, 3, 1, 2, 1e-3)
COMMAND = "compare --noise-multiplier 2 --steps-per-epoch 6 --epochs 2 --delta 1e-3 "
COMMAND += "--strategy"


def strategy(typed):
    return training.strategy_event(typed, RUN).strategy


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


def test_the_table_of_a_strategy(capsys):
    status, out, err = run(capsys, f"{COMMAND} 1,0.5")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "2 epochs, correlated noise" in lines[0]
    schemes = ["balls in bins", "fresh windows", "b-min-sep", "cyclic Poisson"]
    schemes.append("no amplification")
    assert [line[:16].strip() for line in lines[3:8]] == schemes
    words = "2 windows of 5 steps, with a guard of 1, in each with probability 1;"
    assert words in " ".join(out.split())
    assert all(f"{name}:" in out for name in schemes)
    _, out, _ = run(capsys, f"{COMMAND} 1,0.5 --json")
    found = json.loads(out)
    assert found["setting"]["strategy"] == "1,0.5"
    accountant = ext.PLDAccountant().compose(
        ext.MatrixAllocationEvent((1.0, 0.5), 2.0, 6, 2)
    )
    result = found["results"][0]
    bounds = result["epsilon_lower"], result["epsilon_upper"]
    assert bounds == accountant.get_epsilon_bounds(1e-3)


def test_one_scheme_of_a_strategy(capsys):
    status, out, _ = run(capsys, f"{COMMAND} 1,0.5 --sampling b-min-sep --json")
    found = json.loads(out)
    assert status == 0
    assert found["setting"]["sampling"] == "b-min-sep"
    assert [row["sampling"] for row in found["results"]] == ["b-min-sep"]
    accountant = ext.PLDAccountant().compose(
        ext.MinSepSamplingEvent((1.0, 0.5), 2.0, 0.2, 2, 12)
    )
    bounds = (found["results"][0][f"epsilon_{end}"] for end in ("lower", "upper"))
    assert tuple(bounds) == accountant.get_epsilon_bounds(1e-3)
    status, _, err = run(capsys, f"{COMMAND} 1,.5,.5,.5,.5,.5,.5 --sampling b-min-sep")
    assert status == 2
    assert "sampling must be one of balls-in-bins, no-amplification for this" in err


@given(st.text() | st.from_regex(r"(blt:)?[-0-9.e,:]*", fullmatch=True))
@example("\0")
@example("\ud800")
@example("9" * 5000)
@example("blt:nan:1")
@example("blt:1:1e400")
def test_whatever_is_typed(typed):
    try:
        found = training.strategy_event(typed, RUN)
    except (TypeError, ValueError) as error:
        assert "\n" not in str(error).replace(typed, "")
    else:
        assert found.num_bins == 3
