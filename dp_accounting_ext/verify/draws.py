"""The outputs of mechanisms, drawn from the definitions of events, with their losses.

A *law* is that of the outputs if some members of a group of records are in the dataset,
each of which contributes the same value where it takes part: 1, −1, or any other. The
loss of an output under a law is the logarithm of its density over that without any
member. Participations are summed over by their definition, so that the loss is that of
the mixture. The laws of larger values, and of more participations than the event has,
are those from which rare outputs can be drawn.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any
from typing import Protocol

import numpy as np
from scipy import special

from dp_accounting_ext.verify import channels

Array = np.ndarray
EVERYWHERE = math.inf  # A boost with which members take part in every step.


class Mechanism(Protocol):
    """Outputs can be drawn, and their losses computed."""

    @property
    def is_exact(self) -> bool:
        """Whether losses are those of the mechanism, not estimates of them."""

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        """Returns an output for each number of members.

        Args:
            rng: The source of randomness.
            members: The number of members in the dataset, for each output.
            value: What each member contributes where it takes part.
            boost: The factor by which each member is likelier to take part.
        """

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        """Returns the loss of each output under the law of these arguments."""


@dataclasses.dataclass(frozen=True)
class Noise(Mechanism):
    """Gaussian or Laplace noise around the sum of what the members contribute."""

    kind: str
    scale: float
    is_exact: bool = True

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        drawn = rng.laplace if self.kind == "laplace" else rng.normal
        return drawn(members * value, self.scale)

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        shift = members * value
        if self.kind == "laplace":
            further = np.abs(outputs) - np.abs(outputs - shift)
            return np.asarray(further / self.scale)
        return np.asarray((outputs - shift / 2) * (shift / self.scale**2))


@dataclasses.dataclass(frozen=True)
class Table(Mechanism):
    """A mechanism of few outputs, by their masses in two datasets.

    Other values stand for laws whose logarithms lie on the line through those of the
    two datasets.

    Attributes:
        losses: The logarithm of the ratio of each output's masses.
        q: The masses in the second dataset.
        lowest: The value of the members in the second dataset: 0 if there are none.
    """

    losses: Array
    q: Array
    lowest: float
    is_exact: bool = True

    @classmethod
    def of(cls, q: Array, p: Array, lowest: float) -> "Table":
        """Returns the table of two laws, of which one output each may be impossible.

        Such outputs are merged with those of the next ratio, and all missing mass with
        the likeliest output: a post-processing of the mechanism.
        """
        finite = (q > 0) & (p > 0)
        kept_q, kept_p = q[finite], p[finite]
        if not kept_q.size:
            raise channels.NoTheoremError("no theorem for a part that reveals all")
        ratios = kept_p / kept_q
        for row, law in ((kept_q, q), (kept_p, p)):
            row[ratios.argmax()] += law[q <= 0].sum()
            row[ratios.argmin()] += law[(p <= 0) & (q > 0)].sum()
            row[kept_q.argmax()] += max(1 - row.sum(), 0.0)
        return cls(np.log(kept_p / kept_q), kept_q, lowest)

    def _share(self, members: Any, value: float) -> float:
        return (value - self.lowest) / (1 - self.lowest) if members else 0.0

    def _tilted(self, share: float) -> tuple[Array, float]:
        logs = np.log(self.q) + share * self.losses
        total = float(special.logsumexp(logs))
        return np.exp(logs - total), total

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        outputs = np.empty(members.shape, dtype=np.intp)
        for inside in (True, False):
            chosen = (members > 0) == inside
            ends = np.cumsum(self._tilted(self._share(inside, value))[0])
            drawn = rng.random(np.count_nonzero(chosen)) * ends[-1]
            outputs[chosen] = np.searchsorted(ends, drawn, side="right")
        return np.minimum(outputs, self.q.size - 1)

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        share = self._share(members, value)
        return np.asarray(share * self.losses[outputs] - self._tilted(share)[1])


@dataclasses.dataclass(frozen=True)
class Runs(Mechanism):
    """Several mechanisms on the same records, each of which is run a number of times.

    Attributes:
        parts: The mechanisms and how often each of them is run.
    """

    parts: Sequence[tuple[Mechanism, int]]

    @property
    def is_exact(self) -> bool:
        return all(part.is_exact for part, _ in self.parts)

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        return [
            part.draw(rng, np.repeat(members, count), value, boost)
            for part, count in self.parts
        ]

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        found = [
            part.loss(each, members, value, boost).reshape(-1, count).sum(axis=1)
            for each, (part, count) in zip(outputs, self.parts, strict=True)
        ]
        return np.asarray(np.sum(found, axis=0))


@dataclasses.dataclass(frozen=True)
class Sampled(Mechanism):
    """A mechanism on one Poisson sample of the records."""

    rate: float
    inner: Mechanism

    @property
    def is_exact(self) -> bool:
        return self.inner.is_exact

    def _rate(self, boost: float) -> float:
        return min(boost * self.rate, 1.0) if self.rate else 0.0

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        inside = rng.binomial(members, self._rate(boost))
        return self.inner.draw(rng, inside, value, boost)

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        weights = _binomial(members, self._rate(boost))
        losses = [
            self.inner.loss(outputs, number, value, boost)
            for number in range(members + 1)
        ]
        return log_mean(np.stack(losses, axis=-1), weights)


@dataclasses.dataclass(frozen=True)
class Allocated(Mechanism):
    """Steps of which each member takes part in some, drawn uniformly at random.

    Attributes:
        steps: The mechanism of each step that is run, and the number of such steps.
        selected: The number of steps in which a member takes part. If it is more than
            one, there may be one member only.
        total: The number of all steps, those that are not run among them.
    """

    steps: Sequence[tuple[Mechanism, int]]
    selected: int
    total: int

    @property
    def is_exact(self) -> bool:
        return all(step.is_exact for step, _ in self.steps)

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        shape = (members.size, self.total)
        if boost != 1:
            rate = min(boost * self.selected / self.total, 1.0)
            takes = rng.binomial(members[:, None], rate, shape)
        else:
            takes = np.zeros(shape, dtype=np.int64)
            for member in range(int(members.max(initial=0))):
                there = np.flatnonzero(members > member)
                sets = subsets(rng, there.size, self.total, self.selected)
                np.add.at(takes, (there[:, None], sets), 1)
        outputs, first = [], 0
        for step, count in self.steps:
            inside = takes[:, first : first + count].ravel()
            outputs.append(step.draw(rng, inside, value, 1.0))
            first += count
        return outputs

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        if not members:
            return np.zeros(outputs[0].size // self.steps[0][1])
        ratios = [
            np.concatenate(
                [
                    step.loss(each, number, value, 1.0).reshape(-1, count)
                    for each, (step, count) in zip(outputs, self.steps, strict=True)
                ],
                axis=1,
            )
            for number in range(1, members + 1)
        ]
        idle = self.total - ratios[0].shape[1]
        logs = np.stack([np.zeros_like(ratios[0]), *ratios])
        if boost != 1:
            rate = min(boost * self.selected / self.total, 1.0)
            weights = _binomial(members, rate)[:, None, None]
            return np.asarray(log_mean(logs, weights, axis=0).sum(axis=1))
        if members == self.selected == 1:
            every = np.pad(logs[1], ((0, 0), (0, min(idle, 1))))
            weights = np.ones(every.shape[1]) / self.total
            weights[logs.shape[2] :] *= idle
            return log_mean(every, weights)
        # The sum over all ways is a coefficient of a product of polynomials, one for
        # each step: the power is the number of participations.
        logs -= special.gammaln(np.arange(members + 1) + 1)[:, None, None]
        order = members if self.selected == 1 else self.selected
        per_step = members if self.selected == 1 else 1
        tops = np.maximum(logs.max(axis=0), 0.0)
        scaled = np.exp(logs - tops)
        size = (order + 1, scaled.shape[1])
        found, base = np.zeros(size), tops.sum(axis=1)
        found[0] = 1.0
        for step in range(scaled.shape[2]):
            after = found * scaled[0, :, step]
            for number in range(1, min(per_step, order) + 1):
                after[number:] += found[: order + 1 - number] * scaled[number, :, step]
            largest = after.max(axis=0)
            found, base = after / largest, base + np.log(largest)
        rest = [_idle(idle, number, self.selected) for number in range(order + 1)]
        total = np.einsum("i,in->n", np.array(rest[::-1]), found)
        with np.errstate(divide="ignore"):
            found = np.log(total) + base
        if self.selected == 1:
            ways = order * math.log(self.total) - math.lgamma(order + 1)
        else:
            ways = log_choices(self.total, self.selected)
        return np.asarray(found - ways)


def _idle(steps: int, number: int, selected: int) -> float:
    """Returns the weight of so many participations in steps that do not run."""
    if selected > 1:
        return float(special.comb(steps, number))
    return float(steps) ** number / math.factorial(number)


@dataclasses.dataclass(frozen=True)
class OneMember(Mechanism):
    """A mechanism of whose group one member at most contributes anything.

    Attributes:
        inner: The mechanism.
        leaves: Whether a member of a negative value does not contribute, either.
    """

    inner: Mechanism
    leaves: bool

    @property
    def is_exact(self) -> bool:
        return self.inner.is_exact

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        gone = self.leaves and value < 0
        one = np.minimum(members, 0 if gone else 1)
        return self.inner.draw(rng, one, value, boost)

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        gone = self.leaves and value < 0
        return self.inner.loss(outputs, min(members, 0 if gone else 1), value, boost)


def subsets(rng: np.random.Generator, size: int, total: int, selected: int) -> Array:
    """Returns sets of so many of all numbers below `total`, drawn uniformly."""
    if selected == 1:
        return rng.integers(total, size=(size, 1))
    keys = rng.random((size, total))
    return np.argpartition(keys, selected - 1, axis=1)[:, :selected]


def _binomial(number: int, rate: float) -> Array:
    return np.array(
        [
            math.comb(number, i) * rate**i * (1 - rate) ** (number - i)
            for i in range(number + 1)
        ]
    )


def log_choices(total: int, selected: int) -> float:
    """Returns the logarithm of the number of sets of so many of all numbers."""
    inside, outside = math.lgamma(selected + 1), math.lgamma(total - selected + 1)
    return math.lgamma(total + 1) - inside - outside


def log_mean(logs: Array, weights: Array, axis: int = -1) -> Array:
    """Returns the logarithm of a weighted sum of exponentials along an axis."""
    top = logs.max(axis=axis, keepdims=True)
    if axis == -1:
        total = np.exp(logs - top) @ weights
    else:
        total = (np.exp(logs - top) * weights).sum(axis=axis)
    return np.asarray(np.log(total) + top.squeeze(axis))
