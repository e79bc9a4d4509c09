"""The one place that reads and writes stock privacy loss distributions."""

from collections.abc import Sequence
import dataclasses
import functools
import math
import numbers

from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import numpy as np

from dp_accounting_ext import dp_event
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.validation import fields

PrivacyLossDistribution = privacy_loss_distribution.PrivacyLossDistribution

# A limit: distributions that were read last and are kept, some 20 MB each.
_MOST_READ = 8
_LARGEST_SIZE = 25_000_000
_MOST_ATOMS = 10_000_000
_SPARSE_SIZE = 1000
_SUMMATION_ERROR = 1e-12
# Masses may sum to one plus this allowance of a hundred rounding errors.
_ABOVE_ONE = 1e-14
# Certified: masses of dp_accounting may sum to this. They have a surplus of 2e-6 for a
# run of Gaussian noise at an interval of 1e-5, and it grows with the number of runs.
_LARGEST_SUM = 1.5


def read(
    distribution: PrivacyLossDistribution,
) -> tuple[dominating_pair.DirectedPairs, float]:
    """Returns a distribution's pairs, each direction on its own, and its interval.

    A distribution is made a realization at its lowest losses: masses that sum to more
    than one are cut off there. Until Σ p e^{−loss} ≤ 1, the lowest losses of an upper
    (pessimistic) distribution are then raised, and those of a lower (optimistic) one
    are dropped.

    Raises:
        TypeError: If it is not a privacy loss distribution.
        ValueError: If a mass is NaN or negative, or they sum to more than 1.5.

    Source:
        https://arxiv.org/abs/2602.17284, Definition 3.1.
    """
    if not isinstance(distribution, PrivacyLossDistribution):
        raise TypeError(
            "privacy_loss_distribution must be a PrivacyLossDistribution. "
            f"Found {type(distribution).__name__}."
        )
    remove, add = distribution._pmf_remove, distribution._pmf_add
    if not (isinstance(remove, pld_pmf.PLDPmf) and isinstance(add, pld_pmf.PLDPmf)):
        raise TypeError(
            "privacy_loss_distribution must hold a PLDPmf for each direction. "
            f"Found {type(remove).__name__} and {type(add).__name__}."
        )
    if remove._pessimistic_estimate != add._pessimistic_estimate:
        raise ValueError(
            "privacy_loss_distribution must bound both directions from one side. "
            "Found a pessimistic_estimate and an optimistic one."
        )
    pair = _read_pmf(remove)
    other = pair if add is remove else _read_pmf(add)
    return (
        dominating_pair.DirectedPairs(pair, dominating_pair.dual(other)),
        fields.discretization_interval(remove._discretization),
    )


def _read_pmf(pmf: pld_pmf.PLDPmf) -> dominating_pair.DominatingPair:
    """Returns the pair of a stock PMF, whose masses are those of ln(dP/dQ) under P."""
    interval = fields.discretization_interval(pmf._discretization)
    indices, masses, infinity_mass = _masses(pmf)
    # A loss that is too large for floats counts as infinite.
    largest = 2 * floats.LARGEST_LOSS / interval
    losses = np.clip(indices, -largest, largest) * interval
    order = np.argsort(losses)
    losses, masses = losses[order], _without_surplus(masses[order], infinity_mass)
    bound = Bound.UPPER if pmf._pessimistic_estimate else Bound.LOWER
    if bound is Bound.UPPER:
        high = losses > floats.LARGEST_LOSS
        infinity_mass += float(masses[high].sum())
        losses, masses = np.maximum(losses[~high], -floats.LARGEST_LOSS), masses[~high]
        losses = _raised(losses, masses)
    else:
        is_finite = np.abs(losses) <= floats.LARGEST_LOSS
        losses, masses = losses[is_finite], masses[is_finite]
        # The largest losses are kept as long as Σ p e^{−loss} ≤ 1.
        sums_from_above = np.cumsum((masses * np.exp(-losses))[::-1])[::-1]
        masses = np.where(sums_from_above <= 1, masses, 0.0)
    q_masses = masses * np.exp(-losses)
    is_atom = (masses > floats.SMALLEST_MASS) & (q_masses > floats.SMALLEST_MASS)
    zero_mass = 0.0
    if bound is Bound.UPPER:
        rare = masses[~is_atom]
        infinity_mass += float(rare.sum()) + rare.size * floats.SMALLEST_MASS
        zero_mass = max(1 - float(q_masses[is_atom].sum()), 0.0)
    if not is_atom.any():
        sink = min(infinity_mass, 1.0) if bound is Bound.UPPER else 0.0
        revealing = dominating_pair.trivial_pair(bound)
        releasing_nothing = dominating_pair.identity_pair(bound)
        return dominating_pair.mixture([revealing, releasing_nothing], [sink, 1 - sink])
    distinct, index = np.unique(losses[is_atom], return_inverse=True)
    return dominating_pair.DominatingPair(
        np.exp(distinct),
        sums.gather(index.astype(np.int64), q_masses[is_atom], distinct.size),
        infinity_mass=min(infinity_mass, 1.0),
        zero_mass=zero_mass,
        bound=bound,
        mass_error=_SUMMATION_ERROR,
        ratio_error=_SUMMATION_ERROR,
    )


def _masses(pmf: pld_pmf.PLDPmf) -> tuple[FloatArray, FloatArray, float]:
    """Returns (n,) losses as multiples of the interval, their masses, and infinity's.

    The masses are checked: they are probabilities, but for the errors of dp_accounting.
    """
    if pmf.size > _MOST_ATOMS:
        raise ValueError(
            f"privacy_loss_distribution must have at most {_MOST_ATOMS} losses. "
            f"Found {pmf.size}."
        )
    if isinstance(pmf, pld_pmf.SparsePLDPmf):
        indices = _floats("losses", list(pmf._loss_probs.keys()))
        masses = _floats("masses", list(pmf._loss_probs.values()))
    else:
        dense = pmf.to_dense_pmf()
        masses = _floats("masses", dense._probs)
        indices = _floats("losses", [dense._lower_loss]) + np.arange(masses.size)
    is_integer = np.rint(indices) == indices
    is_integer &= np.abs(indices) <= fields.LARGEST_INTEGER
    if not is_integer.all():
        raise ValueError(
            "losses of privacy_loss_distribution must be integers of at most 2^53, "
            f"times the interval. Found {indices[~is_integer][0]}."
        )
    if not isinstance(pmf._infinity_mass, numbers.Real):
        raise TypeError(
            "infinity_mass of privacy_loss_distribution must be a real number. "
            f"Found {pmf._infinity_mass!r}."
        )
    infinity_mass = float(pmf._infinity_mass)
    smallest, total = masses.min(initial=0.0), float(masses.sum()) + infinity_mass
    if not (smallest >= -1e-9 and infinity_mass >= 0 and total <= _LARGEST_SUM):
        raise ValueError(
            "privacy_loss_distribution must hold probabilities that sum to at most 1. "
            f"Found a sum of {total}, a least mass of {smallest} and an infinity mass "
            f"of {infinity_mass}."
        )
    return indices, np.maximum(masses, 0.0), min(infinity_mass, 1.0)


def _floats(name: str, values: Sequence[float] | FloatArray) -> FloatArray:
    """Returns (n,) real numbers, after a check."""
    name = f"{name} of privacy_loss_distribution"
    array = fields.number_array(name, values)
    if array.ndim != 1:
        raise TypeError(
            f"{name} must be a list of real numbers. Found {array.ndim} dimensions."
        )
    return array.astype(np.float64)


def _without_surplus(masses: FloatArray, infinity_mass: float) -> FloatArray:
    """Returns masses that sum to at most one, but for their rounding.

    The surplus is cut off at the lowest losses. Let h be the mechanism's profile, a
    convex function of κ with h(0) = 1, and let κ' be the ratio of the lowest loss that
    stays. At and above κ' the profile of the masses is as before. Below κ' it becomes
    the chord from one, at κ = 0, which is no lower than h. So an upper profile stays
    one. A lower one becomes smaller.

    Args:
        masses: (n,) masses, in the order of increasing losses.
        infinity_mass: The mass of an infinite loss, at most 1.
    """
    rounding = 2 * masses.size * floats.UNIT_ROUNDOFF
    surplus = float(masses.sum()) + infinity_mass - 1 - rounding
    return np.minimum(masses, np.maximum(np.cumsum(masses) - max(surplus, 0.0), 0.0))


def _raised(losses: FloatArray, masses: FloatArray) -> FloatArray:
    """Returns losses with Σ p e^{−loss} ≤ 1: the lowest are raised to one level."""
    tails = np.append(np.cumsum((masses * np.exp(-losses))[::-1])[::-1], 0.0)
    below = np.append(0.0, np.cumsum(masses))
    ends = np.append(losses, math.inf)
    first = int(np.argmax(below * np.exp(-ends) + tails <= 1))
    if first == 0:
        return losses
    level = float(ends[first])
    if tails[first] < 1:
        lowest = math.log(below[first]) - math.log1p(-tails[first])
        level = min(level, lowest + _SUMMATION_ERROR)
    raised: FloatArray = np.maximum(losses, level)
    return raised


def write(
    pairs: dominating_pair.DirectedPairs, interval: float
) -> PrivacyLossDistribution:
    """Returns a stock distribution that bounds the mechanism from the pairs' side.

    For upper pairs, each loss is split between the two grid points around it, which
    keeps its P-mass and its Q-mass. For lower pairs, each loss is lowered to the grid,
    which costs up to one interval for each composition.

    Args:
        pairs: All upper, or all lower.
        interval: value_discretization_interval, in nats.

    Raises:
        ValueError: If the losses need more than 25 million intervals.
    """
    laws = [
        law_sums.of_pair(pair, atom_laws.Axis.LOSS)
        for pair in (pairs.remove, dominating_pair.dual(pairs.add))
    ]
    return PrivacyLossDistribution(*(_pmf(atoms, interval) for atoms in laws))


def _pmf(atoms: atom_laws.Atoms, interval: float) -> pld_pmf.PLDPmf:
    """Returns the stock PMF that bounds a law of losses from the law's side."""
    law = atoms.law
    upper = law.bound is Bound.UPPER
    if not atoms.values.size:
        atoms = dataclasses.replace(atoms, values=np.zeros(1), masses=np.zeros((1, 1)))
    finest = _finest_interval(atoms)
    if interval < finest:
        raise ValueError(
            f"value_discretization_interval must be at least {finest:.1e} for these "
            f"losses. Found {interval}."
        )
    if upper:
        raised = dataclasses.replace(atoms, values=atoms.values + law.ratio_error)
        start, (masses,) = atom_laws.placed(raised, interval)
    else:
        cells = np.floor((atoms.values - law.ratio_error) / interval).astype(np.int64)
        # dp_accounting cannot compute the ratio of a lower loss.
        is_placed = cells * interval >= -floats.LARGEST_LOSS
        start = int(cells[is_placed][0]) if is_placed.any() else 0
        size = int(cells[-1]) - start + 1
        masses = sums.gather_quickly(
            cells[is_placed] - start, atoms.masses[0, is_placed], max(size, 0)
        )
    # There may be a rounding for each loss, in the sums made here, and two for each
    # interval, in these sums and in those that dp_accounting makes.
    roundings = atoms.values.size + 2 * masses.size
    rounding = law.mass_error + _SUMMATION_ERROR
    rounding += roundings * floats.UNIT_ROUNDOFF
    if upper:
        masses = _heavier(masses, rounding, law.infinity_mass)
    else:
        masses *= max(1 - rounding, 0.0)
    factor_of_sinks = 1 + rounding if upper else max(1 - rounding, 0.0)
    infinity_mass = min(law.infinity_mass * factor_of_sinks, 1.0)
    occupied = np.flatnonzero(masses)
    if occupied.size <= _SPARSE_SIZE:
        probabilities = {start + int(i): float(masses[i]) for i in occupied}
        return pld_pmf.SparsePLDPmf(probabilities, interval, infinity_mass, upper)
    first, last = int(occupied[0]), int(occupied[-1])
    return pld_pmf.DensePLDPmf(
        interval, start + first, masses[first : last + 1], infinity_mass, upper
    )


def _finest_interval(atoms: atom_laws.Atoms) -> float:
    """Returns the interval below which losses do not fit memory, or integers."""
    lowest, highest = float(atoms.values[0]), float(atoms.values[-1])
    spread = highest - lowest
    largest = max(abs(lowest), abs(highest)) + atoms.law.ratio_error
    return max(spread / _LARGEST_SIZE, largest / fields.LARGEST_INTEGER)


def _heavier(masses: FloatArray, error: float, infinity_mass: float) -> FloatArray:
    """Returns masses whose upper tails are all certain to be heavy enough.

    All tails are raised by the relative error. But dp_accounting allows the masses to
    sum to one, or to one and a little by rounding. So tails are raised at most to one
    minus `infinity_mass`, and the lowest losses have less mass.
    """
    tails = np.cumsum(masses[::-1])
    tails *= 1 + error
    most = max(1 - infinity_mass, 0.0) * (1 + _ABOVE_ONE)
    np.minimum(tails, most, out=tails)
    heavier = np.empty_like(tails)
    heavier[-1:] = tails[:1]
    np.subtract(tails[:0:-1], tails[-2::-1], out=heavier[:-1])
    return heavier


def known_distribution(
    event: dp_event.PLDEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a mechanism of which a privacy loss distribution is known."""
    reader.require_own_relation(event)
    return _of_distribution(event.privacy_loss_distribution)


@functools.lru_cache(maxsize=_MOST_READ)
def _of_distribution(distribution: PrivacyLossDistribution) -> interface.Mechanism:
    """Returns the mechanism of a distribution.

    It is one object, so that an accountant counts the runs of it together.

    Raises:
        TypeError, ValueError: If it is no pessimistic privacy loss distribution.
    """
    mechanism = known_bounds.KnownPairs(read(distribution)[0])
    if mechanism.bound is not Bound.UPPER:
        raise ValueError(
            "privacy_loss_distribution must be pessimistic, as only an upper bound can "
            "be composed. Found pessimistic_estimate=False."
        )
    return mechanism
