"""statement as a shell user meets it."""

import json

from command_runner import run
import pytest

COMMAND = (
    "statement --dataset-size 2000 --batch-size 100 --epochs 3 "
    "--noise-multiplier 1.1 --delta 1e-6"
)


@pytest.mark.parametrize(
    ("form", "begin"),
    [("", "DP-SGD: "), ("--markdown", "## Differential"), ("--brief", "DP-SGD: ")],
)
def test_forms(capsys, form, begin):
    status, out, err = run(capsys, f"{COMMAND} --group-size 2 {form}")
    assert (status, err) == (0, "")
    assert out.startswith(begin)
    assert form == "--markdown" or max(map(len, out.splitlines())) <= 80
    assert ("User level" in out) == (form != "--brief")


def test_json_has_both_bounds_of_each_row_that_was_asked_for(capsys):
    status, out, _ = run(capsys, f"{COMMAND} --sampling poisson-sampling --json")
    whole = json.loads(out)
    assert status == 0
    assert whole["setting"]["sampling"] == "Poisson sampling"
    assert whole["setting"]["batch_size"] == 100
    assert [row["sampling"] for row in whole["results"]] == 2 * ["Poisson sampling"]
    for row in whole["results"]:
        assert 0 < row["epsilon_lower"] <= row["epsilon_upper"]
        assert row["is_wide"] is False
    _, out, _ = run(capsys, f"{COMMAND} --sampling shuffled --json")
    unknown, known = json.loads(out)["results"]
    assert unknown["epsilon_upper"] is None and known["epsilon_upper"] > 0


def test_json_says_what_was_counted(capsys):
    command = f"{COMMAND} --batch-size 300 --delta 0.01 --sampling shuffled --json"
    whole = json.loads(run(capsys, command)[1])
    assert whole["setting"]["sampling_rate"] == 0.15
    assert whole["setting"]["num_samples"] == 21
    assert whole["setting"]["num_steps"] == 6
    assert len(whole["warnings"]) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--sampling shuffling", "no-amplification, shuffled. Found 'shuffling'."),
        ("--steps-per-epoch 20", "must be left out where"),
        ("--batch-size 0", "must be at least 1. Found 0"),
        ("--batch-size 2001", "Found 2001 of 2000"),
        ("--delta 0", "--delta must be in (0, 1). Found 0"),
        ("--brief --markdown", "not allowed with argument --brief"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, options, message):
    status, out, err = run(capsys, f"{COMMAND} {options}")
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
