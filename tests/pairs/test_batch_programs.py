"""Programs of two laws over batches: any multipliers bound them, those found tightly.

The truths are placements on a line, whose values are sums of distribution functions.
"""

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy import stats

from dp_accounting_ext.pairs import batch_programs
from dp_accounting_ext.pairs import trade_off_curves

NOISE = {
    "gaussian": (trade_off_curves.GaussianCurves(), stats.norm),
    "laplace": (trade_off_curves.LaplaceCurves(), stats.laplace),
}


@st.composite
def certificates(draw):
    m, n = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    reals = st.floats(0.01, 1.0)
    a, b = (draw(st.lists(reals, min_size=k, max_size=k)) for k in (m, n))
    d = draw(st.lists(st.floats(0.05, 3.0), min_size=m * n, max_size=m * n))
    shares = st.lists(st.floats(1e-6, 1.0), min_size=m * n, max_size=m * n)
    z = draw(st.lists(st.floats(-4.0, 3.0), min_size=n, max_size=n))
    arrays = (np.array(v).reshape(m, n) for v in (d, draw(shares), draw(shares)))
    return np.array(a), np.array(b), *arrays, np.array(z)


@settings(max_examples=60, deadline=None)
@given(certificates(), st.sampled_from(list(NOISE)))
def test_any_multipliers_are_a_certificate(example, name):
    """Even arbitrary λ and ρ are never below a placement."""
    a, b, d, gains, costs, below = example
    curves, noise = NOISE[name]
    gains = gains / gains.sum(axis=1, keepdims=True)
    costs = costs / costs.sum(axis=0)
    bound = batch_programs.certified(
        a[None], b[None], d, curves, gains[None], costs[None]
    )[0]
    above = (below + d).min(axis=1)
    assert a @ noise.cdf(above) - b @ noise.cdf(below) <= bound + 1e-15


@pytest.mark.parametrize("name", NOISE)
@pytest.mark.parametrize("kappa", [1.1, 20.0, 8000.0])
def test_forty_classes_a_side_without_symmetry(name, kappa):
    """The certificate is within 1e-6 of the value of a placement."""
    curves, noise = NOISE[name]
    rng = np.random.default_rng(1)
    points = rng.normal(size=(80, 2))
    a, b = rng.dirichlet(np.ones(40), 2)
    b = kappa * b
    d = np.linalg.norm(points[:40, None] - points[40:], axis=2)
    solved = batch_programs.solved(a[None], b[None], d, curves)
    bound = batch_programs.certified(
        a[None], b[None], d, curves, solved.gains, solved.costs
    )[0]
    below = noise.ppf(solved.below[0])
    above = (below + d).min(axis=1)
    value = a @ noise.cdf(above) - b @ noise.cdf(below)
    assert max(value, 0.0) <= bound <= max(value, 0.0) * (1 + 1e-6) + 1e-15
