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
Allocation = replaced_allocation.Allocation
_CELLS, _WHOLE_CELLS = accuracy.CELLS, accuracy.WHOLE_CELLS
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
        parts = bounding(dict(self.items), bound)
        copies = sum(parts.values())
        if not copies:
            return DirectedPairs.same(dominating_pair.identity_pair(bound))

        share = accuracy.shared(copies)
        made = [
            (functools.partial(interface.pairs_of_part, part, bound, share), count)
            for part, count in parts.items()
        ]
        fine = dataclasses.replace(accuracy, cells=_WHOLE_CELLS)
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
            inner = [(mechanism, number * count) for mechanism, number in part.items]
            stack += reversed(inner)
        else:
            parts[part] = parts.get(part, 0) + count
    return parts


def compose(counts: Mapping[Mechanism, int]) -> Mechanism:
    """Returns the composition of mechanisms with counts."""
    parts = unpacked(counts)
    if any(known_bounds.is_certain(part) for part in parts):
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
    gaussians: dict[Mechanism, int] = {
        m: n for m, n in flat.items() if isinstance(m, additive_noise.Gaussian)
    }
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
    compositions = [bounding(counts, bound)]
    while (following := bounding(counts, bound, len(compositions))) != compositions[-1]:
        compositions.append(following)
    return compositions


def bounding(
    counts: Mapping[Mechanism, int], bound: Bound, route: int = 0
) -> dict[Mechanism, int]:
    """Returns what `flatten` does, with few mechanisms for a schedule of many.

    Args:
        counts: The mechanisms to compose, with counts.
        bound: The side of the bound.
        route: Which of the routes of each mechanism to take.
    """
    parts, repeated = schedules.in_cells(flatten(counts, bound, route), bound)
    for cells, count in repeated:
        composed = Composition(tuple(cells.items()))
        parts[composed] = parts.get(composed, 0) + count
    return parts


def sampled_from(mechanism: Mechanism) -> tuple[float, Mechanism] | None:
    """Returns the rate of a Poisson sample and what runs on it, or None.

    A Poisson sample of the latter at this rate dominates the mechanism: the rate is
    rounded up, and divergences of samples increase in it.
    """
    drawn = mechanism.draws()
    if drawn is None or drawn.infinity_mass or not drawn.null_probability:
        return None
    if len(drawn.parts) > 1 or drawn.parts[0][2] != 1:
        return None
    ((inner, rate, _),) = drawn.parts
    return min(floats.raised(rate, 16 * floats.UNIT_ROUNDOFF), 1.0), inner


def unsampled(counts: Mapping[Mechanism, int]) -> dict[Mechanism, int]:
    """Returns mechanisms that dominate these, without Poisson samples.

    By joint convexity no divergence of a sample is above that of what is sampled.
    """
    parts: dict[Mechanism, int] = {}
    for mechanism, count in counts.items():
        sample = sampled_from(mechanism)
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
    return single_gaussian(flatten({mechanism: 1}, Bound.UPPER))


def single_gaussian(
    counts: Mapping[Mechanism, int],
) -> additive_noise.Gaussian | None:
    """Returns the Gaussian mechanism, if it is all that is composed, and runs once."""
    part = next(iter(counts), None)
    if sum(counts.values()) != 1 or not isinstance(part, additive_noise.Gaussian):
        return None
    return part


def gaussian_steps(mechanism: Mechanism) -> Allocation | None:
    """Returns the Gaussian steps one of which is drawn, or None.

    Gaussian noise and a composition of it are a single step.

    Args:
        mechanism: The mechanism with a record, against that without it.
    """
    allocation = drawn_steps(mechanism)
    if allocation is not None:
        return allocation
    parts = flatten({mechanism: 1}, Bound.UPPER)
    if not all(isinstance(part, additive_noise.Gaussian) for part in parts):
        return None
    return _one_step(math.sqrt(interface.claims_of(parts).gaussian_precision))


def _one_step(shift: float) -> Allocation:
    step = replaced_allocation.Steps(shift, 1.0, 1)
    return Allocation((step,), null_probability=0.0, infinity_mass=0.0)


def drawn_steps(mechanism: Mechanism) -> Allocation | None:
    """Returns the Gaussian steps of a mechanism that draws one of several, or None.

    Gaussian noise around one shift is a single step, which is always drawn.

    Args:
        mechanism: The mechanism with a record, against that without it.
    """
    if isinstance(mechanism, additive_noise.GaussianMixture) and mechanism.is_certain:
        return _one_step(mechanism.p[0][0])
    drawn = mechanism.draws()
    if drawn is None:
        return None
    counts: dict[tuple[float, float], int] = {}
    null_probability, infinity_mass = drawn.null_probability, drawn.infinity_mass
    for part, probability, number in drawn.parts:
        inner = gaussian_steps(part)
        if inner is None:
            return None
        for steps in inner.steps:
            key = steps.shift, probability * steps.probability
            counts[key] = counts.get(key, 0) + number * steps.count
        null_probability += number * probability * inner.null_probability
        infinity_mass += number * probability * inner.infinity_mass
    all_steps = tuple(replaced_allocation.Steps(*key, n) for key, n in counts.items())
    return Allocation(all_steps, null_probability, infinity_mass)


def losses(
    counts: Mapping[Mechanism, int], bound: Bound, accuracy: Accuracy
) -> law_sums.ComposedLosses:
    """Returns the losses of a composition, from pairs with small enough tails.

    Args:
        counts: Mechanisms that are known by their own pairs, with counts.
        bound: The side of the bound.
        accuracy: What the losses are for.
    """
    parts = _in_small_steps(counts, bound)
    share = accuracy.tail_mass / max(sum(parts.values()), 1)
    # Rounded to a power of ten, so that cached pairs can be used again.
    tail = max(10.0 ** math.floor(math.log10(share)), floats.SMALLEST_MASS)
    of_part = dataclasses.replace(Accuracy(tail), cells=max(accuracy.cells, _CELLS))
    pairs = [
        (functools.partial(interface.pairs_of, part, bound, of_part), count)
        for part, count in parts.items()
    ]
    return law_sums.ComposedLosses(pairs, bound, accuracy)


def _in_small_steps(
    counts: Mapping[Mechanism, int], bound: Bound
) -> dict[Mechanism, int]:
    """Returns mechanisms whose composition is the same, with little noise divided.

    A Gaussian mechanism with little noise is replaced by many with more noise. Then
    e^loss fits a float for the losses of each mechanism, if not for their sum.
    """
    divided: dict[Mechanism, int] = {}
    rounding = 4 * floats.UNIT_ROUNDOFF * (-1 if bound is Bound.UPPER else 1)
    for part, count in counts.items():
        if isinstance(part, additive_noise.Gaussian):
            noise = part.noise_multiplier
            precision = min(noise**-2, _MOST_STEPS)
            number = math.ceil(precision / _PRECISION)
            if number > 1:
                noise *= math.sqrt(number) * (1 + rounding)
                part, count = additive_noise.Gaussian(noise), count * number
        divided[part] = divided.get(part, 0) + count
    return divided
