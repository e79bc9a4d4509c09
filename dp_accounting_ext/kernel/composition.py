"""Compositions: sums of privacy losses, read in both directions."""

from collections.abc import Callable
from collections.abc import Sequence
import functools

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import lattice_shape
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.kernel import profile
from dp_accounting_ext.kernel import sums

Axis = lattice_law.Axis
LossPair = profile.LossPair
Profile = profile.Profile
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
# Pairs, made when they are asked for, with the number of runs of each.
Parts = Sequence[tuple[Callable[[], DirectedPairs], int]]

# Tuning: a law is read from Q's side, too, if Q's middle is where cells are narrow, if
# what Q's sink was given is no more than this over what tails may have,
_GIVEN = 100.0
# and if no more of Q's mass than this is missing.
_SEEN = 1e-7


class Composition:
    """The two laws of a composition, each direction accurate in its own tail.

    Args:
        parts: Pairs of that side, with the number of runs of each.
        bound: The side.
        resolution: Of the lattice.
        tail_mass: Probability that may go to the sinks (of an upper bound), or be
            dropped (of a lower one), in all.

    Guarantees:
        Upper (lower) pairs give an upper (lower) bound, in both directions.

    Source:
        https://arxiv.org/abs/2106.08567, Theorem 10 (composition).
    """

    def __init__(
        self,
        parts: Parts,
        bound: Bound,
        resolution: lattice_law.Resolution,
        tail_mass: float,
    ) -> None:
        self._parts = parts
        self._bound = bound
        self._resolution = resolution
        self._tail_mass = tail_mass

    def accurate_in(self, direction: Direction) -> LossPair:
        """Returns the pair that is accurate in a direction, P with the record."""
        if direction is Direction.REMOVE or self._serves_both:
            return self._remove
        return self._add.swapped()

    def profile(self, direction: Direction) -> Profile:
        """Returns the privacy profile in a direction."""
        return self.accurate_in(direction).profile(direction)

    def pairs(self) -> DirectedPairs:
        """Returns the pairs by their ratios, for what is sampled as a whole."""
        remove = dominating_pair.of_losses(self._remove)
        if self._serves_both:
            return DirectedPairs.same(remove)
        return DirectedPairs(remove, dominating_pair.of_losses(self._add.swapped()))

    @functools.cached_property
    def _remove(self) -> LossPair:
        return self._removed[0]

    @functools.cached_property
    def _removed(self) -> tuple[LossPair, bool]:
        """The pair, and whether it serves a record that is added as well.

        Far from P's middle cells are wide, and Q's masses may have gone to the sink.
        """
        sinks: list[tuple[float, int]] = []
        is_one = True

        def side(pairs: DirectedPairs, count: int) -> DominatingPair:
            nonlocal is_one
            is_one &= pairs.is_one
            sinks.append((pairs.remove.zero_mass, count))
            return pairs.remove

        # Parts are mostly of one kind, and made but once.
        both = not self._parts or self._parts[0][0]().is_one
        found = self._sum(side, both=both)
        if not (is_one and both):
            return found, False
        chance = sums.probability_of_any(sinks)
        least = (1 - chance) * (1 - _SEEN)
        if self._bound is Bound.LOWER and found.q_masses.sum() < least:
            # Outputs were left out that are too rare of P's.
            return found, False
        given = found.zero_mass - chance
        serves = (
            given <= _GIVEN * self._tail_mass
            and found.distance() <= lattice_shape.FURTHEST
        )
        return found, serves

    @functools.cached_property
    def _add(self) -> LossPair:
        return self._sum(lambda pairs, _: dominating_pair.dual(pairs.add), both=False)

    @property
    def _serves_both(self) -> bool:
        """Tells whether one pair serves both directions."""
        return self._removed[1]

    def _sum(
        self, side: Callable[[DirectedPairs, int], DominatingPair], *, both: bool
    ) -> LossPair:
        def law_of(make: Callable[[], DirectedPairs], count: int) -> lattice_law.Atoms:
            return law_sums.of_pair(side(make(), count), Axis.LOSS, copies=count)

        parts = [
            (functools.partial(law_of, make, count), count)
            for make, count in self._parts
        ]
        summed = law_sums.sum_of(
            parts, self._bound, self._resolution, self._tail_mass, both=both
        )
        return law_sums.read(summed)
