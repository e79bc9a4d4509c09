"""What is printed is true: rounded outwards, on one line, in any alphabet."""

import contextlib
import io
import json
import time

from hypothesis import given
from hypothesis import strategies as st
import pytest

from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import comparison


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


def test_what_is_quick_shows_nothing_on_a_terminal():
    with contextlib.redirect_stderr(Terminal()) as terminal:
        assert list(text.counted("ab", 2, "letters")) == ["a", "b"]
    assert terminal.getvalue().strip("\r ") == ""


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
