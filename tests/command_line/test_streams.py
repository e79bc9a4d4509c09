"""Output that nobody reads, or that has no room."""

import os
import subprocess
import sys

import pytest

COMPARE = "compare --noise-multiplier 2 --steps-per-epoch 5 --delta 1e-6"
COMPARE += " --sampling no-amplification"
pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has no sh")


def shell(line):
    command = line.replace("$command", f"{sys.executable} -m dp_accounting_ext")
    return subprocess.run(["sh", "-c", command], capture_output=True)


@pytest.mark.nightly
def test_a_reader_who_leaves():
    """Who has left before the first letter, so that no write can succeed."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "dp_accounting_ext", "compare", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_room(tmp_path):
    done = shell(f"ulimit -f 0; $command {COMPARE} > {tmp_path / 'full'}")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"File too large" in done.stderr


@pytest.mark.nightly
def test_closed_streams():
    done = shell("$command compare --steps-per-epoch x >&- 2>&-")
    assert done.returncode == 2
    assert done.stdout == done.stderr == b""
