"""What is printed is true: rounded outwards, on one line, in any alphabet."""

import contextlib
import decimal
import io
import json
import math

from hypothesis import given
from hypothesis import strategies as st
import pytest

from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import comparison


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_one_line_that_is_gone_at_the_end():
    with contextlib.redirect_stderr(Terminal()) as terminal:
        for number, each in enumerate(text.counted("ab", 2)):
            assert each == "ab"[number]
            assert f"{number} of 2 " in terminal.getvalue()
    shown = terminal.getvalue()
    assert "2 of 2 " in shown and "\n" not in shown
    assert shown.endswith(f"\r{'':<79}\r")
    assert max(map(len, shown.split("\r"))) <= 79


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_what_is_no_terminal_shows_nothing(stream):
    with contextlib.redirect_stderr(stream):
        assert list(text.counted("ab", 2)) == ["a", "b"]
    assert stream is None or stream.getvalue() == ""


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(NUMBERS)
def test_seven_digits_are_rounded_outwards(value):
    low, high = decimals.rounded_down(value), decimals.rounded_up(value)
    assert decimal.Decimal(low) <= decimal.Decimal(value) <= decimal.Decimal(high)
    for printed in (low, high):
        assert len(decimal.Decimal(printed).as_tuple().digits) <= 7
    gap = decimal.Decimal(high) - decimal.Decimal(low)
    assert gap <= abs(decimal.Decimal(value)) * decimal.Decimal("1.0001e-6")


@pytest.mark.parametrize("rounded", [decimals.rounded_down, decimals.rounded_up])
def test_what_is_no_finite_number(rounded):
    assert rounded(math.inf) == "inf"


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
