"""compare, calibrate, statement, profile, trade-off and canaries for a shell user."""

import argparse
import json
import re
import sys

from command_runner import run
import dp_accounting
from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import nights
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import __main__
from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.studies import canaries
from dp_accounting_ext.studies import training_run

CALIBRATE = "calibrate --steps-per-epoch 10 --epochs 2 --epsilon 2 --delta 1e-6"
STATEMENT = "statement --dataset-size 6000 --batch-size 3000 --epochs 1 "
STATEMENT += "--noise-multiplier 2.2 --delta 1e-6"


@pytest.mark.parametrize(
    "command",
    [
        "compare --noise-multiplier 1",
        "calibrate --epsilon 1 --sampling shuffled",
        "calibrate --advantage 0.1 --sampling shuffled",
    ],
)
def test_rows_and_notes_fit_a_terminal(capsys, command):
    """Notes are below the table, each once."""
    batches = "--dataset-size 123456789 --batch-size 1234567 --epochs 12"
    _, out, _ = run(capsys, f"{command} {batches} --group-size 2 --delta 1e-12")
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("(1) ") == 1
    assert "wide" not in "".join(out.splitlines()[:8])


def test_a_rate_and_steps_are_counted_exactly(capsys):
    """14,062 steps stay as many, whichever command they are given to."""
    typed = "--noise-multiplier 1 --sampling-rate .004 --num-steps 14062"
    typed += " --delta 1e-6 --sampling poisson-sampling"
    step = dp_accounting.PoissonSampledDpEvent(
        0.004, dp_accounting.GaussianDpEvent(1.0)
    )
    accountant = ext.PLDAccountant().compose(step, 14_062)
    _, out, _ = run(capsys, f"compare {typed} --json")
    (row,) = json.loads(out)["results"]
    assert (row["epsilon_lower"], row["epsilon_upper"]) == (
        accountant.get_epsilon_bounds(1e-6)
    )
    _, out, _ = run(capsys, f"statement {typed}")
    assert "Each of 14062 steps draws" in out
    assert "q = 0.004" in " ".join(out.split())


def test_the_version(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["dp-accounting-ext", "--version"])
    assert __main__.main() == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out == f"dp-accounting-ext {ext.__version__}\n"


def test_bounds_that_cross_are_told_as_such(capsys, monkeypatch):
    halved = privacy_bounds.PrivacyBounds.upper_epsilons
    monkeypatch.setattr(
        privacy_bounds.PrivacyBounds,
        "upper_epsilons",
        lambda *asked: halved(*asked) / 2,
    )
    status, out, err = run(
        capsys, "compare --noise-multiplier 2 --steps-per-epoch 5 --delta 1e-6"
    )
    assert (status, out) == (2, "")
    assert "A lower bound, " in err and "Please report" in err
    assert len(err.splitlines()) == 1


def test_the_printed_noise_is_certified(capsys):
    status, table, err = run(capsys, CALIBRATE)
    assert (status, err) == (0, "")
    lines = table.splitlines()
    assert lines[0].startswith("noise multiplier for ε ≤ 2 at δ = 1e-06, 1 of 10")
    for line, scheme in zip(lines[3:], training_run.SCHEMES, strict=False):
        assert line.startswith(scheme)
        noise, lower, upper = map(float, line[len(scheme) :].split()[:3])
        setting = training_run.TrainingRun(noise, 10, 1, 2, sampling=scheme)
        bounds = setting.accountant().get_epsilon_bounds(1e-6)
        assert lower <= bounds[0] <= bounds[1] <= upper <= 2


@pytest.mark.parametrize(
    ("form", "begin"),
    [("", "DP-SGD: "), ("--markdown", "## Differential"), ("--brief", "DP-SGD: ")],
)
def test_forms(capsys, form, begin):
    status, out, err = run(capsys, f"{STATEMENT} --group-size 2 {form}")
    assert (status, err) == (0, "")
    assert out.startswith(begin)
    assert form == "--markdown" or max(map(len, out.splitlines())) <= 80
    assert ("User level" in out) == (form != "--brief")


def test_json_has_both_bounds_of_each_row_that_was_asked_for(capsys):
    status, out, _ = run(capsys, f"{STATEMENT} --sampling poisson-sampling --json")
    whole = json.loads(out)
    assert status == 0
    assert whole["setting"]["sampling"] == "Poisson sampling"
    assert whole["setting"]["batch_size"] == 3000
    assert [row["sampling"] for row in whole["results"]] == 2 * ["Poisson sampling"]
    for row in whole["results"]:
        assert 0 < row["epsilon_lower"] <= row["epsilon_upper"]
        assert row["is_wide"] is False
    _, out, _ = run(capsys, f"{STATEMENT} --sampling shuffled --json")
    unknown, known = json.loads(out)["results"]
    assert unknown["epsilon_upper"] is None and known["epsilon_upper"] > 0


STRATEGY = "compare --noise-multiplier 2 --steps-per-epoch 6 --epochs 2 --delta 1e-3 "
STRATEGY += "--strategy"


def correlated(typed):
    """The event of two epochs of three steps."""
    options = {"steps_per_epoch": 3, "epochs": 2, "noise_multiplier": 2.0}
    return parser.training_run(argparse.Namespace(strategy=typed, **options)).event


@pytest.mark.parametrize(
    "written", ["1,0.5,0.25\n", "1\n0.5\n\n0.25", "\ufeff1,.5,.25"]
)
def test_a_file_of_coefficients(tmp_path, written):
    path = tmp_path / "column.csv"
    path.write_text(written, encoding="utf-8")
    assert correlated(str(path)).strategy == (1.0, 0.5, 0.25)


def test_a_file_of_rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("1,0\n.5,2\n")
    assert correlated(str(path)).strategy == ((1.0, 0.0), (0.5, 2.0))


@pytest.mark.nightly
def test_the_table_of_a_strategy(capsys):
    status, out, err = run(capsys, f"{STRATEGY} 1,0.5")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "2 epochs, correlated noise" in lines[0]
    schemes = ["balls in bins", "fresh windows", "b-min-sep", "cyclic Poisson"]
    schemes.append("no amplification")
    assert [line[:16].strip() for line in lines[3:8]] == schemes
    words = "2 windows of 5 steps, with a guard of 1, in each with probability 1;"
    assert words in " ".join(out.split())
    assert all(f"{name}:" in out for name in schemes)
    _, out, _ = run(capsys, f"{STRATEGY} 1,0.5 --json")
    found = json.loads(out)
    assert found["setting"]["strategy"] == "1,0.5"
    accountant = ext.PLDAccountant().compose(
        ext.MatrixAllocationEvent((1.0, 0.5), 2.0, 6, 2)
    )
    result = found["results"][0]
    bounds = result["epsilon_lower"], result["epsilon_upper"]
    assert bounds == accountant.get_epsilon_bounds(1e-3)


def test_noise_of_a_strategy(capsys):
    aim = "calibrate --epsilon 2 --delta 1e-3 --strategy 1,0.5 --sampling balls-in-bins"
    _, out, _ = run(capsys, f"{aim} --steps-per-epoch 6 --epochs 2 --json")
    (row,) = json.loads(out)["results"]
    assert row["sampling"] == "balls in bins"
    event = ext.MatrixAllocationEvent((1.0, 0.5), row["noise_multiplier"], 6, 2)
    accountant = ext.PLDAccountant().compose(event)
    assert 1.999 < accountant.get_epsilon(1e-3) == row["epsilon_upper"] <= 2


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("risk", "With balls in bins (add or remove):"),
        ("profile --num-points 3", "balls in bins: "),
        ("trade-off --num-points 3", "balls in bins: "),
    ],
)
def test_curves_and_risks_of_a_strategy(capsys, command, words):
    noise = "--steps-per-epoch 4 --epochs 1 --noise-multiplier 2 --strategy 1,0.5"
    status, out, _ = run(capsys, f"{command} {noise}")
    assert status == 0
    assert words in out and "correlated noise" in out


def test_one_scheme_of_a_strategy(capsys):
    status, out, _ = run(capsys, f"{STRATEGY} 1,0.5 --sampling b-min-sep --json")
    found = json.loads(out)
    assert status == 0
    assert found["setting"]["sampling"] == "b-min-sep"
    assert [row["sampling"] for row in found["results"]] == ["b-min-sep"]
    accountant = ext.PLDAccountant().compose(
        ext.MinSepSamplingEvent((1.0, 0.5), 2.0, 0.2, 2, 12)
    )
    bounds = (found["results"][0][f"epsilon_{end}"] for end in ("lower", "upper"))
    assert tuple(bounds) == accountant.get_epsilon_bounds(1e-3)


@given(st.text() | st.from_regex(r"(blt:)?[-0-9.e,:]*", fullmatch=True))
@example("\0")
@example("\ud800")
@example("9" * 5000)
@example("blt:nan:1")
@example("blt:1:1e400")
def test_whatever_is_typed(typed):
    try:
        found = correlated(typed)
    except (TypeError, ValueError) as error:
        assert "\n" not in str(error).replace(typed, "")
    else:
        assert found.num_bins == 3


CURVE = "--noise-multiplier 1 --steps-per-epoch 6 --num-points 3"
SCHEMES = list(training_run.SCHEMES)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("profile --delta 1e-9", ("epsilon", "delta")),
        (
            "trade-off --least-rate 1e-4",
            ("false_positive_rate", "true_positive_rate"),
        ),
    ],
)
def test_the_table_is_that_of_json_rounded_outwards(capsys, command, names):
    status, out, err = run(capsys, f"{command} {CURVE} --group-size 1 2 --json")
    assert (status, err) == (0, "")
    whole = json.loads(out)
    assert whole["setting"]["steps_per_epoch"] == 6
    assert whole["setting"]["group_size"] == [1, 2]
    assert [each["sampling"] for each in whole["results"]] == 2 * SCHEMES
    assert [each["group_size"] for each in whole["results"]] == 4 * [1] + 4 * [2]
    status, table, _ = run(capsys, f"{command} {CURVE} --group-size 1 2")
    blocks = table.split("\n\n")
    assert status == 0 and max(map(len, table.splitlines())) <= 80
    assert "noise multiplier 1, 1 of 6 steps, 1 epoch" in blocks[0]
    for block, result in zip(blocks[1:], whole["results"], strict=True):
        name, *lines = block.splitlines()
        if command.startswith("trade-off"):
            *lines, advantage, right = lines
            low, high = map(float, re.findall(r"[\d.]+", advantage))
            lower, upper = result["advantage_lower"], result["advantage_upper"]
            assert low <= lower <= upper <= high
            assert float(re.findall(r"[\d.]+", right)[0]) >= (1 + upper) / 2
        del lines[0]  # The head of the columns.
        assert name.startswith(result["sampling"])
        assert ("groups of 2" in name) == (result["group_size"] == 2)
        for line, low, high in zip(
            lines,
            result[f"{names[1]}_lower"],
            result[f"{names[1]}_upper"],
            strict=True,
        ):
            shown = list(map(float, line.split()))
            assert shown[1] <= low <= high <= shown[2]
        assert len(lines) == len(result[names[0]])


@pytest.mark.parametrize("command", ["profile", *nights.at_night("trade-off")])
def test_pictures(capsys, tmp_path, command):
    path = tmp_path / "a.svg"
    status, out, _ = run(capsys, f"{command} {CURVE} --output {path}")
    assert (status, out) == (0, f"wrote {path}\n")
    whole = path.read_text(encoding="utf-8")
    assert all(f"<!-- {name}" in whole for name in SCHEMES)
    path = tmp_path / "a.png"
    one = f"{command} {CURVE} --sampling no-amplification --output {path}"
    status, out, _ = run(capsys, f"{one} --json")
    assert status == 0 and len(json.loads(out)["results"]) == 1
    assert path.read_bytes().startswith(b"\x89PNG")
    first = path.read_bytes()
    run(capsys, one)
    assert path.read_bytes() == first


def test_without_matplotlib(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, out, err = run(capsys, f"profile {CURVE} --output profile.png")
    assert (status, out) == (2, "")
    assert err.endswith("run python -m pip install '.[plot]'.\n")
    assert len(err.splitlines()) == 1
    assert run(capsys, f"profile {CURVE} --json")[0] == 0


AUDITED = "--steps-per-epoch 20 --epochs 2 --noise-multiplier 1"


@pytest.fixture
def scores(tmp_path):
    rng = np.random.default_rng(0)
    members = (rng.random(2000) < 0.5).astype(int)
    found = np.round(members + 0.2 * rng.normal(size=2000), 3)
    path = tmp_path / "scores.csv"
    table = np.column_stack([found, members])
    np.savetxt(path, table, "%g", ",", header="score,member", comments="")
    return path, found, members


@pytest.mark.nightly
def test_each_way_of_drawing_batches_has_its_audit(capsys, scores):
    path, values, members = scores
    command = f"canaries --scores {path} --guesses 300 --guess both {AUDITED}"
    status, out, err = run(capsys, command)
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith("2000 canaries, 300 guesses, ")
    found = json.loads(run(capsys, f"{command} --json")[1])["results"]
    assert [each["sampling"] for each in found] == list(training_run.SCHEMES)
    run_of = training_run.TrainingRun(1.0, 20, epochs=2)
    for each, claim in zip(found, training_run.schemes_of(run_of), strict=True):
        truth = canaries.audit(
            claim.accountant(), values, members, guesses=300, guess="both"
        )
        for name in ("canaries", "guesses", "right", "needed", "p_value", "refuted"):
            assert each[name] == getattr(truth, name)
        (line,) = [row for row in out.splitlines() if row.startswith(claim.sampling)]
        assert line.endswith(truth.verdict) and f" {truth.right} " in line
    assert {each["refuted"] for each in found} == {True, False}


def test_one_way_alone_has_a_sentence(capsys, scores):
    command = f"canaries --scores {scores[0]} --guesses 200 {AUDITED}"
    command += " --sampling poisson-sampling"
    out = run(capsys, command)[1]
    assert "\nOf 200 guesses" in out and out.count("\nPoisson sampling") == 1
    stricter = run(capsys, f"{command} --significance 0.02")[1]
    assert "with a probability of at most 0.02" in " ".join(stricter.split())


def test_columns_are_found_by_their_names(capsys, scores, tmp_path):
    path, values, members = scores
    other = tmp_path / "other.csv"
    rows = zip(members, np.char.mod("%g", values), strict=True)
    # pandas writes whether they took part as True or False.
    lines = (f"{bool(member)};a;{score}" for member, score in rows)
    other.write_text("Member;name;Score\n" + "\n".join(lines))
    one, two = (
        run(capsys, f"canaries --scores {file} --guesses 99 {AUDITED}")[1]
        for file in (path, other)
    )
    assert one == two
