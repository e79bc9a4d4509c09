"""What the Rényi accountant composes: curves that are computed when they are asked."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import numpy as np

from dp_accounting_ext.renyi import divergence
from dp_accounting_ext.renyi import group_subsampling
from dp_accounting_ext.renyi import sampling
from dp_accounting_ext.renyi import selection

FloatArray = divergence.FloatArray

# Certified: a product, and a sum, of a few roundings.
_ROUNDING = 8 * 2.0**-53


@dataclasses.dataclass(frozen=True)
class Curve:
    """A mechanism's Rényi divergences, but for an event of small probability.

    With probability δ, whatever the data, the mechanism may tell everything; else its
    divergences, of either direction, are at most the kernel's.

    Attributes:
        kernel: From orders and the parameters to divergences: (n,) of n orders, or for
            a group (K + 1, n), a row a split.
        parameters: Hashable.
        delta: δ, rounded up.
    """

    kernel: Callable[..., FloatArray]
    parameters: tuple[Any, ...] = ()
    delta: float = 0.0

    def rdp(self, orders: Sequence[float]) -> FloatArray:
        """Returns the divergences at orders α ≥ 1; the last few curves are kept."""
        return _rdp(self, tuple(float(order) for order in orders))

    def log_kept(self) -> float:
        """Returns log(1 − δ), rounded down."""
        if self.delta == 1:
            return -math.inf
        return math.log1p(-self.delta) * (1 + _ROUNDING)

    def distance(self) -> float | None:
        """Returns the distance of Gaussians that it is the divergence of, if it is."""
        if self.kernel is gaussian_rdp and not self.delta:
            return float(self.parameters[0])
        return None


@functools.lru_cache(maxsize=64)
def _rdp(curve: Curve, orders: tuple[float, ...]) -> FloatArray:
    values = np.array(curve.kernel(orders, *curve.parameters))
    if not _tells_nothing(curve):
        # Samples of samples have divergences that fit no float: none of them is 0.
        values = np.maximum(values, divergence.LEAST)
    values.setflags(write=False)
    return values


def _tells_nothing(curve: Curve) -> bool:
    """Tells whether all divergences of a curve are 0, and not only next to it."""
    inner = list(_curves_in(curve.parameters))
    if inner:
        return all(map(_tells_nothing, inner))
    return curve.kernel is _nothing or curve.parameters[:1] == (0.0,)


def _curves_in(parameters: Iterable[Any]) -> Iterable[Curve]:
    """Yields the curves that a curve is made of."""
    for each in parameters:
        if isinstance(each, Curve):
            yield each
        elif isinstance(each, tuple):
            yield from _curves_in(each)


def gaussian_rdp(orders: Sequence[float], distance: float) -> FloatArray:
    """Returns the divergences of N(d, 1) from N(0, 1)."""
    if distance == 0:  # Of every order, also of an infinite one.
        return np.zeros(len(orders))
    rounded: FloatArray = np.array(orders) * (distance**2 / 2 * (1 + _ROUNDING))
    return rounded


def _nothing(orders: Sequence[float]) -> FloatArray:
    return np.zeros(len(orders))


def _sum(orders: Sequence[float], parts: Iterable[tuple[Curve, int]]) -> FloatArray:
    total = _nothing(orders)
    for part, count in parts:
        total = (total + count * part.rdp(orders)) * (1 + _ROUNDING)
    return total


def _poisson(orders: Sequence[float], inner: Curve, rate: float) -> FloatArray:
    return sampling.poisson_rdp(orders, inner.rdp, rate)


def _poisson_gaussian(
    orders: Sequence[float], distance: float, rate: float
) -> FloatArray:
    # Rounded down: less noise, a larger divergence.
    noise = (1 - _ROUNDING) / distance
    largest: FloatArray = group_subsampling.group_rdp(orders, 1, rate, noise).max(
        axis=0
    )
    return largest


def _group(
    orders: Sequence[float], size: int, parts: Iterable[tuple[float, float, int]]
) -> FloatArray:
    rows = np.zeros((size + 1, len(orders)))
    for rate, noise, count in parts:
        run = group_subsampling.group_rdp(orders, size, rate, noise)
        rows = (rows + count * run) * (1 + _ROUNDING)
    return rows


def _replaced(
    orders: Sequence[float], size: int, parts: Iterable[tuple[float, float, int]]
) -> FloatArray:
    """Of twice as many the split of which half leave: all of a group are replaced."""
    row = _group(orders, 2 * size, parts)[size]
    return np.tile(row, (size + 1, 1)) if size > 1 else row


def _batch(orders: Sequence[float], inner: Curve, fraction: float) -> FloatArray:
    return sampling.without_replacement_rdp(orders, inner.rdp, fraction)


def _selected(
    orders: Sequence[float], inner: Curve, mean: float, shape: float
) -> FloatArray:
    return selection.selection_rdp(orders, inner.rdp, mean, shape)


# Kernels that know of a mechanism on a sample no more than its divergences.
LOOSE = _poisson, _batch

NO_OP = Curve(_nothing)
NON_PRIVATE = Curve(_nothing, delta=1.0)


def gaussian(distance: float) -> Curve:
    """Returns the curve of Gaussian noise, neighbours' sums so many σ apart."""
    return Curve(gaussian_rdp, (distance,)) if distance else NO_OP


def together(counts: Mapping[Curve, int]) -> dict[Curve, int]:
    """Returns the same with all Gaussian parts in one, as they compose."""
    others = {part: n for part, n in counts.items() if part.distance() is None}
    squares = [
        count * distance**2
        for part, count in counts.items()
        if (distance := part.distance()) is not None
    ]
    if len(others) == len(counts) or len(counts) == sum(counts.values()) == 1:
        return dict(counts)
    square = math.fsum(squares) * (1 + _ROUNDING)
    return {gaussian(math.sqrt(square) * (1 + _ROUNDING)): 1, **others}


def compose(counts: Mapping[Curve, int]) -> Curve:
    """Returns the curve of parts, each composed so often."""
    parts = together(counts)
    if not parts:
        return NO_OP
    if len(parts) == 1 and list(parts.values()) == [1]:
        return next(iter(parts))
    log_kept = math.fsum(count * part.log_kept() for part, count in parts.items())
    return Curve(_sum, (tuple(parts.items()),), told(log_kept))


def told(log_kept: float) -> float:
    """Returns δ of log(1 − δ), rounded up."""
    return min(-math.expm1(log_kept) * (1 + _ROUNDING), 1.0)


def group(
    size: int, parts: Iterable[tuple[float, Curve, int]], *, replaced: bool = False
) -> Curve:
    """Returns the curve of a group of records, a row a split of it.

    Args:
        size: K, the number of records.
        parts: Inclusion probability of each record, Gaussian noise on a record's
            sample (or what tells nothing, or everything), and number of runs.
        replaced: Whether others take the group's places, on the same draws, so that
            noise is given for sums twice a record's norm apart. Then there is one row
            for one record, and K + 1 equal ones for a group.
    """
    gaussians, log_kept = [], 0.0
    for rate, inner, count in parts:
        distance = inner.distance()
        if distance is not None:
            norms = 2 if replaced else 1
            gaussians.append((rate, (1 - _ROUNDING) * norms / distance, count))
        elif inner.delta:
            # That no member is in its batch.
            kept = size * math.log1p(-rate) if rate < 1 else -math.inf
            log_kept += count * kept * (1 + _ROUNDING)
    kernel = _replaced if replaced else _group
    return Curve(kernel, (size, tuple(gaussians)), told(log_kept))


def on_poisson_sample(inner: Curve, rate: float) -> Curve:
    """Returns the curve of a mechanism on a Poisson sample of the records."""
    distance = inner.distance()
    if rate == 1:
        return inner
    if rate == 0 or inner == NO_OP:
        return NO_OP
    if distance is not None:
        return Curve(_poisson_gaussian, (distance, rate))
    return _amplified(_poisson, inner, rate)


def on_batch(inner: Curve, fraction: float) -> Curve:
    """Returns the curve of a mechanism on a batch, one record replaced by another."""
    if fraction == 1:
        return inner
    if fraction == 0 or inner == NO_OP:
        return NO_OP
    return _amplified(_batch, inner, fraction)


def _amplified(kernel: Callable[..., FloatArray], inner: Curve, rate: float) -> Curve:
    """Returns a sampled curve; what tells everything does so of a record in the sample.

    With probability 1 − δ the sampled mechanism is that of the curve; else it is the
    same for both datasets, but for the sampled record's share q.
    """
    delta = min(rate * inner.delta * (1 + _ROUNDING), 1.0)
    return Curve(kernel, (inner, rate), delta)


def selected(inner: Curve, mean: float, shape: float) -> Curve:
    """Returns the curve of the best of a random number of runs.

    That none of K runs tells everything has probability E (1 − δ)^K ≥ 1 − δ E K, and
    leaves K a law of the same shape and of a smaller mean.
    """
    delta = min(mean * inner.delta * (1 + _ROUNDING), 1.0)
    return Curve(_selected, (inner, mean, shape), delta)
