"""Sweeps: every row is there once, whatever happens on the way."""

from concurrent import futures
import csv
import math

import nights
import numpy as np
import pytest
import sweep_oracles

import dp_accounting_ext as ext
from dp_accounting_ext import risk
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import sweep
from dp_accounting_ext.studies import training_run

Inline = sweep_oracles.Inline
ROW = {
    "noise_multiplier": "1",
    "steps_per_epoch": "10",
    "delta": "1e-6",
    "sampling": "random-allocation",
}


def rows(count):
    return [{**ROW, "noise_multiplier": 1 + i / 7} for i in range(count)]


def test_rows_are_those_of_the_accountant():
    grid = [
        {**ROW, "batches_per_record": "2", "epochs": "4", "group_size": ""},
        {**ROW, "sampling": "poisson-sampling", "epochs": 2.5, "group_size": 3},
        {
            **{"noise_multiplier": 2, "dataset_size": 90.0, "batch_size": 9},
            **{"delta": 1e-9, "sampling": "random allocation"},
        },
        {**ROW, "sampling": "shuffled", "dataset_size": math.nan},
        {
            **{"noise_multiplier": 2, "sampling_rate": "0.004", "num_steps": 1006.0},
            **{"delta": 1e-9, "sampling": "poisson-sampling", "epochs": None},
        },
    ]
    runs = [
        training_run.TrainingRun(1, 10, 2, 4, 1e-6, 1, "random allocation"),
        training_run.TrainingRun(1, 10, 1, 2.5, 1e-6, 3, "Poisson sampling"),
        training_run.TrainingRun(
            2, delta=1e-9, dataset_size=90, batch_size=9, sampling="random allocation"
        ),
        training_run.TrainingRun(1, 10, delta=1e-6, sampling="shuffled"),
        training_run.TrainingRun(
            2, None, 1, None, 1e-9, 1, "Poisson sampling", None, None, 0.004, 1006
        ),
    ]
    found = {repr(sweep.setting_of(row)): row for row in sweep.sweep(grid, Inline())}
    assert len(found) == len(grid)
    for given, run in zip(grid, runs, strict=True):
        row = found[repr(sweep.setting_of(given))]
        assert sweep.setting_of(given).run == run
        assert list(row) == [*given, *sweep.columns_of(["epsilon"])]
        bounds = run.accountant().get_epsilon_bounds(run.delta)
        assert (row["epsilon_lower"], row["epsilon_upper"]) == bounds
        assert row["seconds"] >= 0
        assert ("wide" in row["note"]) == (given is grid[0])


def one(row, *results):
    (found,) = sweep.sweep([row], Inline(), results)
    assert found["note"] == "" or found["note"].startswith("not tight")
    assert found["seconds"] >= 0
    return found


def test_noise_is_that_of_a_calibration():
    sampling = "poisson-sampling"
    row = {"steps_per_epoch": 10, "delta": "1e-6", "epsilon": 2, "sampling": sampling}
    found = one(row, "noise", "epsilon")
    run = training_run.TrainingRun(None, 10, delta=1e-6, sampling=sampling)
    (expected,) = calibration.calibrate(run, 2.0)
    assert found["noise_multiplier"] == expected.noise_multiplier
    assert found["epsilon_lower"] == expected.epsilon_lower
    assert found["epsilon_upper"] == expected.epsilon_upper <= 2.0


def test_risks_are_those_of_the_accountant():
    found = one({**ROW, "fpr": "0.02"}, "risks")
    accountant = sweep.setting_of(ROW).run.accountant()
    bounds = found["advantage_lower"], found["advantage_upper"]
    assert bounds == risk.advantage(accountant)
    bounds = found["tpr_lower"], found["tpr_upper"]
    assert bounds == tuple(accountant.get_true_positive_rate_bounds(0.02))
    by_default = one(ROW, "risks")
    bounds = by_default["tpr_lower"], by_default["tpr_upper"]
    assert bounds == tuple(accountant.get_true_positive_rate_bounds(0.001))
    (shuffled,) = sweep.sweep([{**ROW, "sampling": "shuffled"}], Inline(), ["risks"])
    assert shuffled["note"].startswith("if a record is replaced")


@pytest.mark.parametrize(
    "strategy", [np.array([1.0, 0.5]), "blt:0.5:0.5", *nights.at_night("1,0.5")]
)
def test_strategies(strategy):
    row = {**ROW, "steps_per_epoch": 4, "epochs": 2, "strategy": strategy}
    row["sampling"] = ""
    found = one(row, "epsilon")
    event = ext.MatrixAllocationEvent((1.0, 0.5), 1.0, 4, 2)
    if isinstance(strategy, str) and strategy.startswith("blt"):
        event = ext.MatrixAllocationEvent.from_buffered_toeplitz(
            [0.5], [0.5], 1.0, 4, 2
        )
    bounds = ext.PLDAccountant().compose(event).get_epsilon_bounds(1e-6)
    assert (found["epsilon_lower"], found["epsilon_upper"]) == bounds


@pytest.mark.parametrize(
    ("changes", "results", "note"),
    [
        ({"fpr": 2}, ["risks"], "fpr must be in [0, 1]. Found 2"),
        ({"colour": "red", "group_sise": 16}, ["epsilon"], "write group_size if that"),
        ({"delta": ""}, ["epsilon"], "delta must be given."),
        ({"sampling": ""}, ["epsilon"], "sampling must be one of random-allocation, p"),
    ],
)
def test_a_row_that_is_wrong_says_why_and_others_go_on(changes, results, note):
    wrong, right = {**ROW, **changes}, {**ROW, "run_name": "a"}
    found = list(sweep.sweep([wrong, right], Inline(), results))
    by_name = {row.get("run_name"): row for row in found}
    assert note in by_name[None]["note"]
    assert by_name["a"]["note"] == ""
    for name in sweep.columns_of(results)[:-2]:
        assert by_name[None][name] is None and by_name["a"][name] is not None


class Failing(Inline):
    """The third row fails."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def submit(self, fn, /, *args, **kwargs):
        future = super().submit(fn, *args, **kwargs)
        if self.submitted == 3:
            future = futures.Future()
            future.set_exception(self.error)
        return future


class TestFile:
    def test_rows_of_python_values_are_resumed_by_what_they_say(self, tmp_path):
        path, told = tmp_path / "table.csv", []
        grid = [
            {**ROW, "noise_multiplier": noise, "run_name": name, "group_size": None}
            for noise in (1.5, np.float64(2.0))
            for name in ("a", 7, math.nan)
        ]

        def go():
            return sweep.sweep_to_file(
                grid, path, Inline(), progress=lambda *counts: told.append(counts)
            )

        first = go()
        assert (first.rows, first.kept, first.added) == (6, 0, 6)
        assert (first.without_bounds, first.seconds > 0) == (0, True)
        assert told == [(number, 6) for number in range(7)]
        with path.open(newline="") as file:
            found = list(csv.DictReader(file))
        names = sorted((row["noise_multiplier"], row["run_name"]) for row in found)
        assert names == sorted((x, y) for x in ("1.5", "2.0") for y in ("", "7", "a"))
        assert {row["group_size"] for row in found} == {""}
        lines = path.read_bytes()
        assert (go().kept, go().added) == (6, 0)
        assert path.read_bytes() == lines

    def test_an_executor_that_breaks_leaves_what_was_found(self, tmp_path):
        path = tmp_path / "table.csv"
        with pytest.raises(futures.BrokenExecutor):
            sweep.sweep_to_file(rows(4), path, Failing(futures.BrokenExecutor()))
        summary = sweep.sweep_to_file(rows(4), path, Inline())
        assert summary.kept + summary.added == 4
        assert path.read_text().count("\n") == 5


@pytest.mark.parametrize(
    "name",
    ["run_name", "seed", "model", "dataset", "learning_rate", "clip", "", "comment"],
)
def test_names_of_own_columns(name):
    sweep.check_columns([*ROW, name])


def test_no_column_of_a_run_is_taken_for_another():
    needed = [name for name in sweep.COLUMNS if name != "noise_multiplier"]
    sweep.check_columns(needed, ["noise", "risks", "epsilon"])
    for name in sweep.COLUMNS:
        for misspelt in (name.upper(), f" {name}", name.replace("_", " "), f"{name}s"):
            if misspelt != name:
                with pytest.raises(ValueError, match=f"; write {name} if that"):
                    sweep.check_columns([misspelt], ["noise", "risks"])


def test_a_lost_row_has_a_reason():
    found = sweep.sweep(rows(4), Failing(OSError("lost")))
    notes = {row["noise_multiplier"]: row["note"] for row in found}
    assert notes.pop(rows(4)[2]["noise_multiplier"]) == "failed: OSError: lost"
    assert list(notes.values()) == ["", "", ""]
