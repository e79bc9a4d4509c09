"""Checks that Opacus clips the gradients which it sums, at the clip of its noise.

An optimizer makes its noise from `optimizer.max_grad_norm`. What clips the gradients is
another attribute with per-layer clipping, and belongs to the module with ghost
clipping. Each step must be counted, and have noise of its own.
"""

from collections.abc import Callable
import dataclasses
import functools
import hashlib
import math
from typing import Any

import torch

# Tuning: the relative amount by which the norm of a sum may exceed the sum of its
# clips, as gradients are summed in single or half precision; and the difference of two
# clips that are meant to be equal, as those of layers are added up in single precision.
_ROUNDING, _SAME = 1e-2, 1e-6


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
