"""Risks on the command line: noise for them, and statements of them."""

import dataclasses
import json

import pytest

from dp_accounting_ext import command_line
from dp_accounting_ext import risk
from dp_accounting_ext.studies import training_run

RUN = [
    *("--dataset-size", "6000", "--batch-size", "600", "--epochs", "1"),
    *("--delta", "1e-6", "--sampling", "Poisson sampling"),
]
SETTING = training_run.TrainingRun(
    dataset_size=6000,
    batch_size=600,
    epochs=1,
    delta=1e-6,
    sampling="Poisson sampling",
)


def printed(capsys, *arguments):
    status = command_line.main([*arguments])
    return status, capsys.readouterr()


def accountant(noise):
    return dataclasses.replace(SETTING, noise_multiplier=noise).accountant()


@pytest.mark.parametrize(
    ("options", "measure", "target"),
    [
        (
            ["--tpr", "0.05", "--fpr", "0.01"],
            lambda a: risk.attack_success(a, 0.01),
            0.05,
        ),
        (
            ["--ppv", "0.3", "--fpr", "0.01", "--prior", "0.1"],
            lambda a: risk.positive_predictive_value(a, 0.01, 0.1),
            0.3,
        ),
    ],
)
def test_noise_for_a_risk(capsys, options, measure, target):
    status, out = printed(capsys, "calibrate", *RUN, *options, "--json")
    assert status == 0
    (row,) = json.loads(out.out)["results"]
    noise = row["noise_multiplier"]
    assert measure(accountant(noise))[1] <= target
    assert measure(accountant(noise * (1 - 1e-4)))[1] > target


def test_the_table_tells_the_target(capsys):
    options = ["--advantage", "0.1", "--json"]
    (row,) = json.loads(printed(capsys, "calibrate", *RUN, *options)[1].out)["results"]
    status, out = printed(capsys, "calibrate", *RUN, *options[:-1])
    assert status == 0 and "\u2264 0.1" in out.out and "risk upper" in out.out
    assert f"{row['noise_multiplier']:g}" in out.out


def test_a_statement_of_risks(capsys):
    arguments = ["statement", *RUN, "--noise-multiplier", "1.0", "--risk"]
    status, out = printed(capsys, *arguments)
    assert status == 0
    words = risk.in_words(accountant(1.0))
    assert f"With Poisson sampling (add or remove): {words}" in out.out
    assert max(map(len, out.out.splitlines())) <= 100
    status, out = printed(capsys, *arguments, "--json")
    found = json.loads(out.out)
    assert found["risk"] == {"Poisson sampling (add or remove)": words}
