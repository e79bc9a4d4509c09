"""What an attacker can do, in numbers that people ask for, and in words.

Every function takes a `PLDAccountant` that has composed what ran, and raises TypeError
for anything else. It returns bounds on the success of the best attack on the worst
mechanism with this privacy: lower ≤ the truth ≤ upper. Attacks are on the record, or
group of records, in which the accountant's neighboring datasets differ. The attacker
knows all other records.

    accountant = ext.PLDAccountant().compose(event)
    lower, upper = risk.advantage(accountant)
    print(risk.in_words(accountant))
"""

import bisect
from collections.abc import Callable
from collections.abc import Sequence
import functools
import math
import textwrap
from typing import Any

import attr
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import numpy as np
from scipy import special

from dp_accounting_ext.accountants import noise_search
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.reading import base_events
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.validation import fields

__all__ = [
    "LARGEST_EPSILON",
    "ConcentratedParameterEvent",
    "GaussianParameterEvent",
    "ParametersEvent",
    "advantage",
    "attack_success",
    "gaussian_regret",
    "in_words",
    "largest_mu",
    "largest_rho",
    "membership_success",
    "positive_predictive_value",
    "published",
]
__dir__ = __all__.copy

Bounds = tuple[float, float]
_checked = functools.partial(pld_accountant.checked, "accountant")

# Certified: a bound on the relative error of a quotient of a few products, and on the
# change of a success probability by the rounding of a logarithm, for each nat of the
# logarithm.
_ROUNDING = 16 * 2.0**-53
# The odds of a smaller prior do not fit a float.
_LEAST_PRIOR = 1e-300
_RATES = (0.001, 0.01, 0.1)
_DIGITS = 3
# A limit: the losses of what is known by ρ are bounded up to 690 nats.
LARGEST_EPSILON = 500.0
# Certified: the rounding error of a Gaussian trade-off curve is below this.
_CURVE = 1e-11
# Tuning: the rates at which curves are compared, and the resolution of shifts.
_LEAST_RATE, _POINTS, _PARTS = 1e-12, 2001, 2**40


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ParametersEvent(stock.DpEvent):
    """Represents any mechanism that is (ε, δ)-private.

    Attributes:
        epsilon: ε, in nats.
        delta: δ in [0, 1].
    """

    epsilon: float
    delta: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class GaussianParameterEvent(stock.DpEvent):
    """Represents any mechanism that is μ-Gaussian differentially private.

    Attributes:
        mu: μ, which is 0 or from 1e-60 to 1e60.
    """

    mu: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ConcentratedParameterEvent(stock.DpEvent):
    """Represents any mechanism that is ρ-zero-concentrated differentially private.

    Attributes:
        rho: ρ, which is 0 or from 1e-60 to 1e60.
    """

    rho: float


def _parameter(
    event: stock.DpEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a mechanism of which only μ or only ρ is known.

    The Gaussian mechanism with the noise 1 / μ, or 1 / √(2ρ), has this parameter, and
    its mean is one over the noise. Two quotients, a root (which halves the error of its
    argument) and a product are rounded, by 2^-53 each: together by less than four times
    as much. So with noise that is larger by this the mechanism is a lower bound; and
    with noise that is smaller by this it is an upper bound, if μ is known.
    """
    reader.require_own_relation(event)
    is_mu = isinstance(event, GaussianParameterEvent)
    name = "mu" if is_mu else "rho"
    value = fields.scale(name, getattr(event, name))
    if value == 0:
        return compositions.NO_OP
    noise = 1 / value if is_mu else math.sqrt(0.5 / value)
    rounding = 4 * floats.UNIT_ROUNDOFF
    below = additive_noise.Gaussian(noise * (1 + rounding))
    if is_mu:
        above = additive_noise.Gaussian(noise * (1 - rounding))
        return known_bounds.between(below, above)
    return known_bounds.between(below, renyi_bounded.concentrated(value))


for _event, _reading in (
    (ParametersEvent, base_events.privacy_parameters),
    (GaussianParameterEvent, _parameter),
    (ConcentratedParameterEvent, _parameter),
):
    pld_accountant.PLDAccountant.register(_event, _reading)


def published(
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    rho: float | None = None,
    mu: float | None = None,
    neighboring_relation: privacy_accountant.NeighboringRelation = (
        privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE
    ),
) -> pld_accountant.PLDAccountant:
    """Returns an accountant of a published guarantee, and of nothing else.

        advantage(published(epsilon=1.0, delta=1e-5))
        print(in_words(published(rho=0.5)))

    Args:
        epsilon: ε of (ε, δ)-differential privacy, in nats.
        delta: δ, with ε.
        rho: ρ of zero-concentrated differential privacy.
        mu: μ of Gaussian differential privacy.
        neighboring_relation: The published relation of neighboring datasets.

    Raises:
        TypeError: If an argument is not a real number.
        ValueError: If not exactly one of ε, ρ and μ is given, or it is out of range.

    Guarantees:
        Upper bounds hold for every mechanism with the guarantee. Lower bounds hold for
        the worst of these mechanisms, or are 0.
    """
    parameters = {"epsilon": epsilon, "rho": rho, "mu": mu}
    names = [name for name, value in parameters.items() if value is not None]
    if len(names) != 1:
        raise ValueError(
            f"epsilon must be given, or rho or mu in its place. Found "
            f"{' and '.join(names) or 'none'}."
        )
    if names != ["epsilon"] and delta:
        raise ValueError(f"delta must be left out with {names[0]}. Found {delta}.")
    event: stock.DpEvent
    if rho is not None:
        event = ConcentratedParameterEvent(rho)
    elif mu is not None:
        event = GaussianParameterEvent(mu)
    else:
        event = ParametersEvent(fields.real_number("epsilon", epsilon), delta)
    return pld_accountant.PLDAccountant(neighboring_relation).compose(event)


def largest_rho(epsilon: float, delta: float) -> Bounds:
    """Returns bounds on the largest ρ that is enough for (ε, δ).

    Every mechanism that is zero-concentrated with the first number is (ε, δ)-private.
    Some mechanism with the second is not: Gaussian noise. The first number is 0 if δ is
    below some 1e-220.

    Args:
        epsilon: ε, in nats, positive.
        delta: δ, in (0, 1).

    Raises:
        TypeError: If one is not a real number.
        ValueError: If one is out of its range, or ε above 500.
    """
    return _largest("rho", lambda noise: noise**-2 / 2, epsilon, delta)


def largest_mu(epsilon: float, delta: float) -> Bounds:
    """Returns bounds on the largest μ that is enough for (ε, δ).

    Every mechanism that is Gaussian differentially private with the first number is
    (ε, δ)-private. The Gaussian mechanism with the second is not.

    Args:
        epsilon: As in `largest_rho`.
        delta: As in `largest_rho`.

    Raises:
        TypeError, ValueError: As in `largest_rho`.
    """
    return _largest("mu", lambda noise: 1 / noise, epsilon, delta)


def _largest(
    name: str, parameter: Callable[[float], float], epsilon: float, delta: float
) -> Bounds:
    """Returns bounds on the largest parameter, a function of a noise, for (ε, δ)."""
    limit = fields.positive("epsilon", epsilon)
    if limit > LARGEST_EPSILON:
        raise ValueError(
            f"epsilon must be at most {LARGEST_EPSILON:g}, above which nothing is "
            f"promised. Found {epsilon}."
        )
    target = fields.inner_probability("delta", delta)

    def bounds(noise: float) -> Bounds:
        guarantee: dict[str, Any] = {name: parameter(noise)}
        return published(**guarantee).get_epsilon_bounds(target)

    enough = math.inf  # Of the smallest δ nothing is known by ρ, however small it is.
    if not math.isinf(bounds(noise_search.MOST_NOISE)[1]):
        enough = noise_search.least_noise(bounds, limit)
    short = noise_search.least_noise(lambda noise: bounds(noise)[0], limit)
    while bounds(short)[0] <= limit:
        short *= 1 - 1e-6
    return parameter(enough), parameter(short)


def advantage(accountant: pld_accountant.PLDAccountant) -> Bounds:
    """Returns bounds on the largest difference of true and false positive rate.

    This is the total variation distance of the outputs with the record and without it.
    It also bounds how much more often any attack on the record (on its attributes, or
    its reconstruction) can succeed with the outputs than without them.

    Source:
        https://arxiv.org/abs/2407.02191, section 2.
    """
    return _checked(accountant).get_delta_bounds(0.0)


def membership_success(
    accountant: pld_accountant.PLDAccountant, prior: float = 0.5
) -> Bounds:
    """Returns bounds on the probability that the best guess of membership is right.

    Args:
        accountant: What ran.
        prior: The probability π that the record is in the dataset, as known without the
            outputs, in [1e-300, 1).

    Raises:
        TypeError: If prior is not a real number.
        ValueError: If it is not in its range.

    Guarantees:
        The best guess is right with probability 1 − π + π δ(ln((1 − π) / π)), in the
        worse direction.

    Source:
        https://arxiv.org/abs/2507.06969, on Bayes risk; the formula is the definition
        of δ.
    """
    prior = _inside("prior", prior)
    odds = math.log1p(-prior) - math.log(prior)
    spread = _ROUNDING * (1 + abs(odds))
    # Without the outputs, the more likely guess is right with this probability.
    least = max(prior, math.nextafter(1 - prior, 0.0))
    lower, upper = (
        1 - prior + prior * delta
        for delta in _checked(accountant).get_delta_bounds(odds)
    )
    return min(max(lower - spread, least), 1.0), min(max(upper + spread, least), 1.0)


def positive_predictive_value(
    accountant: pld_accountant.PLDAccountant,
    false_positive_rate: float,
    prior: float = 0.5,
) -> Bounds:
    """Returns bounds on the share of members among those whom a test names.

    Args:
        accountant: What ran.
        false_positive_rate: The rate α of the test, in (0, 1]. At larger rates the
            share is no larger; at smaller rates it may be.
        prior: The share π of members among those tested, in [1e-300, 1).

    Raises:
        TypeError: If either is not a real number.
        ValueError: If either is outside of its range.

    Guarantees:
        The best test has the share π TPR(α) / (π TPR(α) + (1 − π) α).

    Source:
        Bayes' rule; https://arxiv.org/abs/2005.10881, on membership at a prior.
    """
    odds = (1 - _inside("prior", prior)) / prior
    rate = fields.probability("false_positive_rate", false_positive_rate)
    if not rate:
        raise ValueError(
            "false_positive_rate must be positive: a test that is never wrong names "
            "members alone. Found 0."
        )
    lower, upper = (
        1 / (1 + odds * (rate / success))
        for success in attack_success(accountant, rate)
    )
    return lower * (1 - _ROUNDING), min(upper * (1 + _ROUNDING), 1.0)


def attack_success(accountant: pld_accountant.PLDAccountant, baseline: float) -> Bounds:
    """Returns bounds on the largest success probability of an attack on the record.

    An attack may reconstruct the record, infer an attribute, re-identify its owner or
    single it out. What counts as a success may depend on the record, which is drawn
    from any law. Without the outputs an attack succeeds with probability at most κ, the
    baseline; with the outputs, with probability at most TPR(κ).

    Args:
        accountant: What ran.
        baseline: κ in [0, 1].

    Raises:
        TypeError: If baseline is not a real number.
        ValueError: If it is not in [0, 1].

    Guarantees:
        For each record z, success is a test of "z took part". Its probability is κ_z if
        z did not take part, and at most TPR(κ_z) if it did. TPR is concave in each
        direction, so that the mean of TPR(κ_z) is at most TPR of the mean of κ_z.

    Source:
        https://arxiv.org/abs/2507.06969 (one bound for all of these).
    """
    rate = fields.probability("baseline", baseline)
    lower, upper = _checked(accountant).get_true_positive_rate_bounds(rate)
    # Bounds near 1 were computed as one minus a small number, with a rounding error.
    lower, upper = lower * (1 - _ROUNDING), upper * (1 + _ROUNDING)
    return max(lower, rate), max(min(upper, 1.0), rate)


def gaussian_regret(accountant: pld_accountant.PLDAccountant, mu: float) -> Bounds:
    """Returns bounds on how much less private a Gaussian mechanism is than what ran.

    If only μ is published, an upper bound of `get_gdp_parameter_bounds`, readers expect
    tests with the rates Φ(Φ⁻¹(α) + μ). The regret is the smallest κ such that this is
    at most TPR(α + κ) + κ at every α. It is 0 if what ran is Gaussian, and small if μ
    describes it well.

    Args:
        accountant: What ran.
        mu: μ, non-negative; it may be infinite.

    Raises:
        TypeError: If mu is not a real number.
        ValueError: If it is negative.

    Source:
        https://arxiv.org/abs/2406.08918 (the Δ-divergence of two mechanisms);
        https://arxiv.org/abs/2503.10945 (as the regret of reporting μ).
    """
    parameter = fields.real_number("mu", mu)
    if parameter < 0:
        raise ValueError(f"mu must be non-negative. Found {mu}.")
    ends = np.geomspace(_LEAST_RATE, 0.5, _POINTS)
    rates = np.unique([0.0, *ends, *np.linspace(0, 1, _POINTS), *(1 - ends), 1.0])
    lower, upper = _checked(accountant).get_true_positive_rate_bounds(rates)
    expected = np.ones_like(rates)
    if not math.isinf(parameter):
        expected = special.ndtr(special.ndtri(rates) + parameter)

    def is_enough(shift: float) -> bool:
        # Curves increase: between two rates they are at most the value at the larger.
        place = np.searchsorted(rates, np.minimum(rates + shift, 1.0), "right") - 1
        return bool((expected[1:] + _CURVE <= lower[place][:-1] + shift).all())

    def may_do(shift: float) -> bool:
        place = np.searchsorted(rates, np.minimum(rates + shift, 1.0), "left")
        return bool((expected - _CURVE <= upper[place] + shift).all())

    # Both conditions hold from a shift on.
    least, enough = (
        bisect.bisect_left(range(_PARTS), True, key=lambda at: holds(at / _PARTS))
        for holds in (may_do, is_enough)
    )
    return max(least - 1, 0) / _PARTS, enough / _PARTS


def in_words(
    accountant: pld_accountant.PLDAccountant,
    *,
    prior: float = 0.5,
    false_positive_rates: Sequence[float] = _RATES,
    baseline: float = 1e-6,
) -> str:
    """Returns the upper bounds in words, rounded up, on lines of at most 80 characters.

    Args:
        accountant: What ran.
        prior: The probability that the record took part, as known without the outputs,
            in [1e-300, 1).
        false_positive_rates: The rates of membership tests, in (0, 1].
        baseline: The success probability of an attack without the outputs, in [0, 1].

    Raises:
        TypeError: If one is not a real number.
        ValueError: If one is outside of its range.
    """
    _inside("prior", prior)
    rates = fields.rates("false_positive_rates", list(false_positive_rates))
    sentences = [
        "Against an attacker who knows all other records:",
        f"- A membership test finds at most {_up(advantage(accountant))} more of the "
        f"members than of the others: its advantage.",
        f"- A guess whether the record took part, which it did with a probability of "
        f"{prior:g}, is right with a probability of at most "
        f"{_up(membership_success(accountant, prior))}.",
        f"- An attack that reconstructs the record, infers an attribute, re-identifies "
        f"its owner or singles it out, and succeeds with a probability of {baseline:g} "
        f"without the outputs, succeeds with a probability of at most "
        f"{_up(attack_success(accountant, baseline))} with them.",
        f"- A membership test with a given false positive rate finds at most these "
        f"shares of the members; and of those whom it names, where {prior:g} of those "
        f"tested are members, at most these shares are:",
    ]
    lines = [textwrap.fill(x, 80, subsequent_indent="  ") for x in sentences]
    lines.append("  false positive rate     members found   members of the named")
    for rate in rates.tolist():
        power = _up(attack_success(accountant, rate))
        named = _up(positive_predictive_value(accountant, rate, prior))
        lines.append(f"  {rate:>19g}{power:>18}{named:>23}")
    return "\n".join(lines)


def _up(bounds: Bounds) -> str:
    """Returns the upper bound, rounded up to three digits."""
    return f"{float(decimals.rounded_up(bounds[1], _DIGITS)):g}"


def _inside(name: str, value: float) -> float:
    number = fields.real_number(name, value)
    if not _LEAST_PRIOR <= number < 1:
        raise ValueError(f"{name} must be in [{_LEAST_PRIOR:g}, 1). Found {value}.")
    return number
