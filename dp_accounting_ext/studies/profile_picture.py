"""Privacy profiles as a picture."""

from collections.abc import Sequence

from dp_accounting_ext.studies import delta_profile
from dp_accounting_ext.studies import drawing
from dp_accounting_ext.studies import training_run

_CHAINED = "Chained ones go from record to record; no tight bound is known."
_COLOURS = {
    training_run.RANDOM_ALLOCATION: drawing.Colour.BLUE,
    training_run.POISSON_SAMPLING: drawing.Colour.VERMILLION,
    training_run.NO_AMPLIFICATION: drawing.Colour.BLACK,
}


def picture(
    found: Sequence[delta_profile.Profile], *, title: str, smallest_delta: float
) -> drawing.Picture:
    """Returns the profiles on one pair of axes.

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
    ]
    panel = drawing.Panel(
        "", "ε (nats)", "δ", curves, True, True, (smallest_delta, 1.0)
    )
    note = "Certified bands."
    if any(each.note for each in found):
        note += f" {_CHAINED}"
    return drawing.Picture(title, [panel], note)


def _look(scheme: str, rank: int) -> drawing.Look:
    """Returns the style of a scheme for the group size of a rank.

    Poisson sampling is one style ahead: its curve of single records is dashes on the
    solid one of random allocation, which is often next to it.
    """
    dashes = list(drawing.Dashes)
    if scheme == training_run.POISSON_SAMPLING:
        rank += 1
    return drawing.Look(_COLOURS[scheme], dashes[rank % len(dashes)])


def label(profile: delta_profile.Profile) -> str:
    """Returns a name that is the profile's alone."""
    if profile.group_size == 1:
        return profile.scheme
    name = f"{profile.scheme}, groups of {profile.group_size}"
    return f"{name} ({profile.note})" if profile.note else name
