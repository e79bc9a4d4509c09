"""Whatever is typed or in a file: status 0, or 2 and one line that tells why."""

import contextlib
import io
import pathlib
import tempfile
from unittest import mock

from command_runner import run
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest
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


POINTS = "name,lat,lon\nA,48.85,2.35\nB,48.86,2.29\nC,48.89,2.34\n"
FILES = {
    "cost": "0,1\n1,0\n",
    "cell": "0,1\n1,x\n",
    "words": "to my\naunt\n",
    "places": POINTS,
    "longer": "1,2\n3,4,5\n",
    "trace": "lat,lon\n48.851,2.351\n48.86,hjkl\n",
    "users": "who,lng,lat\nbob,2.29,48.86\nann,2.351,48.85\n",
    "scores": "score,member\n" + "".join(f"{i},{i % 2}\n" for i in range(9)),
    "no score": "score,member\nnan,1\n1,0\n",
    "member 3": "score,member\n2,1\n1,3\n",
    "other names": "score,in\n2,1\n1,0\n",
    "no names": "2,1\n1,0\n",
    "a word": "score,member\n2,1\nx,0\n",
    "members alone": "score,member\n" + "2,1\n" * 40,
    "one canary": "score,member\n2,1\n",
    "group misspelt": "noise_multiplier,numGroups\n1,5\n",
    "sampling misspelt": "noise_multiplier,sampler\n1,5\n",
    "a result": "delta,note\n1,x\n",
    "too many cells": "delta,epochs\n1e-6,1,5\n",
    "too few cells": "delta,epochs\n1e-6\n",
    "no sampling": "noise_multiplier,delta\n1,1e-6\n",
    "two lines": 'delta,who,sampling\n1e-6,"a\nb",shuffled\n',
    "no row": "delta,epochs\n",
    "empty": "",
    "latin": "delta,who\n1e-6,Zo\xeb\n",
    "grid": "noise_multiplier,steps_per_epoch,delta,sampling\n1,5,.1,shuffled\n",
    "half a row": "noise_multiplier,steps_per_epoch,delta,sampling\n1,5\n",
    "a row of another": "who,steps_per_epoch\n1,5\n",
}
BATCHES = "--dataset-size 6000 --batch-size 600 --epochs 1"
RISK = f"calibrate {BATCHES} --delta 1e-6 --sampling poisson-sampling --fpr 0.01"
RUN = "--steps-per-epoch 20 --epochs 2 --noise-multiplier 1"
FEW = "--dataset-size 9 --batch-size 3 --noise-multiplier 1 --delta 1e-6"
CANARIES = f"canaries {RUN} --guesses 2 --scores"
STRATEGY = "compare --noise-multiplier 2 --steps-per-epoch 6 --epochs 2 --delta 1e-3"
DRAW = "wpm --points places --epsilon 2"
USERS = f"{DRAW} --trace users --metric haversine"
NEW = "new or with the columns of the grid"
ROWS = [
    ("compare --noise 1", "Did you mean --noise-multiplier?"),
    ("compare --batch=5 1", "Did you mean --batch-size or --batches-per-record?"),
    ("compare --epoks 1", "Did you mean --epochs?"),
    ("compare x 1", "Options must be those of --help. Found x."),
    ("compare --sampling-rat 1", "Did you mean --sampling-rate?"),
    ("compaer --delta 1", "Found 'compaer'. Did you mean compare?"),
    ("compaer --delta 1", "COMMAND must be one of compare, calibrate, "),
    (
        f"calibrate {BATCHES} --strategy 1 --sampling b-min-sep --epsilon 1",
        "--sampling must be balls-in-bins with a strategy, or be left out; compare",
    ),
    ("compare --delta x", "--delta must be a number, such as 0.5 or 1e-6. Found 'x'."),
    ("compare --epochs 1,5", "--epochs must be a number, such as 0.5 or 1e-6."),
    ("compare --delta", "--delta must be followed by a value. Found none."),
    ("sweep --results", "--results must be followed by a value. Found none."),
    ("profile --epsilons 1", "--epsilons must be followed by 2 values. Found fewer."),
    ("compare --json=3", "--json must be without a value. Found '3'."),
    ("sweep", "error: --grid and --output must be given. Found nothing."),
    ("sweep --grid grid.csv", "error: --output must be given. Found nothing."),
    ("wpm --epsilon 1", "--points and --num-places must be given. Found none of them."),
    ("wpm plann --epsilon 1", "Found 'plann'. Did you mean plan?"),
    ("calibrate", "One of --epsilon, --advantage, --tpr and --ppv must be given."),
    (f"calibrate {BATCHES} --epsilon 0 --delta .1", "--epsilon must be positive"),
    (f"calibrate {BATCHES} --epsilon 0 --delta .1", "0.001 is hardly more"),
    (f"{STRATEGY} --strategy 1{',.5' * 6} --sampling b-min-sep", "balls-in-bins, no-"),
    ("explore --quiet --port -1 --epsilon 0", "--epsilon must be positive and finite."),
    ("explore --quiet --port -3", "--port must be from 0 to 65535. Found -3."),
    (
        "explore --quiet --port -1 --noise-multiplier 2 --epsilon 3",
        "--epsilon must be left out with --noise-multiplier. Found both.",
    ),
    ("explore --quiet --port 99999", "--port must be from 0 to 65535. Found 99999."),
    (f"compare {FEW} --group-size 10", "--group-size must be at most --dataset-size"),
    (f"profile {FEW} --group-size 2 10", "Found 10 of 9."),
    (f"profile {RUN} --epsilons 2 1", "--epsilons must be finite and not negative, th"),
    (f"profile {RUN} --epsilons 0 inf", "is no smaller. Found 0 and inf."),
    # Risks.
    ("risk --mu 1 --noise-multiplier 1", "--noise-multiplier must be left out"),
    ("risk --mu 1 --delta 2", "--delta must be in (0, 1). Found 2."),
    ("risk --mu -1", "--mu must be non-negative"),
    ("risk --epsilon -1", "--epsilon must be non-negative"),
    ("risk --mu 1 --rho 1", "--rho must be left out with --mu. Found both."),
    ("risk --mu 1 --prior 1", "--prior must be in"),
    ("risk", "--epsilon, --rho or --mu must be given, or a run"),
    ("risk --dataset-size 9", "must be given. Found nothing."),
    (f"risk {BATCHES}", "--noise-multiplier must be given"),
    (f"{RISK} --tpr 0.005", "--tpr must be above --fpr"),
    (f"{RISK} --tpr 0.01", "--tpr must be above --fpr"),
    (f"{RISK} --tpr 0.5 --prior 0.1", "--prior must be left out with --tpr. Found 0.1"),
    (f"{RISK} --ppv 0.6 --fpr 0", "--fpr must be in (0, 1). Found 0.0."),
    (f"{RISK} --ppv 0.3", "--ppv must be above --prior"),
    # Canaries.
    (f"canaries {RUN} --guesses 3", "--scores must be given. Found nothing."),
    (f"canaries {RUN} --scores scores", "--guesses, chosen before scores are seen"),
    (
        f"{CANARIES} scores --guesses x",
        "--guesses must be an integer, such as 100. Found 'x'.",
    ),
    (f"{CANARIES} scores --guess out", "--guess must be in or both. Found"),
    (f"{CANARIES} scores --significance 5", "--significance must be in (0, 1)"),
    (f"{CANARIES} scores --delta 1e-6", "those of --help. Found --delta."),
    (f"{CANARIES} none.csv", "must be a file that can be opened."),
    (f"{CANARIES} no_score", "Found an empty cell in line 2, column score of"),
    (f"{CANARIES} member_3", "members must be 0 or 1. Found 3.0."),
    (f"{CANARIES} other_names", "named score and member. Found 'score', 'in' in"),
    (f"{CANARIES} no_names", "named score and member. Found no names in"),
    (f"{CANARIES} a_word", "Found 'x' in line 3, column score of"),
    (f"{CANARIES} members_alone", "drawn by fair coins. Found 40 of 40"),
    (f"{CANARIES} one_canary", "--guesses must be at most canaries. Found 2 of 1."),
    # The Wasserstein mechanism.
    ("wpm plan --epsilon 1 --cost words", "--cost must be a table, as CSV, JSON, Par"),
    ("wpm plan --epsilon 1 --cost words", "Found no numbers in words"),
    ("wpm plan --epsilon 1 --cost cell", "Found 'x' in line 2, column 2 of"),
    ("wpm plan --epsilon 1 --cost longer", "more cells than above in line 2 of"),
    ("wpm plan --epsilon 1 --cost cost --base-measure minmax", "uniform, minimax, or"),
    ("wpm plan --epsilon 1 --cost cost --base-measure words", "--base-measure must be"),
    ("wpm plan --epsilon 1 --cost cost --user 1", "--user must be left out of a plan"),
    ("wpm --epsilon 1 --cost cost --columns 1,2", "must "),
    ("wpm --epsilon 1 --cost cost --trace trace", "must "),
    (f"{DRAW} --public-trace users", "--public-trace must be left out of a draw"),
    (f"{DRAW} --encoding klingon --trace x", "encoding must be one that Python knows"),
    (f"{DRAW} --trace trace", "line 3, column 2 of"),
    (f"{USERS} --user who --output draws --show-law", "--show-law must be left out"),
    (f"{USERS} --user whose --output draws", "--user must be one column of"),
    (f"{USERS} --user who", "must come with --"),
    (f"{USERS} --output draws", "must come with --"),
    # Sweeps.
    ("sweep --output new --grid group_misspelt", "write group_size if that"),
    ("sweep --output new --grid sampling_misspelt", "write sampling if that"),
    ("sweep --output new --grid a_result", "other names than results. Found 'note'"),
    ("sweep --output new --grid too_many_cells", "Found 3 cells in place of 2 in line"),
    ("sweep --output new --grid too_few_cells", "Found 1 cells in place of 2 in line"),
    ("sweep --output new --grid no_sampling", "sampling must be one of random-alloc"),
    ("sweep --output new --grid two_lines", "cells of one line each"),
    ("sweep --output new --grid no_row", "Found no row below the header of"),
    ("sweep --output new --grid empty", "Found an empty file"),
    ("sweep --output new --grid latin", "--encoding cp1252"),
    (
        "sweep --output new --grid grid --scheduler afar",
        "Dask scheduler that answers",
    ),
    *(
        (f"sweep --grid grid --output {name}", f"--output must be a file, {NEW}")
        for name in ("words", "grid", "half_a_row", "a_row_of_another", "latin")
    ),
]


@pytest.mark.parametrize(("command", "told"), ROWS)
def test_a_line_that_is_wrong(capsys, tmp_path, monkeypatch, command, told):
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        path = tmp_path / name.replace(" ", "_")
        path.write_bytes(content.encode("latin-1"))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    status, out, err = run(capsys, command)
    assert (status, out) == (2, "") and err.count("\n") == 1, err
    assert told in err
    assert "hjkl" not in err, "what is private is not shown"
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
