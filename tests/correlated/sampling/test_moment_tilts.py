"""Tilted samples: their mean by quadrature, and their bound."""

import correlated_oracles
import numpy as np
import pytest

from dp_accounting_ext.correlated.sampling import moment_tilts

GRAM = np.array([[1.5, 0.8, 0.5], [0.8, 1.5, 0.8], [0.5, 0.8, 1.2]])


@pytest.mark.parametrize("moment", [2, 3, 4])
def test_the_mean_is_the_divergence(moment):
    generator, means = np.random.default_rng(moment), moment_tilts.Means(GRAM)
    samples = means.draw(moment, 60_000, generator)
    for epsilon in (0.0, 0.5, 1.5):
        truth = correlated_oracles.profile(GRAM, epsilon, remove=True)
        values = samples.values(epsilon)
        noise = values.std() / np.sqrt(values.size)
        assert abs(values.mean() - truth) <= 5 * noise
        assert 0 <= values.min() <= values.max() <= samples.largest(epsilon)
        logs = samples.log_ratios[:9]
        powers = np.exp(samples.log_weights[:9] - moment * logs)
        plain = powers * np.maximum(np.exp(logs) - np.exp(epsilon), 0)
        assert np.allclose(values[:9], plain, atol=1e-12)


def test_weights_are_bounded_and_the_bound_is_met_by_equal_bins():
    equal = moment_tilts.Means(np.full((4, 4), 0.5))
    samples = equal.draw(4, 50, np.random.default_rng(1))
    assert np.allclose(samples.log_weights, 0.5 * (1 + 2 + 3))
    assert np.all(samples.log_weights <= samples.log_largest)
    assert samples.log_largest <= 3 + 1e-8
