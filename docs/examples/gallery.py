"""Draws pictures of the gallery: trade-off curves, and noise for a target.

python docs/examples/gallery.py --folder docs
"""

import argparse
from collections.abc import Sequence
import pathlib

import numpy as np

from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import drawing
from dp_accounting_ext.studies import training_run

RUN = training_run.TrainingRun(
    dataset_size=60_000, batch_size=600, epochs=10, noise_multiplier=1.0, delta=1e-6
)
WORDS = "60,000 records in batches of 600, 10 epochs"
LOOKS = {
    training_run.RANDOM_ALLOCATION: drawing.Look(
        drawing.Colour.BLUE, kind=drawing.Kind.BROAD
    ),
    training_run.POISSON_SAMPLING: drawing.POISSON,
    training_run.NO_AMPLIFICATION: drawing.PLAIN,
}


def trade_off(points: int) -> drawing.Picture:
    """Returns what an attacker's tests can reach, for each way of drawing batches."""
    rates = np.geomspace(1e-6, 0.5, points)
    curves = []
    for scheme, look in LOOKS.items():
        accountant = training_run.accountant(scheme, RUN)
        least, most = accountant.get_true_positive_rate_bounds(rates)
        curves.append(drawing.Curve(scheme, list(rates), list(most), list(least), look))
    panel = drawing.Panel(
        "", "false positive rate", "true positive rate", curves, True, True
    )
    title = f"What an attacker sees: {WORDS}, noise multiplier 1"
    return drawing.Picture(title, [panel], "Certified bands.")


def noise_for_a_target(points: int) -> drawing.Picture:
    """Returns the least noise for ε, for each way of drawing batches."""
    epsilons = [float(each) for each in np.geomspace(0.5, 8.0, points // 3 + 2)]
    found = [calibration.calibrate(RUN, epsilon) for epsilon in epsilons]
    curves = []
    for number, (scheme, look) in enumerate(LOOKS.items()):
        noises = [float(rows[number].noise_multiplier or np.nan) for rows in found]
        curves.append(drawing.Curve(scheme, epsilons, noises, look=look))
    panel = drawing.Panel("", "ε (nats)", "noise multiplier", curves, True, True)
    title = f"Noise for ε at δ = 1e-6: {WORDS}"
    return drawing.Picture(title, [panel], "Certified to be enough.")


PICTURES = {"trade_off": trade_off, "calibration": noise_for_a_target}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description="Pictures of the gallery.")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--points", type=int, default=25, help="of a curve")
    options = parser.parse_args(arguments)
    for name, picture in PICTURES.items():
        path = options.folder / f"{name}.png"
        drawing.draw(picture(options.points), path)
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
