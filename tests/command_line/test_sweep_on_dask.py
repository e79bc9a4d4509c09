"""A sweep on two Dask workers, one of which dies for good."""

import contextlib
import csv
import signal
import subprocess
import sys
import threading
import time

import command_runner
import pytest
import sweep_oracles

from dp_accounting_ext.studies import sweep

ROWS, PATIENCE = 20, 160
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL"),
]


def grid():
    """Rows of one run each, or of two, which have only their labels to tell."""
    return [
        {
            "run_name": f"run {number}",
            "noise_multiplier": repr(1 + number // 2 / 100),
            "steps_per_epoch": "5",
            "batches_per_record": "1",
            "delta": "1e-6",
            "sampling": "random-allocation",
            "seed": str(number % 7),
        }
        for number in range(ROWS)
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


def test_a_sweep_ends_though_a_worker_is_killed(tmp_path, cluster, capsys, monkeypatch):
    """Its rows have made-up bounds; one with its true bounds is computed first."""
    address, client, workers = cluster
    asked = grid()[0], ["epsilon"]
    far = client.get_executor().submit(sweep.bound_row, *asked).result(PATIENCE)
    near = sweep.bound_row(*asked)
    assert far["epsilon_upper"] == near["epsilon_upper"] > near["epsilon_lower"] > 0
    path, table = tmp_path / "grid.csv", tmp_path / "table.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, grid()[0])
        writer.writeheader()
        writer.writerows(grid())

    def kill_a_worker():
        deadline = time.monotonic() + PATIENCE
        while not table.exists() or table.read_bytes().count(b"\n") <= ROWS // 3:
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
    assert f": 0 rows kept, {ROWS} added" in out
    with table.open(newline="") as file:
        found = {row["run_name"]: row for row in csv.DictReader(file)}
    assert len(found) == ROWS
    for row in grid():
        upper = sweep_oracles.quick_row(row, ["epsilon"])["epsilon_upper"]
        assert float(found[row["run_name"]]["epsilon_upper"]) == upper
        assert found[row["run_name"]]["seed"] == row["seed"]
