"""Compositions: sums of privacy losses, with a privacy profile in each direction."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import lattice_sums
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.kernel import profile
from dp_accounting_ext.kernel import sums

Accuracy = accuracy.Accuracy
Axis = lattice_law.Axis
LossPair = profile.LossPair
DirectedPairs = dominating_pair.DirectedPairs
# Functions that make pairs when these are needed, with the number of runs of each.
Parts = Sequence[tuple[Callable[[], DirectedPairs], int]]

# Tuning: the law of REMOVE is also used for ADD only if P's and Q's medians are near
# each other, if Q's sink gained at most `_GIVEN` times `tail_mass`, and if at most the
# share `_SEEN` of Q's mass is missing.
_GIVEN = 100.0
_SEEN = 1e-7


@dataclasses.dataclass(frozen=True, eq=False)
class ComposedLosses:
    """The pairs of losses of a composition, each accurate in the tail of its direction.

    Attributes:
        parts: Functions that make pairs on the given side, with the runs of each.
        bound: The side of the bound.
        accuracy: The resolution of the lattice, and the probability, in all, that may
            go to the sinks (of an upper bound) or be dropped (of a lower one).

    Guarantees:
        Upper (lower) pairs give an upper (lower) bound, in both directions.

    Source:
        https://arxiv.org/abs/2106.08567, Theorem 10 (composition).
    """

    parts: Parts
    bound: Bound
    accuracy: Accuracy

    def losses(self, direction: Direction) -> LossPair:
        """Returns the pair that is accurate in a direction, with the record in P."""
        removed, serves_both = self._removed
        if direction is Direction.REMOVE or serves_both:
            return removed
        return self._add.swapped()

    def pairs(self) -> DirectedPairs:
        """Returns the pairs by their ratios, for a composition that is subsampled."""
        removed, serves_both = self._removed
        remove = output_pairs.of_losses(removed)
        if serves_both:
            return DirectedPairs.same(remove)
        return DirectedPairs(remove, output_pairs.of_losses(self._add.swapped()))

    @functools.cached_property
    def _removed(self) -> tuple[LossPair, bool]:
        """The pair for REMOVE, and whether it also serves ADD.

        Far from P's median cells are wide, and Q's masses may have gone to the sink.
        """
        found, sinks, is_one = self._sum(Direction.REMOVE)
        if not is_one:
            return found, False
        probability = sums.probability_of_any(sinks)
        least = (1 - probability) * (1 - _SEEN)
        if self.bound is Bound.LOWER and found.q_masses.sum() < least:
            # Outputs were left out that are rare under P, but not under Q.
            return found, False
        given = found.zero_mass - probability
        serves = (
            given <= _GIVEN * self.accuracy.tail_mass
            and found.distance() <= lattice_sums.FURTHEST
        )
        return found, serves

    @functools.cached_property
    def _add(self) -> LossPair:
        return self._sum(Direction.ADD)[0]

    def _sum(
        self, direction: Direction
    ) -> tuple[LossPair, list[tuple[float, int]], bool]:
        """Returns the sum of the losses in a direction, and facts about its parts.

        Args:
            direction: The direction. For ADD, P and Q are exchanged.

        Returns:
            The pair of losses; Q's sink in each part, with its number of runs; and
            whether each part has one pair for both directions.
        """
        sinks: list[tuple[float, int]] = []
        is_one = True

        def law_of(make: Callable[[], DirectedPairs], count: int) -> lattice_law.Atoms:
            nonlocal is_one
            pairs = make()
            is_one &= pairs.is_one
            sinks.append((pairs.remove.zero_mass, count))
            pair = pairs.of(direction)
            if direction is Direction.ADD:
                pair = dominating_pair.dual(pair)
            return law_sums.of_pair(pair, Axis.LOSS)

        parts = [
            (functools.partial(law_of, make, count), count)
            for make, count in self.parts
        ]
        summed = law_sums.sum_of(parts, self.bound, self.accuracy)
        return law_sums.read(summed), sinks, is_one
