"""Runs with correlated noise, compared for several ways of drawing batches.

All schemes but the last are compared at the participation of balls in bins: a
record is in one batch of each epoch, on average.
"""

from collections.abc import Mapping
import functools
import math

from dp_accounting import dp_event as stock
import numpy as np
import numpy.typing as npt

from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.correlated import events
from dp_accounting_ext.correlated import readings
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import progress as progress_of
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

__all__ = [
    "BALLS_IN_BINS",
    "CYCLIC_POISSON",
    "FRESH_WINDOWS",
    "MIN_SEP",
    "NO_AMPLIFICATION",
    "OPTIONS",
    "compare",
    "fresh_windows",
    "schemes",
]
__dir__ = __all__.copy

BALLS_IN_BINS = training_run.BALLS_IN_BINS
CYCLIC_POISSON = "cyclic Poisson"
NO_AMPLIFICATION = "no amplification"
FRESH_WINDOWS = "fresh windows"
MIN_SEP = "b-min-sep"

# What each scheme's bound assumes, and what violates the assumption.
BROKEN_BY: Mapping[str, str] = {
    BALLS_IN_BINS: "a bin that is drawn again, or known",
    FRESH_WINDOWS: "a window drawn once and used again, a step outside of the window, "
    "or draws that are known; a record's offset may be public",
    MIN_SEP: "batches that are cut to a size, a record that comes back earlier, or "
    "draws that are known",
    CYCLIC_POISSON: "draws that are known, or groups that depend on other records; a "
    "record's group may be public",
    NO_AMPLIFICATION: "a record that is in more batches",
}
# Names on the command line.
OPTIONS: Mapping[str, str] = {
    name.lower().replace(" ", "-"): name for name in BROKEN_BY
}

# The events of a scheme whose ε is bounded from below, and from above.
Events = tuple[stock.DpEvent, stock.DpEvent]


def compare(
    event: events.MatrixAllocationEvent,
    delta: float,
    progress: progress_of.Progress | None = None,
    *,
    sampling: str | None = None,
) -> comparison.Rows:
    """Returns ε of one strategy for each way of drawing its batches.

    Args:
        event: The run, with noise.
        delta: δ.
        progress: Called after each row with the number of rows that are done, and of
            all.
        sampling: One scheme, by its name or its key in `OPTIONS`; None for all schemes
            that the strategy can have.

    Raises:
        TypeError, ValueError: If a field of the event is not what it must be, or the
            scheme is none of those that the strategy can have.
    """
    of_names = schemes(event)
    if sampling is not None:
        name = OPTIONS.get(sampling, sampling)
        if name not in of_names:
            options = [key for key, scheme in OPTIONS.items() if scheme in of_names]
            raise ValueError(
                f"sampling must be one of {', '.join(options)} for this strategy. "
                f"Found {sampling!r}."
            )
        of_names = {name: of_names[name]}
    noise = fields.noise_multiplier(event.noise_multiplier)

    def bounds(brackets: Events) -> tuple[float, float]:
        of_lower, of_upper = (
            pld_accountant.PLDAccountant().compose(run).get_epsilon_bounds(delta)
            for run in brackets
        )
        return of_lower[0], of_upper[1]

    return comparison.Rows(
        comparison.timed(
            (name, "add or remove", 1, noise, delta), functools.partial(bounds, events)
        )
        for name, events in progress_of.counted(list(of_names.items()), progress)
    )


def schemes(event: events.MatrixAllocationEvent) -> dict[str, Events]:
    """Returns the runs of a strategy under each scheme, by the name of the scheme.

    The schemes are balls in bins, where records keep their bins, and bins that the
    adversary knows. If there are at most as many bands as bins, there are three more:
    fresh windows (for a Toeplitz strategy), b-min-sep sampling with a warm start, where
    b is the number of bands, and cyclic Poisson sampling, where the records are divided
    into as many groups as there are bands and the groups are sampled in turn.

    Args:
        event: The run, with noise.

    Returns:
        For each scheme two events: one that is dominated by a run with that sampling,
        and one that dominates it. Where the run is an event itself, they are the same.

    Raises:
        TypeError, ValueError: If a field of the event is not what it must be.

    Source:
        Choquette-Choo et al. 2023, https://arxiv.org/abs/2306.08153, Theorem 4, for
        cyclic Poisson sampling.
    """
    strategy, noise, schedule = readings.checked(event)
    bins, steps, bands = event.num_bins, schedule.num_steps, strategy.bands
    of_names: dict[str, Events] = {BALLS_IN_BINS: (event, event)}
    if bands <= bins:
        if strategy.is_toeplitz:
            windows = fresh_windows(strategy.array, noise, bands, steps, 1 / bins)
            of_names[FRESH_WINDOWS] = windows, windows
        stays_out = events.MinSepSamplingEvent(
            strategy.entries, noise, 1 / (bins - bands + 1), bands, steps
        )
        of_names[MIN_SEP] = stays_out, stays_out
        of_names[CYCLIC_POISSON] = _cyclic(strategy, noise, bins, steps)
    gram, error = strategy.gram(bins, steps // bins)
    longest = math.sqrt(gram.diagonal().max())
    of_names[NO_AMPLIFICATION] = (
        stock.GaussianDpEvent(noise / (longest * (1 - error))),
        stock.GaussianDpEvent(noise / (longest * (1 + error))),
    )
    return of_names


def fresh_windows(
    column: npt.ArrayLike,
    noise_multiplier: float,
    separation: int,
    num_steps: int,
    rate: float,
) -> events.WindowedAllocationEvent:
    """Returns the run with fresh windows of the best length, by public numbers alone.

    The run has as many cycles of L steps as fit. A record takes part in a cycle with
    the probability for which it has `rate` times `num_steps` steps on average. The
    chosen L has the least Rényi divergence of order 2, which is known in closed form.

    Args:
        column: The first column of the strategy, with at most `separation` entries
            that are not zero.
        noise_multiplier: The standard deviation σ of the noise, over the largest norm
            of a contribution.
        separation: The smallest distance between two steps of a record, b.
        num_steps: The number of steps of the run, n.
        rate: The share of all records that a batch has on average, in (0, 1].

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range, or
            if a record cannot take part as often.
    """
    apart = strategies.integer_up_to("separation", separation, strategies.MOST_APART)
    steps = strategies.integer_up_to("num_steps", num_steps)
    strategy = strategies.separated_column(column, apart)
    entries = strategy.array
    noise = fields.noise_multiplier(noise_multiplier)
    share = fields.sampling_probability(rate)
    limit, fewest = steps // apart, max(math.ceil(share * steps - 1e-9), 1)
    if fewest > limit:
        raise ValueError(
            f"rate must be at most {limit / steps:g} for steps {apart} apart. Found "
            f"{rate}."
        )
    products, _ = strategy.by_distance(entries.size)
    products /= max(noise, 1e-3) ** 2
    grown = np.expm1(np.minimum(products, floats.LARGEST_EXPONENT / 2))
    windows = {
        cycles: steps // cycles - apart + 1 for cycles in range(fewest, limit + 1)
    }

    def cost(cycles: int) -> float:
        near = grown[: windows[cycles]]
        pairs = (windows[cycles] - np.arange(near.size)) * near
        mean = float(2 * pairs.sum() - pairs[0]) / windows[cycles] ** 2
        return cycles * math.log1p((share * steps / cycles) ** 2 * mean)

    short = [number for number in windows if windows[number] <= strategies.MOST_BINS]
    cycles = min(short or [limit], key=cost)
    probability = min(share * steps / cycles, 1.0)
    return events.WindowedAllocationEvent(
        tuple(entries.tolist()), noise, windows[cycles], apart, cycles, probability
    )


def _cyclic(
    strategy: strategies.Strategy, noise: float, bins: int, steps: int
) -> Events:
    """Returns a lower and an upper bound on a run with cyclic Poisson sampling.

    A record is sampled in the steps of its group. The columns of these steps have
    disjoint supports, so that the run is a composition of sampled Gaussians. The lower
    bound has the least norm of the first group's columns, without an incomplete last
    cycle; the upper bound has the largest norm of all columns.
    """
    bands, error = strategy.bands, strategies.product_error(steps)
    squares = sum(strategy.diagonal(band, steps) ** 2 for band in range(bands))
    norms = np.sqrt(squares)

    def sampled(norm: float, count: int) -> stock.DpEvent:
        step = stock.GaussianDpEvent(noise / norm)
        sample = stock.PoissonSampledDpEvent(bands / bins, step)
        return stock.SelfComposedDpEvent(sample, count)

    shortest = float(norms[::bands][: steps // bands].min()) * (1 - error)
    longest = float(norms.max()) * (1 + error)
    return sampled(shortest, steps // bands), sampled(longest, math.ceil(steps / bands))
