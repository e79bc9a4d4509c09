"""The subcommand risk, and risks that calibrate and statement are asked for."""

import dataclasses
import json

from command_runner import run
import pytest

from dp_accounting_ext import command_line
from dp_accounting_ext import risk
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.studies import training_run

BATCHES = "--dataset-size 6000 --batch-size 600 --epochs 1"
RUN = f"{BATCHES} --noise-multiplier 1.5"
SETTING = training_run.TrainingRun(
    dataset_size=6000, batch_size=600, epochs=1, delta=1e-6, sampling="poisson-sampling"
)
OF_SETTING = f"{BATCHES} --delta 1e-6 --sampling poisson-sampling"


def results(capsys, command):
    return json.loads(run(capsys, f"{command} --json")[1])["results"]


def accountant_of(noise):
    return dataclasses.replace(SETTING, noise_multiplier=noise).accountant()


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
    status, out, err = run(capsys, f"risk {options} --prior 0.1")
    assert (status, err) == (0, "")
    assert risk.in_words(accountant, prior=0.1) in out
    (found,) = results(capsys, f"risk {options}").values()
    assert tuple(found["advantage"]) == risk.advantage(accountant)


def test_a_run_has_a_gaussian_parameter_and_its_regret(capsys):
    command = f"risk {RUN} --sampling poisson-sampling"
    status, out, _ = run(capsys, command)
    assert status == 0 and "the regret." in out
    assert max(map(len, out.splitlines())) <= 80
    (found,) = results(capsys, command).values()
    assert tuple(found["mu"]) == accountant_of(1.5).get_gdp_parameter_bounds()
    low, high = found["regret"]
    assert 0 < low <= high < 0.1


def test_parameters_are_converted_to_each_other(capsys):
    status, out, _ = run(capsys, "risk --rho 2.56 --delta 1e-10")
    assert status == 0 and "ε at δ = 1e-10 is at most 17.15892; for" in out
    (found,) = results(capsys, "risk --mu 1 --delta 1e-5").values()
    known = risk.published(mu=1.0).get_epsilon_bounds(1e-5)
    assert tuple(found["epsilon"]) == known
    status, out, _ = run(capsys, "risk --epsilon 1 --delta 1e-5")
    assert "Every mechanism with ρ ≤ 0.03055342, or" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


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


def test_an_epsilon_that_promises_nothing_is_called_that(capsys):
    large = "--steps-per-epoch 2 --epochs 2 --noise-multiplier 1.1 --delta 1e-5"
    command_line.main(f"compare {large} --sampling shuffled".split())
    out = " ".join(capsys.readouterr().out.split())
    assert "so large that nothing is promised" in out
    command_line.main(f"compare {large} --sampling random-allocation".split())
    assert "nothing is promised" not in capsys.readouterr().out
    command_line.main(f"statement {large}".split())
    out = " ".join(capsys.readouterr().out.split())
    assert "Warning: for random allocation" not in out
    assert "shuffled or fixed batches, ε is so large that nothing" in out


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "measure", "target"),
    [
        ("--tpr 0.05 --fpr 0.01", lambda a: risk.attack_success(a, 0.01), 0.05),
        (
            "--ppv 0.3 --fpr 0.01 --prior 0.1",
            lambda a: risk.positive_predictive_value(a, 0.01, 0.1),
            0.3,
        ),
    ],
)
def test_noise_for_a_risk(capsys, options, measure, target):
    (row,) = results(capsys, f"calibrate {OF_SETTING} {options}")
    noise = row["noise_multiplier"]
    assert measure(accountant_of(noise)) == (row["risk_lower"], row["risk_upper"])
    assert 0.998 * target < row["risk_lower"] <= row["risk_upper"] <= target
    assert measure(accountant_of(noise * (1 - 1e-4)))[1] > target


def test_the_table_tells_the_target(capsys):
    command = f"calibrate {OF_SETTING} --advantage 0.1"
    (row,) = results(capsys, command)
    status, out, _ = run(capsys, command)
    assert status == 0 and "\u2264 0.1" in out and "risk upper" in out
    assert f"  {decimals.rounded_up(row['epsilon_upper'])}" in out
    assert f"{row['noise_multiplier']:g}" in out


@pytest.mark.parametrize("command", ["risk", "statement --brief --risk"])
def test_names_of_groups_fit_a_terminal(capsys, command):
    asked = f"{RUN} --delta 1e-6 --group-size 3 --sampling shuffled"
    status, out, _ = run(capsys, f"{command} {asked}")
    assert status == 0 and "With shuffled or fixed batches (replace)" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.nightly
def test_a_statement_of_risks(capsys):
    command = f"statement {OF_SETTING} --noise-multiplier 1.0 --risk"
    status, out, _ = run(capsys, command)
    assert status == 0
    words = risk.in_words(accountant_of(1.0))
    assert f"With Poisson sampling (add or remove):\n{words}" in out
    found = json.loads(run(capsys, f"{command} --json")[1])
    assert found["risk"] == {"Poisson sampling (add or remove)": words}
