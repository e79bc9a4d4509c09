"""Samples by which a mean of correlated ratios is integrated, every one bounded.

With m_1 … m_b the means of Gaussians of covariance I, G their inner products, X_i the
ratio of N(m_i, I) to Q = N(0, I), and Z the mean of the X_i: draw i_1 … i_m, each
given those before with a probability in proportion to e^{Σ G_ij over those}, whose sum
is N_l, and y from Q moved by m_{i_1} + … + m_{i_m}. Then

    h = (Π N_l / b) (Z − κ)₊ / Z^m

has the mean E_Q (Z − κ)₊: the tuple and y have the density q(y) Π X_{i_l}(y) / Π N_l,
and the sum over all tuples of Π X_{i_l} is (b Z)^m. Where each bin has few neighbours
several tuples share one draw of noise, and their mean is one sample: a tuple changes Z
in the neighbourhoods of its bins alone, which costs little beside the noise.
"""

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import floats

FloatArray = npt.NDArray[np.float64]

# Tuning: numbers in a block of samples; rows of a block of the covariance's root.
_BLOCK_SIZE, _ROWS = 1 << 18, 32
# Tuples to a draw of noise, where m² neighbours are at most such a share of the bins:
# with 15 neighbours of 1024 bins and m = 3 a bracket takes 13 s of CPU, not 48.
_TUPLES, _FEW_NEIGHBOURS = 8, 0.25
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

    @functools.cached_property
    def neighbours(self) -> npt.NDArray[np.int64]:
        """(b, w) whose product with a bin is positive, filled up with others."""
        order = np.argsort(-self.gram, axis=1, kind="stable")[:, : self.width]
        return np.ascontiguousarray(order)

    @functools.cached_property
    def width(self) -> int:
        """The largest number of bins whose product with one is positive."""
        return int(np.count_nonzero(self.gram, axis=1).max())

    def tuples(self, moment: int) -> int:
        """Number of tuples that share one draw of noise."""
        work = moment**2 * self.width
        return _TUPLES if work <= _FEW_NEIGHBOURS * len(self.gram) else 1

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
        log_ratios: (n, t) ln Z, for each of the tuples of a sample.
        log_weights: (n, t) ln Π N_l / b.
        log_largest: A bound on any of these weights.
    """

    moment: int
    log_ratios: FloatArray
    log_weights: FloatArray
    log_largest: float

    def values(self, epsilon: float) -> FloatArray:
        """Returns (n,) values of h at κ = e^ε, means over tuples."""
        above = -np.expm1(np.minimum(epsilon - self.log_ratios, 0.0))
        exponents = self.log_weights + (1 - self.moment) * self.log_ratios
        return np.asarray((np.exp(exponents) * above).mean(axis=1))

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
    tuples = means.tuples(moment)
    if tuples > 1:
        noise = _noise(means, count, generator)
        np.exp(noise, out=noise)
        return _draw_near(means, moment, noise, tuples, generator)
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
    moved += _noise(means, count, generator)
    highest = moved.max(axis=1)
    moved -= highest[:, np.newaxis]
    np.exp(moved, out=moved)
    log_ratios = np.log(moved.mean(axis=1)) + highest
    return log_ratios[:, np.newaxis], log_weights[:, np.newaxis]


def _noise(means: Means, count: int, generator: np.random.Generator) -> FloatArray:
    """Returns (count, b) draws of g_i − G_ii / 2 under Q."""
    normal = generator.standard_normal((count, len(means.gram)))
    noise = np.empty_like(normal)
    for rows, columns, root in means.root:
        np.matmul(normal[:, columns], root, out=noise[:, rows])
    noise -= means.gram.diagonal() / 2
    return noise


def _draw_near(
    means: Means,
    moment: int,
    ratios: FloatArray,
    tuples: int,
    generator: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Returns so many tuples for each draw of noise, by what they change.

    With E_i the sum of G_ij over the tuple so far, Σ_i X_i (e^{E_i} − 1) grows with
    each further index j by Σ_i X_i e^{E_i} (e^{G_ij} − 1), over the neighbours of j.

    Args:
        means: The Gaussians.
        moment: m.
        ratios: (n, b) draws of the X_i under Q.
        tuples: t.
        generator: The source of all randomness.
    """
    count, size = ratios.shape
    rows = np.repeat(np.arange(count), tuples)
    log_weights = np.zeros(rows.size)
    added = np.zeros(rows.size)
    chosen: list[npt.NDArray[np.int64]] = []
    changes = np.empty((rows.size, 0))
    near = means.neighbours
    for _ in range(moment):
        cumulative = np.cumsum(changes, axis=1)
        total = size + (cumulative[:, -1] if chosen else np.zeros(rows.size))
        if chosen:
            log_weights += np.log(total / size)
        goals = generator.random(rows.size) * total
        # Up to b each index counts once; beyond are what those before have changed.
        index = np.minimum(goals.astype(np.int64), size - 1)
        beyond = np.flatnonzero(goals >= size)
        if beyond.size:
            found = cumulative[beyond] <= (goals[beyond] - size)[:, np.newaxis]
            place = np.minimum(found.sum(axis=1), cumulative.shape[1] - 1)
            which, offset = np.divmod(place, near.shape[1])
            index[beyond] = near[np.stack(chosen)[which, beyond], offset]
        around = near[index]
        exponents = np.zeros(around.shape)
        for other in chosen:
            exponents += means.gram[other[:, np.newaxis], around]
        change = np.exp(exponents)
        change *= np.expm1(means.gram[index[:, np.newaxis], around])
        added += (change * ratios[rows[:, np.newaxis], around]).sum(axis=1)
        changes = np.concatenate([changes, change], axis=1)
        chosen.append(index)
    shape = (count, tuples)
    whole = ratios.sum(axis=1)[rows] + added
    return np.log(whole / size).reshape(shape), log_weights.reshape(shape)
