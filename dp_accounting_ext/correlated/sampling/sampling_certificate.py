"""Brackets of ε that hold with probability 1 − α, where certain brackets are wide.

They are separate from the accountants, which never sample. A result is wrong with
probability at most α, over the random draws of this program alone.
"""

from collections.abc import Callable
import dataclasses
import itertools
import math
import time
from typing import Any

from dp_accounting import privacy_accountant
import numpy as np

from dp_accounting_ext import displays
from dp_accounting_ext import dp_event
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated import bins
from dp_accounting_ext.correlated import events
from dp_accounting_ext.correlated import readings
from dp_accounting_ext.correlated import schedules
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.sampling import bets
from dp_accounting_ext.correlated.sampling import moment_tilts
from dp_accounting_ext.correlated.sampling import poisson_tilts
from dp_accounting_ext.correlated.sampling.bets import BudgetError as BudgetError
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.validation import fields

__all__ = [
    "BudgetError",
    "SampledBounds",
    "certify_by_sampling",
    "certify_mixture",
]
__dir__ = __all__.copy


# A tolerance of Gram matrices, relative to the largest entry; far below rounding of ε.
_ASYMMETRY = 1e-12
# The largest number of sets of steps, of which rounding must not exclude the last.
_LOG_OF_MOST_SETS = math.log(strategies.MOST_BINS) * (1 + 1e-12)


@dataclasses.dataclass(frozen=True)
class SampledBounds(displays.Displayed):
    """A bracket of ε that holds with probability at least 1 − α.

    Attributes:
        lower: A lower bound on ε, in nats.
        upper: An upper bound on ε, in both directions.
        remove_upper: An upper bound for REMOVE, by samples.
        add_upper: An upper bound for ADD, which is certain and needs no samples.
        delta: δ.
        failure_probability: The probability α that any of these bounds is wrong.
        samples: The number of samples.
        moment: The power m of the likelihood ratio by which samples are tilted.
        seed: The seed that gives the same samples again.
        seconds: The CPU time.
    """

    lower: float
    upper: float
    remove_upper: float
    add_upper: float
    delta: float
    failure_probability: float
    samples: int
    moment: int
    seed: int
    seconds: float

    def _display(self) -> displays.Table:
        rows = [
            ("ε, either way", self.lower, self.upper),
            ("ε, a record removed", None, self.remove_upper),
            ("ε, a record added (certain)", None, self.add_upper),
        ]
        title = f"ε at δ = {self.delta:g}, wrong with probability "
        title += f"{self.failure_probability:g} at most, by {self.samples} samples"
        cells = [
            (
                name,
                "" if low is None else decimals.rounded_down(low),
                decimals.rounded_up(high),
            )
            for name, low, high in rows
        ]
        return displays.Table(title, ("", "lower", "upper"), cells)


def certify_by_sampling(
    event: (
        events.MatrixAllocationEvent
        | events.PoissonMatrixEvent
        | dp_event.RandomAllocationEvent
        | events.SelectedStepsMatrixEvent
    ),
    delta: float,
    failure_probability: float = 1e-9,
    relative_width: float = 0.01,
    seed: int | None = None,
    *,
    most_seconds: float = 120.0,
) -> SampledBounds:
    """Returns a bracket of ε that holds with probability at least 1 − α.

    Args:
        event: One run of a matrix mechanism with balls-in-bins batches, or with
            Poisson samples and few bands; or k out of t steps, of at most 4096 sets,
            of a matrix mechanism or of one epoch with Gaussian noise.
        delta: δ, in (0, 1).
        failure_probability: α, in (0, 1).
        relative_width: The largest relative distance of either end from the estimate.
            This is a goal, which is met unless the pilot was misled.
        seed: A non-negative integer; a random one if None.
        most_seconds: The CPU time that it may take, by its own forecast.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.
        BudgetError: If it would take longer; nothing is known then.

    Guarantees:
        With probability at least 1 − α over its draws, lower ≤ ε ≤ upper. The
        direction ADD has no samples: its upper bound is that of the accountant, and
        widens the bracket where it is above that of REMOVE.
    """
    began = time.process_time()
    options = failure_probability, relative_width, seed, most_seconds
    bounds = _certified(lambda: _source(event), delta, *options)
    mechanism = _reader().mechanism(event)
    pairs = interface.pairs_of(
        mechanism, Bound.UPPER, accuracy.Accuracy(delta * accuracy.COARSE_TAIL_SHARE)
    )
    add = pairs.add.epsilon(delta, Direction.ADD)
    return dataclasses.replace(
        bounds,
        upper=max(bounds.remove_upper, add),
        add_upper=add,
        seconds=time.process_time() - began,
    )


def _source(event: Any) -> bets.Source:
    """Returns the mixture from which samples of an event are drawn."""
    if isinstance(event, dp_event.RandomAllocationEvent):
        event = _selected_steps(event)
    kinds = (
        events.MatrixAllocationEvent,
        events.PoissonMatrixEvent,
        events.SelectedStepsMatrixEvent,
    )
    if not isinstance(event, kinds):
        raise TypeError(
            "event must be a MatrixAllocationEvent, a PoissonMatrixEvent, a "
            "SelectedStepsMatrixEvent, or a RandomAllocationEvent of Gaussian noise. "
            f"Found a {type(event).__name__}. "
            "sampling_certificate.certify_mixture takes other mixtures of Gaussians."
        )
    strategy, noise, schedule = readings.checked(event)
    if not noise:
        raise ValueError("noise_multiplier must be positive. Found 0.")
    if isinstance(schedule, schedules.CyclicPoisson):
        return _poisson_draws(strategy, noise, schedule)
    if isinstance(schedule, schedules.BallsInBins):
        run = bins.Bins(strategy, noise, schedule.num_bins, schedule.num_steps)
        return moment_tilts.Means(_checked_gram(run.gram(Bound.UPPER)))
    assert isinstance(schedule, schedules.SelectedSteps)
    holds = _sets(schedule)
    # In one epoch of as many bins as steps, a bin is a step.
    run = bins.Bins(strategy, noise, schedule.num_steps, schedule.num_steps)
    products, error = run.products()
    gram = np.asarray(holds @ (products * (1 + 3 * error)) @ holds.T)
    return moment_tilts.Means(_checked_gram(gram))


def _poisson_draws(
    strategy: strategies.Strategy, noise: float, schedule: schedules.CyclicPoisson
) -> poisson_tilts.Draws:
    """Returns the source of samples of a run with Poisson samples."""
    rate, steps = schedule.sampling_probability, schedule.num_steps
    if not 0 < rate < 1:
        raise ValueError(
            "sampling_probability must be in (0, 1) to be certified by sampling. "
            f"Found {rate:g}."
        )
    source = poisson_tilts.Draws.of_strategy(strategy, noise, rate, steps)
    if source.most_copies < 2:
        raise ValueError(
            "strategy must have few bands for its steps and noise to be certified by "
            f"sampling: 8 of a thousand steps. Found {strategy.bands} bands, "
            f"{steps} steps and noise_multiplier {noise:g}. "
            "PLDAccountant.get_epsilon_bounds takes any."
        )
    return source


def _selected_steps(
    event: dp_event.RandomAllocationEvent,
) -> events.SelectedStepsMatrixEvent:
    """Returns the run of independent noise that an allocation of Gaussian noise is.

    An adversary who chooses contributions step by step gains nothing: the ratio is the
    mean over the sets of products of the steps' ratios, and so convex in each of these.
    """
    step = _reader().mechanism(event.event)
    if not isinstance(step, additive_noise.Gaussian):
        raise ValueError(
            "event must be a RandomAllocationEvent of Gaussian noise, not 0, to be "
            f"certified by sampling. Found steps of {type(event.event).__name__}."
        )
    return events.SelectedStepsMatrixEvent(
        (1.0,), step.noise_multiplier, event.num_selected, event.num_steps
    )


def _sets(schedule: schedules.SelectedSteps) -> FloatArray:
    """Returns (s, n) ones where a set of k of t steps in each epoch has a step.

    Raises:
        ValueError: If there are more than 4096 sets.
    """
    selected, steps = schedule.num_selected, schedule.epoch_steps
    epochs = schedule.num_epochs
    # If k and t − k are larger, t over k exceeds the limit, and takes long to compute.
    is_small = min(selected, steps - selected) <= strategies.MOST_BINS.bit_length()
    number = math.comb(steps, selected) if is_small else math.inf
    if max(math.log(number) * epochs, math.log(steps * epochs)) > _LOG_OF_MOST_SETS:
        in_epochs = "" if epochs == 1 else f" in each of {epochs} epochs"
        raise ValueError(
            f"num_selected out of num_steps must have at most {strategies.MOST_BINS} "
            "sets, and steps, to be certified by sampling. "
            f"Found {selected} of {steps}{in_epochs}."
        )
    sets = np.array(list(itertools.combinations(range(steps), selected)))
    holds = np.zeros((len(sets), steps))
    np.put_along_axis(holds, sets, 1.0, axis=1)
    choices = itertools.product(holds, repeat=epochs)
    return np.array([np.concatenate(choice) for choice in choices])


def _reader() -> event_reader.Reader:
    return event_table.reader(privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE)


def certify_mixture(
    gram: FloatArray,
    delta: float,
    failure_probability: float = 1e-9,
    relative_width: float = 0.01,
    seed: int | None = None,
    *,
    most_seconds: float = 120.0,
) -> SampledBounds:
    """Returns a bracket of ε for REMOVE, for a mixture of equally likely Gaussians.

    P is the mean over i of N(m_i, I), and Q is N(0, I).

    Args:
        gram: (b, b) inner products of the means m_i, all at least 0, with b up to 4096.
        delta: As in `certify_by_sampling`, as are all other arguments.
        failure_probability: α.
        relative_width: The largest relative distance of an end from the estimate.
        seed: A non-negative integer, or None.
        most_seconds: The CPU time that it may take.

    Returns:
        The bracket, with an infinite `add_upper`: nothing is claimed about ADD.

    Raises:
        TypeError: If the matrix does not consist of real numbers.
        ValueError: If a number or the matrix is out of range.
        BudgetError: If it would take longer.

    Source:
        Waudby-Smith and Ramdas 2020, https://arxiv.org/abs/2010.09686, Section 4:
        the capitals of bets, here with stakes that a pilot fixed.
    """
    options = failure_probability, relative_width, seed, most_seconds
    return _certified(lambda: moment_tilts.Means(_checked_gram(gram)), delta, *options)


def _certified(
    made: Callable[[], bets.Source],
    delta: float,
    failure_probability: float,
    relative_width: float,
    seed: int | None,
    most_seconds: float,
) -> SampledBounds:
    """Returns the bracket of `certify_mixture`.

    Args:
        made: A function that returns the source of samples. It is called after all
            other arguments were checked.
        delta: As in `certify_mixture`, as are all other arguments.
        failure_probability: The probability α.
        relative_width: The largest relative distance of an end from the estimate.
        seed: A non-negative integer, or None.
        most_seconds: The budget.
    """
    began = time.process_time()
    fields.inner_probability("delta", delta)
    fields.inner_probability("failure_probability", failure_probability)
    fields.inner_probability("relative_width", relative_width)
    if not fields.real_number("most_seconds", most_seconds) > 0:
        raise ValueError(f"most_seconds must be positive. Found {most_seconds}.")
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    elif isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise TypeError(f"seed must be None or a non-negative integer. Found {seed!r}.")
    pilot, main = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    source = made()
    logs = math.log(2 / failure_probability)
    aim = bets.Aim(delta, relative_width, logs)
    plan = bets.planned(source, aim, pilot)
    bets.check_budget(aim, plan, most_seconds)
    samples = source.draw(plan.moment, plan.samples, main)
    lower, upper = bets.bracket(samples, aim, plan)
    return SampledBounds(
        lower=lower,
        upper=upper,
        remove_upper=upper,
        add_upper=math.inf,
        delta=delta,
        failure_probability=failure_probability,
        samples=plan.samples,
        moment=plan.moment,
        seed=seed,
        seconds=time.process_time() - began,
    )


def _checked_gram(gram: Any) -> FloatArray:
    """Returns a Gram matrix of floats. `Means` checks whether it has a root."""
    matrix = fields.number_array("gram", gram).astype(np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"gram must be a square matrix. Found shape {matrix.shape}.")
    if len(matrix) > strategies.MOST_BINS:
        raise ValueError(
            f"gram must have at most {strategies.MOST_BINS} rows. Found {len(matrix)}."
        )
    wrong = ~((matrix >= 0) & (matrix <= bets.LARGEST_EXPONENT))
    if wrong.any():
        raise ValueError(
            "gram, products of means over the noise's variance, must have entries in "
            f"[0, {bets.LARGEST_EXPONENT:g}]. Found {matrix[wrong][0]:g}."
        )
    if not matrix.any():
        raise ValueError("gram must have an entry above 0. Found none.")
    apart = np.abs(matrix - matrix.T).max()
    if apart > _ASYMMETRY * matrix.max():
        raise ValueError(
            f"gram must be symmetric. Found entries that differ by {apart:g}."
        )
    return matrix
