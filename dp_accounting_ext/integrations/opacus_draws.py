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


@dataclasses.dataclass(frozen=True)
class _Loader:
    """The properties of a loader that a watch needs.

    Attributes:
        coincidence: The probability that two draws have the same first batch; 1 if they
            may have it regularly.
        is_ahead: Whether workers draw batches in advance.
        is_ordered: Whether batches arrive in the order in which they were drawn.
        share: The part of the batches that this process has.
    """

    coincidence: float
    is_ahead: bool
    is_ordered: bool
    share: opacus_processes.Share


@dataclasses.dataclass(eq=False)
class Draw:
    """The batches of one iterator.

    Attributes:
        number: The number of earlier draws, of all loaders.
        loader: The loader of the iterator.
        rate: The largest probability of a record to be in a batch, over the batches; 0
            if none is claimed.
        sizes: The sizes of the batches that were drawn and not yet used by a step. If
            several processes share the batches, those of this process's shares.
        handed: The number of batches that the loader handed out and no step used; None
            if it is only known that they were drawn.
    """

    number: int
    loader: _Loader
    rate: float = 0.0
    sizes: list[int] = dataclasses.field(default_factory=list)
    handed: int | None = None


class Watch:
    """A record of the batches that an accountant's loaders drew.

    Attributes:
        draws: The number of draws that began.
        latest: The draw whose batch came last; None before the first one.
        seen: Marks of the first batches of draws.
        optimizer: A function that returns the optimizer whose steps are counted.
    """

    def __init__(self) -> None:
        self.draws = 0
        self.latest: Draw | None = None
        self.seen: set[str] = set()
        self.optimizer: Callable[[], Any] = lambda: None
        self._begun: Draw | None = None
        self._noises: set[bytes] = set()
        # The optimizer's gradients of records at the beginning of the newest draw.
        self._earlier: list[Callable[[], torch.Tensor | None]] = []

    def drawn(
        self,
        batches: Iterable[Sequence[int]],
        loader: _Loader,
        rate: Callable[[], float],
    ) -> Iterator[Sequence[int]]:
        """Yields the batches of a new draw, each after it was counted.

        A draw whose first batch is that of an earlier one is refused, if this cannot be
        a coincidence. The function `rate` returns the sampler's current sampling rate.
        """
        draw = self._begun = Draw(self.draws, loader)
        self.draws += 1
        for number, batch in enumerate(batches):
            if not number:
                self._earlier = [*map(weakref.ref, _gradients(self.optimizer()))]
                if loader.coincidence < _COINCIDENCE:
                    self._refuse_repetition(batch)
            draw.sizes.append(len(loader.share.of(batch)))
            draw.rate = max(draw.rate, rate())
            self.latest = draw
            yield batch

    def handed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Returns batches that the loader hands out, each counted for the last draw."""
        draw = self._begun
        assert draw is not None
        draw.handed = 0

        def count(batch: Any) -> Any:
            draw.handed = (draw.handed or 0) + 1
            self.latest = draw
            return batch

        return map(count, batches)

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
        return self.latest.loader.share.processes if self.latest else 1

    def refuse_repeated_noise(self, mark: bytes | None) -> None:
        """Refuses noise of which an earlier step has the same mark."""
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

        A record may be in their batch, and in another one of this epoch.
        """
        earlier = {id(old()) for old in self._earlier} - {id(None)}
        if any(id(gradient) in earlier for gradient in _gradients(optimizer)):
            raise RuntimeError(
                "A step summed gradients of an earlier epoch: a backward whose step "
                "was left to this one. Call optimizer.zero_grad() before each epoch, "
                "and optimizer.step() after each batch."
            )

    def take(
        self, batches: int, size: int | None, rate: float, *, is_split: bool
    ) -> None:
        """Counts a step on the batches that were drawn last.

        The step sums the gradients of `size` records, which is None if it is unknown,
        and may be that of a batch's last part alone if it is split. The rate is that
        which the optimizer's hook was given. A step that does not use all records that
        were drawn is refused, and leaves the watch unchanged.
        """
        draw = self.latest
        if draw is None:
            raise RuntimeError(
                "A step ran before its loader drew a batch. Iterate over the loader "
                "that make_private returns, module, optimizer, data_loader = "
                "engine.make_private(…); in a loop without make_private, add "
                "engine.accountant.watch(data_loader)."
            )
        loader = draw.loader
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
        is_unseen = size is None or (is_split and draw.rate > 0)
        if waiting > batches and is_unseen and not is_ahead:
            raise RuntimeError(
                f"A step ran on {batches} of the {waiting} batches that were drawn "
                f"since the last one. Call optimizer.step() after each batch."
            )
        expected = sum(draw.sizes[:batches])
        fewest = 0 if is_split else expected
        if loader.is_ordered and not (size is None or fewest <= size <= expected):
            raise RuntimeError(
                f"A step summed {size} clipped gradients. Found {expected} records in "
                f"the batch that the loader drew: records that were left out or "
                f"repeated, a batch that was left out (also of an empty one, noise "
                f"is to be released), another loader's batch, or several gradients "
                f"of one record. Write for batch in data_loader: with the loader that "
                f"make_private returns, and train on all of each batch."
            )
        del draw.sizes[:batches]
        if draw.handed is not None:
            draw.handed -= batches


def _gradients(optimizer: Any) -> Iterator[torch.Tensor]:
    """Yields what Opacus keeps of single records: gradients, or norms of these."""
    for parameter in optimizer.params if optimizer is not None else ():
        sample = getattr(parameter, "grad_sample", None)
        norms = getattr(parameter, "_norm_sample", None)
        for array in [*(sample if isinstance(sample, list) else [sample]), norms]:
            if array is not None:
                yield array


def reported(sampler: Any, batches: Iterable[Any]) -> Iterator[Any]:
    """Returns this process's shares of a sampler's batches, which all watches count."""
    for watch, loader in sampler._watches:
        batches = watch.drawn(batches, loader, functools.partial(_rate, sampler))
    return map(sampler._share.of, batches)


def _rate(sampler: Any) -> float:
    """Returns the probability that a record is in a batch; 0 if none is claimed."""
    return float(getattr(sampler, "sample_rate", 0.0))


def drawn_rate(rate: float) -> float:
    """Returns the exact probability with which Opacus' samplers draw a record.

    They compare `torch.rand`, a multiple of 2⁻²⁴, with the rate in single precision. So
    a record is drawn for ⌈2²⁴ · float32(rate)⌉ of 2²⁴ values.
    """
    single = np.float32(fields.sampling_probability(rate))
    return math.ceil(float(single) * _VALUES) / _VALUES


def uniform(num_values: int, size: int, generator: Any) -> torch.Tensor:
    """Returns `size` uniform integers in [0, num_values).

    `torch.randint` takes random bits modulo the number of values, which is uniform only
    for powers of two. So other values are drawn again.
    """
    power = 1 << (num_values - 1).bit_length()
    drawn = torch.randint(power, (size,), generator=generator)
    while (again := drawn >= num_values).any():
        count = int(again.sum())
        drawn[again] = torch.randint(power, (count,), generator=generator)
    return drawn


def _poisson(num_records: int, rate: float, generator: Any) -> list[int]:
    """Returns a sample as Opacus draws it, also if torch has another default type."""
    draws = torch.rand(
        num_records, generator=generator, dtype=torch.float32, device="cpu"
    )
    batch: list[int] = (draws < rate).nonzero().flatten().tolist()
    return batch


def _poisson_samples(sampler: Any) -> Iterator[list[int]]:
    for _ in range(sampler.steps):
        yield _poisson(sampler.num_samples, sampler.sample_rate, sampler.generator)


def _shared_samples(sampler: Any) -> Iterator[list[int]]:
    """Yields samples of all records, alike in all processes, also empty ones.

    The sampler of Opacus draws each process's records from that process's own random
    numbers, and leaves out empty batches.
    """
    generator = sampler._share.generator()
    for _ in range(sampler.num_batches):
        yield _poisson(sampler.total_size, sampler.sample_rate, generator)


def _watched(kind: Any, batches: Callable[[Any], Iterable[Any]]) -> type:
    """Returns a type of samplers that report each batch to their watches."""
    return type(
        f"Watched{kind.__name__}",
        (kind,),
        {"__iter__": lambda sampler: reported(sampler, batches(sampler))},
    )


POISSON = uniform_sampler.UniformWithReplacementSampler
SHARED = uniform_sampler.DistributedUniformWithReplacementSampler
_WATCHED = {
    POISSON: _watched(POISSON, _poisson_samples),
    SHARED: _watched(SHARED, _shared_samples),
    data.BatchSampler: _watched(data.BatchSampler, data.BatchSampler.__iter__),
}
_KINDS = {watched: kind for kind, watched in _WATCHED.items()}


def kind_of(sampler: Any) -> Any:
    """Returns a sampler's type; if it reports its batches, its type before that."""
    return _KINDS.get(type(sampler), type(sampler))


def watch(loader: Any, by: Watch) -> None:
    """Makes the sampler of a known kind of loader report its batches from now on.

    An error is raised if several processes share the loader, and theirs differ.
    """
    sampler, num_records = batch_sampler(loader), len(loader.dataset)
    share = opacus_processes.Share()
    if opacus_processes.count() > 1 or kind_of(sampler) is SHARED:
        facts = {
            "number of records": num_records,
            "number of batches": len(loader),
            "sampling rate": _rate(sampler),
        }
        share = opacus_processes.agreed(loader, sampler.generator, facts)
    watch_sampler(
        sampler,
        by,
        num_records,
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
            batches: Iterator[Any] = super().__iter__()  # This draws the first ones.
            for watch, _ in batch_sampler(self)._watches:
                batches = watch.handed(batches)
            return batches

    Handing.__name__ = kind.__name__
    return Handing


def watch_sampler(
    sampler: Any,
    by: Watch,
    num_records: int,
    *,
    is_ahead: bool = True,
    is_ordered: bool = True,
    share: opacus_processes.Share | None = None,
) -> None:
    """Makes a sampler report its batches to a watch, with the fields of `_Loader`."""
    rate = _rate(sampler)
    # Two draws treat each record alike with the probability rate² + (1 − rate)².
    coincidence = (rate**2 + (1 - rate) ** 2) ** num_records
    sampler._share = share or opacus_processes.Share()
    properties = _Loader(coincidence, is_ahead, is_ordered, sampler._share)
    # The class of the sampler is replaced, as a DataLoader takes no other sampler once
    # it is made. The sampler keeps its length and attributes.
    if type(sampler) in _WATCHED:
        sampler.__class__ = _WATCHED[type(sampler)]
    watches = getattr(sampler, "_watches", [])
    others = [(watch, loader) for watch, loader in watches if watch is not by]
    sampler._watches = [*others, (by, properties)]


def is_watched(loader: Any, by: Watch) -> bool:
    """Whether the loader reports its batches to the watch."""
    watches = getattr(batch_sampler(loader), "_watches", [])
    return any(watch is by for watch, _ in watches)


def batch_sampler(loader: Any) -> Any:
    """Returns the sampler of the batches of a step, not of their parts."""
    sampler = loader.batch_sampler
    while isinstance(sampler, batch_memory_manager.BatchSplittingSampler):
        sampler = sampler.sampler
    return sampler
