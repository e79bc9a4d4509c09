"""A line that tells how far long work is, where someone may look at it."""

import io
import time

import pytest

from dp_accounting_ext.command_line import progress_line


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    return terminal


def test_time_left_is_that_of_what_was_found(monkeypatch):
    moments = iter([0.0, 3.0, 4.0, 6.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    progress = progress_line.Progress("rows")
    assert progress.line() == "rows: 3 s"  # Not silent before anything is found.
    progress.show(1, 4)
    assert progress.line() == "1 of 4 rows, about 12 s left"
    progress.show(2, 4)
    assert progress.line() == "2 of 4 rows, about 6 s left"


def test_a_terminal_shows_one_line_that_is_gone_at_the_end(monkeypatch):
    terminal = on_a_terminal(monkeypatch)
    monkeypatch.setattr(progress_line, "_PATIENCE", 0.01)
    with progress_line.Progress("rows") as progress:
        progress.show(1, 2)
        while "1 of 2 rows" not in terminal.getvalue():
            time.sleep(0.001)
    shown = terminal.getvalue()
    assert "\n" not in shown
    assert shown.endswith(f"\r{'':<60}\r")
    assert max(len(part) for part in shown.split("\r")) <= 79


def test_quick_work_shows_nothing(monkeypatch):
    terminal = on_a_terminal(monkeypatch)
    with progress_line.Progress("rows") as progress:
        progress.show(1, 1)
    assert terminal.getvalue() == ""


def test_an_error_ends_it(monkeypatch):
    terminal = on_a_terminal(monkeypatch)
    monkeypatch.setattr(progress_line, "_PATIENCE", 0.01)
    with pytest.raises(KeyboardInterrupt), progress_line.Progress("rows"):
        while not terminal.getvalue():
            time.sleep(0.001)
        raise KeyboardInterrupt
    length = len(terminal.getvalue())
    time.sleep(0.05)
    assert len(terminal.getvalue()) == length


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_what_is_no_terminal_shows_nothing(monkeypatch, stream):
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress_line, "_PATIENCE", 0.001)
    with progress_line.Progress("rows") as progress:
        progress.show(1, 2)
        time.sleep(0.01)
    assert stream is None or stream.getvalue() == ""
