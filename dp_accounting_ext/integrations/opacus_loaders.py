"""Checks of data loaders, modules and losses: whether an accountant covers them."""

from collections.abc import Callable
import enum
from typing import Any

from torch.utils import data

from dp_accounting_ext.integrations import opacus_draws
from dp_accounting_ext.integrations import opacus_processes


class Kind(enum.Enum):
    """The ways of drawing batches for which this package has accountants."""

    POISSON = "Poisson samples"
    BALLS_AND_BINS = "balls-and-bins batches"
    SHUFFLED = "shuffled or fixed batches"


def kind(loader: Any) -> Kind:
    """Returns how a loader draws batches, and refuses one that no accountant is for."""
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
    own_kind = getattr(sampler, "kind", None)
    if isinstance(own_kind, Kind):
        return own_kind
    if opacus_draws.kind_of(sampler) in (opacus_draws.POISSON, opacus_draws.SHARED):
        return Kind.POISSON
    if opacus_draws.kind_of(sampler) is not data.BatchSampler:
        raise RuntimeError(
            f"No theorem is known for batches of {type(sampler).__name__}: pass "
            f"DataLoader(dataset, batch_size=…) without a sampler of its own."
        )
    inner = sampler.sampler
    if type(inner) not in _REFUSED:
        raise RuntimeError(
            f"No theorem is known for batches of {type(inner).__name__}: "
            f"pass DataLoader(dataset, batch_size=…, shuffle=True)."
        )
    is_refused, words = _REFUSED[type(inner)]
    if is_refused(inner):
        raise RuntimeError(words)
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
    for inner in parts:
        _refuse_repeated_records(inner)


def refuse_loss(loader: Any) -> None:
    """Refuses a loader of a subset, which Opacus would replace by the whole dataset."""
    inner = getattr(opacus_draws.batch_sampler(loader), "sampler", None)
    if isinstance(inner, data.SubsetRandomSampler):
        raise RuntimeError(
            "SubsetRandomSampler would be dropped, and batches drawn from the whole "
            "dataset. Write DataLoader(torch.utils.data.Subset(dataset, indices), "
            "batch_size=…)."
        )


def refuse_other(loader: Any, meant: Kind, mechanism: str) -> None:
    """Refuses a loader that draws batches otherwise than an accountant is for.

    So is one of which each of several processes would draw all records.
    """
    drawn = kind(loader)
    if drawn is not meant:
        raise RuntimeError(
            f"PrivacyEngine(accountant={mechanism!r}) is for {meant.value}. Found "
            f"{drawn.value}: {_REMEDIES[meant, drawn]}"
        )
    processes = opacus_processes.count()
    sampler = opacus_draws.kind_of(opacus_draws.batch_sampler(loader))
    is_shared = drawn is Kind.BALLS_AND_BINS or sampler is opacus_draws.SHARED
    if processes > 1 and not is_shared:
        raise RuntimeError(
            f"Processes must share the records of a batch. Found {processes}, each of "
            f"which would draw from all records: write accountant='certified', or "
            f"'balls_and_bins' with certified.balls_and_bins(data_loader, "
            f"engine.accountant); in a loop without make_private, "
            f"DPDataLoader.from_data_loader(data_loader, distributed=True)."
        )


def refuse_poisson(loader: Any, meant: Kind, mechanism: str) -> None:
    """Refuses a loader in whose place Opacus would draw what the user did not mean."""
    if meant is not Kind.POISSON:
        raise RuntimeError(
            f"make_private(…) draws Poisson samples in place of the loader's "
            f"batches: add poisson_sampling=False for accountant="
            f"{mechanism!r}, or write accountant='certified'."
        )
    if kind(loader) is Kind.BALLS_AND_BINS:
        raise RuntimeError(
            "make_private(…) draws Poisson samples in place of balls-and-bins "
            "batches: write PrivacyEngine(accountant='balls_and_bins') and "
            "make_private(…, poisson_sampling=False)."
        )
    refuse_loss(loader)


_POISSON, _BINS, _SHUFFLED = Kind
_WRAP = (
    "add data_loader = certified.balls_and_bins(data_loader, engine.accountant) before "
    "make_private(…, poisson_sampling=False)."
)
_TO_SHUFFLED = (
    "write PrivacyEngine(accountant='shuffled'), whose ε holds where a record is "
    "replaced, or "
)
_TO_BINS = "write PrivacyEngine(accountant='balls_and_bins')."
_TO_POISSON = "write PrivacyEngine(accountant='certified')."
# The remedy for each kind of accountant and of loader.
_REMEDIES = {
    (_POISSON, _SHUFFLED): f"{_TO_SHUFFLED}remove poisson_sampling=False.",
    (_POISSON, _BINS): _TO_BINS,
    (_BINS, _SHUFFLED): f"{_TO_SHUFFLED}{_WRAP}",
    (_BINS, _POISSON): f"{_TO_POISSON[:-1]}, or {_WRAP}",
    (_SHUFFLED, _POISSON): _TO_POISSON,
    (_SHUFFLED, _BINS): _TO_BINS,
}
# Whether samplers of a type are refused, and the error.
_REFUSED: dict[type, tuple[Callable[[Any], bool], str]] = {
    data.SequentialSampler: (lambda sampler: False, ""),
    data.RandomSampler: (
        lambda sampler: (
            sampler.replacement or sampler.num_samples > len(sampler.data_source)
        ),
        "RandomSampler draws a record several times in an epoch: remove "
        "replacement=True and num_samples=…, or compose "
        "SampledWithReplacementDpEvent, under REPLACE_ONE, yourself.",
    ),
    data.SubsetRandomSampler: (
        lambda sampler: len(set(sampler.indices)) < len(sampler.indices),
        "indices of SubsetRandomSampler must differ. Found some twice: a record "
        "would be in several batches of an epoch.",
    ),
    data.WeightedRandomSampler: (
        lambda sampler: True,
        "WeightedRandomSampler has no ε of its own here, and Opacus' Poisson samples "
        "would drop its weights. Pass DataLoader(dataset, batch_size=…), or draw "
        "record i with a fixed probability q_i and compose PoissonSampledDpEvent of "
        "the largest one, as the page recipes shows.",
    ),
    data.DistributedSampler: (
        lambda sampler: True,
        "DistributedSampler repeats records where processes do not divide their "
        "number, and Opacus drops it. Pass DataLoader(dataset, batch_size=…) of all "
        "records, with the batch size of all processes together: make_private gives "
        "each process its share.",
    ),
}
