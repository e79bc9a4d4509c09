"""The mean of many bits under privacy: random allocation against Poisson sampling.

    python docs/examples/mean_estimation.py [--output errors.png]

Bits are summed in t batches with Gaussian noise, as in one epoch of DP-SGD. For the
same ε the two ways of drawing batches need about the same noise; but of Poisson's
batches a bit is in none, or in several, and that is an error of its own. Prints the
least certain noise multiplier of each, and square errors of the estimate, expected and
simulated.

Source: https://arxiv.org/abs/2602.17284, section 5, Figure 4.
"""

import argparse
from collections.abc import Sequence
import pathlib

from dp_accounting_ext.papers import allocation_figures
from dp_accounting_ext.papers import mean_estimation
from dp_accounting_ext.studies import drawing


def table(task: mean_estimation.Task, found: Sequence[mean_estimation.Errors]) -> str:
    """Returns lines of plain text: a scheme a block, a number of values a line."""
    lines = [
        f"ε = {task.epsilon:g}, δ = {task.delta:g}, d = {task.dimension}, "
        f"t = {task.num_steps}, p = {task.mean:g}"
    ]
    for errors in found:
        lines.append(f"  {errors.scheme.value}: noise {errors.noise_multiplier:.5f}")
        lines.append(f"{'n':>12}{'expected':>14}{'simulated':>14}")
        for size, expected, simulated in zip(
            errors.sample_sizes, errors.expected, errors.simulated, strict=True
        ):
            lines.append(f"{size:>12,}{expected:>14.4e}{simulated:>14.4e}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description="The mean of many bits, privately.")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-10)
    parser.add_argument("--dimension", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=1000, help="simulated estimates")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000]
    )
    parser.add_argument("--output", type=pathlib.Path, help="picture, .png or .svg")
    options = parser.parse_args(arguments)
    task = mean_estimation.Task(
        epsilon=options.epsilon,
        dimension=options.dimension,
        delta=options.delta,
        num_steps=options.steps,
    )
    if options.output:
        drawing.check_output(options.output)
    found = mean_estimation.compare(task, options.sizes, runs=options.runs)
    print(table(task, found))
    if options.output:
        picture = allocation_figures.mean_picture([(task, found)], runs=options.runs)
        drawing.draw(picture, options.output)


if __name__ == "__main__":
    main()
