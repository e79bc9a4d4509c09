"""DP-SGD with balls-and-bins batches, accounted for by what was drawn.

Logistic regression on made-up data, in NumPy alone. In every epoch each record draws
k of the t steps, uniformly and independently of all others, and takes part in these
and no others. A step sums the clipped gradients of its batch and adds Gaussian noise.
One epoch is one `RandomAllocationEvent`; compare `draw_batches` with it.

    python docs/examples/dp_sgd_balls_and_bins.py --seed 1

The generator is seeded so that a run can be repeated. Noise for real data must come
from a source that nobody can foretell.
"""

import argparse
from collections.abc import Sequence
import dataclasses

import dp_accounting
import numpy as np
import numpy.typing as npt

import dp_accounting_ext as ext

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Settings:
    """A training run.

    Attributes:
        num_records: Number of records, n.
        num_features: Features of a record, a constant one among them.
        num_steps: Steps of an epoch, t.
        num_selected: Steps of an epoch in which a record takes part, k.
        num_epochs: Number of epochs.
        clip: Largest norm of a record's gradient.
        noise_multiplier: Standard deviation of the noise over the clip.
        learning_rate: Step size, for gradients averaged over the expected batch.
        delta: δ at which ε is printed.
    """

    num_records: int = 4000
    num_features: int = 10
    num_steps: int = 100
    num_selected: int = 1
    num_epochs: int = 5
    clip: float = 1.0
    noise_multiplier: float = 1.0
    learning_rate: float = 1.0
    delta: float = 1e-6


@dataclasses.dataclass(frozen=True)
class Run:
    """What a training run did.

    Attributes:
        weights: (d,) the model.
        batches: For every epoch (t, n), whether a record was in a step's batch.
        noises: Standard deviation of the noise of every step that ran.
    """

    weights: FloatArray
    batches: list[BoolArray]
    noises: list[float]


def make_data(
    settings: Settings, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Returns (n, d) features, and (n,) labels 0 or 1 that mostly follow a line."""
    features = rng.normal(size=(settings.num_records, settings.num_features))
    features[:, 0] = 1.0
    truth = rng.normal(size=settings.num_features)
    probabilities = 1 / (1 + np.exp(-3 * features @ truth))
    labels = (rng.random(settings.num_records) < probabilities).astype(np.float64)
    return features, labels


def draw_batches(settings: Settings, rng: np.random.Generator) -> BoolArray:
    """Returns (t, n) whether a record is in a batch: k of t steps for each record."""
    keys = rng.random((settings.num_steps, settings.num_records))
    chosen = np.argpartition(keys, settings.num_selected - 1, axis=0)
    batches = np.zeros(keys.shape, dtype=np.bool_)
    np.put_along_axis(batches, chosen[: settings.num_selected], True, axis=0)
    return batches


def clipped_sum(
    weights: FloatArray, features: FloatArray, labels: FloatArray, clip: float
) -> FloatArray:
    """Returns (d,) the sum of gradients, each of norm `clip` at most."""
    predictions = 1 / (1 + np.exp(-features @ weights))
    gradients = (predictions - labels)[:, np.newaxis] * features
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    clipped = gradients / np.maximum(norms / clip, 1.0)
    return np.asarray(clipped.sum(axis=0))


def train(
    settings: Settings,
    features: FloatArray,
    labels: FloatArray,
    rng: np.random.Generator,
) -> Run:
    """Returns the run of noisy gradient descent."""
    weights = np.zeros(settings.num_features)
    expected = settings.num_records * settings.num_selected / settings.num_steps
    run = Run(weights, [], [])
    for _ in range(settings.num_epochs):
        batches = draw_batches(settings, rng)
        run.batches.append(batches)
        for batch in batches:
            total = clipped_sum(weights, features[batch], labels[batch], settings.clip)
            # The same for any batch, an empty one too: its size is secret.
            deviation = settings.noise_multiplier * settings.clip
            total += rng.normal(scale=deviation, size=weights.size)
            run.noises.append(deviation)
            weights -= settings.learning_rate / expected * total
    return run


def event_of(settings: Settings) -> dp_accounting.DpEvent:
    """Returns the event of the whole run: one allocation for each epoch."""
    step = dp_accounting.GaussianDpEvent(settings.noise_multiplier)
    epoch = ext.RandomAllocationEvent(step, settings.num_selected, settings.num_steps)
    return dp_accounting.SelfComposedDpEvent(epoch, settings.num_epochs)


def compared_events(settings: Settings) -> dict[str, dp_accounting.DpEvent]:
    """Returns the run's event, and those of other ways to draw as many records."""
    step = dp_accounting.GaussianDpEvent(settings.noise_multiplier)
    rate = settings.num_selected / settings.num_steps
    sampled = dp_accounting.PoissonSampledDpEvent(rate, step)
    steps = settings.num_steps * settings.num_epochs
    known = settings.num_selected * settings.num_epochs
    return {
        "balls and bins (this run)": event_of(settings),
        "Poisson sampling": dp_accounting.SelfComposedDpEvent(sampled, steps),
        "no amplification": dp_accounting.SelfComposedDpEvent(step, known),
    }


def epsilon_bounds(event: dp_accounting.DpEvent, delta: float) -> tuple[float, float]:
    """Returns the certified bounds on ε at δ."""
    return ext.PLDAccountant().compose(event).get_epsilon_bounds(delta)


def accuracy(weights: FloatArray, features: FloatArray, labels: FloatArray) -> float:
    """Returns the share of labels that the model gets right."""
    return float(np.mean((features @ weights > 0) == (labels > 0.5)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, and prints accuracy and ε."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise-multiplier", type=float, default=1.0)
    parser.add_argument("--selected", type=int, default=1)
    options = parser.parse_args(arguments)
    settings = Settings(
        noise_multiplier=options.noise_multiplier, num_selected=options.selected
    )
    rng = np.random.default_rng(options.seed)
    features, labels = make_data(settings, rng)
    run = train(settings, features, labels, rng)
    print(f"accuracy {accuracy(run.weights, features, labels):.3f}")
    print(f"ε at δ = {settings.delta:g}")
    for name, event in compared_events(settings).items():
        lower, upper = epsilon_bounds(event, settings.delta)
        print(f"{name:<26} [{lower:.6f}, {upper:.6f}]")


if __name__ == "__main__":
    main()
