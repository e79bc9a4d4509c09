"""Bounds for several records that leave or join, chained from one to the next."""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import TypeVar

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_curves
from dp_accounting_ext.pairs import chained_pairs
from dp_accounting_ext.pairs import profile_pairs

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
Mechanism = interface.Mechanism
# A mechanism, how often it follows in a chain, and whether its datasets are swapped.
Link = tuple[Mechanism, int, bool]
Chain = TypeVar("Chain")

# Tuning: a chain multiplies the tail mass of its links by about e^ε. So its pairs are
# recomputed with the square of the tail mass, until the chain's tail mass is at most
# this many times the requested one, it no longer falls, or floats hold no smaller one.
_MOST_GROWN = 100.0


def chain(inner: Mechanism, removed: int, inserted: int) -> Mechanism:
    """Returns the mechanism if several records leave and others join.

    Args:
        inner: The mechanism with one record more, against that without it.
        removed: The number of records that leave.
        inserted: The number of records that join. At least one record leaves or joins.
    """
    if inner == compositions.NO_OP or known_bounds.is_certain(inner):
        return inner
    if inner.claims().is_symmetric:
        # A record that leaves and one that joins have the same profile.
        removed, inserted = removed + inserted, 0
    if (removed, inserted) == (1, 0):
        return inner
    return ChainedSplit(inner, removed, inserted)


@dataclasses.dataclass(frozen=True)
class Symmetrized(Mechanism):
    """A mechanism on two batches or datasets, either of which may be the first."""

    inner: Mechanism

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        pairs = interface.pairs_of_part(self.inner, bound, accuracy)
        if bound is Bound.LOWER:
            return pairs
        return profile_pairs.maximum([pairs, pairs.swapped()])

    def basis(self, bound: Bound) -> str:
        basis = self.inner.basis(bound)
        if bound is Bound.LOWER:
            return basis
        return f"the larger of both directions at each ε, by {basis}"

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        return renyi_curves.of(self.inner, orders)

    def claims(self) -> interface.Claims:
        return dataclasses.replace(self.inner.claims(), is_symmetric=True)

    def sum_of(self, members: int) -> Mechanism | None:
        return self.inner.sum_of(members)


@dataclasses.dataclass(frozen=True)
class ChainedSplit(Mechanism):
    """A mechanism for which records leave one by one, and others join one by one.

    The upper bound holds for any order in which they do. The lower bound is that of the
    sum of all outputs, if its law is known, and else that of a single record, as the
    other members of a group may contribute nothing. In a composition each part is
    chained on its own, which is never larger than a chain of the composition.

    Attributes:
        inner: The mechanism with one record more, against that without it.
        removed: The number of records that leave.
        inserted: The number of records that join.

    Source:
        https://arxiv.org/abs/1905.02383, Theorem 2.14.
    """

    inner: Mechanism
    removed: int
    inserted: int

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.LOWER:
            pairs = interface.pairs_of_part(self.inner, bound, accuracy)
            return pairs if self.removed else pairs.swapped()
        joining = self.inner, self.inserted, True
        links = (self.inner, self.removed, False), joining
        return _pairs_in_a_row(links, bound, accuracy)

    def claims(self) -> interface.Claims:
        members, inner = self.removed + self.inserted, self.inner.claims()
        return interface.Claims(
            members * inner.largest_loss * interface.LOSS_ROUNDED_UP,
            gaussian_precision=members**2 * inner.gaussian_precision,
            is_symmetric=self.removed == self.inserted or inner.is_symmetric,
            tail=(
                members * inner.tail[0] * interface.LOSS_ROUNDED_UP,
                members**2 * inner.tail[1] * interface.LOSS_ROUNDED_UP,
            ),
        )

    def basis(self, bound: Bound) -> str:
        inner = self.inner.basis(bound)
        if bound is Bound.LOWER:
            if self.sum_of(1) is not None:
                return "the sum of all outputs"
            return f"the change of a single record, by {inner}"
        links = self.removed + self.inserted
        return f"a chain of {links} changes of one record, each by {inner}"

    def sum_of(self, members: int) -> Mechanism | None:
        return self.inner.sum_of(members * (self.removed + self.inserted))

    def routes(self, bound: Bound) -> Sequence[Mapping[Mechanism, int]]:
        revealed = self.sum_of(1) if bound is Bound.LOWER else None
        return [{revealed or self: 1}]


def in_a_row(*links: Link) -> Mechanism:
    """Returns an upper bound for two datasets, as a chain of links by way of others.

    Args:
        *links: Mechanisms on a dataset against the next one, each with the number of
            times that it follows, and whether its datasets are swapped.
    """
    counts: collections.Counter[Mechanism] = collections.Counter()
    for part, number, _ in links:
        counts[part] += number
    # In a chain of Gaussians their shifts over σ are added, not their precisions.
    shift = math.fsum(
        number * math.sqrt(part.claims().gaussian_precision)
        for part, number in counts.items()
    )
    claims = interface.Claims(
        interface.claims_of(counts).largest_loss,
        gaussian_precision=floats.raised(shift, by=1e-14) ** 2,
    )
    by_links = dict.fromkeys(part.basis(Bound.UPPER) for part in counts)
    upper = f"a chain of datasets, by {' and '.join(by_links)}"
    bases = interface.NOTHING, upper
    return known_bounds.ByFunction(
        _pairs_in_a_row, (links,), claims, bases, Bound.UPPER
    )


def with_small_tails(
    accuracy: Accuracy, chain_of: Callable[[Accuracy], tuple[Chain, float, float]]
) -> Chain:
    """Returns a chain of pairs whose tails are about the accuracy's tail mass.

    Args:
        accuracy: What the chain is for.
        chain_of: The function from the accuracy of the links to the chain, the largest
            sink of a link, and the sink of the chain, or how much of it the chain adds
            to that of its first link.
    """
    finer, before = accuracy.tail_mass, math.inf
    while True:
        fine = dataclasses.replace(accuracy, tail_mass=finer)
        chained, sink, grown = chain_of(fine)
        is_small = grown <= _MOST_GROWN * accuracy.tail_mass
        if is_small or sink >= before or finer <= floats.RARE:
            return chained
        before, finer = sink, max(finer**2, floats.RARE)


def _pairs_in_a_row(
    links: Sequence[Link], bound: Bound, accuracy: Accuracy
) -> DirectedPairs:
    """Returns upper pairs of a chain, with tails of about the accuracy's tail mass."""

    def chain_of(fine: Accuracy) -> tuple[DirectedPairs, float, float]:
        pairs = [
            (interface.pairs_of_part(part, Bound.UPPER, fine), number, is_swapped)
            for part, number, is_swapped in links
            if number
        ]
        chained: DirectedPairs | None = None
        for each, number, is_swapped in pairs:
            link = each.swapped() if is_swapped else each
            chained = sums.repeated(link, number, chained_pairs.chain, chained)
        assert chained is not None
        sink_of_chain, *sinks = (
            max(link.remove.infinity_mass, link.add.zero_mass)
            for link in (chained, *(link for link, *_ in pairs))
        )
        return chained, max(sinks), sink_of_chain

    return with_small_tails(accuracy, chain_of)
