"""Inner products of bins, against matrices that are written out."""

import correlated_oracles
import numpy as np
import pytest

from dp_accounting_ext.correlated.chains import bin_grams


@pytest.mark.parametrize(("bins", "epochs"), [(1, 4), (3, 1), (4, 3), (7, 2)])
@pytest.mark.parametrize("length", [1, 2, 4])
def test_toeplitz_matrices_with_any_overlap(bins, epochs, length):
    column = np.array([1.0, 0.6, 0.3, 0.2])[: min(length, bins * epochs)]
    found = bin_grams.of_toeplitz(column, bins, epochs)
    truth = correlated_oracles.toeplitz_gram(column, bins, epochs, 1.0)
    assert np.all(abs(found - truth) <= bin_grams.error(bins * epochs) * truth)


def test_rows_of_a_matrix():
    rows = np.tril(np.random.default_rng(1).random((12, 12)))
    added = np.stack([rows[:, i::4].sum(axis=1) for i in range(4)])
    found = bin_grams.of_matrix(rows, 4)
    assert np.allclose(found, added @ added.T, rtol=bin_grams.error(12), atol=0)
