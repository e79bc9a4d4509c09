"""Functions from events to privacy loss distributions and Rényi divergences."""

from collections.abc import Sequence

from dp_accounting import dp_event as stock_dp_event
from dp_accounting import privacy_accountant
from dp_accounting.pld import privacy_loss_distribution as stock
import numpy as np

from dp_accounting_ext.accountants import certified_answers
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_curves
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.reading import stock_pld
from dp_accounting_ext.validation import fields

__all__ = [
    "from_event",
    "poisson_subsample",
    "random_allocation",
    "renyi_divergence_bounds",
]
__dir__ = __all__.copy

NeighborRel = privacy_accountant.NeighboringRelation

_ACCURACY = accuracy.FOR_DISTRIBUTIONS


def from_event(
    event: stock_dp_event.DpEvent,
    *,
    neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
    value_discretization_interval: float = 1e-4,
    pessimistic_estimate: bool = True,
) -> stock.PrivacyLossDistribution:
    """Returns the privacy loss distribution of an event, or of a tree of events.

    Args:
        event: Any event that `PLDAccountant` supports.
        neighboring_relation: As in the accountant.
        value_discretization_interval: The loss interval of the result, in nats.
        pessimistic_estimate: Whether the result bounds the privacy profile from above.
            Otherwise it bounds it from below, with losses rounded down to the interval.

    Returns:
        A stock distribution, which composes with stock ones of the same interval.

    Raises:
        UnsupportedEventError: If the event is not supported.
        TypeError, ValueError: If a field of the event, or the interval, is out of
            range, or if the losses need more than 25 million intervals.

    Guarantees:
        The profile is never below (pessimistic) or above (optimistic) that of the
        event, at any ε and in either direction; Σ p e^{−loss} ≤ 1 up to rounding.

    Source:
        https://arxiv.org/abs/2602.17284, Definition 3.1.
    """
    interval = fields.discretization_interval(value_discretization_interval)
    pairs = groups.worst_pairs(
        _answers(event, neighboring_relation).composed.counts,
        Bound.UPPER if pessimistic_estimate else Bound.LOWER,
        _ACCURACY,
    )
    return stock_pld.write(pairs, interval)


def renyi_divergence_bounds(
    event: stock_dp_event.DpEvent,
    orders: Sequence[float],
    *,
    neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
) -> tuple[FloatArray, FloatArray]:
    """Returns certified bounds on the Rényi divergences of an event, or of a tree.

    Args:
        event: Any event that `PLDAccountant` supports.
        orders: (n,) orders α > 1; inf stands for the largest loss.
        neighboring_relation: As in the accountant.

    Returns:
        (n,) lower and (n,) upper bounds, in nats, on the larger divergence of both
        directions; for a group, over all its splits. An upper bound is inf if nothing
        bounds the far tail of the losses. A lower bound is 0 if no lower pair is known.

    Raises:
        UnsupportedEventError: If the event is not supported.
        TypeError, ValueError: If a field of the event, or an order, is out of range.
        ArithmeticError: If the bounds cross, which is a fault of this package.

    Source:
        https://arxiv.org/abs/2403.04867, Definition 2.2.
    """
    alphas = [fields.real_number("orders", order) for order in orders]
    if not alphas or min(alphas) <= 1:
        raise ValueError(f"orders must be above 1, at least one. Found {alphas}.")
    lower, upper = np.zeros(len(alphas)), np.zeros(len(alphas))
    for scenario in _answers(event, neighboring_relation).scenarios:
        mechanism = compositions.compose(scenario)
        below = renyi_curves.divergences(mechanism, alphas, Bound.LOWER)
        removed, added, failure = renyi_curves.both_ways(mechanism, alphas)
        lower = np.maximum(lower, np.maximum(*below))
        above = np.full(len(alphas), np.inf) if failure else np.maximum(removed, added)
        upper = np.maximum(upper, above)
    return privacy_bounds.in_order(lower, upper), upper


def _answers(
    event: stock_dp_event.DpEvent, neighboring_relation: NeighborRel
) -> certified_answers.CertifiedAnswers:
    """Returns the answers of an accountant that has composed an event."""
    return pld_accountant.PLDAccountant(neighboring_relation).compose(event)._answers()


def poisson_subsample(
    privacy_loss_distribution: stock.PrivacyLossDistribution,
    sampling_probability: float,
) -> stock.PrivacyLossDistribution:
    """Returns the distribution of a mechanism on a Poisson sample.

    Args:
        privacy_loss_distribution: That of the mechanism, pessimistic or optimistic.
        sampling_probability: The inclusion probability of each record, in [0, 1].

    Returns:
        A distribution with the same interval, which is a bound from the same side.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range, or
            if the distribution's masses are not probabilities.

    Source:
        https://arxiv.org/abs/2602.17284, Theorem 3.3.
    """
    rate = fields.sampling_probability(sampling_probability)
    mechanism, interval = _given(privacy_loss_distribution)
    sampled = subsampled.on_poisson_sample(rate, mechanism)
    return stock_pld.write(
        interface.pairs_of(sampled, mechanism.bound, _ACCURACY), interval
    )


def random_allocation(
    privacy_loss_distribution: stock.PrivacyLossDistribution,
    num_selected: int,
    num_steps: int,
) -> stock.PrivacyLossDistribution:
    """Returns the distribution of k-out-of-t random allocation of a mechanism.

    Args:
        privacy_loss_distribution: That of one step, pessimistic or optimistic.
        num_selected: The number k ≥ 1 of steps in which each record takes part.
        num_steps: The number t ≥ k of steps.

    Returns:
        A distribution with the same interval, which is a bound from the same side.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range, or
            if the distribution's masses are not probabilities.

    Source:
        https://arxiv.org/abs/2602.17284, Theorem 4.6.
    """
    selected, steps = fields.steps(num_selected, num_steps)
    mechanism, interval = _given(privacy_loss_distribution)
    allocation = allocated.allocate(mechanism, selected, steps)
    return stock_pld.write(
        interface.pairs_of(allocation, mechanism.bound, _ACCURACY), interval
    )


def _given(
    distribution: stock.PrivacyLossDistribution,
) -> tuple[known_bounds.KnownPairs, float]:
    pairs, interval = stock_pld.read(distribution)
    return known_bounds.KnownPairs(pairs), interval
