"""Cells in which a ratio lies: spread to their ends above, and at their means below.

Masses, shares and edges are sums of few powers of two, so that every product here
is exact, and so is what it is held against.
"""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest

from dp_accounting_ext.pairs import cells


@st.composite
def cut_laws(draw):
    """Edges, masses, and the share of each that is at its upper end."""
    size = draw(st.integers(1, 6))
    numbers = st.integers(1, 2**12)
    edges = sorted(
        draw(st.lists(numbers, min_size=size + 1, max_size=size + 1, unique=True))
    )
    masses = draw(st.lists(numbers, min_size=size, max_size=size))
    shares = draw(st.lists(st.integers(0, 2**10), min_size=size, max_size=size))
    return (
        np.array(edges) / 2**6,
        np.array(masses) / 2**15,
        np.array(shares) / 2**10,
    )


def means(edges, shares):
    return edges[:-1] + shares * np.diff(edges)


def divergences(ratios, masses, kappa):
    law = list(zip(oracles.exact(ratios), oracles.exact(masses), strict=True))
    return (
        oracles.remove_divergence(law, kappa, Fraction(0)),
        oracles.add_divergence(law, kappa, Fraction(0)),
    )


@given(cut_laws(), st.fractions(Fraction(1, 100), 100))
def test_ends_are_above_what_lies_in_the_cells_and_means_below(law, kappa):
    """A cell of one atom, at its mean, is the least that the cell can be."""
    edges, masses, shares = law
    least = divergences(means(edges, shares), masses, kappa)
    ratios, split = cells.upper_atoms(edges, masses, shares)
    most = divergences(ratios, split, kappa)
    assert all(low <= high for low, high in zip(least, most, strict=True))
    # In between: any two places of the cell that have its mean.
    nearer = np.minimum(shares, 1 - shares) * np.diff(edges) / 2
    middle = means(edges, shares)
    places = np.concatenate([middle - nearer, middle + nearer])
    halves = np.concatenate([masses, masses]) / 2
    between = divergences(places, halves, kappa)
    assert least[0] <= between[0] <= most[0]
    assert least[1] <= between[1] <= most[1]


@given(cut_laws())
def test_ends_keep_both_masses(law):
    edges, masses, shares = law
    ratios, split = cells.upper_atoms(edges, masses, shares)
    assert np.array_equal(ratios, edges)
    assert np.all(split >= 0)
    assert sum(oracles.exact(split)) == sum(oracles.exact(masses))
    mean = sum(oracles.exact(means(edges, shares) * masses))
    assert sum(oracles.exact(ratios * split)) == mean


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_masses_that_are_no_certain_floats_are_left_out(kept):
    """Under Q or under P; all others stay."""
    ratios, masses = np.array([1e-5, 1.0, 1e5]), np.array([1e-303, 1e-305, 1e-307])
    masses[kept] = 0.25
    pair = cells.lower_pair(ratios, masses, 1e-9, 1e-8)
    assert (pair.mass_error, pair.ratio_error) == (1e-9, 1e-8)
    assert pair.ratios.tolist() == [ratios[kept]]
    assert pair.masses.tolist() == [0.25]
    rare = cells.lower_pair(np.array([1e-10, 1.0]), np.array([1e-295, 1.0]), 0.0, 0.0)
    assert rare.ratios.tolist() == [1.0]
