"""Conservation of probability: checks of every pair and every law.

In exact arithmetic the mass of an upper law is only moved, from an atom to two nodes or
to a sink, so that both of its probability laws keep all of their mass:

    Σ p + infinity_mass = 1    and    Σ q + zero_mass = 1.

A lower law merges outputs or leaves some out, so that either sum is one minus what was
left out. The second sum is not a copy of the first: as q = p e^{−loss}, it shows mass
at a wrong loss. The checks are as narrow as the rounding errors that a law claims. They
run for every query, while tests cover only the cases that somebody thought of.
"""

import math
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats

# Certified: the relative error of sums of thousands of products of a few numbers.
SUM_ERROR = 256 * floats.UNIT_ROUNDOFF
# A tolerance: finite masses of an upper pair that sum to more than one by so many times
# their relative error, and by this besides, show no fault. The sinks hold more than was
# cut off, as the errors of sums before and after are taken on the safe side, and a
# sampled pair moves one of them to a finite loss.
_SURPLUS_ERRORS, _SURPLUS = 32, 1e-5


class MassError(ArithmeticError, ValueError):
    """The masses of a pair, or of a law, are not those of two probability laws.

    It is a ValueError for users who made the pair. For a law that the package made, it
    shows a fault: no answer is better than a bound that may be too small.
    """


class Wholes(NamedTuple):
    """The sums that the masses of a law would have if nothing were cut off of it.

    Attributes:
        terms: How many independent terms were summed.
        p: The sum of P's masses. It is one up to rounding; for a law of ratios it is
            the number of terms, and zero if the values are no ratios of two laws.
        q: The sum of Q's masses, one up to rounding.
    """

    terms: int = 1
    p: float = 1.0
    q: float = 1.0

    def plus_losses(self, other: "Wholes") -> "Wholes":
        """Returns the sums of a law of losses, which is finite if both terms are."""
        return Wholes(self.terms + other.terms, self.p * other.p, self.q * other.q)

    def plus_ratios(self, other: "Wholes") -> "Wholes":
        """Returns the sums of a law of ratios, whose P-mass is the mean of the sum."""
        p = self.p * other.q + other.p * self.q
        return Wholes(self.terms + other.terms, p, self.q * other.q)

    def swapped(self) -> "Wholes":
        """Returns the sums with P and Q exchanged."""
        return self._replace(p=self.q, q=self.p)


# The sums of a statistic that is not a ratio of two laws.
OF_Q_ALONE = Wholes(p=0.0)


def check_terms(found: int, terms: int) -> None:
    """Checks that a law is the sum of a given number of terms.

    Raises:
        MassError: If it has another number of terms.
    """
    if found != terms:
        raise MassError(f"A law must be that of {terms} terms. Found one of {found}.")


def check_law(
    losses: FloatArray,
    masses: tuple[FloatArray, FloatArray],
    sinks: tuple[float, float] | None,
    wholes: Wholes,
    error: float,
) -> None:
    """Checks the masses of a finished law: those of P, and those of Q.

    Either law is summed as it is, and also as computed from the other and the losses.

    Args:
        losses: (n,) losses.
        masses: (n,) masses of P and of Q.
        sinks: The masses of P and of Q in the sinks of an upper law, which keeps all of
            its mass; None for a lower law.
        wholes: The sums of the masses if nothing were cut off.
        error: A bound on the relative error of the masses, including that of losses.

    Raises:
        MassError: If the masses of an upper law sum to less than they must, so that
            some were lost, or those of any law to more, so that some are at a wrong
            loss.
    """
    p, q = masses
    with np.errstate(over="ignore", under="ignore"):
        limits = np.clip(losses, -floats.LARGEST_EXPONENT, floats.LARGEST_EXPONENT)
        ratios = np.exp(limits)
        other_p = np.where(q >= floats.RARE, q * ratios, p)
        other_q = np.where(p >= floats.RARE, p / ratios, q)
    allowed = math.expm1(min(error, 1.0)) + SUM_ERROR
    laws = ("P", wholes.p, (p, other_p)), ("Q", wholes.q, (q, other_q))
    for (name, whole, computed), sink in zip(laws, sinks or (None, None), strict=True):
        least = -math.inf if sink is None else min(whole, 1.0) * (1 - allowed) - sink
        # A product of many wholes may underflow where a sum does not.
        most = whole * (1 + allowed) + floats.SMALLEST_MASS
        for each in computed:
            total = float(each.sum())
            # Comparisons with NaN are false.
            if not least <= total <= most:
                raise MassError(
                    f"The masses of {name} must sum to {whole:.12g} but for "
                    f"{allowed:.1e}. Found {total:.12g}"
                    + ("." if sink is None else f" and {sink:.3g} in the sink.")
                )


def check_pair(
    totals: tuple[float, float],
    sinks: tuple[float, float],
    errors: tuple[float, float],
    *,
    is_upper: bool,
) -> None:
    """Checks the masses of a pair, of which no wholes are known.

    Args:
        totals: The sums of P's and of Q's masses at finite losses.
        sinks: P's mass of an infinite loss, and Q's of one in the other direction.
        errors: Bounds on the relative errors of P's and of Q's masses.
        is_upper: Whether the pair is an upper bound, which keeps all of its mass.

    More mass than one is on the safe side of an upper pair. If the divergences of two
    measures, both of at least mass one, are no smaller than those of two laws, so are
    those of their products, mixtures and samples.

    Raises:
        MassError: If an upper pair has less than one, or if its finite masses alone, or
            all masses of a lower pair, have more.
    """
    names = "p_masses and infinity_mass", "masses and zero_mass"
    for name, total, sink, error in zip(names, totals, sinks, errors, strict=True):
        allowed = math.expm1(min(1.01 * error, 1.0)) + SUM_ERROR
        if is_upper:
            most = 1 + _SURPLUS_ERRORS * allowed + _SURPLUS
            is_whole = total + sink >= 1 - allowed and total <= most
        else:
            is_whole = total + sink <= 1 + allowed
        if not is_whole:
            least = "one" if is_upper else "at most one"
            raise MassError(
                f"{name} must sum to {least}, within the pair's errors of "
                f"{allowed:.1e}. Found {total:.12g} and {sink:.3g}."
            )


def check_total(
    name: str, total: float, whole: float, error: float, *, more: float = 0.0
) -> None:
    """Checks a sum of masses that are only moved, if no pair or law is made of them.

    Args:
        name: The name of the masses.
        total: Their sum after they were moved.
        whole: Their sum before, or the sum that a theorem states.
        error: A bound on the absolute error of the two sums.
        more: The amount by which the sum may be larger besides, on the safe side.

    Raises:
        MassError: If the sum is less, or larger by more.
    """
    # Comparisons with NaN are false.
    if not whole - error <= total <= whole + error + more:
        raise MassError(
            f"The {name} must sum to {whole:.12g} but for {error:.1e}. "
            f"Found {total:.12g}."
        )


def check_numbers(name: str, values: FloatArray) -> None:
    """Checks that answers are numbers.

    Raises:
        MassError: If one is NaN.
    """
    if np.isnan(values).any():
        raise MassError(f"{name} must be numbers. Found {values[np.isnan(values)][0]}.")
