"""Correlated noise: which way of drawing batches, and which number of bands.

    python docs/examples/matrix_mechanism.py [--bands 16] [--picture bands.png]
    python docs/examples/matrix_mechanism.py --jax-privacy

A banded strategy has a smaller error at equal noise, but amplifies less. For each
number of bands: certified ε of every way of drawing batches in which a record is in one
batch of an epoch on average, and the root mean squared error of a prefix sum. It shows
one number of bands, in about 20 CPU seconds; the picture, of all of them, takes a few
minutes. Beside them are loaders that draw such batches. With --jax-privacy, the
strategy of an example of jax_privacy is accounted for by its Monte Carlo as well, whose
number is in our bracket.
"""

import argparse
from collections.abc import Iterator
import dataclasses
import time

import numpy as np

import dp_accounting_ext as ext
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import strategy_comparison

BINS, EPOCHS, NOISE, DELTA = 128, 10, 4.0, 1e-5
BANDS = (1, 2, 4, 8, 16, 32, 64)
# Colours and dashes as of the ways of drawing batches without correlated noise.
STYLES = {
    "balls in bins": curves.STYLES["random allocation"],
    "fresh windows": {"color": "#CC79A7", "linestyle": (0, (6, 1, 1, 1))},
    "b-min-sep": {"color": "#009E73", "linestyle": "-."},
    "cyclic Poisson": curves.STYLES["Poisson sampling"],
    "no amplification": curves.STYLES["no amplification"],
}


@dataclasses.dataclass(frozen=True)
class Row:
    """ε for `bands` bands, and the error of a prefix sum over that of a gradient."""

    bands: int
    brackets: dict[str, tuple[float, float]]
    error: float

    @property
    def bins(self) -> tuple[float, float]:
        """Both ends of ε of balls in bins."""
        return self.brackets["balls in bins"]

    @property
    def poisson(self) -> float:
        """The upper end of cyclic Poisson sampling."""
        return self.brackets["cyclic Poisson"][1]

    @property
    def none(self) -> float:
        """The upper end without amplification."""
        return self.brackets["no amplification"][1]


def column_of(bands: int) -> np.ndarray:
    """The square root of the matrix of all prefix sums, cut, and of norm one."""
    steps = np.arange(1, bands)
    column = np.append(1.0, np.cumprod((2 * steps - 1) / (2 * steps)))
    return column / np.linalg.norm(column)


def error_of(column: np.ndarray, steps: int, noise: float) -> float:
    """The root mean squared error of all prefix sums: of A C⁻¹ z, by row."""
    inverse = np.zeros(steps)
    inverse[0] = 1 / column[0]
    for step in range(1, steps):
        width = min(step, column.size - 1)
        past = inverse[step - width : step][::-1]
        inverse[step] = -(column[1 : width + 1] @ past) / column[0]
    # Row t of A C⁻¹ holds the first t + 1 prefix sums of the inverse's column.
    variances = np.cumsum(np.cumsum(inverse) ** 2)
    return float(noise * np.sqrt(variances.mean()))


def row_of(bands: int, bins: int = BINS, epochs: int = EPOCHS) -> Row:
    """All of one number of bands."""
    column = column_of(bands)
    run = ext.MatrixAllocationEvent(column, NOISE, bins, epochs)
    rows = strategy_comparison.compare(run, DELTA)
    brackets = {row.sampling: (row.epsilon_lower, row.epsilon_upper) for row in rows}
    return Row(bands, brackets, error_of(column, bins * epochs, NOISE))


def fresh_window_batches(
    event: ext.WindowedAllocationEvent, num_records: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """The records of every batch, where each draws one step of each of its windows.

    A record's offset is drawn once and may be public; its steps are secret.
    """
    length = event.window + event.separation - 1
    num_steps = length * event.num_cycles
    offsets = rng.integers(length, size=num_records)
    batches: list[list[np.ndarray]] = [[] for _ in range(num_steps)]
    for cycle in range(event.num_cycles):
        takes_part = rng.random(num_records) < event.sampling_probability
        steps = offsets + cycle * length + rng.integers(event.window, size=num_records)
        steps = np.where(takes_part, steps % num_steps, -1)
        for step in range(num_steps):
            batches[step].append(np.flatnonzero(steps == step))
    for batch in batches:
        yield np.concatenate(batch)


def min_sep_batches(
    event: ext.MinSepSamplingEvent, num_records: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """The records of every batch, each of which then stays out for b − 1 steps."""
    probability, apart = event.sampling_probability, event.separation
    ready = np.zeros(num_records, dtype=int)
    if event.warm_start:
        weights = np.append(1.0, np.full(apart - 1, probability))
        ready = rng.choice(apart, size=num_records, p=weights / weights.sum())
    for step in range(event.num_steps):
        drawn = rng.random(num_records) < probability
        batch = np.flatnonzero(drawn & (ready <= step))
        ready[batch] = step + apart
        yield batch


def draw(rows: list[Row], path: str) -> None:
    """Certified ε against bands, and the error beside it."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6))
    bands = [row.bands for row in rows]
    for name, style in STYLES.items():
        known = [(row.bands, *row.brackets[name]) for row in rows]
        places, lower, upper = np.array(known).T
        left.plot(places, upper, label=name, **style)
        shade = {"alpha": 0.2, "color": style["color"], "linewidth": 0}
        left.fill_between(places, lower, upper, **shade)
    left.set_ylabel(f"certified ε at δ = {DELTA:g}")
    left.set_ylim(0)
    left.legend(fontsize="small")
    right.plot(bands, [row.error for row in rows], "ko-")
    right.set_ylabel("error of a prefix sum, over the clip")
    right.set_ylim(0)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(bands, [str(count) for count in bands])
        axes.set_xlabel("bands")
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{BINS} steps an epoch, {EPOCHS} epochs, noise multiplier {NOISE:g}"
    )
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def beside_jax_privacy(samples: int = 20_000) -> tuple[float, tuple[float, float]]:
    """δ by jax_privacy's Monte Carlo at ε = 1, and our bracket of it."""
    import jax
    from jax_privacy import batch_selection
    from jax_privacy.experimental.monte_carlo import delta_calculation
    from jax_privacy.experimental.monte_carlo import sample_generation

    jax.config.update("jax_enable_x64", True)
    column, noise = np.array([1, 1 / 2, 1 / 4, 1 / 8]), 3.343731
    column /= np.linalg.norm(column)
    run = ext.MatrixAllocationEvent(column, noise, num_bins=10, num_epochs=10)
    drawn = sample_generation.get_privacy_loss_sample(
        strategy=batch_selection.BallsInBinsSampling(cycle_length=10, iterations=100),
        noise_multiplier=noise,
        c_col=column,
        num_samples=samples,
        seed=0,
    )[0]
    theirs = delta_calculation.delta_from_epsilon_and_samples(1.0, drawn)
    ours = ext.PLDAccountant().compose(run).get_delta_bounds(1.0)
    return float(theirs), ours


def main() -> None:
    """Prints the table, and draws it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bands", type=int, default=16)
    parser.add_argument("--picture")
    parser.add_argument("--jax-privacy", action="store_true")
    options = parser.parse_args()
    began = time.process_time()
    if options.jax_privacy:
        theirs, ours = beside_jax_privacy()
        print(
            f"δ at ε = 1: Monte Carlo {theirs:.5f}, certified {ours[0]:.5f} to "
            f"{ours[1]:.5f}"
        )
        return
    rows = []
    for bands in BANDS if options.picture else (options.bands,):
        row = row_of(bands)
        rows.append(row)
        print(f"{bands} bands, error of a prefix sum {row.error:.1f}")
        for name, (lower, upper) in row.brackets.items():
            print(f"  {name:<17}{lower:.3f} to {upper:.3f}", flush=True)
    if options.picture:
        draw(rows, options.picture)
    print(f"{time.process_time() - began:.0f} CPU seconds")


if __name__ == "__main__":
    main()
