"""A line that tells how far long work is, where someone may look at it."""

import io
import time

import pytest

from dp_accounting_ext.command_line import progress_line


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress_line, "_PATIENCE", 0.01)
    return terminal


def test_a_terminal_shows_one_line_that_is_gone_at_the_end(terminal):
    def wait(item):
        while f"{item} of 2 rows, " not in terminal.getvalue():
            time.sleep(0.001)
        return item

    assert progress_line.mapped("rows", wait, [0, 1]) == [0, 1]
    shown = terminal.getvalue()
    assert "\n" not in shown
    assert shown.endswith(f"\r{'':<60}\r")
    assert max(len(part) for part in shown.split("\r")) <= 79


def test_an_error_ends_it(terminal):
    with pytest.raises(KeyboardInterrupt), progress_line.shown(lambda: "draw"):
        while not terminal.getvalue():
            time.sleep(0.001)
        raise KeyboardInterrupt
    length = len(terminal.getvalue())
    time.sleep(0.05)
    assert len(terminal.getvalue()) == length
