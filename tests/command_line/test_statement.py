"""statement as a shell user meets it."""

import json

from command_runner import run
import pytest

COMMAND = (
    "statement --dataset-size 6000 --batch-size 3000 --epochs 1 "
    "--noise-multiplier 2.2 --delta 1e-6"
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
    assert whole["setting"]["batch_size"] == 3000
    assert [row["sampling"] for row in whole["results"]] == 2 * ["Poisson sampling"]
    for row in whole["results"]:
        assert 0 < row["epsilon_lower"] <= row["epsilon_upper"]
        assert row["is_wide"] is False
    _, out, _ = run(capsys, f"{COMMAND} --sampling shuffled --json")
    unknown, known = json.loads(out)["results"]
    assert unknown["epsilon_upper"] is None and known["epsilon_upper"] > 0
