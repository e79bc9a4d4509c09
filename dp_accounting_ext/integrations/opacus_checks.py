"""Checks of data loaders, losses and steps: whether an accountant covers them.

An optimizer makes its noise from `optimizer.max_grad_norm`. What clips the gradients is
another attribute with per-layer clipping, and belongs to the module with ghost
clipping. So it is checked that Opacus clips the gradients which it sums, at the clip of
its noise. Each step must be counted, and have noise of its own.
"""

from collections.abc import Callable
import dataclasses
import enum
import functools
import hashlib
import math
from typing import Any

import torch
from torch.utils import data

from dp_accounting_ext.integrations import opacus_draws
from dp_accounting_ext.integrations import opacus_processes

# Tuning: the relative amount by which the norm of a sum may exceed the sum of its
# clips, as gradients are summed in single or half precision; and the difference of two
# clips that are meant to be equal, as those of layers are added up in single precision.
_ROUNDING, _SAME = 1e-2, 1e-6


class Kind(enum.Enum):
    """Ways of drawing batches, in words, and their accountants in Opacus' registry."""

    POISSON = "Poisson samples", "certified"
    BALLS_AND_BINS = "balls-and-bins batches", "balls_and_bins"
    SHUFFLED = "shuffled or fixed batches", "shuffled"

    def __init__(self, words: str, accountant: str) -> None:
        self.words, self.accountant = words, accountant


def kind(loader: Any) -> Kind:
    """Returns how a loader draws batches, and refuses one that no accountant is for."""
    if not isinstance(loader, data.DataLoader):
        raise TypeError(
            f"data_loader must be a torch.utils.data.DataLoader. Found {loader!r:.60}."
        )
    _refuse_unsized(loader.dataset)
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


def _refuse_unsized(dataset: Any) -> None:
    """Refuses a dataset without a length, from which no record can be drawn."""
    name = type(dataset).__name__
    if isinstance(dataset, data.IterableDataset):
        raise RuntimeError(
            f"No theorem covers the batches of an iterable dataset. Found {name}: a "
            f"dataset with a length and dataset[i] can be sampled."
        )
    if not hasattr(dataset, "__len__"):
        raise RuntimeError(
            f"Records can be drawn from a dataset with a length. Found none: define "
            f"{name}.__len__."
        )


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


def refuse_other(loader: Any, meant: Kind) -> None:
    """Refuses a loader that draws batches in another way than `meant`.

    It also refuses a loader from which each of several processes would draw batches of
    all records.
    """
    drawn = kind(loader)
    if drawn is not meant:
        raise RuntimeError(
            f"PrivacyEngine(accountant={meant.accountant!r}) is for {meant.words}. "
            f"Found {drawn.words}: {_remedy(meant, drawn)}."
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


def refuse_poisson(loader: Any, meant: Kind) -> None:
    """Refuses a loader in whose place Opacus would draw what the user did not mean."""
    if meant is not Kind.POISSON:
        raise RuntimeError(
            f"make_private(…) draws Poisson samples in place of the loader's "
            f"batches: add poisson_sampling=False for accountant="
            f"{meant.accountant!r}, or write accountant='certified'."
        )
    if kind(loader) is Kind.BALLS_AND_BINS:
        raise RuntimeError(
            "make_private(…) draws Poisson samples in place of balls-and-bins "
            "batches: write PrivacyEngine(accountant='balls_and_bins') and "
            "make_private(…, poisson_sampling=False)."
        )
    refuse_loss(loader)


def _remedy(meant: Kind, drawn: Kind) -> str:
    """Returns what to write if a loader draws otherwise than an accountant is for."""
    words = f"write PrivacyEngine(accountant={drawn.accountant!r})"
    if drawn is Kind.SHUFFLED:
        words += ", whose ε holds where a record is replaced"
    if meant is Kind.BALLS_AND_BINS:
        words += ", or add data_loader = certified.balls_and_bins(data_loader, "
        words += "engine.accountant) before make_private(…, poisson_sampling=False)"
    elif drawn is Kind.SHUFFLED:
        words += ", or remove poisson_sampling=False"
    return words


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


@dataclasses.dataclass
class Parts:
    """The gradients that an optimizer added up since its last step.

    Attributes:
        records: The number of clipped gradients; None if it is unknown.
        clip: The largest norm that one of them may have.
        is_split: Whether there may be more that were not counted.
    """

    records: int | None = 0
    clip: float = 0.0
    is_split: bool = False

    def add(self, optimizer: Any) -> None:
        """Counts the gradients that an optimizer is about to add, or has added."""
        size, earlier = _size_of_part(optimizer), self.records
        self.records = None if size is None or earlier is None else earlier + size
        self.clip = max(self.clip, _clip(optimizer))


def count_parts(optimizer: Any) -> None:
    """Makes an optimizer count the gradients that it adds up, also in several parts.

    Opacus keeps only the gradients of the last part of a batch.
    """
    # With ghost clipping the method has the second name.
    for name in ("clip_and_accumulate", "accumulate"):
        if hasattr(optimizer, name):
            optimizer._parts = Parts()
            accumulate = getattr(type(optimizer), name)
            setattr(optimizer, name, functools.partial(_count, optimizer, accumulate))


def _count(optimizer: Any, accumulate: Callable[[Any], None]) -> None:
    accumulate(optimizer)
    optimizer._parts.add(optimizer)


def guard(optimizer: Any) -> None:
    """Makes the plain optimizer, inside of a private one, refuse uncounted steps."""
    plain = optimizer.original_optimizer
    unguard(optimizer)
    plain._is_counted = False
    plain._guard = plain.register_step_pre_hook(_refuse_uncounted)


def unguard(optimizer: Any) -> None:
    """Undoes `guard`."""
    handle = getattr(optimizer.original_optimizer, "_guard", None)
    if handle is not None:
        handle.remove()


def _refuse_uncounted(plain: Any, *_: Any) -> None:
    if not plain._is_counted:
        raise RuntimeError(
            f"A step of {type(plain).__name__} must be one that the accountant "
            f"counted. Found another: write optimizer.step() with the optimizer that "
            f"make_private returns, and leave its hook; a hook of your own calls "
            f"engine.accountant.get_optimizer_hook_fn(1 / len(data_loader)) first."
        )
    plain._is_counted = False


def mark_of_noise(optimizer: Any) -> bytes | None:
    """Returns what tells the noise of a step from that of others; None if unknown."""
    device, generator = optimizer.params[0].device, optimizer.generator
    is_without = getattr(optimizer, "rank", 0) or not optimizer.noise_multiplier
    if is_without or optimizer.secure_mode:
        return None
    if generator is not None:
        state = generator.get_state()
    elif device.type in ("cpu", "cuda"):
        is_cpu = device.type == "cpu"
        state = torch.get_rng_state() if is_cpu else torch.cuda.get_rng_state(device)
    else:
        return None
    return hashlib.sha256(state.cpu().numpy().tobytes()).digest()


def take_parts(optimizer: Any) -> Parts:
    """Returns what a step sums, and begins to count again from zero."""
    parts: Parts | None = getattr(optimizer, "_parts", None)
    if parts is None:
        # Gradients of parts before the last one were added up, and cannot be counted.
        parts = Parts(is_split=getattr(optimizer, "_is_last_step_skipped", True))
        parts.add(optimizer)
    else:
        optimizer._parts = Parts()
    return parts


def noise_multiplier(optimizer: Any, parts: Parts) -> float:
    """Returns the standard deviation of a step's noise over its largest gradient.

    It refuses noise that is not made from the clip of the gradients, and a sum that is
    too large for gradients that were clipped.
    """
    ratio = optimizer.max_grad_norm / parts.clip if parts.clip > 0 else 0.0
    if not abs(ratio - 1) <= _SAME:
        raise RuntimeError(
            f"optimizer.max_grad_norm, from which the noise is made, must be positive, "
            f"and the clip of the step's gradients. Found {optimizer.max_grad_norm:g}, "
            f"and {parts.clip:g}. Opacus' clip schedulers change only the former with "
            f"ghost or per-layer clipping, and amid a batch: write clipping='flat' and "
            f"grad_sample_mode='hooks', and call scheduler.step() after a step."
        )
    norm = math.hypot(*(_norm(optimizer, parameter) for parameter in optimizer.params))
    records = math.inf if parts.is_split or parts.records is None else parts.records
    largest = records * parts.clip if records else 0.0
    if not (math.isfinite(norm) and norm <= largest * (1 + _ROUNDING)):
        raise RuntimeError(
            f"The sum of a step's gradients must have a norm of at most the clip times "
            f"the number of records. Found {norm:g} for {parts.records} records and a "
            f"clip of {parts.clip:g}: Opacus did not clip them. Look for infinite "
            f"gradients, and with ghost clipping for a loss that is not one number for "
            f"each record; or write grad_sample_mode='hooks'."
        )
    return float(optimizer.noise_multiplier * ratio)


def _norm(optimizer: Any, parameter: Any) -> float:
    """Returns the norm of a parameter's sum of gradients."""
    norm = float(parameter.summed_grad.detach().float().norm())
    # A process that adds no noise has divided the sum itself.
    is_divided = parameter.grad.data_ptr() == parameter.summed_grad.data_ptr()
    return norm * divisor(optimizer) if is_divided else norm


def divisor(optimizer: Any) -> float:
    """Returns the number by which Opacus divides the sum of a step's gradients."""
    if optimizer.loss_reduction != "mean":
        return 1.0
    return float(optimizer.expected_batch_size * optimizer.accumulated_iterations)


def checking(backward: Callable[[Any], None]) -> Callable[[Any], None]:
    """Returns the `backward` of ghost clipping's losses that checks their shape.

    Opacus multiplies the losses by coefficients, one for each record. Losses of another
    shape are multiplied by several of them.
    """

    @functools.wraps(backward)
    def checked(loss: Any) -> None:
        backward(loss)
        optimizer, module = loss.optimizer, loss.module
        optimizer._ghost_clip = module.max_grad_norm
        if not hasattr(optimizer.step_hook, "is_certified"):
            return
        clipped = set(map(id, module.trainable_parameters))
        if any(id(parameter) not in clipped for parameter in optimizer.params):
            raise RuntimeError(
                "Ghost clipping must see all parameters that are trained. Found one "
                "that was frozen when make_private ran, whose gradient it does not "
                "clip: set requires_grad before make_private."
            )
        shape, records = tuple(loss.loss_per_sample.shape), _size_of_part(optimizer)
        if shape != (records,):
            raise RuntimeError(
                f"A loss of ghost clipping must be one number for each record, of "
                f"shape ({records},). Found {shape}, which Opacus does not clip: write "
                f"criterion(outputs.squeeze(1), targets) where outputs have the shape "
                f"({records}, 1); otherwise take the mean over all but the records."
            )

    return checked


def _clip(optimizer: Any) -> float:
    """Returns the largest norm of a gradient after clipping."""
    layers = getattr(optimizer, "max_grad_norms", None)
    if layers is not None:
        return math.hypot(*layers)
    return float(getattr(optimizer, "_ghost_clip", optimizer.max_grad_norm))


def _size_of_part(optimizer: Any) -> int | None:
    """Returns the number of clipped gradients of a step, or None if it is unknown."""
    for parameter in optimizer.params:
        gradients = getattr(parameter, "grad_sample", None)
        if isinstance(gradients, torch.Tensor):
            return len(gradients)
        if isinstance(gradients, list) and gradients:
            return sum(map(len, gradients))
        norms = getattr(parameter, "_norm_sample", None)
        if isinstance(norms, torch.Tensor):
            return len(norms)  # All that ghost clipping keeps.
    return None
