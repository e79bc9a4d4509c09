"""What all mechanisms that release one draw have in common."""

import abc
from fractions import Fraction
import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import dp_event
from dp_accounting_ext.wpm.exact_draw import integer_sampler
from dp_accounting_ext.wpm.exact_draw import integer_weights
from dp_accounting_ext.wpm.projections import ldp_polytope

FloatArray = npt.NDArray[np.float64]


class SamplingMechanism(abc.ABC):
    """Represents a mechanism that releases one draw for each private distribution.

    A subclass proposes a distribution of the outputs; its rounding to integer weights,
    the check of these and the draw are here, and with them the guarantee: a draw is
    ε-private for whoever changes a whole distribution, in exact arithmetic.

    Cost, ε, base measure and everything made from them are public. What `project` and
    `integer_weights` return is not: only a draw may be released, one for each time
    that `dp_event` is accounted for. How long a call takes may depend on the private
    distribution; nothing here hides that.

    A batch is one call for many users. Each row's result depends on that row alone.
    """

    def __init__(
        self, cost: FloatArray, epsilon: float, base_measure: FloatArray
    ) -> None:
        self._cost = cost
        self._epsilon = epsilon
        self._base_measure = base_measure
        self._polytope = ldp_polytope.from_base_measure(base_measure, epsilon)
        self._bounds = integer_weights.make_bounds(self._polytope, epsilon)

    @property
    def epsilon(self) -> float:
        """The privacy parameter ε."""
        return self._epsilon

    @property
    def base_measure(self) -> FloatArray:
        """(k_v,) masses m; output j has a probability in [e^{−ε/2}, e^{ε/2}] m_j."""
        return self._base_measure.copy()

    @property
    def integer_bounds(self) -> integer_weights.IntegerBounds:
        """The bounds in integers that every draw's weights satisfy; public."""
        return self._bounds

    @functools.cached_property
    def worst_case_cost(self) -> float:
        """The largest mean cost of a draw from its input, over single-point inputs."""
        laws = self._propose(np.eye(self._cost.shape[0]))
        return float((laws * self._cost).sum(axis=1).max())

    @functools.cached_property
    def dp_event(self) -> dp_event.PrivateSamplingEvent:
        """The event of one draw, for an accountant."""
        # As a sum of integers: the bounds are what holds, not the base measure.
        least = Fraction(int(sum(self._bounds.lower.tolist())), self._bounds.total)
        most_mass = math.exp(self._epsilon / 2)
        mass = min(max(float(least) * most_mass, 1 / most_mass), most_mass)
        return dp_event.PrivateSamplingEvent(self._epsilon, mass)

    def project(self, mu: npt.ArrayLike) -> FloatArray:
        """Returns the law that a draw is from. Not private: see the class.

        Args:
            mu: (k,) private distribution, or (n, k) for a batch.

        Returns:
            (k_v,) or (n, k_v) probabilities: `integer_weights` as floats.

        Raises:
            TypeError: If `mu` does not consist of real numbers.
            ValueError: If `mu` has the wrong shape, or is no distribution.
        """
        weights = self.integer_weights(mu).astype(np.float64)
        return np.asarray(np.ldexp(weights, -self._bounds.bits))

    def integer_weights(self, mu: npt.ArrayLike) -> npt.NDArray[Any]:
        """Returns the integers that a draw's probabilities are proportional to.

        Args:
            mu: (k,) private distribution, or (n, k) for a batch.

        Returns:
            (k_v,) or (n, k_v) integers that sum to 2^bits; Python integers if bits
            are more than 62.

        Raises:
            TypeError: If `mu` does not consist of real numbers.
            ValueError: If `mu` has the wrong shape, or is no distribution.

        Guarantees:
            Of any two users, one's weight of an output is at most e^ε times the
            other's, whatever the solver did.
        """
        users = checks.distributions("mu", mu, self._cost.shape[0])
        weights = integer_weights.round_to_weights(self._proposals(users), self._bounds)
        return weights if np.ndim(mu) == 2 else np.asarray(weights[0])

    def sample(
        self, mu: npt.ArrayLike, *, rng: np.random.Generator | None = None
    ) -> npt.NDArray[np.int64] | int:
        """Returns the index of one private draw, or one for each row of a batch.

        Args:
            mu: (k,) private distribution, or (n, k) for a batch.
            rng: For tests and simulations alone: a seeded generator, whose draws are
                not private. None draws from the operating system.

        Raises:
            TypeError: If `mu` does not consist of real numbers.
            ValueError: If `mu` has the wrong shape, or is no distribution. Errors
                tell which rule is broken and no number of `mu`.

        Guarantees:
            A draw is ε-private: the law is exactly `integer_weights` / 2^bits.
        """
        weights = np.atleast_2d(self.integer_weights(mu))
        draws = integer_sampler.draw(weights, self._bounds.bits, rng)
        return draws if np.ndim(mu) == 2 else int(draws[0])

    @abc.abstractmethod
    def _propose(self, users: FloatArray) -> FloatArray:
        """Returns (n, k_v) laws for (n, k) distributions; may fail."""

    def _together(self) -> bool:
        """Tells whether a batch is proposed for at once, or user by user."""
        return True

    def _proposals(self, users: FloatArray) -> FloatArray:
        """Returns laws, NaN for users whose proposal failed.

        No error may tell anything about an input, nor one input change what happens
        to another.
        """
        groups = [users] if self._together() else np.split(users, len(users))
        return np.concatenate([self._attempt(group) for group in groups])

    def _attempt(self, users: FloatArray) -> FloatArray:
        shape = (users.shape[0], self._base_measure.size)
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(self._propose(users), dtype=np.float64)
        except Exception:
            return np.full(shape, np.nan)
        return found if found.shape == shape else np.full(shape, np.nan)
