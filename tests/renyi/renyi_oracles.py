"""Rényi divergences to 50 digits, straight from their definitions."""

from collections.abc import Callable

import mpmath
import numpy as np

DIGITS = 50


def _integral(
    function: Callable[[mpmath.mpf], mpmath.mpf], low: float, high: float, width: float
) -> mpmath.mpf:
    """Gauss-Legendre on intervals of about the width that the function varies on."""
    pieces = max(4, int(np.ceil((high - low) / width)))
    ends = [mpmath.mpf(x) for x in np.linspace(low, high, pieces + 1)]
    return mpmath.quad(function, ends, method="gauss-legendre", maxdegree=5)


def binomial_mixture(members, rate, noise, sign):
    """Σ_i Binom(i) N(sign i, σ²) over N(0, σ²), as a function of z.

    A polynomial in e^{sign z/σ²}.
    """
    r, s = mpmath.mpf(rate), mpmath.mpf(noise)
    terms = [
        mpmath.binomial(members, i)
        * r**i
        * (1 - r) ** (members - i)
        * mpmath.exp(-mpmath.mpf(i * i) / (2 * s**2))
        for i in range(members + 1)
    ]

    def density(z):
        power, total = mpmath.exp(sign * z / s**2), mpmath.mpf(0)
        for term in reversed(terms):
            total = total * power + term
        return total

    return density


def group_rdp(order, removed, inserted, rate, noise):
    """log ∫ P^α Q^{1−α} / (α − 1), or ∫ P log(P/Q) for α = 1."""
    with mpmath.workdps(DIGITS):
        a, s = mpmath.mpf(order), mpmath.mpf(noise)
        p = binomial_mixture(removed, rate, noise, 1)
        q = binomial_mixture(inserted, rate, noise, -1)

        def integrand(z):
            above, below = p(z), q(z)
            if a == 1:
                value = above * mpmath.log(above / below)
            else:
                value = above**a * below ** (1 - a)
            return mpmath.npdf(z, 0, s) * value

        low = -(inserted + 16 * noise)
        high = order * (removed + inserted) + removed + 16 * noise
        width = min(2.0 * noise, 3.0 * noise**2) / (1 + inserted * order / 20) ** 0.5
        value = _integral(integrand, low, high, width)
        return value if a == 1 else mpmath.log(value) / (a - 1)


def two_step_rdp(order, noise, *, remove):
    """log E Z^p / (α − 1) of 1-out-of-2 allocation: p = α, or 1 − α to add a record.

    Z = (e^{G_1/σ} + e^{G_2/σ}) e^{−1/2σ²} / 2 = e^{A − 1/2σ²} cosh D with A, D
    independent N(0, 1/2σ²).
    """
    with mpmath.workdps(DIGITS):
        a, s = mpmath.mpf(order), mpmath.mpf(noise)
        p = a if remove else 1 - a
        deviation = 1 / (mpmath.sqrt(2) * s)
        reach = 16 + float(abs(p) * deviation)

        def integrand(x):
            return mpmath.npdf(x) * mpmath.cosh(deviation * x) ** p

        mean = 2 * _integral(integrand, 0, reach, 1.5)  # It is even.
        moment = mpmath.exp(-p / (2 * s**2) + p**2 / (4 * s**2)) * mean
        return mpmath.log(moment) / (a - 1)


def raw_moments(highest, noise, steps):
    """E Z^j for j ≤ highest: the series Σ E X^j s^j / j! to the power t."""
    with mpmath.workdps(150):
        s = mpmath.mpf(noise)
        base = [
            mpmath.exp(mpmath.mpf(j * (j - 1)) / (2 * s**2)) / mpmath.factorial(j)
            for j in range(highest + 1)
        ]

        def product(x, y):
            return [
                mpmath.fsum(x[i] * y[j - i] for i in range(j + 1))
                for j in range(highest + 1)
            ]

        result, exponent = [mpmath.mpf(1)] + [mpmath.mpf(0)] * highest, steps
        while exponent:
            if exponent & 1:
                result = product(result, base)
            exponent >>= 1
            if exponent:
                base = product(base, base)
        return [
            mpmath.factorial(j) * result[j] / mpmath.mpf(steps) ** j
            for j in range(highest + 1)
        ]


def add_rdp_by_moments(order, noise, steps, highest=30):
    """Returns the adding direction as Σ_j C(1 − α, j) E (Z − 1)^j, and its least term.

    An asymptotic series, cut off there: accurate where Z is close to 1.
    """
    with mpmath.workdps(150):
        raw = raw_moments(highest, noise, steps)
        central = [
            mpmath.fsum(
                mpmath.binomial(j, i) * (-1) ** (j - i) * raw[i] for i in range(j + 1)
            )
            for j in range(highest + 1)
        ]
        power = 1 - mpmath.mpf(order)
        terms = [mpmath.binomial(power, j) * central[j] for j in range(highest + 1)]
        last = min(range(2, highest + 1), key=lambda j: abs(terms[j]))
        rest = abs(terms[last] / terms[2])
        return mpmath.log1p(mpmath.fsum(terms[2:last])) / (mpmath.mpf(order) - 1), rest
