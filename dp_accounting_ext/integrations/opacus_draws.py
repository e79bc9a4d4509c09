"""Checks that Opacus' steps run on the batches that a watched loader draws.

A watched loader reports every batch that it draws. Each step must use the batches that
were drawn last, and all of their records. Otherwise the accountant, which assumes the
loader's way of drawing batches, would not describe the steps that ran.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import math
from typing import Any
import weakref

import numpy as np
from opacus.utils import batch_memory_manager
from opacus.utils import uniform_sampler
import torch
from torch.utils import data

from dp_accounting_ext.integrations import opacus_processes
from dp_accounting_ext.validation import fields

# Certified: two independent draws agree with at most this probability.
_COINCIDENCE = 1e-15
# Certified: the number of values of `torch.rand` in single precision.
_VALUES = 2**24


@dataclasses.dataclass(eq=False)
class Draw:
    """The batches of one iterator.

    Attributes:
        number: The number of earlier draws, of all loaders.
        processes: The number of processes that share the batches. `sizes` are those of
            this process's shares.
        rate: The largest probability of a record to be in a batch, over the batches.
        sizes: The sizes of the batches that were drawn and not yet used by a step.
        handed: The number of batches that the loader handed out and no step used; None
            if it is only known that they were drawn.
    """

    number: int
    processes: int = 1
    rate: float = 0.0
    sizes: list[int] = dataclasses.field(default_factory=list)
    handed: int | None = None


class Watch:
    """A record of the batches that an accountant's loaders drew."""

    def __init__(self) -> None:
        self.draws = 0
        self._latest: tuple[Draw, _Loader] | None = None
        self._begun: tuple[Draw, _Loader] | None = None
        self.seen: set[str] = set()
        self._noises: set[bytes] = set()
        # The optimizer whose steps are counted, and its gradients of records at the
        # beginning of the newest draw.
        self.optimizer: Callable[[], Any] = lambda: None
        self._earlier: list[Callable[[], torch.Tensor | None]] = []

    @property
    def latest(self) -> Draw | None:
        """The draw whose batch came last; None before the first one."""
        return self._latest[0] if self._latest else None

    def drawn(
        self,
        batches: Iterable[Sequence[int]],
        loader: "_Loader",
        rate: Callable[[], float],
    ) -> Iterator[Sequence[int]]:
        """Yields the batches of a new draw, and counts each before that.

        Args:
            batches: The batches of a sampler.
            loader: The loader of the sampler.
            rate: A function that returns the sampler's current sampling rate.

        Raises:
            RuntimeError: If the draw repeats an earlier one.
        """
        draw = Draw(self.draws, loader.share.processes)
        self.draws += 1
        self._begun = draw, loader
        for number, batch in enumerate(batches):
            if not number:
                self._earlier = [*map(weakref.ref, _gradients(self.optimizer()))]
                if loader.coincidence < _COINCIDENCE:
                    self._refuse_repetition(batch)
            draw.sizes.append(len(loader.share.of(batch)))
            draw.rate = max(draw.rate, rate())
            self._latest = draw, loader
            yield batch

    def handing(self) -> Callable[[], None]:
        """Returns a function to call when a batch of the newest draw is handed out."""
        assert self._begun is not None
        draw, _ = begun = self._begun
        draw.handed = 0

        def hand() -> None:
            draw.handed = (draw.handed or 0) + 1
            self._latest = begun

        return hand

    def _refuse_repetition(self, batch: Sequence[int]) -> None:
        mark = hashlib.sha256(repr(list(map(int, batch))).encode()).hexdigest()
        if mark in self.seen:
            raise RuntimeError(
                "The batches of this epoch are those of an earlier one: the generator "
                "was seeded again, and its noise may repeat, too. Remove "
                "torch.manual_seed(…) from the loop; seed once, before training, and "
                "otherwise where a checkpoint is resumed."
            )
        self.seen.add(mark)

    @property
    def processes(self) -> int:
        """The number of processes that share the latest draw; 1 before the first."""
        return self._latest[0].processes if self._latest else 1

    def refuse_repeated_noise(self, mark: bytes | None) -> None:
        """Refuses noise of which an earlier step has the same mark.

        Raises:
            RuntimeError: If there is such a step.
        """
        if mark in self._noises:
            raise RuntimeError(
                "The noise of this step is that of an earlier one: its generator was "
                "seeded again. Remove torch.manual_seed(…), or that of the generator, "
                "from the loop; seed once, before training."
            )
        if mark is not None:
            self._noises.add(mark)

    def refuse_earlier_gradients(self, optimizer: Any) -> None:
        """Refuses a step on gradients that were there when the newest draw began.

        Raises:
            RuntimeError: If there is one. A record may be in its batch, and in another
                one of this epoch.
        """
        earlier = {id(old()) for old in self._earlier} - {id(None)}
        if any(id(each) in earlier for each in _gradients(optimizer)):
            raise RuntimeError(
                "A step summed gradients of an earlier epoch: a backward whose step "
                "was left to this one. Call optimizer.zero_grad() before each epoch, "
                "and optimizer.step() after each batch."
            )

    def take(
        self, batches: int, size: int | None, rate: float, *, is_split: bool
    ) -> None:
        """Counts a step on the batches that were drawn last.

        Args:
            batches: The number of batches whose gradients the step sums.
            size: The number of records whose gradients are summed; None if unknown.
            rate: The sampling rate of a batch that the optimizer's hook was given.
            is_split: Whether `size` may be only that of a batch's last part.

        Raises:
            RuntimeError: If the step does not use all records that were drawn. The
                watch is then unchanged.
        """
        if self._latest is None:
            raise RuntimeError(
                "A step ran before its loader drew a batch. Iterate over the loader "
                "that make_private returns, module, optimizer, data_loader = "
                "engine.make_private(…); in a loop without make_private, add "
                "engine.accountant.watch(data_loader)."
            )
        draw, loader = self._latest
        is_ahead = loader.is_ahead and draw.handed is None
        if batches > 1 and is_ahead:
            raise RuntimeError(
                f"A step on several batches must be on those that came last from the "
                f"loader. Found {batches} batches, which may have been drawn ahead: "
                f"write num_workers=0 with Opacus' BatchMemoryManager; in a loop "
                f"without make_private, add engine.accountant.watch(data_loader)."
            )
        if rate < draw.rate:
            raise RuntimeError(
                f"sample_rate must be the loader's. Found {rate} for the optimizer, "
                f"and {draw.rate} for the loader: add "
                f"optimizer.attach_step_hook("
                f"engine.accountant.get_optimizer_hook_fn({draw.rate}))."
            )
        waiting = len(draw.sizes) if draw.handed is None else draw.handed
        if waiting < batches:
            raise RuntimeError(
                f"A step ran on {batches} batches. Found {waiting} that the loader had "
                f"drawn since the last step: batches of another loader, or the same "
                f"ones again. Write for batch in data_loader: in each epoch, with the "
                f"loader that make_private returns, one step a batch."
            )
        is_unseen = size is None or (is_split and loader.rate > 0)
        if waiting > batches and is_unseen and not is_ahead:
            raise RuntimeError(
                f"A step ran on {batches} of the {waiting} batches that were drawn "
                f"since the last one. Call optimizer.step() after each batch."
            )
        expected = sum(draw.sizes[:batches])
        if loader.is_ordered and size is not None:
            self._compare(size, expected, is_split)
        del draw.sizes[:batches]
        if draw.handed is not None:
            draw.handed -= batches

    def _compare(self, size: int, expected: int, is_split: bool) -> None:
        if size > expected or (size < expected and not is_split):
            raise RuntimeError(
                f"A step summed {size} clipped gradients. Found {expected} records in "
                f"the batch that the loader drew: records that were left out or "
                f"repeated, a batch that was left out (also of an empty one, noise "
                f"is to be released), another loader's batch, or several gradients "
                f"of one record. Write for batch in data_loader: with the loader that "
                f"make_private returns, and train on all of each batch."
            )


def _gradients(optimizer: Any) -> Iterator[torch.Tensor]:
    """Yields what Opacus keeps of single records: gradients, or norms of these."""
    for parameter in optimizer.params if optimizer is not None else ():
        kept = getattr(parameter, "grad_sample", None)
        norms = getattr(parameter, "_norm_sample", None)
        for each in [*(kept if isinstance(kept, list) else [kept]), norms]:
            if each is not None:
                yield each


@dataclasses.dataclass(frozen=True)
class _Loader:
    """The properties of a loader that a watch needs.

    Attributes:
        rate: The probability that a record is in a batch; 0 if none is claimed.
        coincidence: The probability that two draws have the same first batch; 1 if they
            may have it regularly.
        is_ahead: Whether workers draw batches in advance.
        is_ordered: Whether batches arrive in the order in which they were drawn.
        share: The part of the batches that this process has.
    """

    rate: float
    coincidence: float
    is_ahead: bool
    is_ordered: bool
    share: opacus_processes.Share


def reported(sampler: Any, batches: Iterable[Any]) -> Iterator[Any]:
    """Returns this process's shares of a sampler's batches, which all watches count."""
    for watch, loader in sampler._watches:
        batches = watch.drawn(
            batches, loader, functools.partial(_rate, sampler, loader)
        )
    return map(sampler._share.of, batches)


def _rate(sampler: Any, loader: _Loader) -> float:
    """Returns the probability that a record is in a batch; 0 if none is claimed."""
    return float(getattr(sampler, "sample_rate", loader.rate)) if loader.rate else 0.0


def drawn_rate(rate: float) -> float:
    """Returns the exact probability with which Opacus' samplers draw a record.

    They compare `torch.rand`, a multiple of 2⁻²⁴, with the rate in single precision. So
    a record is drawn for ⌈2²⁴ · float32(rate)⌉ of 2²⁴ values.

    Args:
        rate: The sampling rate of the sampler, in [0, 1].
    """
    single = np.float32(fields.sampling_probability(rate))
    return math.ceil(float(single) * _VALUES) / _VALUES


def uniform(num_values: int, size: int, generator: Any) -> torch.Tensor:
    """Returns uniform integers in [0, num_values).

    `torch.randint` takes random bits modulo the number of values, which is uniform only
    for powers of two. So other values are drawn again.

    Args:
        num_values: The number of values.
        size: The number of integers.
        generator: A `torch.Generator`, or None.
    """
    power = 1 << (num_values - 1).bit_length()
    drawn = torch.randint(power, (size,), generator=generator)
    while (again := drawn >= num_values).any():
        count = int(again.sum())
        drawn[again] = torch.randint(power, (count,), generator=generator)
    return drawn


class WatchedPoisson(uniform_sampler.UniformWithReplacementSampler):  # type: ignore[misc]
    """A Poisson sampler that reports each batch to its watches.

    It draws what the sampler of Opacus draws, and in single precision even if that is
    not the default of torch, so that `drawn_rate` is its rate.
    """

    def __iter__(self) -> Iterator[Any]:
        return reported(self, self._batches())

    def _batches(self) -> Iterator[list[int]]:
        for _ in range(self.steps):
            yield _poisson(self.num_samples, self.sample_rate, self.generator)


class WatchedShared(uniform_sampler.DistributedUniformWithReplacementSampler):  # type: ignore[misc]
    """A process's share of Poisson samples of all records, which reports each batch.

    The sampler of Opacus draws each process's records from that process's own random
    numbers, and leaves out empty batches. This one draws alike in all processes.
    """

    def __iter__(self) -> Iterator[Any]:
        return reported(self, self._batches())

    def _batches(self) -> Iterator[list[int]]:
        generator = self._share.generator()
        for _ in range(self.num_batches):
            yield _poisson(self.total_size, self.sample_rate, generator)


def _poisson(num_records: int, rate: float, generator: Any) -> list[int]:
    draws = torch.rand(
        num_records, generator=generator, dtype=torch.float32, device="cpu"
    )
    batch: list[int] = (draws < rate).nonzero().flatten().tolist()
    return batch


class WatchedBatches(data.BatchSampler):  # type: ignore[misc]
    """A batch sampler that reports each batch to its watches."""

    def __iter__(self) -> Iterator[Any]:
        return reported(self, super().__iter__())


_WATCHED: dict[type, type] = {
    uniform_sampler.UniformWithReplacementSampler: WatchedPoisson,
    uniform_sampler.DistributedUniformWithReplacementSampler: WatchedShared,
    data.BatchSampler: WatchedBatches,
}


def watch(loader: Any, by: Watch, *, rate: float, num_records: int) -> None:
    """Makes a loader's sampler report its batches to a watch from now on.

    Args:
        loader: A loader of a known `opacus_loaders.kind`.
        by: The watch that receives the batches.
        rate: The probability that a record is in a batch; 0 if none is claimed.
        num_records: The number of records in the dataset.

    Raises:
        RuntimeError: If several processes share the loader, and theirs differ.
    """
    sampler = batch_sampler(loader)
    share = opacus_processes.Share()
    if opacus_processes.count() > 1 or type(sampler) in (
        uniform_sampler.DistributedUniformWithReplacementSampler,
        WatchedShared,
    ):
        facts = {
            "number of records": num_records,
            "number of batches": len(loader),
            "sampling rate": rate,
        }
        share = opacus_processes.agreed(loader, sampler.generator, facts)
    watch_sampler(
        sampler,
        by,
        rate=rate,
        num_records=num_records,
        is_ahead=loader.num_workers > 0,
        is_ordered=getattr(loader, "in_order", True),
        share=share,
    )
    if loader.num_workers and not hasattr(loader, "hands_out"):
        loader.__class__ = _handing(type(loader))


def _handing(kind: Any) -> Any:
    """Returns a type of loaders that tell watches which batches they hand out.

    Workers draw batches ahead of what is handed out.
    """

    class Handing(kind):  # type: ignore[misc]
        hands_out = True

        def __iter__(self) -> Iterator[Any]:
            batches = super().__iter__()  # This draws the first ones.
            watches = batch_sampler(self)._watches
            return _handed(batches, [watch.handing() for watch, _ in watches])

    Handing.__name__ = kind.__name__
    return Handing


def _handed(
    batches: Iterator[Any], told: Sequence[Callable[[], None]]
) -> Iterator[Any]:
    for batch in batches:
        for tell in told:
            tell()
        yield batch


def watch_sampler(
    sampler: Any,
    by: Watch,
    *,
    rate: float,
    num_records: int,
    is_ahead: bool = True,
    is_ordered: bool = True,
    share: opacus_processes.Share | None = None,
) -> None:
    """Makes a sampler report its batches to a watch, as `watch` does.

    Args:
        sampler: A sampler of a known type.
        by: The watch that receives the batches.
        rate: As in `watch`.
        num_records: As in `watch`.
        is_ahead: Whether batches may be drawn in advance.
        is_ordered: Whether batches arrive in the order in which they are drawn.
        share: The part of the batches that this process has; None for all.
    """
    coincidence = (rate**2 + (1 - rate) ** 2) ** num_records
    sampler._share = share or opacus_processes.Share()
    known = _Loader(rate, coincidence, is_ahead, is_ordered, sampler._share)
    # The class of the sampler is replaced, as a DataLoader takes no other sampler once
    # it is made. The sampler keeps its length and attributes.
    if type(sampler) in _WATCHED:
        sampler.__class__ = _WATCHED[type(sampler)]
    others = getattr(sampler, "_watches", [])
    sampler._watches = [(w, of) for w, of in others if w is not by] + [(by, known)]


def is_watched(loader: Any, by: Watch) -> bool:
    """Whether the loader reports its batches to the watch."""
    watches = getattr(batch_sampler(loader), "_watches", [])
    return any(each is by for each, _ in watches)


def batch_sampler(loader: Any) -> Any:
    """Returns the sampler of the batches of a step, not of their parts."""
    sampler = loader.batch_sampler
    while isinstance(sampler, batch_memory_manager.BatchSplittingSampler):
        sampler = sampler.sampler
    return sampler
