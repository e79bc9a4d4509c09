"""A training run with Gaussian noise, and the ways of drawing its batches."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses

from dp_accounting import dp_event as stock

from dp_accounting_ext import dp_event
from dp_accounting_ext import pld_accountant
from dp_accounting_ext.validation import fields

RANDOM_ALLOCATION = "random allocation"
POISSON_SAMPLING = "Poisson sampling"
NO_AMPLIFICATION = "no amplification"
CHAINED = "chained"

# Tuning: beyond these the accountant has no useful answer, or none.
SMALLEST_NOISE = 1e-60
LARGEST_NOISE = 1e9
_MOST_STEPS = fields.MOST_RUNS


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """A training run: epochs of t steps, each record in k steps of each epoch.

    Attributes:
        noise_multiplier: Standard deviation of the noise over the clip, positive.
        num_steps: Steps of an epoch, t.
        num_selected: Steps of an epoch that each record is in, k.
        num_epochs: Number of epochs.
        delta: δ, in (0, 1).
        group_size: Number of records that are protected together.

    Raises:
        TypeError, ValueError: If a field is not what its name says; checked when
            made, naming the field and the value found.
    """

    noise_multiplier: float
    num_steps: int
    num_selected: int
    num_epochs: int
    delta: float
    group_size: int = 1

    def __post_init__(self) -> None:
        noise = fields.noise_multiplier(self.noise_multiplier)
        if noise == 0:
            raise ValueError("noise_multiplier must be positive. Found 0.")
        if not SMALLEST_NOISE <= noise <= LARGEST_NOISE:
            raise ValueError(
                f"noise_multiplier must be in [{SMALLEST_NOISE:g}, {LARGEST_NOISE:g}]. "
                f"Found {noise:g}."
            )
        _, steps = fields.steps(self.num_selected, self.num_steps)
        epochs = fields.positive_integer("num_epochs", self.num_epochs)
        if steps * epochs > _MOST_STEPS:
            raise ValueError(
                f"num_steps times num_epochs must be at most {_MOST_STEPS}. "
                f"Found {steps} times {epochs}."
            )
        if not 0 < fields.real_number("delta", self.delta) < 1:
            raise ValueError(f"delta must be in (0, 1). Found {self.delta}.")
        fields.positive_integer("group_size", self.group_size)

    @property
    def step(self) -> stock.GaussianDpEvent:
        """One step with the record in its batch."""
        return stock.GaussianDpEvent(self.noise_multiplier)


def _random_allocation(setting: TrainingRun) -> stock.DpEvent:
    k, t = setting.num_selected, setting.num_steps
    if k == t:
        return stock.SelfComposedDpEvent(setting.step, t * setting.num_epochs)
    event = dp_event.RandomAllocationEvent(setting.step, k, t)
    return stock.SelfComposedDpEvent(event, setting.num_epochs)


def _poisson_sampling(setting: TrainingRun) -> stock.DpEvent:
    rate = setting.num_selected / setting.num_steps
    return stock.SelfComposedDpEvent(
        stock.PoissonSampledDpEvent(rate, setting.step),
        setting.num_steps * setting.num_epochs,
    )


def _no_amplification(setting: TrainingRun) -> stock.DpEvent:
    return stock.SelfComposedDpEvent(
        setting.step, setting.num_selected * setting.num_epochs
    )


SCHEMES: Mapping[str, Callable[[TrainingRun], stock.DpEvent]] = {
    RANDOM_ALLOCATION: _random_allocation,
    POISSON_SAMPLING: _poisson_sampling,
    NO_AMPLIFICATION: _no_amplification,
}


def event(scheme: str, setting: TrainingRun) -> stock.DpEvent:
    """Returns the whole training run, as the group of the setting sees it.

    Args:
        scheme: How batches are drawn: a name in `SCHEMES`. Each record is in k
            uniformly drawn steps of each epoch's t, or in each step with
            probability k / t, or in k steps that the adversary knows.
        setting: The run.

    Raises:
        ValueError: If the scheme is not in `SCHEMES`.
    """
    if scheme not in SCHEMES:
        names = ", ".join(map(repr, SCHEMES))
        raise ValueError(f"scheme must be one of {names}. Found {scheme!r}.")
    single = SCHEMES[scheme](setting)
    if setting.group_size == 1:
        return single
    return dp_event.GroupSubsampledEvent(setting.group_size, single)


def construction(scheme: str, setting: TrainingRun) -> str:
    """Returns how an upper bound is made that need not be tight: `CHAINED`, or "".

    No tight bound is known for groups under random allocation.
    """
    is_sampled = setting.num_selected < setting.num_steps
    is_group = setting.group_size > 1
    return CHAINED if scheme == RANDOM_ALLOCATION and is_sampled and is_group else ""


def accountant(scheme: str, setting: TrainingRun) -> pld_accountant.PLDAccountant:
    """Returns an accountant that has composed the whole training run.

    Args:
        scheme: As in `event`.
        setting: As in `event`.

    Raises:
        ValueError: If the scheme is not in `SCHEMES`, or the group is too large.
    """
    composed = pld_accountant.PLDAccountant()
    composed.compose(event(scheme, setting))
    return composed
