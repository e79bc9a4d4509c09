"""Ways of drawing batches side by side, the least noise of each, and statements."""

import dataclasses
import decimal
import math
import re

import dp_accounting
import nights
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import strategy_comparison
from dp_accounting_ext.studies import training_run


def test_shuffled_batches_have_the_bounds_of_a_replaced_record_and_no_others():
    """Two records away from each other: a Gaussian twice as far, and nothing else."""
    run = training_run.TrainingRun(2.0, 7, epochs=3, delta=1e-6, sampling="shuffled")
    found = comparison.bracket(run)
    far = ext.PLDAccountant().compose(dp_accounting.GaussianDpEvent(1.0), 3)
    assert found.adjacency == "replace"
    assert found.epsilon_lower <= far.get_epsilon_bounds(1e-6)[1]
    assert found.epsilon_upper >= far.get_epsilon_bounds(1e-6)[0]
    (alone,) = comparison.compare(run)
    assert alone.epsilon_upper == found.epsilon_upper
    add = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    unknown = comparison.bracket(run, add)
    assert unknown.epsilon_lower is unknown.epsilon_upper is None
    assert "no bound is known" in unknown.note and not unknown.is_wide


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ((1.0, 1.0), ""),
        ((1.0, 2.0), "50.0% wide; where brackets overlap, either row may"),
        ((0.0, math.inf), "no finite bound"),
    ],
)
def test_a_bracket_that_is_wide_says_so(bounds, said):
    found = comparison.timed(("one", "replace", 1, 1.0, 1e-6), lambda: bounds)
    assert (found.epsilon_lower, found.epsilon_upper) == bounds
    assert said in found.note and bool(said) == bool(found.note) == found.is_wide


def run(steps, selected, epochs, delta, group=1):
    return training_run.TrainingRun(None, steps, selected, epochs, delta, group)


def accountant_at(row, setting, factor=1.0):
    """An accountant that knows of no calibration."""
    noise = row.noise_multiplier * factor
    noisy = {"noise_multiplier": noise, "sampling": row.sampling}
    return dataclasses.replace(setting, **noisy).accountant()


def six_digits_less(noise):
    context = decimal.Context(prec=6)
    return float(decimal.Decimal(repr(noise)).next_minus(context))


def check_least(row, setting, epsilon):
    assert row.epsilon_upper <= epsilon
    assert accountant_at(row, setting).get_epsilon(setting.delta) <= epsilon
    assert row.noise_multiplier == float(f"{row.noise_multiplier:.6g}")
    less = six_digits_less(row.noise_multiplier) / row.noise_multiplier
    assert 1 - 1.1e-5 < less < 1
    assert accountant_at(row, setting, less).get_epsilon(setting.delta) > epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(2.0, 1e-6), *nights.at_night((1e-3, 1e-15), (100.0, 1e-15), (2.0, 0.1))],
)
def test_every_target_is_met_with_the_least_noise(epsilon, delta):
    setting = run(4, 1, 2, delta)
    for row in calibration.calibrate(setting, epsilon):
        check_least(row, setting, epsilon)


def test_hardly_any_loss():
    setting = dataclasses.replace(run(10, 1, 1, 1e-6), sampling="poisson-sampling")
    (row,) = calibration.calibrate(setting, 5e-324)
    assert row.epsilon_upper <= 5e-324


@pytest.mark.parametrize("epsilon", [1e5, *nights.at_night(1000.0)])
def test_targets_whose_likelihood_ratios_fit_no_float(epsilon):
    setting = run(4, 1, 2, 1e-6)
    rows = calibration.calibrate(setting, epsilon)
    assert [row.sampling for row in rows] == list(training_run.SCHEMES)
    for row in rows:
        check_least(row, setting, epsilon)
        assert "nothing is promised" in row.note


DELTA = 1e-4


def compared(sampling, *fields):
    event = ext.MatrixAllocationEvent(*fields)
    (row,) = strategy_comparison.compare(event, DELTA, sampling=sampling)
    return row.epsilon_lower, row.epsilon_upper


def known(event):
    return ext.PLDAccountant().compose(event).get_epsilon_bounds(DELTA)


def assert_around(bounds, other):
    """Both brackets may hold one number, and the first one is tight."""
    assert bounds[0] <= other[1]
    assert other[0] <= bounds[1]
    assert bounds[1] <= bounds[0] * (1 + 1e-4)


def test_bands_are_sampled_in_turn():
    column = np.array([3.0, 4.0])  # Of norm 5.
    gaussian = dp_accounting.GaussianDpEvent(10.0 / 5)
    sampled = dp_accounting.PoissonSampledDpEvent(2 / 8, gaussian)
    found = compared("cyclic Poisson", column, 10.0, 8, 3)
    assert_around(found, known(dp_accounting.SelfComposedDpEvent(sampled, 12)))


def test_a_known_bin_is_a_gaussian_of_the_longest_mean():
    found = compared("no amplification", (1.0, 0.5, 0.25), 2.0, 2, 2)
    # The first bin's columns, 0 and 2, add up to 1, 1/2, 5/4, 1/2.
    norm = math.sqrt(1 + 0.25 + 1.5625 + 0.25)
    assert_around(found, known(dp_accounting.GaussianDpEvent(2.0 / norm)))


def test_windows_are_those_of_the_least_divergence_of_order_two():
    """E Z² is computed by its definition for every number of cycles."""
    column, steps, apart, rate, sigma = (1.0, 0.6, 0.3), 60, 4, 1 / 12, 1.5
    found = strategy_comparison.fresh_windows(column, sigma, apart, steps, rate)
    costs = {}
    for cycles in range(5, 16):
        window = steps // cycles - apart + 1
        matrix = np.zeros((window + 2, window))
        for place in range(window):
            matrix[place : place + 3, place] = column
        grown = np.exp(matrix.T @ matrix / sigma**2).mean() - 1
        costs[cycles, window] = (1 + (5 / cycles) ** 2 * grown) ** cycles
    assert (found.num_cycles, found.window) == min(costs, key=costs.get)
    assert found.num_cycles * found.sampling_probability == pytest.approx(5)
    with pytest.raises(ValueError, match="rate must be at most 0.25 for steps 4 apart"):
        strategy_comparison.fresh_windows(column, sigma, apart, steps, 0.3)


def test_schemes_have_the_participation_of_bins():
    found = strategy_comparison.schemes(
        ext.MatrixAllocationEvent((1.0, 0.5), 2.0, 10, 4)
    )
    stays_out = found["b-min-sep"][0]
    rate = stays_out.sampling_probability
    assert rate / (1 + rate) == pytest.approx(1 / 10)
    assert stays_out.num_steps == 40
    windows = found["fresh windows"][1]
    assert windows.num_cycles * windows.sampling_probability == pytest.approx(4)
    wide = strategy_comparison.schemes(ext.MatrixAllocationEvent((1.0,) * 5, 2.0, 3, 2))
    assert list(wide) == ["balls in bins", "no amplification"]


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
