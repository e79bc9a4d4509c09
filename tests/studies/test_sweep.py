"""Sweeps: every row is there once, in order, whatever happens on the way."""

from concurrent import futures
import csv
import io
import multiprocessing
import threading
import time

import pytest
import sweep_oracles

from dp_accounting_ext.studies import sweep
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.studies import worker_pool

HEADER = sweep_oracles.HEADER
RESULTS = sweep_oracles.RESULTS
without_times = sweep_oracles.without_times


@pytest.fixture
def files(tmp_path):
    class Files:
        grid = tmp_path / "grid.csv"
        output = tmp_path / "table.csv"

        def sweep(self, executor, **options):
            return sweep.sweep(self.grid, self.output, executor, **options)

        def rows(self):
            text = self.output.read_bytes().decode()
            return list(csv.DictReader(io.StringIO(text, newline="")))

    return Files()


@pytest.fixture(scope="module")
def table_of_twelve(tmp_path_factory):
    """The cells of an undisturbed sweep over small_grid(12), but for its times."""
    folder = tmp_path_factory.mktemp("twelve")
    grid, output = folder / "grid.csv", folder / "table.csv"
    grid.write_text(sweep_oracles.small_grid(12))
    sweep.sweep(grid, output, sweep_oracles.Inline())
    return without_times(output.read_bytes())


@pytest.fixture
def quick(monkeypatch):
    """Rows that cost nothing, some of them with text that needs quotes."""

    def fake(row):
        noise = float(row["noise_multiplier"])
        return sweep.Result(noise, 2 * noise, 0.5, 'a "note", with\nlines')

    monkeypatch.setattr(sweep, "bound_row", fake)


def test_rows_are_those_of_the_accountant(files):
    files.grid.write_text(
        "scheme,delta,noise_multiplier,steps,selected,epochs,group_size\n"
        ",1e-6,1.5,30,2,4,\n"
        "Poisson sampling,1e-6,1.5,30,2,4,3\n"
        "no amplification,1e-9,1.5,30,2,4,1\n"
    )
    summary = files.sweep(sweep_oracles.Inline())
    rows = files.rows()
    for row in rows:
        setting = training_run.TrainingRun(
            1.5, 30, 2, 4, float(row["delta"]), int(row["group_size"] or 1)
        )
        accountant = training_run.accountant(
            row["scheme"] or "random allocation", setting
        )
        bounds = accountant.get_epsilon_bounds(setting.delta)
        assert (float(row["epsilon_lower"]), float(row["epsilon_upper"])) == bounds
        assert float(row["seconds"]) >= 0
    assert "wide" in rows[0]["note"]
    assert (summary.num_rows, summary.num_kept) == (3, 0)
    assert summary.num_without_bounds == 0
    assert summary.seconds == pytest.approx(
        sum(float(row["seconds"]) for row in rows), abs=2e-3
    )


BAD_ROWS = [
    ("0,10,1,1,1e-6", "noise_multiplier must be positive and finite. Found 0.0."),
    ("nan,10,1,1,1e-6", "noise_multiplier must be a number. Found nan."),
    ("x,10,1,1,1e-6", "noise_multiplier must be a number. Found 'x'."),
    ("1,10,11,1,1e-6", "num_selected must be at most num_steps. Found 11 of 10."),
    ("1,10,1,1,1e400", "delta must be in (0, 1). Found inf."),
    ("1,10,1,x,1e-6", "epochs must be a number. Found 'x'."),
    ("1,10,1,1,1e-6,shuffling", "scheme must be one of"),
    ("1,10,1,1,1e-6,,1", ""),
    ("1,10,1,1,1e-6,,0", "group_size must be at least 1"),
    ("1,10,1,1,1e-6,no amplification,4000", "group_size must be at most 1024"),
]


def test_bad_settings_have_a_reason_and_stop_nothing(files):
    rows = [row + "," * (6 - row.count(",")) for row, _ in BAD_ROWS]
    files.grid.write_text("\n".join([f"{HEADER},scheme,group_size", *rows]) + "\n")
    summary = files.sweep(sweep_oracles.Inline())
    assert summary.num_without_bounds == len(BAD_ROWS) - 1
    for row, (_, reason) in zip(files.rows(), BAD_ROWS, strict=True):
        if reason:
            assert row["epsilon_lower"] == row["epsilon_upper"] == ""
            assert row["note"].startswith(reason)
        else:
            assert float(row["epsilon_upper"]) > 0


@pytest.mark.parametrize("error", [MemoryError("no\nmore"), KeyError("inner")])
def test_a_setting_that_fails_has_a_reason(files, monkeypatch, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(sweep.comparison, "bracket", fail)
    files.grid.write_text(f"{HEADER}\n1,10,1,1,1e-6\n")
    files.sweep(sweep_oracles.Inline())
    (row,) = files.rows()
    assert row["note"].startswith(f"failed: {type(error).__name__}: ")
    assert row["epsilon_upper"] == ""


@pytest.mark.usefixtures("quick")
class TestResuming:
    def test_from_every_length_of_the_file(self, files):
        files.grid.write_text(sweep_oracles.small_grid(4))
        files.sweep(sweep_oracles.Inline())
        whole = files.output.read_bytes()
        lines = whole.splitlines(keepends=True)
        assert lines[0].decode() == f"{HEADER},{RESULTS}\n"
        for length in range(len(whole) + 1):
            files.output.write_bytes(whole[:length])
            executor = sweep_oracles.Inline()
            summary = files.sweep(executor)
            assert files.output.read_bytes() == whole
            kept = max(whole[:length].count(b"\n") - 1, 0)
            assert summary.num_kept == kept
            assert executor.submitted == 4 - kept

    def test_rows_that_are_there_are_kept_as_they_are(self, files):
        files.grid.write_text(sweep_oracles.small_grid(3))
        files.sweep(sweep_oracles.Inline())
        lines = files.output.read_bytes().splitlines(keepends=True)
        lines[1] = lines[1].replace(b",0.500,", b",12.345,")
        files.output.write_bytes(b"".join(lines[:2]) + b"1.143,5,1,1,1e-6,3")
        files.sweep(sweep_oracles.Inline())
        assert files.output.read_bytes() == b"".join(lines)

    def test_a_longer_grid_is_gone_on_with(self, files):
        files.grid.write_text(sweep_oracles.small_grid(3))
        files.sweep(sweep_oracles.Inline())
        before = files.output.read_bytes()
        files.grid.write_text(sweep_oracles.small_grid(6))
        assert files.sweep(sweep_oracles.Inline()).num_kept == 3
        assert files.output.read_bytes().startswith(before)
        assert len(files.rows()) == 6

    @pytest.mark.parametrize(
        ("content", "line"),
        [
            (b"a letter to my aunt", 1),
            (b"a letter\nto my aunt\n", 1),
            (f"{HEADER}\n".encode(), 1),
            (f"{HEADER},{RESULTS}\n9,5,1,1,1e-6,1,2,0.1,\n".encode(), 2),
            (f"{HEADER},{RESULTS}\n1.000,5,1,1,1e-6,1,2,0.1\n".encode(), 2),
            (f"{HEADER},{RESULTS}\n\xff\n".encode("latin-1"), 2),
            (f"{HEADER},{RESULTS}\r\n".encode(), 1),
            (
                f"{HEADER},{RESULTS}\n1.000,5,1,1,1e-6,1,2,0.1,\n\n".encode(),
                3,
            ),
        ],
    )
    def test_what_is_no_table_of_the_grid_is_left_alone(self, files, content, line):
        files.grid.write_text(sweep_oracles.small_grid(1))
        files.output.write_bytes(content)
        with pytest.raises(ValueError, match=rf"whose line {line} is of something"):
            files.sweep(sweep_oracles.Inline())
        assert files.output.read_bytes() == content

    def test_a_malformed_grid_writes_nothing(self, files):
        files.grid.write_text("steps\n1\n")
        with pytest.raises(ValueError, match=r"grid must have a column"):
            files.sweep(sweep_oracles.Inline())
        assert not files.output.exists()

    def test_a_grid_is_no_output(self, files):
        files.grid.write_text(sweep_oracles.small_grid(2))
        files.output = files.grid
        with pytest.raises(ValueError, match=r"output must be absent, or a table"):
            files.sweep(sweep_oracles.Inline())
        assert files.grid.read_text() == sweep_oracles.small_grid(2)


@pytest.mark.usefixtures("quick")
class TestExecutors:
    def test_only_so_many_rows_are_in_flight(self, files):
        waiting, most = [0], [0]
        lock = threading.Lock()

        class Counting(futures.ThreadPoolExecutor):
            def submit(self, fn, /, *args, **kwargs):
                with lock:
                    waiting[0] += 1
                    most[0] = max(most[0], waiting[0])
                return super().submit(fn, *args, **kwargs)

        def written(done, rows):
            waiting[0] -= 1

        files.grid.write_text(sweep_oracles.small_grid(50))
        with Counting(3) as executor:
            files.sweep(executor, in_flight=8, progress=written)
        assert most[0] <= 8
        assert len(files.rows()) == 50

    def test_results_out_of_order_are_written_in_order(self, files, monkeypatch):
        ordinary = sweep.bound_row

        def slow_at_times(row):
            time.sleep(0.02 * (float(row["noise_multiplier"]) < 1.3))
            return ordinary(row)

        monkeypatch.setattr(sweep, "bound_row", slow_at_times)
        files.grid.write_text(sweep_oracles.small_grid(12))
        calls = []
        with futures.ThreadPoolExecutor(4) as executor:
            files.sweep(executor, progress=lambda *call: calls.append(call))
        noises = [row["noise_multiplier"] for row in files.rows()]
        assert noises == [f"{1 + i / 7:.3f}" for i in range(12)]
        assert calls == [(i + 1, 12) for i in range(12)]

    def test_a_worker_lost_for_good_is_a_reason_and_stops_nothing(self, files):
        class Losing(sweep_oracles.Inline):
            def submit(self, fn, /, *args, **kwargs):
                future = super().submit(fn, *args, **kwargs)
                if self.submitted == 2:
                    future = futures.Future()
                    error = worker_pool.WorkerKilledError("its worker was killed twice")
                    future.set_exception(error)
                return future

        files.grid.write_text(sweep_oracles.small_grid(4))
        assert files.sweep(Losing()).num_without_bounds == 1
        notes = [row["note"] for row in files.rows()]
        assert notes[1] == "failed: WorkerKilledError: its worker was killed twice"
        assert all(note.startswith("a ") for note in [notes[0], *notes[2:]])

    @pytest.mark.parametrize(
        "error", [futures.BrokenExecutor("all of it"), futures.CancelledError()]
    )
    def test_a_broken_executor_is_told_and_another_goes_on(self, files, error):
        class Breaking(sweep_oracles.Inline):
            def submit(self, fn, /, *args, **kwargs):
                future = super().submit(fn, *args, **kwargs)
                if self.submitted > 2:
                    future = futures.Future()
                    future.set_exception(error)
                return future

        files.grid.write_text(sweep_oracles.small_grid(4))
        with pytest.raises(type(error)):
            files.sweep(Breaking())
        assert len(files.rows()) == 2
        assert files.sweep(sweep_oracles.Inline()).num_kept == 2
        assert len(files.rows()) == 4


@pytest.mark.slow
class TestProcesses:
    @pytest.fixture
    def expected(self, files, table_of_twelve):
        files.grid.write_text(sweep_oracles.small_grid(12))
        return table_of_twelve

    def test_workers_are_killed_and_no_row_is_lost(self, files, expected):
        killed = []
        with worker_pool.WorkerPool(2) as pool:

            def kill(done, rows):
                if done == 3:
                    victims = multiprocessing.active_children()
                    victims[0].kill()
                    killed.append(victims[0].pid)

            files.sweep(pool, in_flight=3, progress=kill)
        assert killed
        assert without_times(files.output.read_bytes()) == expected

    def test_a_pool_of_pythons_own_breaks_and_another_goes_on(self, files, expected):
        spawn = multiprocessing.get_context("spawn")

        def break_it(done, rows):
            if done == 3:
                pool.submit(sweep_oracles.die)

        with (
            pytest.raises(futures.BrokenExecutor),
            futures.ProcessPoolExecutor(1, mp_context=spawn) as pool,
        ):
            files.sweep(pool, in_flight=4, progress=break_it)
        with futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
            assert files.sweep(pool).num_kept >= 3
        assert without_times(files.output.read_bytes()) == expected

    def test_a_dask_cluster_loses_a_worker_and_no_row(self, files, expected, tmp_path):
        import distributed  # Slow, and needed here alone.

        killed = []

        def kill(done, rows):
            if done == 3:
                executor.submit(sweep_oracles.die_unless_there, tmp_path / "once")
                killed.append(done)

        with (
            distributed.LocalCluster(
                n_workers=1,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=60,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            executor = client.get_executor(retries=5)
            files.sweep(executor, in_flight=8, progress=kill)
        assert killed
        assert without_times(files.output.read_bytes()) == expected
