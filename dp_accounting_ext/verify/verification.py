"""Whether an accountant's ε agrees with a computation that shares no code with it."""

import dataclasses
import enum
import math
import time
from typing import Any

from dp_accounting import privacy_accountant

_WIDEST = 0.1  # A bracket of larger relative width confirms nothing.
_SMALLEST_DELTA = 1e-250
_RATE = 0.01  # The false positive rate at which powers are compared.


class Verdict(str, enum.Enum):
    """The result of a verification."""

    CONFIRMED = "confirmed"
    NOT_REFUTED = "not refuted"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"


@dataclasses.dataclass(frozen=True)
class Answer:
    """Two brackets on the answer to one question, computed independently.

    Attributes:
        kind: "ε", "δ" or "true positive rate".
        at: δ; ε; or the false positive rate.
        claimed_lower: The accountant's lower bound; 0 if it has none.
        claimed_upper: The accountant's upper bound.
        lower: The verification's lower bound; 0 if it knows none.
        upper: The verification's upper bound; infinite if it knows none.
    """

    kind: str
    at: float
    claimed_lower: float
    claimed_upper: float
    lower: float = 0.0
    upper: float = math.inf

    @property
    def is_wrong(self) -> bool:
        """Whether a claimed bound is on the wrong side, or is no number."""
        in_order = self.claimed_upper >= self.lower and self.claimed_lower <= self.upper
        return not in_order

    @property
    def visible_error(self) -> float:
        """The least share by which too small a claimed upper bound would be refuted."""
        if not 0 < self.claimed_upper < math.inf:
            return 0.0 if self.lower == self.claimed_upper else 1.0
        return min(max(1 - self.lower / self.claimed_upper, 0.0), 1.0)


@dataclasses.dataclass(frozen=True)
class Verification:
    """Two brackets on one ε, computed independently, and on related answers.

    Attributes:
        delta: δ.
        lower: The verification's lower bound on ε, in nats; 0 if it knows none.
        upper: The verification's upper bound on ε, in nats; infinite if it knows none.
        claimed_lower: The accountant's lower bound on ε; 0 if it has none.
        claimed_upper: The accountant's upper bound on ε.
        seconds: CPU time of the verification, in seconds.
        reason: The reason why there is no upper bound; empty if there is one.
        others: The same for δ at other ε, of both signs, and a true positive rate.
        is_sampled: Whether lower bounds hold with probability 1 − 1e-6 only.
    """

    delta: float
    lower: float
    upper: float
    claimed_lower: float
    claimed_upper: float
    seconds: float
    reason: str = ""
    others: tuple[Answer, ...] = ()
    is_sampled: bool = False

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All answers: first ε, then the others."""
        ends = self.claimed_lower, self.claimed_upper, self.lower, self.upper
        return Answer("ε", self.delta, *ends), *self.others

    @property
    def verdict(self) -> Verdict:
        """Whether the verification confirms the accountant's bounds.

        It disagrees if a claimed bound is certainly on the wrong side, or is no number.
        Otherwise it confirms them if its own bracket is at most a tenth of ε wide. Else
        it does not refute them, if it has a lower bound.
        """
        if any(answer.is_wrong for answer in self.answers):
            return Verdict.DISAGREES
        if self.lower == self.upper:  # Also where both are infinite, or zero.
            return Verdict.CONFIRMED
        if self.lower >= (1 - _WIDEST) * self.upper:
            return Verdict.CONFIRMED
        return Verdict.NOT_REFUTED if self.lower > 0 else Verdict.UNDECIDED

    @property
    def possible_error(self) -> float:
        """An upper bound on how much too small the claimed upper bound can be.

        It is relative to ε.
        """
        if self.claimed_upper >= self.upper:
            return 0.0
        if self.upper == math.inf or math.isnan(self.claimed_upper):
            return 1.0
        return (self.upper - self.claimed_upper) / self.upper

    @property
    def visible_error(self) -> float:
        """The least share of ε by which too small an upper bound would be refuted."""
        return self.answers[0].visible_error

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, the verdict, and the possible and the visible error."""
        return {
            **dataclasses.asdict(self),
            "verdict": self.verdict.value,
            "possible_error": self.possible_error,
            "visible_error": self.visible_error,
        }


def verify_epsilon(
    accountant: privacy_accountant.PrivacyAccountant,
    target_delta: float,
    *,
    seconds: float = 50.0,
    seed: int = 0,
) -> Verification:
    """Returns an accountant's bounds on ε beside independent ones.

    Where there is no theorem for an upper bound, outputs are drawn from the definition
    of the event. Bounds on δ at ε = −1/2, at 0 and at half of the claimed ε, and on the
    true positive rate at a false positive rate of 1 %, are compared as well, if the
    accountant has them.

    Args:
        accountant: An accountant of this package, or any other that has a ledger and
            whose `get_epsilon` is meant to return an upper bound.
        target_delta: δ, in [1e-250, 1).
        seconds: CPU time, in seconds, after which no more outputs are drawn.
        seed: The seed of the draws. How many are drawn depends on the time.

    Raises:
        TypeError: If `accountant` is not an accountant with a ledger.
        ValueError: If `target_delta`, `seconds` or `seed` is out of range.
        ModuleNotFoundError: If python-flint is not installed.

    Guarantees:
        `lower` ≤ ε ≤ `upper` for the events of the ledger, if Arb's balls contain the
        true values; with `is_sampled`, `lower` ≤ ε with probability 1 − 1e-6.
    """
    for name in ("ledger", "neighboring_relation", "get_epsilon"):
        if not hasattr(accountant, name):
            raise TypeError(
                f"accountant must have {name}, as a PLDAccountant has. "
                f"Found {accountant!r:.60}."
            )
    delta = float(target_delta)
    if not _SMALLEST_DELTA <= delta < 1:
        raise ValueError(f"target_delta must be in [1e-250, 1). Found {delta}.")
    if not seconds > 0:
        raise ValueError(f"seconds must be positive. Found {seconds}.")
    if not seed >= 0:
        raise ValueError(f"seed must be at least 0. Found {seed}.")
    try:
        import flint  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "python-flint must be installed to verify. Found none; in the checkout, "
            "run python -m pip install '.[verify]'.",
            name="flint",
        ) from error
    from dp_accounting_ext.verify import brackets

    claims = _claims(accountant, delta)
    begin = time.process_time()
    (first, *others), reason, is_sampled = brackets.opinion(
        accountant.ledger,
        accountant.neighboring_relation,
        claims,
        seconds=seconds,
        seed=seed,
    )
    return Verification(
        delta,
        first.lower,
        first.upper,
        first.claimed_lower,
        first.claimed_upper,
        time.process_time() - begin,
        reason,
        tuple(others),
        is_sampled,
    )


def _claims(accountant: Any, delta: float) -> list[Answer]:
    """Returns what the accountant says, first of ε."""
    found = [Answer("ε", delta, *_claimed(accountant, delta))]
    epsilon = found[0].claimed_upper
    asked = [-0.5, 0.0, *[epsilon / 2] * (0 < epsilon < 600)]
    if hasattr(accountant, "get_delta_bounds"):
        found += [
            Answer("δ", at, *map(float, accountant.get_delta_bounds(at)))
            for at in asked
        ]
    if hasattr(accountant, "get_true_positive_rate_bounds"):
        bounds = accountant.get_true_positive_rate_bounds(_RATE)
        found.append(Answer("true positive rate", _RATE, *map(float, bounds)))
    return found


def _claimed(accountant: Any, delta: float) -> tuple[float, float]:
    """Returns an accountant's bounds on ε: the smaller one of two upper bounds."""
    upper = float(accountant.get_epsilon(delta))
    if not hasattr(accountant, "get_epsilon_bounds"):
        return 0.0, upper
    lower, other = map(float, accountant.get_epsilon_bounds(delta))
    # NaN is no bound, so it is not the larger one of the two.
    return lower, upper if math.isnan(upper) or upper < other else other
