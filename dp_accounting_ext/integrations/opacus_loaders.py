"""Checks of data loaders, modules and losses: whether an accountant covers them."""

from collections.abc import Callable
import enum
from typing import Any

from opacus.utils import uniform_sampler
from torch.utils import data

from dp_accounting_ext.integrations import opacus_draws


class Kind(enum.Enum):
    """The ways of drawing batches for which this package has accountants."""

    POISSON = "Poisson samples"
    BALLS_AND_BINS = "balls-and-bins batches"
    SHUFFLED = "shuffled or fixed batches"


def kind(loader: Any) -> Kind:
    """Returns how a loader draws batches.

    Raises:
        TypeError: If it is not a DataLoader.
        RuntimeError: If it has no batch, or no accountant of this package is for it.
            The message names the sampler.
    """
    if not isinstance(loader, data.DataLoader):
        raise TypeError(
            f"data_loader must be a torch.utils.data.DataLoader. Found {loader!r:.60}."
        )
    if isinstance(loader.dataset, data.IterableDataset):
        raise RuntimeError(
            f"No theorem covers the batches of an iterable dataset. Found "
            f"{type(loader.dataset).__name__}: a dataset with a length and "
            f"dataset[i] can be sampled."
        )
    _refuse_repeated_records(loader.dataset)
    sampler = opacus_draws.batch_sampler(loader)
    if sampler is None:
        raise RuntimeError(
            "No theorem is known for a loader without batches. Found batch_size=None: "
            "pass DataLoader(dataset, batch_size=…)."
        )
    if not len(loader):
        raise RuntimeError(
            f"data_loader must have a batch. Found none, of {len(loader.dataset)} "
            f"records: with drop_last=True, batch_size must be at most their number."
        )
    found = getattr(sampler, "kind", None)
    if isinstance(found, Kind):
        return found
    if isinstance(sampler, _DISTRIBUTED):
        raise RuntimeError(_SEVERAL_GPUS)
    plain = {opacus_draws.WatchedPoisson: uniform_sampler.UniformWithReplacementSampler}
    if plain.get(type(sampler), type(sampler)) in plain.values():
        return Kind.POISSON
    if type(sampler) not in (data.BatchSampler, opacus_draws.WatchedBatches):
        raise RuntimeError(
            f"No theorem is known for batches of {type(sampler).__name__}: pass "
            f"DataLoader(dataset, batch_size=…) without a sampler of its own."
        )
    refuse = _REFUSED.get(type(sampler.sampler))
    if refuse is None:
        raise RuntimeError(
            f"No theorem is known for batches of {type(sampler.sampler).__name__}: "
            f"pass DataLoader(dataset, batch_size=…, shuffle=True)."
        )
    refuse(sampler.sampler)
    return Kind.SHUFFLED


def _refuse_repeated_records(dataset: Any) -> None:
    """Refuses a dataset that certainly has a record twice."""
    is_repeated = False
    if isinstance(dataset, data.Subset):
        indices = list(map(int, dataset.indices))
        is_repeated = len(set(indices)) < len(indices)
        parts = [dataset.dataset]
    elif isinstance(dataset, data.ConcatDataset):
        parts = dataset.datasets
        is_repeated = len(set(map(id, parts))) < len(parts)
    else:
        return
    if is_repeated:
        raise RuntimeError(
            f"A dataset must have each record once. Found a {type(dataset).__name__} "
            f"that has some twice: several of their gradients would be in one batch. "
            f"Remove the repetitions; to weigh records, multiply their losses."
        )
    for part in parts:
        _refuse_repeated_records(part)


def refuse_loss(loader: Any) -> None:
    """Refuses a loader whose sampler would be replaced by one of the whole dataset.

    Raises:
        RuntimeError: If the loader's choice of records, or their weights, would be
            lost.
    """
    sampler = opacus_draws.batch_sampler(loader)
    inner = getattr(sampler, "sampler", None)
    if isinstance(inner, data.SubsetRandomSampler):
        raise RuntimeError(
            "SubsetRandomSampler would be dropped, and batches drawn from the whole "
            "dataset. Write DataLoader(torch.utils.data.Subset(dataset, indices), "
            "batch_size=…)."
        )


def refuse_several_gpus(module: Any) -> None:
    """Refuses a module that adds up gradients of several processes.

    Raises:
        RuntimeError: If it is such a module.
    """
    if _OF_SEVERAL_GPUS & {each.__name__ for each in type(module).__mro__}:
        raise RuntimeError(_SEVERAL_GPUS)


_DISTRIBUTED = (
    uniform_sampler.DistributedUniformWithReplacementSampler,
    data.DistributedSampler,
)


_OF_SEVERAL_GPUS = {
    "DifferentiallyPrivateDistributedDataParallel",
    "DistributedDataParallel",
    "FSDPModule",
}


_SEVERAL_GPUS = (
    "No accountant here is for several GPUs: processes that were seeded alike draw the "
    "same batches, and a process whose batch is empty takes no step. Train on one GPU, "
    "with opacus.utils.batch_memory_manager.BatchMemoryManager where memory is short."
)


def _accepted(sampler: Any) -> None:
    """Accepts a sampler that yields each record once."""


def _random(sampler: Any) -> None:
    if sampler.replacement or sampler.num_samples > len(sampler.data_source):
        raise RuntimeError(
            "RandomSampler draws a record several times in an epoch: remove "
            "replacement=True and num_samples=…, or compose "
            "SampledWithReplacementDpEvent, under REPLACE_ONE, yourself."
        )


def _subset(sampler: Any) -> None:
    if len(set(sampler.indices)) < len(sampler.indices):
        raise RuntimeError(
            "indices of SubsetRandomSampler must differ. Found some twice: a record "
            "would be in several batches of an epoch."
        )


def _weighted(sampler: Any) -> None:
    raise RuntimeError(
        "WeightedRandomSampler has no ε of its own here, and Opacus' Poisson samples "
        "would drop its weights. Pass DataLoader(dataset, batch_size=…), or draw "
        "record i with a fixed probability q_i and compose PoissonSampledDpEvent of "
        "the largest one, as the page recipes shows."
    )


_REFUSED: dict[type, Callable[[Any], None]] = {
    data.SequentialSampler: _accepted,
    data.RandomSampler: _random,
    data.SubsetRandomSampler: _subset,
    data.WeightedRandomSampler: _weighted,
}
