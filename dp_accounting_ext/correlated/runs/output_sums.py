"""Correlated noise from which the sum of all outputs is a lower bound.

In a run with correlated noise a record takes part in random steps. The sum of all its
outputs is a function of the outputs, so that it reveals no more than the run. It has
one normal law of noise, and each step of the record moves it by at least a known shift:
a mixture of normal laws with the random number of steps is a lower bound. So is the
same run with independent noise, which is the larger one if there is little noise.
"""

import abc
from collections.abc import Mapping
from collections.abc import Sequence
from typing import ClassVar
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import projected
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs

# Tuning: the largest number of shifts in the mixture. If there are more, they are
# rounded down to this many.
_MOST_SHIFTS = 512
# Certified: the relative error of SciPy's binomial masses, if they are above the second
# number.
_BINOMIAL_ERROR, _LEAST_BINOMIAL = 1e-9, 1e-280


class NumberOfSteps(NamedTuple):
    """The law of the number of steps in which a record moves the sum of outputs.

    Attributes:
        probabilities: (k,) probabilities of 0, 1, … steps.
        error: A bound on the relative error of each probability.
        shift: The least amount by which a step moves the sum, in standard deviations of
            the sum, rounded down.
    """

    probabilities: FloatArray
    error: float
    shift: float

    @classmethod
    def of_binomial(cls, probabilities: FloatArray, shift: float) -> "NumberOfSteps":
        """Returns the law of (k,) probabilities as SciPy computes binomial masses."""
        probabilities = probabilities.copy()
        rare = probabilities < _LEAST_BINOMIAL
        # A number of steps that is too rare for SciPy's accuracy is counted as none.
        probabilities[0] += probabilities[rare].sum()
        probabilities[1:][rare[1:]] = 0.0
        return cls(probabilities, _BINOMIAL_ERROR, shift)


class AboveSum(interface.Mechanism):
    """A run that dominates the sum of its outputs, and that a composition dominates.

    Attributes:
        basis_above: The description of the composition in `basis`.
    """

    basis_above: ClassVar[str]

    @abc.abstractmethod
    def above(self) -> Mapping[interface.Mechanism, int]:
        """Returns mechanisms with counts whose composition dominates the run."""

    def below(self) -> Mapping[interface.Mechanism, int]:
        """Returns mechanisms with counts whose composition the run dominates, if any.

        They are compared with the sum of all outputs, and the larger bound is used.
        """
        return {}

    @abc.abstractmethod
    def number_of_steps(self) -> NumberOfSteps:
        """Returns the law of the number of steps that move the sum of all outputs."""

    def routes(self, bound: Bound) -> Sequence[Mapping[interface.Mechanism, int]]:
        return [{self: 1}] if bound is Bound.LOWER else [self.above()]

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.UPPER:
            above = compositions.compose(self.above())
            return interface.pairs_of(above, bound, accuracy)
        law = self.number_of_steps()
        # Numbers of steps are rounded down to a few.
        width = -(-law.probabilities.size // _MOST_SHIFTS)
        starts = np.arange(0, law.probabilities.size, width)
        pair = projected.mixture_below(
            np.asarray(starts * law.shift, dtype=np.float64),
            np.add.reduceat(law.probabilities, starts),
            tail_mass=accuracy.tail_mass,
            probability_error=law.error,
        )
        below = self.below()
        if not below:
            return DirectedPairs.same(pair)
        other = interface.pairs_of(compositions.compose(below), bound, accuracy)
        return projected.largest([DirectedPairs.same(pair), other])

    def basis(self, bound: Bound) -> str:
        if bound is Bound.UPPER:
            return self.basis_above
        if not self.below():
            return "the sum of all outputs"
        return "the best of the sum of all outputs, and independent noise"
