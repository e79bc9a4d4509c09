"""Random allocation beside the ways of drawing batches that it competes with."""

from collections.abc import Mapping
import dataclasses
import math
import time

from dp_accounting_ext import certificate
from dp_accounting_ext import constructions
from dp_accounting_ext import mechanism_constructions
from dp_accounting_ext import validation

_INTERVAL = 1e-4
_TIGHT = 1e-3


@dataclasses.dataclass(frozen=True)
class Setting:
    """A training run: epochs of t steps, each record in k steps of each epoch.

    Raises:
        TypeError, ValueError: If a field is not what its name says; checked when
            made, naming the field and the value found.
    """

    noise_multiplier: float
    num_steps: int
    num_selected: int
    num_epochs: int
    delta: float

    def __post_init__(self) -> None:
        if validation.noise_multiplier(self.noise_multiplier) == 0:
            raise ValueError("noise_multiplier must be positive. Found 0.")
        validation.steps(self.num_selected, self.num_steps)
        validation.positive_integer("num_epochs", self.num_epochs)
        if not 0 < validation.real_number("delta", self.delta) < 1:
            raise ValueError(f"delta must be in (0, 1). Found {self.delta}.")


@dataclasses.dataclass(frozen=True)
class Row:
    """One scheme's certified bounds.

    Attributes:
        scheme: What is bounded.
        epsilon_lower: Lower bound on ε, in nats.
        epsilon_upper: Upper bound on ε, in nats.
        seconds: CPU time of both.
    """

    scheme: str
    epsilon_lower: float
    epsilon_upper: float
    seconds: float

    def note(self) -> str:
        """Returns what a reader must know of a bracket that is not tight."""
        if math.isinf(self.epsilon_upper):
            return "no finite bound"
        gap = self.epsilon_upper - self.epsilon_lower
        if gap > _TIGHT * self.epsilon_upper:
            return f"bracket is {gap / self.epsilon_upper:.1%} wide"
        return ""


def compare(setting: Setting) -> list[Row]:
    """Returns ε for random allocation, Poisson sampling and no amplification.

    For 1 < k < t random allocation has a second row: the bracket of the
    composition of k blocks, whose upper end bounds the mechanism and whose lower
    end does not.
    """
    k, t, epochs = setting.num_selected, setting.num_steps, setting.num_epochs
    noise = setting.noise_multiplier
    step = constructions.Gaussian(noise)
    allocation = constructions.random_allocation_of(step, k, t)
    rows = [_bracket("random allocation", {allocation: epochs}, setting.delta)]
    if isinstance(allocation, constructions.RandomAllocation) and k > 1:
        blocks = allocation.blocks()
        rows.append(_bracket("- block reduction", {blocks: epochs}, setting.delta))
    poisson = mechanism_constructions.sampled(k / t, step)
    rows.append(_bracket("Poisson sampling", {poisson: t * epochs}, setting.delta))
    rows.append(_bracket("no amplification", {step: k * epochs}, setting.delta))
    return rows


def _bracket(
    scheme: str, counts: Mapping[constructions.Construction, int], delta: float
) -> Row:
    begin = time.process_time()
    bounds = certificate.Certificate(counts, _INTERVAL)
    upper = bounds.upper_epsilon(delta)
    lower = min(bounds.lower_epsilon(delta), upper)
    return Row(scheme, lower, upper, time.process_time() - begin)
