"""A drop-in for dp_accounting's PLDAccountant."""

import math

from dp_accounting import dp_event as stock_dp_event
from dp_accounting import privacy_accountant
from dp_accounting.pld import pld_privacy_accountant

from dp_accounting_ext import certificate
from dp_accounting_ext import constructions
from dp_accounting_ext import dp_event
from dp_accounting_ext import stock_pld
from dp_accounting_ext import validation

NeighborRel = privacy_accountant.NeighboringRelation
CompositionErrorDetails = privacy_accountant.PrivacyAccountant.CompositionErrorDetails


class PLDAccountant(pld_privacy_accountant.PLDAccountant):
    """The stock accountant, with random allocation and certified lower bounds.

    Takes every event that the stock accountant takes, and
    `RandomAllocationEvent` over the Gaussian mechanism anywhere in a tree.
    Stock events are composed by the stock code. Allocations are kept with their
    counts; their laws are computed when ε or δ is asked for, as accurately as
    the question needs.

    Args:
        neighboring_relation: As in the stock accountant. Random allocation is
            supported for ADD_OR_REMOVE_ONE and REPLACE_SPECIAL (zero-out, the
            paper's relation).
        value_discretization_interval: The largest interval on which losses are
            composed, in nats; finer ones are chosen where losses are small. Only
            a composition of more than two million intervals is coarser, its
            bounds as certain.

    Guarantees:
        `get_epsilon` and `get_delta` are never below the truth. The bounds of
        `get_epsilon_bounds` and `get_delta_bounds` hold the truth between them.

    Source:
        https://arxiv.org/abs/2602.17284.
    """

    def __init__(
        self,
        neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
        value_discretization_interval: float = 1e-4,
    ) -> None:
        validation.discretization_interval(value_discretization_interval)
        super().__init__(neighboring_relation, value_discretization_interval)
        self._allocations: dict[constructions.Construction, int] = {}
        # Stock events whose lower bounds are known; the others count as nothing.
        self._bounded_below: dict[constructions.Construction, int] = {}

    def _maybe_compose(
        self, event: stock_dp_event.DpEvent, count: int, do_compose: bool
    ) -> CompositionErrorDetails | None:
        if isinstance(event, dp_event.RandomAllocationEvent):
            return self._maybe_compose_allocation(event, count, do_compose)
        result = super()._maybe_compose(event, count, do_compose)
        if do_compose and result is None:
            self._note_lower_bound(event, count)
        return result

    def _maybe_compose_allocation(
        self, event: dp_event.RandomAllocationEvent, count: int, do_compose: bool
    ) -> CompositionErrorDetails | None:
        if self._neighboring_relation not in (
            NeighborRel.ADD_OR_REMOVE_ONE,
            NeighborRel.REPLACE_SPECIAL,
        ):
            return CompositionErrorDetails(
                invalid_event=event,
                error_message=(
                    "neighboring_relation must be `ADD_OR_REMOVE_ONE` or "
                    "`REPLACE_SPECIAL` for `RandomAllocationEvent`: no theorem covers "
                    f"the others. Found {self._neighboring_relation}."
                ),
            )
        inner = event.event
        if not isinstance(
            inner,
            (
                stock_dp_event.GaussianDpEvent,
                stock_dp_event.NoOpDpEvent,
                stock_dp_event.NonPrivateDpEvent,
            ),
        ):
            return CompositionErrorDetails(
                invalid_event=inner,
                error_message=(
                    "Subevent of `RandomAllocationEvent` must be a "
                    f"`GaussianDpEvent`. Found {inner}."
                ),
            )
        if count == 0:
            # A question of support alone: fields are checked when composed.
            return None
        count = validation.positive_integer("count", count)
        selected, steps = validation.steps(event.num_selected, event.num_steps)
        noise = 0.0
        if isinstance(inner, stock_dp_event.GaussianDpEvent):
            noise = validation.noise_multiplier(inner.noise_multiplier)
        if not do_compose or isinstance(inner, stock_dp_event.NoOpDpEvent):
            return None
        if noise == 0:
            self._contains_non_dp_event = True
            return None
        allocation = constructions.RandomAllocation(noise, selected, steps)
        self._allocations[allocation] = self._allocations.get(allocation, 0) + count
        return None

    def _note_lower_bound(self, event: stock_dp_event.DpEvent, count: int) -> None:
        """Keeps what lower bounds need of an event that the stock code composed."""
        if self._neighboring_relation is NeighborRel.REPLACE_ONE:
            return
        rate = 1.0
        if isinstance(event, stock_dp_event.PoissonSampledDpEvent):
            rate, event = event.sampling_probability, event.event
        if not isinstance(event, stock_dp_event.GaussianDpEvent):
            return
        noise = event.noise_multiplier
        if rate == 0 or noise == 0:
            return
        known: constructions.Construction = constructions.Gaussian(noise)
        if rate < 1:
            known = constructions.PoissonSampledGaussian(rate, noise)
        self._bounded_below[known] = self._bounded_below.get(known, 0) + count

    def _certificate(self) -> certificate.Certificate:
        others = None
        if not stock_pld.is_identity(self._pld):
            others = stock_pld.loss_distributions(self._pld)
        return certificate.Certificate(
            upper=self._allocations,
            lower={**self._allocations, **self._bounded_below},
            interval=self._value_discretization_interval,
            others=others,
        )

    def get_epsilon(self, target_delta: float) -> float:
        """Returns an upper bound on ε at δ, in nats.

        Args:
            target_delta: δ. Below 0 no ε will do (inf); from 1 on, 0 will.

        Raises:
            TypeError: If it is not a real number.
            ValueError: If it is NaN.
        """
        target_delta = validation.real_number("target_delta", target_delta)
        if self._contains_non_dp_event or not self._allocations:
            return super().get_epsilon(target_delta)
        if target_delta <= 0:
            return math.inf
        if target_delta >= 1:
            return 0.0
        return self._certificate().upper_epsilon(target_delta)

    def get_delta(self, target_epsilon: float) -> float:
        """Returns an upper bound on δ at ε.

        Args:
            target_epsilon: ε, in nats.

        Raises:
            TypeError: If it is not a real number.
            ValueError: If it is NaN.
        """
        target_epsilon = validation.real_number("target_epsilon", target_epsilon)
        if (
            self._contains_non_dp_event
            or not self._allocations
            or math.isinf(target_epsilon)
        ):
            return float(super().get_delta(target_epsilon))
        return self._certificate().upper_delta(target_epsilon)

    def get_epsilon_bounds(self, target_delta: float) -> tuple[float, float]:
        """Returns certified bounds on ε at δ: lower ≤ the true ε ≤ upper, in nats.

        Args:
            target_delta: δ, as in `get_epsilon`.

        Returns:
            The upper bound is `get_epsilon`. The lower one is of the mechanism,
            not of any reduction, as far as its events have one: random
            allocations and (Poisson-sampled) Gaussians do, others count as
            nothing for now.

        Raises:
            TypeError: If it is not a real number.
            ValueError: If it is NaN.
        """
        upper = self.get_epsilon(target_delta)
        if self._contains_non_dp_event or not 0 < target_delta < 1:
            return upper, upper
        return min(self._certificate().lower_epsilon(target_delta), upper), upper

    def get_delta_bounds(self, target_epsilon: float) -> tuple[float, float]:
        """Returns certified bounds on δ at ε: lower ≤ the true δ ≤ upper.

        Args:
            target_epsilon: ε, in nats, as in `get_delta`.

        Returns:
            As `get_epsilon_bounds` does.

        Raises:
            TypeError: If it is not a real number.
            ValueError: If it is NaN.
        """
        upper = self.get_delta(target_epsilon)
        if self._contains_non_dp_event or math.isinf(target_epsilon):
            return upper, upper
        return min(self._certificate().lower_delta(target_epsilon), upper), upper
