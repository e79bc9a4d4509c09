"""A drop-in for dp_accounting's RdpAccountant."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import math
from typing import Any

from dp_accounting import dp_event as stock_dp_event
from dp_accounting import privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
import numpy as np
import numpy.typing as npt

from dp_accounting_ext import dp_event
from dp_accounting_ext.renyi import group_subsampling
from dp_accounting_ext.renyi import random_allocation
from dp_accounting_ext.renyi import randomized_response
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import fields

FloatArray = npt.NDArray[np.float64]
NeighborRel = privacy_accountant.NeighboringRelation
CompositionErrorDetails = privacy_accountant.PrivacyAccountant.CompositionErrorDetails

_StockAccountant = rdp_privacy_accountant.RdpAccountant
_PoissonSampled = stock_dp_event.PoissonSampledDpEvent | dp_event.PLDSubsampleEvent
_Containers = stock_dp_event.ComposedDpEvent | stock_dp_event.SelfComposedDpEvent
# Those that say nothing of how many records two datasets differ in.
_OfNobody = stock_dp_event.NoOpDpEvent | stock_dp_event.NonPrivateDpEvent

# Sums of terms near one: below this the stock's values of a Poisson-sampled Gaussian
# are rounding, and may be negative.
_LEAST_RESOLVED = 1e-9
_SINGLE_RECORD = 0


class RdpAccountant(_StockAccountant):
    """The stock accountant, with groups, random allocation and a correct REPLACE_ONE.

    Takes every event that the stock accountant takes, and anywhere in a tree

    - `GroupSubsampledEvent` over `GaussianDpEvent`, Poisson samples of it
      (`PoissonSampledDpEvent`, `PLDSubsampleEvent`), and compositions of those. The
      splits of the group are composed one by one; ε and δ are the largest over all of
      them. A group has one size throughout, and stands beside no single-record event.
    - `RandomAllocationEvent` over `GaussianDpEvent`.
    - `PLDSubsampleEvent` over what the stock takes in `PoissonSampledDpEvent`.
    - `SampledWithoutReplacementDpEvent` over `RandomizedResponseDpEvent` with two
      buckets (REPLACE_ONE), the answer to a bit query of the batch.

    The noise multiplier of a Gaussian or Laplace event is in units of a record's
    norm. Under REPLACE_ONE one record leaves and another comes, twice that norm: half
    the noise multiplier, alone and on a batch without replacement (which may be all
    of the dataset). The stock accountant leaves the factor out. An event that no
    theorem covers in the accountant's relation is refused.

    Args:
        orders: Rényi orders, at least 1, as in the stock accountant.
        neighboring_relation: As in the stock accountant.

    Guarantees:
        `compose` either takes all of an event or raises, and then changes nothing.

    Source:
        https://arxiv.org/abs/2403.04867; https://arxiv.org/abs/2502.08202.
    """

    def __init__(
        self,
        orders: Sequence[float] | None = None,
        neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
    ) -> None:
        fields.neighboring_relation(neighboring_relation)
        for order in () if orders is None else orders:
            if fields.real_number("orders", order) < 1:
                raise ValueError(f"orders must be at least 1. Found {order}.")
        super().__init__(orders, neighboring_relation)
        self._order_values = tuple(float(order) for order in self._orders)
        # Whose privacy is accounted for: nobody's yet, one record's, or a group's.
        self._subject: int | None = None
        # One row a split of the group, K₋ = 0, …, K.
        self._split_rdp: FloatArray = np.zeros((1, len(self._orders)))

    def supports(self, event: stock_dp_event.DpEvent) -> bool:
        """Tells whether a theorem covers an event, whatever its fields."""
        try:
            event_trees.event_tree(event)
        except (TypeError, ValueError):
            return False
        try:
            return bool(super().supports(event))
        except (TypeError, ValueError):
            return True  # What the fields lack is told when it is composed.

    def compose(self, event: stock_dp_event.DpEvent, count: int = 1) -> "RdpAccountant":
        """Composes an event, all of it or nothing.

        Args:
            event: What ran.
            count: How often it ran.

        Raises:
            TypeError: If a field has the wrong type.
            ValueError: If a field has no meaning.
            UnsupportedEventError: If the accountant does not support the event.
        """
        event_trees.event_tree(event)
        count = fields.positive_integer("count", count)
        if not self.supports(event):
            super().compose(event, count)  # Raises, before anything is changed.
        before = self._rdp.copy(), self._split_rdp, self._subject
        try:
            event, count = event_trees.repeated(event, count)
            self._maybe_compose(event, count, True)
            self._check_growth(before[0])
            self._ledger.compose(event, count)
        except BaseException:
            self._rdp, self._split_rdp, self._subject = before
            raise
        return self

    def _check_growth(self, before: FloatArray) -> None:
        """Raises `ValueError` where a field that the stock reads has no meaning."""
        if not (self._rdp >= before).all():
            raise ValueError(
                "event must have fields that give Rényi divergences of at least 0. "
                f"Found orders at which they grew from {before.min()} to "
                f"{self._rdp.min()}."
            )

    def _maybe_compose(
        self, event: stock_dp_event.DpEvent, count: int, do_compose: bool
    ) -> CompositionErrorDetails | None:
        error = self._error_of_subjects(event)
        if error is not None:
            return error
        for event_type, compose in _TABLE:
            if isinstance(event, event_type):
                error = compose(self, event, count, do_compose)
                break
        else:
            if do_compose:
                _check_numbers(event)
            error = super()._maybe_compose(event, count, do_compose)
        if do_compose and error is None and not isinstance(event, _Containers):
            subject = _subject(event)
            self._subject = self._subject if subject is None else subject
        return error

    def _error_of_subjects(
        self, event: stock_dp_event.DpEvent
    ) -> CompositionErrorDetails | None:
        """Refuses trees that mix group sizes, or groups and single records."""
        known = self._subject
        for leaf in _leaves(event):
            found = _subject(leaf)
            if found is None or found == known:
                continue
            if known is not None:
                return CompositionErrorDetails(leaf, _mixed_subjects(known, found))
            known = found
        return None

    def _compose_repeated(
        self,
        event: stock_dp_event.SelfComposedDpEvent,
        count: int,
        do_compose: bool,
    ) -> CompositionErrorDetails | None:
        if do_compose:
            count *= fields.positive_integer("count", event.count)
        return self._maybe_compose(event.event, count, do_compose)

    def _compose_gaussian(
        self, event: stock_dp_event.GaussianDpEvent, count: int, do_compose: bool
    ) -> CompositionErrorDetails | None:
        if do_compose:
            noise = _in_range(event.noise_multiplier)
            # As many runs as the square of the distance: the divergence is quadratic.
            runs = count * self._norms_replaced() ** 2
            self._add_stock(stock_dp_event.GaussianDpEvent(noise), runs)
        return None

    def _compose_laplace(
        self, event: stock_dp_event.LaplaceDpEvent, count: int, do_compose: bool
    ) -> CompositionErrorDetails | None:
        if do_compose:
            noise = _in_range(event.noise_multiplier)
            if noise == 0:
                self._rdp += np.inf
            else:
                scale = noise / self._norms_replaced()
                self._add_stock(stock_dp_event.LaplaceDpEvent(scale), count)
        return None

    def _compose_poisson(
        self, event: _PoissonSampled, count: int, do_compose: bool
    ) -> CompositionErrorDetails | None:
        error = self._error_of_relation(event) or _error_of_gaussian(event)
        if error is None and do_compose:
            rate = fields.real_number(
                "sampling_probability", event.sampling_probability
            )
            self._rdp += count * self._poisson_rdp(rate, _noise(event.event))
        return error

    def _poisson_rdp(self, rate: float, noise: float) -> FloatArray:
        """Returns the stock's RDP, and the certified one where that is rounding."""
        if math.isinf(noise):
            fields.sampling_probability(rate)
            return np.zeros(len(self._orders))
        gaussian = stock_dp_event.GaussianDpEvent(noise)
        values = self._stock_rdp(stock_dp_event.PoissonSampledDpEvent(rate, gaussian))
        small = values < _LEAST_RESOLVED
        if not small.any():
            return values
        certified = group_subsampling.group_rdp(self._order_values, 1, rate, noise)
        return np.where(small, certified.max(axis=0), values)

    def _compose_response(
        self,
        event: stock_dp_event.RandomizedResponseDpEvent,
        count: int,
        do_compose: bool,
    ) -> CompositionErrorDetails | None:
        if do_compose:
            noise = fields.probability("noise_parameter", event.noise_parameter)
            buckets = fields.positive_integer("num_buckets", event.num_buckets)
            event = stock_dp_event.RandomizedResponseDpEvent(noise, buckets)
        return super()._maybe_compose(event, count, do_compose)

    def _compose_without_replacement(
        self,
        event: stock_dp_event.SampledWithoutReplacementDpEvent,
        count: int,
        do_compose: bool,
    ) -> CompositionErrorDetails | None:
        if self._neighboring_relation is not NeighborRel.REPLACE_ONE:
            return super()._maybe_compose(event, count, do_compose)
        if isinstance(event.event, stock_dp_event.RandomizedResponseDpEvent):
            error = _error_of_buckets(event.event)
        else:
            error = _error_of_gaussian(event)
        if error is None and do_compose:
            size, batch = _batch(event)
            self._rdp += count * self._batch_rdp(event.event, size, batch)
        return error

    def _batch_rdp(
        self, event: stock_dp_event.DpEvent, size: int, batch: int
    ) -> FloatArray:
        """Returns the RDP of an event on a batch, one record replaced by another."""
        if isinstance(event, stock_dp_event.RandomizedResponseDpEvent):
            noise = fields.probability("noise_parameter", event.noise_parameter)
            if event.num_buckets == 1:
                noise = 1.0
            return randomized_response.batch_rdp(
                self._order_values, noise, batch / size
            )
        noise = _noise(event) / self._norms_replaced()
        if batch == 0 or math.isinf(noise):
            return np.zeros(len(self._orders))
        if noise == 0:
            return np.full(len(self._orders), np.inf)
        gaussian = stock_dp_event.GaussianDpEvent(noise)
        return self._stock_rdp(
            stock_dp_event.SampledWithoutReplacementDpEvent(size, batch, gaussian)
        )

    def _compose_selection(
        self,
        event: stock_dp_event.RepeatAndSelectDpEvent,
        count: int,
        do_compose: bool,
    ) -> CompositionErrorDetails | None:
        for leaf in _leaves(event.event):
            if isinstance(leaf, dp_event.GroupSubsampledEvent):
                return CompositionErrorDetails(
                    leaf,
                    "`RepeatAndSelectDpEvent` takes single-record events: no theorem "
                    "covers the splits of a group.",
                )
        if do_compose:
            _check_numbers(event)
        return super()._maybe_compose(event, count, do_compose)

    def _compose_allocation(
        self, event: dp_event.RandomAllocationEvent, count: int, do_compose: bool
    ) -> CompositionErrorDetails | None:
        error = self._error_of_relation(event)
        if not isinstance(event.event, _OfNobody):
            error = error or _error_of_gaussian(event)
        if error is None and do_compose:
            selected, steps = fields.steps(event.num_selected, event.num_steps)
            noise = _noise(event.event)
            if math.isfinite(noise):
                self._rdp += count * random_allocation.allocation_rdp(
                    self._order_values, noise, selected, steps
                )
        return error

    def _compose_group(
        self, event: dp_event.GroupSubsampledEvent, count: int, do_compose: bool
    ) -> CompositionErrorDetails | None:
        error = self._error_of_relation(event) or _error_of_group(event.event)
        if error is None and do_compose:
            size = fields.positive_integer("group_size", event.group_size)
            rows = np.zeros((size + 1, len(self._orders)))
            for rate, noise, times in _mechanisms(event.event, count):
                if math.isfinite(noise):
                    rows += times * group_subsampling.group_rdp(
                        self._order_values, size, rate, noise
                    )
            self._split_rdp = self._split_rdp + rows
        return error

    def _error_of_relation(
        self, event: stock_dp_event.DpEvent
    ) -> CompositionErrorDetails | None:
        if self._neighboring_relation is not NeighborRel.REPLACE_ONE:
            return None
        return CompositionErrorDetails(
            event,
            "neighboring_relation must be `ADD_OR_REMOVE_ONE` or `REPLACE_SPECIAL` for "
            f"`{type(event).__name__}`: no theorem covers the others. Found "
            f"{self._neighboring_relation}.",
        )

    def _norms_replaced(self) -> int:
        """Returns how far apart neighbours' sums may be, in norms of a record."""
        return 2 if self._neighboring_relation is NeighborRel.REPLACE_ONE else 1

    def _add_stock(self, event: stock_dp_event.DpEvent, count: int) -> None:
        super()._maybe_compose(event, count, True)

    def _stock_rdp(self, event: stock_dp_event.DpEvent) -> FloatArray:
        """Returns what the stock adds for one event.

        Order one, where its formulas divide by zero, gets the value of order two:
        Rényi divergences increase with the order.
        """
        orders = [order if order > 1 else 2.0 for order in self._order_values]
        stock = _StockAccountant(orders, self._neighboring_relation)
        rdp: FloatArray = stock.compose(event).rdp
        return rdp

    def _curves(self) -> FloatArray:
        """Returns the RDP of each pair of datasets whose privacy is accounted for."""
        return self._split_rdp + self._rdp

    def get_epsilon_and_optimal_order(self, target_delta: float) -> tuple[float, float]:
        """Returns ε at δ, the largest over the splits, and the order that gave it."""
        target_delta = fields.real_number("target_delta", target_delta)
        return max(
            rdp_privacy_accountant.compute_epsilon(
                self._order_values, curve, target_delta
            )
            for curve in self._curves().tolist()
        )

    def get_epsilon(self, target_delta: float) -> float:
        """Returns an upper bound on ε at δ, in nats."""
        return self.get_epsilon_and_optimal_order(target_delta)[0]

    def get_delta_and_optimal_order(self, target_epsilon: float) -> tuple[float, float]:
        """Returns δ at ε, the largest over the splits, and the order that gave it."""
        target_epsilon = fields.real_number("target_epsilon", target_epsilon)
        return max(
            rdp_privacy_accountant.compute_delta(
                self._order_values, curve, target_epsilon
            )
            for curve in self._curves().tolist()
        )

    def get_delta(self, target_epsilon: float) -> float:
        """Returns an upper bound on δ at ε."""
        return self.get_delta_and_optimal_order(target_epsilon)[0]

    @property
    def rdp(self) -> FloatArray:
        """The RDP at each order: the largest over the splits of a group."""
        largest: FloatArray = self._curves().max(axis=0)
        return largest


def _allocation_events(stock: Any) -> tuple[type[stock_dp_event.DpEvent], ...]:
    """Returns ours, and the host's event with the same fields if it has one."""
    upstream = getattr(stock, "RandomAllocationDpEvent", None)
    ours = dp_event.RandomAllocationEvent
    return (ours,) if upstream is None else (ours, upstream)


_Compose = Callable[[RdpAccountant, Any, int, bool], CompositionErrorDetails | None]
# What is done here and not by the stock.
_TABLE: tuple[tuple[Any, _Compose], ...] = (
    (stock_dp_event.SelfComposedDpEvent, RdpAccountant._compose_repeated),
    (stock_dp_event.GaussianDpEvent, RdpAccountant._compose_gaussian),
    (stock_dp_event.LaplaceDpEvent, RdpAccountant._compose_laplace),
    (stock_dp_event.RandomizedResponseDpEvent, RdpAccountant._compose_response),
    (_PoissonSampled, RdpAccountant._compose_poisson),
    (
        stock_dp_event.SampledWithoutReplacementDpEvent,
        RdpAccountant._compose_without_replacement,
    ),
    (stock_dp_event.RepeatAndSelectDpEvent, RdpAccountant._compose_selection),
    (_allocation_events(stock_dp_event), RdpAccountant._compose_allocation),
    (dp_event.GroupSubsampledEvent, RdpAccountant._compose_group),
)


def _check_numbers(event: stock_dp_event.DpEvent) -> None:
    """Raises for what is no number in a field that the stock accountant reads."""
    for name in ("noise_multiplier", "rho", "xi", "mean", "shape"):
        if hasattr(event, name):
            fields.real_number(name, getattr(event, name))


def _leaves(event: stock_dp_event.DpEvent) -> Iterator[stock_dp_event.DpEvent]:
    """Yields the events that a tree of compositions is made of."""
    if isinstance(event, stock_dp_event.ComposedDpEvent):
        for part in event.events:
            yield from _leaves(part)
    elif isinstance(event, stock_dp_event.SelfComposedDpEvent):
        yield from _leaves(event.event)
    else:
        yield event


def _subject(leaf: stock_dp_event.DpEvent) -> int | None:
    """Returns the group size, `_SINGLE_RECORD`, or None if it makes no difference."""
    if isinstance(leaf, dp_event.GroupSubsampledEvent):
        return fields.positive_integer("group_size", leaf.group_size)
    return None if isinstance(leaf, _OfNobody) else _SINGLE_RECORD


def _mixed_subjects(known: int, found: int) -> str:
    if _SINGLE_RECORD in (known, found):
        size = max(known, found)
        return (
            f"GroupSubsampledEvent with group_size {size} cannot be composed with a "
            f"single-record event; wrap it in GroupSubsampledEvent({size}, …)."
        )
    return (
        f"GroupSubsampledEvent with group_size {found} cannot be composed with one of "
        f"group_size {known}: a group has one size throughout. Give both the larger "
        "group_size; what it promises, smaller groups have as well."
    )


def _not_gaussian(event: stock_dp_event.DpEvent) -> stock_dp_event.DpEvent | None:
    """Returns what is no Gaussian mechanism in a tree of compositions, if anything."""
    for leaf in _leaves(event):
        if not isinstance(leaf, stock_dp_event.GaussianDpEvent):
            return leaf
    return None


def _error_of_gaussian(event: Any) -> CompositionErrorDetails | None:
    """Refuses an event whose `event` is more than Gaussian mechanisms on one input."""
    found = _not_gaussian(event.event)
    if found is None:
        return None
    name = type(event).__name__
    if isinstance(found, dp_event.GroupSubsampledEvent):
        remedy = f"Wrap the whole: GroupSubsampledEvent({found.group_size}, {name}(…))."
    else:
        remedy = "dp_accounting_ext.PLDAccountant takes more."
    return CompositionErrorDetails(
        found,
        f"Subevent of `{name}` must be a `GaussianDpEvent`, or `ComposedDpEvent` and "
        f"`SelfComposedDpEvent` of such. Found {found}. {remedy}",
    )


def _noise(event: stock_dp_event.DpEvent) -> float:
    """Returns σ of a tree of Gaussian mechanisms run on the same records.

    Together they are one with 1/σ² = Σ 1/σ_i². A query may be chosen after the answers
    to those before it: whatever these were, the worst last query of several shifts is
    that of a line, by the lemma of any dimension, so that nothing depends on them.
    """
    if isinstance(event, stock_dp_event.GaussianDpEvent):
        return _noise_multiplier(event.noise_multiplier)
    precision = _precision(event)
    return math.inf if precision == 0 else precision**-0.5


def _precision(event: stock_dp_event.DpEvent) -> float:
    if isinstance(event, stock_dp_event.ComposedDpEvent):
        return sum((_precision(part) for part in event.events), 0.0)
    if isinstance(event, stock_dp_event.SelfComposedDpEvent):
        count = fields.positive_integer("count", event.count)
        return count * _precision(event.event)
    if isinstance(event, stock_dp_event.GaussianDpEvent):
        noise = _noise_multiplier(event.noise_multiplier)
        return 1 / noise / noise if noise else math.inf
    return math.inf if isinstance(event, stock_dp_event.NonPrivateDpEvent) else 0.0


def _noise_multiplier(value: Any) -> float:
    noise = _in_range(value)
    if noise < 0:
        raise ValueError(f"noise_multiplier must be non-negative. Found {value}.")
    return noise


def _in_range(value: Any) -> float:
    """Returns a noise multiplier; of what is negative the stock accountant tells."""
    noise = fields.real_number("noise_multiplier", value)
    return fields.noise_multiplier(value) if 0 < noise < math.inf else noise


def _error_of_buckets(
    event: stock_dp_event.RandomizedResponseDpEvent,
) -> CompositionErrorDetails | None:
    if event.num_buckets in (1, 2):
        return None
    return CompositionErrorDetails(
        event,
        "num_buckets must be 2 on a batch without replacement: the theorem is of a bit "
        f"query. Found {event.num_buckets}.",
    )


def _batch(event: stock_dp_event.SampledWithoutReplacementDpEvent) -> tuple[int, int]:
    """Returns the sizes of the dataset and of the batch."""
    size = fields.positive_integer("source_dataset_size", event.source_dataset_size)
    batch = fields.non_negative_integer("sample_size", event.sample_size)
    if batch > size:
        raise ValueError(
            f"sample_size must be at most source_dataset_size. Found {batch} of {size}."
        )
    return size, batch


def _error_of_group(event: stock_dp_event.DpEvent) -> CompositionErrorDetails | None:
    """Refuses what group privacy is not known of, or not in terms of Rényi."""
    for leaf in _leaves(event):
        if isinstance(leaf, _PoissonSampled):
            error = _error_of_gaussian(leaf)
            if error is not None:
                return error
        elif not isinstance(leaf, stock_dp_event.GaussianDpEvent | _OfNobody):
            return CompositionErrorDetails(
                leaf,
                "`GroupSubsampledEvent` takes `GaussianDpEvent`, Poisson samples of it "
                f"and compositions of those. Found {leaf}. "
                "dp_accounting_ext.PLDAccountant takes more.",
            )
    return None


def _mechanisms(
    event: stock_dp_event.DpEvent, count: int
) -> Iterator[tuple[float, float, int]]:
    """Yields sampling probability, σ and count of the mechanisms of a group's tree."""
    if isinstance(event, stock_dp_event.ComposedDpEvent):
        for part in event.events:
            yield from _mechanisms(part, count)
    elif isinstance(event, stock_dp_event.SelfComposedDpEvent):
        times = fields.positive_integer("count", event.count)
        yield from _mechanisms(event.event, count * times)
    elif isinstance(event, _PoissonSampled):
        rate = fields.sampling_probability(event.sampling_probability)
        yield rate, _noise(event.event), count
    else:
        yield 1.0, _noise(event), count
