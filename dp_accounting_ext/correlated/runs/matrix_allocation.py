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
from dp_accounting_ext.correlated.chains import bin_grams
from dp_accounting_ext.correlated.chains import blocks_below
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
from dp_accounting_ext.pairs import profile_pairs

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs

# Tuning: the largest number of classes of bins with different ratios.
_MOST_CLASSES = 6
# Tuning: up to this variance, the largest diagonal entry of the Gram matrix, a filter
# of the outputs is tried. At a variance of 2.5 its ε is up to 5 % lower than that of
# blocks.
_SMALL_VARIANCE = 1.25
# Tuning: blocks are tried from this variance on, if the ε of independent bins is at
# least this share of that of projections. Of 40 random runs, blocks were better than
# both in 9, by up to 20 %: in all of these the variance was above 0.8, and the share at
# least 0.8. At small variances the grids of blocks take gigabytes.
_SOME_VARIANCE, _NEARLY = 0.5, 0.8
# Tuning: the probability that blocks leave out, over the tail mass.
_BLOCK_TAILS = 100.0
# Tuning: a filter is computed precisely if its rough ε, over that of projections, is at
# least this.
_ROUGHLY = 0.975
# Tuning: a filter tells ratios apart up to an ε that is larger than the one that is
# expected by this share of it, and at most by so much, in nats: for a smaller δ. What
# is expected is first so many times the ε of projections.
_FURTHER, _MOST_FURTHER, _MUCH_HIGHER = 0.9, 0.7, 1.6
# Tuning: a second filter is precise around a smaller δ, the likely δ to this power.
_RARER = 1.7


def allocate(
    strategy: strategies.Strategy,
    noise_multiplier: float,
    num_bins: int,
    num_epochs: int,
) -> interface.Mechanism:
    """Returns the mechanism of validated fields, as a simpler mechanism if possible."""
    if noise_multiplier == 0:
        return known_bounds.NonPrivate()
    if len(strategy) == 1 and not isinstance(strategy[0], tuple):
        # No two bins are correlated: this is plain allocation of the epochs' outputs.
        one = additive_noise.Gaussian(noise_multiplier / strategy[0])
        return allocated.allocate(compositions.compose({one: num_epochs}), 1, num_bins)
    run = MatrixAllocation(strategy, noise_multiplier, num_bins, num_epochs)
    gram = run.gram(Bound.UPPER)
    if np.count_nonzero(gram) > num_bins:
        return run
    return known_bounds.Between(
        independent_bins(run.gram(Bound.LOWER), Bound.LOWER),
        independent_bins(run.gram(Bound.UPPER), Bound.UPPER),
    )


@dataclasses.dataclass(frozen=True)
class MatrixAllocation(interface.Mechanism):
    """A run with correlated noise in which each record draws a bin.

    Its fields are those of the event, with the strategy that `validation.strategies`
    returns.
    """

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

    def upper_pairs(self, accuracy: Accuracy) -> DirectedPairs:
        """Returns the upper pairs, with a chain that is good at the most likely δ."""
        return gauss_markov.of_gram(
            self.gram(Bound.UPPER),
            tail_mass=accuracy.tail_mass,
            delta=accuracy.likely_delta,
        )

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.UPPER:
            return self.upper_pairs(accuracy)
        gram, delta = self.gram(bound), accuracy.likely_delta
        independent = independent_bins(gram, bound)
        plain = interface.pairs_of_part(independent, bound, accuracy)
        # Each of the following pairs is a lower bound.
        _, error = self.products()
        # These entries were rounded down by one error, so they may be too small by two.
        found = projected.of_gram(gram, error=3 * error, tail_mass=accuracy.tail_mass)
        known = max(pair.epsilon(delta, Direction.REMOVE) for pair in found)
        alone = plain.remove.epsilon(delta, Direction.REMOVE)
        if gram.max() >= _SOME_VARIANCE and alone >= _NEARLY * known:
            blocks = _blocks_below(gram, accuracy.tail_mass)
            found += [] if blocks is None else [blocks]
        # No filter is tuned to an ε of zero.
        rough = None
        if known > 0:
            rough = self._filtered(delta, _MUCH_HIGHER * known, is_rough=True)
        roughly = 0.0 if rough is None else rough.epsilon(delta, Direction.REMOVE)
        if rough is not None and roughly >= _ROUGHLY * known:
            more = max(roughly / known, 1.0)
            for each in (delta, delta**_RARER):
                at = max(pair.epsilon(each, Direction.REMOVE) for pair in found)
                filtered = self._filtered(each, more * at)
                found += [] if filtered is None else [filtered]
        add = [dominating_pair.dual(pair) for pair in (plain.add, *found)]
        return DirectedPairs(
            profile_pairs.largest_below([plain.remove, *found]),
            dominating_pair.dual(profile_pairs.largest_below(add)),
        )

    def _filtered(
        self, delta: float, epsilon: float, *, is_rough: bool = False
    ) -> dominating_pair.DominatingPair | None:
        """Returns the lower pair by a filter of the outputs (`filtered_bins`).

        Its computation takes long, so it is precise around one δ only.

        Args:
            delta: The δ.
            epsilon: The ε that is expected.
            is_rough: As in `filtered_bins.lower_pair`.

        Returns:
            The pair, or None if blocks give a better one.
        """
        column = np.array(self.strategy) / self.noise_multiplier
        if column.ndim > 1 or column.size > self.num_bins:
            return None
        if self.gram(Bound.LOWER).max() > _SMALL_VARIANCE:
            return None
        further = epsilon + min(_FURTHER * epsilon, _MOST_FURTHER)
        return filtered_bins.lower_pair(
            column,
            self.num_bins,
            self.num_epochs,
            delta=delta,
            highest=math.exp(min(further, floats.LARGEST_EXPONENT)),
            is_rough=is_rough,
        )

    def basis(self, bound: Bound) -> str:
        if bound is Bound.LOWER:
            return "the best of sums of outputs, and of blocks of bins without the rest"
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
    return random_allocation.uneven_allocation(steps, interface.Accuracy(tail_mass))


@functools.lru_cache(maxsize=16)
def _gram(run: MatrixAllocation) -> tuple[FloatArray, float]:
    """Returns inner products over σ², and a bound on their relative error."""
    steps = run.num_bins * run.num_epochs
    matrix = np.array(run.strategy)
    if matrix.ndim == 1:
        found = bin_grams.of_toeplitz(matrix, run.num_bins, run.num_epochs)
    else:
        found = bin_grams.of_matrix(matrix, run.num_bins)
    error = bin_grams.error(steps) + 8 * floats.UNIT_ROUNDOFF
    return found / run.noise_multiplier**2, error
