"""Rényi divergences of mechanisms: by their theorems, or else by their pairs."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import renyi_of_pairs
from dp_accounting_ext.renyi import ratio_moments
from dp_accounting_ext.renyi import subsampling

Divergences = interface.Divergences


def of(mechanism: interface.Mechanism, orders: Sequence[float]) -> Divergences:
    """Returns upper bounds on the Rényi divergences of a mechanism. They are cached.

    Args:
        mechanism: Anything that has pairs.
        orders: (n,) Rényi orders α ≥ 1, inf included.
    """
    return _of(mechanism, tuple(float(order) for order in orders))


def both_ways(
    mechanism: interface.Mechanism, orders: Sequence[float]
) -> tuple[FloatArray, FloatArray, float]:
    """Returns bounds on the divergences of P‖Q and Q‖P, and the failure probability.

    Args:
        mechanism: Anything that has pairs.
        orders: (n,) Rényi orders α ≥ 1.
    """
    larger, failure_probability = of(mechanism, orders)
    if failure_probability:
        return larger, larger, failure_probability
    above = [max(float(order), ratio_moments.LOWEST_ORDER) for order in orders]
    found = renyi_of_pairs.divergences(mechanism, above, Bound.UPPER)
    removed, added = (np.minimum(larger, each) for each in found)
    return removed, added, 0.0


@functools.lru_cache(maxsize=64)
def _of(mechanism: interface.Mechanism, orders: tuple[float, ...]) -> Divergences:
    found = mechanism.rdp(orders)
    if found is None:
        found = _by_parts(mechanism, orders)
    values = found.values
    parts = compositions.unpacked({mechanism: 1})
    if not all(part.revealed for part in parts):
        # The divergences of samples of samples may underflow, but none of them is 0.
        values = np.maximum(values, floats.SMALLEST_MASS)
    values.setflags(write=False)
    return Divergences(values, found.failure_probability)


def _by_parts(mechanism: interface.Mechanism, orders: tuple[float, ...]) -> Divergences:
    """Returns the bounds of the parts of a mechanism, or else those of its pairs."""
    sample = mechanism.sampled_from()
    if sample is not None:
        return of_sample(mechanism, *sample, orders, subsampling.poisson_rdp)
    first, *others = (
        renyi_of_pairs.upper(mechanism, orders)
        if parts == {mechanism: 1}
        else _of_composition(parts, orders)
        for parts in mechanism.routes(Bound.UPPER)
    )
    # Each of them is a bound.
    values, failure_probability = first
    for other in others:
        if other.failure_probability <= failure_probability:
            values = np.minimum(values, other.values)
    return Divergences(values, failure_probability)


def of_sample(
    sampled: interface.Mechanism,
    rate: float,
    inner: interface.Mechanism,
    orders: Sequence[float],
    theorem: Callable[[Sequence[float], subsampling.Curve, float], FloatArray],
) -> Divergences:
    """Returns the smaller of a theorem's bounds on a sample and those of its pairs.

    The theorem uses the Rényi divergences of the sampled mechanism, and these hold only
    with probability 1 − δ. With probability δ the mechanism may reveal everything, but
    only of the records in the batch. So a record is revealed with probability δ times
    its share of the batches.

    Args:
        sampled: The sample.
        rate: The record's share of the batches.
        inner: What runs on the sample.
        orders: (n,) orders.
        theorem: From orders, the curve of what is sampled and the rate to bounds.
    """
    values = theorem(orders, lambda asked: of(inner, asked).values, rate)
    failure_probability = of(inner, orders).failure_probability
    if failure_probability:
        rounded = rate * failure_probability * (1 + 4 * floats.UNIT_ROUNDOFF)
        return Divergences(values, min(rounded, 1.0))
    found = renyi_of_pairs.upper(sampled, orders)
    if found.failure_probability:
        return Divergences(values)
    return Divergences(np.minimum(values, found.values))


def _of_composition(
    counts: Mapping[interface.Mechanism, int], orders: tuple[float, ...]
) -> Divergences:
    """Returns the sum of the parts' divergences."""
    total = np.zeros(len(orders))
    failures = []
    for part, count in counts.items():
        found = of(part, orders)
        total += count * found.values
        failures.append((found.failure_probability, count))
    rounded = 1 + 4 * (len(counts) + 1) * floats.UNIT_ROUNDOFF
    return Divergences(total * rounded, interface.probability_of_any(failures))
