"""A drop-in for dp_accounting's PLDAccountant."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import TypeAlias
from typing import overload

from dp_accounting import dp_event as stock_dp_event
from dp_accounting import privacy_accountant
from dp_accounting.pld import pld_privacy_accountant

from dp_accounting_ext.accountants import base_accountant
from dp_accounting_ext.accountants import certified_answers
from dp_accounting_ext.accountants import explanation
from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.reading import group_events
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import fields
from dp_accounting_ext.validation import inheritance

NeighborRel = privacy_accountant.NeighboringRelation
Many: TypeAlias = FloatArray | Sequence[float]
Way: TypeAlias = Literal["remove", "add"]

# The least false positive rate over which μ is taken if none is given, which is that of
# the stock accountant.
_LEAST_RATE = 1e-12


class PLDAccountant(base_accountant.Composing, pld_privacy_accountant.PLDAccountant):
    """The stock accountant for all events, with certified bounds on both sides.

    It supports every event that the stock accountant supports, random allocation,
    Poisson sampling of any event that has a privacy loss distribution, and registered
    events, all of them anywhere in a tree. It keeps what was composed, with counts.
    Privacy losses are computed when ε or δ is asked for, as accurately as the question
    needs.

    Args:
        neighboring_relation: As in the stock accountant. Under REPLACE_ONE, what has
            no tight bound of its own is read as a record that leaves and another
            that joins. REPLACE_SPECIAL is zero-out: a record is replaced by one that
            contributes nothing.
        value_discretization_interval: How fine compositions are, compared with 1e-4.
            Losses are composed on cells that are a share of their own spread, whatever
            that is in nats: about 144 cells in a standard deviation at 1e-4, and
            144 √(1e-4 / interval) at another interval, but no fewer than 32 and no more
            than 512. The width of a bracket grows in proportion to the interval. The
            steps of 1 of t are added on cells that are as fine as at 1e-4, or finer;
            k of t steps, replaced records, groups and matrix mechanisms have lattices
            of their own. Bounds are as certain whatever the interval is.

    Guarantees:
        `get_epsilon` and `get_delta` are never below the truth. The truth lies between
        the bounds of `get_epsilon_bounds`, and of `get_delta_bounds`. An event that is
        refused or fails leaves the accountant unchanged.

    Source:
        https://arxiv.org/abs/2602.17284.
    """

    def __init__(
        self,
        neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
        value_discretization_interval: float = 1e-4,
    ) -> None:
        fields.discretization_interval(value_discretization_interval)
        super().__init__(neighboring_relation)
        self._value_discretization_interval = float(value_discretization_interval)
        self._memory: certified_answers.CertifiedAnswers | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for copies and pickles, without cached answers."""
        return {**super().__getstate__(), "_memory": None}

    def _nothing(self, group: group_events.Group) -> certified_answers.ComposedRuns:
        return certified_answers.ComposedRuns(group=group)

    def _plus(
        self,
        before: certified_answers.ComposedRuns,
        parts: Mapping[interface.Mechanism, int],
        count: int,
    ) -> certified_answers.ComposedRuns:
        return before.plus(parts, count)

    # dp_accounting's own tests read this attribute: whether some event has no privacy.
    _contains_non_dp_event = property(lambda self: self._composed.is_non_private())

    @classmethod
    def register(
        cls,
        event_type: type[stock_dp_event.DpEvent],
        construction: Callable[[Any, event_reader.Reader], interface.Mechanism],
    ) -> None:
        """Adds a type of event to the table of all accountants.

        Args:
            event_type: The class of the event. A later registration replaces an earlier
                one.
            construction: A builder: a function from the event and an
                `event_reader.Reader` to an `interface.Mechanism`. It checks the event's
                fields. It reads inner events by `reader.mechanism(event)`, or by
                `reader.sampled(event)` if they run on a sample.

        Raises:
            TypeError: If event_type is not a class of events, or construction is
                not callable.
        """
        event_table.register(event_type, construction)

    def _answers(self) -> certified_answers.CertifiedAnswers:
        """Returns the answers about what is composed."""
        answers, composed = self._memory, self._composed
        # This is one assignment. So threads that ask at the same time compute the same
        # answers twice at worst.
        if answers is None or answers.composed is not composed:
            interval = self._value_discretization_interval
            answers = certified_answers.CertifiedAnswers(composed, interval)
            self._memory = answers
        return answers

    @overload
    def get_epsilon(self, target_delta: float) -> float: ...

    @overload
    def get_epsilon(self, target_delta: Many) -> FloatArray: ...

    def get_epsilon(self, target_delta: Any) -> Any:
        """Returns an upper bound on ε at δ, in nats.

        Args:
            target_delta: δ in [0, 1], a number or an array. At 1 the answer is 0, with
                a warning. If everything is revealed, it is inf for all δ, as in the
                stock accountant.

        Returns:
            A number or an array, in the shape of the argument. An array takes little
            more time than a number, and no answer depends on what else was asked.

        Raises:
            TypeError: If it is not a real number, or an array of these.
            ValueError: If it is not in [0, 1].
        """
        (epsilon,) = self._answers().epsilons(
            fields.target_deltas(target_delta),
            lambda bounds, deltas: [bounds.upper_epsilons(deltas)],
        )
        return epsilon

    @overload
    def get_delta(self, target_epsilon: float) -> float: ...

    @overload
    def get_delta(self, target_epsilon: Many) -> FloatArray: ...

    def get_delta(self, target_epsilon: Any) -> Any:
        """Returns an upper bound on δ at ε.

        Args:
            target_epsilon: ε, in nats, a number or an array.

        Returns:
            A number or an array, in the shape of the argument.

        Raises:
            TypeError: If it is not a real number, or an array of these.
            ValueError: If it is NaN.
        """
        (delta,) = self._answers().deltas(
            target_epsilon, lambda bounds, epsilons: [bounds.upper_deltas(epsilons)]
        )
        return delta

    @overload
    def get_epsilon_bounds(
        self, target_delta: float, *, direction: Way | None = None
    ) -> tuple[float, float]: ...

    @overload
    def get_epsilon_bounds(
        self, target_delta: Many, *, direction: Way | None = None
    ) -> tuple[FloatArray, FloatArray]: ...

    def get_epsilon_bounds(
        self, target_delta: Any, *, direction: Way | None = None
    ) -> Any:
        """Returns certified bounds on ε at δ: lower ≤ the true ε ≤ upper, in nats.

        Args:
            target_delta: δ, as in `get_epsilon`.
            direction: "remove" for the divergence of the outputs with the record from
                those without it (for a group that tells who leaves, of the dataset with
                more of its members), "add" for the reverse; by default the larger one,
                which is what a guarantee needs.

        Returns:
            Numbers or arrays, in the shape of the argument. The upper bound is that of
            `get_epsilon`. The lower bound is one of the mechanism itself, not of a
            reduction. Events that have no lower bound count as nothing in it.

        Raises:
            TypeError: If it is not a real number, or an array of these.
            ValueError: If it is not in [0, 1], or a direction is asked of a group.
            ArithmeticError: If the bounds cross, which is a fault of this package.
        """
        return tuple(
            self._answers()
            .in_direction(direction)
            .epsilons(
                fields.target_deltas(target_delta),
                privacy_bounds.WorstPrivacyBounds.epsilon_bounds,
            )
        )

    def explain(self, target_delta: float) -> explanation.Explanation:
        """Returns how the bounds on ε are computed, and which of them is loose.

        Each event that was composed is bounded by itself, which takes as long as a
        first question for each.

        Args:
            target_delta: δ in (0, 1).

        Returns:
            Bounds for each event, in nats, and in words how they are computed. The
            result is displayed as a table.

        Raises:
            TypeError: If δ is not a real number.
            ValueError: If it is not in (0, 1).
        """
        delta = fields.inner_probability("target_delta", target_delta)
        parts = []
        for event, runs in event_trees.composed(self.ledger):
            seen = group_events.seen_by(event, self._composed.group)
            alone = PLDAccountant(
                self._neighboring_relation, self._value_discretization_interval
            ).compose(seen, runs)
            bounds = alone.get_epsilon_bounds(delta)
            basis = alone._answers().basis(delta)
            parts.append(explanation.Part(str(event), runs, *bounds, *basis))
        return explanation.Explanation(delta, *self.get_epsilon_bounds(delta), parts)

    @overload
    def get_delta_bounds(
        self, target_epsilon: float, *, direction: Way | None = None
    ) -> tuple[float, float]: ...

    @overload
    def get_delta_bounds(
        self, target_epsilon: Many, *, direction: Way | None = None
    ) -> tuple[FloatArray, FloatArray]: ...

    def get_delta_bounds(
        self, target_epsilon: Any, *, direction: Way | None = None
    ) -> Any:
        """Returns certified bounds on δ at ε: lower ≤ the true δ ≤ upper.

        Args:
            target_epsilon: ε, in nats, as in `get_delta`.
            direction: "remove" for the divergence of the outputs with the record from
                those without it, "add" for the reverse; by default the larger one,
                which is what a guarantee needs.

        Returns:
            Numbers or arrays, as `get_epsilon_bounds`.

        Raises:
            TypeError: If it is not a real number, or an array of these.
            ValueError: If it is NaN, or a direction is asked of a group.
            ArithmeticError: If the bounds cross, which is a fault of this package.
        """
        return tuple(
            self._answers()
            .in_direction(direction)
            .deltas(target_epsilon, privacy_bounds.WorstPrivacyBounds.delta_bounds)
        )

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
        """Returns upper bounds on the true positive rates of membership tests.

        Args:
            false_positive_rates: α in [0, 1], a number or an array.
            deltas: Ignored: the curve is that of all δ. The stock accountant computes
                it from a list of δ.

        Returns:
            The largest true positive rates of tests with these false positive rates, in
            the worse direction; a number or an array, in the shape of the argument.

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
        """Returns certified bounds on true positive rates of the best membership test.

        Args:
            false_positive_rates: α in [0, 1], a number or an array.

        Returns:
            Lower and upper bounds, each in the shape of the argument. They bound the
            larger of the two directions' curves. Events that have no lower bound count
            as nothing in the lower bound.

        Raises:
            TypeError: If they are not real numbers.
            ValueError: If one is not in [0, 1].
            ArithmeticError: If the bounds cross, which is a fault of this package.

        Source:
            https://arxiv.org/abs/1905.02383, section 2 (trade-off functions).
        """
        rates = fields.rates("false_positive_rates", false_positive_rates)
        return self._answers().rates(rates)

    def get_gdp_parameter_estimate(
        self,
        false_positive_rates: FloatArray | None = None,
        deltas: FloatArray | None = None,
    ) -> float:
        """Returns an upper bound on μ: a Gaussian mechanism with it is less private.

        Args:
            false_positive_rates: The least of these is what counts; the default is
                1e-12. See `get_gdp_parameter_bounds`.
            deltas: Ignored, as in `get_true_positive_rates`.

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

        The true μ is the smallest with TPR(α) ≤ Φ(Φ⁻¹(α) + μ) for all α from
        `least_false_positive_rate` to 1/2, in both directions. Together, these cover
        all tests except those with rarer false positives or false negatives. μ is
        infinite if an infinite loss is more likely than the least rate. Over all rates
        down to 0, μ would be that without amplification, however rare its losses are.

        Args:
            least_false_positive_rate: The least α, in [1e-200, 1/2].

        Raises:
            TypeError: If it is not a real number.
            ValueError: If it is not in its range.
            ArithmeticError: If the bounds cross, which is a fault of this package.

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
        return self._answers().gaussian_parameter(least)

    def get_zcdp_parameter_bounds(self) -> tuple[float, float]:
        """Returns certified bounds on ρ: lower ≤ the true ρ ≤ upper.

        The true ρ is the smallest such that the Rényi divergence of every order α > 1
        is at most ρα, in both directions. Sampling hardly lowers it: a large order sees
        rare losses. The upper bound is the sum of those of all parts, by their noise,
        their largest losses, or their own ρ; infinite if no such bound is known.

        Raises:
            ArithmeticError: If the bounds cross, which is a fault of this package.

        Source:
            https://arxiv.org/abs/1605.02065, Definition 1.1 (ρ-zCDP).
        """
        return self._answers().concentrated_parameter()


inheritance.refuse_what_is_inherited(
    PLDAccountant, keep={"neighboring_relation", "CompositionErrorDetails"}
)


def checked(name: str, value: Any) -> PLDAccountant:
    """Returns the value unchanged.

    Raises:
        TypeError: If it is not a `PLDAccountant`.
    """
    if not isinstance(value, PLDAccountant):
        raise TypeError(
            f"{name} must be a PLDAccountant that has composed what ran, as "
            f"PLDAccountant().compose(event). Found {value!r:.60}."
        )
    return value
