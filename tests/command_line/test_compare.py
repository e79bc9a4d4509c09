"""compare as a shell user meets it."""

import json
import re

from command_runner import run
import pytest

import dp_accounting_ext
from dp_accounting_ext import pld_accountant
from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.studies import training_run

README_COMMAND = (
    "compare --noise-multiplier 1 --steps-per-epoch 1000 --epochs 10 --delta 1e-6"
)


def test_the_readme_command(capsys):
    status, out, err = run(capsys, README_COMMAND)
    lines = out.splitlines()
    assert "10 epochs" in lines[0]
    for line, scheme in zip(lines[3:], training_run.SCHEMES, strict=False):
        assert line.startswith(scheme)
        lower, upper = (float(part) for part in line[25:].split()[:2])
        assert lower <= upper <= lower * 1.0001
    assert (status, err) == (0, "")


def test_printed_ends_are_rounded_outwards(capsys):
    _, table, _ = run(capsys, README_COMMAND)
    _, text, _ = run(capsys, README_COMMAND + " --json")
    results = json.loads(text)["results"]
    assert len(results) == len(training_run.SCHEMES)
    for line, result in zip(table.splitlines()[3:], results, strict=False):
        lower, upper = (float(part) for part in line[25:].split()[:2])
        assert lower <= result["epsilon_lower"] <= result["epsilon_upper"] <= upper


def test_several_steps_have_the_bracket_of_the_mechanism(capsys):
    command = "compare --noise-multiplier 1 --steps-per-epoch 1000 --delta 1e-6 --json "
    command += "--batches-per-record 7"
    status, text, _ = run(capsys, command)
    assert status == 0
    whole = json.loads(text)
    truth, poisson, plain, _ = whole["results"]
    assert whole["setting"]["batches_per_record"] == 7
    assert truth["sampling"] == "random allocation"
    width = re.search(r"bracket is (\d\.\d)% wide", truth["note"])
    assert 0 < float(width[1]) <= 1
    assert poisson["epsilon_lower"] > truth["epsilon_upper"]
    assert plain["epsilon_lower"] > poisson["epsilon_upper"]


@pytest.mark.parametrize(
    "options", ["--noise-multiplier 0.01", "--noise-multiplier 0.02"]
)
def test_a_bracket_that_is_wide_says_so(capsys, options):
    status, table, _ = run(
        capsys, f"compare {options} --steps-per-epoch 50 --delta 1e-6"
    )
    assert status == 0
    lines = table.splitlines()
    assert lines[3].endswith("(1)")
    assert "wide" in next(line for line in lines if line.startswith("(1)"))


BAD = [
    (
        "--noise-multiplier 0",
        "--noise-multiplier must be positive, from 1e-60 to 1e+09. Found 0",
    ),
    (
        "--noise-multiplier -1",
        "--noise-multiplier must be positive, from 1e-60 to 1e+09. Found -1",
    ),
    ("--noise-multiplier nan", "--noise-multiplier must be a number. Found nan"),
    ("--noise-multiplier inf", "--noise-multiplier must be positive, from"),
    ("--noise-multiplier x", "--noise-multiplier must be a number, such as"),
    ("--steps-per-epoch 0", "--steps-per-epoch must be at least 1. Found 0"),
    ("--steps-per-epoch 1.5", "--steps-per-epoch must be a whole number. Found '1.5'"),
    ("--batches-per-record 0", "--batches-per-record must be at least 1. Found 0"),
    (
        "--batches-per-record 11",
        "must be at most --steps-per-epoch. Found 11 of 10",
    ),
    ("--epochs 0", "--epochs must be positive and finite. Found 0"),
    ("--delta 0", "--delta must be in (0, 1). Found 0"),
    ("--delta 1", "--delta must be in (0, 1). Found 1"),
    ("--delta nan", "--delta must be a number. Found nan"),
    ("--colour red", "unrecognized arguments: --colour."),
    ("--noise 1", "Did you mean --noise-multiplier?"),
    ("--batch=1", "Did you mean --batch-size or --batches-per-record?"),
    ("--epoch 3", "Did you mean --epochs?"),
    ("--noisemultiplier 3", "Did you mean --noise-multiplier?"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input_is_one_line_and_status_2(capsys, options, message):
    base = "compare --noise-multiplier 1 --steps-per-epoch 10 --delta 1e-6 "
    status, out, err = run(capsys, base + options)
    assert status == 2
    assert out == ""
    assert message in err
    assert err.startswith("dp-accounting-ext")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", ["compare", "compare --steps-per-epoch 10", "confuse"]
)
def test_missing_arguments_are_named(capsys, arguments):
    status, _, err = run(capsys, arguments)
    assert status == 2
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("arguments", ["", "--help", "compare --help"])
def test_help(capsys, arguments):
    status, out, _ = run(capsys, arguments)
    assert status == 0
    assert "compare" in out


TWO_OF_50 = "--steps-per-epoch 50 --batches-per-record 2 --delta 1e-6"
GROUP = f"compare --noise-multiplier 2 {TWO_OF_50} --group-size"


def test_groups_have_bounds(capsys):
    status, text, _ = run(capsys, f"{GROUP} 4 --json")
    assert status == 0
    allocation, poisson, plain, _ = json.loads(text)["results"]
    assert 0 < allocation["epsilon_lower"] < allocation["epsilon_upper"]
    assert allocation["is_wide"] == ("wide" in allocation["note"])
    # Four records shift by four what one shifts by one.
    single = f"compare --noise-multiplier 0.5 {TWO_OF_50}"
    _, text, _ = run(capsys, f"{single} --json")
    *_, whole, _ = json.loads(text)["results"]
    assert plain["epsilon_upper"] == pytest.approx(whole["epsilon_upper"], rel=1e-9)
    assert poisson["epsilon_upper"] < plain["epsilon_lower"]
    _, table, _ = run(capsys, f"{GROUP} 4")
    assert "groups of 4" in table


@pytest.mark.parametrize("command", ["compare", "statement"])
def test_brackets_that_overlap_are_not_ranked(capsys, command):
    """A row with a wide bracket is made of one with no lower bound."""
    run_ = "--noise-multiplier 0.7 --steps-per-epoch 20 --delta 1e-6"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            pld_accountant.PLDAccountant,
            "get_epsilon_bounds",
            lambda accountant, delta: (1.0, accountant.get_epsilon(delta)),
        )
        _, text, _ = run(capsys, f"{command} {run_} --json")
        _, table, _ = run(capsys, f"{command} {run_}")
    whole = json.loads(text)
    assert all(row["is_wide"] for row in whole["results"] if row["epsilon_upper"])
    pair = ["random allocation", "Poisson sampling"]
    known = {"sampling": pair, "adjacency": "add or remove", "group_size": 1}
    assert known in whole["unranked"]
    assert "either of random allocation and Poisson" in " ".join(table.split())


def test_one_way_alone(capsys):
    _, out, _ = run(capsys, f"{GROUP} 1 --sampling shuffled")
    lines = out.splitlines()
    assert lines[3].startswith("shuffled or fixed batches") and lines[4] == ""
    assert lines[5].startswith("(1) ") and "replaced" in out


def test_a_group_of_one_is_a_record(capsys):
    _, one, _ = run(capsys, f"{GROUP} 1 --json")
    _, record, _ = run(capsys, GROUP.replace(" --group-size", " --json"))
    assert strip_times(one) == strip_times(record)


def test_all_steps_of_a_group_are_supported(capsys):
    command = "compare --noise-multiplier 2 --steps-per-epoch 5 --delta 1e-6 --json "
    command += "--batches-per-record 5"
    _, text, _ = run(capsys, f"{command} --group-size 3")
    results = json.loads(text)["results"]
    assert len({result["epsilon_upper"] for result in results[:3]}) == 1


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "--group-size must be at least 1. Found 0"),
        (1025, "--group-size must be at most 1024. Found 1025"),
    ],
)
def test_a_group_too_small_or_large(capsys, size, message):
    status, out, err = run(capsys, f"{GROUP} {size}")
    assert (status, out) == (2, "")
    assert message in err


def strip_times(text):
    results = json.loads(text)["results"]
    return [{**result, "seconds": 0} for result in results]


@pytest.mark.parametrize(
    "command", ["compare --noise-multiplier 1", "calibrate --epsilon 1"]
)
def test_rows_and_notes_fit_a_terminal(capsys, command):
    """Notes are below the table, each once."""
    batches = "--dataset-size 123456789 --batch-size 1234567 --epochs 12"
    _, out, _ = run(capsys, f"{command} {batches} --group-size 2 --delta 1e-12")
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("(1) ") == 1
    assert "wide" not in "".join(out.splitlines()[:8])


def test_the_version(capsys):
    status, out, err = run(capsys, "--version")
    assert (status, err) == (0, "")
    assert out == f"dp-accounting-ext {dp_accounting_ext.__version__}\n"


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
