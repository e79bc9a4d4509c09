"""Privacy profiles as a picture."""

from collections.abc import Sequence
import dataclasses
from typing import Protocol

from dp_accounting_ext.studies import delta_profile
from dp_accounting_ext.studies import drawing
from dp_accounting_ext.studies import training_run

_CHAINED = "Chained ones go from record to record; no tight bound is known."
_COLOURS = {
    training_run.RANDOM_ALLOCATION: drawing.Colour.BLUE,
    training_run.POISSON_SAMPLING: drawing.Colour.VERMILLION,
    training_run.NO_AMPLIFICATION: drawing.Colour.BLACK,
}


class Named(Protocol):
    """What has a curve."""

    @property
    def scheme(self) -> str:
        """How batches are drawn."""

    @property
    def group_size(self) -> int:
        """Number of records that are protected together."""

    @property
    def note(self) -> str:
        """How the upper bounds are made, if they need not be tight."""


def picture(
    found: Sequence[delta_profile.Profile], *, title: str, smallest_delta: float
) -> drawing.Picture:
    """Returns the profiles on one pair of axes.

    Args:
        found: The profiles.
        title: One line.
        smallest_delta: Lower end of the axis.
    """
    curves = [
        drawing.Curve(
            label(each),
            each.epsilons,
            each.delta_upper,
            each.delta_lower,
            look,
        )
        for each, look in zip(found, looks(found), strict=True)
    ]
    panel = drawing.Panel(
        "", "ε (nats)", "δ", curves, True, True, (smallest_delta, 1.0)
    )
    return drawing.Picture(title, [panel], note(found))


def note(found: Sequence[Named]) -> str:
    """Returns what a reader of the curves must know of them."""
    chained = any(each.note for each in found)
    return f"Certified bands. {_CHAINED}" if chained else "Certified bands."


def looks(found: Sequence[Named]) -> list[drawing.Look]:
    """Returns a style for each: colours are of schemes, dashes of sizes of groups."""
    sizes = sorted({each.group_size for each in found})
    return [_look(each.scheme, sizes.index(each.group_size)) for each in found]


def _look(scheme: str, rank: int) -> drawing.Look:
    """Returns the style of a scheme for the group size of a rank.

    The curves of random allocation and of Poisson sampling are often one upon the
    other. So the former is a broad pale line, and the latter, narrow dashes on it.
    """
    dashes = list(drawing.Dashes)
    if scheme == training_run.POISSON_SAMPLING:
        rank += 1
    look = drawing.Look(_COLOURS[scheme], dashes[rank % len(dashes)])
    if scheme == training_run.RANDOM_ALLOCATION:
        return dataclasses.replace(look, kind=drawing.Kind.BROAD)
    return look


def label(curve: Named) -> str:
    """Returns a name that is the curve's alone."""
    if curve.group_size == 1:
        return curve.scheme
    name = f"{curve.scheme}, groups of {curve.group_size}"
    return f"{name} ({curve.note})" if curve.note else name
