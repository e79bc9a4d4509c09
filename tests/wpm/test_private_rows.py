"""Distributions as users give them."""

from fractions import Fraction

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy import sparse

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm import private_rows

SECRET = 0.123456789


def dense(rows):
    """The (n, k) masses of users."""
    found = np.zeros(rows.table.shape)
    for user, row in enumerate(found):
        inputs, row_masses = rows.row(user)
        row[inputs] = row_masses
    return found


@pytest.mark.parametrize(
    ("masses", "error", "message"),
    [
        ([SECRET, 1.0], ValueError, "mu must sum to 1 within 1e-06"),
        ([1 + SECRET, -SECRET], ValueError, "mu must be non-negative and finite"),
        ([np.nan, SECRET], ValueError, "mu must be non-negative and finite"),
        ([SECRET], ValueError, r"of the 2 inputs.*Found shape \(1,\)"),
        ([[[SECRET, 1]]], ValueError, r"Found shape \(1, 1, 2\)"),
        (["a", "b"], TypeError, "mu must be an array of real numbers"),
    ],
)
def test_bad_distributions_and_no_number_of_theirs(masses, error, message):
    mechanism = wpm.WassersteinProjectionMechanism(np.ones((2, 3)), 1.0)
    for call in (mechanism.project, mechanism.sample):
        with pytest.raises(error, match=message) as caught:
            call(masses)
        assert "1234" not in str(caught.value)


def test_sums_within_the_tolerance_are_normalised():
    mechanism = wpm.WassersteinProjectionMechanism(np.ones((2, 3)), 1.0)
    mechanism.project([0.5, 0.5 + 9e-7])
    with pytest.raises(ValueError, match="mu must sum to 1"):
        mechanism.project([0.5, 0.5 + 2e-6])


@pytest.mark.parametrize(
    "make", [np.array, sparse.csr_matrix, sparse.coo_matrix, sparse.dok_matrix]
)
def test_rows_are_read_as_they_are(make):
    generator = np.random.default_rng(0)
    masses = generator.dirichlet(np.full(9, 0.2), size=6)
    masses[masses < 0.05] = 0
    masses /= masses.sum(axis=1, keepdims=True)
    rows = private_rows.read("mu", make(masses), 9)
    np.testing.assert_allclose(dense(rows), masses, rtol=1e-15)
    assert len(rows) == 6 and rows.is_batch
    np.testing.assert_array_equal(dense(rows.part(2, 5)), dense(rows)[2:5])
    inputs, held = rows.row(3)
    assert (held > 0).all() and (np.diff(inputs) > 0).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**45), min_size=1, max_size=9).filter(any))
def test_counts_are_normalised_as_fractions(counts):
    """Each mass is the float nearest to the quotient of integers."""
    rows = private_rows.read("mu", counts, len(counts))
    total = sum(counts)
    for found, count in zip(dense(rows)[0], counts, strict=True):
        assert found == float(Fraction(count, total))


def test_what_was_given_stays_as_it_is():
    table = sparse.coo_matrix(([1, 1, 2], ([0, 0, 0], [1, 1, 0])), shape=(1, 2))
    rows = private_rows.read("mu", table, 2)
    np.testing.assert_array_equal(dense(rows), [[0.5, 0.5]])
    assert table.nnz == 3


@pytest.mark.parametrize(("dtype", "count"), [("uint8", 200), ("int8", 100)])
def test_what_is_named_twice_does_not_wrap(dtype, count):
    data, columns = np.full(3, count, dtype), [1, 1, 0]
    for table in (
        sparse.coo_matrix((data, ([0, 0, 0], columns)), shape=(1, 2)),
        sparse.csr_matrix((data, columns, [0, 3]), shape=(1, 2)),
    ):
        rows = private_rows.read("mu", table, 2)
        np.testing.assert_allclose(dense(rows), [[1 / 3, 2 / 3]])


def test_no_mass_is_shown():
    rows = private_rows.read("mu", [SECRET, 1 - SECRET], 2)
    for shown in (repr(rows), str(rows), f"{[rows.part(0, 1)]}"):
        assert "0.1" not in shown and "private" in shown
