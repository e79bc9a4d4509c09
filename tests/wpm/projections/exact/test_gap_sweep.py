"""Gaps passed at once against linear programs, place by place."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
from scipy import optimize
import wpm_oracles

from dp_accounting_ext.wpm.projections.exact import gap_sweep


def least_cost(masses, least, most, steps, total=None):
    """The least Σ w |F_μ − F_q| by a program, for any F_q at the end or a total."""
    size = masses.size
    sums = np.tril(np.ones((size, size)))
    program = optimize.linprog(
        np.append(np.zeros(size), steps),
        A_ub=np.block([[sums, -np.eye(size)], [-sums, -np.eye(size)]]),
        b_ub=np.append(np.cumsum(masses), -np.cumsum(masses)),
        A_eq=None if total is None else np.append(np.ones(size), np.zeros(size))[None],
        b_eq=None if total is None else [total],
        bounds=[*zip(least, most, strict=True), *[(0, None)] * size],
    )
    assert program.status == 0
    return program.fun


@settings(max_examples=60, deadline=None)
@given(wpm_oracles.seeds)
def test_minimum_is_that_of_a_program(seed):
    generator = np.random.default_rng(seed)
    inputs, outputs = int(generator.integers(1, 5)), int(generator.integers(1, 16))
    size = inputs + outputs
    places = np.sort(generator.random(size))
    if seed % 3 == 0:
        places = np.round(6 * places)
    given_mass = np.zeros(size, dtype=bool)
    given_mass[generator.choice(size, inputs, replace=False)] = True
    masses = np.where(given_mass, generator.random(size), 0.0)
    masses /= masses.sum()
    measure = np.where(given_mass, 0.0, generator.random(size))
    measure /= measure.sum()
    factor = float(generator.choice([1.1, 2.0, 30.0]))
    least, most = measure / factor, measure * factor
    steps = np.append(np.diff(places), 0.0)
    starts = np.unique(np.append(0, np.flatnonzero(given_mass)))
    minima = gap_sweep.minima(np.cumsum(masses), least, most, steps, starts)
    assert minima[0] == 0
    for place in generator.integers(1, size, 3) if size > 1 else []:
        part = slice(0, place)
        before = masses[part], least[part], most[part], steps[part]
        free = least_cost(*before)
        assert least_cost(*before, total=minima[place]) == pytest.approx(free, abs=1e-8)
