"""Certified accountants for Opacus: of epochs whose batches partition the records."""

import abc
import bisect
from collections.abc import Iterator
from collections.abc import Mapping
import itertools
import math
from typing import Any

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.integrations import opacus_accountants
from dp_accounting_ext.integrations import opacus_draws
from dp_accounting_ext.integrations import opacus_loaders
from dp_accounting_ext.validation import fields

NeighborRel = privacy_accountant.NeighboringRelation


class _EpochAccountant(opacus_accountants.CertifiedAccountant):
    """An accountant of epochs in each of which every record joins one batch.

    An epoch has 1 / sample_rate steps, or fewer if it was ended early. The noise may
    change between steps. If n batches are accumulated in a step, Opacus passes n times
    the rate, and an epoch has 1 / n times as many steps.
    """

    def __init__(self) -> None:
        super().__init__()
        # The numbers of steps after which the draws began.
        self._begun: list[int] = []
        self._draw: opacus_draws.Draw | None = None

    def begin_epoch(self) -> None:
        """Begins an epoch, in which records draw anew. An unfinished epoch ends."""
        steps = len(self)
        if steps and (not self._begun or self._begun[-1] < steps):
            self._begun.append(steps)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one step, as `CertifiedAccountant.step` does.

        Raises:
            TypeError, ValueError: If noise_multiplier is not a positive number, or
                sample_rate is not one over a number of steps.
            RuntimeError: If an iterator continues after a later one began.
        """
        fields.noise_multiplier(noise_multiplier)
        _steps_of_epoch(sample_rate)
        draw = self.watched.latest
        if draw is not self._draw and draw is not None:
            if self._draw is not None and draw.number < self._draw.number:
                raise RuntimeError(
                    "Steps of two iterators of the loader must not alternate: finish "
                    "for batch in data_loader: before the next one begins."
                )
            self._draw = draw
            self.begin_epoch()
        super().step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)

    def _check_sum(self, batches: int) -> None:
        """Accepts any number of batches.

        The batches of one draw have no record in common, so that their sum is the sum
        of a larger batch.
        """

    def _rate(self, data_loader: Any) -> float:
        return 1 / len(data_loader.batch_sampler)

    def event(self) -> stock.DpEvent:
        """Returns what ran, as an event: one for each epoch.

        Raises:
            ValueError: If a rate is not one over a number of steps, or changes before
                an epoch has ended.
        """
        return stock.ComposedDpEvent(
            [
                stock.SelfComposedDpEvent(epoch, len(list(equal)))
                for epoch, equal in itertools.groupby(
                    self._epoch(num_steps, runs) for num_steps, runs in self._epochs()
                )
            ]
        )

    @staticmethod
    @abc.abstractmethod
    def _epoch(num_steps: int, runs: list[tuple[float, int]]) -> stock.DpEvent:
        """Returns the event of an epoch whose first steps ran, with these noises."""

    def _epochs(self) -> Iterator[tuple[int, list[tuple[float, int]]]]:
        """Yields each epoch's steps, and the noise of those that ran."""
        epochs: list[tuple[int, list[tuple[float, int]]]] = []
        done = room = 0
        for noise, rate, steps in self._counted:
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
                        f"have not run: begin_epoch() states that records draw anew."
                    )
                stops = [last, done + room, *self._begun[following : following + 1]]
                epochs[-1][1].append((noise, min(stops) - done))
                room -= min(stops) - done
                done = min(stops)
        return iter(epochs)

    def state_dict(self, destination: Any = None) -> Any:
        """Returns the state for a checkpoint: the history, and where draws began."""
        found = super().state_dict(destination)
        found["begun"] = list(self._begun)
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a state of `state_dict`. A loader that is resumed draws anew.

        Raises:
            TypeError, ValueError: If it is the state of another accountant, or has an
                invalid step. Nothing is then changed.
        """
        opacus_accountants.refuse_no_state(state_dict)
        begun = [
            fields.positive_integer("begun", steps)
            for steps in fields.sequence("begun", state_dict.get("begun", []))
        ]
        super().load_state_dict(state_dict)
        self._begun = sorted(begun)
        self.begin_epoch()


class BallsAndBinsAccountant(_EpochAccountant):
    """Opacus' accountant of epochs in each of which every record draws one batch.

    Each record draws its batch uniformly, independently of other records and epochs, as
    a loader of `balls_and_bins` does. Everything else is as for `CertifiedAccountant`.
    """

    kind = opacus_loaders.Kind.BALLS_AND_BINS

    @staticmethod
    def _epoch(num_steps: int, runs: list[tuple[float, int]]) -> stock.DpEvent:
        merged = [
            (noise, sum(count for _, count in equal))
            for noise, equal in itertools.groupby(runs, key=lambda run: run[0])
        ]
        events = [stock.GaussianDpEvent(noise) for noise, _ in merged]
        counts = [count for _, count in merged]
        if counts == [num_steps]:
            return dp_event.RandomAllocationEvent(events[0], 1, num_steps)
        return dp_event.ScheduledAllocationEvent(events, counts, num_steps)

    @classmethod
    def mechanism(cls) -> str:
        """Returns the name in Opacus' registry, and in checkpoints."""
        return "balls_and_bins"


class ShuffledAccountant(_EpochAccountant):
    """Opacus' accountant of shuffled or fixed batches, where a record is replaced.

    It is for a plain loader, `DataLoader(dataset, batch_size=…, shuffle=True)`, with
    `make_private(…, poisson_sampling=False)`. In each epoch every record is in one
    batch, and an adversary may know in which. An epoch that ends early counts as a
    whole one.

    Guarantees:
        `get_epsilon` is never below the truth if one record is replaced by another. If
        one is added or removed, other records move to other batches, and no bound is
        known.
    """

    kind = opacus_loaders.Kind.SHUFFLED
    neighboring_relation = NeighborRel.REPLACE_ONE

    def _rate(self, data_loader: Any) -> float:
        return 0.0  # This accountant needs no rate.

    @staticmethod
    def _epoch(num_steps: int, runs: list[tuple[float, int]]) -> stock.DpEvent:
        del num_steps
        # Gaussian noise dominates Gaussian noise of a larger scale.
        return stock.GaussianDpEvent(min(noise for noise, _ in runs))

    @classmethod
    def mechanism(cls) -> str:
        """Returns the name in Opacus' registry, and in checkpoints."""
        return "shuffled"


def _steps_of_epoch(rate: float) -> int:
    """Returns the number t of steps of an epoch, from the rate 1 / t."""
    number = fields.sampling_probability(rate)
    if not number:
        raise ValueError("sample_rate must be positive. Found 0.")
    steps = round(1 / number)
    if abs(number * steps - 1) > opacus_accountants.WHOLE:
        raise ValueError(
            f"sample_rate must be one over the number of steps of an epoch, as "
            f"1 / len(data_loader) is. Found {rate!r}: use 1/{math.ceil(1 / number)}; "
            f"where batches are accumulated, their number must divide that length."
        )
    return steps
