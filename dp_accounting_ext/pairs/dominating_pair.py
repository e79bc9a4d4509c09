"""The one type that flows through the package: the law of Z = dP/dQ under Q."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import enum
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import profile
from dp_accounting_ext.kernels import sums

FloatArray = npt.NDArray[np.float64]

UNIT_ROUNDOFF = floats.UNIT_ROUNDOFF  # For mechanisms registered by others.

# Certified: up to it 1 / (1 − e) is at most e^{1.01 e}, the factor of `allowance`.
_LARGEST_ERROR = 0.01


class Bound(enum.Enum):
    """Which side of the true privacy profile a pair certifies."""

    UPPER = "upper"
    LOWER = "lower"


class Direction(enum.Enum):
    """Which of the two adjacent datasets holds the record."""

    REMOVE = "remove"
    ADD = "add"


@dataclasses.dataclass(frozen=True)
class DominatingPair:
    """A pair (P, Q), represented by the law of Z = dP/dQ under Q.

    With atoms z_i of Q-mass q_i, the hockey-stick divergences at κ = e^ε are

        remove: H_κ(P‖Q) = infinity_mass + Σ q_i (z_i − κ)_+
        add:    H_κ(Q‖P) = zero_mass + Σ q_i (1 − κ z_i)_+

    A pair dominates another in both directions if and only if its Z is larger
    in the convex order. This is the paper's PLD realization (Definition 3.1 of
    https://arxiv.org/abs/2602.17284): loss ln z_i with mass q_i z_i.

    Attributes:
        ratios: (n,) values of Z, positive and increasing.
        masses: (n,) their probabilities under Q.
        infinity_mass: P(dQ = 0), the mass of an infinite loss when a record is
            removed.
        zero_mass: Q(dP = 0), the mass of an infinite loss when one is added.
        bound: Whether the pair dominates the mechanism or is dominated by it.
        mass_error: Bound on the relative rounding error of any mass. Those of a lower
            pair count as exact: (1 − mass_error) times them, at ratios within
            ratio_error, is below the mechanism in the order of convex functions ≥ 0.
        ratio_error: Bound on the relative rounding error of any ratio.

    Guarantees:
        `delta` and `epsilon` count both errors in on the safe side.
    """

    ratios: FloatArray
    masses: FloatArray
    infinity_mass: float
    zero_mass: float
    bound: Bound
    mass_error: float = 0.0
    ratio_error: float = 0.0

    @property
    def p_masses(self) -> FloatArray:
        """(n,) probabilities of the ratios under P."""
        return self.ratios * self.masses

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self.ratios.nbytes + self.masses.nbytes

    def variance(self) -> float:
        """Returns the variance of Z under Q, infinite ratios aside."""
        mean = float(self.p_masses.sum())
        return (
            sums.dot(self.masses, (self.ratios - mean) ** 2) + self.zero_mass * mean**2
        )

    def hockey_stick(self, epsilon: float, direction: Direction) -> float:
        """Returns the hockey-stick divergence at e^epsilon of the atoms as stored."""
        kappa = floats.exponential(epsilon)
        if direction is Direction.REMOVE:
            above = np.maximum(self.ratios - kappa, 0.0)
            return self.infinity_mass + sums.dot(self.masses, above)
        with np.errstate(over="ignore"):
            scaled = kappa * self.ratios
        return self.zero_mass + sums.dot(self.masses, np.maximum(1.0 - scaled, 0.0))

    def delta(self, epsilon: float, direction: Direction) -> float:
        """Returns a certified δ at ε, in nats; it never errs on the unsafe side."""
        shift, factor = self._allowance()
        value = factor * self.hockey_stick(epsilon + shift, direction)
        return min(max(value, 0.0), 1.0)

    def epsilon(self, delta: float, direction: Direction) -> float:
        """Returns a certified ε ≥ 0 at δ, in nats; inf where a sink exceeds δ."""
        shift, factor = self._allowance()
        order = slice(None, None, -1 if direction is Direction.REMOVE else 1)
        gain, cost = self.p_masses[order], self.masses[order]
        sink = self.infinity_mass
        if direction is Direction.ADD:
            gain, cost, sink = cost, gain, self.zero_mass
        log_kappa = profile.log_kappa(gain, cost, sink, delta / factor)
        return max(0.0, log_kappa - shift)

    def loss_range(self) -> float:
        """Returns the largest finite loss minus the smallest, in nats."""
        return math.log(float(self.ratios[-1])) - math.log(float(self.ratios[0]))

    def _allowance(self) -> tuple[float, float]:
        """Returns the shift of ε and the factor of δ that make an answer certain."""
        return allowance(
            self.bound, self.masses.size, self.mass_error, self.ratio_error
        )


@dataclasses.dataclass(frozen=True)
class DirectedPairs:
    """A mechanism's pair in each direction; most often one pair serves both.

    Both are the law of Z = dP/dQ under Q, P with the record.

    Attributes:
        remove: The pair whose divergence H(P‖Q) bounds the mechanism's.
        add: The pair whose divergence H(Q‖P) does.
    """

    remove: DominatingPair
    add: DominatingPair

    def of(self, direction: Direction) -> DominatingPair:
        """Returns the pair of one direction."""
        return self.remove if direction is Direction.REMOVE else self.add

    @property
    def nbytes(self) -> int:
        """The memory that both take."""
        other = 0 if self.add is self.remove else self.add.nbytes
        return self.remove.nbytes + other

    @classmethod
    def same(cls, pair: DominatingPair) -> "DirectedPairs":
        """Returns one pair for both directions."""
        return cls(pair, pair)

    @classmethod
    def combined(
        cls,
        each: Sequence["DirectedPairs"],
        function: Callable[[Sequence[DominatingPair]], DominatingPair],
    ) -> "DirectedPairs":
        """Returns a function of several mechanisms' pairs, in each direction.

        It is computed once where every mechanism has one pair for both.
        """
        remove = function([pairs.remove for pairs in each])
        if all(pairs.add is pairs.remove for pairs in each):
            return cls.same(remove)
        return cls(remove, function([pairs.add for pairs in each]))

    def map(
        self, function: Callable[[DominatingPair], DominatingPair]
    ) -> "DirectedPairs":
        """Returns the images of both pairs, computed once where they are one."""
        return DirectedPairs.combined([self], lambda pairs: function(pairs[0]))

    def swapped(self) -> "DirectedPairs":
        """Returns the pairs of the same two datasets exchanged."""
        remove = dual(self.add)
        if self.add is self.remove:
            return DirectedPairs.same(remove)
        return DirectedPairs(remove, dual(self.remove))


def trivial_pair(bound: Bound) -> DominatingPair:
    """Returns the pair that dominates all (upper), or is dominated by all (lower)."""
    if bound is Bound.LOWER:
        return identity_pair(bound)
    return DominatingPair(np.ones(1), np.zeros(1), 1.0, 1.0, bound)


def identity_pair(bound: Bound) -> DominatingPair:
    """Returns the pair of what tells nothing: Z is 1."""
    return DominatingPair(np.ones(1), np.ones(1), 0.0, 0.0, bound)


def certain(pair: DominatingPair) -> DominatingPair:
    """Returns the pair, or what says nothing where it has no atom, or large errors.

    Errors add up from step to step. Their bounds are of first order, so that they
    must stay well below one.
    """
    if pair.ratios.size and pair.mass_error + pair.ratio_error <= _LARGEST_ERROR:
        return pair
    return trivial_pair(pair.bound)


def without_tails(pair: DominatingPair, tail_mass: float) -> DominatingPair:
    """Returns the pair without its rarest ratios at either end.

    They go to both sinks (an upper bound: a split to 0 and infinity), or are
    dropped (a lower one).

    Args:
        pair: n atoms.
        tail_mass: The P-mass of high ratios, and the Q-mass of low ones, that goes.
    """
    if not pair.p_masses.any():
        return pair
    above = np.cumsum(pair.p_masses[::-1])[::-1]
    low = int(np.searchsorted(np.cumsum(pair.masses), tail_mass))
    high = int(np.searchsorted(-above, -tail_mass))
    low, high = min(low, pair.ratios.size - 1), max(high, 1)
    kept = slice(low, max(high, low + 1))
    lost_p = lost_q = 0.0
    if pair.bound is Bound.UPPER:
        rounding = floats.raised(1 + pair.mass_error + pair.ratio_error)
        gone = np.ones(pair.ratios.size, dtype=np.bool_)
        gone[kept] = False
        lost_p = float(pair.p_masses[gone].sum()) * rounding
        lost_q = float(pair.masses[gone].sum()) * rounding
    return dataclasses.replace(
        pair,
        ratios=pair.ratios[kept],
        masses=pair.masses[kept],
        infinity_mass=pair.infinity_mass + lost_p,
        zero_mass=pair.zero_mass + lost_q,
    )


def below_loss(pair: DominatingPair, largest: float) -> DominatingPair:
    """Returns the pair without losses above a largest one, in nats.

    Where a record is removed they count as infinite (an upper bound), or not at all
    (a lower one).
    """
    kept = pair.ratios <= math.exp(largest)
    if kept.all() or not kept.any():
        return pair
    lost = 0.0
    if pair.bound is Bound.UPPER:
        rounding = floats.raised(1 + pair.mass_error + pair.ratio_error)
        lost = float(pair.p_masses[~kept].sum()) * rounding
    # Under Q their mass stays, at the largest ratio that is kept.
    masses = pair.masses[kept].copy()
    if pair.bound is Bound.UPPER:
        masses[-1] += pair.masses[~kept].sum()
    return dataclasses.replace(
        pair,
        ratios=pair.ratios[kept],
        masses=masses,
        infinity_mass=pair.infinity_mass + lost,
    )


def mixture(
    pairs: Sequence[DominatingPair], weights: Sequence[float]
) -> DominatingPair:
    """Returns the pair of a mechanism that draws one of several, and tells which.

    Args:
        pairs: All upper or all lower bounds.
        weights: Their probabilities, which sum to one.
    """
    ratios = np.concatenate([pair.ratios for pair in pairs])
    masses = np.concatenate(
        [weight * pair.masses for pair, weight in zip(pairs, weights, strict=True)]
    )
    order = np.argsort(ratios, kind="stable")

    def mean(values: Sequence[float]) -> float:
        return sum(w * value for w, value in zip(weights, values, strict=True))

    return DominatingPair(
        ratios[order],
        masses[order],
        infinity_mass=mean([pair.infinity_mass for pair in pairs]),
        zero_mass=mean([pair.zero_mass for pair in pairs]),
        bound=pairs[0].bound,
        mass_error=max(pair.mass_error for pair in pairs) + 4 * floats.UNIT_ROUNDOFF,
        ratio_error=max(pair.ratio_error for pair in pairs),
    )


def allowance(
    bound: Bound, terms: int, mass_error: float, ratio_error: float
) -> tuple[float, float]:
    """Returns how an answer that sums rounded terms is made certain.

    Args:
        bound: The side to err on.
        terms: How many terms are summed.
        mass_error: Bound on the relative error of each mass.
        ratio_error: Bound on the relative error of each ratio.

    Returns:
        The amount to add to ε before a divergence is evaluated there, and the
        factor to multiply the divergence by.
    """
    summation = 2 * (terms + 16) * floats.UNIT_ROUNDOFF
    factor = mass_error + ratio_error + summation
    shift = ratio_error + summation
    if bound is Bound.UPPER:
        # Errors multiply, and (1 + e)^n is more than 1 + n e.
        return -shift, math.exp(min(1.01 * factor, floats.LARGEST_EXPONENT))
    return shift, max(1 - factor, 0.0)


def dual(pair: DominatingPair) -> DominatingPair:
    """Returns the pair with P and Q exchanged.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 7 (and Claim A.2).
    """
    return dataclasses.replace(
        pair,
        ratios=1 / pair.ratios[::-1],
        masses=pair.p_masses[::-1],
        infinity_mass=pair.zero_mass,
        zero_mass=pair.infinity_mass,
        mass_error=pair.mass_error + pair.ratio_error + floats.UNIT_ROUNDOFF,
        ratio_error=pair.ratio_error + floats.UNIT_ROUNDOFF,
    )
