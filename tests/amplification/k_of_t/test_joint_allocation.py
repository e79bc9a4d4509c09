"""The parts of the joint law, each against mpmath or rational arithmetic."""

import dataclasses
from fractions import Fraction
import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest
import strategies

from dp_accounting_ext.amplification.k_of_t import joint_allocation
from dp_accounting_ext.amplification.k_of_t import plane
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
U = 2.0**-53


def gaussian_steps(sigma, selected, steps):
    pair = gaussian.dominating_pair_of(sigma, Bound.UPPER, tail_mass=1e-18)
    return joint_allocation.Steps.of(pair, selected, steps)


@given(st.just(0.0) | st.floats(1e-290, 1e8), st.floats(1e-6, 0.98))
def test_scores_err_as_little_as_they_say(ratio, rate):
    score, variance = joint_allocation.scores(np.array([ratio]), rate)
    with mpmath.workdps(40):
        mixed = 1 - mpmath.mpf(rate) + mpmath.mpf(rate) * ratio
        truth = mpmath.log(mixed)
        chance = mpmath.mpf(rate) * ratio / mixed
        assert abs(score[0] - truth) <= (8 + 8 * abs(truth)) * U
        exact = chance * (1 - chance)
        assert abs(variance[0] - exact) <= 16 * U * exact


@given(st.floats(0.0, 1e8), st.floats(0.0, 1e8), st.floats(1e-6, 0.98))
def test_cubes_grow_with_the_ratio_and_are_no_more_than_one(one, other, rate):
    ratios = np.array(sorted((one, other)))
    losses, cubes = joint_allocation.cubes(ratios, rate)
    assert losses.tolist() == joint_allocation.scores(ratios, rate)[0].tolist()
    assert 0 <= cubes[0] <= cubes[1] * (1 + 16 * U) <= 1 + 16 * U


@settings(deadline=None)
@given(st.integers(1, 3000), st.floats(1e-5, 0.98), st.data())
def test_the_binomial_errs_as_little_as_it_says(steps, rate, data):
    selected = data.draw(st.integers(0, steps))
    value, error = joint_allocation.log_binomial(selected, steps, rate)
    with mpmath.workdps(40):
        truth = mpmath.log(math.comb(steps, selected))
        truth += selected * mpmath.log(rate)
        truth += (steps - selected) * mpmath.log(1 - mpmath.mpf(rate))
        assert abs(value - truth) <= error
    assert error < 1e-9


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.floats(-30.0, -0.1))
def test_hardly_any_sum_is_below_the_floor(seed, count, log_mass):
    generator = np.random.default_rng(seed)
    masses = generator.random(3) ** 3 + 1e-3
    columns = generator.integers(0, 12, 3)
    factor = plane.Factor(np.zeros(3, np.int64), columns, masses / masses.sum(), count)
    tilts = np.geomspace(0.01, 3.0, 12)
    floor = joint_allocation.variance_floor([factor], log_mass, tilts)
    below = Fraction(0)
    for way in itertools.product(range(3), repeat=count):
        if sum(int(columns[i]) for i in way) < floor:
            below += math.prod(Fraction(float(factor.masses[i])) for i in way)
    assert below <= Fraction(math.exp(log_mass))
    assert floor >= 0


def test_the_floor_of_columns_that_no_memory_holds():
    """Of five sums of 0 or 2^41 fewer than 1 in 30 are 0: the floor is above that."""
    columns, masses = np.array([0, 2**41]), np.array([0.5, 0.5])
    factor = plane.Factor(np.zeros(2, np.int64), columns, masses, 5)
    tilts = np.geomspace(1e-13, 1e-11, 9)
    floor = joint_allocation.variance_floor([factor], math.log(1 / 30), tilts)
    assert 0 < floor <= 2**41


@given(strategies.pairs(Bound.UPPER), st.integers(1, 4), st.floats(1e-9, 0.9))
def test_what_is_lost_with_large_ratios_is_counted(pair, selected, mass):
    steps = joint_allocation.Steps.of(pair, selected, 6)
    kept, lost = steps.without_largest(mass)
    assert lost <= mass * (1 + 1e-8)
    first = kept.ratios.size
    assert kept.ratios.tolist() == steps.ratios[:first].tolist()
    gone = selected * steps.p_masses[first:].sum()
    gone += (6 - selected) * steps.masses[first:].sum()
    assert gone <= lost
    assert kept.num_selected == selected


def test_zero_ratios_are_among_the_steps():
    pair = dominating_pair.DominatingPair(
        np.array([0.5, 2.0]), np.array([0.5, 0.0]), 0.75, 0.5, Bound.UPPER
    )
    steps = joint_allocation.Steps.of(pair, 2, 3)
    assert steps.ratios.tolist() == [0.0, 0.5]
    assert steps.masses.tolist() == [0.5, 0.5]
    assert steps.p_masses.tolist() == [0.0, 0.25]


@pytest.mark.parametrize(
    ("sigma", "selected", "steps"), [(1.0, 10, 100), (0.6, 3, 200)]
)
def test_anchors_are_where_they_are_asked_for(sigma, selected, steps):
    sketch = gaussian_steps(sigma, selected, steps).sketch
    for exponent in (0.0, 2.0, 12.0):
        tilt = sketch.tilt(exponent)
        rate = sketch.rate(tilt)
        assert sketch.exponent(rate, tilt) == pytest.approx(exponent, rel=0.1, abs=0.01)
        assert 0.1 * selected / steps < rate < 1.5 * selected / steps
        anchor = sketch.eased(rate, tilt, 3.0)
        assert anchor.low < anchor.high
        assert 0 <= anchor.tilt <= tilt
        assert 0 < anchor.mean_variance < selected


def tilted_mean(law, rate, tilt):
    """The mean of L under P times e^{tilt · L}, all atoms, by plain sums."""
    score = np.log1p(rate * (law.ratios - 1))
    total = 0.0
    for count, masses in (
        (law.num_selected, law.p_masses),
        (law.num_steps - law.num_selected, law.masses),
    ):
        weights = masses * np.exp(tilt * (score - score.max()))
        total += count * float(weights @ score) / float(weights.sum())
    return total


@pytest.mark.parametrize(("sigma", "selected", "steps"), [(1.0, 10, 100), (0.7, 4, 60)])
def test_the_tilt_without_the_record_has_the_mean_with_it(sigma, selected, steps):
    law = gaussian_steps(sigma, selected, steps)
    rate = selected / steps
    without = dataclasses.replace(law, p_masses=law.masses)
    for tilt in (0.0, 0.5, 1.5):
        found = law.sketch.tilt_without(rate, tilt)
        mean = tilted_mean(law, rate, tilt)
        assert tilted_mean(without, rate, found) == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize("steps", [10, 390, 1000, 10**4, 10**6])
def test_grids_go_round_the_window_and_fit_the_memory(steps):
    law = gaussian_steps(1.0, 8, steps)
    anchor = law.sketch.anchor(8 / steps, 0.0)
    grid = joint_allocation.Grid.of([anchor], steps, finer=2)
    assert grid.rows * grid.row_step > 1.1 * (anchor.high - anchor.low)
    assert grid.columns * grid.column_step > anchor.mean_variance + 8 * anchor.spread
    assert grid.rows * grid.columns <= 1 << 21
    assert grid.height * joint_allocation.COARSE_ROWS == grid.rows
    with_record, without = grid.factors(law, Bound.UPPER)
    assert (with_record.count, without.count) == (8, steps - 8)
    for factor, masses in ((with_record, law.p_masses), (without, law.masses)):
        assert factor.masses.sum() == pytest.approx(masses.sum(), rel=1e-9)
        # Reciprocals of what is summed keep their mean, and variances theirs.
        score, variance = joint_allocation.scores(law.ratios, grid.rate)
        mean = factor.masses @ np.exp(-grid.row_step * factor.rows)
        assert mean == pytest.approx(masses @ np.exp(-score), rel=1e-9)
        mean = factor.masses @ (grid.column_step * factor.columns)
        assert mean == pytest.approx(masses @ variance, rel=1e-9)


def test_a_tilt_that_leaves_one_law_little():
    """All that a tilt leaves of the one law may have no mass under the other."""
    ratios, masses = np.array([0.0, 1.000001]), np.array([1e-6, 0.999999])
    sketch = joint_allocation.Sketch(ratios, ratios * masses, masses, 2, 4)
    assert math.isfinite(sketch.exponent(0.5, -1e6))


def test_masses_of_few_digits_are_on_the_safe_side():
    """A mass of 1e-290, split, would be below what floats hold: raised, or left out."""
    pair = dominating_pair.DominatingPair(
        np.array([0.5, 1.5, 2.0e3]),
        np.array([0.5, 0.5, 1e-290]),
        0.0,
        0.0,
        Bound.UPPER,
    )
    steps = joint_allocation.Steps.of(pair, 2, 4)
    score, _ = joint_allocation.scores(pair.ratios[-1:], 0.5)
    step = float(score[0]) * (1 - 1e-13)
    grid = joint_allocation.Grid(0.5, step, 0.25, 64, 16, 1)
    for bound in Bound:
        for factor in grid.factors(steps, bound):
            assert factor.masses.min() >= 1e-300
    upper, lower = (grid.factors(steps, bound)[1] for bound in Bound)
    assert upper.masses.size > lower.masses.size
