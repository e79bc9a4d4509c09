"""Mechanisms under random allocation."""

import collections
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import math

import numpy as np

from dp_accounting_ext.amplification import counts
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.amplification import scores
from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.amplification import two_out_of_t
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_curves
from dp_accounting_ext.pairs import profile_pairs
from dp_accounting_ext.renyi import gaussian_allocation as renyi_allocation
from dp_accounting_ext.renyi import ratio_moments

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
Hinges = profile_pairs.Hinges
Mechanism = interface.Mechanism

# Certified: the relative rounding error of a sum of positive terms, each of which has a
# few products and sums.
_ROUNDING = 16 * floats.UNIT_ROUNDOFF

# Tuning, all of these constants.
# The bounds on k of t steps that are computed besides blocks of one draw. Let v be the
# variance of a step's ratio, so that v k/t is about that of the mean ratio in a block.
# What blocks lose is about this, times k/10 if k is larger than ten, plus the share by
# which unequal sizes of blocks raise the variance of the loss: if that is at most
# `_LITTLE`, other bounds lose more by their lattices. The theorem is tried if v k²/t
# times ln(1/δ) is above `_FEW`; without this, 5 of 65,536 steps take twice as long for
# the same bound. Blocks of two draws are tried unless v k³/t is above `_MANY` and t is
# at least 3k; without this, 51 of 619 steps take 2.4 times as long for the same bound.
# These blocks are of one size, which takes half as long as two sizes, if a last block
# of one draw then differs by at most the share `_UNEVEN`.
_LITTLE, _FEW, _MANY, _UNEVEN = 0.02, 3.0, 200.0, 0.05
# Where sums and single steps reveal the same but for this share of the mean loss, sums
# are taken, as their law has a closed form.
_NEGLIGIBLE = 1e-3

# A limit: the ways in which k steps may be divided among kinds of steps.
_MOST_WAYS = 128


def allocate(inner: Mechanism, num_selected: int, num_steps: int) -> Mechanism:
    """Returns the k-out-of-t random allocation of a mechanism."""
    if inner == compositions.NO_OP:
        return inner
    if isinstance(inner, known_bounds.NonPrivate):
        # Only the steps in which a record takes part may reveal it.
        return compositions.compose({inner: num_selected})
    if num_selected == num_steps:
        return compositions.compose({inner: num_steps})
    items = ((inner, num_steps),)
    if num_selected == 1:
        return OneOfSteps(items, num_steps)
    return SeveralOfSteps(items, num_selected)


def allocate_to_schedule(numbers: Mapping[Mechanism, int], num_steps: int) -> Mechanism:
    """Returns 1-out-of-t allocation over steps that differ or never ran."""
    ran = {part: count for part, count in numbers.items() if part != compositions.NO_OP}
    revealing = [
        (part.record, ran.pop(part))
        for part in list(ran)
        if isinstance(part, known_bounds.NonPrivate)
    ]
    null_probability = float(
        num_steps - sum(ran.values()) - sum(count for _, count in revealing)
    )
    infinity_mass = (
        math.fsum(count * probability for (probability, _), count in revealing)
        / num_steps
    )
    null_probability += math.fsum(count * rest for (_, rest), count in revealing)
    if ran and num_steps == 1:
        return next(iter(ran))  # It is no allocation.
    if ran:
        return OneOfSteps(
            tuple(ran.items()), num_steps, null_probability / num_steps, infinity_mass
        )
    if infinity_mass:
        return known_bounds.NonPrivate((infinity_mass, null_probability / num_steps))
    return compositions.NO_OP


def allocate_several(
    numbers: Mapping[Mechanism, int], num_selected: int, num_steps: int
) -> Mechanism | None:
    """Returns k-out-of-t allocation over steps that differ or never ran, k > 1.

    None if a step has no privacy.
    """
    never = num_steps - sum(numbers.values())
    counts = collections.Counter(numbers)
    counts[compositions.NO_OP] += never
    kinds = tuple((kind, count) for kind, count in counts.items() if count)
    if len(kinds) == 1:
        return allocate(kinds[0][0], num_selected, num_steps)
    if num_selected == num_steps:
        return compositions.compose(dict(kinds))
    if any(isinstance(kind, known_bounds.NonPrivate) for kind, _ in kinds):
        return None
    return SeveralOfSteps(kinds, num_selected)


def sum_reveals_more(members: float, precision: float, rarity: float) -> bool:
    """Returns whether the sum of all outputs reveals more than members' single steps.

    It compares the mean losses, under P, of many runs: that of the sum is in proportion
    to g² / rarity for g members. That of the single steps of one member is in
    proportion to the smaller of (e^precision − 1) / (precision · rarity) and 1.

    Args:
        members: The number of members, over the number whose single steps are counted.
        precision: 1/σ² of the noise of a step.
        rarity: The number of steps among which one is drawn.
    """
    if precision > floats.LARGEST_EXPONENT:
        return True  # The ratios of single steps fit no float.
    single = min(math.expm1(precision) / precision, rarity)
    return members**2 >= single * (1 - _NEGLIGIBLE)


@dataclasses.dataclass(frozen=True)
class OneOfSteps(Mechanism):
    """1-out-of-t allocation over steps that may differ, or that never ran.

    The likelihood ratio is the mean of the steps' ratios. A step that never ran has
    the ratio 1. A step without privacy has the ratio infinity or 0.

    Attributes:
        items: The steps that ran and have privacy, with counts.
        num_steps: The number of steps planned, t.
        null_probability: The probability that a record's step releases nothing.
        infinity_mass: The probability that a record's step releases everything.
            Both probabilities, and the counts of `items` divided by t, sum to one. None
            of them is computed as a difference.
    """

    items: tuple[tuple[Mechanism, int], ...]
    num_steps: int
    null_probability: float = 0.0
    infinity_mass: float = 0.0

    @property
    def inner(self) -> Mechanism | None:
        """The mechanism of every step, or None if steps differ or never ran."""
        if len(self.items) > 1 or self.null_probability or self.infinity_mass:
            return None
        return self.items[0][0]

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        pairs_of_steps = [
            _pairs_of_step(part, bound, accuracy, self.num_steps)
            for part, _ in self.items
        ]

        def mean(pairs: Sequence[DominatingPair]) -> DominatingPair:
            steps = [
                random_allocation.Steps(pair, count)
                for pair, (_, count) in zip(pairs, self.items, strict=True)
            ]
            return self._diluted(random_allocation.uneven_allocation(steps, accuracy))

        return DirectedPairs.combined(pairs_of_steps, mean)

    def _diluted(self, mean: DominatingPair) -> DominatingPair:
        """Returns the pair of all t steps, from that of the steps of `items` alone."""
        if not (self.null_probability or self.infinity_mass):
            return mean
        share = sum(count for _, count in self.items) / self.num_steps
        ratios, masses = self.null_probability + share * mean.ratios, mean.masses
        zero_mass = mean.zero_mass
        if self.null_probability and zero_mass:
            ratios = np.append(self.null_probability, ratios)
            masses = np.append(zero_mass, masses)
            zero_mass = 0.0
        return dataclasses.replace(
            mean,
            ratios=ratios,
            masses=masses,
            infinity_mass=self.infinity_mass + share * mean.infinity_mass,
            zero_mass=zero_mass,
            mass_error=mean.mass_error + _ROUNDING,
            ratio_error=mean.ratio_error + _ROUNDING,
        )

    def rdp(self, orders: Sequence[float]) -> interface.Divergences | None:
        """Returns the divergences of the pairs, or of a step where these are smaller.

        A mean of ratios is no farther from one than the ratios. If the steps are
        Gaussian, the divergences are also computed by a theorem, which is exact at
        integer orders if a record is removed.
        """
        if self.inner is None:
            return None
        by_theorem = _gaussian_rdp(self.inner, [(self.num_steps, 1)], orders)
        if by_theorem is not None:
            return by_theorem
        values, failure_probability = renyi_curves.upper(self, orders)
        step = renyi_curves.of(self.inner, orders)
        if step.failure_probability <= failure_probability:
            values = np.minimum(values, step.values)
        return interface.Divergences(values, failure_probability)

    def draws(self) -> interface.Draws:
        parts = tuple((part, 1 / self.num_steps, count) for part, count in self.items)
        return interface.Draws(parts, self.null_probability, self.infinity_mass)

    def basis(self, bound: Bound) -> str:
        return f"the mean of the steps' likelihood ratios, {_bases(self.items, bound)}"

    def sum_of(self, members: int) -> Mechanism | None:
        return _sum_of_outputs(self.inner, 1, self.num_steps, members)

    def claims(self) -> interface.Claims:
        if self.infinity_mass:
            return interface.NO_CLAIMS
        claims = [part.claims() for part, _ in self.items]
        return _of_drawn(claims, self.inner, 1, self.num_steps)


@dataclasses.dataclass(frozen=True)
class SeveralOfSteps(Mechanism):
    """k-out-of-t allocation over steps of one or of several kinds, 1 < k < t.

    Attributes:
        items: The kinds of steps, with counts, which sum to t.
        num_selected: The number of steps in which a record takes part, k.
    """

    items: tuple[tuple[Mechanism, int], ...]
    num_selected: int

    @property
    def inner(self) -> Mechanism | None:
        """The mechanism of every step, or None if steps differ."""
        return None if len(self.items) > 1 else self.items[0][0]

    @property
    def num_steps(self) -> int:
        """The number of steps, t."""
        return sum(count for _, count in self.items)

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        pairs_of_kinds = [
            _pairs_of_step(kind, bound, accuracy, self.num_steps)
            for kind, _ in self.items
        ]
        if bound is Bound.LOWER:
            return self._lower_pairs(pairs_of_kinds, accuracy)
        if self.inner is not None:
            return self._by_blocks(pairs_of_kinds[0], accuracy)
        return self._upper_pairs(pairs_of_kinds, accuracy)

    def _kinds(
        self, pairs_of_kinds: Sequence[DirectedPairs], direction: Direction
    ) -> list[step_laws.Kind]:
        return [
            step_laws.Kind(pairs.of(direction), count)
            for pairs, (_, count) in zip(pairs_of_kinds, self.items, strict=True)
        ]

    def _lower_pairs(
        self, pairs_of_kinds: Sequence[DirectedPairs], accuracy: Accuracy
    ) -> DirectedPairs:
        ways = self._ways()
        if not ways:
            return DirectedPairs.same(dominating_pair.trivial_pair(Bound.LOWER))
        remove, add = (
            scores.lower_pair(
                self._kinds(pairs_of_kinds, direction),
                self.num_selected,
                ways,
                direction,
                tail_mass=accuracy.tail_mass,
            )
            for direction in Direction
        )
        return DirectedPairs(remove, add)

    def _upper_pairs(
        self, pairs_of_kinds: Sequence[DirectedPairs], accuracy: Accuracy
    ) -> DirectedPairs:
        """Returns the smallest of several bounds for steps that differ."""
        ways = self._ways()
        uppers = [self._shrunk().pairs(Bound.UPPER, accuracy)]
        if ways:
            uppers.append(self._released(ways, accuracy))
        one_of_steps = allocate_to_schedule(dict(self.items), self.num_steps)
        remove = counts.upper_pair(
            self._kinds(pairs_of_kinds, Direction.REMOVE),
            self.num_selected,
            [pairs.remove for pairs in uppers],
            mean=one_of_steps.pairs(Bound.UPPER, accuracy).remove,
            tail_mass=accuracy.tail_mass,
        )
        added = [Hinges.of(dominating_pair.dual(pairs.add)) for pairs in uppers]
        add = dominating_pair.dual(profile_pairs.least(added))
        return DirectedPairs.same(profile_pairs.joined(remove, add))

    def _ways(self) -> list[tuple[tuple[int, ...], float]]:
        """Returns how many of the k steps may be of each kind, with probabilities.

        Probabilities that fit no float are raised to `floats.SMALLEST_MASS`. The list
        is empty if there are too many ways.
        """
        counts = [count for _, count in self.items]
        ranges = [range(min(count, self.num_selected) + 1) for count in counts[:-1]]
        if math.prod(map(len, ranges)) > _MOST_WAYS:
            return []
        ways = []
        for firsts in itertools.product(*ranges):
            last = self.num_selected - sum(firsts)
            if 0 <= last <= counts[-1]:
                numbers = (*firsts, last)
                sets = math.prod(map(math.comb, counts, numbers))
                all_sets = math.comb(sum(counts), self.num_selected)
                ways.append((numbers, max(sets / all_sets, floats.SMALLEST_MASS)))
        return ways

    def _by_blocks(self, step: DirectedPairs, accuracy: Accuracy) -> DirectedPairs:
        """Returns the smallest of several bounds, without those that gain nothing.

        If blocks of one draw lose little, the other bounds lose more by rounding to
        their lattices.
        """
        draws, steps = self.num_selected, self.num_steps
        blocks = self.blocks().pairs(Bound.UPPER, accuracy)
        with np.errstate(over="ignore"):
            squares = step.remove.masses * (step.remove.ratios - 1) ** 2
            variance = float(squares.sum())
        in_block = variance * draws / steps
        inverses = sum(number / size for size, number in self._block_sizes())
        uneven = inverses * steps / draws**2 - 1
        if in_block * max(1.0, draws / 10) + uneven <= _LITTLE:
            return blocks
        by_blocks = [blocks]
        if steps < 3 * draws or draws**2 * in_block <= _MANY:
            by_blocks.append(self.in_twos().pairs(Bound.UPPER, accuracy))
        removed = [pairs.remove for pairs in by_blocks]
        if draws * in_block * -math.log(accuracy.frequent_delta) > _FEW:
            remove = counts.upper_pair(
                [step_laws.Kind(step.remove, steps)],
                draws,
                removed,
                tail_mass=accuracy.tail_mass,
            )
        else:
            remove = profile_pairs.least([Hinges.of(pair) for pair in removed])
        added = [Hinges.of(dominating_pair.dual(pairs.add)) for pairs in by_blocks]
        return DirectedPairs(remove, dominating_pair.dual(profile_pairs.least(added)))

    def blocks(self) -> compositions.Composition:
        """Returns the 1-out-of-b allocations whose composition dominates one run.

        The steps must be of one kind. They are divided at random into k blocks of
        ⌊t/k⌋ or ⌈t/k⌉ steps, and one step is drawn in each block. The mechanism's
        likelihood ratio is the mean of the composition's ratio over the divisions,
        which is a conditional expectation given the outputs. A lower bound on the
        composition is a lower bound on the mechanism only for k = 1 and k = t.

        Source:
            https://arxiv.org/abs/2602.17284, Lemma 2.8. Here no steps are dropped if k
            does not divide t.
        """
        ((inner, _),) = self.items
        return compositions.Composition(
            tuple(
                (allocate(inner, 1, steps), number)
                for steps, number in self._block_sizes()
            )
        )

    def _block_sizes(self) -> list[tuple[int, int]]:
        """Returns each size of a block in steps, and the number of such blocks."""
        size, longer = divmod(self.num_steps, self.num_selected)
        blocks = [(size, self.num_selected - longer), (size + 1, longer)]
        return [(steps, number) for steps, number in blocks if number]

    def in_twos(self) -> compositions.Composition:
        """Returns allocations of two draws whose composition dominates one run.

        The steps are divided into blocks of two draws each, and a last block of one
        draw if k is odd. The number of steps in a block is about in proportion to its
        draws. Up to the error of its computation, this composition is dominated by that
        of blocks of one draw. The steps must be of one kind.
        """
        ((inner, _),) = self.items
        number, is_odd = divmod(self.num_selected, 2)
        # The steps of a last block of one draw, if k is odd.
        last = round(is_odd * self.num_steps / self.num_selected)
        even = self.num_steps - number * round((self.num_steps - last) / number)
        if abs(even - last) <= _UNEVEN * last:
            last = even
        size, longer = divmod(self.num_steps - last, number)
        blocks = [(2, size, number - longer), (2, size + 1, longer), (1, last, is_odd)]
        return compositions.Composition(
            tuple(
                (
                    allocate(inner, drawn, length)
                    if drawn in (1, length)
                    else known_bounds.ByFunction(
                        _pairs_of_two_draws, (inner, length), side=Bound.UPPER
                    ),
                    count,
                )
                for drawn, length, count in blocks
                if count
            )
        )

    def _released(
        self, ways: Sequence[tuple[tuple[int, ...], float]], accuracy: Accuracy
    ) -> DirectedPairs:
        """Returns upper pairs if the number of steps of each kind were released.

        Given these numbers, a record is in a uniformly random set of steps of each
        kind, which is bounded by blocks of one draw.
        """
        parts = []
        for numbers, _ in ways:
            counts: collections.Counter[Mechanism] = collections.Counter()
            for (kind, count), number in zip(self.items, numbers, strict=True):
                if number:
                    drawn = allocate(kind, number, count)
                    if isinstance(drawn, SeveralOfSteps):
                        drawn = drawn.blocks()
                    counts[drawn] += 1
            parts.append(compositions.compose(counts).pairs(Bound.UPPER, accuracy))
        weights = [weight for _, weight in ways]
        return DirectedPairs.combined(
            parts, lambda pairs: dominating_pair.mixture(pairs, weights)
        )

    def _shrunk(self) -> Mechanism:
        """Returns allocations with smaller losses, a bound if a record is added.

        The ratio of v of the n steps of a kind is log-concave in v, and 1 for v = 0. So
        that of k of the t steps, a mean over v, is at least the product over the kinds
        of that of m of the n steps, m = min(k, n), to the power k n / (t m).

        Source:
            docs/mathematics.md, "Steps that differ".
        """
        parts: collections.Counter[Mechanism] = collections.Counter()
        for kind, count in self.items:
            if kind != compositions.NO_OP:
                drawn = min(self.num_selected, count)
                share = self.num_selected * count / (self.num_steps * drawn)
                arguments = allocate(kind, drawn, count), share
                shrunk = known_bounds.ByFunction(
                    _pairs_of_shrunk, arguments, side=Bound.UPPER
                )
                parts[shrunk] += 1
        return compositions.compose(parts)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences | None:
        """Returns the Rényi divergences of the blocks, if the steps are Gaussian."""
        if self.inner is None:
            return None
        return _gaussian_rdp(self.inner, self._block_sizes(), orders)

    def basis(self, bound: Bound) -> str:
        if bound is Bound.LOWER:
            bounds = "a sum of scores, one for each step"
        elif self.inner is not None:
            bounds = (
                "the smallest of blocks with one draw each, blocks with two draws "
                "each, and a bound by counts"
            )
        else:
            bounds = (
                "the smallest of a bound by counts, a power of the mean of the steps' "
                "likelihood ratios, and released counts"
            )
        return f"{bounds}, {_bases(self.items, bound)}"

    def sum_of(self, members: int) -> Mechanism | None:
        return _sum_of_outputs(self.inner, self.num_selected, self.num_steps, members)

    def claims(self) -> interface.Claims:
        claims = [
            interface.claims_of({kind: self.num_selected}) for kind, _ in self.items
        ]
        return _of_drawn(claims, self.inner, self.num_selected, self.num_steps)


def _pairs_of_two_draws(
    inner: Mechanism, num_steps: int, bound: Bound, accuracy: Accuracy
) -> DirectedPairs:
    """Returns upper pairs of 2-out-of-t allocation, by means over groups of steps.

    Args:
        inner: The mechanism of one step.
        num_steps: The number t of steps, t > 2.
        bound: The upper side.
        accuracy: What the pairs are for.
    """
    return _pairs_of_step(inner, bound, accuracy, num_steps).map(
        lambda pair: two_out_of_t.two_out_of_t(
            pair, num_steps, tail_mass=accuracy.tail_mass
        )
    )


def _pairs_of_shrunk(
    inner: Mechanism, share: float, bound: Bound, accuracy: Accuracy
) -> DirectedPairs:
    """Returns upper pairs of losses multiplied by a share, if a record is added.

    Nothing is known if a record is removed.

    Args:
        inner: The mechanism whose losses are multiplied.
        share: The share, at most 1, which may be off by a few units of rounding.
        bound: The upper side.
        accuracy: What the pairs are for.
    """
    pair = dominating_pair.dual(interface.pairs_of_part(inner, bound, accuracy).add)
    losses = share * np.log(pair.ratios)
    error = _ROUNDING * (1 + float(np.abs(losses).max(initial=0.0)))
    hinges = Hinges(
        np.exp(losses),
        pair.p_masses * np.exp(-losses),
        infinity_mass=pair.infinity_mass,
        mass_error=pair.mass_error + pair.ratio_error + error,
        ratio_error=pair.ratio_error + error,
    )
    add = dominating_pair.dual(profile_pairs.least([hinges]))
    return DirectedPairs(dominating_pair.trivial_pair(bound), add)


def _bases(items: Sequence[tuple[Mechanism, int]], bound: Bound) -> str:
    """Returns in words what bounds a step."""
    bases = dict.fromkeys(part.basis(bound) for part, _ in items)
    return f"each step by {' or by '.join(bases)}"


def _of_drawn(
    drawn: list[interface.Claims],
    inner: Mechanism | None,
    num_selected: int,
    num_steps: int,
) -> interface.Claims:
    """Returns which claims of the steps that are drawn hold for all steps.

    The tail of Gaussian steps is tighter if a record is added. The ratio is the mean of
    all products of k of the t ratios. It is at least their geometric mean, which is the
    product of all t ratios to the power k / t.

    Args:
        drawn: What is known of k runs of each kind of step.
        inner: The mechanism of every step, or None if steps differ or never ran.
        num_selected: The number of steps that are drawn, k.
        num_steps: The number of steps, t.
    """
    either = interface.claims_of_either(drawn)
    claims = interface.Claims(
        either.largest_loss,
        gaussian_precision=either.gaussian_precision,
        tail=either.tail,
    )
    step = compositions.as_gaussian(inner) if inner is not None else None
    if step is None:
        return claims
    moved = num_selected * step.mean * interface.LOSS_ROUNDED_UP
    tail = moved * step.mean / 2, moved / math.sqrt(num_steps)
    return dataclasses.replace(claims, added_tail=tail)


def _gaussian_rdp(
    inner: Mechanism, sizes: Sequence[tuple[int, int]], orders: Sequence[float]
) -> interface.Divergences | None:
    """Returns the Rényi divergences of blocks of Gaussian steps, or None.

    They are computed by a theorem and from pairs.

    Args:
        inner: The mechanism of each step. It is Gaussian unless None is returned.
        sizes: Each size of a block in steps, one of which is drawn; and the number of
            such blocks.
        orders: The orders.
    """
    step = compositions.as_gaussian(inner)
    if step is None or not ratio_moments.noise_within_range(step.noise_multiplier):
        return None
    noise = floats.lowered(step.noise_multiplier, 1e-15)
    above = [max(float(order), ratio_moments.LOWEST_ORDER) for order in orders]
    total = np.zeros((2, len(above)))
    for steps, count in sizes:
        removed = renyi_allocation.removing_rdp(above, noise, steps)
        added = removed
        if steps > 1:
            block = allocate(inner, 1, steps)
            pairs = renyi_curves.divergences(block, above, Bound.UPPER)
            removed, added = np.minimum(removed, pairs[0]), pairs[1]
        total += count * np.array([removed, added])
    return interface.Divergences(total.max(axis=0) * (1 + _ROUNDING))


def _sum_of_outputs(
    inner: Mechanism | None, num_selected: int, num_steps: int, members: int
) -> Mechanism | None:
    """Returns the mechanism that releases only the sum of all steps' outputs.

    Each member adds to k of the outputs, whichever steps are drawn. None if the noise
    is not Gaussian or differs, or if a single record reveals more.
    """
    if not isinstance(inner, additive_noise.Gaussian):
        return None
    noise = inner.noise_multiplier
    if not sum_reveals_more(members, noise**-2, num_steps / num_selected):
        return None
    deviation = noise * math.sqrt(num_steps)
    return additive_noise.Gaussian(floats.raised(deviation / (num_selected * members)))


def _pairs_of_step(
    inner: Mechanism, bound: Bound, accuracy: Accuracy, num_steps: int
) -> DirectedPairs:
    """Returns the pairs of one of many steps, with its share of the tail mass."""
    return interface.pairs_of_part(inner, bound, accuracy.shared(num_steps).shared(100))
