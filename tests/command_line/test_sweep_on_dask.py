"""A sweep on two Dask workers, stopped and resumed twice; one worker dies for good.

SWEEP_ROWS=500 makes it as large as sweeps are.
"""

import contextlib
import csv
import os
import signal
import subprocess
import sys
import threading
import time

import command_runner
import pytest
import sweep_oracles

from dp_accounting_ext.studies import sweep

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGKILL"),
]
ROWS = int(os.environ.get("SWEEP_ROWS", "20"))
PATIENCE = 120 + 2 * ROWS


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


@pytest.fixture(scope="module")
def expected():
    rows = [{**row, **sweep_oracles.quick_row(row, ["epsilon"])} for row in grid()]
    return {row["run_name"]: row["epsilon_upper"] for row in rows}


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


def check(output, expected):
    with output.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert sorted(row["run_name"] for row in found) == sorted(expected)
    for row in found:
        assert float(row["epsilon_upper"]) == expected[row["run_name"]]
        assert row["seed"] == str(int(row["run_name"].split()[1]) % 7)
        assert row["note"] == ""


def wait_for(output, count, goes_on):
    deadline = time.monotonic() + PATIENCE
    while not output.exists() or output.read_bytes().count(b"\n") <= count:
        assert goes_on() and time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.nightly
def test_from_the_command(tmp_path, cluster, expected, capsys, monkeypatch):
    """Two sweeps are stopped. A third one ends though one of its workers is killed.

    The third one runs in this process. The rows of all three have made-up bounds, so a
    row with its true bounds is computed by a worker first.
    """
    address, client, workers = cluster
    asked = grid()[0], ["epsilon"]
    far = client.get_executor().submit(sweep.bound_row, *asked).result(PATIENCE)
    near = sweep.bound_row(*asked)
    assert far["epsilon_upper"] == near["epsilon_upper"] > near["epsilon_lower"] > 0
    paths = tmp_path / "grid.csv", tmp_path / "table.csv"
    with paths[0].open("w", newline="") as file:
        writer = csv.DictWriter(file, grid()[0])
        writer.writeheader()
        writer.writerows(grid())
    words = ["sweep", "--scheduler", address]
    words += ["--grid", str(paths[0]), "--output", str(paths[1])]
    for part, way in ((1, signal.SIGINT), (2, signal.SIGKILL)):
        process = subprocess.Popen(
            [*sweep_oracles.QUICK_COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=sweep_oracles.ENVIRONMENT,
            text=True,
        )
        wait_for(paths[1], part * ROWS // 5, lambda p=process: p.poll() is None)
        process.send_signal(way)
        _, err = process.communicate(timeout=PATIENCE)
        if way == signal.SIGINT and process.returncode != 0:
            assert process.returncode == 130
            assert err.endswith("error: interrupted; run it again to go on.\n")
            assert err.count("\n") == 1

    def kill_a_worker():
        wait_for(paths[1], 3 * ROWS // 5, lambda: True)
        workers[0].kill()

    monkeypatch.setattr(sweep, "bound_row", sweep_oracles.quick_row)
    killer = threading.Thread(target=kill_a_worker, daemon=True)
    killer.start()
    status, out, err = command_runner.run_split(capsys, words)
    killer.join(PATIENCE)
    assert (status, err, workers[0].wait(PATIENCE)) == (0, "", -signal.SIGKILL)
    assert "rows kept" in out and f": 0 rows kept, {ROWS} added" not in out
    check(paths[1], expected)
