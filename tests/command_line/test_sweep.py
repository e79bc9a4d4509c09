"""sweep as a shell user meets it: started, killed, interrupted, started again."""

import json
import os
import random
import signal
import subprocess
import sys
import time

from command_runner import run
import pytest
import sweep_oracles

from dp_accounting_ext.studies import sweep

without_times = sweep_oracles.without_times
posix = pytest.mark.skipif(
    os.name != "posix", reason="Windows has neither these signals nor pty"
)
ROWS = 14
PROG = "dp-accounting-ext sweep"


@pytest.fixture
def paths(tmp_path):
    grid, output = tmp_path / "grid.csv", tmp_path / "table.csv"
    grid.write_text(sweep_oracles.small_grid(ROWS))
    return grid, output


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    grid, output = folder / "grid.csv", folder / "table.csv"
    grid.write_text(sweep_oracles.small_grid(ROWS))
    sweep.sweep(grid, output, sweep_oracles.Inline())
    return without_times(output.read_bytes())


def start(paths, workers=1, stderr=subprocess.PIPE):
    grid, output = map(str, paths)
    command = [sys.executable, "-m", "dp_accounting_ext", "sweep"]
    return subprocess.Popen(
        [*command, "--workers", str(workers), "--grid", grid, "--output", output],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def wait_for_rows(process, output, count):
    deadline = time.monotonic() + 300
    while not output.exists() or output.read_bytes().count(b"\n") < count + 1:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.001)


def test_one_run(capsys, paths, expected):
    grid, output = paths
    command = f"sweep --workers 2 --grid {grid} --output {output} --json"
    status, out, err = run(capsys, command)
    assert (status, err) == (0, "")
    assert without_times(paths[1].read_bytes()) == expected
    summary = json.loads(out)
    assert summary["rows"] == summary["added"] == ROWS
    assert summary["kept"] == 0
    assert summary["without_bounds"] == ROWS // 5


def interrupt(paths, rows, way, workers):
    process = start(paths, workers)
    wait_for_rows(process, paths[1], rows)
    way(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == (
        "dp-accounting-ext sweep: error: interrupted; run it again to go on.\n"
    )
    assert paths[1].read_bytes().count(b"\n") < ROWS


def kill(paths, rows, chance):
    process = start(paths)
    wait_for_rows(process, paths[1], rows)
    time.sleep(chance.uniform(0, 0.05))
    process.kill()
    process.communicate()


@pytest.mark.slow
@posix
def test_killed_and_interrupted_and_resumed(paths, expected):
    """A terminal's Ctrl-C goes to the workers, too; `kill -INT` does not."""
    chance = random.Random(20261121)
    kill(paths, 0, chance)
    interrupt(paths, 2, os.kill, workers=1)
    interrupt(paths, 4, os.killpg, workers=2)
    kill(paths, 8, chance)
    before = paths[1].read_bytes()
    process = start(paths)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    whole = paths[1].read_bytes()
    kept = before[: before.rfind(b"\n") + 1]
    assert whole.startswith(kept)
    num_kept = kept.count(b"\n") - 1
    assert f"{num_kept} rows kept" in out
    assert without_times(whole) == expected


@posix
def test_progress_is_shown_on_a_terminal(paths):
    master, slave = os.openpty()
    paths[0].write_text(sweep_oracles.small_grid(3))
    process = start(paths, stderr=slave)
    out, _ = process.communicate(timeout=300)
    os.close(slave)
    shown = os.read(master, 10_000).decode()
    os.close(master)
    # The first while processes start, on a slow machine.
    assert "rows: 1 s" in shown or " of 3 rows" in shown
    assert "\n" not in shown
    assert "3 added" in out


class TestInThisProcess:
    @pytest.fixture(autouse=True)
    def _inline(self, monkeypatch):
        class Pool(sweep_oracles.Inline):
            def __init__(self, workers):
                super().__init__()

        monkeypatch.setattr("dp_accounting_ext.studies.worker_pool.WorkerPool", Pool)

    def sweep(self, capsys, paths, rest=""):
        grid, output = paths
        return run(capsys, f"sweep --grid {grid} --output {output} {rest}")

    def test_a_finished_table_is_kept(self, capsys, paths):
        paths[0].write_text(sweep_oracles.small_grid(2))
        self.sweep(capsys, paths)
        before = paths[1].read_bytes()
        status, out, _ = self.sweep(capsys, paths)
        assert status == 0
        assert "2 rows kept, 0 added" in out
        assert paths[1].read_bytes() == before

    @pytest.mark.parametrize(
        ("rest", "message"),
        [
            ("--workers 0", "--workers must be at least 1. Found 0"),
            ("--workers 5000", "--workers must be at most 1024. Found 5000"),
            ("--workers x", "--workers must be a whole number"),
            (
                "--grid nowhere.csv",
                "--grid must be a CSV file that can be read. Found 'now",
            ),
            ("--grid .", "directory"),
            ("--output .", "directory"),
            (
                "--output nowhere/table.csv",
                "--output must be a file, new or of this grid",
            ),
            ("--output /dev/null", "--output must be a file"),
        ],
    )
    def test_bad_input(self, capsys, paths, rest, message):
        status, out, err = self.sweep(capsys, paths, rest)
        assert (status, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1

    @pytest.mark.parametrize(
        "content", ["", "steps\n", "noise_multiplier,steps,selected,epochs,delta\n1\n"]
    )
    def test_a_malformed_grid(self, capsys, paths, content):
        paths[0].write_text(content)
        status, _, err = self.sweep(capsys, paths)
        assert status == 2
        assert "grid" in err
        assert not paths[1].exists()
