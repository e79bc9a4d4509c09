"""The one type that flows through the package: the law of Z = dP/dQ under Q."""

import dataclasses
import enum
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import profile

FloatArray = npt.NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-53


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
        mass_error: Bound on the relative rounding error of any mass.
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

    def variance(self) -> float:
        """Returns the variance of Z under Q, infinite ratios aside."""
        mean = float(self.p_masses.sum())
        return float(self.masses @ (self.ratios - mean) ** 2) + self.zero_mass * mean**2

    def hockey_stick(self, epsilon: float, direction: Direction) -> float:
        """Returns the hockey-stick divergence at e^epsilon of the atoms as stored."""
        if direction is Direction.REMOVE:
            above = np.maximum(self.ratios - math.exp(min(epsilon, 709.0)), 0.0)
            return self.infinity_mass + float(self.masses @ above)
        with np.errstate(over="ignore"):
            scaled = math.exp(min(epsilon, 709.0)) * self.ratios
        return self.zero_mass + float(self.masses @ np.maximum(1.0 - scaled, 0.0))

    def delta(self, epsilon: float, direction: Direction) -> float:
        """Returns a certified δ at ε, in nats: never on the unsafe side of the truth."""
        shift, factor = self._allowance()
        value = factor * self.hockey_stick(epsilon + shift, direction)
        return min(max(value, 0.0), 1.0)

    def epsilon(self, delta: float, direction: Direction) -> float:
        """Returns a certified ε ≥ 0 at δ, in nats; inf where the sink alone exceeds δ."""
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
    summation = 2 * (terms + 16) * UNIT_ROUNDOFF
    factor = mass_error + ratio_error + summation
    shift = ratio_error + summation
    if bound is Bound.UPPER:
        return -shift, 1 + factor
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
        mass_error=pair.mass_error + pair.ratio_error + UNIT_ROUNDOFF,
        ratio_error=pair.ratio_error + UNIT_ROUNDOFF,
    )
