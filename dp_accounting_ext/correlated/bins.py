"""Correlated noise with balls-in-bins batches: matrix mechanisms."""

import dataclasses
import functools
import math

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
from dp_accounting_ext.kernel import accuracy as accuracies
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.pairs import profile_pairs

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
Strategy = strategies.Strategy

# Tuning: the largest number of classes of bins with different ratios.
_MOST_CLASSES = 6
# Tuning: blocks are tried between these variances, if the ε of independent bins is at
# least this share of that of projections. Of 144 random runs with variances above the
# first number, blocks were better than all else in 35, by up to 9 %. In all of these
# the share was above 0.5, and in all but one the variance was below 14. Blocks of large
# variances take seconds, and those of small ones gigabytes.
_LEAST_VARIANCE, _LARGEST_VARIANCE, _NEARLY = 0.5, 16.0, 0.5
# Tuning: filters are for the least δ to this power, but for this δ at most. That is
# 1e-6 for single runs, and little less inside of a composition, whose tails are
# smaller: with a fixed share of the least δ, lower bounds are up to 2.5 % smaller.
_LIKELY, _MOST_LIKELY = 0.4, 1e-3


def allocate(
    strategy: Strategy, noise_multiplier: float, num_bins: int, num_steps: int
) -> interface.Mechanism:
    """Returns a run in which each record draws a bin, as simply as possible."""
    run = Bins(strategy, noise_multiplier, num_bins, num_steps)
    return known_bounds.between(run.side(Bound.LOWER), run.side(Bound.UPPER))


@dataclasses.dataclass(frozen=True)
class Bins(interface.Mechanism):
    """A run with correlated noise in which each record draws a bin.

    Attributes:
        strategy: The strategy.
        noise_multiplier: The noise multiplier, σ.
        num_bins: The number of bins, b.
        num_steps: The number of steps, a multiple of b.
        is_cut: Whether the run, and the columns of its last steps, end with the last
            bin. Otherwise the strategy is a Toeplitz matrix, there is one epoch, and
            the run continues without the record. Then the Gram matrix is Toeplitz, with
            entries ρ(d) = ⟨c_i, c_{i+d}⟩. That of a run that is cut has smaller
            entries, so lower bounds for that run are valid here, too.
    """

    strategy: Strategy
    noise_multiplier: float
    num_bins: int
    num_steps: int
    is_cut: bool = True

    @property
    def num_epochs(self) -> int:
        """The number of epochs."""
        return self.num_steps // self.num_bins

    def side(self, bound: Bound) -> interface.Mechanism:
        """Returns a mechanism with the run's bound, as a simpler one if possible."""
        if self.noise_multiplier == 0:
            return known_bounds.NonPrivate()
        entry = self.strategy.only_entry
        if entry is not None:
            # No two bins are correlated: this is an allocation of the epochs' outputs.
            one = additive_noise.Gaussian(self.noise_multiplier / entry)
            whole = compositions.compose({one: self.num_epochs})
            return allocated.allocate(whole, 1, self.num_bins)
        gram = self.gram(bound)
        if np.count_nonzero(gram) > self.num_bins:
            return self
        return independent_bins(gram, bound)

    def products(self) -> tuple[FloatArray, float]:
        """Returns (b, b) inner products over σ², and their largest relative error."""
        return _products(self)

    def gram(self, bound: Bound) -> FloatArray:
        """Returns (b, b) inner products of the bins over σ², rounded up or down."""
        nearest, error = self.products()
        return nearest * (1 + error if bound is Bound.UPPER else 1 - error)

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        gram = self.gram(bound)
        if bound is Bound.UPPER:
            # Answers at smaller δ have more scales than curves have.
            is_rare = accuracy.scales > accuracies.CURVE_SCALES
            orders = chain_fits.ORDERS[: 2 + is_rare if self.is_cut else 1]
            chains = dict.fromkeys(chain_fits.of_bins(gram, order) for order in orders)
            return profile_pairs.minimum(
                [gauss_markov.of_bins(chain, accuracy) for chain in chains]
            )
        delta = min(math.pow(accuracy.delta, _LIKELY), _MOST_LIKELY)
        plain = interface.pairs_of_part(independent_bins(gram, bound), bound, accuracy)
        _, error = self.products()
        # These entries were rounded down by one error, so they may be too small by two.
        pairs = projected.of_gram(gram, error=3 * error, tail_mass=accuracy.tail_mass)
        by_sums = max(pair.epsilon(delta, Direction.REMOVE) for pair in pairs)
        alone = plain.remove.epsilon(delta, Direction.REMOVE)
        are_useful = _LEAST_VARIANCE <= gram.max() <= _LARGEST_VARIANCE
        if are_useful and alone >= _NEARLY * by_sums:
            blocks = _blocks_below(gram, accuracy.tail_mass)
            pairs += [] if blocks is None else [blocks]
        epsilon = max(
            pair.epsilon(delta, Direction.REMOVE) for pair in (plain.remove, *pairs)
        )
        shifts = self.shifts() * (1 - error)
        filtered = filtered_bins.lower_pair(shifts, delta=delta, epsilon=epsilon)
        pairs += [] if filtered is None else [filtered]
        return projected.largest([plain, *map(DirectedPairs.same, pairs)])

    def shifts(self) -> FloatArray:
        """Returns (b + p − 1, p) moves of the outputs at a step by its j-th band.

        The outputs of a step are added up over all epochs, and divided by their noise.
        Steps beyond the last bin are those of the next epoch. p is at most b.
        """
        bins, epochs = self.num_bins, self.num_epochs
        bands = min(self.strategy.bands, bins)
        moves = np.zeros((bins + bands - 1, bands))
        for band in range(bands):
            entries = self.strategy.diagonal(band, self.num_steps)
            added = entries.reshape(epochs, bins).sum(axis=0)
            met = np.full(bins, float(epochs))
            met[bins - band :] = max(epochs - 1, 1)
            moves[band : band + bins, band] = added / np.sqrt(met)
        return moves / self.noise_multiplier

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
        size = sizes[end - 1] if bound is Bound.UPPER else sizes[first]
        step = gaussian(float(size), bound)
        counts[step] = counts.get(step, 0) + int(end - first)
    return allocated.allocate_to_schedule(counts, len(gram))


def gaussian(precision: float, bound: Bound) -> interface.Mechanism:
    """Returns the Gaussian mechanism with this 1/σ², its noise rounded to the side."""
    rounded = floats.lowered if bound is Bound.UPPER else floats.raised
    return additive_noise.Gaussian(rounded(1 / math.sqrt(precision), 1e-14))


def _blocks_below(
    gram: FloatArray, tail_mass: float
) -> dominating_pair.DominatingPair | None:
    """Returns the lower pair of independent blocks of neighboring bins, or None.

    Correlations between blocks are left out.
    """
    steps = []
    for block, number in blocks_below.cut_into_blocks(gram).items():
        pair = blocks_below.lower_pair(block, tail_mass=tail_mass / len(gram))
        if pair is None:
            return None
        steps.append(random_allocation.Steps(pair, number, block.length))
    return random_allocation.uneven_allocation(steps, Accuracy(tail_mass))


@functools.lru_cache(maxsize=16)
def _products(run: Bins) -> tuple[FloatArray, float]:
    """Returns inner products over σ², and a bound on their relative error."""
    if run.is_cut:
        gram, error = run.strategy.gram(run.num_bins, run.num_epochs)
    else:
        table, error = run.strategy.by_distance(run.num_bins)
        places = np.arange(run.num_bins)
        gram = table[np.abs(places[:, np.newaxis] - places)]
    return gram / run.noise_multiplier**2, error
