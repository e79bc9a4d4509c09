"""Settings refuse what they are not; schemes are the events that they say."""

import dataclasses

import dp_accounting
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.studies import training_run


def test_schemes_are_what_the_accountant_composes():
    setting = training_run.TrainingRun(1.5, 30, 2, 4, 1e-6)
    step = dp_accounting.GaussianDpEvent(1.5)
    events = {
        "random allocation": (ext.RandomAllocationEvent(step, 2, 30), 4),
        "Poisson sampling": (dp_accounting.PoissonSampledDpEvent(2 / 30, step), 120),
        "no amplification": (step, 8),
    }
    assert list(events) == list(training_run.SCHEMES)
    for scheme, (event, count) in events.items():
        expected = ext.PLDAccountant().compose(event, count)
        found = training_run.accountant(scheme, setting)
        bounds = found.get_epsilon_bounds(1e-6)
        assert bounds == expected.get_epsilon_bounds(1e-6)


def test_groups_are_those_of_the_event():
    setting = training_run.TrainingRun(3.0, 30, 2, 4, 1e-6, group_size=5)
    inner = dp_accounting.PoissonSampledDpEvent(
        2 / 30, dp_accounting.GaussianDpEvent(3.0)
    )
    expected = ext.PLDAccountant().compose(ext.GroupSubsampledEvent(5, inner), 120)
    found = training_run.accountant("Poisson sampling", setting)
    assert found.get_epsilon(1e-6) == expected.get_epsilon(1e-6)
    found = training_run.accountant("random allocation", setting)
    epoch = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(3.0), 2, 30)
    expected = ext.PLDAccountant().compose(ext.GroupSubsampledEvent(5, epoch), 4)
    assert found.get_epsilon(1e-6) == expected.get_epsilon(1e-6)
    chained = {s: training_run.construction(s, setting) for s in training_run.SCHEMES}
    assert {s for s, name in chained.items() if name} == {"random allocation"}


def test_an_unknown_scheme_is_named():
    setting = training_run.TrainingRun(1.0, 10, 1, 1, 1e-6)
    with pytest.raises(ValueError, match=r"'random allocation', .* Found 'shuffling'"):
        training_run.accountant("shuffling", setting)


@pytest.mark.parametrize(
    ("noise", "steps", "epochs", "message"),
    [
        (1e-101, 10, 1, "noise_multiplier must be in [1e-60, 1e+09]. Found 1e-101"),
        (1e10, 10, 1, "noise_multiplier must be in [1e-60, 1e+09]. Found 1e+10"),
        (1.0, 10**13, 1, "num_steps must be at most 1000000000. Found"),
        (1.0, 10**400, 1, "num_steps must be at most 2^53. Found one of 1329 bits"),
        (1.0, 10**6, 10**7, "num_steps times epochs must be at most"),
    ],
)
def test_settings_too_large_to_bound(noise, steps, epochs, message):
    with pytest.raises(ValueError) as error:
        training_run.TrainingRun(noise, steps, 1, epochs, 1e-6)
    assert message in str(error.value)


DATASET = {"dataset_size": 1000, "batch_size": 30, "noise_multiplier": 2.0}


def test_batches_of_a_dataset():
    """The rate is exact for Poisson's samples, the steps whole for an allocation."""
    run = training_run.TrainingRun(**DATASET, epochs=7, sampling="Poisson sampling")
    step = dp_accounting.GaussianDpEvent(2.0)
    sampled = dp_accounting.PoissonSampledDpEvent(0.03, step)
    assert run.event == dp_accounting.SelfComposedDpEvent(sampled, 234)  # 233.3 steps
    run = dataclasses.replace(run, sampling="random allocation")
    epoch = ext.RandomAllocationEvent(step, 1, 33)
    assert run.event == dp_accounting.SelfComposedDpEvent(epoch, 7)
    run = dataclasses.replace(run, sampling="no amplification")
    assert run.event == dp_accounting.SelfComposedDpEvent(step, 7)


def test_more_steps_of_an_epoch_cost_no_privacy():
    """So that a loader with one batch more is covered."""
    bounds = [
        training_run.accountant(
            "random allocation", training_run.TrainingRun(1.0, steps, 1, 2)
        ).get_epsilon_bounds(1e-5)
        for steps in (33, 34)
    ]
    assert bounds[1][1] < bounds[0][0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "num_steps, or dataset_size and batch_size, must be given. Found None."),
        ({"batch_size": 3}, "dataset_size must be given. Found None."),
        ({"dataset_size": 3}, "batch_size must be given. Found None."),
        ({**DATASET, "batch_size": 0}, "batch_size must be at least 1. Found 0."),
        ({**DATASET, "dataset_size": 1.5}, "dataset_size must be an integer."),
        (
            {**DATASET, "batch_size": 1001},
            "batch_size must be at most dataset_size. Found 1001 of 1000.",
        ),
        ({**DATASET, "num_steps": 9}, "num_steps must be left out where dataset_size"),
        ({**DATASET, "num_selected": 2}, "num_selected must be left out where"),
        (
            {**DATASET, "sampling": "shuffling"},
            "'no amplification', which is the one for shuffled batches. "
            "Found 'shuffling'",
        ),
    ],
)
def test_batches_that_are_none(fields, message):
    with pytest.raises((TypeError, ValueError)) as error:
        training_run.TrainingRun(**fields)
    assert message in str(error.value)


def test_an_event_needs_noise_and_a_way_of_sampling():
    run = training_run.TrainingRun(dataset_size=10, batch_size=2)
    with pytest.raises(ValueError, match=r"sampling must be given"):
        _ = run.event
    with pytest.raises(ValueError, match=r"noise_multiplier must be given"):
        _ = dataclasses.replace(run, sampling="no amplification").event
