"""The ways of drawing batches of which something is known if noise is correlated.

Source:
    docs/matrix.md, for all bounds.
"""

from collections.abc import Mapping
import dataclasses
import functools
import math

import numpy as np
from scipy import stats

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated import bins
from dp_accounting_ext.correlated import runs
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.chains import block_chains
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import gauss_markov
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
Mechanism = interface.Mechanism
Strategy = strategies.Strategy

# Certified: the relative error of SciPy's binomial masses, if they are above the second
# number.
_BINOMIAL_ERROR, _LEAST_BINOMIAL = 1e-9, 1e-280
# If the probability that a record takes no part in a block is smaller than this, the
# upper bound assumes that it takes part in every block.
_LEAST_ABSENCE = 1e-30


@dataclasses.dataclass(frozen=True)
class BallsInBins(runs.Schedule):
    """Each record draws one of the bins, and takes part in its step of each epoch."""

    num_bins: int

    def mechanism(self, strategy: Strategy, noise_multiplier: float) -> Mechanism:
        return bins.allocate(strategy, noise_multiplier, self.num_bins, self.num_steps)


@dataclasses.dataclass(frozen=True)
class FreshWindows(runs.Schedule):
    """In each cycle a record that is sampled takes part in one step of a window."""

    window: int
    num_cycles: int
    sampling_probability: float

    def mechanism(self, strategy: Strategy, noise_multiplier: float) -> Mechanism:
        run = bins.Bins(
            strategy, noise_multiplier, self.window, self.window, is_cut=False
        )
        below, above = (
            subsampled.on_poisson_sample(self.sampling_probability, run.side(bound))
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        return compositions.compose(
            {known_bounds.between(below, above): self.num_cycles}
        )


@dataclasses.dataclass(frozen=True)
class CyclicPoisson(runs.RandomSteps):
    """Poisson samples of secret groups in turn, of one group for each step of a cycle.

    With a cycle of one step these are Poisson samples of all records. The upper bound
    reveals the group of the record, and has independent noise.
    """

    basis_above = "independent noise over the norm of a group's columns, group revealed"

    sampling_probability: float
    cycle_length: int

    @property
    def num_cycles(self) -> int:
        """The largest number of steps of a group."""
        return -(-self.num_steps // self.cycle_length)

    def simpler(self, strategy: Strategy, noise_multiplier: float) -> Mechanism | None:
        length = self.cycle_length
        if self.sampling_probability == 0:
            return compositions.NO_OP
        is_whole = self.num_steps % length == 0 and length <= strategies.MOST_BINS
        if self.sampling_probability < 1 or not is_whole:
            return None
        return bins.allocate(strategy, noise_multiplier, length, self.num_steps)

    def independent(self, step: Mechanism, first: int) -> Mechanism:
        """Returns the allocation of one of the groups."""
        sampled = subsampled.on_poisson_sample(self.sampling_probability, step)
        groups: dict[Mechanism, int] = {}
        for steps, number in self._groups(first):
            if steps and number:
                # If everything is revealed, both numbers have the same mechanism.
                group = compositions.compose({sampled: steps})
                groups[group] = groups.get(group, 0) + number
        if self.cycle_length == 1:
            return next(iter(groups))
        if len(groups) == 1 and sum(groups.values()) == self.cycle_length:
            return allocated.allocate(next(iter(groups)), 1, self.cycle_length)
        return allocated.allocate_to_schedule(groups, self.cycle_length)

    def numbers(self, first: int) -> tuple[FloatArray, float]:
        probabilities = np.zeros(first // self.cycle_length + 2)
        numbers = np.arange(probabilities.size)
        for steps, groups in self._groups(first):
            law = stats.binom.pmf(numbers, steps, self.sampling_probability)
            probabilities += groups / self.cycle_length * law
        # A number of steps that is too rare for SciPy's accuracy is counted as none.
        rare = probabilities < _LEAST_BINOMIAL
        probabilities[0] += probabilities[rare].sum()
        probabilities[1:][rare[1:]] = 0.0
        return probabilities, _BINOMIAL_ERROR

    def above(
        self, strategy: Strategy, noise_multiplier: float
    ) -> Mapping[Mechanism, int]:
        precision = self._precision_of_group(strategy, noise_multiplier)
        step = bins.gaussian(precision, Bound.UPPER)
        sample = subsampled.on_poisson_sample(self.sampling_probability, step)
        return {sample: self.num_cycles}

    def precision(self, strategy: Strategy, noise_multiplier: float) -> float:
        return self.num_cycles * self._precision_of_group(strategy, noise_multiplier)

    def _precision_of_group(self, strategy: Strategy, noise_multiplier: float) -> float:
        return strategy.precision_above(
            noise_multiplier, self.num_steps, self.cycle_length
        )

    def _groups(self, first: int) -> list[tuple[int, int]]:
        """Returns how many of the first steps a group has, with numbers of groups."""
        cycles, left_over = divmod(first, self.cycle_length)
        return [(cycles + 1, left_over), (cycles, self.cycle_length - left_over)]


@dataclasses.dataclass(frozen=True)
class SelectedSteps(runs.RandomSteps):
    """Each record draws k of the t steps of every epoch, 1 ≤ k ≤ t.

    The upper bound is k of t steps with independent noise, or every step if it is known
    that these reveal less.
    """

    basis_above = (
        "k of t steps with independent noise over the strategy's norm, or all steps"
    )

    num_selected: int
    epoch_steps: int

    @property
    def num_epochs(self) -> int:
        """The number of epochs."""
        return self.num_steps // self.epoch_steps

    def simpler(self, strategy: Strategy, noise_multiplier: float) -> Mechanism | None:
        number = None
        if self.num_selected == self.epoch_steps:
            number = 1
        elif self.num_selected == self.num_epochs == 1:
            number = self.num_steps
        if number is None or number > strategies.MOST_BINS:
            return None
        return bins.allocate(strategy, noise_multiplier, number, self.num_steps)

    def independent(self, step: Mechanism, first: int) -> Mechanism | None:
        """Returns k of the t steps of each epoch.

        A record whose steps in the last epoch are not all among the first steps of the
        run is counted as one that takes no part in that epoch.
        """
        selected = self.num_selected
        epochs, steps_of_last = divmod(first, self.epoch_steps)
        epoch = allocated.allocate(step, selected, self.epoch_steps)
        counts = {epoch: epochs} if epochs else {}
        if steps_of_last >= selected:
            among_first = floats.lowered(self._among_first(steps_of_last)[-1], 1e-9)
            cut = allocated.allocate(step, selected, steps_of_last)
            last = subsampled.on_poisson_sample(min(among_first, 1.0), cut)
            counts[last] = counts.get(last, 0) + 1
        return compositions.compose(counts) if counts else None

    def numbers(self, first: int) -> tuple[FloatArray, float]:
        epochs, steps_of_last = divmod(first, self.epoch_steps)
        begun = epochs + (steps_of_last > 0)
        probabilities = np.zeros(begun * self.num_selected + 1)
        if steps_of_last:
            of_last = self._among_first(steps_of_last)
            probabilities[epochs * self.num_selected :] = of_last
        else:
            probabilities[-1] = 1.0
        return probabilities, 16 * (self.epoch_steps + 8) * floats.UNIT_ROUNDOFF

    def above(
        self, strategy: Strategy, noise_multiplier: float
    ) -> Mapping[Mechanism, int]:
        precision, of_all_steps = self._precisions(strategy, noise_multiplier)
        # The sum of k of t steps with independent noise moves by at least as much as
        # that Gaussian mechanism. So they reveal no less.
        share = self.num_selected / self.epoch_steps
        if of_all_steps <= precision * share * self.num_selected * self.num_epochs:
            return {bins.gaussian(of_all_steps, Bound.UPPER): 1}
        step = bins.gaussian(precision, Bound.UPPER)
        epoch = allocated.allocate(step, self.num_selected, self.epoch_steps)
        return {epoch: self.num_epochs}

    def precision(self, strategy: Strategy, noise_multiplier: float) -> float:
        precision, of_all_steps = self._precisions(strategy, noise_multiplier)
        return min(self.num_selected * self.num_epochs * precision, of_all_steps)

    def _precisions(
        self, strategy: Strategy, noise_multiplier: float
    ) -> tuple[float, float]:
        """Returns the precision of a step with independent noise, and of all steps."""
        arguments = noise_multiplier, self.num_steps
        return (
            strategy.precision_above(*arguments),
            strategy.precision_of_every_step(*arguments),
        )

    def _among_first(self, number: int) -> FloatArray:
        """Returns the law of the number of a record's k steps among an epoch's first.

        Args:
            number: The number of first steps, at least 1 and below t.

        Returns:
            (k + 1,) probabilities of 0, 1, …, k steps.
        """
        selected, steps = self.num_selected, self.epoch_steps
        among = np.arange(selected, dtype=np.float64)
        # The ratios of the hypergeometric probabilities of i + 1 and i steps.
        with np.errstate(divide="ignore"):
            ratios = (selected - among) * np.maximum(number - among, 0.0)
            others = steps - selected - number + among + 1
            ratios /= (among + 1) * np.maximum(others, 0.0)
        first = max(selected + number - steps, 0)
        law = np.zeros(selected + 1)
        # The ratios are multiplied from the largest probability outwards.
        top = first + int(np.count_nonzero(ratios[first:] > 1))
        law[top] = 1.0
        law[top + 1 :] = np.cumprod(ratios[top:])
        law[first:top] = np.cumprod(1 / ratios[first:top][::-1])[::-1]
        return np.asarray(law / law.sum())


@dataclasses.dataclass(frozen=True)
class MinSep(runs.RandomSteps):
    """A record that took part in a step is not sampled in the next b − 1 steps.

    The upper bound is the composition of ⌈n / b⌉ blocks of at most b steps. In each
    block a record takes part at most once, whatever its state at the start.

    Attributes:
        sampling_probability: The probability p, in (0, 1].
        separation: b ≥ 1.
        warm_start: Whether records are in their stationary state at the start.
    """

    basis_above = (
        "blocks of at most b steps, borders revealed, each from its worst state"
    )
    basis_below = "the sum of all outputs"

    sampling_probability: float
    separation: int
    warm_start: bool

    @property
    def num_blocks(self) -> int:
        """The number of blocks. No record takes part in more steps than this."""
        return -(-self.num_steps // self.separation)

    def block_length(self, bands: int) -> int:
        """Returns the number of steps of a block, at most b.

        Blocks are as short as their number allows. If there are several, they have as
        many steps as there are bands at least, so that only neighboring blocks share
        noise.

        Args:
            bands: The number of bands of the strategy.
        """
        shortest = -(-self.num_steps // self.num_blocks)
        return shortest if self.num_blocks == 1 else max(shortest, bands)

    @property
    def starts(self) -> FloatArray:
        """(m,) The probabilities of the step at which a record is first ready."""
        if not self.warm_start:
            return np.ones(1)
        starts = np.full(self.separation, self.sampling_probability)
        starts[0] = 1.0
        return starts / (1 + (self.separation - 1) * self.sampling_probability)

    def simpler(self, strategy: Strategy, noise_multiplier: float) -> Mechanism | None:
        return None if self.sampling_probability else compositions.NO_OP

    def independent(self, step: Mechanism, first: int) -> Mechanism | None:
        """Returns Poisson samples if b is one, or what is known without noise."""
        rate, starts = self.sampling_probability, self.starts
        if self.separation == 1:
            return compositions.compose(
                {subsampled.on_poisson_sample(rate, step): first}
            )
        if not known_bounds.is_certain(step):
            return None
        left = np.maximum(first - np.arange(starts.size), 0)
        absent = float(starts @ np.power(1 - rate, left))
        if rate < 1:
            revealed = float(starts @ -np.expm1(left * math.log1p(-rate)))
        else:
            revealed = float(starts[:first].sum())
        error = 8 * (starts.size + first + 8) * floats.UNIT_ROUNDOFF
        return known_bounds.NonPrivate((revealed, absent), error=error)

    def numbers(self, first: int) -> tuple[FloatArray, float]:
        probabilities = _counts(self, first)
        terms = self.num_steps + self.separation + probabilities.size
        return probabilities, 8 * terms * floats.UNIT_ROUNDOFF

    def above(
        self, strategy: Strategy, noise_multiplier: float
    ) -> Mapping[Mechanism, int]:
        bands = min(strategy.bands, self.separation, self.num_steps)
        products, error = strategy.by_distance(bands)
        products *= (1 + error) / noise_multiplier**2
        length = self.block_length(products.size)
        if math.pow(1 - self.sampling_probability, length) < _LEAST_ABSENCE:
            of_all_steps = self.precision(strategy, noise_multiplier)
            return {bins.gaussian(of_all_steps, Bound.UPPER): 1}
        block = Block(
            tuple(products.tolist()[:length]),
            self.sampling_probability,
            length,
            self.num_blocks,
        )
        return {block: self.num_blocks}

    def precision(self, strategy: Strategy, noise_multiplier: float) -> float:
        """Returns the precision of a step in each block, whose columns do not meet."""
        (product,), error = strategy.by_distance(1)
        largest = float(product) / noise_multiplier**2 * self.num_blocks
        return largest * (1 + error + 4 * floats.UNIT_ROUNDOFF)


@dataclasses.dataclass(frozen=True)
class Block(Mechanism):
    """An upper bound on one of the blocks of steps, from any state at its start.

    Attributes:
        products: For each distance between two columns, the largest of their inner
            products, divided by σ² and rounded up.
        probability: The sampling probability, p.
        length: The number of steps of the block.
        count: The number of blocks of the run.
    """

    products: tuple[float, ...]
    probability: float
    length: int
    count: int

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.LOWER:
            return DirectedPairs.same(dominating_pair.trivial_pair(bound))
        return gauss_markov.of_block(
            self.chain, self.probability, tail_mass=accuracy.tail_mass
        )

    @functools.cached_property
    def chain(self) -> chain_fits.Chain:
        """The chain above the block's ratios, with what the cuts add at its ends."""
        products = np.array(self.products)
        return block_chains.fit(products, self.length, is_alone=self.count == 1)

    def claims(self) -> interface.Claims:
        """Returns the Gaussian precision of any step, with what the cuts add to it."""
        chain = self.chain
        largest = chain.variance * (1 + chain.share * chain.excess) + chain.shared
        return interface.Claims(gaussian_precision=floats.raised(largest))


@functools.lru_cache(maxsize=16)
def _counts(schedule: MinSep, first: int) -> FloatArray:
    """Returns the law of how many of the first steps a record takes part in.

    Args:
        schedule: The schedule.
        first: The number of first steps that count.

    Returns:
        (k,) probabilities of 0, 1, … steps. They are sums of products of positive
        numbers.
    """
    starts, rate = schedule.starts, schedule.sampling_probability
    separation = schedule.separation
    largest = -(-first // separation)
    # Row i is the law if the record is first ready at step i. Only the last rows are
    # kept, in a ring.
    ring = separation + 1
    rows = np.zeros((ring, largest + 1))
    rows[:, 0] = 1.0
    law = np.zeros(largest + 1)
    for step in range(first + separation - 1, -1, -1):
        row = rows[step % ring]
        if step < first:
            after_taking_part = rows[(step + separation) % ring]
            after_none = rows[(step + 1) % ring]
            # A step that the record is in counts one more.
            shifted = rate * after_taking_part[:-1]
            row[:] = (1 - rate) * after_none
            row[1:] += shifted
        if step < starts.size:
            law += starts[step] * row
    return law
