"""Privacy budgets: noise for a target, runs that remain, filters and an odometer.

- `calibrate`: the smallest noise, or common factor of several noises, for which a bound
  on ε or on a risk is at most a target.
- `remaining`: how many more runs of a fixed event fit into a budget.
- `RenyiFilter`, `GaussianFilter`: budgets for events that are chosen adaptively, after
  seeing the outputs of earlier events. The ε of a `PLDAccountant` does not hold for
  these.
- `RenyiOdometer`: what such events have spent so far, valid at every time.
"""

import abc
from collections.abc import Sequence
import copy
from fractions import Fraction
import math
import threading

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
from scipy import optimize

from dp_accounting_ext import displays
from dp_accounting_ext.accountants import noise_search
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.accountants import rdp_accountant
from dp_accounting_ext.accountants.noise_search import LEAST_NOISE as LEAST_NOISE
from dp_accounting_ext.accountants.noise_search import MakeEvent as MakeEvent
from dp_accounting_ext.accountants.noise_search import Measure as Measure
from dp_accounting_ext.accountants.noise_search import calibrate as calibrate
from dp_accounting_ext.accountants.noise_search import least_noise as least_noise
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.reading import group_events
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import fields

__all__ = [
    "LEAST_NOISE",
    "MOST_RUNS",
    "GaussianFilter",
    "RenyiFilter",
    "RenyiOdometer",
    "calibrate",
    "least_noise",
    "remaining",
]
__dir__ = __all__.copy

NeighborRel = privacy_accountant.NeighboringRelation

# A limit of time: more runs are not tried.
MOST_RUNS = 10**7
# Tuning: few orders, as each has its share of δ.
_ODOMETER_ORDERS = tuple(1 + 2.0**power for power in range(-1, 8))
# Certified: above the relative rounding error of a few terms.
_ROUNDING = 64 * 2.0**-53


def remaining(
    accountant: pld_accountant.PLDAccountant,
    event: stock.DpEvent,
    epsilon: float,
    delta: float,
) -> int:
    """Returns how many more runs of an event keep ε at δ within a budget.

    Args:
        accountant: What has run so far; it is not changed.
        event: The event to run. It and the number of its runs must be fixed in advance:
            runs that are chosen by looking at outputs need a filter.
        epsilon: ε of the budget, in nats, non-negative.
        delta: δ of the budget, in [0, 1].

    Returns:
        The largest number of runs for which the accountant's upper bound is within the
        budget; 0 if none fits. It is `MOST_RUNS` if as many fit: no more are tried.

    Raises:
        TypeError: If epsilon or delta is not a real number.
        ValueError: If one is outside of its range, or the event costs nothing, so that
            any number of runs fits.
        UnsupportedEventError: If the accountant does not support the event.
    """
    limit = fields.real_number("epsilon", epsilon)
    if limit < 0:
        raise ValueError(f"epsilon must be non-negative. Found {epsilon}.")
    target = fields.probability("delta", delta)

    def excess(runs: float) -> float:
        after = copy.deepcopy(accountant)
        after.compose(event, math.floor(runs))
        return noise_search.log_excess(after.get_epsilon(target), limit)

    if excess(1) > 0:
        return 0
    if not event_table.reader(accountant.neighboring_relation).parts(event):
        raise ValueError(
            f"event must cost something: any number of runs of this one fits. Found "
            f"{event!r:.80}."
        )
    fits, too_many = 1, 2
    while excess(too_many) <= 0:
        if too_many == MOST_RUNS:
            return MOST_RUNS
        fits, too_many = too_many, min(2 * too_many, MOST_RUNS)
    runs = math.floor(optimize.brentq(excess, fits, too_many, xtol=0.5))
    while excess(runs) > 0:
        runs -= 1
    while excess(runs + 1) <= 0:
        runs += 1
    return runs


# All filters share this lock, so that no run is lost if two threads spend at the same
# time. (A lock of each filter could not be copied or pickled.)
_SPENDING = threading.Lock()


class _Filter(displays.Displayed):
    """A budget with several limits, of which at least one must never be exceeded."""

    def __init__(self, limits: list[float], epsilon: float, delta: float) -> None:
        self._limits = limits
        self._spent = [0.0] * len(limits)
        self._promise = epsilon, delta

    def _display(self) -> displays.Table:
        epsilon, delta = (f"{value:.12g}" for value in self._promise)
        title = f"{type(self).__name__}, ε = {epsilon} at δ = {delta}"
        share = f"{decimals.rounded_up(100 * self.spent, 4)} %"
        return displays.Table(title, ("", "spent"), [("of the budget", share)])

    @abc.abstractmethod
    def _costs(self, event: stock.DpEvent) -> list[float]:
        """Returns the cost of one run for each limit.

        It may be too small by a rounding error, which `_after` covers.
        """

    @property
    def spent(self) -> float:
        """The share of the budget that is spent, for the limit that has most left."""
        return min(
            used / limit if limit > 0 else math.inf
            for used, limit in zip(self._spent, self._limits, strict=True)
        )

    def may_run(self, event: stock.DpEvent, count: int = 1) -> bool:
        """Returns whether `count` runs of an event fit. It changes nothing.

        Raises:
            TypeError, ValueError: If a field of the event is out of range. For a
                `RenyiFilter` also if the event has groups, or a δ that a Rényi
                divergence does not bound.
            UnsupportedEventError: If `RdpAccountant` does not support the event; for a
                `GaussianFilter` if the event has other parts than Gaussian noise.
        """
        return self._fits(self._after(self._costs_of(event, count)))

    def spend(self, event: stock.DpEvent, count: int = 1) -> None:
        """Counts `count` runs of an event, which have run or are about to run.

        Threads may share a filter: no run is lost. As another thread may spend after
        `may_run` has answered, a thread then spends before it runs the event, and does
        not run it if an error is raised.

        Raises:
            TypeError, ValueError, UnsupportedEventError: As in `may_run`; then nothing
                changes.
            RuntimeError: If the runs did not fit. They are counted, so that nothing
                else fits, and the budget is exceeded.
        """
        costs = self._costs_of(event, count)
        with _SPENDING:
            spent = self._spent = self._after(costs)
        if not self._fits(spent):
            raise RuntimeError("The budget is overrun: ask may_run before a run.")

    def _fits(self, spent: list[float]) -> bool:
        return any(
            used <= limit for used, limit in zip(spent, self._limits, strict=True)
        )

    def _costs_of(self, event: stock.DpEvent, count: int) -> list[float]:
        runs = fields.positive_integer("count", count)
        return [runs * cost for cost in self._costs(event)]

    def _after(self, costs: list[float]) -> list[float]:
        return [
            (used + cost) * (1 + _ROUNDING)
            for used, cost in zip(self._spent, costs, strict=True)
        ]


class RenyiFilter(_Filter):
    """A budget for events that are chosen adaptively, after seeing earlier outputs.

        budget = RenyiFilter(epsilon=2.0, delta=1e-6)
        while budget.may_run(event):
            event = ...  # Run it; choose the next one by its output.
            budget.spend(event)

    At each of m orders α it adds up Rényi divergences. An event may run as long as, at
    one order at least, the sum stays within the divergence that gives ε at δ / m.

    Args:
        epsilon: ε of the budget, in nats, positive.
        delta: δ of the budget, in (0, 1).
        orders: The orders, above 1. The default is the best order for Gaussian noise
            and a smaller one. For small samples with little noise an even smaller one
            is better. The orders must not depend on the data.
        neighboring_relation: As in `RdpAccountant`.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If one is outside of its range, or no order can meet the budget.

    Guarantees:
        All that runs within `may_run` is (ε, δ)-private together, however each event
        was chosen from the outputs before it. For one order this is the theorem of the
        source. For m orders, classify complete runs by the first order whose budget
        holds to the end. The outputs of each class are those of a run that the filter
        of this order alone would have allowed, which is (ε, δ / m)-private. The sum
        over the classes is (ε, δ).

    Source:
        https://arxiv.org/abs/2008.11193, Theorem 3.1 and section 4 (a Rényi filter of
        one order); several orders by the argument above.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        orders: Sequence[float] | None = None,
        neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
    ) -> None:
        limit, tail = _budget(epsilon, delta)
        if orders is None:
            best = _best_order(limit, tail)
            orders = [1 + 0.6 * (best - 1), best]
        self.orders = _checked_orders(orders)
        share = tail / len(self.orders)
        limits = [_divergence(limit, share, order) for order in self.orders]
        super().__init__(limits, limit, tail)
        if max(self._limits) <= 0:
            raise ValueError(
                f"epsilon must be larger, or orders others. Found {epsilon} at delta "
                f"{delta}, which none of {self.orders} gives."
            )
        self._relation = neighboring_relation
        self._costs(stock.NoOpDpEvent())  # It checks the relation.

    def _costs(self, event: stock.DpEvent) -> list[float]:
        return _divergences(event, self.orders, self._relation)


class RenyiOdometer(displays.Displayed):
    """What events have spent so far, where each is chosen after seeing earlier outputs.

        spent = RenyiOdometer(delta=1e-6)
        spent.spend(event)  # Choose the next one, or stop, by what it released.
        spent.epsilon

    Args:
        delta: δ, in (0, 1).
        orders: The orders, in [1.01, 1e6). They must not depend on the data.
        neighboring_relation: As in `RdpAccountant`.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If one is outside of its range.

    Guarantees:
        The probability that the privacy loss ever exceeds the `epsilon` of its time is
        at most δ. So what stops, for whatever reason, while `epsilon` is at most a
        number is private with that number at δ. A filter knows the number in advance,
        and lets more run within it.

    Source:
        https://arxiv.org/abs/2103.01379 (odometers by Rényi divergences). For an order
        α, exp((α − 1) (L − R)), with the loss L and the sum R of divergences so far, is
        a nonnegative supermartingale, whatever is chosen. By Ville's inequality it ever
        exceeds m / δ with a probability of at most δ / m, of m orders.
    """

    def __init__(
        self,
        delta: float,
        *,
        orders: Sequence[float] = _ODOMETER_ORDERS,
        neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
    ) -> None:
        _, self._delta = _budget(1.0, delta)
        self.orders = _checked_orders(orders)
        self._relation = neighboring_relation
        self._spent = _divergences(stock.NoOpDpEvent(), self.orders, self._relation)

    def _display(self) -> displays.Table:
        title = f"RenyiOdometer, at δ = {self._delta:.12g}"
        shown = decimals.rounded_up(self.epsilon)
        return displays.Table(title, ("", "ε"), [("spent so far", shown)])

    def spend(self, event: stock.DpEvent, count: int = 1) -> None:
        """Counts `count` runs of an event. Threads may share an odometer.

        Raises:
            TypeError, ValueError, UnsupportedEventError: As `RenyiFilter.may_run` does;
                then nothing changes.
        """
        runs = fields.positive_integer("count", count)
        costs = _divergences(event, self.orders, self._relation)
        with _SPENDING:
            self._spent = [
                (used + runs * cost) * (1 + _ROUNDING)
                for used, cost in zip(self._spent, costs, strict=True)
            ]

    @property
    def epsilon(self) -> float:
        """The ε of all that has run so far, at δ, in nats, rounded up."""
        spent = self._spent
        if not any(spent):
            return 0.0
        share = math.log(len(spent)) - math.log(self._delta)
        return min(
            (used + share / (order - 1)) * (1 + _ROUNDING)
            for used, order in zip(spent, self.orders, strict=True)
        )


class GaussianFilter(_Filter):
    """A budget for Gaussian noise that is chosen adaptively, after seeing outputs.

    It is used in the same way as `RenyiFilter`. For Gaussian noise it loses nothing: as
    much may run as if everything had been planned in advance.

    Args:
        epsilon: ε of the budget, in nats, positive.
        delta: δ of the budget, in (0, 1).
        neighboring_relation: As in the accountant.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If one is outside of its range.

    Guarantees:
        All that runs within `may_run` is together at least as private as one Gaussian
        mechanism with ε at δ, however each event was chosen.

    Source:
        https://arxiv.org/abs/2210.17520: where the sum of 1 / σ² never exceeds μ², the
        whole is μ-GDP.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
    ) -> None:
        limit, tail = _budget(epsilon, delta)
        noise = calibrate(
            stock.GaussianDpEvent,
            lambda accountant: accountant.get_epsilon_bounds(tail),
            limit,
            neighboring_relation=neighboring_relation,
        )
        super().__init__([(1 - _ROUNDING) / noise**2], limit, tail)

    def _costs(self, event: stock.DpEvent) -> list[float]:
        """Returns the precision: the sum of 1 / σ² over the noise in an event."""
        event_trees.event_tree(event)
        precision = Fraction(0)
        for leaf, count in event_trees.leaves(event):
            if isinstance(leaf, stock.NoOpDpEvent):
                continue
            if not isinstance(leaf, stock.GaussianDpEvent):
                raise privacy_accountant.UnsupportedEventError(
                    f"GaussianFilter takes Gaussian noise that is not sampled: use "
                    f"RenyiFilter. Found {leaf!r:.80}."
                )
            noise = fields.noise_multiplier(leaf.noise_multiplier)
            if not noise:
                raise ValueError("noise_multiplier must be positive. Found 0.")
            precision += count / Fraction(noise) ** 2
        return [float(min(precision, Fraction(10**300)))]  # 1e300 exceeds any budget.


def _budget(epsilon: float, delta: float) -> tuple[float, float]:
    limit = fields.positive("epsilon", epsilon)
    return limit, fields.inner_probability("delta", delta)


def _checked_orders(orders: Sequence[float]) -> tuple[float, ...]:
    checked = tuple(fields.real_number("orders", order) for order in orders)
    if not checked or not all(1.01 <= order < 1e6 for order in checked):
        raise ValueError(f"orders must be one or more in [1.01, 1e6). Found {checked}.")
    return checked


def _divergences(
    event: stock.DpEvent, orders: Sequence[float], relation: NeighborRel
) -> list[float]:
    """Returns an event's Rényi divergence of each order, rounded up."""
    event_trees.event_tree(event)
    if group_events.largest(event).size > 1:
        raise ValueError(
            "event must be that of single records: the size of a group is one for "
            "all that runs. Found a GroupSubsampledEvent."
        )
    accountant = rdp_accountant.RdpAccountant(orders, relation)
    accountant.compose(event)
    if accountant.extra_delta:
        raise ValueError(f"event must have no δ of its own. Found {event!r:.80}.")
    return [float(divergence) for divergence in accountant.rdp]


def _divergence(epsilon: float, delta: float, order: float) -> float:
    """Returns the divergence of an order that gives ε at δ, rounded down.

    Source:
        https://arxiv.org/abs/2004.00010, Proposition 12.
    """
    tail = (math.log(delta) + math.log(order)) / (order - 1)
    spread = math.log1p(-1 / order)
    rounding = _ROUNDING * (epsilon - spread + abs(tail) + 1 / (order - 1))
    return epsilon - spread + tail - rounding


def _best_order(epsilon: float, delta: float) -> float:
    """Returns approximately the order that allows most Gaussian noise."""
    optimum = optimize.minimize_scalar(
        lambda x: -_divergence(epsilon, delta, 1 + math.exp(x)) / (1 + math.exp(x)),
        bounds=(-4.0, 12.0),
        method="bounded",
    )
    return 1 + math.exp(float(optimum.x))
