"""Samples by which a mean of correlated ratios is integrated, every one bounded.

With m_1 … m_b the means of Gaussians of covariance I, G their inner products, X_i the
ratio of N(m_i, I) to Q = N(0, I), and Z the mean of the X_i: draw i_1 … i_m, each
given those before with a probability in proportion to e^{Σ G_ij over those}, whose sum
is N_l, and y from Q moved by m_{i_1} + … + m_{i_m}. Then

    h = (Π N_l / b) (Z − κ)₊ / Z^m

has the mean E_Q (Z − κ)₊: the tuple and y have the density q(y) Π X_{i_l}(y) / Π N_l,
and the sum over all tuples of Π X_{i_l} is (b Z)^m.
"""

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import floats

FloatArray = npt.NDArray[np.float64]

# Tuning: numbers in a block of samples; rows of a block of the covariance's root.
_BLOCK_SIZE, _ROWS = 1 << 19, 128
# Of the least eigenvalue over the largest entry: far below what samples can tell.
_JITTER = 1e-13


@dataclasses.dataclass(frozen=True, eq=False)
class Means:
    """b Gaussians by the inner products of their means.

    Attributes:
        gram: (b, b) G, all at least 0.
    """

    gram: FloatArray

    @functools.cached_property
    def growth(self) -> FloatArray:
        """(b, b) e^G."""
        return np.asarray(np.exp(self.gram))

    @functools.cached_property
    def root(self) -> list[tuple[slice, slice, FloatArray]]:
        """Blocks of a root of G: their rows, columns, and entries."""
        size = len(self.gram)
        whole = self.gram + _JITTER * self.gram.max() * np.eye(size)
        try:
            lower = np.linalg.cholesky(whole)
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(whole)
            lower = vectors * np.sqrt(np.maximum(values, 0.0))
        blocks = []
        for start in range(0, size, _ROWS):
            rows = slice(start, min(start + _ROWS, size))
            used = np.flatnonzero(lower[rows].any(axis=0))
            columns = slice(int(used[0]), int(used[-1]) + 1)
            blocks.append((rows, columns, np.ascontiguousarray(lower[rows, columns].T)))
        return blocks

    def log_largest_weight(self, moment: int) -> float:
        """Bounds ln Π N_l / b: by Hölder's inequality, each by that of l equal bins."""
        logs = [
            math.log(float(np.exp(number * self.gram).mean(axis=0).max()))
            for number in range(1, moment)
        ]
        return math.fsum(logs) + 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """What was drawn for one m.

    Attributes:
        moment: m, at least 2.
        log_ratios: (n,) ln Z.
        log_weights: (n,) ln Π N_l / b.
        log_largest: A bound on any of these weights.
    """

    moment: int
    log_ratios: FloatArray
    log_weights: FloatArray
    log_largest: float

    def values(self, epsilon: float) -> FloatArray:
        """Returns (n,) values of h at κ = e^ε."""
        above = -np.expm1(np.minimum(epsilon - self.log_ratios, 0.0))
        exponents = self.log_weights + (1 - self.moment) * self.log_ratios
        return np.asarray(np.exp(exponents) * above)

    def largest(self, epsilon: float) -> float:
        """Bounds h: (z − κ) / z^m is largest at z = κ m / (m − 1)."""
        m = self.moment
        exponent = self.log_largest - (m - 1) * epsilon
        exponent += (m - 1) * math.log1p(-1 / m) - math.log(m)
        return floats.raised(floats.exponential(exponent))


def draw(
    means: Means, moment: int, count: int, generator: np.random.Generator
) -> Samples:
    """Returns so many samples.

    Args:
        means: The Gaussians.
        moment: m.
        count: Number of samples, n.
        generator: The source of all randomness.
    """
    block = max(_BLOCK_SIZE // len(means.gram), 16)
    ratios, weights = [], []
    for start in range(0, count, block):
        found = _draw_block(means, moment, min(block, count - start), generator)
        ratios.append(found[0])
        weights.append(found[1])
    return Samples(
        moment,
        np.concatenate(ratios),
        np.concatenate(weights),
        means.log_largest_weight(moment),
    )


def _draw_block(
    means: Means, moment: int, count: int, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    size = len(means.gram)
    chosen = generator.integers(size, size=count)
    moved = means.gram[chosen]
    weights = means.growth[chosen]
    log_weights = np.zeros(count)
    for number in range(1, moment):
        cumulative = np.cumsum(weights, axis=1)
        total = cumulative[:, -1]
        log_weights += np.log(total / size)
        goals = generator.random(count) * total
        chosen = np.minimum((cumulative <= goals[:, np.newaxis]).sum(axis=1), size - 1)
        moved += means.gram[chosen]
        if number < moment - 1:
            weights *= means.growth[chosen]
    normal = generator.standard_normal((count, size))
    for rows, columns, root in means.root:
        moved[:, rows] += normal[:, columns] @ root
    moved -= means.gram.diagonal() / 2
    highest = moved.max(axis=1)
    moved -= highest[:, np.newaxis]
    np.exp(moved, out=moved)
    return np.log(moved.mean(axis=1)) + highest, log_weights
