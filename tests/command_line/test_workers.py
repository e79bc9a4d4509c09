"""A pool of processes that leaves none behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dp_accounting_ext.command_line import workers


def test_results_and_errors_come_back_from_other_processes():
    with workers.Workers(1) as pool:
        results = [pool.submit(pow, base, 2) for base in range(20)]
        assert [result.result() for result in results] == [b * b for b in range(20)]
        with pytest.raises(ValueError, match=r"invalid literal"):
            pool.submit(int, "x").result()
        assert pool.submit(os.getpid).result() != os.getpid()


def test_an_error_ends_it_at_once():
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), workers.Workers(1) as pool:
        pool.submit(time.sleep, 0).result()
        for _ in range(3):
            pool.submit(time.sleep, 600)
        raise KeyboardInterrupt
    assert time.monotonic() - begin < 60


PARENT = """
import os
import time
from dp_accounting_ext.command_line import workers
if __name__ == "__main__":
    pool = workers.Workers(2)
    print(pool.submit(os.getpid).result(), flush=True)
    busy = [pool.submit(time.sleep, 3) for _ in range(2)]
    time.sleep(600)
"""


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGKILL")
def test_workers_end_with_a_parent_that_is_killed_and_what_they_are_at():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    worker = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 60
    while is_running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert parent.communicate() == ("", "")


def is_running(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
