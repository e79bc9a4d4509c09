import mpmath
import numpy as np
import pytest

from dp_accounting_ext.mechanisms import renyi_of_pairs


def _mean_excess(log_masses, losses, order):
    """Returns the mean of Z^α − 1 − α (Z − 1), to 40 digits."""
    with mpmath.workdps(40):
        alpha, total = mpmath.mpf(order), mpmath.mpf(0)
        for log_mass, loss in zip(log_masses.tolist(), losses.tolist(), strict=True):
            ratio = mpmath.exp(loss)
            excess = ratio**alpha - 1 - alpha * (ratio - 1)
            total += mpmath.exp(log_mass) * excess
        return total


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("order", [1.1, 8.0, 63.0])
def test_fewer_atoms_have_larger_moments_and_nearly_the_same(sign, order):
    rng = np.random.default_rng(1)
    losses = sign * np.concatenate(
        [rng.uniform(1e-9, 9, 2400), np.exp(rng.uniform(-20, -17, 1200)), [2.5] * 3]
    )
    losses.sort()
    log_masses = -2 * losses**2 - rng.exponential(3, losses.size)
    fewer = renyi_of_pairs._thinned(log_masses, losses)
    assert fewer[0].size < 0.8 * losses.size
    exact = _mean_excess(log_masses, losses, order)
    got = _mean_excess(*fewer, order)
    allowed = 1 + renyi_of_pairs._ROUNDING
    assert exact <= got * allowed <= exact * 1.01


@pytest.mark.parametrize("sign", [1, -1])
def test_atoms_at_one_loss_keep_their_mass(sign):
    losses = np.full(1000, sign * 0.7)
    log_masses, kept = renyi_of_pairs._thinned(np.full(1000, -600.0), losses)
    np.testing.assert_array_equal(kept, losses[:1])
    np.testing.assert_allclose(log_masses, np.log(1000) - 600, rtol=1e-14)
