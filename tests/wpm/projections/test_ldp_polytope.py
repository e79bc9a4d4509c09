"""Projections onto the polytope."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import wpm_oracles

from dp_accounting_ext.wpm.projections import ldp_polytope


@settings(max_examples=50, deadline=None)
@given(wpm_oracles.seeds)
def test_kl_projection_satisfies_its_conditions(seed):
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 30))
    epsilon = float(generator.choice(wpm_oracles.EPSILONS))
    measure = generator.dirichlet(np.full(size, 0.7)) + 1e-9
    measure *= np.exp(generator.uniform(-1, 1) * epsilon / 2) / measure.sum()
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    logs = generator.normal(size=(3, size)) * generator.choice([0.1, 10.0, 500.0])
    found = ldp_polytope.kl_projection(logs, polytope)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=0, atol=1e-11)
    for law, weights in zip(found, logs, strict=True):
        # One θ for all strictly between; larger needed above, smaller below.
        theta = np.log(law) - weights
        low = law <= polytope.lower * (1 + 1e-12)
        high = law >= polytope.upper * (1 - 1e-12)
        least = theta[~low].max(initial=-np.inf)
        most = theta[~high].min(initial=np.inf)
        assert least <= most + 1e-9 * (1 + abs(most))
