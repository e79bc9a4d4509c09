"""Events and certified bounds for jax_privacy's ways of drawing batches.

    from dp_accounting_ext.integrations import jax_privacy as certified

    event = certified.from_strategy(strategy, noise_multiplier)

    tracked = certified.StrategyAccountant(strategy, noise_multiplier)
    for batch in tracked.batch_iterator(num_examples, rng):  # The strategy's batches.
        …
    tracked.get_epsilon_bounds(delta)

The functions of jax_privacy that calibrate noise take `ext.PLDAccountant` itself as
their `accountant_fn`. Older versions take an object `ext.PLDAccountant(relation)` as
their `accountant`, and `accountant_config()` for their `DpsgdTrainingAccountant`.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any
from typing import cast
import warnings

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
from jax_privacy import batch_selection
import numpy as np

from dp_accounting_ext import displays
from dp_accounting_ext import dp_event
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.validation import fields

__all__ = [
    "StrategyAccountant",
    "accountant_config",
    "from_strategy",
]
__dir__ = __all__.copy

NeighborRel = privacy_accountant.NeighboringRelation

# Certified: a bound on the relative rounding error of a norm and a quotient.
_ROUNDING = 1e-12
# Tuning: the relative amount by which a plan's ε may be smaller, because its matrix may
# be in single precision.
_PROMISE = 1e-6


@dataclasses.dataclass(frozen=True)
class _Setting:
    """The arguments of `from_strategy` other than the strategy."""

    noise_multiplier: float
    matrix: Any
    num_examples: int | None
    neighboring_relation: NeighborRel

    @property
    def step(self) -> stock.DpEvent:
        """One step whose noise is not correlated with that of others."""
        return stock.GaussianDpEvent(self.noise_multiplier)

    def number_of_examples(self) -> int:
        if self.num_examples is None:
            raise ValueError(
                "num_examples must be given for batches of a bounded size. Found it "
                "missing."
            )
        return fields.positive_integer("num_examples", self.num_examples)


def from_strategy(
    strategy: Any,
    noise_multiplier: float,
    *,
    matrix: Any = None,
    num_examples: int | None = None,
    neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE,
) -> stock.DpEvent:
    """Returns the event of all steps of a strategy of `jax_privacy.batch_selection`.

    Args:
        strategy: How batches are drawn. A `UserSelectionStrategy` clips the gradients
            of each user, and its event is for datasets that differ in one user.
        noise_multiplier: Standard deviation of the noise over the clipping norm. (If
            jax_privacy scales the noise by a sensitivity of two clipping norms, for
            REPLACE_ONE, this is twice its noise multiplier.)
        matrix: The strategy matrix C if the noise is correlated: its Toeplitz
            coefficients (c_0, c_1, …), or a `BufferedToeplitz`. The noise multiplier is
            then relative to the clipping norm too, and not to the norm of a column.
        num_examples: Number of examples (or of users), for batches of a bounded size.
        neighboring_relation: The relation of the accountant that will compose the
            event.

    Raises:
        TypeError: If it is not a strategy.
        ValueError: If a field of the strategy has no meaning, or its partition moves
            examples where one is added or removed.
        UnsupportedEventError: If no theorem covers the strategy.

    Source:
        https://arxiv.org/abs/2306.08153 (bands with cyclic Poisson sampling);
        https://arxiv.org/abs/2410.06266 (correlated noise with balls in bins);
        https://arxiv.org/abs/2602.09338 (b-min-sep sampling), and docs/matrix.md.
    """
    setting = _Setting(
        fields.noise_multiplier(noise_multiplier),
        matrix,
        num_examples,
        fields.neighboring_relation(neighboring_relation),
    )
    strategy = _of_records(strategy)
    for name, construction in _CONSTRUCTIONS.items():
        # The type must be exactly this one, as a subclass may draw batches differently.
        if type(strategy) is getattr(batch_selection, name, None):
            return construction(strategy, setting)
    if isinstance(strategy, batch_selection.BatchSelectionStrategy):
        raise privacy_accountant.UnsupportedEventError(
            f"No theorem covers {type(strategy).__name__}. Those that are covered are "
            f"{', '.join(_CONSTRUCTIONS)}."
        )
    raise TypeError(f"strategy must be one of batches. Found {strategy!r:.60}.")


def _of_records(strategy: Any) -> Any:
    """Returns the strategy that draws what is protected: examples, or users."""
    if type(strategy) is batch_selection.UserSelectionStrategy:
        return strategy.base_strategy
    return strategy


def _cyclic_poisson(strategy: Any, setting: _Setting) -> stock.DpEvent:
    """Returns a Poisson sample for each cycle: the steps of one group of examples."""
    cycle = fields.positive_integer("cycle_length", strategy.cycle_length)
    independent = batch_selection.PartitionType.INDEPENDENT
    is_independent = strategy.partition_type is independent
    added = NeighborRel.ADD_OR_REMOVE_ONE
    if cycle > 1 and setting.neighboring_relation is added and not is_independent:
        raise ValueError(
            "partition_type must be INDEPENDENT under ADD_OR_REMOVE_ONE: with one "
            "example less, EQUAL_SPLIT moves others to other groups. Found "
            "EQUAL_SPLIT; or use REPLACE_SPECIAL."
        )
    noise = setting.noise_multiplier
    if setting.matrix is not None:
        column = _coefficients(setting.matrix, strategy.iterations)
        bands = int(np.flatnonzero(column)[-1]) + 1
        if bands > cycle:
            return _of_near_steps(strategy, column, setting)
        noise = noise / math.hypot(*column) * (1 - _ROUNDING)
    rounds = -(-_iterations(strategy) // cycle)
    if strategy.truncated_batch_size is None:
        step = stock.GaussianDpEvent(noise)
        sampled = stock.PoissonSampledDpEvent(strategy.sampling_prob, step)
        return stock.SelfComposedDpEvent(sampled, rounds)
    if cycle > 1 and is_independent:
        raise ValueError(
            "partition_type must be EQUAL_SPLIT with truncated_batch_size: the size of "
            "a group must be known. Found INDEPENDENT."
        )
    truncated = stock.TruncatedSubsampledGaussianDpEvent(
        dataset_size=setting.number_of_examples() // cycle,
        sampling_probability=strategy.sampling_prob,
        truncated_batch_size=strategy.truncated_batch_size,
        noise_multiplier=noise,
    )
    return stock.SelfComposedDpEvent(truncated, rounds)


def _of_near_steps(
    strategy: Any, column: Sequence[float], setting: _Setting
) -> stock.DpEvent:
    """Returns cyclic Poisson sampling with more bands than a cycle has steps."""
    if strategy.truncated_batch_size is not None:
        raise privacy_accountant.UnsupportedEventError(
            "No theorem covers CyclicPoissonSampling with truncated_batch_size and "
            "more bands than cycle_length. Leave it out, or use fewer bands."
        )
    return dp_event.CyclicPoissonEvent(
        column,
        setting.noise_multiplier,
        strategy.sampling_prob,
        strategy.cycle_length,
        _iterations(strategy),
    )


def _balls_in_bins(strategy: Any, setting: _Setting) -> stock.DpEvent:
    """Returns one allocation for all cycles, as records draw their bins only once."""
    bins = fields.positive_integer("cycle_length", strategy.cycle_length)
    cycles, rest = divmod(_iterations(strategy), bins)
    if setting.matrix is not None:
        if rest:
            raise ValueError(
                f"iterations must be a multiple of cycle_length for correlated noise. "
                f"Found {strategy.iterations} and {bins}."
            )
        return dp_event.MatrixAllocationEvent(
            _coefficients(setting.matrix, strategy.iterations),
            setting.noise_multiplier,
            bins,
            cycles,
        )
    whole = stock.SelfComposedDpEvent(setting.step, cycles)
    if not rest:
        return dp_event.RandomAllocationEvent(whole, 1, bins)
    longer = stock.SelfComposedDpEvent(setting.step, cycles + 1)
    if not cycles:
        return dp_event.ScheduledAllocationEvent([longer], [rest], bins)
    counts = [rest, bins - rest]
    return dp_event.ScheduledAllocationEvent([longer, whole], counts, bins)


def _b_min_sep(strategy: Any, setting: _Setting) -> stock.DpEvent:
    """Returns b-min-sep sampling, with correlated or with independent noise."""
    if strategy.truncated_batch_size is not None:
        raise privacy_accountant.UnsupportedEventError(
            "No theorem covers BMinSepSampling with truncated_batch_size: a record's "
            "steps depend on the others then. Leave it out."
        )
    apart = fields.positive_integer("min_sep", strategy.min_sep)
    steps = _iterations(strategy)
    column: Sequence[float] = (1.0,)
    if setting.matrix is not None:
        column = _coefficients(setting.matrix, steps)
        bands = int(np.flatnonzero(column)[-1]) + 1
        if bands > apart:
            raise privacy_accountant.UnsupportedEventError(
                f"No theorem covers BMinSepSampling with more bands than min_sep. "
                f"Found {bands} and {apart}."
            )
    return dp_event.MinSepSamplingEvent(
        column,
        setting.noise_multiplier,
        strategy.sampling_prob,
        apart,
        steps,
        strategy.warm_start,
    )


def _random_allocation(strategy: Any, setting: _Setting) -> stock.DpEvent:
    if not strategy.total_participations:
        return stock.NoOpDpEvent()
    if setting.matrix is not None:
        return dp_event.SelectedStepsMatrixEvent(
            _coefficients(setting.matrix, strategy.iterations),
            setting.noise_multiplier,
            strategy.total_participations,
            strategy.iterations,
        )
    return dp_event.RandomAllocationEvent(
        setting.step, strategy.total_participations, strategy.iterations
    )


def _fixed_batches(strategy: Any, setting: _Setting) -> stock.DpEvent:
    if setting.matrix is not None:
        raise privacy_accountant.UnsupportedEventError(
            "No theorem covers correlated noise with FixedBatchSampling: use "
            "BMinSepSampling, BallsInBinsSampling, or CyclicPoissonSampling with as "
            "many bands as its cycle is long."
        )
    kind = (
        stock.SampledWithReplacementDpEvent
        if strategy.replace
        else stock.SampledWithoutReplacementDpEvent
    )
    sampled = kind(setting.number_of_examples(), strategy.batch_size, setting.step)
    return stock.SelfComposedDpEvent(sampled, _iterations(strategy))


_CONSTRUCTIONS: Mapping[str, Callable[[Any, _Setting], stock.DpEvent]] = {
    "CyclicPoissonSampling": _cyclic_poisson,
    "BallsInBinsSampling": _balls_in_bins,
    "BMinSepSampling": _b_min_sep,
    "RandomAllocationSampling": _random_allocation,
    "FixedBatchSampling": _fixed_batches,
}


def _iterations(strategy: Any) -> int:
    return fields.positive_integer("iterations", strategy.iterations)


def _coefficients(matrix: Any, iterations: int) -> Sequence[float]:
    """Returns the first column of C, which has a row for each step."""
    if hasattr(matrix, "buf_decay"):
        decays, scales = (
            np.asarray(x, np.float64).reshape(-1).tolist()
            for x in (matrix.buf_decay, matrix.output_scale)
        )
        whole = dp_event.MatrixAllocationEvent.from_buffered_toeplitz(
            decays, scales, 1.0, 1, iterations
        )
        return cast(Sequence[float], whole.strategy)
    column = fields.real_numbers("matrix", np.asarray(matrix, np.float64))
    if column.ndim != 1 or not column.any():
        raise ValueError(
            f"matrix must be the Toeplitz coefficients of a strategy, or a "
            f"BufferedToeplitz. Found shape {column.shape}."
        )
    coefficients: list[float] = column[:iterations].tolist()
    return coefficients


class StrategyAccountant(displays.Displayed):
    """Counts the batches that a strategy's iterators yield, and bounds their ε.

    Every iterator draws its batches anew, also after a checkpoint is loaded. The steps
    that earlier iterators ran are counted, too.

    Args:
        strategy: As in `from_strategy`.
        noise_multiplier: As in `from_strategy`.
        **options: Options of `from_strategy`. With a matrix, only one iterator may run,
            because no theorem covers correlated noise across iterators.

    Raises:
        TypeError, ValueError, UnsupportedEventError: As `from_strategy` does.
    """

    def __init__(self, strategy: Any, noise_multiplier: float, **options: Any) -> None:
        from_strategy(strategy, noise_multiplier, **options)
        self.strategy, self.noise_multiplier = strategy, noise_multiplier
        self.options = options
        self._draws: list[int] = []
        self._began: list[Any] = []

    def _display(self) -> displays.Table:
        drawn = [(f"iterator {i}", str(n)) for i, n in enumerate(self._draws, start=1)]
        title = f"StrategyAccountant of a {type(self.strategy).__name__}, noise "
        title += f"multiplier {self.noise_multiplier!r}"
        return displays.Table(title, ("batches of", "handed out"), drawn)

    def batch_iterator(self, num_examples: Any, rng: Any = None) -> Iterator[Any]:
        """Returns the strategy's batches, and counts each as it is handed out.

        Args:
            num_examples: As in the strategy's own method. For a `UserSelectionStrategy`
                it is the user of each example.
            rng: As in the strategy's own method. Each iterator needs a generator in
                another state.

        Raises:
            RuntimeError: If there are more or fewer examples than were accounted for,
                or the generator's state is that of an earlier iterator, which had the
                same batches.
        """
        is_of_users = self.strategy is not _of_records(self.strategy)
        found = np.unique(num_examples).size if is_of_users else num_examples
        known = self.options.get("num_examples")
        if known is not None and found != known:
            raise RuntimeError(
                f"batch_iterator must draw from as many examples (or users) as are "
                f"accounted for. Found {found} for {known}: write "
                f"StrategyAccountant(…, num_examples={found})."
            )
        generator = np.random.default_rng(rng)
        state = generator.bit_generator.state
        if any(_is_same(state, other) for other in self._began):
            raise RuntimeError(
                "rng must be another one for each iterator: this one draws the batches "
                "of an earlier one again. Pass one np.random.Generator to all."
            )
        self._began.append(state)
        return self._counted(self.strategy.batch_iterator(num_examples, generator))

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        number = len(self._draws)
        self._draws.append(0)
        for batch in batches:
            self._draws[number] += 1
            yield batch

    def event(self) -> stock.DpEvent:
        """Returns what ran, as an event.

        Raises:
            ValueError: If several iterators ran with correlated noise, or if the draw
                of a RandomAllocationSampling has not ended and no event says so.
        """
        draws = [steps for steps in self._draws if steps]
        if len(draws) > 1 and self.options.get("matrix") is not None:
            raise ValueError(
                f"batch_iterator must run once with correlated noise. Found "
                f"{len(draws)} that ran."
            )
        return stock.ComposedDpEvent([self._of_draw(steps) for steps in draws])

    def _of_draw(self, steps: int) -> stock.DpEvent:
        strategy = _of_records(self.strategy)
        planned = getattr(strategy, "total_participations", None)
        if planned is None or steps == strategy.iterations:
            # Here a shorter run is the beginning of a longer one.
            cut = dataclasses.replace(strategy, iterations=steps)
            return from_strategy(cut, self.noise_multiplier, **self.options)
        if planned != 1:
            raise ValueError(
                f"total_participations must be 1 where a draw has not ended. Found "
                f"{planned}, and {steps} of {strategy.iterations} steps."
            )
        if self.options.get("matrix") is not None:
            raise ValueError(
                f"batch_iterator must run to its end with correlated noise and a "
                f"planned number of steps for each record. Found {steps} of "
                f"{strategy.iterations} steps."
            )
        step = stock.GaussianDpEvent(self.noise_multiplier)
        return dp_event.ScheduledAllocationEvent([step], [steps], strategy.iterations)

    def pld_accountant(self) -> pld_accountant.PLDAccountant:
        """Returns an accountant that has composed what ran, for risks and curves.

        A warning is issued if no batch was handed out by `batch_iterator`, as the
        batches of other iterators are not counted.
        """
        if not any(self._draws):
            warnings.warn(
                "No batch was handed out: ε is 0. Train on "
                "tracked.batch_iterator(num_examples, rng), not on the strategy's own.",
                stacklevel=2,
            )
        return pld_accountant.PLDAccountant(self._relation).compose(self.event())

    @property
    def _relation(self) -> NeighborRel:
        relation: NeighborRel = self.options.get(
            "neighboring_relation", NeighborRel.ADD_OR_REMOVE_ONE
        )
        return relation

    def check(self, plan: Any, delta: float) -> None:
        """Checks that an execution plan agrees with what this accountant counts.

        Args:
            plan: A `DPExecutionPlan` of `jax_privacy.experimental.execution_plan`.
            delta: δ at which both are compared.

        Raises:
            TypeError: If `plan` is not an execution plan.
            RuntimeError: If the plan has another strategy, or if the ε of its event is
                certainly less than that of all steps of the strategy.
        """
        for name in ("batch_selection_strategy", "dp_event"):
            if not hasattr(plan, name):
                raise TypeError(f"plan must have a {name}. Found {plan!r:.60}.")
        planned = plan.batch_selection_strategy
        if type(planned) is not type(self.strategy) or planned != self.strategy:
            raise RuntimeError(
                f"The plan's strategy must be the one that runs. Found {planned!r} in "
                f"the plan, and {self.strategy!r}: write "
                f"StrategyAccountant(plan.batch_selection_strategy, …)."
            )
        event = from_strategy(self.strategy, self.noise_multiplier, **self.options)
        promised, least = (
            pld_accountant.PLDAccountant(self._relation)
            .compose(each)
            .get_epsilon_bounds(delta)[side]
            for each, side in ((plan.dp_event, 1), (event, 0))
        )
        if promised < least * (1 - _PROMISE):
            raise RuntimeError(
                f"The plan's event must not promise less than its steps keep. Found "
                f"ε = {promised:g} for plan.dp_event, and at least {least:g} for "
                f"{type(planned).__name__} with noise_multiplier "
                f"{self.noise_multiplier:g}: take the noise and matrix of the plan."
            )

    def get_epsilon_bounds(self, delta: float) -> tuple[float, float]:
        """Returns certified bounds on ε at δ: lower ≤ the true ε ≤ upper, in nats."""
        return self.pld_accountant().get_epsilon_bounds(delta)

    def state_dict(self) -> dict[str, Sequence[int]]:
        """Returns the state for a checkpoint: the number of steps of each draw."""
        return {"draws": list(self._draws)}

    def load_state_dict(self, state: Mapping[str, Sequence[int]]) -> None:
        """Restores a state of `state_dict`. Iterators that run from now on draw anew.

        Raises:
            TypeError, ValueError: If it is not such a state. Nothing is then changed.
        """
        self._draws = [
            fields.non_negative_integer("draws", steps)
            for steps in fields.sequence("draws", state.get("draws"))
        ]


def _is_same(state: Any, other: Any) -> bool:
    """Whether two states of bit generators, which may hold arrays, are equal."""
    if isinstance(state, Mapping) and isinstance(other, Mapping):
        return state.keys() == other.keys() and all(
            _is_same(state[name], other[name]) for name in state
        )
    return bool(np.array_equal(state, other))


def accountant_config() -> Any:
    """Returns the configuration of a certified accountant, for versions up to 2.0.

    `jax_privacy.accounting.DpsgdTrainingAccountant` takes it, and so do the functions
    that calibrate noise for it.
    """
    from jax_privacy import accounting

    class CertifiedAccountantConfig(accounting.PldAccountantConfig):  # type: ignore[misc]
        def create_accountant(self) -> pld_accountant.PLDAccountant:
            return pld_accountant.PLDAccountant()

    return CertifiedAccountantConfig()
