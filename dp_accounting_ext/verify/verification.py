"""Whether an accountant's ε agrees with a computation that shares no code with it."""

from collections.abc import Iterator
import contextlib
import dataclasses
import enum
import functools
import math
import time
from typing import Any

from dp_accounting import privacy_accountant

# Tuning: for each attempt the number of cells of noise and of outputs of channels. The
# second attempt takes about four times as long as the first.
_ATTEMPTS = ((1500, 1000), (5000, 4000))
_GROWTH = 4
_NARROW = 0.005  # No further attempt is made once the relative width is at most this.
_WIDEST = 0.1  # A bracket of larger relative width confirms nothing.
_RARE = 1e-7  # Probability of tails that may be truncated, relative to δ.
_SMALLEST_DELTA = 1e-250


class Verdict(str, enum.Enum):
    """The result of a verification."""

    CONFIRMED = "confirmed"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"


@dataclasses.dataclass(frozen=True)
class Verification:
    """Two brackets on one ε, computed independently.

    Attributes:
        delta: δ.
        lower: The verification's lower bound on ε, in nats; 0 if it knows none.
        upper: The verification's upper bound on ε, in nats; infinite if it knows none.
        claimed_lower: The accountant's lower bound on ε; 0 if it has none.
        claimed_upper: The accountant's upper bound on ε.
        seconds: CPU time of the verification, in seconds.
        reason: The reason why there is no bracket; empty if there is one.
    """

    delta: float
    lower: float
    upper: float
    claimed_lower: float
    claimed_upper: float
    seconds: float
    reason: str = ""

    @property
    def verdict(self) -> Verdict:
        """Whether the verification confirms the accountant's bounds.

        It disagrees if a claimed bound is certainly on the wrong side, or is no number.
        Otherwise it confirms them if its own bracket is at most a tenth of ε wide.
        """
        if not (self.claimed_upper >= self.lower and self.claimed_lower <= self.upper):
            return Verdict.DISAGREES
        if self.lower == self.upper:  # Also where both are infinite, or zero.
            return Verdict.CONFIRMED
        narrow = self.lower >= (1 - _WIDEST) * self.upper
        return Verdict.CONFIRMED if narrow else Verdict.UNDECIDED

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

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, the verdict and the possible error."""
        return {
            **dataclasses.asdict(self),
            "verdict": self.verdict.value,
            "possible_error": self.possible_error,
        }


def verify_epsilon(
    accountant: privacy_accountant.PrivacyAccountant,
    target_delta: float,
    *,
    seconds: float = 60.0,
) -> Verification:
    """Returns an accountant's bounds on ε beside an independently computed bracket.

    Args:
        accountant: An accountant of this package, or any other that has a ledger and
            whose `get_epsilon` is meant to return an upper bound.
        target_delta: δ, in [1e-250, 1).
        seconds: CPU time, in seconds, after which no finer attempt is begun.

    Raises:
        TypeError: If `accountant` is not an accountant with a ledger.
        ValueError: If `target_delta` or `seconds` is out of range.
        ModuleNotFoundError: If python-flint is not installed.

    Guarantees:
        `lower` ≤ ε ≤ `upper` for the events of the ledger, if Arb's balls contain the
        true values.
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
    claimed = _claimed(accountant, delta)
    begin = time.process_time()
    found = functools.partial(Verification, delta)
    event, relation = accountant.ledger, accountant.neighboring_relation
    with _arithmetic() as (bracket, no_theorem):
        lower, upper = 0.0, math.inf
        for sizes in _ATTEMPTS:
            before = time.process_time()
            try:
                ends = bracket(event, relation, delta, *sizes, rare=_RARE * delta)
            except no_theorem as error:
                spent = time.process_time() - begin
                return found(0.0, math.inf, *claimed, spent, str(error))
            # The bracket of every attempt holds, and so does their intersection.
            lower, upper = max(lower, ends[0]), min(upper, ends[1])
            now = time.process_time()
            if upper - lower <= _NARROW * upper or lower == upper:
                break
            if now - begin + _GROWTH * (now - before) > seconds:
                break
    return found(lower, upper, *claimed, time.process_time() - begin)


def _claimed(accountant: Any, delta: float) -> tuple[float, float]:
    """Returns an accountant's bounds on ε: the smaller one of two upper bounds."""
    upper = float(accountant.get_epsilon(delta))
    if not hasattr(accountant, "get_epsilon_bounds"):
        return 0.0, upper
    lower, other = map(float, accountant.get_epsilon_bounds(delta))
    # NaN is no bound, so it is not the larger one of the two.
    return lower, upper if math.isnan(upper) or upper < other else other


@contextlib.contextmanager
def _arithmetic() -> Iterator[tuple[Any, type[Exception]]]:
    """Yields the functions that need python-flint, with its precision set meanwhile."""
    try:
        import flint
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "python-flint must be installed to verify. Found none; in the checkout, "
            "run python -m pip install '.[verify]'.",
            name="flint",
        ) from error
    from dp_accounting_ext.verify import brackets
    from dp_accounting_ext.verify import channels
    from dp_accounting_ext.verify import noises

    with flint.ctx.workprec(channels.BITS):
        try:
            yield brackets.epsilon_bracket, channels.NoTheoremError
        finally:
            noises.noise.cache_clear()
