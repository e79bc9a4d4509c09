"""Private draws for unit vectors: one of many random directions, near the vector.

The best continuous law has two densities, the larger one on a cap around the vector. To
draw from it by a coin and floats is not private: a direction that is computed from the
vector shows it in its last bits. So directions are drawn that do not depend on the
vector. It only ranks them: the nearest ones get the greatest integer weight, the others
the least one, and one of them is drawn. Floats decide which are near, no more.
"""

import functools
import math
import secrets
from typing import Any

import numpy as np
from scipy import integrate
from scipy import optimize
from scipy import special

from dp_accounting_ext import displays
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import integer_weights
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm import sampling_event
from dp_accounting_ext.wpm import sampling_mechanism
from dp_accounting_ext.wpm.projections import ldp_polytope

# Tuning: the number r of near candidates by default, and the largest number of
# candidates N of one draw.
_NEAR, _MOST = 64, 1 << 20
_NODES = 200


class SphereMechanism(displays.Displayed):
    """Represents a private draw for a unit vector, a unit vector near it.

    Candidates are uniform random directions, new ones for each draw. Of N candidates
    the r nearest have probabilities e^ε times those of the others. Neighboring inputs
    are any two unit vectors. Privacy holds for every list of candidates, so that the
    list may be published; the result of floating point arithmetic decides only which
    candidates are near.

    Args:
        dimension: The dimension d ≥ 1 of the sphere S^d, whose points have d + 1
            coordinates.
        epsilon: The privacy parameter ε of one draw.
        order: The order p ≥ 1: the size of the cap is the best one for the mean of
            |x − y|^p, with Euclidean distances.
        candidates: The number N ≥ 2 of candidates; None for as many that 64 are near,
            with which the mean cost is less than a hundredth above the least one.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or more than 2^20 candidates would
            be needed.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition H.1, for the cap.
    """

    def __init__(
        self,
        dimension: int,
        epsilon: float,
        order: float = 2,
        candidates: int | None = None,
    ) -> None:
        self._half = fields.positive_integer("dimension", dimension) / 2
        self._epsilon, self._order = checks.epsilon(epsilon), checks.order(order)
        cap = _best_cap(self._half, self._epsilon, self._order / 2)
        if candidates is None:
            if _MOST * cap < _NEAR:
                raise ValueError(
                    f"epsilon must be such that {_NEAR} of at most {_MOST} candidates "
                    f"are near. Found {epsilon}, for which a share of {cap:.3g} is; "
                    "give a number of candidates."
                )
            candidates = math.ceil(_NEAR / cap)
        count = fields.positive_integer("candidates", candidates)
        if not 2 <= count <= _MOST:
            raise ValueError(
                f"candidates must be from 2 to {_MOST}. Found {candidates}."
            )
        self._near = min(max(round(count * cap), 1), count - 1)
        mass = _scale(self._near / count, self._epsilon)
        measure = np.full(count, mass / count)
        self._polytope = ldp_polytope.from_base_measure(measure, self._epsilon)
        self._bounds = integer_weights.make_bounds(self._polytope, self._epsilon)

    @property
    def candidates(self) -> int:
        """The number N of candidates of a draw."""
        return self._polytope.lower.size

    @functools.cached_property
    def dp_event(self) -> sampling_event.PrivateSamplingEvent:
        """The event of one draw, for an accountant."""
        return sampling_mechanism.event_of(self._bounds, self._epsilon)

    def expected_cost(self) -> float:
        """Returns the mean of |x − y|^p, the same for all inputs x."""
        return self._mean_cost(self._order / 2)

    @property
    def shrinkage(self) -> float:
        """The h for which y has the mean h x, so that y / h is unbiased for x."""
        return 1 - self._mean_cost(1.0) / 2

    def _mean_cost(self, power: float) -> float:
        """Returns the mean of |x − y|^(2 power), by the masses of caps.

        The smallest cap with one candidate more than the near ones has a mass of the
        law Beta(r + 1, N − r). The near ones are uniform in it.
        """
        half, near, whole = self._half, self._near, _mean_power(self._half, power)

        def inside(places: FloatArray) -> FloatArray:
            caps = special.betaincinv(near + 1.0, self.candidates - near, places)
            ends = special.betaincinv(half, half, caps)
            return np.asarray(whole * special.betainc(half + power, half, ends) / caps)

        held = near * integrate.fixed_quad(inside, 0.0, 1.0, n=_NODES)[0]
        low, high = self._polytope.lower[0], self._polytope.upper[0]
        return float(4**power * (high * held + low * (self.candidates * whole - held)))

    def sample(
        self, vectors: Any, *, rng: int | np.random.Generator | None = None
    ) -> FloatArray:
        """Returns a private draw, or one for each row of a batch.

        Args:
            vectors: (d + 1,) private unit vector, or (n, d + 1) for a batch.
            rng: A seed or a seeded generator for tests and simulations, whose draws are
                not private. By default the random bits are the operating system's.

        Returns:
            (d + 1,) or (n, d + 1) unit vectors.

        Raises:
            TypeError: If the vectors or `rng` have the wrong type.
            ValueError: If a vector has another number of coordinates, or a length that
                is not one. Errors show no value of the vectors.

        Guarantees:
            A draw is ε-private, in exact arithmetic, for every list of candidates.
        """
        source = sampling_mechanism.generator_of(rng)
        given = np.asarray(fields.number_array("vectors", vectors), dtype=np.float64)
        size = round(2 * self._half) + 1
        if given.ndim not in (1, 2) or given.shape[-1] != size:
            raise ValueError(
                f"vectors must have {size} coordinates each. Found shape {given.shape}."
            )
        lengths = np.linalg.norm(given, axis=-1)
        off = private_rows.SUM_TOLERANCE
        if not (np.abs(lengths - 1) <= off).all():
            raise ValueError(
                f"vectors must have the length 1 within {off:g}. Found another length; "
                "divide by it."
            )
        drawn = [self._draw(vector, source) for vector in np.atleast_2d(given)]
        return np.reshape(drawn, given.shape)

    def _draw(
        self, vector: FloatArray, source: np.random.Generator | None
    ) -> FloatArray:
        directions = self._directions(source)
        weights = self._weights(directions, vector)
        place = integer_weights.draw(weights[np.newaxis], self._bounds.bits, source)
        return np.asarray(directions[place[0]])

    def _directions(self, source: np.random.Generator | None) -> FloatArray:
        """Returns (N, d + 1) directions, which depend on no input."""
        made = source or np.random.default_rng(secrets.randbits(128))
        directions = made.standard_normal((self.candidates, round(2 * self._half) + 1))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        return directions

    def _weights(self, directions: FloatArray, vector: FloatArray) -> Any:
        """Returns (N,) checked integer weights, the greatest for the nearest ones."""
        law = self._polytope.lower.copy()
        near = np.argsort(-(directions @ vector), kind="stable")[: self._near]
        law[near] = self._polytope.upper[near]
        return integer_weights.round_to_weights(law[np.newaxis], self._bounds)[0]

    def _display(self) -> displays.Table:
        rows = [
            ("coordinates", str(round(2 * self._half) + 1)),
            ("ε of one draw", repr(self._epsilon)),
            ("candidates, of them near", f"{self.candidates}, {self._near}"),
            ("mean cost", f"{self.expected_cost():.6g}"),
        ]
        return displays.Table(type(self).__name__, ("", "value"), rows)


def _mean_power(half: float, power: float) -> float:
    """Returns the mean of (|x − y| / 2)^(2 power) over uniform y."""
    return math.exp(special.betaln(half + power, half) - special.betaln(half, half))


def _scale(cap: float, epsilon: float) -> float:
    """Returns the mass of the measure for a cap of a mass."""
    return 1 / (math.exp(-epsilon / 2) + 2 * math.sinh(epsilon / 2) * cap)


def _best_cap(half: float, epsilon: float, power: float) -> float:
    """Returns the mass S of the best cap.

    Let t be the cosine of a cap's angle, and x = (1 − t) / 2. With the regularized
    incomplete beta function I, the cap has the mass S = I_x(d/2, d/2) and the integral
    of costs U = H I_x((d + p)/2, d/2). Divided by 4^{p/2} e^{−ε/2}, the optimality
    condition is (e^ε − 1)(x^{p/2} S − U') = h − x^{p/2}, with h = H / 4^{p/2} and
    U' = U / 4^{p/2}. The root is computed in log x, as x may be tiny.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition H.1.
    """
    whole = _mean_power(half, power)

    def condition(log_place: float) -> float:
        place = math.exp(log_place)
        cost = place**power
        cap = special.betainc(half, half, place)
        inside = whole * special.betainc(half + power, half, place)
        return float(math.expm1(epsilon) * (cost * cap - inside) - (whole - cost))

    low = -1.0
    while condition(low) > 0:
        low *= 2
    root = optimize.brentq(condition, low, 0.0, xtol=1e-16, rtol=1e-15)
    return float(special.betainc(half, half, math.exp(root)))


def sphere_scale(dimension: int, epsilon: float, order: float) -> float:
    """Returns the scale of the optimal base measure on the unit sphere.

    Args:
        dimension: The dimension d of the sphere S^d, whose points have d + 1
            coordinates.
        epsilon: The privacy parameter ε.
        order: The order p ≥ 1 of the Wasserstein distance, with Euclidean distances.

    Returns:
        α* such that α* times the uniform probability is optimal. It decreases in p.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition H.1.
    """
    privacy, power = checks.epsilon(epsilon), checks.order(order) / 2
    half = fields.positive_integer("dimension", dimension) / 2
    return _scale(_best_cap(half, privacy, power), privacy)
