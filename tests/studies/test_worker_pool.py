"""A pool of processes that outlives any of them."""

from concurrent import futures
import os
import signal
import subprocess
import sys
import time

import pytest
import sweep_oracles

from dp_accounting_ext.studies import worker_pool


@pytest.fixture(scope="module")
def pool():
    with worker_pool.WorkerPool(2) as pool:
        yield pool


def test_results_and_errors_come_back_from_other_processes(pool):
    results = [pool.submit(pow, base, 2) for base in range(20)]
    assert [result.result() for result in results] == [b * b for b in range(20)]
    with pytest.raises(ValueError, match=r"invalid literal"):
        pool.submit(int, "x").result()
    assert pool.submit(os.getpid).result() != os.getpid()


def test_what_kills_its_worker_twice_is_told_and_all_else_is_done(pool):
    before = [pool.submit(pow, 2, power) for power in range(5)]
    deadly = pool.submit(sweep_oracles.die)
    after = [pool.submit(pow, 3, power) for power in range(5)]
    with pytest.raises(worker_pool.WorkerKilledError, match=r"was killed twice"):
        deadly.result()
    assert [future.result() for future in before] == [2**p for p in range(5)]
    assert [future.result() for future in after] == [3**p for p in range(5)]


def test_what_is_killed_once_is_run_again_and_so_is_what_ran_beside_it(pool, tmp_path):
    beside = pool.submit(time.sleep, 1)
    deadly = pool.submit(sweep_oracles.die_unless_there, tmp_path / "once")
    assert (deadly.result(), beside.result()) == ("there", None)
    # Workers are shared again, and new ones are not started for every task.
    assert len({pool.submit(os.getpid).result() for _ in range(6)}) <= 2


def test_shutdown_without_waiting_is_at_once():
    pool = worker_pool.WorkerPool(1)
    pool.submit(time.sleep, 0).result()
    running = [pool.submit(time.sleep, 600) for _ in range(3)]
    begin = time.monotonic()
    pool.shutdown(wait=False, cancel_futures=True)
    for future in running:
        with pytest.raises((futures.CancelledError, worker_pool.WorkerKilledError)):
            future.result()
    assert time.monotonic() - begin < 60
    with pytest.raises(RuntimeError):
        pool.submit(pow, 2, 2)


PARENT = """
import os
import time
from dp_accounting_ext.studies import worker_pool
if __name__ == "__main__":
    pool = worker_pool.WorkerPool(2)
    print(pool.submit(os.getpid).result(), flush=True)
    busy = [pool.submit(time.sleep, 600) for _ in range(2)]
    time.sleep(600)
"""


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGKILL")
def test_workers_end_with_a_parent_that_is_killed():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # Python tells of semaphores that are left.
        text=True,
    )
    worker = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while is_running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
