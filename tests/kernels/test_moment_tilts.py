"""Tilted samples: their mean by quadrature, and their bound."""

import correlated_oracles
import numpy as np
import pytest

from dp_accounting_ext.kernels import moment_tilts

GRAM = np.array([[1.5, 0.8, 0.5], [0.8, 1.5, 0.8], [0.5, 0.8, 1.2]])


@pytest.mark.parametrize("moment", [2, 3, 4])
@pytest.mark.parametrize("shared", [False, True])
def test_the_mean_is_the_divergence(moment, shared, monkeypatch):
    """With one tuple to a draw of noise, and with several."""
    monkeypatch.setattr(moment_tilts, "_FEW_NEIGHBOURS", 1e9 if shared else 0.0)
    generator = np.random.default_rng(moment)
    samples = moment_tilts.draw(moment_tilts.Means(GRAM), moment, 100_000, generator)
    assert samples.log_ratios.shape == (100_000, 8 if shared else 1)
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


def test_tuples_share_noise_where_neighbours_are_few():
    distance = abs(np.subtract.outer(np.arange(300), np.arange(300)))
    gram = np.maximum(1 - distance / 3, 0)
    banded = moment_tilts.Means(gram)
    assert banded.neighbours.shape == (300, 5)
    for row, near in enumerate(banded.neighbours):
        assert set(near) >= set(np.flatnonzero(gram[row]))
    assert banded.tuples(3) > 1
    assert banded.tuples(20) == moment_tilts.Means(np.ones((9, 9))).tuples(3) == 1
    samples = moment_tilts.draw(banded, 3, 40, np.random.default_rng(2))
    assert np.all(samples.log_weights <= samples.log_largest)
    assert samples.log_weights.max() > 0


def test_the_root_of_a_band_is_kept_in_blocks():
    distance = abs(np.subtract.outer(np.arange(500), np.arange(500)))
    gram = np.maximum(1 - distance / 5, 0)
    root = np.zeros_like(gram)
    blocks = moment_tilts.Means(gram).root
    for rows, columns, entries in blocks:
        root[rows, columns] = entries.T
    assert np.allclose(root @ root.T, gram, atol=1e-11)
    assert sum(entries.size for _, _, entries in blocks) < 0.4 * gram.size
