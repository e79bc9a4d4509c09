"""A drop-in for dp_accounting's RdpAccountant."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any
from typing import TypeAlias
from typing import overload

from dp_accounting import dp_event as stock_dp_event
from dp_accounting import privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
import numpy as np

from dp_accounting_ext.accountants import base_accountant
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import group_events
from dp_accounting_ext.renyi import conversion
from dp_accounting_ext.renyi import ratio_moments
from dp_accounting_ext.validation import fields
from dp_accounting_ext.validation import inheritance

Many: TypeAlias = FloatArray | Sequence[float]
NeighborRel = privacy_accountant.NeighboringRelation

# Certified: a bound on the relative error of a few sums, products and quotients.
_ROUNDING = 8 * 2.0**-53
# A limit of time: each split of a larger group would have pairs of its own.
_MOST_MEMBERS = 64


@dataclasses.dataclass(frozen=True)
class _State:
    """What was composed, as an immutable value.

    Attributes:
        rows: (splits, orders) Rényi divergences: one row for a single record, or one
            for each split of a group.
        log_kept: The logarithm of the probability that no event with infinite loss
            happened, at most 0.
        group: The records in which neighboring datasets differ, the largest group.
    """

    rows: FloatArray
    log_kept: float
    group: group_events.Group

    def after(self, other: "_State", count: int) -> "_State":
        """Returns the state after `count` runs of what another state composes."""
        rows = (self.rows + count * other.rows) * (1 + _ROUNDING)
        rows.setflags(write=False)
        log_kept = self.log_kept + count * other.log_kept
        return _State(rows, log_kept, other.group)


class RdpAccountant(base_accountant.Composing, rdp_privacy_accountant.RdpAccountant):
    """The stock accountant with certified bounds, groups, allocation and any sample.

    It supports every event that the newest known stock accountant supports, if the
    installed library has it, and, anywhere in a tree, what `PLDAccountant` supports,
    with groups of up to 64. The following have theorems of their own, exact or nearly
    so:

    - `PoissonSampledDpEvent` and `PLDSubsampleEvent` over any of these but randomized
      response, and `SampledWithoutReplacementDpEvent` likewise (REPLACE_ONE);
    - `SampledWithoutReplacementDpEvent` over `RandomizedResponseDpEvent` with two
      buckets (REPLACE_ONE), the answer to a bit query of the batch;
    - `RandomAllocationEvent` over `GaussianDpEvent`, at integer orders from 2 on (for
      k > 1 steps of t, that of k blocks);
    - `GroupSubsampledEvent` over `GaussianDpEvent`, Poisson samples of it, and
      compositions of those. The splits of the group are composed one by one; ε and δ
      are the largest over all of them. The largest group sees everything that is
      composed.

    All other events are bounded by the dominating pairs of `PLDAccountant`. If losses
    are bounded this is as tight as the cells of the pairs. At orders above some dozens,
    the tail of Gaussian noise counts as if it were not sampled.

    Everything else is refused by name: events, fields of events and methods of a newer
    dp_accounting, and events under relations for which there is no theorem. No method
    that composes or answers is inherited.

    The noise multiplier of a Gaussian or Laplace event, and the sensitivity of a
    discrete Gaussian one, is in units of a record's norm. Under REPLACE_ONE one record
    leaves and another one joins, which is twice that norm: half the noise multiplier,
    alone and on a batch without replacement. The stock accountant omits this factor.

    Args:
        orders: The Rényi orders, at least 1, as in the stock accountant; inf is
            allowed. Divergences of orders above 1e12 are bounded by that of order inf.
        neighboring_relation: As in the stock accountant.

    Guarantees:
        No ε or δ is below the truth. `compose` either composes an event entirely, or
        raises and changes nothing. Threads may share an accountant.

    Source:
        https://arxiv.org/abs/2403.04867; https://arxiv.org/abs/2502.08202.
    """

    def __init__(
        self,
        orders: Sequence[float] | None = None,
        neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
    ) -> None:
        if orders is None:
            orders = rdp_privacy_accountant.DEFAULT_RDP_ORDERS
        orders = fields.sequence("orders", orders)
        for order in orders:
            if fields.real_number("orders", order) < 1:
                raise ValueError(f"orders must be at least 1. Found {order}.")
        if not len(orders):
            raise ValueError("orders must hold at least one order. Found none.")
        self._order_values = tuple(float(order) for order in orders)
        self._orders = np.array(self._order_values)
        super().__init__(neighboring_relation)

    def _parts(
        self, event: stock_dp_event.DpEvent, group: group_events.Group
    ) -> dict[interface.Mechanism, int]:
        parts = super()._parts(event, group)
        if group.size > _MOST_MEMBERS and not all(map(groups.has_few_rows, parts)):
            raise event_reader.UnsupportedError(
                event,
                f"Groups of more than {_MOST_MEMBERS} have Rényi divergences of "
                "Gaussian noise on Poisson samples, and where all of them leaving is "
                "the worst. dp_accounting_ext.PLDAccountant takes more.",
            )
        return parts

    def _nothing(self, group: group_events.Group) -> _State:
        return _State(np.zeros((1, len(self._orders))), 0.0, group)

    def _plus(
        self, before: _State, parts: Mapping[interface.Mechanism, int], count: int
    ) -> _State:
        orders = [
            order if order <= ratio_moments.LARGEST_ORDER else math.inf
            for order in self._order_values
        ]
        run = self._nothing(before.group)
        for part, number in parts.items():
            rows, failure = groups.rdp_rows(part, orders)
            log_kept = math.log1p(-failure) if failure < 1 else -math.inf
            state = _State(rows, log_kept * (1 + _ROUNDING), before.group)
            run = run.after(state, number)
        return before.after(run, count)

    @property
    def orders(self) -> FloatArray:
        """The Rényi orders."""
        return self._orders.copy()

    @property
    def extra_delta(self) -> float:
        """The probability of an event with infinite loss. `rdp` holds otherwise."""
        return _failure_probability(self._composed.log_kept)

    @property
    def rdp(self) -> FloatArray:
        """The Rényi divergence at each order, the largest over the splits of a group.

        It holds except for an event of probability `extra_delta`.
        """
        state = self._composed
        if state.log_kept == -math.inf:
            return np.full(len(self._orders), np.inf)
        largest: FloatArray = state.rows.max(axis=0)
        return largest

    # The stock's own tests read these by private names.
    _rdp, _extra_delta = rdp, extra_delta

    def get_epsilon_and_optimal_order(self, target_delta: float) -> tuple[float, float]:
        """Returns the largest ε at δ over the splits, and the order that gave it.

        Args:
            target_delta: δ in [0, 1]. At 1 ε is 0, with a warning.

        Raises:
            TypeError: If it is not a real number.
            ValueError: If it is not in [0, 1].
        """
        number = fields.real_number("target_delta", target_delta)
        return self._epsilon(float(fields.target_deltas(number)))

    def _epsilon(self, target: float) -> tuple[float, float]:
        """Returns the largest ε at a δ in [0, 1], and the order that gave it."""
        state = self._composed
        extra = _failure_probability(state.log_kept)
        # The δ of the divergences alone is δ_rest, where δ = 1 − (1 − δ_extra)
        # (1 − δ_rest). It is rounded down.
        if extra == 1 or target < extra:
            return math.inf, 0.0
        if extra:
            target = (target - extra) / (1 - extra) * (1 - _ROUNDING)
        return max(
            conversion.epsilon(self._order_values, row, target)
            for row in state.rows.tolist()
        )

    @overload
    def get_epsilon(self, target_delta: float) -> float: ...

    @overload
    def get_epsilon(self, target_delta: Many) -> FloatArray: ...

    def get_epsilon(self, target_delta: Any) -> Any:
        """Returns an upper bound on ε at δ, in nats, or an array of these."""
        return _each(fields.target_deltas(target_delta), self._epsilon)

    def get_delta_and_optimal_order(self, target_epsilon: float) -> tuple[float, float]:
        """Returns the largest δ at ε over the splits, and the order that gave it.

        Args:
            target_epsilon: ε ≥ 0, in nats.

        Raises:
            TypeError: If it is not a real number.
            ValueError: If it is NaN or negative.
        """
        target = fields.real_number("target_epsilon", target_epsilon)
        if target < 0:
            raise ValueError(f"target_epsilon must be non-negative. Found {target}.")
        state = self._composed
        delta, order = max(
            conversion.delta(self._order_values, row, target)
            for row in state.rows.tolist()
        )
        extra = _failure_probability(state.log_kept)
        if extra:
            delta = min((extra + (1 - extra) * delta) * (1 + _ROUNDING), 1.0)
        return delta, order

    @overload
    def get_delta(self, target_epsilon: float) -> float: ...

    @overload
    def get_delta(self, target_epsilon: Many) -> FloatArray: ...

    def get_delta(self, target_epsilon: Any) -> Any:
        """Returns an upper bound on δ at ε, or an array of these."""
        values = fields.real_numbers("target_epsilon", target_epsilon)
        return _each(values, self.get_delta_and_optimal_order)


def _failure_probability(log_kept: float) -> float:
    """Returns δ from log(1 − δ), rounded up."""
    return min(-math.expm1(log_kept) * (1 + _ROUNDING), 1.0)


def _each(
    values: FloatArray, question: Callable[[float], tuple[float, float]]
) -> float | FloatArray:
    """Returns the first part of each answer, in the shape of what was asked."""
    answers = np.array([question(value)[0] for value in values.flat], dtype=np.float64)
    if values.ndim == 0:
        return float(answers[0])
    return answers.reshape(values.shape)


inheritance.refuse_what_is_inherited(
    RdpAccountant, keep={"neighboring_relation", "CompositionErrorDetails"}
)
