"""Hypothesis strategies that several tests share."""

from hypothesis import strategies as st
import numpy as np

from dp_accounting_ext.kernel import dominating_pair


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


def coin(bound, **errors):
    """A bit that is uniform without the record and 1 in 3 of 4 cases with it."""
    law = np.array([0.5, 1.5]), np.array([0.5, 0.5])
    return dominating_pair.DominatingPair(*law, 0.0, 0.0, bound, **errors)
