"""What mixtures of shifted noise have in common, Gaussian and Laplace."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest

from dp_accounting_ext.pairs import shifts


def test_one_weight_is_exact():
    assert shifts.weight_error(((3.0, 1.0),)) == 0.0


def test_shifts_of_p_are_not_below_zero_nor_those_of_q_above():
    def law(shift):
        return ((0.0, 0.5), (shift, 0.5))

    shifts.check_order(law(0.0), law(0.0))
    shifts.check_order(law(5e-324), law(-5e-324))
    for p, q in ((law(-5e-324), law(0.0)), (law(0.0), law(5e-324))):
        with pytest.raises(ValueError, match=r"^Shifts of P must be .* Found .* and "):
            shifts.check_order(p, q)


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
    split = shifts.split(masses, shares, np.ones(shares.size))
    most = divergences(edges, split, kappa)
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
    split = shifts.split(masses, shares, np.ones(shares.size))
    assert np.all(split >= 0)
    assert sum(oracles.exact(split)) == sum(oracles.exact(masses))
    mean = sum(oracles.exact(means(edges, shares) * masses))
    assert sum(oracles.exact(edges * split)) == mean
