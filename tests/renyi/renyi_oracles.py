"""Rényi divergences straight from their definitions, as balls that hold the truth.

A comparison with a ball is true only if it is for all of its numbers.
"""

from collections.abc import Callable
import math

import flint
from flint import acb
from flint import arb

BITS = 170
MORE_BITS = 500

# A function of x and of whether it must be analytic there: if not, it is no number.
Function = Callable[[acb, bool], acb]


def integral(function: Function, low: float, high: float) -> arb:
    found = acb.integral(function, low, high).real
    assert found.rel_accuracy_bits() > BITS // 3
    return found


def log_normal(x: acb, noise: float) -> acb:
    """The logarithm of the density of N(0, σ²)."""
    s = arb(noise)
    return -x * x / (2 * s * s) - (s * (2 * arb.pi()).sqrt()).log()


def two_step_rdp(order, noise, *, remove):
    """log E Z^p / (α − 1) of 1-out-of-2 allocation: p = α, or 1 − α to add a record.

    Z = (e^{G_1/σ} + e^{G_2/σ}) e^{−1/2σ²} / 2 = e^{A − 1/2σ²} cosh D with A, D
    independent N(0, 1/2σ²).
    """
    with flint.ctx.workprec(BITS):
        a, s = arb(order), arb(noise)
        p = a if remove else 1 - a
        deviation = 1 / (arb(2).sqrt() * s)
        reach = 16 + float(abs(p) * deviation)

        def integrand(x, analytic):
            cosine = (deviation * x).cosh()
            return (log_normal(x, 1.0) + p * cosine.log(analytic)).exp()

        mean = 2 * integral(integrand, 0, reach)  # It is even.
        return (-p / (2 * s**2) + p**2 / (4 * s**2) + mean.log()) / (a - 1)


def shifts_rdp(p, q, order):
    """log ∫ p^α q^{1−α} dN / (α − 1), or ∫ p log(p/q) dN for α = 1.

    Of mixtures of (shift, weight) over N(0, 1). The shifts of q are to the other side.
    """

    def log_density(weighted, sign) -> Function:
        whole = sum((arb(weight) for _, weight in weighted), arb(0))
        terms = [
            (arb(shift) * sign, (arb(weight) / whole).log() - arb(shift) ** 2 / 2)
            for shift, weight in weighted
        ]
        return lambda x, analytic: sum(
            ((shift * x + log).exp() for shift, log in terms), acb(0)
        ).log(analytic)

    with flint.ctx.workprec(BITS):
        a, p_density, q_density = arb(order), log_density(p, 1), log_density(q, -1)

        def integrand(x, analytic):
            above, below = p_density(x, analytic), q_density(x, analytic)
            normal = log_normal(x, 1.0)
            if order == 1:
                return (normal + above).exp() * (above - below)
            return (normal + a * above + (1 - a) * below).exp() - normal.exp()

        furthest = [float(max(shift for shift, _ in each)) for each in (p, q)]
        value = integral(integrand, -furthest[1] - 20, order * sum(furthest) + 20)
        return value if order == 1 else value.log1p() / (a - 1)


def group_rdp(order, removed, inserted, rate, noise):
    """The same of a group on a Poisson sample: shifts by so many members, over σ."""
    with flint.ctx.workprec(BITS):
        r = arb(rate)

        def members_of(n):
            chances = [
                math.comb(n, i) * r**i * (1 - r) ** (n - i) for i in range(n + 1)
            ]
            return [(arb(i) / noise, chance) for i, chance in enumerate(chances)]

        return shifts_rdp(members_of(removed), members_of(inserted), order)


def raw_moments(highest, noise, steps):
    """E Z^j for j ≤ highest: the series Σ E X^j s^j / j! to the power t."""
    with flint.ctx.workprec(MORE_BITS):
        s = arb(noise)
        base = [
            (arb(j * (j - 1)) / (2 * s**2)).exp() / math.factorial(j)
            for j in range(highest + 1)
        ]

        def product(x, y):
            return [
                sum((x[i] * y[j - i] for i in range(j + 1)), arb(0))
                for j in range(highest + 1)
            ]

        result, exponent = [arb(1)] + [arb(0)] * highest, steps
        while exponent:
            if exponent & 1:
                result = product(result, base)
            exponent >>= 1
            if exponent:
                base = product(base, base)
        return [
            math.factorial(j) * result[j] / arb(steps) ** j for j in range(highest + 1)
        ]


def add_rdp_by_moments(order, central):
    """Returns the adding direction as Σ_j C(1 − α, j) E (Z − 1)^j, and its least term.

    An asymptotic series, cut off there: accurate where Z is close to 1.
    """
    with flint.ctx.workprec(MORE_BITS):
        power, terms, factor = 1 - arb(order), [], arb(1)
        for j, moment in enumerate(central):
            terms.append(factor * moment)
            factor *= (power - j) / (j + 1)
        last = min(range(2, len(terms)), key=lambda j: abs(float(terms[j])))
        rest = abs(terms[last] / terms[2])
        return sum(terms[2:last], arb(0)).log1p() / (arb(order) - 1), rest


def central_moments(raw):
    """E (Z − 1)^j from E Z^j."""
    with flint.ctx.workprec(MORE_BITS):
        return [
            sum(
                (math.comb(j, i) * (-1) ** (j - i) * raw[i] for i in range(j + 1)),
                arb(0),
            )
            for j in range(len(raw))
        ]
