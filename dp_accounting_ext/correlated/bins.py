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

# Tuning, all of these constants.
# The orders of the moments by which chains are chosen: the first suits large δ, and the
# last suits small δ. Other orders are used for δ below 1e-15. With a wrong order ε is
# up to 15 % larger.
_ORDERS, _RARE_ORDERS = (2.0, 3.0, 8.0), (3.0, 5.0, 8.0, 20.0)
# All chains are computed with cells that are wider by _WIDE, and all but the last for
# frequent δ only. That takes a fifth of the time, and ε is up to 3 % larger, or 7 %
# with 500 bins. The chain that is best at a frequent δ is computed for all δ, with
# cells that are wider by _NARROW.
_WIDE, _NARROW = 2.6, 1.25
# The largest number of classes of bins with different ratios.
_MOST_CLASSES = 6
# A filter is cut into blocks of at least this many bins (with 4096 bins ε is 0.4 %
# smaller then, in a tenth of the time); and it leaves out the last bands if they add at
# most this share to what a record moves (with 600 bins of a BLT ε is smaller by a
# relative 5e-6 then, in a fifth of the time).
_BINS_OF_FILTER, _HARDLY = 256, 1e-4
# The first filter that is tried from below has cells that are wider by this. It takes a
# fifth of the time of a fine one, and its ε is mostly up to 6 % smaller.
_ROUGH = 2.0
# After that filter, the ε of independent bins is compared with the largest ε of all
# lower bounds so far. If it is at least the share _FROM of that, blocks are tried. If
# it is below the share _BELOW, a fine filter is tried. (In 60 random runs what was left
# out would have raised ε by at most 0.6 %.)
_FROM, _BELOW = 0.9, 0.95
# Blocks are tried for variances between these. Blocks of larger variances raise ε by
# less than 0.5 % and take seconds, and those of smaller ones take gigabytes.
_LEAST_VARIANCE, _LARGEST_VARIANCE = 0.5, 8.0


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
            step = additive_noise.Gaussian(self.noise_multiplier / entry)
            steps_of_bin = compositions.compose({step: self.num_epochs})
            return allocated.allocate(steps_of_bin, 1, self.num_bins)
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
            if self.is_cut:
                return _above(gram, accuracy)
            (chain,) = chain_fits.of_bins(gram, _orders(accuracy)[:1])
            return gauss_markov.of_bins(chain, accuracy)
        return self._below(gram, accuracy)

    def _below(self, gram: FloatArray, accuracy: Accuracy) -> DirectedPairs:
        """Returns the largest of several lower pairs.

        Args:
            gram: (b, b) inner products of the bins over σ², rounded down.
            accuracy: What the pairs are for.
        """
        delta = accuracy.frequent_delta
        bins = independent_bins(gram, Bound.LOWER)
        uncorrelated = interface.pairs_of_part(bins, Bound.LOWER, accuracy)
        _, error = self.products()
        # These entries were rounded down by one error, so they may be too small by two.
        pairs = projected.of_gram(gram, error=3 * error, tail_mass=accuracy.tail_mass)
        epsilon = _largest_epsilon([uncorrelated.remove, *pairs], delta)
        filtered = functools.partial(self._filtered, gram, accuracy, delta, epsilon)
        rough = filtered(wider=_ROUGH)
        pairs += [] if rough is None else [rough]
        largest = _largest_epsilon([uncorrelated.remove, *pairs], delta)
        of_uncorrelated = uncorrelated.remove.epsilon(delta, Direction.REMOVE)
        share = of_uncorrelated / largest if largest else 0.0
        blocks = None
        if share >= _FROM and _LEAST_VARIANCE <= gram.max() <= _LARGEST_VARIANCE:
            blocks = _blocks_below(gram, accuracy.tail_mass)
        is_needless = blocks is not None or gram.max() > _LARGEST_VARIANCE
        fine = None if share >= _BELOW and is_needless else filtered()
        pairs += [pair for pair in (blocks, fine) if pair is not None]
        return projected.largest([uncorrelated, *map(DirectedPairs.same, pairs)])

    def _filtered(
        self,
        gram: FloatArray,
        accuracy: Accuracy,
        delta: float,
        epsilon: float,
        *,
        wider: float = 1.0,
    ) -> dominating_pair.DominatingPair | None:
        """Returns the lower pair of a filter of the outputs, or None if it is too slow.

        Many bins are cut into blocks with equally many bins. Correlations between
        blocks are left out, and in each place of a block the least moves of any count.
        Bands that hardly add to what a record moves are left out, and so are those
        beyond a block's length: with fewer bands inner products are smaller.
        """
        copies = max(self.num_bins // _BINS_OF_FILTER, 1)
        length, left_over = divmod(self.num_bins, copies)
        shifts = self.shifts()
        moves = np.cumsum(shifts.sum(axis=0))
        bands = min(int(np.argmax(moves >= (1 - _HARDLY) * moves[-1])) + 1, length)
        rows = np.arange(length + bands - 1)
        starts = left_over + length * np.arange(copies)[:, np.newaxis]
        _, error = self.products()
        pair = filtered_bins.lower_pair(
            shifts[starts + rows, :bands].min(axis=0) * (1 - error),
            delta=delta,
            epsilon=epsilon,
            copies=copies,
            wider=wider,
        )
        if pair is None or copies == 1:
            return pair
        steps = [random_allocation.Steps(pair, copies, length)]
        if left_over:
            smallest = float(gram.diagonal()[:left_over].min())
            bin_alone = gaussian(smallest, Bound.LOWER)
            pairs = interface.pairs_of_part(bin_alone, Bound.LOWER, accuracy)
            steps.append(random_allocation.Steps(pairs.remove, left_over))
        return random_allocation.uneven_allocation(steps, accuracy)

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


def _above(gram: FloatArray, accuracy: Accuracy) -> DirectedPairs:
    """Returns pairs above the mean of the ratios of bins, for all δ.

    Args:
        gram: (b, b) The Gram matrix of the bins, rounded up.
        accuracy: What the pairs are for.
    """
    tail_mass = accuracy.frequent_delta * accuracies.TAIL_SHARE
    frequent = dataclasses.replace(
        accuracy, tail_mass=max(tail_mass, accuracy.tail_mass)
    )
    chains = list(dict.fromkeys(chain_fits.of_bins(gram, _orders(accuracy))))
    if len(chains) == 1:
        return gauss_markov.of_bins(chains[0], accuracy, wider=_NARROW)
    # The last one is for small δ.
    tails = [frequent] * (len(chains) - 1) + [accuracy]
    rough = [
        gauss_markov.of_bins(chain, accurate, wider=_WIDE)
        for chain, accurate in zip(chains, tails, strict=True)
    ]
    best = int(np.argmin([_epsilon(pairs, accuracy) for pairs in rough]))
    fine = gauss_markov.of_bins(chains[best], accuracy, wider=_NARROW)
    return profile_pairs.minimum([fine, *rough])


def _orders(accuracy: Accuracy) -> tuple[float, ...]:
    """Returns the orders of the moments by which chains are chosen."""
    # For δ below that of the first level tails are far smaller, whatever their share.
    least_delta, _ = accuracies.LEVELS[0]
    return _RARE_ORDERS if accuracy.delta < least_delta**2 else _ORDERS


def _largest_epsilon(
    pairs: list[dominating_pair.DominatingPair], delta: float
) -> float:
    """Returns the largest ε of lower pairs if a record is removed."""
    return max(pair.epsilon(delta, Direction.REMOVE) for pair in pairs)


def _epsilon(pairs: DirectedPairs, accuracy: Accuracy) -> float:
    """Returns the upper bound on ε at a frequent δ."""
    delta = accuracy.frequent_delta
    return max(
        pairs.remove.epsilon(delta, Direction.REMOVE),
        pairs.add.epsilon(delta, Direction.ADD),
    )


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
