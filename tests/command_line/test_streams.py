"""Output that nobody reads, that has no room, or lacks letters."""

import os
import subprocess
import sys

import pytest

COMPARE = "compare --noise-multiplier 2 --steps-per-epoch 5 --delta 1e-6"
pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has no sh")


def shell(line, **environment):
    command = line.replace("$command", f"{sys.executable} -m dp_accounting_ext")
    return subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("arguments", [COMPARE, "compare --help"])
def test_a_reader_who_leaves(arguments):
    """Who has left before the first letter, so that no write can succeed."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "dp_accounting_ext", *arguments.split()],
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("arguments", [COMPARE, "--help"])
def test_no_room(arguments, tmp_path):
    done = shell(f"ulimit -f 0; $command {arguments} > {tmp_path / 'full'}")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"File too large" in done.stderr


@pytest.mark.parametrize(
    "arguments", [COMPARE, "compare --steps-per-epoch x", "--help"]
)
def test_closed_streams(arguments):
    done = shell(f"$command {arguments} >&- 2>&-")
    assert done.returncode in (0, 2)
    assert done.stdout == done.stderr == b""


def test_letters_that_the_terminal_lacks():
    done = shell(f"$command {COMPARE}", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stderr == b""
    assert b"random allocation" in done.stdout


def test_bad_input_in_a_shell():
    done = shell("$command compare --steps-per-epoch 5 --delta 1 --noise-multiplier 1")
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr == (
        b"dp-accounting-ext compare: error: --delta must be in (0, 1). Found 1.0.\n"
    )
