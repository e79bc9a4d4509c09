"""The smallest noise for which a bound on ε, or on a risk, is at most a target."""

from collections.abc import Callable
import decimal
import functools
import math

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
from scipy import optimize

from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.validation import fields

NeighborRel = privacy_accountant.NeighboringRelation
Measure = Callable[[pld_accountant.PLDAccountant], float | tuple[float, float]]
MakeEvent = Callable[[float], stock.DpEvent]
# Tuning, all of these constants.
# The factor between two noises of a search, and the most noise.
_WIDENING, MOST_NOISE = 3.0, 1e9
# A search for a root is told of no logarithm of a ratio nearer to zero.
_LEAST = 1e-9
# A bound that more noise raises by more than this share grows with the noise.
_GROWTH = 0.1

# With less noise, a step with the record in it has a loss of 50,000 nats: only a record
# that is hardly ever sampled is then private, and it is so at any noise.
LEAST_NOISE = 0.003
_UPWARDS = decimal.Context(prec=6, rounding=decimal.ROUND_CEILING)


def calibrate(
    make_event: MakeEvent,
    measure: Measure,
    target: float,
    *,
    neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
) -> float:
    """Returns the smallest noise, to six digits, that keeps a measure within a target.

        calibrate(make_event, risk.advantage, 0.1)
        calibrate(make_event, lambda a: a.get_epsilon_bounds(1e-6), 2.0)

    Args:
        make_event: The function from the noise to the event of the whole run. The
            number may also be a common factor of several noises, which keeps their
            proportions.
        measure: The function from an accountant to the quantity that is limited, or to
            lower and upper bounds on it. It must decrease with the noise. It may be a
            function of `risk`, or a method of the accountant.
        target: The largest allowed value of the quantity, or of its upper bound.
        neighboring_relation: As in the accountant.

    Raises:
        TypeError: If target is not a real number, or one of the functions not callable.
        ValueError: If no noise from 0.003 to 1e9 meets the target, or all do, or the
            quantity grows with the noise.

    Guarantees:
        Those of `least_noise`.
    """
    fields.function("make_event", make_event)
    fields.function("measure", measure)

    def bound(noise: float) -> float | tuple[float, float]:
        accountant = pld_accountant.PLDAccountant(neighboring_relation)
        return measure(accountant.compose(make_event(noise)))

    noise = least_noise(bound, target)
    if noise < LEAST_NOISE:
        raise ValueError(
            f"target must be such as noise is needed for. Found {target}, which a "
            f"noise of {noise:g} meets."
        )
    return noise


def least_noise(
    bound: Callable[[float], float | tuple[float, float]],
    target: float,
    *,
    name: str = "target",
) -> float:
    """Returns the smallest noise, to six digits, for which a bound is within a target.

    Args:
        bound: The function from the noise to a bound, or to a lower and an upper bound.
            It must decrease with the noise.
        target: The largest allowed value of the bound, or of the upper bound.
        name: The name of the target in errors.

    Returns:
        The noise. It is below `LEAST_NOISE` if less noise would also be enough.

    Raises:
        TypeError: If the target, or a bound, is not a real number.
        ValueError: If no noise up to 1e9 meets the target, or the bound grows with it.

    Guarantees:
        The bound was computed to be at most the target at the returned noise, and above
        the target at the next smaller number of six digits.
    """
    limit = fields.real_number(name, target)

    @functools.cache
    def measured(noise: float) -> float:
        bounds = bound(noise)
        upper = bounds[1] if isinstance(bounds, tuple) and len(bounds) == 2 else bounds
        return fields.real_number("measure", upper)

    def excess(noise: float) -> float:
        return log_excess(measured(noise), limit)

    def require_decrease(less_noise: float, more_noise: float) -> None:
        above, below = measured(less_noise), measured(more_noise)
        if below - above > _GROWTH * abs(above):
            raise ValueError(
                f"measure must decrease with the noise. Found {above:g} at a noise of "
                f"{less_noise:g}, and {below:g} at {more_noise:g}."
            )

    # Few bounds reach 0: whether this one does is asked first.
    enough = 1.0 if limit > 0 else MOST_NOISE
    while excess(enough) > 0:
        more = min(enough * _WIDENING, MOST_NOISE)
        require_decrease(enough, more)
        if more == enough:
            raise ValueError(
                f"{name} must be such as a noise of at most {MOST_NOISE:g}, the most "
                f"that is tried, meets. Found {target:g}; at this noise "
                f"{measured(enough):g} is reached."
            )
        enough = more
    while enough >= LEAST_NOISE and excess(enough / _WIDENING) <= 0:
        require_decrease(enough / _WIDENING, enough)
        enough /= _WIDENING
    if enough >= LEAST_NOISE:
        # Bounds are nearly straight in logarithms, so that a few steps find the root.
        enough /= _WIDENING ** optimize.brentq(
            lambda power: excess(enough / _WIDENING**power), 0.0, 1.0, xtol=1e-7
        )
    noise = _UPWARDS.create_decimal_from_float(enough)
    while excess(float(noise)) > 0:
        noise = noise.next_plus(_UPWARDS)
    while noise >= LEAST_NOISE and excess(float(noise.next_minus(_UPWARDS))) <= 0:
        noise = noise.next_minus(_UPWARDS)
    return float(noise)


def log_excess(value: float, limit: float) -> float:
    """Returns log(value / limit), negative if and only if value ≤ limit.

    It is never 0: where many arguments reach the limit exactly, a search for a root
    would end at any of them.
    """
    small, large = 1e-300, 1e300
    log_value, log_limit = (math.log(min(max(x, small), large)) for x in (value, limit))
    excess = log_value - log_limit
    return max(excess, _LEAST) if value > limit else min(excess, -_LEAST)
