"""Correlated noise with balls-in-bins batches: matrix mechanisms."""

import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np

from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.chains import blocks_below
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import filtered_bins
from dp_accounting_ext.correlated.chains import gauss_markov
from dp_accounting_ext.correlated.chains import projected
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs

# Tuning: the largest number of classes of bins with different ratios.
_MOST_CLASSES = 6
# Tuning: blocks are tried from this variance on, if the ε of independent bins is at
# least this share of that of projections. Of 40 random runs, blocks were better than
# both in 9, by up to 20 %: in all of these the variance was above 0.8, and the share at
# least 0.8. At small variances the grids of blocks take gigabytes.
_SOME_VARIANCE, _NEARLY = 0.5, 0.8
# Tuning: the probability that blocks leave out, over the tail mass.
_BLOCK_TAILS = 100.0


def allocate(
    strategy: strategies.Strategy,
    noise_multiplier: float,
    num_bins: int,
    num_epochs: int,
) -> interface.Mechanism:
    """Returns the mechanism of validated fields, as a simpler mechanism if possible."""
    if noise_multiplier == 0:
        return known_bounds.NonPrivate()
    entry = strategy.only_entry
    if entry is not None:
        # No two bins are correlated: this is plain allocation of the epochs' outputs.
        one = additive_noise.Gaussian(noise_multiplier / entry)
        return allocated.allocate(compositions.compose({one: num_epochs}), 1, num_bins)
    run = MatrixAllocation(strategy, noise_multiplier, num_bins, num_epochs)
    gram = run.gram(Bound.UPPER)
    if np.count_nonzero(gram) > num_bins:
        return run
    return known_bounds.between(
        independent_bins(run.gram(Bound.LOWER), Bound.LOWER),
        independent_bins(run.gram(Bound.UPPER), Bound.UPPER),
    )


@dataclasses.dataclass(frozen=True)
class MatrixAllocation(interface.Mechanism):
    """A run with correlated noise in which each record draws a bin.

    Its fields are those of the event, with the strategy checked.
    """

    # The orders of the moments by which chains are chosen.
    orders: ClassVar[tuple[float, ...]] = chain_fits.ORDERS_OF_RUN

    strategy: strategies.Strategy
    noise_multiplier: float
    num_bins: int
    num_epochs: int

    def products(self) -> tuple[FloatArray, float]:
        """Returns (b, b) inner products over σ², and their largest relative error."""
        return _gram(self)

    def gram(self, bound: Bound) -> FloatArray:
        """Returns (b, b) inner products of the bins over σ², rounded up or down."""
        nearest, error = self.products()
        return nearest * (1 + error if bound is Bound.UPPER else 1 - error)

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.UPPER:
            chains = chain_fits.of_bins(self.gram(bound), self.orders)
            return gauss_markov.of_bins(chains, tail_mass=accuracy.tail_mass)
        gram, delta = self.gram(bound), accuracy.frequent_delta
        independent = independent_bins(gram, bound)
        plain = interface.pairs_of_part(independent, bound, accuracy)
        _, error = self.products()
        # These entries were rounded down by one error, so they may be too small by two.
        found = projected.of_gram(gram, error=3 * error, tail_mass=accuracy.tail_mass)
        by_sums = max(pair.epsilon(delta, Direction.REMOVE) for pair in found)
        alone = plain.remove.epsilon(delta, Direction.REMOVE)
        if gram.max() >= _SOME_VARIANCE and alone >= _NEARLY * by_sums:
            blocks = _blocks_below(gram, accuracy.tail_mass)
            found += [] if blocks is None else [blocks]
        known = max(
            pair.epsilon(delta, Direction.REMOVE) for pair in (plain.remove, *found)
        )
        shifts = self.shifts() * (1 - error)
        found += filtered_bins.lower_pairs(shifts, delta=delta, epsilon=known)
        return projected.largest([plain, *map(DirectedPairs.same, found)])

    def shifts(self) -> FloatArray:
        """Returns (b + p − 1, p) moves of the outputs at a step by its j-th band.

        The outputs of a step are added up over all epochs, and divided by their noise.
        Steps beyond the last bin are those of the next epoch. p is at most b.
        """
        bins, epochs = self.num_bins, self.num_epochs
        bands = min(self.strategy.bands, bins)
        found = np.zeros((bins + bands - 1, bands))
        for band in range(bands):
            entries = self.strategy.diagonal(band, bins * epochs)
            added = entries.reshape(epochs, bins).sum(axis=0)
            met = np.full(bins, float(epochs))
            met[bins - band :] = max(epochs - 1, 1)
            found[band : band + bins, band] = added / np.sqrt(met)
        return found / self.noise_multiplier

    def basis(self, bound: Bound) -> str:
        if bound is Bound.LOWER:
            return "the best of sums of outputs, a filter of them, and blocks of bins"
        return "a Markov chain whose noise is at least as correlated"

    def claims(self) -> interface.Claims:
        largest = float(self.gram(Bound.UPPER).diagonal().max())
        return interface.Claims(gaussian_precision=largest)


def independent_bins(gram: FloatArray, bound: Bound) -> interface.Mechanism:
    """Returns the allocation of bins without their correlations.

    It is dominated by the run, as a Gram matrix with larger entries has a larger
    likelihood ratio in the convex order. Bins are sorted into a few classes. An upper
    bound gives each bin the largest diagonal entry of its class, and a lower bound the
    smallest one.

    Source:
        Kahane 1986; see docs/matrix.md.
    """
    sizes = np.sort(gram.diagonal())
    starts = np.unique(np.searchsorted(sizes, sizes * (1 - 1e-9)))
    if starts.size > _MOST_CLASSES:
        starts = np.unique(np.arange(_MOST_CLASSES) * sizes.size // _MOST_CLASSES)
    counts: dict[interface.Mechanism, int] = {}
    for first, end in zip(starts, [*starts[1:], sizes.size], strict=True):
        upper = bound is Bound.UPPER
        deviation = 1 / math.sqrt(float(sizes[end - 1] if upper else sizes[first]))
        rounded = floats.lowered if upper else floats.raised
        part = additive_noise.Gaussian(rounded(deviation, 1e-14))
        counts[part] = counts.get(part, 0) + int(end - first)
    return allocated.allocate_to_schedule(counts, len(gram))


def _blocks_below(
    gram: FloatArray, tail_mass: float
) -> dominating_pair.DominatingPair | None:
    """Returns the lower pair of independent blocks of neighboring bins, or None.

    Correlations between blocks are left out.
    """
    steps = []
    for block, number in blocks_below.cut_into_blocks(gram).items():
        pair = blocks_below.lower_pair(
            block, tail_mass=_BLOCK_TAILS * tail_mass / len(gram)
        )
        if pair is None:
            return None
        steps.append(random_allocation.Steps(pair, number, block.length))
    return random_allocation.uneven_allocation(steps, Accuracy(tail_mass))


@functools.lru_cache(maxsize=16)
def _gram(run: MatrixAllocation) -> tuple[FloatArray, float]:
    """Returns inner products over σ², and a bound on their relative error."""
    found, error = run.strategy.gram(run.num_bins, run.num_epochs)
    return found / run.noise_multiplier**2, error
