"""What a server can say of a population, from one private draw of each of its users.

Let μ̄ be the mean of n users' distributions, and suppose that their draws are
independent. The law of a projected draw is no linear function of the distribution, so
that draws do not determine μ̄: only their average is justified, and its bias remains
however many users there are. A linear mechanism has a known channel A, a row for each
input; its draws have the mean law Aᵀμ̄, which can be inverted.
"""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
from scipy import sparse

from dp_accounting_ext import displays
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import mechanism as mechanisms
from dp_accounting_ext.wpm.projections import linear_programs

# Certified: all bounds are raised by more than the rounding of sums of floats, and
# bounds on distances by more than costs change where laws become integer weights.
_ROUNDING, _WEIGHTS = 1e-9, 1e-6
_MOST_STEPS = 100  # Of expectation maximization.


@dataclasses.dataclass(frozen=True, repr=False)
class DistributionEstimate(displays.Displayed):
    """Represents an estimate of the mean of users' distributions.

    Attributes:
        distribution: (k_v,) masses, which sum to one; of a debiased average some may be
            negative.
        bias_bound: A bound on the distance W_1 of its expectation from the mean of the
            users, which no number of users reduces.
        error_bound: With the probability `confidence`, a bound on its own distance. If
            masses are negative, the distance is the largest difference of the means of
            any function that changes by at most the distance.
        confidence: That probability, over the draws.
    """

    distribution: FloatArray
    bias_bound: float
    error_bound: float
    confidence: float

    def _display(self) -> displays.Table:
        rows = [
            ("outputs", str(self.distribution.size)),
            ("bias, at most", f"{self.bias_bound:.6g}"),
            (f"error, with {self.confidence:g}", f"{self.error_bound:.6g}"),
        ]
        return displays.Table("mean of the users, estimated", ("", "value"), rows)


@dataclasses.dataclass(frozen=True, repr=False)
class MeanEstimate(displays.Displayed):
    """Represents an estimate of the mean of a function over the users.

    Attributes:
        value: The mean of the weights of the draws.
        error_bound: With the probability `confidence`, a bound on its error.
        confidence: That probability, over the draws.
        weights: (k_v,) weights of the outputs, chosen before any draw.
    """

    value: float
    error_bound: float
    confidence: float
    weights: FloatArray

    def _display(self) -> displays.Table:
        rows = [
            ("value", f"{self.value:.6g}"),
            (f"error, with {self.confidence:g}", f"{self.error_bound:.6g}"),
        ]
        return displays.Table("mean of a function, estimated", ("", "value"), rows)


def average_of_draws(
    draws: Any,
    mechanism: mechanisms.WassersteinProjectionMechanism,
    confidence: float = 0.95,
) -> DistributionEstimate:
    """Returns the shares of the outputs among draws, as an estimate of the mean user.

    The mean law is within the p-th root of the worst-case cost of the mean user. The
    shares are near the mean law. To see how near, let nested cells of the outputs have
    diameters D_l and numbers N_l. Then W_1 is on average at most
    Σ_l ½ (D_l − D_{l+1}) min(2, √((N_{l+1} − 1) / n)), and one draw changes it by at
    most D_0 / n (McDiarmid).

    Args:
        draws: (n,) indices of outputs, one draw for each user, all independent.
        mechanism: The mechanism that drew, without regularization. Its cost must be of
            a metric.
        confidence: The probability of the error's bound, over the draws.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Appendix M (the average, without bounds).
    """
    _check_mechanism(mechanism)
    shares = _shares(draws, mechanism)
    bias = mechanism.expected_cost().worst ** (1 / _order(mechanism))
    spread = _spread(mechanism, np.size(draws), confidence)
    return _estimate(shares, bias, spread, confidence)


def debiased_average(
    draws: Any,
    mechanism: mechanisms.WassersteinProjectionMechanism,
    confidence: float = 0.95,
) -> DistributionEstimate:
    """Returns the average of a linear mechanism's draws, without what is always drawn.

    Each row of the channel holds the least masses αm, whose sum is αM. Without them the
    estimate (average − αm) / (1 − αM) has less bias, and 1 / (1 − αM) times the noise.

    Args:
        draws: (n,) indices of outputs, one draw for each user, all independent.
        mechanism: The mechanism that drew, with `linear=True`. Its cost must be of a
            metric.
        confidence: The probability of the error's bound, over the draws.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.
    """
    channel = _channel(mechanism)
    shares, order = _shares(draws, mechanism), _order(mechanism)
    least_masses = _least(mechanism)
    free = 1 - math.fsum(least_masses)
    if free < _ROUNDING:
        raise ValueError(
            "mechanism must have a base measure whose least masses leave room for what "
            f"users have. Found a room of {free:.3g}; take a smaller measure."
        )
    distances = mechanism.cost.matrix() ** (1 / order)
    above_least = np.maximum(channel - least_masses, 0.0)
    bias = float((above_least * distances).sum(axis=1).max()) / free
    spread = _spread(mechanism, np.size(draws), confidence) / free
    return _estimate((shares - least_masses) / free, bias, spread, confidence)


def likeliest_population(
    draws: Any, mechanism: mechanisms.WassersteinProjectionMechanism
) -> FloatArray:
    """Returns the mean user that makes a linear mechanism's draws likely.

    Steps of expectation maximization increase the likelihood, from the uniform
    distribution. They end where the fit is as good as that of the truth would be on
    average: n KL(shares | law) ≤ (outputs drawn − 1) / 2; or after 100. Further steps
    would fit noise. There is no bound on the error. With few draws the average may be
    nearer.

    Args:
        draws: (n,) indices of outputs, one draw for each user, all independent.
        mechanism: The mechanism that drew, with `linear=True`.

    Returns:
        (k,) masses of the inputs, which sum to one.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.
    """
    channel, shares = _channel(mechanism), _shares(draws, mechanism)
    population = np.full(len(channel), 1 / len(channel))
    drawn = shares > 0
    enough = (np.count_nonzero(drawn) - 1) / (2 * np.size(draws))
    for _ in range(_MOST_STEPS):
        ratios = shares[drawn] / (population @ channel[:, drawn])
        if float(shares[drawn] @ np.log(ratios)) <= enough:
            break
        population *= channel[:, drawn] @ ratios
    return np.asarray(population / population.sum())


def estimate_mean(
    draws: Any,
    mechanism: mechanisms.WassersteinProjectionMechanism,
    function: Any,
    confidence: float = 0.95,
) -> MeanEstimate:
    """Returns the mean of a function of places over all users, with its error.

    Draws have weights w, and the estimate is their mean. Whatever w is, if it was
    chosen before the draws, the error is at most max |A w − h| for the bias, and
    (max w − min w) √(log(2 / δ) / (2 n)) for the noise (Hoeffding). A linear program
    finds the w of the least sum.

    Args:
        draws: (n,) indices of outputs, one draw for each user, all independent.
        mechanism: The mechanism that drew, with `linear=True`.
        function: (k,) values h of the function at the inputs. The function is public.
        confidence: The probability 1 − δ of the error's bound, over the draws.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.
        SolverError: If the linear program fails.
    """
    channel, shares = _channel(mechanism), _shares(draws, mechanism)
    inputs, outputs = channel.shape
    values = checks.array("function", function)
    if values.shape != (inputs,) or not np.isfinite(values).all():
        raise ValueError(
            f"function must have a finite value for each of the {inputs} inputs. "
            f"Found shape {values.shape}, or a value that is not finite."
        )
    chance = 1 - fields.inner_probability("confidence", confidence)
    rate = math.sqrt(math.log(2 / chance) / (2 * np.size(draws)))
    # The variables are w and four more: a bound on the bias, the largest w, minus the
    # least w, and the sum of the least masses times w. With the last one, rows of the
    # channel are needed without the least masses, and so are sparse.
    least_masses = _least(mechanism)
    above, eye = np.maximum(channel - least_masses, 0.0), np.eye(outputs)
    # Blocks of inequalities: the coefficients of w, and those of the other four.
    inequalities = [
        (above, -1, 0, 0, 1),
        (-above, -1, 0, 0, -1),
        (eye, 0, -1, 0, 0),
        (-eye, 0, 0, -1, 0),
        (least_masses[np.newaxis], 0, 0, 0, -1),
        (-least_masses[np.newaxis], 0, 0, 0, 1),
    ]
    table = [
        np.hstack([block, np.tile(others, (len(block), 1))])
        for block, *others in inequalities
    ]
    middle, scale = float(values.mean()), float(np.ptp(values)) or 1.0
    aim = (values - middle) / scale
    variables, _ = linear_programs.solve(
        np.concatenate([np.zeros(outputs), [1.0, rate, rate, 0.0]]),
        sparse.csc_array(np.vstack(table)),
        np.concatenate([aim, -aim, np.zeros(2 * outputs + 2)]),
        [(None, None)] * (outputs + 4),
        equal=False,
        interior=True,
    )
    weights = middle + scale * variables[:outputs]
    bound = float(np.abs(channel @ weights - values).max() + rate * np.ptp(weights))
    bound += _ROUNDING * (bound + float(np.abs(weights).max()))
    return MeanEstimate(float(shares @ weights), bound, confidence, weights)


def _estimate(
    masses: FloatArray, bias: float, spread: float, confidence: float
) -> DistributionEstimate:
    bias *= 1 + _WEIGHTS
    error = (bias + spread) * (1 + _WEIGHTS)
    return DistributionEstimate(masses, bias, error, confidence)


def _shares(
    draws: Any, mechanism: mechanisms.WassersteinProjectionMechanism
) -> FloatArray:
    """Returns the (k_v,) shares of the outputs among draws, which may be drawn."""
    places, size = fields.number_array("draws", draws), mechanism.cost.shape[1]
    if places.dtype.kind not in "iu":
        raise TypeError(f"draws must be integers. Found dtype {places.dtype}.")
    if places.ndim != 1 or not places.size:
        raise ValueError(
            f"draws must be a list of a draw for each user. Found shape {places.shape}."
        )
    wrong = (places < 0) | (places >= size)
    if wrong.any():
        raise ValueError(
            f"draws must be indices of the {size} outputs. Found {places[wrong][0]}."
        )
    never = mechanism.base_measure[places] == 0
    if never.any():
        raise ValueError(
            "draws must be of outputs with a base measure, as those of the mechanism "
            f"are. Found {places[never].min()}, which has none."
        )
    return np.asarray(np.bincount(places, minlength=size) / places.size)


def _channel(mechanism: mechanisms.WassersteinProjectionMechanism) -> FloatArray:
    """Returns the (k, k_v) laws of draws of users with a single input, if linear."""
    _check_mechanism(mechanism)
    if not mechanism.is_linear:
        raise ValueError(
            "mechanism must be made with linear=True, so that the law of its draws is "
            "linear in the distribution. Found one that projects; its draws have an "
            "average_of_draws."
        )
    points = sparse.eye(mechanism.cost.shape[0], format="csr")
    return np.asarray(mechanism.project(points))


def _least(mechanism: mechanisms.WassersteinProjectionMechanism) -> FloatArray:
    """Returns the (k_v,) least probabilities of the outputs."""
    bounds = mechanism.integer_bounds
    return np.array([int(weight) / bounds.total for weight in bounds.lower])


def _check_mechanism(mechanism: Any) -> None:
    """Checks that the worst case of a mechanism is that of a single point."""
    if not isinstance(mechanism, mechanisms.WassersteinProjectionMechanism):
        raise TypeError(
            "mechanism must be a WassersteinProjectionMechanism. "
            f"Found a {type(mechanism).__name__}."
        )
    if mechanism.regularization is not None:
        raise ValueError(
            "mechanism must have regularization None, as nothing bounds the bias of "
            f"Algorithm 1 before its draws. Found {mechanism.regularization:g}."
        )


def _order(mechanism: mechanisms.WassersteinProjectionMechanism) -> float:
    """Returns the order p of the mechanism's cost, which must be of a metric."""
    order = mechanism.cost.metric_order
    if order is None:
        raise ValueError(
            "mechanism must have the cost of a metric, as a PointCost or a GraphCost, "
            f"for distances of distributions. Found a {mechanism.cost!r}."
        )
    return order


def _spread(
    mechanism: mechanisms.WassersteinProjectionMechanism, count: int, confidence: Any
) -> float:
    """Returns a bound on W_1 of an average of draws from its mean law."""
    chance = 1 - fields.inner_probability("confidence", confidence)
    cells = mechanism.cost.output_cells()
    widest = cells[0][0]
    bound = widest * math.sqrt(math.log(1 / chance) / (2 * count))
    for (wide, _), (narrow, number) in itertools.pairwise(cells):
        bound += (wide - narrow) * min(1.0, math.sqrt((number - 1) / count) / 2)
    return bound
