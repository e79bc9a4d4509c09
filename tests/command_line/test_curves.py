"""profile and trade-off as a shell user meets them."""

import json
import re
import sys

import command_runner
import pytest

from dp_accounting_ext.studies import training_run

RUN = "--noise-multiplier 1 --steps-per-epoch 20 --num-points 3"
SCHEMES = list(training_run.SCHEMES)
run = command_runner.run


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
    status, out, err = run(capsys, f"{command} {RUN} --group-size 1 2 --json")
    assert (status, err) == (0, "")
    whole = json.loads(out)
    assert whole["setting"]["num_steps"] == 20
    assert whole["setting"]["group_size"] == [1, 2]
    assert [each["sampling"] for each in whole["results"]] == 2 * SCHEMES
    assert [each["group_size"] for each in whole["results"]] == 4 * [1] + 4 * [2]
    status, table, _ = run(capsys, f"{command} {RUN} --group-size 1 2")
    blocks = table.split("\n\n")
    assert status == 0 and max(map(len, table.splitlines())) <= 80
    assert "noise multiplier 1, 1 of 20 steps, 1 epoch" in blocks[0]
    for block, result in zip(blocks[1:], whole["results"], strict=True):
        name, *lines = block.splitlines()
        if command.startswith("trade-off"):
            advantage, right, *lines = lines
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


def test_a_range_of_epsilon(capsys):
    command = f"profile {RUN} --epsilons 0 2 --sampling shuffled --json"
    (result,) = json.loads(run(capsys, command)[1])["results"]
    assert result["epsilon"] == [0, 1, 2]


@pytest.mark.parametrize("command", ["profile", "trade-off"])
def test_pictures(capsys, tmp_path, command):
    first, again = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (first, again):
        status, out, _ = run(capsys, f"{command} {RUN} --output {path}")
        assert (status, out) == (0, f"wrote {path}\n")
    whole = first.read_text(encoding="utf-8")
    assert all(f"<!-- {name}" in whole for name in SCHEMES)
    assert first.read_bytes() == again.read_bytes()
    path = tmp_path / "a.png"
    status, out, _ = run(capsys, f"{command} {RUN} --json --output {path}")
    assert status == 0 and len(json.loads(out)["results"]) == 4
    assert path.read_bytes().startswith(b"\x89PNG")


BAD = [
    ("profile", "required: --noise-multiplier"),
    ("profile --noise-multiplier 1", "--dataset-size and --batch-size, must be given"),
    (f"profile {RUN} --noise-multiplier 0", "--noise-multiplier must be positive"),
    (
        f"profile {RUN} --batches-per-record 21",
        "--batches-per-record must be at most --steps-pe",
    ),
    (f"profile {RUN} --group-size 0", "--group-size must be at least 1"),
    (f"profile {RUN} --delta 0", "--delta must be in (0, 1)"),
    (f"profile {RUN} --num-points 2", "--num-points must be at least 3"),
    (f"profile {RUN} --num-points -2 --epsilons 1 2", "at least 1. Found -2"),
    (f"profile {RUN} --epsilons -1 1", "--epsilons must be finite and not negative"),
    (f"profile {RUN} --epsilons nan 1", "--epsilons must be a number"),
    (f"profile {RUN} --epsilons 0 inf", "--epsilons must be"),
    (f"profile {RUN} --output profile.jpg", "--output must end in .pdf, .png or .svg"),
    (f"profile {RUN} --output no/profile.png", "--output must be in a directory"),
    (f"profile {RUN} --least-rate 1", "unrecognized arguments: --least-rate"),
    (f"trade-off {RUN} --least-rate 0", "--least-rate must be in [1e-200, 1)"),
    (f"trade-off {RUN} --num-points 1", "--num-points must be at least 2"),
]


@pytest.mark.parametrize(("command", "message"), BAD)
def test_bad_input_is_one_line_and_status_2(
    capsys, tmp_path, monkeypatch, command, message
):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, command)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, out, err = run(capsys, f"profile {RUN} --output profile.png")
    assert (status, out) == (2, "")
    assert "python -m pip install matplotlib" in err
    assert len(err.splitlines()) == 1
    assert run(capsys, f"profile {RUN} --json")[0] == 0
