"""Privacy amplification by Poisson subsampling, on any pair."""

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats


def poisson_subsample(
    pair: dominating_pair.DominatingPair, sampling_probability: float
) -> dominating_pair.DominatingPair:
    """Returns the pair after Poisson subsampling.

    Args:
        pair: The law of Z = dP/dQ under Q, with n atoms.
        sampling_probability: The inclusion probability λ of each record, in (0, 1].

    Returns:
        The law of 1 + λ(Z − 1), with at most n + 1 atoms: an atom at zero moves to
        1 − λ, and infinity_mass is multiplied by λ.

    Guarantees:
        The result dominates (or is dominated by) the subsampled mechanism if `pair`
        dominates (or is dominated by) the base mechanism.

    Source:
        https://arxiv.org/abs/2602.17284, Theorem 3.3 and Algorithms 8 and 9;
        https://arxiv.org/abs/2106.08567, Theorem 11.
    """
    ratios = (1 - sampling_probability) + sampling_probability * pair.ratios
    masses, zero_mass = pair.masses, pair.zero_mass
    if sampling_probability < 1 and zero_mass > 0:
        ratios = np.append(1 - sampling_probability, ratios)
        masses = np.append(zero_mass, masses)
        zero_mass = 0.0
    infinity_mass = sampling_probability * pair.infinity_mass
    if pair.infinity_mass and infinity_mass < floats.SMALLEST_MASS:
        is_upper = pair.bound is Bound.UPPER
        infinity_mass = floats.SMALLEST_MASS if is_upper else 0.0
    return dominating_pair.DominatingPair(
        ratios,
        masses,
        infinity_mass=infinity_mass,
        zero_mass=zero_mass,
        bound=pair.bound,
        mass_error=pair.mass_error,
        ratio_error=pair.ratio_error + 4 * floats.UNIT_ROUNDOFF,
    )
