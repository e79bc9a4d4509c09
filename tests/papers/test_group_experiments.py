"""The rows of paper 2: certified, and no worse than what was known before."""

import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import oracles
import pytest

from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.papers import group_experiments

Bound = dominating_pair.Bound
STEP = group_experiments.sampled_gaussian(0.05, 1.5)


def composed(size, num_steps, epsilon, post_hoc=group_experiments.GEOMETRIC):
    (row,) = group_experiments.composed_gaussian(
        STEP, (size,), (num_steps,), epsilon, post_hoc
    )
    return row


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 12),
    st.integers(0, 12),
    st.sampled_from([1e-4, 0.01, 0.3, 1.0]),
    st.sampled_from([0.3, 1.0, 5.0, 20.0]),
    st.sampled_from([0.0, 0.1, 1.0, 4.0, 12.0]),
    st.sampled_from(dominating_pair.Direction),
)
def test_one_step_of_a_split_is_certified_to_six_digits(
    removed, inserted, rate, sigma, epsilon, direction
):
    if removed + inserted == 0:
        removed = 1
    noise = groups.GroupedNoise(
        removed + inserted, sigma, is_laplace=False, sampling=groups.Poisson(rate)
    )
    split = noise.split(removed, inserted)
    truth = oracles.shift_mixture_deltas(
        oracles.binomial_shifts(removed, rate, (1, sigma)),
        oracles.binomial_shifts(inserted, rate, (-1, sigma)),
        epsilon,
    )[direction.value]
    lower, upper = (
        split.closed_form_delta(epsilon, direction, bound)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    # The oracle's own 40 digits are of numbers up to one.
    assert lower <= truth + 1e-38 and truth <= upper
    if truth > 1e-30:
        assert truth * (1 - 1e-6) <= lower and upper <= truth * (1 + 1e-6)


@pytest.mark.parametrize(
    "rows",
    [
        group_experiments.laplace_step((1, 3), (0.1, 1.0)),
        group_experiments.gaussian_step((1, 4), (2.0,), group_experiments.POST_HOC),
    ],
    ids=["Laplace", "Gaussian"],
)
def test_tight_is_no_more_than_any_earlier_bound(rows):
    assert [row.group_size for row in rows] == sorted(row.group_size for row in rows)
    for row in rows:
        assert row.lower <= row.upper
        assert all(row.upper <= each * (1 + 1e-9) for each in row.earlier.values())


def test_post_hoc_bounds_are_in_order():
    (row,) = group_experiments.gaussian_step((4,), (2.0,), group_experiments.POST_HOC)
    known = row.earlier
    assert known["optimal"] < known["geometric"] < known["linear"]
    assert row.upper < known["optimal"] and row.upper < known["agnostic"]


def test_rows_of_steps_in_turn():
    rows = group_experiments.composed_gaussian(STEP, (1, 3), (5, 20), 0.6)
    assert [(row.group_size, row.num_steps) for row in rows] == [
        (1, 5),
        (1, 20),
        (3, 5),
        (3, 20),
    ]
    for few, many in (rows[:2], rows[2:]):
        assert few.upper < many.lower
    for row in rows:
        accountant = group_experiments.group_accountant(
            STEP, row.group_size, row.num_steps
        )
        assert (row.lower, row.upper) == accountant.get_delta_bounds(0.6)
        assert row.upper <= row.earlier["geometric"] * (1 + 1e-4)


def test_tight_responses_are_below_the_agnostic_ones():
    rows = group_experiments.randomized_response((0.6, 0.9), (1.5, 30))
    assert [(row.truth, row.order) for row in rows] == [
        (0.6, 1.5),
        (0.6, 30),
        (0.9, 1.5),
        (0.9, 30),
    ]
    assert all(0 < row.tight < row.agnostic for row in rows)


def test_a_tabulated_profile_is_the_accountants():
    profile = group_experiments.tabulated_profile(STEP, 20, 0.6, 30)
    single = group_experiments.group_accountant(STEP, 1, 20)
    for epsilon in (0.0, 0.2, 0.6):
        assert profile(epsilon) == pytest.approx(single.get_delta(epsilon), rel=1e-3)


@pytest.mark.parametrize("power", [0.5, 3.0])
@pytest.mark.parametrize("expected", [1, 2, 66, 18_806, 39_998])
def test_the_affordable_number_of_steps(power, expected):
    asked = []

    def delta(count):
        asked.append(count)
        return 1e-6 * (count / (expected + 0.5)) ** power

    candidates = range(1, 40_000)
    found = group_experiments.affordable_steps(delta, 1e-6, candidates)
    assert found == expected
    assert len(asked) <= 1 + math.log2(len(candidates))


def test_a_delta_that_is_the_target_is_affordable():
    assert group_experiments.affordable_steps(float, 7.0, range(1, 20)) == 7


def test_affordable_steps_use_up_delta():
    def delta(count):
        return composed(3, count, 0.6).upper

    found = group_experiments.affordable_steps(delta, 1e-2, range(1, 64))
    assert delta(found) <= 1e-2 < delta(found + 1)


@pytest.mark.parametrize("candidates", [range(11, 20), range(2, 10)])
def test_the_affordable_number_must_be_among_the_candidates(candidates):
    with pytest.raises(ValueError, match=r"candidates must hold the answer. Found"):
        group_experiments.affordable_steps(float, 10.0, candidates)
