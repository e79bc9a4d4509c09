"""Checks of data loaders, modules and losses: whether an accountant covers them."""

from collections.abc import Callable
import enum
from typing import Any

from opacus.utils import uniform_sampler
from torch.utils import data

from dp_accounting_ext.integrations import opacus_draws
from dp_accounting_ext.integrations import opacus_processes


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
    if not hasattr(loader.dataset, "__len__"):
        raise RuntimeError(
            f"Records can be drawn from a dataset with a length. Found none: define "
            f"{type(loader.dataset).__name__}.__len__."
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
    if not hasattr(loader.dataset[0], "__iter__"):
        raise RuntimeError(
            f"A record must be a tuple, a dictionary or a tensor, of which Opacus "
            f"makes empty batches. Found a {type(loader.dataset[0]).__name__}: return "
            f"(record,) from {type(loader.dataset).__name__}.__getitem__."
        )
    found = getattr(sampler, "kind", None)
    if isinstance(found, Kind):
        return found
    if type(sampler) in _POISSON:
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


def refuse_unshared(loader: Any) -> None:
    """Refuses a loader of which each of several processes would draw all records.

    Raises:
        RuntimeError: If it is such a loader, and there are several processes.
    """
    sampler, processes = opacus_draws.batch_sampler(loader), opacus_processes.count()
    is_shared = kind(loader) is Kind.BALLS_AND_BINS or type(sampler) in _SHARED
    if processes > 1 and not is_shared:
        raise RuntimeError(
            f"Processes must share the records of a batch. Found {processes}, each of "
            f"which would draw from all records: write accountant='certified', or "
            f"'balls_and_bins' with certified.balls_and_bins(data_loader, "
            f"engine.accountant); in a loop without make_private, "
            f"DPDataLoader.from_data_loader(data_loader, distributed=True)."
        )


_SHARED = {
    uniform_sampler.DistributedUniformWithReplacementSampler,
    opacus_draws.WatchedShared,
}
_POISSON = _SHARED | {
    uniform_sampler.UniformWithReplacementSampler,
    opacus_draws.WatchedPoisson,
}


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


def _distributed(sampler: Any) -> None:
    raise RuntimeError(
        "DistributedSampler repeats records where processes do not divide their "
        "number, and Opacus drops it. Pass DataLoader(dataset, batch_size=…) of all "
        "records, with the batch size of all processes together: make_private gives "
        "each process its share."
    )


_REFUSED: dict[type, Callable[[Any], None]] = {
    data.DistributedSampler: _distributed,
    data.SequentialSampler: _accepted,
    data.RandomSampler: _random,
    data.SubsetRandomSampler: _subset,
    data.WeightedRandomSampler: _weighted,
}
