"""statement as a shell user meets it."""

import json

from command_runner import run
import pytest

COMMAND = (
    "statement --dataset-size 2000 --batch-size 100 --epochs 3 "
    "--noise-multiplier 1.1 --delta 1e-6"
)


def test_the_words_fit_a_terminal(capsys):
    status, out, err = run(capsys, f"{COMMAND} --group-size 2")
    assert (status, err) == (0, "")
    assert "Example level: ε at δ = 1e-06" in out and "User level" in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_has_both_bounds_of_each_row(capsys):
    status, out, _ = run(capsys, f"{COMMAND} --sampling poisson-sampling --json")
    whole = json.loads(out)
    assert status == 0
    assert whole["setting"]["sampling"] == "Poisson sampling"
    assert whole["setting"]["batch_size"] == 100
    assert [row["sampling"] for row in whole["results"]] == [
        *2 * ["Poisson sampling"],
        *2 * ["no amplification"],
    ]
    for row in whole["results"]:
        assert 0 < row["epsilon_lower"] <= row["epsilon_upper"]


def test_json_says_what_was_counted(capsys):
    _, out, _ = run(capsys, f"{COMMAND} --batch-size 300 --delta 0.01 --json")
    whole = json.loads(out)
    assert whole["setting"]["sampling_rate"] == 0.15
    assert whole["setting"]["num_samples"] == 21
    assert whole["setting"]["steps_of_epoch"] == 6
    assert len(whole["warnings"]) == 1


@pytest.mark.parametrize("command", ["compare", "calibrate"])
def test_titles_say_what_was_counted(capsys, command):
    target = "--noise-multiplier 9" if command == "compare" else "--epsilon 9"
    _, out, _ = run(
        capsys, f"{command} --dataset-size 10 --batch-size 6 --delta 1e-6 {target}"
    )
    title = " ".join(out.split())
    assert "(t = 1; Poisson: 2 steps at most, q = 6/10)" in title


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--sampling shuffling", "for shuffled batches. Found 'shuffling'."),
        ("--steps 20", "must be left out where"),
        ("--batch-size 0", "must be at least 1. Found 0"),
        ("--batch-size 2001", "Found 2001 of 2000"),
        ("--delta 0", "--delta must be in (0, 1). Found 0"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, options, message):
    status, out, err = run(capsys, f"{COMMAND} {options}")
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
