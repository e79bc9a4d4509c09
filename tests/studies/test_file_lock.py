"""A lock holds while its process lives, and no longer."""

import errno
import os
import subprocess
import sys

import pytest

from dp_accounting_ext.studies import file_lock

HOLDER = """
import sys, time
from dp_accounting_ext.studies import file_lock
file = open(sys.argv[1], "ab")
print(file_lock.take(file), flush=True)
time.sleep(60)
"""


def test_a_second_one_is_told(tmp_path):
    path = tmp_path / "table.csv"
    with open(path, "ab") as first, open(path, "ab") as second:
        assert file_lock.take(first)
        assert not file_lock.take(second)
        assert not file_lock.take(second)
    with open(path, "ab") as third:
        assert file_lock.take(third)
    assert os.listdir(tmp_path) == ["table.csv"]


def test_a_crash_leaves_no_lock(tmp_path):
    path = tmp_path / "table.csv"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "True\n"
        with open(path, "ab") as file:
            assert not file_lock.take(file)
            holder.kill()
            holder.wait()
            assert file_lock.take(file)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
def test_a_file_system_without_locks_is_trusted(tmp_path, monkeypatch):
    def refuse(file, how):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    with open(tmp_path / "table.csv", "ab") as file:
        assert file_lock.take(file)
