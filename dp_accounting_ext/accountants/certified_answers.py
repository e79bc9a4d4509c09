"""What an accountant has composed, and the answers to questions about it."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import math
from typing import Any

import numpy as np

from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.bounds import trade_off_bounds
from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_curves
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import group_events
from dp_accounting_ext.renyi import ratio_moments
from dp_accounting_ext.validation import fields

# Certified: above the relative error of a quotient.
_ROUNDING = 2.0**-52
# The most characters of a description of what was composed, in a message.
_LONGEST = 600
Question = Callable[
    [privacy_bounds.WorstPrivacyBounds, FloatArray], Sequence[FloatArray]
]


@dataclasses.dataclass(frozen=True)
class ComposedRuns:
    """What an accountant has composed, as an immutable value.

    Attributes:
        counts: The mechanisms, with the number of runs of each.
        group: The largest group that was composed. All mechanisms are those that it
            sees.
        num_distinct: The number of mechanisms, Gaussian and scheduled ones aside.
    """

    counts: Mapping[interface.Mechanism, int] = dataclasses.field(default_factory=dict)
    group: group_events.Group = group_events.ONE_RECORD
    num_distinct: int = 0

    def plus(
        self, parts: Mapping[interface.Mechanism, int], count: int
    ) -> "ComposedRuns":
        """Returns the composition after `count` times all runs of `parts` were added.

        Raises:
            ValueError: If there are too many runs, or too many mechanisms.
        """
        sums = {part: self.counts.get(part, 0) + n * count for part, n in parts.items()}
        distinct = event_reader.check_counts(sums, self.counts, self.num_distinct)
        return ComposedRuns({**self.counts, **sums}, self.group, distinct)

    def is_non_private(self) -> bool:
        """Returns whether some mechanism reveals everything."""
        return any(known_bounds.is_certain(part) for part in self.counts)


@dataclasses.dataclass(frozen=True, eq=False)
class CertifiedAnswers:
    """Answers to questions about a composition, computed when they are asked.

    Attributes:
        composed: The composition.
        interval: The value discretization interval.
        directions: The directions whose larger ε and δ are the answers.
    """

    composed: ComposedRuns
    interval: float
    directions: tuple[Direction, ...] = tuple(Direction)
    _trade_offs: dict[float, trade_off_bounds.WorstTradeOffBounds] = dataclasses.field(
        default_factory=dict, init=False
    )

    @functools.cached_property
    def scenarios(self) -> Sequence[Mapping[interface.Mechanism, int]]:
        """The scenarios: mechanisms to compose for each split of the group."""
        return groups.scenarios(self.composed.counts)

    @functools.cached_property
    def _privacy(self) -> privacy_bounds.WorstPrivacyBounds:
        of_scenarios = [
            privacy_bounds.PrivacyBounds(counts, self.interval, self.directions)
            for counts in self.scenarios
        ]
        return privacy_bounds.WorstPrivacyBounds(of_scenarios)

    def in_direction(self, name: Any) -> "CertifiedAnswers":
        """Returns the answers of one direction, or these if the name is None.

        Args:
            name: "remove", "add" or None.

        Raises:
            ValueError: If it is another name, or if a group was composed, whose members
                may leave and join at once.
        """
        if name is None:
            return self
        direction = fields.direction(name)
        group = self.composed.group
        if group.size > 1 and group.num_removed is None:
            raise ValueError(
                f"direction must be None for a group of {group.size} records, unless "
                f"its events tell who leaves by num_removed. Found {name!r}."
            )
        return self._directed[direction]

    @functools.cached_property
    def _directed(self) -> "dict[Direction, CertifiedAnswers]":
        """The answers of each direction alone."""
        return {way: dataclasses.replace(self, directions=(way,)) for way in Direction}

    def epsilons(self, deltas: FloatArray, question: Question) -> list[Any]:
        """Returns a question's answers for δ in [0, 1), and the trivial one at 1."""
        trivial = math.inf if self.composed.is_non_private() else 0.0
        return self._filled(deltas, trivial, deltas < 1, question)

    def deltas(self, target_epsilon: Any, question: Question) -> list[Any]:
        """Returns a question's answers for ε, and 1 where this is trivial."""
        epsilons = fields.real_numbers("target_epsilon", target_epsilon)
        return self._filled(epsilons, 1.0, epsilons > -math.inf, question)

    def _filled(
        self, values: FloatArray, trivial: float, asked: BoolArray, question: Question
    ) -> list[Any]:
        """Returns answers in the shape of the values, computed where they are asked.

        Args:
            values: ε or δ, in any shape.
            trivial: The answer where nothing is asked, or if everything is revealed.
            asked: The places that are asked, in the same shape.
            question: The function that gives one array, or a lower and an upper one.
        """
        asked = asked & (not self.composed.is_non_private())
        with self._explained():
            privacy = self._privacy if asked.any() else _NOTHING
            bounds = question(privacy, values[asked])
        answers = [np.full(values.shape, trivial) for _ in bounds]
        for answer, bound in zip(answers, bounds, strict=True):
            answer[asked] = bound
        return [_as_given(answer) for answer in answers]

    def basis(self, delta: float) -> tuple[str, str]:
        """Returns in words how the lower and the upper bound on ε are computed.

        For a group these are the bounds of the split with the largest upper bound.

        Args:
            delta: δ in (0, 1).
        """
        with self._explained():
            worst = self.scenarios[self._privacy.worst(delta)]
        parts = compositions.unpacked(worst)
        below, above = (
            "; ".join(dict.fromkeys(part.basis(bound) for part in parts))
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        return below, above

    def rates(self, rates: FloatArray) -> tuple[Any, Any]:
        """Returns bounds on true positive rates, in the shape of the given rates."""
        flat = rates.reshape(-1)
        bounds = np.ones(flat.size), np.ones(flat.size)
        if not self.composed.is_non_private():
            least = float(flat[flat > 0].min(initial=1.0))
            with self._explained():
                bounds = self._trade_off(least).rates(flat)
        lower, upper = (_as_given(bound.reshape(rates.shape)) for bound in bounds)
        return lower, upper

    def gaussian_parameter(self, least: float) -> tuple[float, float]:
        """Returns bounds on μ over false positive rates from the least one on."""
        if self.composed.is_non_private():
            return math.inf, math.inf
        with self._explained():
            return self._trade_off(least).gaussian_parameter(least)

    def concentrated_parameter(self) -> tuple[float, float]:
        """Returns bounds on ρ, over Rényi divergences of all orders."""
        if self.composed.is_non_private():
            return math.inf, math.inf
        lower = upper = 0.0
        with self._explained():
            for counts in self.scenarios:
                orders = ratio_moments.SOME_ORDERS
                remove, add = renyi_curves.divergences(
                    compositions.compose(counts), orders, Bound.LOWER
                )
                quotient = float(np.max(np.maximum(remove, add) / orders))
                lower = max(lower, quotient * (1 - _ROUNDING))
                upper = max(upper, interface.claims_of(counts).rho)
        privacy_bounds.in_order(np.array([lower]), np.array([upper]))
        return lower, upper

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Adds what was composed to the error of a law that has lost mass."""
        try:
            yield
        except conservation.MassError as error:
            counts = self.composed.counts
            parts = ", ".join(f"{count} × {part}" for part, count in counts.items())
            raise conservation.MassError(
                f"{error} No bound is given. Mend the pair if it is one of your own; "
                f"else please report what was composed: {parts[:_LONGEST]}"
            ) from error

    def _trade_off(self, least: float) -> trade_off_bounds.WorstTradeOffBounds:
        """Returns bounds on the curves down to a rate, or to a slightly smaller one."""
        # Rounded down, so that a few curves answer all questions, in any order.
        least = 10.0 ** math.floor(math.log10(least))
        if least not in self._trade_offs:
            of_scenarios = [
                trade_off_bounds.TradeOffBounds(counts, least, self.interval)
                for counts in self.scenarios
            ]
            worst = trade_off_bounds.WorstTradeOffBounds(of_scenarios)
            self._trade_offs[least] = worst
        return self._trade_offs[least]


# The bounds of what has composed nothing.
_NOTHING = privacy_bounds.WorstPrivacyBounds([privacy_bounds.PrivacyBounds({}, 1.0)])


def _as_given(values: FloatArray) -> Any:
    """Returns a number for an array without dimensions, otherwise the array."""
    return float(values) if values.ndim == 0 else values
