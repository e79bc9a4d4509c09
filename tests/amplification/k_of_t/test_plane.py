"""Powers on a plane lattice against direct convolution, and how masses are shared."""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from dp_accounting_ext.amplification.k_of_t import plane

TILTS = (0.05, 0.1, 0.2, 0.4, 0.8)


def factor_of(seed, size, count, start):
    """A factor with a few cells, columns beyond the circle among them."""
    generator = np.random.default_rng(seed)
    rows = start + generator.integers(0, 6, size)
    columns = generator.integers(0, 9, size)
    masses = generator.random(size) ** 4 + 1e-6
    return plane.Factor(rows, columns, masses / masses.sum(), count)


def direct_law(factors):
    """{(row, column): mass} of the sum, in rational arithmetic."""
    law = {(0, 0): Fraction(1)}
    for factor in factors:
        cells = list(
            zip(
                factor.rows.tolist(),
                factor.columns.tolist(),
                map(Fraction, factor.masses.tolist()),
                strict=True,
            )
        )
        for _ in range(factor.count):
            longer = {}
            for (row, column), mass in law.items():
                for down, right, chance in cells:
                    key = row + down, column + right
                    longer[key] = longer.get(key, Fraction(0)) + mass * chance
            law = longer
    return law


def one_row(height):
    """Weights that take the fine rows of a coarse one, and of no other."""
    return np.concatenate([np.zeros(height - 1), np.ones(height)])


@given(
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(1, 4),
    st.integers(-4, 3),
    st.floats(-1.0, 1.0),
    st.sampled_from([1, 2, 4]),
)
def test_masses_are_hardly_above_the_true_ones(
    seed, size, some, more, start, tilt, height
):
    factors = [
        factor_of(seed, size, some, start),
        factor_of(seed + 1, size + 1, more, start),
    ]
    shape = 64, 16
    law = plane.TiltedPlane(factors, tilt, shape)
    first = math.floor(start * (some + more) / height)
    found = law.masses(one_row(height), first, height=height)
    assert found.shape == (64 // height, 16)
    expected = np.zeros(found.shape)
    for (row, column), mass in direct_law(factors).items():
        expected[row // height - first, column % 16] += float(mass)
    assert np.all(found >= expected * (1 - law.mass_error))
    # What noise adds is relative to where the tilted law is.
    tilts = np.exp(tilt * height * (first + np.arange(64 // height)))[:, np.newaxis]
    noise = ((found - expected) * tilts).max()
    assert noise < 1e-10 * (expected * tilts).sum()


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_what_is_above_a_row_is_bounded(seed, count):
    factors = [factor_of(seed, 4, count, -2)]
    law = plane.TiltedPlane(factors, 0.1, (8, 16))
    for row in range(-10, 20):
        rows = [(r, m) for (r, _), m in direct_law(factors).items() if r >= row]
        assert sum(m for _, m in rows) <= law.mass_above(row, TILTS)
        moment = sum(m * math.exp((r - row) / 10) for r, m in rows)
        assert moment <= law.mass_above(row, TILTS[1:])


@given(st.floats(-40.0, 40.0), st.floats(1e-5, 2.0))
def test_shares_keep_the_mass_and_the_mean_of_the_reciprocal(position, step):
    cells, shares = plane.shares(np.array([position]), step)
    assert cells[0, 0] <= position < cells[1, 0] + 1e-12
    assert cells[1, 0] == cells[0, 0] + 1
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1.0, rel=1e-11)
    mean = (shares[:, 0] * np.exp(step * (position - cells[:, 0]))).sum()
    assert mean == pytest.approx(1.0, rel=1e-11)
