"""A one-run audit: whether guesses of who took part refute what is claimed of a run.

    print(canaries.audit(run.accountant(), scores, members, guesses=320))

Each canary, a record of one's own, takes part if its own fair coin says so. From what
the run released, an auditor scores all canaries, and guesses that those with the
highest scores took part. What is claimed to have run bounds the number of right guesses
of every attack. More right guesses refute the claim; fewer show nothing.
"""

import bisect
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
import math
import textwrap
from typing import Any

import numpy as np
from scipy import stats

from dp_accounting_ext import displays
from dp_accounting_ext.accountants import noise_search
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.validation import fields

__all__ = [
    "CanaryAudit",
    "audit",
    "epsilon_lower_bound",
    "needed",
    "plan",
    "refuted_noise",
    "table",
]
__dir__ = __all__.copy

# Tuning: the ε at which the claimed curve is asked for, and the digits of p-values.
_EPSILONS: FloatArray = np.r_[0:4:0.01, 4:16:0.05, 16:60:0.5]
_PRECISION = 1e-4
# Certified: each covers eight roundings.
_DOWN, _UP = 1 - 2.0**-49, 1 + 2.0**-49
# Sums are cut at the one, which makes bounds larger, and p-values at the other.
_LARGEST, _LEAST = 1e40, 1e-30
# Fair coins give so uneven a number of members with this probability.
_UNFAIR = 1e-6
_SHARES = {"in": 0.5, "both": 1.0}


@dataclasses.dataclass(frozen=True, repr=False)
class CanaryAudit(displays.Displayed):
    """The result of an audit.

    Attributes:
        canaries: The number of canaries.
        guesses: The number of guesses; of other canaries nothing was guessed.
        right: The number of right guesses.
        needed: The smallest number of right guesses that refutes the claim. It is
            `guesses + 1` if no number does.
        p_value: An upper bound on the probability that a run as claimed gives as many
            right guesses.
        significance: As in `audit`.
    """

    canaries: int
    guesses: int
    right: int
    needed: int
    p_value: float
    significance: float

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted. If it is not, nothing is shown."""
        return self.right >= self.needed

    @property
    def verdict(self) -> str:
        """The result, as "refuted" or "not refuted"."""
        return "refuted" if self.refuted else "not refuted"

    @property
    def in_words(self) -> str:
        """The result, as sentences."""
        words = f"Of {self.guesses} guesses {self.right} were right. "
        if self.needed > self.guesses:
            words += "The claim is not refuted. Even if all of them were right, it "
            words += "would not be: that takes more canaries, or another number of "
            words += "guesses."
            return words + " This does not show that it is true."
        words += f"If the run was as claimed, {self.needed} or more are right with a "
        words += f"probability of at most {self.significance:g}: the claim is "
        words += f"{self.verdict} (p = {decimals.rounded_up(self.p_value, 2)})."
        return words + " This does not show that it is true." * (not self.refuted)

    def _display(self) -> displays.Table:
        return table(f"audit of {self.canaries} canaries", {"the run": self})


def audit(
    accountant: pld_accountant.PLDAccountant,
    scores: Any,
    members: Any,
    *,
    guesses: int,
    guess: str = "in",
    significance: float = 0.05,
) -> CanaryAudit:
    """Returns whether right guesses of membership refute what is claimed of a run.

    Args:
        accountant: An accountant that has composed what is claimed to have run. Its
            relation says what a coin decides: whether a canary takes part, or, if
            records are replaced, which of two records does.
        scores: (m,) a score of each canary, larger if it seems to have taken part. It
            may use all that the run released, but not `members`. Where scores are
            equal, guesses count as wrong if they can.
        members: (m,) whether each canary took part, 0 or 1, by secret, independent and
            fair coins.
        guesses: The number of guesses. It must be chosen before scores are seen.
        guess: "in" to guess of the highest scores that they took part, or "both" to
            guess so of one half, and of as many lowest scores that they did not.
        significance: An upper bound on the probability that a true claim is refuted.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range, or
            fair coins give such `members` with a probability below 1e-6.

    Guarantees:
        If the run was as claimed, or more private, the claim is refuted with at most
        the probability `significance`. So is any of all true claims, if several are
        audited with the same scores and guesses.
    """
    values = np.atleast_1d(fields.number_array("scores", scores).astype(np.float64))
    wrong = np.isnan(values).nonzero()[0]
    if wrong.size:
        raise ValueError(f"scores must be numbers. Found nan at index {wrong[0]}.")
    inside = _members(members, values.shape)
    game = _game(accountant, values.size, guesses, guess, significance)
    guesses_in = guesses if guess == "in" else math.ceil(guesses / 2)
    # Of equal scores those come first of which a guess is wrong.
    highest = np.lexsort((inside, -values))[:guesses_in]
    lowest = np.lexsort((~inside, values))[: guesses - guesses_in]
    right = int(inside[highest].sum() + (~inside[lowest]).sum())
    enough, p_value = game.needed(), game.p_value(right)
    if right >= enough:  # A p-value is rounded up; this one is known to be as small.
        p_value = min(p_value, significance)
    return CanaryAudit(
        values.size, guesses, right, enough, p_value, float(significance)
    )


def needed(
    accountant: pld_accountant.PLDAccountant,
    canaries: int,
    guesses: int,
    *,
    guess: str = "in",
    significance: float = 0.05,
) -> int:
    """Returns the smallest number of right guesses that refutes, or `guesses + 1`."""
    return _game(accountant, canaries, guesses, guess, significance).needed()


def plan(
    accountant: pld_accountant.PLDAccountant,
    fault: pld_accountant.PLDAccountant,
    canaries: int,
    *,
    significance: float = 0.05,
) -> tuple[int, float]:
    """Returns the number of guesses "in" that best finds a fault, and its power.

    `fault` is an accountant of what may have run instead of what is claimed, as with
    less noise. The number is the best of canaries / 2, / 4, / 8, … The power is an
    estimate, for independent canaries and the best scores; no p-value depends on it.
    """
    whole, canaries = _game(accountant, canaries, 1, "in", significance), int(canaries)
    rates = np.concatenate([[0.0], np.geomspace(1e-9, 1.0, 1000)])
    true_rates = pld_accountant.checked("fault", fault).get_true_positive_rates(rates)
    plans = []
    for halvings in range(1, max(canaries.bit_length(), 2)):
        game = dataclasses.replace(whole, guesses=max(canaries >> halvings, 1))
        guessed = game.guesses / canaries
        wrong = np.interp(guessed, (rates + true_rates) / 2, rates) / (2 * guessed)
        right = max(1 - wrong, 0.0)
        power = float(stats.binom.sf(game.needed() - 1, game.guesses, right))
        plans.append((power, game.guesses))
    power, guesses = max(plans)
    return guesses, power


def epsilon_lower_bound(
    right: int,
    guesses: int,
    canaries: int,
    delta: float,
    significance: float = 0.05,
    *,
    guess: str = "in",
) -> float:
    """Returns a lower bound on ε at δ of what ran, whatever it was, to six decimals.

    It is too large with a probability of at most `significance`. As in `audit`, the
    number of guesses must be chosen before scores are seen.
    """
    deltas = np.array([fields.probability("delta", delta)])
    settings = canaries, guesses, guess, significance

    def is_possible(millionths: int) -> bool:
        slopes = np.exp([millionths / 1e6]) * _UP
        return not _Game(slopes, deltas, *settings).refutes(right)

    place = bisect.bisect_left(range(60 * 10**6), True, key=is_possible)
    return max(place - 1, 0) / 1e6


def refuted_noise(
    accountant_of_noise: Callable[[float], pld_accountant.PLDAccountant],
    right: int,
    guesses: int,
    canaries: int,
    significance: float = 0.05,
    *,
    guess: str = "in",
) -> float:
    """Returns the smallest noise, to six digits, that the right guesses refute.

    With a probability of at least 1 − `significance` what ran was not as private as
    with this noise, or with more. It is infinite if no noise is refuted. The function
    from the noise to an accountant of the run must be more private with more noise.
    """
    settings = canaries, guesses, guess, significance
    if not _Game(np.ones(1), np.zeros(1), *settings).refutes(right):
        return math.inf
    return noise_search.least_noise(
        lambda noise: _game(accountant_of_noise(noise), *settings).p_value(right),
        significance,
        name="significance",
    )


def table(title: str, audits: Mapping[str, CanaryAudit]) -> displays.Table:
    """Returns a table of the audits of claims that have names, with sentences."""
    rows = []
    for name, result in audits.items():
        fewest = str(result.needed) if result.needed <= result.guesses else "none"
        p_value = decimals.rounded_up(result.p_value, 2)
        rows.append([name, str(result.right), fewest, p_value, result.verdict])
    words = result.in_words
    if len(audits) > 1:
        level = max(result.significance for result in audits.values())
        words = "If a claim is true, as many right guesses as are needed have a "
        words += f"probability of at most {level:g}. A claim that is not refuted need "
        words += "not be true."
        if any(row[2] == "none" for row in rows):
            words += " Where none refute, it takes more canaries, or another number of "
            words += "guesses."
    heads = "claim", "right", "needed", "p at most", "verdict"
    return displays.Table(title, heads, rows, [textwrap.fill(words, 80)])


def _game(accountant: Any, *settings: Any) -> "_Game":
    """Returns the game of an accountant's curve, with the settings of `_Game`."""
    claimed = pld_accountant.checked("accountant", accountant)
    deltas = claimed.get_delta(_EPSILONS)
    # From its largest loss on, a curve may be a constant: from a kink between two ε.
    high = int(np.argmax(deltas <= deltas[-1] * _UP))
    epsilons = _EPSILONS
    if high:
        low, end = float(_EPSILONS[high - 1]), float(_EPSILONS[high])
        for _ in range(4):
            inner = np.linspace(low, end, 33)
            flat = int(np.argmax(claimed.get_delta(inner) <= deltas[-1] * _UP))
            low, end = float(inner[max(flat - 1, 0)]), float(inner[flat])
        epsilons = np.sort(np.append(_EPSILONS, [low, end]))
        deltas = claimed.get_delta(epsilons)
    return _Game(np.exp(epsilons) * _UP, deltas, *settings)


@dataclasses.dataclass(frozen=True)
class _Game:
    """The number W of right guesses, of whatever has all of these lines.

    A line is P(A) ≤ δ + s Q(A) for all sets A of outputs, where P and Q are their laws
    with a canary and without it, in either order. For theorems see "One-run audits" in
    docs/mathematics.md; h is 1/2 for "in".

    Attributes:
        slopes: (n,) s = e^ε of the lines, rounded up.
        deltas: (n,) δ of the lines.
        canaries: The number m of canaries.
        guesses: The number r of guesses.
        guess: "in" or "both", as in `audit`.
        significance: As in `audit`.
    """

    slopes: FloatArray
    deltas: FloatArray
    canaries: int
    guesses: int
    guess: str
    significance: float

    def __post_init__(self) -> None:
        whole = fields.positive_integer("canaries", self.canaries)
        if fields.positive_integer("guesses", self.guesses) > whole:
            raise ValueError(
                f"guesses must be at most canaries. Found {self.guesses} of {whole}."
            )
        if self.guess not in ("in", "both"):
            raise ValueError(f"guess must be in or both. Found {self.guess!r:.60}.")
        fields.inner_probability("significance", self.significance)

    def needed(self) -> int:
        """Returns the least number of right guesses that refutes the claim."""
        numbers = range(1, self.guesses + 1)
        return 1 + bisect.bisect_left(numbers, True, key=self.refutes)

    def refutes(self, right: int) -> bool:
        """Returns whether as many right guesses are improbable enough."""
        if fields.non_negative_integer("right", right) > self.guesses:
            raise ValueError(
                f"right must be at most guesses. Found {right} of {self.guesses}."
            )
        level = self.significance
        return self._excludes(right, level) or self._of_one_line(right) <= level

    def p_value(self, right: int) -> float:
        """Returns an upper bound on the probability of as many right guesses."""
        high = low = max(self._of_one_line(right), _LEAST)
        while low > _LEAST and self._excludes(right, low):
            high, low = low, max(low / 16, _LEAST)
        while high > low * (1 + _PRECISION):
            middle = math.sqrt(low) * math.sqrt(high)
            is_high = self._excludes(right, middle)
            low, high = (low, middle) if is_high else (middle, high)
        return high

    def _of_one_line(self, right: int) -> float:
        """Returns the bound of the best line alone, by Theorem 2.

        It is b + (1 − b) min(1, h δ m b / (v π(v))), with v right guesses, the law
        π = Bin(r, s / (1 + s)) and b = π(v) + … + π(r).
        """
        if not right:
            return 1.0
        wrong, lost = self.guesses - right, _SHARES[self.guess] * self.canaries / right
        # Other lines have bounds of nearly one.
        used = (lost * self.deltas < 1) & (self.slopes * wrong <= 64 * (right + 1))
        slopes, deltas = self.slopes[used], self.deltas[used]
        error = 8 * (self.guesses + 8) * floats.UNIT_ROUNDOFF
        above = _series(slopes, wrong, right) * (1 + error)  # b / π(v)
        below = _series(1 / slopes, right, wrong) * (1 - error) - 1  # (1 − b) / π(v)
        # Where one is cut, the other is at most r: the law has one peak.
        tails = above / (above + np.maximum(below, 0))
        bounds = tails + (1 - tails) * np.minimum(lost * deltas * above, 1)
        return min(1.0, float(bounds.min(initial=1.0) * _UP))

    def _excludes(self, right: int, probability: float) -> bool:
        """Returns whether as many right guesses are less probable, by Theorem 3.

        Each P[W > i] bounds P[W ≥ i] from below, and none may exceed 1.
        """
        pieces: list[list[float]] = self._pieces
        # Bounds on P[W > i], and on Σ P[W > l] over l > i.
        place, tail, above = 0, probability, 0.0
        for i in range(right - 1, -1, -1):
            mass = ((i + 1) * tail + above) / self.canaries * _DOWN
            while place + 1 < len(pieces) and pieces[place + 1][0] <= mass:
                place += 1
            _, slope, cost = pieces[place]
            wrong = slope * mass * _DOWN - cost * _UP
            above = (above + tail) * _DOWN
            bound = (self.canaries * wrong + above) / (self.guesses - i) * _DOWN
            if not tail < bound <= 1:  # If they do not grow here, they never do.
                return bound > 1
            tail = bound
        return False

    @functools.cached_property
    def _pieces(self) -> Any:
        """G of Theorem 3 as tangents a x − c: the least x of each, a and c."""
        s, lost = self.slopes, _SHARES[self.guess] * self.deltas
        slopes = np.concatenate([1 / s, s])
        costs = np.concatenate([lost / s, _SHARES[self.guess] * (s - 1) + lost])
        begins = np.geomspace(1e-12, 1, 2000)
        best = (np.outer(begins, slopes) - costs).argmax(axis=1)
        return np.array([begins, slopes[best], costs[best]]).T.tolist()


def _series(x: FloatArray, n: int, k: int) -> FloatArray:
    """Returns Σ x^j n ⋯ (n − j + 1) / ((k + 1) ⋯ (k + j)), but at most 1e40."""
    total, term = np.ones_like(x), np.ones_like(x)
    for j in range(n):
        factor = x * ((n - j) / (k + 1 + j))
        term = np.minimum(term * factor, _LARGEST)
        total = np.minimum(total + term, _LARGEST)
        # Later factors are smaller: the rest is at most term · factor / (1 − factor).
        rest = term <= (1 - factor) * total * 1e-17
        if j % 16 == 0 and (rest | (total == _LARGEST)).all():
            break
    return total


def _members(value: Any, shape: tuple[int, ...]) -> BoolArray:
    """Returns (m,) whether canaries took part."""
    numbers = np.asarray(value)
    if numbers.dtype != np.bool_:
        numbers = fields.number_array("members", value)
    if not numbers.size:
        raise ValueError("members must have one for each canary. Found none.")
    if len(shape) != 1 or numbers.shape != shape:
        shapes = f"{numbers.shape} and {shape}"
        raise ValueError(f"members must be a row, as scores. Found shapes {shapes}.")
    others = numbers[(numbers != 0) & (numbers != 1)]
    if others.size:
        raise ValueError(f"members must be 0 or 1. Found {others[0]}.")
    inside, count = numbers.astype(np.bool_), int(numbers.sum())
    if stats.binomtest(count, numbers.size).pvalue < _UNFAIR:
        raise ValueError(
            f"members must be drawn by fair coins. Found {count} of {numbers.size}, "
            f"which they give with a probability below {_UNFAIR:g}."
        )
    return inside
