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

import dataclasses
import math

import dp_accounting
import numpy as np

import dp_accounting_ext as ext

ALLOCATION = "random allocation"
POISSON = "Poisson sampling"
RENYI = "random allocation, Rényi bound"
SCHEMES = (ALLOCATION, POISSON, RENYI)


@dataclasses.dataclass(frozen=True)
class Task:
    """An estimate to be made.

    Attributes:
        epsilon: ε, in nats.
        dimension: d.
        delta: δ.
        num_steps: t.
        mean: p, in [0, 1].
    """

    epsilon: float
    dimension: int = 1
    delta: float = 1e-10
    num_steps: int = 1000
    mean: float = 0.9


def least_noise(scheme: str, task: Task) -> float:
    """Returns the least noise multiplier found that is certainly enough."""
    accountant = ext.RdpAccountant if scheme == RENYI else ext.PLDAccountant

    def event(noise_multiplier: float) -> dp_accounting.DpEvent:
        step = dp_accounting.GaussianDpEvent(noise_multiplier)
        if scheme == POISSON:
            sampled = dp_accounting.PoissonSampledDpEvent(1 / task.num_steps, step)
            return dp_accounting.SelfComposedDpEvent(sampled, task.num_steps)
        return ext.RandomAllocationEvent(step, 1, task.num_steps)

    return float(
        dp_accounting.calibrate_dp_mechanism(
            accountant,
            event,
            task.epsilon,
            task.delta,
            bracket_interval=dp_accounting.LowerEndpointAndGuess(0.05, 1.0),
            tol=1e-5,
        )
    )


def expected_error(
    scheme: str, task: Task, noise_multiplier: float, sample_size: int
) -> float:
    """Returns the expected square error of the estimate."""
    steps, mean = task.num_steps, task.mean
    noise = steps * task.dimension * (noise_multiplier / sample_size) ** 2
    spread = mean * (1 - mean)
    if scheme == POISSON:
        spread += mean * (1 - 1 / steps)
    return spread / sample_size + noise


def simulated_error(
    scheme: str,
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
    if scheme == POISSON:
        totals = rng.binomial(totals * task.num_steps, 1 / task.num_steps)
    scale = noise_multiplier * math.sqrt(task.num_steps * task.dimension)
    estimates = (totals + rng.normal(0.0, scale, size=runs)) / sample_size
    return float(np.mean((estimates - task.mean) ** 2))
