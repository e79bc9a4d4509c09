"""A training run with Gaussian noise, and the ways of drawing its batches."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions
import math
from typing import Any
from typing import TypeVar
import warnings

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import displays
from dp_accounting_ext import dp_event
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.correlated import events
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.validation import fields

__all__ = [
    "BALLS_IN_BINS",
    "LARGEST_NOISE",
    "NO_AMPLIFICATION",
    "OPTIONS",
    "POISSON_SAMPLING",
    "RANDOM_ALLOCATION",
    "SCHEMES",
    "SHUFFLED",
    "SMALLEST_NOISE",
    "NeighborRel",
    "TrainingRun",
    "given",
    "scheme_named",
    "schemes_of",
    "warn",
    "warnings_of",
]
__dir__ = __all__.copy

RANDOM_ALLOCATION = "random allocation"
POISSON_SAMPLING = "Poisson sampling"
NO_AMPLIFICATION = "no amplification"
SHUFFLED = "shuffled or fixed batches"
# That of a run with a strategy: records keep their step in all epochs.
BALLS_IN_BINS = "balls in bins"

# Limits beyond which the accountant has no useful answer.
SMALLEST_NOISE = 1e-60
LARGEST_NOISE = 1e9

_BUFFERED = "blt:"

NeighborRel = privacy_accountant.NeighboringRelation
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class TrainingRun(displays.Displayed):
    """A training run: how often a record is in a batch, for how long, and the noise.

        TrainingRun(
            dataset_size=60_000, batch_size=256, epochs=60,
            noise_multiplier=1.1, sampling="Poisson sampling", delta=1e-6,
        )
        TrainingRun(sampling_rate=0.004, num_steps=14_062, noise_multiplier=1.1)

    Batches are given by `dataset_size` and `batch_size`, by `sampling_rate`, or by
    `steps_per_epoch`; the length by `epochs` or by `num_steps`.

    Attributes:
        noise_multiplier: Standard deviation of the noise over the clipping norm,
            positive; None if it is to be calibrated.
        steps_per_epoch: Number of steps of an epoch, not of the run.
        batches_per_record: With it, number k of the steps of an epoch that each record
            is in.
        epochs: Number of epochs, not necessarily an integer; 1 if `num_steps` is not
            given, either. If it is 2.5, the run ends in the middle of the third epoch,
            and its number of steps is rounded up.
        delta: δ, in (0, 1); None if no ε is requested.
        group_size: Number of records that are protected together, at most N.
        sampling: How batches are drawn: a name in `SCHEMES` or in `OPTIONS`. If it is
            None, studies compute all of them. With a strategy it is `BALLS_IN_BINS`.
        dataset_size: Number of records, N.
        batch_size: Average number of records of a batch, at most N.
        sampling_rate: Probability q that a record is in a step, in (0, 1]. Schemes with
            epochs have ⌊1 / q⌋ steps in each.
        num_steps: Number of steps of the run. The last epoch may end early.
        strategy: The strategy of correlated noise; None for independent noise. It is
            coefficients or rows, as for `MatrixAllocationEvent`; or text: "1,0.5,0.25"
            for coefficients, "blt:0.9,0.5:0.1,0.2" for decays and scales of a BLT.
            Its bins are the steps of an epoch. Epochs must be whole then, and fields
            that no theorem about such noise covers have their default values.

    Raises:
        TypeError, ValueError: If a field has the wrong type or is out of range. Fields
            are checked by the constructor; the error names the field and its value.
    """

    noise_multiplier: float | None = None
    steps_per_epoch: int | None = None
    batches_per_record: int = 1
    epochs: float | None = None
    delta: float | None = None
    group_size: int = 1
    sampling: str | None = None
    dataset_size: int | None = None
    batch_size: int | None = None
    sampling_rate: float | None = None
    num_steps: int | None = None
    strategy: str | Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if self.num_steps is None:
            epochs = fields.positive(
                "epochs", 1 if self.epochs is None else self.epochs
            )
            # 2.0 becomes 2, also in tables.
            number = int(epochs) if epochs.is_integer() else epochs
            object.__setattr__(self, "epochs", number)
        if self.strategy is not None:
            object.__setattr__(self, "strategy", strategies.nested_tuple(self.strategy))
            self._refuse("with a strategy", "group_size", "batches_per_record")
            if self.sampling not in (None, "balls-in-bins", BALLS_IN_BINS):
                raise ValueError(
                    f"sampling must be balls-in-bins with a strategy, or be left out; "
                    f"compare takes others. Found {self.sampling!r}."
                )
            object.__setattr__(self, "sampling", BALLS_IN_BINS)
        elif self.sampling is not None:
            object.__setattr__(self, "sampling", scheme_named(self.sampling))
        if self.noise_multiplier is not None:
            noise = fields.real_number("noise_multiplier", self.noise_multiplier)
            if not SMALLEST_NOISE <= noise <= LARGEST_NOISE:
                raise ValueError(
                    f"noise_multiplier must be positive, from {SMALLEST_NOISE:g} to "
                    f"{LARGEST_NOISE:g}. Found {noise:g}."
                )
        if self.delta is not None:
            fields.inner_probability("delta", self.delta)
        fields.positive_integer("group_size", self.group_size)
        self._check_batches()
        self._check_steps()

    def _check_batches(self) -> None:
        if self.dataset_size is not None or self.batch_size is not None:
            size, _ = (
                fields.positive_integer(name, given(name, getattr(self, name)))
                for name in ("dataset_size", "batch_size")
            )
            for name in ("batch_size", "group_size"):
                if getattr(self, name) > size:
                    raise ValueError(
                        f"{name} must be at most dataset_size. Found "
                        f"{getattr(self, name)} of {size}."
                    )
            where = "where dataset_size and batch_size are given"
            self._refuse(
                where, "sampling_rate", "steps_per_epoch", "batches_per_record"
            )
        elif self.sampling_rate is not None:
            rate = fields.real_number("sampling_rate", self.sampling_rate)
            object.__setattr__(self, "sampling_rate", rate)
            lowest = 1 / fields.MOST_RUNS
            if not lowest <= rate <= 1:
                raise ValueError(
                    f"sampling_rate must be a probability, from {lowest:g} to 1. Found "
                    f"{rate!r}."
                )
            where = "where sampling_rate is given"
            self._refuse(where, "steps_per_epoch", "batches_per_record")
        else:
            name = "dataset_size and batch_size, or sampling_rate or steps_per_epoch,"
            steps = given(name, self.steps_per_epoch)
            fields.positive_integer("steps_per_epoch", steps)

    def _refuse(self, where: str, *names: str) -> None:
        """Refuses fields that have other values than their default ones."""
        for name in names:
            value = getattr(self, name)
            if value != self.__dataclass_fields__[name].default:
                raise ValueError(f"{name} must be left out {where}. Found {value!r}.")

    def _check_steps(self) -> None:
        count = fields.positive_integer("batches_per_record", self.batches_per_record)
        if count > self.epoch_steps:
            raise ValueError(
                f"batches_per_record must be at most steps_per_epoch. Found {count} of "
                f"{self.epoch_steps}."
            )
        if self.num_steps is not None:
            fields.positive_integer("num_steps", self.num_steps)
            self._refuse("where num_steps is given", "epochs")
        if max(self.run_steps, self.epoch_steps) > fields.MOST_RUNS:
            raise ValueError(
                f"steps_per_epoch times epochs must be at most {fields.MOST_RUNS}. "
                f"Found {self.epoch_steps} times {self.epochs}."
                if self.num_steps is None
                else f"num_steps must be at most {fields.MOST_RUNS}. Found "
                f"{self.num_steps}."
            )

    @property
    def _batches_of_epoch(self) -> fractions.Fraction:
        """The number of batches of one pass over the dataset."""
        if self.dataset_size is not None and self.batch_size is not None:
            return fractions.Fraction(int(self.dataset_size), int(self.batch_size))
        if self.sampling_rate is not None:
            number = round(1 / self.sampling_rate)
            # The float 1 / 11 is not exactly one eleventh, but stands for it.
            if 1 / number == self.sampling_rate:
                return fractions.Fraction(number)
            return 1 / fractions.Fraction(repr(self.sampling_rate))
        return fractions.Fraction(int(given("steps_per_epoch", self.steps_per_epoch)))

    @property
    def epoch_steps(self) -> int:
        """The number t of steps of an epoch, ⌊N / B⌋. For more steps ε is no larger."""
        return math.floor(self._batches_of_epoch)

    @property
    def rate(self) -> float:
        """The probability that a record is in a step."""
        return float(self.batches_per_record / self._batches_of_epoch)

    @property
    def run_steps(self) -> int:
        """The number of steps of the run, with those of each epoch rounded up.

        If epochs are given, this is the number of steps of a loop that ends each epoch
        with a smaller batch. A loop that fills this batch with records of the next
        epoch has fewer steps.
        """
        if self.num_steps is not None:
            return int(self.num_steps)
        epochs, steps = self._epochs_and_steps
        return epochs * math.ceil(self._batches_of_epoch) + steps

    @property
    def whole_and_part(self) -> tuple[int, int]:
        """The number of whole epochs, and of steps of the last epoch if it ends early.

        The number of steps is rounded up. If the batch size does not divide the
        dataset, some loaders have one more batch in an epoch than others. The number
        is then that of a loader with this batch. This many of `epoch_steps` steps are
        an upper bound for both kinds of loaders.
        """
        epochs, steps = self._epochs_and_steps
        return (epochs, steps) if steps < self.epoch_steps else (epochs + 1, 0)

    @property
    def _epochs_and_steps(self) -> tuple[int, int]:
        """As `whole_and_part`, but the steps of the part may be those of an epoch."""
        if self.num_steps is not None:
            return divmod(int(self.num_steps), self.epoch_steps)
        # Decimals are read as they are printed, so that 0.07 of 100 steps are 7 steps.
        # (The float 0.07 is a little larger, so that 8 steps would be needed.)
        epochs, share_of_epoch = divmod(fractions.Fraction(repr(self.epochs)), 1)
        return int(epochs), math.ceil(
            share_of_epoch * math.ceil(self._batches_of_epoch)
        )

    def _whole_epochs(self) -> int:
        """Returns the number of epochs of a run with a strategy, if it is whole."""
        epochs, steps = self._epochs_and_steps
        if isinstance(self.epochs, int) or (self.epochs is None and not steps):
            return epochs
        name, value, more = "epochs", self.epochs, epochs + 1
        if self.num_steps is not None:
            name, value, more = "num_steps", self.num_steps, more * self.epoch_steps
        raise ValueError(
            f"{name} must be whole{' epochs' * (name != 'epochs')} with a strategy. "
            f"Found {value}: round it up to {more}, whose ε is no smaller."
        )

    @property
    def rate_in_words(self) -> str:
        """The exact probability that a record is in a step, as "256/60000"."""
        if self.sampling_rate is not None:
            return repr(self.sampling_rate)
        if self.dataset_size is not None:
            return f"{self.batch_size}/{self.dataset_size}"
        return f"{self.batches_per_record}/{self.epoch_steps}"

    @property
    def in_words(self) -> str:
        """The batches, the epochs or steps of the run; groups, if any."""
        words, counted = f"{self.batches_per_record} of {self.epoch_steps} steps", []
        if self.dataset_size is not None:
            words = f"{self.dataset_size} records in batches of {self.batch_size}"
        elif self.sampling_rate is not None:
            words = f"sampling rate {self.rate_in_words}"
        if self.steps_per_epoch is None:
            counted.append(f"t = {self.epoch_steps}")
            is_poisson = self.sampling in (None, POISSON_SAMPLING)
            if is_poisson and self.num_steps is None:
                counted.append(f"Poisson: {self.run_steps} steps at most")
            if is_poisson and self.sampling_rate is None:
                counted[-1] += f", q = {self.rate_in_words}"
        if self.num_steps is not None:
            words += f", {self.num_steps} steps in all"
        else:
            words += f", {self.epochs} epoch{'s' * (self.epochs != 1)}"
        words += f" ({'; '.join(counted)})" * bool(counted)
        words += ", correlated noise" * (self.strategy is not None)
        return words + f", groups of {self.group_size}" * (self.group_size > 1)

    @property
    def scheme(self) -> str:
        """The way of drawing batches, which must be given."""
        return given("sampling", self.sampling)

    @property
    def event(self) -> stock.DpEvent:
        """The whole run, as its group sees it: what an accountant composes.

        Raises:
            ValueError: If sampling or noise_multiplier is not given, or batches are
                shuffled: an event that holds for them under REPLACE_ONE would give an
                ε that is too small under ADD_OR_REMOVE_ONE. Use `accountant`.
        """
        if self.sampling == SHUFFLED:
            raise ValueError(
                f"sampling must be another than {SHUFFLED!r} for an event: its bound "
                f"holds under REPLACE_ONE alone. Found {self.sampling!r}: use "
                f"run.accountant()."
            )
        return self._event()

    def _event(self) -> stock.DpEvent:
        if self.strategy is not None:
            return _correlated(self)
        single = SCHEMES[self.scheme](self)
        if self.group_size == 1:
            return single
        return dp_event.GroupSubsampledEvent(self.group_size, single)

    @property
    def neighboring_relation(self) -> NeighborRel:
        """The default neighboring relation for this way of drawing batches.

        It is that of adding or removing a record. For shuffled batches it is that of
        replacing one, since no bound is known for adding or removing.
        """
        if self.sampling == SHUFFLED:
            return NeighborRel.REPLACE_ONE
        return NeighborRel.ADD_OR_REMOVE_ONE

    def accountant(
        self,
        neighboring_relation: NeighborRel | None = None,
        value_discretization_interval: float = 1e-4,
    ) -> pld_accountant.PLDAccountant:
        """Returns an accountant that has composed the whole run.

        Args:
            neighboring_relation: Which datasets are adjacent; by default the run's own.
            value_discretization_interval: As in the accountant.

        Raises:
            ValueError: If sampling or noise_multiplier is not given, the group is too
                large, or no bound is known, as of shuffled batches where a record is
                added or removed.
        """
        relation = neighboring_relation or self.neighboring_relation
        if self.sampling == SHUFFLED and relation != NeighborRel.REPLACE_ONE:
            raise ValueError(
                f"neighboring_relation must be REPLACE_ONE where sampling is "
                f"{SHUFFLED!r}: with a record more or less, others move to other "
                f"batches. Found {getattr(relation, 'name', relation)}."
            )
        accountant = pld_accountant.PLDAccountant(
            relation, value_discretization_interval
        )
        return accountant.compose(self._event())

    def _display(self) -> displays.Table:
        rows = [(name, str(value)) for name, value in self.to_dict().items()]
        return displays.Table("training run", ("", "value"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields that are known; and the steps and the rate in any case.

        `num_steps` is then an upper bound on the number of steps of the run.
        """
        values = dataclasses.asdict(self) | {
            "steps_per_epoch": self.epoch_steps,
            "num_steps": self.run_steps,
            "sampling_rate": self.rate,
        }
        return {name: value for name, value in values.items() if value is not None}


def given(name: str, value: T | None) -> T:
    """Returns the value.

    Raises:
        ValueError: If it is None.
    """
    if value is None:
        raise ValueError(f"{name} must be given. Found nothing.")
    return value


def warnings_of(run: TrainingRun) -> list[str]:
    """Returns the warnings to be read before all numbers; usually there are none."""
    delta, size = run.delta, run.dataset_size
    if delta is None or size is None or delta * size < 1:
        return []
    return [
        f"Warning: δ = {delta!r} is not below 1/{size}, one over the dataset size. "
        f"Publishing one example, drawn at random, would meet it, too: choose δ far "
        f"below that."
    ]


def warn(run: TrainingRun) -> None:
    """Issues the warnings of `warnings_of`, where noise is chosen or ε is reported."""
    for warning in warnings_of(run):
        warnings.warn(warning.removeprefix("Warning: "), stacklevel=3)


def _step(run: TrainingRun) -> stock.GaussianDpEvent:
    """Returns one step with the record in its batch."""
    return stock.GaussianDpEvent(given("noise_multiplier", run.noise_multiplier))


def _random_allocation(run: TrainingRun) -> stock.DpEvent:
    """Returns an allocation of each record to k uniformly drawn steps of each epoch."""
    k, t = run.batches_per_record, run.epoch_steps
    whole, steps_of_last = run.whole_and_part
    if k == t:
        return stock.SelfComposedDpEvent(_step(run), t * whole)
    epoch = dp_event.RandomAllocationEvent(_step(run), k, t)
    epochs = stock.SelfComposedDpEvent(epoch, whole)
    if not steps_of_last:
        return epochs
    last = dp_event.ScheduledAllocationEvent([_step(run)], [steps_of_last], t, k)
    return stock.ComposedDpEvent([epochs, last]) if whole else last


def _poisson_sampling(run: TrainingRun) -> stock.DpEvent:
    """Returns samples that each record is in with probability k / t, or B / N."""
    sampled = stock.PoissonSampledDpEvent(run.rate, _step(run))
    return stock.SelfComposedDpEvent(sampled, run.run_steps)


def _known_batches(run: TrainingRun) -> stock.DpEvent:
    """Returns k steps of each epoch that the adversary knows."""
    whole, steps_of_last = run.whole_and_part
    count = run.batches_per_record * whole + min(steps_of_last, run.batches_per_record)
    return stock.SelfComposedDpEvent(_step(run), count)


def _correlated(run: TrainingRun) -> stock.DpEvent:
    """Returns one draw of a step for each record, with the noise of the strategy."""
    noise = given("noise_multiplier", run.noise_multiplier)
    of_run = noise, run.epoch_steps, run._whole_epochs()
    if not isinstance(run.strategy, str):
        strategy = given("strategy", run.strategy)
        return events.MatrixAllocationEvent(strategy, *of_run)
    try:
        parts = [
            [float(cell) for cell in numbers.split(",")]
            for numbers in run.strategy.removeprefix(_BUFFERED).split(":")
        ]
    except ValueError:
        parts = []
    if len(parts) != 1 + run.strategy.startswith(_BUFFERED):
        raise ValueError(
            "strategy must be numbers such as 1,0.5,0.25, or blt:0.9,0.5:0.1,0.2; or, "
            f"as an option, a file of numbers. Found {run.strategy!r}."
        )
    if len(parts) == 1:
        return events.MatrixAllocationEvent(parts[0], *of_run)
    decays, scales = parts
    return events.MatrixAllocationEvent.from_buffered_toeplitz(decays, scales, *of_run)


SCHEMES: Mapping[str, Callable[[TrainingRun], stock.DpEvent]] = {
    RANDOM_ALLOCATION: _random_allocation,
    POISSON_SAMPLING: _poisson_sampling,
    NO_AMPLIFICATION: _known_batches,
    SHUFFLED: _known_batches,  # This scheme is bounded under REPLACE_ONE only.
}
# The names that are used on the command line and in files.
OPTIONS: Mapping[str, str] = {
    "random-allocation": RANDOM_ALLOCATION,
    "poisson-sampling": POISSON_SAMPLING,
    "no-amplification": NO_AMPLIFICATION,
    "shuffled": SHUFFLED,
}


def scheme_named(value: str) -> str:
    """Returns a name in `SCHEMES`, of itself or of a key of `OPTIONS`.

    Raises:
        ValueError: If it is neither.
    """
    name = OPTIONS.get(value, value) if isinstance(value, str) else ""
    if name not in SCHEMES:
        raise ValueError(
            f"sampling must be one of {', '.join(OPTIONS)}; or balls-in-bins, with a "
            f"strategy. Found {value!r}."
        )
    return name


def schemes_of(run: TrainingRun) -> list[TrainingRun]:
    """Returns the run with each way of drawing batches, or unchanged if it has one.

    Raises:
        TypeError: If it is not a `TrainingRun`.
    """
    if not isinstance(run, TrainingRun):
        raise TypeError(f"run must be a TrainingRun. Found {run!r:.60}.")
    if run.sampling is not None:
        return [run]
    return [dataclasses.replace(run, sampling=scheme) for scheme in SCHEMES]
