"""compare as a shell user meets it."""

from command_runner import run
import pytest

import dp_accounting_ext
from dp_accounting_ext import __main__
from dp_accounting_ext.bounds import privacy_bounds


@pytest.mark.parametrize(
    "command",
    ["compare --noise-multiplier 1", "calibrate --epsilon 1 --sampling shuffled"],
)
def test_rows_and_notes_fit_a_terminal(capsys, command):
    """Notes are below the table, each once."""
    batches = "--dataset-size 123456789 --batch-size 1234567 --epochs 12"
    _, out, _ = run(capsys, f"{command} {batches} --group-size 2 --delta 1e-12")
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("(1) ") == 1
    assert "wide" not in "".join(out.splitlines()[:8])


def test_the_version(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["dp-accounting-ext", "--version"])
    assert __main__.main() == 0
    out, err = capsys.readouterr()
    assert err == ""
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
