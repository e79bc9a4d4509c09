"""How well a private mean can be estimated, for each way of drawing batches.

n values of {0, 1}, each 1 with probability p, are summed batch by batch with Gaussian
noise; the sums over n estimate p. In random allocation a value is in one of t batches,
in Poisson sampling in each with probability 1/t. Vectors of dimension d whose other
coordinates are 0 have the norm √d as their bound, and √d times the noise.

The square error of the estimate is

    p (1 − p) / n + t d σ² / n²                   (random allocation)
    the same + p (1 − 1/t) / n                    (Poisson sampling),

the last term for values that are in no batch, or in several.

Source: https://arxiv.org/abs/2602.17284, section 5 (Figure 4).
"""

from collections.abc import Sequence
import dataclasses
import enum
import math

from dp_accounting import dp_event as stock
from dp_accounting import mechanism_calibration
from dp_accounting import privacy_accountant
import numpy as np

from dp_accounting_ext import dp_event
from dp_accounting_ext import pld_accountant
from dp_accounting_ext import rdp_accountant
from dp_accounting_ext.validation import fields

# Tuning: where the search begins.
_BRACKET = mechanism_calibration.LowerEndpointAndGuess(0.05, 1.0)


class Scheme(enum.Enum):
    """How batches are drawn, and what says how private that is."""

    ALLOCATION = "random allocation"
    POISSON = "Poisson sampling"
    RENYI_ALLOCATION = "random allocation, Rényi bound"

    @property
    def is_poisson(self) -> bool:
        """Whether each batch is drawn on its own."""
        return self is Scheme.POISSON


@dataclasses.dataclass(frozen=True)
class Task:
    """An estimate to be made.

    Attributes:
        epsilon: ε, in nats.
        dimension: d.
        delta: δ.
        num_steps: t.
        mean: p, in [0, 1].

    Raises:
        TypeError, ValueError: If a field is not what its name says, when made.
    """

    epsilon: float
    dimension: int = 1
    delta: float = 1e-10
    num_steps: int = 1000
    mean: float = 0.9

    def __post_init__(self) -> None:
        if fields.real_number("epsilon", self.epsilon) <= 0:
            raise ValueError(f"epsilon must be positive. Found {self.epsilon}.")
        fields.positive_integer("dimension", self.dimension)
        fields.positive_integer("num_steps", self.num_steps)
        for name in ("delta", "mean"):
            value = fields.real_number(name, getattr(self, name))
            if not 0 < value < 1:
                raise ValueError(f"{name} must be in (0, 1). Found {value}.")


@dataclasses.dataclass(frozen=True)
class Errors:
    """Square errors of a scheme.

    Attributes:
        scheme: Which one.
        noise_multiplier: σ, over the norm of a record.
        sample_sizes: (m,) values n.
        expected: (m,) expected square errors.
        simulated: (m,) means of the square errors of simulated runs.
    """

    scheme: Scheme
    noise_multiplier: float
    sample_sizes: tuple[int, ...]
    expected: tuple[float, ...]
    simulated: tuple[float, ...]


def least_noise(scheme: Scheme, task: Task) -> float:
    """Returns the least noise multiplier found that is certainly enough.

    Raises:
        ValueError: If no noise multiplier above 0.05 is found.
    """
    accountant: type[privacy_accountant.PrivacyAccountant]
    accountant = pld_accountant.PLDAccountant
    if scheme is Scheme.RENYI_ALLOCATION:
        accountant = rdp_accountant.RdpAccountant

    def event(noise_multiplier: float) -> stock.DpEvent:
        step = stock.GaussianDpEvent(noise_multiplier)
        if scheme.is_poisson:
            sampled = stock.PoissonSampledDpEvent(1 / task.num_steps, step)
            return stock.SelfComposedDpEvent(sampled, task.num_steps)
        return dp_event.RandomAllocationEvent(step, 1, task.num_steps)

    return float(
        mechanism_calibration.calibrate_dp_mechanism(
            accountant,
            event,
            task.epsilon,
            task.delta,
            bracket_interval=_BRACKET,
            tol=1e-5,
        )
    )


def expected_error(
    scheme: Scheme, task: Task, noise_multiplier: float, sample_size: int
) -> float:
    """Returns the expected square error of the estimate."""
    steps, mean = task.num_steps, task.mean
    noise = steps * task.dimension * (noise_multiplier / sample_size) ** 2
    spread = mean * (1 - mean)
    if scheme.is_poisson:
        spread += mean * (1 - 1 / steps)
    return spread / sample_size + noise


def simulated_error(
    scheme: Scheme,
    task: Task,
    noise_multiplier: float,
    sample_size: int,
    *,
    runs: int,
    rng: np.random.Generator,
) -> float:
    """Returns the mean square error of simulated estimates.

    The ones of all batches are drawn as one number: how many ones there are, and of
    these times t chances how many are in a batch.
    """
    totals = rng.binomial(sample_size, task.mean, size=runs)
    if scheme.is_poisson:
        totals = rng.binomial(totals * task.num_steps, 1 / task.num_steps)
    scale = noise_multiplier * math.sqrt(task.num_steps * task.dimension)
    estimates = (totals + rng.normal(0.0, scale, size=runs)) / sample_size
    return float(np.mean((estimates - task.mean) ** 2))


def compare(
    task: Task,
    sample_sizes: Sequence[int],
    *,
    schemes: Sequence[Scheme] = tuple(Scheme),
    runs: int = 1000,
    seed: int = 0,
) -> list[Errors]:
    """Returns the errors of each scheme at its least noise.

    Args:
        task: What is estimated, and how privately.
        sample_sizes: (m,) values n.
        schemes: Which schemes.
        runs: Simulated estimates for each size.
        seed: Of the simulation.

    Raises:
        TypeError, ValueError: If a size or the number of runs is not positive, or no
            noise multiplier above 0.05 is found.
    """
    for size in sample_sizes:
        fields.positive_integer("sample_sizes", size)
    fields.positive_integer("runs", runs)
    rng = np.random.default_rng(seed)
    found = []
    for scheme in schemes:
        noise = least_noise(scheme, task)
        expected = [expected_error(scheme, task, noise, size) for size in sample_sizes]
        simulated = [
            simulated_error(scheme, task, noise, size, runs=runs, rng=rng)
            for size in sample_sizes
        ]
        sizes = tuple(sample_sizes)
        found.append(Errors(scheme, noise, sizes, tuple(expected), tuple(simulated)))
    return found
