"""calibrate as a shell user meets it."""

import json

from command_runner import run
import pytest

from dp_accounting_ext.studies import training_run

COMMAND = "calibrate --steps-per-epoch 50 --epochs 2 --epsilon 2 --delta 1e-6"


def test_the_printed_noise_is_certified(capsys):
    status, table, err = run(capsys, COMMAND)
    assert (status, err) == (0, "")
    lines = table.splitlines()
    assert lines[0].startswith("noise multiplier for ε ≤ 2 at δ = 1e-06, 1 of 50")
    for line, scheme in zip(lines[3:], training_run.SCHEMES, strict=False):
        assert line.startswith(scheme)
        noise, lower, upper = map(float, line[len(scheme) :].split()[:3])
        setting = training_run.TrainingRun(noise, 50, 1, 2, sampling=scheme)
        bounds = setting.accountant().get_epsilon_bounds(1e-6)
        assert lower <= bounds[0] <= bounds[1] <= upper <= 2


def test_json_is_the_table(capsys):
    command = f"{COMMAND} --group-size 2 --sampling poisson-sampling"
    _, table, _ = run(capsys, command)
    status, text, _ = run(capsys, f"{command} --json")
    assert status == 0 and "groups of 2" in table
    whole = json.loads(text)
    assert whole["target"]["epsilon"] == 2 and whole["unranked"] == []
    (result,) = whole["results"]
    assert float(table.splitlines()[-1].split()[2]) == result["noise_multiplier"]
    assert result["epsilon_lower"] <= result["epsilon_upper"] <= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--epsilon 0", "--epsilon must be positive and at most 690. Found 0"),
        ("--epsilon 1e5", "--epsilon must be positive and at most 690. Found 100000"),
        ("--epsilon nan", "--epsilon must be a number. Found nan"),
        (
            "--epsilon 1e-12 --delta 1e-15",
            "--epsilon must be such as a noise of at most 1e+09 meets",
        ),
        ("--delta 1", "--delta must be in (0, 1). Found 1"),
        (
            "--batches-per-record 51",
            "must be at most --steps-per-epoch. Found 51 of 50",
        ),
        (
            "--steps-per-epoch 1000000000000000000000",
            "--steps-per-epoch must be at most 2^53",
        ),
        ("--group-size 5000", "--group-size must be at most 1024. Found 5000"),
        ("--group-size 0", "--group-size must be at least 1. Found 0"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, options, message):
    status, out, err = run(capsys, f"{COMMAND} {options}")
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
