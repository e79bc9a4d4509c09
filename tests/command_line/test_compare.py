"""compare as a shell user meets it."""

import json

from command_runner import run
import dp_accounting
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


def test_a_rate_and_steps_are_counted_exactly(capsys):
    """14,062 steps stay as many, whichever command they are given to."""
    typed = "--noise-multiplier 1 --sampling-rate .004 --num-steps 14062"
    typed += " --delta 1e-6 --sampling poisson-sampling"
    step = dp_accounting.PoissonSampledDpEvent(
        0.004, dp_accounting.GaussianDpEvent(1.0)
    )
    accountant = dp_accounting_ext.PLDAccountant().compose(step, 14_062)
    _, out, _ = run(capsys, f"compare {typed} --json")
    (row,) = json.loads(out)["results"]
    assert (row["epsilon_lower"], row["epsilon_upper"]) == (
        accountant.get_epsilon_bounds(1e-6)
    )
    _, out, _ = run(capsys, f"statement {typed}")
    assert "Each of 14062 steps draws" in out
    assert "q = 0.004" in " ".join(out.split())


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
