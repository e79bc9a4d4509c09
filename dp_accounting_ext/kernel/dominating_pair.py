"""Dominating pairs, the one type that flows through the package."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import profile

# Certified: the error of a product, or of a sum of a few terms, that is subnormal.
_DENORMAL_UNITS = 8 * 5e-324
# Ratios that are equal but for rounding may be in the wrong order by this much.
_DISORDER = 1e-9
# Certified: up to this error e, 1 / (1 − e) is at most e^{1.01 e}.
LARGEST_ERROR = 0.01


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
        masses: (n,) probabilities of the ratios under Q.
        infinity_mass: P(dQ = 0), the probability of an infinite loss when a record is
            removed.
        zero_mass: Q(dP = 0), the probability of an infinite loss when one is added.
        bound: Whether the pair dominates the mechanism or is dominated by it.
        mass_error: A bound on the relative rounding error of any mass. The masses of a
            lower pair count as exact: with masses multiplied by (1 − mass_error), and
            ratios within `ratio_error`, the pair is below the mechanism in the order of
            nonnegative convex functions.
        ratio_error: A bound on the relative rounding error of any ratio.

    Guarantees:
        `delta` and `epsilon` count both errors on the safe side. The P-mass and the
        Q-mass of every atom are 0 or at least 1e-300, so that no ratio and no e^ε
        multiplies a subnormal mass. If one is smaller, the constructor sends both to
        the sinks (upper), or raises the smaller one to 1e-300 (lower).

    Raises:
        ValueError: If ratios are not positive, finite and increasing, or masses and
            errors are not finite and at least 0.
    """

    ratios: FloatArray
    masses: FloatArray
    infinity_mass: float
    zero_mass: float
    bound: Bound
    mass_error: float = 0.0
    ratio_error: float = 0.0

    def __post_init__(self) -> None:
        self._check()
        self._normalize()
        conservation.check_pair(
            (float(self.p_masses.sum()), float(self.masses.sum())),
            (self.infinity_mass, self.zero_mass),
            (self.mass_error + self.ratio_error, self.mass_error),
            is_upper=self.bound is Bound.UPPER,
        )

    def _normalize(self) -> None:
        """Sorts the ratios, and loses or lifts the atoms with a mass below 1e-300."""
        if (self.ratios[1:] < self.ratios[:-1]).any():
            order = np.argsort(self.ratios, kind="stable")
            object.__setattr__(self, "ratios", self.ratios[order])
            object.__setattr__(self, "masses", self.masses[order])
        p_masses = self.p_masses
        rare = np.minimum(self.masses, p_masses) < floats.SMALLEST_MASS
        if not rare.any():
            return
        # A ratio that underflowed is stored as 0.
        rare &= (self.masses > 0) | (self.ratios == 0)
        if not rare.any():
            return
        if self.bound is Bound.UPPER:
            self._lose(rare, p_masses)
        else:
            self._lift(rare, p_masses)

    def _lose(self, rare: BoolArray, p_masses: FloatArray) -> None:
        """Sends the P-mass and the Q-mass of rare atoms to the sinks."""
        rounding = floats.raised(1 + self.mass_error + self.ratio_error)
        # The rounding error of a subnormal mass is multiplied by its ratio.
        lacking = self.ratios * (self.masses < floats.SMALLEST_MASS) + 1.0
        p_lost = float((p_masses + _DENORMAL_UNITS * lacking)[rare].sum()) * rounding
        q_lost = float((self.masses + _DENORMAL_UNITS)[rare].sum()) * rounding
        self._set(self.ratios[~rare], self.masses[~rare])
        object.__setattr__(self, "infinity_mass", self.infinity_mass + p_lost)
        object.__setattr__(self, "zero_mass", self.zero_mass + q_lost)

    def _lift(self, rare: BoolArray, p_masses: FloatArray) -> None:
        """Raises the smaller mass of rare atoms, which brings P and Q closer.

        It is raised by at most 1e-300, which is far below the rounding of any δ. An
        atom both of whose masses are rare is dropped.
        """
        remaining = ~rare | (np.maximum(self.masses, p_masses) >= floats.TINY)
        rises = rare[remaining]
        ratios, masses = self.ratios[remaining].copy(), self.masses[remaining].copy()
        p_lifted = np.maximum(p_masses[remaining][rises], floats.SMALLEST_MASS)
        masses[rises] = np.maximum(masses[rises], floats.SMALLEST_MASS)
        # The rounded product must not be below `p_lifted`.
        ratios[rises] = p_lifted / masses[rises] * (1 + 4 * floats.UNIT_ROUNDOFF)
        order = np.argsort(ratios, kind="stable")
        self._set(ratios[order], masses[order])
        rounding = 8 * floats.UNIT_ROUNDOFF
        object.__setattr__(self, "mass_error", self.mass_error + rounding)
        object.__setattr__(self, "ratio_error", self.ratio_error + rounding)

    def _set(self, ratios: FloatArray, masses: FloatArray) -> None:
        """Sets the atoms; if there is none, one atom without mass."""
        if not ratios.size:
            ratios, masses = np.ones(1), np.zeros(1)
        object.__setattr__(self, "ratios", ratios)
        object.__setattr__(self, "masses", masses)

    def _check(self) -> None:
        """Raises a ValueError that names what is wrong with the fields."""
        ratios, masses = self.ratios, self.masses
        if ratios.shape != masses.shape or ratios.ndim != 1:
            raise ValueError(
                "ratios and masses must have one shape, (n,). "
                f"Found {ratios.shape} and {masses.shape}."
            )
        # Comparisons with NaN are false.
        wrong = ~((ratios >= 0) & (ratios < math.inf))
        if wrong.any():
            raise ValueError(
                f"ratios must be positive and finite. Found {ratios[wrong][0]}."
            )
        wrong = ~((masses >= 0) & (masses < math.inf))
        if wrong.any():
            raise ValueError(
                f"masses must be finite and at least 0. Found {masses[wrong][0]}."
            )
        wrong = ratios[1:] < ratios[:-1] * (1 - _DISORDER)
        if wrong.any():
            place = int(wrong.argmax())
            raise ValueError(
                "ratios must be increasing. "
                f"Found {ratios[place + 1]} after {ratios[place]}."
            )
        for name in ("infinity_mass", "zero_mass", "mass_error", "ratio_error"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(
                    f"{name} must be finite and at least 0. Found {value}."
                )

    @property
    def p_masses(self) -> FloatArray:
        """(n,) probabilities of the ratios under P."""
        return self.ratios * self.masses

    def profile(self, direction: Direction) -> profile.Profile:
        """Returns the certified privacy profile in one direction."""
        ratios = self.ratios
        has_mass = np.minimum(ratios, self.masses) > 0
        losses, masses = np.log(ratios[has_mass]), self.p_masses[has_mass]
        rounding = 2 * floats.UNIT_ROUNDOFF * float(np.abs(losses).max(initial=1.0))
        sink = self.infinity_mass
        if direction is Direction.ADD:
            losses, masses, sink = -losses, self.masses[has_mass], self.zero_mass
        # Errors multiply, and 1 / (1 − e) is more than e^e.
        error = 1.01 * (self.mass_error + self.ratio_error) + rounding
        shift = 1.01 * self.ratio_error + rounding
        return profile.Profile.of(losses, masses, sink, self.bound, error, shift)

    def delta(self, epsilon: float, direction: Direction) -> float:
        """Returns a certified δ at ε, in nats; it never errs on the unsafe side."""
        return float(self.profile(direction).deltas(np.array([epsilon]))[0])

    def epsilon(self, delta: float, direction: Direction) -> float:
        """Returns a certified ε ≥ 0 at δ, in nats; inf where a sink exceeds δ."""
        return float(self.profile(direction).epsilons(np.array([delta]))[0])


@dataclasses.dataclass(frozen=True)
class DirectedPairs:
    """A mechanism's pair for each direction; often one pair serves both.

    Both pairs are laws of Z = dP/dQ under Q, where P is the law with the record.

    Attributes:
        remove: The pair whose H(P‖Q) bounds that of the mechanism.
        add: The pair whose H(Q‖P) bounds that of the mechanism.
    """

    remove: DominatingPair
    add: DominatingPair

    def of(self, direction: Direction) -> DominatingPair:
        """Returns the pair for one direction."""
        return self.remove if direction is Direction.REMOVE else self.add

    @property
    def is_one(self) -> bool:
        """Whether one pair serves both directions."""
        return self.add is self.remove

    @classmethod
    def same(cls, pair: DominatingPair) -> "DirectedPairs":
        """Returns one pair for both directions."""
        return cls(pair, pair)

    @classmethod
    def combined(
        cls,
        mechanisms: Sequence["DirectedPairs"],
        function: Callable[[Sequence[DominatingPair]], DominatingPair],
    ) -> "DirectedPairs":
        """Returns a function of several mechanisms' pairs, for each direction.

        It is computed once if every mechanism has one pair for both directions.
        """
        remove = function([pairs.remove for pairs in mechanisms])
        if all(pairs.is_one for pairs in mechanisms):
            return cls.same(remove)
        return cls(remove, function([pairs.add for pairs in mechanisms]))

    def map(
        self, function: Callable[[DominatingPair], DominatingPair]
    ) -> "DirectedPairs":
        """Returns the images of both pairs, computed once if they are one pair."""
        remove = function(self.remove)
        return DirectedPairs(remove, remove if self.is_one else function(self.add))

    def swapped(self) -> "DirectedPairs":
        """Returns the pairs with the two datasets exchanged."""
        remove = dual(self.add)
        if self.is_one:
            return DirectedPairs.same(remove)
        return DirectedPairs(remove, dual(self.remove))


def trivial_pair(bound: Bound) -> DominatingPair:
    """Returns the pair that dominates all (upper), or that all dominate (lower)."""
    if bound is Bound.LOWER:
        return identity_pair(bound)
    return DominatingPair(np.ones(1), np.zeros(1), 1.0, 1.0, bound)


def identity_pair(bound: Bound) -> DominatingPair:
    """Returns the pair of a mechanism that releases nothing: Z is 1."""
    return DominatingPair(np.ones(1), np.ones(1), 0.0, 0.0, bound)


def certain(pair: DominatingPair) -> DominatingPair:
    """Returns the pair, or the trivial one if it has no atom or large errors.

    Errors add up from step to step. The bounds on them are of first order, and hold
    only if errors are far below one.
    """
    if pair.ratios.size and pair.mass_error + pair.ratio_error <= LARGEST_ERROR:
        return pair
    return trivial_pair(pair.bound)


def without_tails(pair: DominatingPair, tail_mass: float) -> DominatingPair:
    """Returns the pair without its rarest ratios at either end.

    The P-mass and the Q-mass of these go to the sinks (upper: a ratio is split into 0
    and infinity), or are dropped (lower).

    Args:
        pair: A pair with n atoms.
        tail_mass: The P-mass of the largest ratios that may go, and the Q-mass of the
            smallest ones.
    """
    if not pair.p_masses.any():
        return pair
    above = np.cumsum(pair.p_masses[::-1])[::-1]
    low = int(np.searchsorted(np.cumsum(pair.masses), tail_mass))
    high = int(np.searchsorted(-above, -tail_mass))
    low, high = min(low, pair.ratios.size - 1), max(high, 1)
    middle = slice(low, max(high, low + 1))
    lost_p = lost_q = 0.0
    if pair.bound is Bound.UPPER:
        rounding = floats.raised(1 + pair.mass_error + pair.ratio_error)
        is_in_tail = np.ones(pair.ratios.size, dtype=np.bool_)
        is_in_tail[middle] = False
        lost_p = float(pair.p_masses[is_in_tail].sum()) * rounding
        lost_q = float(pair.masses[is_in_tail].sum()) * rounding
    return dataclasses.replace(
        pair,
        ratios=pair.ratios[middle],
        masses=pair.masses[middle],
        infinity_mass=pair.infinity_mass + lost_p,
        zero_mass=pair.zero_mass + lost_q,
    )


def mixture(
    pairs: Sequence[DominatingPair], weights: Sequence[float]
) -> DominatingPair:
    """Returns the pair of a mechanism that runs one of several, and releases which.

    Args:
        pairs: The pairs of the mechanisms, all of them upper or all of them lower.
        weights: The probabilities of the mechanisms, which sum to one.
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
    """Returns how to evaluate a divergence so that rounding errors are on the safe
    side.

    Args:
        bound: The side of the bound.
        terms: The number of terms that are summed.
        mass_error: A bound on the relative error of each mass.
        ratio_error: A bound on the relative error of each ratio.

    Returns:
        What to add to ε before the divergence is evaluated, and the factor to multiply
        the divergence by.
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
