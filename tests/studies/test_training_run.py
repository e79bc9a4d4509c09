"""Settings refuse what they are not; schemes are the events that they say."""

import dataclasses
import fractions
import itertools
import math

import dp_accounting
import hypothesis
from hypothesis import strategies as st
import mpmath
import numpy as np
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
    assert run.event == dp_accounting.SelfComposedDpEvent(sampled, 238)  # 34 an epoch
    run = dataclasses.replace(run, sampling="random allocation")
    epoch = ext.RandomAllocationEvent(step, 1, 33)
    assert run.event == dp_accounting.SelfComposedDpEvent(epoch, 7)
    run = dataclasses.replace(run, sampling="no amplification")
    assert run.event == dp_accounting.SelfComposedDpEvent(step, 7)


@pytest.mark.parametrize(
    ("size", "batch", "epochs", "steps"),
    [
        (60_000, 256, 30, 7050),
        (60_000, 256, 2.5, 588),
        (60_000, 250, 15, 3600),
        (1000, 300, 1, 4),
        (1000, 600, 1, 2),
    ],
)
def test_poisson_steps_are_those_of_a_loop_epoch_by_epoch(size, batch, epochs, steps):
    """A loop that ends each epoch with a smaller batch takes all of these."""
    run = training_run.TrainingRun(
        dataset_size=size, batch_size=batch, epochs=epochs, noise_multiplier=1.0
    )
    assert run.num_samples == steps
    sampled = dp_accounting.PoissonSampledDpEvent(
        batch / size, dp_accounting.GaussianDpEvent(1.0)
    )
    event = dataclasses.replace(run, sampling="Poisson sampling").event
    assert event == dp_accounting.SelfComposedDpEvent(sampled, steps)


def test_the_last_batches_count_among_the_steps_that_are_too_many():
    with pytest.raises(ValueError, match=r"times epochs must be at most"):
        training_run.TrainingRun(dataset_size=3, batch_size=2, epochs=10**9)


def test_a_part_of_an_epoch_is_a_schedule_that_was_cut_short():
    step = dp_accounting.GaussianDpEvent(2.0)
    run = training_run.TrainingRun(2.0, 30, epochs=2.4, sampling="random allocation")
    epochs = dp_accounting.SelfComposedDpEvent(
        ext.RandomAllocationEvent(step, 1, 30), 2
    )
    last = ext.ScheduledAllocationEvent([step], [12], 30)
    assert run.event == dp_accounting.ComposedDpEvent([epochs, last])
    assert dataclasses.replace(run, epochs=0.4).event == last
    poisson = dataclasses.replace(run, sampling="Poisson sampling")
    sampled = dp_accounting.PoissonSampledDpEvent(1 / 30, step)
    assert poisson.event == dp_accounting.SelfComposedDpEvent(sampled, 72)
    known = dataclasses.replace(run, sampling="no amplification")
    assert known.event == dp_accounting.SelfComposedDpEvent(step, 3)
    three = dataclasses.replace(run, epochs=2.97)  # All 30 steps, when rounded up.
    assert three.event == dataclasses.replace(run, epochs=3).event


def test_whole_numbers_of_epochs_are_one_however_they_are_written():
    runs = {training_run.TrainingRun(1.0, 9, epochs=e) for e in (2, 2.0, np.float32(2))}
    assert len(runs) == 1
    assert repr(runs.pop().epochs) == "2"


@hypothesis.given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 3000))
def test_steps_of_a_part_cover_those_of_every_loader(size, batch, thousandths):
    """Of as many batches as the quotient, rounded down or up; so do Poisson's."""
    batch = min(size, batch)
    run = training_run.TrainingRun(
        dataset_size=size, batch_size=batch, epochs=thousandths / 1000
    )
    whole, part = run.whole_and_part
    epochs = fractions.Fraction(thousandths, 1000)
    longest = -(-size // batch)
    parts = [min(epochs - i, 1) for i in range(math.ceil(epochs))]
    counted = sum(math.ceil(longest * part) for part in parts)
    assert run.num_samples == counted
    assert run.num_samples * batch >= epochs * size
    for steps in (size // batch, -(-size // batch)):
        assert run.steps_of_epoch <= steps
        assert (whole, part) >= divmod(math.ceil(epochs * steps), steps)


@pytest.mark.parametrize("relation", ["ADD_OR_REMOVE_ONE", "REPLACE_ONE"])
@pytest.mark.parametrize("scheme", training_run.SCHEMES)
def test_epsilon_is_between_those_of_whole_epochs(scheme, relation):
    bounds = [
        training_run.accountant(
            scheme,
            training_run.TrainingRun(1.0, 20, epochs=epochs),
            neighboring_relation=dp_accounting.NeighboringRelation[relation],
        ).get_epsilon_bounds(1e-5)
        for epochs in (1, 1.25, 1.75, 2)
    ]
    for fewer, more in itertools.pairwise(bounds):
        assert fewer[0] <= more[1]


def test_a_part_against_its_law():
    """Half of one epoch of two steps: with chance 1/2 the record is in the one step."""
    run = training_run.TrainingRun(1.0, 2, epochs=0.5)
    lower, upper = training_run.accountant("random allocation", run).get_delta_bounds(
        0.3
    )
    with mpmath.workdps(40):
        # Remove: P = (N(0, 1) + N(1, 1)) / 2 against Q = N(0, 1), and the reverse.
        def tail(mean, x):
            return mpmath.ncdf(mean - x)

        up, down = mpmath.exp("0.3"), mpmath.exp("-0.3")
        x = mpmath.log(2 * up - 1) + mpmath.mpf(1) / 2
        removed = (tail(0, x) + tail(1, x)) / 2 - up * tail(0, x)
        y = mpmath.log(2 * down - 1) + mpmath.mpf(1) / 2
        added = (1 - tail(0, y)) - up * (1 - (tail(0, y) + tail(1, y)) / 2)
        exact = max(removed, added)
    assert lower <= exact <= upper < 1.001 * exact


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
        ({}, "num_steps, or dataset_size and batch_size, must be given. Found it"),
        ({"batch_size": 3}, "dataset_size must be given. Found it missing."),
        ({"dataset_size": 3}, "batch_size must be given. Found it missing."),
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
            "'no amplification', which under REPLACE_ONE is the one for shuffled "
            "batches. Found 'shuffling'",
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
