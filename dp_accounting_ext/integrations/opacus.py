"""Certified accountants for Opacus, known to it once this module is imported.

    from dp_accounting_ext.integrations import opacus as certified

    engine = PrivacyEngine(accountant="certified")  # Poisson samples, its default.

    engine = PrivacyEngine(accountant="balls_and_bins")
    loader = certified.balls_and_bins(loader, engine.accountant)
    engine.make_private(…, data_loader=loader, poisson_sampling=False)

Both work in Opacus' `get_noise_multiplier` and in its checkpoints. What they certify is
what ran: clipping, noise and batches must be those that Opacus draws, or the sampler
here.
"""

import bisect
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import itertools
import math
from typing import Any

from dp_accounting import dp_event as stock
from opacus import accountants
from opacus.accountants import registry
from opacus.data_loader import wrap_collate_with_empty
import torch
from torch.utils import data

from dp_accounting_ext import dp_event
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.validation import fields

# Tuning: how far a rate may be from one over a whole number. A float's is nearer.
_WHOLE = 1e-9


class CertifiedAccountant(accountants.IAccountant):  # type: ignore[misc]
    """Opacus' accountant of steps whose batches are Poisson samples.

    Guarantees:
        `get_epsilon` is never below the truth, where one record is added or removed.
    """

    def __init__(self) -> None:
        # (noise multiplier, sampling rate, steps), as Opacus' own; it may replace it.
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one step.

        Args:
            noise_multiplier: Standard deviation of the noise over the clip.
            sample_rate: The chance that a record is in the batch.

        Raises:
            TypeError, ValueError: If either is not what its name says.
        """
        noise = fields.noise_multiplier(noise_multiplier)
        rate = fields.sampling_probability(sample_rate)
        steps = 0
        if self.history and tuple(self.history[-1][:2]) == (noise, rate):
            steps = self.history.pop()[2]
        self.history.append((noise, rate, steps + 1))

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Returns what Opacus' optimizer calls before each step.

        Raises:
            ValueError: By the hook, if a step sums several Poisson samples: together
                they are none, as a record may be in two of them.
        """

        def hook(optimizer: Any) -> None:
            batches = optimizer.accumulated_iterations
            if batches != 1:
                raise ValueError(
                    f"accumulated_iterations must be 1 for Poisson samples. Found "
                    f"{batches}: use a loader of larger batches, with Opacus' "
                    f"BatchMemoryManager where memory is short."
                )
            self.step(
                noise_multiplier=optimizer.noise_multiplier, sample_rate=sample_rate
            )

        return hook

    def event(self) -> stock.DpEvent:
        """Returns what ran, as an event."""
        return stock.ComposedDpEvent(
            [
                stock.SelfComposedDpEvent(
                    stock.PoissonSampledDpEvent(rate, stock.GaussianDpEvent(noise)),
                    steps,
                )
                for noise, rate, steps in self.history
            ]
        )

    def pld_accountant(self) -> pld_accountant.PLDAccountant:
        """Returns an accountant that has composed what ran: for risks, and curves."""
        return pld_accountant.PLDAccountant().compose(self.event())

    def get_epsilon(self, delta: float, **_: Any) -> float:
        """Returns ε at δ, in nats, never below the truth.

        Args:
            delta: δ.
            **_: What Opacus passes to its own accountants, such as `eps_error`. The
                bound is as tight as it can be without.
        """
        return self.pld_accountant().get_epsilon(delta)

    def get_epsilon_bounds(self, delta: float) -> tuple[float, float]:
        """Returns certified bounds on ε at δ: lower ≤ the true ε ≤ upper, in nats."""
        return self.pld_accountant().get_epsilon_bounds(delta)

    def __len__(self) -> int:
        """Returns the number of steps."""
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """Returns the name in Opacus' registry, and in checkpoints."""
        return "certified"

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes what `state_dict` gave, also after it was JSON.

        Raises:
            ValueError: If it is that of another accountant, or a step has no meaning;
                then nothing changes.
        """
        before = self.history
        try:
            super().load_state_dict(state_dict)
            self.history = [
                (
                    fields.noise_multiplier(noise),
                    fields.sampling_probability(rate),
                    fields.positive_integer("steps", steps),
                )
                for noise, rate, steps in self.history
            ]
        except (TypeError, ValueError):
            self.history = before
            raise


class BallsAndBinsAccountant(CertifiedAccountant):
    """Opacus' accountant of epochs in each of which every record joins one batch.

    Each record draws its batch uniformly, on its own and anew in every epoch: as
    `balls_and_bins` makes a loader do. An epoch has 1 / sample_rate steps, fewer where
    it was ended; noise may change between steps. Where n batches are accumulated in a
    step, Opacus passes n times the rate, and an epoch has so many steps less.
    """

    def __init__(self) -> None:
        super().__init__()
        # Numbers of steps after which a draw began.
        self._begun: list[int] = []

    def begin_epoch(self) -> None:
        """Tells that records draw anew: an epoch that has not ended ends here."""
        steps = len(self)
        if steps and (not self._begun or self._begun[-1] < steps):
            self._begun.append(steps)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one step, as that of `CertifiedAccountant` does.

        Raises:
            TypeError, ValueError: If noise_multiplier is none, or sample_rate is not
                one over a number of steps.
        """
        _steps_of_epoch(sample_rate)
        super().step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Returns what Opacus' optimizer calls before each step."""
        # Batches of one draw share no record: their sum is a larger batch.
        hook: Callable[[Any], None] = accountants.IAccountant.get_optimizer_hook_fn(
            self, sample_rate
        )
        return hook

    def event(self) -> stock.DpEvent:
        """Returns what ran, as an event: an allocation for each epoch.

        Raises:
            ValueError: If a rate is not one over a number of steps, or changes before
                an epoch has ended.
        """
        return stock.ComposedDpEvent(
            [
                stock.SelfComposedDpEvent(epoch, len(list(equal)))
                for epoch, equal in itertools.groupby(
                    _epoch(num_steps, runs) for num_steps, runs in self._epochs()
                )
            ]
        )

    def _epochs(self) -> list[tuple[int, list[tuple[float, int]]]]:
        """Returns each epoch's steps, and the noise of those that ran."""
        epochs: list[tuple[int, list[tuple[float, int]]]] = []
        done = room = 0
        for noise, rate, steps in self.history:
            num_steps = _steps_of_epoch(rate)
            last = done + steps
            while done < last:
                following = bisect.bisect_right(self._begun, done)
                if not room or (following and self._begun[following - 1] == done):
                    epochs.append((num_steps, []))
                    room = num_steps
                if epochs[-1][0] != num_steps:
                    raise ValueError(
                        f"sample_rate must be the same for a whole epoch. Found "
                        f"1/{num_steps} after 1/{epochs[-1][0]}, of which {room} steps "
                        f"have not run: begin_epoch() tells that records draw anew."
                    )
                stops = [last, done + room, *self._begun[following : following + 1]]
                epochs[-1][1].append((noise, min(stops) - done))
                room -= min(stops) - done
                done = min(stops)
        return epochs

    @classmethod
    def mechanism(cls) -> str:
        """Returns the name in Opacus' registry, and in checkpoints."""
        return "balls_and_bins"

    def state_dict(self, destination: Any = None) -> Any:
        """Returns what a checkpoint keeps: the history, and where draws began."""
        found = super().state_dict(destination)
        found["begun"] = list(self._begun)
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes what `state_dict` gave; a loader that is resumed draws anew.

        Raises:
            ValueError: If it is that of another accountant, or a step has no meaning;
                then nothing changes.
        """
        begun = [
            fields.positive_integer("begun", steps)
            for steps in (state_dict or {}).get("begun", [])
        ]
        super().load_state_dict(state_dict)
        self._begun = sorted(begun)
        self.begin_epoch()


class BallsAndBinsSampler:
    """A `batch_sampler` of a DataLoader: every record in one batch of each epoch.

    Args:
        num_records: Length of the dataset.
        num_steps: Batches of an epoch; batches differ in size and may be empty.
        accountant: Told of every draw, so that an epoch that is left early, or resumed,
            is accounted for as what it was.
        generator: A `torch.Generator`; one that cannot be foretold for real data.

    Raises:
        TypeError, ValueError: If a number is not a positive integer, or the accountant
            none of balls and bins.
    """

    def __init__(
        self,
        num_records: int,
        num_steps: int,
        accountant: BallsAndBinsAccountant,
        *,
        generator: Any = None,
    ) -> None:
        self.num_records = fields.positive_integer("num_records", num_records)
        self.num_steps = fields.positive_integer("num_steps", num_steps)
        if not isinstance(accountant, BallsAndBinsAccountant):
            raise TypeError(
                "accountant must be that of PrivacyEngine("
                f'accountant="balls_and_bins"). Found {accountant!r:.60}.'
            )
        self.accountant, self.generator = accountant, generator

    def __len__(self) -> int:
        """Returns the number of batches of an epoch."""
        return self.num_steps

    def __iter__(self) -> Iterator[list[int]]:
        """Draws a batch for every record, and yields the batches' records."""
        self.accountant.begin_epoch()
        size = (self.num_records,)
        bins = torch.randint(self.num_steps, size, generator=self.generator)
        order = torch.argsort(bins)
        sizes = torch.bincount(bins, minlength=self.num_steps)
        for batch in torch.split(order, sizes.tolist()):
            yield batch.tolist()


def balls_and_bins(
    data_loader: Any, accountant: BallsAndBinsAccountant, *, generator: Any = None
) -> Any:
    """Returns a loader of the same dataset that draws balls-and-bins batches.

    Args:
        data_loader: A `torch.utils.data.DataLoader` of a dataset with a length; the
            new one has as many batches an epoch, of the same size on average.
        accountant: `engine.accountant` of `PrivacyEngine(accountant="balls_and_bins")`.
        generator: As in `BallsAndBinsSampler`; by default that of the loader.

    Returns:
        A DataLoader for `make_private(…, poisson_sampling=False)`.

    Raises:
        TypeError, ValueError: As `BallsAndBinsSampler` does.
    """
    dataset = data_loader.dataset
    sampler = BallsAndBinsSampler(
        len(dataset),
        len(data_loader),
        accountant,
        generator=generator or data_loader.generator,
    )
    example = dataset[0]
    return data.DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=wrap_collate_with_empty(
            collate_fn=data_loader.collate_fn,
            sample_empty_shapes=[(0, *getattr(x, "shape", ())) for x in example],
            dtypes=[getattr(x, "dtype", type(x)) for x in example],
        ),
        num_workers=data_loader.num_workers,
        pin_memory=data_loader.pin_memory,
        timeout=data_loader.timeout,
        worker_init_fn=data_loader.worker_init_fn,
        multiprocessing_context=data_loader.multiprocessing_context,
        prefetch_factor=data_loader.prefetch_factor,
        persistent_workers=data_loader.persistent_workers,
    )


def _steps_of_epoch(rate: float) -> int:
    """Returns t of a rate 1 / t."""
    number = fields.sampling_probability(rate)
    if not number:
        raise ValueError("sample_rate must be positive. Found 0.")
    steps = round(1 / number)
    if abs(number * steps - 1) > _WHOLE:
        raise ValueError(
            f"sample_rate must be one over the number of steps of an epoch, as "
            f"1 / len(data_loader) is. Found {rate!r}: use 1/{math.ceil(1 / number)}; "
            f"where batches are accumulated, so many that they divide that length."
        )
    return steps


def _epoch(num_steps: int, runs: list[tuple[float, int]]) -> stock.DpEvent:
    """Returns an epoch of which the first steps ran, with noise that may differ."""
    merged = [
        (noise, sum(count for _, count in equal))
        for noise, equal in itertools.groupby(runs, key=lambda run: run[0])
    ]
    events = [stock.GaussianDpEvent(noise) for noise, _ in merged]
    counts = [count for _, count in merged]
    if counts == [num_steps]:
        return dp_event.RandomAllocationEvent(events[0], 1, num_steps)
    return dp_event.ScheduledAllocationEvent(events, counts, num_steps)


for _accountant in (CertifiedAccountant, BallsAndBinsAccountant):
    registry.register_accountant(_accountant.mechanism(), _accountant, force=True)
