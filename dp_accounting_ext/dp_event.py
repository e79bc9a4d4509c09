"""Events that dp_accounting does not have."""

from collections.abc import Sequence
from typing import Any

import attr
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as stock_pld
import numpy as np

__all__ = [
    "DiscreteGaussianDpEvent",
    "EpsilonDeltaDpEvent",
    "ExponentialMechanismDpEvent",
    "GroupSubsampledEvent",
    "PLDEvent",
    "PLDSubsampleEvent",
    "PermuteAndFlipDpEvent",
    "RandomAllocationEvent",
    "ScheduledAllocationEvent",
]
__dir__ = __all__.copy


def _as_tuple(value: Any) -> Any:
    """Returns a list as a tuple, as events must be hashable."""
    is_row = isinstance(value, np.ndarray) and value.ndim == 1
    return tuple(value) if is_row or isinstance(value, list) else value


@attr.s(frozen=True, slots=True, auto_attribs=True)
class RandomAllocationEvent(dp_event.DpEvent):
    """Represents an epoch of t steps, of which each record joins k, drawn at random.

    For every record, independently of all others, a set of `num_selected` of the
    `num_steps` steps is drawn uniformly at random. Each step runs `event` on the
    records that drew it, and may depend on the outputs of the steps before. With
    `num_selected` = 1 these are balls-and-bins batches. The draws are secret, and
    all outputs are released.

    Let (P, Q) be the dominating pair of `event`, where P is the law with the record.
    Without the record, the law of the outputs is Q^t. With it, the law is a mixture
    over the sets: the steps of the set have the law P, and all others have Q. One
    epoch is one event, so compose it once for each epoch.

    Source: https://arxiv.org/abs/2602.17284, section 2.

    Attributes:
        event: What each step runs.
        num_selected: The number of steps in which each record takes part, k ≥ 1.
        num_steps: The number of steps, t ≥ k.
    """

    event: dp_event.DpEvent
    num_selected: int
    num_steps: int


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ScheduledAllocationEvent(dp_event.DpEvent):
    """Represents an allocation epoch whose steps differ, or that was stopped early.

    Every record takes part in `num_selected` of `num_steps` steps, drawn uniformly at
    random. The first `counts[0]` steps run `events[0]`, the next `counts[1]` steps run
    `events[1]`, and so on. The steps beyond the sum of the counts never ran, and
    released nothing.

    Let P_i and Q_i be the laws of the outputs of step i with and without the record.
    The likelihood ratio is the mean of dP_i/dQ_i over all steps, or of the products of
    k of these ratios over all sets of k steps. It is 1 for a step that never ran.

    Source: https://arxiv.org/abs/2602.17284, Theorem 4.4 (whose proof allows steps
    to differ); docs/mathematics.md, "Steps that differ", for k > 1.

    Attributes:
        events: What the steps run.
        counts: The number of steps that run each event, at least 1.
        num_steps: The number of planned steps, t, at least the sum of the counts.
        num_selected: The number of steps in which a record takes part, k.
    """

    events: Sequence[dp_event.DpEvent] = attr.ib(converter=_as_tuple)
    counts: Sequence[int] = attr.ib(converter=_as_tuple)
    num_steps: int
    num_selected: int = 1


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PLDEvent(dp_event.DpEvent):
    """Represents a mechanism of which a privacy loss distribution is known.

    The distribution is one of dp_accounting, for the neighboring relation of the
    accountant, and pessimistic: it bounds the privacy profile of the mechanism from
    above, at every ε and in each direction. Nothing is known from below. The event can
    run on a sample or in the steps of an allocation. Two events are equal if they hold
    the same object.

    Source: https://arxiv.org/abs/2602.17284, Definition 3.1.

    Attributes:
        privacy_loss_distribution: The distribution, whatever was composed in it.
    """

    privacy_loss_distribution: stock_pld.PrivacyLossDistribution


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PLDSubsampleEvent(dp_event.DpEvent):
    """Represents any event, or tree of events, run on one Poisson sample.

    Every record is in the sample with probability `sampling_probability`,
    independently of all others. The whole of `event`, composed or not, runs on that
    one sample. The sample is secret. If `event` draws batches of fixed size, these are
    drawn from the places of all records of the dataset. The place of a record that is
    not in the sample is empty.

    Let (P, Q) be the dominating pair of `event`, where P is the law with the record.
    Then a run has the pair ((1 − λ) Q + λ P, Q).

    Source: https://arxiv.org/abs/2602.17284, Theorem 3.3.

    Attributes:
        sampling_probability: Inclusion probability λ of each record, in [0, 1].
        event: What runs on the sample.
    """

    sampling_probability: float
    event: dp_event.DpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class GroupSubsampledEvent(dp_event.DpEvent):
    """Represents a mechanism, possibly on a sample, as seen by a group of records.

    Two datasets are adjacent when they differ in the `group_size` records of the
    group: K₋ of them are only in the first dataset and K₊ only in the second,
    K₋ + K₊ = `group_size`. Such a split (K₋, K₊) is the same in all runs. Therefore the
    runs are composed for each split by itself, and the guarantee is the largest one
    over all splits, or that of a split which is told. The bound of a split is tight
    where a theorem is known. Otherwise it is a chain of the bounds for single members.

    Source: https://arxiv.org/abs/2403.04867, section 3; for chains
    https://arxiv.org/abs/1905.02383, Theorem 2.14.

    Attributes:
        group_size: Number of records in the group, K ≥ 1.
        event: The mechanism, or tree of mechanisms, of sensitivity one to each record.
        num_removed: How many of the members one of the datasets has and the other
            lacks, if it is known who may leave and who may join; the other dataset has
            the rest. All groups of an accountant must tell the same. A number and what
            is left of the group tell the same split: asked for one direction, the first
            dataset is the one that has more of the members. None for all splits.
    """

    group_size: int
    event: dp_event.DpEvent
    num_removed: int | None = None


@attr.s(frozen=True, slots=True, auto_attribs=True)
class EpsilonDeltaDpEvent(dp_event.DpEvent):
    """Represents a mechanism of which only (ε, δ)-differential privacy is known.

    Attributes:
        epsilon: ε, in nats.
        delta: δ.
    """

    epsilon: float
    delta: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ExponentialMechanismDpEvent(dp_event.DpEvent):
    """Represents the exponential mechanism, or any of ε-bounded range.

    Source: https://arxiv.org/abs/1909.13830.

    Attributes:
        epsilon: ε, in nats.
    """

    epsilon: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PermuteAndFlipDpEvent(dp_event.DpEvent):
    """Represents the permute-and-flip mechanism.

    Source: https://arxiv.org/abs/2010.12603.

    Attributes:
        epsilon: ε, in nats.
    """

    epsilon: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DiscreteGaussianDpEvent(dp_event.DpEvent):
    """Represents the discrete Gaussian mechanism, of an integer-valued function.

    Source: https://arxiv.org/abs/2004.00010.

    Attributes:
        sigma: The parameter σ of the noise.
        sensitivity: The Euclidean norm by which a record moves the function.
        dimension: The number of coordinates; None if it is not known.
    """

    sigma: float
    sensitivity: float = 1.0
    dimension: int | None = None


# A newer dp_accounting has these four, with the same fields: then its own are meant.
for _name in (
    "DiscreteGaussianDpEvent",
    "EpsilonDeltaDpEvent",
    "ExponentialMechanismDpEvent",
    "PermuteAndFlipDpEvent",
):
    globals()[_name] = getattr(dp_event, _name, globals()[_name])
