"""Correlated noise with b-min-sep sampling.

A record that took part in a step is not sampled in the next b − 1 steps.
"""

from collections.abc import Mapping
import dataclasses
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.chains import block_chains
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import gauss_markov
from dp_accounting_ext.correlated.runs import output_sums
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs

# If the probability that a record takes no part in a block is smaller than this, the
# upper bound assumes that it takes part in every block.
_LEAST_ABSENCE = 1e-30


@dataclasses.dataclass(frozen=True)
class Run(output_sums.AboveSum):
    """A run with b-min-sep sampling, 0 < p ≤ 1. Its fields are those of the event.

    The upper bound is the composition of ⌈n / b⌉ blocks of at most b steps. In each
    block a record takes part at most once, whatever its state at the start. The lower
    bound is that of the sum of all outputs.

    Source:
        docs/matrix.md, "A record that stays out for b steps".
    """

    basis_above = (
        "blocks of at most b steps, borders revealed, each from its worst state"
    )

    strategy: strategies.Strategy
    noise_multiplier: float
    sampling_probability: float
    separation: int
    num_steps: int
    warm_start: bool

    @property
    def num_blocks(self) -> int:
        """The number of blocks. No record takes part in more steps than this."""
        return -(-self.num_steps // self.separation)

    @property
    def block_length(self) -> int:
        """The number of steps of a block, at most b.

        Blocks are as short as their number allows. If there are several, they have as
        many steps as there are bands at least, so that only neighboring blocks share
        noise.
        """
        least = -(-self.num_steps // self.num_blocks)
        bands = _products(self)[0].size
        return least if self.num_blocks == 1 else max(least, bands)

    def above(self) -> Mapping[interface.Mechanism, int]:
        products, error = _products(self)
        block = Block(
            tuple((products * (1 + error)).tolist()[: self.block_length]),
            self.sampling_probability,
            self.block_length,
            self.num_blocks,
        )
        if block.absence < _LEAST_ABSENCE:
            return {self._of_all_blocks(): 1}
        return {block: self.num_blocks}

    def number_of_steps(self) -> output_sums.NumberOfSteps:
        return _number_of_steps(self)

    def claims(self) -> interface.Claims:
        products, error = _products(self)
        largest = float(products[0]) * self.num_blocks
        return interface.Claims(
            gaussian_precision=largest * (1 + error + 4 * floats.UNIT_ROUNDOFF)
        )

    def _of_all_blocks(self) -> interface.Mechanism:
        """Returns a Gaussian mechanism that dominates a record's part in all blocks.

        The columns of the record's steps have no row in common.
        """
        deviation = 1 / math.sqrt(self.claims().gaussian_precision)
        return additive_noise.Gaussian(floats.lowered(deviation, 1e-14))


@dataclasses.dataclass(frozen=True)
class Block(interface.Mechanism):
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

    @property
    def absence(self) -> float:
        """The smallest probability that a record takes no part in a block."""
        return math.pow(1 - self.probability, self.length)

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.LOWER:
            return DirectedPairs.same(dominating_pair.trivial_pair(bound))
        return gauss_markov.of_block(
            self._chain(), self.probability, tail_mass=accuracy.tail_mass
        )

    def _chain(self) -> chain_fits.Chain:
        products = np.array(self.products)
        return block_chains.fit(products, self.length, is_alone=self.count == 1)

    def claims(self) -> interface.Claims:
        """Returns the Gaussian precision of any step, with what the cuts add to it."""
        chain = self._chain()
        largest = chain.variance * (1 + chain.share * chain.excess) + chain.shared
        return interface.Claims(gaussian_precision=floats.raised(largest))


def sample(run: Run) -> interface.Mechanism:
    """Returns the mechanism of a run, as a simpler mechanism if possible."""
    rate, steps = run.sampling_probability, run.num_steps
    if rate == 0:
        return compositions.NO_OP
    starts = _starts(run)
    if run.noise_multiplier == 0:
        left = np.maximum(steps - np.arange(starts.size), 0)
        null_probability = float(starts @ np.power(1 - rate, left))
        if rate < 1:
            revealed = float(starts @ -np.expm1(left * math.log1p(-rate)))
        else:
            revealed = float(starts[:steps].sum())
        error = 8 * (starts.size + steps + 8) * floats.UNIT_ROUNDOFF
        return known_bounds.NonPrivate((revealed, null_probability), error=error)
    entry = run.strategy.only_entry
    if entry is not None and run.separation == 1:
        step = additive_noise.Gaussian(run.noise_multiplier / entry)
        return compositions.compose({subsampled.on_poisson_sample(rate, step): steps})
    return run


def _starts(run: Run) -> FloatArray:
    """Returns (m,) probabilities that step 0, 1, … is the first that may sample it."""
    if not run.warm_start:
        return np.ones(1)
    starts = np.full(run.separation, run.sampling_probability)
    starts[0] = 1.0
    return starts / (1 + (run.separation - 1) * run.sampling_probability)


@functools.lru_cache(maxsize=16)
def _products(run: Run) -> tuple[FloatArray, float]:
    """Returns the largest inner products of columns by distance over σ².

    Returns:
        (p,) products, the last one positive, and a bound on their relative error.
    """
    size = min(run.strategy.bands, run.separation, run.num_steps)
    table, error = run.strategy.by_distance(size)
    return table / run.noise_multiplier**2, error


@functools.lru_cache(maxsize=16)
def _number_of_steps(run: Run) -> output_sums.NumberOfSteps:
    """Returns the law of the number of a record's steps that move the sum."""
    first = run.strategy.first_steps(run.noise_multiplier, run.num_steps)
    probabilities = _counts(
        _starts(run), run.sampling_probability, run.separation, first.number
    )
    terms = run.num_steps + run.separation + probabilities.size
    error = 8 * terms * floats.UNIT_ROUNDOFF
    return output_sums.NumberOfSteps(probabilities, error, first.shift)


def _counts(starts: FloatArray, rate: float, apart: int, steps: int) -> FloatArray:
    """Returns the law of how many of the first steps a record takes part in.

    Args:
        starts: (m,) probabilities that each step is the first one in which the record
            can be sampled.
        rate: The sampling probability, p.
        apart: The separation, b.
        steps: The number of first steps that count.

    Returns:
        (k,) probabilities of 0, 1, … steps. They are sums of products of positive
        numbers.
    """
    most = -(-steps // apart)
    # Row i is the law if the record is first ready at step i. Only the last rows are
    # kept, in a ring.
    rows = np.zeros((apart + 1, most + 1))
    rows[:, 0] = 1.0
    found = np.zeros(most + 1)
    for step in range(steps + apart - 1, -1, -1):
        row = rows[step % (apart + 1)]
        if step < steps:
            after = rows[(step + apart) % (apart + 1)]
            following = rows[(step + 1) % (apart + 1)]
            taken = rate * after[:-1]
            row[:] = (1 - rate) * following
            row[1:] += taken
        if step < starts.size:
            found += starts[step] * row
    return found
