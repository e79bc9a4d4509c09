"""Tilted samples: their mean by quadrature, and their bound."""

import correlated_oracles
import numpy as np
import pytest

from dp_accounting_ext.amplification.matrix import moment_tilts

GRAM = np.array([[1.5, 0.8, 0.5], [0.8, 1.5, 0.8], [0.5, 0.8, 1.2]])


@pytest.mark.parametrize("moment", [2, 3, 4])
@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("crossing", [(1, 1), (2, 3)])
def test_the_mean_is_the_divergence(moment, near, crossing, monkeypatch):
    """With tuples by neighbours or not, and with several draws and tuples a sample."""
    monkeypatch.setattr(moment_tilts, "_FEW_NEIGHBOURS", 1e9 if near else 0.0)
    generator, means = np.random.default_rng(moment), moment_tilts.Means(GRAM)
    samples = moment_tilts.draw(means, moment, 60_000, generator, crossing)
    assert samples.log_ratios.shape == (60_000, *crossing)
    for epsilon in (0.0, 0.5, 1.5):
        truth = correlated_oracles.profile(GRAM, epsilon, remove=True)
        values = samples.values(epsilon)
        noise = values.std() / np.sqrt(values.size)
        assert abs(values.mean() - truth) <= 5 * noise
        pairs = samples.pairs(epsilon)
        assert 0 <= pairs.min() <= pairs.max() <= samples.largest(epsilon)
        logs = samples.log_ratios[:9]
        powers = np.exp(samples.log_weights[:9, None] - moment * logs)
        plain = powers * np.maximum(np.exp(logs) - np.exp(epsilon), 0)
        assert np.allclose(pairs[:9], plain, atol=1e-12)


@pytest.mark.parametrize("few", [0.0, 1.0])
def test_draws_of_a_sample_are_told_apart(few, monkeypatch):
    """Both ways of drawing give other numbers for each draw and each tuple."""
    monkeypatch.setattr(moment_tilts, "_FEW_NEIGHBOURS", few)
    means, generator = moment_tilts.Means(np.eye(500)), np.random.default_rng(1)
    samples = moment_tilts.draw(means, 3, 5, generator, (2, 3))
    assert np.unique(samples.log_ratios).size == 30


def test_large_exponents_fit():
    means = moment_tilts.Means(np.diag([300.0, 400.0]))
    samples = moment_tilts.draw(means, 2, 50, np.random.default_rng(1), (2, 2))
    assert np.isfinite(samples.log_ratios).all()
    assert np.isfinite(samples.values(100.0)).all()


def test_weights_are_bounded_and_the_bound_is_met_by_equal_bins():
    equal = moment_tilts.Means(np.full((4, 4), 0.5))
    samples = moment_tilts.draw(equal, 4, 50, np.random.default_rng(1))
    assert np.allclose(samples.log_weights, 0.5 * (1 + 2 + 3))
    assert np.all(samples.log_weights <= samples.log_largest)
    assert samples.log_largest <= 3 + 1e-8


def test_a_band_has_few_neighbours():
    distance = abs(np.subtract.outer(np.arange(300), np.arange(300)))
    gram = np.maximum(1 - distance / 3, 0)
    banded, full = moment_tilts.Means(gram), moment_tilts.Means(np.ones((9, 9)))
    assert banded.neighbours.shape == (300, 5)
    for row, near in enumerate(banded.neighbours):
        assert set(near) >= set(np.flatnonzero(gram[row]))
    assert np.all(banded.meet[distance <= 4])
    assert banded.meet.mean() < 0.1
    assert banded.has_few_neighbours(3)
    assert not banded.has_few_neighbours(20)
    assert not full.has_few_neighbours(3)
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
