"""Records that leave or join one by one: what is known of one, chained."""

import dataclasses

from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import chained_pairs
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
DirectedPairs = dominating_pair.DirectedPairs
Mechanism = interface.Mechanism

# Tuning: a chain multiplies a tail's mass by e^ε or so; its pairs are made again with
# the square of the tail until what is left of it is no more than this many times the
# tail that was asked for, or until no float holds a smaller one.
_MOST_GROWN = 100.0
_SMALLEST_TAIL_MASS = 1e-280


@dataclasses.dataclass(frozen=True)
class ChainedSplit(Mechanism):
    """A mechanism where records leave one by one, and others join one by one.

    An upper bound for any order in which they do. From below it is bounded by a single
    record, whose change is among those of a group.

    Attributes:
        inner: The mechanism with one record more, against that without it.
        removed: How many records leave.
        inserted: How many join.

    Source:
        https://arxiv.org/abs/1905.02383, Theorem 2.14.
    """

    inner: Mechanism
    removed: int
    inserted: int

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        if bound is Bound.LOWER:
            pairs = interface.pairs_of_part(self.inner, bound, tail_mass)
            return pairs if self.removed else pairs.swapped()
        finer = tail_mass
        while True:
            leave = interface.pairs_of_part(self.inner, bound, finer)
            chained = _in_a_row(
                [(leave, self.removed), (leave.swapped(), self.inserted)]
            )
            grown = max(chained.remove.infinity_mass, chained.add.zero_mass)
            known = max(leave.remove.infinity_mass, leave.add.zero_mass)
            if grown <= _MOST_GROWN * tail_mass or known > finer:
                return chained
            if finer <= _SMALLEST_TAIL_MASS:
                return chained
            finer = max(finer**2, _SMALLEST_TAIL_MASS)

    def gaussian_precision(self) -> float:
        members = self.removed + self.inserted
        return members**2 * self.inner.gaussian_precision()

    def largest_loss(self) -> float:
        members = self.removed + self.inserted
        return members * self.inner.largest_loss() * interface.LOSS_ROUNDED_UP

    def is_symmetric(self) -> bool:
        return self.removed == self.inserted or self.inner.is_symmetric()


def _in_a_row(steps: list[tuple[DirectedPairs, int]]) -> DirectedPairs:
    """Returns the chain of pairs, each so many times, by doubling."""
    chained: DirectedPairs | None = None
    for pairs, number in steps:
        while number:
            if number & 1:
                chained = chained_pairs.chain(chained, pairs) if chained else pairs
            number >>= 1
            if number:
                pairs = chained_pairs.chain(pairs, pairs)
    assert chained is not None
    return chained
