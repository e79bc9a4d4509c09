"""Bounded samples whose mean is the divergence of a mean of correlated ratios.

Let m_1, …, m_b be the means of Gaussians of covariance I, and G their inner products.
Let X_i be the ratio of N(m_i, I) to Q = N(0, I), and Z the mean of the X_i. Draw i_1,
…, i_m one after the other: i_l has a probability in proportion to e^{Σ G_ij}, where i
is i_l and j runs over the earlier indices, and N_l is the sum of these numbers over i.
Then draw y from Q moved by m_{i_1} + … + m_{i_m}. The sample

    h = (Π N_l / b) (Z − κ)₊ / Z^m

has the mean E_Q (Z − κ)₊, as the tuple and y have the density q(y) Π X_{i_l}(y) / Π
N_l, and the sum of Π X_{i_l} over all tuples is (b Z)^m. If y is moved by a tuple, Z is
the sum of X_i e^{E_i} / b, where the X_i have their law under Q and E_i is the sum of
G_ij over the j of the tuple.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np

from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.correlated.sampling import bets

# Tuning, of time alone, all of these constants.
_BLOCK_SIZE = 1 << 18  # The numbers of noise in a block of samples.
_ROWS = 32  # The rows of a block of the covariance's root.
# Powers m below the first are tried, until the work is so many times the least.
_MOST_MOMENTS, _WORSE = 40, 3.0
# The work of a bin of a draw of noise, and of a sample, over that of a bin in one round
# of drawing a tuple.
_NOISE, _SAMPLE = 4.0, 20.0
# Tuples are drawn by neighbors if m² times their number is at most this share of the
# bins: for 8 bands and 1024 bins this is six times as fast.
_FEW_NEIGHBORS = 0.25
# Eigenvalues that are negative by less than this share of the largest are rounding.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class Means(bets.Source):
    """Gaussians, represented by the inner products of their means.

    Attributes:
        gram: (b, b) inner products G of the b means, all at least 0.
    """

    worse: ClassVar[float] = _WORSE

    gram: FloatArray

    @property
    def size(self) -> int:
        """The number of normal variables in one draw of the noise."""
        return len(self.gram)

    @property
    def moments(self) -> Sequence[int]:
        """The powers m that are tried: 2, and those for which exponents fit a float."""
        limit = bets.LARGEST_EXPONENT / float(self.gram.max())
        return range(2, max(min(_MOST_MOMENTS, math.floor(limit) + 1), 3))

    @functools.cached_property
    def growth(self) -> FloatArray:
        """(b, b) e^G."""
        return np.asarray(np.exp(self.gram))

    @functools.cached_property
    def root(self) -> list[tuple[slice, slice, FloatArray]]:
        """Blocks of rows of a matrix L with L Lᵀ = G, without columns of zeros.

        Each block is given by its rows, its columns, and its transposed entries.

        Raises:
            ValueError: If G has a negative eigenvalue, so that there is no such matrix.
        """
        size = len(self.gram)
        whole = self.gram + _ROUNDING * self.gram.max() * np.eye(size)
        try:
            lower = np.linalg.cholesky(whole)
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(whole)
            if values[0] < -_ROUNDING * values[-1]:
                raise ValueError(
                    "gram must be positive semidefinite. "
                    f"Found the eigenvalue {values[0]:g}."
                ) from None
            lower = vectors * np.sqrt(np.maximum(values, 0.0))
        blocks = []
        for start in range(0, size, _ROWS):
            rows = slice(start, min(start + _ROWS, size))
            used = np.flatnonzero(lower[rows].any(axis=0))
            columns = slice(int(used[0]), int(used[-1]) + 1)
            blocks.append((rows, columns, np.ascontiguousarray(lower[rows, columns].T)))
        return blocks

    @functools.cached_property
    def neighbors(self) -> IntArray:
        """(b, w) bins that have a positive product with each bin, and some others."""
        order = np.argsort(-self.gram, axis=1, kind="stable")[:, : self.width]
        return np.ascontiguousarray(order)

    @functools.cached_property
    def near_growth(self) -> FloatArray:
        """(b, w) values of e^G − 1 for a bin and its neighbors."""
        return np.asarray(np.expm1(np.take_along_axis(self.gram, self.neighbors, 1)))

    @functools.cached_property
    def meet(self) -> BoolArray:
        """(b, b) whether two bins may have a common neighbor."""
        occupied = self.gram > 0
        meet = np.zeros_like(occupied)
        for column in self.neighbors.T:
            meet |= occupied[column]
        return meet

    @functools.cached_property
    def width(self) -> int:
        """The largest number of bins whose product with one is positive."""
        return int(np.count_nonzero(self.gram, axis=1).max())

    def has_few_neighbors(self, moment: int) -> bool:
        """Whether a tuple changes e^{E_i} for a few i only."""
        few = moment**2 * self.width <= _FEW_NEIGHBORS * len(self.gram)
        return few and moment * float(self.gram.max()) <= bets.LARGEST_EXPONENT / 2

    def work(self, moment: int) -> float:
        bins = len(self.gram)
        touched = moment * self.width if self.has_few_neighbors(moment) else bins
        return _NOISE * bins + _SAMPLE + moment * touched

    def draw(
        self, moment: int, count: int, generator: np.random.Generator
    ) -> bets.Samples:
        block = max(_BLOCK_SIZE // len(self.gram), 4)
        draw_tuples = _near_tuples if self.has_few_neighbors(moment) else _tuples
        parts = []
        for start in range(0, count, block):
            noise = _noise(self, min(block, count - start), generator)
            highest = noise.max(axis=1)
            noise -= highest[:, np.newaxis]
            np.exp(noise, out=noise)
            log_ratios, log_weights = draw_tuples(self, moment, noise, generator)
            parts.append([log_ratios + highest, log_weights])
        log_ratios, log_weights = np.concatenate(parts, axis=1)
        largest = self.log_largest_weight(moment)
        return bets.Samples(moment, log_ratios, log_weights, largest)

    def log_largest_weight(self, moment: int) -> float:
        """Returns a bound on ln Π N_l / b.

        By Hölder's inequality, it is largest if all indices of the tuple are equal.
        """
        logs = [
            math.log(float(np.exp(number * self.gram).mean(axis=0).max()))
            for number in range(1, moment)
        ]
        return math.fsum(logs) + 1e-9


def _tuples(
    means: Means, moment: int, noise: FloatArray, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draws tuples, and returns the logarithms of ratios and weights.

    Args:
        means: The Gaussians.
        moment: The power m.
        noise: (n, b) draws of the X_i under Q.
        generator: The source of all randomness.

    Returns:
        (n,) values of ln Z, and (n,) values of ln Π N_l / b.
    """
    count, size = noise.shape
    chosen = generator.integers(size, size=count)
    growth = means.growth[chosen]  # e^{E_i} over e^shift.
    shifts, log_weights = np.zeros(count), np.zeros(count)
    for _ in range(1, moment):
        cumulative = np.cumsum(growth, axis=1)
        total = cumulative[:, -1]
        goals = generator.random(count) * total
        chosen = np.minimum((cumulative <= goals[:, np.newaxis]).sum(axis=1), size - 1)
        shifts += np.log(total / size)
        log_weights += shifts
        growth *= (size / total)[:, np.newaxis]
        growth *= means.growth[chosen]
    whole = np.einsum("ij,ij->i", noise, growth)
    return np.log(whole / size) + shifts, log_weights


def _noise(means: Means, count: int, generator: np.random.Generator) -> FloatArray:
    """Returns (count, b) draws of g_i − G_ii / 2 under Q."""
    normal = generator.standard_normal((count, len(means.gram)))
    noise = np.empty_like(normal)
    for rows, columns, root in means.root:
        np.matmul(normal[:, columns], root, out=noise[:, rows])
    noise -= means.gram.diagonal() / 2
    return noise


def _near_tuples(
    means: Means, moment: int, noise: FloatArray, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Returns the same as `_tuples`, from the changes that a tuple makes.

    A further index j changes the weight e^{E_i} of each neighbor i of j by
    e^{E_i} (e^{G_ij} − 1). All weights begin at one. So their sum is b plus all
    changes, and Σ X_i e^{E_i} is the sum of the X_i plus that of the X_i times changes.
    """
    count, size = noise.shape
    near, log_weights = means.neighbors, np.zeros(count)
    chosen: list[IntArray] = []
    # The changes by the first index of a tuple are the first w columns, and so on.
    changes = np.empty((count, 0))
    for _ in range(moment):
        cumulative = np.cumsum(changes, axis=1)
        total = size + (cumulative[:, -1] if chosen else np.zeros(count))
        if chosen:
            log_weights += np.log(total / size)
        goals = generator.random(count) * total
        # A goal up to b is in the first weight, one, of an index. A goal beyond b is in
        # a change of the weight of an index.
        index = np.minimum(goals.astype(np.int64), size - 1)
        beyond = np.flatnonzero(goals >= size)
        if beyond.size:
            passed = cumulative[beyond] <= (goals[beyond] - size)[:, np.newaxis]
            column = np.minimum(passed.sum(axis=1), cumulative.shape[1] - 1)
            order, offset = np.divmod(column, near.shape[1])
            index[beyond] = near[np.stack(chosen)[order, beyond], offset]
        changes = np.concatenate([changes, _changes(means, chosen, index)], axis=1)
        chosen.append(index)
    changed = np.concatenate([near[index] for index in chosen], axis=1)
    added = changes * np.take_along_axis(noise, changed, axis=1)
    total = noise.sum(axis=1) + added.sum(axis=1)
    return np.log(total / size), log_weights


def _changes(means: Means, chosen: Sequence[IntArray], index: IntArray) -> FloatArray:
    """Returns (n, w) changes of the weights of an index's neighbors.

    Args:
        means: The Gaussians.
        chosen: For each earlier index of a tuple, its (n,) values.
        index: (n,) values of the next index.
    """
    neighbors = means.neighbors[index]
    exponents = np.zeros(neighbors.shape)
    for earlier in chosen:
        rows = np.flatnonzero(means.meet[earlier, index])
        exponents[rows] += means.gram[earlier[rows, np.newaxis], neighbors[rows]]
    changes = np.exp(exponents)
    changes *= means.near_growth[index]
    return changes
