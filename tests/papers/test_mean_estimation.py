"""The error of a private mean."""

import math

import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.papers import mean_estimation

Scheme = mean_estimation.Scheme
TASK = mean_estimation.Task(1.0, dimension=4, delta=1e-6, num_steps=8, mean=0.3)


def test_the_least_noise_meets_the_target():
    noise = mean_estimation.least_noise(Scheme.ALLOCATION, TASK)
    epsilons = []
    for factor in (1.0, 1 - 1e-4):
        step = mean_estimation.stock.GaussianDpEvent(factor * noise)
        accountant = ext.PLDAccountant().compose(ext.RandomAllocationEvent(step, 1, 8))
        epsilons.append(accountant.get_epsilon(1e-6))
    assert epsilons[0] <= 1.0 < epsilons[1]


def test_allocation_needs_less_noise_than_the_earlier_bound():
    tight = mean_estimation.least_noise(Scheme.ALLOCATION, TASK)
    assert tight < mean_estimation.least_noise(Scheme.RENYI_ALLOCATION, TASK)


@pytest.mark.parametrize("scheme", Scheme)
def test_the_expected_error_is_that_of_batches(scheme):
    """Batches are drawn record by record, as a training would."""
    rng = np.random.default_rng(1)
    task = mean_estimation.Task(1.0, dimension=4, num_steps=2, mean=0.3)
    size, noise, runs = 50, 0.5, 4000
    values = rng.random((runs, size)) < 0.3
    if scheme is Scheme.POISSON:
        batches = (rng.random((runs, size, 2)) < 1 / 2).sum(axis=2)
    else:
        batches = np.ones((runs, size))
    added = rng.normal(0.0, noise * 2.0, (runs, 2)).sum(axis=1)
    estimates = ((values * batches).sum(axis=1) + added) / size
    found = np.mean((estimates - 0.3) ** 2)
    expected = mean_estimation.expected_error(scheme, task, noise, size)
    assert found == pytest.approx(expected, rel=6 * math.sqrt(2 / runs))
    simulated = mean_estimation.simulated_error(
        scheme, task, noise, size, runs=runs, rng=rng
    )
    assert simulated == pytest.approx(expected, rel=6 * math.sqrt(2 / runs))


def test_a_comparison_has_all_schemes_and_is_repeatable():
    first, second = (
        mean_estimation.compare(TASK, [100, 1000], runs=10) for _ in range(2)
    )
    assert first == second
    assert [errors.scheme for errors in first] == list(Scheme)
    assert all(errors.sample_sizes == (100, 1000) for errors in first)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive. Found 0"),
        ({"epsilon": math.nan}, "epsilon must be a number"),
        ({"dimension": 0}, "dimension must be at least 1"),
        ({"num_steps": 0}, "num_steps must be at least 1"),
        ({"delta": 1.0}, r"delta must be in \(0, 1\)"),
        ({"mean": 0.0}, r"mean must be in \(0, 1\)"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        mean_estimation.Task(**{"epsilon": 1.0, **fields})


@pytest.mark.parametrize(
    ("sizes", "runs", "name"), [([0], 1, "sample_sizes"), ([10], 0, "runs")]
)
def test_bad_numbers(sizes, runs, name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1. Found 0"):
        mean_estimation.compare(TASK, sizes, runs=runs)
