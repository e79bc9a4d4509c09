"""Compositions of mechanisms, put together and taken apart."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

from dp_accounting_ext.composition import composed_pair
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
DirectedPairs = dominating_pair.DirectedPairs
Mechanism = interface.Mechanism


@dataclasses.dataclass(frozen=True)
class Composed(Mechanism):
    """Mechanisms, each run so many times."""

    items: tuple[tuple[Mechanism, int], ...]

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        parts = flatten(dict(self.items), bound)
        copies = sum(parts.values())
        if not copies:
            return DirectedPairs.same(dominating_pair.identity_pair(bound))

        def composition(
            each: Sequence[dominating_pair.DominatingPair],
        ) -> dominating_pair.DominatingPair:
            counted = list(zip(each, parts.values(), strict=True))
            return composed_pair.compose(counted, tail_mass=tail_mass)

        each = [interface.pairs_of_part(p, bound, tail_mass / copies) for p in parts]
        return DirectedPairs.combined(each, composition)

    def parts(self, bound: Bound) -> Mapping[Mechanism, int]:
        return dict(self.items)

    def gaussian_precision(self) -> float:
        return math.fsum(n * part.gaussian_precision() for part, n in self.items)

    def largest_loss(self) -> float:
        return interface.largest_loss_of(dict(self.items))

    def is_symmetric(self) -> bool:
        return all(part.is_symmetric() for part, _ in self.items)

    def total_variation(self) -> float:
        return interface.total_variation_of(dict(self.items))


NO_OP = Composed(())


def unpacked(counts: Mapping[Mechanism, int]) -> dict[Mechanism, int]:
    """Returns what is composed, with counts, compositions taken apart."""
    parts: dict[Mechanism, int] = {}
    stack = list(counts.items())[::-1]
    while stack:
        part, count = stack.pop()
        if isinstance(part, Composed):
            inner = [(each, number * count) for each, number in part.items]
            stack += reversed(inner)
        else:
            parts[part] = parts.get(part, 0) + count
    return parts


def is_certainly_known(part: Mechanism) -> bool:
    """Tells whether a mechanism has no privacy at all."""
    return isinstance(part, known_bounds.NonPrivate) and part.is_certain()


def compose(counts: Mapping[Mechanism, int]) -> Mechanism:
    """Returns the composition of mechanisms with counts."""
    parts = unpacked(counts)
    if any(is_certainly_known(part) for part in parts):
        return known_bounds.NonPrivate()
    if len(parts) == 1 and all(count == 1 for count in parts.values()):
        return next(iter(parts))
    return Composed(tuple(parts.items()))


def flatten(
    counts: Mapping[Mechanism, int], bound: Bound, *, other: bool = False
) -> dict[Mechanism, int]:
    """Returns mechanisms that have no parts but themselves, with counts.

    All Gaussians are one, rounded to the bound's side, and so is all that is known by
    its Rényi divergences: these add up, where pairs of them would be composed at a
    loss.

    Args:
        counts: What is composed, and how often.
        bound: The side to bound it from.
        other: Whether to take the second bound of each mechanism.
    """
    flat: dict[Mechanism, int] = {}
    stack = list(counts.items())
    while stack:
        mechanism, count = stack.pop()
        parts = mechanism.other_parts(bound) if other else mechanism.parts(bound)
        if mechanism in parts:
            flat[mechanism] = flat.get(mechanism, 0) + count
        else:
            stack += [(part, count * number) for part, number in parts.items()]
    renyi = {m: n for m, n in flat.items() if isinstance(m, renyi_bounded.RenyiBounded)}
    if sum(renyi.values()) > 1:
        flat = {m: n for m, n in flat.items() if m not in renyi}
        flat[renyi_bounded.composition(renyi)] = 1
    gaussians = {
        m: n for m, n in flat.items() if isinstance(m, additive_noise.Gaussian)
    }
    if sum(gaussians.values()) <= 1:
        return flat
    precision = math.fsum(n * m.gaussian_precision() for m, n in gaussians.items())
    rounding = 4 * floats.UNIT_ROUNDOFF
    if bound is Bound.UPPER:
        rounding = -rounding
    merged: dict[Mechanism, int] = {
        additive_noise.Gaussian((1 + rounding) / math.sqrt(precision)): 1
    }
    return merged | {m: n for m, n in flat.items() if m not in gaussians}
