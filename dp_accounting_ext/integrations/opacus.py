"""Certified accountants for Opacus, which are registered when this module is imported.

    from dp_accounting_ext.integrations import opacus as certified

    engine = PrivacyEngine(accountant="certified")  # Poisson samples, its default.

    engine = PrivacyEngine(accountant="balls_and_bins")
    loader = certified.balls_and_bins(loader, engine.accountant)
    engine.make_private(…, data_loader=loader, poisson_sampling=False)

    engine = PrivacyEngine(accountant="shuffled")  # ε where a record is replaced.
    engine.make_private(…, data_loader=loader, poisson_sampling=False)

All of them work with Opacus' `get_noise_multiplier` and with its checkpoints. If one is
used, `make_private` refuses a loader whose way of drawing batches is not the one that
the accountant is for, and each step is checked against the batches that the loader
drew. The accountants assume that Opacus itself clips the gradients and adds the noise.
"""

from collections.abc import Iterator
import functools
import textwrap
from typing import Any
import weakref

from dp_accounting import privacy_accountant
import opacus
from opacus.accountants import registry
from opacus.data_loader import wrap_collate_with_empty
from opacus.utils import fast_gradient_clipping_utils as ghost
from opacus.utils.adaptive_clipping import adaptive_clipping_utils as adaptive
import torch
from torch.utils import data

from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.integrations import opacus_accountants
from dp_accounting_ext.integrations import opacus_checks
from dp_accounting_ext.integrations import opacus_draws
from dp_accounting_ext.integrations import opacus_processes
from dp_accounting_ext.validation import fields

__all__ = [
    "BallsAndBinsAccountant",
    "BallsAndBinsSampler",
    "CertifiedAccountant",
    "ShuffledAccountant",
    "balls_and_bins",
    "check",
    "statement",
]
__dir__ = __all__.copy

CertifiedAccountant = opacus_accountants.CertifiedAccountant
BallsAndBinsAccountant = opacus_accountants.BallsAndBinsAccountant
ShuffledAccountant = opacus_accountants.ShuffledAccountant

# The options of a loader that are kept where it gets another sampler.
_KEPT = ["num_workers", "pin_memory", "timeout", "worker_init_fn"]
_KEPT += ["prefetch_factor", "multiprocessing_context", "persistent_workers"]
# Of statements: the digits of ε, and the length of lines.
_DIGITS, _WIDTH = 4, 80
_CHANGED = {
    privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE: "added or removed",
    privacy_accountant.NeighboringRelation.REPLACE_ONE: "replaced by another",
}
_ASSUMPTIONS = (
    "It holds for the release of every step's noisy gradient, so of all checkpoints "
    "and the final model. Each step was compared with the batch that the loader drew, "
    "and its noise with the clip, but for steps that the program counted itself or a "
    "checkpoint of another accountant had. It asks that sums be divided by a number "
    "that was fixed beforehand (Opacus makes it of the number of records, which must "
    "be public if one is added or removed), that noise, clip, rates and number of "
    "steps not be chosen by looking at this data, and that random numbers be "
    "unpredictable. Runs that tuned them on it count as releases, too."
)


class BallsAndBinsSampler:
    """A `batch_sampler` of a DataLoader that puts each record in one batch of an epoch.

    Args:
        num_records: Length of the dataset.
        num_steps: Number of batches of an epoch. Batches differ in size and may be
            empty.
        accountant: The accountant that every draw is reported to, so that epochs that
            end early or are resumed are accounted for correctly.
        generator: A `torch.Generator`. For real data its state must be unpredictable.

    Raises:
        TypeError, ValueError: If a number is not a positive integer, or the accountant
            is not one for balls and bins.
    """

    kind = opacus_checks.Kind.BALLS_AND_BINS
    _share: opacus_processes.Share  # Of several processes, from `make_private` on.

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
        if not isinstance(generator, torch.Generator | None):
            raise TypeError(
                f"generator must be a torch.Generator or None. Found {generator!r:.60}."
            )
        self.accountant, self.generator = accountant, generator
        opacus_draws.watch_sampler(self, accountant.watched, self.num_records)

    def __repr__(self) -> str:
        return (
            f"BallsAndBinsSampler({self.num_records} records, {self.num_steps} steps)"
        )

    @property
    def sample_rate(self) -> float:
        """The probability that a record is in a batch."""
        return 1 / self.num_steps

    def __len__(self) -> int:
        """Returns the number of batches of an epoch."""
        return self.num_steps

    def __iter__(self) -> Iterator[list[int]]:
        """Draws a batch for every record, and yields the batches' records."""
        return opacus_draws.reported(self, self._batches())

    def _batches(self) -> Iterator[list[int]]:
        is_shared = self._share.processes > 1
        generator = self._share.generator() if is_shared else self.generator
        bins = opacus_draws.uniform(self.num_steps, self.num_records, generator)
        order = torch.argsort(bins)
        sizes = torch.bincount(bins, minlength=self.num_steps)
        for batch in torch.split(order, sizes.tolist()):
            yield batch.tolist()


def balls_and_bins(
    data_loader: Any, accountant: BallsAndBinsAccountant, *, generator: Any = None
) -> Any:
    """Returns a loader of the same dataset that draws balls-and-bins batches.

    Args:
        data_loader: A plain `torch.utils.data.DataLoader` of a dataset with a length.
            The new loader has the same number of batches in an epoch, which have the
            same size on average.
        accountant: `engine.accountant` of `PrivacyEngine(accountant="balls_and_bins")`.
        generator: As in `BallsAndBinsSampler`; by default that of the loader.

    Returns:
        A DataLoader for `make_private(…, poisson_sampling=False)`.

    Raises:
        TypeError, ValueError: As `BallsAndBinsSampler` does.
        RuntimeError: If the loader's own sampler would be lost without a warning.
    """
    opacus_checks.kind(data_loader)
    opacus_checks.refuse_loss(data_loader)
    dataset = data_loader.dataset
    sampler = BallsAndBinsSampler(
        len(dataset),
        len(data_loader),
        accountant,
        generator=generator or data_loader.generator,
    )
    example = dataset[0]
    collate = wrap_collate_with_empty(
        collate_fn=data_loader.collate_fn,
        sample_empty_shapes=[(0, *getattr(x, "shape", ())) for x in example],
        dtypes=[getattr(x, "dtype", type(x)) for x in example],
    )
    same = {name: getattr(data_loader, name) for name in _KEPT}
    return data.DataLoader(dataset, batch_sampler=sampler, collate_fn=collate, **same)


def check(engine: Any, data_loader: Any) -> str:
    """Checks, before training, that an engine accounts for a loader's batches.

    Args:
        engine: A `PrivacyEngine` with an accountant of this module.
        data_loader: The loader that is to be trained on.

    Returns:
        A sentence that says how the loader draws batches, and for which neighboring
        datasets ε holds.

    Raises:
        TypeError: If the accountant is not one of this module, or the loader is not a
            DataLoader.
        RuntimeError: If the loader draws batches in another way, or is not the one that
            `make_private` returned.
    """
    accountant = _accountant_of(engine)
    accountant.refuse(data_loader)
    if not opacus_draws.is_watched(data_loader, accountant.watched):
        raise RuntimeError(
            "data_loader must be the one that make_private returned. Found another: "
            "write module, optimizer, data_loader = engine.make_private(…)."
        )
    relation = accountant.neighboring_relation.name
    processes = opacus_processes.count()
    shared = f", shared by {processes} processes" if processes > 1 else ""
    return (
        f"{accountant.kind.words}, {len(data_loader)} an epoch, of "
        f"{len(data_loader.dataset)} records{shared}: ε holds under {relation}."
    )


def statement(engine: Any, delta: float) -> str:
    """Returns a privacy statement of what ran, in words to publish beside a model.

    Args:
        engine: A `PrivacyEngine` with an accountant of this module, after training.
        delta: δ, in (0, 1).

    Raises:
        TypeError, ValueError: If the accountant is not one of this module, no step ran,
            or δ is out of range.

    Guarantees:
        ε is an upper bound, rounded up.
    """
    accountant = _accountant_of(engine)
    fields.inner_probability("delta", delta)
    if not len(accountant):
        raise ValueError(
            "engine must have run a step. Found none: train with the optimizer that "
            "make_private returns."
        )
    ran = "; ".join(
        f"{steps} step{'s' * (steps > 1)} with noise multiplier {noise!r} and sampling "
        f"rate {rate!r}"
        for noise, rate, steps in accountant.history
    )
    epsilon = decimals.rounded_up(accountant.get_epsilon(delta), _DIGITS)
    changed = _CHANGED[accountant.neighboring_relation]
    paragraphs = (
        f"DP-SGD on {accountant.kind.words}: {ran}. At δ = {delta!r}, ε is certified "
        f"to be at most {epsilon} if one record is {changed}.",
        _ASSUMPTIONS,
    )
    return "\n\n".join(textwrap.fill(paragraph, _WIDTH) for paragraph in paragraphs)


def _certified(engine: Any) -> CertifiedAccountant | None:
    accountant = getattr(engine, "accountant", None)
    return accountant if isinstance(accountant, CertifiedAccountant) else None


def _accountant_of(engine: Any) -> CertifiedAccountant:
    accountant = _certified(engine)
    if accountant is None:
        raise TypeError(
            f"engine must be PrivacyEngine(accountant='certified'), 'balls_and_bins' "
            f"or 'shuffled'. Found {getattr(engine, 'accountant', engine)!r:.60}."
        )
    return accountant


def _refuse(
    engine: Any,
    *,
    data_loader: Any,
    poisson_sampling: bool = True,
    clipping: str = "flat",
    module: Any = None,
    grad_sample_mode: str = "hooks",
    noise_multiplier: Any = 0,
    max_grad_norm: Any = 1.0,
    target_epsilon: Any = 1.0,
    target_delta: Any = 0.5,
    epochs: Any = 1,
    **_: Any,
) -> None:
    """Refuses arguments of `make_private` that the engine's accountant is not for.

    It also refuses numbers at which Opacus would fail in the first step.
    """
    accountant = _certified(engine)
    if accountant is None:
        return
    fields.noise_multiplier(noise_multiplier)
    fields.positive("target_epsilon", target_epsilon)
    fields.inner_probability("target_delta", target_delta)
    fields.positive("epochs", epochs)
    clips = [max_grad_norm]
    if clipping == "per_layer":
        clips = fields.sequence("max_grad_norm", max_grad_norm)
    for clip in clips:
        fields.positive("max_grad_norm", clip)
    opacus_processes.refuse_module(module, clipping, grad_sample_mode)
    if engine.secure_mode and opacus_processes.count() > 1:
        raise RuntimeError(
            "secure_mode=True must be of one process: several draw batches alike from "
            "generators of PyTorch, which are not secure. Train in one process."
        )
    is_adaptive = isinstance(engine, adaptive.PrivacyEngineAdaptiveClipping)
    if clipping == "adaptive" or is_adaptive:
        raise RuntimeError(opacus_accountants.ADAPTIVE)
    accountant.refuse_plan(data_loader, poisson_sampling)


def _refusing(make: Any) -> Any:
    """Returns a method of the engine that refuses wrong arguments before all else.

    Opacus passes no loader to an accountant, and replaces the user's loader before it
    first calls the accountant.
    """

    @functools.wraps(make)
    def checked(self: Any, **options: Any) -> Any:
        _refuse(self, **options)
        return make(self, **options)

    checked.is_checking = True  # type: ignore[attr-defined]
    return checked


def _watching(make_private: Any) -> Any:
    """Returns a `make_private` whose loader and optimizer are watched."""

    @functools.wraps(make_private)
    def watched(self: Any, **options: Any) -> Any:
        made = make_private(self, **options)
        accountant = _certified(self)
        if accountant is None:
            opacus_checks.unguard(made[1])
        else:
            accountant.watch(made[-1])
            accountant.watched.optimizer = weakref.ref(made[1])
            opacus_checks.count_parts(made[1])
            opacus_checks.guard(made[1])
        return made

    return watched


for _accountant in (CertifiedAccountant, BallsAndBinsAccountant, ShuffledAccountant):
    registry.register_accountant(_accountant.mechanism(), _accountant, force=True)
_engine = opacus.PrivacyEngine
if not hasattr(_engine.make_private, "is_checking"):
    _engine.make_private = _refusing(_watching(_engine.make_private))
    _engine.make_private_with_epsilon = _refusing(_engine.make_private_with_epsilon)
    ghost.DPTensorFastGradientClipping.backward = opacus_checks.checking(
        ghost.DPTensorFastGradientClipping.backward
    )
