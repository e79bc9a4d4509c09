"""What can be composed, and the dominating pairs of it at the accuracy asked for."""

import abc
from collections.abc import Mapping
import dataclasses
import functools
import math

from dp_accounting_ext import composed_pair
from dp_accounting_ext import dominating_pair
from dp_accounting_ext.amplification import allocation_by_sum
from dp_accounting_ext.amplification import k_out_of_t
from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.mechanisms import gaussian
from dp_accounting_ext.mechanisms import gaussian_mixture

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
DirectedPairs = dominating_pair.DirectedPairs

_SMALLEST_TAIL_MASS = gaussian_mixture.SMALLEST_TAIL_MASS
_COARSE_TAILS = 1e6  # Quotient of neighbouring ones.


class Construction(abc.ABC):
    """Something that can be composed: hashable parameters, pairs when asked.

    Subclass it, as a frozen dataclass, to account for a mechanism of one's own.
    """

    @abc.abstractmethod
    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        """Returns the pairs of one run.

        Args:
            bound: Upper pairs dominate the run; lower ones are dominated by it
                (`dominating_pair.nothing_known` where no such pair is known).
            tail_mass: Probability that may be moved to the sinks.
        """

    def parts(self, bound: Bound) -> "Mapping[Construction, int]":
        """Returns constructions with counts whose composition bounds one run."""
        return {self: 1}

    def reduced(self) -> "Mapping[Construction, int]":
        """Returns constructions with counts whose composition dominates one run.

        A second bound from above, looser or tighter than that of its pairs.
        """
        return self.parts(Bound.UPPER)

    def closed_delta(
        self, epsilon: float, direction: Direction, bound: Bound
    ) -> float | None:
        """Returns a certified δ of one run at ε, where it has a closed form."""
        return None

    def gaussian_precision(self) -> float:
        """Returns 1/σ² of a Gaussian mechanism that dominates one run, or inf."""
        return math.inf

    def largest_loss(self) -> float:
        """Returns a bound on the loss of one run in either direction, or inf."""
        return math.inf

    def is_symmetric(self) -> bool:
        """Tells whether both directions have the same profile."""
        return False


def pairs_of(
    construction: Construction, bound: Bound, tail_mass: float
) -> DirectedPairs:
    """Returns the pairs of one run; the last few dozen are kept."""
    return _pairs_of(construction, bound, max(tail_mass, _SMALLEST_TAIL_MASS))


@functools.lru_cache(maxsize=64)
def _pairs_of(
    construction: Construction, bound: Bound, tail_mass: float
) -> DirectedPairs:
    return construction.pairs(bound, tail_mass).map(dominating_pair.certain)


@dataclasses.dataclass(frozen=True)
class Gaussian(Construction):
    """The Gaussian mechanism of sensitivity one; runs of it are one with less noise."""

    noise_multiplier: float

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        return dominating_pair.both_ways(
            gaussian.dominating_pair_of(
                self.noise_multiplier, bound, tail_mass=tail_mass
            )
        )

    def closed_delta(
        self, epsilon: float, direction: Direction, bound: Bound
    ) -> float | None:
        return gaussian.delta(1 / self.noise_multiplier, epsilon, bound)

    def gaussian_precision(self) -> float:
        return self.noise_multiplier**-2

    def is_symmetric(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True, eq=False)
class Given(Construction):
    """A mechanism known by its pairs alone, on one side."""

    known: DirectedPairs

    @property
    def bound(self) -> Bound:
        """The side that is known."""
        return self.known.remove.bound

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        if bound is self.bound:
            return self.known
        return dominating_pair.both_ways(dominating_pair.nothing_known(bound))


@dataclasses.dataclass(frozen=True)
class Composed(Construction):
    """Constructions, each run so many times."""

    items: tuple[tuple[Construction, int], ...]

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        parts = flatten(dict(self.items), bound)
        copies = sum(parts.values())
        if not copies:
            return dominating_pair.both_ways(dominating_pair.nothing_known(Bound.LOWER))
        each = [
            (pairs_of(part, bound, _part_tail(part, tail_mass / copies)), count)
            for part, count in parts.items()
        ]

        def composed(direction: Direction) -> dominating_pair.DominatingPair:
            return composed_pair.compose(
                [(pairs.of(direction), count) for pairs, count in each],
                tail_mass=tail_mass,
            )

        remove = composed(Direction.REMOVE)
        if all(pairs.remove is pairs.add for pairs, _ in each):
            return dominating_pair.both_ways(remove)
        return DirectedPairs(remove, composed(Direction.ADD))

    def parts(self, bound: Bound) -> Mapping[Construction, int]:
        return dict(self.items)

    def gaussian_precision(self) -> float:
        return math.fsum(n * part.gaussian_precision() for part, n in self.items)

    def largest_loss(self) -> float:
        return math.fsum(n * part.largest_loss() for part, n in self.items)

    def is_symmetric(self) -> bool:
        return all(part.is_symmetric() for part, _ in self.items)


@dataclasses.dataclass(frozen=True)
class NonPrivate(Construction):
    """What has no privacy: every loss counts as infinite.

    Attributes:
        chance: Probability that it ran on the record, which is what lower bounds
            count.
    """

    chance: float = 1.0

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        revealed = dominating_pair.nothing_known(Bound.UPPER)
        if bound is Bound.UPPER:
            return dominating_pair.both_ways(revealed)
        revealed = dataclasses.replace(revealed, bound=bound)
        return dominating_pair.both_ways(
            poisson_subsampling.poisson_subsample(revealed, self.chance)
        )

    def on_a_sample(self, chance: float) -> "NonPrivate":
        """Returns the same where it runs with some probability."""
        return NonPrivate(self.chance * chance * (1 - dominating_pair.UNIT_ROUNDOFF))


NOTHING = Composed(())


def unpacked(counts: Mapping[Construction, int]) -> dict[Construction, int]:
    """Returns what is composed, with counts, compositions taken apart."""
    parts: dict[Construction, int] = {}
    stack = list(counts.items())[::-1]
    while stack:
        part, count = stack.pop()
        if isinstance(part, Composed):
            inner = [(each, number * count) for each, number in part.items]
            stack += reversed(inner)
        else:
            parts[part] = parts.get(part, 0) + count
    return parts


def composed(counts: Mapping[Construction, int]) -> Construction:
    """Returns the composition of constructions with counts."""
    parts = unpacked(counts)
    revealed = [part for part in parts if isinstance(part, NonPrivate)]
    if revealed:
        return max(revealed, key=lambda part: part.chance)
    if len(parts) == 1 and all(count == 1 for count in parts.values()):
        return next(iter(parts))
    return Composed(tuple(parts.items()))


def poisson_sampled(sampling_probability: float, inner: Construction) -> Construction:
    """Returns a construction on a Poisson sample; what is not sampled costs nothing."""
    if sampling_probability == 0:
        return NOTHING
    if sampling_probability == 1 or inner == NOTHING:
        return inner
    if isinstance(inner, NonPrivate):
        return inner.on_a_sample(sampling_probability)
    return PoissonSampled(sampling_probability, inner)


def random_allocation_of(
    inner: Construction, num_selected: int, num_steps: int
) -> Construction:
    """Returns the k-out-of-t random allocation of a construction."""
    if inner == NOTHING or isinstance(inner, NonPrivate):
        return inner
    if num_selected == num_steps:
        return composed({inner: num_steps})
    return RandomAllocation(inner, num_selected, num_steps)


@dataclasses.dataclass(frozen=True)
class PoissonSampled(Construction):
    """A construction on a Poisson sample."""

    sampling_probability: float
    inner: Construction

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        return pairs_of(self.inner, bound, tail_mass).map(
            lambda pair: poisson_subsampling.poisson_subsample(
                pair, self.sampling_probability
            )
        )

    def gaussian_precision(self) -> float:
        return self.inner.gaussian_precision()

    def largest_loss(self) -> float:
        loss = self.inner.largest_loss()
        if loss > 700:
            return loss
        return math.log1p(self.sampling_probability * math.expm1(loss))


@dataclasses.dataclass(frozen=True)
class RandomAllocation(Construction):
    """k-out-of-t random allocation of a construction."""

    inner: Construction
    num_selected: int
    num_steps: int

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        steps = self.num_steps
        if self.num_selected == 1:
            base = pairs_of(self.inner, bound, _base_tail(self.inner, tail_mass, steps))
            return base.map(
                lambda pair: random_allocation.random_allocation(
                    pair, steps, tail_mass=tail_mass
                )
            )
        base = pairs_of(self.inner, bound, _base_tail(self.inner, tail_mass, steps))
        if bound is Bound.UPPER:
            blocks = self.blocks().pairs(bound, tail_mass)
            remove = k_out_of_t.upper_pair(
                base.remove,
                self.num_selected,
                steps,
                blocks.remove,
                tail_mass=tail_mass,
            )
            return DirectedPairs(remove, blocks.add)
        remove = k_out_of_t.lower_pair(
            base.remove, self.num_selected, steps, tail_mass=tail_mass
        )
        # The sum alone is as good when a record is added, and quicker.
        add = allocation_by_sum.lower_pair(
            base.add, self.num_selected, steps, Direction.ADD, tail_mass=tail_mass
        )
        return DirectedPairs(remove, add)

    def reduced(self) -> Mapping[Construction, int]:
        """Returns the blocks, which dominate one run when composed."""
        return {self: 1} if self.num_selected == 1 else self.blocks().parts(Bound.UPPER)

    def blocks(self) -> Construction:
        """Returns the 1-out-of-b allocations whose composition dominates one run.

        The t steps are cut into k blocks of ⌊t/k⌋ and ⌈t/k⌉ steps, at random,
        and one step is drawn in each. Its ratio given the outputs, averaged over
        the cut, is that of the mechanism: a conditional expectation. A lower
        bound of the composition is one of the mechanism only for k = 1 and k = t.

        Source:
            https://arxiv.org/abs/2602.17284, Lemma 2.8, the remainder of t / k
            kept.
        """
        size, longer = divmod(self.num_steps, self.num_selected)
        counts = {size: self.num_selected - longer, size + 1: longer}
        return Composed(
            tuple(
                (
                    self.inner
                    if steps == 1
                    else RandomAllocation(self.inner, 1, steps),
                    number,
                )
                for steps, number in counts.items()
                if number
            )
        )

    def gaussian_precision(self) -> float:
        return self.num_selected * self.inner.gaussian_precision()

    def largest_loss(self) -> float:
        return self.num_selected * self.inner.largest_loss()


@dataclasses.dataclass(frozen=True)
class ScheduledAllocation(Construction):
    """One of t steps, which may differ, and of which only the first may have run.

    The mean of one ratio a step; of a step that never ran the ratio is 1.
    """

    items: tuple[tuple[Construction, int], ...]
    num_steps: int

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        run = sum(count for _, count in self.items)
        each = [
            (pairs_of(part, bound, _base_tail(part, tail_mass, self.num_steps)), count)
            for part, count in self.items
        ]

        def mean(direction: Direction) -> dominating_pair.DominatingPair:
            return poisson_subsampling.poisson_subsample(
                random_allocation.uneven_allocation(
                    [(pairs.of(direction), count) for pairs, count in each],
                    tail_mass=tail_mass,
                ),
                run / self.num_steps,
            )

        remove = mean(Direction.REMOVE)
        if all(pairs.remove is pairs.add for pairs, _ in each):
            return dominating_pair.both_ways(remove)
        return DirectedPairs(remove, mean(Direction.ADD))

    def gaussian_precision(self) -> float:
        return max(part.gaussian_precision() for part, _ in self.items)

    def largest_loss(self) -> float:
        return max(part.largest_loss() for part, _ in self.items)


def scheduled_allocation_of(
    counts: Mapping[Construction, int], num_steps: int
) -> Construction:
    """Returns 1-out-of-t allocation over steps that differ or never ran."""
    revealed = {part: n for part, n in counts.items() if isinstance(part, NonPrivate)}
    if revealed:
        worst = max(revealed, key=lambda part: part.chance * revealed[part])
        return worst.on_a_sample(revealed[worst] / num_steps)
    ran = {part: count for part, count in counts.items() if part != NOTHING}
    if not ran:
        return NOTHING
    return ScheduledAllocation(tuple(ran.items()), num_steps)


def _base_tail(inner: Construction, tail_mass: float, num_steps: int) -> float:
    """Returns the tail that each of many steps may have."""
    return _part_tail(inner, tail_mass / num_steps / 100)


def _part_tail(part: Construction, tail_mass: float) -> float:
    """Returns a tail for a part, one of few where the part has parts of its own.

    What is used twice on every level of a tree must not be computed for as many tails
    as there are paths to it.
    """
    tail_mass = max(tail_mass, _SMALLEST_TAIL_MASS)
    if isinstance(part, PoissonSampled | RandomAllocation | ScheduledAllocation):
        return _COARSE_TAILS ** math.floor(math.log(tail_mass, _COARSE_TAILS))
    return tail_mass


def flatten(
    counts: Mapping[Construction, int], bound: Bound, *, reduced: bool = False
) -> dict[Construction, int]:
    """Returns constructions that have no parts but themselves, with counts.

    All Gaussians are one, rounded to the bound's side.

    Args:
        counts: What is composed, and how often.
        bound: The side to bound it from.
        reduced: Whether to take what dominates a construction for it.
    """
    flat: dict[Construction, int] = {}
    stack = list(counts.items())
    while stack:
        construction, count = stack.pop()
        parts = construction.reduced() if reduced else construction.parts(bound)
        if construction in parts:
            flat[construction] = flat.get(construction, 0) + count
        else:
            stack += [(part, count * number) for part, number in parts.items()]
    gaussians = {c: n for c, n in flat.items() if isinstance(c, Gaussian)}
    if sum(gaussians.values()) <= 1:
        return flat
    precision = math.fsum(n * c.gaussian_precision() for c, n in gaussians.items())
    rounding = 4 * dominating_pair.UNIT_ROUNDOFF
    if bound is Bound.UPPER:
        rounding = -rounding
    merged: dict[Construction, int] = {
        Gaussian((1 + rounding) / math.sqrt(precision)): 1
    }
    return merged | {c: n for c, n in flat.items() if c not in gaussians}
