"""Cells of many sizes, against exact sums and profiles to 40 digits."""

import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np

from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.composition import uneven_cells
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
LossDistribution = loss_distribution.LossDistribution
INTERVAL = 1e-4


@st.composite
def tailed_laws(draw, bound):
    """Many losses near zero, and a few far from it, some of them out of order."""
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    near = random.normal(0.0, 0.003, 40)
    reach = draw(st.floats(0.01, 3.0))
    far = random.uniform(-draw(st.sampled_from([0.0, 1.0])) * reach, reach, 12)
    ends = np.array([-64.0, 0.0, 64.0, 80.0, 128.0, 1024.0]) * INTERVAL
    losses = np.sort(np.concatenate([near, far, ends, [reach]]))
    swapped = random.integers(1, losses.size)
    losses[swapped] = losses[swapped - 1] * (1 - 1e-16)
    masses = np.exp(-np.abs(losses) / 0.002) + 1e-9
    return LossDistribution(losses, masses / masses.sum(), 0.0, 7, bound)


def cells_of(law, interval=INTERVAL):
    return uneven_cells.UnevenCells.of(np.sort(law.losses), law.masses, interval)


def masses_at(factor, others=None):
    """Losses, P-masses and Q-masses of a law on the lattice, to 40 digits."""
    at = [factor.start + int(gap) for gap in factor.gaps]
    losses = [index * mpmath.mpf(INTERVAL) for index in at]
    p = [mpmath.mpf(float(mass)) for mass in factor.masses]
    q = p if others is None else [mpmath.mpf(float(x)) for x in others.masses]
    return p, [x * mpmath.exp(-loss) for x, loss in zip(q, losses, strict=True)]


def divergence(p, q, epsilon):
    kappa = mpmath.exp(mpmath.mpf(epsilon))
    terms = (x - kappa * y for x, y in zip(p, q, strict=True))
    return mpmath.fsum(max(term, mpmath.mpf(0)) for term in terms)


def exact(law):
    p = [mpmath.mpf(float(mass)) for mass in law.masses]
    losses = law.losses.tolist()
    return p, [x * mpmath.exp(-loss) for x, loss in zip(p, losses, strict=True)]


@settings(max_examples=60, deadline=None)
@given(tailed_laws(Bound.UPPER), st.floats(-0.1, 1.0))
def test_an_upper_law_is_above_and_keeps_its_masses(law, epsilon):
    factor, others = uneven_cells.on_lattice(law, INTERVAL, cells_of(law))
    assert others is None
    assert factor.count == law.count
    assert (factor.masses >= 0).all()
    with mpmath.workdps(40):
        found, truth = masses_at(factor), exact(law)
        for mine, theirs in zip(found, truth, strict=True):
            assert abs(mpmath.fsum(mine) - mpmath.fsum(theirs)) <= 1e-14
        # But for rounding, which callers count.
        above = divergence(*found, epsilon) - divergence(*truth, epsilon)
        assert above >= -mpmath.mpf(1e-14)


@settings(max_examples=60, deadline=None)
@given(tailed_laws(Bound.LOWER), st.floats(-0.1, 1.0))
def test_a_lower_law_is_below_and_keeps_its_masses(law, epsilon):
    factor, others = uneven_cells.on_lattice(law, INTERVAL, cells_of(law))
    assert (others.start, others.gaps.tolist()) == (factor.start, factor.gaps.tolist())
    with mpmath.workdps(40):
        found, truth = masses_at(factor, others), exact(law)
        for mine, theirs in zip(found, truth, strict=True):
            assert abs(mpmath.fsum(mine) - mpmath.fsum(theirs)) <= 1e-14
        below = divergence(*truth, epsilon) - divergence(*found, epsilon)
        assert below >= -mpmath.mpf(1e-14)


@settings(max_examples=60, deadline=None)
@given(tailed_laws(Bound.UPPER), st.sampled_from([1e-5, 1e-4, 3e-3]))
def test_sizes_divide_the_edges_and_are_no_longer_than_promised(law, interval):
    cells = cells_of(law, interval)
    if cells is None:
        return
    for size, begin, end in zip(
        cells.sizes.tolist(), cells.edges[:-1], cells.edges[1:], strict=True
    ):
        assert begin < end
        assert begin % size == end % size == 0
        assert size & (size - 1) == 0
        assert size == 1 or size * interval <= uneven_cells.LONGEST


def test_a_rare_tail_takes_few_cells_and_adds_little_variance():
    """A sample's loss: 36,000 indices of the lattice, of which one in six will do."""
    losses = np.linspace(-0.01, 3.6, 20_000)
    masses = np.exp(-(np.abs(losses) ** 0.5) / 0.05)
    law = LossDistribution(losses, masses / masses.sum(), 0.0, 1000, Bound.UPPER)
    factor, _ = uneven_cells.on_lattice(law, INTERVAL, cells_of(law))
    even, _ = loss_distribution.on_lattice(law, INTERVAL)
    assert factor.masses.size < 0.2 * even.masses.size
    added = [
        float(np.dot(each.masses, (each.indices * INTERVAL) ** 2))
        - float(np.dot(law.masses, law.losses**2))
        for each in (factor, even)
    ]
    assert added[0] < 1.05 * added[1]


def test_alike_where_nothing_is_rare():
    losses = np.linspace(-0.5, 0.5, 4001)
    assert uneven_cells.UnevenCells.of(losses, np.ones(4001), 1e-3) is None


def test_a_loss_beyond_those_that_stand_for_the_law():
    """Cells are made from a few losses; any of the law's has one."""
    losses = np.array([-3.0, -0.001, 0.0, 0.002, 5.0])
    law = LossDistribution(losses, np.full(5, 0.2), 0.0, 1, Bound.UPPER)
    few = losses[1:4]
    shares = np.array([0.5, 0.5, 1e-9])
    cells = uneven_cells.UnevenCells.of(few, shares, 1e-5)
    factor, _ = uneven_cells.on_lattice(law, 1e-5, cells)
    places = (factor.start + factor.gaps) * 1e-5
    assert places[0] <= -3.0 and places[-1] >= 5.0
    assert math.isclose(factor.masses.sum(), 1.0, rel_tol=1e-14)
