"""Privacy profiles as a picture."""

from collections.abc import Sequence
import dataclasses

from dp_accounting_ext.studies import delta_profile
from dp_accounting_ext.studies import drawing
from dp_accounting_ext.studies import training_run

_COLOURS = {
    training_run.RANDOM_ALLOCATION: drawing.Colour.BLUE,
    training_run.POISSON_SAMPLING: drawing.Colour.VERMILLION,
    training_run.NO_AMPLIFICATION: drawing.Colour.BLACK,
}


def picture(
    found: Sequence[delta_profile.Profile], *, title: str, smallest_delta: float
) -> drawing.Picture:
    """Returns the profiles on one pair of axes, and what is left out below them.

    Args:
        found: The profiles.
        title: One line.
        smallest_delta: Lower end of the axis.
    """
    sizes = sorted({each.group_size for each in found})
    curves = [
        drawing.Curve(
            label(each),
            each.epsilons,
            each.delta_upper,
            each.delta_lower,
            _look(each.scheme, sizes.index(each.group_size)),
        )
        for each in found
        if each.epsilons
    ]
    panel = drawing.Panel(
        "", "ε (nats)", "δ", curves, True, True, (smallest_delta, 1.0)
    )
    note = " ".join(["Certified bands.", *notes(found)])
    return drawing.Picture(title, [panel], note)


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


def label(profile: delta_profile.Profile) -> str:
    """Returns a name that is the profile's alone."""
    return _label(profile.scheme, [profile.group_size])


def _label(scheme: str, group_sizes: Sequence[int]) -> str:
    if list(group_sizes) == [1]:
        return scheme
    return f"{scheme}, groups of {' and '.join(map(str, group_sizes))}"


def notes(found: Sequence[delta_profile.Profile]) -> list[str]:
    """Returns a sentence for each reason that profiles of a scheme are missing."""
    missing: dict[tuple[str, str], list[int]] = {}
    for each in found:
        if each.note:
            missing.setdefault((each.scheme, each.note), []).append(each.group_size)
    return [
        f"Without {_label(scheme, sizes)}: {note}."
        for (scheme, note), sizes in missing.items()
    ]
