"""The calls of prv_accountant, answered by certified bounds.

    from dp_accounting_ext.integrations.prv_accountant import DPSGDAccountant

    accountant = DPSGDAccountant(
        noise_multiplier=0.8, sampling_probability=5e-3, max_steps=1000
    )
    lower, estimate, upper = accountant.compute_epsilon(delta=1e-6, num_steps=1000)

Programs that use prv_accountant can import this module in its place, without any other
change; prv_accountant itself need not be installed. The arguments `eps_error`,
`delta_error` and `eps_max` are accepted but have no effect, as bounds are certified and
about as tight as possible whatever their values are.
"""

from collections.abc import Sequence
import math
from typing import Any

from dp_accounting import dp_event as stock

from dp_accounting_ext import displays
from dp_accounting_ext.accountants import budget
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.accountants import risk
from dp_accounting_ext.validation import fields

__all__ = [
    "ApproximateDPMechanism",
    "DPSGDAccountant",
    "GaussianMechanism",
    "LaplaceMechanism",
    "PRVAccountant",
    "PoissonSubsampledGaussianMechanism",
    "PureDPMechanism",
    "find_noise_multiplier",
]
__dir__ = __all__.copy

Bounds = tuple[float, float, float]

# Certified: a bound on the relative rounding error of a quotient.
_ROUNDING = 2.0**-50


ParametersEvent = risk.ParametersEvent


def PoissonSubsampledGaussianMechanism(  # noqa: N802
    sampling_probability: float, noise_multiplier: float
) -> stock.DpEvent:
    """Returns the event of Gaussian noise on a Poisson sample."""
    noise = stock.GaussianDpEvent(noise_multiplier)
    return stock.PoissonSampledDpEvent(sampling_probability, noise)


def GaussianMechanism(  # noqa: N802
    noise_multiplier: float, l2_sensitivity: float = 1.0
) -> stock.DpEvent:
    """Returns the event of Gaussian noise."""
    return stock.GaussianDpEvent(_over(noise_multiplier, l2_sensitivity))


def LaplaceMechanism(mu: float) -> stock.DpEvent:  # noqa: N802
    """Returns the event of Laplace noise of scale 1 that hides a difference of μ."""
    return stock.LaplaceDpEvent(_over(1.0, mu))


def PureDPMechanism(eps: float) -> stock.DpEvent:  # noqa: N802
    """Returns the event of any ε-private mechanism."""
    return ParametersEvent(eps, 0.0)


def ApproximateDPMechanism(epsilon: float, delta: float) -> stock.DpEvent:  # noqa: N802
    """Returns the event of any (ε, δ)-private mechanism."""
    return ParametersEvent(epsilon, delta)


class PRVAccountant(displays.Displayed):
    """Certified bounds for compositions of mechanisms, each a given number of times.

    Args:
        prvs: One mechanism or several: events of this module, or any other events.
        eps_error: It has no effect.
        delta_error: It has no effect.
        max_self_compositions: The largest number of runs of each mechanism; 1 each by
            default.
        eps_max: It has no effect.

    Raises:
        TypeError, ValueError: If `prvs` are not events, or `max_self_compositions` does
            not have one number for each.
    """

    def __init__(
        self,
        prvs: stock.DpEvent | Sequence[stock.DpEvent],
        eps_error: float | None = None,
        delta_error: float | None = None,
        max_self_compositions: int | Sequence[int] | None = None,
        eps_max: float | None = None,
    ) -> None:
        self.prvs = [prvs] if isinstance(prvs, stock.DpEvent) else list(prvs)
        for event in self.prvs:
            if not isinstance(event, stock.DpEvent):
                raise TypeError(f"prvs must be events. Found {event!r:.60}.")
        self.max_self_compositions = self._counts(
            "max_self_compositions", max_self_compositions
        )

    def _display(self) -> displays.Table:
        most = map(str, self.max_self_compositions)
        rows = [(str(event), runs) for event, runs in zip(self.prvs, most, strict=True)]
        heads = "mechanism", "max_self_compositions"
        return displays.Table(type(self).__name__, heads, rows)

    def compute_epsilon(
        self, delta: float, num_self_compositions: int | Sequence[int] | None = None
    ) -> Bounds:
        """Returns a lower bound on ε at δ, the middle of both, and an upper bound.

        Raises:
            TypeError, ValueError: If a number is none, or above its maximum.
        """
        return _with_middle(
            self._composed(num_self_compositions).get_epsilon_bounds(delta)
        )

    def compute_delta(
        self, epsilon: float, num_self_compositions: int | Sequence[int] | None = None
    ) -> Bounds:
        """Returns a lower bound on δ at ε, the middle of both, and an upper bound.

        Raises:
            TypeError, ValueError: If a number is none, or above its maximum.
        """
        return _with_middle(
            self._composed(num_self_compositions).get_delta_bounds(epsilon)
        )

    def _composed(self, asked: Any) -> pld_accountant.PLDAccountant:
        counts = self._counts("num_self_compositions", asked)
        accountant = pld_accountant.PLDAccountant()
        for event, count, most in zip(
            self.prvs, counts, self.max_self_compositions, strict=True
        ):
            if count > most:
                raise ValueError(
                    f"num_self_compositions must be at most max_self_compositions, "
                    f"{most}. Found {count}."
                )
            if count:
                accountant.compose(event, count)
        return accountant

    def _counts(self, name: str, asked: Any) -> list[int]:
        if asked is None:
            asked = [1] * len(self.prvs)
        counts = list(asked) if hasattr(asked, "__iter__") else [asked]
        if len(counts) != len(self.prvs):
            raise ValueError(
                f"{name} must be a number for each of the {len(self.prvs)} prvs. "
                f"Found {len(counts)}."
            )
        return [fields.non_negative_integer(name, count) for count in counts]


class DPSGDAccountant(PRVAccountant):
    """Certified bounds for DP-SGD, whose batches are Poisson samples.

    Args:
        noise_multiplier: Standard deviation of the noise over the clip.
        sampling_probability: The probability that a record is in a batch.
        max_steps: The largest number of steps.
        eps_error: It has no effect.
        delta_error: It has no effect.
    """

    def __init__(
        self,
        noise_multiplier: float,
        sampling_probability: float,
        max_steps: int,
        eps_error: float | None = None,
        delta_error: float | None = None,
    ) -> None:
        step = PoissonSubsampledGaussianMechanism(
            sampling_probability, noise_multiplier
        )
        super().__init__(step, eps_error, delta_error, max_steps)

    def compute_epsilon(self, delta: float, num_steps: Any = None) -> Bounds:
        """Returns a lower bound on ε at δ, the middle of both, and an upper bound.

        Args:
            delta: δ.
            num_steps: The number of steps.

        Raises:
            TypeError, ValueError: If a number is none, or above its maximum.
        """
        return super().compute_epsilon(delta, num_steps)


def find_noise_multiplier(
    sampling_probability: float,
    num_steps: int,
    target_epsilon: float,
    target_delta: float,
    eps_error: float | None = None,
    mu_max: float = 100.0,
) -> float:
    """Returns the least noise multiplier, of six digits, whose ε is at most a target.

    Args:
        sampling_probability: The probability that a record is in a batch.
        num_steps: The number of steps.
        target_epsilon: ε, in nats.
        target_delta: δ.
        eps_error: It has no effect: ε is certainly at most the target.
        mu_max: The largest noise multiplier that is tried.

    Raises:
        TypeError, ValueError: If a number is none, or more noise is needed.
    """

    def run(noise: float) -> stock.DpEvent:
        step = PoissonSubsampledGaussianMechanism(sampling_probability, noise)
        return stock.SelfComposedDpEvent(step, num_steps)

    noise = budget.calibrate(
        run, lambda found: (0.0, found.get_epsilon(target_delta)), target_epsilon
    )
    if noise > mu_max:
        raise ValueError(f"mu_max must be at least {noise}. Found {mu_max}.")
    return noise


def _over(noise: float, sensitivity: float) -> float:
    """Returns the noise over a sensitivity, rounded down."""
    moved = fields.positive("sensitivity", sensitivity)
    return fields.real_number("noise", noise) / moved * (1 - _ROUNDING)


def _with_middle(bounds: tuple[float, float]) -> Bounds:
    lower, upper = bounds
    middle = upper if math.isinf(upper) else lower + (upper - lower) / 2
    return lower, middle, upper
