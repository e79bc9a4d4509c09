"""A training run with Gaussian noise, and the ways of drawing its batches."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import fractions
import math
import numbers
from typing import TypeVar

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext import pld_accountant
from dp_accounting_ext.validation import fields

RANDOM_ALLOCATION = "random allocation"
POISSON_SAMPLING = "Poisson sampling"
# Of batches that the adversary may know. Of those that a shuffle is cut into, under
# REPLACE_ONE alone: with one record less, others move to other batches.
NO_AMPLIFICATION = "no amplification"
CHAINED = "chained"

# Tuning: beyond these the accountant has no useful answer, or none.
SMALLEST_NOISE = 1e-60
LARGEST_NOISE = 1e9
_MOST_STEPS = fields.MOST_RUNS

NeighborRel = privacy_accountant.NeighboringRelation
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """A training run, by its dataset and batches or by the steps of its epochs.

        TrainingRun(
            dataset_size=60_000, batch_size=256, epochs=60,
            noise_multiplier=1.1, sampling="Poisson sampling", delta=1e-6,
        )

    Attributes:
        noise_multiplier: Standard deviation of the noise over the clip, positive; None
            where it is to be found.
        num_steps: Steps of an epoch, t, not of the run. Of a dataset and batches it is
            the whole part of their quotient: of more steps ε is no larger.
        num_selected: Steps of an epoch that each record is in, k; 1 for a dataset with
            batches.
        epochs: Number of epochs; of 2.5, the third ends amid its steps, whose number is
            rounded up. Whole where `num_selected` is above 1.
        delta: δ, in (0, 1); None where nobody asks for ε.
        group_size: Number of records that are protected together.
        sampling: How batches are drawn, a name in `SCHEMES`; None where all are asked
            for. Of batches that are cut from a shuffle, `NO_AMPLIFICATION` is
            certified under REPLACE_ONE, and nothing under ADD_OR_REMOVE_ONE.
        dataset_size: Number of records, N.
        batch_size: Records of a batch, on average, at most N. In place of `num_steps`,
            along with `dataset_size`.

    Raises:
        TypeError, ValueError: If a field is not what its name says; checked when
            made, naming the field and the value found.
    """

    noise_multiplier: float | None = None
    num_steps: int | None = None
    num_selected: int = 1
    epochs: float = 1
    delta: float | None = None
    group_size: int = 1
    sampling: str | None = None
    dataset_size: int | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            _check_noise(self.noise_multiplier)
        self._check_batches()
        _, steps = fields.steps(self.num_selected, self.steps_of_epoch)
        self._check_epochs(steps)
        if self.delta is not None:
            fields.real_number("delta", self.delta)
            if not 0 < self.delta < 1:
                raise ValueError(f"delta must be in (0, 1). Found {self.delta}.")
        fields.positive_integer("group_size", self.group_size)
        if self.sampling is not None:
            check_scheme("sampling", self.sampling)

    def _check_epochs(self, steps: int) -> None:
        epochs = _number_of_epochs(self.epochs)
        if self.num_selected > 1 and not isinstance(epochs, int):
            raise ValueError(
                f"epochs must be whole where num_selected is above 1. Found {epochs}: "
                f"round it up to {math.ceil(epochs)}, whose ε is no smaller."
            )
        steps = max(steps, math.ceil(self._batches_of_epoch))
        if steps * epochs > _MOST_STEPS:
            raise ValueError(
                f"num_steps times epochs must be at most {_MOST_STEPS}. "
                f"Found {steps} times {epochs}."
            )
        object.__setattr__(self, "epochs", epochs)  # 2.0 is 2, also in a table.

    def _check_batches(self) -> None:
        if self.dataset_size is None and self.batch_size is None:
            given("num_steps, or dataset_size and batch_size,", self.num_steps)
            return
        size = fields.positive_integer(
            "dataset_size", given("dataset_size", self.dataset_size)
        )
        batch = fields.positive_integer(
            "batch_size", given("batch_size", self.batch_size)
        )
        for name in ("num_steps", "num_selected"):
            if getattr(self, name) not in (None, 1):
                raise ValueError(
                    f"{name} must be left out where dataset_size and batch_size are "
                    f"given. Found {getattr(self, name)!r}."
                )
        if batch > size:
            raise ValueError(
                f"batch_size must be at most dataset_size. Found {batch} of {size}."
            )

    @property
    def steps_of_epoch(self) -> int:
        """Steps of an epoch, t."""
        if self.dataset_size is not None and self.batch_size is not None:
            return self.dataset_size // self.batch_size
        return given("num_steps", self.num_steps)

    @property
    def sampling_rate(self) -> float:
        """The chance that a record is in a step."""
        if self.dataset_size is not None and self.batch_size is not None:
            return self.batch_size / self.dataset_size
        return self.num_selected / self.steps_of_epoch

    @property
    def num_samples(self) -> int:
        """Steps of the run, those of an epoch and of its part rounded up.

        So many does a loop take that ends each epoch with a smaller batch; with one
        that goes on where the dataset ends, there are fewer.
        """
        epochs, steps = _decimal(self.epochs), math.ceil(self._batches_of_epoch)
        whole = math.floor(epochs)
        return whole * steps + math.ceil((epochs - whole) * steps)

    @property
    def rate_in_words(self) -> str:
        """The chance that a record is in a step, exactly: "256/60000"."""
        if self.dataset_size is not None:
            return f"{self.batch_size}/{self.dataset_size}"
        return f"{self.num_selected}/{self.steps_of_epoch}"

    @property
    def _batches_of_epoch(self) -> fractions.Fraction:
        """Batches that pass over the dataset once."""
        if self.dataset_size is not None and self.batch_size is not None:
            return fractions.Fraction(int(self.dataset_size), int(self.batch_size))
        return fractions.Fraction(self.steps_of_epoch)

    @property
    def whole_and_part(self) -> tuple[int, int]:
        """Whole epochs, and the steps of the one that ends early, if one does.

        The part is rounded up, and is that of a loader with one batch more, should the
        dataset leave a rest: so many of `steps_of_epoch` cover both loaders.
        """
        epochs = _decimal(self.epochs)
        whole = math.floor(epochs)
        part = math.ceil((epochs - whole) * math.ceil(self._batches_of_epoch))
        return (whole, part) if part < self.steps_of_epoch else (whole + 1, 0)

    @property
    def step(self) -> stock.GaussianDpEvent:
        """One step with the record in its batch."""
        return stock.GaussianDpEvent(given("noise_multiplier", self.noise_multiplier))

    @property
    def event(self) -> stock.DpEvent:
        """The whole run, as its group sees it: what an accountant composes.

        Raises:
            ValueError: If sampling or noise_multiplier is not given.
            event_reader.UnsupportedError: If no bound is known for the group.
        """
        return event(given("sampling", self.sampling), self)


def given(name: str, value: T | None) -> T:
    """Returns the value.

    Raises:
        ValueError: If it is None.
    """
    if value is None:
        raise ValueError(f"{name} must be given. Found it missing.")
    return value


def in_words(epochs: float) -> str:
    """Returns "1 epoch", "2 epochs", "2.5 epochs"."""
    return f"{epochs} epoch" if epochs == 1 else f"{epochs} epochs"


def _number_of_epochs(value: float) -> float:
    """Returns a whole number as an int."""
    if isinstance(value, numbers.Integral):
        return fields.positive_integer("epochs", value)
    found = fields.real_number("epochs", value)
    if not 0 < found < math.inf:
        raise ValueError(f"epochs must be positive and finite. Found {value}.")
    return int(found) if found.is_integer() else found


def _decimal(value: float) -> fractions.Fraction:
    """Returns the number that is printed: 0.07 of 100 steps are 7 of them, not 8."""
    return fractions.Fraction(repr(value))


def _check_noise(value: float) -> None:
    noise = fields.real_number("noise_multiplier", value)
    if not 0 < noise < math.inf:
        raise ValueError(
            f"noise_multiplier must be positive and finite. Found {value}."
        )
    if not SMALLEST_NOISE <= noise <= LARGEST_NOISE:
        raise ValueError(
            f"noise_multiplier must be in [{SMALLEST_NOISE:g}, {LARGEST_NOISE:g}]. "
            f"Found {noise:g}."
        )


def _random_allocation(setting: TrainingRun) -> stock.DpEvent:
    k, t = setting.num_selected, setting.steps_of_epoch
    whole, part = setting.whole_and_part
    if k == t:
        return stock.SelfComposedDpEvent(setting.step, t * whole)
    epoch = dp_event.RandomAllocationEvent(setting.step, k, t)
    epochs = stock.SelfComposedDpEvent(epoch, whole)
    if not part:
        return epochs
    last = dp_event.ScheduledAllocationEvent([setting.step], [part], t)
    return stock.ComposedDpEvent([epochs, last]) if whole else last


def _poisson_sampling(setting: TrainingRun) -> stock.DpEvent:
    sampled = stock.PoissonSampledDpEvent(setting.sampling_rate, setting.step)
    return stock.SelfComposedDpEvent(sampled, setting.num_samples)


def _no_amplification(setting: TrainingRun) -> stock.DpEvent:
    whole, part = setting.whole_and_part
    runs = setting.num_selected * whole + min(part, 1)
    return stock.SelfComposedDpEvent(setting.step, runs)


SCHEMES: Mapping[str, Callable[[TrainingRun], stock.DpEvent]] = {
    RANDOM_ALLOCATION: _random_allocation,
    POISSON_SAMPLING: _poisson_sampling,
    NO_AMPLIFICATION: _no_amplification,
}


def check_scheme(name: str, value: str) -> None:
    """Raises ValueError unless the value is a name in `SCHEMES`."""
    if value not in SCHEMES:
        names = ", ".join(map(repr, SCHEMES))
        raise ValueError(
            f"{name} must be one of {names}, which under REPLACE_ONE is the one for "
            f"shuffled batches. Found {value!r}."
        )


def event(scheme: str, setting: TrainingRun) -> stock.DpEvent:
    """Returns the whole training run, as the group of the setting sees it.

    Args:
        scheme: How batches are drawn: a name in `SCHEMES`. Each record is in k
            uniformly drawn steps of each epoch's t, or in each step with
            probability k / t (of a dataset, batch_size / dataset_size), or in k steps
            that the adversary knows.
        setting: The run.

    Raises:
        ValueError: If the scheme is not in `SCHEMES`.
    """
    check_scheme("scheme", scheme)
    single = SCHEMES[scheme](setting)
    if setting.group_size == 1:
        return single
    return dp_event.GroupSubsampledEvent(setting.group_size, single)


def construction(scheme: str, setting: TrainingRun) -> str:
    """Returns how an upper bound is made that need not be tight: `CHAINED`, or "".

    No tight bound is known for groups under random allocation.
    """
    is_sampled = setting.num_selected < setting.steps_of_epoch
    is_group = setting.group_size > 1
    return CHAINED if scheme == RANDOM_ALLOCATION and is_sampled and is_group else ""


def accountant(
    scheme: str,
    setting: TrainingRun,
    *,
    neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
) -> pld_accountant.PLDAccountant:
    """Returns an accountant that has composed the whole training run.

    Args:
        scheme: As in `event`.
        setting: As in `event`.
        neighboring_relation: As in the accountant.

    Raises:
        ValueError: If the scheme is not in `SCHEMES`, or the group is too large.
    """
    composed = pld_accountant.PLDAccountant(neighboring_relation)
    composed.compose(event(scheme, setting))
    return composed
