"""A statement claims what accountants certify, and no ε that is less."""

import math
import re

import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import training_run

KNOWN, SHUFFLED = "no amplification", "shuffled or fixed batches"
RUN = training_run.TrainingRun(
    dataset_size=1000,
    batch_size=500,
    epochs=1,
    noise_multiplier=2.2,
    delta=1e-6,
    group_size=2,
)


def claim(found, *of):
    (one,) = [
        each for each in found if (each.sampling, each.adjacency, each.group_size) == of
    ]
    return one


@pytest.fixture(scope="module")
def found():
    return statement.claims(RUN)


def test_levels_adjacencies_and_ways_of_sampling(found):
    keys = [(each.group_size, each.sampling, each.adjacency) for each in found]
    ways = ["random allocation", "Poisson sampling", KNOWN, SHUFFLED]
    assert keys == [
        (size, way, adjacency)
        for size in (1, 2)
        for way in ways
        for adjacency in ("add or remove", "replace")
    ]


def test_a_claim_is_the_events(found):
    epoch = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(2.2), 1, 2)
    bounds = ext.PLDAccountant().compose(epoch).get_epsilon_bounds(1e-6)
    one = claim(found, "random allocation", "add or remove", 1)
    assert (one.epsilon_lower, one.epsilon_upper) == bounds


def numbers_of(text):
    """Numbers of tables."""
    lines = [line for line in text.splitlines() if re.search(r"\w \(\d\) ", line)]
    cells = [re.findall(r"\d[\d.e+]*|inf", line.split(")", 1)[1]) for line in lines]
    return [float(cell) for line in cells for cell in line]


def test_a_statement_says_the_numbers_rounded_up(found):
    text = statement.privacy_statement(RUN, found)
    printed = numbers_of(text)
    upper = [each.epsilon_upper for each in found if each.epsilon_upper is not None]
    assert len(printed) == len(upper)
    assert (np.array(printed) >= upper).all()
    assert (np.array(printed) < np.array(upper) * 1.001).all()
    assert text.count("none known") == len(found) - len(upper)
    assert "1000 records in batches of 500" in text
    assert "User level, 2 examples a user" in text
    assert "shuffle" in text
    assert text == statement.privacy_statement(RUN)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("noise", [1e-60, 1e-7, 1e9])
def test_numbers_of_any_size(noise):
    strange = training_run.TrainingRun(noise, 2, 1, 1, 1e-6, sampling=KNOWN)
    text = statement.privacy_statement(strange)
    assert max(map(len, text.splitlines())) <= 80
    upper = [each.epsilon_upper for each in statement.claims(strange)]
    printed = numbers_of(text)
    assert (np.array(printed) >= upper).all()
    assert printed == pytest.approx(upper, rel=1e-3)


def test_no_bound_on_epsilon_is_infinite():
    row = comparison.Row(KNOWN, "replace", 1, 1.0, 0.1, 0.0, math.inf, 0.0)
    text = statement.privacy_statement(RUN, [row])
    assert "inf (a)" in text and "(a) No finite bound is known." in text


def test_progress_of_claims_counts_rows():
    run = training_run.TrainingRun(2.0, 3, delta=1e-3, sampling="no-amplification")
    told = []
    rows = statement.claims(run, lambda *counts: told.append(counts))
    assert told == [(number, len(rows)) for number in range(len(rows) + 1)]
