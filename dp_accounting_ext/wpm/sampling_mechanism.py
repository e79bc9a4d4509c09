"""The base class of mechanisms that release one draw from a private distribution."""

import abc
from collections.abc import Iterator
import dataclasses
import functools
import math
from typing import Any
import warnings

import numpy as np
import numpy.typing as npt

from dp_accounting_ext import displays
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import integer_weights
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm import sampling_event
from dp_accounting_ext.wpm import worst_cases
from dp_accounting_ext.wpm.projections import ldp_polytope


class NotForRelease(np.ndarray):
    """Represents an array that is as private as the input it was made from.

    It behaves as any other array. Its name warns users who print or store it. Only a
    draw by `sample` is private.
    """


@dataclasses.dataclass(frozen=True)
class ExpectedCost(displays.Displayed):
    """Represents the expected cost of a draw, computed from public values alone.

    Costs are those of the mechanism, distances to the power p.

    Attributes:
        worst: The largest expected cost over users whose mass is on one input. With an
            exact projection no other user has a larger one.
        average: The mean, over all inputs, of the expected cost of a user whose mass is
            on that input. With an exact projection it is an upper bound on the
            mean over users whose distributions average to the uniform distribution.
        most_likely: The largest probability that any output has under any law. It is an
            upper bound on the mass of a user that can stay in one place.
    """

    worst: float
    average: float
    most_likely: float

    def _display(self) -> displays.Table:
        rows = [
            ("mean cost, worst user", f"{self.worst:.6g}"),
            ("mean cost, average user", f"{self.average:.6g}"),
            ("share of a user that can stay, at most", f"{self.most_likely:.6g}"),
        ]
        return displays.Table("what a draw costs", ("", "value"), rows)


class SamplingMechanism(displays.Displayed):
    """Represents a mechanism that releases one draw for each private distribution.

    A subclass proposes a distribution of the outputs. This class rounds it to integer
    weights, checks them, and draws. These steps give the guarantee: in exact
    arithmetic, a draw is ε-private, where neighboring inputs are any two distributions.

    Cost, ε, base measure and everything made from them are public. What `project` and
    `integer_weights` return is not: only a draw may be released, one for each time
    that `dp_event` is accounted for. How long a call takes may depend on the private
    distribution, most of all on how many inputs hold mass; nothing here hides that.

    Distributions `mu` are (k,) masses or, for a batch, (n, k) masses, as an array or as
    a SciPy sparse matrix. Integers are counts, which are divided by their sum. The
    result of each row depends on that row alone, so that the draw of one user reveals
    nothing about another.
    """

    def __init__(
        self, cost: costs.TransportCost, epsilon: float, base_measure: FloatArray
    ) -> None:
        self._cost, self._epsilon = cost, epsilon
        self._base_measure = base_measure
        self._polytope = ldp_polytope.from_base_measure(base_measure, epsilon)
        self._bounds = integer_weights.make_bounds(self._polytope, epsilon)

    @property
    def cost(self) -> costs.TransportCost:
        """The cost of moving mass from the k inputs to the k_v outputs."""
        return self._cost

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
        """The integer bounds on the weights of every draw, which are public."""
        return self._bounds

    @functools.cached_property
    def worst_case_cost(self) -> float:
        """The largest mean cost of a draw from its input, over single-point inputs."""
        return float(self._point_costs(np.arange(self._cost.shape[0])).max())

    def expected_cost(self) -> ExpectedCost:
        """Returns the expected cost of draws, computed from public values alone.

        For more than 10^7 pairs of inputs and outputs the average is estimated from a
        sample of the inputs, and the worst case is an upper bound.
        """
        inputs, outputs = self._cost.shape
        count = min(inputs, max(worst_cases.MOST_PAIRS // outputs, 1))
        chosen = np.linspace(0, inputs - 1, count).astype(np.intp)
        low, high = self._polytope.lower, self._polytope.upper
        worst, average = self.worst_case_cost, float(self._point_costs(chosen).mean())
        return ExpectedCost(
            worst + self._excess(worst),
            average + self._excess(average),
            float(np.minimum(high, 1 - (low.sum() - low)).max()),
        )

    def _excess(self, cost: float) -> float:
        """Returns a bound on the excess of a draw's cost over its `_point_costs`."""
        return 0.0

    def _point_costs(self, inputs: IndexArray) -> FloatArray:
        """Returns the (n,) expected costs of draws of users with a single input."""
        points = private_rows.PrivateRows.of_points(inputs, self._cost.shape[0])
        blocks = []
        for begin in range(0, inputs.size, self._at_once):
            laws = self._propose(points.part(begin, begin + self._at_once))
            rows = self._cost.rows(inputs[begin : begin + self._at_once])
            blocks.append((laws * rows).sum(axis=1))
        return np.concatenate(blocks)

    @functools.cached_property
    def dp_event(self) -> sampling_event.PrivateSamplingEvent:
        """The event of one draw, for an accountant."""
        return event_of(self._bounds, self._epsilon)

    def project(self, mu: Any) -> NotForRelease:
        """Returns the law of a draw, which is not for release: see the class.

        Args:
            mu: (k,) private distribution, or (n, k) for a batch.

        Returns:
            (k_v,) or (n, k_v) probabilities: `integer_weights` as floats.

        Raises:
            TypeError: If `mu` does not consist of real numbers.
            ValueError: If `mu` has the wrong shape, or is no distribution.
        """
        weights = np.asarray(self.integer_weights(mu)).astype(np.float64)
        return np.ldexp(weights, -self._bounds.bits).view(NotForRelease)

    def integer_weights(self, mu: Any) -> npt.NDArray[Any]:
        """Returns integers to which the probabilities of a draw are proportional.

        They are (k_v,) or (n, k_v) and sum to 2^bits; with more than 62 bits they are
        Python integers. They are not for release. Errors are those of `project`.

        Guarantees:
            For any two users, the weight of an output under one is at most e^ε times
            its weight under the other, whatever the solver returned.
        """
        users = private_rows.read("mu", mu, self._cost.shape[0])
        no_row = np.empty((0, self._cost.shape[1]), dtype=self._bounds.lower.dtype)
        weights = np.concatenate([no_row, *self._weights(users)])
        answer = weights if users.is_batch else weights[0]
        return np.asarray(answer).view(NotForRelease)

    def sample(self, mu: Any, *, rng: int | np.random.Generator | None = None) -> Any:
        """Returns the index of one private draw, or one for each row of a batch.

        Args:
            mu: (k,) private distribution, or (n, k) for a batch.
            rng: A seed or a seeded generator for tests and simulations, whose draws are
                not private. By default the random bits are the operating system's.

        Raises:
            TypeError: If `mu` does not consist of real numbers, or `rng` has the wrong
                type.
            ValueError: If `mu` has the wrong shape, or is not a distribution. Errors
                name the rule that is broken and show no value of `mu`.

        Guarantees:
            A draw is ε-private: the law is exactly `integer_weights` / 2^bits.
        """
        source = generator_of(rng)
        users = private_rows.read("mu", mu, self._cost.shape[0])
        drawn = self._draws(users, source)
        return drawn if users.is_batch else int(drawn[0])

    def _draws(
        self, users: private_rows.PrivateRows, source: np.random.Generator | None
    ) -> IntArray:
        draw, bits = integer_weights.draw, self._bounds.bits
        parts = [draw(weights, bits, source) for weights in self._weights(users)]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    @abc.abstractmethod
    def _propose(self, users: private_rows.PrivateRows) -> FloatArray:
        """Returns (n, k_v) laws, each of which depends on its user alone, or raises."""

    @property
    def _at_once(self) -> int:
        """The number of users whose laws are held in memory at once."""
        return max(1, costs.TOGETHER // self._cost.shape[1])

    def _weights(self, users: private_rows.PrivateRows) -> Iterator[npt.NDArray[Any]]:
        """Yields checked weights, for as many users at once as memory allows."""
        for begin in range(0, len(users), self._at_once):
            proposed = self._attempt(users.part(begin, begin + self._at_once))
            yield integer_weights.round_to_weights(proposed, self._bounds)

    def _attempt(self, users: private_rows.PrivateRows) -> FloatArray:
        """Returns laws, which are NaN for the users whose proposals failed.

        No error may reveal anything about an input.
        """
        shape = len(users), self._base_measure.size
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                laws = np.asarray(self._propose(users), dtype=np.float64)
            if laws.shape == shape:
                return laws
        except Exception:
            pass
        if len(users) == 1:
            return np.full(shape, np.nan)
        alone = [users.part(user, user + 1) for user in range(len(users))]
        return np.concatenate([self._attempt(user) for user in alone])

    def _display(self) -> displays.Table:
        rows = [
            ("inputs, outputs", " × ".join(map(str, self._cost.shape))),
            ("ε of one draw", repr(self._epsilon)),
            ("mass of the base measure", f"{float(self._base_measure.sum()):.6g}"),
        ]
        return displays.Table(type(self).__name__, ("", "value"), rows)

    def __repr__(self) -> str:
        mass = float(self._base_measure.sum())
        return (
            f"{type(self).__name__}({self._cost!r}, epsilon={self._epsilon!r}, "
            f"base measure of mass {mass:.6g})"
        )


def event_of(
    bounds: integer_weights.IntegerBounds, epsilon: float
) -> sampling_event.PrivateSamplingEvent:
    """Returns the event of one draw whose weights are within bounds."""
    # The masses are computed from the integer bounds, which every draw satisfies;
    # the base measure may differ from them by rounding.
    most_mass = math.exp(epsilon / 2)
    whole = bounds.total
    shares = [int(weight) / whole for weight in bounds.lower.tolist()]
    measure = most_mass * np.sort(shares)[::-1]
    # The sum is rounded down, so that no mass is left for one more output.
    mass = math.nextafter(math.fsum(measure), 0.0)
    mass = min(max(mass, 1 / most_mass), most_mass)
    largest = measure[measure > 0][: checks.MOST_MASSES]
    return sampling_event.PrivateSamplingEvent(epsilon, mass, largest.tolist())


def generator_of(rng: Any) -> np.random.Generator | None:
    """Returns a generator unchanged, or the generator of a seed."""
    if rng is None or isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0:
        return np.random.default_rng(int(rng))
    raise TypeError(
        "rng must be None, a non-negative integer or a numpy.random.Generator. "
        f"Found {rng!r}."
    )
