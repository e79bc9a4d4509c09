"""Tilted samples: their mean by quadrature, and their bound."""

import correlated_oracles
import numpy as np
import pytest

from dp_accounting_ext.kernels import moment_tilts

GRAM = np.array([[1.5, 0.8, 0.5], [0.8, 1.5, 0.8], [0.5, 0.8, 1.2]])


@pytest.mark.parametrize("moment", [2, 3, 6])
def test_the_mean_is_the_divergence(moment):
    generator = np.random.default_rng(moment)
    samples = moment_tilts.draw(moment_tilts.Means(GRAM), moment, 100_000, generator)
    for epsilon in (0.0, 0.5, 1.5):
        truth = correlated_oracles.profile(GRAM, epsilon, remove=True)
        values = samples.values(epsilon)
        noise = values.std() / np.sqrt(values.size)
        assert abs(values.mean() - truth) <= 5 * noise
        assert 0 <= values.min() <= values.max() <= samples.largest(epsilon)


def test_weights_are_bounded_and_the_bound_is_met_by_equal_bins():
    equal = moment_tilts.Means(np.full((4, 4), 0.5))
    samples = moment_tilts.draw(equal, 4, 50, np.random.default_rng(1))
    assert np.allclose(samples.log_weights, 0.5 * (1 + 2 + 3))
    assert np.all(samples.log_weights <= samples.log_largest)
    assert samples.log_largest <= 3 + 1e-8


def test_the_root_of_a_band_is_kept_in_blocks():
    distance = abs(np.subtract.outer(np.arange(500), np.arange(500)))
    gram = np.maximum(1 - distance / 5, 0)
    root = np.zeros_like(gram)
    blocks = moment_tilts.Means(gram).root
    for rows, columns, entries in blocks:
        root[rows, columns] = entries.T
    assert np.allclose(root @ root.T, gram, atol=1e-11)
    assert sum(entries.size for _, _, entries in blocks) < 0.4 * gram.size
