"""sweep as a shell user meets it: started, killed, interrupted, resumed; on Dask."""

import contextlib
import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import command_runner
from command_runner import run
import pytest
import sweep_oracles

from dp_accounting_ext.command_line import workers
from dp_accounting_ext.studies import sweep

posix = pytest.mark.skipif(
    os.name != "posix", reason="Windows has neither these signals nor pty"
)
ROWS, BAD = 14, 2
LONG = 40  # Rows of a sweep that is stopped.
RESULTS = sweep.columns_of(["epsilon"])
HEADER = f"{sweep_oracles.HEADER},{','.join(RESULTS)}\n"


@pytest.fixture
def paths(tmp_path):
    grid, output = tmp_path / "grid.csv", tmp_path / "table.csv"
    grid.write_text(sweep_oracles.small_grid(ROWS))
    return grid, output


def table(output):
    """The rows of a table but for their times, each of which must be a number."""
    rows = list(csv.reader(io.StringIO(output.read_bytes().decode(), newline="")))
    assert all(float(row[-2]) >= 0 for row in rows[1:])
    return sorted([*row[:-2], row[-1]] for row in rows)


def expected_in(folder, number=ROWS):
    """Returns the table of so many rows, as `sweep.bound_row` bounds them now."""
    output = folder / "table.csv"
    rows = csv.DictReader(io.StringIO(sweep_oracles.small_grid(number)))
    with output.open("w", newline="") as file:
        file.write(HEADER)
        for row in sweep.sweep(rows, sweep_oracles.Inline()):
            csv.writer(file).writerow(row.values())
    return table(output)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return expected_in(tmp_path_factory.mktemp("expected"))


def heed_interrupts():
    """A shell without job control starts what runs in the background deaf to them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(paths, number):
    grid, output = map(str, paths)
    options = ["--workers", str(number), "--grid", grid, "--output", output]
    return subprocess.Popen(
        [*sweep_oracles.QUICK_COMMAND, "sweep", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=sweep_oracles.ENVIRONMENT,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )


def num_rows(output):
    return output.read_bytes().count(b"\n") - 1 if output.exists() else 0


def wait_for_rows(process, output, count):
    deadline = time.monotonic() + 300
    while num_rows(output) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def stop(paths, number, rows, way):
    """Returns what a sweep that is stopped after some more rows ends with.

    Under load it may be through before. It is then started again from the same file.
    """
    before = paths[1].read_bytes() if paths[1].exists() else b""
    rows += num_rows(paths[1])
    for _ in range(20):
        process = start(paths, number)
        wait_for_rows(process, paths[1], rows)
        way(process)
        out, err = process.communicate(timeout=60)
        if process.returncode != 1:
            break
        paths[1].write_bytes(before)
    return process.returncode, out, err


def interrupt(paths, way, number):
    ended = stop(paths, number, 2, lambda process: way(process.pid, signal.SIGINT))
    error = "dp-accounting-ext sweep: error: interrupted; run it again to go on.\n"
    assert ended == (130, "", error)


def kill(paths, rows, chance):
    def soon(process):
        time.sleep(chance.uniform(0, 0.05))
        process.kill()

    status, _, _ = stop(paths, 1, rows, soon)
    assert status == -signal.SIGKILL


@pytest.mark.nightly
@posix
def test_killed_and_interrupted_and_resumed(capsys, monkeypatch, paths, tmp_path):
    """A terminal's Ctrl-C goes to the workers, too; `kill -INT` does not."""
    monkeypatch.setattr(sweep, "bound_row", sweep_oracles.quick_row)
    (tmp_path / "whole").mkdir()
    expected = expected_in(tmp_path / "whole", LONG)
    paths[0].write_text(sweep_oracles.small_grid(LONG))
    chance = random.Random(20261121)
    kill(paths, 1, chance)
    interrupt(paths, os.kill, number=1)
    interrupt(paths, os.killpg, number=2)
    done = [row for row in table(paths[1]) if len(row) == 9 and row[-3]]
    monkeypatch.setattr(workers, "Workers", sweep_oracles.Inline)
    status, out, err = run(capsys, f"sweep --grid {paths[0]} --output {paths[1]}")
    assert (status, err) == (1, "")  # Some rows are bad.
    assert f"{len(done) - 1} rows kept" in out
    assert table(paths[1]) == expected


@posix
def test_a_row_that_kills_its_worker_takes_no_other_with_it(monkeypatch):
    monkeypatch.setattr(sweep, "bound_row", sweep_oracles.deadly_row)
    rows = list(csv.DictReader(io.StringIO(sweep_oracles.small_grid(3))))
    with workers.Workers(1) as pool:
        found = list(sweep.sweep(rows, pool))
    notes = {row["noise_multiplier"]: row["note"] for row in found}
    assert len(found) == len(notes) == 3
    assert notes.pop("1.143").endswith("its worker was killed, as for want of memory")
    assert set(notes.values()) == {""}


class TestInThisProcess:
    @pytest.fixture(autouse=True)
    def _inline(self, monkeypatch):
        monkeypatch.setattr(workers, "Workers", sweep_oracles.Inline)

    def sweep(self, capsys, paths, rest="--json"):
        grid, output = paths
        return run(capsys, f"sweep --grid {grid} --output {output} {rest}")

    def counts(self, capsys, paths):
        found = json.loads(self.sweep(capsys, paths)[1])
        return found["kept"], found["added"], found["without_bounds"]

    def test_one_run_and_again(self, capsys, paths, expected):
        status, out, err = self.sweep(capsys, paths, "")
        assert (status, err) == (1, "")
        assert f"0 rows kept, {ROWS} added" in out and f"{BAD} of these without" in out
        assert table(paths[1]) == expected
        assert self.counts(capsys, paths) == (ROWS - BAD, BAD, BAD)
        assert table(paths[1]) == expected

    def test_from_every_length_of_the_file(self, capsys, paths):
        paths[0].write_text(sweep_oracles.small_grid(2))
        self.sweep(capsys, paths)
        whole, rows = paths[1].read_bytes(), table(paths[1])
        for length in range(0, len(whole) + 1, 7):
            paths[1].write_bytes(whole[:length])
            kept = max(whole[:length].count(b"\n") - 1, 0)
            assert self.counts(capsys, paths) == (kept, 2 - kept, 0)
            assert table(paths[1]) == rows
        assert sorted(path.name for path in paths[0].parent.iterdir()) == [
            "grid.csv",
            "table.csv",
        ]

    def test_a_grid_from_a_spreadsheet(self, capsys, paths):
        paths[0].write_bytes(
            "who;noise_multiplier;steps_per_epoch;delta;sampling\r\n"
            "Zoë;1,5;5;1e-6;shuffled\r\n".encode("cp1252")
        )
        status, _, err = self.sweep(capsys, paths, "--encoding cp1252")
        assert (status, err) == (0, "")
        assert (
            paths[1]
            .read_text(encoding="utf-8")
            .splitlines()[1]
            .startswith("Zoë,1.5,5,1e-6,shuffled,")
        )

    def test_noise_and_risks_from_the_command(self, capsys, paths):
        paths[0].write_text(
            "steps_per_epoch,delta,epsilon,fpr,sampling\n5,1e-6,2,0.01,poisson-sampling\n"
        )
        status, _, err = self.sweep(capsys, paths, "--results risks noise")
        assert (status, err) == (0, "")
        (row,) = csv.DictReader(paths[1].read_text().splitlines())
        assert [*row][5:] == [*sweep.columns_of(["noise", "risks"])]
        assert 0.01 < float(row["tpr_lower"]) <= float(row["tpr_upper"]) < 1
        assert float(row["noise_multiplier"]) > 1


DASK_ROWS, PATIENCE = 20, 160


def dask_grid():
    """Rows of runs, two of each, which have only their labels to tell."""
    row = next(csv.DictReader(io.StringIO(sweep_oracles.small_grid(1))))
    return [
        {**row, "noise_multiplier": str(1 + number // 2), "run_name": str(number)}
        for number in range(DASK_ROWS)
    ]


@pytest.fixture
def cluster():
    """A scheduler and two workers, each a process of its own."""
    import distributed  # Slow, and needed here alone.

    with (
        contextlib.ExitStack() as stack,
        distributed.LocalCluster(
            n_workers=0, dashboard_address=None, silence_logs=60
        ) as scheduler,
        distributed.Client(scheduler) as client,
    ):
        words = [sys.executable, "-m", "distributed.cli.dask_worker"]
        words += [scheduler.scheduler_address, "--no-nanny", "--nthreads", "1"]
        workers = []
        for _ in range(2):
            worker = subprocess.Popen(
                [*words, "--no-dashboard"],
                stderr=subprocess.DEVNULL,
                env=sweep_oracles.ENVIRONMENT,
            )
            stack.callback(worker.wait)
            stack.callback(worker.kill)
            workers.append(worker)
        client.wait_for_workers(2, timeout=PATIENCE)
        yield scheduler.scheduler_address, client, workers


@pytest.mark.nightly
@posix
def test_a_sweep_ends_though_a_worker_is_killed(tmp_path, cluster, capsys, monkeypatch):
    """The cluster computes one row truly, and then many with bounds that take no time.

    All rows are in the table, although a worker is killed after a third of them.
    """
    address, client, workers = cluster
    asked = dask_grid()[0], ["epsilon"]
    far = client.get_executor().submit(sweep.bound_row, *asked).result(PATIENCE)
    near = sweep.bound_row(*asked)
    assert far["epsilon_upper"] == near["epsilon_upper"] > near["epsilon_lower"] > 0
    path, table = tmp_path / "grid.csv", tmp_path / "table.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, dask_grid()[0])
        writer.writeheader()
        writer.writerows(dask_grid())

    def kill_a_worker():
        deadline = time.monotonic() + PATIENCE
        while not table.exists() or table.read_bytes().count(b"\n") <= DASK_ROWS // 3:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        workers[0].kill()

    monkeypatch.setattr(sweep, "bound_row", sweep_oracles.quick_row)
    killer = threading.Thread(target=kill_a_worker, daemon=True)
    killer.start()
    words = f"sweep --scheduler {address} --grid {path} --output {table}"
    status, out, err = command_runner.run(capsys, words)
    killer.join(PATIENCE)
    assert (status, err, workers[0].wait(PATIENCE)) == (0, "", -signal.SIGKILL)
    assert f": 0 rows kept, {DASK_ROWS} added" in out
    with table.open(newline="") as file:
        found = [
            (row["run_name"], row["epsilon_upper"]) for row in csv.DictReader(file)
        ]
    expected = [(str(n), str(2 / (1 + n // 2))) for n in range(DASK_ROWS)]
    assert sorted(found) == sorted(expected)
