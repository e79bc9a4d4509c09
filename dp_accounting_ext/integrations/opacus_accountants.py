"""Certified accountants for Opacus, and the checks of steps that they share."""

import abc
import bisect
from collections.abc import Callable
from collections.abc import Mapping
import functools
import itertools
import math
from typing import Any
import warnings
import weakref

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
from opacus import accountants
from opacus.optimizers import adaclipoptimizer

from dp_accounting_ext import displays
from dp_accounting_ext import dp_event
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.integrations import opacus_checks
from dp_accounting_ext.integrations import opacus_draws
from dp_accounting_ext.integrations import opacus_processes
from dp_accounting_ext.validation import fields

# Tuning: the largest distance of a rate from one over an integer; floats are nearer.
_WHOLE = 1e-9

NeighborRel = privacy_accountant.NeighboringRelation
History = list[tuple[float, float, int]]


class CertifiedAccountant(displays.Displayed, accountants.IAccountant):  # type: ignore[misc]
    """Opacus' accountant of steps whose batches are Poisson samples.

    `make_private` refuses other loaders, and a step on other batches than its loader
    drew raises an error. Direct calls of `step` are not checked against any loader.

    Guarantees:
        `get_epsilon` is never below the truth if one record is added or removed and
        the divisor of the noisy sum, `optimizer.expected_batch_size`, does not depend
        on that record. Opacus computes the divisor from the dataset's size. So this
        size must be public, or the divisor must be set to a number that was fixed
        beforehand.
    """

    kind = opacus_checks.Kind.POISSON
    neighboring_relation = NeighborRel.ADD_OR_REMOVE_ONE

    def __init__(self) -> None:
        self._history: History = []
        self._is_planned = False
        self.watched = opacus_draws.Watch()

    def _display(self) -> displays.Table:
        title = f"{type(self).__name__}, {self.neighboring_relation.name}"
        heads = "noise multiplier", "sampling rate", "steps"
        rows = [tuple(map(repr, ran)) for ran in self._history]
        return displays.Table(title, heads, rows, names=0)

    @property
    def history(self) -> History:
        """The (noise multiplier, sampling rate, number of steps), as in Opacus.

        Opacus' `get_noise_multiplier` writes a planned run here. It may round the
        number of steps down to one less than a whole number of epochs, which is then
        counted as that number of epochs.
        """
        return self._history

    @history.setter
    def history(self, planned: History) -> None:
        self._history, self._is_planned = _checked_history(planned), True

    def watch(self, data_loader: Any) -> None:
        """Watches a loader's batches, for a loop without `make_private`.

        Where there are several processes, each must call it.

        Raises:
            TypeError: If it is no DataLoader.
            RuntimeError: If it draws batches otherwise than this accountant is for, or
                several processes have different loaders.
        """
        self.refuse(data_loader)
        opacus_draws.watch(data_loader, self.watched)

    def refuse(self, data_loader: Any) -> None:
        """Refuses a loader that draws batches otherwise than this accountant is for."""
        opacus_checks.refuse_other(data_loader, self.kind)

    def refuse_plan(self, data_loader: Any, poisson_sampling: bool) -> None:
        """Refuses arguments of `make_private` with which other batches are drawn."""
        if poisson_sampling:
            opacus_checks.refuse_poisson(data_loader, self.kind)
        else:
            self.refuse(data_loader)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one step.

        Args:
            noise_multiplier: Standard deviation of the noise over the clipping norm.
            sample_rate: The probability that a record is in the batch.

        Raises:
            TypeError, ValueError: If an argument has the wrong type or is out of range.
        """
        noise = fields.noise_multiplier(noise_multiplier)
        rate = fields.sampling_probability(sample_rate)
        steps = 0
        if self._history and tuple(self._history[-1][:2]) == (noise, rate):
            steps = self._history.pop()[2]
        self._history.append((noise, rate, steps + 1))
        self._is_planned = False

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Returns the function that Opacus' optimizer calls before each step.

        Raises:
            TypeError, ValueError: If sample_rate is no probability.
            ValueError: By the hook, if a step sums several Poisson samples. Their union
                is not a Poisson sample, as a record may be in two of them.
            RuntimeError: By the hook, if a step did not run on the batch that the
                loader drew, if the optimizer clips adaptively, if its noise is not
                that of the clip of the gradients that it sums, if the noise is that of
                an earlier step, or if processes that train together differ.
        """
        fields.sampling_probability(sample_rate)

        def hook(optimizer: Any) -> None:
            check = functools.partial(self._checked, optimizer, sample_rate)
            processes = self.watched.processes
            facts = opacus_processes.together(optimizer, processes, check)
            self.step(
                noise_multiplier=facts["noise multiplier"], sample_rate=facts["rate"]
            )
            optimizer.original_optimizer._is_counted = True
            self.watched.optimizer = weakref.ref(optimizer)

        hook.is_certified = True  # type: ignore[attr-defined]
        return hook

    def _checked(self, optimizer: Any, sample_rate: float) -> dict[str, Any]:
        """Checks a step of an optimizer, and returns what all processes must share."""
        is_adaptive = isinstance(optimizer, adaclipoptimizer.AdaClipDPOptimizer)
        # The second way is that of ghost clipping.
        if is_adaptive or hasattr(optimizer, "_adjusted_noise_multiplier"):
            raise RuntimeError(ADAPTIVE)
        batches = optimizer.accumulated_iterations
        # The batches of an epoch have no record in common, unlike Poisson samples.
        if batches != 1 and self.kind is opacus_checks.Kind.POISSON:
            raise ValueError(
                f"accumulated_iterations must be 1 for Poisson samples. Found "
                f"{batches}: use a loader of larger batches, with Opacus' "
                f"BatchMemoryManager where memory is short."
            )
        parts = opacus_checks.take_parts(optimizer)
        noise = opacus_checks.noise_multiplier(optimizer, parts)
        self.watched.refuse_earlier_gradients(optimizer)
        self.watched.refuse_repeated_noise(opacus_checks.mark_of_noise(optimizer))
        self.watched.take(batches, parts.records, sample_rate, is_split=parts.is_split)
        return {
            "noise multiplier": noise,
            "clip": optimizer.max_grad_norm,
            "divisor": opacus_checks.divisor(optimizer),
            "rate": sample_rate * batches,
            "number of the step": len(self),
            "number of the epoch": self.watched.draws,
        }

    def event(self) -> stock.DpEvent:
        """Returns what ran, as an event."""
        return stock.ComposedDpEvent(
            [
                stock.SelfComposedDpEvent(
                    stock.PoissonSampledDpEvent(
                        opacus_draws.drawn_rate(rate), stock.GaussianDpEvent(noise)
                    ),
                    steps,
                )
                for noise, rate, steps in self._counted
            ]
        )

    @property
    def _counted(self) -> History:
        """The history; if it is a plan, with its epochs completed."""
        if not self._is_planned:
            return self._history
        return [
            (noise, rate, steps + _is_one_too_few(rate, steps))
            for noise, rate, steps in self._history
        ]

    def pld_accountant(self) -> pld_accountant.PLDAccountant:
        """Returns an accountant that has composed what ran, for risks and curves."""
        if not len(self):
            warnings.warn(
                "No step was seen: ε is 0. Train with the optimizer that make_private "
                "returns; an accountant that is put in later sees none.",
                stacklevel=2,
            )
        relation = self.neighboring_relation
        return pld_accountant.PLDAccountant(relation).compose(self.event())

    def get_epsilon(self, delta: float, **_: Any) -> float:
        """Returns ε at δ, in nats, never below the truth.

        Args:
            delta: δ.
            **_: Options that Opacus passes to its own accountants, such as `eps_error`.
                They have no effect.
        """
        return self.pld_accountant().get_epsilon(delta)

    def get_epsilon_bounds(self, delta: float) -> tuple[float, float]:
        """Returns certified bounds on ε at δ: lower ≤ the true ε ≤ upper, in nats."""
        return self.pld_accountant().get_epsilon_bounds(delta)

    def __len__(self) -> int:
        """Returns the number of steps."""
        return sum(steps for _, _, steps in self._history)

    @classmethod
    def mechanism(cls) -> str:
        """Returns the name in Opacus' registry, and in checkpoints."""
        return cls.kind.accountant

    def state_dict(self, destination: Any = None) -> Any:
        """Returns the state for a checkpoint: the history, and marks of the draws."""
        state = super().state_dict(destination)
        state["seen"] = sorted(self.watched.seen)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a state of `state_dict`, also after it was converted to JSON.

        A warning is issued if steps that ran are not in the state, as when a run goes
        back to an earlier checkpoint: their outputs may have been the reason for that.

        Raises:
            TypeError, ValueError: If it is the state of another accountant, or has an
                invalid step. Nothing is then changed.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"state_dict must be what accountant.state_dict() returned. Found "
                f"{state_dict!r:.60}."
            )
        if "history" not in state_dict:
            raise ValueError(
                f"state_dict must have a history. Found {list(state_dict)}: write "
                f"load_state_dict(checkpoint['privacy_accountant_state_dict'])."
            )
        mechanism = state_dict.get("mechanism")
        if mechanism in _OF_OPACUS:
            raise ValueError(
                f"state_dict must be that of accountant={self.mechanism()!r}. Found "
                f"that of {mechanism!r}, which does not tell how batches were drawn. "
                f"If they were Poisson samples, as with poisson_sampling=True, write "
                f"PrivacyEngine(accountant='certified') and engine.accountant."
                f"load_state_dict({{**state_dict, 'mechanism': 'certified'}}), where "
                f"state_dict = checkpoint['privacy_accountant_state_dict']."
            )
        ran = [] if self._is_planned else self._history
        seen = fields.sequence("seen", state_dict.get("seen", []))
        super().load_state_dict(state_dict)  # It sets the history, which is checked.
        self._is_planned = False
        self.watched.seen |= set(map(str, seen))
        forgotten = sum(steps for *_, steps in ran)
        if forgotten and self._history != ran:
            warnings.warn(
                f"load_state_dict forgets {forgotten} steps that ran: ε is that of the "
                f"checkpoint alone. Where these steps were looked at, as to choose the "
                f"checkpoint, add their ε; engine.get_epsilon returned it before this.",
                stacklevel=2,
            )


def _checked_history(history: Any) -> History:
    checked = []
    for ran in fields.sequence("history", history):
        if len(fields.sequence("history", ran)) != 3:
            raise ValueError(
                f"history must have a noise multiplier, a rate and a number of steps "
                f"in each entry. Found {ran!r:.60}."
            )
        noise, rate, steps = ran
        noise = fields.noise_multiplier(noise)
        rate = fields.sampling_probability(rate)
        checked.append((noise, rate, fields.non_negative_integer("steps", steps)))
    return checked


# The names of Opacus' own accountants, whose histories are those of Poisson samples.
_OF_OPACUS = {"rdp", "gdp", "prv"}
ADAPTIVE = (
    "clipping='adaptive' divides the number of records below the clip by the number "
    "drawn, which no accountant here covers. Write clipping='flat'; the page "
    "recipes has an event of adaptive clipping that divides by a fixed number."
)


def _is_one_too_few(rate: float, steps: int) -> bool:
    """Whether one more step completes an epoch: int(epochs / rate) may round down."""
    if not rate:
        return False
    of_epoch = round(1 / rate)
    return abs(rate * of_epoch - 1) <= _WHOLE and (steps + 1) % of_epoch == 0


class _EpochAccountant(CertifiedAccountant):
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

    def _epochs(self) -> list[tuple[int, list[tuple[float, int]]]]:
        """Returns each epoch's steps, and the noise of those that ran."""
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
        return epochs

    def state_dict(self, destination: Any = None) -> Any:
        """Returns the state for a checkpoint: the history, and where draws began."""
        state = super().state_dict(destination)
        state["begun"] = list(self._begun)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a state of `state_dict`. A loader that is resumed draws anew.

        Raises:
            TypeError, ValueError: If it is the state of another accountant, or has an
                invalid step. Nothing is then changed.
        """
        fields_of_state = state_dict if isinstance(state_dict, Mapping) else {}
        begun = [
            fields.positive_integer("begun", steps)
            for steps in fields.sequence("begun", fields_of_state.get("begun", []))
        ]
        super().load_state_dict(state_dict)
        self._begun = sorted(begun)
        self.begin_epoch()


class BallsAndBinsAccountant(_EpochAccountant):
    """Opacus' accountant of epochs in each of which every record draws one batch.

    Each record draws its batch uniformly, independently of other records and epochs, as
    a loader of `balls_and_bins` does. Everything else is as for `CertifiedAccountant`.
    """

    kind = opacus_checks.Kind.BALLS_AND_BINS

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

    kind = opacus_checks.Kind.SHUFFLED
    neighboring_relation = NeighborRel.REPLACE_ONE

    @staticmethod
    def _epoch(num_steps: int, runs: list[tuple[float, int]]) -> stock.DpEvent:
        del num_steps
        # Gaussian noise dominates Gaussian noise of a larger scale.
        return stock.GaussianDpEvent(min(noise for noise, _ in runs))


def _steps_of_epoch(rate: float) -> int:
    """Returns the number t of steps of an epoch, from the rate 1 / t."""
    number = fields.sampling_probability(rate)
    if not number:
        raise ValueError("sample_rate must be positive. Found 0.")
    steps = round(1 / number)
    if abs(number * steps - 1) > _WHOLE:
        raise ValueError(
            f"sample_rate must be one over the number of steps of an epoch, as "
            f"1 / len(data_loader) is. Found {rate!r}: use 1/{math.ceil(1 / number)}; "
            f"where batches are accumulated, their number must divide that length."
        )
    return steps
