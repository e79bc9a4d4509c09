"""calibrate as a shell user meets it."""

import json

from command_runner import run
import pytest

from dp_accounting_ext.studies import training_run

COMMAND = "calibrate --steps 50 --selected 1 --epochs 2 --epsilon 2 --delta 1e-6"


def test_the_printed_noise_is_certified(capsys):
    status, table, err = run(capsys, COMMAND)
    assert (status, err) == (0, "")
    lines = table.splitlines()
    assert lines[0].startswith("noise multiplier for ε ≤ 2 at δ = 1e-06, 1 of 50")
    assert [line[:20].strip() for line in lines[3:]] == list(training_run.SCHEMES)
    for line in lines[3:]:
        noise, lower, upper = map(float, line[20:].split()[:3])
        setting = training_run.TrainingRun(noise, 50, 1, 2, 1e-6)
        accountant = training_run.accountant(line[:20].strip(), setting)
        bounds = accountant.get_epsilon_bounds(1e-6)
        assert lower <= bounds[0] <= bounds[1] <= upper <= 2


def test_json_is_the_table(capsys):
    _, table, _ = run(capsys, COMMAND)
    status, text, _ = run(capsys, f"{COMMAND} --json")
    assert status == 0
    whole = json.loads(text)
    assert whole["target"]["epsilon"] == 2
    for line, result in zip(table.splitlines()[3:], whole["results"], strict=True):
        assert line[:20].strip() == result["scheme"]
        assert float(line[20:].split()[0]) == result["noise_multiplier"]
        assert set(result) == {
            "scheme",
            "noise_multiplier",
            "epsilon_lower",
            "epsilon_upper",
            "seconds",
            "note",
        }


def test_a_group(capsys):
    status, table, _ = run(capsys, f"{COMMAND} --group-size 2")
    assert status == 0
    assert "groups of 2" in table
    line = table.splitlines()[3]
    assert "(1) chained: bracket is" in table
    _, text, _ = run(capsys, f"{COMMAND} --group-size 2 --json")
    row = json.loads(text)["results"][0]
    assert row["noise_multiplier"] == float(line.split()[2])
    assert row["epsilon_lower"] < row["epsilon_upper"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--epsilon 0", "--epsilon must be positive and finite. Found 0"),
        ("--epsilon 1e5", "--epsilon must be at most 690, which promises nothing"),
        ("--epsilon nan", "--epsilon must be a number. Found nan"),
        (
            "--epsilon 1e-12 --delta 1e-15",
            "--epsilon must be such as a noise_multiplier",
        ),
        ("--delta 1", "--delta must be in (0, 1). Found 1"),
        ("--selected 51", "--selected must be at most --steps. Found 51 of 50"),
        ("--steps 1000000000000000000000", "--steps must be at most 2^53"),
        ("--group-size 5000", "--group-size must be at most 1024. Found 5000"),
        ("--group-size 0", "--group-size must be at least 1. Found 0"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, options, message):
    status, out, err = run(capsys, f"{COMMAND} {options}")
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
