"""What all subcommands share: options, help, what is printed, streams and workers."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time

from command_runner import SUBCOMMANDS
from command_runner import help_of
from hypothesis import given
from hypothesis import strategies as st
import pytest

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import text
from dp_accounting_ext.command_line import workers
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run


@pytest.fixture
def whole():
    whole = parser.Parser(prog="prog", allow_abbrev=False)
    commands = whole.add_subparsers(parser_class=parser.Parser)
    run = "train", lambda options: ({}, ""), "trains", "", "--delta D"
    parser.add_run(parser.add_command(commands, *run), "noise_multiplier")
    return whole


def test_the_options_of_a_training_have_defaults(whole):
    options = whole.parse_args(["train", "--steps-per-epoch", "7", "--delta", "1e-6"])
    assert (options.steps_per_epoch, options.delta) == (7, 1e-6)
    assert (options.batches_per_record, options.group_size) == (1, 1)
    assert options.json is False
    assert options.prog == "prog train"
    assert options.run(options) == ({}, "")
    setting = parser.training_run(options, delta=1e-9)
    assert "noise_multiplier" not in vars(options)
    assert setting == training_run.TrainingRun(None, 7, delta=1e-9)


@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("steps_per_epoch must be …", "--steps-per-epoch must be …"),
        ("dataset_size must be …", "--dataset-size must be …"),
        ("delta is small at this delta.", "--delta is small at this delta."),
        ("mu must be …; see num_epochs", "mu must be …; see num_epochs"),
        ("mu must be …. Found 'dataset_size'.", "mu must be …. Found 'dataset_size'."),
    ],
)
def test_messages_name_what_was_typed(message, typed):
    assert (
        parser.as_typed(message, ["steps_per_epoch", "dataset_size", "delta"]) == typed
    )


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_help_begins_with_its_purpose(subcommand):
    purpose = " ".join(help_of(subcommand).split("\n\n")[1].split())
    assert purpose.endswith(".") and "example" not in purpose
    assert purpose[1:-1] in " ".join(help_of("").split())
    assert f"python -m dp_accounting_ext {subcommand} " in help_of(subcommand)


@pytest.mark.parametrize("subcommand", ["", *SUBCOMMANDS])
def test_help_fits_a_terminal(monkeypatch, subcommand):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, help_of(subcommand).splitlines())) <= 80


COMPARE = "compare --noise-multiplier 2 --steps-per-epoch 5 --delta 1e-6"
COMPARE += " --sampling no-amplification"
posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no sh")


def shell(line):
    command = line.replace("$command", f"{sys.executable} -m dp_accounting_ext")
    return subprocess.run(["sh", "-c", command], capture_output=True)


@pytest.mark.nightly
@posix
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


@posix
def test_no_room(tmp_path):
    done = shell(f"ulimit -f 0; $command {COMPARE} > {tmp_path / 'full'}")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"File too large" in done.stderr


@pytest.mark.nightly
@posix
def test_closed_streams():
    done = shell("$command compare --steps-per-epoch x >&- 2>&-")
    assert done.returncode == 2
    assert done.stdout == done.stderr == b""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_until(terminal, words):
    deadline = time.monotonic() + 60
    while words not in terminal.getvalue():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_terminal_shows_one_line_that_is_gone_at_the_end(monkeypatch):
    monkeypatch.setattr(text.Progress.__init__, "__defaults__", (0.0,))
    with contextlib.redirect_stderr(Terminal()) as terminal:
        for number, each in enumerate(text.counted("ab", 2, "letters"), start=1):
            assert each == "ab"[number - 1]
            shown_until(terminal, f"{number - 1} of 2 letters, ")
    shown = terminal.getvalue()
    assert "\n" not in shown and "left" not in shown
    assert shown.endswith(f"\r{'':<79}\r")
    assert max(map(len, shown.split("\r"))) <= 79


def test_what_is_left_is_told_from_the_fifth_on(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    progress = text.Progress("settings")
    now += 30.0
    assert progress.line == "settings, 30 s"
    progress(4, 500)
    assert progress.line == "4 of 500 settings, 30 s"
    progress(10, 500)
    assert progress.line == "10 of 500 settings, 30 s, about 24 min left"
    progress(10, 40_000)
    assert progress.line.endswith(" left") and " h " in progress.line


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_what_is_no_terminal_shows_nothing(monkeypatch, stream):
    monkeypatch.setattr(text.Progress.__init__, "__defaults__", (0.0,))
    with contextlib.redirect_stderr(stream):
        assert list(text.counted("ab", 2, "letters")) == ["a", "b"]
    assert stream is None or stream.getvalue() == ""


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.recursive(NUMBERS | st.none(), st.lists, max_leaves=5))
def test_json_of_finite_numbers_is_read_back(value):
    assert json.loads(text.as_json({"value": value})) == {"value": value}


@given(st.text())
def test_a_complaint_is_one_line(message):
    with contextlib.redirect_stderr(io.StringIO()) as stream:
        text.complain("prog", message)
    assert len(stream.getvalue().splitlines()) == 1
    assert stream.getvalue().startswith("prog: error: ")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_letters_that_a_stream_lacks_are_replaced(encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with contextlib.redirect_stdout(stream):
        text.write("ε ≤ 1")
    assert stream.buffer.getvalue().decode(encoding).endswith(" 1\n")


def test_notes_are_below_their_rows_each_once():
    def row(note, lower, upper):
        return comparison.Row("one", "replace", 1, 1.0, 0.1, lower, upper, 0.5, note)

    long = "a reason that is long " * 6
    rows = [row(long, 1.0, 3.0), row("", 1.0, 1.0), row(long, None, None)]
    lines = text.table("title", ["sampling", "ε upper"], rows).splitlines()
    assert lines[:2] == ["title", ""]
    assert lines[3:7] == [
        "one                3  (1)",
        "one                1",
        "one       none known  (1)",
        "",
    ]
    assert lines[7].startswith("(1) a reason")
    assert "".join(lines).count("reason") == 6
    plain = text.table("title", ["sampling", "ε upper"], rows[1:2])
    assert plain.splitlines()[-1] == "one             1"


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
    for first in [pool.submit(time.sleep, 0.2) for _ in range(2)]:
        first.result()  # Both workers are there: none is being started when it dies.
    print(pool.submit(os.getpid).result(), flush=True)
    busy = [pool.submit(time.sleep, 3) for _ in range(2)]
    time.sleep(600)
"""


@posix
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


def test_each_command_is_on_the_line_of_what_it_does():
    lines = help_of("").partition("commands:")[2].splitlines()
    assert not [line for line in lines if line.strip() in SUBCOMMANDS]
