"""The one place that reads the host's privacy loss distributions."""

from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import numpy as np

from dp_accounting_ext import dominating_pair
from dp_accounting_ext import loss_distribution

Direction = dominating_pair.Direction


def is_identity(pld: privacy_loss_distribution.PrivacyLossDistribution) -> bool:
    """Tells whether nothing has been composed into a stock distribution."""
    return all(
        pmf.size == 1 and pmf.get_delta_for_epsilon(0.0) == 0.0
        for pmf in (pld._pmf_remove, pld._pmf_add)
    )


def loss_distributions(
    pld: privacy_loss_distribution.PrivacyLossDistribution,
) -> dict[Direction, list[loss_distribution.LossDistribution]]:
    """Returns a stock distribution's two pessimistic losses as upper bounds."""
    return {
        Direction.REMOVE: [_loss_distribution(pld._pmf_remove)],
        Direction.ADD: [_loss_distribution(pld._pmf_add)],
    }


def _loss_distribution(pmf: pld_pmf.PLDPmf) -> loss_distribution.LossDistribution:
    dense = pmf.to_dense_pmf()
    masses = np.maximum(np.asarray(dense._probs, dtype=np.float64), 0.0)
    losses = (
        dense._lower_loss + np.arange(masses.size, dtype=np.float64)
    ) * dense._discretization
    return loss_distribution.LossDistribution(
        losses=losses,
        masses=masses,
        infinity_mass=float(dense._infinity_mass),
        count=1,
        bound=dominating_pair.Bound.UPPER,
    )
