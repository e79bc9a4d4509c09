"""Practices of real training loops, and whether the privacy guarantee survives them.

Sources: division by what depends on the data, https://arxiv.org/abs/2605.15648;
adaptive clipping, https://arxiv.org/abs/1905.03871; augmentations,
https://arxiv.org/abs/2204.13650.
"""

from collections.abc import Iterable
import textwrap

__all__ = [
    "PRACTICES",
    "in_words",
]
__dir__ = __all__.copy

_WIDTH = 80

PRACTICES = {
    "division by the batch's size": (
        "Breaks the promise. Batches differ in size, and who divides the sum of "
        "gradients, and so the noise, by the number of examples drawn reveals that "
        "number. Divide by one that is fixed beforehand. Where a record is added or "
        "removed, a number made of the dataset's size, as batch size over dataset "
        "size times dataset size, is not fixed beforehand."
    ),
    "a weighted sampler": (
        "Breaks the promise where weights are made from the data, such as from the "
        "number of examples of a class: with one example less, others are drawn more "
        "often. With weights that are fixed beforehand, Poisson sampling keeps it, "
        "where its rate is the largest inclusion probability of any example."
    ),
    "adaptive clipping": (
        "Costs more. The number of examples below the clip is a second Gaussian "
        "mechanism on the same sample, to be composed inside of the sample: with noise "
        "multipliers z1 of the gradients and z2 of the number (its noise over 1/2, "
        "where 1/2 is taken off each example's 0 or 1), the two are one Gaussian of "
        "noise multiplier 1 / sqrt(1 / z1² + 1 / z2²). A number divided by the drawn "
        "batch's size breaks the promise."
    ),
    "gradient accumulation": (
        "Keeps the promise where parts of one batch are added up and noise is added to "
        "their sum, once. Several Poisson samples in one sum are no Poisson sample: an "
        "example may be in each of them. Several balls-and-bins batches of one epoch "
        "are one larger batch."
    ),
    "truncated batches": (
        "Costs more. Where a sample that is too large is cut at random, an example "
        "takes the place of another: account for TruncatedSubsampledGaussianDpEvent. "
        "To repeat examples until a batch is full breaks the promise."
    ),
    "augmentation multiplicity": (
        "Keeps the promise where the gradients of all augmentations of one example are "
        "averaged before they are clipped, together. Clipped one by one and added, m "
        "of them are m clips: divide the noise multiplier by m."
    ),
    "stopping on a metric": (
        "Keeps the promise of all steps that were planned, not that of the steps that "
        "ran. The metric must be one of what was released, on data of its own: on the "
        "training data it is another release. Where more than a stop is chosen by "
        "looking, such as the next noise, a filter of dp_accounting_ext.budget is "
        "needed."
    ),
}


def in_words(practices: Iterable[str] = tuple(PRACTICES)) -> str:
    """Returns what each practice does to the guarantee, on lines of at most 80 letters.

    Args:
        practices: Names in `PRACTICES`; all by default.

    Raises:
        ValueError: If a name is not in `PRACTICES`.
    """
    found = []
    for name in practices:
        if name not in PRACTICES:
            known = ", ".join(map(repr, PRACTICES))
            raise ValueError(f"practices must be of {known}. Found {name!r}.")
        sentence = f"{name[0].upper()}{name[1:]}: {PRACTICES[name]}"
        found.append(textwrap.fill(sentence, _WIDTH, subsequent_indent="    "))
    return "\n\n".join(found)
