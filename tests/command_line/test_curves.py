"""profile and trade-off as a shell user meets them."""

import json
import re
import sys

import command_runner
import nights
import pytest

from dp_accounting_ext.studies import training_run

RUN = "--noise-multiplier 1 --steps-per-epoch 6 --num-points 3"
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
    assert whole["setting"]["steps_per_epoch"] == 6
    assert whole["setting"]["group_size"] == [1, 2]
    assert [each["sampling"] for each in whole["results"]] == 2 * SCHEMES
    assert [each["group_size"] for each in whole["results"]] == 4 * [1] + 4 * [2]
    status, table, _ = run(capsys, f"{command} {RUN} --group-size 1 2")
    blocks = table.split("\n\n")
    assert status == 0 and max(map(len, table.splitlines())) <= 80
    assert "noise multiplier 1, 1 of 6 steps, 1 epoch" in blocks[0]
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


@pytest.mark.parametrize("command", ["profile", *nights.at_night("trade-off")])
def test_pictures(capsys, tmp_path, command):
    path = tmp_path / "a.svg"
    status, out, _ = run(capsys, f"{command} {RUN} --output {path}")
    assert (status, out) == (0, f"wrote {path}\n")
    whole = path.read_text(encoding="utf-8")
    assert all(f"<!-- {name}" in whole for name in SCHEMES)
    path = tmp_path / "a.png"
    one = f"{command} {RUN} --sampling no-amplification --output {path}"
    status, out, _ = run(capsys, f"{one} --json")
    assert status == 0 and len(json.loads(out)["results"]) == 1
    assert path.read_bytes().startswith(b"\x89PNG")
    first = path.read_bytes()
    run(capsys, one)
    assert path.read_bytes() == first


def test_without_matplotlib(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, out, err = run(capsys, f"profile {RUN} --output profile.png")
    assert (status, out) == (2, "")
    assert err.endswith("run python -m pip install '.[plot]'.\n")
    assert len(err.splitlines()) == 1
    assert run(capsys, f"profile {RUN} --json")[0] == 0
