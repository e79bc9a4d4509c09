"""The subcommand risk: of published guarantees, and of runs with μ and its regret."""

import json

import pytest

from dp_accounting_ext import command_line
from dp_accounting_ext import risk
from dp_accounting_ext.studies import training_run

RUN = "--dataset-size 6000 --batch-size 600 --epochs 1 --noise-multiplier 1.5"


def printed(capsys, command):
    status = command_line.main(["risk", *command.split()])
    return status, *capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ("--epsilon 1 --delta 1e-5", {"epsilon": 1.0, "delta": 1e-5}),
        ("--epsilon 1", {"epsilon": 1.0}),
        ("--epsilon 1 --delta 0", {"epsilon": 1.0}),
        ("--epsilon 501 --delta 1e-5", {"epsilon": 501.0, "delta": 1e-5}),
        ("--rho 0.5", {"rho": 0.5}),
        ("--mu 0.7", {"mu": 0.7}),
    ],
)
def test_what_was_published(capsys, options, known):
    accountant = risk.published(**known)
    status, out, err = printed(capsys, f"{options} --prior 0.1")
    assert (status, err) == (0, "")
    assert risk.in_words(accountant, prior=0.1) in out
    (found,) = json.loads(printed(capsys, f"{options} --json")[1])["results"].values()
    assert tuple(found["advantage"]) == risk.advantage(accountant)


def test_a_run_has_a_gaussian_parameter_and_its_regret(capsys):
    command = f"{RUN} --sampling poisson-sampling"
    status, out, _ = printed(capsys, command)
    assert status == 0 and "the regret." in out
    assert max(map(len, out.splitlines())) <= 100
    (found,) = json.loads(printed(capsys, f"{command} --json")[1])["results"].values()
    accountant = training_run.TrainingRun(
        1.5,
        None,
        epochs=1,
        sampling="Poisson sampling",
        dataset_size=6000,
        batch_size=600,
    ).accountant()
    assert tuple(found["mu"]) == accountant.get_gdp_parameter_bounds()
    low, high = found["regret"]
    assert 0 < low <= high < 0.1


def test_parameters_are_converted_to_each_other(capsys):
    status, out, _ = printed(capsys, "--rho 2.56 --delta 1e-10")
    assert status == 0 and "ε at δ = 1e-10 is at most 17.15890; of" in out
    (found,) = json.loads(printed(capsys, "--mu 1 --delta 1e-5 --json")[1])[
        "results"
    ].values()
    known = risk.published(mu=1.0).get_epsilon_bounds(1e-5)
    assert tuple(found["epsilon"]) == known
    status, out, _ = printed(capsys, "--epsilon 1 --delta 1e-5")
    assert "every mechanism with ρ ≤ 0.03055327, and" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("--mu 1 --noise-multiplier 1", "--noise-multiplier must be left out"),
        ("--mu 1 --delta 2", "--delta must be in (0, 1). Found 2."),
        ("--mu 1 --dataset-size 9", "--dataset-size must be left out with --mu"),
        ("--mu -1", "--mu must be non-negative"),
        ("--epsilon -1", "--epsilon must be non-negative"),
        ("--mu 1 --rho 1", "not allowed with"),
        ("--mu 1 --prior 1", "--prior must be in"),
        ("", "must be given"),
        (RUN.replace("--noise-multiplier 1.5", ""), "--noise-multiplier must be given"),
    ],
)
def test_bad_input(capsys, command, told):
    try:
        status, _, err = printed(capsys, command)
    except SystemExit as ended:
        status, err = ended.code, capsys.readouterr().err
    assert status == 2 and told in err


def test_a_delta_of_one_over_the_dataset_is_warned_of(capsys):
    for command in (
        f"compare {RUN} --delta 0.001",
        "calibrate --dataset-size 6000 --batch-size 60 --delta 0.001 --epsilon 1",
        f"profile {RUN} --delta 0.001",
        f"risk {RUN} --delta 0.001",
    ):
        options = [*command.split(), "--sampling", "no-amplification"]
        assert command_line.main(options) == 0
        err = capsys.readouterr().err
        assert err.count("is not below 1/6000") == 1
    assert command_line.main(f"compare {RUN} --delta 1e-6".split()) == 0
    assert capsys.readouterr().err == ""


def test_noise_for_a_risk_tells_what_is_reached(capsys):
    command = "calibrate --dataset-size 6000 --batch-size 60 --tpr 0.05 --fpr 0.01"
    command_line.main([*command.split(), "--sampling", "no-amplification", "--json"])
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert 0.0499 < row["risk_lower"] <= row["risk_upper"] <= 0.05
    for wrong, told in (
        ("--tpr 0.005 --fpr 0.01", "--tpr must be above --fpr"),
        ("--tpr 0.01 --fpr 0.01", "--tpr must be above --fpr"),
        ("--ppv 0.3 --fpr 0.01", "--ppv must be above --prior"),
    ):
        command = f"calibrate --dataset-size 6000 --batch-size 60 {wrong}"
        assert command_line.main(command.split()) == 2
        assert told in capsys.readouterr().err


def test_an_epsilon_that_promises_nothing_is_called_that(capsys):
    large = "--steps-per-epoch 2 --epochs 2 --noise-multiplier 1.1 --delta 1e-5"
    command_line.main(f"compare {large} --sampling shuffled".split())
    out = " ".join(capsys.readouterr().out.split())
    assert "so large that nothing is promised" in out
    command_line.main(f"compare {large} --sampling random-allocation".split())
    assert "nothing is promised" not in capsys.readouterr().out
    command_line.main(f"statement {large}".split())
    out = " ".join(capsys.readouterr().out.split())
    assert "Warning: of random allocation" not in out
    assert "shuffled or fixed batches, ε is so large that nothing" in out
