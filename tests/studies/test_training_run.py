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


def run_of(scheme, *fields, **more):
    return training_run.TrainingRun(*fields, sampling=scheme, **more)


STEP = dp_accounting.GaussianDpEvent(1.5)
EVENTS = {
    "random allocation": (ext.RandomAllocationEvent(STEP, 2, 30), 4),
    "Poisson sampling": (dp_accounting.PoissonSampledDpEvent(2 / 30, STEP), 120),
    "no amplification": (STEP, 8),
    "shuffled or fixed batches": (STEP, 8),
}


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("scheme", training_run.SCHEMES)
def test_schemes_are_what_the_accountant_composes(scheme, group):
    event, count = EVENTS[scheme]
    if group > 1:
        event = ext.GroupSubsampledEvent(group, event)
    run = run_of(scheme, 1.5, 30, 2, 4, group_size=group)
    relation = run.neighboring_relation
    assert (relation.name == "REPLACE_ONE") == (scheme == training_run.SHUFFLED)
    expected = ext.PLDAccountant(relation).compose(event, count)
    bounds = run.accountant().get_epsilon_bounds(1e-6)
    assert bounds == expected.get_epsilon_bounds(1e-6)


def test_shuffled_batches_have_no_bound_on_a_record_more_or_less():
    run = run_of("shuffled", 1.5, 30)
    assert run.sampling == "shuffled or fixed batches"
    with pytest.raises(ValueError, match=r"use run\.accountant\(\)"):
        _ = run.event
    add = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    with pytest.raises(ValueError, match=r"must be REPLACE_ONE where .* Found ADD_OR"):
        run.accountant(add)


def test_names_of_options_are_those_of_schemes():
    assert set(training_run.OPTIONS.values()) == set(training_run.SCHEMES)
    for option, scheme in training_run.OPTIONS.items():
        assert run_of(option, 1.0, 9) == run_of(scheme, 1.0, 9)
    run = training_run.TrainingRun(1.0, 9)
    assert [each.sampling for each in training_run.schemes_of(run)] == list(EVENTS)
    alone = run_of("shuffled", 1.0, 9)
    assert training_run.schemes_of(alone) == [alone]


@pytest.mark.parametrize("name", ["shuffling", "shuffle", "", 3, None.__class__])
def test_an_unknown_scheme_is_named(name):
    with pytest.raises(ValueError, match=r"'random allocation', .*, shuffled\. Found"):
        training_run.scheme_named(name)


@pytest.mark.parametrize(
    ("noise", "steps", "epochs", "message"),
    [
        (
            1e-101,
            10,
            1,
            "noise_multiplier must be positive, from 1e-60 to 1e+09. Found 1e-101",
        ),
        (
            1e10,
            10,
            1,
            "noise_multiplier must be positive, from 1e-60 to 1e+09. Found 1e+10",
        ),
        (1.0, 10**13, 1, "steps_per_epoch times epochs must be at most 1000000000."),
        (1.0, 10**400, 1, "steps_per_epoch must be at most 2^53. Found one of 1329"),
        (1.0, 10**6, 10**7, "steps_per_epoch times epochs must be at most"),
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
        assert run.num_steps <= steps
        assert (whole, part) >= divmod(math.ceil(epochs * steps), steps)


@pytest.mark.parametrize("relation", ["ADD_OR_REMOVE_ONE", "REPLACE_ONE"])
@pytest.mark.parametrize("scheme", list(training_run.SCHEMES)[:3])
def test_epsilon_is_between_those_of_whole_epochs(scheme, relation):
    bounds = [
        run_of(scheme, 1.0, 20, epochs=epochs)
        .accountant(dp_accounting.NeighboringRelation[relation])
        .get_epsilon_bounds(1e-5)
        for epochs in (1, 1.25, 1.75, 2)
    ]
    for fewer, more in itertools.pairwise(bounds):
        assert fewer[0] <= more[1]


def test_a_part_against_its_law():
    """Half of one epoch of two steps: with chance 1/2 the record is in the one step."""
    run = run_of("random allocation", 1.0, 2, epochs=0.5)
    lower, upper = run.accountant().get_delta_bounds(0.3)
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
        run_of("random allocation", 1.0, steps, 1, 2)
        .accountant()
        .get_epsilon_bounds(1e-5)
        for steps in (33, 34)
    ]
    assert bounds[1][1] < bounds[0][0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {},
            "steps_per_epoch, or dataset_size and batch_size, must be given. Fo",
        ),
        ({"batch_size": 3}, "dataset_size must be given. Found it missing."),
        ({"dataset_size": 3}, "batch_size must be given. Found it missing."),
        ({**DATASET, "batch_size": 0}, "batch_size must be at least 1. Found 0."),
        ({**DATASET, "dataset_size": 1.5}, "dataset_size must be an integer."),
        (
            {**DATASET, "batch_size": 1001},
            "batch_size must be at most dataset_size. Found 1001 of 1000.",
        ),
        ({**DATASET, "steps_per_epoch": 9}, "steps_per_epoch must be left out where"),
        ({**DATASET, "batches_per_record": 2}, "batches_per_record must be left out"),
        (
            {"steps_per_epoch": 3, "batches_per_record": 4},
            "_per_epoch. Found 4 of",
        ),
        ({**DATASET, "sampling": "shuffling"}, "shuffled. Found 'shuffling'."),
    ],
)
def test_batches_that_are_none(fields, message):
    with pytest.raises((TypeError, ValueError)) as error:
        training_run.TrainingRun(**fields)
    assert message in str(error.value)


def test_a_dictionary_has_what_is_known_and_what_is_counted():
    run = training_run.TrainingRun(dataset_size=900, batch_size=31, epochs=2)
    assert run.to_dict() == {
        "dataset_size": 900,
        "batch_size": 31,
        "batches_per_record": 1,
        "epochs": 2,
        "group_size": 1,
        "sampling_rate": 31 / 900,
        "num_samples": 60,
        "num_steps": 29,
    }


def test_an_event_needs_noise_and_a_way_of_sampling():
    run = training_run.TrainingRun(dataset_size=10, batch_size=2)
    with pytest.raises(ValueError, match=r"sampling must be given"):
        _ = run.event
    with pytest.raises(ValueError, match=r"noise_multiplier must be given"):
        _ = dataclasses.replace(run, sampling="no amplification").event
