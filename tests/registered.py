"""A mechanism of few outcomes that is registered as a user would register it."""

from collections.abc import Sequence
import dataclasses
import fractions
import math
from typing import Any

import attr
import dp_accounting
import numpy as np

import dp_accounting_ext as ext
from dp_accounting_ext import mechanisms
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair

Fraction = fractions.Fraction
_ROUNDING = 2.0**-51


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DiscreteEvent(dp_accounting.DpEvent):
    """Represents a mechanism with few outputs.

    Integers are weights. Floats are probabilities, the binary numbers that they are,
    but for the largest of a law, which is what the others leave.

    Attributes:
        without: Of the outputs without the record.
        with_record: Of the same outputs with it.
    """

    without: tuple[float, ...] = attr.ib(converter=tuple)
    with_record: tuple[float, ...] = attr.ib(converter=tuple)


def laws(event: DiscreteEvent) -> tuple[list[Fraction], list[Fraction]]:
    """Returns the probabilities without the record, and with it, exactly."""
    return _law(event.without), _law(event.with_record)


def _law(numbers: Sequence[Any]) -> list[Fraction]:
    if all(isinstance(number, int | np.integer) for number in numbers):
        weights = [Fraction(int(number)) for number in numbers]
        return [weight / sum(weights) for weight in weights]
    law = [Fraction(float(number)) for number in numbers]
    largest = law.index(max(law))
    law[largest] += 1 - sum(law)
    return law


@dataclasses.dataclass(frozen=True)
class Discrete(mechanisms.Mechanism):
    """The pair of a `DiscreteEvent`, as its user would write it."""

    event: DiscreteEvent

    def pairs(
        self, bound: Bound, accuracy: accuracy.Accuracy
    ) -> dominating_pair.DirectedPairs:
        q, p = laws(self.event)
        is_upper = bound is Bound.UPPER
        largest = Fraction(math.exp(700.0))
        atoms, sinks = [], [Fraction(0), Fraction(0)]
        outputs = list(zip(p, q, strict=True))
        for a, b in sorted(outputs, key=_by_ratio):
            if a and b and 1 / largest < a / b < largest:
                atoms.append((float(a / b), float(b)))
            elif is_upper or not (a and b):
                sinks[0] += a
                sinks[1] += b
        ends = [
            (math.nextafter if is_upper else _below)(float(sink), 1.0) if sink else 0.0
            for sink in sinks
        ]
        # Where no output has a ratio that fits a float, an atom without mass.
        ratios, masses = np.array(atoms or [(1.0, 0.0)]).T
        return dominating_pair.DirectedPairs.same(
            dominating_pair.DominatingPair(
                ratios, masses, *ends, bound, _ROUNDING, _ROUNDING
            )
        )


def _by_ratio(probabilities: tuple[Fraction, Fraction]) -> tuple[bool, Fraction]:
    p, q = probabilities
    return (q == 0, p / q if q else p)


def _below(number: float, _: float) -> float:
    return math.nextafter(number, 0.0)


@attr.s(frozen=True, slots=True)
class SingleShiftEvent(dp_accounting.DpEvent):
    """Represents Laplace noise around one shift, with the record and without it."""


UNSHIFTED = mechanisms.LaplaceMixture(((0.0, 1.0),), ((0.0, 1.0),))
ext.PLDAccountant.register(SingleShiftEvent, lambda event, reader: UNSHIFTED)
ext.PLDAccountant.register(DiscreteEvent, lambda event, reader: Discrete(event))
