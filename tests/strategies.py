"""Hypothesis strategies that several tests share."""

from hypothesis import strategies as st
import numpy as np

from dp_accounting_ext.kernels import geometric
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound


@st.composite
def pairs(draw, bound, *, most_atoms=4, sinks=True):
    """Discrete pairs: Q-masses sum to one with the zero mass, P-masses likewise."""
    size = draw(st.integers(1, most_atoms))
    logs = draw(
        st.lists(st.floats(-3.0, 3.0), min_size=size, max_size=size, unique=True)
    )
    logs = np.round(np.array(logs), 6) + 1e-5 * np.arange(size)
    weights = draw(st.lists(st.floats(0.05, 1.0), min_size=size, max_size=size))
    ratios = np.exp(np.sort(logs))
    masses = np.array(weights)
    zero = draw(st.sampled_from([0.0, 0.25])) if sinks else 0.0
    infinity = draw(st.sampled_from([0.0, 0.125])) if sinks else 0.0
    masses *= (1 - zero) / masses.sum()
    ratios *= (1 - infinity) / (ratios @ masses)
    return dominating_pair.DominatingPair(ratios, masses, infinity, zero, bound)


@st.composite
def geometric_laws(draw, step, *, grouped, most_points=12):
    """Laws on a multiplicative grid, upper (split) or lower (grouped)."""
    size = draw(st.integers(1, most_points))
    # Products of masses below 1e-150 underflow; a relative bound says nothing there.
    mass = st.just(0.0) | st.floats(1e-140, 1.0)
    masses = draw(st.lists(mass, min_size=size, max_size=size))
    zero = draw(st.sampled_from([0.0, 0.3]))
    origin = draw(st.floats(0.01, 10.0))
    array = np.array(masses)
    array[draw(st.integers(0, size - 1))] += 0.5
    array *= (1 - zero) / array.sum()
    excess = None
    if grouped:
        share = draw(st.lists(st.floats(0.0, 1.0), min_size=size, max_size=size))
        excess = array * np.array(share) * np.expm1(step)
    return geometric.GeometricLaw(origin, step, array, excess, zero_mass=zero)
