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
# A multiple of the relative amount by which profiles and sinks are raised.
_RAISED = 1e-7
# Tuning: finite masses of an upper pair that sum to more than one by so many times
# their relative error, and by this besides, show no fault. The sinks hold more than was
# cut off, as the errors of sums before and after are taken on the safe side, and a
# sampled pair moves one of them to a finite loss.
_SURPLUS_ERRORS, _SURPLUS = 32, 1e-5
# The relative rounding error of a ledger and of the sinks that it is compared with.
_LEDGER_ERROR = 1e-6


class MassError(ArithmeticError, ValueError):
    """The masses of a pair, or of a law, are not those of two probability laws.

    It is a ValueError for users who made the pair. For a law that the package made, it
    shows a fault: no answer is better than a bound that may be too small.
    """


# A mass of P and one of Q.
Masses = tuple[float, float]


class Side(NamedTuple):
    """The sums that the masses of P, or of Q, must have.

    Attributes:
        whole: The sum of the masses if nothing were cut off. It is one up to
            rounding; for P's masses of ratios, the number of terms. It is zero if no
            law of P, or of Q, is known.
        cut: The mass that was cut off.
        underflow: The mass that may have been lost because products of masses
            underflowed.
    """

    whole: float = 1.0
    cut: float = 0.0
    underflow: float = 0.0

    def product(self, other: "Side") -> "Side":
        """Returns the sums of the masses of two independent outputs."""
        finite = max(self.whole - self.cut, 0.0)
        cut = self.cut * other.whole + other.cut * finite
        return Side(self.whole * other.whole, cut, self.underflow + other.underflow)


class Ledger(NamedTuple):
    """The sums that the masses of a law must have, recorded as the law is made.

    Mass that is cut off is recorded here, separately from the sinks, so that a mass
    that is missing in one of the two is noticed.

    Attributes:
        terms: How many independent terms were summed.
        p: The sums of P's masses.
        q: The sums of Q's masses.
    """

    terms: int = 1
    p: Side = Side()
    q: Side = Side()

    def after(self, cut: Masses, underflow: Masses = (0.0, 0.0)) -> "Ledger":
        """Returns the ledger after masses were lost.

        Args:
            cut: The masses of P and of Q that were cut off.
            underflow: The masses of P and of Q that may have underflowed.
        """
        p, q = (
            Side(side.whole, side.cut + lost, side.underflow + vague)
            for side, lost, vague in zip((self.p, self.q), cut, underflow, strict=True)
        )
        return Ledger(self.terms, p, q)

    def with_ratios_times(self, factor: float) -> "Ledger":
        """Returns the ledger of a law of ratios that are multiplied by a factor."""
        return self._replace(p=Side(*(factor * mass for mass in self.p)))


# The ledger of a statistic that is not a ratio of two laws.
OF_Q_ALONE = Ledger(p=Side(whole=0.0))


def of_losses(one: Ledger, other: Ledger) -> Ledger:
    """Returns the ledger of a sum of losses, which is finite if both terms are."""
    p, q = one.p.product(other.p), one.q.product(other.q)
    return Ledger(one.terms + other.terms, p, q)


def of_ratios(one: Ledger, other: Ledger) -> Ledger:
    """Returns the ledger of a sum of ratios, whose law is Q's.

    P's mass of a sum is the mean of the sum, to which each term contributes its mean
    where the other term is finite.
    """
    p = Side(0.0)
    for term, rest in ((one, other), (other, one)):
        mean = max(term.p.whole - term.p.cut, 0.0)
        p = Side(
            p.whole + term.p.whole * rest.q.whole,
            p.cut + term.p.cut * rest.q.whole + rest.q.cut * mean,
            p.underflow + term.p.underflow + rest.q.underflow * mean,
        )
    return Ledger(one.terms + other.terms, p, one.q.product(other.q))


def check_sinks(
    infinity_mass: float, zero_mass: float, ledger: Ledger, *, of_losses: bool
) -> None:
    """Checks that an upper law's sinks hold what was cut off.

    Args:
        infinity_mass: P's mass of an infinite loss.
        zero_mass: Q's mass of an infinite loss if P and Q are exchanged.
        ledger: The ledger, with the masses that were cut off.
        of_losses: Whether it is a law of losses, not of ratios.

    Raises:
        MassError: If they hold less.
    """
    p, q = ledger.p, ledger.q
    if infinity_mass >= p.cut and zero_mass >= q.cut:
        return  # One answer may need hundreds of laws, and this holds for most of them.
    # If the masses of a term sum to more than one, the ledger multiplies what other
    # terms cut off by this sum, while a sink is at most one. So the sinks may hold less
    # by this factor. P's whole of a law of ratios is the number of its terms, so Q's is
    # used there.
    share = 1 - _LEDGER_ERROR - ledger.terms * _RAISED
    p_cut, p_whole = (min(p.cut, 1.0), p.whole) if of_losses else (p.cut, q.whole)
    for name, sink, cut, whole in (
        ("P", infinity_mass, p_cut, p_whole),
        ("Q", zero_mass, min(q.cut, 1.0), q.whole),
    ):
        # Comparisons with NaN are false.
        if not sink >= cut * max(share, 0.0) / max(whole, 1.0):
            raise MassError(
                f"An upper law must keep in its sink what was cut off of {name}. "
                f"Found {sink} there, where {cut} was cut off."
            )


def check_law(
    losses: FloatArray,
    masses: tuple[FloatArray, FloatArray],
    sinks: tuple[float, float] | None,
    ledger: Ledger,
    error: float,
) -> None:
    """Checks the masses of a finished law: those of P, and those of Q.

    Either law is summed as it is, and also as computed from the other and the losses.

    Args:
        losses: (n,) losses.
        masses: (n,) masses of P and of Q.
        sinks: The masses of P and of Q in the sinks of an upper law; None for a lower
            law.
        ledger: The ledger, with the masses that were cut off.
        error: A bound on the relative error of the masses, including that of losses.

    Raises:
        MassError: If masses sum to less than they must, so that some were lost, or to
            more, so that some are at a wrong loss; or if sinks hold less than was cut
            off.
    """
    infinity_mass, zero_mass = sinks or (None, None)
    if sinks:
        check_sinks(*sinks, ledger, of_losses=True)
    p, q = masses
    with np.errstate(over="ignore", under="ignore"):
        limits = np.clip(losses, -floats.LARGEST_EXPONENT, floats.LARGEST_EXPONENT)
        ratios = np.exp(limits)
        other_p = np.where(q >= floats.RARE, q * ratios, p)
        other_q = np.where(p >= floats.RARE, p / ratios, q)
    for total in (p, other_p):
        _check_sum("P", float(total.sum()), infinity_mass, ledger.p, error)
    for total in (q, other_q):
        _check_sum("Q", float(total.sum()), zero_mass, ledger.q, error)


def _check_sum(
    name: str, total: float, sink: float | None, side: Side, error: float
) -> None:
    """Checks a sum of finite masses against one side of a ledger."""
    allowed = math.expm1(min(error, 1.0)) + SUM_ERROR
    lower = side.whole * (1 - allowed)
    accounted = total + side.cut + side.underflow
    if sink is not None:
        lower, accounted = min(lower, 1 - allowed), total + sink
    # A product of many wholes may underflow where a sum does not.
    upper = side.whole * (1 + allowed) + floats.SMALLEST_MASS
    if not (accounted >= lower and total + min(side.cut, 1.0) <= upper):
        raise MassError(
            f"The masses of {name} must sum to {side.whole:.12g} but for "
            f"{allowed:.1e}. Found {total:.12g}, with {side.cut:.3g} cut off"
            + ("." if sink is None else f" and {sink:.3g} in the sink.")
        )


def check_pair(
    totals: tuple[float, float],
    sinks: tuple[float, float],
    errors: tuple[float, float],
    *,
    is_upper: bool,
) -> None:
    """Checks the masses of a pair that has no ledger.

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
            limit = 1 + _SURPLUS_ERRORS * allowed + _SURPLUS
            is_valid = total + sink >= 1 - allowed and total <= limit
        else:
            is_valid = total + sink <= 1 + allowed
        if not is_valid:
            wanted = "one" if is_upper else "at most one"
            raise MassError(
                f"{name} must sum to {wanted}, within the pair's errors of "
                f"{allowed:.1e}. Found {total:.12g} and {sink:.3g}."
            )


def check_total(
    name: str, total: float, expected: float, error: float, *, more: float = 0.0
) -> None:
    """Checks a sum that must not change: of terms, or of masses that are only moved.

    Args:
        name: The name of the terms, or of masses of which no pair or law is made.
        total: Their sum after they were moved.
        expected: Their sum before, or the sum that a theorem states.
        error: A bound on the absolute error of the two sums.
        more: The amount by which the sum may be larger besides, on the safe side.

    Raises:
        MassError: If the sum is less, or larger by more.
    """
    # Comparisons with NaN are false.
    if not expected - error <= total <= expected + error + more:
        raise MassError(
            f"The {name} must sum to {expected:.12g} but for {error:.1e}. "
            f"Found {total:.12g}."
        )


def check_numbers(name: str, values: FloatArray) -> None:
    """Checks that answers are numbers.

    Raises:
        MassError: If one is NaN.
    """
    if np.isnan(values).any():
        raise MassError(f"{name} must be numbers. Found {values[np.isnan(values)][0]}.")
