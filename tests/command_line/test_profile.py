"""The subcommand profile as a shell user meets it."""

import json
import sys

import command_runner
import pytest

from dp_accounting_ext.papers import catalogue

RUN = "profile --noise-multiplier 1 --steps 20 --points 3"
run = command_runner.run


def test_json_holds_bands(capsys):
    status, out, err = run(capsys, f"{RUN} --group-size 1 2 --json")
    assert (status, err) == (0, "")
    whole = json.loads(out)
    assert whole["setting"] == {
        "noise_multiplier": 1.0,
        "num_steps": 20,
        "num_selected": 1,
        "epochs": 1,
        "smallest_delta": 1e-12,
        "sampling_rate": 0.05,
        "num_samples": 20,
        "steps_of_epoch": 20,
    }
    names = ["random allocation", "Poisson sampling", "no amplification"]
    assert [each["scheme"] for each in whole["results"]] == 2 * names
    assert [each["group_size"] for each in whole["results"]] == [1, 1, 1, 2, 2, 2]
    for each in whole["results"]:
        pairs = zip(each["delta_lower"], each["delta_upper"], strict=True)
        assert all(low <= high for low, high in pairs)
    notes = [each["note"] for each in whole["results"]]
    assert notes == ["", "", "", "chained", "", ""]


def test_the_table_is_rounded_outwards(capsys):
    command = f"{RUN} --epsilons 0 2 --group-size 1 2"
    _, text, _ = run(capsys, f"{command} --json")
    status, table, _ = run(capsys, command)
    assert status == 0
    blocks = table.split("\n\n")
    assert blocks[0].startswith("δ(ε), noise multiplier 1, 1 of 20 steps, 1 epoch")
    results = json.loads(text)["results"]
    assert len(blocks) == 1 + len(results)
    for block, result in zip(blocks[1:], results, strict=True):
        name, *rest = block.splitlines()
        assert name.startswith(result["scheme"])
        assert ("groups of 2" in name) == (result["group_size"] == 2)
        assert result["note"] in name
        rows = [[float(part) for part in line.split()] for line in rest[1:]]
        assert [row[0] for row in rows] == result["epsilons"]
        for row, low, high in zip(
            rows, result["delta_lower"], result["delta_upper"], strict=True
        ):
            assert row[1] <= low <= high <= row[2]


def test_a_picture(capsys, tmp_path):
    path = tmp_path / "profile.png"
    status, out, _ = run(capsys, f"{RUN} --group-size 1 2 --output {path}")
    assert status == 0
    assert out.splitlines() == [f"wrote {path}"]
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_and_its_numbers(capsys, tmp_path):
    path = tmp_path / "profile.svg"
    status, out, _ = run(capsys, f"{RUN} --json --output {path}")
    assert status == 0 and len(json.loads(out)["results"]) == 3
    whole = path.read_text(encoding="utf-8")
    for text in ("random allocation", "Poisson sampling", "no amplification"):
        assert f"<!-- {text} -->" in whole


def test_a_trade_off(capsys, tmp_path):
    path = tmp_path / "roc.svg"
    command = f"{RUN} --trade-off --smallest-rate 1e-4 --group-size 1 2"
    status, out, _ = run(capsys, f"{command} --json --output {path}")
    assert status == 0
    whole = json.loads(out)
    assert whole["setting"]["smallest_rate"] == 1e-4
    assert "smallest_delta" not in whole["setting"]
    assert len(whole["results"]) == 6
    drawn = path.read_text(encoding="utf-8")
    for label in ("guessing", "no amplification, groups of 2", "true positive rate"):
        assert f"<!-- {label} -->" in drawn
    _, table, _ = run(capsys, command)
    blocks = table.split("\n\n")
    assert blocks[0].startswith("trade-off, noise multiplier 1, 1 of 20 steps")
    for block, result in zip(blocks[1:], whole["results"], strict=True):
        rows = [list(map(float, line.split())) for line in block.splitlines()[2:]]
        ends = zip(rows, result["lower"], result["upper"], strict=True)
        for row, low, high in ends:
            assert row[1] <= low <= high <= row[2]


def test_help_is_narrow(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "profile --help")
    assert max(map(len, out.splitlines())) <= 80


def test_one_figure_of_a_paper(capsys, tmp_path):
    command = f"profile --figures {tmp_path / 'new'} --only paper3-figure1"
    status, out, _ = run(capsys, command)
    assert status == 0 and "paper3-figure1.png" in out
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names == {"paper3-figure1.png", "paper3-figure1.csv"}
    _, out, _ = run(capsys, f"{command} --json --format svg")
    (drawn,) = json.loads(out)["figures"]
    assert drawn["picture"].endswith("paper3-figure1.svg")
    assert drawn["name"] == "paper3-figure1" and drawn["seconds"] > 0


def test_help_names_every_figure(capsys):
    status, out, _ = run(capsys, "profile --help")
    assert status == 0
    assert all(name in out for name in catalogue.FIGURES)


BAD = [
    ("profile", "--noise-multiplier or --figures is required"),
    ("profile --steps 10", "--noise-multiplier or --figures is required"),
    ("profile --noise-multiplier 1", "--dataset-size and --batch-size, must be given"),
    ("profile --only paper1-figure1", "--only needs --figures"),
    ("profile --figures new --steps 10", "the papers tell the rest. Found --steps."),
    ("profile --figures new --output a.png", "--figures must come with --only"),
    ("profile --figures new --group-size 1 4", "rest. Found --group-size."),
    ("profile --figures new --only figure1", "--only: invalid choice: 'figure1'"),
    (f"{RUN} --dpi 0", "--dpi needs --output or --figures. Found 0."),
    (f"{RUN} --noise-multiplier 0", "--noise-multiplier must be positive"),
    (f"{RUN} --selected 21", "--selected must be at most --steps"),
    (f"{RUN} --group-size 0", "--group-size must be at least 1"),
    (f"{RUN} --smallest-delta 0", "--smallest-delta must be in (0, 1)"),
    (f"{RUN} --points 2", "--points must be at least 3"),
    (f"{RUN} --epsilons 2 1", "--epsilons must be two numbers, 0 ≤ first < last"),
    (f"{RUN} --epsilons nan 1", "--epsilons must be two numbers"),
    (f"{RUN} --epsilons 0 inf", "--epsilons must be two numbers"),
    (f"{RUN} --epsilons 0 1 --points 1", "--points must be at least 2"),
    (f"{RUN} --trade-off --epsilons 0 1", "--epsilons is of δ, and not of --trade"),
    (f"{RUN} --trade-off --smallest-rate 0", "--smallest-rate must be in (0, 1)"),
    (f"{RUN} --trade-off --points 1", "--points must be at least 2"),
    ("profile --figures new --trade-off", "the rest. Found --trade-off."),
    (f"{RUN} --format pdf", "--format needs --figures"),
    (f"{RUN} --output profile.jpg", "--output must end in .pdf, .png or .svg"),
    (f"{RUN} --dpi 10 --output a.png", "--dpi must be from 20 to 1200. Found 10"),
    (f"{RUN} --output nowhere/profile.png", "--output must be in a directory"),
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


@pytest.mark.parametrize("rest", ["--output profile.png", "--figures new"])
def test_without_matplotlib(capsys, tmp_path, monkeypatch, rest):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    command = f"{RUN} {rest}" if "output" in rest else f"profile {rest}"
    status, out, err = run(capsys, command)
    assert (status, out) == (2, "")
    assert "python -m pip install matplotlib" in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    assert run(capsys, f"{RUN} --json")[0] == 0
