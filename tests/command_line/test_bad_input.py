"""Whatever is typed or in a file: status 0, or 2 and one line; never a traceback."""

import contextlib
import io
import pathlib
import tempfile
from unittest import mock

from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import sweep_oracles

from dp_accounting_ext import command_line
from dp_accounting_ext.command_line import workers

HUGE = "1" + "0" * 30
STRANGE = ["", " ", "x", "nan", "-nan", "inf", "-inf", "-1", "0", "-0.0", "1e400"]
STRANGE += ["1e-400", "1e-320", HUGE, "9" * 5000, "1_0", "½", "٣", "a\nb", "\ud800"]
STRANGE += ["--", "-h", "None", "[1]", "0x10", "1e3", "1.5", "\x00", "1,2"]


strange = st.sampled_from(STRANGE) | st.text()

NOISE = ["0.5", "1", "3.7", "20", "1e-50", "1e8", "0.05"]
SAMPLING = ["random-allocation", "poisson-sampling", "no-amplification", "shuffled"]
TRAINING = {
    "--steps-per-epoch": ["1", "2", "7", "30"],
    "--batches-per-record": ["1"] * 6 + ["2", "7"],
    "--epochs": ["1", "3", "0.5", "2.25"],
    "--delta": ["1e-6", "1e-15", "1e-300", "0.1", "0.9999", "5e-324"],
    "--group-size": ["1", "2", "5"],
    "--sampling": SAMPLING,
}


@st.composite
def values(draw, options):
    """A value for each option, all of them valid or all but one or two."""
    spoiled = draw(st.lists(st.sampled_from([*options, None]), max_size=2))
    return [
        draw(strange if name in spoiled else st.sampled_from(valid))
        for name, valid in options.items()
    ]


@st.composite
def option_lists(draw, options):
    """Options with values, now and then one too few or too many."""
    found = [
        [name, value]
        for name, value in zip(options, draw(values(options)), strict=True)
    ]
    change = draw(st.sampled_from(["", "", "", "", "drop", "add"]))
    if change == "drop":
        found.pop(draw(st.integers(0, len(found) - 1)))
    if change == "add":
        found.append(draw(st.sampled_from([["--colour"], ["x"], found[0]])))
    if draw(st.booleans()):
        found.append(["--json"])
    return [part for option in found for part in option]


def check(arguments):
    """Runs the command; its status and output must be such as they may be."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(workers, "Workers", sweep_oracles.Inline),
    ):
        try:
            status = command_line.main(arguments)
        except SystemExit as exit_:
            status = exit_.code
    assert status in (0, 1, 2)
    if status == 2:
        assert out.getvalue() == ""
        assert len(err.getvalue().splitlines()) == 1
        assert len(err.getvalue()) < 10_000
    else:
        assert err.getvalue() == ""
        assert out.getvalue()
    return status


@given(option_lists({"--noise-multiplier": NOISE, **TRAINING}))
@example(["--noise-multiplier", "1e-100", "--steps-per-epoch", "10", "--delta", "1e-6"])
@example(["--noise-multiplier", "1e9", "--steps-per-epoch", "10", "--delta", "1e-6"])
def test_compare(options):
    check(["compare", *options])


TARGET_DELTA = ["1e-6", "1e-15", "1e-300", "0.1"]
EPSILON = ["1", "0.01", "30", "1e-9", "1e6", "1e300"]


@settings(max_examples=12)
@given(
    option_lists(
        {
            "--epsilon": EPSILON,
            **TRAINING,
            "--batches-per-record": ["1"],  # A search among several takes ten seconds.
            "--delta": TARGET_DELTA,
        }
    )
)
def test_calibrate(options):
    check(["calibrate", *options])


@given(st.lists(st.sampled_from(["compare", "wpm", "sweep", *STRANGE])))
def test_anything(arguments):
    check(arguments)


CELLS = {"noise_multiplier": NOISE, **TRAINING}
HEADER = (
    "noise_multiplier,steps_per_epoch,batches_per_record,epochs,delta,group_size,"
    "sampling"
)


@st.composite
def grids(draw):
    """Files: grids, some of which have strange cells or lines, or no grids at all."""
    rows = draw(st.lists(values(CELLS).map(",".join), max_size=3))
    lines = [draw(st.sampled_from([HEADER] * 5 + [sweep_oracles.HEADER])), *rows]
    lines += draw(st.sampled_from([[], [], [], ["1"], ['"'], ["", ""], ["\x00"]]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    whole = (end.join(lines) + end).encode("utf-8", "surrogatepass")
    start = draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"\xff\xfe"]))
    return draw(st.sampled_from([start + whole] * 5 + [start, whole.swapcase()]))


@given(grids() | st.binary(max_size=50), st.none() | st.binary(max_size=50))
def test_sweep(grid, table):
    with tempfile.TemporaryDirectory() as folder:
        paths = pathlib.Path(folder, "grid.csv"), pathlib.Path(folder, "table.csv")
        paths[0].write_bytes(grid)
        if table is not None:
            paths[1].write_bytes(table)
        options = ["--grid", str(paths[0]), "--output", str(paths[1])]
        status = check(["sweep", *options])
        if status == 2:
            assert (paths[1].read_bytes() if paths[1].exists() else None) == table
        else:
            rows = paths[1].read_bytes().decode().count("\n")
            assert check(["sweep", *options]) == status
            assert paths[1].read_bytes().decode().count("\n") == rows


PATH = ["."]  # A directory, which is neither a grid nor a table.


@given(option_lists({"--grid": PATH, "--output": PATH, "--workers": ["1", "2"]}))
def test_sweep_of_strange_paths(options):
    check(["sweep", *options])


NUMBERS = ["0", "1", "0.5", "2.25", "1e300", "1e-300"]


@st.composite
def matrices(draw):
    """Files of numbers, now and then one that is none, or of unequal rows."""
    length, width = draw(st.sampled_from([(2, 2)] * 4 + [(2, 3), (3, 1), (0, 0)]))
    row = st.lists(st.sampled_from(NUMBERS), min_size=width, max_size=width)
    rows = draw(st.lists(row, min_size=length, max_size=length))
    spoiled = draw(st.sampled_from(["", "", "", "a cell", "a row"]))
    if rows and spoiled:
        rows[0] = [draw(strange)] * (width + (spoiled == "a row"))
    return "\n".join(map(",".join, rows)).encode("utf-8", "surrogatepass")


MASSES = [b"1", b"0.5\n0.5", b"1,0", b"0.25,0.75"]


@given(
    matrices() | st.binary(max_size=20),
    st.sampled_from(MASSES) | matrices(),
    option_lists({"--epsilon": EPSILON, "--base-measure": ["uniform", "minimax"]}),
)
def test_wpm(cost, masses, options):
    with tempfile.TemporaryDirectory() as folder:
        paths = pathlib.Path(folder, "cost.csv"), pathlib.Path(folder, "mu.csv")
        paths[0].write_bytes(cost)
        paths[1].write_bytes(masses)
        files = ["--cost", str(paths[0]), "--distribution", str(paths[1])]
        check(["wpm", *files, *options])
