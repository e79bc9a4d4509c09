"""Slow, independent computations that share no code with the package."""

from collections.abc import Sequence
from fractions import Fraction
import itertools
import math

import mpmath
import numpy as np


def exact(values: Sequence[float]) -> list[Fraction]:
    """Returns floats as the rational numbers they are."""
    return [Fraction(float(value)) for value in values]


def allocation_law(
    pair, selected: int, steps: int
) -> tuple[list[tuple[Fraction, Fraction]], Fraction]:
    """Returns (ratio, Q-mass) of k out of t, the mean over k-subsets; P's sink."""
    atoms = [
        (Fraction(ratio), Fraction(mass))
        for ratio, mass in zip(
            [0.0, *pair.ratios.tolist()],
            [pair.zero_mass, *pair.masses.tolist()],
            strict=True,
        )
        if mass
    ]
    law = []
    for outputs in itertools.combinations_with_replacement(range(len(atoms)), steps):
        ratios = [atoms[i][0] for i in outputs]
        symmetric = [Fraction(1)] + [Fraction(0)] * selected
        for ratio in ratios:
            for size in range(selected, 0, -1):
                symmetric[size] += symmetric[size - 1] * ratio
        ways = math.factorial(steps)
        for index in set(outputs):
            ways //= math.factorial(outputs.count(index))
        mass = ways * math.prod((atoms[i][1] for i in outputs), start=Fraction(1))
        law.append((symmetric[selected] / math.comb(steps, selected), mass))
    return law, 1 - (1 - Fraction(pair.infinity_mass)) ** selected


def coin_divergence(
    selected: int, steps: int, kappa: Fraction, *, is_removed: bool = True
) -> Fraction:
    """Returns δ of k of t coins, fair but for the k: the number of ones tells all."""

    def ones(tosses: int, chance: Fraction) -> list[Fraction]:
        return [
            math.comb(tosses, n) * chance**n * (1 - chance) ** (tosses - n)
            for n in range(tosses + 1)
        ]

    q = ones(steps, Fraction(1, 2))
    first, second = (
        ones(selected, Fraction(3, 4)),
        ones(steps - selected, Fraction(1, 2)),
    )
    p = [
        sum(
            first[n] * second[total - n]
            for n in range(max(0, total - steps + selected), min(selected, total) + 1)
        )
        for total in range(steps + 1)
    ]
    gain, cost = (p, q) if is_removed else (q, p)
    return sum(max(g - kappa * c, Fraction(0)) for g, c in zip(gain, cost, strict=True))


def _over_one(numbers: Sequence[Fraction]) -> tuple[list[int], int]:
    """Returns numerators over the common denominator, and it: sums are of integers."""
    common = math.lcm(*{number.denominator for number in numbers})
    return [
        number.numerator * (common // number.denominator) for number in numbers
    ], common


def exact_total(values: np.ndarray) -> Fraction:
    """Returns the sum of floats."""
    return Fraction(sum(_as_integers(values)), 1 << _PLACES)


def remove_divergence(
    law: Sequence[tuple[Fraction, Fraction]], kappa: Fraction, infinity: Fraction
) -> Fraction:
    """Returns infinity + Σ mass (place − κ)_+."""
    places, one = _over_one([place for place, _ in law])
    masses, unit = _over_one([mass for _, mass in law])
    level, times = kappa.numerator * one, kappa.denominator
    total = sum(
        mass * max(times * place - level, 0)
        for place, mass in zip(places, masses, strict=True)
    )
    return infinity + Fraction(total, one * unit * times)


def add_divergence(
    law: Sequence[tuple[Fraction, Fraction]], kappa: Fraction, zero: Fraction
) -> Fraction:
    """Returns zero + Σ mass (1 − κ place)_+; atoms at zero count in full."""
    places, one = _over_one([place for place, _ in law])
    masses, unit = _over_one([mass for _, mass in law])
    level, times = kappa.denominator * one, kappa.numerator
    total = sum(
        mass * max(level - times * place, 0)
        for place, mass in zip(places, masses, strict=True)
    )
    return zero + Fraction(total, level * unit)


def binomial(number: int, count: int, rate: float) -> mpmath.mpf:
    """Returns the probability of `count` of so many events."""
    r = mpmath.mpf(rate)
    return math.comb(number, count) * r**count * (1 - r) ** (number - count)


def gaussian_delta(mean: float, epsilon: float) -> mpmath.mpf:
    """Returns δ of N(mean, 1) against N(0, 1) at ε, to 60 digits."""
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mean), mpmath.mpf(epsilon)
        first = mpmath.ncdf(m / 2 - e / m)
        return first - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


_PLACES = 1400  # Of binary numbers: more than the smallest float has.


def _as_integers(values: np.ndarray) -> list[int]:
    """Returns floats times 2^_PLACES, exactly."""
    return [
        numerator << (_PLACES + 1 - denominator.bit_length())
        for numerator, denominator in map(float.as_integer_ratio, values.tolist())
    ]


def stored_delta(pair, epsilon: float, direction) -> mpmath.mpf:
    """Returns δ at ε of a pair's atoms as they are stored, to some 40 digits."""
    with mpmath.workdps(50):
        kappa = mpmath.exp(mpmath.mpf(epsilon))
        is_remove = direction.value == "remove"
        # The others add nothing, and most of the time.
        place = float(kappa if is_remove else 1 / kappa)
        near = pair.ratios > place * (1 - 1e-9)
        if not is_remove:
            near = pair.ratios < place * (1 + 1e-9)
        ratios, masses = (
            _as_integers(pair.ratios[near]),
            _as_integers(pair.masses[near]),
        )
        # In integers, which are exact and faster: z − κ, or κ (1/κ − z).
        level = int(mpmath.ldexp(kappa if is_remove else 1 / kappa, _PLACES))
        sign = 1 if is_remove else -1
        total = sum(
            q * max(sign * (z - level), 0) for z, q in zip(ratios, masses, strict=True)
        )
        excess = mpmath.ldexp(total, -2 * _PLACES)
        if is_remove:
            return mpmath.mpf(pair.infinity_mass) + excess
        return mpmath.mpf(pair.zero_mass) + kappa * excess


def _summing_to_one(
    shifts: Sequence[tuple[float, float]],
) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """Returns shifts with weights; of two the one at zero has what the other leaves."""
    exact = [(mpmath.mpf(s), mpmath.mpf(w)) for s, w in shifts]
    if len(exact) != 2:
        return exact
    (first, _), (second, chance) = sorted(exact, key=lambda each: abs(each[0]))
    return [(first, 1 - chance), (second, chance)]


def shift_mixture_deltas(
    p: Sequence[tuple[float, float]], q: Sequence[tuple[float, float]], epsilon: float
) -> dict[str, mpmath.mpf]:
    """Returns δ of mixtures of shifted normal noise at ε both ways, to some 40 digits.

    By Neyman and Pearson: the ratio p/q increases where all shifts of P are above
    those of Q, and the divergence is read where it crosses e^ε. The noise has scale 1.
    """
    with mpmath.workdps(60):
        p, q = _summing_to_one(p), _summing_to_one(q)

        def density(mixture: Sequence[tuple[mpmath.mpf, mpmath.mpf]], x: mpmath.mpf):
            return sum(w * mpmath.npdf(x - s) for s, w in mixture)

        def above(mixture: Sequence[tuple[mpmath.mpf, mpmath.mpf]], x: mpmath.mpf):
            return sum(w * mpmath.ncdf(s - x) for s, w in mixture)

        def below(mixture: Sequence[tuple[mpmath.mpf, mpmath.mpf]], x: mpmath.mpf):
            return sum(w * mpmath.ncdf(x - s) for s, w in mixture)

        def crossing(level: mpmath.mpf) -> mpmath.mpf:
            """To 30 digits: the error of δ is of the second order in it."""

            def excess(x: mpmath.mpf) -> mpmath.mpf:
                return mpmath.log(density(p, x) / density(q, x) / level)

            ends = mpmath.mpf(-200), mpmath.mpf(200)
            if excess(ends[0]) >= 0 or excess(ends[1]) <= 0:
                return ends[excess(ends[0]) < 0]
            return mpmath.findroot(
                excess, ends, solver="illinois", tol=1e-30, maxsteps=200, verify=False
            )

        kappa = mpmath.exp(mpmath.mpf(epsilon))
        at = crossing(kappa)
        remove = above(p, at) - kappa * above(q, at)
        at = crossing(1 / kappa)
        add = below(q, at) - kappa * below(p, at)
        return {"remove": max(remove, mpmath.mpf(0)), "add": max(add, mpmath.mpf(0))}
