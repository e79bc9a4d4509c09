"""Certified accountants for Opacus, for Poisson and for balls-and-bins loaders.

    from opacus_accountant import BallsAndBinsSampler, register

    register()
    engine = PrivacyEngine(accountant="certified")  # poisson_sampling=True
    engine = PrivacyEngine(accountant="balls and bins")  # poisson_sampling=False

`python docs/examples/opacus_accountant.py` trains a small model either way. It was
run with Opacus 1.6.0 and PyTorch 2.15.0.
"""

from collections.abc import Iterator
import itertools
from typing import Any

import dp_accounting
from opacus import accountants
from opacus.accountants import registry

import dp_accounting_ext as ext

Run = tuple[float, float, int]  # Noise multiplier, sampling rate, steps.


class CertifiedAccountant(accountants.IAccountant):
    """Steps whose batches are Poisson samples, as Opacus draws them by default."""

    def __init__(self) -> None:
        self.history: list[Run] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one step."""
        steps = 0
        if self.history and self.history[-1][:2] == (noise_multiplier, sample_rate):
            steps = self.history.pop()[2]
        self.history.append((noise_multiplier, sample_rate, steps + 1))

    def event(self) -> dp_accounting.DpEvent:
        """Returns what ran, as an event."""
        events = [
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(
                    rate, dp_accounting.GaussianDpEvent(noise)
                ),
                steps,
            )
            for noise, rate, steps in self.history
        ]
        return dp_accounting.ComposedDpEvent(events)

    def get_epsilon(self, delta: float, **_: Any) -> float:
        """Returns ε, never below the truth."""
        return ext.PLDAccountant().compose(self.event()).get_epsilon(delta)

    def get_epsilon_bounds(self, delta: float) -> tuple[float, float]:
        """Returns lower ≤ ε ≤ upper."""
        return ext.PLDAccountant().compose(self.event()).get_epsilon_bounds(delta)

    def __len__(self) -> int:
        return len(self.history)

    @classmethod
    def mechanism(cls) -> str:
        """Returns the name in the registry, and in checkpoints."""
        return "certified"


class BallsAndBinsAccountant(CertifiedAccountant):
    """Steps of epochs in each of which every record joins one batch.

    Each record draws its batch uniformly, on its own and anew in every epoch, as
    `BallsAndBinsSampler` does. An epoch has 1 / sample_rate steps; the last may be
    unfinished. Noise may change between steps.
    """

    def event(self) -> dp_accounting.DpEvent:
        """Returns what ran, as an event: an allocation for each epoch."""
        epochs: list[tuple[int, list[float]]] = []
        for noise, rate, steps in self.history:
            num_steps = round(1 / rate)
            if abs(rate * num_steps - 1) > 1e-9:
                raise ValueError(f"sample_rate must be 1 / t. Found {rate}.")
            for _ in range(steps):
                if not epochs or len(epochs[-1][1]) == epochs[-1][0]:
                    epochs.append((num_steps, []))
                if epochs[-1][0] != num_steps:
                    raise ValueError("sample_rate must be one for a whole epoch.")
                epochs[-1][1].append(noise)
        return dp_accounting.ComposedDpEvent(
            [
                dp_accounting.SelfComposedDpEvent(epoch, len(list(equal)))
                for epoch, equal in itertools.groupby(_epoch(*each) for each in epochs)
            ]
        )

    @classmethod
    def mechanism(cls) -> str:
        """Returns the name in the registry, and in checkpoints."""
        return "balls and bins"


def _epoch(num_steps: int, noises: list[float]) -> dp_accounting.DpEvent:
    """Returns an epoch of which the first steps ran, with noise that may differ."""
    runs = [(noise, len(list(equal))) for noise, equal in itertools.groupby(noises)]
    events = [dp_accounting.GaussianDpEvent(noise) for noise, _ in runs]
    if runs == [(noises[0], num_steps)]:
        return ext.RandomAllocationEvent(events[0], 1, num_steps)
    return ext.ScheduledAllocationEvent(events, [n for _, n in runs], num_steps)


class BallsAndBinsSampler:
    """A `batch_sampler` of a DataLoader: every record in one batch of each epoch.

    Args:
        num_records: Length of the dataset.
        num_steps: Batches of an epoch; batches differ in size and may be empty.
        generator: A `torch.Generator`; one that cannot be foretold for real data.
    """

    def __init__(self, num_records: int, num_steps: int, generator: Any = None) -> None:
        self.num_records, self.num_steps = num_records, num_steps
        self.generator = generator

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[list[int]]:
        import torch

        size = (self.num_records,)
        bins = torch.randint(self.num_steps, size, generator=self.generator)
        for step in range(self.num_steps):
            yield torch.nonzero(bins == step).flatten().tolist()


def register() -> None:
    """Makes both known to `PrivacyEngine(accountant=…)` by their names."""
    for accountant in (CertifiedAccountant, BallsAndBinsAccountant):
        registry.register_accountant(accountant.mechanism(), accountant, force=True)


def main() -> None:
    """Trains a linear model both ways, and prints ε."""
    from opacus import PrivacyEngine
    from opacus.data_loader import wrap_collate_with_empty
    import torch
    from torch.utils import data

    register()
    records = data.TensorDataset(torch.randn(1000, 5), torch.randint(2, (1000,)))
    for name in ("certified", "balls and bins"):
        poisson = name == "certified"
        if poisson:
            loader = data.DataLoader(records, batch_size=50)
        else:
            loader = data.DataLoader(
                records,
                batch_sampler=BallsAndBinsSampler(len(records), 20),
                collate_fn=wrap_collate_with_empty(
                    collate_fn=data.default_collate,
                    sample_empty_shapes=[(0, 5), (0,)],
                    dtypes=[torch.float32, torch.int64],
                ),
            )
        model = torch.nn.Linear(5, 2)
        engine = PrivacyEngine(accountant=name)
        model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=loader,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=poisson,
        )
        for _ in range(3):
            for features, labels in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(features), labels).backward()
                optimizer.step()
        lower, upper = engine.accountant.get_epsilon_bounds(1e-5)
        print(f"{name}: ε at δ = 1e-5 is in [{lower:.5f}, {upper:.5f}]")


if __name__ == "__main__":
    main()
