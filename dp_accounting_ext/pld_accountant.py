"""A drop-in for dp_accounting's PLDAccountant."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import copy
import dataclasses
import math
import threading
from typing import Any
from typing import TypeAlias
from typing import overload

from dp_accounting import dp_event as stock_dp_event
from dp_accounting import privacy_accountant
from dp_accounting.pld import pld_privacy_accountant
import numpy as np
import numpy.typing as npt

from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.bounds import trade_off_bounds
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.reading import group_events
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import fields
from dp_accounting_ext.validation import inheritance

NeighborRel = privacy_accountant.NeighboringRelation
CompositionErrorDetails = privacy_accountant.PrivacyAccountant.CompositionErrorDetails
FloatArray = npt.NDArray[np.float64]
Many: TypeAlias = FloatArray | Sequence[float]
# Tuning: answers that are kept as they are.
_MOST_ANSWERS = 10_000
# Bounds of what is composed of nothing.
_NOTHING = privacy_bounds.WorstOf([privacy_bounds.PrivacyBounds({}, 1.0)])
_Question = Callable[[privacy_bounds.WorstOf, FloatArray], Sequence[FloatArray]]

# The least false positive rate at which μ is looked for where none is given: the
# stock accountant's.
_LEAST_RATE = 1e-12
# One for all accountants, which are copied and pickled: a lost run would be a bound
# below the truth. What an accountant has composed is one immutable value, replaced in
# one assignment, so that questions need no lock.
_COMPOSING = threading.RLock()


@dataclasses.dataclass(frozen=True)
class _Composed:
    """What an accountant has composed; never changed, only replaced.

    Attributes:
        counts: Mechanisms, each with the number of its runs.
        group_size: Of the largest group that was composed, which sees all of them.
        num_distinct: How many there are, Gaussian ones aside.
    """

    counts: Mapping[interface.Mechanism, int] = dataclasses.field(default_factory=dict)
    group_size: int = 1
    num_distinct: int = 0

    def plus(self, parts: Mapping[interface.Mechanism, int]) -> "_Composed":
        """Returns the same with more runs.

        Raises:
            ValueError: If these are more runs, or mechanisms, than are accounted for.
        """
        counts = {part: self.counts.get(part, 0) + n for part, n in parts.items()}
        event_reader.check_counts(counts)
        distinct = self.num_distinct + event_reader.count_distinct(
            part for part in counts if part not in self.counts
        )
        event_reader.check_distinct(distinct)
        return _Composed({**self.counts, **counts}, self.group_size, distinct)

    def is_known(self) -> bool:
        """Tells whether anything composed has no privacy at all."""
        return any(compositions.is_certainly_known(part) for part in self.counts)


class _Remembered:
    """What follows from what is composed, computed when it is asked for.

    Args:
        composed: What is composed.
        scenarios: The ways in which groups can split, one of which is the case.
        interval: The largest loss interval.
    """

    def __init__(
        self,
        composed: _Composed,
        scenarios: Sequence[Mapping[interface.Mechanism, int]],
        interval: float,
    ) -> None:
        self.composed = composed
        self._scenarios = scenarios
        self.privacy = privacy_bounds.WorstOf(
            [privacy_bounds.PrivacyBounds(each, interval) for each in scenarios]
        )
        self._trade_offs: dict[float, trade_off_bounds.WorstOf] = {}
        self._answers: dict[tuple[_Question, float], list[float]] = {}

    def answer(self, question: _Question, value: float) -> list[float]:
        """Returns the answer to a question about one number."""
        found = self._answers.get((question, value))
        if found is None:
            found = [float(x[0]) for x in question(self.privacy, np.array([value]))]
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[question, value] = found
        return found

    def trade_off(self, least: float) -> trade_off_bounds.WorstOf:
        """Returns the bounds on curves down to a rate, or a little further."""
        # Few curves answer all questions, whatever was asked before.
        least = 10.0 ** math.floor(math.log10(least))
        if least not in self._trade_offs:
            self._trade_offs[least] = trade_off_bounds.WorstOf(
                [
                    trade_off_bounds.TradeOffBounds(each, least)
                    for each in self._scenarios
                ]
            )
        return self._trade_offs[least]


def _upper_epsilons(
    bounds: privacy_bounds.WorstOf, deltas: FloatArray
) -> Sequence[FloatArray]:
    return [bounds.upper_epsilons(deltas)]


def _upper_deltas(
    bounds: privacy_bounds.WorstOf, epsilons: FloatArray
) -> Sequence[FloatArray]:
    return [bounds.upper_deltas(epsilons)]


def _as_given(values: FloatArray) -> Any:
    """Returns a number where one was asked for, or the array."""
    return float(values) if values.ndim == 0 else values


class PLDAccountant(pld_privacy_accountant.PLDAccountant):
    """The stock accountant, for every tree, with bounds certified on both sides.

    Takes every event that the stock accountant takes, random allocation, Poisson
    sampling of any event that has a privacy loss distribution, and whatever is
    registered; anywhere in a tree. What was composed is kept with its counts;
    privacy losses are computed when ε or δ is asked for, as accurately as the
    question needs.

    Args:
        neighboring_relation: As in the stock accountant. Under REPLACE_ONE, what has
            no tight bound of its own is read as a record that leaves and another
            that joins. REPLACE_SPECIAL is zero-out: a record is replaced by one that
            contributes nothing.
        value_discretization_interval: The largest interval on which losses are
            composed, in nats; finer ones are chosen where losses are small. Only
            a composition of more than two million intervals, or of more than 50
            different mechanisms, is coarser, its bounds as certain.

    Guarantees:
        `get_epsilon` and `get_delta` are never below the truth. The bounds of
        `get_epsilon_bounds` and `get_delta_bounds` hold the truth between them. A
        refused or failing event leaves the accountant as it was.

    Source:
        https://arxiv.org/abs/2602.17284.
    """

    def __init__(
        self,
        neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
        value_discretization_interval: float = 1e-4,
    ) -> None:
        fields.neighboring_relation(neighboring_relation)
        event_reader.check_relation(neighboring_relation)
        fields.discretization_interval(value_discretization_interval)
        # Not that of the parent, whose state is not kept up: better none than an empty
        # one.
        privacy_accountant.PrivacyAccountant.__init__(self, neighboring_relation)
        self._value_discretization_interval = float(value_discretization_interval)
        self._composed = _Composed()
        self._memory: _Remembered | None = None

    def __repr__(self) -> str:
        """Returns what was composed, for which relation; it computes nothing."""
        relation = self._neighboring_relation.name
        composed = event_trees.described(self.ledger)
        return f"{type(self).__name__}, {relation}, composed:\n{composed}"

    def __getstate__(self) -> dict[str, Any]:
        """Returns what copies and pickles have: a ledger of their own, no memory."""
        with _COMPOSING:
            ledger = copy.deepcopy(self._ledger)
            return {**vars(self), "_ledger": ledger, "_memory": None}

    # The name by which the stock's own tests read whether anything has no privacy.
    _contains_non_dp_event = property(lambda self: self._composed.is_known())

    @property
    def ledger(self) -> stock_dp_event.DpEvent:
        """The events composed so far, as one event."""
        with _COMPOSING:
            return super().ledger

    @classmethod
    def register(
        cls,
        event_type: type[stock_dp_event.DpEvent],
        construction: Callable[[Any, event_reader.Reader], interface.Mechanism],
    ) -> None:
        """Makes every `PLDAccountant` take a type of event.

        Args:
            event_type: The event's class; a later registration replaces an earlier.
            construction: A builder: a function from the event and an
                `event_reader.Reader` to an `interface.Mechanism`. It checks the
                event's fields, and reads inner events with `reader.mechanism(event)`,
                or with `reader.sampled(event)` where they run on a sample.

        Raises:
            TypeError: If event_type is not a class of events, or construction is
                not callable.
        """
        event_table.register(event_type, construction)

    def supports(self, event: stock_dp_event.DpEvent) -> bool:
        """Tells whether there is a mechanism for an event, whatever its fields."""
        try:
            event_trees.event_tree(event)
        except (TypeError, ValueError):
            return False
        return super().supports(event)

    def compose(self, event: stock_dp_event.DpEvent, count: int = 1) -> "PLDAccountant":
        """Composes an event, all of it or nothing.

        Args:
            event: What ran.
            count: How often it ran.

        Raises:
            TypeError: If a field has the wrong type.
            ValueError: If a field has no meaning, or the event is too large.
            UnsupportedEventError: If the accountant does not support the event.
        """
        event_trees.event_tree(event)
        count = fields.positive_integer("count", count)
        event, count = event_trees.repeated(event, count)
        with _COMPOSING:
            error = self._maybe_compose(event, count, True)
            if error is not None:
                raise event_reader.refusal(
                    event, error.invalid_event, error.error_message
                )
            self._ledger.compose(event, count)
        return self

    def _maybe_compose(
        self, event: stock_dp_event.DpEvent, count: int, do_compose: bool
    ) -> CompositionErrorDetails | None:
        reader = event_table.reader(self._neighboring_relation)
        asks_for_support = not do_compose and count == 0
        before = self._composed
        try:
            size = max(before.group_size, group_events.largest(event))
            parts = reader.parts(group_events.seen_by(event, size))
            if size > before.group_size:
                seen = group_events.seen_by(self.ledger, size)
                before = _Composed(group_size=size).plus(reader.parts(seen))
        except event_reader.UnsupportedError as error:
            return CompositionErrorDetails(
                invalid_event=error.event, error_message=error.message
            )
        except (TypeError, ValueError):
            # The type is known; what its fields lack is told when it is composed.
            if asks_for_support:
                return None
            raise
        if asks_for_support:
            return None
        composed = before.plus({p: n * count for p, n in parts.items()})
        if do_compose:
            self._composed = composed
        return None

    def _scenarios(self, composed: _Composed) -> list[dict[interface.Mechanism, int]]:
        replace_one = self._neighboring_relation is NeighborRel.REPLACE_ONE
        return groups.scenarios(composed.counts, replace_one=replace_one)

    def _remembered(self, composed: _Composed) -> "_Remembered":
        """Returns what is known of what is composed."""
        known = self._memory
        # One assignment: threads that ask at once do the same twice at worst.
        if known is None or known.composed is not composed:
            known = self._memory = _Remembered(
                composed, self._scenarios(composed), self._value_discretization_interval
            )
        return known

    @overload
    def get_epsilon(self, target_delta: float) -> float: ...

    @overload
    def get_epsilon(self, target_delta: Many) -> FloatArray: ...

    def get_epsilon(self, target_delta: Any) -> Any:
        """Returns an upper bound on ε at δ, in nats.

        Args:
            target_delta: δ, a number or an array. Below 0 no ε will do (inf); from 1
                on, 0 will.

        Returns:
            A number or an array, as the argument. Many take little more time than one,
            and none depends on what else was asked.

        Raises:
            TypeError: If it is not a real number, or an array of these.
            ValueError: If it is NaN.
        """
        (upper,) = self._epsilons(target_delta, _upper_epsilons)
        return upper

    @overload
    def get_delta(self, target_epsilon: float) -> float: ...

    @overload
    def get_delta(self, target_epsilon: Many) -> FloatArray: ...

    def get_delta(self, target_epsilon: Any) -> Any:
        """Returns an upper bound on δ at ε.

        Args:
            target_epsilon: ε, in nats, a number or an array.

        Returns:
            A number or an array, as `get_epsilon` does.

        Raises:
            TypeError: If it is not a real number, or an array of these.
            ValueError: If it is NaN.
        """
        (upper,) = self._deltas(target_epsilon, _upper_deltas)
        return upper

    @overload
    def get_epsilon_bounds(self, target_delta: float) -> tuple[float, float]: ...

    @overload
    def get_epsilon_bounds(
        self, target_delta: Many
    ) -> tuple[FloatArray, FloatArray]: ...

    def get_epsilon_bounds(self, target_delta: Any) -> Any:
        """Returns certified bounds on ε at δ: lower ≤ the true ε ≤ upper, in nats.

        Args:
            target_delta: δ, as in `get_epsilon`.

        Returns:
            Numbers or arrays, as the argument. The upper bound is `get_epsilon`. The
            lower one is of the mechanism, not of any reduction; events that have no
            lower bound count as nothing in it.

        Raises:
            TypeError: If it is not a real number, or an array of these.
            ValueError: If it is NaN.
            ArithmeticError: If the bounds cross by more than rounding: a fault of ours.
        """
        lower, upper = self._epsilons(
            target_delta, privacy_bounds.WorstOf.epsilon_bounds
        )
        return lower, upper

    @overload
    def get_delta_bounds(self, target_epsilon: float) -> tuple[float, float]: ...

    @overload
    def get_delta_bounds(
        self, target_epsilon: Many
    ) -> tuple[FloatArray, FloatArray]: ...

    def get_delta_bounds(self, target_epsilon: Any) -> Any:
        """Returns certified bounds on δ at ε: lower ≤ the true δ ≤ upper.

        Args:
            target_epsilon: ε, in nats, as in `get_delta`.

        Returns:
            As `get_epsilon_bounds` does.

        Raises:
            TypeError: If it is not a real number, or an array of these.
            ValueError: If it is NaN.
            ArithmeticError: If the bounds cross by more than rounding: a fault of ours.
        """
        lower, upper = self._deltas(target_epsilon, privacy_bounds.WorstOf.delta_bounds)
        return lower, upper

    def _epsilons(self, target_delta: Any, question: _Question) -> list[Any]:
        """Returns what is found for δ in [0, 1), and what is plain elsewhere."""
        deltas = fields.real_numbers("target_delta", target_delta)
        composed = self._composed
        if not deltas.ndim and 0 <= deltas < 1 and not composed.is_known():
            return self._remembered(composed).answer(question, float(deltas))
        plain = np.where(deltas < 0, math.inf, 0.0)
        if composed.is_known():
            plain = np.full(deltas.shape, math.inf)
        asked = (deltas >= 0) & (deltas < 1) & (not composed.is_known())
        return self._filled(composed, deltas, plain, asked, question)

    def _deltas(self, target_epsilon: Any, question: _Question) -> list[Any]:
        """Returns what a question gives for ε, and 1 where that is plain."""
        epsilons = fields.real_numbers("target_epsilon", target_epsilon)
        composed = self._composed
        if not epsilons.ndim and epsilons > -math.inf and not composed.is_known():
            return self._remembered(composed).answer(question, float(epsilons))
        asked = (epsilons > -math.inf) & (not composed.is_known())
        return self._filled(
            composed, epsilons, np.ones(epsilons.shape), asked, question
        )

    def _filled(
        self,
        composed: _Composed,
        values: FloatArray,
        plain: FloatArray,
        asked: npt.NDArray[np.bool_],
        question: _Question,
    ) -> list[Any]:
        """Returns plain answers, but where there is something to ask, what is found."""
        bounds = self._remembered(composed).privacy if asked.any() else _NOTHING
        found = question(bounds, values[asked])
        answers = []
        for each in found:
            filled = plain.copy()
            filled[asked] = each
            answers.append(_as_given(filled))
        return answers

    @overload
    def get_true_positive_rates(
        self, false_positive_rates: float, deltas: Many | None = None
    ) -> float: ...

    @overload
    def get_true_positive_rates(
        self, false_positive_rates: Many, deltas: Many | None = None
    ) -> FloatArray: ...

    def get_true_positive_rates(
        self, false_positive_rates: Any, deltas: Any = None
    ) -> Any:
        """Returns upper bounds on what a membership test finds.

        Args:
            false_positive_rates: α in [0, 1], a number or an array.
            deltas: Of no effect: the curve is that of all δ, where the stock
                accountant has that of a list.

        Returns:
            The largest true positive rates of tests with these false positive rates,
            of which dataset holds the record, in the worse direction; a number or an
            array, as the argument.

        Raises:
            TypeError: If they are not real numbers.
            ValueError: If one is not in [0, 1].
        """
        return self.get_true_positive_rate_bounds(false_positive_rates)[1]

    @overload
    def get_true_positive_rate_bounds(
        self, false_positive_rates: float
    ) -> tuple[float, float]: ...

    @overload
    def get_true_positive_rate_bounds(
        self, false_positive_rates: Many
    ) -> tuple[FloatArray, FloatArray]: ...

    def get_true_positive_rate_bounds(self, false_positive_rates: Any) -> Any:
        """Returns certified bounds on what the best membership test finds.

        Args:
            false_positive_rates: α in [0, 1], a number or an array.

        Returns:
            Lower and upper bounds, each as the argument. Each direction has a curve of
            its own, and the larger of both is bounded; events that have no lower bound
            count as nothing in the lower one.

        Raises:
            TypeError: If they are not real numbers.
            ValueError: If one is not in [0, 1].
            ArithmeticError: If the bounds cross by more than rounding: a fault of ours.

        Source:
            https://arxiv.org/abs/1905.02383, section 2 (trade-off functions).
        """
        rates = fields.rates("false_positive_rates", false_positive_rates)
        composed = self._composed
        flat = rates.reshape(-1)
        if composed.is_known():
            bounds = np.ones(flat.size), np.ones(flat.size)
        else:
            least = float(flat[flat > 0].min(initial=1.0))
            bounds = self._remembered(composed).trade_off(least).rates(flat)
        lower, upper = (_as_given(each.reshape(rates.shape)) for each in bounds)
        return lower, upper

    def get_gdp_parameter_estimate(
        self,
        false_positive_rates: FloatArray | None = None,
        deltas: FloatArray | None = None,
    ) -> float:
        """Returns an upper bound on μ: a Gaussian mechanism with it tells no less.

        Args:
            false_positive_rates: Of these, the least is what counts; 1e-12 if there
                are none. See `get_gdp_parameter_bounds`.
            deltas: Of no effect, as in `get_true_positive_rates`.

        Raises:
            TypeError, ValueError: As `get_true_positive_rates`; or if none of the rates
                is positive and at most 1/2.
        """
        if false_positive_rates is None:
            return self.get_gdp_parameter_bounds()[1]
        rates = fields.rates("false_positive_rates", false_positive_rates)
        positive = rates[(rates > 0) & (rates <= 0.5)]
        if not positive.size:
            raise ValueError(
                "false_positive_rates must have one in (0, 1/2]. Found none."
            )
        least = float(positive.min())
        return self.get_gdp_parameter_bounds(least_false_positive_rate=least)[1]

    def get_gdp_parameter_bounds(
        self, *, least_false_positive_rate: float = _LEAST_RATE
    ) -> tuple[float, float]:
        """Returns certified bounds on μ: lower ≤ the true μ ≤ upper.

        The true μ is the least with TPR(α) ≤ Φ(Φ⁻¹(α) + μ) for all α from
        `least_false_positive_rate` to 1/2, in both directions; between them these have
        all tests but those whose false positives, or false negatives, are rarer.
        It is infinite where an infinite loss is likelier than the least rate. All rates
        down to 0 would ask for the μ without amplification, however rare that is.

        Args:
            least_false_positive_rate: The least α, in [1e-200, 1/2].

        Raises:
            TypeError: If it is not a real number.
            ValueError: If it is not in its range.
            ArithmeticError: If the bounds cross by more than rounding: a fault of ours.

        Source:
            https://arxiv.org/abs/1905.02383, Definition 4 (μ-GDP).
        """
        least = fields.real_number(
            "least_false_positive_rate", least_false_positive_rate
        )
        if not 1e-200 <= least <= 0.5:
            raise ValueError(
                "least_false_positive_rate must be in [1e-200, 0.5]. "
                f"Found {least_false_positive_rate}."
            )
        composed = self._composed
        if composed.is_known():
            return math.inf, math.inf
        return self._remembered(composed).trade_off(least).gaussian_parameter(least)


inheritance.refuse_what_is_inherited(
    PLDAccountant, keep={"neighboring_relation", "CompositionErrorDetails"}
)
