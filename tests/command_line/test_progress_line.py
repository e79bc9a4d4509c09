"""A line that tells how far long work is, where someone may look at it."""

import io
import time

import pytest

from dp_accounting_ext.command_line import progress_line


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_one_line_that_is_left_at_the_end(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    moments = iter([0.0, 2.0, 4.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    line = progress_line.Progress("rows")
    line.show(11, 14)  # Ten were there before: two seconds a row, three to go.
    line.show(12, 14)
    line.end()
    shown = terminal.getvalue()
    assert "11 of 14 rows, about 6 s left" in shown
    assert "12 of 14 rows, about 4 s left" in shown
    assert shown.count("\n") == 1 and shown.endswith("\n")


def test_nothing_found_leaves_no_line(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    progress_line.Progress("rows").end()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_what_is_no_terminal_shows_nothing(monkeypatch, stream):
    monkeypatch.setattr("sys.stderr", stream)
    line = progress_line.Progress("rows")
    line.show(1, 2)
    line.end()
    assert stream is None or stream.getvalue() == ""
