"""Draws pictures of the start page: trade-off curves, and noise for a target.

python docs/examples/gallery.py --folder docs
"""

import argparse
from collections.abc import Sequence
import pathlib

from matplotlib import figure
from matplotlib import ticker
import numpy as np

from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import training_run

RUN = training_run.TrainingRun(
    dataset_size=60_000, batch_size=600, epochs=10, noise_multiplier=1.0, delta=1e-6
)
WORDS = "60,000 records in batches of 600, 10 epochs"


def trade_off(found: Sequence[curves.Curve]) -> figure.Figure:
    """Returns what an attacker's tests can reach, for each way of drawing batches."""
    whole = figure.Figure(figsize=(8.0, 4.8), layout="constrained")
    title = f"What an attacker sees: {WORDS}, noise multiplier 1"
    curves.plot(found, whole.add_subplot(), title=title)
    return whole


def noises(points: int) -> dict[float, comparison.Rows]:
    """Returns the least noise for each ε, for each way of drawing batches."""
    epsilons = [float(each) for each in np.geomspace(0.5, 8.0, points)]
    return {epsilon: calibration.calibrate(RUN, epsilon) for epsilon in epsilons}


def noise_for_a_target(found: dict[float, comparison.Rows]) -> figure.Figure:
    """Returns the picture of what `noises` found."""
    epsilons = list(found)
    whole = figure.Figure(figsize=(8.0, 4.2), layout="constrained")
    axes = whole.add_subplot()
    for rows in zip(*found.values(), strict=True):
        noises = [row.noise_multiplier for row in rows]
        name = rows[0].sampling
        axes.plot(epsilons, noises, **curves.STYLES[name], lw=1.2, label=name)
    axes.set(xscale="log", yscale="log", xlabel="ε (nats)", ylabel="noise multiplier")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(ticker.NullFormatter())
    axes.set_title(f"Noise for ε at δ = 1e-6: {WORDS}", fontsize="medium", loc="left")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False)
    return whole


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description="Pictures of the start page.")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--points", type=int, default=61, help="of a curve")
    options = parser.parse_args(arguments)
    pictures = {
        "trade_off": trade_off(curves.trade_offs(RUN, num_points=options.points)),
        "calibration": noise_for_a_target(noises(options.points // 3 + 2)),
    }
    for name, picture in pictures.items():
        path = options.folder / f"{name}.png"
        picture.savefig(path, dpi=150)
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
