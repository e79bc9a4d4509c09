"""A line that tells how far long work is, where someone may look at it."""

import contextlib
import io
import time

import pytest

from dp_accounting_ext.command_line import progress_line


class Terminal(io.StringIO):
    def isatty(self):
        return True


def wait_for(words, stream):
    """Waits until the stream shows the words, a minute at most."""
    end = time.monotonic() + 60
    while words not in stream.getvalue():
        assert time.monotonic() < end, stream.getvalue()
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(progress_line, "_PATIENCE", 0.01)


def test_a_terminal_shows_one_line_that_is_gone_at_the_end():
    def wait(item):
        wait_for(f"{item} of 2 rows, ", terminal)
        return item

    with contextlib.redirect_stderr(Terminal()) as terminal:
        assert progress_line.mapped("rows", wait, [0, 1]) == [0, 1]
    shown = terminal.getvalue()
    assert "\n" not in shown
    assert shown.endswith(f"\r{'':<60}\r")
    assert max(len(part) for part in shown.split("\r")) <= 79


def test_an_error_ends_it():
    with contextlib.redirect_stderr(Terminal()) as terminal:
        with pytest.raises(KeyboardInterrupt), progress_line.shown(lambda: "draw"):
            wait_for("draw", terminal)
            raise KeyboardInterrupt
        length = len(terminal.getvalue())
        time.sleep(0.05)
    assert len(terminal.getvalue()) == length


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_what_is_no_terminal_shows_nothing(stream):
    with contextlib.redirect_stderr(stream), progress_line.shown(lambda: "draw"):
        time.sleep(0.05)
    assert stream is None or stream.getvalue() == ""
