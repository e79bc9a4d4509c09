"""Compositions of mechanisms, put together and taken apart."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math

from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.mechanisms import schedules

Accuracy = interface.Accuracy
_WHOLE_CELLS = accuracy.WHOLE_CELLS
DirectedPairs = dominating_pair.DirectedPairs
Mechanism = interface.Mechanism
# Tuning: the largest 1/σ² of a Gaussian that is composed as a single mechanism; and a
# limit on the 1/σ² that is divided, as the closed form suffices for larger ones.
_PRECISION, _MOST_STEPS = 4.0, 1e8


@dataclasses.dataclass(frozen=True)
class Composition(Mechanism):
    """A composition of mechanisms, each with the number of its runs."""

    items: tuple[tuple[Mechanism, int], ...]

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        parts = in_cells(flatten(dict(self.items), bound), bound)
        copies = sum(parts.values())
        if not copies:
            return DirectedPairs.same(dominating_pair.identity_pair(bound))

        share = accuracy.shared(copies)
        made = [
            (functools.partial(interface.pairs_of_part, part, bound, share), count)
            for part, count in parts.items()
        ]
        fine = accuracy.with_cells(_WHOLE_CELLS)
        return law_sums.ComposedLosses(made, bound, fine).pairs()

    def routes(self, bound: Bound) -> Sequence[Mapping[Mechanism, int]]:
        return [dict(self.items)]

    def basis(self, bound: Bound) -> str:
        bases = dict.fromkeys(part.basis(bound) for part, _ in self.items)
        return (
            f"a composition of {' and of '.join(bases)}"
            if bases
            else interface.OWN_PAIR
        )

    def claims(self) -> interface.Claims:
        return interface.claims_of(dict(self.items))


NO_OP = Composition(())


def unpacked(counts: Mapping[Mechanism, int]) -> dict[Mechanism, int]:
    """Returns mechanisms with counts, with compositions replaced by their parts."""
    parts: dict[Mechanism, int] = {}
    stack = list(counts.items())[::-1]
    while stack:
        part, count = stack.pop()
        if isinstance(part, Composition):
            inner = [(each, number * count) for each, number in part.items]
            stack += reversed(inner)
        else:
            parts[part] = parts.get(part, 0) + count
    return parts


def compose(counts: Mapping[Mechanism, int]) -> Mechanism:
    """Returns the composition of mechanisms with counts."""
    parts = unpacked(counts)
    if any(interface.is_certain(part) for part in parts):
        return known_bounds.NonPrivate()
    if len(parts) == 1 and all(count == 1 for count in parts.values()):
        return next(iter(parts))
    return Composition(tuple(parts.items()))


def flatten(
    counts: Mapping[Mechanism, int], bound: Bound, route: int = 0
) -> dict[Mechanism, int]:
    """Returns mechanisms known by their own pairs, whose composition is the bound.

    All Gaussian mechanisms are merged into one, rounded to the bound's side. All
    mechanisms that are known by their Rényi divergences are merged into one as well, as
    divergences add up, while composing pairs made from each would lose accuracy.

    Args:
        counts: The mechanisms to compose, with counts.
        bound: The side of the bound.
        route: Which of the routes of each mechanism to take; the last one, if it has
            fewer.
    """
    flat: dict[Mechanism, int] = {}
    stack = list(counts.items())
    while stack:
        mechanism, count = stack.pop()
        routes = mechanism.routes(bound)
        parts = routes[min(route, len(routes) - 1)]
        if mechanism in parts:
            flat[mechanism] = flat.get(mechanism, 0) + count
        else:
            stack += [(part, count * number) for part, number in parts.items()]
    renyi = {m: n for m, n in flat.items() if m.is_known_by_divergences}
    if sum(renyi.values()) > 1:
        flat = {m: n for m, n in flat.items() if m not in renyi}
        flat[renyi_bounded.composition(renyi)] = 1
    gaussians = {m: n for m, n in flat.items() if m.gaussian_noise is not None}
    if sum(gaussians.values()) <= 1:
        return flat
    precision = interface.claims_of(gaussians).gaussian_precision
    rounding = 4 * floats.UNIT_ROUNDOFF
    if bound is Bound.UPPER:
        rounding = -rounding
    merged: dict[Mechanism, int] = {
        additive_noise.Gaussian((1 + rounding) / math.sqrt(precision)): 1
    }
    return merged | {m: n for m, n in flat.items() if m not in gaussians}


def routes(counts: Mapping[Mechanism, int], bound: Bound) -> list[dict[Mechanism, int]]:
    """Returns all compositions that bound another; the best of them counts.

    Args:
        counts: The mechanisms to compose, with counts.
        bound: The side of the bound.
    """
    compositions = [flatten(counts, bound)]
    while (following := flatten(counts, bound, len(compositions))) != compositions[-1]:
        compositions.append(following)
    return compositions


def in_cells(counts: Mapping[Mechanism, int], bound: Bound) -> dict[Mechanism, int]:
    """Returns mechanisms whose composition bounds another, with few for a schedule.

    Args:
        counts: The mechanisms to compose, none of which has parts, with counts.
        bound: The side of the bound.
    """
    parts, repeated = schedules.in_cells(counts, bound)
    for cells, count in repeated:
        composed = Composition(tuple(cells.items()))
        parts[composed] = parts.get(composed, 0) + count
    return parts


def unsampled(counts: Mapping[Mechanism, int]) -> dict[Mechanism, int]:
    """Returns mechanisms that dominate these, without Poisson samples.

    By joint convexity no divergence of a sample is above that of what is sampled.
    """
    parts: dict[Mechanism, int] = {}
    for mechanism, count in counts.items():
        sample = mechanism.sampled_from()
        if sample is None:
            parts[mechanism] = parts.get(mechanism, 0) + count
            continue
        for part, number in unsampled({sample[1]: count}).items():
            parts[part] = parts.get(part, 0) + number
    return parts


def as_gaussian(mechanism: Mechanism) -> additive_noise.Gaussian | None:
    """Returns the Gaussian mechanism that equals a composition of some, or None.

    Its noise is rounded down, so that it dominates the composition.
    """
    parts = flatten({mechanism: 1}, Bound.UPPER)
    noises = [part.gaussian_noise for part in parts]
    if sum(parts.values()) != 1 or noises[0] is None:
        return None
    return additive_noise.Gaussian(noises[0])


def gaussian_steps(mechanism: Mechanism) -> interface.Allocation | None:
    """Returns the Gaussian steps one of which is drawn, or None.

    A composition of Gaussian mechanisms is a single step.

    Args:
        mechanism: The mechanism with a record, against that without it.
    """
    allocation = mechanism.gaussian_steps()
    if allocation is not None:
        return allocation
    parts = flatten({mechanism: 1}, Bound.UPPER)
    if any(part.gaussian_noise is None for part in parts):
        return None
    precision = interface.claims_of(parts).gaussian_precision
    step = replaced_allocation.Steps(math.sqrt(precision), 1.0, 1)
    return interface.Allocation((step,), null_probability=0.0, infinity_mass=0.0)


def one_drawn(
    parts: Sequence[tuple[Mechanism, float, int]],
    *,
    null_probability: float = 0.0,
    infinity_mass: float = 0.0,
) -> interface.Allocation | None:
    """Returns the Gaussian steps if one of several mechanisms is drawn, or None.

    None is returned if any of the mechanisms has no such steps.

    Args:
        parts: Mechanisms, each with the probability that a given one of its copies is
            drawn, and the number of copies.
        null_probability: The probability that the output does not depend on the record.
        infinity_mass: The probability that the output reveals the record.
    """
    counts: dict[tuple[float, float], int] = {}
    for mechanism, probability, number in parts:
        inner = gaussian_steps(mechanism)
        if inner is None:
            return None
        for each in inner.steps:
            key = each.shift, probability * each.probability
            counts[key] = counts.get(key, 0) + number * each.count
        null_probability += number * probability * inner.null_probability
        infinity_mass += number * probability * inner.infinity_mass
    steps = tuple(replaced_allocation.Steps(*key, n) for key, n in counts.items())
    return interface.Allocation(steps, null_probability, infinity_mass)


def in_small_steps(
    counts: Mapping[Mechanism, int], bound: Bound
) -> dict[Mechanism, int]:
    """Returns mechanisms whose composition is the same, with little noise divided.

    A Gaussian mechanism with little noise is replaced by many with more noise. Then
    e^loss fits a float for the losses of each mechanism, if not for their sum.
    """
    divided: dict[Mechanism, int] = {}
    rounding = 4 * floats.UNIT_ROUNDOFF * (-1 if bound is Bound.UPPER else 1)
    for part, count in counts.items():
        noise = part.gaussian_noise
        if noise is not None:
            precision = min(noise**-2, _MOST_STEPS)
            number = math.ceil(precision / _PRECISION)
            if number > 1:
                noise *= math.sqrt(number) * (1 + rounding)
                part, count = additive_noise.Gaussian(noise), count * number
        divided[part] = divided.get(part, 0) + count
    return divided
