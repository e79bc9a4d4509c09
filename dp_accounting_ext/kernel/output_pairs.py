"""Dominating pairs made from the probabilities of outputs."""

import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

DominatingPair = dominating_pair.DominatingPair


def of_probabilities(
    p: npt.ArrayLike, q: npt.ArrayLike, bound: Bound, *, error: float
) -> DominatingPair:
    """Returns the pair of a mechanism given by the probabilities of its outputs.

    Args:
        p: (n,) probabilities of n outputs, or of cells of outputs, with the record.
        q: (n,) probabilities of the same outputs without the record, in this order.
        bound: The side of the bound. Where the probabilities sum to less than one, the
            rest is unknown. It counts as an output that only one dataset has (upper),
            or that is equally likely under both (lower).
        error: A bound on the *relative* error of any probability, at most 0.003. A
            number that was rounded once has the error 2^-53; one that is computed by a
            few operations without cancellation has a few times that.

    Raises:
        ValueError: If p and q have different shapes; if a probability is NaN, negative
            or above one; if they sum to more than one; or if `error` is out of range.

    Guarantees:
        The pair dominates the mechanism (upper), or is dominated by it (lower). Outputs
        that are less likely than 1e-290 under either law go to the sinks (upper), or
        are left out (lower).
    """
    laws = [np.asarray(law, dtype=np.float64) for law in (p, q)]
    if laws[0].ndim != 1 or laws[0].shape != laws[1].shape:
        raise ValueError(
            "p and q must have one shape, (n,). "
            f"Found {laws[0].shape} and {laws[1].shape}."
        )
    if not 0 <= error <= dominating_pair.LARGEST_ERROR / 3:
        raise ValueError(f"error must be in [0, 0.003]. Found {error}.")
    unknown = [_unknown(name, law, error) for name, law in zip("pq", laws, strict=True)]
    rare = (laws[0] < floats.RARE) | (laws[1] < floats.RARE)
    common, sinks = [law[~rare] for law in laws], [0.0, 0.0]
    for place, law in enumerate(laws):
        # An output that the other law does not have is exact, whatever the rounding.
        exclusive = (laws[1 - place] == 0) & (law >= floats.RARE)
        sinks[place] = math.fsum(law[exclusive])
        if bound is Bound.UPPER:
            added = math.fsum(law[rare & ~exclusive]) + unknown[place]
            sink = (sinks[place] + added) * (1 + 4 * floats.UNIT_ROUNDOFF)
            sinks[place] = min(sink, 1.0)
    ratios, masses = common[0] / common[1], common[1]
    if not ratios.size:
        ratios, masses = np.ones(1), np.zeros(1)
    order = np.argsort(ratios, kind="stable")
    return DominatingPair(
        ratios[order],
        masses[order],
        infinity_mass=sinks[0],
        zero_mass=sinks[1],
        bound=bound,
        mass_error=error + 8 * floats.UNIT_ROUNDOFF,
        ratio_error=2.1 * error + 4 * floats.UNIT_ROUNDOFF,
    )


def _unknown(name: str, law: FloatArray, error: float) -> float:
    """Returns what probabilities lack to sum to one, by more than their error."""
    # Comparisons with NaN are false.
    wrong = ~((law >= 0) & (law <= 1 + error))
    if wrong.any():
        raise ValueError(
            f"{name} must hold probabilities, in [0, 1]. Found {law[wrong][0]}."
        )
    total, allowed = math.fsum(law), error + 4 * floats.UNIT_ROUNDOFF
    if total > 1 + allowed:
        raise ValueError(f"{name} must sum to at most 1. Found {total}.")
    return 1 - total if total < 1 - allowed else 0.0
