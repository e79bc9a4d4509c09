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

# Tuning: cells of noise, and outputs of channels, of one attempt after another. The
# second takes some four times as long as the first.
_ATTEMPTS = ((1500, 1000), (5000, 4000))
_GROWTH = 4
_NARROW = 0.005  # No further attempt is made, where a bracket is as narrow.
_WIDEST = 0.1  # A wider bracket confirms nothing.
_RARE = 1e-7  # Of δ: what need not be told apart from all else.
_SMALLEST_DELTA = 1e-250


class Verdict(str, enum.Enum):
    """What came of a verification."""

    CONFIRMED = "confirmed"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"


@dataclasses.dataclass(frozen=True)
class Verification:
    """Two brackets on one ε, computed apart.

    Attributes:
        delta: δ.
        lower: What ε is at least, by the verification. Zero where it knows nothing.
        upper: What ε is at most, by the verification. Infinite where it has no theorem.
        claimed_lower: The accountant's lower bound; 0 where it has none.
        claimed_upper: The accountant's upper bound.
        seconds: CPU time of the verification.
        reason: Why there is no bracket; empty where there is one.
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
        """Whether both brackets can be true, and the verification's says enough.

        It disagrees where a claimed bound is certainly on the wrong side. Otherwise it
        confirms, if its own bracket is at most a tenth of ε wide.
        """
        if self.claimed_upper < self.lower or self.claimed_lower > self.upper:
            return Verdict.DISAGREES
        if self.lower == self.upper:  # Also where both are infinite, or zero.
            return Verdict.CONFIRMED
        narrow = self.lower >= (1 - _WIDEST) * self.upper
        return Verdict.CONFIRMED if narrow else Verdict.UNDECIDED

    @property
    def possible_error(self) -> float:
        """How much of ε the claimed upper bound can be too small by, at most."""
        if self.claimed_upper >= self.upper:
            return 0.0
        if self.upper == math.inf:
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
    """Returns an accountant's bounds on ε beside a bracket that is computed apart.

    Args:
        accountant: Of this package, or any other with a ledger and `get_epsilon`, whose
            ε is meant to be an upper bound.
        target_delta: δ, in [1e-250, 1).
        seconds: CPU time after which no finer attempt is begun.

    Raises:
        TypeError: If it is no accountant with a ledger.
        ValueError: If δ, or seconds, is outside of its range.
        ModuleNotFoundError: If python-flint is not installed.

    Guarantees:
        `lower` ≤ ε ≤ `upper` for the events of the ledger, if Arb's balls hold what
        they stand for.
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
    claimed = 0.0, float(accountant.get_epsilon(delta))
    if hasattr(accountant, "get_epsilon_bounds"):
        claimed = accountant.get_epsilon_bounds(delta)
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
            # Each attempt is true: so is what they have in common.
            lower, upper = max(lower, ends[0]), min(upper, ends[1])
            now = time.process_time()
            if upper - lower <= _NARROW * upper or lower == upper:
                break
            if now - begin + _GROWTH * (now - before) > seconds:
                break
    return found(lower, upper, *claimed, time.process_time() - begin)


@contextlib.contextmanager
def _arithmetic() -> Iterator[tuple[Any, type[Exception]]]:
    """Yields what needs python-flint; its precision is ours only meanwhile."""
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
