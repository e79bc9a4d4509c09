"""Sweeps: every row is there once, whatever happens on the way."""

from concurrent import futures
import math

import pytest
import sweep_oracles

from dp_accounting_ext.studies import sweep
from dp_accounting_ext.studies import training_run

Inline = sweep_oracles.Inline
ROW = {"noise_multiplier": "1", "steps_per_epoch": "10", "delta": "1e-6"}


def rows(count):
    return [{**ROW, "noise_multiplier": 1 + i / 7} for i in range(count)]


def test_rows_are_those_of_the_accountant():
    grid = [
        {
            **ROW,
            "sampling": "",
            "batches_per_record": "2",
            "epochs": "4",
            "group_size": "",
        },
        {**ROW, "sampling": "poisson-sampling", "epochs": 2.5, "group_size": 3},
        {"noise_multiplier": 2, "dataset_size": 90.0, "batch_size": 9, "delta": 1e-9},
        {**ROW, "sampling": "shuffled", "dataset_size": math.nan},
    ]
    runs = [
        training_run.TrainingRun(1, 10, 2, 4, 1e-6, 1, "random allocation"),
        training_run.TrainingRun(1, 10, 1, 2.5, 1e-6, 3, "Poisson sampling"),
        training_run.TrainingRun(
            2, delta=1e-9, dataset_size=90, batch_size=9, sampling="random allocation"
        ),
        training_run.TrainingRun(1, 10, delta=1e-6, sampling="shuffled"),
    ]
    assert len(list(sweep.sweep(grid, Inline()))) == len(grid)
    for given, run in zip(grid, runs, strict=True):
        (row,) = sweep.sweep([given], Inline())
        assert sweep.run_of(given) == run
        assert list(row) == [*given, *sweep.RESULTS]
        bounds = run.accountant().get_epsilon_bounds(run.delta)
        assert (row["epsilon_lower"], row["epsilon_upper"]) == bounds
        assert row["seconds"] >= 0
        assert ("wide" in row["note"]) == (given is grid[0])


@pytest.mark.parametrize("error", [futures.BrokenExecutor(), OSError("lost")])
def test_an_executor_that_breaks_is_told_and_a_lost_row_has_a_reason(error):
    class Failing(Inline):
        def submit(self, fn, /, *args, **kwargs):
            future = super().submit(fn, *args, **kwargs)
            if self.submitted == 3:
                future = futures.Future()
                future.set_exception(error)
            return future

    found = sweep.sweep(rows(4), Failing())
    if isinstance(error, futures.BrokenExecutor):
        with pytest.raises(futures.BrokenExecutor):
            list(found)
    else:
        notes = {row["noise_multiplier"]: row["note"] for row in found}
        assert notes.pop(rows(4)[2]["noise_multiplier"]) == "failed: OSError: lost"
        assert list(notes.values()) == ["", "", ""]


@pytest.mark.slow
def test_a_dask_cluster_loses_a_worker_and_no_row(tmp_path):
    import distributed  # Slow, and needed here alone.

    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=60
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor, found = client.get_executor(retries=5), []
        for row in sweep.sweep(rows(8), executor):
            found.append(row)
            if len(found) == 3:
                executor.submit(sweep_oracles.die_unless_there, tmp_path / "once")
    assert (tmp_path / "once").exists()
    expected = {row["noise_multiplier"]: row for row in sweep.sweep(rows(8), Inline())}
    assert len(found) == 8
    for row in found:
        again = expected[row["noise_multiplier"]]
        assert row["epsilon_upper"] == again["epsilon_upper"]
