"""Profiles and trade-off curves, and the runs of training that have them."""

import dataclasses
import fractions
import math

import dp_accounting
import hypothesis
from hypothesis import strategies as st
from matplotlib import figure
import mpmath
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import training_run

RUN = training_run.TrainingRun(3.0, 3, 1, 3, 1e-8)
KNOWN = training_run.NO_AMPLIFICATION


def by_name(found):
    return {(each.sampling, each.group_size): each for each in found}


@pytest.fixture(scope="module")
def profiles():
    two = dataclasses.replace(RUN, group_size=2)
    return by_name(curves.profiles(RUN, two, num_points=5))


@pytest.fixture(scope="module")
def trade_offs():
    run = training_run.TrainingRun(2.0, 3, 1, 3)
    two = dataclasses.replace(run, group_size=2)
    found = curves.trade_offs(run, two, least_rate=1e-4, num_points=4)
    return by_name(found)


def quantile(rate):
    return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(rate) - 1)


def test_bands_are_in_order_and_monotone(profiles, trade_offs):
    for found, sign in ((profiles, -1), (trade_offs, 1)):
        for curve in found.values():
            lower, upper = np.array(curve.lower), np.array(curve.upper)
            assert (np.diff(curve.x) > 0).all()
            assert (lower >= 0).all() and (lower <= upper).all() and (upper <= 1).all()
            assert (sign * np.diff(lower) >= 0).all()
            assert (sign * np.diff(upper) >= 0).all()


@pytest.mark.parametrize("size", [1, 2])
def test_profiles_of_known_batches_are_gaussian(profiles, size):
    """E steps of noise σ seen by K records: one of σ / (K √E)."""
    curve = profiles[KNOWN, size]
    with mpmath.workdps(40):
        mean = size * mpmath.sqrt(3) / mpmath.mpf(RUN.noise_multiplier)
    for at, low, high in zip(curve.x, curve.lower, curve.upper, strict=True):
        assert low <= oracles.gaussian_delta(mean, at) <= high <= low * (1 + 1e-8)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("scheme", "far"), [(KNOWN, 1), (training_run.SHUFFLED, 2)])
def test_trade_offs_of_known_batches_are_gaussian(trade_offs, scheme, far, size):
    """Three known steps: Φ(Φ⁻¹(α) + √3/2); twice that for two, or a replaced one."""
    curve = trade_offs[scheme, size]
    assert (curve.x[0], curve.x[-1]) == (pytest.approx(1e-4), 1)
    with mpmath.workdps(30):
        mean = far * size * mpmath.sqrt(3) / 2
        for rate, low, high in zip(
            curve.x[:-1], curve.lower[:-1], curve.upper[:-1], strict=True
        ):
            truth = mpmath.ncdf(quantile(rate) + mean)
            assert low <= truth <= high <= low * (1 + 1e-9)


def test_pictures_tell_curves_apart(profiles, trade_offs):
    """Colours and dashes are of schemes, marks of sizes of groups."""
    for found, count in ((profiles, 8), (trade_offs, 9)):
        axes = figure.Figure().add_subplot()
        assert curves.plot(list(found.values()), axes, title="a " * 90) is axes
        assert "\n" in axes.get_title(loc="left")
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert len(lines) == count and axes.get_xscale() == axes.get_yscale() == "log"
        for curve in found.values():
            line = lines[curve.label]
            alone = lines[found[curve.sampling, 1].label]
            assert line.get_color() == alone.get_color()
            assert line.get_linestyle() == alone.get_linestyle()
            assert (line.get_marker() == alone.get_marker()) == (curve.group_size == 1)
            assert list(line.get_ydata()) == [y for y in curve.upper if y > 0]
        looks = {(line.get_color(), line.get_marker()) for line in lines.values()}
        assert len(looks) == count


@pytest.mark.parametrize(
    ("question", "options"),
    [
        (curves.profiles, {"num_points": 3}),
        (curves.profiles, {"epsilons": [0.5]}),
        (curves.trade_offs, {"num_points": 3}),
    ],
)
def test_progress_counts_curves(question, options):
    run = training_run.TrainingRun(1, 10, delta=1e-6, sampling="no-amplification")
    told = []
    question(run, run, progress=lambda *counts: told.append(counts), **options)
    assert told == [(0, 2), (1, 2), (2, 2)]


def run_of(scheme, *fields, **more):
    return training_run.TrainingRun(*fields, sampling=scheme, **more)


STEP = dp_accounting.GaussianDpEvent(1.5)
EVENTS = {
    "random allocation": (ext.RandomAllocationEvent(STEP, 2, 30), 4),
    "Poisson sampling": (dp_accounting.PoissonSampledDpEvent(2 / 30, STEP), 120),
    "no amplification": (STEP, 8),
    "shuffled or fixed batches": (STEP, 8),
}


@pytest.mark.parametrize("scheme", training_run.SCHEMES)
def test_schemes_are_what_the_accountant_composes(scheme):
    event, count = EVENTS[scheme]
    event = ext.GroupSubsampledEvent(3, event)
    run = run_of(scheme, 1.5, 30, 2, 4, group_size=3)
    relation = run.neighboring_relation
    assert (relation.name == "REPLACE_ONE") == (scheme == training_run.SHUFFLED)
    expected = ext.PLDAccountant(relation).compose(event, count)
    bounds = run.accountant().get_epsilon_bounds(1e-6)
    assert bounds == expected.get_epsilon_bounds(1e-6)


def test_its_accountant_is_as_coarse_as_asked_for():
    run = run_of(training_run.POISSON_SAMPLING, 1.5, steps_per_epoch=30, epochs=4)
    fine, coarse = (
        run.accountant(value_discretization_interval=interval).get_epsilon_bounds(1e-6)
        for interval in (1e-4, 1e-3)
    )
    assert coarse[1] - coarse[0] > 3 * (fine[1] - fine[0])


Runs, Sampled = dp_accounting.SelfComposedDpEvent, dp_accounting.PoissonSampledDpEvent
Allocated, Schedule = ext.RandomAllocationEvent, ext.ScheduledAllocationEvent
NOISE = dp_accounting.GaussianDpEvent(2.0)
DATASET = {"dataset_size": 1000, "batch_size": 30, "epochs": 7}
# As every tool states a run: 14,062 steps of a rate that is 1 of 250 steps.
STEPS = {"sampling_rate": 0.004, "num_steps": 14_062}
PART = {"steps_per_epoch": 30, "epochs": 2.4}
TWICE = {"steps_per_epoch": 8, "batches_per_record": 2, "epochs": 2.5}


def composed(*events):
    return dp_accounting.ComposedDpEvent([*events])


@pytest.mark.parametrize(
    ("fields", "sampling", "event"),
    [
        # The rate is exact, 34 steps an epoch; the steps of an allocation are whole.
        (DATASET, "Poisson sampling", Runs(Sampled(0.03, NOISE), 238)),
        (DATASET, "random allocation", Runs(Allocated(NOISE, 1, 33), 7)),
        (DATASET, "no amplification", Runs(NOISE, 7)),
        (STEPS, "Poisson sampling", Runs(Sampled(0.004, NOISE), 14_062)),
        (
            STEPS,
            "random allocation",
            composed(Runs(Allocated(NOISE, 1, 250), 56), Schedule([NOISE], [62], 250)),
        ),
        (STEPS, "no amplification", Runs(NOISE, 57)),
        # A part of an epoch is a schedule that was cut short.
        (
            PART,
            "random allocation",
            composed(Runs(Allocated(NOISE, 1, 30), 2), Schedule([NOISE], [12], 30)),
        ),
        ({**PART, "epochs": 0.4}, "random allocation", Schedule([NOISE], [12], 30)),
        # All 30 steps, when rounded up.
        (
            {**PART, "epochs": 2.97},
            "random allocation",
            Runs(Allocated(NOISE, 1, 30), 3),
        ),
        (PART, "Poisson sampling", Runs(Sampled(1 / 30, NOISE), 72)),
        (PART, "no amplification", Runs(NOISE, 3)),
        (
            TWICE,
            "random allocation",
            composed(Runs(Allocated(NOISE, 2, 8), 2), Schedule([NOISE], [4], 8, 2)),
        ),
        (TWICE, "no amplification", Runs(NOISE, 6)),
    ],
)
def test_events_of_runs(fields, sampling, event):
    run = training_run.TrainingRun(2.0, **fields, sampling=sampling)
    assert run.event == event
    assert run.to_dict().items() >= fields.items()


@hypothesis.given(st.integers(1, 10**9))
def test_one_over_a_whole_number_has_epochs_of_as_many_steps(steps):
    run = training_run.TrainingRun(sampling_rate=1 / steps)
    assert run.epoch_steps == run.run_steps == steps
    assert run.rate == 1 / steps


@hypothesis.given(st.floats(1e-9, 1))
def test_a_rate_is_no_smaller_than_that_of_epochs(rate):
    """Poisson's is the float itself; schemes with epochs have no more steps in one."""
    run = training_run.TrainingRun(sampling_rate=rate, num_steps=7)
    assert run.rate == rate
    assert 1 / run.epoch_steps >= rate


@hypothesis.given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 5000))
def test_epochs_of_given_steps_cover_those_of_every_loader(size, batch, steps):
    batch = min(size, batch)
    run = training_run.TrainingRun(dataset_size=size, batch_size=batch, num_steps=steps)
    assert run.run_steps == steps
    whole, part = run.whole_and_part
    for length in (size // batch, -(-size // batch)):
        assert (whole, part / run.epoch_steps) >= (
            steps // length,
            steps % length / length,
        )


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
    assert run.run_steps == counted
    assert run.run_steps * batch >= epochs * size
    for steps in (size // batch, -(-size // batch)):
        assert run.epoch_steps <= steps
        assert (whole, part) >= divmod(math.ceil(epochs * steps), steps)
