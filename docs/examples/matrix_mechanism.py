"""Correlated noise with balls-in-bins batches: which number of bands is worth it.

    python docs/examples/matrix_mechanism.py [--picture bands.png] [--jax-privacy]

A banded strategy has a smaller error at equal noise, but amplifies less. For each
number of bands: certified ε with balls-in-bins batches, cyclic Poisson sampling and
without amplification, and the root mean squared error of a prefix sum. With
--jax-privacy, the strategy of an example of jax_privacy is accounted for by its Monte
Carlo as well, whose number is in our bracket.
"""

import argparse
import dataclasses

import dp_accounting
import numpy as np

import dp_accounting_ext as ext

BINS, EPOCHS, NOISE, DELTA = 128, 10, 4.0, 1e-5
BANDS = (1, 2, 4, 8, 16, 32, 64)


@dataclasses.dataclass(frozen=True)
class Row:
    """ε for so many bands, and the error of a prefix sum over that of a gradient."""

    bands: int
    bins: tuple[float, float]
    poisson: float
    none: float
    error: float


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


def upper(event: dp_accounting.DpEvent) -> float:
    """A certified upper bound on ε."""
    return ext.PLDAccountant().compose(event).get_epsilon(DELTA)


def row_of(bands: int, bins: int = BINS, epochs: int = EPOCHS) -> Row:
    """All of one number of bands."""
    column = column_of(bands)
    run = ext.MatrixAllocationEvent(column, NOISE, bins, epochs)
    gaussian = dp_accounting.GaussianDpEvent(NOISE)
    # Each record may be sampled in the steps of its group, one of as many as bands.
    cyclic = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(bands / bins, gaussian),
        bins * epochs // bands,
    )
    # Each record takes part once an epoch: its steps are bins apart.
    known = dp_accounting.SelfComposedDpEvent(gaussian, epochs)
    return Row(
        bands,
        ext.PLDAccountant().compose(run).get_epsilon_bounds(DELTA),
        upper(cyclic),
        upper(known),
        error_of(column, bins * epochs, NOISE),
    )


def draw(rows: list[Row], path: str) -> None:
    """ε against bands, and the error beside it."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6))
    bands = [row.bands for row in rows]
    lower, high = np.array([row.bins for row in rows]).T
    left.fill_between(bands, lower, high, alpha=0.35, color="C0", label="balls in bins")
    left.plot(bands, high, color="C0")
    left.plot(bands, [row.poisson for row in rows], "C1--", label="cyclic Poisson")
    left.plot(bands, [row.none for row in rows], "C7:", label="no amplification")
    left.set_ylabel(f"certified ε at δ = {DELTA:g}")
    left.set_ylim(0)
    left.legend()
    right.plot(bands, [row.error for row in rows], "C3o-")
    right.set_ylabel("error of a prefix sum, over the clip")
    right.set_ylim(0)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(bands, [str(count) for count in bands])
        axes.set_xlabel("bands")
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{BINS} bins, {EPOCHS} epochs, noise multiplier {NOISE:g}")
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
    parser.add_argument("--picture")
    parser.add_argument("--jax-privacy", action="store_true")
    options = parser.parse_args()
    if options.jax_privacy:
        theirs, ours = beside_jax_privacy()
        print(
            f"δ at ε = 1: Monte Carlo {theirs:.5f}, certified {ours[0]:.5f} to "
            f"{ours[1]:.5f}"
        )
        return
    print("bands   balls in bins   cyclic Poisson   no amplification   error")
    rows = []
    for bands in BANDS:
        row = row_of(bands)
        rows.append(row)
        bracket = f"{row.bins[0]:.3f} to {row.bins[1]:.3f}"
        print(
            f"{bands:>5}  {bracket:>15}{row.poisson:>16.3f}{row.none:>19.3f}"
            f"{row.error:>9.2f}",
            flush=True,
        )
    if options.picture:
        draw(rows, options.picture)


if __name__ == "__main__":
    main()
