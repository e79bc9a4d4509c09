"""Sweeps: every row is there once, whatever happens on the way."""

from concurrent import futures
import math
import threading

import pytest
import sweep_oracles

from dp_accounting_ext.studies import sweep
from dp_accounting_ext.studies import training_run

Inline = sweep_oracles.Inline
ROW = {"noise_multiplier": "1", "steps_per_epoch": "10", "delta": "1e-6"}


def rows(count):
    return [{**ROW, "noise_multiplier": 1 + i / 7} for i in range(count)]


@pytest.fixture
def quick(monkeypatch):
    def fake(row):
        noise = float(row["noise_multiplier"])
        return dict(zip(sweep.RESULTS, (noise, 2 * noise, 0.5, ""), strict=True))

    monkeypatch.setattr(sweep, "bound_row", fake)


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
    found = list(sweep.sweep(grid, Inline()))
    for row, given, run in zip(found, grid, runs, strict=True):
        assert sweep.run_of(given) == run
        assert list(row) == [*given, *sweep.RESULTS]
        bounds = run.accountant().get_epsilon_bounds(run.delta)
        assert (row["epsilon_lower"], row["epsilon_upper"]) == bounds
        assert row["seconds"] >= 0
    assert "wide" in found[0]["note"]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"noise_multiplier": "0"}, "noise_multiplier must be positive, from 1e-60"),
        ({"noise_multiplier": "x"}, "noise_multiplier must be a number. Found 'x'."),
        ({"noise_multiplier": ""}, "noise_multiplier must be given. Found it missing."),
        (
            {"batches_per_record": "11"},
            "batches_per_record must be at most steps_per_epoch. Fo",
        ),
        ({"steps_per_epoch": "1.5"}, "steps_per_epoch must be an integer. Found '1.5'"),
        ({"delta": "1e400"}, "delta must be in (0, 1). Found inf."),
        ({"sampling": "shuffling"}, "sampling must be one of"),
        ({"group_size": "4000", "sampling": "no-amplification"}, "group_size must be"),
        ({"colour": "red"}, "columns must be of noise_multiplier,"),
        ({"scheme": "shuffled"}, "columns must be of noise_multiplier,"),
    ],
)
def test_bad_settings_have_a_reason(cells, reason):
    (row,) = sweep.sweep([{**ROW, **cells}], Inline())
    assert row["epsilon_lower"] is row["epsilon_upper"] is None
    assert row["note"].startswith(reason)


@pytest.mark.parametrize("error", [MemoryError("no\nmore"), KeyError("inner")])
def test_a_setting_that_fails_has_a_reason_of_one_line(monkeypatch, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(sweep.comparison, "bracket", fail)
    (row,) = sweep.sweep([ROW], Inline())
    assert row["note"].startswith(f"failed: {type(error).__name__}: ")
    assert len(row["note"].splitlines()) == 1


@pytest.mark.usefixtures("quick")
class TestExecutors:
    def test_only_so_many_rows_are_in_flight(self):
        pending, most, lock = [0], [0], threading.Lock()

        class Counting(futures.ThreadPoolExecutor):
            def submit(self, fn, /, *args, **kwargs):
                with lock:
                    pending[0] += 1
                    most[0] = max(most[0], pending[0])
                return super().submit(fn, *args, **kwargs)

        with Counting(3) as executor:
            found = []
            for row in sweep.sweep(rows(50), executor, in_flight=8):
                pending[0] -= 1
                found.append(row)
        assert len(found) == 50 and most[0] <= 8

    def test_rows_come_as_soon_as_they_are_found(self, monkeypatch):
        ordinary, others = sweep.bound_row, threading.Event()

        def first_is_last(row):
            if row["noise_multiplier"] == 1:
                assert others.wait(60)
            return ordinary(row)

        monkeypatch.setattr(sweep, "bound_row", first_is_last)
        noises = []
        with futures.ThreadPoolExecutor(2) as executor:
            for row in sweep.sweep(rows(6), executor):
                noises.append(row["noise_multiplier"])
                if len(noises) == 5:
                    others.set()
        assert noises[-1] == 1
        assert sorted(noises) == [row["noise_multiplier"] for row in rows(6)]

    @pytest.mark.parametrize("error", [futures.BrokenExecutor(), OSError("lost")])
    def test_an_executor_that_breaks_is_told_and_a_lost_row_has_a_reason(self, error):
        class Failing(Inline):
            def submit(self, fn, /, *args, **kwargs):
                future = super().submit(fn, *args, **kwargs)
                if self.submitted == 3:
                    future = futures.Future()
                    future.set_exception(error)
                return future

        found = sweep.sweep(rows(4), Failing(), in_flight=1)
        if isinstance(error, futures.BrokenExecutor):
            assert [next(found), next(found)]
            with pytest.raises(futures.BrokenExecutor):
                next(found)
        else:
            notes = [row["note"] for row in found]
            assert notes == ["", "", "failed: OSError: lost", ""]

    def test_who_stops_early_leaves_nothing_behind(self):
        executor = futures.ThreadPoolExecutor(1)
        found = sweep.sweep(rows(500), executor, in_flight=100)
        next(found)
        found.close()
        executor.shutdown()


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
        for row in sweep.sweep(rows(12), executor, in_flight=8):
            found.append(row)
            if len(found) == 3:
                executor.submit(sweep_oracles.die_unless_there, tmp_path / "once")
    assert (tmp_path / "once").exists()
    expected = {row["noise_multiplier"]: row for row in sweep.sweep(rows(12), Inline())}
    assert len(found) == 12
    for row in found:
        again = expected[row["noise_multiplier"]]
        assert row["epsilon_upper"] == again["epsilon_upper"]
