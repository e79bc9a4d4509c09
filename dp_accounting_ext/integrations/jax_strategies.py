"""Events of the strategies of `jax_privacy.batch_selection`, and checks of their noise.

The noise of all steps is C⁻¹ Z for a strategy matrix C and independent Gaussian Z. So a
plan's transform runs on zeros, and C times what it returns must look like Z.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import jax
import jax.numpy as jnp
from jax_privacy import batch_selection
import numpy as np
import numpy.typing as npt
from scipy import signal

from dp_accounting_ext import dp_event
from dp_accounting_ext.correlated import events
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.validation import fields

__all__ = ["coefficients", "from_strategy", "of_known_group", "of_records"]
__dir__ = __all__.copy

NeighborRel = privacy_accountant.NeighboringRelation

# Certified: a bound on the relative rounding error of a norm and a quotient.
_ROUNDING = 1e-12
# Tuning, all of these constants.
_VALUES = 2**22  # Values of noise that are drawn, in two seconds.
_STEPS = 4096  # The most steps that are run.
_DISTANCE = 64  # The largest distance of two steps whose correlation is measured.
# How far a measure of right noise may be from its mean, in standard deviations. Any of
# 5,000 measures is further with a probability of 1e-8.
_DEVIATIONS = 7.0


@dataclasses.dataclass(frozen=True)
class _Setting:
    """The arguments of `from_strategy` other than the strategy.

    Attributes:
        is_group_known: Whether an event is for an example whose group is known, where
            batches are samples of groups in turn. Then it may cost more.
    """

    noise_multiplier: float
    matrix: Any = None
    num_examples: int | None = None
    neighboring_relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE
    is_group_known: bool = False

    @property
    def step(self) -> stock.DpEvent:
        """One step whose noise is not correlated with that of others."""
        return stock.GaussianDpEvent(self.noise_multiplier)

    def number_of_examples(self) -> int:
        if self.num_examples is None:
            raise ValueError(
                "num_examples must be given for batches of a bounded size. Found "
                "nothing."
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

    Lower bounds on the event are for examples that may take part: EQUAL_SPLIT leaves
    out those beyond a multiple of the number of groups. The event of EQUAL_SPLIT is
    that of an example whose group is known, as the groups of all others determine it.

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
    return _event(strategy, setting)


def of_known_group(
    strategy: Any, noise_multiplier: float, **options: Any
) -> stock.DpEvent:
    """Returns the event of `from_strategy` for an example whose group is known.

    It is another one where batches are samples of groups in turn.
    """
    return _event(strategy, _Setting(noise_multiplier, **options, is_group_known=True))


def _event(strategy: Any, setting: _Setting) -> stock.DpEvent:
    strategy = of_records(strategy)
    if hasattr(strategy, "sampling_prob"):
        fields.sampling_probability(strategy.sampling_prob)
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


def of_records(strategy: Any) -> Any:
    """Returns the strategy that draws what is protected: examples, or users."""
    if type(strategy) is batch_selection.UserSelectionStrategy:
        return strategy.base_strategy
    return strategy


def _cyclic_poisson(strategy: Any, setting: _Setting) -> stock.DpEvent:
    """Returns Poisson samples of groups in turn.

    An example's group is secret if it is drawn independently. The groups of EQUAL_SPLIT
    have a fixed size, so that the groups of all other examples, which the outputs may
    reveal, determine its group. There, as with truncated batches, the event is that of
    an example whose group is known.
    """
    cycle = fields.positive_integer("cycle_length", strategy.cycle_length)
    iterations = _iterations(strategy)
    independent = batch_selection.PartitionType.INDEPENDENT
    is_independent = strategy.partition_type is independent
    added = NeighborRel.ADD_OR_REMOVE_ONE
    if cycle > 1 and setting.neighboring_relation is added and not is_independent:
        raise ValueError(
            "partition_type must be INDEPENDENT under ADD_OR_REMOVE_ONE: with one "
            "example less, EQUAL_SPLIT moves others to other groups. Found "
            "EQUAL_SPLIT; or use REPLACE_SPECIAL."
        )
    column = coefficients(setting.matrix, iterations)
    if strategy.truncated_batch_size is not None:
        return _truncated(strategy, column, setting)
    is_secret = cycle > 1 and is_independent and not setting.is_group_known
    overlap = _bands(column) > cycle and setting.noise_multiplier > 0
    if overlap and not is_secret and strategy.sampling_prob == 1:
        # The example takes part in all steps of its group.
        total = _of_all_cycles(column, cycle, iterations)
        return stock.GaussianDpEvent(_noise_over_norm(total, setting))
    if is_secret or overlap:
        # With overlapping columns, its upper bound is that of a known group, too.
        return events.CyclicPoissonEvent(
            column, setting.noise_multiplier, strategy.sampling_prob, cycle, iterations
        )
    step = stock.GaussianDpEvent(_noise_over_norm(column, setting))
    sampled = stock.PoissonSampledDpEvent(strategy.sampling_prob, step)
    return stock.SelfComposedDpEvent(sampled, -(-iterations // cycle))


def _truncated(
    strategy: Any, column: Sequence[float], setting: _Setting
) -> stock.DpEvent:
    """Returns a truncated Poisson sample for each cycle: the steps of one group."""
    cycle = strategy.cycle_length
    if _bands(column) > cycle:
        raise privacy_accountant.UnsupportedEventError(
            "No theorem covers CyclicPoissonSampling with truncated_batch_size and "
            "more bands than cycle_length. Leave it out, or use fewer bands."
        )
    independent = batch_selection.PartitionType.INDEPENDENT
    if cycle > 1 and strategy.partition_type is independent:
        raise ValueError(
            "partition_type must be EQUAL_SPLIT with truncated_batch_size: the size of "
            "a group must be known. Found INDEPENDENT."
        )
    truncated = stock.TruncatedSubsampledGaussianDpEvent(
        dataset_size=setting.number_of_examples() // cycle,
        sampling_probability=strategy.sampling_prob,
        truncated_batch_size=strategy.truncated_batch_size,
        noise_multiplier=_noise_over_norm(column, setting),
    )
    return stock.SelfComposedDpEvent(truncated, -(-_iterations(strategy) // cycle))


def _noise_over_norm(column: Sequence[float], setting: _Setting) -> float:
    """Returns the noise multiplier over the norm of a column, rounded down."""
    if setting.matrix is None:
        return setting.noise_multiplier
    return setting.noise_multiplier / math.hypot(*column) * (1 - _ROUNDING)


def _of_all_cycles(
    column: Sequence[float], cycle: int, iterations: int
) -> Sequence[float]:
    """Returns the sum of the columns of the first group's steps, rounded up."""
    cycles = -(-iterations // cycle)
    rows = np.zeros(cycles * cycle)
    rows[: len(column)] = column
    sums = np.cumsum(rows.reshape(cycles, cycle), axis=0).ravel()[:iterations]
    rounded: list[float] = (sums * (1 + cycles * np.finfo(np.float64).eps)).tolist()
    return rounded


def _bands(column: Sequence[float]) -> int:
    return int(np.flatnonzero(column)[-1]) + 1


def _balls_in_bins(strategy: Any, setting: _Setting) -> stock.DpEvent:
    """Returns one allocation for all cycles, as records draw their bins only once."""
    bins = fields.positive_integer("cycle_length", strategy.cycle_length)
    cycles, left_over = divmod(_iterations(strategy), bins)
    if setting.matrix is not None:
        if left_over:
            raise ValueError(
                f"iterations must be a multiple of cycle_length for correlated noise. "
                f"Found {strategy.iterations} and {bins}."
            )
        return events.MatrixAllocationEvent(
            coefficients(setting.matrix, _iterations(strategy)),
            setting.noise_multiplier,
            bins,
            cycles,
        )
    of_cycles, of_one_more = (
        stock.SelfComposedDpEvent(setting.step, count) for count in (cycles, cycles + 1)
    )
    if not left_over:
        return dp_event.RandomAllocationEvent(of_cycles, 1, bins)
    if not cycles:  # The later bins have no step.
        return dp_event.ScheduledAllocationEvent([of_one_more], [left_over], bins)
    return dp_event.ScheduledAllocationEvent(
        [of_one_more, of_cycles], [left_over, bins - left_over], bins
    )


def _b_min_sep(strategy: Any, setting: _Setting) -> stock.DpEvent:
    """Returns b-min-sep sampling, with correlated or with independent noise."""
    if strategy.truncated_batch_size is not None:
        raise privacy_accountant.UnsupportedEventError(
            "No theorem covers BMinSepSampling with truncated_batch_size: a record's "
            "steps depend on the others then. Leave it out."
        )
    separation = fields.positive_integer("min_sep", strategy.min_sep)
    steps = _iterations(strategy)
    column = coefficients(setting.matrix, steps)
    bands = _bands(column)
    if bands > separation:
        raise privacy_accountant.UnsupportedEventError(
            f"No theorem covers BMinSepSampling with more bands than min_sep. "
            f"Found {bands} and {separation}."
        )
    return events.MinSepSamplingEvent(
        column,
        setting.noise_multiplier,
        strategy.sampling_prob,
        separation,
        steps,
        strategy.warm_start,
    )


def _random_allocation(strategy: Any, setting: _Setting) -> stock.DpEvent:
    if not strategy.total_participations:
        return stock.NoOpDpEvent()
    if setting.matrix is not None:
        return events.SelectedStepsMatrixEvent(
            coefficients(setting.matrix, _iterations(strategy)),
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
    kind: Callable[..., stock.DpEvent] = stock.SampledWithoutReplacementDpEvent
    if strategy.replace:
        kind = stock.SampledWithReplacementDpEvent
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


def coefficients(matrix: Any, iterations: int) -> Sequence[float]:
    """Returns the first column of C, which has a row for each step."""
    if matrix is None:
        return (1.0,)
    if hasattr(matrix, "buf_decay"):
        decays, scales = (
            np.asarray(x, np.float64).reshape(-1).tolist()
            for x in (matrix.buf_decay, matrix.output_scale)
        )
        column = strategies.buffered_toeplitz(decays, scales, iterations)
    else:
        try:
            column = fields.real_numbers("matrix", np.asarray(matrix, np.float64))
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"matrix must be the Toeplitz coefficients of a strategy. Found "
                f"{matrix!r:.60}."
            ) from None
    if column.ndim != 1:
        raise ValueError(
            f"matrix must be the Toeplitz coefficients of a strategy, or a "
            f"BufferedToeplitz. Found shape {column.shape}."
        )
    if not column[:1].any():
        raise ValueError(
            f"matrix must begin with a positive coefficient. Found {column[:1]}."
        )
    first: list[float] = column[:iterations].tolist()
    return first


def refuse_other_noise(
    transform: Any, column: Sequence[float], deviation: float, iterations: int
) -> None:
    """Refuses a transform whose noise is not that of a strategy matrix.

    Other standard deviations are seen from 0.25 % on, and in one of 1000 steps alone
    from 8 %. Only the first 4096 steps are looked at. The `column` has the Toeplitz
    coefficients of C, and `deviation` is the standard deviation of Z.
    """
    steps = min(iterations, _STEPS)
    noise = _on_zeros(transform, steps)
    coefficients = np.asarray(column[:steps], np.float64)[:, np.newaxis]
    multiplied = signal.oaconvolve(noise, coefficients, axes=0)[:steps]
    variances = np.square(multiplied).mean(axis=1)
    variance = variances.mean()
    for distance in range(1, min(steps, _DISTANCE + 1)):
        products = multiplied[distance:] * multiplied[:-distance]
        correlation = products.mean() / variance if variance else 0.0
        if abs(correlation) > _DEVIATIONS / np.sqrt(products.size):
            _refuse(
                f"{np.sqrt(variance):.4g}, and a correlation of {correlation:.3f} "
                f"between steps at a distance of {distance}",
                deviation,
            )
    allowed = _DEVIATIONS * deviation**2 * np.sqrt(2 / multiplied.size)
    if abs(variance - deviation**2) > allowed:
        _refuse(f"{np.sqrt(variance):.4g}", deviation)
    errors = np.abs(variances - deviation**2)
    if errors.max() > allowed * np.sqrt(steps):
        step = int(errors.argmax())
        _refuse(f"{np.sqrt(variances[step]):.4g} in step {step + 1}", deviation)


def _on_zeros(transform: Any, steps: int) -> npt.NDArray[np.float64]:
    """Returns the noise of each step, shape (steps, values)."""
    zeros = jnp.zeros(_VALUES // steps, jnp.float32)

    def step(state: Any, _: None) -> tuple[Any, Any]:
        noise, state = transform.update(zeros, state)
        return state, noise

    _, noise = jax.lax.scan(step, transform.init(zeros), length=steps)
    return np.asarray(noise, np.float64)


def _refuse(measured: str, deviation: float) -> None:
    raise RuntimeError(
        f"The plan's noise, times the strategy matrix, must be independent and have a "
        f"standard deviation of {deviation:.4g}. Found {measured}: take the noise "
        f"multiplier and the matrix of the plan, StrategyAccountant(…, matrix=…), or "
        f"certified.from_plan(config)."
    )
